import copy
from math import e, log, pi, sqrt

import numpy as np
import pytest
from scipy.stats import norm

from skicml.bandits import DPTSUCB, GaussianThompsonSampling, compare_policies
from skicml.datasets import make_bernoulli_bandit, make_beta_bandit

# --------------------------------------------------------------------------------------
# Closed forms


@pytest.mark.parametrize(
    ("horizon", "alpha", "phi", "paper", "tight"),
    [
        (20_000, 0.0, 36431, 269.93, 190.87),
        (20_000, 0.5, 1727, 33.128, 23.426),
        (20_000, 0.9, 151, 6.1853, 4.3791),
        (20_000, 1.0, 82, 4.0658, 2.8775),
        (10**6, 0.5, 6962, 61.205, 43.279),
        (10**6, 1.0, 115, 4.0658, 2.8851),
    ],
)
def test_budget_and_guarantee(horizon, alpha, phi, paper, tight):
    assert DPTSUCB.sampling_budget(horizon, alpha) == phi
    assert DPTSUCB.gdp_mu(horizon, alpha) == pytest.approx(paper, rel=2e-5)
    assert DPTSUCB.gdp_mu(horizon, alpha, "tight") == pytest.approx(tight, rel=2e-5)
    policy = DPTSUCB(alpha=alpha, horizon=horizon).reset(n_arms=2)
    assert policy.phi_ == phi
    assert (policy.gdp_mu_paper_, policy.gdp_mu_tight_) == (
        DPTSUCB.gdp_mu(horizon, alpha),
        DPTSUCB.gdp_mu(horizon, alpha, "tight"),
    )
    assert policy.gdp_mu_ == policy.gdp_mu_tight_
    policy = DPTSUCB(alpha=alpha, horizon=horizon, accountant="paper").reset(n_arms=2)
    assert policy.gdp_mu_ == policy.gdp_mu_paper_


def test_constant_privacy_at_alpha_one():
    mus = DPTSUCB.gdp_mu(10 ** np.arange(1, 12), 1.0)
    np.testing.assert_allclose(mus, sqrt(4 * sqrt(2 * pi * e)))


def test_the_guarantee_of_the_paper_grows_like_the_fourth_root_at_alpha_zero():
    T = 1e8
    ratio = DPTSUCB.gdp_mu(16 * T, 0.0) / DPTSUCB.gdp_mu(T, 0.0)
    assert ratio == pytest.approx(2 * (log(16 * T) / log(T)) ** 0.75)


def test_a_largest_draw_is_an_upper_confidence_bound():
    """Lemma 4.1: the largest of phi draws is below the true mean with probability O(1 / T)."""
    T, n, mu, n_trials = 1000, 64, 0.5, 20_000
    rng = np.random.RandomState(0)
    means = rng.binomial(n, mu, size=n_trials) / n
    for alpha in (0.25, 0.5, 1.0):
        phi = DPTSUCB.sampling_budget(T, alpha)
        # The largest of phi normal draws by inversion of its distribution function.
        largest = norm.ppf(rng.uniform(size=n_trials) ** (1 / phi))
        below = means + sqrt(log(T) ** alpha / n) * largest < mu
        assert below.mean() <= 2 / T


def test_the_noise_multiplier_buys_privacy():
    for accountant in ("paper", "tight"):
        plain = DPTSUCB.gdp_mu(5000, 0.7, accountant)
        assert DPTSUCB.gdp_mu(5000, 0.7, accountant, 4.0) == pytest.approx(plain / 2)
    policy = DPTSUCB(noise_multiplier=4.0, horizon=5000).reset(n_arms=2)
    assert policy.gdp_mu_ == pytest.approx(DPTSUCB.gdp_mu(5000, 0.5, "tight") / 2)


def test_conversion_to_epsilon_and_delta():
    policy = DPTSUCB(alpha=1.0, horizon=1000).reset(n_arms=2)
    deltas = np.array([1e-9, 1e-6, 1e-3])
    epsilons = policy.privacy_epsilon(deltas)
    assert (np.diff(epsilons) < 0).all()
    assert (epsilons > policy.gdp_mu_).all()  # mu is no epsilon
    np.testing.assert_allclose(policy.privacy_delta(epsilons), deltas, rtol=1e-6)
    mu, eps = policy.gdp_mu_, 3.0
    closed = norm.cdf(-eps / mu + mu / 2) - np.exp(eps) * norm.cdf(-eps / mu - mu / 2)
    assert policy.privacy_delta(eps) == pytest.approx(closed)


