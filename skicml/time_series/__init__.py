"""Time series: anomaly detection, forecasts in continuous time, spectra and imputation."""

from skicml.time_series._carots import CAROTS
from skicml.time_series._cuts_plus import CUTSPlus
from skicml.time_series._konode import KoNODE
from skicml.time_series._lomb_scargle import LombScargle
from skicml.time_series._lomb_scargle_power import lomb_scargle_power
from skicml.time_series._lscd import LSCDImputer

__all__ = ["CAROTS", "CUTSPlus", "KoNODE", "LSCDImputer", "LombScargle", "lomb_scargle_power"]
