"""Sets of actions of the linear policies, and the optimisation problems over them.

Every problem is of the form

    maximise u   subject to   (W a + c)_i >= lift_i u  for every row i,   a in A,

with ``lift = 1`` for the value of a matrix game (maximin) and ``lift`` a unit vector for a
linear objective under constraints.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog, nnls

# How far outside the set an action may be that a user hands in.
MEMBERSHIP_TOL = 1e-8
# Presolve costs more than it saves on programs of this size. The tolerances keep the
# solution inside the set by the standard of MEMBERSHIP_TOL.
_LP_OPTIONS = {
    "presolve": False,
    "primal_feasibility_tolerance": 1e-9,
    "dual_feasibility_tolerance": 1e-9,
}
_LP_INFEASIBLE, _LP_UNBOUNDED = 2, 3
# Relative gap between the upper bound and the value that the ball program stops at.
_BALL_TOL = 1e-9
_BALL_MAX_ITER = 100


class Play(NamedTuple):
    """Solution of a problem over the set: its value, the action, its row in a finite table."""

    value: float
    action: np.ndarray
    index: int | None = None


class ActionSet(ABC):
    """Compact set of actions in R^d.

    Attributes
    ----------
    n_features : int
        Dimension d of the actions.
    is_convex : bool
        Whether averages of actions are actions.
    """

    is_convex = True

    def __init__(self, n_features):
        self.n_features = n_features

    @abstractmethod
    def maximin(self, weights, offsets, rng=None):
        """Action of the largest margin ``min_i (W a + c)_i``, and that margin.

        `rng` breaks ties between the rows of a table.
        """

    @abstractmethod
    def linear(self, objective, weights, offsets, rng=None):
        """Maximise ``objective . a`` over the actions with ``W a + c >= 0``.

        Returns None if there is no such action. `rng` breaks ties between the rows of a table.
        """

    @abstractmethod
    def contains(self, action):
        """Whether an action belongs to the set, up to MEMBERSHIP_TOL."""


class _ConvexSet(ActionSet):
    """A set over which the problem in the docstring of the module is solved as a whole."""

    def maximin(self, weights, offsets, rng=None):
        return self._maximise(weights, offsets, np.ones(len(weights)))

    def linear(self, objective, weights, offsets, rng=None):
        lift = np.zeros(len(weights) + 1)
        lift[0] = 1.0
        return self._maximise(
            np.vstack([objective, weights]), np.concatenate([[0.0], offsets]), lift
        )

    @abstractmethod
    def _maximise(self, weights, offsets, lift):
        """Solve the problem in the docstring of the module; None if it has no solution."""


class _LinearlyConstrainedSet(_ConvexSet):
    """Actions with ``lower <= a <= upper``, ``A_ub a <= b_ub`` and, if asked, ``sum(a) = 1``.

    The arrays of the linear program are built once; a call only writes the rows that change.
    """

    def __init__(self, lower, upper, A_ub=None, b_ub=None, sums_to_one=False):
        super().__init__(len(lower))
        d = self.n_features
        self.A_ub = np.empty((0, d)) if A_ub is None else A_ub
        self.b_ub = np.empty(0) if b_ub is None else b_ub
        # variables of the program: the d coordinates of the action, then u
        self._bounds = np.vstack([np.column_stack([lower, upper]), [-np.inf, np.inf]])
        self._cost = np.append(np.zeros(d), -1.0)
        self._equality = (
            {"A_eq": np.append(np.ones(d), 0.0)[None], "b_eq": [1.0]} if sums_to_one else {}
        )
        self._allocate(0)

    def _allocate(self, n_rows):
        """Arrays of a program with the rows of the set and `n_rows` rows of the problem."""
        static = len(self.A_ub)
        self._lhs = np.zeros((static + n_rows, self.n_features + 1))
        self._lhs[:static, :-1] = self.A_ub
        self._rhs = np.append(self.b_ub, np.zeros(n_rows))

    def _maximise(self, weights, offsets, lift):
        static = len(self.A_ub)
        if len(self._rhs) != static + len(weights):
            self._allocate(len(weights))
        # (W a + c)_i >= lift_i u   <=>   -W a + lift u <= c
        self._lhs[static:, :-1] = -weights
        self._lhs[static:, -1] = lift
        self._rhs[static:] = offsets
        solution = self._solve()
        if solution is None:
            return None
        return Play(float(solution[-1]), self._inside(solution[:-1]))

    def _solve(self):
        program = {
            "c": self._cost,
            "A_ub": self._lhs,
            "b_ub": self._rhs,
            "bounds": self._bounds,
            "method": "highs",
            **self._equality,
        }
        result = linprog(**program, options=_LP_OPTIONS)
        if result.status not in (0, _LP_INFEASIBLE, _LP_UNBOUNDED):
            result = linprog(**program)  # numerical trouble: with presolve, default tolerances
        if result.status == _LP_UNBOUNDED:
            raise ValueError("The action set is not bounded.")
        if result.status == _LP_INFEASIBLE:
            return None
        if result.x is None:
            raise RuntimeError(f"The linear program over the actions failed: {result.message}")
        return result.x

    def _inside(self, action):
        """Remove the tolerance of the solver from a solution."""
        return np.clip(action, self._bounds[:-1, 0], self._bounds[:-1, 1])


class Box(_LinearlyConstrainedSet):
    """Actions with ``lower <= a <= upper``."""

    def __init__(self, lower, upper):
        super().__init__(lower, upper)
        self.lower, self.upper = lower, upper

    def contains(self, action):
        return bool(
            np.all(action >= self.lower - MEMBERSHIP_TOL)
            and np.all(action <= self.upper + MEMBERSHIP_TOL)
        )


class Simplex(_LinearlyConstrainedSet):
    """Mixtures: ``a >= 0`` with ``sum(a) = 1``."""

    def __init__(self, n_features):
        super().__init__(np.zeros(n_features), np.ones(n_features), sums_to_one=True)

    def contains(self, action):
        return bool(np.all(action >= -MEMBERSHIP_TOL) and abs(action.sum() - 1.0) <= MEMBERSHIP_TOL)

    def _inside(self, action):
        action = super()._inside(action)
        return action / action.sum()


class Polytope(_LinearlyConstrainedSet):
    """Actions with ``A_ub a <= b_ub``.

    Raises
    ------
    ValueError
        If the inequalities leave no action, or the set is not bounded.
    """

    def __init__(self, A_ub, b_ub):
        unbounded = np.full(A_ub.shape[1], np.inf)
        super().__init__(-unbounded, unbounded, A_ub, b_ub)
        # a row that does not bind lets u grow for ever if a coordinate can
        for direction in np.vstack([np.eye(self.n_features), -np.eye(self.n_features)]):
            if self.linear(direction, np.empty((0, self.n_features)), np.empty(0)) is None:
                raise ValueError("The action set is empty: no action satisfies A_ub a <= b_ub.")

    def contains(self, action):
        return bool(np.all(self.A_ub @ action <= self.b_ub + MEMBERSHIP_TOL))


class Ball(_ConvexSet):
    """Actions with ``||a|| <= radius``, the Euclidean norm."""

    def __init__(self, n_features, radius):
        super().__init__(n_features)
        self.radius = radius

    def contains(self, action):
        return bool(np.linalg.norm(action) <= self.radius + MEMBERSHIP_TOL)

    def _maximise(self, weights, offsets, lift):
        """Newton's method on the level u, with least-distance programs.

        Any ``pi >= 0`` with ``pi . lift = 1`` bounds the value (weak duality):
        ``u <= radius ||W^T pi|| + c . pi``. At a level u, the point of least norm with
        ``W a + c >= lift u`` has the multipliers pi; if it lies outside the ball, the bound
        of these multipliers is the next level, which is also Newton's step on
        ``||a(u)|| = radius``. Without offsets that is one projection on the hull of the rows.
        """
        level = self._bound(lift / lift.sum(), weights, offsets, lift)
        for _ in range(_BALL_MAX_ITER):
            reached = level - _BALL_TOL * (1.0 + abs(level))
            action, multipliers = _least_norm(weights, lift * reached - offsets)
            if action is not None and np.linalg.norm(action) <= self.radius * (1 + _BALL_TOL):
                break
            multipliers = multipliers / multipliers.sum()
            if multipliers @ lift <= 1e-12:  # the rows without u exclude every action by themselves
                return None
            level = self._bound(multipliers, weights, offsets, lift)
        else:
            raise RuntimeError(f"The program over the ball took over {_BALL_MAX_ITER} steps.")
        norm = np.linalg.norm(action)
        return Play(float(level), action * (self.radius / norm if norm > self.radius else 1.0))

    def _bound(self, multipliers, weights, offsets, lift):
        """Weak duality's upper bound on the value, ``(r ||W^T pi|| + c . pi) / (pi . lift)``."""
        norm = np.linalg.norm(multipliers @ weights)
        return (self.radius * norm + offsets @ multipliers) / (multipliers @ lift)


