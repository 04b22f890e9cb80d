"""How the common checks run each public estimator: the one table.

Every public estimator has an entry; a missing one fails the suite.
"""

from dataclasses import dataclass, field
from math import inf

from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KernelDensity

from skicml.information import LSMI, KnifeDensity
from skicml.time_series import CUTSPlus


@dataclass
class Setting:
    """One instance of an estimator for the common checks.

    Attributes
    ----------
    params : dict
        Constructor parameters; small, so that it is fast.
    excused : dict of str to str
        Name of a scikit-learn estimator check that fails -> why it cannot hold.
        An excuse that is no longer needed fails the suite (xfail is strict).
    """

    params: dict
    excused: dict = field(default_factory=dict)


# The checks fill a reward table with blobs: any reward is in this range.
_ANY_REWARD = {"reward_range": (-1000, 1000), "random_state": 0}
_SMALL_KONODE = {
    "horizon": 2,
    "koopman_dim": 2,
    "hidden_dims": (4,),
    "decoder_dim": 4,
    "max_epochs": 2,
    "random_state": 0,
}
_TINY_LSCD = {
    "n_layers": 1,
    "n_channels": 8,
    "n_heads": 2,
    "time_embedding_dim": 4,
    "spectral_layers": 1,
    "spectral_channels": 8,
    "n_diffusion_steps": 3,
    "max_iter": 2,
    "n_samples": 2,
    "random_state": 0,
}
_SINGLE_NAN = {
    "check_estimators_pickle": "NaN in single cells: only a whole block may be missing",
}
_SMALL_CAROTS = {
    "hidden_dim": 4,
    "projection_dim": 4,
    "batch_size": 16,
    "max_epochs": 2,
    "random_state": 0,
}
_ROWS_NEED_THEIR_PAST = dict.fromkeys(
    ("check_methods_sample_order_invariance", "check_methods_subset_invariance"),
    "the score of a time step depends on the window that ends there",
)
# Rows of a time series are not exchangeable.
_ROWS_IN_ORDER = {
    "check_methods_sample_order_invariance": "a row is forecast from the rows before it",
    "check_methods_subset_invariance": "a row is forecast from the rows before it",
}
_SMALL_SCORE = {"hidden_layer_sizes": (32, 32), "max_iter": 100, "random_state": 0}

