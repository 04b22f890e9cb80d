import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, minmax_scale
from sklearn.utils._param_validation import InvalidParameterError

from skicml.cluster import BACDL, _bacdl
from skicml.datasets import (
    load_multiple_features,
    make_multiview_blobs,
    make_synthetic3d,
    mask_views,
)
from skicml.metrics import clustering_accuracy_score
from tests.cluster._bacdl_data import VIEWS, blobs, scaled_views, split_blocks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def _imputed_kmeans(X, views, n_clusters, seed):
    """Baseline: min-max, column means for missing blocks, weight 1 / sqrt(width), k-means."""
    X = minmax_scale(X)
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    X = X / np.sqrt(np.repeat(views, views))
    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)


# --- what fit promises ------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["kmeans", "random"])
@pytest.mark.parametrize("normalize", ["complement", "softmax", "l1"])
def test_constraints_hold_after_fit(init, normalize):
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, init=init, normalize=normalize, random_state=0).fit(X)
    for r in range(3):
        for components in (bacdl.shared_components_[r], bacdl.specific_components_[r]):
            assert components.min() >= 0
            assert_allclose(components.sum(axis=1), 1, atol=1e-8)
        assert bacdl.memberships_[r].shape == (120, 3)
        assert bacdl.memberships_[r].min() > 0  # an exact zero could never grow again
        assert_allclose(bacdl.memberships_[r].sum(axis=1), 1, atol=1e-8)
        assert_allclose(bacdl.rotations_[r] @ bacdl.rotations_[r].T, np.eye(3), atol=1e-8)
    assert_allclose(bacdl.embedding_.T @ bacdl.embedding_, np.eye(3), atol=1e-8)
    assert bacdl.association_.shape == (6, 3)  # one for all views
    assert bacdl.association_.min() > 0
    assert bacdl.view_weights_.min() >= 0
    assert bacdl.view_weights_.sum() == pytest.approx(1, abs=1e-8)
    assert bacdl.consensus_weights_.min() >= 0
    assert np.linalg.norm(bacdl.consensus_weights_) == pytest.approx(1, abs=1e-8)


@pytest.mark.parametrize("consensus", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_objective_falls_and_is_bounded(consensus, rate):
    for seed in range(3):
        X, _ = make_synthetic3d(50, random_state=seed)
        X = mask_views(X, [3, 3, 3], rate=rate, random_state=seed)
        for init in ("kmeans", "random"):
            bacdl = BACDL(3, views=[3, 3, 3], consensus=consensus, init=init, random_state=seed)
            objective = bacdl.fit(X).objective_
            assert objective.shape == (bacdl.n_iter_,)
            assert (np.diff(objective) <= 1e-3 * np.abs(objective[:-1])).all()
            assert objective.min() >= -consensus  # Theorem 4


def test_published_factors_give_the_published_objective():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, alienation=0.5, consensus=2.0, random_state=0).fit(X)
    beta = 2.0 / np.sqrt(3 * 120 * 3)
    residuals, overlap, pull = [], 0.0, np.zeros((120, 3))
    for r, (data, rows) in enumerate(scaled_views(X)):
        shared, specific = bacdl.shared_components_[r], bacdl.specific_components_[r]
        basis = bacdl.association_.T @ np.vstack([shared, specific])
        residuals.append(np.linalg.norm(data - bacdl.memberships_[r][rows] @ basis) ** 2)
        overlap += (shared * specific).sum()
        pull += bacdl.consensus_weights_[r] * bacdl.memberships_[r] @ bacdl.rotations_[r]
    residuals = np.array(residuals)
    objective = bacdl.view_weights_**2 @ residuals + 0.5 * overlap
    objective -= beta * np.vdot(bacdl.embedding_, pull)
    assert bacdl.objective_[-1] == pytest.approx(objective, rel=1e-8)
    assert_allclose(bacdl.view_weights_, (1 / residuals) / (1 / residuals).sum(), rtol=1e-8)


