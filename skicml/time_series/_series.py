"""Series and panels of series: one shape inside, and the windows cut from them."""

import numpy as np
from sklearn.utils.validation import validate_data


def validate_series(estimator, X, *, reset=True, allow_nan=False, min_timepoints=1):
    """Check a series or a panel of series and hand it back as a panel.

    Parameters
    ----------
    estimator : estimator instance
        Its ``n_features_in_``, the number of channels, is set or compared.
    X : array-like of shape (n_timepoints, n_channels) or (n_series, n_timepoints, n_channels)
        One series (rows are time steps), or a panel of series. The index of a data frame is
        ignored.
    reset : bool, default=True
        Whether this is the data of ``fit``.
    allow_nan : bool, default=False
        Whether missing values are let through.
    min_timepoints : int, default=1
        Fewer time steps are an error.

    Returns
    -------
    panel : ndarray of shape (n_series, n_timepoints, n_channels)
        float32 or float64, as given; other dtypes as float64.
    is_panel : bool
        Whether `X` was three-dimensional.

    Raises
    ------
    ValueError
        If `X` is not of one of the shapes, too short, or not finite.
    """
    # np.shape fails for containers that only convert to an array.
    shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
    is_panel = len(shape) == 3
    if is_panel:
        X = np.asarray(X).reshape(-1, shape[2])
    X = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan" if allow_nan else True,
    )
    panel = X.reshape(shape) if is_panel else X[np.newaxis]
    if panel.shape[1] < min_timepoints:
        raise ValueError(
            f"{type(estimator).__name__} needs at least {min_timepoints} time steps, "
            f"got n_timepoints = {panel.shape[1]} (X has shape {shape})."
        )
    return panel, is_panel


def cut_windows(panel, width, stride=1):
    """Cut every series into windows that never span two series.

    Parameters
    ----------
    panel : ndarray of shape (n_series, n_timepoints, n_channels)
        The series.
    width : int
        Rows of a window.
    stride : int, default=1
        Rows between the starts of consecutive windows.

    Returns
    -------
    windows : ndarray of shape (n_series, n_windows, width, n_channels)
        A read-only view: nothing is copied.
    """
    windows = np.lib.stride_tricks.sliding_window_view(panel, width, axis=1)
    return windows[:, ::stride].transpose(0, 1, 3, 2)
