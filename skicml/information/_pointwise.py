"""The arithmetic of pointwise interactions: pure functions on arrays.

The last axis holds, in this order, redundancy r, uniqueness u1 and u2, synergy s; for the
pointwise mutual information, view 1, view 2 and both views together. All values are in nats.
"""

import numpy as np
from sklearn.utils import gen_batches

# Signs with which the mean adjustment enters r, u1, u2, s: no sum of the lattice changes.
_ADJUSTMENT_SIGNS = np.array([1.0, -1.0, -1.0, 1.0])
# Candidate labels times rows that are decomposed at once: bounds the memory.
_CHUNK = 2**18


def decompose(pointwise_mi, entropies):
    """Solve the redundancy lattice of every sample.

    Parameters
    ----------
    pointwise_mi : ndarray of shape (..., 3)
        i(x1;y), i(x2;y) and i(x1,x2;y).
    entropies : ndarray of shape (..., 2)
        Pointwise entropies h(x1) and h(x2); broadcast against `pointwise_mi`.

    Returns
    -------
    interactions : ndarray of shape (..., 4)
        r, u1, u2, s.
    """
    mi1, mi2, joint = np.moveaxis(pointwise_mi, -1, 0)
    # Each mutual information is h(x) - h(x|y), and both terms are monotone on the lattice:
    # r = min(h1, h2) - min(h1 - i1, h2 - i2). Only how far an entropy exceeds the smaller one
    # counts; two infinite ones, where both densities vanish, are equal.
    smaller = entropies.min(axis=-1, keepdims=True)
    excess = np.zeros(entropies.shape)
    np.subtract(entropies, smaller, out=excess, where=entropies != smaller)
    excess1, excess2 = np.moveaxis(excess, -1, 0)
    r = np.maximum(mi1 - excess1, mi2 - excess2)
    return np.stack([r, mi1 - r, mi2 - r, joint - mi1 - mi2 + r], axis=-1)


def mean_adjustment(interactions):
    """Constant c that makes the means of `interactions` a non-negative decomposition.

    Parameters
    ----------
    interactions : ndarray of shape (n_samples, 4)
        Interactions as :func:`decompose` gives them.

    Returns
    -------
    c : float
        Added to r and s and taken from u1 and u2, see :func:`adjust`.
    """
    r, u1, u2, s = interactions.mean(axis=0)
    if r < 0 or s < 0:
        return float(-min(r, s))
    return float(min(u1, u2, 0.0))


def adjust(interactions, c):
    """Shift the interactions by the constant of the mean adjustment."""
    return interactions + c * _ADJUSTMENT_SIGNS


def pointwise_information(log_proba, log_prior, codes):
    """i(x;y) = log p(y|x) - log p(y) at the labels of the samples.

    Parameters
    ----------
    log_proba : ndarray of shape (n_samples, 3, n_classes)
        log p(y|x1), log p(y|x2), log p(y|x1,x2) for every class.
    log_prior : ndarray of shape (n_classes,)
        Logarithm of the class frequencies.
    codes : ndarray of int of shape (n_samples,)
        Index of the class of every sample.

    Returns
    -------
    pointwise_mi : ndarray of shape (n_samples, 3)
        Mutual information of view 1, view 2 and both with the label.
    """
    at_label = np.take_along_axis(log_proba, codes[:, None, None], axis=2)[:, :, 0]
    return at_label - log_prior[codes][:, None]


def expected_interactions(log_proba, log_prior, entropies):
    """Interactions of samples without label: posterior mean over the classes.

    Parameters
    ----------
    log_proba : ndarray of shape (n_samples, 3, n_classes)
        log p(y|x1), log p(y|x2), log p(y|x1,x2) for every class.
    log_prior : ndarray of shape (n_classes,)
        Logarithm of the class frequencies.
    entropies : ndarray of shape (n_samples, 2)
        h(x1) and h(x2).

    Returns
    -------
    interactions : ndarray of shape (n_samples, 4)
        sum_y p(y|x1,x2) (r, u1, u2, s)(x, y).
    """
    n_samples, _, n_classes = log_proba.shape
    expected = np.empty((n_samples, 4))
    for rows in gen_batches(n_samples, max(1, _CHUNK // n_classes)):
        candidates = np.moveaxis(log_proba[rows] - log_prior, 1, 2)
        interactions = decompose(candidates, entropies[rows][:, None])
        posterior = np.exp(log_proba[rows][:, 2])
        np.einsum("nk,nki->ni", posterior, interactions, out=expected[rows])
    return expected
