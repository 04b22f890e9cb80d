"""Generative models: denoising diffusion."""

from importlib import import_module

from skicml.generative._base import BaseDiffusion, DiffusionSettings
from skicml.generative._diffusion import DiffusionModel
from skicml.generative._schedules import NoiseSchedule

# Needs torch, so it is imported on first use (PEP 562).
_TORCH = {
    "ClassifierGuidance": "_guidance_torch",
    "FixedEntries": "_samplers_torch",
    "MLPDenoiser": "_networks_torch",
    "TransformerDenoiser": "_networks_torch",
    "UNet1dDenoiser": "_unets_torch",
    "UNet2dDenoiser": "_unets_torch",
    "sample_loop": "_samplers_torch",
}

__all__ = [
    "BaseDiffusion",
    "ClassifierGuidance",
    "DiffusionModel",
    "DiffusionSettings",
    "FixedEntries",
    "MLPDenoiser",
    "NoiseSchedule",
    "TransformerDenoiser",
    "UNet1dDenoiser",
    "UNet2dDenoiser",
    "sample_loop",
]


def __getattr__(name):
    if name in _TORCH:
        return getattr(import_module(f"skicml.generative.{_TORCH[name]}"), name)
    raise AttributeError(f"module 'skicml.generative' has no attribute {name!r}")


def __dir__():
    return sorted(set(globals()) | set(__all__))
