"""TSM: the objective that conditional time score matching replaces."""

from skicml.density_ratio._ctsm_base import BaseTimeScoreRatio


class TSM(BaseTimeScoreRatio):
    """Density ratio of two samples by unconditional time score matching.

    The baseline of :class:`CTSM` [1]_: the same path, weights, network and predictions, but
    the time score is matched without conditioning on the ends of the path. Integration by
    parts removes the unknown score from the loss::

        L = 2 E_p0[lam(0) s(x, 0)] - 2 E_p1[lam(1) s(x, 1)]
            + E_t,x_t[lam s^2 + 2 lam ds/dt + 2 lam' s]

    This takes derivatives of the network by t at each step, and its values scatter more.

    Read more in the :ref:`User Guide <ctsm>`.

    Parameters
    ----------
    path : {"bridge", "vp"}, default="bridge"
        "bridge": x_t = (1 - t) x0 + t x1 + sqrt(sigma^2 t (1 - t)) eps, between two samples.
        "vp": x_t = t x1 + sqrt(1 - t^2) eps, where p0 is known to be the standard normal
        distribution N(0, I); rows of the first class then only give the class prior.
    bridge_variance : float, default=1.0
        sigma^2 of the bridge, in units of the standardised columns.
    weighting : {"time_score", "stein", "uniform"}, default="time_score"
        Weight lam of the loss over time. "time_score": the inverse second moment of the
        conditional time score; "stein": the variance k of the path; "uniform": 1.
    weight_constant : float or "auto", default=1.0
        c of the time score weight: mean squared velocity of the path a feature, divided by
        sigma^2 for the bridge. "auto" estimates it from the samples.
    hidden_layer_sizes : sequence of int, default=(128, 128, 128)
        Widths of the hidden layers.
    activation : {"elu", "relu", "silu", "tanh"}, default="elu"
        Activation of the hidden layers.
    max_iter : int, default=3000
        Number of gradient steps. Log ratios beyond 30 or so need more.
    batch_size : int, default=256
        Points of the path a step.
    learning_rate : float, default=2e-3
        Rate of Adam.
    lr_schedule : {"cosine", "constant"}, default="cosine"
        Whether the rate falls to zero over the `max_iter` steps, along a cosine.
    time_eps : float, default=1e-5
        How far the path stays from the ends where it has no noise: both ends of the bridge,
        the last one of "vp".
    n_quadrature : int, default=32
        Nodes of the Gauss-Legendre rule that integrates the time score in predictions.
    standardize : bool, default=True
        Whether to shift and scale columns by the mean of both means and the root of the mean
        variance within the samples, which leaves the ratio as it is. "vp" never does.
    early_stopping : bool, default=False
        Whether to hold out rows of both samples, end training when the loss on fixed draws
        from them no longer falls, and keep the best network. Advisable for small samples,
        which the network learns by heart.
    validation_fraction : float, default=0.1
        Share of the rows of either sample that is held out.
    n_iter_no_change : int, default=10
        Checks without a smaller loss, one every 100 steps, after which training ends.
    ema_decay : float, default=0.0
        Decay a step of an exponential moving average of the parameters, which is then what
        predicts (early stopping then keeps the average at the stop). 0 means none.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the network is trained.
    random_state : int, RandomState instance or None, default=None
        Determines the start of the network, the held-out rows and all draws. Pass an int for
        reproducible results.
    warm_start : bool, default=False
        Whether fit goes on from the network of the last fit, in its scaling of the columns,
        with a new optimiser and schedule.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Labels of the denominator and of the numerator.
    class_prior_ : ndarray of shape (2,)
        Shares of both in the training rows.
    mean_, scale_ : ndarray of shape (n_features,)
        Shift and scale of the columns.
    net_ : skorch.NeuralNet
        The trained net; ``net_.module_`` is the network.
    n_iter_ : int
        Number of gradient steps taken.
    loss_curve_ : list of float
        Mean loss of every 100 steps.
    validation_curve_ : list of float or None
        Loss on the held-out rows after every 100 steps; None without early stopping.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit, if X has string column names.

    See Also
    --------
    CTSM : Conditional time score matching, faster and steadier.

    Notes
    -----
    Training takes time O(max_iter batch_size P) for P parameters, about three times that of
    :class:`CTSM`, as a second pass of automatic differentiation goes through the first;
    predictions of n rows take O(n n_quadrature P), and memory is
    O(n_samples n_features + P).

    The path keeps `time_eps` away from ends without noise, so the boundary terms are those of
    its points there, and the loss is divided by the number of features, as is that of
    :class:`CTSM`. The weight lam of the bridge vanishes at both ends, and with it the
    boundary terms, unless ``weighting="uniform"``. The loss may be negative: a constant that
    depends on the densities is left out.

    References
    ----------
    .. [1] Choi, K., Meng, C., Song, Y. and Ermon, S. "Density Ratio Estimation via
       Infinitesimal Classification." AISTATS 2022, PMLR 151:2552-2573.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.density_ratio import TSM
    >>> rng = np.random.RandomState(0)
    >>> X = np.vstack([rng.normal(0, 1, (500, 1)), rng.normal(2, 1, (500, 1))])
    >>> y = np.repeat([0, 1], 500)
    >>> tsm = TSM(hidden_layer_sizes=(32, 32), max_iter=500, random_state=0).fit(X, y)
    >>> tsm.log_density_ratio(X).shape
    (1000,)
    """

    def __init__(
        self,
        path="bridge",
        *,
        bridge_variance=1.0,
        weighting="time_score",
        weight_constant=1.0,
        hidden_layer_sizes=(128, 128, 128),
        activation="elu",
        max_iter=3000,
        batch_size=256,
        learning_rate=2e-3,
        lr_schedule="cosine",
        time_eps=1e-5,
        n_quadrature=32,
        standardize=True,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        ema_decay=0.0,
        device="cpu",
        random_state=None,
        warm_start=False,
    ):
        self.path = path
        self.bridge_variance = bridge_variance
        self.weighting = weighting
        self.weight_constant = weight_constant
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.lr_schedule = lr_schedule
        self.time_eps = time_eps
        self.n_quadrature = n_quadrature
        self.standardize = standardize
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.ema_decay = ema_decay
        self.device = device
        self.random_state = random_state
        self.warm_start = warm_start

    def _architecture(self, n_features):
        from skicml.density_ratio._ctsm_torch import TSMNet

        return TSMNet, 1