class FiniteTable(ActionSet):
    """The rows of a table.

    Parameters
    ----------
    actions : ndarray of shape (n_actions, d)
        The table; it is copied.
    """

    is_convex = False

    def __init__(self, actions):
        super().__init__(actions.shape[1])
        self.actions = actions.copy()
        self._columns = np.ascontiguousarray(actions.T)

    def margins(self, weights, offsets):
        """``min_i (W a + c)_i`` of every row a, shape (n_actions,)."""
        return (weights @ self._columns + offsets[:, None]).min(axis=0)

    def maximin(self, weights, offsets, rng=None):
        return self.play(self.margins(weights, offsets), rng)

    def linear(self, objective, weights, offsets, rng=None):
        values = objective @ self._columns
        if len(weights):
            values = np.where(self.margins(weights, offsets) >= 0.0, values, -np.inf)
        best = self.play(values, rng)
        return best if best.value > -np.inf else None

    def play(self, values, rng=None):
        """A row of the largest value: the first one, or one at random with `rng`."""
        index = int(values.argmax())
        if rng is not None:
            ties = np.flatnonzero(values == values[index])
            if len(ties) > 1:
                index = int(rng.choice(ties))
        return Play(float(values[index]), self.actions[index], index)

    def contains(self, action):
        return self.index_of(action) is not None

    def index_of(self, action):
        """Row of an action; None if it is not in the table."""
        distance = np.abs(self.actions - action).max(axis=1)
        index = int(distance.argmin())
        return index if distance[index] <= MEMBERSHIP_TOL else None


