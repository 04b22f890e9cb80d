from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.stats import kstest, norm

from skicml.bandits import (
    UCB1,
    GaussianThompsonSampling,
    LazyUCB,
    PrivateSuccessiveElimination,
    compare_policies,
)
from skicml.datasets import make_bernoulli_bandit


def ask_only(policy, n):
    """Index values of n questions that are never answered."""
    scores = []
    for _ in range(n):
        policy.ask()
        scores.append(policy.arm_scores())
        policy._asked = None
    return np.array(scores)


# --------------------------------------------------------------------------------------
# UCB1


def test_ucb1_index():
    policy = UCB1(c=3.0, random_state=0).reset(n_arms=3)
    policy.tell([0, 0, 1, 2, 2, 2], [1.0, 0.0, 0.8, 0.1, 0.2, 0.3])
    policy.ask()
    expected = np.array([0.5, 0.8, 0.2]) + np.sqrt(3 * log(6) / np.array([2, 1, 3]))
    np.testing.assert_allclose(policy.arm_scores(), expected)
    np.testing.assert_allclose(policy.means_, [0.5, 0.8, 0.2])
    assert policy.ask() == 1


def test_ucb1_plays_every_arm_once_in_random_order():
    orders = set()
    for seed in range(30):
        policy = UCB1(random_state=seed).fit(np.full((4, 4), 0.5))
        assert sorted(policy.actions_) == [0, 1, 2, 3]
        orders.add(tuple(policy.actions_))
    assert len(orders) > 10


def test_ucb1_breaks_ties_evenly():
    firsts = [UCB1(random_state=seed).fit(np.full((4, 3), 0.5)).actions_[3] for seed in range(300)]
    np.testing.assert_allclose(np.bincount(firsts, minlength=3) / 300, 1 / 3, atol=0.1)


def test_ucb1_without_width_is_greedy():
    table = np.tile([0.2, 0.6, 0.4], (50, 1))
    policy = UCB1(c=0.0, random_state=0).fit(table)
    assert (policy.actions_[3:] == 1).all()


def test_ucb1_keeps_its_width_to_the_end_of_the_run():
    table = make_bernoulli_bandit([0.6, 0.5], 200, random_state=0)
    policy = UCB1(random_state=0).fit(table)
    changed = UCB1(random_state=0).partial_fit(table[:50]).set_params(c=0.0)
    np.testing.assert_array_equal(changed.partial_fit(table[50:]).actions_, policy.actions_)


# --------------------------------------------------------------------------------------
# Thompson sampling


def test_draws_of_thompson_sampling():
    policy = GaussianThompsonSampling(variance=2.0, random_state=0).reset(n_arms=3)
    policy.tell([0] * 4 + [1] * 9, [0.5] * 4 + [1.0] * 9)
    draws = ask_only(policy, 4000)
    for arm, (mean, n) in enumerate([(2 / 5, 4), (9 / 10, 9), (0.0, 0)]):
        standard = (draws[:, arm] - mean) / sqrt(2 / (n + 1))
        assert kstest(standard, norm.cdf).pvalue > 1e-3
    np.testing.assert_allclose(np.corrcoef(draws.T), np.eye(3), atol=0.06)


def test_pre_pulls_come_first():
    table = make_bernoulli_bandit([0.9, 0.1, 0.1], 500, random_state=0)
    policy = GaussianThompsonSampling(pre_pulls=7, random_state=0).fit(table)
    np.testing.assert_array_equal(np.bincount(policy.actions_[:21]), [7, 7, 7])
    assert np.isnan(
        GaussianThompsonSampling(pre_pulls=7).fit(table[:21]).arm_scores()
    ).all()  # nothing was drawn
    assert np.bincount(policy.actions_[21:], minlength=3).argmax() == 0


def test_guarantee_of_thompson_sampling():
    table = make_bernoulli_bandit([0.9, 0.1], 400, random_state=0)
    assert GaussianThompsonSampling(random_state=0).fit(table).gdp_mu_ == pytest.approx(20.0)
    policy = GaussianThompsonSampling(pre_pulls=3, variance=4.0, random_state=0).fit(table)
    assert policy.gdp_mu_ == pytest.approx(5.0)
    policy.set_params(variance=1e6)  # too late
    assert policy.gdp_mu_ == pytest.approx(5.0)
    with pytest.warns(UserWarning, match="horizon"):
        policy.partial_fit(np.tile(table, (3, 1)))
    assert policy.gdp_mu_ == pytest.approx(10.0)
    live = GaussianThompsonSampling().reset(n_arms=2)
    assert live.gdp_mu_ == 0.0
    live.tell([0] * 9, [0.5] * 9)
    assert live.gdp_mu_ == pytest.approx(3.0)


