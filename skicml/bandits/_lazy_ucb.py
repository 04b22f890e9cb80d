"""Upper confidence bounds on private means of doubling epochs."""

from math import log
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skicml.bandits._base import BaseBanditPolicy
from skicml.bandits._private import PrivatePolicyMixin
from skicml.privacy import pure_dp_to_gdp


class LazyUCB(PrivatePolicyMixin, BaseBanditPolicy):
    """Upper confidence bounds with pure differential privacy (Anytime-Lazy-UCB).

    An arm learns in epochs of doubling length. At the end of an epoch the mean of its rewards,
    with Laplace noise, replaces the old one, and the rewards are never used again [1]_.

    Parameters
    ----------
    epsilon : float, default=1.0
        Parameter of pure differential privacy.
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds planned for; the policy itself does not need it.
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
        Noisy mean of the last finished epoch of each arm; NaN before the first. Private.
    epoch_lengths_ : ndarray of shape (n_arms,)
        Number of rewards behind each mean.
    n_arms_, n_features_in_ : int
        Number of arms.
    horizon_ : int or None
        Number of rounds planned for.
    t_, n_rounds_used_ : int
        Rounds played, without those that were skipped as not logged.
    counts_ : ndarray of shape (n_arms,)
        Plays of each arm.
    best_arm_ : int
        The most often played arm; computed from the actions alone.
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
    UCB1 : Without privacy.
    PrivateSuccessiveElimination : Pure privacy by elimination of arms.

    Notes
    -----
    The index of an arm whose last epoch held n rewards is
    ``mean + sqrt(3 ln(t) / n) + 3 ln(t) / (epsilon n)``, where the mean holds noise
    ``Laplace(1 / epsilon) / n`` and t is the number of the round. Every arm is played once
    first, in random order. A reward enters one sum, which it changes by at most 1.

    Time O(n_arms) a round and memory O(n_arms), plus O(t_) for the history.

    References
    ----------
    .. [1] B. Hu, Z. Huang, N. A. Mehta, "Near-optimal algorithms for private online learning in
       a stochastic environment", arXiv:2102.07929, 2021.

    Examples
    --------
    >>> from skicml.bandits import LazyUCB
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.4, 0.3], n_rounds=5000, random_state=0)
    >>> LazyUCB(epsilon=1.0, random_state=0).fit(X).best_arm_
    0
    """

    _parameter_constraints = {
        **BaseBanditPolicy._parameter_constraints,
        "epsilon": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        epsilon=1.0,
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

    def _reset(self, n_arms):
        self._epsilon = float(self.epsilon)
        self.gdp_mu_ = float(pure_dp_to_gdp(self._epsilon))
        self.rng_.shuffle(self._unplayed)
        self.private_means_ = np.full(n_arms, np.nan)
        self.epoch_lengths_ = np.zeros(n_arms, dtype=np.int64)
        self._inverse_lengths = np.full(n_arms, np.nan)
        self._root_inverse_lengths = np.full(n_arms, np.nan)
        self._width = np.empty(n_arms)
        self._epoch_sum = [0.0] * n_arms
        self._rewards_left = [1] * n_arms

    def _select(self):
        if self._unplayed:
            return self._unplayed[0]
        width = 3 * log(self.t_ + 1)
        np.multiply(self._root_inverse_lengths, width**0.5, out=self._index)
        np.multiply(self._inverse_lengths, width / self._epsilon, out=self._width)
        self._index += self._width
        self._index += self.private_means_
        return int(self._index.argmax())

    def _update(self, arm, reward):
        self._epoch_sum[arm] += reward
        self._rewards_left[arm] -= 1
        if self._rewards_left[arm] == 0:
            self._close_epoch(arm)

    def _close_epoch(self, arm):
        """A noisy mean of this epoch alone replaces the old one."""
        length = 2 * int(self.epoch_lengths_[arm]) or 1
        noisy_sum = self._epoch_sum[arm] + self.rng_.laplace(scale=1 / self._epsilon)
        self.private_means_[arm] = noisy_sum / length
        self.epoch_lengths_[arm] = length
        self._inverse_lengths[arm] = 1 / length
        self._root_inverse_lengths[arm] = length**-0.5
        self._epoch_sum[arm] = 0.0
        self._rewards_left[arm] = 2 * length

    def _released(self):
        return {
            **super()._released(),
            "private_means": self.private_means_.copy(),
            "epoch_lengths": self.epoch_lengths_.copy(),
        }
