"""CTSM: density ratios by conditional time score matching."""

from skicml.density_ratio._ctsm_base import BaseTimeScoreRatio


class CTSM(BaseTimeScoreRatio):
    """Density ratio of two samples by conditional time score matching.

    Estimates log p1(x) / p0(x) from a sample of each density, also where the two are so far
    apart that a classifier separates them without error [1]_. A path of densities p_t leads
    from p0 to p1, and the log ratio is the integral of its time score::

        log p1(x) / p0(x) = integral over t from 0 to 1 of d/dt log p_t(x)

    Given the ends of the path, p_t is Gaussian and its time score known in closed form; a
    network of (x, t) that regresses on it learns the time score of the path itself. As a
    classifier, the estimator tells from which sample a row comes, by Bayes' rule.

    Read more in the :ref:`User Guide <ctsm>`.

    Parameters
    ----------
    path : {"bridge", "vp"}, default="bridge"
        "bridge": x_t = (1 - t) x0 + t x1 + sqrt(sigma^2 t (1 - t)) eps, between two samples.
        "vp": x_t = t x1 + sqrt(1 - t^2) eps, where p0 is known to be the standard normal
        distribution N(0, I); rows of the first class then only give the class prior.
    vectorized : bool, default=True
        Whether the network has an output a feature, each of which regresses on one term of
        the time score. False learns their sum by one output, as good in a few dimensions.
    bridge_variance : float, default=1.0
        sigma^2 of the bridge, in units of the standardised columns.
    weighting : {"time_score", "stein", "uniform"}, default="time_score"
        Weight lam of the loss over time. "time_score": the inverse second moment of the
        conditional time score; "stein": the variance k of the path; "uniform": 1, with which
        targets grow like 1 / `time_eps` where the path has no noise, so raise `time_eps`.
    weight_constant : float or "auto", default=1.0
        c of the time score weight: mean squared velocity of the path a feature, divided by
        sigma^2 for the bridge. "auto" estimates it from the samples.
    hidden_layer_sizes : sequence of int, default=(128, 128, 128)
        Widths of the hidden layers.
    activation : {"elu", "relu", "silu", "tanh"}, default="elu"
        Activation of the hidden layers.
    max_iter : int, default=3000
        Number of gradient steps. Log ratios beyond 30 or so need more, see the notes.
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
    TSM : The same path with the objective that needs derivatives of the network by time.
    importance_weights : Weights of training rows under covariate shift.
    mutual_information : Mutual information of two blocks of columns by a density ratio.

    Notes
    -----
    With mu_t and k_t the conditional mean and variance of the path, mu' and k' their
    derivatives by t, and x_t = mu_t + sqrt(k_t) eps, the conditional time score is the sum of

        v_i = k'/(2 k) (eps_i^2 - 1) + mu'_i eps_i / sqrt(k),

    and the vectorised loss the mean over t, ends of the path, noise and features of

        (sqrt(lam) v_i - sqrt(lam) s_i(x_t, t))^2,    lam = 2 k^2 / (k'^2 + 2 c' k),

    with c' = c sigma^2 for the bridge and c' = c for "vp". sqrt(lam) v_i stays bounded where
    v_i does not. The scalar loss is that of sum_i v_i, divided by the number of features.

    * Training takes time O(max_iter batch_size P) for P parameters, whatever the number of
      rows; predictions of n rows take O(n n_quadrature P). Memory is
      O(n_samples n_features + P), plus 50,000 evaluations of the network at a time.
    * The network must extrapolate: rows of the numerator are met at t near 1 but are judged
      at all t. Log ratios beyond 30 or so come out too small in absolute value unless it is
      trained for long: two mixtures in 10 dimensions with a divergence of 81 nats give 30
      to 50 after 3000 steps, and need 20,000 steps with wider layers. Raise `max_iter` until
      :meth:`kl_divergence` of new rows no longer grows.
    * With few rows the opposite happens, divergences come out too large, by 10 to 30 % for
      2000 rows in 10 dimensions; set `early_stopping`.
    * "vp" with a first sample that is not standard normal gives the ratio to N(0, I) all the
      same. Fit warns if moments of that sample say so. Correlations, too, count.
    * The number of quadrature nodes may be changed after fit. `predict_proba` is a proper
      scale for tuning: ``scoring="neg_log_loss"`` in a grid search.

    Departures from the paper, all ours: steps draw pairs from the given rows, independently
    and with replacement, where the paper draws from known densities; the columns are
    standardised; Gauss-Legendre nodes replace an adaptive solver; narrower layers, fewer
    steps and a falling rate for short runs on a CPU; early stopping; predictions are made in
    double precision.

    References
    ----------
    .. [1] Yu, H., Klami, A., Hyvärinen, A., Korba, A. and Chehab, O. "Density Ratio
       Estimation with Conditional Probability Paths." ICML 2025, PMLR 267:73146-73174.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.density_ratio import CTSM
    >>> rng = np.random.RandomState(0)
    >>> denominator, numerator = rng.normal(0, 1, (500, 1)), rng.normal(2, 1, (500, 1))
    >>> X = np.vstack([denominator, numerator])
    >>> y = np.repeat([0, 1], 500)
    >>> ctsm = CTSM(hidden_layer_sizes=(32, 32), max_iter=500, random_state=0).fit(X, y)
    >>> exact = 2 * X[:, 0] - 2
    >>> bool(np.corrcoef(ctsm.log_density_ratio(X), exact)[0, 1] > 0.99)
    True
    """

    _parameter_constraints = {
        **BaseTimeScoreRatio._parameter_constraints,
        "vectorized": ["boolean"],
    }

    def __init__(
        self,
        path="bridge",
        *,
        vectorized=True,
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
        self.vectorized = vectorized
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
        from skicml.density_ratio._ctsm_torch import CTSMNet

        return CTSMNet, n_features if self.vectorized else 1
