"""Turn the rows of a view into nonnegative vectors of mass one."""

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax


@dataclass
class BlockScaler:
    """Scaling of one view, learnt on the rows that were observed.

    Attributes
    ----------
    kind : {"complement", "softmax", "l1"}
        What the scaled rows are.
    offset, scale : ndarray of shape (n_features,)
        Minimum and range of each feature, or mean and standard deviation for "softmax". A
        constant feature has scale 1.
    """

    kind: str
    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def learn(cls, block, kind):
        """Scaler of the features of `block`, whose rows are all observed."""
        offset = block.min(axis=0)
        scale = block.max(axis=0) - offset
        # By the range, which has no rounding error that grows with the number of rows.
        constant = scale <= 10 * np.finfo(block.dtype).eps * np.abs(offset)
        if kind == "softmax":
            # Sums over many float32 rows lose digits, and squares overflow.
            offset = block.mean(axis=0, dtype=np.float64).astype(block.dtype)
            scale = block.std(axis=0, dtype=np.float64)
        return cls(kind, offset, np.where(constant, 1, scale).astype(block.dtype))

    def transform(self, block):
        """Scaled rows; but for "softmax", values beyond the range seen in fit are clipped to it."""
        scaled = (block - self.offset) / self.scale
        if self.kind == "softmax":
            return softmax(scaled, axis=1)
        scaled = np.clip(scaled, 0, 1)
        if self.kind == "complement":
            return np.hstack([scaled, 1 - scaled]) / scaled.shape[1]
        scaled[~scaled.any(axis=1)] = 1  # a row of least values has no direction: spread evenly
        return scaled / scaled.sum(axis=1, keepdims=True)

    def fold(self, components):
        """Components per original feature: mass on high values less mass on low ones."""
        if self.kind != "complement":
            return components
        high, low = np.hsplit(components, 2)
        return high - low
