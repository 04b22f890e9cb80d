"""Optimal transport of low rank: the sub-problem that hierarchical refinement solves.

A coupling of rank r is ``Q diag(1/g) R^T``. Many blocks of equal size are solved at once. Soft
parts are arrays of shape (n_batch, rank, n) that hold, for each of n points, the probabilities
of its parts: that is n Q^T.
"""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from skicml.transport._hiref_costs import block_costs, working_copies
from skicml.transport._hiref_mirror import ManyParts, TwoParts
from skicml.transport._hiref_schedule import capacities
from skicml.utils._magnitude import check_magnitude


@validate_params(
    {
        "X": ["array-like"],
        "Y": ["array-like"],
        "rank": [Interval(Integral, 1, None, closed="left")],
        "cost": [StrOptions({"sqeuclidean", "euclidean"}), callable],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_tol": [Interval(Real, 0, None, closed="neither")],
        "init": [StrOptions({"pca", "random"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "latent": ["boolean"],
        "distance_rank": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def low_rank_transport(
    X,
    Y,
    rank,
    *,
    cost="sqeuclidean",
    gamma=None,
    max_iter=100,
    inner_max_iter=200,
    inner_tol=1e-4,
    init="random",
    n_init=4,
    latent=False,
    distance_rank=64,
    random_state=None,
):
    """Optimal transport of low rank with uniform weights.

    Minimises ``sum(C * (Q @ np.diag(1 / g) @ R.T))`` over factors with the row sums
    1 / n_sources and 1 / n_targets and the column sums g = 1 / rank.

    Parameters
    ----------
    X : array-like of shape (n_sources, n_features)
        The sources.
    Y : array-like of shape (n_targets, n_features)
        The targets.
    rank : int
        Number of columns of the factors, at most n_sources and n_targets.
    cost : {"sqeuclidean", "euclidean"} or callable, default="sqeuclidean"
        The cost, as in :class:`HiRef`.
    gamma : float or None, default=None
        Length of the steps relative to the largest entry of the gradient. None means 5 for
        rank 2 and 20 for other ranks.
    max_iter : int, default=100
        Number of steps.
    inner_max_iter : int, default=200
        Largest number of iterations of a projection, for ranks above 2.
    inner_tol : float, default=1e-4
        Relative error of the column sums at which they stop.
    init : {"pca", "random"}, default="random"
        "random": random factors. "pca": along the leading principal directions of both
        samples together, of which the first two are tried.
    n_init : int, default=4
        Number of random starts, of which the one with the least cost is kept.
    latent : bool, default=False
        Whether to learn a coupling between the columns of the two factors as well [2]_. It is
        multiplied into Q in the end.
    distance_rank : int, default=64
        Number of landmarks for costs other than the squared Euclidean one, above 2048 points.
    random_state : int, RandomState instance or None, default=None
        For the random starts, the coupling and the landmarks.

    Returns
    -------
    Q : ndarray of shape (n_sources, rank)
        Factor of the sources.
    R : ndarray of shape (n_targets, rank)
        Factor of the targets.
    g : ndarray of shape (rank,)
        Common column sums.

    Raises
    ------
    ValueError
        If the numbers of columns differ, `rank` is larger than the number of rows, or X or Y
        holds values above 1e100.

    See Also
    --------
    HiRef : Bijections, by many problems of this kind.
    ot.lowrank_sinkhorn : Low-rank transport with free column sums.

    Notes
    -----
    Mirror descent on both factors at the same time, as in [1]_ but with fixed, equal column
    sums, which hierarchical refinement needs. Where the samples fall into clusters of unequal
    weights, free column sums, as ``ot.lowrank_sinkhorn`` has them, may cost less.
    Time O((n_sources + n_targets) (n_features + rank) rank) a step of each start and memory
    O((n_sources + n_targets) (n_features + rank)) for the squared Euclidean cost.

    References
    ----------
    .. [1] Meyer Scetbon, Marco Cuturi and Gabriel Peyre, "Low-Rank Sinkhorn Factorization",
       ICML 2021.
    .. [2] Peter Halmos, Xinhao Liu, Julian Gold and Benjamin J. Raphael, "Low-Rank Optimal
       Transport through Factor Relaxation with Latent Coupling", NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.transport import low_rank_transport
    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> Q, R, g = low_rank_transport(X, X + 3, rank=2, random_state=0)
    >>> ((Q / g) @ R.T).round(3) + 0.0
    array([[0.125, 0.125, 0.   , 0.   ],
           [0.125, 0.125, 0.   , 0.   ],
           [0.   , 0.   , 0.125, 0.125],
           [0.   , 0.   , 0.125, 0.125]])
    """
    X = check_array(X, dtype=[np.float64, np.float32], input_name="X")
    Y = check_array(Y, dtype=X.dtype, input_name="Y")
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X and Y must have the same number of columns, got {X.shape[1]} and {Y.shape[1]}."
        )
    if rank > min(len(X), len(Y)):
        raise ValueError(
            f"rank={rank} must be at most the number of rows, got {len(X)} and {len(Y)}."
        )
    solver = LowRankSolver(
        cost=cost,
        gamma=gamma,
        max_iter=max_iter,
        inner_max_iter=inner_max_iter,
        inner_tol=inner_tol,
        init=init,
        n_init=n_init,
        n_trial=max_iter,
        latent=latent,
        distance_rank=distance_rank,
    )
    check_magnitude(X, "X")
    check_magnitude(Y, "Y")
    X, Y, _ = working_copies(X, Y, cost, X.dtype)
    seed = check_random_state(random_state).randint(np.iinfo(np.int32).max)
    g = np.full(rank, 1 / rank)
    P_x, P_y = solver.soft_parts(X[None], Y[None], g, [seed])
    return P_x[0].T / len(X), P_y[0].T / len(Y), g


@dataclass(frozen=True)
class LowRankSolver:
    """Optimal transport of low rank, for batches of blocks of equal size.

    Attributes
    ----------
    cost : "sqeuclidean", "euclidean" or callable
        The cost.
    gamma : float or None
        Length of the steps; None means 5 for rank 2 and 20 for others.
    max_iter : int
        Number of steps.
    inner_max_iter : int
        Largest number of iterations of a projection.
    inner_tol : float
        Relative error of the column sums at which they stop.
    init : {"pca", "random"}
        The starts.
    n_init : int
        Number of random starts.
    n_trial : int
        If there are several starts, that of least cost after so many steps is kept.
    latent : bool
        Whether a coupling between the parts is learned too.
    distance_rank : int
        Number of landmarks for a cost that is not squared Euclidean, in large blocks.
    """

    cost: object = "sqeuclidean"
    gamma: float | None = None
    max_iter: int = 30
    inner_max_iter: int = 50
    inner_tol: float = 1e-2
    init: str = "pca"
    n_init: int = 1
    n_trial: int = 5
    latent: bool = False
    distance_rank: int = 64

    def cut(self, X, Y, rank, seeds):
        """Cut blocks of equal size into matched parts.

        Parameters
        ----------
        X, Y : ndarray of shape (n_batch, n, d)
            Blocks of the two samples; they may be centred in place.
        rank : int
            Number of parts, no more than n.
        seeds : sequence of int
            One a block, so that a result does not depend on the batch.

        Returns
        -------
        order_x, order_y : ndarray of shape (n_batch, n)
            Rows of each block, part after part.
        """
        sizes = capacities(X.shape[1], rank)
        problem, state = self._solve(X, Y, sizes / X.shape[1], seeds)
        return problem.orders(state, sizes)

    def soft_parts(self, X, Y, shares, seeds):
        """Solve for the two factors.

        Parameters
        ----------
        X : ndarray of shape (n_batch, n, d)
            Blocks of the source; they may be centred in place.
        Y : ndarray of shape (n_batch, m, d)
            Blocks of the target, likewise.
        shares : ndarray of shape (rank,)
            The weights g of the parts; they add up to 1.
        seeds : sequence of int
            One a block.

        Returns
        -------
        P_x, P_y : ndarray of shape (n_batch, rank, n) and (n_batch, rank, m)
            Probabilities of the parts, n Q^T and m R^T.
        """
        problem, state = self._solve(X, Y, shares, seeds)
        return problem.soft_parts(state)

    def _solve(self, X, Y, shares, seeds):
        problem = self._problem(X, Y, shares, seeds)
        if self.init == "pca":
            starts = problem.along_axes(X, Y)
        else:
            starts = [problem.at_random(X, Y, [(s, i) for s in seeds]) for i in range(self.n_init)]
        n_trial = min(self.n_trial, self.max_iter) if len(starts) > 1 else 0
        states, costs = zip(*[problem.descend(start, n_trial) for start in starts])
        best = np.argmin(costs, axis=0)
        state = tuple(np.stack(arrays)[best, np.arange(len(X))] for arrays in zip(*states))
        return problem, problem.descend(state, self.max_iter - n_trial)[0]

    def _problem(self, X, Y, shares, seeds):
        costs = block_costs(X, Y, self.cost, self.distance_rank, seeds)
        if len(shares) == 2 and not self.latent:
            return TwoParts(costs, shares, self.gamma or 5.0)
        return ManyParts(
            costs,
            shares.astype(X.dtype),
            self.gamma or 20.0,
            self.inner_max_iter,
            self.inner_tol,
            seeds if self.latent else None,
        )
