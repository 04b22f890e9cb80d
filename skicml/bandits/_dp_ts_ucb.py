"""Differentially private Thompson sampling with a capped number of posterior draws."""

from numbers import Real

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from skicml.bandits._base import BaseBanditPolicy
from skicml.bandits._noise import NormalRows
from skicml.bandits._private import PrivatePolicyMixin

# c0 of the paper's budget phi: that many draws exceed the true mean with high probability.
_BUDGET_CONSTANT = 2 * np.sqrt(2 * np.pi * np.e)
# Halvings of the interval of alpha when it is solved for: down to the last bit.
_HALVINGS = 60


class DPTSUCB(PrivatePolicyMixin, BaseBanditPolicy):
    """Private Thompson sampling whose reused draws act as upper confidence bounds.

    DP-TS-UCB [1]_ protects the reward of every single round against whoever watches which arms
    are played. Each arm learns in epochs of doubling length. In an epoch it makes at most
    `phi_` draws from a Gaussian posterior around the mean of its last finished epoch; after
    that it competes with the largest of these draws, which is an upper confidence bound and
    costs no more privacy.

    Parameters
    ----------
    alpha : float, default=0.5
        Trade-off in [0, 1] between regret (0: the best) and privacy (1: a guarantee that does
        not depend on the horizon).
    target_mu : float or None, default=None
        Wanted GDP parameter at the horizon. If given, `alpha` is ignored: `alpha_` is the
        smallest value whose guarantee, by the chosen accountant, is at most `target_mu`. Below
        what alpha = 1 gives, the noise is raised as well, see `noise_multiplier_`.
    noise_multiplier : float, default=1.0
        Factor of at least 1 on the variance of the draws; the GDP parameter is divided by its
        square root. Not in the paper, whose value is 1.
    accountant : {"tight", "paper"}, default="tight"
        Which bound `gdp_mu_` reports, see Notes.
    n_arms : int or None, default=None
        Number of arms. Needed only for live use, where it may also be given to :meth:`reset`;
        `fit` takes it from the columns of X.
    horizon : int or None, default=None
        Number of rounds T. None: `fit` takes the number of rows of X; live use needs it.
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
    alpha_ : float
        Trade-off in use.
    noise_multiplier_ : float
        Factor on the variance of the draws in use.
    phi_ : int
        Budget: fresh draws of an arm in one epoch.
    gdp_mu_ : float
        GDP parameter of all actions up to the horizon, by `accountant`. It is a parameter of
        Gaussian differential privacy, no epsilon: see :meth:`privacy_epsilon`.
    gdp_mu_paper_, gdp_mu_tight_ : float
        The paper's bound, and ours.
    means_ : ndarray of shape (n_arms,)
        Mean scaled reward of the last finished epoch of each arm; NaN before the first. Raw: an
        evaluation record, not a private output.
    epoch_lengths_ : ndarray of shape (n_arms,)
        Number of rewards behind each mean; 0 before the first epoch has ended.
    epoch_index_ : ndarray of shape (n_arms,)
        Index r of the open epoch; it ends after ``2 ** r`` rewards.
    draws_left_ : ndarray of shape (n_arms,)
        Fresh draws that each arm may still make in its epoch.
    max_draw_ : ndarray of shape (n_arms,)
        Largest draw of the epoch, -inf before the first.
    n_draws_ : ndarray of shape (n_arms,)
        Fresh draws made so far.
    reuse_fraction_ : float
        Share of the index values that were reused maxima.
    n_arms_, n_features_in_ : int
        Number of arms.
    horizon_ : int
        Number of rounds that the guarantee is for.
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
    GaussianThompsonSampling : Thompson sampling; with pre-pulls, private for short horizons.
    LazyUCB : Pure epsilon-differential privacy from doubling epochs.

    Notes
    -----
    With ``L = max(ln T, 1)``, ``lam = L ** alpha`` and c0 = 2 sqrt(2 pi e), the budget is
    ``phi = ceil(c0 T**((1 - alpha) / 2) L**((3 - alpha) / 2))`` and a draw of an arm whose last
    epoch held n rewards of mean m is normal with mean m and variance ``lam / n``. Every arm is
    played once first, in order. The regret is
    ``sum_i O(ln(T**((3 - alpha) / 2) gap_i**2) ln(T)**alpha / gap_i)`` and at most
    ``O(sqrt(K T) ln(T)**((1 + alpha) / 2))``.

    Two tables that differ in one row are neighbours. One reward enters one mean, of n values,
    and changes it by at most 1 / n: phi draws of that mean are ``sqrt(phi / (n lam))``-GDP.

    - "paper": ``sqrt(2 c0 T**((1 - alpha) / 2) L**(1.5 (1 - alpha)))``, which pays once more for
      the phase that reuses the maximum.
    - "tight": ``sqrt(phi / lam)``. Our derivation: the reused maximum is computed from draws
      that are paid for already, so it is post-processing. `phi` is the rounded budget.

    Both are divided by ``sqrt(noise_multiplier_)``. The guarantee is about the values of
    the rewards, not about which of them were logged: with ``missing="skip"`` the pattern of the
    NaN must not depend on persons. It holds for real numbers and true randomness; attacks on the
    last bits of floating point noise, or on the generator behind it, are out of scope.

    For small T the budget exceeds T at alpha = 0, and no maximum is ever reused; that is as it
    should be.

    Time O(n_arms) a round and memory O(n_arms), plus O(t_) for the history.

    References
    ----------
    .. [1] B. Hu, Z. Huang, T. H. Zhang, M. Lecuyer, N. Hegde, "Connecting Thompson Sampling and
       UCB: Towards More Efficient Trade-offs Between Privacy and Regret", ICML 2025.

    Examples
    --------
    >>> from skicml.bandits import DPTSUCB
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.4, 0.3], n_rounds=5000, random_state=0)
    >>> policy = DPTSUCB(alpha=1.0, random_state=0).fit(X)
    >>> policy.best_arm_
    0
    >>> round(policy.gdp_mu_, 2)
    2.89

    Live use:

    >>> policy = DPTSUCB(horizon=1000, random_state=0).reset(n_arms=3)
    >>> arm = policy.ask()
    >>> policy.tell(arm, 1.0).counts_
    array([1, 0, 0])
    """

    _parameter_constraints = {
        **BaseBanditPolicy._parameter_constraints,
        "alpha": [Interval(Real, 0, 1, closed="both")],
        "target_mu": [Interval(Real, 0, None, closed="neither"), None],
        "noise_multiplier": [Interval(Real, 1, None, closed="left")],
        "accountant": [StrOptions({"paper", "tight"})],
    }

    _uses_horizon = True

    def __init__(
        self,
        *,
        alpha=0.5,
        target_mu=None,
        noise_multiplier=1.0,
        accountant="tight",
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
        self.alpha = alpha
        self.target_mu = target_mu
        self.noise_multiplier = noise_multiplier
        self.accountant = accountant

    @staticmethod
    def sampling_budget(horizon, alpha):
        """Fresh draws that an arm may make in one epoch.

        Parameters
        ----------
        horizon : array-like of int
            Number of rounds, at least 1.
        alpha : array-like of float
            Trade-off in [0, 1].

        Returns
        -------
        phi : int or ndarray of int
            The budget.

        Raises
        ------
        ValueError
            If an argument is out of its range.

        Examples
        --------
        >>> from skicml.bandits import DPTSUCB
        >>> DPTSUCB.sampling_budget(20_000, 1.0)
        82
        """
        phi = np.ceil(_unrounded_budget(*_check_trade_off(horizon, alpha)))
        return phi.astype(np.int64) if phi.ndim else int(phi)

    @staticmethod
    def gdp_mu(horizon, alpha, accountant="paper", noise_multiplier=1.0):
        """GDP parameter of all actions up to the horizon.

        Parameters
        ----------
        horizon : array-like of int
            Number of rounds, at least 1.
        alpha : array-like of float
            Trade-off in [0, 1].
        accountant : {"paper", "tight"}, default="paper"
            The paper's bound, or ours.
        noise_multiplier : array-like of float, default=1.0
            Factor on the variance of the draws, at least 1.

        Returns
        -------
        mu : float or ndarray
            Parameter of Gaussian differential privacy.

        Raises
        ------
        ValueError
            If an argument is out of its range.

        Examples
        --------
        >>> from skicml.bandits import DPTSUCB
        >>> round(DPTSUCB.gdp_mu(10**6, 1.0), 4)
        4.0658
        """
        horizon, alpha = _check_trade_off(horizon, alpha)
        if accountant not in ("paper", "tight"):
            raise ValueError(f"accountant must be 'paper' or 'tight', got {accountant!r}.")
        if not (np.asarray(noise_multiplier) >= 1).all():
            raise ValueError(f"noise_multiplier must be >= 1, got {noise_multiplier!r}.")
        budget = _unrounded_budget(horizon, alpha)
        cost = 2 * budget if accountant == "paper" else np.ceil(budget)
        mu = np.sqrt(cost / (_variance(horizon, alpha) * noise_multiplier))
        return mu if np.ndim(mu) else float(mu)

    @property
    def draws_left_(self):
        """Fresh draws that each arm may still make in its epoch."""
        self._require("_last_draw", "draws_left_")
        return np.maximum(self._last_draw - self._n_comparisons, 0)

    @property
    def n_draws_(self):
        """Fresh draws made so far."""
        self._require("_last_draw", "n_draws_")
        in_this_epoch = np.where(self.epoch_index_ > 0, self.phi_ - self.draws_left_, 0)
        return self._draws_before + in_this_epoch

    @property
    def reuse_fraction_(self):
        """Share of the index values that were reused maxima."""
        self._require("_last_draw", "reuse_fraction_")
        if self._n_comparisons == 0:
            return 0.0
        return float(1 - self.n_draws_.mean() / self._n_comparisons)

    def _reset(self, n_arms):
        T = self.horizon_
        self.alpha_, self.noise_multiplier_ = self._solve_trade_off(T)
        setting = T, self.alpha_
        self.phi_ = self.sampling_budget(*setting)
        self.gdp_mu_paper_ = self.gdp_mu(*setting, "paper", self.noise_multiplier_)
        self.gdp_mu_tight_ = self.gdp_mu(*setting, "tight", self.noise_multiplier_)
        self.gdp_mu_ = self.gdp_mu_tight_ if self.accountant == "tight" else self.gdp_mu_paper_

        self._variance = float(_variance(*setting)) * self.noise_multiplier_
        self._noise = NormalRows(self.rng_, n_arms)
        self._n_comparisons = 0
        # Centre and standard deviation of the next draw of each arm.
        self._center = np.full(n_arms, np.nan)
        self._scale = np.zeros(n_arms)
        # Number of the comparison in which each arm makes its last draw; the next of these.
        self._last_draw = np.zeros(n_arms, dtype=np.int64)
        self._next_last_draw = 0
        self._draws_before = np.zeros(n_arms, dtype=np.int64)
        self.max_draw_ = np.full(n_arms, -np.inf)
        self.means_ = np.full(n_arms, np.nan)
        self.epoch_lengths_ = np.zeros(n_arms, dtype=np.int64)
        self.epoch_index_ = np.zeros(n_arms, dtype=np.int64)
        # The open epochs: plain numbers, for only one arm changes in a round.
        self._epoch_sum = [0.0] * n_arms
        self._rewards_left = [1] * n_arms

    def _solve_trade_off(self, horizon):
        """The alpha and the noise multiplier in use."""
        kappa = float(self.noise_multiplier)
        if self.target_mu is None:
            return float(self.alpha), kappa

        def mu(alpha):  # decreasing
            return self.gdp_mu(horizon, alpha, self.accountant, kappa)

        if mu(1.0) > self.target_mu:
            return 1.0, kappa * (mu(1.0) / self.target_mu) ** 2
        if mu(0.0) <= self.target_mu:
            return 0.0, kappa
        low, high = 0.0, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if mu(middle) <= self.target_mu else (middle, high)
        return high, kappa

    def _select(self):
        if self._unplayed:
            return self._unplayed[0]
        self._n_comparisons += 1
        np.multiply(self._noise.next(), self._scale, out=self._index)
        self._index += self._center
        np.maximum(self.max_draw_, self._index, out=self.max_draw_)
        if self._n_comparisons == self._next_last_draw:
            self._end_mandatory_phase()
        return int(self._index.argmax())

    def _end_mandatory_phase(self):
        """Arms without budget compete with their largest draw: no noise around it any more."""
        used_up = self._last_draw == self._n_comparisons
        self._center[used_up] = self.max_draw_[used_up]
        self._scale[used_up] = 0.0
        self._schedule()

    def _schedule(self):
        to_come = self._last_draw[self._last_draw > self._n_comparisons]
        self._next_last_draw = int(to_come.min(initial=np.iinfo(np.int64).max))

    def _update(self, arm, reward):
        self._epoch_sum[arm] += reward
        self._rewards_left[arm] -= 1
        if self._rewards_left[arm] == 0:
            self._close_epoch(arm)

    def _close_epoch(self, arm):
        """The mean of this epoch alone replaces the old one; its rewards are never used again."""
        length = 2 ** int(self.epoch_index_[arm])
        self._draws_before[arm] = self.n_draws_[arm]
        self.means_[arm] = self._center[arm] = self._epoch_sum[arm] / length
        self.epoch_lengths_[arm] = length
        self.epoch_index_[arm] += 1
        self._scale[arm] = np.sqrt(self._variance / length)
        self.max_draw_[arm] = -np.inf
        self._last_draw[arm] = self._n_comparisons + self.phi_
        self._schedule()
        self._epoch_sum[arm] = 0.0
        self._rewards_left[arm] = 2 * length

    def _released(self):
        return {
            **super()._released(),
            "max_draw": self.max_draw_.copy(),
            "n_draws": self.n_draws_,
            "draws_left": self.draws_left_,
            "epoch_index": self.epoch_index_.copy(),
        }


def _check_trade_off(horizon, alpha):
    horizon, alpha = np.asarray(horizon, dtype=float), np.asarray(alpha, dtype=float)
    if not (horizon >= 1).all():
        raise ValueError(f"horizon must be >= 1, got {horizon}.")
    if not ((alpha >= 0) & (alpha <= 1)).all():
        raise ValueError(f"alpha must be in [0, 1], got {alpha}.")
    return horizon, alpha


def _log_horizon(horizon):
    """ln T, and 1 where T is so small that its powers would not mean what they should."""
    return np.maximum(np.log(horizon), 1.0)


def _unrounded_budget(horizon, alpha):
    exponent = (1 - alpha) / 2
    return _BUDGET_CONSTANT * horizon**exponent * _log_horizon(horizon) ** (1 + exponent)


def _variance(horizon, alpha):
    """lam: variance of a draw around the mean of one reward."""
    return _log_horizon(horizon) ** alpha
