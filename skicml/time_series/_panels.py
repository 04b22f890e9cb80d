"""Panels whose rows are series: a table of univariate series, or a three-dimensional array."""

from datetime import date, timedelta

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


def in_seconds(times, name):
    """Datetimes as seconds since the first one, time differences as seconds; else unchanged.

    Without it numpy would count both in their internal unit, be it days or nanoseconds.

    Parameters
    ----------
    times : array-like
        Numbers, datetimes of numpy, pandas, polars or Python, or differences of times.
    name : str
        Name of the parameter, for the message.

    Returns
    -------
    times : array-like
        float64 array of the same shape, where these are datetimes or differences.

    Raises
    ------
    ValueError
        If a time is missing (NaT).
    """
    array = np.asarray(times)
    first = array.ravel()[:1]
    if array.dtype.kind == "M":
        # In seconds or finer: months, for one, have no length in seconds.
        array = array.astype(np.promote_types(array.dtype, "datetime64[s]"))
        seconds = (array - array.ravel()[:1]) / np.timedelta64(1, "s")
    elif array.dtype.kind == "m":
        seconds = array / np.timedelta64(1, "s")
    elif array.dtype.kind == "O" and first.size and isinstance(first[0], date):
        seconds = [(moment - first[0]).total_seconds() for moment in array.ravel()]
        seconds = np.reshape(seconds, array.shape)
    elif array.dtype.kind == "O" and first.size and isinstance(first[0], timedelta):
        seconds = [difference.total_seconds() for difference in array.ravel()]
        seconds = np.reshape(seconds, array.shape)
    else:
        return times
    if np.isnan(seconds).any():
        raise ValueError(f"{name} contains NaT, a missing time.")
    return seconds


def check_times(times, n_timepoints):
    """The parameter `times` as a float64 array, checked; None means 0, 1, 2, ..."""
    if times is None:
        return np.arange(n_timepoints, dtype=np.float64)
    times = in_seconds(times, "times")
    times = check_array(times, ensure_2d=False, dtype=np.float64, input_name="times")
    if times.shape != (n_timepoints,):
        raise ValueError(
            f"times must have shape {(n_timepoints,)}, one for each time point of X, "
            f"got {times.shape}."
        )
    if not (np.diff(times) > 0).all():
        raise ValueError("times must increase strictly.")
    return times
