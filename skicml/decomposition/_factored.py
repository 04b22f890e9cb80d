"""Arithmetic on matrices in factor form, X = L R^T, shared by the OPSA estimators."""

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.extmath import randomized_svd

# A singular value below this share of the largest one does not count for the rank.
RANK_TOLERANCE = 1e-3
# Added to the diagonal of the normal equations of a row, relative to its mean: a row with
# fewer observed cells than columns has no unique solution, and stays where it is not told to go.
_ROW_JITTER = 1e-10
# Rows are fitted in batches whose tables and normal equations have about this many entries.
_BATCH_CELLS = 2**20
# Up to this size the exact SVD is as fast as a randomized one.
_EXACT_SVD_SIZE = 200


def leading_svd(matrix, n_components, random_state):
    """Leading singular triplets (U, s, Vt), exact where the matrix is small."""
    if min(matrix.shape) <= max(_EXACT_SVD_SIZE, 2 * n_components):
        U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
        return U[:, :n_components], s[:n_components], Vt[:n_components]
    return randomized_svd(matrix, n_components, n_iter=4, random_state=random_state)


def spectral_factors(matrix, n_components, *, imbalance, random_state):
    """Factors of the best approximation of rank `n_components` of a matrix.

    Parameters
    ----------
    matrix : ndarray of shape (n, p)
        What to factorise.
    n_components : int
        Columns of the factors, d.
    imbalance : float
        The left factor is scaled by it, the right one by its inverse.
    random_state : RandomState instance
        For the randomized SVD of large matrices.

    Returns
    -------
    left : ndarray of shape (n, d)
        ``imbalance * U * sqrt(s)``.
    right : ndarray of shape (p, d)
        ``V * sqrt(s) / imbalance``.
    scale : float
        Largest singular value, or 1 for a matrix of zeros.
    """
    U, s, Vt = leading_svd(np.asarray(matrix, dtype=np.float64), n_components, random_state)
    root = np.sqrt(s)
    return imbalance * U * root, Vt.T * root / imbalance, float(s[0]) or 1.0


def preconditioned_gradients(subgradient_right, subgradient_left, left, right, damping):
    """Directions of the factors, and the squared norm that step sizes divide by.

    Both directions are from the same (old) factors:
    ``S R (R^T R + lam I)^-1`` for L and ``S^T L (L^T L + lam I)^-1`` for R.

    Parameters
    ----------
    subgradient_right : ndarray of shape (n, d)
        Gradient of the objective in L, ``S @ right`` for the loss alone.
    subgradient_left : ndarray of shape (p, d)
        Gradient of the objective in R, ``S.T @ left`` for the loss alone.
    left, right : ndarray of shape (n, d) and (p, d)
        The factors.
    damping : float
        Absolute damping, lam.

    Returns
    -------
    direction_left, direction_right : ndarray of shape (n, d) and (p, d)
        Preconditioned gradients.
    squared_norm : float
        Inner products of gradients and directions, summed over the two factors.
    """
    direction_left = _times_inverse_gram(subgradient_right, right, damping)
    direction_right = _times_inverse_gram(subgradient_left, left, damping)
    squared_norm = np.vdot(subgradient_right, direction_left) + np.vdot(
        subgradient_left, direction_right
    )
    return direction_left, direction_right, float(squared_norm)


def _times_inverse_gram(gradient, factor, damping):
    gram = factor.T @ factor
    gram.flat[:: len(gram) + 1] += damping
    return np.linalg.solve(gram, gradient.T).T


def factored_svd(left, right):
    """Singular value decomposition of ``left @ right.T`` from QR of the factors.

    Returns
    -------
    U, s, Vt : ndarray of shape (n, d), (d,) and (d, p)
        Time O((n + p) d^2): the product itself is never formed.
    """
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right)
    U, s, Vt = np.linalg.svd(r_left @ r_right.T)
    return q_left @ U, s, Vt @ q_right.T


def effective_rank(singular_values):
    """Number of singular values above 1e-3 of the largest one; 0 for zeros."""
    return int(np.count_nonzero(singular_values > RANK_TOLERANCE * singular_values[0]))


def trimmed_mean(values, n_kept):
    """Mean over all values of the sum of the `n_kept` smallest (the others count as 0)."""
    if n_kept == values.size:
        return float(values.mean())
    return float(np.partition(values, n_kept - 1)[:n_kept].sum() / values.size)


def l1_rows(table, observed, left, right, ridge, *, n_iter, floor):
    """Rows of `left` that minimise the l1 error of ``left @ right.T`` plus a ridge.

    Parameters
    ----------
    table : ndarray of shape (n, p)
        What to fit; any finite value where it is not observed.
    observed : ndarray of bool of shape (n, p) or None
        Cells that count; None means all.
    left, right : ndarray of shape (n, r) and (p, r)
        Starting rows, and the fixed factor.
    ridge : ndarray of shape (r,)
        Weight of ``left ** 2 / 2`` in each column.
    n_iter : int
        Number of reweightings.
    floor : float
        Absolute residuals below it count as this large.

    Returns
    -------
    left : ndarray of shape (n, r)
        The fitted rows. Time O(n_iter n p r^2), memory O(p r^2) beyond the result.
    """
    rank = right.shape[1]
    basis = right.astype(table.dtype)
    upper = np.triu_indices(rank)
    products = basis[:, upper[0]] * basis[:, upper[1]]
    fitted = np.empty((len(table), rank))
    for rows in gen_batches(len(table), max(1, _BATCH_CELLS // max(len(basis), rank**2))):
        fitted[rows] = _l1_batch(
            table[rows],
            None if observed is None else observed[rows],
            left[rows],
            basis,
            products,
            ridge,
            n_iter,
            floor,
        )
    return fitted


def _l1_batch(table, observed, left, basis, products, ridge, n_iter, floor):
    """Iteratively reweighted least squares in the form of increments, all rows at once.

    Row i moves along its subgradient, preconditioned with its own
    ``(R^T W_i R + diag(ridge))^-1``, where W_i are the inverse absolute residuals.
    """
    rank = basis.shape[1]
    rows, columns = np.triu_indices(rank)
    diagonal = np.arange(rank)
    normal = np.empty((len(table), rank, rank))
    for _ in range(n_iter):
        residual = table - left.astype(table.dtype) @ basis.T
        weights = 1 / np.maximum(np.abs(residual), floor)
        if observed is not None:
            weights *= observed
        normal[:, rows, columns] = normal[:, columns, rows] = weights @ products
        normal[:, diagonal, diagonal] += ridge
        jitter = _ROW_JITTER * np.trace(normal, axis1=1, axis2=2) / rank + np.finfo(float).tiny
        normal[:, diagonal, diagonal] += jitter[:, None]
        weights *= residual
        gradient = weights @ basis - ridge * left
        left = left + np.linalg.solve(normal, gradient[:, :, None])[:, :, 0]
    return left
