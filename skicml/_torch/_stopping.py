"""End training early, without the KeyboardInterrupt that skorch uses for it."""

from skorch import callbacks


class StopTraining(Exception):
    """Raised in a callback or a training step to end training early, keeping the net."""


class EarlyStopping(callbacks.EarlyStopping):
    """skorch's early stopping, told apart from an interrupt by the user.

    Takes the parameters of :class:`skorch.callbacks.EarlyStopping`; without a validation set,
    ``monitor="train_loss"``.
    """

    def on_epoch_end(self, net, **kwargs):
        try:
            super().on_epoch_end(net, **kwargs)
        except KeyboardInterrupt as stop:
            raise StopTraining from stop
