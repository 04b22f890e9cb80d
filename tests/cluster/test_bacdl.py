import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import svd
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, minmax_scale
from sklearn.utils._param_validation import InvalidParameterError

from skicml.cluster import BACDL, _bacdl, _bacdl_updates
from skicml.cluster._bacdl_init import initial_factors, match_partitions
from skicml.cluster._bacdl_scaling import BlockScaler
from skicml.cluster._bacdl_updates import Block, orthonormal_factor, sweep, update_memberships
from skicml.datasets import (
    load_multiple_features,
    make_multiview_blobs,
    make_synthetic3d,
    mask_views,
)
from skicml.metrics import clustering_accuracy_score

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

VIEWS = [3, 4, 2]


def _blobs(n_samples=120, rate=0.3, separation=4.0, seed=0, views=VIEWS, **kwargs):
    X, y = make_multiview_blobs(
        n_samples, views=views, separation=separation, random_state=seed, **kwargs
    )
    return mask_views(X, views, rate=rate, random_state=seed), y


def _imputed_kmeans(X, views, n_clusters, seed):
    """Baseline: min-max, column means for missing blocks, weight 1 / sqrt(width), k-means."""
    X = minmax_scale(X)
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    X = X / np.sqrt(np.repeat(views, views))
    return KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(X)


def _complement(block):
    """The default scaling, written once more."""
    low, high = np.nanmin(block, axis=0), np.nanmax(block, axis=0)
    unit = (block - low) / (high - low)
    return np.hstack([unit, 1 - unit]) / block.shape[1]


def _split(X, views=VIEWS):
    return np.split(X, np.cumsum(views)[:-1], axis=1)


def _scaled_views(X, views=VIEWS):
    """Scaled observed rows and their indices, from X alone."""
    for block in _split(X, views):
        rows = np.flatnonzero(~np.isnan(block).any(axis=1))
        yield _complement(block[rows]), rows


# --- the objective and its updates ------------------------------------------------------------


def _dense_objective(blocks, unknowns, alienation, beta):
    """J as the paper writes it, with torch, from dense matrices."""
    C, P, S, D, M, F, a, b, E = unknowns
    total = 0
    for view, block in enumerate(blocks):
        basis = torch.hstack([P[view] @ C, S[view]]) @ D
        X = torch.from_numpy(block.data.T)
        residual = X - basis @ M[view][block.rows].T
        total = total + a[view] ** 2 * (residual**2).sum()
        total = total + alienation * ((P[view] @ C) * S[view]).sum()
        total = total - beta * b[view] * torch.trace(E.T @ M[view] @ F[view])
    return total


def _unknowns(factors):
    def leaf(matrix):
        return torch.tensor(matrix, requires_grad=True)

    return (
        leaf(factors.shared),
        [leaf(matrix) for matrix in factors.guidance],
        [leaf(matrix) for matrix in factors.specific],
        leaf(factors.association),
        [leaf(matrix) for matrix in factors.memberships],
        [torch.tensor(matrix) for matrix in factors.rotations],
        torch.tensor(factors.view_weights),
        torch.tensor(factors.consensus_weights),
        torch.tensor(factors.embedding),
    )


@pytest.fixture
def problem():
    """Blocks and factors after two sweeps from a random start, alienation and beta."""
    X, _ = _blobs(60)
    blocks = [Block(data, rows) for data, rows in _scaled_views(X)]
    factors = initial_factors(blocks, 60, 3, "random", np.random.RandomState(0))
    alienation, beta = 0.7, 0.2
    for _ in range(2):
        sweep(factors, blocks, alienation, beta)
    return blocks, factors, alienation, beta


STEPS = {
    "memberships": lambda f, B, m, lam, beta: update_memberships(f, B, beta),
    "shared": lambda f, B, m, lam, beta: _bacdl_updates.update_shared(f, m, lam),
    "specific": lambda f, B, m, lam, beta: _bacdl_updates.update_specific(f, m, lam),
    "association": lambda f, B, m, lam, beta: _bacdl_updates.update_association(f, m),
    "guidance": lambda f, B, m, lam, beta: _bacdl_updates.update_guidance(f, m, lam),
}
POSITIONS = {"shared": 0, "guidance": 1, "specific": 2, "association": 3, "memberships": 4}