def test_conversion_agrees_with_an_accountant():
    dp_accounting = pytest.importorskip("dp_accounting")
    policy = DPTSUCB(alpha=1.0, horizon=1000).reset(n_arms=2)
    pld = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
        1 / policy.gdp_mu_, value_discretization_interval=1e-3
    )
    assert policy.privacy_epsilon(1e-5) == pytest.approx(pld.get_epsilon_for_delta(1e-5), rel=1e-3)


@pytest.mark.parametrize("accountant", ["paper", "tight"])
@pytest.mark.parametrize("target", [4.5, 8.0, 30.0, 100.0])
def test_alpha_is_solved_for_the_wanted_privacy(accountant, target):
    policy = DPTSUCB(target_mu=target, accountant=accountant, horizon=20_000).reset(n_arms=2)
    assert policy.gdp_mu_ <= target
    # The rounded budget makes the tight guarantee a step function.
    rel = 1e-9 if accountant == "paper" else 1 / policy.phi_
    assert policy.gdp_mu_ == pytest.approx(target, rel=rel)
    assert 0 < policy.alpha_ < 1
    less = DPTSUCB.gdp_mu(20_000, policy.alpha_ - 1e-9, accountant)
    assert less > target


def test_privacy_beyond_alpha_one_takes_more_noise():
    policy = DPTSUCB(target_mu=0.5, horizon=20_000).reset(n_arms=2)
    assert policy.alpha_ == 1.0
    assert policy.gdp_mu_ == pytest.approx(0.5)
    assert policy.noise_multiplier_ == pytest.approx((2.8775 / 0.5) ** 2, rel=1e-4)
    twice = DPTSUCB(target_mu=0.5, noise_multiplier=2.0, horizon=20_000).reset(n_arms=2)
    assert twice.noise_multiplier_ == pytest.approx(policy.noise_multiplier_)


def test_no_more_privacy_is_given_than_alpha_zero_has():
    policy = DPTSUCB(target_mu=1e4, alpha=0.8, horizon=20_000).reset(n_arms=2)
    assert (policy.alpha_, policy.noise_multiplier_) == (0.0, 1.0)


# --------------------------------------------------------------------------------------
# The algorithm, step by step


def reference_actions(policy, table, noise):
    """The algorithm as the paper states it, with loops and a given table of noise."""
    n_rounds, K = table.shape
    lam = log(n_rounds) ** policy.alpha_ * policy.noise_multiplier_
    mean, n, r = [0.0] * K, [0] * K, [0] * K
    left, largest, buffer = [0] * K, [0.0] * K, [[] for _ in range(K)]
    noise = iter(noise)
    actions = []
    for t in range(n_rounds):
        if t < K:
            arm = t
        else:
            z, index = next(noise), []
            for i in range(K):
                if left[i] >= 1:
                    theta = mean[i] + z[i] * sqrt(lam / n[i])
                    left[i] -= 1
                    largest[i] = max(largest[i], theta)
                    index.append(theta)
                else:
                    index.append(largest[i])
            arm = index.index(max(index))
        actions.append(arm)
        buffer[arm].append(table[t, arm])
        if len(buffer[arm]) == 2 ** r[arm]:
            mean[arm], n[arm] = sum(buffer[arm]) / len(buffer[arm]), len(buffer[arm])
            buffer[arm], r[arm] = [], r[arm] + 1
            left[arm], largest[arm] = policy.phi_, -np.inf
    return actions


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("kappa", [1.0, 3.0])
def test_plays_as_the_plain_algorithm_does(alpha, kappa):
    table = make_beta_bandit([0.7, 0.5, 0.4], 3000, random_state=1)
    policy = DPTSUCB(alpha=alpha, noise_multiplier=kappa, random_state=5).fit(table)
    stream = copy.deepcopy(policy).set_params(horizon=3000).reset().rng_
    noise = stream.standard_normal((3000, 3))
    np.testing.assert_array_equal(policy.actions_, reference_actions(policy, table, noise))
    assert policy.reuse_fraction_ > 0.3 or alpha == 0.0


@pytest.mark.parametrize("n_rounds", [700, 5000])
def test_a_mean_is_that_of_the_last_epoch_alone(n_rounds):
    table = make_beta_bandit([0.7, 0.6, 0.5], n_rounds, random_state=0)
    policy = DPTSUCB(random_state=0).fit(table)
    for arm in range(3):
        length, r = policy.epoch_lengths_[arm], policy.epoch_index_[arm]
        assert length == 2 ** (r - 1)
        finished = 2**r - 1  # 1 + 2 + 4 + ... rewards in finished epochs
        rewards = policy.rewards_[policy.actions_ == arm][:finished]
        assert finished <= policy.counts_[arm] < 2 ** (r + 1) - 1
        assert policy.means_[arm] == pytest.approx(rewards[-length:].mean())
        assert policy.means_[arm] != pytest.approx(rewards.mean(), abs=1e-6)  # no running mean


