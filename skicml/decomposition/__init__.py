"""Low-rank matrices: robust decomposition, completion and sensing."""

from skicml.decomposition._opsa import OPSA
from skicml.decomposition._opsa_regressor import OPSARegressor

__all__ = ["OPSA", "OPSARegressor"]
