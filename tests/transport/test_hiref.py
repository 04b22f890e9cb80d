"""HiRef: bijections close to the optimum, against exact and mini-batch transport."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from skicml.transport import HiRef
from tests.transport._hiref_data import (
    PLANE,
    batched_cost,
    best_cost,
    centred_cost,
    make_linear_pair,
    make_pair,
)


def is_bijection(permutation, n):
    return np.array_equal(np.sort(permutation), np.arange(n))


# ---- Close to the optimum --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n", "limit"),
    [
        ("moon to S", 2048, 1.015),
        ("rings", 2048, 1.025),
        ("gaussian", 2048, 1.02),
        ("gaussian 10", 2048, 1.25),
        ("gaussian 50", 2048, 1.16),
        ("line", 8192, 1.001),
    ],
)
def test_cost_is_close_to_that_of_exact_transport(name, n, limit):
    for seed in range(3):
        X, Y = make_pair(name, n, seed)
        permutation = HiRef().fit_pair(X, Y).permutation_
        assert centred_cost(X, Y, permutation) <= limit * best_cost(X, Y)
        assert centred_cost(X, Y, permutation) < batched_cost(X, Y, 128, seed)


@pytest.mark.parametrize(("name", "limit"), [(PLANE[0], 1.004), ("gaussian 10", 1.12)])
def test_sweeps_come_closer(name, limit):
    X, Y = make_pair(name, 2048)
    rough = HiRef().fit_pair(X, Y)
    fine = HiRef(n_refine_sweeps=10, random_state=0).fit_pair(X, Y)
    assert centred_cost(X, Y, fine.permutation_) <= limit * best_cost(X, Y)
    assert fine.cost_ < rough.cost_
    assert is_bijection(fine.permutation_, 2048)


def test_sweeps_are_exact_after_any_base_solver():
    X, Y = make_pair("gaussian", 500)
    params = {"base_solver": "lowrank", "base_size": 16, "n_refine_sweeps": 5}
    for seed in range(3):
        costs = HiRef(**params, random_state=seed).fit_pair(X, Y).level_costs_[-6:]
        assert (np.diff(costs) <= 1e-6 * costs[0]).all()
        assert costs[-1] < 0.999 * costs[0]


def test_a_linear_map_is_recovered_for_a_prime_number_of_points():
    X, Y, truth = make_linear_pair(4099)
    permutation = HiRef().fit_pair(X, Y).permutation_
    assert np.mean(permutation == truth) >= 0.95
    assert centred_cost(X, Y, permutation) <= 1.002 * centred_cost(X, Y, truth)


def test_the_two_samples_are_not_split_separately():
    """Median cuts of either sample alone, matched by position, miss an anisotropic map."""
    X, Y, truth = make_linear_pair(2048)

    def by_median_cuts(points, rows):
        if len(rows) == 1:
            return rows
        rows = rows[np.argsort(points[rows][:, np.argmax(points[rows].std(axis=0))])]
        half = len(rows) // 2
        return np.concatenate([by_median_cuts(points, part) for part in (rows[:half], rows[half:])])

    separate = np.empty(2048, dtype=int)
    separate[by_median_cuts(X, np.arange(2048))] = by_median_cuts(Y, np.arange(2048))
    assert centred_cost(X, Y, separate) > 1.5 * centred_cost(X, Y, truth)
    permutation = HiRef().fit_pair(X, Y).permutation_
    assert centred_cost(X, Y, permutation) <= 1.002 * centred_cost(X, Y, truth)


@pytest.mark.parametrize("schedule", ["binary", "paper", [7, 5]])
def test_a_shift_is_recovered_exactly(schedule):
    rng = np.random.RandomState(0)
    X, truth = rng.standard_normal((2000, 3)), rng.permutation(2000)
    Y = np.empty_like(X)
    Y[truth] = X + 100
    hiref = HiRef(rank_schedule=schedule).fit_pair(X, Y)
    np.testing.assert_array_equal(hiref.permutation_, truth)
    assert hiref.wasserstein_ == pytest.approx(100 * np.sqrt(3))


@pytest.mark.parametrize(
    "params",
    [
        {"rank_schedule": "paper"},
        {"rank_schedule": [16, 2]},
        {"init": "random"},
        {"latent": True, "rank_schedule": [4, 4, 2]},
        {"base_solver": "lowrank", "base_size": 8, "rank_schedule": "paper"},
        {"base_size": 300},
        {"dtype": "float64"},
        {"cost": "euclidean"},
        {"cost": lambda X, Y: cdist(X, Y, "sqeuclidean")},
    ],
    ids="-".join,
)
def test_every_mode_is_near_the_optimum(params):
    X, Y = make_pair("gaussian", 1000)
    metric = "euclidean" if params.get("cost") == "euclidean" else "sqeuclidean"
    costs = cdist(X, Y, metric)
    best = costs[linear_sum_assignment(costs)].mean()
    hiref = HiRef(random_state=0, **params).fit_pair(X, Y)
    assert is_bijection(hiref.permutation_, 1000)
    assert hiref.cost_ == pytest.approx(costs[np.arange(1000), hiref.permutation_].mean())
    assert best * (1 - 1e-6) <= hiref.cost_ <= 1.1 * best


def test_one_base_block_is_solved_exactly():
    for size in (60, 200):  # by scipy, and by POT
        X, Y = make_pair("gaussian 3", size)
        costs = cdist(X, Y, "sqeuclidean")
        best = costs[linear_sum_assignment(costs)].mean()
        assert HiRef(base_size=size).fit_pair(X, Y).cost_ == pytest.approx(best, rel=1e-5)


# ---- Always a bijection ----------------------------------------------------------------------


@pytest.mark.parametrize("base_size", [64, 1024])
def test_scipy_gets_small_assignment_problems_only(monkeypatch, base_size):
    """scipy's solver needs seconds for a structured problem of some hundred points."""
    sizes = []

    def recorded(costs):
        sizes.append(len(costs))
        return linear_sum_assignment(costs)

    monkeypatch.setattr("skicml.transport._hiref_base.linear_sum_assignment", recorded)
    X, Y = make_pair("rings", 1500)
    hiref = HiRef(base_size=base_size, random_state=0).fit_pair(X, Y)
    assert is_bijection(hiref.permutation_, 1500)
    assert bool(sizes) == (base_size == 64)
    assert max(sizes, default=0) < 512


