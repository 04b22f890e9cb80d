"""The three levels of KoNODE as torch modules, and the net that trains them."""

import math
from itertools import pairwise

import numpy as np
import torch
from skorch.callbacks import Callback
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

from skicml._torch import KeepBest, SeededNet, StopTraining

_ACTIVATIONS = {"silu": nn.functional.silu, "relu": torch.relu, "tanh": torch.tanh}
# Times at which a fixed-step solver calls the vector field, per step: the start for Euler; the
# start and both thirds for torchdiffeq's rk4 (the 3/8 rule), whose end is the next start.
_STAGES_PER_STEP = {"euler": 1, "rk4": 3}
_ADAPTIVE_TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
# Growth that "free" eigenvalues may reach: w grows by at most e^20.
_MAX_EXPONENT = 20.0
# Size of a learnt w(0) at its start: D is then nearly linear in w, so that a mode of the wrong
# frequency cannot stand in by its harmonics.
_LEARNED_LATENT_STD = 0.3
# Horizon that a curriculum starts with.
_FIRST_HORIZON = 10
# Noise of initial_latent="random", as released.
RANDOM_LATENT_STD = 0.01


class KoopmanFlow(nn.Module):
    """Level 3: the linear dynamics w' = A w, in closed form. Time counts sampling steps.

    A has a block [[a, b], [-b, a]] for each mode. The frequency is ``b = pi * sigmoid(raw)``
    radians a step: logarithmic for slow modes and never above the Nyquist frequency pi.

    Parameters
    ----------
    n_modes : int
        Number r of modes.
    eigenvalues : {"free", "stable", "unitary"}
        Growth rates: any, negative, or zero.
    period : float
        Steps of the slowest mode at the start; growth rates are learnt in units of its
        inverse.
    """

    def __init__(self, n_modes, eigenvalues, period):
        super().__init__()
        self.eigenvalues = eigenvalues
        self.period = max(period, 16)  # below, the slowest would start faster than the fastest
        frequencies = np.geomspace(2 * math.pi / self.period, math.pi / 4, n_modes)
        raw_frequencies = torch.logit(torch.from_numpy(frequencies / math.pi)).float()
        self.raw_frequencies = nn.Parameter(raw_frequencies)
        if eigenvalues != "unitary":
            # softplus(-5) = 0.007: as good as no decay.
            start = 0.0 if eigenvalues == "free" else -5.0
            self.raw_growth = nn.Parameter(torch.full((n_modes,), start))

    def frequencies(self):
        """b, radians a step; float64."""
        return math.pi * self.raw_frequencies.double().sigmoid()

    def growth(self):
        """a, a step; float64."""
        if self.eigenvalues == "unitary":
            return torch.zeros_like(self.raw_frequencies, dtype=torch.float64)
        raw = self.raw_growth.double()
        return (raw if self.eigenvalues == "free" else -nn.functional.softplus(raw)) / self.period

    def forward(self, latent, times):
        """w at some times.

        Parameters
        ----------
        latent : tensor of shape (..., 2 * n_modes)
            w(0).
        times : tensor
            Shape that broadcasts with ``latent.shape[:-1]``.

        Returns
        -------
        w : tensor of shape (..., 2 * n_modes)
            In the precision of `latent`; phases are taken in float64, for times may be long.
        """
        times = times.double()[..., None]
        phase = times * self.frequencies()
        scale = (times * self.growth()).clamp(max=_MAX_EXPONENT).exp()
        cos = (scale * phase.cos()).to(latent.dtype)
        sin = (scale * phase.sin()).to(latent.dtype)
        even, odd = latent[..., 0::2], latent[..., 1::2]
        return torch.stack([cos * even + sin * odd, cos * odd - sin * even], dim=-1).flatten(-2)