@pytest.mark.parametrize("name", STEPS)
def test_every_multiplicative_step_splits_the_gradient(problem, monkeypatch, name):
    # numerator and denominator must be nonnegative and differ by half the gradient of J
    blocks, factors, alienation, beta = problem
    unknowns = _unknowns(factors)
    _dense_objective(blocks, unknowns, alienation, beta).backward()
    wanted = unknowns[POSITIONS[name]]
    wanted = [leaf.grad.numpy() for leaf in (wanted if isinstance(wanted, list) else [wanted])]
    parts = []

    def spy(factor, numerator, denominator):
        parts.append((numerator, denominator))
        return factor

    monkeypatch.setattr(_bacdl_updates, "multiplicative_step", spy)
    moments = [_bacdl_updates.Moments.of(block, E) for block, E in zip(blocks, factors.memberships)]
    STEPS[name](factors, blocks, moments, alienation, beta)
    assert len(parts) == len(wanted)
    for (numerator, denominator), gradient in zip(parts, wanted):
        assert (numerator >= 0).all()
        assert (denominator >= 0).all()
        assert_allclose(2 * (denominator - numerator), gradient, atol=1e-12)


def test_the_association_carries_the_scale(problem):
    # the numerator of its step is linear in the data: no normalisation may undo that
    blocks, factors, _, _ = problem
    start, steps = factors.association, []
    for scale in (1, 100):
        scaled = [Block(scale * block.data, block.rows) for block in blocks]
        moments = [_bacdl_updates.Moments.of(b, E) for b, E in zip(scaled, factors.memberships)]
        factors.association = start
        _bacdl_updates.update_association(factors, moments)
        steps.append(factors.association)
    assert_allclose(steps[1], 10 * steps[0], rtol=1e-6)


def test_sweep_returns_the_objective(problem):
    blocks, factors, alienation, beta = problem
    value = sweep(factors, blocks, alienation, beta)
    dense = _dense_objective(blocks, _unknowns(factors), alienation, beta).item()
    assert value == pytest.approx(dense, rel=1e-10)


def test_sweep_takes_the_steps_in_the_order_of_the_paper(problem, monkeypatch):
    blocks, factors, alienation, beta = problem
    order = [
        "update_memberships",
        "update_shared",
        "update_specific",
        "update_association",
        "update_guidance",
        "update_embedding",
        "update_rotations",
        "inverse_weights",
        "unit_weights",
    ]
    taken = []
    for name in order:
        original = getattr(_bacdl_updates, name)
        monkeypatch.setattr(
            _bacdl_updates,
            name,
            lambda *args, name=name, original=original: (taken.append(name), original(*args))[1],
        )
    sweep(factors, blocks, alienation, beta)
    assert taken == order


def test_the_closed_form_steps_are_minimisers(problem):
    blocks, factors, alienation, beta = problem
    rng = np.random.RandomState(0)

    def value(**changes):
        for name, change in changes.items():
            setattr(factors, name, change)
        return _dense_objective(blocks, _unknowns(factors), alienation, beta).item()

    def random_orthonormal(rows):
        return np.linalg.qr(rng.normal(size=(rows, 3)))[0]

    _bacdl_updates.update_embedding(factors)
    best, E = value(), factors.embedding
    assert all(value(embedding=random_orthonormal(60)) > best for _ in range(20))
    factors.embedding = E
    _bacdl_updates.update_rotations(factors)
    best, F = value(), factors.rotations
    assert all(value(rotations=[random_orthonormal(3) for _ in F]) > best for _ in range(20))
    factors.rotations = F
    moments = [_bacdl_updates.Moments.of(block, E) for block, E in zip(blocks, factors.memberships)]
    residuals = _bacdl_updates.squared_residuals(factors, blocks, moments)
    factors.view_weights = _bacdl_updates.inverse_weights(residuals)
    best = value()
    assert all(value(view_weights=rng.dirichlet(np.ones(3))) > best for _ in range(20))
    factors.consensus_weights = _bacdl_updates.unit_weights(
        _bacdl_updates.consensus_alignments(factors)
    )
    best = value()
    for _ in range(20):
        b = np.abs(rng.normal(size=3))
        assert value(consensus_weights=b / np.linalg.norm(b)) > best