@pytest.mark.parametrize("n", [1, 2, 3, 7, 64, 65, 129, 1000, 4099, 10007])
@pytest.mark.parametrize("schedule", ["binary", "paper"])
def test_any_number_of_points(n, schedule):
    X, Y = make_pair("gaussian", n)
    hiref = HiRef(rank_schedule=schedule, max_iter=5, base_size=20).fit_pair(X, Y)
    assert is_bijection(hiref.permutation_, n)
    assert hiref.coupling().nnz == n
    np.testing.assert_allclose(hiref.coupling().sum(axis=1), 1 / n)
    np.testing.assert_allclose(hiref.coupling().sum(axis=0), 1 / n)


@pytest.mark.parametrize("schedule", ["binary", "paper"])
@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean"])
def test_equal_points_and_duplicates(schedule, cost):
    rng = np.random.RandomState(0)
    for X in (np.ones((300, 2)), rng.randint(3, size=(300, 2)).astype(float)):
        hiref = HiRef(cost, rank_schedule=schedule, base_size=10).fit_pair(X, X[::-1])
        assert is_bijection(hiref.permutation_, 300)
        assert hiref.cost_ == pytest.approx(0, abs=0.05)
    one_sided = HiRef(cost, rank_schedule=schedule, base_size=10).fit_pair(np.ones((300, 2)), X)
    assert is_bijection(one_sided.permutation_, 300)


def test_one_feature_and_extreme_scales():
    X, Y = make_pair("line", 500)
    for scale in (1e-9, 1.0, 1e9):
        hiref = HiRef().fit_pair(scale * X, scale * Y)
        assert centred_cost(X, Y, hiref.permutation_) == pytest.approx(best_cost(X, Y), rel=1e-3)


# ---- Costs of the levels ---------------------------------------------------------------------


