"""How the common checks run each public estimator: the one table.

Every public estimator has an entry; a missing one fails the suite.
"""

from dataclasses import dataclass, field
from math import inf

from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KernelDensity

from skicml.information import LSMI, KnifeDensity


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
_SINGLE_NAN = {
    "check_estimators_pickle": "NaN in single cells: only a whole block may be missing",
}

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
    "UCB1": [Setting(_ANY_REWARD)],
}
