"""Parts of blocks in hierarchical refinement: where they start, their sizes, who belongs to them.

Soft parts are arrays of shape (n_batch, rank, n) with the probabilities of the parts of each
point, or of shape (n_batch, n) with that of the first one of two.
"""

import numpy as np

from skicml.transport._hiref_costs import centre

_NEWTON_STEPS = 12
_NEWTON_TOL = 1e-4  # of the share of a part
_FIRST_DAMPING = 1e-2  # of the Newton steps for several shares
TINY = 1e-30


def softmax(logits):
    """Over the parts."""
    P = np.exp(logits - logits.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    return P


def project_to_share(logits, bias, share):
    """Shift logits so that the mean probability of each block is `share`: exact for rank 2.

    Newton's method, kept within the bracket in which the root must lie.

    Parameters
    ----------
    logits : ndarray of shape (n_batch, n)
        Logits of the first of two parts.
    bias : ndarray of shape (n_batch,)
        First guess of the shift.
    share : float
        Wanted mean.

    Returns
    -------
    p : ndarray of shape (n_batch, n)
        Probabilities of the first part.
    bias : ndarray of shape (n_batch,)
        The shift.
    """
    target = np.log(share / (1 - share))
    low, high = target - logits.max(axis=1), target - logits.min(axis=1)
    bias = np.clip(bias, low, high).astype(logits.dtype)
    p = np.empty_like(logits)
    n = logits.shape[1]
    going = np.ones(len(logits), dtype=bool)
    for _ in range(_NEWTON_STEPS):
        np.add(logits, bias[:, None], out=p)
        p *= p.dtype.type(0.5)
        np.tanh(p, out=p)  # the logistic function is (1 + tanh(x / 2)) / 2
        total = p.sum(axis=1, dtype=p.dtype)
        squares = np.einsum("bn,bn->b", p, p)
        gap = (1 + total / n) / 2 - share
        going &= np.abs(gap) > _NEWTON_TOL * share
        if not going.any():
            break
        slope = (1 - squares / n) / 4
        low, high = np.where(gap < 0, bias, low), np.where(gap > 0, bias, high)
        with np.errstate(divide="ignore", invalid="ignore"):
            newton = bias - gap / slope
        inside = (newton > low) & (newton < high)
        bias = np.where(going, np.where(inside, newton, (low + high) / 2), bias)
    p += 1
    p *= p.dtype.type(0.5)
    return p, bias


def project_to_shares(logits, shares, weights, max_iter, tol):
    """Shift the logits of each part so that the mean probabilities are `shares`.

    The shifts maximise a concave function. Its Newton steps are damped towards the Sinkhorn
    step: more after a step that was no gain, which is undone, and less after one that was.

    Parameters
    ----------
    logits : ndarray of shape (n_batch, rank, n)
        Logits of the parts.
    shares : ndarray of shape (rank,)
        Wanted means.
    weights : ndarray of shape (n,)
        Weights of the points; they add up to 1.
    max_iter : int
        Largest number of steps.
    tol : float
        Relative error of the means at which a block is done.

    Returns
    -------
    P : ndarray of shape (n_batch, rank, n)
        The probabilities.
    logits : ndarray of shape (n_batch, rank, n)
        The shifted logits.
    """
    shift = trial = np.zeros(logits.shape[:2], logits.dtype)
    gap = np.zeros(logits.shape[:2])
    hessian = np.zeros((len(logits), len(shares), len(shares)))
    error, damping = np.full(len(logits), np.inf), np.full(len(logits), _FIRST_DAMPING)
    for _ in range(max_iter):
        P = softmax(logits + trial[:, :, None])
        means = P @ weights
        trial_error = np.abs(means / shares - 1).max(axis=1)
        gain = trial_error < error
        error, shift = np.where(gain, trial_error, error), np.where(gain[:, None], trial, shift)
        going = error > tol
        if not going.any():
            break
        gap[gain] = shares - means[gain]
        hessian[gain] = -(P[gain] * weights) @ P[gain].transpose(0, 2, 1)
        hessian[gain] += means[gain, :, None] * np.eye(len(shares))
        damping *= np.where(gain, 0.25, 8)
        damped = hessian + damping[:, None, None] * np.diag(shares)
        step = np.linalg.solve(damped, gap[:, :, None])[:, :, 0]
        trial = np.where(going[:, None], shift + step, shift).astype(logits.dtype)
    logits = logits + shift[:, :, None]
    return softmax(logits), logits


def principal_coordinates(X, Y, n_directions):
    """Coordinates along the leading eigenvectors of X^T X + Y^T Y, scaled to at most 1.

    Parameters
    ----------
    X, Y : ndarray of shape (n_batch, n, d)
        Blocks of the two samples; they are centred in place.
    n_directions : int
        Number of eigenvectors.

    Returns
    -------
    coordinates : list of (ndarray of shape (n_batch, n), ndarray of shape (n_batch, n))
        For each eigenvector the coordinates of the two sides, along the same direction.
    """
    X, Y = centre(X), centre(Y)
    scatter = sum(side.transpose(0, 2, 1) @ side / side.shape[1] for side in (X, Y))
    directions = np.linalg.eigh(scatter)[1]
    return [_scaled(X, Y, directions[:, :, -1 - i, None]) for i in range(n_directions)]


def _scaled(X, Y, direction):
    t_x, t_y = (X @ direction)[:, :, 0], (Y @ direction)[:, :, 0]
    largest = np.maximum(np.abs(t_x).max(axis=1), np.abs(t_y).max(axis=1))[:, None]
    largest = np.where(largest > TINY, largest, 1)
    return t_x / largest, t_y / largest


def slices(t, shares):
    """Logits of parts that follow each other along a line, with the wanted shares.

    Parameters
    ----------
    t : ndarray of shape (n_batch, n)
        Coordinates along the line, of which only the order counts.
    shares : ndarray of shape (rank,)
        Shares of the parts.

    Returns
    -------
    logits : ndarray of shape (n_batch, rank, n)
        Between the middles of two neighbouring parts of equal shares they differ by 1.
    """
    ranks = np.argsort(np.argsort(t, axis=1), axis=1)
    u = ((ranks + 0.5) / t.shape[1])[:, None]
    middles = (np.cumsum(shares) - shares / 2)[:, None]
    # minus half the squared distance to the middle, but for a constant of each point
    return (len(shares) ** 2 * (u * middles - middles**2 / 2)).astype(t.dtype)


def harden(P, sizes):
    """Give every point one part, so that the parts get their sizes: greedy, part after part.

    Parameters
    ----------
    P : ndarray of shape (n_batch, rank, n)
        Soft parts.
    sizes : ndarray of shape (rank,)
        Sizes of the parts; they add up to n.

    Returns
    -------
    order : ndarray of shape (n_batch, n)
        The points, part after part.
    """
    free = P.copy()
    order = []
    for part, size in enumerate(sizes):
        best = np.argpartition(-free[:, part], size - 1, axis=1)[:, :size]
        order.append(best)
        np.put_along_axis(free, best[:, None], -1, axis=2)
    return np.concatenate(order, axis=1)
