"""HiRef as an estimator: maps of new rows, parameters, errors, seeds, scikit-learn around it."""

import pickle

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.transport import HiRef
from tests.transport._hiref_data import make_linear_pair, make_pair


@pytest.fixture(scope="module")
def pair():
    return make_pair("gaussian", 300)


@pytest.fixture(scope="module")
def fitted(pair):
    return HiRef(base_size=16).fit_pair(*pair)


def stacked(X, Y, seed=0):
    """Both samples in one array, mixed, with their labels."""
    order = np.random.RandomState(seed).permutation(len(X) + len(Y))
    return np.vstack([X, Y])[order], np.repeat(["after", "before"], [len(X), len(Y)])[order]


# ---- Input -----------------------------------------------------------------------------------


def test_stacked_input_gives_the_same_pairs(pair, fitted):
    X, y = stacked(*pair)
    hiref = HiRef(base_size=16).fit(X, y)
    assert list(hiref.classes_) == ["after", "before"]
    assert (y[hiref.source_indices_] == "after").all()
    assert (y[hiref.target_indices_] == "before").all()
    np.testing.assert_array_equal(X[hiref.source_indices_], hiref.X_source_)
    np.testing.assert_array_equal(X[hiref.target_indices_], hiref.X_target_)
    assert hiref.cost_ == pytest.approx(fitted.cost_, rel=0.02)
    first, second = X[hiref.pairs()].transpose(1, 0, 2)
    np.testing.assert_array_equal(second, hiref.transform(first))
    assert np.mean(np.sum((first - second) ** 2, axis=1)) == pytest.approx(hiref.cost_)


def test_labels_match_blocks_of_equal_size(pair):
    X, y = stacked(*pair)
    hiref = HiRef(base_size=16, rank_schedule=[5, 4]).fit(X, y)
    source, target = (np.bincount(hiref.labels_[y == label]) for label in hiref.classes_)
    np.testing.assert_array_equal(source, np.full(20, 15))
    np.testing.assert_array_equal(target, np.full(20, 15))
    # a point and its target are in the same block
    labels = hiref.labels_[hiref.pairs()]
    np.testing.assert_array_equal(labels[:, 0], labels[:, 1])
    assert set(HiRef(label_level=0).fit(X, y).labels_) == {0}


def test_unequal_sizes(pair):
    X, y = stacked(pair[0], pair[1][:250])
    with pytest.raises(ValueError, match=r'got 300 and 250.*unequal="subsample"'):
        HiRef().fit(X, y)
    hiref = HiRef(unequal="subsample", random_state=0).fit(X, y)
    assert hiref.permutation_.shape == (250,)
    assert (np.diff(hiref.source_indices_) > 0).all()
    assert np.sum(hiref.labels_ == -1) == 50
    other = HiRef(unequal="subsample", random_state=1).fit(X, y)
    assert not np.array_equal(hiref.source_indices_, other.source_indices_)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.zeros(20), "exactly two classes.*got 1 class"),
        (np.arange(20) % 3, "exactly two classes.*got 3 classes"),
        (np.linspace(0, 1, 20), "exactly two classes.*got 20 classes"),
        (None, "requires y"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(ValueError, match=message):
        HiRef().fit(np.random.RandomState(0).standard_normal((20, 2)), y)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"rank_schedule": [2, 2]}, "leaves blocks of 75 points, more than base_size=64"),
        ({"rank_schedule": [300, 1]}, "ranks of at least 2"),
        ({"rank_schedule": [2.7, 4, 4]}, "whole ranks of at least 2"),
        ({"rank_schedule": [[8, 8]]}, "whole ranks of at least 2"),
        ({"cost": lambda X, Y: np.zeros(3)}, r"cost must return.*\(n, m\)"),
        ({"cost": lambda X, Y: np.full((len(X), len(Y)), np.nan)}, "cost returned NaN"),
        ({"cost": "cosine"}, "'cost'"),
        ({"base_size": 0}, "'base_size'"),
    ],
)
def test_bad_parameters(pair, params, message):
    hiref = HiRef(**params)
    with pytest.raises(ValueError, match=message):
        hiref.fit_pair(*pair)
    assert not hasattr(hiref, "permutation_")


def test_bad_arrays(pair, fitted):
    X, Y = pair
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="Xs contains NaN"):
        HiRef().fit_pair(broken, Y)
    with pytest.raises(ValueError, match="same number of columns, got 2 and 1"):
        HiRef().fit_pair(X, Y[:, :1])
    with pytest.raises(ValueError, match="3 features"):
        fitted.transform(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="both classes"):
        fitted.score(X, np.zeros(300))
    for method in ("coupling", "pairs"):
        with pytest.raises(NotFittedError):
            getattr(HiRef(), method)()


# ---- The map ---------------------------------------------------------------------------------


def test_training_rows_go_to_their_partners(fitted):
    order = np.random.RandomState(0).permutation(300)
    sources, targets = fitted.X_source_[order], fitted.X_target_[fitted.permutation_[order]]
    np.testing.assert_array_equal(fitted.transform(sources), targets)
    np.testing.assert_array_equal(fitted.inverse_transform(targets), sources)


def test_training_rows_far_from_the_origin_in_many_features():
    X, Y = make_pair("gaussian 20", 100)
    hiref = HiRef(max_iter=1).fit_pair(X + 1e8, Y + 1e8)
    images = hiref.X_target_[hiref.permutation_]
    np.testing.assert_array_equal(hiref.transform(hiref.X_source_[::-1]), images[::-1])


