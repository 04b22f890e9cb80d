"""Generative models: denoising diffusion."""

__all__ = []
