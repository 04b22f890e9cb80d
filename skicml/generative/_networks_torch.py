"""Denoising networks for rows of numbers and for images as patches.

They follow the protocol ``network(x, t, cond=None, context=None)``.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TimeEmbedding(nn.Module):
    """Embedding of time, to which that of the condition is added.

    Parameters
    ----------
    dim : int
        Width e of the embedding.
    n_cond : int, default=0
        Width of the condition; 0 for none.
    """

    def __init__(self, dim, n_cond=0):
        super().__init__()
        frequencies = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
        self.register_buffer("frequencies", frequencies, persistent=False)
        n_waves = 2 * len(frequencies)
        self.layers = nn.Sequential(nn.Linear(n_waves, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.condition = nn.Linear(n_cond, dim) if n_cond else None

    def forward(self, t, cond=None):
        angles = t[:, None].to(self.frequencies.dtype) * self.frequencies
        embedding = self.layers(torch.cat([angles.sin(), angles.cos()], dim=1))
        if self.condition is not None and cond is not None:
            embedding = embedding + self.condition(cond)
        return F.silu(embedding)


class FeedForward(nn.Module):
    """Two linear layers with a GELU in between.

    Parameters
    ----------
    dim, hidden_dim : int
        Widths outside and inside.
    """

    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden_dim)
        self.fc2 = nn.Linear(hidden_dim, dim)

    def forward(self, h):
        return self.fc2(F.gelu(self.fc1(h), approximate="tanh"))


def _zero(layer):
    """The linear or convolution layer with weights and biases set to zero."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class MLPBlock(nn.Module):
    """Residual block h + (1 + g) FFN((1 + a) LN(h) + b); a, b and g come from the embedding.

    Parameters
    ----------
    dim : int
        Width of h.
    embedding_dim : int
        Width of the embedding.
    expansion : float
        Hidden width of the feed-forward network over `dim`.
    """

    def __init__(self, dim, embedding_dim, expansion):
        super().__init__()
        self.norm2 = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, int(expansion * dim))
        self.modulation = _zero(nn.Linear(embedding_dim, 3 * dim))

    def forward(self, h, embedding):
        a, b, g = self.modulation(embedding).chunk(3, dim=1)
        return h + (1 + g) * self.ffn((1 + a) * self.norm2(h) + b)


