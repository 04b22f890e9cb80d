"""Panels whose rows are series: a table of univariate series, or a three-dimensional array."""

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skicml.time_series._series import validate_series


def validate_panel(estimator, X, *, n_dims=None, rows_are_times=False):
    """Check series with missing values and hand them back as a panel.

    Parameters
    ----------
    estimator : estimator instance
        Its ``n_features_in_`` is set or compared: the number of time points of a table of
        series, else the number of channels.
    X : array-like of shape (n_series, n_timepoints) or (n_series, n_timepoints, n_channels)
        The series; NaN means missing.
    n_dims : int or None, default=None
        Dimensions of the data of ``fit``; None if this is them.
    rows_are_times : bool, default=False
        Whether a two-dimensional X is one series, of shape (n_timepoints, n_channels).

    Returns
    -------
    panel : ndarray of shape (n_series, n_timepoints, n_channels)
        float32 or float64, as given; other dtypes as float64.
    n_dims : int
        Dimensions of X.

    Raises
    ------
    ValueError
        If X is infinite, has another number of dimensions than in fit, or fewer than 2 time
        points.
    """
    X = X if hasattr(X, "shape") else np.asarray(X)
    if n_dims is not None and len(X.shape) != n_dims:
        raise ValueError(
            f"X must have {n_dims} dimensions, as in fit, got {len(X.shape)}: "
            "Reshape your data, for instance by X[:, :, np.newaxis]."
        )
    reset = n_dims is None
    if len(X.shape) == 3:
        panel, _ = validate_series(estimator, X, reset=reset, allow_nan=True, min_timepoints=2)
    elif rows_are_times:
        panel, _ = validate_series(estimator, X, reset=reset, allow_nan=True)
    else:
        table = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        panel = table[:, :, np.newaxis]
        if panel.shape[1] < 2:
            raise ValueError(
                f"{type(estimator).__name__} needs at least 2 time points, "
                f"got n_features = {panel.shape[1]}."
            )
    return panel, len(X.shape)


def check_times(times, n_timepoints):
    """The parameter `times` as a float64 array, checked; None means 0, 1, 2, ..."""
    if times is None:
        return np.arange(n_timepoints, dtype=np.float64)
    times = check_array(times, ensure_2d=False, dtype=np.float64, input_name="times")
    if times.shape != (n_timepoints,):
        raise ValueError(
            f"times must have shape {(n_timepoints,)}, one for each time point of X, "
            f"got {times.shape}."
        )
    if not (np.diff(times) > 0).all():
        raise ValueError("times must increase strictly.")
    return times
