"""Safe linear bandits that find their safe action themselves."""

import math
from numbers import Integral
from typing import NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.utils._param_validation import Interval, StrOptions

from skicml.bandits._confidence import BaseConfidencePolicy
from skicml.bandits._fast import FAST

# Halvings of the segment between the safe action and the target: 1e-9 of its length.
_BISECTION_STEPS = 30


class _Plan(NamedTuple):
    """What to play: the action, the share of the target in it, its row in a table."""

    action: np.ndarray
    rho: float
    index: int | None = None


class SafeLinearThompsonSampling(BaseConfidencePolicy):
    """Safe linear bandit that finds its safe action itself (FAST, then S-COLTS).

    The outcome of an action is a reward and some constraints, all of them linear in the action
    and noisy. The policy first looks for an action that certainly satisfies the constraints
    (:class:`FAST`), and then maximises the reward among actions that are certified safe.

    Parameters
    ----------
    initializer : "fast", array-like of shape (n_features,) or FAST instance, default="fast"
        Where the safe action comes from: the search with the parameters of this policy; an
        action that is known to be safe; or a search of your own, which is cloned and gets the
        action set, the thresholds and a seed of this policy.
    strategy : {"colts", "optimistic", "doubly-optimistic", "greedy"}, default="colts"
        What to aim at after the search. "colts": the best action of a coupled perturbation of
        the estimates of reward and constraints. "optimistic": the best action of all maps
        within the confidence ellipsoids. "greedy": the best action of the estimates. All of
        these are pulled towards the safe action until the mixture is certified safe.
        "doubly-optimistic" plays the optimistic action itself and breaks constraints on the way.
    action_set : {"box", "ball", "simplex", "finite"}, tuple (A_ub, b_ub) or 2-D array, \
            default="box"
        The known set A of actions a. "box": ``lower <= a <= upper`` with `bounds`; "ball":
        ``||a||_2 <= ball_radius``; "simplex": ``a >= 0`` with ``sum(a) = 1``; a pair of arrays
        of shapes (k, d) and (k,): the bounded polytope ``A_ub a <= b_ub``; an array of shape
        (n_actions, d): its rows. "finite" stands for the rows of X in :meth:`fit`, which
        always plays these.
    bounds : tuple (lower, upper), default=(-1.0, 1.0)
        Corners of the box, numbers or arrays of shape (n_features,).
    ball_radius : float, default=1.0
        Radius of the ball.
    n_features : int or None, default=None
        Length d of an action. Needed for live use where `action_set` and `bounds` do not tell.
    thresholds : float, array-like of shape (n_constraints,) or None, default=None
        Known limits that the mean outcomes must reach: the margin of a is
        ``min_i (Phi a)_i - thresholds_i``, in units of the outcome. None: 0. For an upper limit
        hand in the outcome and the limit with the opposite sign.
    fit_intercept : bool, default=False
        Learn a constant in every outcome: a coordinate 1 is appended to every action. Without
        it the outcome of the action 0 is 0.
    epsilon : float, default=0.5
        Share of the best margin that the safe action may fall short of, in (0, 1).
    delta : float, default=0.05
        Probability that any statement made at any time may be wrong.
    noise_std : float, default=1.0
        Sub-Gaussian constant of the noise of every outcome (its standard deviation, if it is
        Gaussian), in units of the outcome.
    norm_bound : float, default=1.0
        Upper bound S on the norm of every row of the map (with its constant, if
        `fit_intercept`). If a row is longer, the certificates are void.
    reg : float, default=1.0
        Weight of the ridge of the least-squares estimate, in units of a squared action.
    scale : float, default=1.0
        Factor of the noise of the search and of "colts".
    horizon : int, default=1000
        Rounds that :meth:`fit` and :meth:`search` play, those of the search included.
    oracle : callable or None, default=None
        Default of :meth:`search`: plays an action and returns its outcome.
    store_history : bool, default=True
        Keep what the attributes that grow with the rounds are made from.
    random_state : int, RandomState instance or None, default=None
        Seed of the random stream of the policy.

    Attributes
    ----------
    status_ : {"undecided", "feasible", "infeasible"}
        "undecided" while the search lasts, "feasible" when there is a safe action, "infeasible"
        when there is none; the last one ends the run.
    safe_action_ : ndarray of shape (n_features,)
        The safe action; None while it is not known.
    n_init_rounds_ : int
        Rounds that the search took.
    best_action_ : ndarray of shape (n_features,)
        The certified action of the largest estimated reward; None without a safe action.
    best_index_ : int or None
        Its row in a finite table; None for the other sets.
    rewards_ : ndarray of shape (t_,)
        Rewards seen; absent if `store_history` is False.
    rho_ : ndarray of shape (t_ - n_init_rounds_,)
        Share of the target in the actions after the search: 0 is the safe action, 1 the target.
        NaN where an action was told that had not been asked for. Absent if `store_history` is
        False.
    n_fallback_ : int
        Rounds after the search with a share of 0.
    theta_ : ndarray of shape (n_features,)
        Estimate of the map of the reward.
    theta_intercept_ : float
        Estimated constant of the reward; 0 without `fit_intercept`.
    Phi_ : ndarray of shape (n_constraints, n_features)
        Estimate of the map of the constraints.
    intercept_ : ndarray of shape (n_constraints,)
        Estimated constants of the constraints; zeros without `fit_intercept`.
    precision_ : ndarray of shape (D, D)
        The matrix V of the confidence ellipsoids; D is n_features, or one more with
        `fit_intercept`.
    radius_ : float
        Radius of the ellipsoids of all outcomes in the norm of V.
    actions_ : ndarray of shape (t_, n_features)
        Actions played; absent if `store_history` is False.
    outcomes_ : ndarray of shape (t_, n_outcomes_)
        Outcomes seen; absent if `store_history` is False.
    t_ : int
        Rounds played.
    n_outcomes_ : int
        Number of outcomes, the reward included; None before it is known.
    n_features_in_ : int
        Length of an action.
    rng_ : RandomState
        The random stream of the policy.

    See Also
    --------
    FAST : The search alone.

    Notes
    -----
    The first entry of an outcome is the reward, the others are the constraints. A single
    outcome is both: the reward itself must stay at or above `thresholds`, a number then (a
    stage-wise conservative bandit).

    With the data of the search kept, a round of "colts" draws one standard normal vector,
    adds ``scale radius_ V^{-1/2} eta`` to the estimates of the reward and of every constraint,
    and takes the best action b that this leaves, a linear program. It then plays
    ``rho b + (1 - rho) safe_action_`` with the largest rho in [0, 1] whose lower confidence
    bound of the margin is at least 0; this bound is concave in rho, and 30 halvings find it to
    1e-9. If no action is left, or the safe action has no certificate (yet), it plays the safe
    action. With probability 1 - delta every play after the search is safe. Search and strategy
    use one confidence statement about all outcomes, so that `delta` is spent once.

    "optimistic" and "doubly-optimistic" solve 2 D linear programs a round, one for every
    direction of the upper bound of :class:`FAST`; "greedy" solves one without noise.

    A finite table has no mixtures. Where its target has no certificate, the policy plays the
    certified row of the largest perturbed reward, with a share of 0.

    This is "S-COLTS" of [2]_ started by [1]_. Our decisions: the test that ends the search
    (see :class:`FAST`), the rule for tables, and that "greedy" is pulled to safety like "colts".

    A round takes O(D^3 + m D) beside its linear programs, or O(n m d) over a table of n rows.
    The memory is O(D^2 + m D), O(n d) for a table, and O(d + m) a round with `store_history`.

    References
    ----------
    .. [1] A. Gangrade, A. Pacchiano, C. Scott and V. Saligrama, "Feasible Action Search for
           Bandit Linear Programs via Thompson Sampling", ICML 2025, PMLR 267:18228-18256.
    .. [2] A. Gangrade and V. Saligrama, "Constrained Linear Thompson Sampling", NeurIPS 2025,
           arXiv:2503.02043.
    .. [3] S. Hutchinson, B. Turan and M. Alizadeh, "Directional Optimism for Safe Linear
           Bandits", AISTATS 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.bandits import SafeLinearThompsonSampling
    >>> theta, Phi = np.array([0.2, 0.9]), np.array([[0.8, -0.4], [0.5, 0.0]])
    >>> noise = np.random.RandomState(0)
    >>> def oracle(action):
    ...     return np.append(theta @ action, Phi @ action) + 0.1 * noise.standard_normal(3)
    >>> policy = SafeLinearThompsonSampling(
    ...     bounds=([-1, -1], [1, 1]), noise_std=0.1, horizon=300, random_state=0
    ... ).search(oracle)
    >>> policy.status_
    'feasible'
    >>> played = policy.actions_[policy.n_init_rounds_ :]
    >>> bool((played @ Phi.T).min() >= 0)
    True
    >>> policy.best_action_.round(1)
    array([1., 1.])
    """

    _parameter_constraints = {
        **BaseConfidencePolicy._parameter_constraints,
        "initializer": [StrOptions({"fast"}), FAST, "array-like"],
        "strategy": [StrOptions({"colts", "optimistic", "doubly-optimistic", "greedy"})],
        "horizon": [Interval(Integral, 1, None, closed="left")],
    }

    _n_other_rows = 1

    def __init__(
        self,
        *,
        initializer="fast",
        strategy="colts",
        action_set="box",
        bounds=(-1.0, 1.0),
        ball_radius=1.0,
        n_features=None,
        thresholds=None,
        fit_intercept=False,
        epsilon=0.5,
        delta=0.05,
        noise_std=1.0,
        norm_bound=1.0,
        reg=1.0,
        scale=1.0,
        horizon=1000,
        oracle=None,
        store_history=True,
        random_state=None,
    ):
        self.initializer = initializer
        self.strategy = strategy
        self.action_set = action_set
        self.bounds = bounds
        self.ball_radius = ball_radius
        self.n_features = n_features
        self.thresholds = thresholds
        self.fit_intercept = fit_intercept
        self.epsilon = epsilon
        self.delta = delta
        self.noise_std = noise_std
        self.norm_bound = norm_bound
        self.reg = reg
        self.scale = scale
        self.horizon = horizon
        self.oracle = oracle
        self.store_history = store_history
        self.random_state = random_state

    @property
    def theta_(self):
        """Estimate of the map of the reward, of shape (n_features,)."""
        return self._ridge.coef[0, : self.n_features_in_].copy()

    @property
    def theta_intercept_(self):
        """Estimated constant of the reward."""
        return float(self._ridge.coef[0, -1]) if self.fit_intercept else 0.0

    @property
    def rewards_(self):
        """Rewards seen, of shape (t_,)."""
        return self.outcomes_[:, :1].ravel()  # no column before the first round

    @property
    def rho_(self):
        """Share of the target in each action after the search, of shape (t_ - n_init_rounds_,)."""
        self._require_history("rho_")
        return np.array(self._rhos, dtype=float)

    @property
    def best_action_(self):
        """Certified action of the largest estimated reward; None without a safe action."""
        return None if self.safe_action_ is None else self._plan("greedy").action.copy()

    @property
    def best_index_(self):
        """Row of `best_action_` in a finite table; None for the other sets."""
        return None if self.safe_action_ is None else self._plan("greedy").index

    def _constraint_rows(self):
        """All but the reward; the reward itself where it is the only outcome."""
        return slice(int(len(self._ridge.coef) > 1), None)

    def _reset(self, n_features):
        super()._reset(n_features)
        self.status_ = "undecided"
        self.safe_action_ = None
        self.n_init_rounds_ = self.n_fallback_ = 0
        self._rhos = [] if self.store_history else None
        self._planned = None
        self._searcher = None
        if isinstance(self.initializer, (str, FAST)):
            self._searcher = self._start_search(n_features)
        else:
            self._settle(self._given_safe_action(n_features))

    def _start_search(self, n_features):
        """The feasible action search, over our actions and thresholds and with a seed of ours."""
        if isinstance(self.initializer, str):
            searcher = FAST(
                epsilon=self.epsilon,
                delta=self.delta,
                noise_std=self.noise_std,
                norm_bound=self.norm_bound,
                reg=self.reg,
                scale=self.scale,
            )
        else:
            searcher = clone(self.initializer)
            searcher._validate_params()
        searcher.set_params(
            action_set=self.action_set,
            bounds=self.bounds,
            ball_radius=self.ball_radius,
            thresholds=self.thresholds,
            fit_intercept=self.fit_intercept,
            store_history=False,
            random_state=self.rng_.randint(2**31 - 1),
        )
        searcher._begin(n_features, self._candidates)
        return searcher

    def _given_safe_action(self, n_features):
        action = np.array(self.initializer, dtype=float)
        if action.shape != (n_features,) or not np.isfinite(action).all():
            raise ValueError(
                f"initializer must be a finite action of shape ({n_features},), "
                f"got {self.initializer!r}."
            )
        if not self._set.contains(action):
            raise ValueError(f"initializer must be in the action set, got {action}.")
        return action

    def _settle(self, safe_action):
        """End of the search: from now on the strategy plays."""
        self.status_ = "feasible"
        self.safe_action_ = safe_action
        self._searcher = None

    def _select(self):
        if self._searcher is not None:
            return self._searcher._open_action()
        self._planned = self._plan(self.strategy, self.rng_)
        return self._planned.action if self._planned.index is None else self._planned.index

    def _plan(self, strategy, rng=None):
        """What a strategy plays; `rng` breaks ties between the rows of a table."""
        if self._candidates is not None:
            return self._plan_row(strategy, rng)
        target = self._target(self._shifts(strategy))
        if target is None:
            return _Plan(self.safe_action_, 0.0)
        rho = 1.0 if strategy == "doubly-optimistic" else self._certified_share(target)
        return _Plan(rho * target + (1.0 - rho) * self.safe_action_, rho)

    def _shifts(self, strategy):
        """Shifts of the estimates of reward and constraints alike, of shape (n_shifts, D)."""
        if strategy == "greedy":
            return np.zeros((1, len(self._ridge.precision)))
        return self.scale * self._noise(1) if strategy == "colts" else self._directional_shifts()

    def _target(self, shifts):
        """Best action of all shifted estimates; None if none of them leaves an action."""
        best_value, target = -math.inf, None
        for shift in shifts:
            theta = self._ridge.coef[0] + shift
            constraints = self._program(self._constraint_coef + shift)
            play = self._set.linear(theta[: self.n_features_in_], *constraints)
            if play is None:
                continue
            value = play.value + (theta[-1] if self.fit_intercept else 0.0)
            if value > best_value:
                best_value, target = value, play.action
        return target

    def _certified_share(self, target):
        """Largest rho such that ``rho target + (1 - rho) safe_action_`` is certified safe.

        The lower certificate is concave along the segment. 0 if not even the safe action has
        a certificate.
        """
        ends = self._features(np.vstack([self.safe_action_, target]))
        margins = self._constraint_coef @ ends.T - self._thresholds.reshape(-1, 1)
        gram = ends @ self._ridge.inverse @ ends.T
        radius = self.radius_

        def is_certified(rho):
            shares = np.array([1.0 - rho, rho])
            width = radius * math.sqrt(max(0.0, shares @ gram @ shares))
            return (margins @ shares).min() >= width

        if not is_certified(0.0):
            return 0.0
        if is_certified(1.0):
            return 1.0
        low, high = 0.0, 1.0
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2.0
            low, high = (middle, high) if is_certified(middle) else (low, middle)
        return low

    def _plan_row(self, strategy, rng):
        """A table has no mixtures: the best certified row where the target has no certificate."""
        table = self._set
        estimate, width = self._margins(table.actions)
        features = self._features(table.actions)
        if strategy in ("optimistic", "doubly-optimistic"):
            bonus = width  # exact: the largest value of every row within its confidence
        else:
            bonus = features @ self._shifts(strategy)[0]
        # one vector is added to all rows of the map, hence one bonus to all outcomes
        values = features @ self._ridge.coef[0] + bonus
        is_allowed, is_certified = estimate + bonus >= 0.0, estimate >= width
        if is_allowed.any():
            target = table.play(np.where(is_allowed, values, -np.inf), rng)
            if strategy == "doubly-optimistic" or is_certified[target.index]:
                return _Plan(target.action, 1.0, target.index)
        if is_certified.any():
            row = table.play(np.where(is_certified, values, -np.inf), rng)
            return _Plan(row.action, 0.0, row.index)
        return _Plan(self.safe_action_, 0.0, table.index_of(self.safe_action_))

    def _update(self, action, outcome):
        super()._update(action, outcome)
        if self._searcher is None:
            self._record_plan(action)
            return
        self.n_init_rounds_ = self.t_
        self._searcher._n_shared_rows = int(self.n_outcomes_ > 1)
        self._searcher._tell(action, outcome[self._constraint_rows()])
        self._follow_verdict()

    def _record_plan(self, action):
        """Keep the share of the target in the action; NaN if we did not ask for the action."""
        is_ours = self._planned is not None and np.array_equal(self._planned.action, action)
        if is_ours and self._planned.rho == 0.0:
            self.n_fallback_ += 1
        if self._rhos is not None:
            self._rhos.append(self._planned.rho if is_ours else math.nan)
        self._planned = None

    def _follow_verdict(self):
        self.status_ = self._searcher.status_
        if self.status_ == "feasible":
            self._settle(self._searcher.best_action_)

    def _conclude(self):
        if self._searcher is not None:
            self._searcher._conclude()
            self._follow_verdict()

    def _is_finished(self):
        return self.status_ == "infeasible"

    def _max_rounds(self):
        return max(0, self.horizon - self.t_)
