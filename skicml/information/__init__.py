"""Information that several modalities carry about a label, sample by sample."""

from skicml.information._interaction_ensemble import InteractionEnsembleClassifier
from skicml.information._knife import KnifeDensity
from skicml.information._lsmi import LSMI

__all__ = ["LSMI", "InteractionEnsembleClassifier", "KnifeDensity"]
