"""skorch's training loop: seeded, in memory, reporting to scikit-learn's callbacks."""

from contextlib import contextmanager
from math import ceil

import torch
from skorch import NeuralNet
from skorch.callbacks import Callback, PassthroughScoring

from skicml._torch._data import StepLoader, TensorDataset, TensorLoader
from skicml._torch._seeding import seeded_init
from skicml._torch._stopping import StopTraining


class _Interrupted(BaseException):
    """A KeyboardInterrupt on its way through skorch, which would swallow it."""


class SeededNet(NeuralNet):
    """skorch net whose randomness comes from `seed` alone.

    A method with a training step of its own subclasses it and overrides ``get_loss`` or
    ``train_step_single``; random numbers that the step needs come from ``self.generator_``.

    Parameters
    ----------
    module : nn.Module class, or instance, or factory
        As in skorch, with parameters ``module__*``.
    criterion : class, default=torch.nn.MSELoss
        As in skorch.
    seed : int, default=0
        Seed of initialisation, order of the batches, and ``generator_``.
    optimizer : class, default=torch.optim.Adam
        As in skorch, with parameters ``optimizer__*``.
    min_batch_size : int, default=1
        Leave out a last training batch with fewer rows, see :class:`TensorLoader`.
    steps_per_epoch : int, default=50
        Gradient steps between two reports where training is counted in steps, see
        :func:`fit_net`.
    **kwargs : dict
        Other parameters of :class:`skorch.NeuralNet`: ``lr``, ``max_epochs``,
        ``batch_size``, ``callbacks`` (e.g. ``skorch.callbacks.GradientNormClipping``,
        ``LRScheduler``, :class:`EMA`), ``device``, ...

    Attributes
    ----------
    generator_ : torch.Generator
        CPU generator that orders the batches and is at hand for training steps.
    n_steps_ : int or None
        Gradient steps of the present training; None where epochs are counted.
    """

    def __init__(
        self,
        module,
        criterion=torch.nn.MSELoss,
        *,
        seed=0,
        optimizer=torch.optim.Adam,
        min_batch_size=1,
        steps_per_epoch=50,
        **kwargs,
    ):
        self.seed = seed
        self.min_batch_size = min_batch_size
        self.steps_per_epoch = steps_per_epoch
        defaults = {"train_split": None, "verbose": 0}
        super().__init__(module, criterion, optimizer=optimizer, **(defaults | kwargs))

    @property
    def _default_callbacks(self):
        # The losses of an epoch, for schedules and early stopping. Without skorch's timer and
        # printer, which cost as much as a small epoch.
        return [
            ("train_loss", PassthroughScoring("train_loss", on_train=True)),
            ("valid_loss", PassthroughScoring("valid_loss")),
        ]

    def initialize(self):
        with seeded_init(self.seed):
            super().initialize()
        self.generator_ = torch.Generator().manual_seed(self.seed)
        self.n_steps_ = None
        return self

    def get_dataset(self, X, y=None):
        if isinstance(X, torch.utils.data.Dataset):
            return X
        return TensorDataset(X, y, device=self.device)

    def get_iterator(self, dataset, training=False):
        if not training:
            return TensorLoader(dataset, batch_size=self.batch_size)
        if self.n_steps_ is not None:
            return StepLoader(
                dataset,
                batch_size=self.batch_size,
                generator=self.generator_,
                n_steps=self.n_steps_,
                steps_per_epoch=self.steps_per_epoch,
            )
        return TensorLoader(
            dataset,
            batch_size=self.batch_size,
            shuffle=True,
            generator=self.generator_,
            min_batch_size=self.min_batch_size,
        )

    def fit_loop(self, X, y=None, epochs=None, **kwargs):
        try:
            return super().fit_loop(X, y, epochs, **kwargs)
        except StopTraining:
            return self
        except KeyboardInterrupt as interrupt:
            raise _Interrupted from interrupt

    def partial_fit(self, X, y=None, classes=None, **fit_params):
        try:
            return super().partial_fit(X, y, classes, **fit_params)
        except _Interrupted as interrupted:
            raise KeyboardInterrupt from interrupted

    def trim(self):
        """Leave in the net what prediction needs, on the CPU: no optimiser or history."""
        self.trim_for_prediction()
        self.module_.to("cpu")
        self.device = "cpu"


class _Progress(Callback):
    """Each epoch of the net is a task of the estimator's callback context."""

    def __init__(self, estimator, context):
        self.estimator = estimator
        self.context = context

    def on_epoch_begin(self, net, **kwargs):
        self.task_ = self.context.subcontext(task_name=f"epoch {len(net.history) - 1}")
        self.task_.call_on_fit_task_begin(estimator=self.estimator)

    def on_epoch_end(self, net, **kwargs):
        if self.task_.call_on_fit_task_end(estimator=self.estimator):
            raise StopTraining


@contextmanager
def _reporting(net, estimator, context):
    """Attach a progress callback to an initialised net while it trains."""
    if context is None:
        yield
        return
    callback = ("skicml_progress", _Progress(estimator, context))
    net.callbacks_.append(callback)
    try:
        yield
    finally:
        net.callbacks_.remove(callback)


def n_epochs_of(n_steps, steps_per_epoch=50):
    """Number of epochs, which are the tasks that callbacks see, of a number of steps."""
    return ceil(n_steps / steps_per_epoch)


def fit_net(net, X, y=None, *, epochs=None, steps=None, estimator=None, context=None):
    """Train a net: the one way in which skicml's estimators do it.

    A net that has been trained goes on from where it is (warm start).

    Parameters
    ----------
    net : SeededNet
        The net.
    X, y : arrays, or dicts, lists or tuples of arrays, or a TensorDataset as X
        Training data; axis 0 counts the samples.
    epochs : int or None, default=None
        Number of epochs; None means ``net.max_epochs``.
    steps : int or None, default=None
        Number of gradient steps, in place of `epochs`: the cost does not depend on the number
        of rows. An epoch is then ``net.steps_per_epoch`` steps, see :func:`n_epochs_of`.
    estimator : estimator instance or None, default=None
        The scikit-learn estimator being fitted.
    context : sklearn.callback.CallbackContext or None, default=None
        Task of `estimator` that every epoch becomes a subtask of. A callback that returns
        True ends training after the epoch.

    Returns
    -------
    net : SeededNet
        The same net.
    """
    if not net.initialized_:
        net.initialize()
    net.n_steps_ = steps
    if steps is not None:
        epochs = n_epochs_of(steps, net.steps_per_epoch)
    with _reporting(net, estimator, context):
        return net.partial_fit(X, y, epochs=epochs)
