"""The base class of linear policies, by the plainest policy that uses it."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from skicml.bandits import BaseLinearPolicy


class RandomSearch(BaseLinearPolicy):
    """Plays random actions and remembers the best first outcome."""

    def __init__(self, max_rounds=50, enough=np.inf, oracle=None, random_state=None):
        self.max_rounds = max_rounds
        self.enough = enough
        self.oracle = oracle
        self.random_state = random_state

    def _reset(self, n_features):
        self.best_outcome_, self.best_action_ = -np.inf, None

    def _max_rounds(self):
        return self.max_rounds

    def _select(self):
        if self._candidates is None:
            return self.rng_.uniform(-1, 1, self.n_features_in_)
        return self.rng_.randint(len(self._candidates))

    def _update(self, action, outcome):
        if outcome[0] > self.best_outcome_:
            self.best_outcome_, self.best_action_ = outcome[0], action

    def _is_finished(self):
        return self.best_outcome_ >= self.enough

    def predict(self, X):
        return np.asarray(X) @ self.best_action_


@pytest.fixture
def pool():
    rng = np.random.RandomState(0)
    X = rng.uniform(-1, 1, (30, 3))
    return X, X @ rng.uniform(-1, 1, (3, 2))


def test_replay_is_the_ask_tell_loop(pool):
    X, Y = pool
    replayed = RandomSearch(random_state=0).fit(X, Y)
    assert replayed.t_ == 50
    rows = [np.flatnonzero((action == X).all(axis=1))[0] for action in replayed.actions_]
    np.testing.assert_array_equal(replayed.outcomes_, Y[rows])
    assert len(set(rows)) > 10
    live = clone(replayed).fit(X, Y)
    live._begin(3, X)
    for action in replayed.actions_:
        asked = live.ask()
        np.testing.assert_array_equal(asked, live.ask())
        np.testing.assert_array_equal(asked, action)
        live.tell(asked, Y[(asked == X).all(axis=1)][0])
    assert live.best_outcome_ == replayed.best_outcome_


def test_only_outcomes_of_played_actions_are_seen(pool):
    X, Y = pool
    policy = RandomSearch(max_rounds=10, random_state=0).fit(X, Y)
    unseen = ~(X[:, None] == policy.actions_).all(axis=2).any(axis=1)
    assert unseen.any()
    other = np.where(unseen[:, None], 100.0, Y)
    again = clone(policy).fit(X, other)
    np.testing.assert_array_equal(again.actions_, policy.actions_)
    assert again.best_outcome_ == policy.best_outcome_


def test_repeats_are_used_in_turn():
    X, Y = np.eye(2), np.arange(6.0).reshape(2, 3, 1)
    policy = RandomSearch(random_state=0).fit(X, Y)
    for row in (0, 1):
        seen = policy.outcomes_[policy.actions_[:, row] == 1, 0]
        np.testing.assert_array_equal(seen, Y[row, np.arange(len(seen)) % 3, 0])


def test_a_search_stops_when_it_is_finished_and_goes_on_when_told(pool):
    calls = []

    def oracle(action):
        calls.append(action)
        return [action.sum(), 1.0]

    policy = RandomSearch(enough=0.5, oracle=oracle, random_state=0)
    with pytest.raises(ValueError, match=r"RandomSearch does not know .* reset\(n_features=...\)"):
        policy.search()
    policy.reset(n_features=3).search()
    n_rounds = policy.t_
    assert n_rounds == len(calls) < 50
    assert policy.best_outcome_ >= 0.5
    policy.set_params(enough=np.inf).search(n_rounds=7)
    assert policy.t_ == n_rounds + 7
    np.testing.assert_array_equal(policy.actions_, calls)
    assert policy.outcomes_.shape == (n_rounds + 7, 2)
    with pytest.raises(ValueError, match="oracle"):
        policy.set_params(oracle=None).search()


def test_pickle_in_mid_run():
    policy = RandomSearch(random_state=0).reset(n_features=2)
    policy.tell(policy.ask(), 1.0)
    twin = pickle.loads(pickle.dumps(policy))
    for _ in range(5):
        np.testing.assert_array_equal(policy.ask(), twin.ask())
        policy.tell(policy.ask(), 0.5)
        twin.tell(twin.ask(), 0.5)


def test_bad_input(pool):
    X, Y = pool
    empty = (np.empty((len(X), 0, 2)), np.empty((len(X), 2, 0)))
    for bad in (Y[:5], np.where(Y[0] == Y, np.nan, Y), Y[:, None, None, :], *empty):
        policy = RandomSearch()
        with pytest.raises(ValueError):
            policy.fit(X, bad)
        assert not hasattr(policy, "t_")
    with pytest.raises(ValueError, match="requires y"):
        RandomSearch().fit(X, None)
    with pytest.raises(NotFittedError):
        RandomSearch().ask()
    policy = RandomSearch(random_state=0).reset(n_features=2).tell([0.0, 1.0], [1.0, 2.0])
    for action, outcome, match in (
        ([0.0], [1.0, 2.0], r"action must have shape \(2,\)"),
        ([0.0, 1.0], [1.0], r"outcome must have shape \(2,\)"),
        ([0.0, np.nan], [1.0, 2.0], "NaN"),
        ([0.0, 1.0], [1.0, np.inf], "finite"),
    ):
        with pytest.raises(ValueError, match=match):
            policy.tell(action, outcome)
    assert policy.t_ == 1
    with pytest.raises(ValueError, match="not empty"):
        RandomSearch(random_state=0).reset(n_features=2).tell([0.0, 1.0], [])
    with pytest.raises(TypeError, match="abstract"):
        BaseLinearPolicy()


def test_values_whose_squares_overflow_are_refused():
    X, y = np.eye(3), np.ones(3)
    with pytest.raises(ValueError, match=r"X holds a value of magnitude 1\.0e\+200"):
        RandomSearch().fit(1e200 * X, y)
    with pytest.raises(ValueError, match=r"y holds a value of magnitude 1\.0e\+200"):
        RandomSearch().fit(X, 1e200 * y)
    policy = RandomSearch(random_state=0).reset(n_features=3)
    with pytest.raises(ValueError, match="action holds a value"):
        policy.tell([1e200, 0, 0], 1.0)
    with pytest.raises(ValueError, match="outcome holds a value"):
        policy.tell(policy.ask(), 1e200)
    assert policy.t_ == 0