class MLPDenoiser(nn.Module):
    """Residual multilayer perceptron whose blocks time and condition modulate.

    Parameters
    ----------
    n_features : int
        Width of a row.
    hidden_dim : int, default=128
        Width of the blocks and of the embedding.
    n_layers : int, default=4
        Number of blocks.
    expansion : float, default=2
        Hidden width of the blocks over `hidden_dim`.
    n_cond : int, default=0
        Width of the condition.
    n_outputs : int or None, default=None
        Width of the output; None means `n_features`. A classifier of noisy rows has as many
        outputs as classes.
    """

    def __init__(
        self, n_features, hidden_dim=128, n_layers=4, expansion=2, n_cond=0, n_outputs=None
    ):
        super().__init__()
        self.embedding = TimeEmbedding(hidden_dim, n_cond)
        self.input_layer = nn.Linear(n_features, hidden_dim)
        self.blocks = nn.ModuleList(
            MLPBlock(hidden_dim, hidden_dim, expansion) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(hidden_dim)
        self.output_layer = _zero(nn.Linear(hidden_dim, n_outputs or n_features))

    def forward(self, x, t, cond=None, context=None):
        """Prediction at the rows of x (n_samples, n_features)."""
        embedding = self.embedding(t, cond)
        h = self.input_layer(x)
        for block in self.blocks:
            h = block(h, embedding)
        return self.output_layer(self.norm(h))


class Attention(nn.Module):
    """Multi-head attention of tokens to themselves or to a context.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    n_heads : int
        Number of heads, a divisor of `dim`.
    n_context : int or None, default=None
        Width of the context's tokens; None attends to the tokens themselves.
    """

    def __init__(self, dim, n_heads, n_context=None):
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(dim, dim)
        self.key_value = nn.Linear(n_context or dim, 2 * dim)
        self.output = nn.Linear(dim, dim)

    def forward(self, h, context=None):
        query = self._heads(self.query(h))
        key, value = self.key_value(h if context is None else context).chunk(2, dim=-1)
        mixed = F.scaled_dot_product_attention(query, self._heads(key), self._heads(value))
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _heads(self, tokens):
        return tokens.unflatten(2, (self.n_heads, -1)).transpose(1, 2)


class TransformerBlock(nn.Module):
    """Pre-norm block of attention and feed-forward network that the embedding modulates.

    Parameters
    ----------
    dim : int
        Width of the tokens and of the embedding.
    n_heads : int
        Number of heads.
    n_context : int, default=0
        Width of the context's tokens; 0 leaves cross-attention out.
    """

    def __init__(self, dim, n_heads, n_context=0):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attention = Attention(dim, n_heads)
        self.norm_context = nn.LayerNorm(dim) if n_context else None
        self.cross_attention = Attention(dim, n_heads, n_context) if n_context else None
        if n_context:
            _zero(self.cross_attention.output)
        self.norm2 = nn.LayerNorm(dim)
        self.ffn = FeedForward(dim, 4 * dim)
        self.modulation = _zero(nn.Linear(dim, 6 * dim))

    def forward(self, h, embedding, context=None):
        a1, b1, g1, a2, b2, g2 = self.modulation(embedding)[:, None].chunk(6, dim=2)
        h = h + (1 + g1) * self.attention((1 + a1) * self.norm1(h) + b1)
        if self.cross_attention is not None and context is not None:
            h = h + self.cross_attention(self.norm_context(h), context)
        return h + (1 + g2) * self.ffn((1 + a2) * self.norm2(h) + b2)


class TransformerDenoiser(nn.Module):
    """Transformer over the patches of an image, modulated by time and condition (DiT).

    Parameters
    ----------
    image_shape : tuple of int
        (channels, height, width).
    patch_size : int, default=2
        Side of the square patches, a divisor of height and width.
    hidden_dim : int, default=96
        Width of the tokens.
    n_layers : int, default=4
        Number of blocks.
    n_heads : int, default=4
        Number of heads, a divisor of `hidden_dim`.
    n_cond : int, default=0
        Width of the condition.
    n_context : int, default=0
        Width of the tokens of a context; 0 leaves cross-attention out.
    """

    def __init__(
        self, image_shape, patch_size=2, hidden_dim=96, n_layers=4, n_heads=4, n_cond=0, n_context=0
    ):
        super().__init__()
        n_channels, height, width = image_shape
        if height % patch_size or width % patch_size:
            raise ValueError(
                f"patch_size={patch_size} must divide height and width of images of shape "
                f"{image_shape}."
            )
        self.patch_size = patch_size
        self.grid = (height // patch_size, width // patch_size)
        n_pixels = n_channels * patch_size**2
        self.embedding = TimeEmbedding(hidden_dim, n_cond)
        self.input_layer = nn.Linear(n_pixels, hidden_dim)
        n_tokens = self.grid[0] * self.grid[1]
        self.positions = nn.Parameter(0.02 * torch.randn(n_tokens, hidden_dim))
        self.blocks = nn.ModuleList(
            TransformerBlock(hidden_dim, n_heads, n_context) for _ in range(n_layers)
        )
        self.norm = nn.LayerNorm(hidden_dim)
        self.output_modulation = _zero(nn.Linear(hidden_dim, 2 * hidden_dim))
        self.output_layer = _zero(nn.Linear(hidden_dim, n_pixels))

    def forward(self, x, t, cond=None, context=None):
        """Prediction at the images x (n_samples, channels, height, width)."""
        embedding = self.embedding(t, cond)
        h = self.input_layer(self.patchify(x)) + self.positions
        for block in self.blocks:
            h = block(h, embedding, context)
        a, b = self.output_modulation(embedding)[:, None].chunk(2, dim=2)
        return self.unpatchify(self.output_layer((1 + a) * self.norm(h) + b))

    def patchify(self, x):
        """Images as tokens of shape (n_samples, n_tokens, channels * patch_size^2)."""
        p = self.patch_size
        x = x.unflatten(3, (-1, p)).unflatten(2, (-1, p))  # n, c, rows, p, columns, p
        return x.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def unpatchify(self, tokens):
        """Images from tokens, the inverse of :meth:`patchify`."""
        p = self.patch_size
        x = tokens.unflatten(2, (-1, p, p)).unflatten(1, self.grid)
        return x.permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