def test_rows_without_a_view_follow_the_consensus():
    X, _ = blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    for r, block in enumerate(split_blocks(X)):
        missing = np.isnan(block).any(axis=1)
        wanted = bacdl.embedding_[missing] @ bacdl.rotations_[r].T
        given = bacdl.memberships_[r][missing]
        assert (wanted.argmax(axis=1) == given.argmax(axis=1)).mean() >= 0.98
        assert np.median(given.max(axis=1)) > 0.9  # decided, not even


def test_without_consensus_rows_without_a_view_stay_even():
    X, _ = blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, consensus=0, random_state=0).fit(X)
    for memberships, block in zip(bacdl.memberships_, split_blocks(X)):
        assert_allclose(memberships[np.isnan(block).any(axis=1)], 1 / 3)


def test_alienation_separates_the_feature_clusters():
    X, _ = blobs()

    def overlap(alienation):
        bacdl = BACDL(3, views=VIEWS, alienation=alienation, random_state=0).fit(X)
        pairs = zip(bacdl.shared_components_, bacdl.specific_components_)
        return bacdl, sum(float((shared * specific).sum()) for shared, specific in pairs)

    free, of_free = overlap(0)
    bound, of_bound = overlap(10)
    assert of_bound < 0.5 * of_free
    assert not np.allclose(free.memberships_[0], bound.memberships_[0])


