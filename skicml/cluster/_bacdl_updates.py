"""The nine update steps of one sweep, on arrays alone.

Shapes: n samples, k clusters, and for view r, d_r scaled features and n_r observed rows. The
letters in the comments are the paper's; there samples are columns, here they are rows.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh, svd

# Added to numerator and denominator of every ratio, and the least value of a factor:
# multiplication cannot bring an exact zero back.
TINY = 1e-12
# Ratio of extreme eigenvalues of M'M below which M is decomposed itself.
_ILL_CONDITIONED = 1e-7


@dataclass
class Block:
    """The part of a view that was observed.

    Attributes
    ----------
    data : ndarray of shape (n_r, d_r)
        Scaled features of the observed rows, X_r G_r transposed.
    rows : ndarray of int of shape (n_r,), or slice
        Which rows they are, O_r; a slice if all are.
    """

    data: np.ndarray
    rows: np.ndarray | slice

    def __post_init__(self):
        self.energy = float(np.vdot(self.data, self.data))


@dataclass
class Factors:
    """The unknowns; lists have one entry a view.

    Attributes
    ----------
    shared : ndarray of shape (k, k)
        C, feature clusters that all views share; columns sum to 1.
    guidance : list of ndarray of shape (d_r, k)
        P_r, lifts C to the features of a view; columns sum to 1.
    specific : list of ndarray of shape (d_r, k)
        C_r, feature clusters of one view; columns sum to 1.
    association : ndarray of shape (2 k, k)
        D, from feature clusters (shared ones first) to sample clusters.
    memberships : list of ndarray of shape (n, k)
        E_r, sample clusters seen from one view; rows sum to 1.
    rotations : list of ndarray of shape (k, k)
        F_r, orthogonal.
    view_weights, consensus_weights : ndarray of shape (n_views,)
        a (sum 1) and b (Euclidean norm 1), nonnegative.
    embedding : ndarray of shape (n, k)
        E, the common embedding, orthonormal columns.
    whitening : ndarray of shape (k, k)
        T with E = M T for M = sum_r b_r E_r F_r.
    """

    shared: np.ndarray
    guidance: list
    specific: list
    association: np.ndarray
    memberships: list
    rotations: list
    view_weights: np.ndarray
    consensus_weights: np.ndarray
    embedding: np.ndarray = None
    whitening: np.ndarray = None

    def shared_features(self, view):
        """P_r C of shape (d_r, k)."""
        return self.guidance[view] @ self.shared

    def feature_clusters(self, view):
        """L_r = [P_r C | C_r] of shape (d_r, 2 k)."""
        return np.hstack([self.shared_features(view), self.specific[view]])

    def basis(self, view):
        """A_r = L_r D of shape (d_r, k)."""
        return self.feature_clusters(view) @ self.association

    def association_halves(self):
        """D_g and D_p, each of shape (k, k)."""
        return np.vsplit(self.association, 2)

    def squared_weight(self, view):
        """a_r^2 as a Python float, which leaves float32 arrays as they are."""
        return float(self.view_weights[view]) ** 2


@dataclass
class Moments:
    """What steps 2 to 8 need to know of the memberships and the data of a view.

    Attributes
    ----------
    cross : ndarray of shape (d_r, k)
        Y_r = X_r E_r over the observed rows.
    gram : ndarray of shape (k, k)
        G_r = E_r' E_r over the observed rows.
    """

    cross: np.ndarray
    gram: np.ndarray

    @classmethod
    def of(cls, block, memberships):
        part = memberships[block.rows]
        return cls(block.data.T @ part, part.T @ part)


def sweep(factors, blocks, alienation, beta):
    """One sweep over all factors, in place, in the paper's order.

    Parameters
    ----------
    factors : Factors
        The current factors; changed in place.
    blocks : list of Block
        The observed data of each view.
    alienation, beta : float
        lambda and beta of the objective.

    Returns
    -------
    objective : float
        J after the sweep.
    """
    update_memberships(factors, blocks, beta)  # step 1
    moments = [Moments.of(block, E) for block, E in zip(blocks, factors.memberships)]
    update_shared(factors, moments, alienation)  # step 2
    update_specific(factors, moments, alienation)  # step 3
    update_association(factors, moments)  # step 4
    update_guidance(factors, moments, alienation)  # step 5
    update_embedding(factors)  # step 6
    update_rotations(factors)  # step 7
    residuals = squared_residuals(factors, blocks, moments)
    factors.view_weights = inverse_weights(residuals)  # step 8
    alignments = consensus_alignments(factors)
    factors.consensus_weights = unit_weights(alignments)  # step 9
    return objective(factors, residuals, alignments, alienation, beta)


def objective(factors, residuals, alignments, alienation, beta):
    """J, from the squared residuals and the alignments of the views."""
    overlap = sum(
        float(np.vdot(factors.shared_features(view), specific))
        for view, specific in enumerate(factors.specific)
    )
    reconstruction = float(factors.view_weights**2 @ residuals)
    consensus = float(factors.consensus_weights @ alignments)
    return reconstruction + alienation * overlap - beta * consensus


def update_memberships(factors, blocks, beta):
    """Step 1: E_r, all rows; those that were not observed follow the consensus alone."""
    for view, block in enumerate(blocks):
        factors.memberships[view] = membership_step(
            factors.memberships[view],
            consensus_pull(factors, factors.embedding, view, beta),
            block.rows,
            *data_terms(factors, block, view),
        )


def data_terms(factors, block, view):
    """a_r^2 X_r' A_r and a_r^2 A_r' A_r, the part of the gradient of E_r that the data gives."""
    basis = factors.basis(view)
    weight = factors.squared_weight(view)
    return weight * (block.data @ basis), weight * (basis.T @ basis)


def consensus_pull(factors, embedding, view, beta):
    """(beta / 2) b_r E F_r', the part of the gradient that draws E_r to the consensus."""
    strength = 0.5 * beta * float(factors.consensus_weights[view])
    return strength * (embedding @ factors.rotations[view].T)


