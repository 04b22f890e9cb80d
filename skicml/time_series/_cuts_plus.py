"""CUTS+: which channel of a series drives which, learned by forecasting."""

import warnings
from math import ceil
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from skicml.time_series._series import cut_windows, validate_series
from skicml.utils._fitting import all_or_nothing

# The published rate of the graph suits about this many steps of the graph.
_PUBLISHED_GRAPH_STEPS = 3000
_PUBLISHED_GRAPH_RATES = (1e-3, 1e-4)
_MAX_RATE_FACTOR = 10
# An edge whose probability is this close to the starting value 0.5 has not been decided on.
_UNDECIDED = 0.02
_MAX_UNDECIDED_FRACTION = 0.25
# Numbers in the inputs of all gates, at one lag, that are held at once while forecasting.
_CHUNK = 2**20


class CUTSPlus(CallbackSupportMixin, BaseEstimator):
    """Causal discovery in a series: a neural forecaster that learns what it has to listen to.

    CUTS+ [1]_ forecasts every channel from the last rows of all channels, through a graph of
    which channel may listen to which. Graph and forecaster are learned in turn, with a price
    on every edge: what is left is Granger causality, also of nonlinear relations. CAROTS [2]_
    finds anomalies with it.

    Read more in the :ref:`User Guide <cuts_plus>`.

    Parameters
    ----------
    n_lags : int, default=9
        Number of rows before the one that is forecast. A cause that acts later than this is
        not seen. Take the fewest that cover the delays: over two or more steps a cause also
        acts through others, see the notes.
    hidden_dim : int, default=32
        Length of the recurrent state of every channel.
    max_epochs : int, default=50
        Number of epochs; each is a pass over the data for the forecaster and one for the
        graph.
    batch_size : int, default=256
        Windows a step. Take less for short series: the graph needs some hundred steps.
    learning_rate : float or pair of floats, default=(1e-2, 1e-3)
        Step size of Adam for the forecaster, in the first and the last epoch; it falls
        exponentially in between. A float stays as it is.
    graph_learning_rate : "auto", float or pair of floats, default="auto"
        Likewise for the graph. "auto" takes the published (1e-3, 1e-4), which suits 3000
        steps, times ``3000 / n_steps`` where there are fewer steps, at most ten times.
    sparsity : float or pair of floats, default=(0.1, 0.01)
        Price of an edge, in the first and the last epoch: weight of the mean edge
        probability beside the mean squared error of standardised data. 0 is free.
    threshold : float, default=0.5
        An edge is in the graph if its probability is above this.
    clip : float, default=10.0
        Standardised values are clipped to +- this.
    validation_fraction : float, default=0.2
        Share of the rows, the last ones of each series, that are held out to choose the best
        epoch. At least one row is held out.
    random_state : int, RandomState instance or None, default=None
        Determines initial weights, order of the batches and sampled graphs. Pass an int for
        reproducible results.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the net is trained. Forecasts are made on the CPU.

    Attributes
    ----------
    edge_probability_ : ndarray of shape (n_features, n_features)
        ``edge_probability_[cause, effect]``, how likely the first channel helps to forecast
        the second. The diagonal says whether a channel helps to forecast itself. Good to
        rank edges; the values depend on the training and are no error rates.
    adjacency_ : ndarray of bool of shape (n_features, n_features)
        ``adjacency_[cause, effect]``, whether the probability is above `threshold`.
    undecided_fraction_ : float
        Share of the edges whose probability is within 0.02 of 0.5, where all of them start.
        Whether such an edge is in the graph is mostly chance; a ConvergenceWarning is given
        if the share is above a quarter.
    validation_loss_ : float
        Mean squared error of the best epoch on the held-out rows, standardised, under the
        soft graph `edge_probability_`.
    best_epoch_ : int
        Epoch, from 0, whose weights and graph were kept.
    loss_curve_ : dict of ndarray of shape (n_epochs,)
        "train_loss" (sampled graphs) and "validation_loss" (soft graph) of every epoch.
    scaler_ : StandardScaler
        Mean and standard deviation of the rows that were trained on.
    net_ : skorch.NeuralNet
        The trained net, on the CPU.
    n_features_in_ : int
        Number of channels seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of channels seen during fit, if X has string column names.

    See Also
    --------
    skicml.datasets.make_lorenz96 : Nonlinear series with a known graph.
    skicml.datasets.make_var_process : Linear series with a known graph.

    Notes
    -----
    Let p = sigmoid(G), with p[m, n] the probability that m causes n. A graph A holds 0 or 1
    for each edge. Node n reads ``u_n(t) = (A[m, n] x_m(t))_m``; all nodes share one gated
    recurrent unit and two hidden layers, while the initial state and the last linear map are
    the node's own. Each epoch makes two passes:

    1. Forecaster: A ~ Bernoulli(p) for each window; the loss is the mean squared error.
    2. Graph: A is a hard Gumbel sample with straight-through gradient; the loss is the mean
       squared error + sparsity * mean(p). Adam moves G alone, anew in every epoch.

    The epoch of least validation error under p is kept. After that the graph is frozen and
    multiplied into the input weights once.

    For n windows, N channels, L lags and hidden size h an epoch takes time O(n L N^2 h) and
    memory O(B L N (N + h)) for batches of B windows; the windows are views until they are
    batched. A forecast takes time O(L N^2 h) a window.

    * Orientation is [cause, effect] everywhere.
    * Causality in the sense of Granger: a common cause that is not among the channels makes
      edges between its effects, and effects within one time step have no direction.
    * G starts at 0, so p starts at 0.5, and with the default rates moves to about 0.25 to
      0.75. Edges of the graph can only be told from chance after some hundred steps.
    * In a chain 0 -> 1 -> 2 with two or more lags, 0 -> 2 is a true help whenever 1 -> 2
      happens to be cut, as it often is while p is moderate. At the default rates its
      probability ends about 0.5 to 0.6, between the direct edges and the rest. With
      ``graph_learning_rate=(5e-2, 5e-3)`` p goes nearly to 0 and 1, and such edges fall well
      below 0.5.
    * An effect so weak that it lowers the error by less than the price of its edge is left
      out.

    As in the released code of [2]_, the two logits of the Gumbel sample are p and 1 - p, not
    their logarithms: an edge is on in pass 2 with probability sigmoid(2p - 1), so no edge is
    ever sure to be on or off. Channels are not grouped. Departures: the rate of the graph
    grows where there are few steps (otherwise p stays within .48 to .52), standardised values
    are clipped, the targets of validation are the last rows of each series while their
    histories may reach into the training rows, and schedules reach their last value in the
    last epoch.

    References
    ----------
    .. [1] Cheng, Y., Li, L., Xiao, T., Li, Z., Suo, J., He, K. and Dai, Q. "CUTS+:
       High-Dimensional Causal Discovery from Irregular Time-Series." AAAI 2024.
    .. [2] Kim, H., Mok, J., Lee, D., Lew, J., Kim, S. and Yoon, S. "Causality-Aware
       Contrastive Learning for Robust Multivariate Time-Series Anomaly Detection."
       ICML 2025.

    Examples
    --------
    A chain 0 -> 1 -> 2:

    >>> import numpy as np
    >>> from skicml.datasets import make_var_process
    >>> from skicml.time_series import CUTSPlus
    >>> chain = 0.85 * np.eye(3, k=1)
    >>> X, graph, _ = make_var_process(300, coef=[chain], random_state=0)
    >>> cuts = CUTSPlus(n_lags=1, batch_size=32, max_epochs=15, random_state=0).fit(X)
    >>> cuts.adjacency_.astype(int)
    array([[0, 1, 0],
           [0, 0, 1],
           [0, 0, 0]])
    >>> cuts.predict(X).shape
    (300, 3)
    """

    _parameter_constraints = {
        "n_lags": [Interval(Integral, 1, None, closed="left")],
        "hidden_dim": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither"), "array-like"],
        "graph_learning_rate": [
            StrOptions({"auto"}),
            Interval(Real, 0, None, closed="neither"),
            "array-like",
        ],
        "sparsity": [Interval(Real, 0, None, closed="left"), "array-like"],
        "threshold": [Interval(Real, 0, 1, closed="neither")],
        "clip": [Interval(Real, 0, None, closed="neither")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
    }

    def __init__(
        self,
        *,
        n_lags=9,
        hidden_dim=32,
        max_epochs=50,
        batch_size=256,
        learning_rate=(1e-2, 1e-3),
        graph_learning_rate="auto",
        sparsity=(0.1, 0.01),
        threshold=0.5,
        clip=10.0,
        validation_fraction=0.2,
        random_state=None,
        device="cpu",
    ):
        self.n_lags = n_lags
        self.hidden_dim = hidden_dim
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.graph_learning_rate = graph_learning_rate
        self.sparsity = sparsity
        self.threshold = threshold
        self.clip = clip
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn the forecaster and the graph.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            A series, rows are time steps, or a panel of series.
        y : None
            Ignored.

        Returns
        -------
        self : CUTSPlus
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has fewer than `n_lags` + 2 time steps or missing values, a schedule is not
            one or two positive numbers, or training diverges.
        """
        from skicml._torch import fit_net

        # Checked on a copy: an error leaves a fitted estimator as it was.
        panel, _ = validate_series(clone(self), X)
        panel = np.ascontiguousarray(panel)  # means of a data frame have the same last digits
        n_train = self._n_training_rows(panel.shape[1])
        scaler = StandardScaler().fit(panel[:, :n_train].reshape(-1, panel.shape[2]))
        scaled = self._scale(panel, scaler)
        net, train = self._make_net(scaled, n_train)
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X)
        fit_net(net, train, estimator=self, context=context)
        losses = np.array(net.history[:, ["train_loss", "valid_loss"]])
        if not np.isfinite(losses[:, 1]).any():
            raise ValueError(
                "Training diverged, no epoch has a finite validation loss: lower "
                f"learning_rate={self.learning_rate}."
            )
        probability = _finish(net, self.threshold)
        undecided_fraction = float(np.mean(np.abs(probability - 0.5) < _UNDECIDED))
        _warn_of_undecided_edges(undecided_fraction)

        _check_feature_names(self, X, reset=True)
        self.n_features_in_ = panel.shape[2]
        self.scaler_ = scaler
        self.net_ = net
        self.edge_probability_ = probability.astype(panel.dtype)
        self.adjacency_ = probability > self.threshold
        self.undecided_fraction_ = undecided_fraction
        self.best_epoch_ = int(np.nanargmin(losses[:, 1]))
        self.validation_loss_ = float(losses[self.best_epoch_, 1])
        self.loss_curve_ = {"train_loss": losses[:, 0], "validation_loss": losses[:, 1]}
        context.call_on_fit_task_end(estimator=self, X=X)
        return self

    def predict(self, X):
        """Forecast every row from the `n_lags` rows before it.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            A series or a panel of series.

        Returns
        -------
        forecast : ndarray of the shape of X
            One step ahead, under the graph `adjacency_`. The first `n_lags` rows of a series,
            which have too little past, are the training mean.
        """
        check_is_fitted(self, "net_")
        panel, is_panel = validate_series(self, X, reset=False)
        forecast = self._unscale(self._forecast_panel(self._scale(panel, self.scaler_)))
        return forecast if is_panel else forecast[0]

    def forecast_windows(self, windows):
        """Forecast the row that follows each window.

        :class:`CAROTS` forecasts the windows that it has altered with it. For a forecast of
        the row after a series X it takes ``X[np.newaxis, -n_lags:]``.

        Parameters
        ----------
        windows : array-like of shape (n_windows, n_lags, n_features)
            Histories, on the scale of the X of :meth:`fit`.

        Returns
        -------
        forecast : ndarray of shape (n_windows, n_features)
            The row after each, on the scale of X, in the dtype of `windows`.

        Raises
        ------
        ValueError
            If `windows` has another shape or is not finite.
        """
        check_is_fitted(self, "net_")
        windows = check_array(
            windows,
            dtype=[np.float64, np.float32],
            allow_nd=True,
            input_name="windows",
            estimator=self,
        )
        expected = (self.n_lags, self.n_features_in_)
        if windows.shape[1:] != expected:
            raise ValueError(
                f"windows must have shape (n_windows, n_lags={expected[0]}, "
                f"n_features={expected[1]}), got shape {windows.shape}."
            )
        return self._unscale(self._forecast(self._scale(windows, self.scaler_)))

    def score(self, X, y=None):
        """Minus the mean squared error of the forecasts, on standardised data.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            A series or a panel of series, of more than `n_lags` time steps.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Over the rows that have `n_lags` rows before them; -1 is as good as the mean.

        Raises
        ------
        ValueError
            If X has fewer than `n_lags` + 1 time steps.
        """
        check_is_fitted(self, "net_")
        panel, _ = validate_series(self, X, reset=False, min_timepoints=self.n_lags + 1)
        scaled = self._scale(panel, self.scaler_)
        errors = (self._forecast_panel(scaled) - scaled)[:, self.n_lags :]
        return -float(np.mean(np.square(errors), dtype=np.float64))

    def _n_training_rows(self, n_timepoints):
        """Rows before the held-out ones; at least one window lies on either side."""
        if n_timepoints < self.n_lags + 2:
            raise ValueError(
                f"CUTSPlus needs at least n_lags + 2 = {self.n_lags + 2} time steps, "
                f"got n_samples = {n_timepoints}."
            )
        n_held_out = round(self.validation_fraction * n_timepoints)
        n_held_out = min(max(n_held_out, 1), n_timepoints - self.n_lags - 1)
        return n_timepoints - n_held_out

    def _scale(self, X, scaler):
        """Standardised and clipped copy of an array whose last axis are the channels."""
        scaled = scaler.transform(X.reshape(-1, X.shape[-1]))
        return np.clip(scaled, -self.clip, self.clip).reshape(X.shape)

    def _unscale(self, X):
        return self.scaler_.inverse_transform(X.reshape(-1, X.shape[-1])).reshape(X.shape)

    def _make_net(self, scaled, n_train):
        """Untrained net that knows the held-out windows, and the windows to train on."""
        from skorch.helper import predefined_split

        from skicml._torch import KeepBest, draw_seed, resolve_device
        from skicml.time_series._cuts_plus_torch import (
            CausalForecaster,
            CUTSPlusNet,
            WindowDataset,
        )

        device = resolve_device(self.device)
        width = self.n_lags + 1
        train = WindowDataset(scaled[:, :n_train], width, device=device)
        # The first held-out row is the target of the first of these windows.
        held_out = WindowDataset(scaled[:, n_train - self.n_lags :], width, device=device)
        net = CUTSPlusNet(
            CausalForecaster,
            module__n_features=scaled.shape[2],
            module__hidden_dim=self.hidden_dim,
            learning_rates=_schedule("learning_rate", self.learning_rate, self.max_epochs),
            graph_learning_rates=self._graph_schedule(len(train)),
            sparsities=_schedule("sparsity", self.sparsity, self.max_epochs),
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            optimizer__fused=True,
            train_split=predefined_split(held_out),
            callbacks=[KeepBest()],
            seed=draw_seed(self.random_state),
            device=device,
        )
        return net, train

    def _graph_schedule(self, n_windows):
        """Learning rates of the graph, epoch by epoch."""
        rates = self.graph_learning_rate
        if isinstance(rates, str):
            n_steps = self.max_epochs * ceil(n_windows / self.batch_size)
            factor = np.clip(_PUBLISHED_GRAPH_STEPS / n_steps, 1, _MAX_RATE_FACTOR)
            rates = factor * np.array(_PUBLISHED_GRAPH_RATES)
        return _schedule("graph_learning_rate", rates, self.max_epochs)

    def _forecast(self, windows):
        """Forecasts (B, N) of standardised windows (B, n_lags, N), in chunks."""
        import torch

        module = self.net_.module_
        forecast = np.empty((len(windows), windows.shape[2]), dtype=windows.dtype)
        chunk = max(1, _CHUNK // module.folded_bias.shape[0])
        for rows in gen_batches(len(windows), chunk):
            history = torch.tensor(windows[rows], dtype=torch.float32)
            forecast[rows] = module.forecast(history).numpy()
        return forecast

    def _forecast_panel(self, scaled):
        """Forecasts of a standardised panel; 0, the training mean, where there is no past."""
        forecast = np.zeros_like(scaled)
        if scaled.shape[1] > self.n_lags:
            histories = cut_windows(scaled[:, :-1], self.n_lags)
            for series, windows in zip(forecast, histories):
                series[self.n_lags :] = self._forecast(windows)
        return forecast


def _schedule(name, ends, n_epochs):
    """Values from the first to the last of two ends, in constant ratios, one an epoch."""
    pair = np.asarray(ends, dtype=float)
    if pair.shape not in {(), (2,)} or not np.isfinite(pair).all() or (pair < 0).any():
        raise ValueError(
            f"{name} must be a finite number or a pair of them, not negative, got {ends!r}."
        )
    first, last = np.broadcast_to(pair, 2)
    if first == last:
        return np.full(n_epochs, first)
    if min(first, last) == 0:
        raise ValueError(
            f"{name} cannot fall exponentially from or to 0: both values must be positive, "
            f"got {ends!r}."
        )
    return np.geomspace(first, last, n_epochs)


def _finish(net, threshold):
    """Freeze the graph of a trained net, trim the net and return the edge probabilities."""
    net.trim()
    module = net.module_
    probability = module.edge_probability().detach()
    module.freeze(probability > threshold)
    return probability.numpy()


def _warn_of_undecided_edges(fraction):
    if fraction > _MAX_UNDECIDED_FRACTION:
        warnings.warn(
            f"{fraction:.0%} of the edges have a probability within {_UNDECIDED} of 0.5, where "
            "all of them start: whether they are in adjacency_ is mostly chance. Take more "
            "epochs, a smaller batch_size or a larger graph_learning_rate.",
            ConvergenceWarning,
            stacklevel=6,  # the caller of fit, beyond its decorators
        )
