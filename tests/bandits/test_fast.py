"""FAST: estimate, certificates, verdicts, the coupling, replay and live use, bad input."""

import copy
import pickle
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, Normalizer, scale

from benchmarks.fast import cone_rows
from skicml.bandits import FAST, SafeLinearThompsonSampling
from skicml.datasets import make_bandit_lp
from tests.bandits._linear_oracles import (
    BEST,
    PHI,
    Oracle,
    make_fast,
    margins,
    unit_corner_box,
)

INFEASIBLE = 0.5 * np.eye(3) - 0.6 * (1 - np.eye(3))  # best margin -.23 over the simplex


def make_pool(n_actions=60, n_repeats=None, noise_std=0.1, seed=0):
    rng = np.random.RandomState(seed)
    X = rng.uniform(-1, 1, (n_actions, 2))
    shape = (n_actions, 3) if n_repeats is None else (n_actions, n_repeats, 3)
    clean = X @ PHI.T if n_repeats is None else (X @ PHI.T)[:, None]
    return X, clean + noise_std * rng.standard_normal(shape)


def play_live(policy, X, Y, n_rounds):
    """The ask / tell loop that `fit` stands for."""
    policy.reset()
    for _ in range(n_rounds):
        action = policy.ask()
        policy.tell(action, Y[np.flatnonzero((action == X).all(axis=1))[0]])
    return policy


# --------------------------------------------------------------------------------------
# Certificates and verdicts


def random_instance(seed):
    """Sizes 2-4 and 3-8, best margin of size .2 to .5, feasible for even seeds."""
    rng = np.random.RandomState(seed)
    d, m, feasible = rng.randint(2, 5), rng.randint(3, 9), seed % 2 == 0
    best = rng.uniform(0.2, 0.5 if feasible else min(0.5, 0.95 / np.sqrt(d)))
    Phi, action_set, oracle = make_bandit_lp(d, m, best, feasible=feasible, random_state=seed)
    return Phi, action_set, oracle, best if feasible else -best


@pytest.mark.parametrize("seed", range(20))
def test_verdicts_and_certificates_on_random_instances(seed):
    Phi, action_set, oracle, best = random_instance(seed)
    policy = FAST(action_set=action_set, noise_std=0.1, random_state=seed).search(oracle)
    assert policy.status_ == ("feasible" if best > 0 else "infeasible")
    lower, upper = np.transpose(policy.certificates_)[1:]
    assert (upper >= best - 1e-6).all()
    assert (lower <= best + 1e-6).all()
    margin = margins(Phi, policy.best_action_)[0]
    assert margin >= policy.margin_lower_ - 1e-9
    if best > 0:
        assert margin >= 0.5 * best
        assert policy.margin_lower_ >= 0.5 * policy.margin_upper_
    assert policy.status_ == "feasible" or policy.margin_upper_ < 0


@pytest.mark.parametrize(
    ("Phi", "parameters", "status"),
    [
        (PHI, {}, "feasible"),
        (INFEASIBLE, {"action_set": "simplex", "bounds": (-1, 1), "n_features": 3}, "infeasible"),
    ],
)
def test_upper_bound_by_resampling(Phi, parameters, status):
    policy = make_fast(upper="resample", **parameters).search(Oracle(Phi))
    assert policy.status_ == status
    best = -0.7 / 3 if status == "infeasible" else BEST
    assert all(upper >= best - 1e-6 for _, _, upper in policy.certificates_)


def test_resampling_is_paid_for_out_of_delta():
    directions, resample = (make_fast(upper=u).reset() for u in ("directions", "resample"))
    half = make_fast(delta=0.025).reset()
    assert resample.radius_ == pytest.approx(half.radius_)
    assert resample.radius_ > directions.radius_


def test_number_of_resampled_perturbations():
    policy = make_fast(upper="resample").reset()
    policy.tell([0, 0], [0, 0, 0])
    # k-th test: delta_k = .05 / (2 k (k + 1)), and each draw fails with probability .8413
    for k in (1, 2, 3):
        delta_k = 0.05 / (2 * k * (k + 1))
        n_draws = len(policy._optimistic_shifts())
        assert 0.84134**n_draws <= delta_k < 0.84134 ** (n_draws - 1)
        policy.certificates_.append(None)


