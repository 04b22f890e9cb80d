"""Methods of ICML 2025 papers as scikit-learn estimators."""

from importlib import import_module

__version__ = "0.1.0"

# Task packages are imported on first use (PEP 562): `import skicml` stays cheap.
_PACKAGES = (
    "bandits",
    "cluster",
    "datasets",
    "decomposition",
    "density_ratio",
    "generative",
    "information",
    "metrics",
    "privacy",
    "time_series",
    "transport",
    "utils",
)

__all__ = ["__version__", *_PACKAGES]


def __getattr__(name):
    if name in _PACKAGES:
        return import_module(f"skicml.{name}")
    raise AttributeError(f"module 'skicml' has no attribute {name!r}")


def __dir__():
    return sorted(set(globals()) | set(__all__))
