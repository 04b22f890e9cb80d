"""KNIFE: a mixture of Gaussians trained by gradient steps."""

from numbers import Integral, Real

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_array, check_random_state, check_scalar, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

# Numbers in the whitened rows of all components that are held at once.
_CHUNK = 2**22
# Squares of larger distances, summed over features, overflow in single precision.
_LARGEST_DISTANCE = 1e16


class KnifeDensity(CallbackSupportMixin, DensityMixin, BaseEstimator):
    """Kernelised density that a neural trainer fits: a Gaussian mixture of bounded scale.

    KNIFE [1]_ fits a mixture of Gaussians with full covariances by stochastic gradient ascent
    of the likelihood. The logarithm of every conditional scale is kept in [-1, 1]: the
    density cannot spike on repeated or discrete points, where the likelihood of
    :class:`sklearn.mixture.GaussianMixture` grows without bound.

    Because of the bound, the columns of X should have a scale of about one.

    Read more in the :ref:`User Guide <lsmi>`.

    Parameters
    ----------
    n_components : int, default=5
        Number of Gaussians.
    learning_rate : float, default=1e-2
        Step size of Adam; a tenth of it in the last third of the epochs.
    batch_size : int, default=256
        Rows a step.
    max_epochs : int, default=60
        Passes over the data.
    init : {"data", "random"}, default="data"
        "data" starts from unit Gaussians at random rows of X. "random" draws means, scales
        and triangles from the standard normal distribution, as the paper does.
    tanh : bool, default=True
        Whether the log scales are bounded by tanh. False may diverge on discrete data.
    random_state : int, RandomState instance or None, default=None
        Determines the start and the order of the batches. Pass an int for reproducible
        results.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the mixture is trained.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
        Weights of the components.
    means_ : ndarray of shape (n_components, n_features)
        Means of the components.
    precisions_cholesky_ : ndarray of shape (n_components, n_features, n_features)
        Upper triangular C_k with precision matrix C_k C_k^T, as in
        :class:`sklearn.mixture.GaussianMixture`.
    net_ : skorch.NeuralNet
        The trained net; ``net_.history`` holds the loss of every epoch.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit, if X has string column names.

    See Also
    --------
    sklearn.mixture.GaussianMixture : Expectation maximisation, without bound on the scale.
    sklearn.neighbors.KernelDensity : One kernel a sample.
    LSMI : Uses one density a view.

    Notes
    -----
    With z_k(x) = (I + strictly_lower(T_k)) diag(exp(tanh(a_k))) (x - mu_k), the density is

        log p(x) = -d/2 log(2 pi) + logsumexp_k [log w_k + sum_j tanh(a_kj) - ||z_k||^2 / 2].

    Fit takes time O(n K d^2) an epoch and memory O(n d + K d^2) for n rows, d features and K
    components; scoring takes time O(n K d^2).

    Departures from the paper: the default start is a row of X with a = T = 0 instead of
    random numbers, and the default steps are larger (Adam with rate 1e-3 and batches of 32 is
    ``init="random", learning_rate=1e-3, batch_size=32, max_epochs=30``). A random triangle is
    badly conditioned in many dimensions, which these short trainings do not recover from. X
    is centred before training, which leaves the density the same and keeps float32 exact.

    References
    ----------
    .. [1] Pichler, G., Colombo, P., Boudiaf, M., Koliander, G. and Piantanida, P.
       "A Differential Entropy Estimator for Training Neural Networks." ICML 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.information import KnifeDensity
    >>> X = np.random.RandomState(0).normal(size=(500, 2))
    >>> density = KnifeDensity(n_components=2, random_state=0).fit(X)
    >>> entropy = np.log(2 * np.pi * np.e)  # of the standard normal in the plane
    >>> bool(abs(-density.score(X) - entropy) < 0.1)
    True
    """

    _parameter_constraints = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "init": [StrOptions({"data", "random"})],
        "tanh": ["boolean"],
        "random_state": ["random_state"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
    }

    def __init__(
        self,
        n_components=5,
        *,
        learning_rate=1e-2,
        batch_size=256,
        max_epochs=60,
        init="data",
        tanh=True,
        random_state=None,
        device="cpu",
    ):
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.init = init
        self.tanh = tanh
        self.random_state = random_state
        self.device = device

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Fit the mixture to X by maximum likelihood.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data; at least `n_components` rows.
        y : None
            Ignored.

        Returns
        -------
        self : KnifeDensity
            The fitted estimator.

        Raises
        ------
        ValueError
            If X has fewer rows than `n_components`, or training diverges, or the values of X
            lie too far apart for single precision.
        """
        from skicml._torch import fit_net

        rows = check_array(X, dtype=[np.float64, np.float32], order="C", estimator=self)
        if len(rows) < self.n_components:
            raise ValueError(
                f"n_samples={len(rows)} should be >= n_components={self.n_components}."
            )
        context = self._init_callback_context(max_subtasks=self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=rows)
        center = rows.mean(axis=0, dtype=np.float64)
        centered = rows - center
        _check_spread(centered)
        centered = centered.astype(np.float32)
        net = fit_net(self._make_net(centered), centered, estimator=self, context=context)
        mixture = net.module_.to_numpy()
        if not all(np.isfinite(array).all() for array in mixture):
            raise ValueError(
                f"Training diverged: lower learning_rate={self.learning_rate} or set tanh=True."
            )

        _check_feature_names(self, X, reset=True)
        _check_n_features(self, rows, reset=True)
        self.net_ = net
        self.weights_, means, whitening = mixture
        self.means_ = means + center
        self.precisions_cholesky_ = np.swapaxes(whitening, 1, 2)
        context.call_on_fit_task_end(estimator=self, X=rows)
        return self

    def score_samples(self, X):
        """Log density of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            log p(x), in nats.
        """
        check_is_fitted(self, "means_")
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        log_density = np.empty(len(X), dtype=X.dtype)
        for rows in gen_batches(len(X), max(1, _CHUNK // self.means_.size)):
            log_density[rows] = self._log_density(X[rows])
        return log_density

    def score(self, X, y=None):
        """Mean log density of the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Mean of log p(x), in nats; minus an upper bound of the differential entropy.
        """
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    def sample(self, n_samples=1, random_state=None):
        """Draw rows from the density.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows.
        random_state : int, RandomState instance or None, default=None
            Determines the draw. Pass an int for reproducible results.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Independent draws, in random order of the components.
        """
        check_is_fitted(self, "means_")
        check_scalar(n_samples, "n_samples", Integral, min_val=1)
        random_state = check_random_state(random_state)
        n_components, n_features = self.means_.shape
        components = random_state.choice(n_components, size=n_samples, p=self.weights_)
        X = random_state.standard_normal((n_samples, n_features))
        for k in range(n_components):
            rows = components == k
            # z = C^T (x - mu), one column a row of X
            whitened = solve_triangular(self.precisions_cholesky_[k].T, X[rows].T, lower=True)
            X[rows] = whitened.T + self.means_[k]
        return X

    def _make_net(self, X):
        """Untrained net of the mixture for the centred rows X."""
        from skorch.callbacks import LRScheduler
        from torch.optim.lr_scheduler import StepLR

        from skicml._torch import draw_seed, resolve_device
        from skicml.information._knife_torch import KnifeMixture, KnifeNet

        random_state = check_random_state(self.random_state)
        means = None
        if self.init == "data":
            means = X[random_state.choice(len(X), self.n_components, replace=False)]
        step = max(1, round(2 * self.max_epochs / 3))
        return KnifeNet(
            KnifeMixture,
            module__n_features=X.shape[1],
            module__n_components=self.n_components,
            module__means=means,
            module__bounded=self.tanh,
            lr=self.learning_rate,
            batch_size=self.batch_size,
            max_epochs=self.max_epochs,
            callbacks=[LRScheduler(StepLR, step_size=step, gamma=0.1)],
            seed=draw_seed(random_state),
            device=resolve_device(self.device),
        )

    def _log_density(self, X):
        latents = (X - self.means_[:, None]) @ self.precisions_cholesky_
        log_det = np.log(np.diagonal(self.precisions_cholesky_, axis1=1, axis2=2)).sum(axis=1)
        log_peak = np.log(self.weights_) + log_det - X.shape[1] / 2 * np.log(2 * np.pi)
        return logsumexp(log_peak[:, None] - np.square(latents).sum(axis=2) / 2, axis=0)


def _check_spread(centered):
    largest = np.abs(centered).max()
    if not largest <= _LARGEST_DISTANCE:
        raise ValueError(
            f"X holds values {largest:.1e} from their mean, but single precision bears at most "
            f"{_LARGEST_DISTANCE:.0e}: scale X first, for instance with StandardScaler."
        )