@pytest.mark.parametrize("b", [0, 5])
def test_one_reward_moves_a_draw_by_no_more_than_the_guarantee_says(b):
    """Sensitivity over standard deviation, added up over T draws in the squares."""
    c, n_rounds = 3.0, 200
    arms = np.random.RandomState(0).permutation([0] * 150 + [1] * 50)
    arms = np.concatenate([[0, 1] * b, arms]).astype(int)
    low, high = (
        GaussianThompsonSampling(pre_pulls=b, variance=c).reset(n_arms=2) for _ in range(2)
    )
    cost = 0.0
    for t, arm in enumerate(arms):
        low.tell(arm, 0.0 if t == 0 else 0.5)
        high.tell(arm, 1.0 if t == 0 else 0.5)
        if t + 1 >= 2 * b and t + 1 < n_rounds + 2 * b:
            spread = np.sqrt(c / (low.counts_ + 1))
            cost += (((high.means_ - low.means_) / spread) ** 2).sum()
    assert 0 < sqrt(cost) <= sqrt(n_rounds / (c * (b + 1)))


# --------------------------------------------------------------------------------------
# Lazy UCB


def test_lazy_ucb_index():
    policy = LazyUCB(epsilon=0.5, random_state=0).reset(n_arms=2)
    policy.tell([0] * 7 + [1] * 3, [0.5] * 7 + [0.2] * 3)
    np.testing.assert_array_equal(policy.epoch_lengths_, [4, 2])
    policy.ask()
    n, width = np.array([4, 2]), 3 * log(11)
    expected = policy.private_means_ + np.sqrt(width / n) + width / (0.5 * n)
    np.testing.assert_allclose(policy.arm_scores(), expected)


