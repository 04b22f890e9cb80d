"""What bandit policies have in common, and the base class of the K-armed ones."""

import copy
import operator
import warnings
from abc import ABC, abstractmethod
from array import array
from math import inf
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.utils._progress import fit_steps

# One callback task a block of rounds: a task a round would cost more than the round.
_ROUNDS_PER_TASK = 1000


class BasePolicy(CallbackSupportMixin, BaseEstimator, ABC):
    """What K-armed and linear policies share: random stream, open question, atomic fit.

    A fit learns in a second, unfitted object with the same parameters and takes over its
    state at the end, so that nothing half fitted is left behind.
    """

    _parameter_constraints = {"random_state": ["random_state"]}

    _is_live = False

    @abstractmethod
    def _select(self):
        """Choose the next action. Draws noise from ``rng_`` in a fixed order."""

    @abstractmethod
    def _update(self, action, outcome):
        """Learn from one finished round."""

    def ask(self, n_points=None):
        """Choose the next action.

        Asking again before the next :meth:`tell` gives the same action and consumes no
        randomness.

        Parameters
        ----------
        n_points : None
            Number of actions to choose at once; this policy chooses one after another.

        Returns
        -------
        action : int or ndarray of shape (n_features,)
            The arm, or the action vector of a linear policy.

        Raises
        ------
        NotImplementedError
            If `n_points` is not None.
        NotFittedError
            Before `fit` or `reset`.
        ValueError
            If the policy needs the parameter `horizon` and does not have it.
        """
        if n_points is not None:
            raise NotImplementedError(
                f"{type(self).__name__} asks for one action at a time: n_points must be None."
            )
        self._check_live()
        return self._open_action()

    def _check_live(self):
        """Refuse to play before `fit` or `reset`."""
        if not self._is_live:
            check_is_fitted(self, "t_")

    def _open_action(self):
        """The action that was asked for and not told yet; a new one if there is none."""
        if self._asked is None:
            self._asked = self._select()
        return self._asked

    def _open_stream(self):
        """Start at round 0 with a random stream of its own."""
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self.rng_ = np.random.RandomState(seed)
        self.t_ = 0
        self._asked = None
        self._is_live = True

    def _unfitted_copy(self):
        return type(self)(**self.get_params(deep=False))

    def _learned(self):
        """Everything that is not a parameter, by name."""
        parameters = self.get_params(deep=False)
        return {name: value for name, value in vars(self).items() if name not in parameters}

    def _take_over(self, learner):
        """Replace everything learned before by what `learner` knows."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        vars(self).update(learner._learned())

    def _run_rounds(self, learner, n_rounds, play, **data):
        """Let `learner` play up to `n_rounds` rounds, one callback task a block of rounds.

        ``play(start, stop)`` plays the rounds start..stop-1 and returns True to end early.
        """
        n_blocks = -(-n_rounds // _ROUNDS_PER_TASK)
        hooks = {
            "estimator": self,
            "reconstruction_attributes": lambda: copy.deepcopy(learner._learned()),
            **data,
        }
        context = self._init_callback_context(max_subtasks=n_blocks)
        context.call_on_fit_task_begin(**hooks)
        for block in fit_steps(context, n_steps=n_blocks, name="block of rounds", **hooks):
            start = block * _ROUNDS_PER_TASK
            if play(start, min(start + _ROUNDS_PER_TASK, n_rounds)):
                break
        context.call_on_fit_task_end(**hooks)


class BaseBanditPolicy(BasePolicy):
    """Base class of the policies that choose one of K arms in every round.

    A policy implements three hooks and nothing else:

    - ``_reset(n_arms)`` creates the state of the algorithm. ``n_arms_``, ``horizon_``
      (None when not known), ``rng_``, ``counts_`` (zeros), ``t_`` (0) and ``_unplayed`` (the
      list of the arms that were never played, in the order of the first plays) are there
      already. ``_argmax(index)`` breaks ties at random.
    - ``_select()`` returns the next arm as an int. It writes the index values that it compares
      into ``_index``, the array of shape (n_arms,) that :meth:`arm_scores` shows, and takes its
      noise from ``rng_``, always in the same order.
    - ``_update(arm, reward)`` learns from a reward that is scaled to [0, 1]. ``counts_`` and
      ``t_`` count the round already.

    ``fit(X)`` and the loop ``arm = ask(); tell(arm, X[t, arm])`` run the same code on the same
    random stream and play the same arms, bit for bit.

    Parameters
    ----------
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds that the policy is planned for. None: `fit` takes the number of rows
        of X.
    reward_range : tuple of two floats, default=(0.0, 1.0)
        Smallest and largest possible reward. It is declared and never learned from the data.
    out_of_range : {"clip", "raise"}, default="clip"
        What happens to a reward outside `reward_range`: it is clipped, with one warning a fit,
        or it is a ValueError.
    missing : {"skip", "raise"}, default="skip"
        NaN in X means "not logged". "skip": when the reward of the arm that was chosen is not
        logged, the row is dropped and the same arm is tried on the next row. "raise": NaN is a
        ValueError.
    store_history : bool, default=True
        Keep `actions_` and `rewards_`. Without them the memory does not grow with the rounds.
    random_state : int, RandomState instance or None, default=None
        Seed of the random stream of the policy.

    See Also
    --------
    BaseLinearPolicy : Policies whose actions are vectors.
    """

    _parameter_constraints = {
        **BasePolicy._parameter_constraints,
        "n_arms": [Interval(Integral, 2, None, closed="left"), None],
        "horizon": [Interval(Integral, 1, None, closed="left"), None],
        "reward_range": ["array-like"],
        "out_of_range": [StrOptions({"clip", "raise"})],
        "missing": [StrOptions({"skip", "raise"})],
        "store_history": ["boolean"],
    }

    # Whether the algorithm itself reads `horizon_`.
    _uses_horizon = False

    def __init__(
        self,
        *,
        n_arms=None,
        horizon=None,
        reward_range=(0.0, 1.0),
        out_of_range="clip",
        missing="skip",
        store_history=True,
        random_state=None,
    ):
        self.n_arms = n_arms
        self.horizon = horizon
        self.reward_range = reward_range
        self.out_of_range = out_of_range
        self.missing = missing
        self.store_history = store_history
        self.random_state = random_state

    @abstractmethod
    def _reset(self, n_arms):
        """Create the state of the algorithm for `n_arms` arms."""

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Play a table of rewards from the start.

        In round t the policy chooses an arm and sees ``X[t, arm]``; no other cell of X has any
        influence on what it does.

        Parameters
        ----------
        X : array-like of shape (n_rounds, n_arms)
            Row t holds what each arm would pay in round t; NaN where that was not logged.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted policy.

        Raises
        ------
        ValueError
            If a parameter or X is not valid.
        """
        learner = self._unfitted_copy()
        table = learner._check_table(X, reset=True)
        _check_every_arm_logged(table)
        learner._begin(table.shape[1], self.horizon or len(table))

        def play(start, stop):
            learner._play(table[start:stop])

        self._run_rounds(learner, len(table), play, X=X, y=y)
        learner._table_means = _column_means(table)
        self._take_over(learner)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None):
        """Go on playing with more rows.

        Parameters
        ----------
        X : array-like of shape (n_rounds, n_arms)
            Rewards of the next rounds, as in :meth:`fit`.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The policy after these rounds.

        Raises
        ------
        ValueError
            If the policy needs the parameter `horizon` and does not have it, or X is not valid.
        """
        if hasattr(self, "t_"):
            table = self._check_table(X, reset=False)
            self._check_live()
            self._play(table)
            return self
        learner = self._unfitted_copy()
        table = learner._check_table(X, reset=True)
        learner._begin(table.shape[1], self.horizon)
        learner._check_live()
        learner._play(table)
        self._take_over(learner)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def reset(self, n_arms=None):
        """Forget everything and start a fresh random stream, for live use.

        Parameters
        ----------
        n_arms : int or None, default=None
            Number of arms. None: the parameter `n_arms`, or the number of arms played so far.

        Returns
        -------
        self : object
            The policy at round 0.

        Raises
        ------
        ValueError
            If the number of arms is not known or less than 2.
        """
        if n_arms is None:
            n_arms = self.n_arms or getattr(self, "n_arms_", None)
        if n_arms is None or n_arms < 2:
            raise ValueError(f"reset needs n_arms >= 2, got n_arms={n_arms}.")
        learner = self._unfitted_copy()
        learner._begin(operator.index(n_arms), self.horizon)
        self._take_over(learner)
        return self

    def tell(self, arm, reward):
        """Report what an arm paid.

        An arm that was not asked for is legal (logged data); it counts as a round. A NaN reward
        means "not logged" and changes nothing.

        Parameters
        ----------
        arm : int or array-like of int
            The arm, or the arms of several rounds.
        reward : float or array-like of float
            Its reward in the units of `reward_range`; as many as arms.

        Returns
        -------
        self : object
            The policy after the round.

        Raises
        ------
        NotFittedError
            Before `fit` or `reset`.
        ValueError
            If an arm does not exist, a reward is infinite or no number, the lengths differ, or
            `out_of_range` or `missing` says so. Nothing is learned then.
        """
        self._check_live()
        if isinstance(arm, Integral) and isinstance(reward, Real):
            self._tell(self._check_arm(arm), _check_reward(reward))
            return self
        arms, rewards = _as_list(arm, "arm"), _as_list(reward, "reward")
        if len(arms) != len(rewards):
            raise ValueError(
                f"arm and reward must have one length, got {len(arms)} and {len(rewards)}."
            )
        rounds = [(self._check_arm(a), _check_reward(r)) for a, r in zip(arms, rewards)]
        for _, paid in rounds:
            self._scaled(paid)  # may refuse: all rounds are learned from, or none
        for played, paid in rounds:
            self._tell(played, paid)
        return self

    def predict(self, X=None):
        """The arm to play after learning, without exploration.

        Parameters
        ----------
        X : array-like of shape (n_rounds, n_arms) or None, default=None
            Only its number of rows matters. None counts as one row.

        Returns
        -------
        arms : ndarray of shape (n_rounds,) of intp
            `best_arm_`, once a row.

        Raises
        ------
        NotFittedError
            Before `fit` or `reset`.
        """
        check_is_fitted(self, "t_")
        n_rounds = 1 if X is None else len(self._check_table(X, reset=False))
        return np.full(n_rounds, self.best_arm_, dtype=np.intp)

    def arm_scores(self):
        """Index values that the last choice compared, for inspection.

        Returns
        -------
        scores : ndarray of shape (n_arms,)
            Draws, bounds or means, as the policy defines them; NaN before the first comparison.
        """
        check_is_fitted(self, "t_")
        return self._index.copy()

    def score(self, X, y=None):
        """Average reward a round when a copy of the policy goes on playing and learning on X.

        Parameters
        ----------
        X : array-like of shape (n_rounds, n_arms)
            Rewards of the next rounds.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Average reward, in the units of X; NaN if every row was skipped.
        """
        check_is_fitted(self, "t_")
        table = self._check_table(X, reset=False)
        player = copy.deepcopy(self)
        player._warned_of_horizon = True  # nothing that the copy does is published
        player._check_live()
        total, n_used = player._play(table)
        return total / n_used if n_used else np.nan

    def regret(self, X=None, means=None):
        """Cumulative pseudo-regret of the arms that were played.

        Parameters
        ----------
        X : array-like of shape (n_rounds, n_arms) or None, default=None
            Table whose column means stand for the true means. None: the table of `fit`.
        means : array-like of shape (n_arms,) or None, default=None
            True mean rewards, where they are known; they go before `X`.

        Returns
        -------
        regret : ndarray of shape (t_,)
            Sum of the gaps to the best mean up to each round. It never decreases.

        Raises
        ------
        ValueError
            If neither a table nor means are known, or the shape is wrong.
        """
        check_is_fitted(self, "t_")
        if means is None:
            means = self._table_means if X is None else _column_means(self._check_table(X, False))
        if means is None:
            raise ValueError("regret needs X or means: the policy was not fitted on a table.")
        means = check_array(means, ensure_2d=False, dtype=float, input_name="means")
        if means.shape != (self.n_arms_,):
            raise ValueError(f"means must have shape ({self.n_arms_},), got {means.shape}.")
        return np.cumsum((means.max() - means)[self.actions_])

    @property
    def best_arm_(self):
        """Arm recommended after learning."""
        self._require("counts_", "best_arm_")
        return self._recommend()

    @property
    def actions_(self):
        """Arms played, of shape (t_,)."""
        self._require("_actions", "actions_")
        return np.array(self._actions, dtype=np.intp)

    @property
    def rewards_(self):
        """Rewards seen, of shape (t_,), in the user's units."""
        self._require("_rewards", "rewards_")
        return np.array(self._rewards, dtype=float)

    @property
    def regret_(self):
        """Cumulative pseudo-regret by the column means of the table of `fit`."""
        self._require("_table_means", "regret_")
        return self.regret()

    @property
    def n_rounds_used_(self):
        """Rounds that counted: rows without those that were skipped as not logged."""
        self._require("t_", "n_rounds_used_")
        return self.t_

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "skip"
        return tags

    def _require(self, source, name):
        if vars(self).get(source) is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name}: it is not fitted, or was fitted "
                "without what this attribute needs (a table, or store_history=True)."
            )

    def _argmax(self, index):
        """Arm of the largest index value; one of several at random."""
        winners = (index == index.max()).nonzero()[0]
        if len(winners) > 1:
            return int(self.rng_.choice(winners))
        return int(winners[0])

    def _recommend(self):
        """Most often played arm, the first of several: it tells no more than the actions do."""
        return int(self.counts_.argmax())

    def _check_table(self, X, reset):
        table = validate_data(
            self,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if self.missing == "skip" else True,
            ensure_min_features=2 if reset else 1,
        )
        if self.n_arms is not None and table.shape[1] != self.n_arms:
            raise ValueError(
                f"X must have n_arms={self.n_arms} columns, got {table.shape[1]} columns."
            )
        return table

    def _check_arm(self, arm):
        if not isinstance(arm, Integral) or not 0 <= arm < self.n_arms_:
            raise ValueError(f"arm must be an integer in 0..{self.n_arms_ - 1}, got {arm!r}.")
        return int(arm)

    def _check_live(self):
        if not self._is_live:
            check_is_fitted(self, "t_")
            raise ValueError(
                f"{type(self).__name__} needs the parameter horizon, the number of rounds to come."
            )

    def _begin(self, n_arms, horizon):
        """Round 0 of a run over `n_arms` arms."""
        self._low, self._high = self._check_reward_range()
        self._open_stream()
        self.n_arms_ = self.n_features_in_ = n_arms
        self.horizon_ = horizon
        self.counts_ = np.zeros(n_arms, dtype=np.intp)
        self._index = np.full(n_arms, np.nan)
        self._actions = array("q") if self.store_history else None
        self._rewards = array("d") if self.store_history else None
        self._unplayed = list(range(n_arms))
        self._table_means = None
        self._warned_of_range = self._warned_of_horizon = False
        self._is_live = horizon is not None or not self._uses_horizon
        if self._is_live:
            self._reset(n_arms)

    def _check_reward_range(self):
        try:
            low, high = np.asarray(self.reward_range, dtype=float).tolist()
            is_valid = 0 < high - low < inf
        except (TypeError, ValueError):  # no numbers, or not two of them
            is_valid = False
        if not is_valid:
            raise ValueError(
                "reward_range must be two finite numbers (low, high) with low < high and a "
                f"finite difference, got {self.reward_range!r}."
            )
        return low, high

    def _play(self, table):
        """Play the rows of a table; the sum of the rewards seen and their number."""
        total, before = 0.0, self.t_
        for row in range(len(table)):
            arm = self._open_action()
            reward = table.item(row, arm)
            self._tell(arm, reward)
            if reward == reward:
                total += reward
        return total, self.t_ - before

    def _open_action(self):
        # Before the choice: once it is played in public, a warning comes too late.
        if self.horizon_ is not None and self.t_ >= self.horizon_:
            self._warn_of_horizon()
        return super()._open_action()

    def _tell(self, arm, reward):
        """Finish a round."""
        scaled = self._scaled(reward)
        if scaled != scaled:  # NaN: not logged
            return
        self._asked = None
        self.t_ += 1
        self.counts_[arm] += 1
        if self._unplayed and arm in self._unplayed:
            self._unplayed.remove(arm)
        if self._actions is not None:
            self._actions.append(arm)
            self._rewards.append(reward)
        self._update(arm, scaled)

    def _scaled(self, reward):
        """A reward in the units of the algorithm, [0, 1]; NaN where it is not logged."""
        if self._low <= reward <= self._high:
            return (reward - self._low) / (self._high - self._low)
        if reward == reward:
            return self._clipped(reward)
        if self.missing == "raise":
            raise ValueError("reward is NaN, and missing='raise'.")
        return reward

    def _clipped(self, reward):
        """End of [0, 1] that a reward outside the range is clipped to."""
        message = f"A reward lies outside reward_range=({self._low}, {self._high})"
        if self.out_of_range == "raise":
            raise ValueError(f"{message}: {reward}.")
        if not self._warned_of_range:
            self._warned_of_range = True
            warnings.warn(f"{message} and is clipped.", UserWarning, stacklevel=2)
        return 0.0 if reward < self._low else 1.0

    def _warn_of_horizon(self):
        if not self._warned_of_horizon:
            self._warned_of_horizon = True
            warnings.warn(
                f"All horizon={self.horizon_} rounds are played: every guarantee of "
                f"{type(self).__name__} that rests on the horizon has ended.",
                UserWarning,
                stacklevel=2,
            )


def _check_every_arm_logged(table):
    empty = np.flatnonzero(np.isnan(table).all(axis=0))
    if empty.size:
        raise ValueError(f"Column {empty[0]} of X is all NaN: arm {empty[0]} was never logged.")


def _check_reward(reward):
    if not isinstance(reward, Real) or reward in (inf, -inf):
        raise ValueError(f"reward must be a number and not infinite, got {reward!r}.")
    return float(reward)


def _as_list(value, name):
    """A scalar or a 1-D array-like as a list."""
    values = np.asarray(value)
    if values.ndim > 1:
        raise ValueError(f"{name} must be a scalar or 1-D, got shape {values.shape}.")
    return np.atleast_1d(values).tolist()


def _column_means(table):
    """Mean logged reward of each arm."""
    return np.nanmean(table, axis=0, dtype=float)