def membership_step(memberships, pull, rows, projection, gram):
    """One multiplicative step of E_r.

    Parameters
    ----------
    memberships : ndarray of shape (n, k)
        E_r.
    pull : ndarray of shape (n, k)
        (beta / 2) b_r E F_r'.
    rows : ndarray of int of shape (n_r,), or slice
        Observed rows.
    projection : ndarray of shape (n_r, k)
        a_r^2 X_r' A_r, see :func:`data_terms`.
    gram : ndarray of shape (k, k)
        a_r^2 A_r' A_r.

    Returns
    -------
    memberships : ndarray of shape (n, k)
        The new E_r.
    """
    numerator, denominator = np.maximum(pull, 0), np.maximum(-pull, 0)
    numerator[rows] += projection
    denominator[rows] += memberships[rows] @ gram
    return unit_rows(multiplicative_step(memberships, numerator, denominator))


def update_shared(factors, moments, alienation):
    """Step 2: C."""
    D_g, _ = factors.association_halves()
    numerator = denominator = 0
    for view, (guidance, moment) in enumerate(zip(factors.guidance, moments)):
        weight = factors.squared_weight(view)
        fitted = factors.basis(view) @ moment.gram
        numerator = numerator + weight * (guidance.T @ moment.cross @ D_g.T)
        denominator = denominator + guidance.T @ (
            weight * (fitted @ D_g.T) + 0.5 * alienation * factors.specific[view]
        )
    factors.shared = unit_columns(multiplicative_step(factors.shared, numerator, denominator))


def update_specific(factors, moments, alienation):
    """Step 3: C_r."""
    _, D_p = factors.association_halves()
    for view, moment in enumerate(moments):
        weight = factors.squared_weight(view)
        numerator = weight * (moment.cross @ D_p.T)
        denominator = weight * (factors.basis(view) @ moment.gram @ D_p.T)
        denominator += 0.5 * alienation * factors.shared_features(view)
        factors.specific[view] = unit_columns(
            multiplicative_step(factors.specific[view], numerator, denominator)
        )


def update_association(factors, moments):
    """Step 4: D, which carries the scale and is not normalised."""
    numerator = denominator = 0
    for view, moment in enumerate(moments):
        weight = factors.squared_weight(view)
        clusters = factors.feature_clusters(view)
        numerator = numerator + weight * (clusters.T @ moment.cross)
        fitted = clusters.T @ clusters @ factors.association @ moment.gram
        denominator = denominator + weight * fitted
    factors.association = multiplicative_step(factors.association, numerator, denominator)


