"""The shared floor of the torch estimators: one way to train.

An estimator builds an ``nn.Module`` and a :class:`SeededNet` in ``fit`` and trains it with
:func:`fit_net`. Everything here imports torch, so estimators import it inside their methods.
"""

from skicml._torch._best import KeepBest
from skicml._torch._data import StepLoader, TensorDataset, TensorLoader
from skicml._torch._device import resolve_device
from skicml._torch._ema import EMA
from skicml._torch._net import SeededNet, fit_net, n_epochs_of
from skicml._torch._seeding import draw_seed, seeded_init
from skicml._torch._stopping import EarlyStopping, StopTraining

__all__ = [
    "EMA",
    "EarlyStopping",
    "KeepBest",
    "SeededNet",
    "StepLoader",
    "StopTraining",
    "TensorDataset",
    "TensorLoader",
    "draw_seed",
    "fit_net",
    "n_epochs_of",
    "resolve_device",
    "seeded_init",
]
