"""The parts that BACDL is made of: update steps, scaling, start."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import svd

from skicml.cluster import _bacdl_updates
from skicml.cluster._bacdl_init import initial_factors, match_partitions
from skicml.cluster._bacdl_scaling import BlockScaler
from skicml.cluster._bacdl_updates import Block, orthonormal_factor, sweep, update_memberships
from tests.cluster._bacdl_data import blobs, complement, scaled_views

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
    X, _ = blobs(60)
    blocks = [Block(data, rows) for data, rows in scaled_views(X)]
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
    assert_allclose(scaled, complement(block))
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
    blocks = [Block(complement(X[:, :1]), slice(None)), Block(np.eye(30, 5), slice(None))]
    factors = initial_factors(blocks, 30, 3, init, np.random.RandomState(0))
    for matrix in [
        factors.shared, factors.association,
        *factors.guidance, *factors.specific, *factors.memberships,
    ]:  # fmt: skip
        assert matrix.min() > 0
    assert_allclose(factors.association.sum(axis=0), 1)
