"""Scaling of the data to the unit of the noise."""

import numpy as np


class AffineScaler:
    """(X - center) / scale, with one center and scale a feature or for all of them.

    Parameters
    ----------
    center, scale : ndarray of float64 of shape (n_features,)
        What is subtracted, and then divided by.

    Attributes
    ----------
    center, scale : ndarray of float64 of shape (n_features,)
        As given.
    """

    def __init__(self, center, scale):
        self.center = center
        self.scale = scale

    @classmethod
    def fit(cls, X, kind, shared=False):
        """Scaler for the data X.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Data.
        kind : {"standard", "minmax"} or None
            Mean 0 and variance 1; range [-1, 1]; unchanged.
        shared : bool, default=False
            Whether all features have one center and scale, as pixels should: borders of
            hardly any variance would be blown up.

        Returns
        -------
        scaler : AffineScaler
            Constant features have scale 1.
        """
        axis = None if shared else 0
        wide = X.astype(np.float64, copy=False)
        low, high = wide.min(axis=axis), wide.max(axis=axis)
        if kind is None:
            center, scale = np.zeros_like(low), np.ones_like(low)
        elif kind == "minmax":
            center, scale = (low + high) / 2, (high - low) / 2
        else:
            center, scale = wide.mean(axis=axis), wide.std(axis=axis)
        scale = np.where(high - low > _smallest_range(low, high), scale, 1.0)
        shape = (X.shape[1],)
        return cls(np.broadcast_to(center, shape).copy(), np.broadcast_to(scale, shape).copy())

    def transform(self, X):
        """X in scaled units, float64."""
        return (X - self.center) / self.scale

    def inverse_transform(self, X):
        """X in data units, float64."""
        return X * self.scale + self.center


def _smallest_range(low, high):
    """Ranges up to this are rounding errors of a constant."""
    return 10 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
