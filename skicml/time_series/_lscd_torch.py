"""The network of LSCD with its spectral condition; masks, losses and draws."""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from skicml.generative._samplers_torch import SharedNoise, sample_loop
from skicml.time_series._lomb_scargle import frequency_grid
from skicml.time_series._lomb_scargle_power import lomb_scargle_power

_WIDTH = 64  # of the hidden layer of every transformer layer, as published
_STEP_FREQUENCIES = 64  # of the embedding of the diffusion step
_STEP_RANGE = 4.0  # decades that these frequencies span
# Standardises log spectra, which lie between about -11 and 1.
_LOG_CENTER, _LOG_SCALE = -5.0, 5.0
_BATCH = 64  # rows a batch of the validation
_CLEAR = 0.5  # alpha_t^2 above which one step gives a reconstruction


class Condition(NamedTuple):
    """What the network knows of each series, projected once for all steps and draws.

    Attributes
    ----------
    values, known : tensor of shape (n_series, n_channels, n_timepoints)
        Known values, 0 elsewhere, and 1 where a value is known.
    start : tensor of shape (n_series, n_channels, n_timepoints, width) or None
        Side information of the input.
    sides : tuple of tensor of shape (n_series, n_channels, n_timepoints, 2 * width)
        Side information of each block.
    """

    values: torch.Tensor
    known: torch.Tensor
    start: torch.Tensor | None
    sides: tuple


def log_spectrum(values, known, times, frequencies):
    """Standardised log Lomb-Scargle spectrum of the known values alone.

    Parameters
    ----------
    values, known : tensor of shape (n_series, n_channels, n_timepoints)
        Values and their weights, 0 where unknown.
    times : tensor of shape (n_series, n_timepoints)
        Times of each series.
    frequencies : tensor of shape (n_frequencies,)
        Frequencies.

    Returns
    -------
    spectrum : tensor of shape (n_series, n_channels, n_frequencies)
        In the dtype of `values`.
    """
    n_channels = values.shape[1]
    power = lomb_scargle_power(
        times.repeat_interleave(n_channels, dim=0),  # in the order of flatten below
        values.flatten(0, 1),
        frequencies,
        known.flatten(0, 1),
        normalization="log",
        fap_weighting=True,
    )
    return (power.unflatten(0, (-1, n_channels)) - _LOG_CENTER) / _LOG_SCALE


def sinusoids(positions, n_dims):
    """Sines and cosines of positions / 10000^(2 i / n_dims), shape (*positions.shape, n_dims)."""
    exponents = torch.arange(0, n_dims, 2, device=positions.device) / n_dims
    angles = positions[..., None] / 10000.0**exponents
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def convolution(n_inputs, n_outputs):
    """1x1 convolution, the channels on the last axis, with He's initialisation."""
    layer = nn.Linear(n_inputs, n_outputs)
    nn.init.kaiming_normal_(layer.weight)
    return layer


def transformer(width, n_heads, n_layers=1):
    """Transformer encoder over axis 1 of tensors (n_rows, n_positions, width)."""
    layers = [
        nn.TransformerEncoderLayer(
            width, n_heads, _WIDTH, dropout=0.0, activation="gelu", batch_first=True
        )
        for _ in range(n_layers)
    ]
    return nn.Sequential(*layers)


def _over_time(layer, x):
    """A transformer along axis 2 of (n_series, n_channels, n_timepoints, width)."""
    return layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])


def _over_channels(layer, x):
    """The same along axis 1."""
    return _over_time(layer, x.transpose(1, 2)).transpose(1, 2)


class SpectralEncoder(nn.Module):
    """Spectra in the light of the other frequencies and channels, one plane out.

    Parameters
    ----------
    n_channels : int
        Channels of the series.
    width, n_heads, n_layers : int
        Sizes of the two transformers.
    """

    def __init__(self, n_channels, width, n_heads, n_layers):
        super().__init__()
        self.lift = nn.Linear(1, width)
        self.over_frequencies = transformer(width, n_heads, n_layers)
        self.over_channels = transformer(width, n_heads, n_layers) if n_channels > 1 else None
        self.project = nn.Linear(width, 1)

    def forward(self, spectrum):
        positions = torch.arange(spectrum.shape[-1], device=spectrum.device, dtype=spectrum.dtype)
        planes = self.lift(spectrum[..., None]) + sinusoids(positions, self.lift.out_features)
        planes = _over_time(self.over_frequencies, planes)
        if self.over_channels is not None:
            planes = _over_channels(self.over_channels, planes)
        return self.project(planes)


