"""The policy UCB1."""

from math import log
from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skicml.bandits._base import BaseBanditPolicy


class UCB1(BaseBanditPolicy):
    """Upper confidence bounds on the mean rewards; not private.

    The arm with the largest ``mean + sqrt(c ln(t) / N)`` is played [1]_, after one play of
    every arm in random order; ties are broken at random.

    Parameters
    ----------
    c : float, default=2.0
        Width of the confidence bounds.
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds planned for; the policy itself does not need it.
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

    Attributes
    ----------
    means_ : ndarray of shape (n_arms,)
        Mean scaled reward of each arm, 0 before its first play.
    n_arms_, n_features_in_ : int
        Number of arms.
    horizon_ : int or None
        Number of rounds planned for.
    t_, n_rounds_used_ : int
        Rounds played, without those that were skipped as not logged.
    counts_ : ndarray of shape (n_arms,)
        Plays of each arm.
    best_arm_ : int
        The most often played arm.
    actions_, rewards_ : ndarray of shape (t_,)
        Arms played and rewards seen, in the user's units. Only with ``store_history=True``.
    regret_ : ndarray of shape (t_,)
        Cumulative pseudo-regret by the column means of the table. Only after `fit`, with
        ``store_history=True``.
    rng_ : RandomState
        Generator of the random stream.

    See Also
    --------
    LazyUCB : A private variant.
    GaussianThompsonSampling : Exploration by posterior draws.

    Notes
    -----
    t is the number of rounds played so far. Time O(n_arms) a round and memory O(n_arms), plus
    O(t_) for the history.

    References
    ----------
    .. [1] P. Auer, N. Cesa-Bianchi, P. Fischer, "Finite-time analysis of the multiarmed bandit
       problem", Machine Learning 47, 2002.

    Examples
    --------
    >>> from skicml.bandits import UCB1
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.4, 0.3], n_rounds=1000, random_state=0)
    >>> UCB1(random_state=0).fit(X).best_arm_
    0
    """

    _parameter_constraints = {
        **BaseBanditPolicy._parameter_constraints,
        "c": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        c=2.0,
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
        self.c = c

    def _reset(self, n_arms):
        self._c = float(self.c)
        self.rng_.shuffle(self._unplayed)
        self._sums = [0.0] * n_arms
        self._inverse_counts = np.full(n_arms, np.nan)
        self.means_ = np.zeros(n_arms)

    def _select(self):
        if self._unplayed:
            return self._unplayed[0]
        np.multiply(self._inverse_counts, self._c * log(self.t_), out=self._index)
        np.sqrt(self._index, out=self._index)
        self._index += self.means_
        return self._argmax(self._index)

    def _update(self, arm, reward):
        self._sums[arm] += reward
        n = int(self.counts_[arm])
        self.means_[arm] = self._sums[arm] / n
        self._inverse_counts[arm] = 1 / n
