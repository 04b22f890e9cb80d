"""Generators of the papers' data, and loaders of small real data sets."""

from skicml.datasets._bandit_lp import make_bandit_lp
from skicml.datasets._bandits import make_bernoulli_bandit, make_beta_bandit
from skicml.datasets._federated import make_federated_mixture
from skicml.datasets._low_rank import (
    make_background_video,
    make_corrupted_low_rank,
    make_low_rank_sensing,
)
from skicml.datasets._multi_view import (
    load_dermatology,
    load_leaves100,
    load_multiple_features,
    load_multiview_digits,
    make_multiview_blobs,
    make_synthetic3d,
    mask_views,
)
from skicml.datasets._oscillators import make_duffing
from skicml.datasets._series import inject_anomalies, make_lorenz96, make_var_process
from skicml.datasets._sines import make_gappy_sines

__all__ = [
    "inject_anomalies",
    "load_dermatology",
    "load_leaves100",
    "load_multiple_features",
    "load_multiview_digits",
    "make_background_video",
    "make_bandit_lp",
    "make_bernoulli_bandit",
    "make_beta_bandit",
    "make_corrupted_low_rank",
    "make_duffing",
    "make_federated_mixture",
    "make_gappy_sines",
    "make_lorenz96",
    "make_low_rank_sensing",
    "make_multiview_blobs",
    "make_synthetic3d",
    "make_var_process",
    "mask_views",
]
