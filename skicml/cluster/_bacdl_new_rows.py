"""Embed rows that were not there in fit, with all that fit learnt held fixed."""

import numpy as np
from sklearn.metrics import pairwise_distances_argmin

from skicml.cluster._bacdl_init import soften
from skicml.cluster._bacdl_updates import (
    Moments,
    consensus_pull,
    data_terms,
    membership_step,
    rotated_memberships,
)

# A fixed number of sweeps keeps the rows independent of each other.
_SWEEPS = 30


def membership_centers(blocks, memberships):
    """Mean of the observed rows of each view, weighted by each cluster's memberships.

    Parameters
    ----------
    blocks : list of Block
        The observed data of each view.
    memberships : list of ndarray of shape (n, k)
        E_r of the rows of fit.

    Returns
    -------
    centers : list of ndarray of shape (k, d_r)
        One row a cluster.
    """
    centers = []
    for block, E in zip(blocks, memberships):
        mass = E[block.rows].sum(axis=0)
        centers.append((Moments.of(block, E).cross / mass).T)
    return centers


def embed_rows(factors, centers, blocks, n_rows, beta):
    """Rows of the common embedding.

    Parameters
    ----------
    factors : Factors
        Of the fit; its memberships and embedding are not used.
    centers : list of ndarray of shape (k, d_r)
        Where the clusters are in each view, from :func:`membership_centers`.
    blocks : list of Block
        The observed data of each view in the new rows.
    n_rows : int
        Number of new rows.
    beta : float
        Strength of the consensus, as in fit.

    Returns
    -------
    embedding : ndarray of shape (n_rows, k)
        e = (sum_r b_r E_r F_r) T with the memberships E_r of the new rows.
    """
    terms = [data_terms(factors, block, view) for view, block in enumerate(blocks)]
    memberships = [_nearest(block, center, n_rows) for block, center in zip(blocks, centers)]
    for _ in range(_SWEEPS):
        embedding = rotated_memberships(factors, memberships) @ factors.whitening
        memberships = [
            membership_step(E, consensus_pull(factors, embedding, view, beta), block.rows, *term)
            for view, (E, block, term) in enumerate(zip(memberships, blocks, terms))
        ]
    return rotated_memberships(factors, memberships) @ factors.whitening


def _nearest(block, centers, n_rows):
    """Memberships of the nearest centre, softened as in the start of fit; even without data."""
    partition = np.zeros((n_rows, len(centers)), dtype=centers.dtype)
    if len(block.data):
        nearest = pairwise_distances_argmin(block.data, centers)
        partition[block.rows] = np.eye(len(centers), dtype=centers.dtype)[nearest]
    return soften(partition)
