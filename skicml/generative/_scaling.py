"""Scaling of the data to the unit of the noise."""

import numpy as np

# Scaled values up to this have finite squares in single precision, and sums of them too.
_LARGEST = 1e15
# Ranges below this are standardised in units of their own.
_TINY_RANGE = 1e-100


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
            center, scale = wide.mean(axis=axis), _standard_deviation(wide, high - low, axis)
        scale = np.where(high - low > _smallest_range(low, high), scale, 1.0)
        shape = (X.shape[1],)
        return cls(np.broadcast_to(center, shape).copy(), np.broadcast_to(scale, shape).copy())

    def transform(self, X):
        """X in scaled units, float64."""
        return (X - self.center) / self.scale

    def inverse_transform(self, X):
        """X in data units, float64."""
        return X * self.scale + self.center


def column_range(rows, wider_than=None):
    """Lowest and highest value of each column, and of those of an earlier range.

    Parameters
    ----------
    rows : ndarray of shape (n_samples, n_features)
        Data.
    wider_than : ndarray of shape (2, n_features) or None, default=None
        Range to be widened.

    Returns
    -------
    ends : ndarray of shape (2, n_features)
        Lowest and highest values.
    """
    ends = np.stack([rows.min(axis=0), rows.max(axis=0)])
    if wider_than is None:
        return ends
    return np.stack([np.minimum(ends[0], wider_than[0]), np.maximum(ends[1], wider_than[1])])


def check_scaled(rows, largest=_LARGEST):
    """Raise an error if rows in scaled units are too far out for a network to take.

    Parameters
    ----------
    rows : ndarray
        Rows in scaled units.
    largest : float, default=1e15
        Largest magnitude.

    Raises
    ------
    ValueError
        If a magnitude is above `largest`.
    """
    magnitude = float(np.abs(rows).max(initial=0))
    if magnitude > largest:
        raise ValueError(
            f"X holds a value of magnitude {magnitude:.1e} in the scaled units of the training "
            f"data; at most {largest:.0e} is allowed."
        )


def _standard_deviation(wide, ranges, axis):
    """Standard deviation, also of values so small that their squares vanish."""
    unit = np.where((ranges > 0) & (ranges < _TINY_RANGE), ranges, 1.0)
    return (wide / unit).std(axis=axis) * unit


def _smallest_range(low, high):
    """Ranges up to this are rounding errors of a constant."""
    return 10 * np.finfo(np.float64).eps * np.maximum(np.abs(low), np.abs(high))