class ParameterDecoder(nn.Module):
    """Level 2: theta = D(w), the weights and biases of every layer of f.

    Returns a list with, for each layer of f, a tensor of shape ``(..., fan_in + 1, fan_out)``
    whose last row is the bias.

    Parameters
    ----------
    koopman_dim : int
        Size of w.
    width : int
        Hidden units.
    sizes : sequence of int
        Units of f: channels, hidden layers, channels.
    """

    def __init__(self, koopman_dim, width, sizes):
        super().__init__()
        shapes = list(pairwise(sizes))
        self.trunk = nn.Sequential(
            nn.Linear(koopman_dim, width), nn.SiLU(), nn.Linear(width, width * len(shapes))
        )
        self.heads = nn.ModuleList()
        for layer, (fan_in, fan_out) in enumerate(shapes):
            hidden = [] if layer in (0, len(shapes) - 1) else [nn.Linear(width, width), nn.SiLU()]
            head = nn.Linear(width, (fan_in + 1) * fan_out)
            with torch.no_grad():
                # Training starts from a working ODE that w bends but slightly.
                head.weight *= 0.1
                head.bias.copy_(_mlp_layer(fan_in, fan_out).flatten())
            unflatten = nn.Unflatten(-1, (fan_in + 1, fan_out))
            self.heads.append(nn.Sequential(nn.SiLU(), *hidden, head, unflatten))

    def forward(self, w):
        chunks = self.trunk(w).chunk(len(self.heads), dim=-1)
        return [head(chunk) for head, chunk in zip(self.heads, chunks)]


class ConstantParameters(nn.Module):
    """Level 2 of a plain neural ODE: theta does not depend on w, which is empty.

    Parameters
    ----------
    sizes : sequence of int
        Units of f: channels, hidden layers, channels.
    """

    def __init__(self, sizes):
        super().__init__()
        shapes = pairwise(sizes)
        self.layers = nn.ParameterList(_mlp_layer(*shape) for shape in shapes)

    def forward(self, w):
        return [layer.expand(*w.shape[:-1], -1, -1) for layer in self.layers]


def _mlp_layer(fan_in, fan_out):
    """Weights, and the bias as last row, of an ordinary linear layer at its start."""
    return torch.empty(fan_in + 1, fan_out).uniform_(-1, 1) / math.sqrt(fan_in)


