"""OPSA for low-rank matrix sensing: a regressor whose coefficients form a low-rank matrix."""

import warnings
from math import ceil, isqrt, sqrt
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.decomposition._factored import (
    effective_rank,
    factored_svd,
    preconditioned_gradients,
    spectral_factors,
    trimmed_mean,
)
from skicml.utils._fitting import all_or_nothing
from skicml.utils._progress import fit_steps

_NORMAL_MAD = 1.4826  # MAD of a normal distribution x this = its standard deviation
_OUTLIER_SCORE = 3.5  # in such standard deviations
_MIN_RELATIVE_MAD = 1e-6  # residuals below this share of |y| are errors of the iteration
_DIVERGED = 1e3  # times the first loss
_BATCH_CELLS = 2**16  # entries of X that are squared at a time
_PATIENCE = 5  # iterations without progress of the loss before the Polyak step is halved


class OPSARegressor(CallbackSupportMixin, RegressorMixin, BaseEstimator):
    """Robust linear regression whose coefficients are a low-rank matrix of unknown rank.

    Each row of X is a measurement matrix A_k of shape (n1, n2), flattened in C order, and
    ``y_k = <A_k, coef> + error``. A share of the targets may be grossly wrong. The
    coefficient matrix is found as ``L @ R.T`` with more columns than its rank, from fewer
    samples than it has entries, by the overparameterized preconditioned subgradient
    algorithm (OPSA) [1]_ on the l1 loss. There is no intercept.

    Parameters
    ----------
    shape : tuple of (int, int) or None, default=None
        Shape (n1, n2) of the coefficient matrix; ``n1 * n2`` must be the number of
        features. None takes the most square factorisation of the number of features.
    n_components : int or None, default=None
        Number of columns of the factors, an upper bound of the rank; 1 to min(n1, n2).
        None means ``min(10, n1, n2)``. Twice the rank costs little.
    outlier_fraction : "auto" or float, default="auto"
        Share of targets that may be grossly wrong, in [0, 1). Too large costs a little
        speed, too small makes the error stall or the fit fail. "auto" counts the targets
        beyond 3.5 robust standard deviations from 0, adds a tenth of that and 0.05, and stops
        at 0.5.
    damping : float, default=0.01
        Damping of the preconditioners relative to the largest singular value of the
        starting point. It is what makes more columns than the rank safe.
    imbalance : float, default=2.0
        Factor by which the left starting factor is too large, and the right one too small.
        With 1.0 the surplus columns fade slower than linearly, and the error stalls.
    step_size : {"polyak", "geometric"}, default="polyak"
        "polyak": step from the gap to the optimal loss. "geometric": step of a length that
        shrinks by `decay` every iteration.
    optimal_loss : "trimmed" or float, default="trimmed"
        What the gap of the Polyak step is. "trimmed": the loss of the targets that fit
        best, all but `outlier_fraction` of them. A float: the l1 loss minus this number, the
        sum of the absolute errors of the targets (0 for clean data).
    decay : float, default=0.99
        Factor of the geometric step, in (0, 1). Only used if ``step_size="geometric"``.
    max_iter : int, default=1000
        Largest number of iterations.
    tol : float, default=1e-7
        Stop when the fitted values change by less than this share of their norm.
    random_state : int, RandomState instance or None, default=None
        For the randomized SVD of the starting point, which only matrices with more than
        200 rows and columns use.
    warm_start : bool, default=False
        Start from the factors of the last fit, unless they are zeros, for data that have
        changed little. Shape and `n_components` must be the same.

    Attributes
    ----------
    coef_ : ndarray of shape (n1, n2)
        The low-rank coefficient matrix, ``left_ @ right_.T``.
    left_ : ndarray of shape (n1, n_components)
        Left factor.
    right_ : ndarray of shape (n2, n_components)
        Right factor.
    rank_ : int
        Number of singular values of `coef_` above 1e-3 of the largest one.
    n_iter_ : int
        Number of iterations.
    loss_curve_ : list of float of length n_iter_
        Trimmed l1 loss (per sample, in units of y) before each iteration's step.
    outlier_fraction_ : float
        The share of outliers that was allowed for.
    outlier_scores_ : ndarray of shape (n_samples,)
        Absolute residual of each training target in robust standard deviations (1.4826
        times the median absolute residual, at least 1e-6 of the median absolute target).
    inlier_mask_ : ndarray of bool of shape (n_samples,)
        True where ``outlier_scores_ <= 3.5``.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are strings.

    See Also
    --------
    OPSA : Low-rank plus sparse decomposition of a table, and completion of its gaps.
    sklearn.linear_model.HuberRegressor : Robust regression without a low-rank structure.

    Notes
    -----
    With the l1 loss ``l(X) = sum_k |<A_k, X> - y_k|``, its subgradient
    ``S = sum_k sign(<A_k, X> - y_k) A_k`` and the damping lam, one iteration is::

        L <- L - eta * S R   (R^T R + lam I)^-1
        R <- R - eta * S^T L (L^T L + lam I)^-1        (both from the old L and R)

    started from the truncated spectral estimate (the targets that are too large are left
    out). The Polyak step is ``eta = (l - l*) / D`` with D the inner products of gradients
    and preconditioned gradients. Work is done on X and y divided by the root mean square of
    X, so that the fit is equivariant to the scale of both.

    Departures from the paper, where the optimal loss l* is known and lam = 2: the gap is
    the loss of the targets that fit best, for at the solution residuals of inliers vanish
    and the signs of the outliers' residuals balance; damping is relative; the share of
    outliers is estimated; the Polyak step is halved whenever the trimmed loss has not
    gone down for 5 iterations, which does not happen on exact data but makes the
    iteration converge on noisy data, where the gap does not vanish. The iterate with the
    smallest trimmed loss is kept. With dense noise, surplus columns fit part of the noise:
    `n_components` then matters, and `rank_` is not the rank of the truth.

    About ``4 * max(n1, n2) * n_components`` samples are needed; with fewer the iteration may
    diverge.

    Time O(n_samples n1 n2 + (n1 + n2) d^2 + d^3) per iteration, bound by reading X twice.
    Memory O(n1 n2 + n_samples) beyond X: an X in C order is not copied. float32 X stays
    float32, while the factors are float64, so that the error ends below 1e-6.

    References
    ----------
    .. [1] Paris Giampouras, HanQin Cai and Rene Vidal, "Guarantees of a Preconditioned
       Subgradient Algorithm for Overparameterized Asymmetric Low-rank Matrix Recovery",
       ICML 2025, :arxiv:`2410.16826`.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.datasets import make_low_rank_sensing
    >>> from skicml.decomposition import OPSARegressor
    >>> X, y, coef, _ = make_low_rank_sensing(
    ...     800, shape=(20, 20), rank=2, outlier_fraction=0.1, random_state=0
    ... )
    >>> regressor = OPSARegressor(n_components=5).fit(X, y)
    >>> regressor.rank_
    2
    >>> bool(np.linalg.norm(regressor.coef_ - coef) < 1e-4 * np.linalg.norm(coef))
    True
    """

    _parameter_constraints: dict = {
        "shape": [tuple, list, None],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "outlier_fraction": [StrOptions({"auto"}), Interval(Real, 0, 1, closed="left")],
        "damping": [Interval(Real, 0, None, closed="neither")],
        "imbalance": [Interval(Real, 0, None, closed="neither")],
        "step_size": [StrOptions({"polyak", "geometric"})],
        "optimal_loss": [StrOptions({"trimmed"}), Interval(Real, 0, None, closed="left")],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
    }

    def __init__(
        self,
        shape=None,
        n_components=None,
        *,
        outlier_fraction="auto",
        damping=0.01,
        imbalance=2.0,
        step_size="polyak",
        optimal_loss="trimmed",
        decay=0.99,
        max_iter=1000,
        tol=1e-7,
        random_state=None,
        warm_start=False,
    ):
        self.shape = shape
        self.n_components = n_components
        self.outlier_fraction = outlier_fraction
        self.damping = damping
        self.imbalance = imbalance
        self.step_size = step_size
        self.optimal_loss = optimal_loss
        self.decay = decay
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.warm_start = warm_start

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Find the low-rank coefficient matrix.

        Parameters
        ----------
        X : array-like of shape (n_samples, n1 * n2)
            Measurement matrices, one a row, flattened in C order.
        y : array-like of shape (n_samples,)
            Measured values.

        Returns
        -------
        self : OPSARegressor
            The fitted regressor.

        Raises
        ------
        ValueError
            If `shape` does not match the number of features, `n_components` exceeds
            min(n1, n2), or a warm start meets other shapes.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", y_numeric=True)
        shape = _matrix_shape(self.shape, X.shape[1])
        n_components = _check_n_components(self.n_components, shape)
        _warn_if_few_samples(len(y), shape, n_components)

        context = self._init_callback_context(max_subtasks=self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        problem = _SensingProblem(X, y, shape, self.outlier_fraction)
        left, right, curve = self._descend(context, problem, *self._start(problem, n_components))
        context.call_on_fit_task_end(estimator=self, X=X, y=y)

        self.left_, self.right_ = left, right
        self.coef_ = left @ right.T
        self.rank_ = effective_rank(factored_svd(left, right)[1])
        self.n_iter_ = len(curve)
        self.loss_curve_ = [loss * problem.scale for loss in curve]
        self.outlier_fraction_ = problem.outlier_fraction
        self.outlier_scores_ = _outlier_scores(problem.fitted(self.coef_) - problem.y, problem.y)
        self.inlier_mask_ = self.outlier_scores_ <= _OUTLIER_SCORE
        return self

    def predict(self, X):
        """Predict the measured values.

        Parameters
        ----------
        X : array-like of shape (n_samples, n1 * n2)
            Measurement matrices, flattened in C order.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            ``X @ coef_.ravel()``.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        return _product(X, self.coef_).astype(X.dtype, copy=False)

    def robust_score(self, X, y):
        """Score that gross errors in y do not spoil: minus the median absolute residual.

        The function itself is a scorer: ``scoring=OPSARegressor.robust_score``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n1 * n2)
            Measurement matrices, flattened in C order.
        y : array-like of shape (n_samples,)
            Measured values, less than half of them grossly wrong.

        Returns
        -------
        score : float
            At most 0, in units of y; larger is better.
        """
        fitted, y = self.predict(X), column_or_1d(y)
        check_consistent_length(fitted, y)
        return -float(np.median(np.abs(fitted - y)))

    def _start(self, problem, n_components):
        """Factors to start from, and the absolute damping."""
        if self.warm_start and hasattr(self, "left_"):
            left, right = self._last_factors(problem.shape, n_components)
            scale = float(factored_svd(left, right)[1][0])
        else:
            scale = 0.0
        if scale == 0:  # nothing to start from: zeros have no subgradient
            left, right, scale = spectral_factors(
                problem.truncated_spectral_matrix(),
                n_components,
                imbalance=self.imbalance,
                random_state=check_random_state(self.random_state),
            )
        return left, right, self.damping * scale

    def _last_factors(self, shape, n_components):
        expected = (shape[0], n_components), (shape[1], n_components)
        if (self.left_.shape, self.right_.shape) != expected:
            raise ValueError(
                "warm_start=True needs the shape and n_components of the last fit: its factors "
                f"have shapes {self.left_.shape} and {self.right_.shape}, now {expected[0]} and "
                f"{expected[1]} are asked for."
            )
        return self.left_, self.right_

    def _descend(self, context, problem, left, right, damping):
        """Iterate; return the factors with the smallest trimmed loss, and the losses."""
        best_left, best_right = left, right
        step_rule = self._step_rule(problem)
        curve, previous = [], None
        steps = fit_steps(
            context,
            self,
            self.max_iter,
            "iteration",
            X=problem.X,
            y=problem.y,
            reconstruction_attributes=lambda: {"coef_": best_left @ best_right.T},
        )
        for _ in steps:
            fitted = problem.fitted(left @ right.T)
            residual = (fitted - problem.y) / problem.scale
            absolute = np.abs(residual)
            trimmed_loss = trimmed_mean(absolute, problem.n_kept)
            curve.append(trimmed_loss)
            if not trimmed_loss <= _DIVERGED * curve[0]:  # also catches NaN
                self._warn("diverged; use more samples or a larger outlier_fraction")
                break
            if trimmed_loss == min(curve):
                best_left, best_right = left, right
            if previous is not None and _unchanged(fitted, previous, self.tol):
                break
            previous = fitted

            subgradient = problem.subgradient(residual)
            direction_left, direction_right, squared_norm = preconditioned_gradients(
                subgradient @ right, subgradient.T @ left, left, right, damping
            )
            step = step_rule(trimmed_loss, absolute.mean(), squared_norm)
            if step == 0:  # an exact fit: nothing to divide by, nothing to do
                break
            left, right = left - step * direction_left, right - step * direction_right
        else:
            if len(curve) == self.max_iter:  # and not stopped by a callback
                self._warn(f"reached max_iter={self.max_iter} before the fit settled to tol")
        return best_left, best_right, curve

    def _warn(self, what):
        warnings.warn(f"OPSARegressor {what}.", ConvergenceWarning, stacklevel=7)

    def _step_rule(self, problem):
        if self.step_size == "geometric":
            return _GeometricStep(self.decay)
        if self.optimal_loss == "trimmed":
            return _PolyakStep(None)
        return _PolyakStep(self.optimal_loss / (problem.scale * len(problem.y)))


class _SensingProblem:
    """Measurements and targets; losses and subgradients are means over the samples.

    Everything is in units in which the entries of X have root mean square 1. The scale is
    divided out of the products, so X is never copied. Products with X are in the dtype of
    X, all else is in float64.
    """

    def __init__(self, X, y, shape, outlier_fraction):
        self.X = X
        self.y = y.astype(np.float64)
        self.shape = shape
        self.scale = _root_mean_square(X) or 1.0
        self.outlier_fraction = (
            _estimated_outlier_fraction(self.y)
            if outlier_fraction == "auto"
            else float(outlier_fraction)
        )
        self.n_kept = ceil((1 - self.outlier_fraction) * len(y))

    def fitted(self, coef):
        """Values <A_k, coef>, in the units of y."""
        return _product(self.X, coef)

    def subgradient(self, residual):
        """Mean of sign(residual_k) A_k, where sign(0) = 0."""
        return self._mean_measurement(np.sign(residual))

    def truncated_spectral_matrix(self):
        """Mean of y_k A_k with the targets that are too large left out."""
        y = self.y / self.scale
        y[np.argsort(np.abs(y), kind="stable")[self.n_kept :]] = 0
        return self._mean_measurement(y)

    def _mean_measurement(self, weights):
        unit = _magnitude(weights)
        total = (weights / unit).astype(self.X.dtype) @ self.X
        mean = total.astype(np.float64).reshape(self.shape) / len(weights)
        return mean / self.scale * unit


def _product(X, coef):
    """``X @ coef.ravel()`` in float64; only the product itself is in the dtype of X."""
    unit = _magnitude(coef)
    return (X @ (coef.ravel() / unit).astype(X.dtype)).astype(np.float64) * unit


def _magnitude(values):
    """Power of two near the largest absolute value; dividing by it is exact.

    It keeps squares, and casts to float32, from overflow and underflow.
    """
    return float(np.ldexp(0.5, np.frexp(max(values.max(), -values.min()))[1]))


def _root_mean_square(X):
    unit, total = _magnitude(X), 0.0
    for rows in gen_batches(len(X), max(1, _BATCH_CELLS // X.shape[1])):
        total += float(np.sum(np.square(X[rows] / unit), dtype=np.float64))
    return sqrt(total / X.size) * unit


class _PolyakStep:
    """Step from the gap to the optimal loss, halved when the trimmed loss stalls.

    Parameters
    ----------
    optimal_loss : float or None
        Optimal mean loss; None takes the trimmed loss for the gap.
    """

    def __init__(self, optimal_loss):
        self.optimal_loss = optimal_loss
        self.share = 1.0
        self.smallest = np.inf
        self.stalled = 0

    def __call__(self, trimmed_loss, loss, squared_norm):
        self._watch(trimmed_loss)
        gap = trimmed_loss if self.optimal_loss is None else loss - self.optimal_loss
        if gap <= 0 or squared_norm <= 0:
            return 0.0
        return self.share * gap / squared_norm

    def _watch(self, trimmed_loss):
        self.stalled += 1
        if trimmed_loss < self.smallest:
            self.smallest, self.stalled = trimmed_loss, 0
        elif self.stalled == _PATIENCE:
            self.share /= 2
            self.smallest, self.stalled = trimmed_loss, 0  # descend anew from here


class _GeometricStep:
    """Step whose length shrinks by a fixed factor; its first one is Polyak's."""

    def __init__(self, decay):
        self.decay = decay
        self.length = None

    def __call__(self, trimmed_loss, loss, squared_norm):
        if squared_norm <= 0:
            return 0.0
        if self.length is None:
            self.length = trimmed_loss / sqrt(squared_norm)
        else:
            self.length *= self.decay
        return self.length / sqrt(squared_norm)


