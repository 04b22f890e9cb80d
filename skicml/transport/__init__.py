"""Optimal transport between two samples."""

from skicml.transport._hiref import HiRef
from skicml.transport._hiref_low_rank import low_rank_transport

__all__ = ["HiRef", "low_rank_transport"]
