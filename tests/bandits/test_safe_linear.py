"""Safe linear bandits started by FAST: safety, regret, strategies, replay, bad input."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skicml.bandits import FAST, SafeLinearThompsonSampling
from skicml.datasets import make_bandit_lp
from tests.bandits._linear_oracles import Oracle, margins, unit_corner_box

STRATEGIES = ["colts", "optimistic", "doubly-optimistic", "greedy"]
SAFE_STRATEGIES = ["colts", "optimistic", "greedy"]
THETA = np.array([0.2, 0.9])
PHI = np.array([[0.8, -0.5], [0.6, -0.3], [0.7, 0.2]])
MAP = np.vstack([THETA, PHI])


def make_policy(**parameters):
    """A policy on the disc of radius 1.5, where a round costs less than on the box."""
    defaults = {"action_set": "ball", "ball_radius": 1.5, "n_features": 2, "noise_std": 0.1}
    return SafeLinearThompsonSampling(**{**defaults, "random_state": 0, **parameters})


def make_pool(n_actions=60, noise_std=0.1, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-1, 1, (n_actions, 2))
    return X, X @ MAP.T + noise_std * rng.standard_normal((n_actions, 4))


def after_search(policy):
    return policy.actions_[policy.n_init_rounds_ :]


# --------------------------------------------------------------------------------------
# The claims of the papers


@pytest.mark.parametrize("seed", [0, 2, 6])
def test_no_violation_after_the_search_and_falling_regret(seed):
    Phi, _, _ = make_bandit_lp(3, 4, 0.35, random_state=seed)
    theta = np.random.RandomState(seed).standard_normal(3)
    theta /= np.linalg.norm(theta)
    policy = SafeLinearThompsonSampling(
        bounds=unit_corner_box(3), noise_std=0.1, horizon=1300, random_state=seed
    ).search(Oracle(np.vstack([theta, Phi]), 0.1, seed))
    played = after_search(policy)
    assert len(played) >= 1000
    assert (margins(Phi, played) >= 0).all()
    best = policy._set.linear(theta, Phi, np.zeros(4)).value
    regret = best - played @ theta
    assert regret[-100:].mean() <= 0.6 * regret[:100].mean()
    assert regret.sum() < 0.6 * len(played) * (best - theta @ policy.safe_action_)
    assert best - theta @ policy.best_action_ <= regret[:100].mean()
    assert margins(Phi, policy.best_action_)[0] >= 0


@pytest.mark.parametrize("strategy", SAFE_STRATEGIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_pulled_strategies_are_safe(strategy, seed):
    policy = make_policy(strategy=strategy, horizon=300, random_state=seed)
    policy.search(Oracle(MAP, seed=seed))
    assert policy.status_ == "feasible"
    assert policy.n_init_rounds_ < 200
    assert (margins(PHI, after_search(policy)) >= 0).all()
    assert policy.rho_.shape == (300 - policy.n_init_rounds_,)
    assert ((policy.rho_ >= 0) & (policy.rho_ <= 1)).all()
    assert policy.rho_.mean() > 0.3
    assert policy.n_fallback_ == 0


def test_unpulled_optimism_breaks_constraints():
    policy = make_policy(strategy="doubly-optimistic", horizon=300).search(Oracle(MAP))
    assert (margins(PHI, after_search(policy)) < 0).mean() > 0.5
    np.testing.assert_array_equal(policy.rho_, 1.0)


def test_search_costs_no_second_delta():
    """Search and strategy share one confidence statement about all four outcomes."""
    policy = make_policy(horizon=20).search(Oracle(MAP))
    assert policy.status_ == "undecided"
    assert policy._searcher.radius_ == pytest.approx(policy.radius_)
    alone = FAST(action_set="ball", ball_radius=1.5, n_features=2, noise_std=0.1, random_state=0)
    alone.reset()
    for action, outcome in zip(policy.actions_, policy.outcomes_):
        alone.tell(action, outcome[1:])
    assert alone.radius_ < policy.radius_


# --------------------------------------------------------------------------------------
# The rounds


def played_and_target(policy):
    """What the policy asks, and the largest certified share by a fine grid."""
    before = copy.deepcopy(policy)
    target = before._target(before._shifts(before.strategy))
    return policy.ask(), target


@pytest.mark.parametrize("strategy", SAFE_STRATEGIES)
def test_share_of_the_target_is_the_largest_certified_one(strategy):
    policy = make_policy(strategy=strategy, horizon=150).search(Oracle(MAP))
    assert policy.status_ == "feasible"
    for _ in range(10):
        action, target = played_and_target(policy)
        safe = policy.safe_action_
        shares = np.linspace(0, 1, 2001)[:, None]
        lower = policy.decision_function(shares * target + (1 - shares) * safe)
        largest = shares[lower >= 0].max()
        rho = np.linalg.norm(action - safe) / np.linalg.norm(target - safe)
        assert largest - 1e-6 <= rho <= largest + 1 / 2000
        assert policy.decision_function([action])[0] >= -1e-9
        policy.search(Oracle(MAP, seed=policy.t_), n_rounds=1)


def test_optimistic_target_is_optimistic():
    """No action of the set has a larger upper bound of the reward than the target promises."""
    policy = make_policy(strategy="optimistic", horizon=120).search(Oracle(MAP))
    shifts = policy._shifts("optimistic")
    assert shifts.shape == (4, 2)
    values = []
    for shift in shifts:
        play = policy._set.linear(policy.theta_ + shift, policy.Phi_ + shift, np.zeros(3))
        values.append(-np.inf if play is None else play.value)
    angle = np.linspace(0, 2 * np.pi, 721)
    circle = 1.5 * np.column_stack([np.cos(angle), np.sin(angle)])
    feasible = circle[margins(PHI, circle) >= 0]
    assert max(values) >= (feasible @ THETA).max()


def test_noise_is_coupled_across_reward_and_constraints():
    policy = make_policy(horizon=150).search(Oracle(MAP))
    draws = np.array([policy._shifts("colts")[0] for _ in range(3000)])
    squared = np.einsum("ij,jk,ik->i", draws, policy.precision_, draws)
    assert squared.mean() == pytest.approx(2 * policy.radius_**2, rel=0.1)
    np.testing.assert_array_equal(policy._shifts("greedy"), np.zeros((1, 2)))


def test_falls_back_on_the_safe_action_until_it_has_a_certificate():
    safe = np.array([0.8, 0.0])
    policy = make_policy(initializer=safe, horizon=400, noise_std=0.3).search(Oracle(MAP, 0.3))
    assert policy.n_init_rounds_ == 0
    assert policy.n_fallback_ > 3
    np.testing.assert_array_equal(policy.rho_[: policy.n_fallback_], 0.0)
    np.testing.assert_array_equal(
        policy.actions_[: policy.n_fallback_], np.tile(safe, (policy.n_fallback_, 1))
    )
    assert policy.rho_[-1] > 0.3
    assert (margins(PHI, policy.actions_) >= 0).all()


@pytest.mark.parametrize("strategy", ["greedy", "doubly-optimistic"])
def test_falls_back_on_the_safe_action_when_no_target_is_left(strategy):
    """All outcomes are 0, so that no action seems to reach the thresholds."""
    policy = make_policy(initializer=[1.0, 0.0], thresholds=9.0, strategy=strategy, reg=100.0)
    policy.search(lambda action: np.zeros(4), n_rounds=10)
    np.testing.assert_array_equal(policy.actions_, np.tile([1.0, 0.0], (10, 1)))
    assert policy.n_fallback_ == 10


def test_infeasible_problem_ends_the_run():
    policy = make_policy(thresholds=3.0, horizon=500).search(Oracle(MAP))
    assert policy.status_ == "infeasible"
    assert policy.safe_action_ is policy.best_action_ is policy.best_index_ is None
    assert policy.t_ == policy.n_init_rounds_ < 500
    assert policy.rho_.shape == (0,)
    assert policy.search(Oracle(MAP)).t_ == policy.n_init_rounds_


def test_undecided_search():
    policy = make_policy(horizon=10).search(Oracle(MAP))
    assert (policy.status_, policy.n_init_rounds_) == ("undecided", 10)
    assert policy.safe_action_ is None
    assert policy.search(Oracle(MAP), n_rounds=200).status_ == "feasible"


def test_verdict_of_the_last_round_counts():
    """The search is tested once more where the horizon ends it."""
    whole = make_policy(horizon=300).search(Oracle(MAP))
    ended = make_policy(horizon=whole.n_init_rounds_).search(Oracle(MAP))
    assert ended.status_ == "feasible"
    np.testing.assert_array_equal(ended.safe_action_, whole.safe_action_)
    assert ended.best_action_ is not None


def test_safe_action_has_half_of_the_best_margin():
    policy = make_policy(horizon=300).search(Oracle(MAP))
    best = policy._set.maximin(PHI, np.zeros(3)).value
    assert margins(PHI, policy.safe_action_)[0] >= 0.5 * best


def test_a_search_of_your_own():
    template = FAST(epsilon=0.8, check_growth=1.05, noise_std=0.1, upper="resample")
    policy = make_policy(initializer=template, horizon=200).search(Oracle(MAP))
    assert policy.status_ == "feasible"
    assert not hasattr(template, "t_")
    default = make_policy(horizon=200).search(Oracle(MAP))
    assert policy.n_init_rounds_ < default.n_init_rounds_
    assert "initializer__epsilon" in policy.get_params()


def test_single_outcome_is_reward_and_constraint():
    """A conservative bandit: the reward itself stays at or above the threshold."""
    policy = make_policy(thresholds=0.3, horizon=200).search(Oracle(THETA[None]))
    assert policy.status_ == "feasible"
    assert policy.Phi_.shape == (1, 2)
    np.testing.assert_array_equal(policy.theta_, policy.Phi_[0])
    assert (after_search(policy) @ THETA >= 0.3).all()
    assert policy.rewards_[-50:].mean() > 1.0


def test_thresholds_and_intercept():
    constants = np.array([0.5, 0.2, 0.2, 0.2])
    limits = np.array([0.3, 0.1, 0.2])
    policy = make_policy(thresholds=limits, fit_intercept=True, norm_bound=1.2, horizon=500)
    policy.search(Oracle(MAP, constants=constants))
    assert policy.status_ == "feasible"
    assert (PHI @ after_search(policy).T + constants[1:, None] - limits[:, None]).min() >= 0
    assert policy.theta_intercept_ == pytest.approx(0.5, abs=0.15)
    np.testing.assert_allclose(policy.intercept_, 0.2, atol=0.15)
    plain = make_policy(horizon=150).search(Oracle(MAP))
    assert plain.theta_intercept_ == 0.0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "action_set",
    ["box", ([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [1.0, 1, 1, 1])],
    ids=["box", "polytope"],
)
def test_linear_programs(action_set, strategy):
    policy = make_policy(action_set=action_set, strategy=strategy, horizon=160)
    policy.search(Oracle(MAP))
    assert policy.status_ == "feasible"
    assert all(policy._set.contains(action) for action in policy.actions_)
    if strategy != "doubly-optimistic":
        assert (margins(PHI, after_search(policy)) >= 0).all()


# --------------------------------------------------------------------------------------
# Tables


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_table_of_actions(strategy):
    X, Y = make_pool()
    policy = make_policy(strategy=strategy, horizon=600).fit(X, Y)
    assert policy.status_ == "feasible"
    np.testing.assert_array_equal(policy.best_action_, X[policy.best_index_])
    played = after_search(policy)
    assert all((action == X).all(axis=1).any() for action in played)
    if strategy != "doubly-optimistic":
        assert (margins(PHI, played) >= -0.05).all()  # the records, not their means, are certified
    certified = policy.predict(X) == 1
    assert certified[policy.best_index_]
    assert policy.best_index_ == np.flatnonzero(certified)[(X[certified] @ policy.theta_).argmax()]
    best = (X[margins(PHI, X) >= 0] @ THETA).max()
    assert best - X[policy.best_index_] @ THETA < 0.25


def test_table_falls_back_on_the_safe_row():
    X, Y = make_pool()
    safe = margins(PHI, X).argmax()
    policy = make_policy(initializer=X[safe], noise_std=0.5, horizon=100).fit(X, Y)
    first = policy.rho_ == 0
    assert first[0]
    np.testing.assert_array_equal(policy.actions_[0], X[safe])


def test_replay_is_the_ask_tell_loop():
    X, Y = make_pool()
    replay = make_policy(horizon=300).fit(X, Y)
    live = make_policy(action_set=X, horizon=300).reset()
    for _ in range(300):
        action = live.ask()
        live.tell(action, Y[np.flatnonzero((action == X).all(axis=1))[0]])
    np.testing.assert_array_equal(replay.actions_, live.actions_)
    np.testing.assert_array_equal(replay.rho_, live.rho_)
    assert replay.n_fallback_ == live.n_fallback_


def test_no_other_record_than_the_played_ones_is_looked_at():
    X, Y = make_pool()
    before = make_policy(horizon=200).fit(X, Y)
    played = np.array([(before.actions_ == x).all(axis=1).any() for x in X])
    assert not played.all()
    other = np.where(played[:, None], Y, -50 * Y[::-1])
    np.testing.assert_array_equal(make_policy(horizon=200).fit(X, other).actions_, before.actions_)


# --------------------------------------------------------------------------------------
# Live use


def test_asking_twice_is_asking_once():
    policy = make_policy().reset()
    oracle = Oracle(MAP)
    for _ in range(160):
        first = policy.ask()
        np.testing.assert_array_equal(policy.ask(), first)
        policy.tell(first, oracle(first))
    assert policy.status_ == "feasible"
    assert len(policy.rho_) == 160 - policy.n_init_rounds_


def test_an_action_that_was_not_asked_has_no_share():
    policy = make_policy(horizon=150).search(Oracle(MAP))
    policy.ask()
    policy.tell([0.9, 0.1], MAP @ [0.9, 0.1])
    assert np.isnan(policy.rho_[-1])
    policy.search(Oracle(MAP), n_rounds=1)
    assert np.isfinite(policy.rho_[-1])


def test_rewards_and_history():
    policy = make_policy(horizon=150).search(Oracle(MAP))
    np.testing.assert_array_equal(policy.rewards_, policy.outcomes_[:, 0])
    assert make_policy().reset().rewards_.shape == (0,)
    short = make_policy(horizon=150, store_history=False).search(Oracle(MAP))
    for name in ("actions_", "outcomes_", "rewards_", "rho_"):
        assert not hasattr(short, name)
    np.testing.assert_array_equal(short.best_action_, policy.best_action_)
    state = short.rng_.get_state()[1].copy()
    _ = short.best_action_  # reading a result consumes no randomness
    np.testing.assert_array_equal(short.rng_.get_state()[1], state)


@pytest.mark.parametrize("n_before", [10, 150])
def test_pickle_in_mid_run(n_before):
    policy, oracle = make_policy().reset(), Oracle(MAP)
    policy.search(oracle, n_rounds=n_before)
    policy.ask()
    other = pickle.loads(pickle.dumps(policy))
    for _ in range(20):
        action = policy.ask()
        np.testing.assert_array_equal(other.ask(), action)
        outcome = oracle(action)
        policy.tell(action, outcome)
        other.tell(action, outcome)
    assert policy.status_ == other.status_


def test_seeds():
    runs = [make_policy(random_state=s, horizon=40).search(Oracle(MAP)).actions_ for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


# --------------------------------------------------------------------------------------
# scikit-learn around it, bad input


def test_pipeline_and_grid_search():
    X, Y = make_pool()
    pipeline = make_pipeline(MinMaxScaler((-1, 1)), make_policy(horizon=200))
    assert set(pipeline.fit(X, Y).predict(X)) <= {-1, 0, 1}
    grid = GridSearchCV(make_policy(horizon=200), {"strategy": ["colts", "greedy"]}, cv=2)
    assert grid.fit(X, Y).best_params_["strategy"] in ("colts", "greedy")
    assert grid.best_score_ > 0.7


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"strategy": "bold"}, "strategy"),
        ({"initializer": "slow"}, "initializer"),
        ({"initializer": [0.1, 0.2, 0.3]}, r"initializer.*shape \(2,\)"),
        ({"initializer": [9.0, 9.0]}, "initializer must be in the action set"),
        ({"initializer": [np.nan, 0.0]}, "initializer must be a finite action"),
        ({"initializer": FAST(epsilon=2.0)}, "'epsilon' parameter of FAST"),
        ({"horizon": 0}, "horizon"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"thresholds": [np.inf]}, "thresholds"),
        ({"action_set": ([[1.0, 0.0]], [1.0])}, "not bounded"),
    ],
)
def test_bad_parameters(parameters, message):
    policy = make_policy(**parameters)
    with pytest.raises(ValueError, match=message):
        policy.search(Oracle(MAP))
    assert not hasattr(policy, "t_")


def test_bad_rounds():
    policy = make_policy(thresholds=[0.0, 0.1, 0.2]).reset()
    for action, outcome, message in [
        ([2.0, 0.0], np.zeros(4), "action set"),
        ([0.0, 0.0], np.zeros(3), r"shape \(4,\), got \(3,\)"),
        ([0.0, 0.0], [0, 0, 0, np.nan], "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            policy.tell(action, outcome)
    assert policy.t_ == 0


def test_not_fitted():
    policy = clone(make_policy())
    for call in (policy.ask, lambda: policy.predict([[0.0, 0.0]])):
        with pytest.raises(NotFittedError):
            call()
