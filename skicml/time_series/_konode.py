"""KoNODE: a neural ODE whose parameters follow a linear dynamics."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state, check_scalar, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.time_series._konode_windows import standardisation, training_windows
from skicml.time_series._series import cut_windows, validate_series
from skicml.utils._fitting import all_or_nothing
from skicml.utils._magnitude import check_magnitude

# max a * t above which a forecast is called explosive.
_EXPLOSIVE = 5.0
# Eigenvalues learn faster than networks: slower, they stay near where they started.
_EIGENVALUE_RATE = 10.0


class KoNODE(CallbackSupportMixin, BaseEstimator):
    """Koopman-driven neural ordinary differential equation: forecasts in continuous time.

    A neural ODE x' = f(x; theta) does the same whenever it is in the same state. Here the
    parameters move [1]_, on three levels::

        w'     = A w              linear, with eigenvalues a_i +- i b_i
        theta  = D(w)             a decoder network
        x'     = f(x; theta)      a network whose weights are theta

    so that theta(t) is made of modes that oscillate, grow or decay, and goes on beyond the
    training data. That suits systems whose law itself changes: forcing, seasons, wear.

    Read more in the :ref:`User Guide <konode>`.

    Parameters
    ----------
    horizon : int, default=20
        Steps that training forecasts from each context, and that :meth:`predict` gives.
        :meth:`forecast` goes on as long as you like.
    context_length : int, default=1
        Rows that the encoder sees; the last of them is the state that a forecast starts from.
    time_step : float, default=1.0
        Time between two rows. It sets the unit of eigenvalues, times and :meth:`vector_field`
        and nothing else.
    koopman_dim : int, default=10
        Size of w: two for each mode. 0 makes a plain neural ODE with constant parameters.
    hidden_dims : array-like of int, default=(32, 32)
        Hidden units of f. Empty makes f linear in x.
    decoder_dim : int, default=50
        Hidden units of the decoder and of the encoder.
    activation : {"silu", "relu", "tanh"}, default="silu"
        Activation of f. The kinks of "relu" make adaptive solvers slow.
    initial_latent : {"encoder", "learned", "random"}, default="encoder"
        Where w(0) comes from. "encoder": a network reads it off the context, and t = 0 is the
        last row of the context; each window has a phase of its own. "learned": one vector for
        all, and t = 0 is the first row of the training data, for series that share a clock.
        "random": noise of size 0.01 for each window, as in the released script, which learns
        little more than a plain neural ODE; one fixed draw serves all predictions.
    eigenvalues : {"unitary", "stable", "free"}, default="unitary"
        Growth rates a_i: all zero, not positive, or any. Free ones tend to drift below zero
        in training, and the modes then die out beyond the training data.
    solver : {"rk4", "euler", "dopri5"}, default="rk4"
        Solver of torchdiffeq for x. The first two take fixed steps.
    solver_substeps : int, default=1
        Steps of a fixed-step solver between two rows.
    adjoint : bool, default=False
        Whether gradients come from the adjoint system, solved backwards in time, in place of
        back-propagation through the solver: slower, with memory that does not grow with the
        horizon.
    max_epochs : int, default=200
        Passes over the training windows.
    batch_size : int, default=64
        Windows a gradient step.
    learning_rate : float, default=3e-3
        Step size of Adam; ten times as large for the eigenvalues.
    learning_rate_decay : float, default=0.98
        Factor on the step size after each epoch.
    stride : int or None, default=None
        Rows between the starts of training windows. None takes the smallest stride that
        leaves at most 1024 windows, or one window a series if there are more series.
    validation_fraction : float, default=0.1
        Share of the series that is held out; the parameters of the epoch with the least loss
        on it are kept. Where there are too few series, the last windows in time are held out,
        as long as half of the windows remain that do not overlap with their targets. If
        nothing can be held out, the training loss decides.
    curriculum : bool, default=True
        Whether the training horizon doubles from 10 up to `horizon` over the first half of
        the epochs.
    clip_norm : float or None, default=1.0
        Largest norm of a gradient.
    random_state : int, RandomState instance or None, default=None
        Determines the start, the held-out series and the order of the batches. Pass an int
        for reproducible results.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the model is trained.

    Attributes
    ----------
    koopman_eigenvalues_ : ndarray of complex of shape (koopman_dim / 2,)
        a_i + i b_i, per time unit; b_i is in radians and between 0 and pi / time_step.
    mean_ : ndarray of shape (n_channels,)
        Means of the training rows.
    scale_ : ndarray of shape (n_channels,)
        Standard deviations of the training rows; 1 for constant channels.
    context_ : ndarray of shape (context_length, n_channels) or \
            (n_series, context_length, n_channels)
        The last rows of the training data, from which :meth:`forecast` goes on.
    end_time_ : float
        Time of the last training row; the first has time 0.
    net_ : skorch.NeuralNet
        The trained net; ``net_.module_`` holds the three levels for standardised rows and
        times in steps.
    loss_curve_ : ndarray of shape (n_iter_,)
        Mean squared error of standardised forecasts in training, for each epoch; over the
        horizon of that epoch.
    validation_loss_curve_ : ndarray of shape (n_iter_,) or None
        The same of the held-out windows, over the full horizon.
    best_loss_ : float
        Loss of the parameters that were kept.
    n_iter_ : int
        Number of epochs run.
    n_features_in_ : int
        Number of channels.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the channels, if X has string column names.

    See Also
    --------
    sklearn.linear_model.Ridge : On lagged rows: the plain alternative for short horizons.

    Notes
    -----
    With w_i = (w_{2i}, w_{2i+1}) the linear level is known in closed form,

        w_i(t) = e^{a_i t} [[cos b_i t, sin b_i t], [-sin b_i t, cos b_i t]] w_i(0),

    so theta at all times at which a fixed-step solver calls f is one batched call of D.

    For S of these times, B windows, P weights of f and decoders of width h, a gradient step
    takes time O(S h P + S B P) where all windows share theta(t) ("learned" with one window a
    series, or ``koopman_dim=0``), and O(S B h P) otherwise, and memory O(S P + S B h) or
    O(S B P). So keep f small with the encoder. With ``adjoint=True`` memory does not grow with
    S. A forecast of n rows over k steps takes time O(k h P + n k P) or O(n k h P) and bounded
    memory.

    When it does not help: on a system whose law is constant, a plain neural ODE
    (``koopman_dim=0``) extrapolates better. "learned" needs the clock, so give `start_time`
    wherever X does not start at the time of the first training row; in cross-validation over
    time, use "encoder".

    Departures from the released script, all ours:

    * w(0) from an encoder or learnt, instead of fresh noise at each call, and eigenvalues on
      the imaginary axis by default. The encoder sees the last row and the steps that lead to
      it, and ends in a tanh: a context unlike those of training cannot throw w far away.
    * Frequencies start evenly spaced on a logarithmic scale from one turn a window (for
      "learned": a series) to an eighth of a turn a step, not at zero. They are pi / time_step
      times a sigmoid, which keeps them below aliasing.
    * Channels are standardised, and f is scaled by the root mean square of their change in a
      step: the forecasts do not depend on the unit of time, and a constant channel stays
      constant.
    * The layers of D that give the weights have their SiLU in front, not at the end, where it
      would bound all weights from below; they start from an ordinary network and a tenth of the
      usual dependence on w.
    * Sampling times are exact multiples of the step; "rk4" (the 3/8 rule of torchdiffeq) instead
      of Euler; smaller f (the script has ``hidden_dims=(80, 80, 80), activation="relu"``), as
      the encoder needs P numbers for each window and time; clipped gradients, curriculum.
    * With "free", a t is cut at 20, with a warning where it exceeds 5.

    If a series is shorter than ``context_length + horizon``, training uses the horizon that
    fits, with a warning; the shape of the predictions remains that of `horizon`. Training is
    in single precision, predictions are computed in double precision.

    References
    ----------
    .. [1] Bai, H. and Ding, W. "KoNODE: Koopman-Driven Neural Ordinary Differential Equations
       with Evolving Parameters for Time Series Analysis." ICML 2025, PMLR 267:2484-2519.

    Examples
    --------
    An oscillator, sampled ten times in a time unit:

    >>> import numpy as np
    >>> from skicml.time_series import KoNODE
    >>> t = 0.1 * np.arange(200)
    >>> X = np.column_stack([np.cos(t), np.sin(t)])
    >>> model = KoNODE(
    ...     horizon=10, time_step=0.1, koopman_dim=2, hidden_dims=(8,), decoder_dim=8,
    ...     max_epochs=20, learning_rate=0.01, random_state=0,
    ... ).fit(X)
    >>> model.forecast(50).shape
    (50, 2)
    >>> model.predict(X).shape  # the next 10 rows after each row
    (200, 20)
    """

    _parameter_constraints = {
        "horizon": [Interval(Integral, 1, None, closed="left")],
        "context_length": [Interval(Integral, 1, None, closed="left")],
        "time_step": [Interval(Real, 0, None, closed="neither")],
        "koopman_dim": [Interval(Integral, 0, None, closed="left")],
        "hidden_dims": ["array-like"],
        "decoder_dim": [Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions({"silu", "relu", "tanh"})],
        "initial_latent": [StrOptions({"encoder", "learned", "random"})],
        "eigenvalues": [StrOptions({"unitary", "stable", "free"})],
        "solver": [StrOptions({"rk4", "euler", "dopri5"})],
        "solver_substeps": [Interval(Integral, 1, None, closed="left")],
        "adjoint": ["boolean"],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "learning_rate_decay": [Interval(Real, 0, 1, closed="right")],
        "stride": [None, Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "curriculum": ["boolean"],
        "clip_norm": [None, Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
    }

    def __init__(
        self,
        *,
        horizon=20,
        context_length=1,
        time_step=1.0,
        koopman_dim=10,
        hidden_dims=(32, 32),
        decoder_dim=50,
        activation="silu",
        initial_latent="encoder",
        eigenvalues="unitary",
        solver="rk4",
        solver_substeps=1,
        adjoint=False,
        max_epochs=200,
        batch_size=64,
        learning_rate=3e-3,
        learning_rate_decay=0.98,
        stride=None,
        validation_fraction=0.1,
        curriculum=True,
        clip_norm=1.0,
        random_state=None,
        device="cpu",
    ):
        self.horizon = horizon
        self.context_length = context_length
        self.time_step = time_step
        self.koopman_dim = koopman_dim
        self.hidden_dims = hidden_dims
        self.decoder_dim = decoder_dim
        self.activation = activation
        self.initial_latent = initial_latent
        self.eigenvalues = eigenvalues
        self.solver = solver
        self.solver_substeps = solver_substeps
        self.adjoint = adjoint
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_decay = learning_rate_decay
        self.stride = stride
        self.validation_fraction = validation_fraction
        self.curriculum = curriculum
        self.clip_norm = clip_norm
        self.random_state = random_state
        self.device = device

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Train on windows of one or several series.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels)
            One series, whose rows are equidistant in time, or a panel of series.
        y : None
            Ignored.

        Returns
        -------
        self : KoNODE
            The fitted estimator.

        Raises
        ------
        ValueError
            If `koopman_dim` is odd, `hidden_dims` are not positive ints, a series has fewer
            than ``context_length + 2`` rows, X holds values above 1e100, or training diverges
            at once.
        """
        from skicml._torch import fit_net
        from skicml.time_series._konode_forecast_torch import TrainedLevels

        self._check_dims()
        panel, is_panel = validate_series(self, X)
        check_magnitude(panel, "X")
        panel = np.ascontiguousarray(panel)  # a data frame would sum in another order
        horizon = self._training_horizon(panel.shape[1])
        mean, scale = standardisation(panel)
        standardised = ((panel - mean) / scale).astype(np.float32)

        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=panel)
        random_state = check_random_state(self.random_state)
        training, validation = self._windows(standardised, horizon, random_state)
        net = self._make_net(standardised, horizon, validation, random_state)
        fit_net(net, training, estimator=self, context=context)
        best_loss = self._check_training(net)

        self.mean_, self.scale_ = mean, scale
        ends = panel[:, -self.context_length :].copy()
        self.context_ = ends if is_panel else ends[0]
        self.end_time_ = (panel.shape[1] - 1) * self.time_step
        self.net_ = net
        self.loss_curve_ = np.array(net.history[:, "train_loss"])
        self.validation_loss_curve_ = (
            np.array(net.history[:, "valid_loss"]) if validation is not None else None
        )
        self.best_loss_ = best_loss
        self.n_iter_ = len(net.history)
        self.koopman_eigenvalues_ = TrainedLevels(net.module_).eigenvalues() / self.time_step
        context.call_on_fit_task_end(estimator=self, X=panel)
        return self

    def predict(self, X, start_time=0.0):
        """Forecast the next `horizon` rows.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels)
            One series, or a panel.
        start_time : float, default=0.0
            Time of the first row of X, with the first training row at 0. Matters for
            ``initial_latent="learned"`` alone.

        Returns
        -------
        forecasts : ndarray of shape (n_timepoints, horizon * n_channels) or \
                (n_series, horizon, n_channels)
            For one series, the forecast after each of its rows, step by step: the columns of
            step 1 come first. The first ``context_length - 1`` contexts are filled up with
            copies of the first row. For a panel, the forecast from the end of each series.
        """
        panel, is_panel = self._check_series(X)
        contexts = self._contexts(panel)
        clock = self._clock(start_time, panel.shape[1])
        if is_panel:
            return self._forecast(contexts[:, -1], np.full(len(panel), clock[-1]), self.horizon)
        return self._forecast(contexts[0], clock, self.horizon).reshape(len(clock), -1)

    def forecast(self, steps, X=None, start_time=0.0):
        """Forecast any number of rows from the end of series.

        Parameters
        ----------
        steps : int
            Number of rows.
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels), default=None
            One series, or a panel; only the last `context_length` rows matter. None means the
            training data.
        start_time : float, default=0.0
            Time of the first row of X, see :meth:`predict`; unused without X.

        Returns
        -------
        forecast : ndarray of shape (steps, n_channels) or (n_series, steps, n_channels)
            The rows that follow.
        """
        check_is_fitted(self)
        check_scalar(steps, "steps", Integral, min_val=1)
        ends, is_panel, end_time = self._ends(X, start_time)
        clock = np.full(len(ends), end_time / self.time_step)
        forecasts = self._forecast(ends, clock, steps)
        return forecasts if is_panel else forecasts[0]

    def score(self, X, y=None, start_time=0.0):
        """Share of the variance that forecasts over the horizon explain.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels)
            One series, or a panel. Series shorter than ``context_length + horizon`` are
            scored over the horizon that fits.
        y : None
            Ignored.
        start_time : float, default=0.0
            Time of the first row of X, see :meth:`predict`.

        Returns
        -------
        score : float
            One minus the mean squared error over the variance of the targets, both of
            standardised channels, over all windows and steps. 1 is best; 0 is what a constant
            would get.

        Raises
        ------
        ValueError
            If X has no more than `context_length` rows.
        """
        panel, _ = self._check_series(X)
        n_timepoints, n_channels = panel.shape[1:]
        if n_timepoints <= self.context_length:
            raise ValueError(
                f"score needs more than context_length={self.context_length} time steps, got "
                f"n_timepoints = {n_timepoints}."
            )
        horizon = min(self.horizon, n_timepoints - self.context_length)
        windows = cut_windows(panel, self.context_length + horizon)
        clock = self._clock(start_time, n_timepoints)[self.context_length - 1 :]
        clock = np.tile(clock[: windows.shape[1]], len(panel))
        windows = windows.reshape(-1, *windows.shape[2:])
        forecasts = self._forecast(windows[:, : self.context_length], clock, horizon)
        return r2_score(
            (windows[:, self.context_length :] / self.scale_).reshape(-1, n_channels),
            (forecasts / self.scale_).reshape(-1, n_channels),
            multioutput="variance_weighted",
        )

    def koopman_trajectory(self, times, X=None):
        """The latent w(t) that drives the parameters.

        Parameters
        ----------
        times : array-like of shape (n_times,)
            Times since the last row of the context; with ``initial_latent="learned"``, since
            the first training row.
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels), default=None
            Series whose last rows are the context. None means the training data. Matters for
            ``initial_latent="encoder"`` alone.

        Returns
        -------
        trajectory : ndarray of shape (n_times, koopman_dim) or \
                (n_series, n_times, koopman_dim)
            w at the times. The three-dimensional shape is that of the encoder and a panel.
        """
        return self._trajectory("koopman_trajectory", times, X)

    def parameter_trajectory(self, times, X=None):
        """The weights theta(t) of f.

        Parameters
        ----------
        times : array-like of shape (n_times,)
            See :meth:`koopman_trajectory`.
        X : array-like of shape (n_timepoints, n_channels) or \
                (n_series, n_timepoints, n_channels), default=None
            See :meth:`koopman_trajectory`.

        Returns
        -------
        trajectory : ndarray of shape (n_times, n_parameters) or \
                (n_series, n_times, n_parameters)
            Weights, then biases, of each layer in turn.
        """
        return self._trajectory("parameter_trajectory", times, X)

    def vector_field(self, X, time=0.0, context=None):
        """The velocity x' of the system in given states.

        Parameters
        ----------
        X : array-like of shape (n_states, n_channels)
            States.
        time : float, default=0.0
            Time since the last row of the context; with ``initial_latent="learned"``, since
            the first training row.
        context : array-like of shape (n_timepoints, n_channels) or None, default=None
            Series whose last rows are the context of all states. None: each state is its own
            context, repeated if `context_length` is larger than 1. Matters for
            ``initial_latent="encoder"`` alone.

        Returns
        -------
        velocity : ndarray of shape (n_states, n_channels)
            Units of X per time unit.

        Raises
        ------
        ValueError
            If `context` is a panel.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        if context is None:
            contexts = np.repeat(X[:, np.newaxis], self.context_length, axis=1)
        else:
            contexts, is_panel, _ = self._ends(context)
            if is_panel:
                raise ValueError("context must be one series of shape (n_timepoints, n_channels).")
        velocity = self._levels().vector_field(
            self._standardise(X), self._standardise(contexts), time / self.time_step
        )
        return (velocity * self.scale_ / self.time_step).astype(X.dtype, copy=False)

    def _check_dims(self):
        if self.koopman_dim % 2:
            raise ValueError(
                f"koopman_dim must be even (two for each mode), got {self.koopman_dim}."
            )
        if not all(isinstance(dim, Integral) and dim >= 1 for dim in self.hidden_dims):
            raise ValueError(f"hidden_dims must be ints of at least 1, got {self.hidden_dims!r}.")

    def _training_horizon(self, n_timepoints):
        """`horizon`, or what of it fits into the series."""
        if n_timepoints < self.context_length + 2:
            raise ValueError(
                f"KoNODE with context_length={self.context_length} needs at least "
                f"{self.context_length + 2} time steps, got n_samples = {n_timepoints}."
            )
        longest = n_timepoints - self.context_length
        if longest < self.horizon:
            warnings.warn(
                f"Series of {n_timepoints} time steps are shorter than context_length="
                f"{self.context_length} plus horizon={self.horizon}: training forecasts "
                f"{longest} steps.",
                stacklevel=6,
            )
        return min(longest, self.horizon)

    def _windows(self, panel, horizon, random_state):
        """Training and validation windows with their clocks, as the net takes them."""
        return training_windows(
            panel,
            self.context_length,
            horizon,
            stride=self.stride,
            fraction=self.validation_fraction,
            has_clock=self._has_clock(),
            random_state=random_state,
        )

    def _make_net(self, panel, horizon, validation, random_state):
        """Untrained net."""
        from skorch.callbacks import GradientNormClipping, LRScheduler
        from skorch.helper import predefined_split
        from torch.optim.lr_scheduler import ExponentialLR

        from skicml._torch import TensorDataset, draw_seed, resolve_device
        from skicml.time_series._konode_torch import (
            Curriculum,
            KeepBestForecaster,
            KoNODENet,
            KoopmanODE,
        )

        device = resolve_device(self.device)
        callbacks = [
            ("schedule", LRScheduler(ExponentialLR, gamma=self.learning_rate_decay)),
            ("best", KeepBestForecaster()),
        ]
        if self.clip_norm is not None:
            callbacks.append(("clipping", GradientNormClipping(self.clip_norm)))
        if self.curriculum:
            callbacks.append(("curriculum", Curriculum(self.max_epochs)))
        split = None
        if validation is not None:
            split = predefined_split(TensorDataset(validation, device=device))
        return KoNODENet(
            KoopmanODE,
            module__n_channels=panel.shape[2],
            module__context_length=self.context_length,
            module__horizon=horizon,
            module__koopman_dim=self.koopman_dim,
            module__hidden_dims=tuple(self.hidden_dims),
            module__decoder_dim=self.decoder_dim,
            module__activation=self.activation,
            module__initial_latent=self.initial_latent,
            module__eigenvalues=self.eigenvalues,
            module__solver=self.solver,
            module__substeps=self.solver_substeps,
            module__adjoint=self.adjoint,
            module__period=panel.shape[1] if self._has_clock() else self.context_length + horizon,
            module__increments=np.sqrt(np.square(np.diff(panel, axis=1)).mean(axis=(0, 1))),
            lr=self.learning_rate,
            optimizer__param_groups=[("flow.*", {"lr": _EIGENVALUE_RATE * self.learning_rate})],
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            train_split=split,
            callbacks=callbacks,
            seed=draw_seed(random_state),
            device=device,
        )

    def _check_training(self, net):
        """The loss of the parameters kept; errors and warnings if there is none."""
        losses = net.history[:, "train_loss"]
        best = dict(net.callbacks_)["best"].best_loss_
        if not (np.isfinite(losses[0]) and np.isfinite(best)):
            raise ValueError(
                f"Training diverged at once: lower learning_rate={self.learning_rate}, or raise "
                f"solver_substeps={self.solver_substeps}."
            )
        if not np.isfinite(losses[-1]):
            warnings.warn(
                f"Training diverged in epoch {len(losses)}; the best parameters before are kept. "
                f"Lower learning_rate={self.learning_rate}.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return best

    def _has_clock(self):
        """Whether t = 0 is the first training row and not the last row of each context."""
        return self.initial_latent == "learned" and self.koopman_dim > 0

    def _check_series(self, X):
        check_is_fitted(self)
        return validate_series(self, X, reset=False)

    def _contexts(self, panel):
        """The context that ends in each row, (n_series, n_timepoints, context_length, n_channels).

        A context that would start before the first row is filled up with copies of it.
        """
        n_missing = self.context_length - 1
        padded = np.concatenate([np.repeat(panel[:, :1], n_missing, axis=1), panel], axis=1)
        return cut_windows(padded, self.context_length)

    def _ends(self, X, start_time=0.0):
        """Last contexts of the series, whether they are a panel, and the time of the last row."""
        if X is None:
            is_panel = self.context_.ndim == 3
            return (self.context_ if is_panel else self.context_[None]), is_panel, self.end_time_
        panel, is_panel = self._check_series(X)
        end_time = start_time + (panel.shape[1] - 1) * self.time_step
        return self._contexts(panel)[:, -1], is_panel, end_time

    def _clock(self, start_time, n_timepoints):
        """Clock at each row, in steps."""
        return start_time / self.time_step + np.arange(n_timepoints)

    def _forecast(self, contexts, clock, n_steps):
        """Rows that follow the contexts, in the units and the precision of these."""
        if not self._has_clock():
            clock = np.zeros(len(contexts))
        self._warn_of_explosion((clock.max() + n_steps) * self.time_step)
        forecasts = self._levels().forecast(self._standardise(contexts), clock, n_steps)
        return (forecasts * self.scale_ + self.mean_).astype(contexts.dtype, copy=False)

    def _warn_of_explosion(self, end_time):
        growth = self.koopman_eigenvalues_.real.max(initial=0.0)
        if growth * end_time > _EXPLOSIVE:
            warnings.warn(
                f"An eigenvalue with growth rate {growth:.3g} makes the latent grow by a factor of "
                f"exp({min(growth * end_time, 20):.3g}) until the end of the forecast, and the "
                "parameters with it. Use eigenvalues='unitary' or 'stable'.",
                stacklevel=4,
            )

    def _trajectory(self, name, times, X):
        check_is_fitted(self)
        times = column_or_1d(times, dtype=np.float64) / self.time_step
        ends, is_panel, _ = self._ends(X)
        trajectory = getattr(self._levels(), name)(self._standardise(ends), times)
        if trajectory.ndim == 3 and not is_panel:
            trajectory = trajectory[0]
        return trajectory.astype(ends.dtype, copy=False)

    def _standardise(self, rows):
        return (rows - self.mean_) / self.scale_

    def _levels(self):
        from skicml.time_series._konode_forecast_torch import TrainedLevels

        return TrainedLevels(self.net_.module_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
