"""Scorers of bandit policies, for model selection."""

from sklearn.base import clone
from sklearn.pipeline import Pipeline

__all__ = ["mean_reward_scorer", "neg_regret_scorer"]


def neg_regret_scorer(estimator, X, y=None):
    """Minus the mean regret a round of a fresh copy of the policy that plays X.

    The thing to tune parameters of exploration with: what the policy has learned before does
    not count, only how it learns. Rows that are skipped as not logged are no rounds.

    Parameters
    ----------
    estimator : policy or Pipeline that ends in a policy
        Fitted transformers of a Pipeline are applied to X; the policy itself starts anew.
    X : array-like of shape (n_rounds, n_arms)
        Reward table.
    y : None
        Ignored.

    Returns
    -------
    score : float
        At most 0, in the units of the rewards; higher is better.

    Examples
    --------
    >>> from skicml.bandits import UCB1
    >>> from skicml.bandits.metrics import neg_regret_scorer
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.1], n_rounds=500, random_state=0)
    >>> neg_regret_scorer(UCB1(c=0.2, random_state=0), X) > neg_regret_scorer(
    ...     UCB1(c=20.0, random_state=0), X)
    True
    """
    policy = _fresh_run(estimator, X)
    return -float(policy.regret_[-1] / policy.t_)


def mean_reward_scorer(estimator, X, y=None):
    """Mean reward a round of a fresh copy of the policy that plays X.

    Parameters
    ----------
    estimator : policy or Pipeline that ends in a policy
        Fitted transformers of a Pipeline are applied to X; the policy itself starts anew.
    X : array-like of shape (n_rounds, n_arms)
        Reward table.
    y : None
        Ignored.

    Returns
    -------
    score : float
        In the units of the rewards; higher is better.

    Examples
    --------
    >>> from skicml.bandits import UCB1
    >>> from skicml.bandits.metrics import mean_reward_scorer
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> X = make_bernoulli_bandit([0.9, 0.1], n_rounds=500, random_state=0)
    >>> mean_reward_scorer(UCB1(c=0.2, random_state=0), X) > 0.8
    True
    """
    return float(_fresh_run(estimator, X).rewards_.mean())


def _fresh_run(estimator, X):
    if isinstance(estimator, Pipeline):
        if len(estimator) > 1:
            X = estimator[:-1].transform(X)
        estimator = estimator[-1]
    return clone(estimator).set_params(store_history=True).fit(X)
