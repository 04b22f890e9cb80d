"""Successive elimination of arms by private means."""

from math import floor, log, sqrt
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skicml.bandits._base import BaseBanditPolicy
from skicml.bandits._private import PrivatePolicyMixin
from skicml.privacy import pure_dp_to_gdp


class PrivateSuccessiveElimination(PrivatePolicyMixin, BaseBanditPolicy):
    """Elimination of arms in epochs, with pure differential privacy (DP-SE).

    In every epoch all surviving arms are played equally often, long enough to halve the gap that
    can be seen; then the arms whose noisy means are too low are dropped [1]_. The last arm is
    played to the end.

    Parameters
    ----------
    epsilon : float, default=1.0
        Parameter of pure differential privacy.
    beta : float or None, default=None
        Probability of dropping the best arm, in (0, 1). None: one over the horizon.
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds. None: `fit` takes the number of rows of X; live use needs it, unless
        `beta` is given.
    reward_range : tuple of two floats, default=(0.0, 1.0)
        Smallest and largest possible reward. It is declared and never learned from the data:
        a range taken from the data would break the guarantee.
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
        Seed of the random stream of the policy. Whoever knows it knows the noise: for a
        guarantee it must stay secret.

    Attributes
    ----------
    gdp_mu_ : float
        GDP parameter that `epsilon` implies, for any number of rounds.
    private_means_ : ndarray of shape (n_arms,)
        Noisy mean of each arm in its last finished epoch; NaN before the first. Private.
    surviving_ : ndarray of shape (n_arms,) of bool
        Arms that were not dropped.
    epoch_ : int
        Number of the epoch, from 1.
    epoch_length_ : int
        Plays of each surviving arm in this epoch.
    n_arms_, n_features_in_ : int
        Number of arms.
    horizon_ : int or None
        Number of rounds planned for.
    t_, n_rounds_used_ : int
        Rounds played, without those that were skipped as not logged.
    counts_ : ndarray of shape (n_arms,)
        Plays of each arm.
    best_arm_ : int
        The surviving arm with the largest noisy mean.
    actions_ : ndarray of shape (t_,)
        Arms played. Only with ``store_history=True``.
    rewards_ : ndarray of shape (t_,)
        Rewards seen, in the user's units: an evaluation record, not a private output. Only with
        ``store_history=True``.
    regret_ : ndarray of shape (t_,)
        Cumulative pseudo-regret by the column means of the table: an evaluation record, not a
        private output. Only after `fit`, with ``store_history=True``.
    rng_ : RandomState
        Generator of the random stream.

    See Also
    --------
    LazyUCB : Pure privacy by upper confidence bounds.

    Notes
    -----
    With S the surviving arms, ``D = 2 ** -e`` and ``l = ln(8 |S| e**2 / beta)`` in epoch e, each
    arm is played ``R = floor(max(32 l / D**2, 8 ln(4 |S| e**2 / beta) / (epsilon D))) + 1``
    times, in turn. Its mean gets the noise ``Laplace(1 / (epsilon R))``; an arm whose mean is more
    than ``2 sqrt(l / (2 R)) + 2 ln(4 |S| e**2 / beta) / (epsilon R)`` below the largest is
    dropped. Rewards of an arm that was told although its plays of the epoch were over are not
    used. A reward enters one mean, which it changes by at most 1 / R.

    Time O(n_arms) a round and memory O(n_arms), plus O(t_) for the history.

    References
    ----------
    .. [1] T. Sajed and O. Sheffet, "An optimal private stochastic-MAB algorithm based on optimal
       private stopping rule", ICML 2019.

    Examples
    --------
    >>> from skicml.bandits import PrivateSuccessiveElimination
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.2, 0.1], n_rounds=10_000, random_state=0)
    >>> policy = PrivateSuccessiveElimination(epsilon=1.0, random_state=0).fit(X)
    >>> policy.best_arm_, policy.surviving_
    (0, array([ True, False, False]))
    """

    _parameter_constraints = {
        **BaseBanditPolicy._parameter_constraints,
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "beta": [Interval(Real, 0, 1, closed="neither"), None],
    }

    def __init__(
        self,
        *,
        epsilon=1.0,
        beta=None,
        n_arms=None,
        horizon=None,
        reward_range=(0.0, 1.0),
        out_of_range="clip",
        missing="skip",
        store_history=True,
        random_state=None,
    ):
        super().__init__(
            n_arms=n_arms,
            horizon=horizon,
            reward_range=reward_range,
            out_of_range=out_of_range,
            missing=missing,
            store_history=store_history,
            random_state=random_state,
        )
        self.epsilon = epsilon
        self.beta = beta

    @property
    def _uses_horizon(self):
        return self.beta is None

    def _reset(self, n_arms):
        self._epsilon = float(self.epsilon)
        self.gdp_mu_ = float(pure_dp_to_gdp(self._epsilon))
        self._beta = 1 / self.horizon_ if self.beta is None else self.beta
        self.surviving_ = np.ones(n_arms, dtype=bool)
        self.private_means_ = np.full(n_arms, np.nan)
        self.epoch_ = 0
        self._open_epoch()

    def _open_epoch(self):
        self.epoch_ += 1
        gap = 2.0**-self.epoch_
        wide, narrow = self._log_terms()
        self.epoch_length_ = floor(max(32 * wide / gap**2, 8 * narrow / (self._epsilon * gap))) + 1
        self._plays_left = np.where(self.surviving_, self.epoch_length_, 0)
        self._n_plays_left = int(self._plays_left.sum())
        # The last arm keeps its open plays for good, so that it is chosen to the end.
        self._is_decided = self._n_plays_left == self.epoch_length_
        self._epoch_sums = np.zeros(self.n_arms_)

    def _log_terms(self):
        """The logarithms in the bounds on the sampling error and on the noise."""
        factor = int(self.surviving_.sum()) * self.epoch_**2 / self._beta
        return log(8 * factor), log(4 * factor)

    def _select(self):
        return int(self._plays_left.argmax())

    def _update(self, arm, reward):
        if self._is_decided or self._plays_left[arm] == 0:
            return
        self._epoch_sums[arm] += reward
        self._plays_left[arm] -= 1
        self._n_plays_left -= 1
        if self._n_plays_left == 0:
            self._close_epoch()

    def _close_epoch(self):
        """Release the noisy means of the surviving arms and drop those that are too low."""
        R = self.epoch_length_
        noise = self.rng_.laplace(scale=1 / (self._epsilon * R), size=self.n_arms_)
        means = self._epoch_sums / R + noise
        self.private_means_[self.surviving_] = means[self.surviving_]
        self._index[self.surviving_] = means[self.surviving_]
        wide, narrow = self._log_terms()
        margin = 2 * sqrt(wide / (2 * R)) + 2 * narrow / (self._epsilon * R)
        self.surviving_ &= means >= means[self.surviving_].max() - margin
        self._open_epoch()

    def _recommend(self):
        candidates = np.where(self.surviving_, self.private_means_, -np.inf)
        return int(np.nan_to_num(candidates, nan=0.0, neginf=-np.inf).argmax())

    def _released(self):
        return {
            **super()._released(),
            "private_means": self.private_means_.copy(),
            "surviving": self.surviving_.copy(),
        }
