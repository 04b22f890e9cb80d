"""The parts of HiRef: low-rank transport, projections, schedules, blocks."""

from itertools import product
from math import ceil, prod

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from skicml.transport import HiRef, low_rank_transport
from skicml.transport._hiref_base import match_exactly
from skicml.transport._hiref_costs import DenseCost, FactoredCost, block_costs, dense_costs
from skicml.transport._hiref_parts import harden, project_to_share, project_to_shares
from skicml.transport._hiref_schedule import capacities, paper_schedule, resolve_schedule
from tests.transport._hiref_data import best_cost, centred_cost, make_pair


def coupling_cost(factors, costs):
    Q, R, g = factors
    return np.sum(costs * ((Q / g) @ R.T))


# ---- Low-rank transport ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["moon to S", "gaussian", "gaussian 10"])
@pytest.mark.parametrize("rank", [2, 5, 10])
def test_cost_beside_that_of_pot(name, rank):
    ot = pytest.importorskip("ot")
    X, Y = make_pair(name, 150)
    Y = Y[:100]
    costs = cdist(X, Y, "sqeuclidean")
    theirs = coupling_cost(ot.lowrank_sinkhorn(X, Y, rank=rank, warn=False), costs)
    assert coupling_cost(low_rank_transport(X, Y, rank, random_state=0), costs) <= 1.02 * theirs


@pytest.mark.parametrize(
    "params", [{}, {"init": "random"}, {"latent": True}, {"cost": "euclidean"}]
)
@pytest.mark.parametrize("rank", [1, 2, 4])
def test_factors_have_their_marginals(params, rank):
    X, Y = make_pair("gaussian", 200)
    Q, R, g = low_rank_transport(X, Y[:150], rank, random_state=0, **params)
    assert Q.shape == (200, rank)
    assert R.shape == (150, rank)
    np.testing.assert_allclose(Q.sum(axis=1), 1 / 200, rtol=1e-6)
    np.testing.assert_allclose(R.sum(axis=1), 1 / 150, rtol=1e-6)
    np.testing.assert_allclose(Q.sum(axis=0), g, rtol=2e-4)
    np.testing.assert_allclose(R.sum(axis=0), g, rtol=2e-4)
    assert Q.min() >= 0
    assert R.min() >= 0


@pytest.mark.parametrize("params", [{}, {"init": "random"}, {"latent": True}])
def test_crossing_clusters_are_matched_by_the_cost(params):
    """Four clusters that move across each other: parts are the clusters and their images."""
    rng = np.random.RandomState(0)
    centres = np.array([[0, 0], [10, 0], [0, 6], [10, 6]])
    which = np.repeat(np.arange(4), 50)
    X = centres[which] + 0.3 * rng.standard_normal((200, 2))
    Y = (centres @ [[0.5, 0], [0, 3]])[which] + 0.3 * rng.standard_normal((200, 2))
    Q, R, _ = low_rank_transport(X, Y, 4, random_state=0, **params)
    part = Q.argmax(axis=1)[::50]
    assert sorted(part) == [0, 1, 2, 3]
    np.testing.assert_array_equal(Q.argmax(axis=1), part[which])
    np.testing.assert_array_equal(R.argmax(axis=1), part[which])


def test_costs_of_a_callable_and_of_its_name_agree():
    X, Y = make_pair("gaussian", 100)
    by_name = low_rank_transport(X, Y, 3, cost="euclidean", random_state=0)
    by_function = low_rank_transport(X, Y, 3, cost=cdist, random_state=0)
    np.testing.assert_allclose(by_name[0], by_function[0])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("rank", [2, 4])
def test_the_unit_of_length_does_not_matter(rank, dtype):
    X, Y = make_pair("gaussian", 100)
    expected = low_rank_transport(X, Y, rank, random_state=0)
    costs = cdist(X, Y, "sqeuclidean")
    for scale in (1e-20, 1e25):  # squares of these leave the range of float32
        A, B = (scale * X).astype(dtype), (scale * Y).astype(dtype)
        found = low_rank_transport(A, B, rank, random_state=0)
        assert coupling_cost(found, costs) == pytest.approx(
            coupling_cost(expected, costs), rel=1e-3
        )
    with pytest.raises(ValueError, match="1e\\+100"):
        low_rank_transport(1e101 * X, Y, rank)


def test_bad_ranks_and_shapes():
    X, Y = make_pair("gaussian", 20)
    with pytest.raises(ValueError, match="rank=21 must be at most"):
        low_rank_transport(X, Y, 21)
    with pytest.raises(ValueError, match="'rank'"):
        low_rank_transport(X, Y, 0)
    with pytest.raises(ValueError, match="same number of columns"):
        low_rank_transport(X, Y[:, :1], 2)


def test_too_few_projection_steps_spoil_the_matching():
    """Parts whose sizes are off overflow into the wrong neighbours."""
    X, Y = make_pair("line", 4096)
    params = {"rank_schedule": "paper", "init": "random", "random_state": 0}
    enough = HiRef(**params, inner_max_iter=100, inner_tol=1e-3).fit_pair(X, Y)
    too_few = HiRef(**params, inner_max_iter=1).fit_pair(X, Y)
    loose = HiRef(**params, inner_tol=0.9).fit_pair(X, Y)
    best = best_cost(X, Y)
    assert centred_cost(X, Y, enough.permutation_) <= 1.01 * best
    assert centred_cost(X, Y, too_few.permutation_) > 1.05 * best
    assert centred_cost(X, Y, loose.permutation_) > centred_cost(X, Y, enough.permutation_)
    binary = HiRef().fit_pair(X, Y)
    assert centred_cost(X, Y, binary.permutation_) <= (1 + 1e-5) * best


