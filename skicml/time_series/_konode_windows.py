"""The windows that KoNODE is trained on, and those held out."""

import numpy as np

from skicml.time_series._series import cut_windows

# Windows that `stride=None` leaves at most.
_MAX_WINDOWS = 1024


def training_windows(panel, context_length, horizon, *, stride, fraction, has_clock, random_state):
    """Training and validation windows with their clocks, as the net takes them.

    Parameters
    ----------
    panel : ndarray of shape (n_series, n_timepoints, n_channels)
        Standardised series.
    context_length, horizon : int
        Rows of the context of a window, and rows that follow it.
    stride : int or None
        Rows between windows; None keeps their number within bounds.
    fraction : float
        Share to hold out.
    has_clock : bool
        Whether time counts from the first row of the series, and not from each context.
    random_state : RandomState instance
        Chooses what is held out.

    Returns
    -------
    training, validation : dict
        ``"windows"`` of shape (n_windows, context_length + horizon, n_channels) and
        ``"start"``, the clock at the last row of each context; None if nothing is held out.
    """
    width = context_length + horizon
    n_series, n_starts = len(panel), panel.shape[1] - width + 1
    if stride is None:
        stride = (n_starts - 1) // max(1, _MAX_WINDOWS // n_series) + 1
    first = (n_starts - 1) % stride  # the last row of the series is in the last window
    windows = cut_windows(panel[:, first:], width, stride)
    start = first + stride * np.arange(windows.shape[1])
    held_out, kept = _hold_out(start, n_series, fraction, width, context_length, random_state)
    clock = start + context_length - 1 if has_clock else 0 * start
    clock = np.broadcast_to(clock, kept.shape)
    training, validation = (
        {"windows": windows[chosen], "start": clock[chosen]} for chosen in (kept, held_out)
    )
    return training, (validation if held_out.any() else None)


def standardisation(panel):
    """Means and standard deviations of the channels; 1 for a constant channel."""
    rows = panel.reshape(-1, panel.shape[2]).astype(np.float64, copy=False)
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    constant = scale <= 10 * np.finfo(panel.dtype).eps * np.abs(mean)
    return mean, np.where(constant, 1.0, scale)


def _hold_out(start, n_series, fraction, width, context_length, random_state):
    """Choose the windows for validation and those for training.

    Parameters
    ----------
    start : ndarray of shape (n_windows,)
        First rows of the windows of every series.
    n_series : int
        Number of series.
    fraction : float
        Share to hold out.
    width, context_length : int
        Rows of a window and of its context.
    random_state : RandomState instance
        Chooses the series.

    Returns
    -------
    held_out, kept : ndarray of bool of shape (n_series, n_windows)
        Windows for validation, none if there is not enough; and for training.
    """
    shape = (n_series, len(start))
    held_out = np.zeros(shape, dtype=bool)
    n_held_out = round(fraction * n_series)
    if 1 <= n_held_out < n_series:
        held_out[random_state.permutation(n_series)[:n_held_out]] = True
        return held_out, ~held_out
    n_held_out = int(np.ceil(fraction * len(start)))
    first = len(start) - n_held_out
    if n_held_out and first:
        before_targets = start + width <= start[first] + context_length
        if before_targets.sum() >= len(start) / 2:
            held_out[:, first:] = True
            return held_out, np.broadcast_to(before_targets, shape)
    return held_out, ~held_out
