"""Data and small settings that the tests of DSVC share."""

import numpy as np

from skicml.datasets import make_multiview_blobs

TINY = {"pretrain_epochs": 2, "max_epochs": 2, "n_init": 2, "random_state": 0}
WIDTHS = [6, 4, 5]


def three_views():
    """Ninety samples of three clusters, in three views."""
    return make_multiview_blobs(90, views=WIDTHS, random_state=0)


def blocks_of(X, widths):
    return np.split(X, np.cumsum(widths)[:-1], axis=1)
