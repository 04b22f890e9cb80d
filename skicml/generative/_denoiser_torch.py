"""The denoiser: a network, its condition, and the schedule and parameterisation around it."""

from typing import NamedTuple

import torch
from torch import nn

from skicml.generative._prediction import min_snr_weights, split_prediction, training_target


class Noised(NamedTuple):
    """Data that were taken to random times.

    Attributes
    ----------
    x : tensor of shape (n_samples, ...)
        alpha_t x0 + sigma_t eps.
    t : long tensor of shape (n_samples,)
        Time of each row.
    x0, eps : tensor
        The data and the noise.
    """

    x: torch.Tensor
    t: torch.Tensor
    x0: torch.Tensor
    eps: torch.Tensor


class ConditionEmbedding(nn.Module):
    """Labels or vectors as embeddings, with a learned vector for "no condition".

    Parameters
    ----------
    condition : Condition
        What is embedded. The tokens of a context pass through unchanged.
    """

    def __init__(self, condition):
        super().__init__()
        self.kind = condition.kind
        self.dropout = condition.dropout
        n_inputs, n_cond = condition.n_inputs, condition.n_cond
        if self.kind == "label":
            self.embed = nn.Embedding(n_inputs, n_cond)
        elif self.kind == "vector":
            self.embed = nn.Sequential(
                nn.Linear(n_inputs, n_cond), nn.SiLU(), nn.Linear(n_cond, n_cond)
            )
        else:
            self.embed = nn.Identity()
            n_cond = n_inputs
        self.null = nn.Parameter(torch.zeros(n_cond))

    def forward(self, condition, generator=None):
        """Embeddings; with a generator some rows are replaced by the null vector."""
        embedded = self.embed(condition)
        if generator is None or self.dropout == 0:
            return embedded
        left_out = torch.rand(len(embedded), generator=generator) < self.dropout
        left_out = left_out.to(embedded.device).view(-1, *[1] * (embedded.ndim - 1))
        return torch.where(left_out, self.null, embedded)

    def null_like(self, embedded):
        """The null vector in the shape of embeddings."""
        return self.null.expand_as(embedded)

    def null_rows(self, n_rows):
        """The null vector for `n_rows` rows; for a context one null token a row."""
        if self.kind == "context":
            return self.null.expand(n_rows, 1, -1)
        return self.null.expand(n_rows, -1)


