"""Utilities: discovery of estimators, multi-view input, progress of long fits."""

from skicml._views import stack_views
from skicml.utils._discovery import all_estimators

__all__ = ["all_estimators", "stack_views"]
