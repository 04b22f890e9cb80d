"""Rows in, rows out: the sampling loop and single predictions on arrays, in chunks."""

from functools import partial

import numpy as np
import torch

from skicml.generative._base import as_condition
from skicml.generative._samplers_torch import FixedEntries, Noise, sample_loop

# Rows of one call of the network.
_CHUNK = 4096


class Rows:
    """Arrays of rows of numbers as the tensors that a denoiser takes, and back.

    Parameters
    ----------
    net : Denoiser
        Gives the device.
    shape : tuple of int
        Shape of a row as the network takes it.
    """

    def __init__(self, net, shape):
        self.device = net.alpha.device
        self.shape = shape

    def tensor(self, array):
        """float32 tensor of shape (n_rows, *shape) of an array (n_rows, n_features)."""
        return torch.as_tensor(array, device=self.device).float().reshape(-1, *self.shape)

    def mask(self, array):
        """The same for booleans."""
        return torch.as_tensor(array, device=self.device).reshape(-1, *self.shape)

    def condition(self, condition, rows):
        """Keyword arguments for the network of some rows of a condition."""
        if condition is None:
            return {}
        return as_condition(torch.as_tensor(condition[rows]).to(self.device))

    def array(self, tensor):
        """Array (n_rows, n_features) of a tensor."""
        return tensor.flatten(1).cpu().numpy()


def draw_rows(
    net,
    predict,
    start,
    shape,
    generator,
    *,
    timesteps,
    condition=None,
    known=None,
    is_known=None,
    clip=None,
    keep_all=False,
    **loop,
):
    """Sample rows.

    Parameters
    ----------
    net : Denoiser
        The denoiser.
    predict : callable
        ``predict(net, x, t, cond=None, context=None) -> (x0, eps)``.
    start : ndarray of shape (n_rows, n_features)
        Noise to begin with.
    shape : tuple of int
        Shape of a row as the network takes it.
    generator : torch.Generator
        CPU generator of further noise.
    timesteps : ndarray of int
        Times to visit.
    condition : array or tensor or None, default=None
        Embedding or tokens of each row.
    known, is_known : ndarray of shape (n_rows, n_features) or None, default=None
        Values that are put in place, and where.
    clip : ndarray of shape (2, n_features) or None, default=None
        Range of the clean data.
    keep_all : bool, default=False
        Whether to return the points at all times.
    **loop : dict
        ``solver``, ``guidance``, ``hooks`` and ``n_resample`` of :func:`sample_loop`.

    Returns
    -------
    rows : ndarray of shape (n_rows, n_features) or (n_times, n_rows, n_features)
        In scaled units.
    """
    as_rows = Rows(net, shape)
    noise = Noise(generator)
    bounds = None if clip is None else tuple(as_rows.tensor(clip))
    steered = loop.get("guidance") or loop.get("hooks")
    parts = []
    with torch.no_grad() if steered else torch.inference_mode():
        for rows in _chunks(len(start)):
            fixed = None
            if known is not None:
                values, mask = as_rows.tensor(known[rows]), as_rows.mask(is_known[rows])
                fixed = FixedEntries(values, mask, net.schedule, noise)
            points = [] if keep_all else None
            last = sample_loop(
                partial(predict, net, **as_rows.condition(condition, rows)),
                as_rows.tensor(start[rows]),
                net.schedule,
                timesteps,
                noise=noise,
                clip=bounds,
                fixed=fixed,
                trajectory=points,
                **loop,
            )
            parts.append(np.stack([as_rows.array(x) for x in points or [last]]))
    drawn = np.concatenate(parts, axis=1)
    return drawn if keep_all else drawn[0]


def predict_rows(net, predict, x_t, shape, t, condition=None):
    """Data and noise that noisy rows are made of.

    Parameters
    ----------
    net, predict, shape, condition : object
        See :func:`draw_rows`.
    x_t : ndarray of shape (n_rows, n_features)
        Noisy rows in scaled units.
    t : int
        Their time.

    Returns
    -------
    x0, eps : ndarray of shape (n_rows, n_features)
        In scaled units.
    """
    as_rows = Rows(net, shape)
    parts = []
    with torch.inference_mode():
        for rows in _chunks(len(x_t)):
            given = as_rows.condition(condition, rows)
            both = predict(net, as_rows.tensor(x_t[rows]), t, **given)
            parts.append([as_rows.array(part) for part in both])
    x0, eps = (np.concatenate(part) for part in zip(*parts))
    return x0, eps


def given_embedding(condition, n_rows, embedding):
    """Embeddings or tokens that were given in place of y, checked.

    Parameters
    ----------
    condition : array-like or tensor
        Embeddings (n_rows, n_cond) or tokens (n_rows, n_tokens, e).
    n_rows : int
        Number of rows.
    embedding : ConditionEmbedding or None
        That of the denoiser; None where a network of the user alone knows the shape.

    Returns
    -------
    condition : tensor of float32
        As given.

    Raises
    ------
    ValueError
        If it has another shape, or is not finite.
    """
    if not isinstance(condition, torch.Tensor):
        condition = torch.as_tensor(np.array(condition, dtype=np.float32))
    shape = tuple(condition.shape)
    expected = (n_rows, *shape[1:])
    if embedding is not None:
        tokens = shape[1:2] if embedding.kind == "context" else ()
        expected = (n_rows, *tokens, len(embedding.null))
    if shape != expected:
        raise ValueError(f"condition must have shape {expected}, got {shape}.")
    if not torch.isfinite(condition).all():
        raise ValueError("condition contains NaN or infinity.")
    return condition.float()


def _chunks(n_rows):
    return [slice(first, first + _CHUNK) for first in range(0, n_rows, _CHUNK)]
