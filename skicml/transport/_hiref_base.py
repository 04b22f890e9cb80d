"""The end of hierarchical refinement: exact matching within small blocks, and sweeps of it."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from skicml.transport._hiref_costs import assignment_costs

_LARGEST_FOR_SCIPY = 128  # above, the network simplex of POT is faster


def match_exactly(X, Y, cost):
    """Optimal one-to-one matching within each block of a batch.

    Parameters
    ----------
    X, Y : ndarray of shape (n_batch, n, d)
        Blocks of the two samples.
    cost : "sqeuclidean", "euclidean" or callable
        The cost.

    Returns
    -------
    order_x, order_y : ndarray of shape (n_batch, n)
        Matched rows at the same places.
    """
    solve = _by_scipy if X.shape[1] <= _LARGEST_FOR_SCIPY else _by_pot
    order_y = np.stack([solve(costs) for costs in assignment_costs(X, Y, cost)])
    return np.broadcast_to(np.arange(X.shape[1]), order_y.shape), order_y


def _by_scipy(costs):
    return linear_sum_assignment(costs)[1]


def _by_pot(costs):
    """The plan of the network simplex is a vertex: with uniform weights, a permutation."""
    import ot

    weights = np.full(len(costs), 1 / len(costs))
    plan = ot.emd(weights, weights, costs.astype(np.float64), numItermax=10_000_000)
    partner = plan.argmax(axis=1)
    if np.unique(partner).size < len(partner):  # rounding left a tie
        return _by_scipy(costs)
    return partner


def regroup(blocks, base_size, rng):
    """Form new blocks of pairs that are near each other, without changing any pair.

    The pairs (x, y) are points of twice the dimension; a tree of median cuts along random
    directions brings them into groups of at most `base_size`.

    Parameters
    ----------
    blocks : MatchedBlocks
        The pairs; its order and its sizes change.
    base_size : int
        Largest size of a block.
    rng : RandomState
        Draws one direction a level.
    """
    blocks.sizes = np.array([len(blocks.X)])
    n_features = blocks.X.shape[1]
    while blocks.sizes.max() > base_size:
        to_x, to_y = rng.standard_normal((2, n_features)).astype(blocks.X.dtype)
        height = blocks.X @ to_x + blocks.Y @ to_y
        for _, rows in blocks.batches(lambda size: blocks.X.shape[0]):
            middle = (rows.shape[1] + 1) // 2
            order = np.argpartition(height[rows], middle - 1, axis=1)
            blocks.permute(rows, order, order)
        blocks.cut(2)