@pytest.mark.parametrize("cost", ["sqeuclidean", "euclidean"])
def test_level_costs_fall_and_end_at_the_cost(cost):
    X, Y = make_pair("rings", 700)
    Y = Y + 3
    hiref = HiRef(cost, base_size=16, n_refine_sweeps=2, random_state=0).fit_pair(X, Y)
    assert len(hiref.level_costs_) == len(hiref.rank_schedule_) + 4
    assert hiref.level_costs_[0] == pytest.approx(cdist(X, Y, cost).mean(), rel=1e-6)
    assert (np.diff(hiref.level_costs_) <= 1e-6 * hiref.cost_).all()
    assert hiref.level_costs_[-1] == hiref.cost_


def test_level_costs_are_those_of_the_block_coupling():
    X, Y = make_pair("rings", 333)
    Y = Y + 3
    costs = cdist(X, Y, "sqeuclidean")
    for level in range(5):
        hiref = HiRef(base_size=16, label_level=level).fit_pair(X, Y)
        x, y = hiref.labels_[:333], hiref.labels_[333:]
        expected = sum(
            costs[np.ix_(x == b, y == b)].mean() * np.sum(x == b) for b in range(2**level)
        )
        assert hiref.level_costs_[level] == pytest.approx(expected / 333, rel=1e-5)


def test_level_costs_are_left_out_where_they_take_too_long():
    X, Y = make_pair("gaussian", 10_001)
    hiref = HiRef("euclidean", max_iter=1, base_size=8).fit_pair(X, Y)
    assert hiref.level_costs_ is None
    assert hiref.cost_ == pytest.approx(hiref.wasserstein_)


# ---- Large, far from the origin, in bounded memory -------------------------------------------


def test_samples_far_from_the_origin():
    """float32 inside: a common offset of 1e4 must not cost digits."""
    X, Y = make_pair("gaussian", 3000)
    for cost in ("sqeuclidean", "euclidean"):
        near = HiRef(cost).fit_pair(X, Y).cost_
        assert HiRef(cost).fit_pair(X + 1e4, Y + 1e4).cost_ == pytest.approx(near, rel=1e-3)


_MEMORY = """
import resource
import numpy as np
from skicml.transport import HiRef

rng = np.random.RandomState(0)
X, Y = rng.standard_normal(({n}, 2)), 1 + rng.standard_normal(({n}, 2))
HiRef(n_refine_sweeps=1, random_state=0).fit_pair(X[:500], Y[:500])
with open("/proc/self/statm") as statm:
    now = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 3 * 2**29,) * 2)
hiref = HiRef({cost!r}, max_iter={max_iter}, n_refine_sweeps={sweeps}).fit_pair(X, Y)
hiref.transform(X[:1000] + 0.1)
hiref.score(np.vstack([X, Y]), np.repeat([0, 1], {n}))
hiref.coupling()
try:
    np.ones((30_000, 30_000), dtype=np.float32)
except MemoryError:
    print("a matrix of all pairs would not fit")
"""


@pytest.mark.parametrize(
    ("cost", "n", "max_iter", "sweeps"),
    [("sqeuclidean", 100_000, 5, 1), ("euclidean", 40_000, 1, 0)],
)
def test_memory_does_not_grow_with_the_number_of_pairs_squared(cost, n, max_iter, sweeps):
    code = _MEMORY.format(cost=cost, n=n, max_iter=max_iter, sweeps=sweeps)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "would not fit" in result.stdout


# ---- Domain adaptation -----------------------------------------------------------------------


@pytest.mark.parametrize(("degrees", "least"), [(50, 0.75), (40, 0.84)])
def test_a_classifier_follows_the_transport(degrees, least):
    ot_da = pytest.importorskip("ot.da")
    X, y = make_moons(2000, noise=0.1, random_state=0)
    X = X - X.mean(axis=0)
    source, labels, target, target_labels = X[:1000], y[:1000], X[1000:], y[1000:]
    angle = np.deg2rad(degrees)
    target = target @ np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])

    def accuracy(moved):
        return SVC().fit(moved, labels).score(target, target_labels)

    hiref = HiRef().fit_pair(source, target)
    exact = ot_da.EMDTransport().fit(Xs=source, Xt=target)
    ours, best = accuracy(hiref.transform(source)), accuracy(exact.transform(Xs=source))
    assert ours >= least
    assert ours >= best - 0.03
    assert ours > accuracy(source) + 0.05
