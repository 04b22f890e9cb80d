"""OPSA for tables: robust PCA and completion, low rank plus sparse gross errors."""

import warnings
from math import ceil, log, sqrt
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import svd_flip
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.decomposition._factored import (
    effective_rank,
    factored_svd,
    l1_rows,
    preconditioned_gradients,
    spectral_factors,
    trimmed_mean,
)
from skicml.utils._fitting import all_or_nothing
from skicml.utils._progress import fit_steps

_COARSE_TOL = 1e-3  # where the descent stops when sweeps follow; see the Notes of OPSA
_SWEEP_ITERATIONS = 10  # reweightings of each factor in a sweep
_CONTRACTION = 0.5  # a sweep that changes more than this share of what the last one did is undone
_TRANSFORM_ITERATIONS = 20
_RESIDUAL_FLOOR = 1e-6  # of a typical cell: smaller residuals count as this large
_HUGE = 1e8  # typical cells; only the sign of the residual of so large an outlier matters


class OPSA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator):
    """Robust PCA and matrix completion: low rank plus sparse errors, of unknown rank.

    The table is split into a low-rank part and a sparse part of gross errors in single
    cells, of which some may be missing (NaN). The low-rank part is found as ``L @ R.T`` with
    more columns than its rank, by the overparameterized preconditioned subgradient
    algorithm (OPSA) [1]_ on the l1 loss with the nuclear norm in factor form.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of columns of the factors, an upper bound of the rank; 1 to
        min(n_samples, n_features). None means ``min(10, n_samples, n_features)``.
    outlier_fraction : float, default=0.1
        Share of the cells that the starting point takes for outliers, in [0, 1). A rough
        guess will do.
    regularization : "auto" or float, default="auto"
        Weight of the nuclear norm as a multiple of ``sqrt(max(n_samples, n_features) *
        share of observed cells)``. "auto" is 1, the weight of principal component pursuit.
        Smaller leaves less to the sparse part; 0 leaves out the nuclear norm.
    damping : float, default=0.01
        Damping of the preconditioners relative to the largest singular value of the
        starting point. It is what makes more columns than the rank safe.
    step_scale : float, default=1.0
        Length of the first step relative to the one that the loss suggests.
    decay : float, default=0.99
        Factor by which the steps shrink every iteration, in (0, 1). 0.98 is twice as fast
        and does for errors that are spread evenly.
    max_iter : int, default=1500
        Largest number of subgradient iterations.
    max_sweeps : int, default=10
        Largest number of refining sweeps over the two factors. 0 leaves the result of the
        subgradient iteration as it is, which then goes on until `tol`.
    tol : float, default=1e-6
        Stop when a sweep (or without sweeps, an iteration) changes the low-rank part by less
        than this share.
    center : "median" or None, default=None
        "median": take the median of each column out first.
    random_state : int, RandomState instance or None, default=None
        For the randomized SVD of the starting point, which only tables with more than 200
        rows and columns use.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features)
        Principal axes of the low-rank part, orthonormal rows.
    singular_values_ : ndarray of shape (n_components_,)
        Singular values of the low-rank part (without `location_`).
    n_components_ : int
        Effective rank: number of singular values above 1e-3 of the largest one; 1, with
        singular value 0, for a low-rank part of zeros. With dense noise it may be anything
        up to `n_components`.
    low_rank_ : ndarray of shape (n_samples, n_features)
        The low-rank part, ``left_ @ right_.T + location_``.
    sparse_ : ndarray of shape (n_samples, n_features)
        X minus `low_rank_`; 0 where X is missing.
    left_ : ndarray of shape (n_samples, n_components_)
        Left factor.
    right_ : ndarray of shape (n_features, n_components_)
        Right factor.
    location_ : ndarray of shape (n_features,)
        What was taken out of each column first: its median, or 0.
    noise_scale_ : float
        Typical size of the errors of the other cells: the median absolute residual divided
        by log(2), which is the scale of a Laplace distribution.
    n_iter_ : int
        Number of subgradient iterations.
    n_sweeps_ : int
        Number of refining sweeps that were kept.
    loss_curve_ : list of float of length n_iter_
        Objective before each subgradient step, in units of X.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are strings.

    See Also
    --------
    OPSARegressor : The same for linear measurements of a low-rank matrix.
    sklearn.decomposition.PCA : Low rank plus dense noise, without gross errors.

    Notes
    -----
    Over the observed cells of the table M, the objective is ::

        sum |L R^T - M| + t / 2 * (||L||_F^2 + ||R||_F^2)

    which is principal component pursuit [2]_ in factor form, and one iteration is ::

        L <- L - eta * (S R   + t L) (R^T R + lam I)^-1
        R <- R - eta * (S^T L + t R) (L^T L + lam I)^-1        (both from the old L and R)

    with S the signs of the residuals, and steps whose length in the space of the matrix
    shrinks geometrically, from the spectral estimate of the clipped table.

    The paper treats measurements in which each one sees the whole matrix, see
    :class:`OPSARegressor`. Single cells are no such measurements: with more columns than
    the rank, one outlier more can be fitted by one rank more. So the nuclear norm that the
    paper starts from is kept here. This, the step sizes and what follows are ours.

    The geometric iteration comes near the solution reliably but then gains a digit in no
    less than 230 iterations, the weight t shrinks the low-rank part wherever cells are missing
    or noisy, and a single row with many gaps and errors may be left behind. So the iteration
    ends when its steps are 1e-3 of the table, and its effective rank is kept. Sweeps follow
    that fit all rows of R given L, then all rows of L given R, exactly: the same l1 loss, by
    iteratively reweighted least squares, with no more ridge than the noise deserves (b n / s_k
    for column k, with b the scale of the errors and s_k the singular value), but at least 1,
    for else a column that fits one wrong cell would pay, and at most t. On exact data a sweep
    gains about a digit; one that changes more than half of what the last one did is undone,
    and ends the fit. In tables with too little data for the rank (20 x 15, a third missing and a
    tenth wrong) the sweeps may end further from the truth than the descent, which shrinks: there
    ``max_sweeps=0`` is the safer choice.

    Time O(n_samples n_features d) per iteration and O(n_samples n_features r^2) per sweep,
    for d = `n_components` and r = `n_components_`. Memory O(n_samples n_features +
    max(n_samples, n_features) r^2). The iteration computes residuals in float32 unless
    ``max_sweeps=0``; the factors are float64, and so is everything for float64 X in the
    sweeps.

    References
    ----------
    .. [1] Paris Giampouras, HanQin Cai and Rene Vidal, "Guarantees of a Preconditioned
       Subgradient Algorithm for Overparameterized Asymmetric Low-rank Matrix Recovery",
       ICML 2025, :arxiv:`2410.16826`.
    .. [2] Emmanuel Candes, Xiaodong Li, Yi Ma and John Wright, "Robust Principal Component
       Analysis?", Journal of the ACM 58(3), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.datasets import make_corrupted_low_rank
    >>> from skicml.decomposition import OPSA
    >>> X, low_rank, sparse = make_corrupted_low_rank(
    ...     60, 40, rank=2, missing_fraction=0.2, random_state=0
    ... )
    >>> opsa = OPSA(n_components=6).fit(X)
    >>> opsa.n_components_
    2
    >>> bool(np.linalg.norm(opsa.low_rank_ - low_rank) < 1e-4 * np.linalg.norm(low_rank))
    True
    """

    _parameter_constraints: dict = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "outlier_fraction": [Interval(Real, 0, 1, closed="left")],
        "regularization": [StrOptions({"auto"}), Interval(Real, 0, None, closed="left")],
        "damping": [Interval(Real, 0, None, closed="neither")],
        "step_scale": [Interval(Real, 0, None, closed="neither")],
        "decay": [Interval(Real, 0, 1, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "max_sweeps": [Interval(Integral, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "center": [StrOptions({"median"}), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components=None,
        *,
        outlier_fraction=0.1,
        regularization="auto",
        damping=0.01,
        step_scale=1.0,
        decay=0.99,
        max_iter=1500,
        max_sweeps=10,
        tol=1e-6,
        center=None,
        random_state=None,
    ):
        self.n_components = n_components
        self.outlier_fraction = outlier_fraction
        self.regularization = regularization
        self.damping = damping
        self.step_scale = step_scale
        self.decay = decay
        self.max_iter = max_iter
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.center = center
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Split the table into a low-rank and a sparse part.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The table; NaN where a cell is missing.
        y : Ignored
            Not used, present for consistency.

        Returns
        -------
        self : OPSA
            The fitted decomposition.

        Raises
        ------
        ValueError
            If a row or a column has no observed cell, or `n_components` exceeds
            min(n_samples, n_features).
        """
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        _check_observed(X, axis=1, name="row")
        _check_observed(X, axis=0, name="column")
        n_components = _check_n_components(self.n_components, X.shape)

        context = self._init_callback_context(max_subtasks=self.max_iter + self.max_sweeps)
        context.call_on_fit_task_begin(estimator=self, X=X)
        location = _location(X, self.center)
        table = _Table(X - location, self.outlier_fraction)
        multiple = 1.0 if self.regularization == "auto" else self.regularization
        weight = multiple * sqrt(max(X.shape) * table.fraction)
        left, right, curve = self._descend(context, table, weight, n_components)
        left, right, noise, n_sweeps = self._refine(context, table, weight, left, right)
        context.call_on_fit_task_end(estimator=self, X=X)

        U, s, Vt = _truncated_svd(left, right)
        root = np.sqrt(s * table.scale)
        self.components_ = Vt.astype(X.dtype)
        self.singular_values_ = (s * table.scale).astype(X.dtype)
        self.n_components_ = len(s)
        self.left_, self.right_ = U * root, Vt.T * root
        self.location_ = location
        self.low_rank_ = (self.left_ @ self.right_.T).astype(X.dtype) + location
        self.sparse_ = np.where(np.isnan(X), 0, X - self.low_rank_)
        self.noise_scale_ = noise * table.scale
        self.n_iter_ = len(curve)
        self.n_sweeps_ = n_sweeps
        self.loss_curve_ = [loss * table.scale for loss in curve]
        # What transform needs beside the components; the ridge is in units of the scale.
        self._score_ridge = _ridge(weight, noise, len(X), s) / np.maximum(s, 1e-100)
        self._scale = table.scale
        return self

    def transform(self, X):
        """Scores of each row, by robust (l1) regression on the components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Table; NaN where a cell is missing. Gross errors in less than half of the cells
            of a row do not spoil its scores.

        Returns
        -------
        T : ndarray of shape (n_samples, n_components_)
            The scores.

        Raises
        ------
        ValueError
            If a row has no observed cell.
        """
        check_is_fitted(self)
        return self._scores(self._validate_table(X))

    def inverse_transform(self, X):
        """Low-rank rows from scores.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Scores.

        Returns
        -------
        X_original : ndarray of shape (n_samples, n_features)
            ``X @ components_ + location_``.
        """
        check_is_fitted(self)
        X = check_array(X, dtype=[np.float64, np.float32])
        if X.shape[1] != self.n_components_:
            raise ValueError(
                f"X must have {self.n_components_} columns, one a component, got {X.shape[1]}."
            )
        return self._low_rank_rows(X)

    def impute(self, X):
        """Fill the missing cells of a table.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Table; NaN where a cell is missing.

        Returns
        -------
        X_filled : ndarray of shape (n_samples, n_features)
            X with its missing cells replaced by those of the low-rank reconstruction.
        """
        check_is_fitted(self)
        X = self._validate_table(X)
        return np.where(np.isnan(X), self._low_rank_rows(self._scores(X)), X)

    def score(self, X, y=None):
        """Score that gross errors do not spoil: minus the median absolute residual.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Table; NaN where a cell is missing.
        y : Ignored
            Not used, present for consistency.

        Returns
        -------
        score : float
            Over the observed cells, at most 0, in units of X; larger is better.
        """
        check_is_fitted(self)
        X = self._validate_table(X)
        return -float(np.nanmedian(np.abs(X - self._low_rank_rows(self._scores(X)))))

    @property
    def _n_features_out(self):
        return self.components_.shape[0]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validate_table(self, X):
        X = validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            reset=False,
        )
        _check_observed(X, axis=1, name="row")
        return X

    def _scores(self, X):
        """Scores of the rows of a validated table."""
        table = X - self.location_
        missing = np.isnan(table)
        scores = l1_rows(
            _scaled(np.where(missing, 0, table), self._scale),
            ~missing if missing.any() else None,
            np.zeros((len(X), self.n_components_)),
            self.components_.T.astype(np.float64),
            self._score_ridge,
            n_iter=_TRANSFORM_ITERATIONS,
            floor=_RESIDUAL_FLOOR,
        )
        return (scores * self._scale).astype(X.dtype)

    def _low_rank_rows(self, scores):
        return scores @ self.components_ + self.location_

    def _descend(self, context, table, weight, n_components):
        """Subgradient iteration; return the factors and the objective before each step."""
        left, right, scale = spectral_factors(
            table.clipped() / table.fraction,
            n_components,
            imbalance=1.0,
            random_state=check_random_state(self.random_state),
        )
        damping = self.damping * scale
        tol = self.tol if self.max_sweeps == 0 else max(self.tol, _COARSE_TOL)
        shortest = tol * sqrt(table.values.size)  # a typical cell is 1
        values = table.values if self.max_sweeps == 0 else table.values.astype(np.float32)
        curve, length = [], None
        for _ in fit_steps(context, self, self.max_iter, "iteration"):
            residual = table.residual(values, left, right)
            signs = np.sign(residual)
            penalty = weight / 2 * (np.vdot(left, left) + np.vdot(right, right))
            curve.append(float(np.vdot(signs, residual) + penalty))

            direction_left, direction_right, squared_norm = preconditioned_gradients(
                signs @ right.astype(values.dtype) + weight * left,
                signs.T @ left.astype(values.dtype) + weight * right,
                left,
                right,
                damping,
            )
            if squared_norm <= 0:  # an exact fit of zeros
                break
            if length is None:
                length = self.step_scale * table.trimmed_loss(residual) / sqrt(squared_norm)
            step = length / sqrt(squared_norm)
            left, right = left - step * direction_left, right - step * direction_right
            if length <= shortest:
                break
            length *= self.decay
        else:
            self._warn_if_exhausted(len(curve))
        return left, right, curve

    def _warn_if_exhausted(self, n_iter):
        if n_iter == self.max_iter:  # and not stopped by a callback
            warnings.warn(
                f"OPSA stopped at max_iter={self.max_iter} before its steps were short. Increase "
                "max_iter, or decrease decay.",
                ConvergenceWarning,
                stacklevel=7,
            )

    def _refine(self, context, table, weight, left, right):
        """Sweeps of exact l1 fits; return the factors, the noise scale, and the number."""
        noise = table.noise_scale(left, right)
        product, last_change, n_sweeps = left @ right.T, np.inf, 0
        for _ in fit_steps(context, self, self.max_sweeps, "sweep"):
            swept_left, swept_right = self._sweep(table, weight, noise, left, right)
            swept = swept_left @ swept_right.T
            change = np.linalg.norm(swept - product)
            if change > _CONTRACTION * last_change:
                break
            left, right, product, last_change = swept_left, swept_right, swept, change
            n_sweeps += 1
            if change <= self.tol * np.linalg.norm(product):
                break
        return left, right, table.noise_scale(left, right), n_sweeps

    def _sweep(self, table, weight, noise, left, right):
        """Fit R given L, then L given R."""
        U, s, Vt = _truncated_svd(left, right)
        left, right = U * np.sqrt(s), Vt.T * np.sqrt(s)
        n, p = table.values.shape
        options = {"n_iter": _SWEEP_ITERATIONS, "floor": _RESIDUAL_FLOOR}
        observed = table.observed
        right = l1_rows(
            table.values.T,
            None if observed is None else observed.T,
            right,
            left,
            _ridge(weight, noise, p, s),
            **options,
        )
        left = l1_rows(table.values, observed, left, right, _ridge(weight, noise, n, s), **options)
        return left, right


class _Table:
    """The observed cells, scaled so that a typical one is 1; the others are 0.

    Attributes
    ----------
    values : ndarray of shape (n, p)
        Scaled cells.
    observed : ndarray of bool of shape (n, p) or None
        None if every cell is.
    fraction : float
        Share of observed cells.
    scale : float
        What the cells were divided by: the mean absolute cell after clipping.
    limit : float
        Quantile ``1 - outlier_fraction`` of the absolute scaled cells.
    n_kept : int
        Number of observed cells that are not taken for outliers.
    """

    def __init__(self, X, outlier_fraction):
        observed = ~np.isnan(X)
        absolute = np.abs(X[observed])
        limit = np.quantile(absolute, 1 - outlier_fraction)
        self.scale = float(np.minimum(absolute, limit).mean(dtype=np.float64)) or 1.0
        self.limit = float(limit) / self.scale
        self.values = _scaled(np.where(observed, X, 0), self.scale)
        self.fraction = absolute.size / X.size
        self.observed = None if self.fraction == 1 else observed
        self.n_kept = ceil((1 - outlier_fraction) * absolute.size)

    def clipped(self):
        """The values without those beyond the limit."""
        return np.clip(self.values, -self.limit, self.limit)

    def residual(self, values, left, right):
        """``left @ right.T - values`` in the dtype of values, 0 where not observed."""
        residual = left.astype(values.dtype) @ right.T.astype(values.dtype)
        residual -= values
        if self.observed is not None:
            residual *= self.observed
        return residual

    def noise_scale(self, left, right):
        """Scale of a Laplace distribution with the median of the absolute residuals."""
        absolute = np.abs(self.residual(self.values, left, right))
        seen = absolute if self.observed is None else absolute[self.observed]
        return float(np.median(seen)) / log(2)

    def trimmed_loss(self, residual):
        """Sum of the smallest absolute residuals, all but the share of outliers."""
        absolute = np.abs(residual if self.observed is None else residual[self.observed]).ravel()
        return trimmed_mean(absolute, self.n_kept) * absolute.size


def _scaled(table, scale):
    """Cells in units of the scale, outliers cut where their size no longer matters."""
    with np.errstate(over="ignore"):
        return np.clip(table / scale, -_HUGE, _HUGE)


def _check_n_components(n_components, shape):
    if n_components is None:
        return min(10, *shape)
    if n_components > min(shape):
        raise ValueError(
            f"n_components={n_components} must be at most min(n_samples, n_features)={min(shape)}."
        )
    return int(n_components)


def _check_observed(X, axis, name):
    empty = np.isnan(X).all(axis=axis)
    if empty.any():
        raise ValueError(
            f"{name.capitalize()} {int(np.flatnonzero(empty)[0])} of X has no observed cell: all "
            "its values are NaN."
        )


def _location(X, center):
    if center is None:
        return np.zeros(X.shape[1], dtype=X.dtype)
    return np.nanmedian(X, axis=0)


def _truncated_svd(left, right):
    """SVD of ``left @ right.T``, cut to its effective rank, at least 1."""
    U, s, Vt = factored_svd(left, right)
    rank = max(1, effective_rank(s))
    U, Vt = svd_flip(U[:, :rank], Vt[:rank], u_based_decision=False)
    return U, s[:rank], Vt


def _ridge(weight, noise, length, singular_values):
    """Ridge of the columns of a factor with `length` rows; at least 1, at most the weight.

    Residuals with the Laplace scale `noise`, and rows whose variance in column k is
    ``s_k / length``, make the posterior of a row an l1 loss plus the ridge ``noise * length /
    s_k``. With a ridge below 1 a column would pay that fits a single wrong cell: a cell of size
    a lowers the loss by a, and costs ``ridge / 2 * (l^2 + r^2) = ridge * a`` for l r = a.
    """
    deserved = noise * length / np.maximum(singular_values, 1e-100)
    return np.clip(deserved, min(1.0, weight), weight)