def test_memory_is_linear_in_n():
    X, _ = make_multiview_blobs(20_000, views=[5, 5], random_state=0)
    tracemalloc.start()
    BACDL(3, views=[5, 5], max_iter=3, n_init=1, random_state=0).fit(X).predict(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6  # an n x n matrix would take 3200e6


@pytest.mark.parametrize("kind", ["complement", "softmax", "l1"])
@pytest.mark.parametrize("init", ["kmeans", "random"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_degenerate_rows_are_harmless(kind, init, dtype):
    pairs = np.repeat(np.eye(4)[:2], 10, axis=0)
    for X in (np.ones((20, 4)), pairs, np.random.RandomState(0).normal(1e6, 1, size=(3, 4))):
        X = X.astype(dtype)
        bacdl = BACDL(3, views=[2, 2], normalize=kind, init=init, max_iter=30, random_state=0)
        embedding = bacdl.fit(X).embedding_
        assert_allclose(embedding.T @ embedding, np.eye(3), atol=1e-4)
        assert np.isfinite(bacdl.transform(X)).all()
        assert np.isfinite(bacdl.objective_).all()


# --- clustering -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_separated_blobs_are_found(seed):
    X, y = blobs(200, rate=0, separation=10, seed=seed, centers=4, views=[5, 6, 4])
    labels = BACDL(4, views=[5, 6, 4], random_state=seed).fit_predict(X)
    assert adjusted_rand_score(y, labels) == 1


def test_beats_imputation_by_the_mean_on_synthetic3d():
    ours, theirs = [], []
    for seed in range(5):
        X, y = make_synthetic3d(random_state=seed)
        X = mask_views(X, [3, 3, 3], rate=0.5, random_state=seed)
        labels = BACDL(3, views=[3, 3, 3], random_state=seed).fit_predict(X)
        ours.append(clustering_accuracy_score(y, labels))
        theirs.append(clustering_accuracy_score(y, _imputed_kmeans(X, [3, 3, 3], 3, seed)))
    assert np.mean(ours) >= np.mean(theirs) + 0.05
    assert np.mean(ours) >= 0.76


def test_beats_imputation_by_the_mean_on_six_views_of_digits():
    X, y = load_multiple_features(return_X_y=True)
    views = [216, 76, 64, 6, 240, 47]
    X = mask_views(X, views, rate=0.5, random_state=0)
    labels = BACDL(10, views=views, max_iter=30, random_state=0).fit_predict(X)
    theirs = clustering_accuracy_score(y, _imputed_kmeans(X, views, 10, 0))
    assert clustering_accuracy_score(y, labels) >= theirs + 0.15


@pytest.mark.parametrize("seed", range(3))
def test_a_view_of_noise_does_little_harm(seed):
    views = [5, 5, 5, 5]
    X, y = blobs(400, seed=seed, centers=4, separation=3, views=views, noise_views=[3])
    labels = BACDL(4, views=views, random_state=seed).fit_predict(X)
    assert adjusted_rand_score(y, labels) >= 0.8


def test_order_of_columns_and_rows_does_not_matter():
    X, _ = blobs(300)
    labels = BACDL(3, views=VIEWS, random_state=0).fit_predict(X)
    rng = np.random.RandomState(0)
    columns = np.r_[rng.permutation(3), np.arange(3, 9)]
    other = BACDL(3, views=VIEWS, random_state=0).fit_predict(X[:, columns])
    assert adjusted_rand_score(labels, other) >= 0.9
    rows = rng.permutation(300)
    other = BACDL(3, views=VIEWS, random_state=0).fit_predict(X[rows])
    assert adjusted_rand_score(labels[rows], other) >= 0.9


def test_views_by_index_leave_other_columns_out():
    X, _ = blobs()
    labels = BACDL(3, views=VIEWS, random_state=0).fit_predict(X)
    rubbish = np.full((120, 1), np.nan)
    wide = np.hstack([X[:, :3], rubbish, X[:, 3:]])
    views = [[0, 1, 2], slice(4, 8), np.array([8, 9])]
    assert_array_equal(BACDL(3, views=views, random_state=0).fit_predict(wide), labels)


def test_one_view_and_one_cluster():
    X, y = make_multiview_blobs(100, views=(6,), separation=6, random_state=0)
    assert adjusted_rand_score(y, BACDL(3, random_state=0).fit_predict(X)) == 1
    assert_array_equal(BACDL(1, random_state=0).fit(X).predict(X), 0)


# --- new rows ---------------------------------------------------------------------------------


def test_new_rows_are_as_good_as_training_rows():
    ours, theirs, same = [], [], []
    for seed in range(3):
        X, y = make_synthetic3d(random_state=seed)
        X = mask_views(X, [3, 3, 3], rate=0.5, random_state=seed)
        X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=seed)
        bacdl = BACDL(3, views=[3, 3, 3], random_state=seed).fit(X_train)
        same.append(np.mean(bacdl.predict(X_train) == bacdl.labels_))
        theirs.append(clustering_accuracy_score(y_train, bacdl.labels_))
        ours.append(clustering_accuracy_score(y_test, bacdl.predict(X_test)))
    assert np.mean(ours) >= np.mean(theirs) - 0.05
    assert np.mean(same) >= 0.8


def test_new_rows_take_the_consensus_into_account():
    X, _ = blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)

    def distance():
        difference = bacdl.transform(X) - bacdl.embedding_
        return np.linalg.norm(difference) / np.linalg.norm(bacdl.embedding_)

    with_consensus = distance()
    assert with_consensus < 0.3  # the same space, so the same scale
    bacdl._beta = 0.0
    assert distance() > 2 * with_consensus


def test_rows_are_embedded_independently(monkeypatch):
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    embedding = bacdl.transform(X)
    assert embedding.shape == (120, 3)
    assert_allclose(np.vstack([bacdl.transform(X[i : i + 1]) for i in range(20)]), embedding[:20])
    monkeypatch.setattr(_bacdl, "_ROWS_AT_ONCE", 7)
    assert_allclose(bacdl.transform(X), embedding)


def test_a_row_with_a_single_view_is_enough():
    X, y = blobs(200, rate=0, separation=8, views=[5, 6, 4])
    bacdl = BACDL(3, views=[5, 6, 4], random_state=0).fit(X)
    for view in range(3):
        kept = np.full_like(X, np.nan)
        columns = bacdl.views_[view]
        kept[:, columns] = X[:, columns]
        assert adjusted_rand_score(y, bacdl.predict(kept)) > 0.95


def test_scaling_is_learnt_in_fit_and_clips_new_values():
    X, _ = blobs(rate=0)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    # one row alone has no range of its own: its embedding must still be that of the table
    assert_allclose(bacdl.transform(X[:1]), bacdl.transform(X)[:1])
    beyond = X + 100 * (X.max(axis=0) == X)
    assert_allclose(bacdl.transform(beyond), bacdl.transform(X))


def test_fit_predict_gives_the_labels_of_fit():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0)
    assert_array_equal(bacdl.fit_predict(X), bacdl.labels_)
    nearest = ((bacdl.embedding_[:, None] - bacdl.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    assert_array_equal(nearest, bacdl.labels_)


def test_folded_components():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    shared, specific = bacdl.folded_components()
    raws = bacdl.shared_components_ + bacdl.specific_components_
    for folded, raw in zip(shared + specific, raws):
        width = raw.shape[1] // 2
        assert_allclose(folded, raw[:, :width] - raw[:, width:])
    bacdl = BACDL(3, views=VIEWS, normalize="softmax", random_state=0).fit(X)
    assert_array_equal(bacdl.folded_components()[0][1], bacdl.shared_components_[1])


# --- bad input --------------------------------------------------------------------------------


def test_refuses_rows_without_any_view():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    X[[4, 9]] = np.nan
    for method in (BACDL(3, views=VIEWS).fit, bacdl.predict, bacdl.transform):
        with pytest.raises(ValueError, match="2 samples have every view missing"):
            method(X)


def test_refuses_a_block_that_is_missing_in_part():
    X, _ = blobs(rate=0)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    X[5, 4] = np.nan
    for method in (BACDL(3, views=VIEWS).fit, bacdl.predict):
        with pytest.raises(ValueError, match=r"partially missing block.*Imputer"):
            method(X)


def test_refuses_infinity():
    X, _ = blobs()
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        BACDL(3, views=VIEWS).fit(X)


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([3, 4], "add up to 7, but X has 9"),
        ([[0, 1], [1, 2]], "share columns"),
        ("auto", "DataFrame"),
    ],
)
def test_refuses_views_that_do_not_fit(views, message):
    with pytest.raises(ValueError, match=message):
        BACDL(3, views=views).fit(blobs()[0])


