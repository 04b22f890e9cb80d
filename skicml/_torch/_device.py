"""Choice of the device."""

import torch


def resolve_device(device):
    """Name of the torch device for the parameter `device` of an estimator.

    Parameters
    ----------
    device : {"cpu", "cuda", "auto"}
        "auto" takes CUDA where there is one.

    Returns
    -------
    device : str
        "cpu" or "cuda".

    Raises
    ------
    ValueError
        If "cuda" is asked for and there is none.
    """
    available = torch.cuda.is_available()
    if device == "auto":
        return "cuda" if available else "cpu"
    if device == "cuda" and not available:
        raise ValueError("device='cuda', but torch finds no CUDA device; use 'cpu' or 'auto'.")
    return device
