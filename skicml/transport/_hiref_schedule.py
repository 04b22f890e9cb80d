"""How hierarchical refinement cuts the samples: ranks of the levels, sizes of the parts."""

from functools import cache
from math import ceil, prod
from numbers import Integral

import numpy as np


def resolve_schedule(rank_schedule, n, base_size, max_rank):
    """Ranks of the levels that bring blocks of n points down to at most `base_size`.

    Parameters
    ----------
    rank_schedule : {"binary", "paper"} or list of int
        See :class:`skicml.transport.HiRef`.
    n : int
        Number of points of either sample.
    base_size : int
        Largest block that is left to the base solver.
    max_rank : int
        Largest rank of the schedule "paper".

    Returns
    -------
    ranks : list of int
        Empty if the whole sample is one base block.

    Raises
    ------
    ValueError
        If a list holds anything but whole ranks of at least 2, or leaves blocks of more than
        `base_size` points.
    """
    n_leaves = ceil(n / base_size)
    if isinstance(rank_schedule, str):
        if rank_schedule == "paper":
            return paper_schedule(n_leaves, max_rank)
        return [2] * (n_leaves - 1).bit_length()
    if not all(isinstance(rank, Integral) and rank >= 2 for rank in rank_schedule):
        raise ValueError(
            f"rank_schedule must hold whole ranks of at least 2, got {list(rank_schedule)}."
        )
    ranks = [int(rank) for rank in rank_schedule]
    largest = ceil(n / prod(ranks))
    if largest > base_size:
        raise ValueError(
            f"rank_schedule={ranks} leaves blocks of {largest} points, more than "
            f"base_size={base_size}: add ranks or raise base_size."
        )
    return ranks


def paper_schedule(n_leaves, max_rank):
    """Ranks in rising order, with a product >= n_leaves, that solve for the fewest co-clusters.

    A level of rank r on b blocks solves for b r co-clusters, so that the sum over the levels
    is ``r_1 + r_1 r_2 + ...``. By dynamic programming over what is left to split,
    ``least(N) = min over r <= max_rank of r + r least(ceil(N / r))``.

    Parameters
    ----------
    n_leaves : int
        Number of blocks wanted at the end.
    max_rank : int
        Largest rank of a level.

    Returns
    -------
    ranks : list of int
        One rank a level.
    """

    @cache
    def least(left):
        """Fewest co-clusters that split a block into `left` parts, and the ranks."""
        if left == 1:
            return 0, ()
        choices = []
        for rank in range(2, min(max_rank, left) + 1):
            count, ranks = least(ceil(left / rank))
            choices.append((rank + rank * count, (rank, *ranks)))
        return min(choices)

    return sorted(least(n_leaves)[1])


def capacities(size, rank):
    """Sizes of the `rank` parts of a block: they differ by at most one, the larger ones first."""
    rank = min(rank, size)
    small, n_larger = divmod(size, rank)
    return np.array([small + 1] * n_larger + [small] * (rank - n_larger))


class MatchedBlocks:
    """Two samples in matched order, cut into blocks at the same places.

    Row k of one sample is matched with row k of the other one: at any time this is a
    bijection, which the levels only refine. The rows themselves are kept in this order, so
    that a block lies in one piece of memory.

    Parameters
    ----------
    X, Y : ndarray of shape (n, d)
        The samples; they are overwritten.

    Attributes
    ----------
    order_x, order_y : ndarray of shape (n,)
        Where each row stood at first.
    sizes : ndarray of shape (n_blocks,)
        Sizes of the blocks, in order. They take at most two values.
    """

    def __init__(self, X, Y):
        self.X, self.Y = X, Y
        self.order_x, self.order_y = np.arange(len(X)), np.arange(len(Y))
        self.sizes = np.array([len(X)])

    @property
    def starts(self):
        """First row of each block."""
        return np.cumsum(self.sizes) - self.sizes

    def batches(self, rows_of):
        """Groups of blocks of one size, as row numbers.

        Parameters
        ----------
        rows_of : callable
            Number of rows that a batch may have, given the size of its blocks. A batch has
            one block at least.

        Yields
        ------
        blocks : ndarray of shape (n_batch,)
            Numbers of the blocks.
        rows : ndarray of shape (n_batch, size)
            Their rows.
        """
        starts = self.starts
        for size in np.unique(self.sizes):
            blocks = np.flatnonzero(self.sizes == size)
            count = max(1, rows_of(size) // size)
            for first in range(0, len(blocks), count):
                batch = blocks[first : first + count]
                yield batch, starts[batch, None] + np.arange(size)

    def permute(self, rows, order_x, order_y):
        """Put the rows of a batch of blocks in another order, which is given block by block."""
        for order, arrays in (
            (order_x, (self.X, self.order_x)),
            (order_y, (self.Y, self.order_y)),
        ):
            sources = np.take_along_axis(rows, order, axis=1)
            for array in arrays:
                array[rows] = array[sources]

    def cut(self, rank):
        """Cut every block into `rank` parts of equal size."""
        parts = {size: capacities(size, rank) for size in np.unique(self.sizes)}
        self.sizes = np.concatenate([parts[size] for size in self.sizes])

    def block_numbers(self):
        """The block of every row of either sample, in its first order."""
        numbers = np.repeat(np.arange(len(self.sizes)), self.sizes)
        x, y = np.empty_like(numbers), np.empty_like(numbers)
        x[self.order_x], y[self.order_y] = numbers, numbers
        return x, y

    def permutation(self):
        """Partner of every row of the first sample, in the first orders."""
        partner = np.empty_like(self.order_x)
        partner[self.order_x] = self.order_y
        return partner
