"""Regret of several policies on the same tables."""

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.utils import check_array, check_random_state


def compare_policies(policies, X, *, n_runs=10, means=None, n_jobs=None, random_state=None):
    """Regret curves of several policies on common random tables.

    In each run all policies play the same table, so that their difference is not one of luck
    with the rewards.

    Parameters
    ----------
    policies : dict of str to policy, or list of (str, policy)
        The policies; they are cloned and left alone.
    X : array-like of shape (n_rounds, n_arms) or callable
        A table, whose rows each run puts in a random order; or a function
        ``X(random_state)`` that makes a fresh table for each run from an int seed.
    n_runs : int, default=10
        Number of runs.
    means : array-like of shape (n_arms,) or None, default=None
        True mean rewards. None: the column means of the table of the run.
    n_jobs : int or None, default=None
        Runs at the same time, as in joblib.
    random_state : int, RandomState instance or None, default=None
        Source of the tables and of the seeds of the policies.

    Returns
    -------
    regrets : dict of str to ndarray of shape (n_runs, n_rounds)
        Cumulative pseudo-regret of each policy. Rounds that were not played, because rows were
        skipped as not logged, are NaN at the end of the row.

    Raises
    ------
    ValueError
        If there is no policy or no run, or two policies have one name.

    Notes
    -----
    Time is that of ``n_runs`` fits of every policy, memory O(n_policies n_runs n_rounds).

    Examples
    --------
    >>> from skicml.bandits import UCB1, GaussianThompsonSampling, compare_policies
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> policies = {"UCB1": UCB1(), "TS": GaussianThompsonSampling()}
    >>> X = make_bernoulli_bandit([0.8, 0.2], n_rounds=400, random_state=0)
    >>> regrets = compare_policies(policies, X, n_runs=3, random_state=0)
    >>> regrets["TS"].shape
    (3, 400)

    A fresh table for each run:

    >>> def table(random_state):
    ...     return make_bernoulli_bandit([0.8, 0.2], n_rounds=400, random_state=random_state)
    >>> regrets = compare_policies(policies, table, n_runs=3, means=[0.8, 0.2], random_state=0)
    >>> sorted(regrets)
    ['TS', 'UCB1']
    """
    n_policies, policies = len(policies), dict(policies)
    if not policies:
        raise ValueError("policies must name at least one policy, got none.")
    if len(policies) < n_policies:
        raise ValueError("policies must have different names.")
    if n_runs < 1:
        raise ValueError(f"n_runs must be at least 1, got {n_runs}.")
    if not callable(X):
        X = check_array(X, ensure_all_finite="allow-nan", dtype=[np.float64, np.float32])
    seeds = check_random_state(random_state).randint(2**31 - 1, size=(n_runs, 2)).tolist()
    runs = Parallel(n_jobs=n_jobs)(
        delayed(_run)(policies, X, means, table_seed, policy_seed)
        for table_seed, policy_seed in seeds
    )
    return {name: np.array([run[name] for run in runs]) for name in policies}


def _run(policies, X, means, table_seed, policy_seed):
    """Regret curve of each policy on one table."""
    table = X(table_seed) if callable(X) else np.random.RandomState(table_seed).permutation(X)
    return {
        name: _regret(clone(policy).set_params(random_state=policy_seed), table, means)
        for name, policy in policies.items()
    }


def _regret(policy, table, means):
    policy.set_params(store_history=True).fit(table)
    curve = np.full(len(table), np.nan)
    curve[: policy.t_] = policy.regret(means=means)
    return curve
