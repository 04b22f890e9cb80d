"""Costs of hierarchical refinement: of blocks, in a form for thin matrices, and of pairs."""

from functools import partial

import numpy as np
from scipy.spatial.distance import cdist

# Up to here the cost matrix of one block is formed; larger blocks go by landmarks.
MAX_DENSE = 2048
# Above this many points, level costs are computed for the squared Euclidean cost alone.
MAX_LEVEL_COSTS = 10_000
_PAIR_CHUNK = 64
_ROW_CHUNK = 65_536
_ROWS_PER_LANDMARK = 4
_LANDMARK_RCOND = 1e-4


class FactoredCost:
    """Cost matrices of a batch of blocks as ``scale * left @ right.T``, double centred.

    A constant added to a row or to a column of a cost matrix changes no optimal coupling.
    With both means taken out, it does not enter the length of the steps either.

    Parameters
    ----------
    left : ndarray of shape (n_batch, n, k)
        Left factors; they are centred in place.
    right : ndarray of shape (n_batch, m, k)
        Right factors; they are centred in place.
    scale : float, default=1.0
        Factor of all entries.
    """

    def __init__(self, left, right, scale=1.0):
        self.left, self.right, self.scale = centre(left), centre(right), scale

    def rows(self, R):
        """(C R^T)^T, for R of shape (n_batch, r, m)."""
        return self._product(R, self.right, self.left)

    def columns(self, Q):
        """Q C, for Q of shape (n_batch, r, n)."""
        return self._product(Q, self.left, self.right)

    def _product(self, parts, near, far):
        thin = parts @ near
        thin *= self.scale
        return thin @ far.transpose(0, 2, 1)


class DenseCost:
    """Cost matrices of a batch of blocks, double centred.

    Parameters
    ----------
    values : ndarray of shape (n_batch, n, m)
        The cost matrices; they are centred in place.
    """

    def __init__(self, values):
        self.values = centre(values)
        centre(values.transpose(0, 2, 1))

    def rows(self, R):
        """(C R^T)^T, for R of shape (n_batch, r, m)."""
        return R @ self.values.transpose(0, 2, 1)

    def columns(self, Q):
        """Q C, for Q of shape (n_batch, r, n)."""
        return Q @ self.values


def centre(blocks):
    """Take the mean over the rows, in float64, out of every block, in place; return them."""
    blocks -= blocks.mean(axis=1, keepdims=True, dtype=np.float64).astype(blocks.dtype)
    return blocks


def block_costs(X, Y, cost, n_landmarks, seeds):
    """Cost matrices of a batch of blocks, in the form that suits cost and size.

    Parameters
    ----------
    X : ndarray of shape (n_batch, n, d)
        Blocks of the source, which may be centred in place.
    Y : ndarray of shape (n_batch, m, d)
        Blocks of the target, likewise.
    cost : "sqeuclidean", "euclidean" or callable
        The cost.
    n_landmarks : int
        Landmarks of either block where the cost matrix is too large to be formed.
    seeds : sequence of int
        One a block, for the landmarks.

    Returns
    -------
    costs : FactoredCost or DenseCost
        The cost matrices, but for constants of rows and columns.
    """
    if cost == "sqeuclidean":  # |x|^2 and |y|^2 are constants of rows and columns
        return FactoredCost(X, Y, scale=-2.0)
    if max(X.shape[1], Y.shape[1]) <= MAX_DENSE:
        return DenseCost(dense_costs(X, Y, cost).astype(X.dtype))
    factors = [_landmark_factors(x, y, cost, n_landmarks, seed) for x, y, seed in zip(X, Y, seeds)]
    left, right = (np.stack(side).astype(X.dtype) for side in zip(*factors))
    return FactoredCost(left, right)


def dense_costs(X, Y, cost):
    """The cost matrices of a batch of blocks, of shape (n_batch, n, m), in float64."""
    pairwise = partial(cdist, metric=cost) if isinstance(cost, str) else _checked(cost)
    return np.stack([pairwise(x, y) for x, y in zip(X, Y)])


def assignment_costs(X, Y, cost):
    """Matrices of shape (n_batch, n, n) with the optimal assignments of the cost.

    For the squared Euclidean cost they lack the constants of rows and columns, and the
    blocks are centred in place.
    """
    if cost == "sqeuclidean":
        return -2 * centre(X) @ centre(Y).transpose(0, 2, 1)
    return dense_costs(X, Y, cost)


def _checked(cost):
    """A user's cost, with the errors named."""

    def pairwise(x, y):
        values = np.asarray(cost(x, y), dtype=np.float64)
        if values.shape != (len(x), len(y)):
            raise ValueError(
                f"cost must return an array of shape (n, m), expected {(len(x), len(y))}, "
                f"got {values.shape}."
            )
        if not np.isfinite(values).all():
            raise ValueError("cost returned NaN or infinity.")
        return values

    return pairwise


def _landmark_factors(x, y, cost, n_landmarks, seed):
    """Factors of the cost matrix: all columns as combinations of some of them.

    The coefficients are fitted by least squares on more rows than columns; on as many, the
    tails of the data would go far astray.
    """
    rng = np.random.default_rng(seed)
    n_rows = min((_ROWS_PER_LANDMARK - 1) * n_landmarks, len(x))
    rows = np.union1d(_spread(x, n_landmarks, rng), rng.choice(len(x), n_rows, replace=False))
    columns = _spread(y, n_landmarks, rng)
    some_columns = dense_costs(x[None], y[None, columns], cost)[0]
    some_rows = dense_costs(x[None, rows], y[None], cost)[0]
    inverse = np.linalg.pinv(some_columns[rows], rcond=_LANDMARK_RCOND)
    return some_columns, (inverse @ some_rows).T