def _least_norm(weights, levels):
    """Point of least norm with ``W a >= levels``, and its multipliers (Lawson and Hanson).

    The multipliers x >= 0 minimise ``||W^T x||^2 + (levels . x - 1)^2``; the point is
    ``W^T x / (1 - levels . x)``. A residual of 0 means that no point satisfies the rows, and
    then x proves it: ``W^T x = 0`` with ``levels . x > 0``. The point is None in that case.
    """
    system = np.vstack([weights.T, levels])
    target = np.zeros(len(system))
    target[-1] = 1.0
    multipliers, residual = nnls(system, target)
    if residual <= 1e-10:
        return None, multipliers
    return weights.T @ multipliers / residual**2, multipliers


def make_action_set(action_set, n_features, *, bounds, ball_radius, table=None):
    """Build the set that the parameters of a policy describe.

    Parameters
    ----------
    action_set : {"box", "ball", "simplex", "finite"}, (A_ub, b_ub) or 2-D array
        Kind of the set; a pair is a polytope, a 2-D array a table of actions.
    n_features : int
        Dimension d of the actions.
    bounds : (lower, upper)
        Numbers or arrays of shape (d,), for the box.
    ball_radius : float
        Radius, for the ball.
    table : ndarray of shape (n_actions, d) or None, default=None
        Actions of a replay; they go before `action_set`.

    Returns
    -------
    actions : ActionSet
        The set.

    Raises
    ------
    ValueError
        If the set is not described well, is empty or not bounded, or has another dimension.
    """
    if table is not None:
        return FiniteTable(table)
    kind, arrays = _parse(action_set, bounds)
    dimension = _dimension(kind, arrays)
    if dimension not in (None, n_features):
        raise ValueError(
            f"The action set has dimension {dimension}, but n_features={n_features} was asked for."
        )
    if kind == "finite":
        return FiniteTable(arrays)
    if kind == "polytope":
        return Polytope(*arrays)
    if kind == "box":
        return Box(*(np.broadcast_to(corner, n_features).copy() for corner in arrays))
    return Simplex(n_features) if kind == "simplex" else Ball(n_features, float(ball_radius))