def test_resampled_bound_does_not_depend_on_the_noise_of_the_plays():
    """With little noise a draw is hardly ever optimistic: no number of draws would do."""
    shifts = []
    for scale_ in (1.0, 0.5, 0.01):
        policy = make_fast(upper="resample", scale=scale_).reset()
        policy.tell([0, 0], [0, 0, 0])
        shifts.append(policy._optimistic_shifts())
    np.testing.assert_array_equal(shifts[0], shifts[1])
    np.testing.assert_array_equal(shifts[0], shifts[2])
    timid = make_fast(upper="resample", scale=0.01).search(Oracle(PHI), n_rounds=40)
    assert all(upper >= BEST - 1e-6 for _, _, upper in timid.certificates_)


def test_upper_bound_looks_beyond_the_action_that_seems_best():
    """The optimistic value of the greedy action is no bound on the best margin."""
    Phi = np.array([[0.1, 0.95]])
    policy = make_fast(noise_std=0.1, norm_bound=1.0).reset()
    oracle = Oracle(Phi)
    for _ in range(400):  # the good direction is never played
        policy.tell([1.0, 0.0], oracle(np.array([1.0, 0.0])))
    policy.search(oracle, n_rounds=0)
    estimate, width = policy._margins(np.array([[1.0, 0.0]]))
    assert (estimate + width)[0] < 0.3
    assert policy.margin_upper_ >= 1.05  # the best margin, at (1, 1)


def test_a_positive_estimated_margin_is_no_certificate():
    policy = make_fast(noise_std=1.0).search(Oracle(PHI, 1.0), n_rounds=30)
    greedy = policy._set.maximin(*policy._program(policy._constraint_coef))
    assert greedy.value > 0
    assert policy.margin_lower_ < 0
    assert policy.status_ == "undecided"


def test_infeasible_is_never_said_where_the_zero_action_is_allowed():
    """With 0 in the set the best margin is 0 and no upper bound may fall below it."""
    opposite = np.array([[0.8, 0.0], [-0.8, 0.0]])
    for action_set in ("box", "ball"):
        policy = make_fast(action_set=action_set, n_features=2, max_rounds=400)
        policy.search(Oracle(opposite))
        assert policy.status_ == "undecided"
        assert min(upper for _, _, upper in policy.certificates_) >= 0


def test_thresholds_make_the_zero_action_infeasible():
    opposite = np.array([[0.8, 0.0], [-0.8, 0.0]])
    policy = make_fast(thresholds=0.5).search(Oracle(opposite))
    assert policy.status_ == "infeasible"


def test_tests_follow_their_schedule_and_the_last_round_is_tested():
    policy = make_fast(noise_std=5.0, max_rounds=101).search(Oracle(PHI, 5.0))
    rounds = [t for t, _, _ in policy.certificates_]
    assert policy.status_ == "undecided"
    assert rounds == [16, 20, 24, 29, 35, 42, 51, 62, 75, 90, 101]
    early = make_fast().search(Oracle(PHI), n_rounds=3)
    assert [t for t, _, _ in early.certificates_] == [3]
    assert early.best_action_.shape == (2,)
    assert early.margin_lower_ == pytest.approx(early.decision_function([early.best_action_])[0])


def test_safety_cost_is_the_sum_of_the_observed_violations():
    policy = make_fast(thresholds=[0.1, 0.2, 0.0]).search(Oracle(PHI), n_rounds=50)
    worst = (policy.outcomes_ - [0.1, 0.2, 0.0]).min(axis=1)
    assert policy.safety_cost_observed_ == pytest.approx(-worst[worst < 0].sum())
    assert policy.safety_cost_observed_ > 0


# --------------------------------------------------------------------------------------
# The claims of the paper


@pytest.mark.parametrize("seed", [0, 1])
def test_coupling_is_what_makes_many_constraints_searchable(seed):
    """100 constraints: the coupled search stops, independent noise does not explore."""
    rounds = {}
    for m in (5, 100):
        rows = cone_rows(m, seed)
        search = FAST(bounds=unit_corner_box(3), noise_std=0.3, max_rounds=1500, random_state=seed)
        coupled = clone(search).search(Oracle(rows, 0.3, seed))
        assert coupled.status_ == "feasible"
        assert margins(rows, coupled.best_action_)[0] >= 0.2
        rounds[m] = coupled.t_
    assert rounds[100] <= 2 * rounds[5]
    if seed == 0:
        independent = search.set_params(coupled=False).search(Oracle(rows, 0.3, seed))
        assert independent.status_ == "undecided"
        assert independent.margin_lower_ < 0 < 1 < independent.margin_upper_
        regret = [(0.4 - margins(rows, p.actions_)).mean() for p in (coupled, independent)]
        assert regret[0] < 0.75 * regret[1]


