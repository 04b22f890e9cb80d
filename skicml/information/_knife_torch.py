"""The trainable mixture behind KnifeDensity."""

import copy
import math

import torch
from torch import nn

from skicml._torch import SeededNet


class KnifeMixture(nn.Module):
    """Mixture of Gaussians with triangular whitening maps; returns log densities.

    Component k whitens x by ``z = (I + strictly_lower(T_k)) diag(exp(tanh(a_k))) (x - mu_k)``.
    The unit triangle has determinant 1, so the log determinant is the sum of ``tanh(a_k)``.

    Parameters
    ----------
    n_features, n_components : int
        Sizes d and K.
    means : ndarray of shape (K, d) or None, default=None
        Initial means, with whitening maps that start at the identity. None draws means,
        scales and triangles from the standard normal distribution.
    bounded : bool, default=True
        Whether log scales pass through tanh, which keeps them in [-1, 1].
    """

    def __init__(self, n_features, n_components, means=None, bounded=True):
        super().__init__()
        self.bounded = bounded
        if means is None:
            self.means = nn.Parameter(torch.randn(n_components, n_features))
            self.raw_scales = nn.Parameter(torch.randn(n_components, n_features))
            self.triangles = nn.Parameter(torch.randn(n_components, n_features, n_features))
        else:
            self.means = nn.Parameter(torch.tensor(means, dtype=torch.float32))
            self.raw_scales = nn.Parameter(torch.zeros(n_components, n_features))
            self.triangles = nn.Parameter(torch.zeros(n_components, n_features, n_features))
        self.logits = nn.Parameter(torch.ones(n_components))

    def log_scales(self):
        """Logarithm of the diagonals, shape (K, d)."""
        return self.raw_scales.tanh() if self.bounded else self.raw_scales

    def whitening(self):
        """Lower triangular maps of shape (K, d, d) that turn x - mu_k into z_k."""
        unit = torch.eye(self.means.shape[1], device=self.means.device)
        return (unit + self.triangles.tril(-1)) * self.log_scales().exp()[:, None]

    def forward(self, X):
        latents = (X - self.means[:, None]) @ self.whitening().mT
        log_normal = self.log_scales().sum(dim=1)[:, None] - latents.square().sum(dim=2) / 2
        log_weights = self.logits.log_softmax(dim=0)[:, None]
        constant = X.shape[1] / 2 * math.log(2 * math.pi)
        return (log_weights + log_normal).logsumexp(dim=0) - constant

    @torch.no_grad()
    def to_numpy(self):
        """Weights (K,), means (K, d) and whitening maps (K, d, d), as float64 arrays."""
        mixture = copy.deepcopy(self).double()
        weights = mixture.logits.softmax(dim=0)
        return [array.cpu().numpy() for array in (weights, mixture.means, mixture.whitening())]


class KnifeNet(SeededNet):
    """SeededNet whose loss is the mean negative log-likelihood of the batch."""

    def get_loss(self, y_pred, y_true, X=None, training=False):
        return -y_pred.mean()
