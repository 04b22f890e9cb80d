"""OPSA: closed forms, recovery against the baselines, and misuse."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.datasets import make_background_video, make_corrupted_low_rank
from skicml.decomposition import OPSA
from skicml.decomposition._factored import l1_rows

SEEDS = (0, 1, 2)


def relative_error(estimate, truth):
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def principal_component_pursuit(X, n_iter=200):
    """min t ||L||_* + ||S||_1 with L + S = X by the inexact augmented Lagrangian method."""
    t = np.sqrt(max(X.shape))
    dual = X / max(np.linalg.norm(X, 2), np.abs(X).max() * t) * t
    sparse, mu = np.zeros_like(X), 1.25 * t / np.linalg.norm(X, 2)
    for _ in range(n_iter):
        U, s, Vt = np.linalg.svd(X - sparse + dual / mu, full_matrices=False)
        low_rank = (U * np.maximum(s - t / mu, 0)) @ Vt
        rest = X - low_rank + dual / mu
        sparse = np.sign(rest) * np.maximum(np.abs(rest) - 1 / mu, 0)
        gap = X - low_rank - sparse
        dual, mu = dual + mu * gap, 1.2 * mu
        if np.linalg.norm(gap) < 1e-9 * np.linalg.norm(X):
            break
    return low_rank, t * s_sum(low_rank) + np.abs(X - low_rank).sum()


def s_sum(matrix):
    return np.linalg.svd(matrix, compute_uv=False).sum()


@pytest.fixture(scope="module")
def small():
    return make_corrupted_low_rank(60, 40, rank=2, random_state=0)


@pytest.fixture(scope="module")
def small_gappy():
    return make_corrupted_low_rank(60, 40, rank=2, missing_fraction=0.2, random_state=0)


# ---- Robust regression of rows ---------------------------------------------------------------


def test_l1_rows_of_one_column_are_weighted_medians():
    # sum_j |m_j - l r_j| is least at the median of m_j / r_j with the weights |r_j|
    rng = np.random.RandomState(0)
    right = rng.uniform(0.5, 2, (31, 1))
    table = rng.standard_normal((5, 31))
    left = l1_rows(table, None, np.zeros((5, 1)), right, np.zeros(1), n_iter=500, floor=1e-9)
    for row, fitted in zip(table, left[:, 0]):
        ratios, weights = row / right[:, 0], right[:, 0]
        order = np.argsort(ratios)
        half = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
        assert fitted == pytest.approx(ratios[order][half], abs=1e-6)


def test_l1_rows_with_ridge_and_gaps():
    rng = np.random.RandomState(0)
    right = rng.uniform(0.5, 2, (30, 1))
    table, observed = rng.standard_normal((4, 30)) + 1, rng.uniform(size=(4, 30)) < 0.7
    left = l1_rows(
        table, observed, np.zeros((4, 1)), right, np.array([3.0]), n_iter=500, floor=1e-9
    )
    for row, seen, fitted in zip(table, observed, left[:, 0]):
        best = minimize_scalar(
            lambda value, row=row, seen=seen: (
                np.abs(row - value * right[:, 0])[seen].sum() + 3 / 2 * value**2
            ),
            bounds=(-5, 5),
            method="bounded",
            options={"xatol": 1e-10},
        )
        assert fitted == pytest.approx(best.x, abs=1e-5)


def test_l1_rows_with_fewer_cells_than_columns_stay_finite():
    rng = np.random.RandomState(0)
    right, table = rng.standard_normal((6, 4)), rng.standard_normal((3, 6))
    observed = np.zeros((3, 6), dtype=bool)
    observed[0, :2] = observed[1, 3] = True  # and no cell at all in row 2
    left = l1_rows(table, observed, np.zeros((3, 4)), right, np.zeros(4), n_iter=20, floor=1e-6)
    np.testing.assert_allclose((left @ right.T)[observed], table[observed], atol=1e-4)
    np.testing.assert_array_equal(left[2], 0)


# ---- Properties ------------------------------------------------------------------------------


def test_parts_add_up_and_fit_together(small_gappy):
    X, _, _ = small_gappy
    opsa = OPSA(n_components=6, center="median").fit(X)
    missing = np.isnan(X)
    np.testing.assert_allclose((opsa.low_rank_ + opsa.sparse_)[~missing], X[~missing], atol=1e-12)
    np.testing.assert_array_equal(opsa.sparse_[missing], 0)
    np.testing.assert_allclose(
        opsa.left_ @ opsa.right_.T + opsa.location_, opsa.low_rank_, atol=1e-12
    )
    rank = opsa.n_components_
    assert opsa.components_.shape == (rank, 40)
    assert opsa.left_.shape == (60, rank)
    assert opsa.right_.shape == (40, rank)
    np.testing.assert_allclose(opsa.components_ @ opsa.components_.T, np.eye(rank), atol=1e-12)
    spectrum = np.linalg.svd(opsa.low_rank_ - opsa.location_, compute_uv=False)
    np.testing.assert_allclose(opsa.singular_values_, spectrum[:rank])
    assert len(opsa.loss_curve_) == opsa.n_iter_


def test_descent_alone_reaches_the_minimum_of_principal_component_pursuit(small):
    """The objective is t ||L||_* + ||X - L||_1 in factor form: same minimum, by other means."""
    X, _, _ = small
    low_rank, minimum = principal_component_pursuit(X)
    opsa = OPSA(n_components=10, max_sweeps=0).fit(X)
    assert min(opsa.loss_curve_) == pytest.approx(minimum, rel=1e-5)
    assert min(opsa.loss_curve_) > minimum * (1 - 1e-6)
    assert relative_error(opsa.low_rank_, low_rank) < 1e-3
    t = np.sqrt(60)
    value = t * s_sum(opsa.low_rank_) + np.abs(X - opsa.low_rank_).sum()
    assert value == pytest.approx(minimum, rel=1e-5)


def test_equivariant_to_scale_transposition_and_order(small_gappy):
    X, low_rank, _ = small_gappy
    base = OPSA(n_components=6).fit(X)
    assert relative_error(base.low_rank_, low_rank) < 1e-5
    scaled = OPSA(n_components=6).fit(1000 * X)
    assert relative_error(scaled.low_rank_, 1000 * base.low_rank_) < 1e-6
    assert relative_error(OPSA(n_components=6).fit(X.T).low_rank_.T, base.low_rank_) < 1e-5
    order = np.random.RandomState(0).permutation(len(X))
    assert relative_error(OPSA(6).fit(X[order]).low_rank_, base.low_rank_[order]) < 1e-5


@pytest.mark.parametrize(
    ("dtype", "scale"),
    [("float64", 1e-305), ("float64", 1e300), ("float32", 1e-36), ("float32", 2e36)],
)
def test_units_may_be_near_the_limits_of_the_type(small_gappy, dtype, scale):
    X, low_rank, _ = small_gappy
    table = (X * scale).astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opsa = OPSA(n_components=6).fit(table)
        again = opsa.inverse_transform(opsa.transform(table))
    for found in (opsa.low_rank_, again):
        assert found.dtype == dtype
        assert relative_error(found.astype(np.float64) / scale, low_rank) < 1e-5


def test_size_of_an_outlier_does_not_matter(small):
    X, low_rank, sparse = small
    sentinel = np.where(sparse > 5, 1e300, X)
    assert relative_error(OPSA(n_components=6).fit(sentinel).low_rank_, low_rank) < 1e-5


def test_center_takes_the_offset_of_columns_out(small):
    X, low_rank, _ = small
    offset = np.linspace(-100, 100, 40)
    opsa = OPSA(n_components=6, center="median").fit(X + offset)
    np.testing.assert_allclose(opsa.location_, np.median(X + offset, axis=0))
    assert relative_error(opsa.low_rank_ - offset, low_rank) < 1e-4
    np.testing.assert_array_equal(OPSA(n_components=6).fit(X).location_, 0)


def test_float32_in_float32_out(small_gappy):
    X, low_rank, _ = small_gappy
    opsa = OPSA(n_components=6).fit(X.astype(np.float32))
    for value in (
        opsa.components_,
        opsa.singular_values_,
        opsa.low_rank_,
        opsa.sparse_,
        opsa.location_,
        opsa.transform(X.astype(np.float32)),
        opsa.inverse_transform(opsa.transform(X.astype(np.float32))),
        opsa.impute(X.astype(np.float32)),
    ):
        assert value.dtype == np.float32
    assert relative_error(opsa.low_rank_, low_rank) < 1e-4


# ---- Recovery --------------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [5, 10, 20])
@pytest.mark.parametrize(("missing", "level"), [(0.0, 1e-4), (0.5, 1e-3)])
def test_recovers_rank_and_matrix(n_components, missing, level):
    """E6, and the trap of plain OPSA, which passes at d = r only."""
    for seed in SEEDS:
        X, low_rank, sparse = make_corrupted_low_rank(missing_fraction=missing, random_state=seed)
        opsa = OPSA(n_components=n_components).fit(X)  # no ConvergenceWarning either
        assert relative_error(opsa.low_rank_, low_rank) <= level
        assert opsa.n_components_ == 5
        np.testing.assert_allclose(opsa.sparse_, np.where(np.isnan(X), 0, sparse), atol=1e-2)


def test_recovers_to_the_level_of_dense_noise():
    for seed in SEEDS:
        X, low_rank, _ = make_corrupted_low_rank(noise=0.01, random_state=seed)
        opsa = OPSA(n_components=10).fit(X)
        assert relative_error(opsa.low_rank_, low_rank) <= 8e-3
        assert 5 <= opsa.n_components_ <= 10
        # mean absolute value of the noise, less what the fit of rank d absorbs
        assert 0.5 * 0.01 < opsa.noise_scale_ < 1.2 * 0.01


def test_pca_is_lost():
    for seed in SEEDS:
        X, low_rank, _ = make_corrupted_low_rank(random_state=seed)
        pca = PCA(10).fit(X)
        assert relative_error(pca.inverse_transform(pca.transform(X)), low_rank) > 0.5


def test_pursuit_with_gaps_filled_by_zero_is_lost():
    X, low_rank, _ = make_corrupted_low_rank(missing_fraction=0.5, random_state=0)
    pursued, _ = principal_component_pursuit(np.nan_to_num(X), n_iter=60)
    assert 0.3 < relative_error(pursued, low_rank) < 1


def test_background_of_a_video():
    """E7."""
    for seed in SEEDS:
        X, background, foreground = make_background_video(random_state=seed)
        opsa = OPSA(n_components=5).fit(X)
        assert relative_error(opsa.low_rank_, background) <= 1e-3
        found = np.abs(opsa.sparse_) > 0.05
        assert (found & foreground).sum() / (found | foreground).sum() >= 0.98
        assert opsa.n_components_ == 2
        pca = PCA(5).fit(X)
        assert relative_error(pca.inverse_transform(pca.transform(X)), background) > 5e-2


def test_without_the_nuclear_norm_one_outlier_more_is_one_rank_more():
    """Trap: the sensing algorithm, run on single cells with more columns than the rank."""
    X, low_rank, _ = make_corrupted_low_rank(random_state=0)
    plain = OPSA(n_components=10, regularization=0.0, max_sweeps=0).fit(X)
    assert relative_error(plain.low_rank_, low_rank) > 1e-2
    assert plain.n_components_ == 10


def test_sweeps_fetch_rows_that_the_descent_leaves_behind():
    """Half of the cells missing: one row of 200 gets stuck, and the nuclear norm is a bias."""
    X, low_rank, _ = make_corrupted_low_rank(missing_fraction=0.5, random_state=1)
    descent = OPSA(n_components=10, max_sweeps=0).fit(X)
    rows = np.linalg.norm(descent.low_rank_ - low_rank, axis=1)
    assert rows.max() > 1
    assert np.median(rows) < 1e-3
    assert relative_error(descent.low_rank_, low_rank) > 1e-2
    assert relative_error(OPSA(n_components=10).fit(X).low_rank_, low_rank) < 1e-5


def test_sweeps_that_do_not_contract_are_undone():
    """Too little data for the rank to be found: sweeps would fit the outliers more and more."""
    X, low_rank, _ = make_corrupted_low_rank(60, 40, rank=2, missing_fraction=0.2, random_state=0)
    median = {"n_components": 6, "center": "median"}
    descent = OPSA(**median, max_sweeps=0).fit(X)
    swept = OPSA(**median, max_sweeps=10).fit(X)
    assert descent.n_components_ > 3
    assert swept.n_sweeps_ < 3
    assert relative_error(swept.low_rank_, low_rank) < relative_error(descent.low_rank_, low_rank)


def test_faster_steps_do_for_errors_that_are_spread_evenly():
    X, low_rank, _ = make_corrupted_low_rank(random_state=0)
    default = OPSA(n_components=10).fit(X)
    fast = OPSA(n_components=10, decay=0.98, step_scale=0.3).fit(X)
    assert fast.n_iter_ < 0.5 * default.n_iter_
    assert relative_error(fast.low_rank_, low_rank) < 1e-4


# ---- Transformer -----------------------------------------------------------------------------


def test_scores_of_training_rows_are_those_of_the_fit(small_gappy):
    X, low_rank, _ = small_gappy
    opsa = OPSA(n_components=6).fit(X)
    scores = opsa.transform(X)
    np.testing.assert_allclose(
        np.abs(scores), np.abs(opsa.left_ * np.sqrt(opsa.singular_values_)), atol=1e-3
    )
    assert relative_error(opsa.inverse_transform(scores), low_rank) < 1e-5
    np.testing.assert_array_equal(clone(opsa).fit_transform(X), scores)


def test_scores_of_new_rows_ignore_gross_errors_and_gaps(small):
    X, _, _ = small
    opsa = OPSA(n_components=6).fit(X)
    rng = np.random.RandomState(0)
    truth = rng.standard_normal((8, opsa.n_components_))
    rows = opsa.inverse_transform(truth)
    rows[rng.uniform(size=rows.shape) < 0.2] += 100
    rows[rng.uniform(size=rows.shape) < 0.3] = np.nan
    np.testing.assert_allclose(opsa.transform(rows), truth, atol=1e-3)
    filled = opsa.impute(rows)
    missing = np.isnan(rows)
    np.testing.assert_array_equal(filled[~missing], rows[~missing])
    np.testing.assert_allclose(filled[missing], opsa.inverse_transform(truth)[missing], atol=1e-2)


def test_score_is_the_median_absolute_residual(small_gappy):
    X, _, _ = small_gappy
    opsa = OPSA(n_components=6).fit(X)
    residual = X - opsa.inverse_transform(opsa.transform(X))
    assert opsa.score(X) == -np.nanmedian(np.abs(residual))
    assert -1e-5 < opsa.score(X) <= 0
    assert OPSA(n_components=1).fit(X).score(X) < 1000 * opsa.score(X)


def test_table_of_zeros_has_one_component_of_size_zero():
    opsa = OPSA().fit(np.zeros((8, 5)))
    assert opsa.n_components_ == 1
    assert opsa.singular_values_.tolist() == [0.0]
    assert np.linalg.norm(opsa.components_) == pytest.approx(1)
    np.testing.assert_array_equal(opsa.low_rank_, 0)
    np.testing.assert_array_equal(opsa.transform(np.zeros((3, 5))), 0)
    assert np.isfinite(opsa.transform(np.ones((3, 5)))).all()


@pytest.mark.parametrize("shape", [(30, 1), (1, 5), (1, 1)])
def test_one_column_or_row_is_legal(shape):
    X = np.random.RandomState(0).standard_normal(shape)
    opsa = OPSA().fit(X)
    assert opsa.transform(X).shape == (shape[0], 1)
    assert np.isfinite(opsa.low_rank_).all()


def test_feature_names_out(small):
    assert OPSA(n_components=6).fit(small[0]).get_feature_names_out().tolist() == ["opsa0", "opsa1"]


def test_grid_search_over_components_and_regularization():
    X, low_rank, _ = make_corrupted_low_rank(90, 60, rank=3, missing_fraction=0.1, random_state=0)
    search = GridSearchCV(
        OPSA(), {"n_components": [1, 3, 6], "regularization": [0.5, 1.0]}, cv=KFold(3)
    ).fit(X)
    assert search.best_params_["n_components"] in (3, 6)
    assert relative_error(search.best_estimator_.low_rank_, low_rank) < 1e-3


def test_before_a_classifier_on_digits_with_broken_pixels():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    rng = np.random.RandomState(0)
    X[rng.uniform(size=X.shape) < 0.1] = 160  # ten times the largest value
    X[rng.uniform(size=X.shape) < 0.1] = np.nan
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    robust = make_pipeline(OPSA(n_components=20, regularization=0.3), classifier)
    dense = make_pipeline(PCA(20), classifier)
    robust_accuracy = cross_val_score(robust, X, y, cv=3).mean()
    dense_accuracy = cross_val_score(dense, np.nan_to_num(X), y, cv=3).mean()
    assert robust_accuracy > dense_accuracy + 0.05


def test_same_seed_same_fit_and_pickle():
    X, _, _ = make_corrupted_low_rank(250, 220, random_state=0)  # randomized SVD
    first, second = (OPSA(n_components=8, random_state=0).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.low_rank_, second.low_rank_)
    restored = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(restored.transform(X[:9]), first.transform(X[:9]))


# ---- Misuse ----------------------------------------------------------------------------------


def test_rows_and_columns_without_cells_are_named(small):
    X = small[0].copy()
    X[7] = np.nan
    with pytest.raises(ValueError, match="Row 7 of X has no observed cell"):
        OPSA().fit(X)
    with pytest.raises(ValueError, match="Row 7 of X has no observed cell"):
        OPSA().fit(small[0]).transform(X)
    unfitted = OPSA()
    with pytest.raises(ValueError, match="Row 7"):
        unfitted.fit(X)
    assert not hasattr(unfitted, "n_features_in_")
    X = small[0].copy()
    X[:, 3] = np.nan
    with pytest.raises(ValueError, match="Column 3 of X has no observed cell"):
        OPSA().fit(X)
    assert np.isfinite(OPSA().fit(small[0]).transform(X)).all()  # a column may be missing later


def test_sparse_tables_are_refused(small):
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        OPSA().fit(csr_array(small[0]))


def test_infinity_is_an_error(small):
    X = small[0].copy()
    X[2, 2] = -np.inf
    with pytest.raises(ValueError, match="infinity"):
        OPSA().fit(X)


def test_wrong_number_of_scores(small):
    opsa = OPSA(n_components=6).fit(small[0])
    with pytest.raises(ValueError, match="X must have 2 columns, one a component, got 3"):
        opsa.inverse_transform(np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 41}, r"at most min\(n_samples, n_features\)=40"),
        ({"outlier_fraction": 1.0}, "'outlier_fraction' parameter"),
        ({"regularization": "strong"}, "'regularization' parameter"),
        ({"damping": 0.0}, "'damping' parameter"),
        ({"decay": 1.0}, "'decay' parameter"),
        ({"center": "mean"}, "'center' parameter"),
        ({"max_sweeps": -1}, "'max_sweeps' parameter"),
    ],
)
def test_bad_parameters(small, params, message):
    with pytest.raises(ValueError, match=message):
        OPSA(**params).fit(small[0])


def test_max_iter_is_warned_of(small):
    with pytest.warns(ConvergenceWarning, match="max_iter=20"):
        OPSA(n_components=6, max_iter=20).fit(small[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OPSA(n_components=6).fit(small[0])