SETTINGS = {
    "BACDL": [
        Setting({"n_clusters": 3, "max_iter": 20, "random_state": 0}, _SINGLE_NAN),
        Setting(
            {"n_clusters": 3, "normalize": "softmax", "max_iter": 20, "random_state": 0},
            _SINGLE_NAN,
        ),
        Setting(
            {"n_clusters": 3, "init": "random", "max_iter": 20, "random_state": 0},
            {
                **_SINGLE_NAN,
                "check_clustering": "an uninformed start ends in poor optima, as in the paper",
            },
        ),
    ],
    "CAROTS": [
        Setting({"window": 3, **_SMALL_CAROTS}, _ROWS_NEED_THEIR_PAST),
        Setting(
            {
                "window": 2,
                "causal_discoverer": "var",
                "score_type": "contrastive",
                "distance": "cos",
                "similarity_threshold": 0.5,
                **_SMALL_CAROTS,
            },
            _ROWS_NEED_THEIR_PAST,
        ),
        Setting(
            {
                "window": 4,
                "causal_discoverer": CUTSPlus(n_lags=2, hidden_dim=4, max_epochs=2),
                "score_type": "causal",
                "contamination": 0.1,
                **_SMALL_CAROTS,
            },
            _ROWS_NEED_THEIR_PAST,
        ),
    ],
    "CUTSPlus": [
        Setting(
            {"n_lags": 1, "max_epochs": 3, "batch_size": 32, "random_state": 0}, _ROWS_IN_ORDER
        ),
        Setting(
            {
                "n_lags": 2,
                "hidden_dim": 4,
                "max_epochs": 2,
                "learning_rate": 1e-3,
                "graph_learning_rate": (1e-2, 1e-3),
                "sparsity": 0.0,
                "random_state": 0,
            },
            _ROWS_IN_ORDER,
        ),
    ],
    "CTSM": [
        Setting({**_SMALL_SCORE, "path": "bridge", "ema_decay": 0.9}),
        Setting({**_SMALL_SCORE, "path": "vp", "weight_constant": "auto"}),
        Setting(
            {
                **_SMALL_SCORE,
                "vectorized": False,
                "weighting": "stein",
                "early_stopping": True,
                "validation_fraction": 0.3,
                "lr_schedule": "constant",
            }
        ),
    ],
    "DPTSUCB": [
        Setting({"horizon": 1000, **_ANY_REWARD}),
        Setting({"horizon": 1000, "target_mu": 2.0, "store_history": False, **_ANY_REWARD}),
    ],
    "DSVC": [
        Setting(
            {"n_clusters": 3, "pretrain_epochs": 2, "max_epochs": 2, "random_state": 0},
            {
                "check_estimators_partial_fit_n_features": "partial_fit takes a view of any width",
                "check_n_features_in_after_fitting": "partial_fit takes a view of any width",
            },
        ),
    ],
    "DiffusionModel": [
        Setting(
            {
                "max_iter": 5,
                "n_sampling_steps": 5,
                "hidden_dim": 8,
                "n_layers": 2,
                "n_likelihood_steps": 5,
                "random_state": 0,
            }
        ),
        Setting(
            {
                "schedule": "linear",
                "prediction": "eps",
                "loss_weighting": "min_snr",
                "scale": "minmax",
                "ema_decay": 0,
                "clip": None,
                "max_iter": 3,
                "n_sampling_steps": 3,
                "hidden_dim": 8,
                "n_layers": 1,
                "n_likelihood_steps": 2,
                "random_state": 0,
            }
        ),
    ],
    "FAST": [
        Setting({"max_rounds": 300, "random_state": 0}),
        Setting(
            {
                "max_rounds": 100,
                "coupled": False,
                "fit_intercept": True,
                "thresholds": 1.0,
                "store_history": False,
                "random_state": 0,
            }
        ),
    ],
    "FedDPKMeans": [
        Setting({"n_clusters": 3, "epsilon": inf, "random_state": 0}),
        Setting(
            {"n_clusters": 3, "random_state": 0},
            {"check_clustering": "50 rows in the noise of epsilon = 1: no clusters can be found"},
        ),
    ],
    "GaussianThompsonSampling": [
        Setting(_ANY_REWARD),
        Setting({"pre_pulls": 3, "variance": 2.0, **_ANY_REWARD}),
    ],
    "HiRef": [
        Setting({"base_size": 4, "unequal": "subsample", "random_state": 0}),
        Setting(
            {
                "cost": "euclidean",
                "rank_schedule": "paper",
                "max_rank": 3,
                "base_size": 3,
                "base_solver": "lowrank",
                "init": "random",
                "latent": True,
                "n_refine_sweeps": 1,
                "unequal": "subsample",
                "random_state": 0,
            }
        ),
    ],
    "InteractionEnsembleClassifier": [
        Setting(
            {
                "lsmi": LSMI(classifier=LogisticRegression(), density=KernelDensity()),
                "regressor": LinearRegression(),
                "cv": 2,
                "random_state": 0,
            }
        ),
    ],
    "KnifeDensity": [
        Setting({"n_components": 2, "max_epochs": 3, "random_state": 0}),
        Setting(
            {
                "n_components": 1,
                "max_epochs": 2,
                "init": "random",
                "tanh": False,
                "random_state": 0,
            }
        ),
    ],
    "KoNODE": [
        Setting(_SMALL_KONODE),
        Setting(
            {**_SMALL_KONODE, "initial_latent": "learned", "eigenvalues": "free"},
            {
                "check_methods_sample_order_invariance": "the clock counts the rows",
                "check_methods_subset_invariance": "the clock counts the rows",
            },
        ),
        Setting(
            {**_SMALL_KONODE, "context_length": 3, "solver": "euler", "eigenvalues": "stable"},
            _ROWS_IN_ORDER,
        ),
        Setting(
            {**_SMALL_KONODE, "koopman_dim": 0, "solver": "dopri5"},
            {"check_methods_subset_invariance": "the solver adapts its steps to all rows"},
        ),
    ],
    "LSCDImputer": [
        Setting(_TINY_LSCD),
        Setting({**_TINY_LSCD, "conditioning": None, "mask_strategy": "mix", "schedule": "linear"}),
        Setting(
            {
                **_TINY_LSCD,
                "max_iter": 8,
                "consistency_weight": 1.0,
                "consistency_mode": "chain",
                "validation_fraction": 0.2,
            }
        ),
        Setting(
            {**_TINY_LSCD, "window": 4, "stride": 2},
            {"check_methods_subset_invariance": "a time step alone is shorter than a window"},
        ),
    ],
    "LSMI": [
        Setting(
            {
                "classifier": LogisticRegression(),
                "density": KnifeDensity(2, max_epochs=2),
                "random_state": 0,
            }
        ),
        Setting(
            {
                "classifier": LogisticRegression(),
                "density": KernelDensity(),
                "cv": 2,
                "adjust": False,
                "standardize": False,
                "random_state": 0,
            }
        ),
    ],
    "LazyUCB": [Setting(_ANY_REWARD)],
    "LombScargle": [
        Setting({}),
        Setting({"fit_mean": True, "normalization": "log", "fap_weighting": True}),
        Setting({"frequencies": [0.1, 0.25], "center": False, "normalization": "psd"}),
    ],
    "OPSA": [
        Setting({"random_state": 0}),
        Setting({"center": "median", "max_sweeps": 0, "random_state": 0}),
    ],
    "OPSARegressor": [Setting({"max_iter": 300, "random_state": 0})],
    "PrivateSuccessiveElimination": [Setting({"horizon": 1000, **_ANY_REWARD})],
    "SafeLinearThompsonSampling": [
        Setting({"horizon": 200, "random_state": 0}),
        Setting(
            {"horizon": 100, "strategy": "optimistic", "fit_intercept": True, "random_state": 0}
        ),
    ],
    "TSM": [
        Setting({**_SMALL_SCORE, "path": "bridge"}),
        Setting({**_SMALL_SCORE, "path": "vp"}),
    ],
    "UCB1": [Setting(_ANY_REWARD)],
}
