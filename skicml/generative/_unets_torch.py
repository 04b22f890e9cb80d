"""U-Nets for sequences and images.

They follow the protocol ``network(x, t, cond=None, context=None)``.
"""

from itertools import pairwise
from math import gcd

import torch
from torch import nn
from torch.nn import functional as F

from skicml.generative._networks_torch import TimeEmbedding, _zero


class ResidualBlock(nn.Module):
    """Two convolutions with group norms, modulated by the embedding (FiLM).

    Parameters
    ----------
    conv : type
        nn.Conv1d or nn.Conv2d.
    n_inputs, n_outputs : int
        Channels.
    embedding_dim : int
        Width of the embedding.
    """

    def __init__(self, conv, n_inputs, n_outputs, embedding_dim):
        super().__init__()
        self.norm1 = _group_norm(n_inputs)
        self.conv1 = conv(n_inputs, n_outputs, 3, padding=1)
        self.modulation = _zero(nn.Linear(embedding_dim, 2 * n_outputs))
        self.norm2 = _group_norm(n_outputs)
        self.conv2 = _zero(conv(n_outputs, n_outputs, 3, padding=1))
        self.shortcut = nn.Identity() if n_inputs == n_outputs else conv(n_inputs, n_outputs, 1)

    def forward(self, x, embedding):
        h = self.conv1(F.silu(self.norm1(x)))
        film = self.modulation(embedding)
        scale, shift = film.view(*film.shape, *[1] * (x.ndim - 2)).chunk(2, dim=1)
        h = (1 + scale) * self.norm2(h) + shift
        return self.shortcut(x) + self.conv2(F.silu(h))


def _group_norm(n_channels):
    return nn.GroupNorm(gcd(8, n_channels), n_channels)


class _UNetDenoiser(nn.Module):
    """U-Net of residual blocks; each level but the first halves the size.

    Parameters
    ----------
    conv : type
        nn.Conv1d or nn.Conv2d.
    shape : tuple of int
        (channels, length) or (channels, height, width).
    base_channels : int
        Channels of the first level; the others have twice as many.
    n_levels : int or None
        Number of levels; None means 3, or 2 where a side is shorter than 16.
    n_cond : int
        Width of the condition.
    """

    def __init__(self, conv, shape, base_channels, n_levels, n_cond):
        super().__init__()
        n_channels, *sides = shape
        if n_levels is None:
            n_levels = 3 if min(sides) >= 16 else 2
        dim = 4 * base_channels
        widths = [base_channels] + [2 * base_channels] * (n_levels - 1)
        self.embedding = TimeEmbedding(dim, n_cond)
        self.input_layer = conv(n_channels, base_channels, 3, padding=1)
        self.down = nn.ModuleList()
        self.shrink = nn.ModuleList()
        for width, wider in pairwise(widths):
            self.down.append(ResidualBlock(conv, width, width, dim))
            self.shrink.append(conv(width, wider, 3, stride=2, padding=1))
        self.middle = nn.ModuleList(
            ResidualBlock(conv, widths[-1], widths[-1], dim) for _ in range(2)
        )
        self.up = nn.ModuleList()
        for wider, width in pairwise(reversed(widths)):
            self.up.append(ResidualBlock(conv, wider + width, width, dim))
        self.norm = _group_norm(base_channels)
        self.output_layer = _zero(conv(base_channels, n_channels, 3, padding=1))

    def forward(self, x, t, cond=None, context=None):
        """Prediction at x of shape (n_samples, channels, ...)."""
        embedding = self.embedding(t, cond)
        h = self.input_layer(x)
        skips = []
        for block, shrink in zip(self.down, self.shrink):
            h = block(h, embedding)
            skips.append(h)
            h = shrink(h)
        for block in self.middle:
            h = block(h, embedding)
        for block in self.up:
            skip = skips.pop()
            h = F.interpolate(h, size=skip.shape[2:], mode="nearest")
            h = block(torch.cat([h, skip], dim=1), embedding)
        return self.output_layer(F.silu(self.norm(h)))


class UNet1dDenoiser(_UNetDenoiser):
    """U-Net over time for sequences of shape (channels, length).

    Parameters
    ----------
    shape : tuple of int
        (channels, length).
    base_channels : int, default=32
        Channels of the first level; the others have twice as many.
    n_levels : int or None, default=None
        Number of levels; None means 3, or 2 for lengths under 16.
    n_cond : int, default=0
        Width of the condition.
    """

    def __init__(self, shape, base_channels=32, n_levels=None, n_cond=0):
        super().__init__(nn.Conv1d, shape, base_channels, n_levels, n_cond)


class UNet2dDenoiser(_UNetDenoiser):
    """U-Net for images of shape (channels, height, width).

    Parameters
    ----------
    shape : tuple of int
        (channels, height, width).
    base_channels : int, default=32
        Channels of the first level; the others have twice as many.
    n_levels : int or None, default=None
        Number of levels; None means 3, or 2 where a side is shorter than 16.
    n_cond : int, default=0
        Width of the condition.
    """

    def __init__(self, shape, base_channels=32, n_levels=None, n_cond=0):
        super().__init__(nn.Conv2d, shape, base_channels, n_levels, n_cond)
