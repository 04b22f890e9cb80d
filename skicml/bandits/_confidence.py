"""What the linear policies with constraints share: action set, estimate, certificates."""

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.bandits._action_sets import FiniteTable, infer_dimension, make_action_set
from skicml.bandits._linear import BaseLinearPolicy
from skicml.bandits._ridge import RidgeState, confidence_radius


class BaseConfidencePolicy(BaseLinearPolicy):
    """Linear policies whose outcomes must stay at or above thresholds.

    The outcome of an action a is ``Phi a + noise`` (``Phi a + intercept + noise`` with
    `fit_intercept`), and its margin is the smallest entry of ``Phi a - thresholds``. A ridge
    estimate with confidence ellipsoids says which actions have a margin of at least 0.

    A policy that sees other outcomes too says in ``_constraint_rows`` which ones the thresholds
    speak of, and in ``_n_other_rows`` how many more there are.
    """

    _parameter_constraints = {
        **BaseLinearPolicy._parameter_constraints,
        "action_set": [StrOptions({"box", "ball", "simplex", "finite"}), "array-like"],
        "bounds": ["array-like"],
        "ball_radius": [Interval(Real, 0, None, closed="neither")],
        "n_features": [Interval(Integral, 1, None, closed="left"), None],
        "thresholds": [Interval(Real, None, None, closed="neither"), "array-like", None],
        "fit_intercept": ["boolean"],
        "epsilon": [Interval(Real, 0, 1, closed="neither")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "noise_std": [Interval(Real, 0, None, closed="left")],
        "norm_bound": [Interval(Real, 0, None, closed="neither")],
        "reg": [Interval(Real, 0, None, closed="neither")],
        "scale": [Interval(Real, 0, None, closed="neither")],
        "oracle": [callable, None],
        "store_history": ["boolean"],
    }

    # Outcomes beside the constraints.
    _n_other_rows = 0
    # Rows that somebody else estimates, and that share the confidence level delta.
    _n_shared_rows = 0

    def decision_function(self, X):
        """Lower confidence bound of the margin of candidate actions.

        Parameters
        ----------
        X : array-like of shape (n_actions, n_features)
            Candidate actions; they need not be in the action set.

        Returns
        -------
        lower : ndarray of shape (n_actions,)
            ``min_i (Phi_ x - thresholds)_i - radius_ ||x||_{V^-1}``, in units of the outcome.
            Where it is at least 0, the action is certified safe.

        Raises
        ------
        NotFittedError
            Before `fit`, `search` or `reset`.
        """
        estimate, width = self._margins(self._check_candidates(X))
        return estimate - width

    def predict(self, X):
        """Verdict about candidate actions.

        Parameters
        ----------
        X : array-like of shape (n_actions, n_features)
            Candidate actions; they need not be in the action set.

        Returns
        -------
        verdict : ndarray of shape (n_actions,) of int
            1: certified safe, every constraint holds. -1: certified unsafe, some constraint is
            broken. 0: the data do not tell.

        Raises
        ------
        NotFittedError
            Before `fit`, `search` or `reset`.
        """
        estimate, width = self._margins(self._check_candidates(X))
        return np.where(estimate >= width, 1, np.where(estimate < -width, -1, 0))

    def score(self, X, y):
        """Share of the actions whose safety is estimated rightly.

        Parameters
        ----------
        X : array-like of shape (n_actions, n_features)
            Actions.
        y : array-like of shape (n_actions,), (n_actions, n_outcomes) or \
                (n_actions, n_repeats, n_outcomes)
            Outcomes recorded for them, as in :meth:`fit`; repeats are averaged.

        Returns
        -------
        score : float
            Share of the rows where the estimated margin and the recorded margin are both
            at least 0 or both negative.
        """
        X = self._check_candidates(X)
        outcomes = check_array(y, ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y")
        check_consistent_length(X, outcomes)
        if outcomes.ndim > 3:
            raise ValueError(f"y must have 1, 2 or 3 dimensions, got shape {outcomes.shape}.")
        if outcomes.ndim == 3:
            outcomes = outcomes.mean(axis=1)
        outcomes = outcomes.reshape(len(X), -1)
        if self.n_outcomes_ not in (None, outcomes.shape[1]):
            raise ValueError(f"y must hold {self.n_outcomes_} outcomes, got {outcomes.shape[1]}.")
        recorded = self._observed_margin(outcomes)
        return float(np.mean((self._margins(X)[0] >= 0.0) == (recorded >= 0.0)))

    @property
    def Phi_(self):
        """Estimate of the map of the constraints, of shape (n_constraints, n_features)."""
        return self._constraint_coef[:, : self.n_features_in_].copy()

    @property
    def intercept_(self):
        """Estimated constants of the constraints, of shape (n_constraints,)."""
        if not self.fit_intercept:
            return np.zeros(len(self._constraint_coef))
        return self._constraint_coef[:, -1].copy()

    @property
    def precision_(self):
        """The matrix V of the confidence ellipsoids, of shape (D, D)."""
        return self._ridge.precision.copy()

    @property
    def radius_(self):
        """Radius of the confidence ellipsoids in the norm of V."""
        return confidence_radius(
            self._ridge.log_det,
            len(self._ridge.coef) + self._n_shared_rows,
            reg=self.reg,
            norm_bound=self.norm_bound,
            noise_std=self.noise_std,
            delta=self._confidence_delta(),
        )

    def _constraint_rows(self):
        """Slice of the outcome vector that the thresholds speak of."""
        return slice(None)

    def _confidence_delta(self):
        """Probability that the ellipsoids may fail with."""
        return self.delta

    def _reset(self, n_features):
        if self.n_features not in (None, n_features):
            raise ValueError(
                f"Actions have {n_features} coordinates, but n_features={self.n_features}."
            )
        self._is_replay = self._candidates is not None
        self._set = make_action_set(
            self.action_set,
            n_features,
            bounds=self.bounds,
            ball_radius=self.ball_radius,
            table=self._candidates,
        )
        if isinstance(self._set, FiniteTable):
            self._candidates = self._set.actions
        self._thresholds = self._check_thresholds()
        if self._thresholds.ndim:
            self.n_outcomes_ = len(self._thresholds) + self._n_other_rows
        self._ridge = RidgeState(n_features + self.fit_intercept, self.reg, self.n_outcomes_)

    def _default_n_features(self):
        return self.n_features or infer_dimension(self.action_set, self.bounds)

    def _unknown_length(self):
        limits = f" with bounds={self.bounds!r}" if self.action_set == "box" else ""
        return (
            f"action_set={self.action_set!r}{limits} does not tell the length of an action: give "
            f"n_features, as in {type(self).__name__}(n_features=2)."
        )

    def _check_thresholds(self):
        thresholds = np.array(0.0 if self.thresholds is None else self.thresholds, dtype=float)
        if thresholds.ndim > 1 or thresholds.size == 0 or not np.isfinite(thresholds).all():
            raise ValueError(
                "thresholds must be None, a finite number or a finite array of shape "
                f"(n_constraints,), got {self.thresholds!r}."
            )
        return thresholds

    def _check_action(self, action):
        if not self._set.contains(action):
            raise ValueError(f"action must be in the action set, got {action}.")

    def _check_candidates(self, X):
        check_is_fitted(self, "t_")
        return validate_data(self, X, reset=False, dtype=np.float64, order="C")

    def _update(self, action, outcome):
        self._ridge.update(self._features(action), outcome)

    def _features(self, actions):
        """Actions, with a constant coordinate 1 if the map has an intercept."""
        if not self.fit_intercept:
            return actions
        return np.concatenate([actions, np.ones((*actions.shape[:-1], 1))], axis=-1)

    @property
    def _constraint_coef(self):
        return self._ridge.coef[self._constraint_rows()]

    def _observed_margin(self, outcomes):
        """Smallest distance to the thresholds, over the last axis of outcomes."""
        return (outcomes[..., self._constraint_rows()] - self._thresholds).min(axis=-1)

    def _margins(self, actions):
        """Estimated margin of each action, and the half width of its confidence interval."""
        features = self._features(actions)
        estimate = (features @ self._constraint_coef.T - self._thresholds).min(axis=1)
        return estimate, self.radius_ * self._ridge.norms(features)

    def _program(self, coef):
        """Weights W and offsets c of the margins ``(W a + c)_i`` of a map of shape (m, D)."""
        offsets = np.zeros(len(coef)) - self._thresholds
        if self.fit_intercept:
            offsets += coef[:, -1]
        return coef[:, : self.n_features_in_], offsets

    def _noise(self, n_draws):
        """Draws of ``radius * V^{-1/2} eta``, of shape (n_draws, D)."""
        root = self._ridge.root()
        noise = self.rng_.standard_normal((n_draws, len(root)))
        return self.radius_ * (noise @ root.T)

    def _directional_shifts(self):
        """Shifts of the estimate, one of which is optimistic at any given action.

        ``radius ||a||_{V^-1} = radius ||V^{-1/2} a||_2 <= radius sqrt(D) max_j |(V^{-1/2} a)_j|``,
        so that plus or minus a row of ``radius sqrt(D) V^{-1/2}`` adds at least the half width
        of the confidence interval to the value of a; shape (2 D, D).
        """
        root = self._ridge.symmetric_root()
        shifts = (self.radius_ * math.sqrt(len(root))) * root
        return np.vstack([shifts, -shifts])
