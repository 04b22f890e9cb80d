"""Ratios of two densities from samples."""

from skicml.density_ratio._ctsm import CTSM
from skicml.density_ratio._ctsm_baseline import TSM
from skicml.density_ratio._ctsm_functions import importance_weights, mutual_information

__all__ = ["CTSM", "TSM", "importance_weights", "mutual_information"]
