"""Where the factors start: from k-means of every view, or at random."""

import numpy as np
from sklearn.cluster import KMeans

from skicml.cluster._bacdl_updates import (
    Factors,
    unit_columns,
    unit_rows,
    update_embedding,
    update_rotations,
)
from skicml.metrics import match_labels

# Membership of a sample in the cluster that k-means gave it, the rest being spread evenly.
_CONFIDENCE = 0.8
# Diagonal of C.
_SHARED_DIAGONAL = 0.9
# Diagonal of both halves of D; each column sums to 1, the mass of a scaled sample.
_ASSOCIATION_DIAGONAL = 0.45
# Least entry of a cluster mean, relative to the average one: multiplication keeps zeros.
_LEAST_MEAN = 1e-3
_KMEANS_RESTARTS = 5
_CONSENSUS_ALTERNATIONS = 10


def initial_factors(blocks, n_samples, n_clusters, init, rng):
    """Strictly positive factors, and the consensus that fits them.

    Parameters
    ----------
    blocks : list of Block
        The observed data of each view.
    n_samples, n_clusters : int
        n and k.
    init : {"kmeans", "random"}
        The start.
    rng : RandomState instance
        Source of randomness.

    Returns
    -------
    factors : Factors
        All of them.
    """
    start = _kmeans_start if init == "kmeans" else _random_start
    dtype = blocks[0].data.dtype
    shared, guidance, specific, association, memberships = start(blocks, n_samples, n_clusters, rng)
    n_views = len(blocks)
    factors = Factors(
        shared=shared.astype(dtype),
        guidance=[matrix.astype(dtype) for matrix in guidance],
        specific=[matrix.astype(dtype) for matrix in specific],
        association=association.astype(dtype),
        memberships=[matrix.astype(dtype) for matrix in memberships],
        rotations=[np.eye(n_clusters, dtype=dtype) for _ in blocks],
        view_weights=np.full(n_views, 1 / n_views),
        consensus_weights=np.full(n_views, 1 / np.sqrt(n_views)),
    )
    for _ in range(_CONSENSUS_ALTERNATIONS):
        update_embedding(factors)
        update_rotations(factors)
    return factors


def _random_start(blocks, n_samples, n_clusters, rng):
    widths = [block.data.shape[1] for block in blocks]

    def positive(*shape):
        return np.maximum(rng.uniform(size=shape), _LEAST_MEAN)

    return (
        unit_columns(positive(n_clusters, n_clusters)),
        [unit_columns(positive(width, n_clusters)) for width in widths],
        [unit_columns(positive(width, n_clusters)) for width in widths],
        unit_columns(positive(2 * n_clusters, n_clusters)),
        [unit_rows(positive(n_samples, n_clusters)) for _ in blocks],
    )


def _kmeans_start(blocks, n_samples, n_clusters, rng):
    partitions = [_kmeans_partition(block, n_samples, n_clusters, rng) for block in blocks]
    partitions = match_partitions(partitions)
    guidance = [
        _cluster_means(block, partition[block.rows]) for block, partition in zip(blocks, partitions)
    ]
    specific = [
        unit_columns(matrix * rng.uniform(0.5, 1.5, size=matrix.shape)) for matrix in guidance
    ]
    rest = (1 - 2 * _ASSOCIATION_DIAGONAL) / (2 * n_clusters)
    half = _ASSOCIATION_DIAGONAL * np.eye(n_clusters) + rest
    return (
        _SHARED_DIAGONAL * np.eye(n_clusters) + (1 - _SHARED_DIAGONAL) / n_clusters,
        guidance,
        specific,
        np.vstack([half, half]),
        [soften(partition) for partition in partitions],
    )


def _kmeans_partition(block, n_samples, n_clusters, rng):
    """One-hot clusters of a view, of shape (n_samples, n_clusters); missing rows are zero."""
    kmeans = KMeans(n_clusters, n_init=_KMEANS_RESTARTS, random_state=rng)
    partition = np.zeros((n_samples, n_clusters))
    partition[block.rows] = np.eye(n_clusters)[kmeans.fit_predict(block.data)]
    return partition


def match_partitions(partitions):
    """Reorder the clusters of each view so that equal columns mean equal clusters.

    The view that agrees best with all others sets the order; the others are matched, those
    that agree with it most first, to the sum of the views matched before them.
    """
    agreement = np.array([[_agreement(left, right) for right in partitions] for left in partitions])
    reference = int(agreement.sum(axis=1).argmax())
    order = np.argsort(-agreement[reference], kind="stable")
    matched = list(partitions)
    total = partitions[reference].copy()
    for view in order[order != reference]:
        matched[view] = partitions[view][:, match_labels(total.T @ partitions[view])]
        total += matched[view]
    return matched


def _agreement(left, right):
    """Share of the samples seen in both views that the best matching puts together."""
    overlap = left.T @ right
    n_common = overlap.sum()
    if n_common == 0:
        return 0.0
    columns = match_labels(overlap)
    return overlap[np.arange(len(columns)), columns].sum() / n_common


def _cluster_means(block, partition):
    """Means of the clusters as columns that sum to 1, strictly positive."""
    means = block.data.T @ (partition / np.maximum(partition.sum(axis=0), 1))
    return unit_columns(np.maximum(means, _LEAST_MEAN * means.mean()))


def soften(partition):
    """Strictly positive memberships from one-hot clusters; rows of zeros become even."""
    n_clusters = partition.shape[1]
    seen = partition.any(axis=1, keepdims=True)
    confident = _CONFIDENCE * partition + (1 - _CONFIDENCE) / n_clusters
    return np.where(seen, confident, 1 / n_clusters)
