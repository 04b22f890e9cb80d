"""LSCDImputer: missing values of time series, by diffusion conditioned on the spectrum."""

import warnings
from numbers import Integral, Real

import numpy as np
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from skicml.generative import BaseDiffusion, NoiseSchedule
from skicml.generative._base import DiffusionSettings
from skicml.time_series._lscd_windows import Windows
from skicml.time_series._panels import check_times, validate_panel
from skicml.utils._fitting import all_or_nothing

_SCORED = 0.2  # share of the observed values that score hides
_DECAYS = (0.75, 0.9)  # of the training: the learning rate falls to a tenth
_CELLS = 2**14  # cells of all draws that are sampled at once: they fit the cache
_PLATEAU = 0.8  # of the loss of a network that ignores its condition: training has not taken off


class LSCDImputer(OneToOneFeatureMixin, TransformerMixin, BaseDiffusion):
    """Impute time series by diffusion conditioned on their Lomb-Scargle spectrum.

    A network learns to turn noise into the missing values of a series, given its observed
    values and their Lomb-Scargle spectrum, which needs no filling of the gaps [1]_. Every
    missing value gets a distribution; :meth:`transform` fills in its median.

    Parameters
    ----------
    conditioning : "spectrum" or None, default="spectrum"
        None leaves the spectrum out, which gives the method CSDI [2]_.
    window : int or None, default=None
        Cut the series into windows of this many time points. A two-dimensional X is then one
        series: rows are time steps and columns channels. None takes every series as a whole.
    stride : int or None, default=None
        Time points between the starts of windows, at most `window`; None means `window`, so
        that windows do not overlap. The last window is aligned to the end. Overlapping
        estimates are averaged.
    times : array-like of shape (n_timepoints,) or None, default=None
        Strictly increasing times of the time points, in any unit. Datetimes count in seconds.
        None means 0, 1, 2, ...
    n_diffusion_steps : int, default=50
        Number of noise levels.
    beta_min, beta_max : float, default=1e-4 and 0.5
        Noise rates of the first and the last level.
    schedule : {"quad", "linear"}, default="quad"
        Whether the noise rates or, for "quad", their square roots rise linearly.
    n_layers : int, default=4
        Residual blocks. Fewer than 3 hardly see the condition.
    n_channels : int, default=64
        Width of the network.
    n_heads : int, default=8
        Attention heads; a divisor of `n_channels` and `spectral_channels`.
    time_embedding_dim, feature_embedding_dim : int, default=128 and 16
        Sizes of the embeddings of times (even) and channels.
    spectral_layers, spectral_channels : int, default=2 and 64
        Layers and width of the encoder of the spectrum.
    early_conditioning : bool, default=True
        Whether the condition enters the input of the network, too, and not only its blocks.
        False is the published network, which takes about twice as long to begin to use it.
    mask_strategy : {"random", "mix"}, default="random"
        What is hidden in training: "random", a random share of the observed values; "mix", in
        half of the cases instead what another series of the batch lacks. For data whose gaps
        have a structure.
    consistency_weight : float, default=0.0
        Weight of the spectral consistency loss: the squared difference between the spectrum of
        the known values and that of their reconstruction.
    consistency_start : float, default=0.75
        Share of the training after which that loss is added.
    consistency_mode : {"one_step", "chain"}, default="one_step"
        Reconstruction in one step, or by the whole reverse process as published, at
        `n_diffusion_steps` times the cost.
    max_iter : int, default=20000
        Gradient steps.
    batch_size : int, default=16
        Series (or windows) a step.
    learning_rate : float, default=1e-3
        Learning rate of Adam; it falls to a tenth after 75 % and 90 % of the steps.
    weight_decay : float, default=1e-6
        Weight decay of Adam.
    n_samples : int, default=20
        Draws of each missing value that its median and quantiles are taken from.
    validation_fraction : float, default=0.0
        Share of the series held out of training, for `validation_loss_`.
    random_state : int, RandomState instance or None, default=None
        For initialisation, batches, masks and noise in training, and the noise of the draws.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the network runs.
    verbose : int, default=0
        Whether to print the loss every 50 steps.

    Attributes
    ----------
    network_ : torch.nn.Module
        The trained network.
    mean_, scale_ : ndarray of shape (n_channels,)
        Mean and standard deviation of the observed values of each channel of the data (1 for
        constant ones).
    times_ : ndarray of shape (n_timepoints,)
        Times of the time points in fit; datetimes as seconds since the first one.
    frequencies_ : ndarray of shape (n_timepoints,)
        Frequencies of the spectrum, in cycles per unit of the times (Hz for datetimes); as many
        as a series or window has time points.
    loss_curve_ : list of float of length n_iter_
        Loss of each gradient step. It is noisy, since the noise level is random.
    validation_loss_ : dict of int to float, or None
        Loss on the held-out series at a fifth and half of the noise levels; None without
        `validation_fraction`.
    n_iter_ : int
        Gradient steps taken.
    net_ : skorch.NeuralNet
        The trained skorch net.
    ema_module_ : torch.nn.Module
        The denoiser around the network.
    n_features_in_ : int
        Number of columns of X, or of channels for a three-dimensional X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    See Also
    --------
    LombScargle : The spectrum alone, as features.
    sklearn.impute.IterativeImputer : Imputation of tables, that knows nothing of time.

    Notes
    -----
    With x0 the standardised series, M its observed cells and abar_t the share of signal at noise
    level t, a step of training hides a random part of the observed cells, known cells C and
    hidden cells M - C remain, and minimises the mean over the hidden cells of ::

        (eps - eps_theta(x_t, t | x0 on C, spectrum of x0 on C))^2,
        x_t = sqrt(abar_t) x0 + sqrt(1 - abar_t) eps

    The spectrum is the logarithm of the unit-area Lomb-Scargle power with false-alarm weights,
    at as many frequencies as there are time points, from the known cells alone. Draws come from
    the ancestral sampler with all observed cells known. All rows share the noise of a draw,
    so that what is imputed in a row does not depend on other rows (up to rounding); observed
    values are returned as they are. A channel that was never observed in fit is filled with 0.

    Training first stays on a plateau, where the network ignores the condition, for one to three
    thousand steps; stopped there, the imputation is worse than filling in the mean. Hold out
    series by `validation_fraction` to be warned of it. The published sizes are the defaults. On
    a CPU begin with a smaller network: ``n_layers=4, n_channels=32, n_heads=4,
    time_embedding_dim=32, spectral_channels=16``.

    Departures from the paper, beside `early_conditioning`: the spectral encoder knows the
    position of a frequency (the published one repeats the power along its width, which layer
    normalisation takes out again); spectra reach up to the Nyquist frequency of the median
    gap and not beyond; log spectra are standardised by (value + 5) / 5; times enter the
    embedding and the spectrum in units of the median gap, so that the unit of time does not
    matter; 1x1 convolutions start from He's initialisation; there is no dropout.
    Where the network is shown zeros, at the known cells, the reconstruction of the consistency
    loss takes x_t for zero, too: from noise that the network cannot see, it could not rebuild
    anything.

    One training step takes O(n_layers (K L^2 + K^2 L + K L n_channels) n_channels) time for each
    series of K channels and L time points (or window); sampling takes n_diffusion_steps *
    n_samples / 3 times as much for each series. Memory is O(n_layers K L (n_channels + n_heads
    (K + L))) for each series of a batch in training; draws are made in batches of bounded size.

    References
    ----------
    .. [1] Elizabeth Fons, Alejandro Sztrajman, Yousef El-Laham, Luciana Ferrer, Svitlana
       Vyetrenko and Manuela Veloso, "LSCD: Lomb-Scargle Conditioned Diffusion for Time series
       Imputation", ICML 2025, :arxiv:`2506.17039`.
    .. [2] Yusuke Tashiro, Jiaming Song, Yang Song and Stefano Ermon, "CSDI: Conditional
       Score-based Diffusion Models for Probabilistic Time Series Imputation", NeurIPS 2021,
       :arxiv:`2107.03502`.

    Examples
    --------
    Far too few steps for a good imputation, but quick:

    >>> import numpy as np
    >>> from skicml.datasets import make_gappy_sines
    >>> from skicml.time_series import LSCDImputer
    >>> sines = make_gappy_sines(20, 12, missing_fraction=0.5, random_state=0)
    >>> imputer = LSCDImputer(
    ...     n_channels=8, n_heads=2, spectral_channels=8, max_iter=5, n_samples=3, random_state=0
    ... ).fit(sines.X)
    >>> filled = imputer.transform(sines.X)
    >>> bool(np.isnan(filled).any())
    False
    >>> imputer.predict_quantiles(sines.X, quantiles=(0.1, 0.9)).shape
    (2, 20, 12)
    """

    _parameter_constraints: dict = {
        "conditioning": [StrOptions({"spectrum"}), None],
        "window": [Interval(Integral, 2, None, closed="left"), None],
        "stride": [Interval(Integral, 1, None, closed="left"), None],
        "times": ["array-like", None],
        "n_diffusion_steps": [Interval(Integral, 2, None, closed="left")],
        "beta_min": [Interval(Real, 0, 1, closed="neither")],
        "beta_max": [Interval(Real, 0, 1, closed="neither")],
        "schedule": [StrOptions({"quad", "linear"})],
        "n_layers": [Interval(Integral, 1, None, closed="left")],
        "n_channels": [Interval(Integral, 1, None, closed="left")],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "time_embedding_dim": [Interval(Integral, 2, None, closed="left")],
        "feature_embedding_dim": [Interval(Integral, 1, None, closed="left")],
        "spectral_layers": [Interval(Integral, 1, None, closed="left")],
        "spectral_channels": [Interval(Integral, 1, None, closed="left")],
        "early_conditioning": ["boolean"],
        "mask_strategy": [StrOptions({"random", "mix"})],
        "consistency_weight": [Interval(Real, 0, None, closed="left")],
        "consistency_start": [Interval(Real, 0, 1, closed="both")],
        "consistency_mode": [StrOptions({"one_step", "chain"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        *,
        conditioning="spectrum",
        window=None,
        stride=None,
        times=None,
        n_diffusion_steps=50,
        beta_min=1e-4,
        beta_max=0.5,
        schedule="quad",
        n_layers=4,
        n_channels=64,
        n_heads=8,
        time_embedding_dim=128,
        feature_embedding_dim=16,
        spectral_layers=2,
        spectral_channels=64,
        early_conditioning=True,
        mask_strategy="random",
        consistency_weight=0.0,
        consistency_start=0.75,
        consistency_mode="one_step",
        max_iter=20000,
        batch_size=16,
        learning_rate=1e-3,
        weight_decay=1e-6,
        n_samples=20,
        validation_fraction=0.0,
        random_state=None,
        device="cpu",
        verbose=0,
    ):
        self.conditioning = conditioning
        self.window = window
        self.stride = stride
        self.times = times
        self.n_diffusion_steps = n_diffusion_steps
        self.beta_min = beta_min
        self.beta_max = beta_max
        self.schedule = schedule
        self.n_layers = n_layers
        self.n_channels = n_channels
        self.n_heads = n_heads
        self.time_embedding_dim = time_embedding_dim
        self.feature_embedding_dim = feature_embedding_dim
        self.spectral_layers = spectral_layers
        self.spectral_channels = spectral_channels
        self.early_conditioning = early_conditioning
        self.mask_strategy = mask_strategy
        self.consistency_weight = consistency_weight
        self.consistency_start = consistency_start
        self.consistency_mode = consistency_mode
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.n_samples = n_samples
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    # ---- fit ----------------------------------------------------------------------------------

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Train the network on the observed values.

        Parameters
        ----------
        X : array-like of shape (n_series, n_timepoints), \
                (n_series, n_timepoints, n_channels) or, with `window`, (n_timepoints, n_channels)
            Series, NaN where a value is missing.
        y : Ignored
            Not used, present for consistency.

        Returns
        -------
        self : LSCDImputer
            The fitted imputer.

        Raises
        ------
        ValueError
            If X has fewer time points than 2 or a window, is infinite, `times` do not increase
            strictly or do not fit X, `stride` is above `window`, `n_heads` does not divide
            `n_channels` and `spectral_channels`, `time_embedding_dim` is odd, or training
            diverges.
        """
        from skicml._torch import draw_seed
        from skicml.generative._training_torch import averaged_module, loss_curve, n_steps_taken

        self._check_sizes()
        panel, n_dims = validate_panel(self, X, rows_are_times=self.window is not None)
        times = check_times(self.times, panel.shape[1])
        windows = self._windows(panel.shape[1])
        mean, scale, seen = _statistics(panel)
        gap = float(np.median(np.diff(times)))
        random_state = check_random_state(self.random_state)
        fit_seed, sampling_seed = draw_seed(random_state), draw_seed(random_state)

        context = self._init_callback_context(max_subtasks=self._n_fit_tasks())
        context.call_on_fit_task_begin(estimator=self, X=X)
        rows = _network_rows(panel, windows, times / gap, mean, scale)
        train, held_out = _split(rows, self.validation_fraction, random_state)
        net = self._fit_denoiser(train, train["x0"].shape[1:], seed=fit_seed, context=context)
        denoiser = averaged_module(net)
        validation_loss = None
        if held_out is not None:
            validation_loss = self._validation_loss(denoiser, held_out, sampling_seed)

        self.net_ = net
        self.ema_module_ = denoiser
        self.network_ = denoiser.network
        self.mean_, self.scale_ = mean, scale
        self.times_ = times
        self.frequencies_ = denoiser.network.frequencies.numpy() / gap
        self.loss_curve_ = loss_curve(net)
        self.validation_loss_ = validation_loss
        self.n_iter_ = n_steps_taken(net)
        self._n_dims = n_dims
        self._seen = seen
        self._gap = gap
        self._seed = sampling_seed
        context.call_on_fit_task_end(estimator=self, X=X)
        return self

    def _settings(self):
        return DiffusionSettings(
            prediction="eps",
            max_iter=self.max_iter,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            optimizer="Adam",
            gradient_clip=None,
            ema_decay=None,
            device=self.device,
            verbose=self.verbose,
        )

    def _make_schedule(self):
        return NoiseSchedule(
            self.schedule,
            self.n_diffusion_steps,
            beta_min=self.beta_min,
            beta_max=self.beta_max,
        )

    def _make_network(self, shape, n_cond):
        from skicml.time_series._lscd_torch import LSCDNetwork

        return LSCDNetwork(
            *shape,
            self.n_diffusion_steps,
            spectral=self.conditioning is not None,
            n_layers=self.n_layers,
            width=self.n_channels,
            n_heads=self.n_heads,
            time_dim=self.time_embedding_dim,
            channel_dim=self.feature_embedding_dim,
            spectral_layers=self.spectral_layers,
            spectral_width=self.spectral_channels,
            early=self.early_conditioning,
        )

    def _make_scheduler(self, optimizer, n_steps):
        from torch.optim.lr_scheduler import MultiStepLR

        return MultiStepLR(optimizer, [int(share * n_steps) for share in _DECAYS], gamma=0.1)

    def _loss(self, net, batch, generator, condition=None):
        from skicml.time_series._lscd_torch import consistency_loss, draw_known

        x0, observed, times = batch["x0"], batch["observed"], batch["times"]
        known = draw_known(observed, generator, self.mask_strategy)
        condition = net.network.condition(x0, known, times)
        noised = net.corrupt(x0, generator)
        output = net(noised.x, noised.t, condition)
        loss = net.loss(output, noised, mask=observed - known)
        is_late = net.network.n_batches >= self.consistency_start * self.max_iter
        net.network.n_batches += 1
        if self.consistency_weight == 0 or not is_late:
            return loss
        return loss + self.consistency_weight * consistency_loss(
            net, noised, output, condition, times, self.consistency_mode, generator
        )

    def _validation_loss(self, denoiser, rows, seed):
        """Loss at a fifth and at half of the noise levels, with half of the cells hidden."""
        from skicml.time_series._lscd_torch import loss_at

        levels = sorted({max(1, self.n_diffusion_steps // 5), self.n_diffusion_steps // 2})
        losses = {t: loss_at(denoiser, rows, t, seed) for t in levels}
        # What a network that ignores its condition can reach is the share of signal.
        blind = denoiser.schedule.abar_[levels[-1]]
        if losses[levels[-1]] > _PLATEAU * blind:
            warnings.warn(
                f"The loss on held-out series at noise level {levels[-1]} is "
                f"{losses[levels[-1]]:.3g}, not much below the {blind:.3g} of a network that "
                "ignores the observed values. Either training has not left its first plateau "
                "(raise max_iter), or the missing values cannot be told from the others.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return losses

    # ---- imputation ---------------------------------------------------------------------------

    def transform(self, X):
        """Fill the missing values by the median of their draws.

        Parameters
        ----------
        X : array-like
            Series in the form of those of fit, NaN where a value is missing.

        Returns
        -------
        X_filled : ndarray of the shape of X
            X without NaN. Observed values are as they were.
        """
        return self.predict_quantiles(X, quantiles=(0.5,))[0]

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)):
        """Quantiles of the draws of the missing values.

        Parameters
        ----------
        X : array-like
            Series in the form of those of fit, NaN where a value is missing.
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Between 0 and 1.

        Returns
        -------
        filled : ndarray of shape (n_quantiles, ...)
            X with its missing values replaced by each quantile, along a first axis.

        Raises
        ------
        ValueError
            If a quantile is not between 0 and 1, or there is none.
        """
        quantiles = np.asarray(quantiles, dtype=float)
        if quantiles.ndim != 1 or len(quantiles) == 0:
            raise ValueError(
                f"quantiles must be 1-D and hold one value at least, got shape {quantiles.shape}."
            )
        if not np.all((quantiles >= 0) & (quantiles <= 1)):
            raise ValueError(f"quantiles must be between 0 and 1, got {quantiles.tolist()}.")
        return self._in_form_of_fit(self._quantiles(self._check_panel(X), quantiles))

    def sample(self, X, n_samples=None):
        """Draws of the missing values.

        Parameters
        ----------
        X : array-like
            Series in the form of those of fit, NaN where a value is missing.
        n_samples : int or None, default=None
            Number of draws; None means that of the estimator.

        Returns
        -------
        filled : ndarray of shape (n_samples, ...)
            X with its missing values replaced by each draw, along a first axis. Where windows
            overlap, the one counts whose centre is nearer.

        Raises
        ------
        ValueError
            If `n_samples` is below 1.
        """
        n_samples = self.n_samples if n_samples is None else n_samples
        if n_samples < 1:
            raise ValueError(f"n_samples must be at least 1, got {n_samples}.")
        draws = self._impute(
            self._check_panel(X),
            n_samples,
            summarize=lambda draws: draws,
            assemble=Windows.stitch,
        )
        return self._in_form_of_fit(draws)

    def score(self, X, y=None):
        """Minus the mean absolute error on observed values that are hidden for the purpose.

        Parameters
        ----------
        X : array-like
            Series in the form of those of fit, NaN where a value is missing.
        y : Ignored
            Not used, present for consistency.

        Returns
        -------
        score : float
            The negative error in standard deviations of each channel, on a random fifth of the
            observed values, the same at every call.

        Raises
        ------
        ValueError
            If X has fewer than 2 observed values.
        """
        panel = self._check_panel(X)
        observed = np.flatnonzero(~np.isnan(panel))
        if len(observed) < 2:
            raise ValueError(f"score needs at least 2 observed values, got {len(observed)}.")
        rng = np.random.RandomState(self._seed)
        hidden = rng.permutation(observed)[: max(1, round(_SCORED * len(observed)))]
        gappy = panel.copy()
        gappy.flat[hidden] = np.nan
        errors = (self._quantiles(gappy, (0.5,))[0] - panel) / self.scale_
        return -float(np.abs(errors.flat[hidden]).mean())

    def _quantiles(self, panel, quantiles):
        """The panel filled in by each quantile, along a first axis."""
        return self._impute(
            panel,
            self.n_samples,
            summarize=lambda draws: np.quantile(draws, quantiles, axis=0),
            assemble=Windows.average,
        )

    def _impute(self, panel, n_draws, summarize, assemble):
        """The panel with missing values replaced by what `summarize` says of their draws."""
        windows = self._windows(panel.shape[1])
        times = check_times(self.times, panel.shape[1]) / self._gap
        rows = _network_rows(panel, windows, times, self.mean_, self.scale_)
        said = assemble(windows, self._summaries(rows, n_draws, summarize))
        said = said.transpose(3, 0, 1, 2) * self.scale_ + self.mean_
        said[..., ~self._seen] = 0.0
        return np.where(np.isnan(panel), said.astype(panel.dtype), panel)

    def _summaries(self, rows, n_draws, summarize):
        """Summaries of the draws of each window, shape (n_windows, width, n_channels, n)."""
        from skicml.time_series._lscd_torch import draw_windows

        shape = rows["x0"].shape
        gappy = np.flatnonzero((rows["observed"] == 0).any(axis=(1, 2)))
        height = max(1, _CELLS // (n_draws * shape[1] * shape[2]))
        denoiser = self._denoiser()
        n_summaries = len(summarize(np.zeros((n_draws, 1))))
        summaries = np.zeros((n_summaries, *shape))
        for start in range(0, len(gappy), height):
            chunk = gappy[start : start + height]
            some = {name: value[chunk] for name, value in rows.items()}
            summaries[:, chunk] = summarize(draw_windows(denoiser, some, n_draws, self._seed))
        return summaries.transpose(1, 3, 2, 0)

    # ---- data ---------------------------------------------------------------------------------

    def _check_sizes(self):
        if self.n_channels % self.n_heads or self.spectral_channels % self.n_heads:
            raise ValueError(
                f"n_heads={self.n_heads} must divide n_channels={self.n_channels} and "
                f"spectral_channels={self.spectral_channels}."
            )
        if self.time_embedding_dim % 2:
            raise ValueError(f"time_embedding_dim={self.time_embedding_dim} must be even.")

    def _check_panel(self, X):
        """X, in the form of the data of fit, as a panel (n_series, n_timepoints, n_channels)."""
        check_is_fitted(self)
        panel, _ = validate_panel(
            self, X, n_dims=self._n_dims, rows_are_times=self.window is not None
        )
        if self.window is None and panel.shape[1] != len(self.times_):
            raise ValueError(
                f"X must have {len(self.times_)} time points, as in fit, got {panel.shape[1]}."
            )
        return panel

    def _in_form_of_fit(self, panel):
        """The panel (..., n_series, n_timepoints, n_channels) in the form of the data of fit."""
        if self._n_dims == 3:
            return panel
        return panel[..., 0] if self.window is None else panel[..., 0, :, :]

    def _windows(self, n_timepoints):
        width = n_timepoints if self.window is None else self.window
        if n_timepoints < width:
            raise ValueError(
                f"Series must be as long as window={width}, got n_timepoints = {n_timepoints} "
                f"(in a two-dimensional X the number of rows, n_samples = {n_timepoints})."
            )
        stride = self.stride or width
        if self.window is not None and stride > width:
            raise ValueError(
                f"stride={stride} must be at most window={width}, or the time points between "
                "windows would not be imputed."
            )
        return Windows(n_timepoints, width, stride)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _statistics(panel):
    """Mean and standard deviation of the observed values of each channel, and which have any."""
    observed = ~np.isnan(panel)
    seen = observed.any(axis=(0, 1))
    if not seen.all():
        warnings.warn(
            f"Channels {np.flatnonzero(~seen).tolist()} have no observed values: their missing "
            "values will be filled with 0.",
            UserWarning,
            stacklevel=6,
        )
    values = np.where(seen, panel, 0.0).astype(np.float64)
    # A power of two as unit rounds nothing, and no square over- or underflows.
    unit = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(values), axis=(0, 1)))[1] - 1)
    values /= unit
    mean, scale = (moment(values, axis=(0, 1)) * unit for moment in (np.nanmean, np.nanstd))
    constant = scale <= 1e-13 * np.abs(mean)
    return mean, np.where(constant, 1.0, scale), seen


def _network_rows(panel, windows, times, mean, scale):
    """What the network sees of each window: standardised values, 0 where missing, and times.

    Times are counted from the start of the window while they are in float64.
    """
    observed = ~np.isnan(panel)
    times = windows.cut_times(times, len(panel))
    values = np.where(observed, (panel - mean) / scale, 0.0)
    return {
        "x0": windows.cut(values).transpose(0, 2, 1).astype(np.float32),
        "observed": windows.cut(observed).transpose(0, 2, 1).astype(np.float32),
        "times": (times - times[:, :1]).astype(np.float32),
    }


def _split(rows, fraction, random_state):
    """Rows for training and, for a fraction above 0, held-out rows."""
    if fraction == 0:
        return rows, None
    n_rows = len(rows["x0"])
    n_held_out = max(1, round(fraction * n_rows))
    if n_held_out >= n_rows:
        raise ValueError(
            f"validation_fraction={fraction} leaves no series or window to train on: "
            f"n_samples={n_rows}."
        )
    order = random_state.permutation(n_rows)
    parts = order[n_held_out:], order[:n_held_out]
    return tuple({name: value[part] for name, value in rows.items()} for part in parts)
