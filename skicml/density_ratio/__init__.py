"""Ratios of two densities from samples."""

__all__ = []
