"""Training of denoisers: skorch's loop with a loss of its own, counted in gradient steps."""

from functools import partial
from math import cos, pi

import torch
from skorch.callbacks import Callback
from torch.nn.utils import clip_grad_norm_

from skicml._torch import EMA, SeededNet, TensorDataset, fit_net


class StepNet(SeededNet):
    """SeededNet whose training step is a function of the module, a batch and the generator.

    Parameters
    ----------
    module : nn.Module
        The module.
    gradient_clip : float or None, default=None
        Largest norm of the gradient.
    **kwargs : dict
        Other parameters of SeededNet.

    Attributes
    ----------
    objective : callable or None
        ``objective(module, batch, generator) -> loss``; `batch` is a dict of tensors.
    make_scheduler : callable or None
        ``make_scheduler(optimizer, n_steps)`` gives a torch scheduler that is moved each step.
        Both are set for the time of a training only: the net does not hold on to an estimator.
    """

    objective = None
    make_scheduler = None

    def __init__(self, module, *, gradient_clip=None, **kwargs):
        super().__init__(module, **kwargs)
        self.gradient_clip = gradient_clip

    def initialize_optimizer(self, *args, **kwargs):
        if is_trainable(self.module_):
            return super().initialize_optimizer(*args, **kwargs)
        self.optimizer_ = None
        return self

    def train_step_single(self, batch, **fit_params):
        self._set_training(True)
        loss = self.objective(self.module_, batch[0], self.generator_)
        loss.backward()
        if self.gradient_clip is not None:  # skorch's callback would name the parameters first
            clip_grad_norm_(self.optimizer_.param_groups[0]["params"], self.gradient_clip)
        return {"loss": loss, "y_pred": None}


class LearningRate(Callback):
    """Move the scheduler of the learning rate each step; every training begins a new one."""

    def on_train_begin(self, net, **kwargs):
        if net.n_steps_:
            self.scheduler_ = net.make_scheduler(net.optimizer_, net.n_steps_)

    def on_batch_end(self, net, training=False, **kwargs):
        if training:
            self.scheduler_.step()

    def on_train_end(self, net, **kwargs):
        vars(self).pop("scheduler_", None)


class PrintLoss(Callback):
    """Print the mean loss after every epoch."""

    def on_epoch_end(self, net, **kwargs):
        print(f"step {n_steps_taken(net)}: loss {net.history[-1, 'train_loss']:.4g}")


def one_cycle(optimizer, n_steps):
    """Learning rate that rises over a tenth of the steps and falls to zero as a cosine."""
    rise = max(1, n_steps // 10)

    def factor(step):
        if step < rise:
            return (step + 1) / rise
        return 0.5 * (1 + cos(pi * (step - rise) / max(1, n_steps - rise)))

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def make_net(module, settings, seed):
    """Untrained net around a module.

    Parameters
    ----------
    module : nn.Module
        The module.
    settings : DiffusionSettings
        How to train it.
    seed : int
        Seed of the batches, times and noise.

    Returns
    -------
    net : StepNet
        The net, initialised.
    """
    callbacks = [("learning_rate", LearningRate())]
    if settings.ema_decay:
        callbacks.append(("ema", EMA(settings.ema_decay, warmup=True, swap=False)))
    if settings.verbose:
        callbacks.append(("print", PrintLoss()))
    net = StepNet(
        module,
        seed=seed,
        gradient_clip=settings.gradient_clip,
        optimizer=_make_optimizer(settings),
        callbacks=callbacks,
    ).initialize()
    net.module = type(module)  # the instance is module_: it would be pickled twice
    return net


def _make_optimizer(settings):
    optimizer = getattr(torch.optim, settings.optimizer)
    return partial(optimizer, weight_decay=settings.weight_decay, fused=True)


def train(
    net,
    batch,
    settings,
    *,
    objective,
    make_scheduler=one_cycle,
    device="cpu",
    estimator=None,
    context=None,
):
    """Train a net for ``settings.max_iter`` gradient steps from where it is.

    Parameters
    ----------
    net : StepNet
        The net; it ends on the CPU.
    batch : dict of arrays
        All rows; axis 0 counts them.
    settings : DiffusionSettings
        How to train.
    objective : callable
        See :class:`StepNet`.
    make_scheduler : callable, default=one_cycle
        See :class:`StepNet`.
    device : str, default="cpu"
        Where to train.
    estimator, context : object or None, default=None
        See :func:`skicml._torch.fit_net`.

    Returns
    -------
    net : StepNet
        The same net.

    Raises
    ------
    ValueError
        If training diverged.
    """
    if not is_trainable(net.module_):
        return net
    _move(net, device)
    net.optimizer, net.lr = _make_optimizer(settings), settings.learning_rate
    net.batch_size = settings.batch_size
    net.initialize_optimizer()
    net.objective, net.make_scheduler = objective, make_scheduler
    dataset = TensorDataset(batch, device=device)
    try:
        fit_net(net, dataset, steps=settings.max_iter, estimator=estimator, context=context)
    finally:
        net.objective = net.make_scheduler = None
    net.module_.zero_grad(set_to_none=True)
    _move(net, "cpu")
    net.initialize_optimizer()  # lets go of the moments
    net.module_.eval()
    averaged_module(net).eval()
    if not all(torch.isfinite(value).all() for value in net.module_.parameters()):
        raise ValueError(
            f"Training diverged: the weights are not finite. Lower "
            f"learning_rate={settings.learning_rate}."
        )
    return net


def is_trainable(module):
    """Whether the module has weights; one in closed form is taken as it is."""
    return any(True for _ in module.parameters())


def averaged_module(net):
    """Module with the averaged weights; the module itself where no average is kept."""
    for _, callback in net.callbacks_:
        if isinstance(callback, EMA) and hasattr(callback, "module_"):
            return callback.module_
    return net.module_


def n_steps_taken(net):
    """Gradient steps since the net was made."""
    return sum(epoch.get("train_batch_count", 0) for epoch in net.history)


def loss_curve(net):
    """Loss of every gradient step since the net was made, a list of floats."""
    return [row["train_loss"] for epoch in net.history for row in epoch["batches"]]


def _move(net, device):
    net.device = device
    net.module_.to(device)
    averaged_module(net).to(device)
