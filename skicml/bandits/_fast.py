"""Feasible action search for bandit linear programs."""

import math
from numbers import Integral, Real

import numpy as np
from scipy.special import ndtr
from sklearn.utils._param_validation import Interval, StrOptions

from skicml.bandits._confidence import BaseConfidencePolicy

_FIRST_TEST = 16
# A replay has no more to tell than its records: rounds a candidate that it is worth.
_ROUNDS_PER_CANDIDATE = 50


class FAST(BaseConfidencePolicy):
    """Feasible action search by Thompson sampling (FAST).

    Some constraints ``Phi a >= thresholds`` on an action a can only be sampled: playing a
    shows ``Phi a`` plus noise. FAST looks for an action that satisfies all of them with a
    margin close to the largest possible one, and breaks them as little as it can on the way.
    It stops with a certificate that the action is feasible, or that no action is.

    Parameters
    ----------
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
        Share of the best margin that the answer may fall short of, in (0, 1).
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
    coupled : bool, default=True
        Add one and the same noise vector to all rows of the estimate. False draws one a row,
        the obvious Thompson sampling, which stops exploring when there are many constraints;
        it is there for comparison.
    scale : float, default=1.0
        Factor of the noise. Below 1 the policy explores less; the certificates stay valid.
    upper : {"directions", "resample"}, default="directions"
        Upper bound on the best margin, see Notes. Finite tables have an exact one.
    check_growth : float, default=1.2
        The certificates are tested after round 16, and then whenever the number of rounds has
        grown by this factor.
    max_rounds : int, default=10000
        Rounds after which :meth:`fit` and :meth:`search` give up. :meth:`fit` plays at most 50
        rounds a candidate.
    oracle : callable or None, default=None
        Default of :meth:`search`: plays an action and returns its outcome.
    store_history : bool, default=True
        Keep what the attributes that grow with the rounds are made from.
    random_state : int, RandomState instance or None, default=None
        Seed of the random stream of the policy.

    Attributes
    ----------
    status_ : {"feasible", "infeasible", "undecided"}
        The verdict of the last test.
    best_action_ : ndarray of shape (n_features,)
        The action of the largest certificate at the last test, whatever the verdict; None before
        the first one.
    best_index_ : int or None
        Its row in a finite table; None for the other sets.
    margin_lower_ : float
        Lower confidence bound of the margin of `best_action_`.
    margin_upper_ : float
        Upper confidence bound of the margin of every action.
    certificates_ : list of (int, float, float)
        Round, `margin_lower_` and `margin_upper_` of every test.
    safety_cost_observed_ : float
        Sum of the observed violations ``max(0, -min_i (y_i - thresholds_i))`` of all rounds;
        noise included.
    Phi_ : ndarray of shape (n_constraints, n_features)
        Estimate of the map.
    intercept_ : ndarray of shape (n_constraints,)
        Estimated constants; zeros without `fit_intercept`.
    precision_ : ndarray of shape (D, D)
        The matrix V of the confidence ellipsoids; D is n_features, or one more with
        `fit_intercept`.
    radius_ : float
        Radius of the ellipsoids in the norm of V.
    actions_ : ndarray of shape (n_rounds_, n_features)
        Actions played; absent if `store_history` is False.
    outcomes_ : ndarray of shape (n_rounds_, n_constraints)
        Outcomes seen; absent if `store_history` is False.
    n_rounds_, t_ : int
        Rounds played.
    n_outcomes_ : int
        Number of constraints; None before it is known.
    n_features_in_ : int
        Length of an action.
    rng_ : RandomState
        The random stream of the policy.

    See Also
    --------
    SafeLinearThompsonSampling : Maximise a reward after the search.
    skicml.datasets.make_bandit_lp : Random instances with a known best margin.

    Notes
    -----
    With ``V = reg I + sum a a^T`` and ``G = sum y a^T``, the estimate is ``G V^{-1}`` and
    with probability 1 - delta every row is within ``radius_`` of the truth in the norm of V, at
    all times. In every round the policy draws one standard normal vector eta, adds
    ``scale radius_ V^{-1/2} eta`` to *every* row, and plays the action of the largest margin
    of the result, the solution of a linear program. At the best action all rows are then
    optimistic at once with probability 0.16 or more, however many rows there are.

    A test compares two numbers:

    - ``L``, the lower confidence bound of the better one of two candidates: the average of
      the actions played, and the action of the largest estimated margin (in a finite table the
      row of the largest bound);
    - ``U``, an upper bound on the best margin ``M*``. "directions": the largest of the 2 D
      margins that are possible when ``radius_ sqrt(D)`` times plus or minus a row of ``V^{-1/2}``
      is added to all rows of the estimate, which is valid as ``||z||_2 <= sqrt(D) ||z||_inf``.
      "resample": the largest margin of so many fresh perturbations, with a `scale` of 1, that
      one of them is optimistic; half of `delta` pays for them. Finite tables: the largest upper
      confidence bound of a row.

    The verdict is "feasible" if ``L > 0`` and ``L >= (1 - epsilon) U``: then the margin of
    `best_action_` is at least ``(1 - epsilon) M*``. It is "infeasible" if ``U < 0``. Both are
    right with probability 1 - delta. The number of rounds is
    ``O(d^3 / (epsilon^2 M*^2))`` up to logarithms, the sum of the violations ``O(d^3 / |M*|)``.

    The algorithm of the rounds is the paper's; the radius (Abbasi-Yadkori et al.), the normal
    law of the noise and the test are our reconstruction, chosen so that the guarantees can be
    proved. Thresholds are known and subtracted, not learned as one more column of the map.

    What to know before use:

    - If A holds the action 0 and the thresholds are None, no margin is negative at the best
      action, and "infeasible" cannot be the answer.
    - A row of Phi that is longer than `norm_bound` voids the certificates silently. Scale the
      actions and outcomes; `norm_bound` enters the radius linearly.
    - A single record a candidate in :meth:`fit` repeats the same noise at every replay: the
      verdict is then about the records, not about the means behind them. Record repeats
      where the noise matters.

    A round takes one linear program of m + k rows and d + 1 columns (1 to 2 ms), or O(n m d)
    over a table of n rows, and O(D^3 + m D) beside it; a test takes 2 D linear programs.
    The memory is O(D^2 + m D), O(n d) for a table, and O(d + m) a round with `store_history`.
    Everything is computed in float64.

    References
    ----------
    .. [1] A. Gangrade, A. Pacchiano, C. Scott and V. Saligrama, "Feasible Action Search for
           Bandit Linear Programs via Thompson Sampling", ICML 2025, PMLR 267:18228-18256.
    .. [2] Y. Abbasi-Yadkori, D. Pal and C. Szepesvari, "Improved Algorithms for Linear
           Stochastic Bandits", NeurIPS 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.bandits import FAST
    >>> Phi = np.array([[0.8, 0.0], [0.6, -0.5], [0.3, 0.7]])
    >>> noise = np.random.RandomState(0)
    >>> def oracle(action):
    ...     return Phi @ action + 0.1 * noise.standard_normal(3)
    >>> search = FAST(bounds=([-1, -1], [1, 1]), noise_std=0.1, random_state=0).search(oracle)
    >>> search.status_
    'feasible'
    >>> bool((Phi @ search.best_action_).min() >= search.margin_lower_ > 0)
    True
    >>> search.predict([[1.0, 0.2], [-1.0, 0.0]])
    array([ 1, -1])

    Replay of a table of recorded outcomes:

    >>> X = noise.uniform(-1, 1, (40, 2))
    >>> Y = X @ Phi.T + 0.1 * noise.standard_normal((40, 3))
    >>> FAST(noise_std=0.1, random_state=0).fit(X, Y).status_
    'feasible'
    """

    _parameter_constraints = {
        **BaseConfidencePolicy._parameter_constraints,
        "coupled": ["boolean"],
        "upper": [StrOptions({"directions", "resample"})],
        "check_growth": [Interval(Real, 1, None, closed="left")],
        "max_rounds": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
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
        coupled=True,
        scale=1.0,
        upper="directions",
        check_growth=1.2,
        max_rounds=10000,
        oracle=None,
        store_history=True,
        random_state=None,
    ):
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
        self.coupled = coupled
        self.scale = scale
        self.upper = upper
        self.check_growth = check_growth
        self.max_rounds = max_rounds
        self.oracle = oracle
        self.store_history = store_history
        self.random_state = random_state

    @property
    def n_rounds_(self):
        """Rounds played."""
        return self.t_

    def _reset(self, n_features):
        super()._reset(n_features)
        self.status_ = "undecided"
        self.best_action_ = self.best_index_ = None
        self.margin_lower_, self.margin_upper_ = -math.inf, math.inf
        self.safety_cost_observed_ = 0.0
        self.certificates_ = []
        self._action_sum = np.zeros(n_features)
        self._next_test, self._tested_at = _FIRST_TEST, 0
        self._ignores_verdict = False

    def _select(self):
        """Steps 1 to 3: the maximin action of a perturbed estimate."""
        play = self._set.maximin(*self._program(self._perturbed()), self.rng_)
        return play.action if play.index is None else play.index

    def _perturbed(self):
        """Estimate plus noise of the law of the confidence ellipsoids, inflated by the radius.

        Coupled: one vector for all rows, so that all rows are optimistic at once with a
        probability that does not depend on their number.
        """
        coef = self._constraint_coef
        return coef + self.scale * self._noise(1 if self.coupled else len(coef))

    def _update(self, action, outcome):
        """Steps 4 and 5: learn, and test from time to time."""
        super()._update(action, outcome)
        self._action_sum += action
        self.safety_cost_observed_ += max(0.0, -float(self._observed_margin(outcome)))
        if self.t_ >= self._next_test:
            self._test()

    def _test(self):
        """Compare a certified margin of one action with an upper bound on every margin."""
        lower, action, index = self._best_certified()
        upper = self._upper_bound()
        self.certificates_.append((self.t_, lower, upper))
        self.best_action_, self.best_index_ = action.copy(), index
        self.margin_lower_, self.margin_upper_ = lower, upper
        if lower > 0.0 and lower >= (1.0 - self.epsilon) * upper:
            self.status_ = "feasible"
        else:
            self.status_ = "infeasible" if upper < 0.0 else "undecided"
        self._tested_at = self.t_
        self._next_test = max(self.t_ + 1, math.ceil(self.check_growth * self.t_))

    def _best_certified(self):
        """Candidate of the largest lower certificate: (certificate, action, row in the table)."""
        if not self._set.is_convex:
            estimate, width = self._margins(self._set.actions)
            return self._set.play(estimate - width)
        greedy = self._set.maximin(*self._program(self._constraint_coef)).action
        candidates = np.vstack([self._action_sum / self.t_, greedy])
        estimate, width = self._margins(candidates)
        lower = estimate - width
        best = int(lower.argmax())
        return float(lower[best]), candidates[best], None

    def _upper_bound(self):
        """Upper bound on the margin of every action of the set."""
        if not self._set.is_convex:
            estimate, width = self._margins(self._set.actions)
            return float((estimate + width).max())
        return max(self._optimistic_value(shift) for shift in self._optimistic_shifts())

    def _optimistic_value(self, shift):
        return self._set.maximin(*self._program(self._constraint_coef + shift)).value

    def _optimistic_shifts(self):
        """Shifts of all rows of the estimate, one of which is optimistic at the best action."""
        if self.upper == "directions":
            return self._directional_shifts()
        # Each draw is optimistic with probability p0: enough of them for the k-th test. Their
        # noise does not shrink with `scale`: p0 would, and the number of draws explode.
        k = len(self.certificates_) + 1
        delta_k = self._resampling_delta() / (k * (k + 1))
        p0 = ndtr(-1.0)
        n_draws = math.ceil(math.log(1.0 / delta_k) / -math.log1p(-p0))
        return self._noise(n_draws)

    def _confidence_delta(self):
        return self.delta - (self._resampling_delta() if self.upper == "resample" else 0.0)

    def _resampling_delta(self):
        """Share of delta that the upper bounds by resampling may fail with, over all tests."""
        return self.delta / 2.0

    def _conclude(self):
        if self.t_ > self._tested_at:
            self._test()

    def _resume(self):
        """After a verdict a search that was asked for more rounds plays all of them."""
        self._ignores_verdict = self.status_ != "undecided"

    def _is_finished(self):
        return self.status_ != "undecided" and not self._ignores_verdict

    def _max_rounds(self):
        if self.status_ != "undecided":
            return 0
        n_rounds = self.max_rounds - self.t_
        if self._is_replay:
            n_rounds = min(n_rounds, _ROUNDS_PER_CANDIDATE * len(self._candidates))
        return max(0, n_rounds)
