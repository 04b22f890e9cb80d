"""The common API: every K-armed policy, found by discovery, passes all of this."""

import copy
import pickle
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skicml.bandits import BaseBanditPolicy, GaussianThompsonSampling, PrivateSuccessiveElimination
from skicml.bandits.metrics import mean_reward_scorer, neg_regret_scorer
from skicml.datasets import make_bernoulli_bandit, make_beta_bandit
from skicml.utils import all_estimators
from tests.bandits.conftest import MEANS

POLICIES = {
    name: cls
    for name, cls in all_estimators(package="bandits")
    if issubclass(cls, BaseBanditPolicy)
}


@pytest.fixture(params=sorted(POLICIES))
def policy(request):
    """One of each policy, planned for 2000 rounds."""
    return POLICIES[request.param](horizon=2000, random_state=0)


def play_live(policy, table):
    """The ask / tell loop that `fit` stands for."""
    policy.reset(n_arms=table.shape[1])
    for row in table:
        arm = policy.ask()
        policy.tell(arm, row[arm])
    return policy


def assert_same_state(left, right):
    for name in ("actions_", "rewards_", "counts_"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    np.testing.assert_array_equal(left.arm_scores(), right.arm_scores())
    assert (left.t_, left.best_arm_) == (right.t_, right.best_arm_)


def test_the_policies_of_the_package_are_found():
    assert len(POLICIES) >= 5
    assert "BaseBanditPolicy" not in dict(all_estimators())


# --------------------------------------------------------------------------------------
# Replay and live use are one thing


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("make", [make_bernoulli_bandit, make_beta_bandit])
def test_replay_is_the_ask_tell_loop(policy, make, seed):
    table = make(MEANS, 1500, random_state=seed)
    policy.set_params(random_state=seed)
    assert_same_state(clone(policy).fit(table), play_live(clone(policy), table))


def test_replay_is_the_ask_tell_loop_when_rewards_are_missing(policy, table):
    table[np.random.RandomState(0).uniform(size=table.shape) < 0.4] = np.nan
    assert_same_state(clone(policy).fit(table), play_live(clone(policy), table))


def test_no_other_cell_than_the_played_one_is_looked_at(policy, table):
    before = clone(policy).fit(table)
    unseen = np.ones(table.shape, dtype=bool)
    unseen[np.arange(len(table)), before.actions_] = False
    other = np.where(unseen, 1 - table[::-1], table)
    assert (other != table).any(axis=1).all()
    np.testing.assert_array_equal(clone(policy).fit(other).actions_, before.actions_)


def test_asking_twice_is_asking_once(policy):
    once, twice = clone(policy).reset(n_arms=4), clone(policy).reset(n_arms=4)
    for t in range(600):
        twice.ask()
        state = twice.rng_.get_state()[1].copy()
        arm = twice.ask()
        np.testing.assert_array_equal(twice.rng_.get_state()[1], state)
        assert once.ask() == arm
        assert type(arm) is int
        for p in (once, twice):
            p.tell(arm, (t * 7 % 10) / 10)
    assert_same_state(once, twice)


def test_partial_fit_goes_on_where_fit_would_be(policy, table):
    whole = clone(policy).fit(table)
    parts = clone(policy).partial_fit(table[:100]).partial_fit(table[100:101])
    assert_same_state(parts.partial_fit(table[101:]), whole)


def test_logged_data_in_one_call_counts_as_rounds(policy):
    arms, rewards = [0, 1, 2, 2, 1, 0], [0.1, 0.9, 0.5, 0.4, 0.8, 0.2]
    together = clone(policy).reset(n_arms=3).tell(arms, rewards)
    single = clone(policy).reset(n_arms=3)
    for arm, reward in zip(np.array(arms), np.array(rewards)):
        assert single.tell(arm, reward) is single
    assert_same_state(together, single)
    assert together.t_ == 6
    np.testing.assert_array_equal(together.counts_, [2, 2, 2])
    assert together.ask() in (0, 1, 2)


def test_any_answer_closes_the_open_question():
    policy = GaussianThompsonSampling(random_state=0).reset(n_arms=3)
    arm, scores = policy.ask(), policy.arm_scores()
    policy.tell((arm + 1) % 3, 0.5)  # logged data, not the arm that was asked for
    policy.ask()
    assert (policy.arm_scores() != scores).all()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_a_copy_in_mid_run_goes_on_alike_and_apart(policy, table, duplicate):
    policy.reset(n_arms=4)
    for row in table[:301]:
        policy.tell(policy.ask(), row[policy.ask()])
    policy.ask()  # a question is open
    twin = duplicate(policy)
    for row in table[301:]:
        arm = policy.ask()
        policy.tell(arm, row[arm])
    assert twin.t_ == 301
    for row in table[301:]:
        arm = twin.ask()
        twin.tell(arm, row[arm])
    assert_same_state(policy, twin)


def test_reset_starts_the_same_stream_again(policy, table):
    first = play_live(policy, table).actions_
    policy.fit(table[:, :3])
    np.testing.assert_array_equal(play_live(policy, table).actions_, first)
    assert not hasattr(policy, "regret_")


def test_the_random_state_is_of_use(policy, table):
    if isinstance(policy, PrivateSuccessiveElimination):
        table = np.tile(table, (8, 1))  # its first noise comes at the end of a long epoch
    policy.set_params(horizon=len(table))
    runs = [clone(policy).set_params(random_state=seed).fit(table) for seed in range(4)]
    scores = {tuple(np.nan_to_num(run.arm_scores())) for run in runs}
    assert len(scores) > 1


def test_a_random_state_instance_gives_a_new_stream_to_each_run(policy, table):
    shared = np.random.RandomState(0)
    policy.set_params(random_state=shared)
    first = policy.fit(table).rng_.get_state()[1].copy()
    second = policy.fit(table).rng_.get_state()[1].copy()
    assert (first != second).any()
    shared.randint(100, size=1000)  # what others draw from it is no matter
    np.testing.assert_array_equal(policy.rng_.get_state()[1], second)


# --------------------------------------------------------------------------------------
# What a policy learns


def test_regret_grows_less_and_less(policy):
    if isinstance(policy, PrivateSuccessiveElimination):
        pytest.skip("plays all surviving arms alike until it drops them")
    means, n = [0.9, 0.5, 0.5], 20_000
    policy.set_params(horizon=n)
    tables = [make_bernoulli_bandit(means, n, random_state=seed) for seed in range(3)]
    regret = np.mean([clone(policy).fit(X).regret(means=means) for X in tables], axis=0)
    last_half = (regret[-1] - regret[n // 2]) / (n - n // 2)
    first_tenth = regret[n // 10] / (n // 10)
    assert last_half <= 0.5 * first_tenth


def test_a_change_of_units_changes_nothing(policy, table):
    plain = clone(policy).fit(table)
    for slope, offset in ((4.0, -2.0), (0.25, 8.0)):  # exact in binary
        scaled = clone(policy).set_params(reward_range=(offset, slope + offset))
        scaled.fit(slope * table + offset)
        np.testing.assert_array_equal(scaled.actions_, plain.actions_)
        np.testing.assert_allclose(scaled.rewards_, slope * plain.rewards_ + offset)
        np.testing.assert_allclose(scaled.regret_, slope * plain.regret_, atol=1e-9)


def test_missing_rewards_are_skipped_without_bias(policy):
    n = 30_000
    full = make_bernoulli_bandit([0.8, 0.4, 0.2], n, random_state=0)
    logged = np.random.RandomState(1).randint(3, size=n)  # uniform logging, one arm a row
    table = np.full_like(full, np.nan)
    table[np.arange(n), logged] = full[np.arange(n), logged]
    policy.set_params(horizon=n).fit(table)
    assert policy.best_arm_ == clone(policy).fit(full).best_arm_ == 0
    assert policy.n_rounds_used_ == policy.t_ == policy.counts_.sum() == len(policy.actions_)
    assert policy.t_ == pytest.approx(n / 3, rel=0.05)
    played_best = policy.actions_ == 0
    assert policy.rewards_[played_best].mean() == pytest.approx(0.8, abs=0.03)
    assert np.isfinite(policy.rewards_).all()


def test_a_missing_reward_keeps_the_question_open(policy):
    policy.reset(n_arms=3)
    arm = policy.ask()
    policy.tell(arm, np.nan)
    assert policy.t_ == 0
    assert policy.ask() == arm


def test_predict_repeats_the_best_arm(policy, table):
    policy.fit(table)
    predicted = policy.predict(np.full((7, 4), np.nan))
    assert predicted.dtype == np.intp
    np.testing.assert_array_equal(predicted, [policy.best_arm_] * 7)
    np.testing.assert_array_equal(policy.predict(), [policy.best_arm_])
    np.testing.assert_array_equal(policy.predict(table), policy.predict(table[::-1]))


def test_score_is_the_mean_reward_of_going_on(policy, table):
    more = make_beta_bandit(MEANS, 400, random_state=9)
    policy.fit(table)
    before = pickle.dumps(policy)
    score = policy.score(more)
    assert score == policy.score(more)
    assert pickle.dumps(policy) == before
    policy.partial_fit(more)
    assert score == pytest.approx(policy.rewards_[-400:].mean())


def test_score_warns_of_no_horizon(policy, table):
    policy.set_params(horizon=None).fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.score(table)


def test_regret_is_the_sum_of_the_gaps(policy, table):
    policy.fit(table)
    means = table.mean(axis=0)
    expected = np.cumsum(means.max() - means[policy.actions_])
    np.testing.assert_allclose(policy.regret_, expected)
    np.testing.assert_allclose(policy.regret(table), expected)
    np.testing.assert_allclose(policy.regret(means=[1, 0, 0, 0])[-1], (policy.actions_ > 0).sum())
    assert (np.diff(policy.regret_) >= 0).all()


def test_regret_of_live_play_needs_means(policy, table):
    play_live(policy, table)
    assert not hasattr(policy, "regret_")
    with pytest.raises(ValueError, match="X or means"):
        policy.regret()
    assert policy.regret(table).shape == (len(table),)
    with pytest.raises(ValueError, match=r"means must have shape \(4,\)"):
        policy.regret(means=[0.1, 0.2])


# --------------------------------------------------------------------------------------
# Rewards out of range, horizon, history


def test_rewards_out_of_range_are_clipped_with_one_warning(policy, table):
    policy.set_params(reward_range=(0.3, 0.6))
    with pytest.warns(UserWarning, match=r"reward_range=\(0.3, 0.6\)") as record:
        clipped = clone(policy).fit(table)
    assert len(record) == 1
    inside = clone(policy).fit(table.clip(0.3, 0.6))
    np.testing.assert_array_equal(clipped.actions_, inside.actions_)
    np.testing.assert_array_equal(clipped.rewards_, table[np.arange(len(table)), clipped.actions_])


def test_rewards_out_of_range_may_be_errors(policy, table):
    policy.set_params(reward_range=(0.3, 0.6), out_of_range="raise")
    with pytest.raises(ValueError, match="reward_range"):
        policy.fit(table)
    assert not hasattr(policy, "t_")


def test_the_end_of_the_horizon_is_told_once(policy, table):
    policy.set_params(horizon=1000)
    with pytest.warns(UserWarning, match="horizon=1000") as record:
        policy.fit(table)
    assert len(record) == 1
    assert policy.t_ == len(table)


def test_the_end_of_the_horizon_is_told_before_the_choice(policy):
    policy.set_params(horizon=3).reset(n_arms=2).tell([0, 1, 0], [0.5, 0.5, 0.5])
    with pytest.warns(UserWarning, match="horizon=3"):
        policy.ask()


def test_a_horizon_that_is_kept_is_silent(policy, table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.set_params(horizon=len(table)).fit(table)


def test_the_horizon_is_asked_for_where_it_is_needed(policy, table):
    needs_it = policy._uses_horizon
    policy.set_params(horizon=None)
    for use in (lambda p: p.reset(n_arms=4).ask(), lambda p: p.partial_fit(table)):
        if needs_it:
            with pytest.raises(ValueError, match="horizon"):
                use(clone(policy))
        else:
            use(clone(policy))
    assert clone(policy).fit(table).horizon_ == len(table)


def test_without_history_the_state_does_not_grow(policy):
    policy.set_params(store_history=False, horizon=10**6)
    short = clone(policy).fit(make_bernoulli_bandit(MEANS, 2000, random_state=0))
    long = clone(policy).fit(make_bernoulli_bandit(MEANS, 40_000, random_state=0))
    assert len(pickle.dumps(long)) <= len(pickle.dumps(short)) + 200
    for name in ("actions_", "rewards_", "regret_"):
        assert not hasattr(long, name)
    assert long.counts_.sum() == 40_000


def test_without_history_playing_takes_no_memory(policy):
    policy.set_params(store_history=False, horizon=10**6).reset(n_arms=4)
    for _ in range(500):
        policy.tell(policy.ask(), 0.5)
    tracemalloc.start()
    for _ in range(5000):
        policy.tell(policy.ask(), 0.5)
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 20_000  # one block of noise may be in it


def test_history_changes_no_action(policy, table):
    kept = clone(policy).fit(table)
    left = clone(policy).set_params(store_history=False).fit(table)
    np.testing.assert_array_equal(kept.counts_, left.counts_)
    np.testing.assert_array_equal(kept.arm_scores(), left.arm_scores())


# --------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("X", "error", "match"),
    [
        ([0.1, 0.2], ValueError, "Expected 2D array"),
        ([[0.1], [0.2]], ValueError, r"1 feature\(s\)"),
        (np.empty((0, 3)), ValueError, "0 sample"),
        ([[0.1, np.inf]], ValueError, "infinity"),
        ([[0.1, np.nan], [0.2, np.nan]], ValueError, "arm 1 was never logged"),
        (csr_matrix(np.eye(3)), TypeError, "[Ss]parse"),
        (np.eye(3) * 1j, ValueError, "Complex"),
    ],
)
def test_bad_tables(policy, X, error, match):
    with pytest.raises(error, match=match):
        policy.fit(X)
    assert not hasattr(policy, "t_")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("horizon", 0),
        ("horizon", 2.5),
        ("n_arms", 1),
        ("reward_range", (1.0, 1.0)),
        ("reward_range", (1.0, 0.0)),
        ("reward_range", (0.0, np.inf)),
        ("reward_range", (0.0, 0.5, 1.0)),
        ("reward_range", (-1e308, 1e308)),
        ("reward_range", ("low", "high")),
        ("reward_range", 1.0),
        ("out_of_range", "ignore"),
        ("missing", "impute"),
        ("store_history", "no"),
        ("random_state", "seed"),
    ],
)
def test_bad_parameters_are_named(policy, table, name, value):
    policy.set_params(**{name: value})
    for use in (policy.fit, policy.partial_fit):
        with pytest.raises(ValueError, match=name):
            use(table)
    with pytest.raises(ValueError, match=name):
        policy.reset(n_arms=None if name == "n_arms" else 4)
    assert not hasattr(policy, "t_")


def test_missing_may_be_an_error(policy, table):
    policy.set_params(missing="raise")
    policy.fit(table)
    table[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        policy.fit(table)
    with pytest.raises(ValueError, match="NaN"):
        policy.tell(0, np.nan)
    assert not policy.__sklearn_tags__().input_tags.allow_nan


def test_live_use_before_reset(policy, table):
    for use in (
        policy.ask,
        lambda: policy.tell(0, 1.0),
        policy.predict,
        policy.arm_scores,
        policy.regret,
        lambda: policy.score(table),
    ):
        with pytest.raises(NotFittedError):
            use()
    assert not hasattr(policy, "best_arm_")
    with pytest.raises(ValueError, match="n_arms"):
        policy.reset()
    with pytest.raises(ValueError, match="n_arms"):
        policy.reset(n_arms=1)


@pytest.mark.parametrize(
    ("arm", "reward", "match"),
    [
        (4, 0.5, r"arm must be an integer in 0\.\.3"),
        (-1, 0.5, "arm must be"),
        (1.5, 0.5, "arm must be"),
        (0, np.inf, "infinite"),
        (0, -np.inf, "infinite"),
        (0, "high", "number"),
        (0, None, "number"),
        (0, [0.5, 0.5], "one length"),
        ([0, 1], [0.5], "one length"),
        ([[0, 1]], [[0.5, 0.5]], "1-D"),
        ([0, 7], [0.5, 0.5], "arm must be"),
    ],
)
def test_bad_answers_change_nothing(policy, arm, reward, match):
    policy.reset(n_arms=4)
    with pytest.raises(ValueError, match=match):
        policy.tell(arm, reward)
    assert policy.t_ == 0


@pytest.mark.parametrize(
    ("rule", "refused"), [("out_of_range", 7.0), ("missing", np.nan)], ids=["range", "NaN"]
)
def test_a_refused_answer_takes_those_before_it_along(policy, rule, refused):
    policy.set_params(**{rule: "raise"}).reset(n_arms=4)
    with pytest.raises(ValueError, match=rule.replace("out_of", "reward")):
        policy.tell([0, 1], [0.5, refused])
    assert policy.t_ == 0
    assert (policy.counts_ == 0).all()


def test_one_question_at_a_time(policy):
    with pytest.raises(NotImplementedError, match="n_points"):
        policy.reset(n_arms=3).ask(n_points=2)


def test_the_number_of_arms_is_fixed(policy, table):
    policy.fit(table)
    for use in (policy.predict, policy.score, policy.partial_fit, policy.regret):
        with pytest.raises(ValueError, match="3 features"):
            use(table[:, :3])
    with pytest.raises(ValueError, match="n_arms=5"):
        policy.set_params(n_arms=5).fit(table)
    assert policy.reset().n_arms_ == 5


def test_names_of_the_arms_are_forgotten_with_the_rest(policy, table):
    pd = pytest.importorskip("pandas")
    policy.fit(pd.DataFrame(table, columns=list("abcd")))
    assert list(policy.feature_names_in_) == list("abcd")
    policy.reset()
    assert not hasattr(policy, "feature_names_in_")


def test_nothing_of_an_old_run_is_left(policy, table):
    fresh = clone(policy).set_params(horizon=None).reset(n_arms=3)
    policy.fit(table).set_params(horizon=None).reset(n_arms=3)
    assert {name for name in vars(policy) if name.endswith("_")} == {
        name for name in vars(fresh) if name.endswith("_")
    }


# --------------------------------------------------------------------------------------
# Edges, callbacks, ecosystem


def test_fewer_rounds_than_arms(policy):
    policy.set_params(horizon=None).fit(np.full((2, 5), 0.5))
    assert policy.t_ == 2
    assert len(set(policy.actions_)) == 2


def test_single_precision_and_integers(policy, table):
    single = table.astype(np.float32)
    np.testing.assert_array_equal(
        clone(policy).fit(single).actions_, clone(policy).fit(single.astype(float)).actions_
    )
    integers = make_bernoulli_bandit(MEANS, 300, random_state=0).astype(int)
    np.testing.assert_array_equal(
        clone(policy).fit(integers).actions_, clone(policy).fit(integers.astype(float)).actions_
    )


class Watch:
    """A callback that counts tasks, and may stop or break the fit."""

    def __init__(self, at_end=lambda n_ended: False):
        self.at_end, self.n_ended, self.best = at_end, 0, []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.n_ended += 1
        self.best.append(fitted_estimator.t_)
        return self.at_end(self.n_ended)

    def teardown(self, estimator, context):
        pass


def test_progress_is_told_in_blocks(policy, table):
    watch = Watch()
    policy.set_params(horizon=None)
    policy.set_callbacks(watch).fit(np.tile(table, (4, 1))[:5500])
    assert watch.best == [1000, 2000, 3000, 4000, 5000, 5500, 5500]


def test_a_callback_may_stop_the_run(policy, table):
    policy.set_callbacks(Watch(lambda n_ended: True)).fit(np.tile(table, (4, 1)))
    assert policy.t_ == 1000
    assert len(policy.regret_) == 1000


def test_an_interrupted_fit_leaves_the_old_one(policy, table):
    policy.fit(table)
    before = policy.actions_, policy.regret_

    def interrupt(n_ended):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        policy.set_callbacks(Watch(interrupt)).fit(table[::-1, :3])
    np.testing.assert_array_equal(policy.actions_, before[0])
    np.testing.assert_array_equal(policy.regret_, before[1])
    policy.set_callbacks().partial_fit(table[:5])
    assert policy.t_ == len(table) + 5


def test_grid_search_over_a_parameter(policy, table):
    grid = {"reward_range": [(0.0, 1.0), (-1.0, 2.0)]}
    search = GridSearchCV(
        policy, grid, scoring=neg_regret_scorer, cv=ShuffleSplit(2, random_state=0)
    ).fit(table)
    assert search.best_params_["reward_range"] in grid["reward_range"]
    assert (search.cv_results_["mean_test_score"] <= 0).all()
    assert search.predict(table[:3]).shape == (3,)


def test_pipeline_that_scales_the_rewards(policy, table):
    pipeline = make_pipeline(MinMaxScaler(), policy).fit(100 * table - 30)
    assert pipeline[-1].t_ == len(table)
    assert pipeline.predict(table).shape == (len(table),)
    scaled = pipeline[:-1].transform(100 * table - 30)
    for scorer in (neg_regret_scorer, mean_reward_scorer):
        assert scorer(pipeline, 100 * table - 30) == pytest.approx(scorer(policy, scaled))


def test_scorers_look_at_a_fresh_policy(policy, table):
    fresh = clone(policy).fit(table)
    policy.fit(make_beta_bandit(MEANS[::-1], 500, random_state=1))
    assert neg_regret_scorer(policy, table) == pytest.approx(-fresh.regret_[-1] / len(table))
    assert mean_reward_scorer(policy, table) == pytest.approx(fresh.rewards_.mean())
    policy.set_params(store_history=False)
    assert mean_reward_scorer(policy, table) == pytest.approx(fresh.rewards_.mean())


def test_rows_that_are_skipped_do_not_lower_the_mean_regret(policy):
    full = np.tile([1.0, 0.0], (200, 1))
    sparse = np.full((2000, 2), np.nan)
    sparse[::10] = full
    dense_score = neg_regret_scorer(policy, full)
    assert dense_score < 0
    assert neg_regret_scorer(policy, sparse) == pytest.approx(dense_score)


def test_a_round_is_cheap(policy):
    table = make_bernoulli_bandit(np.linspace(0.2, 0.8, 10), 20_000, random_state=0)
    policy.set_params(horizon=len(table))
    seconds = []
    for _ in range(3):
        start = time.process_time()
        policy.fit(table)
        seconds.append(time.process_time() - start)
    assert min(seconds) / len(table) <= 25e-6


# --------------------------------------------------------------------------------------
# A policy of a user's own: three hooks


class EpsilonGreedy(BaseBanditPolicy):
    """Plays an arm at random in one round of ten."""

    def _reset(self, n_arms):
        self._sums = np.zeros(n_arms)

    def _select(self):
        if self._unplayed:
            return self._unplayed[0]
        if self.rng_.uniform() < 0.1:
            return self.rng_.randint(self.n_arms_)
        self._index = self._sums / self.counts_
        return self._argmax(self._index)

    def _update(self, arm, reward):
        self._sums[arm] += reward


def test_a_policy_needs_three_hooks_only(table):
    policy = EpsilonGreedy(random_state=0)
    assert_same_state(clone(policy).fit(table), play_live(clone(policy), table))
    assert policy.fit(table).best_arm_ == 0
    assert policy.regret_[-1] < 0.3 * len(table)
    with pytest.raises(TypeError, match="abstract"):
        BaseBanditPolicy()
