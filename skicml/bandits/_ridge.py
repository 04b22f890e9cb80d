"""Ridge estimate of a linear map from actions to outcomes, and its confidence ellipsoids."""

import math

import numpy as np

# Updates between two fresh inversions: rounding errors of the rank-one formula stay harmless.
_REFRESH_EVERY = 200


class RidgeState:
    """Least squares with a ridge for several outcomes at once, one observation at a time.

    With ``V = reg I + sum x x^T`` and ``G = sum y x^T`` the estimate of the map is
    ``coef = G V^{-1}``. An update costs O(D^2 + m D).

    Parameters
    ----------
    n_features : int
        Length D of x.
    reg : float
        Weight of the ridge.
    n_outcomes : int or None, default=None
        Number m of outcomes. None: the first outcome tells.

    Attributes
    ----------
    precision, inverse : ndarray of shape (D, D)
        V and its inverse.
    log_det : float
        ``ln(det V / reg^D)``.
    coef : ndarray of shape (m, D)
        The estimate; zeros before the first observation, one row if m is not known yet.
    """

    def __init__(self, n_features, reg, n_outcomes=None):
        self.reg = reg
        self.precision = reg * np.eye(n_features)
        self.inverse = np.eye(n_features) / reg
        self.log_det = 0.0
        self.coef = np.zeros((n_outcomes or 1, n_features))
        self._moments = None
        self._n_updates = 0

    def update(self, x, y):
        """Learn from the outcome y of shape (m,) of x of shape (D,)."""
        if self._moments is None:
            self._moments = np.zeros((len(y), len(x)))
        self._moments += y[:, None] * x
        self.precision += x[:, None] * x
        self._n_updates += 1
        direction = self.inverse @ x
        growth = 1.0 + float(direction @ x)
        if self._n_updates % _REFRESH_EVERY == 0 or growth < 1.0:  # < 1 by rounding only
            self._refresh()
        else:
            self.inverse -= direction[:, None] * (direction / growth)  # Sherman and Morrison
            self.log_det += math.log(growth)
        self.coef = self._moments @ self.inverse

    def root(self):
        """A matrix C with ``C C^T = V^{-1}``: C times a standard normal vector ~ N(0, V^{-1})."""
        try:
            return np.linalg.cholesky(self.inverse)
        except np.linalg.LinAlgError:  # rounding: actions of very different lengths
            self._refresh()
            return self.symmetric_root()

    def symmetric_root(self):
        """The symmetric matrix ``V^{-1/2}``."""
        values, vectors = self._spectrum()
        return (vectors / np.sqrt(values)) @ vectors.T

    def _refresh(self):
        values, vectors = self._spectrum()
        self.inverse = (vectors / values) @ vectors.T
        self.log_det = float(np.log(values / self.reg).sum())

    def _spectrum(self):
        """Eigenvalues and eigenvectors of V; no eigenvalue is below reg but by rounding."""
        values, vectors = np.linalg.eigh(self.precision)
        return np.maximum(values, self.reg), vectors

    def norms(self, X):
        """``||x||_{V^{-1}}`` of every row of X."""
        squares = np.einsum("ij,ij->i", X @ self.inverse, X)
        return np.sqrt(np.maximum(squares, 0.0))


def confidence_radius(log_det, n_rows, *, reg, norm_bound, noise_std, delta):
    """Radius of the confidence ellipsoids of the rows of the map (Abbasi-Yadkori et al.).

    With probability 1 - delta, ``||coef_i - phi_i||_V <= radius`` for all rows i and at all
    times at once, if the rows obey ``||phi_i|| <= norm_bound`` and the noise is
    sub-Gaussian with constant `noise_std`:
    ``radius = sqrt(reg) S + R sqrt(2 ln(n_rows / delta) + ln(det V / reg^D))``.
    """
    return math.sqrt(reg) * norm_bound + noise_std * math.sqrt(
        2.0 * math.log(n_rows / delta) + log_det
    )
