"""Reward tables of bandits."""

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import validate_params

from skicml.datasets._constraints import POSITIVE, SIZE


@validate_params(
    {
        "means": ["array-like"],
        "n_rounds": [SIZE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_bernoulli_bandit(means, n_rounds=1000, *, random_state=None):
    """Rewards 0 and 1, independent in every cell.

    Parameters
    ----------
    means : array-like of shape (n_arms,)
        Probability of the reward 1 for each arm, in [0, 1].
    n_rounds : int, default=1000
        Number of rounds.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    X : ndarray of shape (n_rounds, n_arms)
        Row t holds what each arm would pay in round t.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, `means` is not 1-D, or there
        are fewer than two arms.

    Examples
    --------
    >>> from skicml.datasets import make_bernoulli_bandit
    >>> make_bernoulli_bandit([0.9, 0.1], n_rounds=3, random_state=0)
    array([[1., 0.],
           [1., 0.],
           [1., 0.]])
    """
    means = _check_means(means)
    if ((means < 0) | (means > 1)).any():
        raise ValueError(f"means must be in [0, 1], got {means}.")
    rng = check_random_state(random_state)
    return (rng.uniform(size=(n_rounds, means.size)) < means).astype(np.float64)


@validate_params(
    {
        "means": ["array-like"],
        "n_rounds": [SIZE],
        "concentration": [POSITIVE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_beta_bandit(means, n_rounds=1000, *, concentration=4.0, random_state=None):
    """Rewards in (0, 1) with beta distributions, independent in every cell.

    Parameters
    ----------
    means : array-like of shape (n_arms,)
        Mean reward of each arm, in (0, 1).
    n_rounds : int, default=1000
        Number of rounds.
    concentration : float, default=4.0
        Sum of the two parameters of the distributions: the variance of an arm of mean m is
        ``m (1 - m) / (concentration + 1)``.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    X : ndarray of shape (n_rounds, n_arms)
        Row t holds what each arm would pay in round t.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, `means` is not 1-D, or there
        are fewer than two arms.

    Examples
    --------
    >>> from skicml.datasets import make_beta_bandit
    >>> make_beta_bandit([0.9, 0.1], n_rounds=1000, random_state=0).mean(axis=0).round(1)
    array([0.9, 0.1])
    """
    means = _check_means(means)
    if ((means <= 0) | (means >= 1)).any():
        raise ValueError(f"means must be in (0, 1), got {means}.")
    rng = check_random_state(random_state)
    return rng.beta(means * concentration, (1 - means) * concentration, (n_rounds, means.size))


def _check_means(means):
    means = check_array(means, ensure_2d=False, dtype=np.float64, input_name="means")
    if means.ndim != 1 or means.size < 2:
        raise ValueError(f"means must be 1-D with at least 2 arms, got shape {means.shape}.")
    return means
