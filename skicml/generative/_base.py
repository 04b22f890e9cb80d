"""What all diffusion estimators share: how a denoiser is made, trained and asked."""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass

from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin


@dataclass(frozen=True)
class Condition:
    """What a denoiser is conditioned on, and how it is embedded.

    Attributes
    ----------
    kind : {"label", "vector", "context"}
        Class codes, vectors, or blocks of tokens.
    n_inputs : int
        Number of classes, or width of a vector or a token.
    n_cond : int
        Width of the embedding of labels and vectors; 0 for a context.
    dropout : float
        Share of the rows whose condition is left out in training.
    """

    kind: str
    n_inputs: int
    n_cond: int
    dropout: float = 0.0


@dataclass(frozen=True)
class DiffusionSettings:
    """How a denoiser is parameterised and trained.

    Parameters
    ----------
    prediction : {"eps", "x0", "v"}, default="v"
        What the network predicts.
    loss_weighting : {"simple", "min_snr"}, default="simple"
        Weights of the times in the loss.
    max_iter : int, default=2000
        Gradient steps.
    batch_size : int, default=128
        Rows a step.
    learning_rate : float, default=2e-3
        Learning rate of the optimiser.
    weight_decay : float, default=1e-4
        Weight decay of the optimiser.
    optimizer : str, default="AdamW"
        Name in ``torch.optim``, e.g. "AdamW" or "Adam".
    gradient_clip : float or None, default=1.0
        Largest norm of the gradient.
    ema_decay : float or None, default=0.999
        Decay of the moving average of the weights; None or 0 keeps none.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the network is trained and sampled from.
    verbose : int, default=0
        Whether to print the loss every 50 steps.
    """

    prediction: str = "v"
    loss_weighting: str = "simple"
    max_iter: int = 2000
    batch_size: int = 128
    learning_rate: float = 2e-3
    weight_decay: float = 1e-4
    optimizer: str = "AdamW"
    gradient_clip: float | None = 1.0
    ema_decay: float | None = 0.999
    device: str = "cpu"
    verbose: int = 0


