"""What y says to a conditional generator: class labels, vectors or blocks of tokens."""

import numpy as np
from sklearn.utils import check_array, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _num_samples

from skicml.generative._scaling import AffineScaler
from skicml.utils._magnitude import check_magnitude

# Dimensions of y as an array with one row a sample.
_NDIM = {"label": 1, "vector": 2, "context": 3}


class ConditionEncoder:
    """Turn y into codes, scaled vectors or tokens.

    Parameters
    ----------
    kind : {"label", "vector", "context"}
        What y is.
    n_inputs : int
        Number of classes, or width of a vector or a token.
    classes : ndarray or None, default=None
        Class labels, sorted.
    scaler : AffineScaler or None, default=None
        Scaling of the vectors.
    """

    def __init__(self, kind, n_inputs, classes=None, scaler=None):
        self.kind = kind
        self.n_inputs = n_inputs
        self.classes = classes
        self.scaler = scaler

    @classmethod
    def fit(cls, y, kind):
        """Encoder for y; ``kind="auto"`` is told by its shape and type.

        Parameters
        ----------
        y : array-like of shape (n_samples,), (n_samples, k) or (n_samples, n_tokens, e)
            Condition of each training row.
        kind : {"auto", "label", "vector", "context"}
            "auto": 1-D discrete values are labels, other 1-D and 2-D ones vectors, 3-D ones
            tokens.

        Returns
        -------
        encoder : ConditionEncoder
            Fitted.
        """
        if kind == "auto":
            kind = _kind_of(y)
        if kind == "label":
            classes = np.unique(column_or_1d(y))
            return cls(kind, len(classes), classes=classes)
        values = _as_floats(y, kind)
        check_magnitude(values, "y")
        if kind == "vector":
            scaler = AffineScaler.fit(values, "standard")
            return cls(kind, values.shape[1], scaler=scaler)
        return cls(kind, values.shape[2])

    def encode(self, y, n_samples):
        """Conditions of `n_samples` rows.

        Parameters
        ----------
        y : scalar or array-like
            One condition for all rows, or one a row.
        n_samples : int
            Number of rows.

        Returns
        -------
        condition : ndarray
            Codes (n_samples,), vectors (n_samples, k) or tokens (n_samples, n_tokens, e).

        Raises
        ------
        ValueError
            If the shape is another one, or a label was not there in fit.
        """
        if self.kind == "label":
            labels = np.asarray(y)
            labels = labels if labels.ndim < 2 else column_or_1d(labels)
            return self._codes(_rows_of(labels, 1, n_samples))
        values = np.asarray(y, dtype=np.float64)
        if self.kind == "vector" and self.n_inputs == 1 and values.ndim < 2:
            values = values.reshape(-1, 1) if values.ndim else values.reshape(1)
        values = _rows_of(values, _NDIM[self.kind], n_samples)
        if values.shape[-1] != self.n_inputs:
            raise ValueError(
                f"y has conditions of width {values.shape[-1]}, but fit saw {self.n_inputs}."
            )
        if not np.isfinite(values).all():
            raise ValueError("y contains NaN or infinity.")
        return values if self.scaler is None else self.scaler.transform(values)

    def _codes(self, labels):
        known = np.isin(labels, self.classes)
        if not known.all():
            unseen = np.unique(labels[~known]).tolist()
            raise ValueError(
                f"y contains labels {unseen} that fit has not seen; the classes are "
                f"{self.classes.tolist()}."
            )
        return np.searchsorted(self.classes, labels)


def encode_training(y, n_samples, encoder, kind, *, fresh):
    """Conditions of the training rows, and what encodes them.

    Parameters
    ----------
    y : array-like or None
        Condition of each row.
    n_samples : int
        Number of rows.
    encoder : ConditionEncoder or None
        That of the trained model; None where it has no condition.
    kind : {"auto", "label", "vector", "context"}
        What y is.
    fresh : bool
        Whether this is a new model, with an encoder of its own.

    Returns
    -------
    encoder : ConditionEncoder or None
        None without y.
    conditions : ndarray or None
        See :meth:`ConditionEncoder.encode`.

    Raises
    ------
    ValueError
        If y is there in one of the trainings only, or does not fit the rows or the encoder.
    """
    if y is not None:
        check_consistent_length(np.empty(n_samples), y)
    if fresh:
        encoder = None if y is None else ConditionEncoder.fit(y, kind)
    if (encoder is None) != (y is None):
        raise ValueError(
            "The model was fitted "
            + ("without y: y must be None." if encoder is None else "with y: y is needed.")
        )
    return encoder, None if y is None else encoder.encode(y, n_samples)


def _kind_of(y):
    ndim = np.ndim(y)
    if ndim == 3:
        return "context"
    if ndim == 2 and np.shape(y)[1] > 1:
        return "vector"
    return "vector" if type_of_target(y).startswith("continuous") else "label"


def _as_floats(y, kind):
    values = check_array(y, dtype=np.float64, ensure_2d=False, allow_nd=True, input_name="y")
    if values.ndim == 1 and kind == "vector":
        values = values[:, None]
    if values.ndim != _NDIM[kind]:
        raise ValueError(
            f'condition="{kind}" needs y with {_NDIM[kind]} axes, got shape {values.shape}.'
        )
    return values


def _rows_of(values, ndim, n_samples):
    """The values with one row a sample; a single one is repeated."""
    if values.ndim == ndim - 1:
        return np.broadcast_to(values, (n_samples, *values.shape)).copy()
    if values.ndim != ndim or _num_samples(values) != n_samples:
        raise ValueError(
            f"y must be one condition or one for each of {n_samples} rows, got shape "
            f"{values.shape}."
        )
    return values