def test_lazy_ucb_uses_every_reward_once():
    policy = LazyUCB(epsilon=1e9, horizon=10**6, random_state=0).reset(n_arms=2)
    rewards = np.random.RandomState(0).uniform(size=40)
    policy.tell([0] * 40, rewards)
    assert policy.epoch_lengths_[0] == 16
    assert policy.private_means_[0] == pytest.approx(rewards[15:31].mean(), abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_noise_of_lazy_ucb(epsilon):
    noise = []
    for seed in range(1500):
        policy = LazyUCB(epsilon=epsilon, random_state=seed).reset(n_arms=2)
        policy.tell([0, 0, 0], [0.5, 0.25, 0.75])
        noise.append((policy.private_means_[0] - 0.5) * 2 * epsilon)
    assert kstest(noise, "laplace").pvalue > 1e-3


def test_lazy_ucb_has_noise_of_its_own_in_every_epoch():
    policy = LazyUCB(random_state=0).reset(n_arms=2)
    policy.tell([0, 0, 0, 1], [0.5, 0.5, 0.5, 0.5])
    before = policy.private_means_.copy()
    scores = ask_only(policy, 20)
    np.testing.assert_array_equal(scores, scores[:1].repeat(20, axis=0))
    np.testing.assert_array_equal(policy.private_means_, before)


@pytest.mark.parametrize("cls", [LazyUCB, PrivateSuccessiveElimination])
def test_gaussian_guarantee_of_pure_privacy(cls):
    policy = cls(epsilon=0.7, horizon=50).reset(n_arms=2)
    assert policy.gdp_mu_ == pytest.approx(2 * norm.ppf(exp(0.7) / (1 + exp(0.7))))
    policy.set_params(epsilon=0.1)
    assert policy.gdp_mu_ == pytest.approx(2 * norm.ppf(exp(0.7) / (1 + exp(0.7))))
    state = policy.private_state()
    assert state["private_means"].shape == (2,)
    assert "rewards" not in state


# --------------------------------------------------------------------------------------
# Successive elimination


def epoch_length(n_surviving, epoch, epsilon, beta):
    gap = 2.0**-epoch
    sampling = 32 * log(8 * n_surviving * epoch**2 / beta) / gap**2
    privacy = 8 * log(4 * n_surviving * epoch**2 / beta) / (epsilon * gap)
    return int(max(sampling, privacy)) + 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_elimination_follows_its_epochs(epsilon):
    beta = 0.01
    first = epoch_length(3, 1, epsilon, beta)
    margin = 2 * sqrt(log(8 * 3 / beta) / (2 * first))
    margin += 2 * log(4 * 3 / beta) / (epsilon * first)
    means = [1.0, 1 - 0.85 * margin, 1 - 1.3 * margin]
    policy = PrivateSuccessiveElimination(epsilon=epsilon, beta=beta, random_state=0)
    policy.partial_fit(np.tile(means, (3 * first - 1, 1)))
    np.testing.assert_array_equal(policy.counts_, [first, first, first - 1])
    assert (policy.epoch_, policy.surviving_.sum()) == (1, 3)
    policy.partial_fit(np.array([means]))
    assert policy.epoch_ == 2
    # Deterministic rewards: what survives follows from the margin alone.
    gaps = policy.private_means_.max() - policy.private_means_
    np.testing.assert_array_equal(policy.surviving_, gaps <= margin)
    np.testing.assert_array_equal(policy.surviving_, [True, True, False])
    np.testing.assert_allclose(policy.private_means_, means, atol=12 / (epsilon * first))
    # The second epoch starts from nothing.
    second = epoch_length(2, 2, epsilon, beta)
    assert policy.epoch_length_ == second
    means = [0.2, 0.9, 0.5]
    policy.partial_fit(np.tile(means, (2 * second, 1)))
    assert policy.epoch_ == 3
    np.testing.assert_allclose(policy.private_means_[:2], means[:2], atol=12 / (epsilon * second))


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_noise_of_elimination(epsilon):
    noise = []
    for seed in range(300):
        policy = PrivateSuccessiveElimination(epsilon=epsilon, beta=0.9, random_state=seed)
        R = policy.reset(n_arms=2).epoch_length_
        policy.tell(np.repeat([0, 1], R), np.repeat([0.25, 0.75], R))
        noise.extend((policy.private_means_ - [0.25, 0.75]) * epsilon * R)
    assert kstest(noise, "laplace").pvalue > 1e-3


def test_elimination_plays_the_last_arm_to_the_end():
    table = make_bernoulli_bandit([0.9, 0.2, 0.1], 20_000, random_state=0)
    policy = PrivateSuccessiveElimination(random_state=0).fit(table)
    np.testing.assert_array_equal(policy.surviving_, [True, False, False])
    ended = np.flatnonzero(policy.actions_ != 0)[-1]
    assert (policy.actions_[ended + 1 :] == 0).all()
    assert len(policy.actions_) - ended > 5000
    assert policy.best_arm_ == 0
    epoch, length = policy.epoch_, policy.epoch_length_
    with pytest.warns(UserWarning, match="horizon"):
        policy.partial_fit(table)
    assert (policy.epoch_, policy.epoch_length_) == (epoch, length)


def test_elimination_ignores_rewards_beyond_its_epoch():
    policy = PrivateSuccessiveElimination(epsilon=1e6, beta=0.1, random_state=0).reset(n_arms=2)
    R = policy.epoch_length_
    policy.tell([0] * (R + 50), [1.0] * R + [0.0] * 50)
    assert policy.epoch_ == 1
    policy.tell([1] * R, [1.0] * R)
    assert policy.epoch_ == 2
    np.testing.assert_allclose(policy.private_means_, 1.0, atol=1e-3)


def test_elimination_recommends_a_surviving_arm():
    policy = PrivateSuccessiveElimination(epsilon=1e6, beta=0.1, random_state=0).reset(n_arms=3)
    assert policy.best_arm_ == 0
    R = policy.epoch_length_
    policy.tell(np.repeat([0, 1, 2], R), np.repeat([0.0, 0.9, 1.0], R))
    np.testing.assert_array_equal(policy.surviving_, [False, True, True])
    assert policy.best_arm_ == 2


def test_elimination_needs_the_horizon_only_for_its_default():
    with pytest.raises(ValueError, match="horizon"):
        PrivateSuccessiveElimination().reset(n_arms=2).ask()
    assert PrivateSuccessiveElimination(beta=0.1).reset(n_arms=2).ask() == 0
    policy = PrivateSuccessiveElimination(horizon=123).reset(n_arms=2)
    assert policy.epoch_length_ == epoch_length(2, 1, 1.0, 1 / 123)


# --------------------------------------------------------------------------------------
# All together


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        (UCB1(c=-1.0), "c"),
        (GaussianThompsonSampling(variance=0.0), "variance"),
        (GaussianThompsonSampling(pre_pulls=-1), "pre_pulls"),
        (LazyUCB(epsilon=0.0), "epsilon"),
        (PrivateSuccessiveElimination(epsilon=-1.0), "epsilon"),
        (PrivateSuccessiveElimination(beta=1.0), "beta"),
    ],
)
def test_bad_parameters(policy, name):
    with pytest.raises(ValueError, match=f"'{name}'"):
        policy.fit(np.full((5, 2), 0.5))


def test_regret_on_the_standard_instance(standard_means):
    """Loose bands around what independent prototypes of the same papers gave."""
    T = 20_000
    bands = {
        "TS": (GaussianThompsonSampling(), 90, 220),
        "UCB1": (UCB1(), 160, 350),
        "lazy .5": (LazyUCB(epsilon=0.5), 900, 2300),
        "lazy 2": (LazyUCB(epsilon=2.0), 500, 1400),
        "elimination": (PrivateSuccessiveElimination(epsilon=1.0), 2200, 3300),
    }

    def table(seed):
        return make_bernoulli_bandit(standard_means, T, random_state=seed)

    policies = {name: policy for name, (policy, _, _) in bands.items()}
    curves = compare_policies(policies, table, n_runs=4, means=standard_means, random_state=0)
    regrets = {name: curve[:, -1].mean() for name, curve in curves.items()}
    for name, (_, low, high) in bands.items():
        assert low <= regrets[name] <= high, (name, regrets[name])
    assert regrets["TS"] < regrets["UCB1"] < regrets["lazy 2"] < regrets["elimination"]
