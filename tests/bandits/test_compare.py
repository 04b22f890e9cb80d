"""Several policies on the same tables."""

import numpy as np
import pytest

from skicml.bandits import UCB1, BaseBanditPolicy, GaussianThompsonSampling, compare_policies
from skicml.datasets import make_bernoulli_bandit
from tests.bandits.conftest import MEANS


def test_compare_policies_on_common_tables(table):
    policies = {"a": UCB1(), "same": UCB1(), "b": GaussianThompsonSampling(store_history=False)}
    regrets = compare_policies(policies, table, n_runs=3, random_state=0)
    assert list(regrets) == ["a", "same", "b"]
    assert regrets["b"].shape == (3, len(table))
    np.testing.assert_array_equal(regrets["a"], regrets["same"])
    assert len(np.unique(regrets["a"][:, -1])) == 3  # the runs differ
    again = compare_policies(list(policies.items()), table, n_runs=3, random_state=0, n_jobs=2)
    np.testing.assert_array_equal(again["b"], regrets["b"])
    assert not hasattr(policies["a"], "t_")


class FollowFirstReward(BaseBanditPolicy):
    """Plays for good the arm that the first row speaks for; has no randomness."""

    def _reset(self, n_arms):
        self._choice = 0

    def _select(self):
        return self._choice

    def _update(self, arm, reward):
        if self.t_ == 1 and reward == 0:
            self._choice = 1


def test_compare_policies_puts_the_rows_in_a_random_order():
    table = np.repeat([[1.0, 0.0], [0.0, 1.0]], 10, axis=0)
    policies = {"first": FollowFirstReward()}
    curves = compare_policies(policies, table, n_runs=12, means=[1, 0], random_state=0)["first"]
    assert set(curves[:, -1]) == {0.0, 19.0}


def test_compare_policies_with_tables_made_on_the_fly():
    made = []

    def table(seed):
        made.append(seed)
        return make_bernoulli_bandit(MEANS, 200, random_state=seed)

    regrets = compare_policies({"ucb": UCB1()}, table, n_runs=4, means=MEANS, random_state=1)
    assert len(set(made)) == 4
    gaps = 0.7 - np.array(MEANS)
    assert np.isin(np.diff(regrets["ucb"]).round(9), gaps.round(9)).all()


def test_compare_policies_leaves_skipped_rounds_open(table):
    table[:] = np.where(np.random.RandomState(0).uniform(size=table.shape) < 0.5, np.nan, table)
    curve = compare_policies({"ucb": UCB1()}, table, n_runs=1, random_state=0)["ucb"][0]
    n_played = np.isfinite(curve).sum()
    assert 0.4 < n_played / len(table) < 0.6
    assert np.isnan(curve[n_played:]).all()


def test_compare_policies_wants_something_to_compare(table):
    with pytest.raises(ValueError, match="policies"):
        compare_policies({}, table)
    with pytest.raises(ValueError, match="n_runs"):
        compare_policies({"ucb": UCB1()}, table, n_runs=0)
    with pytest.raises(ValueError, match="different names"):
        compare_policies([("ucb", UCB1()), ("ucb", UCB1(c=1.0))], table)