def test_refuses_more_clusters_than_rows():
    X, _ = blobs(rate=0)
    with pytest.raises(ValueError, match=r"n_samples=4 should be >= n_clusters=5\."):
        BACDL(5, views=VIEWS).fit(X[:4])
    X[3:, :3] = np.nan
    message = "View 0 is observed in n_samples=3 rows, which should be >= n_clusters=5"
    with pytest.raises(ValueError, match=message):
        BACDL(5, views=VIEWS).fit(X)


@pytest.mark.parametrize(
    "params",
    [
        {"n_clusters": 0},
        {"n_clusters": 2.5},
        {"alienation": -1},
        {"consensus": -0.1},
        {"normalize": "zscore"},
        {"init": "k-means++"},
        {"max_iter": 0},
        {"tol": -1e-3},
        {"n_init": 0},
        {"views": "pixels"},
    ],
)
def test_refuses_bad_parameters(params):
    with pytest.raises(InvalidParameterError, match=next(iter(params))):
        BACDL(**params).fit(blobs()[0])


def test_an_error_leaves_nothing_behind():
    X, _ = blobs()
    broken = BACDL(3, views=[1, 1])
    with pytest.raises(ValueError, match="add up"):
        broken.fit(X)
    with pytest.raises(NotFittedError):
        broken.predict(X)
    fitted = BACDL(3, views=VIEWS, random_state=0).fit(X)
    before = fitted.transform(X)
    with pytest.raises(ValueError, match="add up"):
        fitted.fit(X[:, :5])
    assert_array_equal(fitted.transform(X), before)