@pytest.mark.parametrize("rank", [3, 2])
def test_orthonormal_factor_is_the_polar_factor(rank):
    rng = np.random.RandomState(0)
    M = rng.normal(size=(50, rank)) @ rng.normal(size=(rank, 3))
    E, T = orthonormal_factor(M)
    assert_allclose(E.T @ E, np.eye(3), atol=1e-10)
    assert np.vdot(E, M) == pytest.approx(svd(M, compute_uv=False).sum())  # the largest possible
    U, _, Vt = svd(M, full_matrices=False)
    assert_allclose(M @ T, U[:, :rank] @ Vt[:rank], atol=1e-10)


def test_exact_reconstruction_keeps_the_weights_finite():
    residuals = np.array([1e-300, 1.0])
    assert_allclose(_bacdl_updates.inverse_weights(residuals), [1, 0], atol=1e-12)
    # the weight of a view that disagrees with the embedding is clipped, not negative
    assert_allclose(_bacdl_updates.unit_weights(np.array([-1.0, 3.0])), [0, 1], atol=1e-11)


# --- scaling and start ------------------------------------------------------------------------


def test_complement_is_a_distribution_over_twice_the_features():
    block = np.random.RandomState(0).normal(size=(20, 4))
    scaled = BlockScaler.learn(block, "complement").transform(block)
    assert_allclose(scaled, _complement(block))
    assert_allclose(scaled.sum(axis=1), 1)


def test_softmax_scales_as_the_paper():
    block = np.random.RandomState(0).normal(3, 2, size=(20, 4))
    scaled = BlockScaler.learn(block, "softmax").transform(block)
    powers = np.exp((block - block.mean(axis=0)) / block.std(axis=0))
    assert_allclose(scaled, powers / powers.sum(axis=1, keepdims=True))


def test_l1_rows_sum_to_one():
    block = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 6.0]])
    scaled = BlockScaler.learn(block, "l1").transform(block)
    assert_allclose(scaled, [[0.5, 0.5], [1, 0], [0.5, 0.5]])


@pytest.mark.parametrize("kind", ["complement", "softmax", "l1"])
def test_constant_features_are_harmless(kind):
    block = np.full((5, 3), 0.1)
    block[:, 0] = np.arange(5)
    scaler = BlockScaler.learn(block, kind)
    assert_array_equal(scaler.scale[1:], 1)
    assert np.isfinite(scaler.transform(block)).all()