def update_guidance(factors, moments, alienation):
    """Step 5: P_r."""
    D_g, _ = factors.association_halves()
    lift = D_g.T @ factors.shared.T
    for view, moment in enumerate(moments):
        weight = factors.squared_weight(view)
        numerator = weight * (moment.cross @ lift)
        denominator = weight * (factors.basis(view) @ moment.gram @ lift)
        denominator += 0.5 * alienation * (factors.specific[view] @ factors.shared.T)
        factors.guidance[view] = unit_columns(
            multiplicative_step(factors.guidance[view], numerator, denominator)
        )


def update_embedding(factors):
    """Step 6: E, the orthonormal matrix closest to M = sum_r b_r E_r F_r."""
    factors.embedding, factors.whitening = orthonormal_factor(
        rotated_memberships(factors, factors.memberships)
    )


def update_rotations(factors):
    """Step 7: F_r, the rotation that brings E_r closest to E."""
    for view, memberships in enumerate(factors.memberships):
        U, _, Vt = svd(memberships.T @ factors.embedding)
        factors.rotations[view] = U @ Vt


def rotated_memberships(factors, memberships):
    """M = sum_r b_r E_r F_r of shape (n, k)."""
    return sum(
        float(weight) * (E @ F)
        for weight, E, F in zip(factors.consensus_weights, memberships, factors.rotations)
    )


def orthonormal_factor(M):
    """U V' of the thin SVD of M = U S V', and T = V S^-1 V' with U V' = M T.

    The decomposition of the k x k matrix M'M gives both in O(n k^2); it squares the condition
    of M, so a nearly singular M is decomposed itself.
    """
    eigenvalues, V = eigh(M.T.astype(np.float64) @ M)
    if eigenvalues[0] > _ILL_CONDITIONED * eigenvalues[-1]:
        whitening = (V / np.sqrt(eigenvalues)) @ V.T
        return M @ whitening.astype(M.dtype), whitening.astype(M.dtype)
    U, S, Vt = svd(M, full_matrices=False)
    zero = np.finfo(S.dtype).eps * S[0] * len(M)
    inverse = np.divide(1, S, out=np.zeros_like(S), where=zero < S)
    return U @ Vt, (Vt.T * inverse) @ Vt


def squared_residuals(factors, blocks, moments):
    """||X_r - E_r A_r'||^2 on the observed rows of every view, without forming the product."""
    residuals = []
    for view, (block, moment) in enumerate(zip(blocks, moments)):
        basis = factors.basis(view)
        explained = 2 * np.vdot(basis, moment.cross) - np.vdot(basis.T @ basis, moment.gram)
        # Rounding can leave an exact reconstruction with a residual below zero.
        floor = np.finfo(basis.dtype).eps * block.energy + TINY
        residuals.append(max(block.energy - float(explained), floor))
    return np.array(residuals)


def inverse_weights(residuals):
    """Step 8: a_r, inversely proportional to the residuals, sum 1."""
    inverse = residuals.min() / residuals
    return inverse / inverse.sum()


def consensus_alignments(factors):
    """Tr(E' E_r F_r) of every view."""
    return np.array(
        [
            float(np.vdot(factors.embedding.T @ memberships, rotation.T))
            for memberships, rotation in zip(factors.memberships, factors.rotations)
        ]
    )


def unit_weights(alignments):
    """Step 9: b_r, proportional to the alignments, Euclidean norm 1."""
    positive = np.maximum(alignments, TINY)
    return positive / np.linalg.norm(positive)


def multiplicative_step(factor, numerator, denominator):
    """Factor times the square root of a ratio, elementwise, and never exactly zero."""
    return np.maximum(factor * np.sqrt((numerator + TINY) / (denominator + TINY)), TINY)


def unit_rows(matrix):
    """Rows scaled to sum 1."""
    return matrix / matrix.sum(axis=1, keepdims=True)


def unit_columns(matrix):
    """Columns scaled to sum 1."""
    return matrix / matrix.sum(axis=0)