def test_warns_if_the_sweeps_run_out_and_only_then():
    X, _ = blobs()
    with pytest.warns(ConvergenceWarning, match="max_iter=2 sweeps"):
        BACDL(3, views=VIEWS, max_iter=2, random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bacdl = BACDL(3, views=VIEWS, max_iter=500, tol=1e-2, random_state=0).fit(X)
    assert 2 <= bacdl.n_iter_ < 500
    drops = -np.diff(bacdl.objective_) / np.abs(bacdl.objective_[:-1])
    assert drops[-1] < 1e-2
    assert (drops[:-1] >= 1e-2).all()


# --- at home in scikit-learn ------------------------------------------------------------------


class _Recorder:
    def __init__(self, stop_at=None):
        self.stop_at = stop_at
        self.tasks = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.tasks.append(context.task_name)
        return context.task_name == self.stop_at


def test_a_sweep_is_a_task_and_can_be_the_last():
    X, _ = blobs()
    recorder = _Recorder()
    bacdl = BACDL(3, views=VIEWS, random_state=0).set_callbacks(recorder).fit(X)
    assert recorder.tasks == [*(f"sweep {i}" for i in range(bacdl.n_iter_)), "fit"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bacdl.set_callbacks(_Recorder(stop_at="sweep 4")).fit(X)
    assert bacdl.n_iter_ == 5
    assert bacdl.predict(X).shape == (120,)


def test_an_interrupted_fit_leaves_the_old_one():
    class Interrupt(_Recorder):
        def on_fit_task_end(self, estimator, context):
            if context.task_name == "sweep 1":
                raise KeyboardInterrupt

    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    before, objective = bacdl.transform(X), bacdl.objective_
    bacdl.set_params(views=[3, 4]).set_callbacks(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        bacdl.fit(X[np.isfinite(X[:, :7]).any(axis=1), :7])
    assert bacdl.objective_ is objective
    assert_array_equal(bacdl.transform(X), before)


def test_float32_stays():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X.astype(np.float32))
    for array in [
        bacdl.embedding_, bacdl.association_, bacdl.cluster_centers_, *bacdl.memberships_,
        *bacdl.shared_components_, *bacdl.specific_components_, *bacdl.rotations_,
    ]:  # fmt: skip
        assert array.dtype == np.float32
    assert bacdl.transform(X.astype(np.float32)).dtype == np.float32
    double = BACDL(3, views=VIEWS, random_state=0).fit(X)
    assert adjusted_rand_score(bacdl.labels_, double.labels_) > 0.95
    assert_allclose(bacdl.embedding_.T @ bacdl.embedding_, np.eye(3), atol=1e-5)


def test_same_seed_same_fit():
    X, _ = blobs()
    for seed in (0, np.random.RandomState(3)):
        bacdl = BACDL(3, views=VIEWS, random_state=seed)
        first, second = (clone(bacdl).fit(X) for _ in range(2))
        assert_array_equal(first.embedding_, second.embedding_)
    other = BACDL(3, views=VIEWS, random_state=1).fit(X)
    assert not np.array_equal(first.embedding_, other.embedding_)


def test_pickle_with_missing_views():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    assert_array_equal(pickle.loads(pickle.dumps(bacdl)).transform(X), bacdl.transform(X))


def test_pipeline_with_views_of_a_column_transformer():
    pd = pytest.importorskip("pandas")
    X, y = blobs(separation=8)
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(9)])
    first, second = [f"c{i}" for i in range(3)], [f"c{i}" for i in range(3, 9)]
    frame.loc[frame[second].isna().any(axis=1), second] = np.nan
    views = make_column_transformer(
        (FunctionTransformer(np.arctan, feature_names_out="one-to-one"), first),
        ("passthrough", second),
    ).set_output(transform="pandas")
    keep = frame.notna().any(axis=1)
    pipeline = make_pipeline(views, BACDL(3, views="auto", random_state=0)).fit(frame[keep])
    assert [block.size for block in pipeline[-1].views_] == [3, 6]
    assert adjusted_rand_score(y[keep], pipeline[-1].labels_) > 0.9
    assert pipeline.predict(frame[keep].iloc[:5]).shape == (5,)


def test_grid_search_on_alienation():
    X, y = blobs(200, separation=6, views=[5, 6, 4])
    search = GridSearchCV(
        BACDL(3, views=[5, 6, 4], random_state=0),
        {"alienation": [0.01, 1.0, 100.0]},
        scoring="adjusted_rand_score",
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.predict(X[:4]).shape == (4,)


def test_names_of_the_embedding():
    X, _ = blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    assert list(bacdl.get_feature_names_out()) == ["bacdl0", "bacdl1", "bacdl2"]