@pytest.mark.parametrize("kind", ["complement", "softmax", "l1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_features_of_many_rows_are_constant(kind, dtype):
    # the rounding error of a mean over many rows is no spread
    block = np.full((300_000, 2), 0.1, dtype=dtype)
    scaler = BlockScaler.learn(block, kind)
    assert_array_equal(scaler.scale, 1)
    assert_allclose(scaler.offset, 0.1, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e25])
def test_softmax_of_float32_is_that_of_float64(factor):
    block = np.random.RandomState(0).normal(100, 0.5, size=(200_000, 3)) * factor
    double = BlockScaler.learn(block, "softmax").transform(block[:100])
    single = block.astype(np.float32)
    single = BlockScaler.learn(single, "softmax").transform(single[:100])
    assert single.dtype == np.float32
    assert_allclose(single, double, rtol=1e-3)


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


def test_match_partitions_undoes_permutations():
    rng = np.random.RandomState(0)
    clusters = rng.randint(4, size=200)
    partitions = []
    for _ in range(4):
        partition = np.eye(4)[rng.permutation(4)[clusters]]
        partition[rng.uniform(size=200) < 0.6] = 0  # rows that the view lacks
        partitions.append(partition)
    matched = match_partitions(partitions)
    assert sum(matched).astype(bool).sum(axis=1).max() == 1  # no row is in two clusters


def test_match_partitions_of_views_without_common_rows():
    left, right = np.zeros((4, 2)), np.zeros((4, 2))
    left[:2], right[2:] = np.eye(2), np.eye(2)
    assert_array_equal(np.sum(match_partitions([left, right]), axis=0).sum(axis=1), 1)


@pytest.mark.parametrize("init", ["kmeans", "random"])
def test_the_start_is_strictly_positive(init):
    X = np.hstack([np.repeat([[0.0], [1.0], [2.0]], 10, axis=0), np.zeros((30, 1))])
    blocks = [Block(_complement(X[:, :1]), slice(None)), Block(np.eye(30, 5), slice(None))]
    factors = initial_factors(blocks, 30, 3, init, np.random.RandomState(0))
    for matrix in [
        factors.shared, factors.association,
        *factors.guidance, *factors.specific, *factors.memberships,
    ]:  # fmt: skip
        assert matrix.min() > 0
    assert_allclose(factors.association.sum(axis=0), 1)


# --- what fit promises ------------------------------------------------------------------------


@pytest.mark.parametrize("init", ["kmeans", "random"])
@pytest.mark.parametrize("normalize", ["complement", "softmax", "l1"])
def test_constraints_hold_after_fit(init, normalize):
    X, _ = _blobs()
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
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, alienation=0.5, consensus=2.0, random_state=0).fit(X)
    beta = 2.0 / np.sqrt(3 * 120 * 3)
    residuals, overlap, pull = [], 0.0, np.zeros((120, 3))
    for r, (data, rows) in enumerate(_scaled_views(X)):
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
    X, _ = _blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    for r, block in enumerate(_split(X)):
        missing = np.isnan(block).any(axis=1)
        wanted = bacdl.embedding_[missing] @ bacdl.rotations_[r].T
        given = bacdl.memberships_[r][missing]
        assert (wanted.argmax(axis=1) == given.argmax(axis=1)).mean() >= 0.98
        assert np.median(given.max(axis=1)) > 0.9  # decided, not even


def test_without_consensus_rows_without_a_view_stay_even():
    X, _ = _blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, consensus=0, random_state=0).fit(X)
    for memberships, block in zip(bacdl.memberships_, _split(X)):
        assert_allclose(memberships[np.isnan(block).any(axis=1)], 1 / 3)


def test_alienation_separates_the_feature_clusters():
    X, _ = _blobs()

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


# --- clustering -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_separated_blobs_are_found(seed):
    X, y = _blobs(200, rate=0, separation=10, seed=seed, centers=4, views=[5, 6, 4])
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
    X, y = _blobs(400, seed=seed, centers=4, separation=3, views=views, noise_views=[3])
    labels = BACDL(4, views=views, random_state=seed).fit_predict(X)
    assert adjusted_rand_score(y, labels) >= 0.8


def test_order_of_columns_and_rows_does_not_matter():
    X, _ = _blobs(300)
    labels = BACDL(3, views=VIEWS, random_state=0).fit_predict(X)
    rng = np.random.RandomState(0)
    columns = np.r_[rng.permutation(3), np.arange(3, 9)]
    other = BACDL(3, views=VIEWS, random_state=0).fit_predict(X[:, columns])
    assert adjusted_rand_score(labels, other) >= 0.9
    rows = rng.permutation(300)
    other = BACDL(3, views=VIEWS, random_state=0).fit_predict(X[rows])
    assert adjusted_rand_score(labels[rows], other) >= 0.9


def test_views_by_index_leave_other_columns_out():
    X, _ = _blobs()
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
    X, _ = _blobs(rate=0.5)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)

    def distance():
        difference = bacdl.transform(X) - bacdl.embedding_
        return np.linalg.norm(difference) / np.linalg.norm(bacdl.embedding_)

    with_consensus = distance()
    assert with_consensus < 0.3  # the same space, so the same scale
    bacdl._beta = 0.0
    assert distance() > 2 * with_consensus