def test_rounds_grow_like_the_inverse_square_of_the_margin():
    ratios = []
    for seed in range(3):
        rounds = []
        for best in (0.4, 0.2):
            _, action_set, oracle = make_bandit_lp(2, 4, best, random_state=seed)
            policy = FAST(action_set=action_set, noise_std=0.1, check_growth=1.1, random_state=seed)
            rounds.append(policy.search(oracle).t_)
        ratios.append(rounds[1] / rounds[0])
    assert 2.5 <= min(ratios) <= max(ratios) <= 8


@pytest.mark.parametrize(
    "action_set",
    [
        "ball",
        "box",
        ([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [1.0, 1, 1, 1]),
        np.random.RandomState(0).uniform(-1, 1, (80, 2)),
    ],
    ids=["ball", "box", "polytope", "table"],
)
def test_every_kind_of_set_is_searched(action_set):
    policy = make_fast(action_set=action_set, n_features=2).search(Oracle(PHI))
    assert policy.status_ == "feasible"
    assert policy._set.contains(policy.best_action_)
    assert all(policy._set.contains(action) for action in policy.actions_)
    best = policy._set.maximin(PHI, np.zeros(3)).value
    assert policy.margin_lower_ <= margins(PHI, policy.best_action_)[0] <= best + 1e-9
    assert best <= policy.margin_upper_
    assert margins(PHI, policy.best_action_)[0] >= 0.5 * best


def test_search_costs_less_than_uniform_exploration():
    policy = make_fast().search(Oracle(PHI))
    naive = make_fast().reset()
    oracle, rng = Oracle(PHI), np.random.RandomState(0)
    while naive.status_ == "undecided":
        action = rng.uniform(-1, 1, 2)
        naive.tell(action, oracle(action))
    regret = [(BEST - margins(PHI, p.actions_)).sum() for p in (policy, naive)]
    assert naive.status_ == "feasible"
    assert regret[0] < 0.5 * regret[1]


# --------------------------------------------------------------------------------------
# Thresholds and intercept


def test_known_thresholds_are_a_shift_of_the_outcome():
    limits = np.array([0.1, -0.2, 0.05])
    raw = make_fast(thresholds=limits).search(Oracle(PHI, constants=limits), n_rounds=60)
    shifted = make_fast().search(Oracle(PHI), n_rounds=60)
    assert raw.status_ == shifted.status_
    # not equal: the ridge shrinks Phi a towards 0, not towards the limit
    assert raw.margin_lower_ == pytest.approx(shifted.margin_lower_, abs=0.1)
    scalar = make_fast(thresholds=0.1).search(Oracle(PHI), n_rounds=40)
    array = make_fast(thresholds=[0.1] * 3).search(Oracle(PHI), n_rounds=40)
    np.testing.assert_array_equal(scalar.actions_[1:], array.actions_[1:])
    assert scalar.margin_lower_ == array.margin_lower_


def test_intercept_is_learned_only_when_asked_for():
    constants = np.array([0.3, 0.3, -0.2])
    options = {"thresholds": 0.05, "norm_bound": 1.2, "random_state": 3}
    affine = make_fast(fit_intercept=True, **options).search(Oracle(PHI, constants=constants))
    assert affine.status_ == "feasible"
    np.testing.assert_allclose(affine.intercept_, constants, atol=0.1)
    np.testing.assert_allclose(affine.Phi_, PHI, atol=0.1)
    assert (PHI @ affine.best_action_ + constants - 0.05).min() >= affine.margin_lower_
    linear = make_fast(**options).search(Oracle(PHI, constants=constants), n_rounds=affine.t_)
    assert np.abs(linear.Phi_ - PHI).max() > 0.1  # the constant went into the slopes
    np.testing.assert_array_equal(linear.intercept_, np.zeros(3))


# --------------------------------------------------------------------------------------
# Replay and live use are one thing


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_replay_is_the_ask_tell_loop(seed, coupled):
    X, Y = make_pool(seed=seed)
    replay = FAST(noise_std=0.1, coupled=coupled, random_state=seed).fit(X, Y)
    live = FAST(action_set=X, noise_std=0.1, coupled=coupled, random_state=seed)
    play_live(live, X, Y, replay.t_)
    np.testing.assert_array_equal(replay.actions_, live.actions_)
    np.testing.assert_array_equal(replay.outcomes_, live.outcomes_)
    assert replay.certificates_ == live.certificates_
    assert replay.best_index_ == live.best_index_


def test_no_other_record_than_the_played_ones_is_looked_at():
    X, Y = make_pool(n_repeats=4)
    policy = FAST(noise_std=0.1, random_state=0)
    before = clone(policy).fit(X, Y)
    counts = np.array([(before.actions_ == x).all(axis=1).sum() for x in X])
    unseen = np.arange(4) >= counts[:, None]
    assert unseen.sum() > 50
    other = np.where(unseen[..., None], 100 * Y[::-1], Y)
    after = clone(policy).fit(X, other)
    np.testing.assert_array_equal(before.actions_, after.actions_)
    assert before.certificates_ == after.certificates_


def test_repeats_are_used_in_turn():
    X, Y = make_pool(n_repeats=5)
    policy = FAST(noise_std=0.1, random_state=0).fit(X, Y)
    rounds = np.flatnonzero((policy.actions_ == policy.best_action_).all(axis=1))
    assert len(rounds) > 5
    records = Y[policy.best_index_]
    np.testing.assert_array_equal(
        policy.outcomes_[rounds], records[np.arange(len(rounds)) % len(records)]
    )


def test_single_records_certify_the_records_not_the_means():
    """The stated limit of a replay: one record a candidate repeats its own noise."""
    X = np.array([[1.0, 0.0], [0.0, 1.0]])
    means, records = np.array([-0.1, -0.3]), np.array([0.4, -0.3])  # a lucky record
    repeats = means[:, None, None] + 0.5 * np.random.RandomState(0).standard_normal((2, 400, 1))
    options = {"noise_std": 0.5, "random_state": 0, "max_rounds": 2000}
    assert FAST(**options).fit(X, records).predict(X)[0] == 1
    assert FAST(**options).set_params(max_rounds=400).fit(X, repeats).predict(X)[0] != 1


def test_finite_tables_are_not_mixed_and_bounded_exactly():
    X, Y = make_pool()
    policy = FAST(noise_std=0.1, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(policy.best_action_, X[policy.best_index_])
    lower = policy.decision_function(X)
    assert policy.best_index_ == lower.argmax()
    assert policy.margin_lower_ == pytest.approx(lower.max())
    estimate, width = policy._margins(X)
    assert policy.margin_upper_ == pytest.approx((estimate + width).max())
    # the average of the corners of a square would be feasible, no corner is
    corners = np.array([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    Phi = np.array([[0.5, 0], [-0.5, 0], [0, 0.5], [0, -0.5]])
    finite = FAST(noise_std=0.1, random_state=0).fit(corners, corners @ Phi.T)
    assert finite.status_ == "infeasible"


def test_one_dimensional_outcomes_are_one_constraint():
    X, Y = make_pool()
    flat, column = (FAST(noise_std=0.1, random_state=0).fit(X, y) for y in (Y[:, 0], Y[:, :1]))
    np.testing.assert_array_equal(flat.actions_, column.actions_)
    assert flat.Phi_.shape == (1, 2)
    live = make_fast().search(lambda action: 0.5 * action[0])
    assert live.status_ == "feasible"


def test_replay_stops_at_fifty_rounds_a_candidate():
    X, Y = make_pool(n_actions=3, noise_std=5.0)
    assert FAST(noise_std=5.0, random_state=0).fit(X, Y).t_ == 150
    assert FAST(noise_std=5.0, max_rounds=20, random_state=0).fit(X, Y).t_ == 20


def test_asking_twice_is_asking_once():
    policy = make_fast().reset()
    for _ in range(30):
        first = policy.ask()
        state = policy.rng_.get_state()[1].copy()
        np.testing.assert_array_equal(policy.ask(), first)
        np.testing.assert_array_equal(policy.rng_.get_state()[1], state)
        first[:] = 99  # the answer belongs to the caller
        policy.tell(policy.ask(), [0.1, 0.2, 0.3])
    assert policy.t_ == 30


def test_logged_rounds_may_be_told():
    policy = make_fast().reset()
    oracle = Oracle(PHI)
    for action in np.random.RandomState(0).uniform(-1, 1, (40, 2)):
        policy.tell(action, oracle(action))
    assert policy.t_ == policy.n_rounds_ == 40
    assert policy.certificates_[0][0] == 16


def test_search_stops_at_a_verdict_and_goes_on_when_asked_to():
    oracle = Oracle(PHI)
    policy = make_fast().search(oracle)
    stopped, lower = policy.t_, policy.margin_lower_
    assert policy.status_ == "feasible"
    assert policy.search(oracle).t_ == oracle.n_calls == stopped
    policy.search(oracle, n_rounds=150)
    assert policy.t_ == oracle.n_calls == stopped + 150
    assert policy.margin_lower_ > lower
    assert policy.status_ == "feasible"
    assert make_fast(max_rounds=10).search(oracle).search(oracle).t_ == 10


def test_search_in_parts_is_one_search():
    whole = make_fast(epsilon=0.1).search(Oracle(PHI), n_rounds=50)
    oracle = Oracle(PHI)
    parts = make_fast(epsilon=0.1, oracle=oracle).search(n_rounds=7).search(n_rounds=43)
    np.testing.assert_array_equal(whole.actions_, parts.actions_)
    assert parts.reset().t_ == 0


def test_pickle_in_mid_run():
    policy, oracle = make_fast().reset(), Oracle(PHI)
    for _ in range(25):
        action = policy.ask()
        policy.tell(action, oracle(action))
    policy.ask()
    others = [pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)]
    for _ in range(25):
        action = policy.ask()
        outcome = oracle(action)
        policy.tell(action, outcome)
        for other in others:
            np.testing.assert_array_equal(other.ask(), action)
            other.tell(action, outcome)
    assert policy.certificates_ == others[0].certificates_ == others[1].certificates_


def test_seeds():
    runs = [make_fast(random_state=s).search(Oracle(PHI), n_rounds=20).actions_ for s in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_without_history_the_state_does_not_grow():
    sizes = {}
    for n_rounds in (50, 500):
        X, Y = make_pool(noise_std=3.0)
        policy = FAST(noise_std=3.0, max_rounds=n_rounds, check_growth=10, store_history=False)
        policy.fit(X, Y)
        assert not hasattr(policy, "actions_")
        assert not hasattr(policy, "outcomes_")
        sizes[n_rounds] = len(pickle.dumps(policy))
    assert sizes[500] <= sizes[50] + 100


# --------------------------------------------------------------------------------------
# scikit-learn around it


def test_pipeline():
    X, Y = make_pool()
    pipeline = make_pipeline(Normalizer(), FAST(noise_std=0.5, norm_bound=2.0, random_state=0))
    assert pipeline.fit(X, Y).predict(X).shape == (60,)
    scaled = make_pipeline(MinMaxScaler((-1, 1)), FAST(noise_std=0.1, random_state=0)).fit(X, Y)
    assert scaled[-1].status_ == "feasible"


def test_grid_search_over_replays():
    X, Y = make_pool()
    grid = GridSearchCV(FAST(noise_std=0.1, random_state=0), {"scale": [0.3, 1.0]}, cv=3)
    grid.fit(X, Y)
    assert grid.best_params_["scale"] in (0.3, 1.0)
    assert grid.best_score_ > 0.8


def test_score_is_the_share_of_rightly_estimated_signs():
    X, Y = make_pool(noise_std=0.0)
    policy = FAST(noise_std=0.1, epsilon=0.01, max_rounds=800, random_state=0).fit(X, Y)
    assert policy.score(X, Y) >= 0.95
    assert policy.score(X, -np.abs(Y)) == np.mean(margins(policy.Phi_, X) < 0)
    repeated = np.repeat(Y[:, None], 3, axis=1)
    assert policy.score(X, repeated) == policy.score(X, Y)
    with pytest.raises(ValueError, match="3 outcomes, got 2"):
        policy.score(X, Y[:, :2])
    with pytest.raises(ValueError, match="1, 2 or 3 dimensions"):
        policy.score(X, Y[:, None, None])


def test_wines_as_a_pool_of_recorded_actions():
    """Real records: which chemistry keeps colour and hue above their lower quartile?"""
    wine = load_wine()
    names = list(wine.feature_names)
    outcomes = [names.index("color_intensity"), names.index("hue")]
    Y = scale(wine.data[:, outcomes])
    X = scale(np.delete(wine.data, outcomes, axis=1))
    X /= np.linalg.norm(X, axis=1).max()
    limits = np.quantile(Y, 0.25, axis=0)
    least_squares = Ridge(alpha=1.0, fit_intercept=False).fit(np.c_[X, np.ones(len(X))], Y)
    residual = (Y - least_squares.predict(np.c_[X, np.ones(len(X))])).std(axis=0).max()
    policy = FAST(
        thresholds=limits, fit_intercept=True, noise_std=residual, norm_bound=4.0, random_state=0
    ).fit(X, Y)
    assert policy.status_ == "feasible"
    assert len(np.unique(policy.actions_, axis=0)) < len(X)
    truth = (least_squares.predict(np.c_[X, np.ones(len(X))]) - limits).min(axis=1)
    assert truth[policy.best_index_] > 0
    certified = policy.predict(X) == 1
    assert certified.any()
    assert (truth[certified] > 0).mean() >= 0.95


def test_fast_in_float32_is_fast_in_float64():
    X, Y = make_pool()
    X, Y = X.astype(np.float32), Y.astype(np.float32)
    left = FAST(noise_std=0.1, random_state=0).fit(X, Y)
    right = FAST(noise_std=0.1, random_state=0).fit(X.astype(float), Y.astype(float))
    np.testing.assert_array_equal(left.actions_, right.actions_)


# --------------------------------------------------------------------------------------
# Speed


def test_a_round_over_a_table_needs_no_linear_program():
    """500 actions, well below the millisecond of a program; the figure is in benchmarks."""
    X, Y = make_pool(500, noise_std=3.0)
    policy = FAST(noise_std=3.0, max_rounds=1000, random_state=0)
    seconds = {"table": np.inf, "box": np.inf}
    for _ in range(3):
        start = time.process_time()
        policy.fit(X, Y)
        seconds["table"] = min(seconds["table"], (time.process_time() - start) / policy.t_)
        live = make_fast(noise_std=3.0, check_growth=10).reset()
        start = time.process_time()
        live.search(Oracle(PHI, 3.0), n_rounds=100)
        seconds["box"] = min(seconds["box"], (time.process_time() - start) / 100)
    assert policy.t_ == 1000
    assert seconds["table"] <= 0.2 * seconds["box"]


# --------------------------------------------------------------------------------------
# Bad input


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": 1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"noise_std": -0.1}, "noise_std"),
        ({"norm_bound": 0.0}, "norm_bound"),
        ({"reg": 0.0}, "reg"),
        ({"scale": 0.0}, "scale"),
        ({"check_growth": 0.9}, "check_growth"),
        ({"max_rounds": 0}, "max_rounds"),
        ({"upper": "greedy"}, "upper"),
        ({"action_set": "sphere"}, "action_set"),
        ({"action_set": ([[1.0, 0.0]], [1.0])}, "not bounded"),
        ({"bounds": (-1, np.inf)}, "not bounded"),
        ({"thresholds": [[0.1]]}, "thresholds"),
        ({"thresholds": np.nan}, "thresholds"),
        ({"action_set": "finite"}, "table of actions"),
        ({"action_set": "ball"}, "n_features"),
        ({"action_set": "simplex", "bounds": (-1, 1)}, "n_features"),
        ({"bounds": (-1, 1)}, "n_features"),
        ({"n_features": 3}, "n_features=3"),
    ],
)
def test_bad_parameters(parameters, message):
    policy = make_fast(**parameters)
    with pytest.raises(ValueError, match=message):
        policy.search(Oracle(PHI))
    assert not hasattr(policy, "t_")


@pytest.mark.parametrize("cls", [FAST, SafeLinearThompsonSampling])
def test_default_box_says_that_it_does_not_tell_the_length_of_an_action(cls):
    message = (
        r"action_set='box' with bounds=\(-1.0, 1.0\) does not tell the length of an action: "
        rf"give n_features, as in {cls.__name__}\(n_features=2\)"
    )
    for call in (lambda policy: policy.search(Oracle(PHI)), lambda policy: policy.reset()):
        with pytest.raises(ValueError, match=message):
            call(cls())


def test_search_without_an_oracle_or_with_less_than_no_rounds():
    with pytest.raises(ValueError, match="oracle"):
        make_fast().search()
    with pytest.raises(ValueError, match="n_rounds must be at least 0"):
        make_fast().search(Oracle(PHI), n_rounds=-1)


@pytest.mark.parametrize(
    ("action", "outcome", "message"),
    [
        ([1.0 + 1e-6, 0.0], [0, 0, 0], "action set"),
        ([0.0, np.nan], [0, 0, 0], "NaN"),
        ([0.0, 0.0, 0.0], [0, 0, 0], r"shape \(2,\)"),
        ([0.0, 0.0], [0, np.nan, 0], "finite"),
        ([0.0, 0.0], [0, np.inf, 0], "finite"),
        ([0.0, 0.0], [0, 0], r"shape \(3,\)"),
        ([0.0, 0.0], [[0, 0, 0]], "1-D"),
    ],
)
@pytest.mark.parametrize("thresholds", [None, [0.0, 0.1, 0.2]])
def test_bad_rounds_leave_the_state_alone(action, outcome, message, thresholds):
    policy = make_fast(thresholds=thresholds).reset()
    if thresholds is None:
        policy.tell([0.5, 0.5], [0.1, 0.2, 0.3])
    before = pickle.dumps(policy)
    with pytest.raises(ValueError, match=message):
        policy.tell(action, outcome)
    assert pickle.dumps(policy) == before


def test_actions_are_accepted_up_to_rounding():
    make_fast().reset().tell([1.0 + 1e-9, -1.0], [0, 0, 0])


def test_the_action_that_was_asked_for_is_accepted():
    """Where actions are large, a solver's rounding exceeds what a caller's action is allowed."""
    policy = make_fast().reset()
    policy._asked = np.array([1.0 + 1e-6, -1.0])
    policy.tell(policy.ask(), [0, 0, 0])
    assert policy.t_ == 1
    with pytest.raises(ValueError, match="action set"):  # by now it is nobody's answer
        policy.tell([1.0 + 1e-6, -1.0], [0, 0, 0])


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((4, 2)), None, "requires y"),
        (np.ones((4, 2)), np.ones((3, 2)), "inconsistent"),
        (np.ones((4, 2)), np.ones((4, 2, 2, 2)), "1, 2 or 3 dimensions"),
        (np.ones((4, 2)), np.full((4, 2), np.nan), "NaN"),
        (np.full((4, 2), np.inf), np.ones((4, 2)), "infinity"),
        (np.ones(4), np.ones(4), "2D array"),
    ],
)
def test_bad_pools(X, Y, message):
    policy = FAST()
    with pytest.raises(ValueError, match=message):
        policy.fit(X, Y)
    assert not hasattr(policy, "t_")


def test_number_of_features_of_another_length_than_the_actions():
    X, Y = make_pool()
    for call in (lambda policy: policy.fit(X, Y), lambda policy: policy.reset(2)):
        with pytest.raises(ValueError, match="2 coordinates, but n_features=3"):
            call(FAST(n_features=3))


def test_thresholds_of_another_length_than_the_outcomes():
    X, Y = make_pool()
    with pytest.raises(ValueError, match=r"shape \(2,\), got \(3,\)"):
        FAST(thresholds=[0.1, 0.2]).fit(X, Y)


def test_not_fitted():
    for call in (
        lambda: FAST().ask(),
        lambda: FAST().tell([0.0], 1.0),
        lambda: FAST().decision_function([[0.0]]),
        lambda: FAST().score([[0.0]], [1.0]),
    ):
        with pytest.raises(NotFittedError):
            call()
    with pytest.raises(NotImplementedError, match="one action at a time"):
        make_fast().reset().ask(3)


def test_transformer_in_front_keeps_the_columns():
    X, Y = make_pool()
    pipeline = make_pipeline(FunctionTransformer(), FAST(noise_std=0.1, random_state=0)).fit(X, Y)
    alone = FAST(noise_std=0.1, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(pipeline.predict(X), alone.predict(X))
