"""Mirror descent on the factors of a low-rank coupling, for batches of blocks.

The cost is <C, Q diag(1/g) R^T>. A state is a tuple of arrays, one entry a block along the
first axis: the logits of the parts of the source, of the parts of the target, and perhaps of a
coupling between the parts. Costs are double centred.
"""

import numpy as np

from skicml.transport._hiref_parts import (
    TINY,
    harden,
    principal_coordinates,
    project_to_share,
    project_to_shares,
    slices,
)

_PCA_LOGIT = 2.0  # largest logit of a start along an eigenvector


class TwoParts:
    """Rank 2, by the logits of the first part: the projection has one unknown.

    Parameters
    ----------
    costs : FactoredCost or DenseCost
        The cost matrices.
    shares : ndarray of shape (2,)
        Shares g of the parts.
    gamma : float
        Length of the steps.
    """

    def __init__(self, costs, shares, gamma):
        self.costs, self.gamma = costs, gamma
        self.share, self.other = map(float, shares)  # numpy's would make float64 of all

    def along_axes(self, X, Y):
        """Starts along the two leading principal directions."""
        coordinates = principal_coordinates(X, Y, min(2, X.shape[2]))
        return [tuple(_PCA_LOGIT * t for t in both_sides) for both_sides in coordinates]

    def at_random(self, X, Y, seeds):
        """A random start."""
        logits = _random_logits(seeds, self.gamma, (2, X.shape[1]), (2, Y.shape[1]))
        return tuple((L[:, 0] - L[:, 1]).astype(X.dtype) for L in logits)

    def descend(self, state, n_steps):
        """Make some steps; return the new state, and the cost before the last one."""
        logits_x, logits_y = state
        bias_x, bias_y, cost = np.zeros((3, len(logits_x)))
        for _ in range(n_steps):
            p_x, bias_x = project_to_share(logits_x, bias_x, self.share)
            p_y, bias_y = project_to_share(logits_y, bias_y, self.share)
            # of the first part; as the cost is double centred, that of the second one is
            # -share / other times as much
            grad_x = self.costs.rows(p_y[:, None])[:, 0] / (self.share * p_y.shape[1])
            grad_y = self.costs.columns(p_x[:, None])[:, 0] / (self.share * p_x.shape[1])
            cost = np.einsum("bn,bn->b", p_x, grad_x)
            step = _step_length(self.gamma / max(1, self.share / self.other), grad_x, grad_y)
            logits_x = logits_x - step / self.other * grad_x
            logits_y = logits_y - step / self.other * grad_y
        return (logits_x, logits_y), cost

    def orders(self, state, sizes):
        """The points of each side, part after part, sorted by how clearly they belong there."""
        return tuple(np.argsort(-logits, axis=1) for logits in state)

    def soft_parts(self, state):
        """Probabilities of the parts, of shape (n_batch, 2, n) on either side."""
        first = (project_to_share(L, np.zeros(len(L)), self.share)[0] for L in state)
        return tuple(np.stack([p, 1 - p], axis=1) for p in first)