class Denoiser(nn.Module):
    """A network with everything that turns its output into data and noise.

    The network follows the protocol ``network(x, t, cond=None, context=None)`` with x of shape
    (n_samples, ...), t of shape (n_samples,), long or float, cond of shape (n_samples, n_cond)
    and context of shape (n_samples, n_tokens, n_context), and returns a tensor like x. A
    subclass of BaseDiffusion with a network of its own may pass anything as cond.

    Parameters
    ----------
    network : nn.Module
        The network.
    schedule : NoiseSchedule
        The noise schedule.
    prediction : {"eps", "x0", "v"}
        What the network predicts.
    loss_weighting : {"simple", "min_snr"}, default="simple"
        Weights of the times in the loss.
    condition : ConditionEmbedding or None, default=None
        Embedding of y.
    """

    def __init__(self, network, schedule, prediction, *, loss_weighting="simple", condition=None):
        super().__init__()
        self.network = network
        self.schedule = schedule
        self.prediction = prediction
        self.condition = condition
        self._add_table("alpha", schedule.alpha_)
        self._add_table("sigma", schedule.sigma_)
        weights = None
        if loss_weighting == "min_snr":
            weights = min_snr_weights(schedule.abar_, prediction)
        self._add_table("weights", weights)

    def _add_table(self, name, values):
        table = None if values is None else torch.as_tensor(values, dtype=torch.float64)
        self.register_buffer(name, table, persistent=False)

    def forward(self, x, t, cond=None, context=None):
        """What the network predicts; a conditional model without condition takes the null one."""
        if self.condition is not None:
            if self.condition.kind == "context":
                context = self.condition.null_rows(len(x)) if context is None else context
            elif cond is None:
                cond = self.condition.null_rows(len(x))
        return self.network(x, t, cond, context)

    def predict(self, x, t, cond=None, context=None):
        """Data x0 and noise eps of the rows of x at time t, an int or a long tensor."""
        if not isinstance(t, torch.Tensor):
            alpha, sigma = float(self.schedule.alpha_[t]), float(self.schedule.sigma_[t])
            t = torch.full((len(x),), t, dtype=torch.long, device=x.device)
        else:
            alpha, sigma = self.coefficients(t, x)
        return split_prediction(self(x, t, cond, context), x, alpha, sigma, self.prediction)

    def coefficients(self, t, like):
        """alpha and sigma of the times t, shaped to multiply the tensor `like`."""
        return _rows(self.alpha, t, like), _rows(self.sigma, t, like)

    def corrupt(self, x0, generator, *, fixed=None):
        """Noise the rows of x0 to times drawn uniformly from 1, ..., T.

        Parameters
        ----------
        x0 : tensor of shape (n_samples, ...)
            Data.
        generator : torch.Generator
            CPU generator of the times and the noise.
        fixed : bool tensor or None, default=None
            Entries that stay clean.

        Returns
        -------
        noised : Noised
            The noisy rows.
        """
        t = torch.randint(1, len(self.alpha), (len(x0),), generator=generator).to(x0.device)
        eps = torch.randn(x0.shape, generator=generator, dtype=x0.dtype).to(x0.device)
        return self.noise_to(x0, t, eps, fixed=fixed)

    def noise_to(self, x0, t, eps, *, fixed=None):
        """Noise the rows of x0 to given times with given noise, see :meth:`corrupt`."""
        alpha, sigma = self.coefficients(t, x0)
        x = alpha * x0 + sigma * eps
        if fixed is not None:
            x = torch.where(fixed, x0, x)
        return Noised(x, t, x0, eps)

    def loss(self, output, noised, mask=None):
        """Weighted squared error of a prediction, averaged over the entries.

        Parameters
        ----------
        output : tensor
            What the network says at ``noised.x``.
        noised : Noised
            From :meth:`corrupt`.
        mask : tensor or None, default=None
            1 for entries that count, 0 for others.

        Returns
        -------
        loss : tensor of shape ()
            The mean over the entries that count; 0 if there are none.

        Raises
        ------
        ValueError
            If the prediction is of another shape than the data.
        """
        alpha, sigma = self.coefficients(noised.t, noised.x0)
        target = training_target(noised.x0, noised.eps, alpha, sigma, self.prediction)
        if output.shape != target.shape:
            raise ValueError(
                f"The network must return a tensor like x, of shape {tuple(target.shape)}, but "
                f"returned {tuple(output.shape)}."
            )
        error = (output - target).square()
        if self.weights is not None:
            error = error * _rows(self.weights, noised.t, error)
        if mask is None:
            return error.mean()
        return (error * mask).sum() / mask.sum().clamp(min=1)

    def split(self, output, noised):
        """Data x0 and noise eps that a prediction at ``noised.x`` stands for."""
        alpha, sigma = self.coefficients(noised.t, noised.x)
        return split_prediction(output, noised.x, alpha, sigma, self.prediction)


def _rows(table, t, like):
    """Entries t of a table, shaped to multiply the tensor `like` row by row."""
    return table[t].to(like.dtype).view(-1, *[1] * (like.ndim - 1))


def guided_prediction(net, x, t, cond=None, context=None, guidance_scale=0.0):
    """Prediction of a denoiser under classifier-free guidance.

    (1 + w) times the conditional minus w times the unconditional prediction, from one call
    with a doubled batch.

    Parameters
    ----------
    net : Denoiser
        The denoiser.
    x : tensor of shape (n_samples, ...)
        Noisy data.
    t : int or long tensor of shape (n_samples,)
        Time.
    cond, context : tensor or None, default=None
        Condition of each row.
    guidance_scale : float, default=0.0
        w; 0 is the conditional prediction.

    Returns
    -------
    x0, eps : tensor
        Data and noise.
    """
    given = cond if context is None else context
    if guidance_scale == 0 or given is None or net.condition is None:
        return net.predict(x, t, cond, context)
    doubled = torch.cat([given, net.condition.null_like(given)])
    cond, context = (doubled, None) if context is None else (cond, doubled)
    t = torch.cat([t, t]) if isinstance(t, torch.Tensor) else t
    both = net.predict(torch.cat([x, x]), t, cond, context)
    # x0 is affine in eps with weights that add up to one, so that both mix alike
    w = guidance_scale
    halves = (part.chunk(2) for part in both)
    x0, eps = ((1 + w) * conditional - w * null for conditional, null in halves)
    return x0, eps