def test_one_reward_moves_one_mean_of_one_epoch():
    rng = np.random.RandomState(0)
    arms, rewards = rng.randint(3, size=600), rng.uniform(size=600)
    changed = rewards.copy()
    changed[77] = 1 - changed[77]

    def epochs(rewards):
        policy, seen = DPTSUCB(horizon=600).reset(n_arms=3), {}
        for arm, reward in zip(arms, rewards):
            policy.tell(arm, reward)
            seen[arm, policy.epoch_lengths_[arm]] = policy.means_[arm]
        return seen

    left, right = epochs(rewards), epochs(changed)
    moved = [key for key in left if left[key] != right[key]]
    assert len(moved) == 1
    (_, length) = moved[0]
    assert abs(left[moved[0]] - right[moved[0]]) <= 1 / length + 1e-12


def test_the_budget_is_per_arm_and_epoch_and_used_up():
    policy = DPTSUCB(alpha=1.0, horizon=3000, random_state=0).reset(n_arms=3)
    table = make_bernoulli_bandit([0.8, 0.5, 0.2], 3000, random_state=0)
    spent = np.zeros(3, dtype=int)
    for row in table:
        before, epoch = policy.n_draws_.copy(), policy.epoch_index_.copy()
        left = policy.draws_left_.copy()
        arm = policy.ask()
        if policy.t_ < 3:
            assert arm == policy.t_
            np.testing.assert_array_equal(policy.n_draws_, 0)
        else:  # every arm with budget draws, not only the one that is played
            np.testing.assert_array_equal(policy.n_draws_ - before, left > 0)
        spent += policy.n_draws_ - before
        assert (spent <= policy.phi_).all()
        np.testing.assert_array_equal(policy.draws_left_[epoch > 0], policy.phi_ - spent[epoch > 0])
        policy.tell(arm, row[arm])
        closed = policy.epoch_index_ > epoch
        assert not closed[np.arange(3) != arm].any()
        spent[closed] = 0
        np.testing.assert_array_equal(policy.draws_left_[closed], policy.phi_)
        np.testing.assert_array_equal(policy.max_draw_[closed], -np.inf)
    assert policy.reuse_fraction_ > 0.5
    expected = 1 - policy.n_draws_.sum() / (3 * (policy.t_ - 3))
    assert policy.reuse_fraction_ == pytest.approx(expected)


def test_without_budget_the_largest_draw_is_reused_without_new_noise():
    policy = DPTSUCB(alpha=1.0, horizon=2000, random_state=0).reset(n_arms=2)
    policy.tell([0, 1], [1.0, 0.0])
    draws = []
    for _ in range(policy.phi_):
        policy.ask()
        draws.append(policy.arm_scores()[1])
        policy._asked = None
    assert policy.draws_left_[1] == 0
    assert len(set(draws)) == policy.phi_
    assert policy.max_draw_[1] == max(draws)
    for _ in range(50):
        policy.ask()
        assert policy.arm_scores()[1] == max(draws)
        policy._asked = None
    assert policy.n_draws_[1] == policy.phi_


def test_draws_have_the_variance_of_the_paper():
    alpha, T, n = 0.5, 5000, 8
    policy = DPTSUCB(alpha=alpha, horizon=T, random_state=0).reset(n_arms=2)
    policy.tell([0] * 15 + [1] * 15, [0.5] * 30)  # epochs of 1 + 2 + 4 + 8 rewards
    np.testing.assert_array_equal(policy.epoch_lengths_, n)
    draws = []
    for _ in range(1500):
        policy.ask()
        draws.append(policy.arm_scores())
        policy._asked = None
    draws = np.array(draws)[: policy.phi_]
    assert draws.mean() == pytest.approx(0.5, abs=0.05)
    assert draws.std() == pytest.approx(sqrt(log(T) ** alpha / n), rel=0.05)


def test_at_alpha_zero_the_bounds_never_start():
    table = make_bernoulli_bandit([0.6, 0.4], 5000, random_state=0)
    policy = DPTSUCB(alpha=0.0, random_state=0).fit(table)
    assert policy.phi_ > 5000
    assert policy.reuse_fraction_ == 0.0


# --------------------------------------------------------------------------------------
# Regret, against the named baselines


