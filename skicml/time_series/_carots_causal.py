"""What CAROTS asks of a causal discoverer, whichever it is."""

import numpy as np

from skicml.time_series._carots_var import VARDiscoverer
from skicml.time_series._cuts_plus import CUTSPlus


def make_discoverer(discoverer, *, window, validation_fraction, device, seed):
    """Unfitted discoverer for the parameter ``causal_discoverer`` that is not an estimator.

    Parameters
    ----------
    discoverer : None or "var"
        The parameter.
    window : int
        Rows of a window; the discoverer sees all but the last one.
    validation_fraction, device, seed : float, str, int
        Parameters of CUTSPlus.

    Returns
    -------
    discoverer : CUTSPlus or VARDiscoverer
        The discoverer.
    """
    if discoverer == "var":
        return VARDiscoverer(n_lags=window - 1)
    return CUTSPlus(
        n_lags=window - 1,
        validation_fraction=validation_fraction,
        device=device,
        random_state=seed,
    )


def find_lags(discoverer, window):
    """Rows that a discoverer, fitted or not, forecasts from: all before the last by default.

    Parameters
    ----------
    discoverer : estimator
        May have ``n_lags``.
    window : int
        Rows of a window.

    Returns
    -------
    n_lags : int
        The rows.

    Raises
    ------
    ValueError
        If they are more than a window has before its last row.
    """
    n_lags = getattr(discoverer, "n_lags", window - 1)
    if n_lags > window - 1:
        raise ValueError(
            f"causal_discoverer has n_lags={n_lags}, but in a window of {window} rows "
            f"only {window - 1} come before the last one."
        )
    return n_lags


class CausalModel:
    """A fitted discoverer, seen as a graph and a forecaster of the last rows of windows.

    Parameters
    ----------
    discoverer : estimator
        Has ``predict``, ``adjacency_``, and maybe ``n_lags`` and ``forecast_windows``.
    window : int
        Rows W of a window.
    n_features : int
        Number of variables N.

    Attributes
    ----------
    adjacency : ndarray of bool of shape (N, N)
        The graph, [cause, effect].

    Raises
    ------
    ValueError
        If the discoverer looks further back than a window reaches, has no ``adjacency_``, or
        its graph is not of shape (N, N).
    """

    def __init__(self, discoverer, window, n_features):
        self.discoverer = discoverer
        self.window = window
        self.n_lags = find_lags(discoverer, window)
        if not hasattr(discoverer, "adjacency_"):
            raise ValueError(
                "causal_discoverer must have the attribute adjacency_ after fit, the graph "
                f"[cause, effect] of shape {(n_features, n_features)}; "
                f"{type(discoverer).__name__} has none."
            )
        self.adjacency = np.asarray(discoverer.adjacency_, dtype=bool)
        if self.adjacency.shape != (n_features, n_features):
            raise ValueError(
                f"adjacency_ of causal_discoverer must have shape {(n_features, n_features)}, "
                f"got {self.adjacency.shape}."
            )

    def forecast(self, windows):
        """Forecast the last row of each window from those before.

        Parameters
        ----------
        windows : ndarray of shape (n_windows, W, N)
            Windows.

        Returns
        -------
        forecast : ndarray of shape (n_windows, N)
            The last rows, as forecast.
        """
        if hasattr(self.discoverer, "forecast_windows"):
            return self.discoverer.forecast_windows(windows[:, -1 - self.n_lags : -1])
        # End to end they are one series: the forecast of a last row looks back no further
        # than its own window. What is forecast across the seams is not used.
        series = windows.reshape(-1, windows.shape[2])
        return np.asarray(self.discoverer.predict(series))[self.window - 1 :: self.window]

    def squared_errors(self, panel):
        """Squared errors of the forecasts of the last row of every window.

        Parameters
        ----------
        panel : ndarray of shape (n_series, n_timepoints, N)
            The standardised series.

        Returns
        -------
        errors : ndarray of shape (n_series, n_windows, N)
            The errors, variable by variable.
        """
        forecast = np.stack([self.discoverer.predict(series) for series in panel])
        return np.square(forecast - panel, dtype=np.float64)[:, self.window - 1 :]
