"""DiffusionModel: learn the distribution of rows by denoising, and draw new ones."""

from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import DensityMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from skicml.generative._base import BaseDiffusion, Condition, DiffusionSettings, as_condition
from skicml.generative._conditions import encode_training
from skicml.generative._networks import make_network, network_kind, row_shape
from skicml.generative._noise_levels import NoiseLevelsMixin
from skicml.generative._scaling import AffineScaler, check_scaled, column_range
from skicml.generative._schedules import NoiseSchedule, check_n_steps
from skicml.utils._fitting import all_or_nothing
from skicml.utils._magnitude import check_magnitude

_FLOATS = [np.float64, np.float32]
_MAX_EXACT_TRACE = 32  # features up to which the divergence in the likelihood is exact


class DiffusionModel(NoiseLevelsMixin, DensityMixin, BaseDiffusion):
    """Denoising diffusion model of tables and small images.

    A network learns to take noise off the data at every level of noise [1]_. Sampling begins
    with pure noise and takes it off step by step [2]_. With labels or numbers as y it learns
    what the data are like given y; ``guidance_scale`` exaggerates that [3]_.

    Read more in the :ref:`User Guide <diffusion>`.

    Parameters
    ----------
    network : {"auto", "mlp", "transformer", "unet"} or callable, default="auto"
        The denoising network. "auto" is a residual perceptron, or with `image_shape` a
        transformer over patches. "unet" is convolutional and needs `image_shape`. A callable
        ``network(n_features, n_cond)``, or ``network(image_shape, n_cond)`` with the three
        numbers of an image, returns a torch module that is called as
        ``module(x, t, cond=None, context=None)`` with t a float or integer tensor; without
        weights it is not trained.
    hidden_dim : int, default=128
        Width of the network and of the embedding of y. The first level of "unet" has a
        quarter of it.
    n_layers : int, default=4
        Number of blocks; "unet" chooses its own depth.
    image_shape : tuple of int or None, default=None
        (height, width) or (channels, height, width) of images whose pixels are the columns.
    patch_size : int, default=2
        Side of the patches of the transformer.
    n_timesteps : int, default=1000
        Number of noise levels T.
    schedule : {"cosine", "linear", "quad"} or NoiseSchedule, default="cosine"
        How noise rises over time, see :class:`NoiseSchedule`. An instance brings its own
        number of levels.
    prediction : {"v", "eps", "x0"}, default="v"
        What the network predicts: the velocity alpha eps - sigma x0, the noise or the data.
    loss_weighting : {"simple", "min_snr"}, default="simple"
        "simple" weighs squared errors of the prediction alike at all times. "min_snr" weighs
        them as errors of x0 times the signal-to-noise ratio, at most 5.
    condition : {"auto", "label", "vector", "context"}, default="auto"
        What y is in ``fit``: class labels, numbers, or blocks of tokens (n_samples, n_tokens,
        e), for "transformer" only. "auto" is told by the shape and type of y.
    label_dropout : float, default=0.1
        Share of the training rows whose y is left out, so that the model learns the
        distribution without condition as well.
    scale : {"standard", "minmax"} or None, default="standard"
        Scaling of the data: mean 0 and variance 1, or range [-1, 1]; one scale for all
        columns with `image_shape`, else one a column.
    solver : {"ddim", "ddpm", "dpm++1", "dpm++2m"}, default="ddim"
        How to take a step: deterministic (ddim, the same as dpm++1), ancestral with fresh
        noise (ddpm), or deterministic of second order (dpm++2m).
    n_sampling_steps : int, default=50
        Number of steps of a sample.
    guidance_scale : float, default=0.0
        w of classifier-free guidance, which takes (1 + w) times the noise estimate given y
        minus w times that without; 0 is plain conditional sampling.
    clip : "data", float or None, default="data"
        Range that estimates of the clean data are clipped to while sampling: that of each
        training column, or minus to plus a number in scaled units.
    max_iter : int, default=2000
        Number of gradient steps; 0 leaves the network as initialised.
    batch_size : int, default=128
        Rows a step.
    learning_rate : float, default=2e-3
        Largest step size of AdamW; it rises over a tenth of the steps and falls as a cosine.
    weight_decay : float, default=1e-4
        Weight decay of AdamW.
    ema_decay : float, default=0.999
        Decay of the moving average of the weights that samples are drawn with, less in the
        first steps; 0 samples with the last weights.
    n_likelihood_steps : int, default=50
        Number of steps of the integration behind ``score_samples``.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the present weights.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where to train and sample. Fitted weights are kept on the CPU.
    verbose : int, default=0
        Whether to print the loss every 50 steps.
    random_state : int, RandomState instance or None, default=None
        Determines initialisation, batches and noise, and samples where they are not given one
        of their own. Pass an int for reproducible results.

    Attributes
    ----------
    net_ : skorch.NeuralNet
        The trained net, with the last weights.
    ema_module_ : torch.nn.Module
        The denoiser with the averaged weights.
    schedule_ : NoiseSchedule
        The noise schedule.
    scaler_ : AffineScaler
        Scaling of the data.
    data_range_ : ndarray of shape (2, n_features)
        Lowest and highest training values in scaled units, of all calls of ``partial_fit``.
    condition_ : ConditionEncoder or None
        How y is encoded; None for a model without condition.
    classes_ : ndarray of shape (n_classes,)
        Class labels, if y holds labels.
    loss_curve_ : ndarray of shape (n_iter_,)
        Loss of every gradient step.
    n_iter_ : int
        Number of gradient steps taken.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit, if X has string column names.

    See Also
    --------
    NoiseSchedule : The noise levels.
    BaseDiffusion : For estimators with a network or loss of their own.
    sklearn.neighbors.KernelDensity : One kernel a sample.
    sklearn.mixture.GaussianMixture : A few Gaussians.

    Notes
    -----
    Training takes `max_iter` forward and backward passes of the network over `batch_size`
    rows, however many rows there are: time O(max_iter batch_size P) for P weights, memory
    O(n d + P). A sample costs O(n_sampling_steps P) a row, twice that with guidance. The
    density of a row costs O(n_likelihood_steps P min(d, 32)).

    * The density is that of the data with noise of the first noise level added (0.6% of a
      standard deviation for the default schedule). It integrates the probability flow [4]_ in
      the logarithm of sigma / alpha, up to 200, by Runge-Kutta steps of equal size. The
      divergence is exact up to 32 columns. For more it is estimated from one vector of random
      signs drawn in fit: unbiased over fits, the same for a row whatever rows are beside it.
    * Scores take the averaged weights in double precision.
    * For ``prediction="eps"`` sampling starts at the last time with alpha >= 1e-3, since the
      data cannot be told from the noise estimate beyond.
    * Last columns of integers, as pixels are, come out as real numbers: round them.
    * A large network on few rows learns them by heart; see
      :func:`skicml.metrics.memorization_ratio`.
    * The scheme (perceptron blocks, patches, schedules of the learning rate) is ours; the
      equations are those of the references.

    References
    ----------
    .. [1] Ho, J., Jain, A. and Abbeel, P. "Denoising Diffusion Probabilistic Models."
       NeurIPS 2020.
    .. [2] Song, J., Meng, C. and Ermon, S. "Denoising Diffusion Implicit Models." ICLR 2021.
    .. [3] Ho, J. and Salimans, T. "Classifier-Free Diffusion Guidance." arXiv:2207.12598, 2022.
    .. [4] Song, Y. et al. "Score-Based Generative Modeling through Stochastic Differential
       Equations." ICLR 2021.
    .. [5] Salimans, T. and Ho, J. "Progressive Distillation for Fast Sampling of Diffusion
       Models." ICLR 2022.
    .. [6] Lu, C. et al. "DPM-Solver++: Fast Solver for Guided Sampling of Diffusion
       Probabilistic Models." arXiv:2211.01095, 2022.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skicml.generative import DiffusionModel
    >>> X, y = make_moons(500, noise=0.05, random_state=0)
    >>> model = DiffusionModel(hidden_dim=32, n_layers=2, max_iter=200, random_state=0)
    >>> model = model.fit(X, y)
    >>> model.sample(3).shape
    (3, 2)
    >>> bool(model.sample(100, y=0)[:, 1].mean() > model.sample(100, y=1)[:, 1].mean())
    True
    """

    _parameter_constraints = {
        "network": [StrOptions({"auto", "mlp", "transformer", "unet"}), callable],
        "hidden_dim": [Interval(Integral, 4, None, closed="left")],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "image_shape": [None, "array-like"],
        "patch_size": [Interval(Integral, 1, None, closed="left")],
        "n_timesteps": [Interval(Integral, 1, None, closed="left")],
        "schedule": [StrOptions({"cosine", "linear", "quad"}), NoiseSchedule],
        "prediction": [StrOptions({"v", "eps", "x0"})],
        "loss_weighting": [StrOptions({"simple", "min_snr"})],
        "condition": [StrOptions({"auto", "label", "vector", "context"})],
        "label_dropout": [Interval(Real, 0, 1, closed="left")],
        "scale": [StrOptions({"standard", "minmax"}), None],
        "solver": [StrOptions({"ddim", "ddpm", "dpm++1", "dpm++2m"})],
        "n_sampling_steps": [Interval(Integral, 1, None, closed="left")],
        "guidance_scale": [Interval(Real, 0, None, closed="left")],
        "clip": [StrOptions({"data"}), Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "ema_decay": [Interval(Real, 0, 1, closed="left")],
        "n_likelihood_steps": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        network="auto",
        *,
        hidden_dim=128,
        n_layers=4,
        image_shape=None,
        patch_size=2,
        n_timesteps=1000,
        schedule="cosine",
        prediction="v",
        loss_weighting="simple",
        condition="auto",
        label_dropout=0.1,
        scale="standard",
        solver="ddim",
        n_sampling_steps=50,
        guidance_scale=0.0,
        clip="data",
        max_iter=2000,
        batch_size=128,
        learning_rate=2e-3,
        weight_decay=1e-4,
        ema_decay=0.999,
        n_likelihood_steps=50,
        warm_start=False,
        device="cpu",
        verbose=0,
        random_state=None,
    ):
        self.network = network
        self.hidden_dim = hidden_dim
        self.n_layers = n_layers
        self.image_shape = image_shape
        self.patch_size = patch_size
        self.n_timesteps = n_timesteps
        self.schedule = schedule
        self.prediction = prediction
        self.loss_weighting = loss_weighting
        self.condition = condition
        self.label_dropout = label_dropout
        self.scale = scale
        self.solver = solver
        self.n_sampling_steps = n_sampling_steps
        self.guidance_scale = guidance_scale
        self.clip = clip
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.ema_decay = ema_decay
        self.n_likelihood_steps = n_likelihood_steps
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Learn the distribution of the rows of X, given y if there is one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; at least two rows.
        y : array-like of shape (n_samples,), (n_samples, k) or (n_samples, n_tokens, e), \
                default=None
            Condition of each row, see the parameter `condition`.

        Returns
        -------
        self : DiffusionModel
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has a single row, values above 1e100 or not finite, or is not of `image_shape`,
            `n_sampling_steps` exceeds the number of levels, or training diverges.
        """
        return self._learn(X, y, fresh=not (self.warm_start and hasattr(self, "net_")))

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None):
        """Train for `max_iter` more steps from the present weights.

        Scaling and classes stay those of the first call.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : array-like, default=None
            Condition of each row, as in the first call.

        Returns
        -------
        self : DiffusionModel
            The fitted estimator.

        Raises
        ------
        ValueError
            As in :meth:`fit`, or if y holds new labels, or is there in one call only.
        """
        return self._learn(X, y, fresh=not hasattr(self, "net_"))

    def sample(
        self,
        n_samples=1,
        y=None,
        *,
        n_steps=None,
        solver=None,
        guidance_scale=None,
        x_init=None,
        condition=None,
        guidance=(),
        hooks=(),
        return_trajectory=False,
        random_state=None,
    ):
        """Draw rows from the learnt distribution.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        y : scalar or array-like, default=None
            Condition of all rows or of each. None draws without condition.
        n_steps : int or None, default=None
            Number of steps in place of `n_sampling_steps`.
        solver : str, object or None, default=None
            Solver in place of `solver`; also an object with
            ``step(x, x0, eps, a, b, noise)``.
        guidance_scale : float or None, default=None
            Scale in place of `guidance_scale`.
        x_init : array-like of shape (n_samples, n_features), default=None
            Noise that sampling begins with, in scaled units; standard normal by default.
        condition : array-like or tensor, default=None
            Embeddings of shape (n_samples, n_cond), or tokens of shape (n_samples, n_tokens,
            e), in place of y.
        guidance : sequence of callable, default=()
            ``g(x, t, x0, eps) -> eps`` on tensors in scaled units, in turn, e.g.
            ``ClassifierGuidance``.
        hooks : sequence of callable, default=()
            ``h(x, t) -> x`` on tensors in scaled units, after each step to time t.
        return_trajectory : bool, default=False
            Whether to return the points at all times, the noise first and the sample last.
        random_state : int, RandomState instance or None, default=None
            Determines the noise; None means that of the estimator.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features) or (n_steps + 1, n_samples, n_features)
            Rows in data units.

        Raises
        ------
        ValueError
            If there are more steps than noise levels, y holds unseen labels or is of another
            shape than in fit, `condition` is of another shape, or both are given.

        Notes
        -----
        Rows go through the network, and through `guidance` and `hooks`, 4096 at a time.
        """
        check_is_fitted(self)
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        if y is not None and condition is not None:
            raise ValueError("Give either y or condition, not both.")
        generator = self._generator(random_state)
        points = self._draw(
            self._starting_noise(n_samples, x_init, generator),
            generator,
            self._embedded(y, n_samples)
            if condition is None
            else self._given(condition, n_samples),
            n_steps=n_steps,
            solver=solver,
            guidance_scale=guidance_scale,
            guidance=guidance,
            hooks=hooks,
            keep_all=return_trajectory,
        )
        return self._to_data_units(points)

    def impute(self, X, y=None, *, n_steps=None, n_resample=5, random_state=None):
        """Fill in missing values with one draw given the values that are there.

        Known values are put in place, with the noise of the level, after each step [1]_.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with NaN where values are missing; known values of at most 1e15 scaled units.
        y : scalar or array-like, default=None
            Condition of all rows or of each.
        n_steps : int or None, default=None
            Number of steps in place of `n_sampling_steps`.
        n_resample : int, default=5
            Times that each step is made, with noise put back in between, so that the filled
            in values come to agree with the known ones.
        random_state : int, RandomState instance or None, default=None
            Determines the noise; None means that of the estimator.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            The rows without missing values; known values are unchanged.

        References
        ----------
        .. [1] Lugmayr, A. et al. "RePaint: Inpainting using Denoising Diffusion Probabilistic
           Models." CVPR 2022.
        """
        check_is_fitted(self)
        check_scalar(n_resample, "n_resample", Integral, min_val=1)
        X = self._validated(X, ensure_all_finite="allow-nan")
        condition = self._embedded(y, len(X))
        missing = np.isnan(X)
        rows = np.flatnonzero(missing.any(axis=1))
        filled = X.copy()
        if not rows.size:
            return filled
        known = np.where(missing[rows], 0.0, self.scaler_.transform(X[rows]))
        check_scaled(known)
        generator = self._generator(random_state)
        drawn = self._draw(
            self._starting_noise(len(rows), None, generator),
            generator,
            None if condition is None else condition[rows],
            n_steps=n_steps,
            known=known,
            is_known=~missing[rows],
            n_resample=n_resample,
        )
        filled[rows] = np.where(missing[rows], self._to_data_units(drawn), X[rows])
        return filled

    def score_samples(self, X, y=None):
        """Log density of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : scalar or array-like, default=None
            Condition of all rows or of each; None is the density without condition.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x), or log p(x | y), in nats and data units.
        """
        import torch

        from skicml.generative._likelihood_torch import double_copy, log_density

        check_is_fitted(self)
        X = self._validated(X)
        denoiser = double_copy(self._denoiser())
        shape = self._row_shape(X.shape[1])
        device = denoiser.alpha.device
        scaled = self.scaler_.transform(X)
        check_scaled(scaled, 1e100)
        rows = torch.as_tensor(scaled, device=device)
        exact = X.shape[1] <= _MAX_EXACT_TRACE
        density = log_density(
            denoiser,
            rows.reshape(-1, *shape),
            **as_condition(self._embedded(y, len(X), denoiser)),
            n_steps=self.n_likelihood_steps,
            probe=None if exact else torch.as_tensor(self._probe, device=device).reshape(shape),
        )
        log_scale = np.log(self.scaler_.scale).sum()
        return (density.cpu().numpy() - log_scale).astype(X.dtype)

    def score(self, X, y=None):
        """Mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : scalar or array-like, default=None
            Condition of all rows or of each; None is the density without condition.

        Returns
        -------
        score : float
            Mean of :meth:`score_samples`, in nats and data units.
        """
        return float(np.mean(self.score_samples(X, y), dtype=np.float64))

    # What the base class asks for

    def _settings(self):
        return DiffusionSettings(
            prediction=self.prediction,
            loss_weighting=self.loss_weighting,
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            ema_decay=self.ema_decay,
            device=self.device,
            verbose=self.verbose,
        )

    def _make_schedule(self):
        if isinstance(self.schedule, NoiseSchedule):
            return self.schedule
        return NoiseSchedule(self.schedule, self.n_timesteps)

    def _make_network(self, shape, n_cond, n_context=0):
        return make_network(self, shape, n_cond, n_context)

    # Training

    def _learn(self, X, y, *, fresh):
        """Train, from the start or from the present weights, then set the fitted attributes."""
        from skicml._torch import draw_seed
        from skicml.generative._training_torch import averaged_module, loss_curve

        rows = self._checked_rows(X, fresh)
        check_magnitude(rows, "X")
        shape = self._row_shape(rows.shape[1])
        schedule = self._make_schedule() if fresh else self.schedule_
        check_n_steps(schedule, self.n_sampling_steps)
        random_state = check_random_state(self.random_state)
        seed = draw_seed(random_state)
        probe = random_state.choice([-1.0, 1.0], size=rows.shape[1])
        scaler = self._fitted_scaler(rows) if fresh else self.scaler_
        scaled = scaler.transform(rows)
        encoder, codes = encode_training(
            y, len(rows), None if fresh else self.condition_, self.condition, fresh=fresh
        )

        context = self._init_callback_context(max_subtasks=self._n_fit_tasks())
        context.call_on_fit_task_begin(estimator=self, X=rows, y=y)
        net = self._fit_denoiser(
            self._make_batch(scaled.reshape(-1, *shape), codes),
            shape,
            seed=seed,
            condition=self._embedding_of(encoder),
            context=context,
            net=None if fresh else self.net_,
        )

        _check_feature_names(self, X, reset=fresh)
        _check_n_features(self, rows, reset=fresh)
        self.net_ = net
        self.ema_module_ = averaged_module(net)
        self.schedule_ = net.module_.schedule
        self.loss_curve_ = np.array(loss_curve(net))
        self.n_iter_ = len(self.loss_curve_)
        self.data_range_ = column_range(scaled, None if fresh else self.data_range_)
        if fresh:
            self.scaler_ = scaler
            self.condition_ = encoder
            vars(self).pop("classes_", None)
            if encoder is not None and encoder.kind == "label":
                self.classes_ = encoder.classes
            self._probe = probe
            self._dtype = rows.dtype
        context.call_on_fit_task_end(estimator=self, X=rows, y=y)
        return self

    def _fitted_scaler(self, rows):
        return AffineScaler.fit(rows, self.scale, shared=self.image_shape is not None)

    def _checked_rows(self, X, fresh):
        """X as an array; unlike validate_data this leaves the estimator alone on an error."""
        if fresh:
            return check_array(X, dtype=_FLOATS, order="C", ensure_min_samples=2, estimator=self)
        return self._validated(X, ensure_min_samples=2)

    def _embedding_of(self, encoder):
        if encoder is None:
            return None
        n_cond = 0 if encoder.kind == "context" else self.hidden_dim
        return Condition(encoder.kind, encoder.n_inputs, n_cond, self.label_dropout)

    def _row_shape(self, n_features):
        """Shape of a row as the network takes it."""
        return row_shape(self.image_shape, n_features, network_kind(self))

    # Sampling

    def _draw(self, start, generator, condition, *, n_steps=None, **settings):
        """Sample from the noise `start` in scaled units; see draw_rows for `settings`."""
        from skicml.generative._drawing_torch import draw_rows

        net = self._denoiser()
        scale = settings.pop("guidance_scale", None)
        scale = self.guidance_scale if scale is None else scale
        check_scalar(scale, "guidance_scale", Real, min_val=0, max_val=np.finfo(np.float32).max)
        if np.isnan(scale):
            raise ValueError("guidance_scale must not be NaN.")
        solver = settings.pop("solver", None)
        return draw_rows(
            net,
            partial(self._predict, guidance_scale=scale),
            start,
            self._row_shape(self.n_features_in_),
            generator,
            timesteps=self._timesteps(net, n_steps),
            condition=condition,
            clip=self._clip_range(),
            solver=self.solver if solver is None else solver,
            **settings,
        )

    def _timesteps(self, net, n_steps):
        schedule = net.schedule
        n_steps = self.n_sampling_steps if n_steps is None else n_steps
        check_scalar(n_steps, "n_steps", Integral, min_val=1)
        check_n_steps(schedule, n_steps)
        start = schedule.n_timesteps
        if net.prediction == "eps":
            start = schedule.first_divisible()
        return schedule.timesteps(min(n_steps, start), start=start)

    def _clip_range(self):
        """Lowest and highest clean data in scaled units."""
        if self.clip is None or self.clip == "data":
            return None if self.clip is None else self.data_range_
        bound = np.full(self.n_features_in_, float(self.clip))
        return np.stack([-bound, bound])

    def _starting_noise(self, n_samples, x_init, generator):
        import torch

        if x_init is None:
            return torch.randn(n_samples, self.n_features_in_, generator=generator).numpy()
        x_init = check_array(x_init, dtype=np.float32, input_name="x_init")
        if x_init.shape != (n_samples, self.n_features_in_):
            raise ValueError(
                f"x_init must have shape {(n_samples, self.n_features_in_)}, got {x_init.shape}."
            )
        return x_init

    def _embedded(self, y, n_samples, denoiser=None):
        """Embedding of y, one row a sample; None without y."""
        import torch

        if y is None:
            return None
        if self.condition_ is None:
            raise ValueError("The model was fitted without y: y must be None.")
        denoiser = self._denoiser() if denoiser is None else denoiser
        codes = torch.as_tensor(self.condition_.encode(y, n_samples)).to(denoiser.alpha.device)
        if codes.is_floating_point():
            codes = codes.to(denoiser.condition.null.dtype)
        with torch.no_grad():
            return denoiser.condition(codes)

    def _given(self, condition, n_samples):
        from skicml.generative._drawing_torch import given_embedding

        if self.condition_ is None and network_kind(self) is not None:
            raise ValueError("The model was fitted without y: condition must be None.")
        return given_embedding(condition, n_samples, self.ema_module_.condition)

    def _generator(self, random_state):
        import torch

        from skicml._torch import draw_seed

        random_state = self.random_state if random_state is None else random_state
        return torch.Generator().manual_seed(draw_seed(random_state))

    def _validated(self, X, **kwargs):
        return validate_data(self, X, dtype=_FLOATS, order="C", reset=False, **kwargs)

    def _to_data_units(self, X):
        return self.scaler_.inverse_transform(X).astype(self._dtype)