def _matrix_shape(shape, n_features):
    """Shape of the coefficient matrix; None is the most square factorisation."""
    if shape is None:
        rows = next(n for n in range(isqrt(n_features), 0, -1) if n_features % n == 0)
        return rows, n_features // rows
    if len(shape) != 2 or not all(isinstance(n, Integral) and n >= 1 for n in shape):
        raise ValueError(f"shape must be two positive integers (n1, n2) or None, got {shape!r}.")
    rows, columns = (int(n) for n in shape)
    if rows * columns != n_features:
        raise ValueError(
            f"shape={tuple(shape)!r} has {rows * columns} entries, but X has {n_features} features."
        )
    return rows, columns


def _check_n_components(n_components, shape):
    if n_components is None:
        return min(10, *shape)
    if n_components > min(shape):
        raise ValueError(
            f"n_components={n_components} must be at most {min(shape)}, the smaller side of the "
            f"coefficient matrix of shape {shape}."
        )
    return int(n_components)


def _warn_if_few_samples(n_samples, shape, n_components):
    needed = 4 * max(shape) * n_components
    if n_samples < needed:
        warnings.warn(
            f"n_samples={n_samples} is below 4 * max(n1, n2) * n_components = {needed}, what OPSA "
            f"needs for a coefficient matrix of shape {shape}: the fit may be wrong or diverge. "
            "Use more samples or fewer components.",
            UserWarning,
            stacklevel=6,
        )


def _estimated_outlier_fraction(y):
    absolute = np.abs(y)
    threshold = _OUTLIER_SCORE * _NORMAL_MAD * np.median(absolute)
    return float(min(0.5, 1.1 * np.mean(absolute > threshold) + 0.05))


def _unchanged(fitted, previous, tol):
    unit = _magnitude(fitted)
    return np.linalg.norm((fitted - previous) / unit) <= tol * np.linalg.norm(fitted / unit)


def _outlier_scores(residual, y):
    """Absolute residuals in robust standard deviations."""
    absolute = np.abs(residual)
    mad = max(np.median(absolute), _MIN_RELATIVE_MAD * np.median(np.abs(y)))
    return absolute / (_NORMAL_MAD * mad) if mad > 0 else np.where(absolute > 0, np.inf, 0.0)
