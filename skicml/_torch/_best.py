"""Keep the best epoch of a training."""

import copy
import math

from skorch.callbacks import Callback


class KeepBest(Callback):
    """skorch callback: end training with the parameters of the best epoch.

    The best epoch is the one of least validation loss; a subclass may override :meth:`rank`.

    Attributes
    ----------
    best_loss_ : float
        Loss of the best epoch; infinite if no epoch had a finite one.
    """

    def on_train_begin(self, net, **kwargs):
        self.best_rank_ = (math.inf,)
        self.best_state_ = None

    def on_epoch_end(self, net, **kwargs):
        rank = self.rank(net)
        if math.isfinite(rank[-1]) and rank < self.best_rank_:
            self.best_rank_ = rank
            self.best_state_ = copy.deepcopy(net.module_.state_dict())

    def on_train_end(self, net, **kwargs):
        if self.best_state_ is not None:
            net.module_.load_state_dict(self.best_state_)
        self.best_state_ = None

    def rank(self, net):
        """Tuple that is least for the best epoch and ends in the loss of the present one."""
        return (net.history[-1, "valid_loss"],)

    @property
    def best_loss_(self):
        return self.best_rank_[-1]