def test_new_rows_move_as_their_nearest_source(fitted):
    new = np.random.RandomState(1).standard_normal((50, 2))
    nearest = cdist(new, fitted.X_source_).argmin(axis=1)
    images = fitted.X_target_[fitted.permutation_]
    expected = new + images[nearest] - fitted.X_source_[nearest]
    np.testing.assert_allclose(fitted.transform(new), expected)


def test_new_rows_as_in_pot(pair):
    ot_da = pytest.importorskip("ot.da")
    X, Y = pair
    hiref = HiRef(base_size=300).fit_pair(X, Y)  # one block: the exact matching
    exact = ot_da.EMDTransport().fit(Xs=X, Xt=Y)
    new = np.random.RandomState(1).standard_normal((50, 2))
    np.testing.assert_allclose(hiref.transform(new), exact.transform(Xs=new), atol=1e-8)
    np.testing.assert_allclose(hiref.transform(X), exact.transform(Xs=X), atol=1e-8)
    np.testing.assert_allclose(hiref.coupling().toarray(), exact.coupling_, atol=1e-12)


def test_fit_transform_maps_every_row(pair):
    X, y = stacked(*pair)
    hiref = HiRef(base_size=16)
    mapped = hiref.fit_transform(X, y)
    np.testing.assert_array_equal(mapped, hiref.transform(X))
    np.testing.assert_array_equal(mapped[hiref.pairs()[:, 0]], X[hiref.pairs()[:, 1]])


def test_duplicated_sources_keep_their_own_targets():
    X = np.repeat(np.arange(50.0), 4)[:, None]
    Y = np.random.RandomState(0).standard_normal((200, 1))
    hiref = HiRef(base_size=16).fit_pair(X, Y)
    np.testing.assert_array_equal(np.sort(hiref.transform(X), axis=0), np.sort(Y, axis=0))
    assert set(hiref.transform(X[:8]).ravel()) <= set(Y.ravel())


def test_float32_stays_float32(pair):
    X, Y = (side.astype(np.float32) for side in pair)
    hiref = HiRef().fit_pair(X, Y)
    assert hiref.X_source_.dtype == hiref.transform(X + 1).dtype == np.float32


def test_score_is_minus_the_energy_distance(pair, fitted):
    X, Y = pair
    y = np.repeat([0, 1], 300)
    assert fitted.score(np.vstack([X, Y]), y) == pytest.approx(0, abs=1e-9)
    fresh, target = make_pair("gaussian", 200, seed=1)
    moved = fitted.transform(fresh)
    energy = 2 * cdist(moved, target).mean() - cdist(moved, moved).mean()
    energy -= cdist(target, target).mean()
    score = fitted.score(np.vstack([fresh, target]), np.repeat([0, 1], 200))
    assert score == pytest.approx(-energy)


# ---- Same result however it is computed ------------------------------------------------------


@pytest.mark.parametrize("params", [{"init": "random"}, {"rank_schedule": "paper", "max_rank": 4}])
@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean"])
def test_batches_and_workers_change_nothing(pair, params, cost):
    params = {"cost": cost, "base_size": 16, "random_state": 0, **params}
    whole = HiRef(**params).fit_pair(*pair).permutation_
    for how in ({"batch_elements": 1}, {"batch_elements": 500}, {"n_jobs": 2}):
        other = HiRef(**params, **how).fit_pair(*pair).permutation_
        np.testing.assert_array_equal(whole, other)


def test_seeds(pair):
    def fit(seed):
        return HiRef(base_size=8, init="random", random_state=seed).fit_pair(*pair).permutation_

    np.testing.assert_array_equal(fit(0), fit(0))
    assert not np.array_equal(fit(0), fit(1))
    default = HiRef(base_size=16)
    np.testing.assert_array_equal(
        default.fit_pair(*pair).permutation_, default.fit_pair(*pair).permutation_
    )


def test_order_of_the_rows_hardly_matters():
    X, Y, _ = make_linear_pair(500)
    order = np.random.RandomState(0).permutation(500)
    first, second = HiRef().fit_pair(X, Y), HiRef().fit_pair(X[order], Y)
    assert np.mean(first.permutation_[order] == second.permutation_) > 0.95


def test_pickle_keeps_the_lazy_search(fitted):
    new = np.random.RandomState(1).standard_normal((5, 2))
    expected = fitted.transform(new)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).transform(new), expected)
    assert not hasattr(clone(fitted), "permutation_")


# ---- scikit-learn ----------------------------------------------------------------------------


def test_pipeline(pair):
    X, y = stacked(*pair)
    mapped = make_pipeline(StandardScaler(), HiRef()).fit(X, y).transform(X)
    assert mapped.shape == X.shape


def test_grid_search(pair):
    X, y = stacked(*pair)
    search = GridSearchCV(
        HiRef(unequal="subsample", random_state=0),
        {"base_size": [8, 64]},
        cv=StratifiedKFold(2, shuffle=True, random_state=0),
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_score_ > -0.1


class _StopAfter:
    """Callback that stops after some steps of the refinement."""

    def __init__(self, n_steps):
        self.n_steps = n_steps

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.n_steps -= 1
        return self.n_steps == 0

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_callback_may_end_the_refinement(pair, n_steps):
    hiref = HiRef(base_size=8).set_callbacks(_StopAfter(n_steps)).fit_pair(*pair)
    assert hiref.n_iter_ == n_steps
    assert len(np.unique(hiref.labels_)) == 2**n_steps
    np.testing.assert_array_equal(np.sort(hiref.permutation_), np.arange(300))
    assert hiref.level_costs_[-1] == hiref.cost_
    labels = hiref.labels_[hiref.pairs()]
    np.testing.assert_array_equal(labels[:, 0], labels[:, 1])