def test_rows_are_embedded_independently(monkeypatch):
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    embedding = bacdl.transform(X)
    assert embedding.shape == (120, 3)
    assert_allclose(np.vstack([bacdl.transform(X[i : i + 1]) for i in range(20)]), embedding[:20])
    monkeypatch.setattr(_bacdl, "_ROWS_AT_ONCE", 7)
    assert_allclose(bacdl.transform(X), embedding)


def test_a_row_with_a_single_view_is_enough():
    X, y = _blobs(200, rate=0, separation=8, views=[5, 6, 4])
    bacdl = BACDL(3, views=[5, 6, 4], random_state=0).fit(X)
    for view in range(3):
        kept = np.full_like(X, np.nan)
        columns = bacdl.views_[view]
        kept[:, columns] = X[:, columns]
        assert adjusted_rand_score(y, bacdl.predict(kept)) > 0.95


def test_scaling_is_learnt_in_fit_and_clips_new_values():
    X, _ = _blobs(rate=0)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    # one row alone has no range of its own: its embedding must still be that of the table
    assert_allclose(bacdl.transform(X[:1]), bacdl.transform(X)[:1])
    beyond = X + 100 * (X.max(axis=0) == X)
    assert_allclose(bacdl.transform(beyond), bacdl.transform(X))


def test_fit_predict_gives_the_labels_of_fit():
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0)
    assert_array_equal(bacdl.fit_predict(X), bacdl.labels_)
    nearest = ((bacdl.embedding_[:, None] - bacdl.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    assert_array_equal(nearest, bacdl.labels_)


def test_folded_components():
    X, _ = _blobs()
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
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    X[[4, 9]] = np.nan
    for method in (BACDL(3, views=VIEWS).fit, bacdl.predict, bacdl.transform):
        with pytest.raises(ValueError, match="2 samples have every view missing"):
            method(X)


def test_refuses_a_block_that_is_missing_in_part():
    X, _ = _blobs(rate=0)
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    X[5, 4] = np.nan
    for method in (BACDL(3, views=VIEWS).fit, bacdl.predict):
        with pytest.raises(ValueError, match=r"partially missing block.*Imputer"):
            method(X)


def test_refuses_infinity():
    X, _ = _blobs()
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
        BACDL(3, views=views).fit(_blobs()[0])


def test_refuses_more_clusters_than_rows():
    X, _ = _blobs(rate=0)
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
        BACDL(**params).fit(_blobs()[0])


def test_an_error_leaves_nothing_behind():
    X, _ = _blobs()
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
    X, _ = _blobs()
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
    X, _ = _blobs()
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

    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    before, objective = bacdl.transform(X), bacdl.objective_
    bacdl.set_params(views=[3, 4]).set_callbacks(Interrupt())
    with pytest.raises(KeyboardInterrupt):
        bacdl.fit(X[np.isfinite(X[:, :7]).any(axis=1), :7])
    assert bacdl.objective_ is objective
    assert_array_equal(bacdl.transform(X), before)


def test_float32_stays():
    X, _ = _blobs()
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
    X, _ = _blobs()
    for seed in (0, np.random.RandomState(3)):
        bacdl = BACDL(3, views=VIEWS, random_state=seed)
        first, second = (clone(bacdl).fit(X) for _ in range(2))
        assert_array_equal(first.embedding_, second.embedding_)
    other = BACDL(3, views=VIEWS, random_state=1).fit(X)
    assert not np.array_equal(first.embedding_, other.embedding_)


def test_pickle_with_missing_views():
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    assert_array_equal(pickle.loads(pickle.dumps(bacdl)).transform(X), bacdl.transform(X))


def test_pipeline_with_views_of_a_column_transformer():
    pd = pytest.importorskip("pandas")
    X, y = _blobs(separation=8)
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
    X, y = _blobs(200, separation=6, views=[5, 6, 4])
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
    X, _ = _blobs()
    bacdl = BACDL(3, views=VIEWS, random_state=0).fit(X)
    assert list(bacdl.get_feature_names_out()) == ["bacdl0", "bacdl1", "bacdl2"]
