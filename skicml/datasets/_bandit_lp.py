"""Linear programs whose constraints can only be sampled."""

from numbers import Real

import numpy as np
from scipy.optimize import linprog
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, validate_params

from skicml.datasets._constraints import NOT_NEGATIVE, SIZE

# Steps in which the rows are tilted: fine enough that little is left to scale.
_FIRST_TILT, _TILT_GROWTH = 0.05, 1.1


class _NoisyLinearOracle:
    """Outcome of an action: ``Phi a`` plus Gaussian noise."""

    def __init__(self, Phi, noise_std, rng):
        self.Phi = Phi
        self.noise_std = noise_std
        self._rng = rng

    def __call__(self, action):
        return self.Phi @ action + self.noise_std * self._rng.standard_normal(len(self.Phi))


@validate_params(
    {
        "n_features": [SIZE],
        "n_constraints": [SIZE],
        "margin": [Interval(Real, 0, 1, closed="neither")],
        "feasible": ["boolean"],
        "noise_std": [NOT_NEGATIVE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_bandit_lp(
    n_features=3,
    n_constraints=4,
    margin=0.3,
    *,
    feasible=True,
    noise_std=0.1,
    random_state=None,
):
    """Random bandit linear program with a given best safety margin.

    The safety margin of an action a is ``min_i (Phi a)_i``. A feasible instance has a best
    margin of `margin` over the box ``[-1, 1]^d / sqrt(d)``, an infeasible one of ``-margin``
    over the simplex.

    Parameters
    ----------
    n_features : int, default=3
        Dimension d of the actions.
    n_constraints : int, default=4
        Number of rows of Phi.
    margin : float, default=0.3
        Size of the best margin: between 0 and 1, for an infeasible instance between 0 and
        ``1 / sqrt(d)``.
    feasible : bool, default=True
        Whether some action satisfies all constraints.
    noise_std : float, default=0.1
        Standard deviation of the Gaussian noise of the oracle.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    Phi : ndarray of shape (n_constraints, n_features)
        The map from actions to outcomes; no row has a norm above 1.
    action_set : tuple (A_ub, b_ub)
        The actions a with ``A_ub a <= b_ub``, as `action_set` of :class:`skicml.bandits.FAST`
        takes them.
    oracle : callable
        ``oracle(action)`` returns a noisy outcome of shape (n_constraints,).

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or `margin` cannot be reached
        with rows of norm 1.

    Notes
    -----
    The rows are drawn uniformly from the unit sphere. While the best margin is smaller in size
    than asked for, they are tilted a little towards one direction (a random corner of the
    box; away from the simplex); then they are scaled down to the margin exactly. Unlike
    rejection sampling this ends for any number of constraints. It takes some tens of
    linear programs of m + 2 d rows, and O((m + d) d) memory.

    Examples
    --------
    >>> from skicml.datasets import make_bandit_lp
    >>> Phi, (A_ub, b_ub), oracle = make_bandit_lp(2, 3, margin=0.2, random_state=0)
    >>> Phi.shape, A_ub.shape, oracle([0.5, 0.5]).shape
    ((3, 2), (4, 2), (3,))
    """
    limit = 1.0 if feasible else 1.0 / np.sqrt(n_features)
    if margin >= limit:
        raise ValueError(f"margin must be between 0 and {limit:.4g}, got {margin}.")
    rng = check_random_state(random_state)
    normals = rng.standard_normal((n_constraints, n_features))
    if feasible:
        A_ub, b_ub = _box(n_features)
        direction, target = rng.choice([-1.0, 1.0], n_features), margin
    else:
        A_ub, b_ub = _simplex(n_features)
        direction, target = -np.ones(n_features), -margin
    Phi = _rows_of_margin(target, normals, direction, A_ub, b_ub)
    oracle = _NoisyLinearOracle(Phi, noise_std, np.random.RandomState(rng.randint(2**31 - 1)))
    return Phi, (A_ub, b_ub), oracle


def _box(d):
    return np.vstack([np.eye(d), -np.eye(d)]), np.full(2 * d, 1.0 / np.sqrt(d))


def _simplex(d):
    ones = np.ones((1, d))
    return np.vstack([-np.eye(d), ones, -ones]), np.concatenate([np.zeros(d), [1.0, -1.0]])


def _rows_of_margin(target, normals, direction, A_ub, b_ub):
    """Rows of norm at most 1 whose best margin is `target`."""
    tilt = 0.0
    while True:
        rows = normals + tilt * direction
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        ratio = _best_margin(rows, A_ub, b_ub) / target
        if ratio >= 1.0:
            return rows / ratio
        tilt = max(_FIRST_TILT, _TILT_GROWTH * tilt)


def _best_margin(Phi, A_ub, b_ub):
    """``max_a min_i (Phi a)_i`` over the polytope, a linear program in (a, u)."""
    n_constraints, d = Phi.shape
    result = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.block([[-Phi, np.ones((n_constraints, 1))], [A_ub, np.zeros((len(A_ub), 1))]]),
        b_ub=np.append(np.zeros(n_constraints), b_ub),
        bounds=(None, None),
        method="highs",
    )
    return -result.fun