class BaseDiffusion(CallbackSupportMixin, BaseEstimator, ABC):
    """Base class of the diffusion estimators.

    A subclass says with :meth:`_settings`, :meth:`_make_schedule` and :meth:`_make_network`
    what the denoiser is, and trains it in ``fit`` by :meth:`_fit_denoiser`, whose net's averaged
    module it keeps as ``ema_module_`` for :meth:`_denoiser`. It may override
    :meth:`_make_batch`, :meth:`_loss`, :meth:`_make_scheduler` and :meth:`_predict`, and
    samples with ``skicml.generative.sample_loop``.

    Read more in the :ref:`User Guide <diffusion>`.

    See Also
    --------
    DiffusionModel : The generative model for tables and images.

    Notes
    -----
    One training step takes the time of one forward and backward pass of the network on a
    batch. Memory is O(n d) for n rows of d numbers, beside the network, its moving average,
    and the activations of one batch.

    All randomness comes from seeds that are drawn from `random_state`.
    """

    @abstractmethod
    def _settings(self):
        """How to train, a DiffusionSettings; called where it is needed, also after fit."""

    @abstractmethod
    def _make_schedule(self):
        """The NoiseSchedule."""

    @abstractmethod
    def _make_network(self, shape, n_cond):
        """Network for rows of a shape, a torch module.

        Parameters
        ----------
        shape : tuple of int
            Shape of a row, without the axis of the rows.
        n_cond : int
            Width of the embedding of the condition, 0 without one. A subclass that takes blocks
            of tokens as condition has a third parameter ``n_context``, the width of a token.

        Returns
        -------
        network : nn.Module
            Follows the protocol ``network(x, t, cond=None, context=None)``.
        """

    def _make_batch(self, X, y=None):
        """Training data as a dict of arrays with the rows on axis 0.

        Keys that :meth:`_loss` knows: ``"x0"``, the data as the network sees them; ``"cond"``,
        the raw condition; ``"loss_mask"``, 1 for entries that count in the loss; ``"fixed"``,
        True for entries that stay clean in x_t. Others are at the hands of a subclass.
        """
        batch = {"x0": X}
        return batch if y is None else batch | {"cond": y}

    def _loss(self, net, batch, generator, condition=None):
        """Loss of one batch of rows.

        Parameters
        ----------
        net : Denoiser
            The denoiser in training.
        batch : dict of tensors
            Rows of what :meth:`_make_batch` gave.
        generator : torch.Generator
            CPU generator of times, noise and whatever else is random.
        condition : tensor or None, default=None
            Embeddings (n_samples, n_cond) or tokens (n_samples, n_tokens, n_context) in place
            of ``batch["cond"]``; none of them is left out.

        Returns
        -------
        loss : tensor of shape ()
            To be minimised.
        """
        fixed = batch.get("fixed")
        noised = net.corrupt(batch["x0"], generator, fixed=fixed)
        if condition is None and "cond" in batch:
            condition = net.condition(batch["cond"], generator)
        mask = batch.get("loss_mask")
        if fixed is not None:
            mask = ~fixed if mask is None else mask * ~fixed
        output = net(noised.x, noised.t, **as_condition(condition))
        return net.loss(output, noised, mask)

    def _make_scheduler(self, optimizer, n_steps):
        """Scheduler of the learning rate, moved once a step; the default is one cycle."""
        from skicml.generative._training_torch import one_cycle

        return one_cycle(optimizer, n_steps)

    def _predict(self, net, x, t, cond=None, context=None, guidance_scale=0.0):
        """Data x0 and noise eps of the rows of x at time t; differentiable.

        Parameters
        ----------
        net : Denoiser
            The denoiser, see :meth:`_denoiser`.
        x : tensor of shape (n_samples, ...)
            Noisy data.
        t : int or long tensor of shape (n_samples,)
            Time.
        cond, context : tensor or None, default=None
            Condition of each row.
        guidance_scale : float, default=0.0
            Weight of classifier-free guidance.

        Returns
        -------
        x0, eps : tensor
            Like x.
        """
        from skicml.generative._denoiser_torch import guided_prediction

        return guided_prediction(net, x, t, cond, context, guidance_scale)

    def _fit_denoiser(self, batch, shape, *, seed, condition=None, context=None, net=None):
        """Make a denoiser and train it for ``max_iter`` steps.

        Parameters
        ----------
        batch : dict of arrays
            From :meth:`_make_batch`.
        shape : tuple of int
            Shape of a row.
        seed : int
            Seed of initialisation, batches and noise.
        condition : Condition or None, default=None
            How ``batch["cond"]`` is embedded; None where there is none, or the network does it.
        context : sklearn.callback.CallbackContext or None, default=None
            Task with :meth:`_n_fit_tasks` subtasks.
        net : StepNet or None, default=None
            Trained net to go on from; it is left as it is.

        Returns
        -------
        net : StepNet
            The trained net, on the CPU.
        """
        from skicml._torch import resolve_device
        from skicml.generative._training_torch import make_net, train

        settings = self._settings()
        device = resolve_device(settings.device)
        if net is None:
            net = make_net(self._make_denoiser(shape, condition, seed), settings, seed)
        else:
            net = copy.deepcopy(net)
        return train(
            net,
            batch,
            settings,
            objective=self._loss,
            make_scheduler=self._make_scheduler,
            device=device,
            estimator=self,
            context=context,
        )

    def _make_denoiser(self, shape, condition, seed):
        """Untrained denoiser around the network of the subclass."""
        from skicml._torch import seeded_init
        from skicml.generative._denoiser_torch import ConditionEmbedding, Denoiser

        settings = self._settings()
        with seeded_init(seed):
            if condition is None:
                embedding, widths = None, {"n_cond": 0}
            else:
                embedding = ConditionEmbedding(condition)
                widths = {"n_cond": condition.n_cond}
                if condition.kind == "context":
                    widths["n_context"] = condition.n_inputs
            network = self._make_network(shape, **widths)
            return Denoiser(
                network,
                self._make_schedule(),
                settings.prediction,
                loss_weighting=settings.loss_weighting,
                condition=embedding,
            )

    def _n_fit_tasks(self):
        """Number of subtasks that callbacks see in a training."""
        from skicml._torch import n_epochs_of

        return n_epochs_of(self._settings().max_iter)

    def _denoiser(self):
        """The fitted denoiser of averaged weights in evaluation mode, on the device."""
        from skicml._torch import resolve_device

        device = resolve_device(self._settings().device)
        if device == "cpu":
            return self.ema_module_
        return copy.deepcopy(self.ema_module_).to(device)


def as_condition(condition):
    """Keyword arguments of the network for embeddings (2-D) or tokens (3-D) or None."""
    if condition is None:
        return {}
    return {"context": condition} if condition.ndim == 3 else {"cond": condition}
