"""OPSARegressor: closed forms, the paper's claims at small scale, and misuse."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from skicml.datasets import make_low_rank_sensing
from skicml.decomposition import OPSARegressor
from skicml.decomposition._factored import (
    effective_rank,
    factored_svd,
    preconditioned_gradients,
    spectral_factors,
    trimmed_mean,
)

KAPPAS = (1, 20, 100)
SEEDS = (0, 1, 2)


def relative_error(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


class ErrorCurve:
    """Callback that records the relative error of the best iterate so far."""

    def __init__(self, coef):
        self.coef = coef
        self.errors = []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if fitted_estimator is not None:
            self.errors.append(relative_error(fitted_estimator.coef_, self.coef))

    def teardown(self, estimator, context):
        pass


def error_curve(X, y, coef, **params):
    """Relative errors of the iterates, for `max_iter` iterations unless it ends by itself."""
    curve = ErrorCurve(coef)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        OPSARegressor(**params).set_callbacks(curve).fit(X, y)
    return np.array(curve.errors)


def first_below(errors, level):
    below = np.flatnonzero(errors <= level)
    return below[0] if below.size else np.inf


def plain_subgradient(X, y, coef, n_components, outlier_fraction, max_iter):
    """Same start and same Polyak gap as OPSA, but no preconditioner: relative errors."""
    m, shape = len(y), coef.shape
    n_kept = int(np.ceil((1 - outlier_fraction) * m))
    clipped = y.copy()
    clipped[np.argsort(np.abs(y))[n_kept:]] = 0
    left, right, _ = spectral_factors(
        (clipped @ X).reshape(shape) / m, n_components, imbalance=2.0, random_state=None
    )
    errors = []
    for _ in range(max_iter):
        errors.append(relative_error(left @ right.T, coef))
        residual = X @ (left @ right.T).ravel() - y
        S = (np.sign(residual) @ X).reshape(shape) / m
        grad_left, grad_right = S @ right, S.T @ left
        step = trimmed_mean(np.abs(residual), n_kept) / (
            np.sum(grad_left**2) + np.sum(grad_right**2)
        )
        left, right = left - step * grad_left, right - step * grad_right
    return np.array(errors)


@pytest.fixture(scope="module")
def data():
    """(X, y, coef, outliers) of experiment E1 for a condition number and a seed."""
    return lambda kappa, seed, **other: make_low_rank_sensing(
        **{"n_samples": 1280, "condition_number": kappa, "random_state": seed, **other}
    )


@pytest.fixture(scope="module")
def small():
    return make_low_rank_sensing(700, shape=(20, 15), rank=2, random_state=0)


# ---- Arithmetic in factor form ---------------------------------------------------------------


def test_factored_svd_is_that_of_the_product():
    rng = np.random.RandomState(0)
    left, right = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    U, s, Vt = factored_svd(left, right)
    np.testing.assert_allclose(s, np.linalg.svd(left @ right.T, compute_uv=False)[:4], rtol=1e-10)
    np.testing.assert_allclose((U * s) @ Vt, left @ right.T, atol=1e-12)
    np.testing.assert_allclose(U.T @ U, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(Vt @ Vt.T, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("size", [30, 300])  # exact and randomized SVD
def test_spectral_factors_of_a_low_rank_matrix(size):
    rng = np.random.RandomState(0)
    matrix = rng.standard_normal((size, 3)) @ rng.standard_normal((3, size + 5))
    left, right, scale = spectral_factors(matrix, 4, imbalance=2.0, random_state=rng)
    assert left.shape == (size, 4)
    np.testing.assert_allclose(left @ right.T, matrix, atol=1e-8 * scale)
    assert scale == pytest.approx(np.linalg.norm(matrix, 2))
    np.testing.assert_allclose(  # left is 2 U sqrt(s), right is V sqrt(s) / 2
        np.linalg.norm(left[:, :3], axis=0), 4 * np.linalg.norm(right[:, :3], axis=0)
    )


def test_preconditioned_gradients_follow_the_formula():
    rng = np.random.RandomState(0)
    S = rng.standard_normal((6, 5))
    left, right = rng.standard_normal((6, 3)), rng.standard_normal((5, 3))
    P_R = np.linalg.inv(right.T @ right + 0.3 * np.eye(3))
    P_L = np.linalg.inv(left.T @ left + 0.3 * np.eye(3))
    d_left, d_right, squared = preconditioned_gradients(S @ right, S.T @ left, left, right, 0.3)
    np.testing.assert_allclose(d_left, S @ right @ P_R)
    np.testing.assert_allclose(d_right, S.T @ left @ P_L)
    assert squared == pytest.approx(
        np.trace(right.T @ S.T @ S @ right @ P_R) + np.trace(left.T @ S @ S.T @ left @ P_L)
    )


def test_trimmed_mean_and_rank():
    values = np.array([5.0, 1.0, 3.0, 100.0])
    assert trimmed_mean(values, 3) == pytest.approx(9 / 4)
    assert trimmed_mean(values, 4) == pytest.approx(109 / 4)
    assert effective_rank(np.array([10.0, 0.02, 0.009])) == 2
    assert effective_rank(np.zeros(3)) == 0


# ---- Properties ------------------------------------------------------------------------------


def test_both_factors_move_from_the_old_factors(small):
    """Trap: with the new L in the update of R, the second loss would be another one."""
    X, y, coef, _ = small
    with pytest.warns(ConvergenceWarning):
        regressor = OPSARegressor(coef.shape, 4, outlier_fraction=0.2, max_iter=2).fit(X, y)

    tau, m, n_kept = np.sqrt(np.mean(X**2)), len(y), int(np.ceil(0.8 * len(y)))
    A, b = X / tau, y / tau
    kept = np.argsort(np.abs(b))[:n_kept]
    U, s, Vt = np.linalg.svd((b[kept] @ A[kept]).reshape(coef.shape) / m)
    left, right = 2 * U[:, :4] * np.sqrt(s[:4]), Vt[:4].T * np.sqrt(s[:4]) / 2
    residual = A @ (left @ right.T).ravel() - b
    S = (np.sign(residual) @ A).reshape(coef.shape) / m
    P_R = np.linalg.inv(right.T @ right + 0.01 * s[0] * np.eye(4))
    P_L = np.linalg.inv(left.T @ left + 0.01 * s[0] * np.eye(4))
    gap = np.sort(np.abs(residual))[:n_kept].sum() / m
    step = gap / (np.vdot(S @ right, S @ right @ P_R) + np.vdot(S.T @ left, S.T @ left @ P_L))
    new_left, new_right = left - step * S @ right @ P_R, right - step * S.T @ left @ P_L
    losses = [
        tau * np.sort(np.abs(A @ (L @ R.T).ravel() - b))[:n_kept].sum() / m
        for L, R in ((left, right), (new_left, new_right))
    ]
    np.testing.assert_allclose(regressor.loss_curve_, losses, rtol=1e-8)


def test_equivariant_to_the_scale_of_y_and_of_X(small):
    """Trap: an absolute damping fits one scale of the data only."""
    X, y, coef, _ = small
    fit = OPSARegressor(coef.shape, 4).fit
    base = fit(X, y).coef_
    assert relative_error(base, coef) < 1e-6
    assert relative_error(fit(X, 1000 * y).coef_, 1000 * base) < 1e-6
    assert relative_error(fit(1000 * X, y).coef_, base / 1000) < 1e-6


@pytest.mark.parametrize(
    ("dtype", "scale_X", "scale_y"),
    [
        ("float64", 1, 1e-300),
        ("float64", 1, 1e300),
        ("float64", 1e-300, 1),
        ("float64", 1e300, 1),
        ("float32", 1e-25, 1),
        ("float32", 1e20, 1),
        ("float32", 1, 1e-200),
        ("float32", 1, 1e40),
    ],
)
def test_units_may_be_near_the_limits_of_the_type(small, dtype, scale_X, scale_y):
    """Squares of X, of y, and float32 coefficients would overflow or vanish."""
    X, y, coef, _ = small
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regressor = OPSARegressor(coef.shape, 4).fit((scale_X * X).astype(dtype), scale_y * y)
    assert relative_error(regressor.coef_ / scale_y * scale_X, coef) < 1e-6


def test_rows_are_matrices_flattened_in_c_order():
    X, y, coef, _ = make_low_rank_sensing(900, shape=(12, 25), rank=2, random_state=1)
    regressor = OPSARegressor(shape=(12, 25), n_components=4).fit(X, y)
    assert regressor.coef_.shape == (12, 25)
    assert regressor.left_.shape == (12, 4)
    assert regressor.right_.shape == (25, 4)
    assert relative_error(regressor.coef_, coef) < 1e-6
    np.testing.assert_allclose(regressor.coef_, regressor.left_ @ regressor.right_.T)
    np.testing.assert_allclose(
        regressor.predict(X), np.einsum("kij,ij->k", X.reshape(-1, 12, 25), regressor.coef_)
    )


@pytest.mark.parametrize(
    ("n_features", "shape"), [(1600, (40, 40)), (12, (3, 4)), (7, (1, 7)), (1, (1, 1))]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_default_shape_is_the_most_square_one(n_features, shape):
    rng = np.random.RandomState(0)
    X, y = rng.standard_normal((20, n_features)), rng.standard_normal(20)
    assert OPSARegressor(max_iter=2).fit(X, y).coef_.shape == shape


def test_one_feature_is_the_weighted_median_of_the_slopes():
    # sum |x_k c - y_k| is least at the median of y_k / x_k with the weights |x_k|
    rng = np.random.RandomState(0)
    X = rng.uniform(1, 2, (101, 1))
    y = 3 * X[:, 0] + 0.1 * rng.standard_normal(101)
    slopes, weights = y / X[:, 0], X[:, 0]
    order = np.argsort(slopes)
    median = slopes[order][np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)]
    regressor = OPSARegressor(outlier_fraction=0.0, max_iter=2000).fit(X, y)
    assert regressor.coef_[0, 0] == pytest.approx(median, abs=1e-6)


def test_automatic_outlier_fraction_follows_its_formula(small):
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 2).fit(X, y)
    large = np.mean(np.abs(y) > 3.5 * 1.4826 * np.median(np.abs(y)))
    assert regressor.outlier_fraction_ == pytest.approx(1.1 * large + 0.05)
    half_wrong = np.where(np.arange(len(y)) % 2 == 0, 1e6 * y, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert OPSARegressor(coef.shape, 2, max_iter=2).fit(X, half_wrong).outlier_fraction_ <= 0.5


def test_outliers_are_told_apart_and_exact_fits_flag_nothing_else(small):
    X, y, coef, outliers = small
    regressor = OPSARegressor(coef.shape, 4).fit(X, y)
    largest_inlier = np.abs(X @ coef.ravel()).max()
    gross = outliers & (np.abs(y - X @ coef.ravel()) > 1e-3 * largest_inlier)
    np.testing.assert_array_equal(regressor.inlier_mask_, ~gross)
    assert regressor.outlier_scores_[gross].min() > 3.5
    assert regressor.rank_ == 2


@pytest.mark.parametrize("target", ["zeros", "start"])
def test_an_exact_fit_divides_by_nothing(small, target):
    """Trap: sign(0) = 0, and at an exact fit the step would be 0 / 0."""
    X, y, coef, _ = small
    if target == "zeros":
        with np.errstate(all="raise"):
            regressor = OPSARegressor(coef.shape, 3).fit(X, np.zeros(len(y)))
        np.testing.assert_array_equal(regressor.coef_, 0)
        assert regressor.rank_ == 0
        assert regressor.inlier_mask_.all()
    else:  # orthonormal measurements of everything: the spectral start is the solution
        X = np.eye(coef.size)
        with np.errstate(all="raise"):
            regressor = OPSARegressor(coef.shape, 2, outlier_fraction=0.0).fit(X, coef.ravel())
        np.testing.assert_allclose(regressor.coef_, coef, atol=1e-12)
    assert regressor.n_iter_ <= 3
    assert np.isfinite(regressor.loss_curve_).all()


def test_float32_keeps_its_type_and_its_factors_are_float64(small):
    """Trap: float32 factors stall near 1e-6 or above."""
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4, max_iter=2000).fit(X.astype(np.float32), y)
    assert regressor.left_.dtype == regressor.coef_.dtype == np.float64
    assert regressor.predict(X.astype(np.float32)).dtype == np.float32
    assert regressor.predict(X).dtype == np.float64
    assert relative_error(regressor.coef_, coef) < 2e-6


def test_X_is_not_copied():
    X, y, coef, _ = make_low_rank_sensing(
        2000, shape=(40, 40), rank=2, dtype=np.float32, random_state=0
    )
    original = X.copy()
    regressor = OPSARegressor(coef.shape, 4, max_iter=5)
    tracemalloc.start()
    with pytest.warns(ConvergenceWarning):
        regressor.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 4
    np.testing.assert_array_equal(X, original)


# ---- The paper's claims ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def curves(data):
    """E1: relative errors for every condition number and seed, d = 2 r, all else default."""
    found = {}
    for kappa in KAPPAS:
        for seed in SEEDS:
            X, y, coef, _ = data(kappa, seed)
            found[kappa, seed] = error_curve(X, y, coef, n_components=8, tol=1e-8, max_iter=900)
    return found


def test_recovers_with_twice_the_rank_whatever_the_condition_number(curves):
    """E1, and the trap of balanced factors, which look fine at d = r only."""
    iterations = {key: first_below(errors, 1e-6) for key, errors in curves.items()}
    assert max(iterations.values()) <= 900
    mean = {kappa: np.mean([iterations[kappa, seed] for seed in SEEDS]) for kappa in KAPPAS}
    assert mean[100] <= 1.3 * mean[1]


def test_convergence_is_linear(curves):
    """E3: log error against iteration is a straight line."""
    for errors in curves.values():
        stop = min(500, len(errors))
        iteration = np.arange(100, stop)
        correlation = np.corrcoef(iteration, np.log10(errors[100:stop]))[0, 1]
        assert correlation**2 >= 0.99
        assert correlation < 0


@pytest.mark.parametrize("kappa", KAPPAS)
def test_recovers_faster_with_the_true_rank(data, kappa):
    for seed in SEEDS:
        X, y, coef, _ = data(kappa, seed)
        errors = error_curve(X, y, coef, n_components=4, max_iter=250)
        assert first_below(errors, 1e-6) <= 200


def test_default_stopping_rule_stops_at_the_solution(data):
    X, y, coef, _ = data(20, 0)
    regressor = OPSARegressor(n_components=8).fit(X, y)  # no ConvergenceWarning either
    assert regressor.n_iter_ < 900
    assert relative_error(regressor.coef_, coef) <= 1e-6
    assert regressor.rank_ == 4
    assert len(regressor.loss_curve_) == regressor.n_iter_


def test_preconditioner_and_imbalance_are_what_does_it(data, curves):
    """E2: the plain subgradient method crawls, balanced factors stall (trap)."""
    X, y, coef, _ = data(20, 0)
    plain = plain_subgradient(X, y, coef, 8, outlier_fraction=0.15, max_iter=600)
    assert plain[-1] > 1e-2
    assert curves[20, 0][:600][-1] < 1e-3 * plain[-1]

    balanced = error_curve(X, y, coef, n_components=8, imbalance=1.0, tol=0.0, max_iter=900)
    assert 1e-5 < balanced[-1] < 1e-3
    assert balanced[-1] >= 100 * curves[20, 0][-1]


@pytest.mark.parametrize(
    ("p", "m", "fraction"),
    [
        (0.1, 1920, 0.1),
        (0.1, 1920, 0.2),
        (0.1, 1920, 0.35),
        (0.0, 1920, "auto"),
        (0.1, 1920, "auto"),
        (0.3, 3200, "auto"),
    ],
)
def test_outlier_fraction_may_be_over_estimated_or_estimated(data, p, m, fraction):
    """E4, with outliers and their share unknown to the defaults (trap)."""
    X, y, coef, _ = data(20, 1, n_samples=m, outlier_fraction=p)
    errors = error_curve(X, y, coef, n_components=8, outlier_fraction=fraction, max_iter=400)
    assert errors[-1] <= 1e-3


def test_the_start_must_leave_out_large_targets(data):
    """Trap: outliers of ten times the largest value dominate an untruncated start."""
    X, y, coef, _ = data(20, 0)
    untruncated = error_curve(X, y, coef, n_components=8, outlier_fraction=0.0, max_iter=300)
    truncated = error_curve(X, y, coef, n_components=8, max_iter=300)
    assert untruncated[0] > 5 * truncated[0]
    assert untruncated[-1] > 20 * truncated[-1]


def test_least_squares_is_lost(data):
    """E5: fewer samples than coefficients, and outliers."""
    for seed in SEEDS:
        X, y, coef, _ = data(20, seed)
        for alpha in (1e-10, 1.0, 1e3):  # the first is the least-squares solution
            ridge = Ridge(alpha, fit_intercept=False).fit(X, y)
            assert relative_error(ridge.coef_.reshape(40, 40), coef) > 0.5


def test_dense_noise_ends_in_a_fit_at_its_level(data):
    """The step shrinks by itself, so that the iteration ends before max_iter."""
    X, y, coef, _ = data(20, 0, noise=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        regressor = OPSARegressor(n_components=4).fit(X, y)
    assert relative_error(regressor.coef_, coef) < 0.02


# ---- Options ---------------------------------------------------------------------------------


def test_polyak_step_with_a_known_optimal_loss(small):
    X, y, coef, _ = small
    optimal = np.abs(y - X @ coef.ravel()).sum()
    regressor = OPSARegressor(coef.shape, 4, optimal_loss=optimal).fit(X, y)
    assert relative_error(regressor.coef_, coef) < 1e-6

    clean = X @ coef.ravel()
    regressor = OPSARegressor(coef.shape, 4, optimal_loss=0.0, outlier_fraction=0.0).fit(X, clean)
    assert relative_error(regressor.coef_, coef) < 1e-6


def test_geometric_step(small):
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4, step_size="geometric", decay=0.97).fit(X, y)
    assert relative_error(regressor.coef_, coef) < 1e-5


def test_warm_start_goes_on(small):
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4, max_iter=15, warm_start=True)
    with pytest.warns(ConvergenceWarning):
        regressor.fit(X, y)
    first = relative_error(regressor.coef_, coef)
    regressor.set_params(max_iter=1000).fit(X, y)
    assert relative_error(regressor.coef_, coef) < min(first, 1e-6)
    cold = clone(regressor).fit(X, y)
    assert regressor.n_iter_ < cold.n_iter_
    assert regressor.loss_curve_[0] < 0.1 * cold.loss_curve_[0]

    again = regressor.fit(X, y)
    assert again.n_iter_ < 100
    with pytest.raises(ValueError, match="warm_start"):
        regressor.set_params(n_components=3).fit(X, y)


def test_warm_start_from_zeros_is_a_cold_start(small):
    """Zeros have no subgradient: the iteration would never leave them."""
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4, warm_start=True).fit(X, np.zeros(len(y)))
    np.testing.assert_array_equal(regressor.left_, 0)
    assert relative_error(regressor.fit(X, y).coef_, coef) < 1e-6


def test_an_interrupted_fit_leaves_the_last_one_as_it_was(small):
    class Interrupt(ErrorCurve):
        def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
            raise KeyboardInterrupt

    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4).fit(X, y)
    before = dict(vars(regressor))
    with pytest.raises(KeyboardInterrupt):
        regressor.set_callbacks(Interrupt(coef)).fit(X, 2 * y)
    for name in ("coef_", "left_", "right_", "loss_curve_", "outlier_scores_", "inlier_mask_"):
        assert getattr(regressor, name) is before[name]


def test_robust_score_is_a_scorer_that_outliers_do_not_spoil(small):
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape, 4).fit(X, y)
    assert -1e-5 < regressor.robust_score(X, y) <= 0
    assert regressor.robust_score(X, y) == -np.median(np.abs(y - regressor.predict(X)))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor.robust_score(X, y[:-1])

    search = GridSearchCV(
        OPSARegressor(coef.shape),
        {"n_components": [1, 2, 4]},
        scoring=OPSARegressor.robust_score,
        cv=KFold(3),
    ).fit(X, y)
    assert search.best_params_["n_components"] in (2, 4)
    assert relative_error(search.best_estimator_.coef_, coef) < 1e-6
    assert search.cv_results_["mean_test_score"][0] < -0.1


@pytest.mark.filterwarnings("ignore:n_samples=700 is below")
def test_in_a_pipeline(small):
    X, _, coef, _ = small
    pipeline = make_pipeline(MaxAbsScaler(), OPSARegressor(coef.shape, 15, outlier_fraction=0.2))
    clean = X @ coef.ravel()
    fitted = pipeline.fit(X, clean)
    assert fitted.score(X, clean) > 0.999


def test_same_seed_same_fit_and_pickle(small):
    X, y, coef, _ = small
    first, second = (OPSARegressor(coef.shape, 3, random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(first.coef_, second.coef_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict(X), first.predict(X))


# ---- Misuse ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"shape": (20, 14)}, r"shape=\(20, 14\) has 280 entries, but X has 300 features"),
        ({"shape": (300,)}, "shape must be two positive integers"),
        ({"shape": (-20, -15)}, "shape must be two positive integers"),
        ({"shape": (20.0, 15.0)}, "shape must be two positive integers"),
        ({"shape": (20, 15), "n_components": 16}, "n_components=16 must be at most 15"),
        ({"damping": 0.0}, "'damping' parameter"),
        ({"step_size": "armijo"}, "'step_size' parameter"),
        ({"optimal_loss": -1.0}, "'optimal_loss' parameter"),
        ({"outlier_fraction": 1.0}, "'outlier_fraction' parameter"),
        ({"decay": 1.0}, "'decay' parameter"),
    ],
)
def test_bad_parameters(small, params, message):
    X, y, _, _ = small
    with pytest.raises(ValueError, match=message):
        OPSARegressor(**params).fit(X, y)


def test_words_are_no_measurements(small):
    X, y, coef, _ = small
    regressor = OPSARegressor(coef.shape)
    with pytest.raises(ValueError, match="could not convert"):
        regressor.fit(X, np.where(y > 0, "high", "low"))
    assert not hasattr(regressor, "n_features_in_")


def test_sparse_measurements_are_refused(small):
    X, y, coef, _ = small
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        OPSARegressor(coef.shape).fit(csr_array(X), y)


def test_too_few_samples_are_warned_of(small):
    X, y, coef, _ = small
    with pytest.warns(UserWarning, match=r"n_samples=300 is below 4 \* max\(n1, n2\)"):
        OPSARegressor(coef.shape, 4, tol=1.0).fit(X[:300], y[:300])


def test_max_iter_is_warned_of(small):
    X, y, coef, _ = small
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        OPSARegressor(coef.shape, 4, max_iter=3).fit(X, y)


@pytest.mark.filterwarnings("ignore:n_samples=700 is below")
def test_divergence_is_warned_of_and_the_best_iterate_kept(small):
    X, y, coef, _ = small
    with pytest.warns(ConvergenceWarning, match="diverged"):
        regressor = OPSARegressor(coef.shape, 15, outlier_fraction=0.0, damping=1e-9).fit(X, y)
    assert np.isfinite(regressor.coef_).all()
    assert max(regressor.loss_curve_) > 1e3 * regressor.loss_curve_[0]
    loss = np.abs(X @ regressor.coef_.ravel() - y).mean()
    assert loss == pytest.approx(min(regressor.loss_curve_))
