"""Thompson sampling with Gaussian draws."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils._param_validation import Interval

from skicml.bandits._base import BaseBanditPolicy
from skicml.bandits._noise import NormalRows
from skicml.bandits._private import PrivatePolicyMixin


class GaussianThompsonSampling(PrivatePolicyMixin, BaseBanditPolicy):
    """Thompson sampling with Gaussian draws, and its private modification.

    With the defaults this is TS-Gaussian [1]_. With ``pre_pulls > 0`` or ``variance > 1`` it is
    M-TS-Gaussian [2]_: more noise, and a posterior that never rests on few rewards, so that
    one reward matters less.

    Parameters
    ----------
    pre_pulls : int, default=0
        Plays of every arm before the first draw (b in the papers).
    variance : float, default=1.0
        Variance of a draw around the mean of one reward (c in the papers).
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds that `gdp_mu_` is for. None: `fit` takes the number of rows of X; in
        live use `gdp_mu_` is for the rounds played so far.
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
        Seed of the random stream of the policy. Whoever knows it knows the noise: for a
        guarantee it must stay secret.

    Attributes
    ----------
    gdp_mu_ : float
        GDP parameter of all actions up to the horizon (or up to now, once that is later).
    means_ : ndarray of shape (n_arms,)
        Posterior means ``S / (N + 1)`` of the scaled rewards. Raw: an evaluation record, not a
        private output.
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
    DPTSUCB : At ``alpha=1``, privacy that does not get worse with the horizon.

    Notes
    -----
    With S and N the sum and the number of the rewards of an arm, its draw is normal with mean
    ``S / (N + 1)`` and variance ``c / (N + 1)``. One reward changes that mean by at most
    ``1 / (N + 1)``, which is ``1 / sqrt(c (N + 1)) <= 1 / sqrt(c (b + 1))`` standard deviations,
    in each of at most T draws. So the actions are ``sqrt(T / (c (b + 1)))``-GDP: the guarantee
    gets worse with the square root of the horizon.

    Time O(n_arms) a round and memory O(n_arms), plus O(t_) for the history.

    References
    ----------
    .. [1] S. Agrawal and N. Goyal, "Near-optimal regret bounds for Thompson sampling", Journal
       of the ACM 64, 2017.
    .. [2] T. Ou, R. Cummings, M. Avella Medina, "Thompson sampling itself is differentially
       private", AISTATS 2024.

    Examples
    --------
    >>> from skicml.bandits import GaussianThompsonSampling
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.4, 0.3], n_rounds=1000, random_state=0)
    >>> policy = GaussianThompsonSampling(pre_pulls=9, variance=10.0, random_state=0).fit(X)
    >>> policy.best_arm_
    0
    >>> round(policy.gdp_mu_, 2)
    3.16
    """

    _parameter_constraints = {
        **BaseBanditPolicy._parameter_constraints,
        "pre_pulls": [Interval(Integral, 0, None, closed="left")],
        "variance": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        *,
        pre_pulls=0,
        variance=1.0,
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
        self.pre_pulls = pre_pulls
        self.variance = variance

    @property
    def gdp_mu_(self):
        """GDP parameter of the actions."""
        self._require("t_", "gdp_mu_")
        n_rounds = max(self.horizon_ or 0, self.t_)
        return float(np.sqrt(n_rounds / (self._variance * (self._pre_pulls + 1))))

    def _reset(self, n_arms):
        self._variance, self._pre_pulls = float(self.variance), self.pre_pulls
        self._noise = NormalRows(self.rng_, n_arms)
        self._sums = [0.0] * n_arms
        self._scale = np.full(n_arms, np.sqrt(self._variance))
        self._warm = self._pre_pulls == 0
        self.means_ = np.zeros(n_arms)

    def _select(self):
        if not self._warm:
            arm = int(self.counts_.argmin())
            if self.counts_[arm] < self._pre_pulls:
                return arm
            self._warm = True
        np.multiply(self._noise.next(), self._scale, out=self._index)
        self._index += self.means_
        return int(self._index.argmax())

    def _update(self, arm, reward):
        self._sums[arm] += reward
        n = int(self.counts_[arm]) + 1
        self.means_[arm] = self._sums[arm] / n
        self._scale[arm] = (self._variance / n) ** 0.5