def infer_dimension(action_set, bounds):
    """Dimension that the parameters tell; None if they leave it open."""
    return _dimension(*_parse(action_set, bounds))


def _dimension(kind, arrays):
    if kind == "finite":
        return arrays.shape[1]
    if kind == "polytope":
        return arrays[0].shape[1]
    if kind == "box" and arrays[0].ndim + arrays[1].ndim:
        return max(corner.size for corner in arrays)
    return None


def _parse(action_set, bounds):
    """Kind of the set, and the arrays that describe it."""
    if not isinstance(action_set, str):
        return _parse_arrays(action_set)
    if action_set == "finite":
        raise ValueError(
            'action_set="finite" needs a table of actions: call fit(X, y), or give the table '
            "itself as action_set."
        )
    return action_set, _parse_bounds(bounds) if action_set == "box" else None


def _parse_arrays(action_set):
    """Tell a polytope (A_ub, b_ub) from a table of actions."""
    try:
        if isinstance(action_set, (tuple, list)) and len(action_set) == 2:
            A_ub, b_ub = (np.asarray(part, dtype=float) for part in action_set)
            if A_ub.ndim == 2:
                return "polytope", _check_polytope(A_ub, b_ub)
        table = np.array(action_set, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"action_set does not hold arrays of numbers: {error}") from error
    if table.ndim != 2 or table.size == 0:
        raise ValueError(
            "action_set must be the name of a set, a pair (A_ub, b_ub), or a 2-D table of "
            f"actions, got an array of shape {table.shape}."
        )
    if not np.isfinite(table).all():
        raise ValueError("The table of actions in action_set contains NaN or infinity.")
    return "finite", table


def _check_polytope(A_ub, b_ub):
    if b_ub.shape != (len(A_ub),) or A_ub.size == 0:
        raise ValueError(
            "action_set=(A_ub, b_ub) needs shapes (k, d) and (k,), "
            f"got {A_ub.shape} and {b_ub.shape}."
        )
    if not (np.isfinite(A_ub).all() and np.isfinite(b_ub).all()):
        raise ValueError("action_set=(A_ub, b_ub) contains NaN or infinity.")
    return A_ub, b_ub


def _parse_bounds(bounds):
    """Lower and upper corner of the box, numbers or arrays of shape (d,)."""
    try:
        lower, upper = (np.asarray(corner, dtype=float) for corner in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds must be a pair (lower, upper), got {bounds!r}.") from error
    sizes = {corner.size for corner in (lower, upper) if corner.ndim}
    if lower.ndim > 1 or upper.ndim > 1 or len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            "bounds must hold two numbers or two arrays of shape (n_features,), "
            f"got shapes {lower.shape} and {upper.shape}."
        )
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError("The action set is not bounded: bounds must be finite.")
    if np.any(lower > upper):
        raise ValueError("The action set is empty: a lower bound exceeds the upper one in bounds.")
    return lower, upper
