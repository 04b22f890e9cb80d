"""Pairs of samples for the tests of HiRef, and what the best matching costs."""

import numpy as np

PLANE = ("moon to S", "rings", "gaussian")


def _half_moon(n, rng):
    t = rng.uniform(0, np.pi, n)
    return np.c_[np.cos(t), np.sin(t)] + 0.05 * rng.standard_normal((n, 2))


def _s_curve(n, rng):
    t = 3 * np.pi * (rng.uniform(size=n) - 0.5)
    return np.c_[np.sin(t), np.sign(t) * (np.cos(t) - 1)] + 0.05 * rng.standard_normal((n, 2))


def _rings(n, rng, radii):
    radius = rng.choice(radii, n) + 0.05 * rng.standard_normal(n)
    t = rng.uniform(0, 2 * np.pi, n)
    return radius[:, None] * np.c_[np.cos(t), np.sin(t)]


def make_pair(name, n, seed=0):
    """Source and target of one of several shapes; "gaussian 10" has 10 features."""
    rng = np.random.RandomState(seed)
    if name == "moon to S":
        return _half_moon(n, rng), _s_curve(n, rng)
    if name == "rings":
        return _rings(n, rng, [1.0]), _rings(n, rng, [0.5, 2.0])
    if name == "line":
        return rng.standard_normal((n, 1)), rng.gamma(2, size=(n, 1))
    d = int(name.removeprefix("gaussian") or 2)
    scales = np.linspace(0.5, 1.5, d)
    return rng.standard_normal((n, d)), 1 + scales * rng.standard_normal((n, d))


def make_linear_pair(n, seed=0):
    """Y is A X in another order, A symmetric positive definite: the order is the best one.

    Returns X, Y and for each row of X its row in Y.
    """
    rng = np.random.RandomState(seed)
    X = rng.standard_normal((n, 3))
    B = rng.standard_normal((3, 3))
    truth = rng.permutation(n)
    Y = np.empty_like(X)
    Y[truth] = X @ (B @ B.T / 3 + 0.3 * np.eye(3))
    return X, Y, truth


def centred_cost(X, Y, permutation):
    """Mean squared distance of the pairs after both samples were centred."""
    return np.mean(np.sum((X - X.mean(0) - (Y - Y.mean(0))[permutation]) ** 2, axis=1))


def best_cost(X, Y):
    """The least centred cost, by the network simplex (or by sorting, on a line)."""
    if X.shape[1] == 1:
        order = np.empty(len(X), dtype=int)
        order[np.argsort(X[:, 0])] = np.argsort(Y[:, 0])
        return centred_cost(X, Y, order)
    import ot

    weights = np.full(len(X), 1 / len(X))
    costs = ot.dist(X - X.mean(0), Y - Y.mean(0))
    return ot.emd2(weights, weights, costs, numItermax=10**7)


def batched_cost(X, Y, size, seed=0):
    """Centred cost of mini-batch transport: random groups of each side, matched exactly."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    rng = np.random.RandomState(seed)
    order_x, order_y = rng.permutation(len(X)), rng.permutation(len(Y))
    permutation = np.empty(len(X), dtype=int)
    for start in range(0, len(X), size):
        x, y = order_x[start : start + size], order_y[start : start + size]
        permutation[x] = y[linear_sum_assignment(cdist(X[x], Y[y], "sqeuclidean"))[1]]
    return centred_cost(X, Y, permutation)