class StepEmbedding(nn.Module):
    """Embedding of the diffusion step t = 0, ..., n_steps."""

    def __init__(self, n_steps):
        super().__init__()
        exponents = torch.linspace(0, _STEP_RANGE, _STEP_FREQUENCIES, dtype=torch.float64)
        angles = torch.arange(n_steps + 1, dtype=torch.float64)[:, None] * 10.0**exponents
        table = torch.cat([angles.sin(), angles.cos()], dim=1).float()
        self.register_buffer("table", table, persistent=False)
        self.width = 2 * _STEP_FREQUENCIES
        self.layers = nn.Sequential(
            nn.Linear(self.width, self.width),
            nn.SiLU(),
            nn.Linear(self.width, self.width),
            nn.SiLU(),
        )

    def forward(self, t):
        return self.layers(self.table[t])


class ResidualBlock(nn.Module):
    """Attention over time and channels, then a gate that the side information opens.

    Parameters
    ----------
    n_channels : int
        Channels of the series; attention across them is left out for 1.
    width, n_heads : int
        Sizes of the transformer layers.
    n_side, n_step : int
        Planes of the side information and of the step embedding.
    """

    def __init__(self, n_channels, width, n_heads, n_side, n_step):
        super().__init__()
        self.step = nn.Linear(n_step, width)
        self.over_time = transformer(width, n_heads)
        self.over_channels = transformer(width, n_heads) if n_channels > 1 else None
        self.mix = convolution(width, 2 * width)
        self.side = convolution(n_side, 2 * width)
        self.out = convolution(width, 2 * width)

    def forward(self, x, step, side):
        y = x + self.step(step)[:, None, None]
        y = _over_time(self.over_time, y)
        if self.over_channels is not None:
            y = _over_channels(self.over_channels, y)
        gate, signal = _add_to_draws(self.mix(y), side).chunk(2, dim=-1)
        residual, skip = self.out(gate.sigmoid() * signal.tanh()).chunk(2, dim=-1)
        return (x + residual) / math.sqrt(2), skip


def _add_to_draws(x, condition):
    """Add to all draws of a series, rows r * n_draws + j of x, row r of a condition."""
    n_draws = len(x) // len(condition)
    return (x.unflatten(0, (-1, n_draws)) + condition[:, None]).flatten(0, 1)