class ManyParts:
    """Any rank, by the logits of all parts.

    Parameters
    ----------
    costs : FactoredCost or DenseCost
        The cost matrices.
    shares : ndarray of shape (rank,)
        Shares g of the parts.
    gamma : float
        Length of the steps.
    inner_max_iter : int
        Largest number of iterations of a projection.
    inner_tol : float
        Relative error of the shares at which they stop.
    latent_seeds : sequence of int or None
        With one seed a block, a coupling T in Pi(g, g) between the parts is learned too; the
        cost is <C, Q diag(1/g) T diag(1/g) R^T> then.
    """

    def __init__(self, costs, shares, gamma, inner_max_iter, inner_tol, latent_seeds):
        self.costs, self.shares, self.gamma = costs, shares, gamma
        self.inner_max_iter, self.inner_tol = inner_max_iter, inner_tol
        self.latent_seeds = latent_seeds

    def along_axes(self, X, Y):
        """Starts along the two leading principal directions."""
        coordinates = principal_coordinates(X, Y, min(2, X.shape[2]))
        return [
            self._with_latent([slices(t, self.shares) for t in both_sides])
            for both_sides in coordinates
        ]

    def at_random(self, X, Y, seeds):
        """A random start, of full rank."""
        rank = len(self.shares)
        logits = _random_logits(seeds, self.gamma, (rank, X.shape[1]), (rank, Y.shape[1]))
        return self._with_latent([L.astype(X.dtype) for L in logits])

    def _with_latent(self, logits):
        if self.latent_seeds is None:
            return tuple(logits)
        (latent,) = _random_logits(self.latent_seeds, self.gamma, (len(self.shares),) * 2)
        return (*logits, latent.astype(logits[0].dtype))

    def descend(self, state, n_steps):
        """Make some steps; return the new state, and the cost before the last one."""
        logits_x, logits_y, *latent = state
        cost = np.zeros(len(logits_x))
        for _ in range(n_steps):
            Q, logits_x = self._factor(logits_x)
            R, logits_y = self._factor(logits_y)
            C_R, C_Q = self.costs.rows(R), self.costs.columns(Q)
            link, latent = self._link(latent)
            grad_x, grad_y = link @ C_R, np.swapaxes(link, -1, -2) @ C_Q
            cost = np.einsum("brn,brn->b", Q, grad_x)
            step = _step_length(self.gamma, grad_x, grad_y)[:, None]
            logits_x -= step * grad_x
            logits_y -= step * grad_y
            if latent:  # the gradient is diag(1/g) Q^T C R diag(1/g), here transposed
                grad = C_R @ Q.transpose(0, 2, 1) / np.outer(self.shares, self.shares)
                latent = [latent[0] - _step_length(self.gamma, grad)[:, None] * grad]
        return (logits_x, logits_y, *latent), cost

    def orders(self, state, sizes):
        """The points of each side, part after part."""
        return tuple(harden(P, sizes) for P in self.soft_parts(state))

    def soft_parts(self, state):
        """Probabilities of the parts, of shape (n_batch, rank, n) on either side."""
        logits_x, logits_y, *latent = state
        P_x = self._factor(logits_x)[0] * logits_x.shape[2]
        P_y = self._factor(logits_y)[0] * logits_y.shape[2]
        if latent:  # Q diag(1/g) T takes the place of Q
            P_x = self._project(latent[0], self.shares)[0] @ P_x
        return P_x, P_y

    def _factor(self, logits):
        """Q^T with its marginals, and its logits."""
        n = logits.shape[2]
        P, logits = self._project(logits, np.full(n, 1 / n, logits.dtype))
        return P / n, logits

    def _link(self, latent):
        """diag(1/g) T diag(1/g), or diag(1/g) without T; and the logits of T after projection.

        Logits of T have the parts of the target along their second axis.
        """
        if not latent:
            return np.diag(1 / self.shares), latent
        coupling, logits = self._project(latent[0], self.shares)  # T / g, transposed
        return coupling.transpose(0, 2, 1) / self.shares, [logits]

    def _project(self, logits, weights):
        return project_to_shares(logits, self.shares, weights, self.inner_max_iter, self.inner_tol)


def _random_logits(seeds, gamma, *shapes):
    """Logits -gamma U with U uniform, for each block from its own seed."""
    generators = [np.random.default_rng(seed) for seed in seeds]
    return [np.stack([-gamma * rng.random(shape) for rng in generators]) for shape in shapes]


def _step_length(gamma, *gradients):
    """gamma over the largest entry of the gradients of each block; 0 if that is 0."""
    axes = tuple(range(1, gradients[0].ndim))
    largest = np.max([np.abs(grad).max(axis=axes) for grad in gradients], axis=0)
    length = np.divide(gamma, largest, out=np.zeros_like(largest), where=largest > TINY)
    return length[:, None]
