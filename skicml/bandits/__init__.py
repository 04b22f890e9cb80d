"""Bandit policies: sequential decisions with one API for replay and live use."""

from skicml.bandits._base import BaseBanditPolicy
from skicml.bandits._compare import compare_policies
from skicml.bandits._dp_ts_ucb import DPTSUCB
from skicml.bandits._fast import FAST
from skicml.bandits._lazy_ucb import LazyUCB
from skicml.bandits._linear import BaseLinearPolicy
from skicml.bandits._safe_linear import SafeLinearThompsonSampling
from skicml.bandits._successive_elimination import PrivateSuccessiveElimination
from skicml.bandits._thompson import GaussianThompsonSampling
from skicml.bandits._ucb import UCB1
from skicml.bandits.metrics import mean_reward_scorer, neg_regret_scorer

__all__ = [
    "DPTSUCB",
    "FAST",
    "UCB1",
    "BaseBanditPolicy",
    "BaseLinearPolicy",
    "GaussianThompsonSampling",
    "LazyUCB",
    "PrivateSuccessiveElimination",
    "SafeLinearThompsonSampling",
    "compare_policies",
    "mean_reward_scorer",
    "neg_regret_scorer",
]