class KoopmanODE(nn.Module):
    """x' = f(x; theta(t)) with theta(t) = D(w(t)) and w' = A w, for standardised x.

    Time counts sampling steps, so nothing depends on the unit of time.

    Parameters
    ----------
    n_channels, context_length, horizon : int
        Size of x; rows that the initial latent may depend on; steps to forecast.
    koopman_dim : int
        Size of w; 0 makes a plain neural ODE.
    hidden_dims : sequence of int
        Hidden units of f.
    decoder_dim : int
        Hidden units of D and of the encoder.
    activation, initial_latent, eigenvalues, solver : str
        See :class:`skicml.time_series.KoNODE`.
    substeps : int
        Steps of a fixed-step solver in a sampling step.
    adjoint : bool
        Whether gradients come from the adjoint system.
    period : float
        Steps of the slowest mode at the start.
    increments : ndarray of shape (n_channels,)
        Typical change of x in a step, which scales f.
    """

    def __init__(
        self,
        n_channels,
        *,
        context_length,
        horizon,
        koopman_dim,
        hidden_dims,
        decoder_dim,
        activation,
        initial_latent,
        eigenvalues,
        solver,
        substeps,
        adjoint,
        period,
        increments,
    ):
        super().__init__()
        self.context_length = context_length
        self.horizon = self.training_horizon = horizon
        self.activation = activation
        self.solver = solver
        self.substeps = substeps
        self.adjoint = adjoint
        self.register_buffer("increments", torch.as_tensor(increments, dtype=torch.float32))
        sizes = [n_channels, *hidden_dims, n_channels]
        self.n_parameters = sum((m + 1) * n for m, n in pairwise(sizes))
        self.flow = KoopmanFlow(koopman_dim // 2, eigenvalues, period)
        self.decoder = (
            ParameterDecoder(koopman_dim, decoder_dim, sizes)
            if koopman_dim
            else ConstantParameters(sizes)
        )
        # Without w there is nothing to encode.
        self.initial_latent = initial_latent if koopman_dim else "learned"
        if self.initial_latent == "encoder":
            self.encoder = nn.Sequential(
                nn.Flatten(),
                nn.Linear(context_length * n_channels, decoder_dim),
                nn.SiLU(),
                nn.Linear(decoder_dim, koopman_dim),
                nn.Tanh(),  # a context unlike those of training must not throw w far away
            )
        elif self.initial_latent == "learned":
            self.latent = nn.Parameter(_LEARNED_LATENT_STD * torch.randn(koopman_dim))
        else:
            self.register_buffer("latent", RANDOM_LATENT_STD * torch.randn(koopman_dim))

    def forward(self, windows, start, noise=None):
        """Forecasts from the first `context_length` rows of windows.

        Parameters
        ----------
        windows : tensor of shape (n_windows, width, n_channels)
            Standardised rows.
        start : tensor of shape (n_windows,)
            Clock at the last row of each context.
        noise : tensor of shape (n_windows, koopman_dim) or None
            Initial latents of ``initial_latent="random"`` while training.

        Returns
        -------
        forecasts : tensor of shape (n_windows, horizon, n_channels)
            In training, `training_horizon` steps.
        """
        contexts = windows[:, : self.context_length]
        latent = self.initial(contexts) if noise is None else noise
        n_steps = self.training_horizon if self.training else self.horizon
        return self.solve(contexts[:, -1], latent, start, n_steps)

    def initial(self, contexts):
        """w(0): a vector a context, or one vector for all."""
        if self.initial_latent != "encoder":
            return self.latent
        # The last row and the scaled steps that lead to it: the same information as the rows,
        # but the steps, which tell the phase of a driver, weigh as much as the state.
        typical = self.increments.where(self.increments > 0, 1.0)
        steps = contexts.diff(dim=1) / typical
        return self.encoder(torch.cat([steps, contexts[:, -1:]], dim=1))

    def parameters_at(self, latent, clock):
        """theta(t) = D(w(t)), see :class:`ParameterDecoder`."""
        return self.decoder(self.flow(latent, clock))

    def shares_parameters(self, latent, start):
        """Whether all trajectories follow the same theta(t)."""
        return latent.ndim == 1 and (latent.numel() == 0 or bool((start == start[0]).all()))

    def n_stages(self, n_steps):
        """Times at which theta is tabulated for some steps."""
        return n_steps * self.substeps * _STAGES_PER_STEP.get(self.solver, 1) + 1

    def field(self, x, layers):
        """f(x; theta) for standardised x, standardised units a step."""
        return self._field(x, *_weights_and_biases(self._scaled(layers)))

    def solve(self, state, latent, start, n_steps):
        """States at the next `n_steps` sampling times.

        Parameters
        ----------
        state : tensor of shape (n_windows, n_channels)
            Where each trajectory starts.
        latent : tensor of shape (n_windows, koopman_dim) or (koopman_dim,)
            w(0).
        start : tensor of shape (n_windows,)
            Clock at the start of each trajectory.
        n_steps : int
            Number of sampling steps.

        Returns
        -------
        states : tensor of shape (n_windows, n_steps, n_channels)
        """
        if self.shares_parameters(latent, start):
            start = start[0]
        else:
            state = state[:, None]  # a row vector for the weights of each trajectory
        substeps = self.substeps if self.solver in _STAGES_PER_STEP else 1
        # The solver counts substeps: whole numbers, which floats hold exactly.
        times = torch.arange(n_steps * substeps + 1, dtype=state.dtype, device=state.device)
        if self.adjoint and torch.is_grad_enabled():
            states = self._solve_adjoint(state, latent, start, times, substeps)
        elif self.solver in _STAGES_PER_STEP:
            law = self._tabulated_law(latent, start, n_steps, substeps)
            states = odeint(law, state, times, method=self.solver)
        else:
            law = self._continuous_law(latent, start, substeps)
            states = odeint(law, state, times, method=self.solver, **_ADAPTIVE_TOLERANCE)
        return states[substeps::substeps].reshape(n_steps, -1, state.shape[-1]).transpose(0, 1)

    def _solve_adjoint(self, state, latent, start, times, substeps):
        # Level 3 is known in closed form: the adjoint runs over x alone, and the latent counts
        # as a parameter, which hands its gradient on to the encoder.
        parameters = (latent, *self.flow.parameters(), *self.decoder.parameters())
        parameters = tuple(p for p in parameters if p.numel())  # odeint_adjoint fails on empty ones
        return odeint_adjoint(
            self._continuous_law(latent, start, substeps),
            state,
            times,
            method=self.solver,
            adjoint_params=parameters,
            **_ADAPTIVE_TOLERANCE,
        )

    def _tabulated_law(self, latent, start, n_steps, substeps):
        """The vector field with theta at all stages of all steps from one call of D."""
        stages = _STAGES_PER_STEP[self.solver]
        steps = torch.arange(self.n_stages(n_steps), dtype=torch.float64, device=start.device)
        steps = steps.reshape(-1, *[1] * start.ndim) / (stages * substeps)
        layers = self._scaled(self.parameters_at(latent, start + steps), 1 / substeps)
        weights, biases = _weights_and_biases(layers)
        # unbind, not an index for each stage: its gradient is one stack, theirs are a full
        # table each.
        weights = list(zip(*(weight.unbind(0) for weight in weights)))
        biases = list(zip(*(bias.unbind(0) for bias in biases)))

        def law(t, x):
            stage = round(float(t) * stages)
            return self._field(x, weights[stage], biases[stage])

        return law

    def _continuous_law(self, latent, start, substeps):
        """The vector field with theta from a call of D for each evaluation."""

        def law(t, x):
            layers = self.parameters_at(latent, start + t.double() / substeps)
            return self._field(x, *_weights_and_biases(self._scaled(layers, 1 / substeps)))

        return law

    def _scaled(self, layers, factor=1.0):
        """Layers of f with the scale of f folded into the last one."""
        return [*layers[:-1], layers[-1] * (factor * self.increments)]

    def _field(self, x, weights, biases):
        activation = _ACTIVATIONS[self.activation]
        affine = torch.addmm if x.ndim == 2 else torch.baddbmm
        for weight, bias in zip(weights[:-1], biases[:-1]):
            x = activation(affine(bias, x, weight))
        return affine(biases[-1], x, weights[-1])


def _weights_and_biases(layers):
    return [layer[..., :-1, :] for layer in layers], [layer[..., -1:, :] for layer in layers]


class KoNODENet(SeededNet):
    """SeededNet whose loss is the mean squared error of the forecasts of a batch of windows."""

    def infer(self, x, **fit_params):
        module = self.module_
        if module.initial_latent == "random" and module.training:
            noise = torch.randn(
                len(x["windows"]), len(module.latent), generator=self.generator_
            ).to(self.device)
            fit_params["noise"] = RANDOM_LATENT_STD * noise
        return super().infer(x, **fit_params)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        first = self.module_.context_length
        targets = X["windows"][:, first : first + y_pred.shape[1]]
        return nn.functional.mse_loss(y_pred, targets)


class Curriculum(Callback):
    """Train on a horizon that doubles over the first half of the epochs, up to the full one.

    Parameters
    ----------
    max_epochs : int
        Number of epochs planned.
    """

    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def on_epoch_begin(self, net, **kwargs):
        module = net.module_
        module.training_horizon = self.horizon_at(len(net.history) - 1, module.horizon)

    def horizon_at(self, epoch, horizon):
        """Steps that are trained on in an epoch: 10, 20, 40, ... and `horizon` from half-time."""
        n_stages = max(0, math.ceil(math.log2(horizon / _FIRST_HORIZON)))
        stage = int(2 * epoch * n_stages / self.max_epochs)
        return min(horizon, _FIRST_HORIZON * 2**stage)


class KeepBestForecaster(KeepBest):
    """End training with the parameters of the epoch of least loss over the full horizon.

    The loss is that of the validation windows, or of the training ones where there are none;
    of these, over the longest horizon that training reached. A loss that is not finite ends
    training.
    """

    def on_epoch_end(self, net, **kwargs):
        super().on_epoch_end(net, **kwargs)
        if not math.isfinite(net.history[-1, "train_loss"]):
            raise StopTraining

    def rank(self, net):
        losses, module = net.history[-1], net.module_
        if "valid_loss" in losses:
            return (-module.horizon, losses["valid_loss"])
        return (-module.training_horizon, losses["train_loss"])