class LSCDNetwork(nn.Module):
    """Noise of the unknown values, given the known ones and their spectrum.

    Parameters
    ----------
    n_channels, n_timepoints : int
        Shape of the series.
    n_steps : int
        Diffusion steps.
    spectral : bool
        Whether the spectrum is part of the side information.
    n_layers, width, n_heads : int
        Number of residual blocks, and their sizes.
    time_dim, channel_dim : int
        Sizes of the embeddings of times and channels.
    spectral_layers, spectral_width : int
        Sizes of the spectral encoder.
    early : bool
        Whether the side information enters the input, too.

    Attributes
    ----------
    frequencies : tensor of shape (n_timepoints,)
        Frequencies of the spectrum, in cycles per typical gap of the times.
    """

    def __init__(
        self,
        n_channels,
        n_timepoints,
        n_steps,
        *,
        spectral,
        n_layers,
        width,
        n_heads,
        time_dim,
        channel_dim,
        spectral_layers,
        spectral_width,
        early,
    ):
        super().__init__()
        frequencies = frequency_grid(np.arange(n_timepoints), n_timepoints)
        self.register_buffer("frequencies", torch.from_numpy(frequencies), persistent=False)
        self.n_batches = 0  # seen in training
        self.time_dim = time_dim
        self.channels = nn.Embedding(n_channels, channel_dim)
        self.encoder = None
        if spectral:
            self.encoder = SpectralEncoder(n_channels, spectral_width, n_heads, spectral_layers)
        n_side = time_dim + channel_dim + (3 if spectral else 1)
        self.step = StepEmbedding(n_steps)
        self.input = convolution(2, width)
        self.early = convolution(n_side, width) if early else None
        self.blocks = nn.ModuleList(
            ResidualBlock(n_channels, width, n_heads, n_side, self.step.width)
            for _ in range(n_layers)
        )
        self.output = nn.Sequential(convolution(width, width), nn.ReLU(), nn.Linear(width, 1))
        nn.init.zeros_(self.output[-1].weight)

    def condition(self, values, known, times):
        """Condition of series of which only some values are known.

        Parameters
        ----------
        values, known : tensor of shape (n_series, n_channels, n_timepoints)
            Values, and 1 where they are known. Others are not looked at.
        times : tensor of shape (n_series, n_timepoints)
            Times since the first one, in units of the typical gap.

        Returns
        -------
        condition : Condition
            What :meth:`forward` takes as ``cond``.
        """
        values = values * known
        side = self._side(values, known, times)
        start = None if self.early is None else self.early(side)
        return Condition(values, known, start, tuple(block.side(side) for block in self.blocks))

    def _side(self, values, known, times):
        """Side information of each cell, the published 147 planes."""
        shape = values.shape
        time_planes = sinusoids(times, self.time_dim)
        planes = [
            time_planes[:, None].expand(*shape, -1),
            self.channels.weight[None, :, None].expand(*shape, -1),
            known[..., None],
        ]
        if self.encoder is not None:
            # The spectrum is an extra channel: frequency j stands at time point j.
            spectrum = log_spectrum(values, known, times, self.frequencies)
            planes += [spectrum[..., None], self.encoder(spectrum)]
        return torch.cat(planes, dim=-1)

    def forward(self, x, t, cond, context=None):
        """Noise of x at steps t; `x` holds one or more draws of each series of `cond`."""
        n_draws = len(x) // len(cond.values)
        values = cond.values.repeat_interleave(n_draws, dim=0)
        known = cond.known.repeat_interleave(n_draws, dim=0)
        hidden = self.input(torch.stack([values, (1 - known) * x], dim=-1))
        if cond.start is not None:
            hidden = _add_to_draws(hidden, cond.start)
        hidden, step = hidden.relu(), self.step(t)
        skips = 0
        for block, side in zip(self.blocks, cond.sides):
            hidden, skip = block(hidden, step, side)
            skips = skips + skip
        return self.output(skips / math.sqrt(len(self.blocks)))[..., 0]


def draw_known(observed, generator, strategy):
    """Which of the observed values the network is shown; the others it must fill in.

    Parameters
    ----------
    observed : tensor of shape (n_series, n_channels, n_timepoints)
        1 where a value is observed.
    generator : torch.Generator
        CPU generator.
    strategy : {"random", "mix"}
        "random": a share of the observed values of each series, itself drawn between 0 and 1,
        is hidden. "mix": for about half of the series, instead what another series of the
        batch lacks.

    Returns
    -------
    known : tensor of shape (n_series, n_channels, n_timepoints)
        1 where a value is shown; never where none is observed.
    """
    flat = observed.flatten(1)
    n_hidden = torch.rand(len(flat), 1, generator=generator).to(flat) * flat.sum(1, keepdim=True)
    order = torch.rand(flat.shape, generator=generator).to(flat)
    ranks = (order - flat).argsort(dim=1).argsort(dim=1)  # the observed come first
    known = (flat * (ranks >= n_hidden.round())).view_as(observed)
    if strategy == "random":
        return known
    others = observed[torch.randperm(len(observed), generator=generator).to(observed.device)]
    from_other = torch.rand(len(observed), 1, 1, generator=generator).to(observed) < 0.5
    return torch.where(from_other, observed * others, known)


