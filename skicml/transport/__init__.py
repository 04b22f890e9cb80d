"""Optimal transport between two samples."""

__all__ = []
