"""Windows that cover series, and series put together again from what is said of windows."""

import numpy as np

from skicml.time_series._series import cut_windows


class Windows:
    """Windows of one width that cover every time point of a series.

    The last one is aligned to the end of the series.

    Parameters
    ----------
    n_timepoints : int
        Length of the series.
    width : int
        Length of a window, at most `n_timepoints`.
    stride : int
        Time points between the starts of consecutive windows.
    """

    def __init__(self, n_timepoints, width, stride):
        self.n_timepoints = n_timepoints
        self.width = width
        starts = np.arange(0, n_timepoints - width + 1, stride)
        last = n_timepoints - width
        self.starts = starts if starts[-1] == last else np.append(starts, last)

    def cut(self, panel):
        """Windows of a panel (n_series, n_timepoints, ...), one after the other on axis 0."""
        windows = cut_windows(panel, self.width)[:, self.starts]
        return windows.reshape(-1, self.width, panel.shape[2])

    def cut_times(self, times, n_series):
        """Times of the windows of `n_series` series, shape (n_windows, width)."""
        return np.tile(times[self.starts[:, np.newaxis] + np.arange(self.width)], (n_series, 1))

    def average(self, windows):
        """Series from windows on axis 0; where they overlap, their mean."""
        windows = windows.reshape(-1, len(self.starts), *windows.shape[1:])
        total = np.zeros((len(windows), self.n_timepoints, *windows.shape[3:]), windows.dtype)
        count = np.zeros((self.n_timepoints, *[1] * (windows.ndim - 3)), windows.dtype)
        for i, start in enumerate(self.starts):
            total[:, start : start + self.width] += windows[:, i]
            count[start : start + self.width] += 1
        return total / count

    def stitch(self, windows):
        """Series from windows on axis 0; where they overlap, the one with the nearer centre."""
        windows = windows.reshape(-1, len(self.starts), *windows.shape[1:])
        times = np.arange(self.n_timepoints)[:, np.newaxis]
        offsets = times - self.starts
        centred = np.abs(offsets - (self.width - 1) / 2)
        chosen = np.where((offsets >= 0) & (offsets < self.width), centred, np.inf).argmin(axis=1)
        return windows[:, chosen, times[:, 0] - self.starts[chosen]]