def consistency_loss(net, noised, output, condition, times, mode, generator):
    """Mean squared difference of the log spectra of known values and of their reconstruction.

    Parameters
    ----------
    net : Denoiser
        The denoiser around an :class:`LSCDNetwork`.
    noised : Noised
        The batch at its random steps.
    output : tensor
        What the network said of it.
    condition : Condition
        The condition.
    times : tensor of shape (n_series, n_timepoints)
        Times of each series.
    mode : {"chain", "one_step"}
        "chain" reconstructs by all steps of the reverse process; "one_step" from `output`, for
        the series with more signal than noise.
    generator : torch.Generator
        CPU generator.

    Returns
    -------
    loss : tensor of shape ()
        0 if no series has enough signal for "one_step".
    """
    if mode == "chain":
        rebuilt = _chain_reconstruction(net, condition, generator)
        clear = torch.ones(len(rebuilt), dtype=torch.bool, device=rebuilt.device)
    else:
        # The network is shown zeros in place of x_t at the known cells, so that is what its
        # output there is taken to start from.
        visible = noised._replace(x=noised.x * (1 - condition.known))
        rebuilt = net.split(output, visible)[0]
        clear = net.alpha[noised.t] ** 2 > _CLEAR
    if not clear.any():
        return output.sum() * 0.0
    known, frequencies = condition.known[clear], net.network.frequencies
    spectra = [
        log_spectrum(values[clear], known, times[clear], frequencies)
        for values in (condition.values, rebuilt)
    ]
    return (spectra[0] - spectra[1]).square().mean()


def _chain_reconstruction(net, condition, generator):
    """Series that the deterministic reverse process makes, the known cells included."""
    noise = torch.randn(condition.values.shape, generator=generator).to(condition.values)
    steps = net.schedule.timesteps(net.schedule.n_timesteps)
    start = noise * (1 - condition.known)
    return sample_loop(lambda x, t: net.predict(x, t, condition), start, net.schedule, steps)


def draw_windows(denoiser, rows, n_draws, seed):
    """Draws of whole windows, given their observed cells.

    Parameters
    ----------
    denoiser : Denoiser
        The trained denoiser.
    rows : dict of ndarray
        ``x0`` and ``observed`` of shape (n_windows, n_channels, width), and ``times``.
    n_draws : int
        Draws of each window.
    seed : int
        Seed of the noise, which all windows share.

    Returns
    -------
    draws : ndarray of shape (n_draws, n_windows, n_channels, width)
        In the units of ``x0``.
    """
    noise = SharedNoise(torch.Generator().manual_seed(seed), n_draws)
    schedule = denoiser.schedule
    with torch.inference_mode():
        x0, observed, times = _tensors(rows, denoiser)
        condition = denoiser.network.condition(x0, observed, times)
        draws = sample_loop(
            lambda x, t: denoiser.predict(x, t, condition),
            noise(x0.new_empty(n_draws * len(x0), *x0.shape[1:])),
            schedule,
            schedule.timesteps(schedule.n_timesteps),
            solver="ddpm",
            noise=noise,
        )
        return draws.unflatten(0, (len(x0), n_draws)).transpose(0, 1).double().cpu().numpy()


def loss_at(denoiser, rows, t, seed):
    """Loss at noise level t with a random half of the observed cells hidden, in batches."""
    generator = torch.Generator().manual_seed(seed)
    total = count = 0.0
    with torch.inference_mode():
        for x0, observed, times in zip(*(part.split(_BATCH) for part in _tensors(rows, denoiser))):
            half = torch.rand(observed.shape, generator=generator).to(observed) < 0.5
            known = observed * half
            steps = torch.full((len(x0),), t, device=x0.device)
            noise = torch.randn(x0.shape, generator=generator).to(x0)
            noised = denoiser.noise_to(x0, steps, noise)
            condition = denoiser.network.condition(x0, known, times)
            hidden = observed - known
            n_hidden = float(hidden.sum())
            output = denoiser(noised.x, steps, condition)
            total += n_hidden * float(denoiser.loss(output, noised, hidden))
            count += n_hidden
    return total / max(count, 1.0)


def _tensors(rows, denoiser):
    """x0, observed and times as tensors where the denoiser is."""
    device = denoiser.alpha.device
    return [torch.as_tensor(rows[name], device=device) for name in ("x0", "observed", "times")]
