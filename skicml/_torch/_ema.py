"""Exponential moving average of the parameters."""

from skorch.callbacks import Callback
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class EMA(Callback):
    """skorch callback: keep an exponential moving average of the module's parameters.

    After training, ``net.module_`` holds the averaged parameters and the latest buffers.

    Parameters
    ----------
    decay : float, default=0.999
        Weight of the past at each optimiser step.
    """

    def __init__(self, decay=0.999):
        self.decay = decay

    def on_train_begin(self, net, **kwargs):
        self.average_ = AveragedModel(
            net.module_, multi_avg_fn=get_ema_multi_avg_fn(self.decay), use_buffers=False
        )

    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            self.average_.update_parameters(net.module_)

    def on_train_end(self, net, **kwargs):
        net.module_.load_state_dict(self.average_.module.state_dict())
        del self.average_
