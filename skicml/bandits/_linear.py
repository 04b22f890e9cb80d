"""Base class of the policies whose actions are vectors."""

import operator
from abc import abstractmethod
from functools import partial

import numpy as np
from sklearn.base import _fit_context
from sklearn.callback import with_callbacks
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import validate_data

from skicml.bandits._base import BasePolicy
from skicml.utils._magnitude import check_magnitude


class BaseLinearPolicy(BasePolicy):
    """Base class of the policies whose actions are vectors and whose outcomes are vectors.

    A policy implements:

    - ``_reset(n_features)`` creates the state of the algorithm. ``rng_``, ``t_`` (0) and
      ``_candidates`` are there already: the table of shape (n_actions, n_features) of the
      actions in `fit`, None in live use. A policy with a finite action set of its own may set
      ``_candidates`` itself.
    - ``_select()`` returns the row number of the next action as an int where ``_candidates``
      is a table, and the vector of shape (n_features,) where it is None.
    - ``_update(action, outcome)`` learns from the vector that was played and its outcome of
      shape (n_outcomes,), both float64. ``t_`` counts the round already and ``n_outcomes_`` is
      set.
    - ``_max_rounds()`` returns how many rounds `fit` and `search` play at most.
    - ``_is_finished()`` (optional) returns True when `fit` and `search` are to stop early.
    - ``_resume()`` (optional) is called at the start of `search`.
    - ``_conclude()`` (optional) sets the attributes that hold results; called at the end of
      `fit` and `search`, not after a :meth:`tell`.
    - ``_check_action(action)`` (optional) raises ValueError for an action outside the set.
    - ``_default_n_features()`` (optional) returns the length of an action, where the
      parameters say it.
    - ``predict``, and what else says something about new candidate actions.

    The constructor has `random_state`. A parameter `store_history`, if there is one, False
    leaves `actions_` and `outcomes_` out; a parameter `oracle`, if there is one, is the default
    of :meth:`search`.

    See Also
    --------
    BaseBanditPolicy : Policies that choose one of K arms.
    """

    @abstractmethod
    def _reset(self, n_features):
        """Create the state of the algorithm for actions of length `n_features`."""

    @abstractmethod
    def _max_rounds(self):
        """Number of rounds that `fit` and `search` play at most."""

    @abstractmethod
    def predict(self, X):
        """Say something about new candidate actions.

        Parameters
        ----------
        X : array-like of shape (n_actions, n_features)
            The candidate actions.

        Returns
        -------
        prediction : ndarray of shape (n_actions,)
            What the policy predicts of each.
        """

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Replay recorded outcomes of a finite table of candidate actions.

        The policy sees the outcome of row i only when it plays row i.

        Parameters
        ----------
        X : array-like of shape (n_actions, n_features)
            The candidate actions.
        y : array-like of shape (n_actions,), (n_actions, n_outcomes) or \
                (n_actions, n_repeats, n_outcomes)
            Outcomes recorded for each candidate. Several repeats are used in turn; a single
            record is used again and again. A 1-D `y` is one outcome a candidate.

        Returns
        -------
        self : object
            The fitted policy.

        Raises
        ------
        ValueError
            If a parameter, X or y is not valid.
        """
        learner = self._unfitted_copy()
        candidates, records = learner._check_pool(X, y)
        learner._begin(candidates.shape[1], candidates)
        oracle = _Records(records)
        play = partial(learner._play, oracle)
        self._run_rounds(learner, learner._max_rounds(), play, X=X, y=y)
        learner._conclude()
        self._take_over(learner)
        return self

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def search(self, oracle=None, n_rounds=None):
        """Play live against a callable; goes on where the policy is, `reset` starts afresh.

        Parameters
        ----------
        oracle : callable or None, default=None
            ``oracle(action)`` plays the vector of shape (n_features,) and returns its outcome
            of shape (n_outcomes,). None: the parameter `oracle`.
        n_rounds : int or None, default=None
            Number of rounds to play at most. None: as many as the parameters say.

        Returns
        -------
        self : object
            The policy after these rounds.

        Raises
        ------
        ValueError
            If there is no oracle, the length of the actions is not known, or `n_rounds` is
            negative.
        """
        oracle = getattr(self, "oracle", None) if oracle is None else oracle
        if not callable(oracle):
            raise ValueError(f"search needs a callable oracle, got {oracle!r}.")
        if n_rounds is not None and n_rounds < 0:
            raise ValueError(f"n_rounds must be at least 0, got {n_rounds}.")
        if not hasattr(self, "t_"):
            self.reset()
        self._resume()
        n_rounds = self._max_rounds() if n_rounds is None else operator.index(n_rounds)
        play = partial(self._play, lambda action, choice: oracle(action))
        self._run_rounds(self, n_rounds, play)
        self._conclude()
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def reset(self, n_features=None):
        """Forget everything and start a fresh random stream, for live use.

        Parameters
        ----------
        n_features : int or None, default=None
            Length of an action. None: what the parameters say, or the length so far.

        Returns
        -------
        self : object
            The policy at round 0.

        Raises
        ------
        ValueError
            If the length of the actions is not known.
        """
        if n_features is None:
            n_features = self._default_n_features() or getattr(self, "n_features_in_", None)
        if n_features is None:
            raise ValueError(self._unknown_length())
        if n_features < 1:
            raise ValueError(f"reset needs n_features >= 1, got n_features={n_features}.")
        learner = self._unfitted_copy()
        learner._begin(operator.index(n_features), None)
        self._take_over(learner)
        return self

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
        action : ndarray of shape (n_features,)
            The action.

        Raises
        ------
        NotImplementedError
            If `n_points` is not None.
        NotFittedError
            Before `fit` or `reset`.
        """
        return self._vector(super().ask(n_points)).copy()

    def tell(self, action, outcome):
        """Report the outcome of an action.

        Parameters
        ----------
        action : array-like of shape (n_features,)
            The action that was played, asked for or not.
        outcome : float or array-like of shape (n_outcomes,)
            What was seen.

        Returns
        -------
        self : object
            The policy after the round.

        Raises
        ------
        NotFittedError
            Before `fit` or `reset`.
        ValueError
            If the action is not in the action set, the number of outcomes changes, or a value
            is not finite.
        """
        self._check_live()
        action = check_array(action, ensure_2d=False, dtype=np.float64, input_name="action")
        if action.shape != (self.n_features_in_,):
            raise ValueError(
                f"action must have shape ({self.n_features_in_},), got {action.shape}."
            )
        check_magnitude(action, "action")
        # our own action may lie outside by the rounding of a solver
        if self._asked is None or not np.array_equal(action, self._vector(self._asked)):
            self._check_action(action)
        self._tell(action, outcome)
        return self

    @property
    def actions_(self):
        """Actions played, of shape (t_, n_features)."""
        self._require_history("actions_")
        return np.reshape(self._actions, (self.t_, self.n_features_in_))

    @property
    def outcomes_(self):
        """Outcomes seen, of shape (t_, n_outcomes)."""
        self._require_history("outcomes_")
        return np.reshape(self._outcomes, (self.t_, self.n_outcomes_ or 0))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def _is_finished(self):
        return False

    def _resume(self):
        """Prepare to go on where the policy is."""

    def _conclude(self):
        """Set the attributes that hold results."""

    def _check_action(self, action):
        """Raise ValueError for an action outside the action set."""

    def _default_n_features(self):
        return None

    def _unknown_length(self):
        """Message for live use where nothing tells the length of an action."""
        return (
            f"{type(self).__name__} does not know the length of an action: call "
            "reset(n_features=...)."
        )

    def _require_history(self, name):
        if vars(self).get("_actions") is None:
            raise AttributeError(
                f"{type(self).__name__} has no {name}: it is not fitted, or keeps no history."
            )

    def _check_pool(self, X, y):
        """Candidates, and their records of shape (n_actions, n_repeats, n_outcomes)."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None."
            )
        candidates = validate_data(self, X, dtype=np.float64, order="C")
        records = check_array(y, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y")
        check_consistent_length(candidates, records)
        if records.ndim > 3 or records.size == 0:
            raise ValueError(
                f"y must have 1, 2 or 3 dimensions, none of them 0, got shape {records.shape}."
            )
        check_magnitude(candidates, "X")
        check_magnitude(records, "y")
        if records.ndim == 1:
            records = records[:, None]
        return candidates, records[:, None, :] if records.ndim == 2 else records

    def _begin(self, n_features, candidates):
        """Round 0 of a run over actions of length `n_features`."""
        self._open_stream()
        self.n_features_in_ = n_features
        self.n_outcomes_ = None
        self._candidates = candidates
        keep = getattr(self, "store_history", True)
        self._actions, self._outcomes = ([], []) if keep else (None, None)
        self._reset(n_features)

    def _vector(self, choice):
        return choice if self._candidates is None else self._candidates[choice]

    def _play(self, oracle, start, stop):
        """Play a block of rounds against ``oracle(action, choice)``; True when it is over."""
        for _ in range(start, stop):
            if self._is_finished():
                return True
            choice = self._open_action()
            action = self._vector(choice)
            self._tell(action, oracle(action, choice))
        return self._is_finished()

    def _tell(self, action, outcome):
        """Finish a round."""
        outcome = np.atleast_1d(np.asarray(outcome, dtype=np.float64))
        if outcome.ndim != 1 or not outcome.size or not np.isfinite(outcome).all():
            raise ValueError(f"outcome must be finite, 1-D and not empty, got {outcome!r}.")
        check_magnitude(outcome, "outcome")
        if self.n_outcomes_ not in (None, len(outcome)):
            raise ValueError(f"outcome must have shape ({self.n_outcomes_},), got {outcome.shape}.")
        self.n_outcomes_ = len(outcome)
        self._asked = None
        self.t_ += 1
        if self._actions is not None:
            self._actions.append(np.array(action))
            self._outcomes.append(outcome)
        self._update(action, outcome)


class _Records:
    """Recorded outcomes of the candidates: the repeats of each are handed out in turn."""

    def __init__(self, records):
        self._records = records
        self._n_plays = np.zeros(len(records), dtype=np.intp)

    def __call__(self, action, choice):
        repeat = self._n_plays[choice] % self._records.shape[1]
        self._n_plays[choice] += 1
        return self._records[choice, repeat]
