"""Which network an estimator means, and the shape of the rows that it takes."""

from math import gcd, prod

_N_HEADS = 4


def network_kind(estimator):
    """Name of the network of an estimator, or None for a callable."""
    if estimator.network == "auto":
        return "mlp" if estimator.image_shape is None else "transformer"
    return estimator.network if isinstance(estimator.network, str) else None


def row_shape(image_shape, n_features, kind):
    """Shape of a row as the network takes it.

    Parameters
    ----------
    image_shape : tuple of int or None
        (height, width) or (channels, height, width).
    n_features : int
        Number of columns.
    kind : str or None
        From :func:`network_kind`.

    Returns
    -------
    shape : tuple of int
        (n_features,) or (channels, height, width).

    Raises
    ------
    ValueError
        If the image has another number of pixels than there are columns, or the network
        needs images.
    """
    if image_shape is None:
        if kind in ("transformer", "unet"):
            raise ValueError(f'network="{kind}" needs image_shape.')
        return (n_features,)
    sides = tuple(int(side) for side in image_shape)
    shape = (1, *sides) if len(sides) == 2 else sides
    whole = sides == tuple(image_shape) and min(sides, default=0) > 0
    if not whole or len(shape) != 3 or prod(shape) != n_features:
        raise ValueError(
            "image_shape must be (height, width) or (channels, height, width) with as many "
            f"pixels as X has features, got {tuple(image_shape)} for {n_features} features."
        )
    return (n_features,) if kind == "mlp" else shape


def make_network(estimator, shape, n_cond, n_context):
    """Untrained network, from the parameters of an estimator.

    Parameters
    ----------
    estimator : estimator instance
        Has ``network``, ``hidden_dim``, ``n_layers``, ``image_shape`` and ``patch_size``.
    shape : tuple of int
        Shape of a row.
    n_cond, n_context : int
        Widths of the embedding of the condition and of the tokens of a context, or 0.

    Returns
    -------
    network : nn.Module
        The network.

    Raises
    ------
    TypeError
        If a network of the user is not a torch module.
    ValueError
        If the network does not take the condition.
    """
    from torch.nn import Module

    from skicml.generative._networks_torch import MLPDenoiser, TransformerDenoiser
    from skicml.generative._unets_torch import UNet2dDenoiser

    kind = network_kind(estimator)
    width, n_layers = estimator.hidden_dim, estimator.n_layers
    if n_context and kind in ("mlp", "unet"):
        raise ValueError(f'condition="context" needs network="transformer", got network="{kind}".')
    if kind == "mlp":
        return MLPDenoiser(shape[0], width, n_layers, n_cond=n_cond)
    if kind == "unet":
        return UNet2dDenoiser(shape, width // 4, n_cond=n_cond)
    if kind == "transformer":
        return TransformerDenoiser(
            shape,
            estimator.patch_size,
            width,
            n_layers,
            gcd(_N_HEADS, width),
            n_cond=n_cond,
            n_context=n_context,
        )
    widths = (n_cond, n_context) if n_context else (n_cond,)
    network = estimator.network(shape if len(shape) > 1 else shape[0], *widths)
    if not isinstance(network, Module):
        raise TypeError(f"network must return a torch module, got {type(network).__name__}.")
    return network
