"""Data that the tests of BACDL share."""

import numpy as np

from skicml.datasets import make_multiview_blobs, mask_views

VIEWS = [3, 4, 2]


def blobs(n_samples=120, rate=0.3, separation=4.0, seed=0, views=VIEWS, **kwargs):
    X, y = make_multiview_blobs(
        n_samples, views=views, separation=separation, random_state=seed, **kwargs
    )
    return mask_views(X, views, rate=rate, random_state=seed), y


def complement(block):
    """The default scaling, written once more."""
    low, high = np.nanmin(block, axis=0), np.nanmax(block, axis=0)
    unit = (block - low) / (high - low)
    return np.hstack([unit, 1 - unit]) / block.shape[1]


def split_blocks(X, views=VIEWS):
    return np.split(X, np.cumsum(views)[:-1], axis=1)


def scaled_views(X, views=VIEWS):
    """Scaled observed rows and their indices, from X alone."""
    for block in split_blocks(X, views):
        rows = np.flatnonzero(~np.isnan(block).any(axis=1))
        yield complement(block[rows]), rows
