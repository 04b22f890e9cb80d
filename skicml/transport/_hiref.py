"""HiRef: a bijection between two samples by hierarchical refinement, in linear memory."""

from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import ClassifierTags, check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.transport._hiref_base import match_exactly, regroup
from skicml.transport._hiref_costs import (
    MAX_DENSE,
    LevelCosts,
    mean_pair_cost,
    working_copies,
)
from skicml.transport._hiref_low_rank import LowRankSolver
from skicml.transport._hiref_map import NearestDisplacement
from skicml.transport._hiref_schedule import MatchedBlocks, resolve_schedule
from skicml.utils._fitting import all_or_nothing
from skicml.utils._magnitude import check_magnitude
from skicml.utils._progress import fit_steps

_SCORE_ROWS = 2000


class HiRef(OneToOneFeatureMixin, TransformerMixin, CallbackSupportMixin, BaseEstimator):
    """Optimal transport between two samples of equal size, as a bijection, in linear memory.

    Hierarchical refinement [1]_ finds a one-to-one matching of small total cost between two
    sets of points with uniform weights. It splits both sets into matched halves (or more
    parts) by optimal transport of low rank, splits every pair of parts again, and so on, and
    matches the points of the last small parts exactly. No matrix of all pairs is ever formed,
    so that a million points on either side are no problem.

    ``X`` holds both samples, one below the other in any order, and ``y`` says which sample a
    row belongs to: the first of the two sorted labels is the source, the other one the
    target. :meth:`fit_pair` takes the samples as two arrays.

    Parameters
    ----------
    cost : {"sqeuclidean", "euclidean"} or callable, default="sqeuclidean"
        Cost of moving a source to a target. A callable takes arrays of shape (n, n_features)
        and (m, n_features) and returns the costs, of shape (n, m).
    rank_schedule : {"binary", "paper"} or list of int, default="binary"
        Into how many parts each level splits every block, until blocks have at most
        `base_size` points. "binary": two. "paper": the schedule with the fewest co-clusters
        in total, by dynamic programming, of ranks up to `max_rank`. A list gives the ranks;
        a block is never split into more parts than it has points.
    max_rank : int, default=16
        Largest rank of the schedule "paper".
    base_size : int, default=64
        Blocks of at most so many points are not split but matched by `base_solver`.
    base_solver : {"exact", "lowrank"}, default="exact"
        "exact": optimal assignment. "lowrank": the low-rank solver with as many parts as
        points, as in the paper.
    gamma : float or None, default=None
        Length of the steps of the low-rank solver, relative to the largest entry of the
        gradient. None means 5 for rank 2 and 20 for other ranks.
    max_iter : int, default=30
        Number of steps of the low-rank solver.
    inner_max_iter : int, default=50
        Largest number of iterations of a projection, for ranks above 2.
    inner_tol : float, default=1e-2
        Relative error of the sizes of the soft parts at which they stop.
    init : {"pca", "random"}, default="pca"
        Start of the low-rank solver. "pca": along one of the two leading principal directions
        of both blocks together, whichever is better. "random": as in the paper.
    latent : bool, default=False
        Whether the low-rank solver learns a coupling between the parts too.
    n_refine_sweeps : int, default=0
        Number of sweeps at the end, each of which groups pairs that lie near each other into
        blocks of `base_size` and matches these exactly. The cost never rises. Ten sweeps
        take about twice as long as all the rest.
    unequal : {"raise", "subsample"}, default="raise"
        What to do with samples of different sizes: an error, or leave rows of the larger one
        out at random.
    label_level : int or None, default=None
        Number of levels after which `labels_` tells the blocks apart. None means all.
    batch_elements : int, default=400_000
        About the largest number of entries of the arrays that are worked on at once. It
        changes nothing in the result.
    distance_rank : int, default=64
        Number of landmarks by which costs other than the squared Euclidean one are
        approximated, in blocks of more than 2048 points.
    dtype : {"float32", "float64"}, default="float32"
        Precision of the computation.
    n_jobs : int or None, default=None
        Number of joblib workers that share the blocks of a level, and the search of
        :meth:`transform`.
    random_state : int, RandomState instance or None, default=None
        For ``unequal="subsample"``, ``init="random"``, ``latent``, sweeps and landmarks.
        Everything else is deterministic.

    Attributes
    ----------
    permutation_ : ndarray of shape (n_pairs,)
        Number of the target of each source: source k, in order of appearance, goes to row
        ``permutation_[k]`` of `X_target_`.
    cost_ : float
        Mean cost of a pair.
    wasserstein_ : float or None
        The Wasserstein distance between the samples that the pairs achieve, an upper bound of
        the true one: ``sqrt(cost_)`` for the squared Euclidean cost, ``cost_`` for the
        Euclidean one, None for a callable.
    level_costs_ : ndarray or None
        Mean cost of the coupling that spreads every source evenly over the partner block:
        with one block, after each level, then after the base solver and each sweep with
        single points, so that the last entry is `cost_`. None for costs other than the
        squared Euclidean one above 10 000 pairs, where it would take too long.
    labels_ : ndarray of shape (n_samples,)
        Number of the block of each row of X after `label_level` levels; matched blocks have
        the same number. -1 for rows that were left out.
    rank_schedule_ : list of int
        Rank of each level.
    n_iter_ : int
        Number of steps of the refinement: levels, matching by the base solver, and sweeps.
    classes_ : ndarray of shape (2,)
        Label of the source and label of the target.
    source_indices_ : ndarray of shape (n_pairs,)
        Rows of X that are sources, in order of appearance.
    target_indices_ : ndarray of shape (n_pairs,)
        Rows of X that are targets, in order of appearance.
    X_source_ : ndarray of shape (n_pairs, n_features)
        The sources.
    X_target_ : ndarray of shape (n_pairs, n_features)
        The targets.
    n_features_in_ : int
        Number of features seen in fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are strings.

    See Also
    --------
    low_rank_transport : The low-rank solver on its own.
    ot.da.EMDTransport : Exact optimal transport of up to about ten thousand points.

    Notes
    -----
    If an optimal coupling of rank r has an inner marginal that is uniform, its factors put x
    and its image under the optimal map into the same part. So at each level, for every pair
    of blocks of m points, ::

        minimise <C, Q diag(1/g) R^T>  over  Q in Pi(1/m, g), R in Pi(1/m, g)

    with g the shares of the parts, is solved by mirror descent: Q and R are multiplied by
    ``exp(-step * gradient)`` at the same time and projected onto their marginals. Parts of
    fixed sizes are filled with the points of largest weight. The squared Euclidean C is a
    product of thin matrices, and so is never formed. Other costs are formed in blocks of at
    most 2048 points and approximated by some of their rows and columns in larger ones.

    The default follows the paper's algorithm with what we found to serve CPUs better:

    - two parts a level, where the logits of one part have a single unknown shift, found by
      Newton's method: the projection is exact without Sinkhorn iterations;
    - any number of points: part sizes differ by at most one, so that n may be prime;
    - blocks are centred, as constants would take the length of the steps;
    - the start lies along one of the two leading principal directions of both blocks together:
      five steps are made from either, and for each block the cheaper one is kept;
    - for larger ranks, damped Newton steps in place of the Sinkhorn iterations, which need far
      fewer to get the sizes of the parts right;
    - blocks of at most 64 points are matched by the optimal assignment;
    - a fixed number of steps instead of a tolerance.

    The schedule "paper" minimises the same number of co-clusters over the ranks as the paper
    does, but with rounded up quotients in place of divisors of n, and with no limit on the
    number of levels. Refining sweeps and the map of new points are ours.

    A callback that asks to stop ends the refinement there. The result is still a bijection,
    within the blocks found so far.

    Time O(n d log(n / base_size) max_iter + n base_size^2) for n pairs of d features, and
    memory O(n d). The start "pca" adds a time of O(n d^2 + (n / base_size) d^3), which counts
    from some hundred features on. :meth:`transform` searches the nearest source in a tree,
    built at the first call, in O(log n) a row for few features and in O(n) for more than
    about 15.

    References
    ----------
    .. [1] Peter Halmos, Julian Gold, Xinhao Liu and Benjamin J. Raphael, "Hierarchical
       Refinement: Optimal Transport to Infinity and Beyond", ICML 2025, PMLR 267,
       :arxiv:`2503.03025`.
    .. [2] Peter Halmos, Xinhao Liu, Julian Gold and Benjamin J. Raphael, "Low-Rank Optimal
       Transport through Factor Relaxation with Latent Coupling", NeurIPS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.transport import HiRef
    >>> rng = np.random.RandomState(0)
    >>> source, target = rng.standard_normal((1000, 2)), 5 + 2 * rng.standard_normal((1000, 2))
    >>> hiref = HiRef().fit_pair(source, target)
    >>> hiref.transform([[0.0, 0.0]]).round(0)
    array([[5., 5.]])
    >>> bool((np.sort(hiref.permutation_) == np.arange(1000)).all())
    True
    """

    _parameter_constraints: dict = {
        "cost": [StrOptions({"sqeuclidean", "euclidean"}), callable],
        "rank_schedule": [StrOptions({"binary", "paper"}), "array-like"],
        "max_rank": [Interval(Integral, 2, None, closed="left")],
        "base_size": [Interval(Integral, 1, None, closed="left")],
        "base_solver": [StrOptions({"exact", "lowrank"})],
        "gamma": [Interval(Real, 0, None, closed="neither"), None],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_max_iter": [Interval(Integral, 1, None, closed="left")],
        "inner_tol": [Interval(Real, 0, None, closed="neither")],
        "init": [StrOptions({"pca", "random"})],
        "latent": ["boolean"],
        "n_refine_sweeps": [Interval(Integral, 0, None, closed="left")],
        "unequal": [StrOptions({"raise", "subsample"})],
        "label_level": [Interval(Integral, 0, None, closed="left"), None],
        "batch_elements": [Interval(Integral, 1, None, closed="left")],
        "distance_rank": [Interval(Integral, 1, None, closed="left")],
        "dtype": [StrOptions({"float32", "float64"})],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        cost="sqeuclidean",
        *,
        rank_schedule="binary",
        max_rank=16,
        base_size=64,
        base_solver="exact",
        gamma=None,
        max_iter=30,
        inner_max_iter=50,
        inner_tol=1e-2,
        init="pca",
        latent=False,
        n_refine_sweeps=0,
        unequal="raise",
        label_level=None,
        batch_elements=400_000,
        distance_rank=64,
        dtype="float32",
        n_jobs=None,
        random_state=None,
    ):
        self.cost = cost
        self.rank_schedule = rank_schedule
        self.max_rank = max_rank
        self.base_size = base_size
        self.base_solver = base_solver
        self.gamma = gamma
        self.max_iter = max_iter
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.init = init
        self.latent = latent
        self.n_refine_sweeps = n_refine_sweeps
        self.unequal = unequal
        self.label_level = label_level
        self.batch_elements = batch_elements
        self.distance_rank = distance_rank
        self.dtype = dtype
        self.n_jobs = n_jobs
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Match the two samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows of both samples.
        y : array-like of shape (n_samples,)
            Two labels; the rows of the first one, in sorted order, are the sources.

        Returns
        -------
        self : HiRef
            The fitted matching.

        Raises
        ------
        ValueError
            If y does not hold exactly two labels, the samples differ in size with
            ``unequal="raise"``, a list of ranks leaves blocks larger than `base_size`, or X
            holds values above 1e100, whose squares cannot be added up safely.
        """
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_magnitude(X, "X")
        rng = check_random_state(self.random_state)
        classes, source, target = self._sample_rows(y, rng)
        X_source, X_target = X[source], X[target]
        n = len(source)
        ranks = resolve_schedule(self.rank_schedule, n, self.base_size, self.max_rank)

        n_steps = len(ranks) + 1 + self.n_refine_sweeps
        context = self._init_callback_context(max_subtasks=n_steps)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        *copies, unit = working_copies(X_source, X_target, self.cost, self.dtype)
        blocks = MatchedBlocks(*copies)
        level_cost = LevelCosts(X_source, X_target, self.cost, unit)

        def pair_cost():
            return mean_pair_cost(X_source, X_target, blocks.permutation(), self.cost)

        costs = [level_cost.of(blocks)]
        numbers = blocks.block_numbers()
        for step in fit_steps(context, self, n_steps, "step"):
            if step < len(ranks):
                self._split(blocks, ranks[step], rng)
                costs.append(level_cost.of(blocks))
                if self.label_level is None or step < self.label_level:
                    numbers = blocks.block_numbers()
            else:
                if step > len(ranks):
                    regroup(blocks, self.base_size, rng)
                self._match(blocks, rng, exactly=step > len(ranks) or self.base_solver == "exact")
                costs.append(pair_cost())
        if len(costs) <= len(ranks) + 1:  # a callback stopped before the points were matched
            costs.append(pair_cost())
        context.call_on_fit_task_end(estimator=self, X=X, y=y)

        self.permutation_ = blocks.permutation()
        self.cost_ = costs[-1]
        self.wasserstein_ = _wasserstein(self.cost, self.cost_)
        self.level_costs_ = np.array(costs) if level_cost.available else None
        self.labels_ = np.full(len(X), -1)
        self.labels_[source], self.labels_[target] = numbers
        self.rank_schedule_ = ranks
        self.n_iter_ = step + 1
        self.classes_ = classes
        self.source_indices_, self.target_indices_ = source, target
        self.X_source_, self.X_target_ = X_source, X_target
        images = X_target[self.permutation_]
        self._forward = NearestDisplacement(X_source, images, self.n_jobs)
        self._backward = NearestDisplacement(images, X_source, self.n_jobs)
        return self

    def fit_pair(self, Xs, Xt):
        """Match two samples that are given as two arrays.

        Parameters
        ----------
        Xs : array-like of shape (n_sources, n_features)
            The sources, which become the class 0.
        Xt : array-like of shape (n_targets, n_features)
            The targets, which become the class 1.

        Returns
        -------
        self : HiRef
            The fitted matching. Row numbers of X count the sources first, then the targets.

        Raises
        ------
        ValueError
            If the arrays have different numbers of columns, and in the cases of :meth:`fit`.
        """
        Xs = check_array(Xs, dtype=[np.float64, np.float32], input_name="Xs")
        Xt = check_array(Xt, dtype=[np.float64, np.float32], input_name="Xt")
        if Xs.shape[1] != Xt.shape[1]:
            raise ValueError(
                "Xs and Xt must have the same number of columns, "
                f"got {Xs.shape[1]} and {Xt.shape[1]}."
            )
        return self.fit(np.vstack([Xs, Xt]), np.repeat([0, 1], [len(Xs), len(Xt)]))

    def transform(self, X):
        """Map rows from the side of the source to the side of the target.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Any rows. A source goes to its target; another row is moved as its nearest source
            is, as in POT. Where several sources are equal, they go to the target of one of
            them, unless X is all of `X_source_`, when each goes to its own.

        Returns
        -------
        X_mapped : ndarray of shape (n_rows, n_features)
            The images.
        """
        return self._map(X, "_forward")

    def inverse_transform(self, X):
        """Map rows from the side of the target to the side of the source.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Any rows. A target goes to its source; another row is moved as its nearest target
            is.

        Returns
        -------
        X_mapped : ndarray of shape (n_rows, n_features)
            The images.
        """
        return self._map(X, "_backward")

    def coupling(self):
        """The optimal coupling as a sparse matrix.

        Returns
        -------
        coupling : csr_array of shape (n_pairs, n_pairs)
            1 / n_pairs where source and target are a pair.
        """
        check_is_fitted(self)
        n = len(self.permutation_)
        return csr_array((np.full(n, 1 / n), self.permutation_, np.arange(n + 1)), shape=(n, n))

    def pairs(self):
        """Row numbers of the pairs in the X of :meth:`fit`.

        Returns
        -------
        pairs : ndarray of shape (n_pairs, 2)
            A source and its target in every row.
        """
        check_is_fitted(self)
        return np.column_stack([self.source_indices_, self.target_indices_[self.permutation_]])

    def score(self, X, y):
        """Minus the energy distance between the mapped sources and the targets.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of both samples. Of either one, at most 2000 rows are used, always the same.
        y : array-like of shape (n_samples,)
            The sample of each row, with the labels of :meth:`fit`.

        Returns
        -------
        score : float
            At most 0, which it is if the mapped sources are distributed as the targets are.

        Raises
        ------
        ValueError
            If there is no source or no target in X.
        """
        check_is_fitted(self)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], reset=False)
        sides = [X[y == label] for label in self.classes_]
        if min(map(len, sides)) == 0:
            raise ValueError(f"X must hold rows of both classes {list(self.classes_)}.")
        source, target = (_at_most(side, _SCORE_ROWS) for side in sides)
        return -_energy_distance(self._forward(source), target)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # No classifier, but what these tags say of y holds: it has two labels.
        tags.classifier_tags = ClassifierTags(multi_class=False)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _sample_rows(self, y, rng):
        """The two labels, and the rows of X that take part on either side."""
        classes = np.unique(y)
        if len(classes) != 2:
            what = "1 class" if len(classes) == 1 else f"{len(classes)} classes"
            raise ValueError(f"y must hold exactly two classes, source and target, got {what}.")
        rows = [np.flatnonzero(y == label) for label in classes]
        sizes = [len(side) for side in rows]
        if sizes[0] != sizes[1] and self.unequal == "raise":
            raise ValueError(
                f"Source and target must have the same number of rows, got {sizes[0]} and "
                f'{sizes[1]}. unequal="subsample" leaves out rows of the larger one at random.'
            )
        n = min(sizes)
        rows = [
            side if len(side) == n else np.sort(rng.choice(side, n, replace=False)) for side in rows
        ]
        return classes, *rows

    def _solver(self):
        return LowRankSolver(
            cost=self.cost,
            gamma=self.gamma,
            max_iter=self.max_iter,
            inner_max_iter=self.inner_max_iter,
            inner_tol=self.inner_tol,
            init=self.init,
            latent=self.latent,
            distance_rank=self.distance_rank,
        )

    def _split(self, blocks, rank, rng):
        """One level: cut every block into `rank` matched parts."""
        cut, seeds = self._solver().cut, _draw_seeds(rng, blocks)
        self._reorder(
            blocks,
            rank,
            lambda X, Y, batch: cut(X, Y, min(rank, X.shape[1]), seeds[batch]),
        )
        blocks.cut(rank)

    def _match(self, blocks, rng, exactly):
        """The last step: match the points of every block."""
        cut, seeds = self._solver().cut, _draw_seeds(rng, blocks)
        largest = int(blocks.sizes.max())
        if exactly:
            self._reorder(blocks, largest, lambda X, Y, batch: match_exactly(X, Y, self.cost))
        else:
            self._reorder(blocks, largest, lambda X, Y, batch: cut(X, Y, X.shape[1], seeds[batch]))

    def _reorder(self, blocks, rank, orders_of):
        """Put the rows of all blocks into the orders that `orders_of` gives, batch by batch."""

        def rows_of_a_batch(size):
            width = max(rank, blocks.X.shape[1])
            if self.cost != "sqeuclidean":  # matrices of all pairs of a block, or landmarks
                width = max(width, size if size <= MAX_DENSE else self.distance_rank)
            return self.batch_elements // width

        batches = list(blocks.batches(rows_of_a_batch))
        orders = Parallel(n_jobs=self.n_jobs, prefer="threads")(
            delayed(orders_of)(blocks.X[rows], blocks.Y[rows], batch) for batch, rows in batches
        )
        for (_, rows), (order_x, order_y) in zip(batches, orders):
            blocks.permute(rows, order_x, order_y)

    def _map(self, X, direction):
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return getattr(self, direction)(X)


def _draw_seeds(rng, blocks):
    return rng.randint(np.iinfo(np.int32).max, size=len(blocks.sizes))


def _wasserstein(cost, mean_cost):
    if cost == "sqeuclidean":
        return float(np.sqrt(mean_cost))
    return mean_cost if cost == "euclidean" else None


def _at_most(rows, n):
    """The rows, or some n of them, in the same way every time."""
    if len(rows) <= n:
        return rows
    return rows[np.random.default_rng(0).choice(len(rows), n, replace=False)]


def _energy_distance(first, second):
    """2 E|a - b| - E|a - a'| - E|b - b'|: 0 if the distributions are equal, else positive."""
    within = cdist(first, first).mean() + cdist(second, second).mean()
    return float(2 * cdist(first, second).mean() - within)
