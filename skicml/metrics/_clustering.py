"""Compare clusterings through the best one-to-one matching of their clusters."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils.validation import check_consistent_length, column_or_1d


def match_labels(overlap: ArrayLike) -> np.ndarray:
    """One-to-one matching of clusters with the largest total overlap (Hungarian method).

    Parameters
    ----------
    overlap : array-like of shape (n_reference, n_clusters)
        How much mass reference cluster i and cluster j share, e.g. ``R.T @ Q`` of two
        partitions R and Q, hard or soft. ``n_reference >= n_clusters`` is needed for every
        cluster to find a partner.

    Returns
    -------
    columns : ndarray of int of shape (min(n_reference, n_clusters),)
        For each matched reference cluster in increasing order, its partner: where the matrix
        is square, ``Q[:, columns]`` has its clusters in the order of R.

    Examples
    --------
    >>> from skicml.metrics import match_labels
    >>> match_labels([[0, 5], [4, 1]])
    array([1, 0])
    """
    return linear_sum_assignment(np.asarray(overlap), maximize=True)[1]


def clustering_accuracy_score(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of samples whose cluster is the one matched to their class.

    The clusters are matched to the classes one to one so that the share is largest; clusters
    beyond the number of classes count as errors.

    Parameters
    ----------
    labels_true : array-like of shape (n_samples,)
        Class of each sample.
    labels_pred : array-like of shape (n_samples,)
        Cluster of each sample. Names and order of the clusters do not matter.

    Returns
    -------
    accuracy : float
        Between 0 and 1; 1 for the same partition.

    Raises
    ------
    ValueError
        If the lengths differ or an array is empty.

    Notes
    -----
    Time O(n_samples + k^3) for k the larger number of groups.

    Examples
    --------
    >>> from skicml.metrics import clustering_accuracy_score
    >>> clustering_accuracy_score([0, 0, 1, 1], ["b", "b", "a", "b"])
    0.75
    """
    labels_true = column_or_1d(labels_true)
    labels_pred = column_or_1d(labels_pred)
    check_consistent_length(labels_true, labels_pred)
    if labels_true.size == 0:
        raise ValueError("labels_true and labels_pred are empty.")
    table = contingency_matrix(labels_true, labels_pred)
    matched = linear_sum_assignment(table, maximize=True)
    return float(table[matched].sum() / labels_true.size)