def _spread(points, count, rng):
    """Numbers of some points, each drawn by its squared distance to those drawn before."""
    chosen = [rng.integers(len(points))]
    nearest = np.full(len(points), np.inf)
    for _ in range(min(count, len(points)) - 1):
        nearest = np.minimum(nearest, cdist(points, points[chosen[-1:]], "sqeuclidean")[:, 0])
        if nearest.sum() == 0:  # all points are landmarks
            break
        chosen.append(rng.choice(len(points), p=nearest / nearest.sum()))
    return np.array(chosen)


# ---- Costs of couplings ----------------------------------------------------------------------


def working_copies(X, Y, cost, dtype):
    """Copies of both samples to compute with, moved and scaled so that rounding does least harm.

    A translation of either sample changes no optimal coupling for the squared Euclidean cost,
    a common one changes nothing for the Euclidean cost, and for another cost nothing is known.
    The unit of length changes neither of the first two: the largest entry becomes 1, so that
    squares stay in the range of `dtype`. That unit comes third.
    """
    if not isinstance(cost, str):
        return X.astype(dtype), Y.astype(dtype), 1.0
    mean_x, mean_y = X.mean(axis=0, dtype=np.float64), Y.mean(axis=0, dtype=np.float64)
    if cost == "euclidean":
        mean_x = mean_y = (mean_x + mean_y) / 2
    unit = max(_largest(X, mean_x), _largest(Y, mean_y)) or 1.0
    return _moved(X, mean_x, unit, dtype), _moved(Y, mean_y, unit, dtype), unit


def _largest(rows, origin):
    """Largest distance of an entry from the origin."""
    chunks = _chunks(len(rows), _ROW_CHUNK)
    return max(float(np.abs(rows[chunk] - origin).max()) for chunk in chunks)


def _moved(rows, origin, unit, dtype):
    result = np.empty(rows.shape, dtype)
    for chunk in _chunks(len(rows), _ROW_CHUNK):
        result[chunk] = (rows[chunk] - origin) / unit
    return result


def mean_pair_cost(X, Y, permutation, cost):
    """Mean over i of cost(x_i, y_permutation(i)), in float64."""
    total = 0.0
    for chunk in _chunks(len(X), _ROW_CHUNK if isinstance(cost, str) else _PAIR_CHUNK):
        x, y = X[chunk].astype(np.float64), Y[permutation[chunk]].astype(np.float64)
        if isinstance(cost, str):
            squares = np.sum((x - y) ** 2, axis=1)
            total += np.sum(squares if cost == "sqeuclidean" else np.sqrt(squares))
        else:
            total += np.trace(_checked(cost)(x, y))
    return float(total / len(X))


class LevelCosts:
    """Mean cost of the block coupling, which spreads every row evenly over the partner block.

    Parameters
    ----------
    X, Y : ndarray of shape (n, d)
        The samples in their own place.
    cost : "sqeuclidean", "euclidean" or callable
        The cost.
    unit : float
        Unit of length of the blocks.

    Attributes
    ----------
    available : bool
        Whether it can be computed in good time.
    """

    def __init__(self, X, Y, cost, unit):
        self.available = cost == "sqeuclidean" or len(X) <= MAX_LEVEL_COSTS
        self.cost, self.unit = cost, unit
        if cost == "sqeuclidean":
            mean_x, spread_x = _mean_and_spread(X)
            mean_y, spread_y = _mean_and_spread(Y)
            self.independent = spread_x + spread_y + np.sum((mean_x - mean_y) ** 2)

    def of(self, blocks):
        """Mean cost for the present blocks, a MatchedBlocks; None if it takes too long."""
        if not self.available:
            return None
        if self.cost == "sqeuclidean":
            # E |x - y|^2 of centred samples, less what the means of the blocks have in common
            sums_x = np.add.reduceat(blocks.X, blocks.starts, axis=0, dtype=np.float64)
            sums_y = np.add.reduceat(blocks.Y, blocks.starts, axis=0, dtype=np.float64)
            common = np.sum(sums_x * sums_y / blocks.sizes[:, None]) / len(blocks.X)
            return float(self.independent - 2 * self.unit**2 * common)
        total = 0.0
        for start, size in zip(blocks.starts, blocks.sizes):
            x, y = blocks.X[start : start + size], blocks.Y[start : start + size]
            for chunk in _chunks(size, _ROW_CHUNK // 64):
                total += dense_costs(x[None, chunk], y[None], self.cost).sum() / size
        return float(self.unit * total / len(blocks.X))


def _mean_and_spread(rows):
    """Mean, and mean squared distance to it, in float64."""
    mean = rows.mean(axis=0, dtype=np.float64)
    chunks = _chunks(len(rows), _ROW_CHUNK)
    return mean, sum(float(np.sum((rows[chunk] - mean) ** 2)) for chunk in chunks) / len(rows)


def _chunks(n, size):
    return [slice(start, start + size) for start in range(0, n, size)]