@pytest.fixture(scope="module")
def regrets(standard_means):
    """Regret after 20 000 rounds on the standard instance, four common tables."""
    T = 20_000
    mu = DPTSUCB.gdp_mu(T, 1.0)
    b = round(sqrt(T) / mu) - 1
    policies = {
        "a=0": DPTSUCB(alpha=0.0),
        "a=.5": DPTSUCB(alpha=0.5),
        "a=1": DPTSUCB(alpha=1.0),
        "TS": GaussianThompsonSampling(),
        "M-TS": GaussianThompsonSampling(pre_pulls=b, variance=T / (mu**2 * (b + 1))),
    }

    def table(seed):
        return make_bernoulli_bandit(standard_means, T, random_state=seed)

    curves = compare_policies(policies, table, n_runs=4, means=standard_means, random_state=0)
    return {name: curve[:, -1].mean() for name, curve in curves.items()}


def test_regret_is_what_the_trade_off_promises(regrets):
    assert regrets["TS"] < regrets["a=0"] <= 450
    # Between 1/2 and 1 the expectations are alike at this horizon: epochs double, and the regret
    # moves in steps. The benchmark has the order at ten times as many rounds.
    assert regrets["a=0"] < min(regrets["a=.5"], regrets["a=1"])
    assert max(regrets["a=.5"], regrets["a=1"]) <= 1900


def test_less_regret_than_thompson_sampling_of_equal_constant_privacy(regrets):
    T = 20_000
    mu = DPTSUCB.gdp_mu(T, 1.0)
    baseline = GaussianThompsonSampling(pre_pulls=34, variance=T / (mu**2 * 35), horizon=T)
    assert baseline.reset(n_arms=5).gdp_mu_ == pytest.approx(mu)
    assert regrets["a=1"] < regrets["M-TS"]


# --------------------------------------------------------------------------------------
# Privacy


def n_early_plays(policy, table, n_runs):
    """How often arm 0 is played in rounds 3..30, in many runs."""
    plays = np.empty(n_runs, dtype=int)
    for run in range(n_runs):
        policy.set_params(random_state=run).reset(n_arms=2)
        for row in table[:30].tolist():
            arm = policy.ask()
            policy.tell(arm, row[arm])
        plays[run] = (policy.actions_[2:30] == 0).sum()
    return plays


def largest_excess(plays, neighbour_plays, mu):
    """How far the best threshold test of the two tables beats mu-GDP, in standard errors."""
    thresholds = np.arange(30)[:, None]
    excess = -np.inf
    for null, alternative in ((plays, neighbour_plays), (neighbour_plays, plays)):
        for sign in (1, -1):
            false = (sign * null >= sign * thresholds).mean(axis=1)
            true = (sign * alternative >= sign * thresholds).mean(axis=1)
            inside = (false > 0) & (false < 1)
            # Of the bound, which moves with the rate of false alarms, and of the rate itself.
            z = norm.ppf(false[inside])
            slope = np.exp(-mu * z - mu**2 / 2)
            variance = slope**2 * false[inside] * (1 - false[inside])
            variance += true[inside] * (1 - true[inside])
            error = np.sqrt(np.maximum(variance, 1e-12) / len(null))
            excess = max(excess, ((true[inside] - norm.cdf(z + mu)) / error).max(initial=-np.inf))
    return excess


@pytest.fixture(scope="module")
def neighbours():
    """Two tables that differ in what arm 0 pays in the first round."""
    table = make_bernoulli_bandit([0.5, 0.5], 400, random_state=0)
    table[0, 0] = 0.0
    neighbour = table.copy()
    neighbour[0, 0] = 1.0
    return table, neighbour


def test_audit_of_the_guarantee(neighbours):
    policy = DPTSUCB(alpha=1.0, horizon=400)
    plays = [n_early_plays(policy, table, 2000) for table in neighbours]
    assert policy.gdp_mu_tight_ < 3
    assert largest_excess(*plays, policy.gdp_mu_tight_) <= 3
    assert plays[1].mean() != plays[0].mean()  # the reward does have an influence


def test_the_audit_finds_a_broken_guarantee(neighbours):
    """The same audit, on draws with a hundredth of the standard deviation they should have."""

    class TooQuiet(DPTSUCB):
        def _close_epoch(self, arm):
            super()._close_epoch(arm)
            self._scale[arm] /= 100

    policy = TooQuiet(alpha=1.0, horizon=400)
    plays = [n_early_plays(policy, table, 300) for table in neighbours]
    assert largest_excess(*plays, policy.gdp_mu_tight_) > 3