# ---- Projections -----------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("share", [0.5, 0.505, 2 / 3])
def test_projection_of_two_parts_is_exact(spread, share):
    logits = spread * np.random.RandomState(0).standard_normal((5, 999)) + 7
    p, bias = project_to_share(logits, np.full(5, 40.0), share)
    np.testing.assert_allclose(p.mean(axis=1), share, rtol=2e-4)
    np.testing.assert_allclose(p, 1 / (1 + np.exp(-(logits + bias[:, None]))), atol=1e-12)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0, 300.0])
def test_projection_of_several_parts(spread):
    rng = np.random.RandomState(0)
    logits = spread * rng.standard_normal((4, 6, 500))
    shares, weights = rng.dirichlet(np.full(6, 5)), rng.dirichlet(np.full(500, 5))
    P, shifted = project_to_shares(logits, shares, weights, 200, 1e-6)
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_allclose(P @ weights, np.tile(shares, (4, 1)), rtol=1e-5)
    # the shift is one of the parts, the same for all points
    change = shifted - logits
    np.testing.assert_allclose(change - change[:, :, :1], 0, atol=1e-9)


def test_hardening_keeps_the_sizes_and_the_clear_choices():
    rng = np.random.RandomState(0)
    sizes = capacities(11, 3)
    clear = np.repeat(np.arange(3), sizes)
    shuffled = np.array([rng.permutation(clear) for _ in range(4)])
    P = np.stack([shuffled == part for part in range(3)], axis=1) * 0.8 + 0.1
    order = harden(P, sizes)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(11), (4, 1)))
    np.testing.assert_array_equal(
        np.take_along_axis(shuffled, order, axis=1), np.tile(clear, (4, 1))
    )


# ---- Costs -----------------------------------------------------------------------------------


def double_centred(C):
    return C - C.mean(axis=0) - C.mean(axis=1, keepdims=True) + C.mean()


def test_factored_and_dense_costs_are_the_double_centred_matrix():
    X, Y = make_pair("gaussian 3", 60)
    Y = Y[:40]
    rng = np.random.RandomState(0)
    R, Q = rng.uniform(size=(1, 2, 40)), rng.uniform(size=(1, 2, 60))
    for cost in ("sqeuclidean", "euclidean"):
        expected = double_centred(cdist(X, Y, cost))
        costs = block_costs(X[None].copy(), Y[None].copy(), cost, 64, [0])
        assert isinstance(costs, FactoredCost if cost == "sqeuclidean" else DenseCost)
        np.testing.assert_allclose(costs.rows(R)[0], R[0] @ expected.T, atol=1e-10)
        np.testing.assert_allclose(costs.columns(Q)[0], Q[0] @ expected, atol=1e-10)


@pytest.mark.parametrize(("name", "limit"), [("rings", 0.01), ("gaussian", 0.08)])
def test_landmarks_approximate_large_blocks(name, limit):
    X, Y = make_pair(name, 2100)
    expected = double_centred(cdist(X, Y))
    for seed in range(3):
        costs = block_costs(X[None], Y[None], "euclidean", 64, [seed])
        found = costs.left[0] @ costs.right[0].T
        assert np.linalg.norm(found - expected) < limit * np.linalg.norm(expected)


def test_euclidean_cost_above_the_size_of_dense_blocks():
    X, Y = make_pair("gaussian", 3000)
    costs = cdist(X, Y)
    import ot

    best = ot.emd2(ot.unif(3000), ot.unif(3000), costs, numItermax=10**7)
    assert HiRef("euclidean", random_state=0).fit_pair(X, Y).cost_ <= 1.05 * best


def test_base_solvers_agree():
    X, Y = make_pair("gaussian", 150)
    order_x, order_y = match_exactly(X[None].copy(), Y[None].copy(), "euclidean")
    found = dense_costs(X[None], Y[None], "euclidean")[0][order_x[0], order_y[0]].mean()
    assert HiRef("euclidean", base_size=150).fit_pair(X, Y).cost_ == pytest.approx(found)


# ---- Schedules -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_leaves", "max_rank", "ranks"),
    [(16, 16, [16]), (200, 200, [200]), (350, 64, [7, 50])],  # as the paper's code chooses
)
def test_schedules_of_the_paper(n_leaves, max_rank, ranks):
    assert paper_schedule(n_leaves, max_rank) == ranks


@pytest.mark.parametrize("n_leaves", [1, 2, 5, 7, 12, 30, 47])
def test_schedule_has_the_fewest_co_clusters(n_leaves):
    def total(ranks):
        return sum(prod(ranks[: i + 1]) for i in range(len(ranks)))

    choices = [
        ranks
        for depth in range(5)
        for ranks in product(range(2, 6), repeat=depth)
        if prod(ranks) >= n_leaves
    ]
    found = paper_schedule(n_leaves, 5)
    assert prod(found) >= n_leaves
    assert found == sorted(found)
    assert total(found) <= min(map(total, choices))


@pytest.mark.parametrize("schedule", ["binary", "paper"])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 4099, 100_003])
def test_schedules_reach_the_base_size(schedule, n):
    ranks = resolve_schedule(schedule, n, 64, 16)
    assert ceil(n / prod(ranks)) <= 64
    assert all(2 <= rank <= 16 for rank in ranks)
    if n <= 64:
        assert ranks == []


def test_capacities():
    np.testing.assert_array_equal(capacities(7, 3), [3, 2, 2])
    np.testing.assert_array_equal(capacities(6, 3), [2, 2, 2])
    np.testing.assert_array_equal(capacities(2, 5), [1, 1])
