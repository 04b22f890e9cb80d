"""Exponential moving average of the parameters."""

import copy

import torch
from skorch.callbacks import Callback


class EMA(Callback):
    """skorch callback: keep an exponential moving average of the module's parameters.

    Parameters
    ----------
    decay : float, default=0.999
        Weight of the past at each optimiser step.
    warmup : bool, default=False
        Whether the weight of the past at update k = 0, 1, ... is min(decay, (1 + k) / (10 + k)),
        so that the average soon forgets the initialisation. Otherwise the average begins with
        the parameters after the first step.
    swap : bool, default=True
        Whether ``net.module_`` holds the averaged parameters and the latest buffers after
        training. Otherwise it keeps the latest parameters, the average is in `module_`, and
        further training goes on from both.

    Attributes
    ----------
    module_ : nn.Module
        Copy of the net's module with the averaged parameters, which take no gradients; there
        after training only if ``swap=False``.
    n_updates_ : int
        Number of updates of the average.
    """

    def __init__(self, decay=0.999, *, warmup=False, swap=True):
        self.decay = decay
        self.warmup = warmup
        self.swap = swap

    def on_train_begin(self, net, **kwargs):
        if not hasattr(self, "module_"):
            self.module_ = copy.deepcopy(net.module_).requires_grad_(False)
            self.n_updates_ = 0
        self.averages_ = list(self.module_.parameters())
        self.latest_ = list(net.module_.parameters())

    @torch.no_grad()
    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            torch._foreach_lerp_(self.averages_, self.latest_, 1 - self._past())
            self.n_updates_ += 1

    @torch.no_grad()
    def on_train_end(self, net, **kwargs):
        if self.swap:
            torch._foreach_copy_(self.latest_, self.averages_)
            del self.module_
        else:
            for buffer, latest in zip(self.module_.buffers(), net.module_.buffers()):
                buffer.copy_(latest)
        del self.averages_, self.latest_

    def _past(self):
        """Weight of the past at this update."""
        k = self.n_updates_
        if self.warmup:
            return min(self.decay, (1 + k) / (10 + k))
        return self.decay if k else 0.0