def test_what_is_published_holds_no_reward():
    table = make_beta_bandit([0.7, 0.5, 0.4], 500, random_state=0)
    policy = DPTSUCB(random_state=0).fit(table)
    state = policy.private_state()
    np.testing.assert_array_equal(state["actions"], policy.actions_)
    assert state["gdp_mu"] == policy.gdp_mu_
    raw = {float(value) for value in np.concatenate([policy.rewards_, policy.means_])}
    published = np.concatenate([np.ravel(value) for value in state.values()]).astype(float)
    assert not raw & {value for value in published.tolist() if value not in (0.0, 1.0)}
    assert not {"means", "rewards", "regret"} & set(state)
    assert "actions" not in policy.set_params(store_history=False).fit(table).private_state()


def test_what_is_published_is_a_copy():
    policy = DPTSUCB(horizon=100, random_state=0).reset(n_arms=3)
    for _ in range(20):
        policy.tell(policy.ask(), 0.5)
    for value in policy.private_state().values():
        if isinstance(value, np.ndarray):
            value[:] = 0
    assert policy.counts_.sum() == 20
    assert (policy.max_draw_ != 0).all()


def test_pictures_of_a_policy_show_no_raw_value():
    table = make_beta_bandit([0.7, 0.5, 0.4], 500, random_state=0)
    policy = DPTSUCB(random_state=0).fit(table)
    page = policy._repr_html_()
    assert "gdp_mu_" in page
    for name in ("means_", "rewards_", "regret_"):
        assert name not in repr(policy)
        assert name not in page


def test_recommendation_comes_from_the_actions_alone():
    policy = DPTSUCB(horizon=100).reset(n_arms=3)
    policy.tell([2] * 7 + [0] * 3 + [1] * 3, [0.0] * 7 + [1.0] * 6)
    assert policy.means_.argmax() != 2
    assert policy.best_arm_ == 2


def test_rewards_are_clipped_before_anything_else():
    policy = DPTSUCB(horizon=100).reset(n_arms=2)
    with pytest.warns(UserWarning, match="reward_range"):
        policy.tell([0, 1], [50.0, -50.0])
    np.testing.assert_array_equal(policy.means_, [1.0, 0.0])


def test_the_guarantee_cannot_be_talked_up_after_the_fact():
    table = make_bernoulli_bandit([0.7, 0.5], 500, random_state=0)
    policy = DPTSUCB(alpha=0.0, random_state=0).fit(table)
    mu = policy.gdp_mu_
    policy.set_params(alpha=1.0, noise_multiplier=100.0, accountant="paper")
    assert policy.gdp_mu_ == policy.private_state()["gdp_mu"] == mu


# --------------------------------------------------------------------------------------
# Edges and bad input


@pytest.mark.parametrize("horizon", [1, 2, 3])
def test_tiny_horizons(horizon):
    policy = DPTSUCB(random_state=0).fit(np.full((horizon, 2), 0.5))
    assert policy.t_ == horizon
    np.testing.assert_array_equal(policy.actions_[:2], [0, 1][:horizon])
    assert np.isfinite(policy.gdp_mu_)
    assert policy.phi_ >= 9


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("alpha", -0.1),
        ("alpha", 1.1),
        ("target_mu", 0.0),
        ("target_mu", -1.0),
        ("noise_multiplier", 0.99),
        ("accountant", "renyi"),
    ],
)
def test_bad_parameters(name, value):
    with pytest.raises(ValueError, match=name):
        DPTSUCB(**{name: value}).fit(np.full((5, 2), 0.5))


def test_bad_arguments_of_the_calculators():
    with pytest.raises(ValueError, match="horizon"):
        DPTSUCB.sampling_budget(0, 0.5)
    with pytest.raises(ValueError, match="alpha"):
        DPTSUCB.gdp_mu(100, 2.0)
    with pytest.raises(ValueError, match="accountant"):
        DPTSUCB.gdp_mu(100, 0.5, "renyi")
    with pytest.raises(ValueError, match="noise_multiplier"):
        DPTSUCB.gdp_mu(100, 0.5, noise_multiplier=0.5)


def test_live_use_without_horizon():
    policy = DPTSUCB().reset(n_arms=2)
    for use in (policy.ask, lambda: policy.tell(0, 1.0), policy.private_state):
        with pytest.raises(ValueError, match="horizon"):
            use()
    assert not hasattr(policy, "reuse_fraction_")


def test_the_guarantee_ends_with_the_horizon():
    policy = DPTSUCB(horizon=10, random_state=0).reset(n_arms=2)
    for _ in range(10):
        policy.tell(policy.ask(), 0.5)
    with pytest.warns(UserWarning, match="guarantee of DPTSUCB"):
        policy.tell(policy.ask(), 0.5)
    assert policy.ask() in (0, 1)
