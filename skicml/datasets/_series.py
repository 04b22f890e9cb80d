"""Multivariate series with a known causal graph, and anomalies to put into them."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from skicml.datasets._constraints import COUNT, FINITE, FRACTION, NOT_NEGATIVE, POSITIVE, SIZE

ANOMALY_KINDS = ("point_global", "point_contextual", "collective_trend", "collective_global")
# Rows before and after the centre that count as local.
_LOCAL = 5
# Companion radius from which a VAR process counts as too close to instability.
_MAX_RADIUS = 0.97
_SHRINK = 0.7
_VAR_BURN_IN = 200


@validate_params(
    {
        "n_timepoints": [SIZE],
        "n_features": [Interval(Integral, 4, None, closed="left")],
        "forcing": [FINITE],
        "step": [POSITIVE],
        "noise": [NOT_NEGATIVE],
        "burn_in": [COUNT],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_lorenz96(
    n_timepoints=2000,
    n_features=8,
    *,
    forcing=10.0,
    step=0.1,
    noise=0.1,
    burn_in=1000,
    random_state=None,
):
    """Lorenz-96 system: a chaotic ring in which every channel listens to four.

    The channels follow ``dx_i/dt = (x_{i+1} - x_{i-2}) x_{i-1} - x_i + forcing`` with
    indices around the ring, so i-2, i-1, i and i+1 cause i. Often used to judge causal
    discovery, by the CAROTS paper [1]_ among others.

    Parameters
    ----------
    n_timepoints : int, default=2000
        Number of rows.
    n_features : int, default=8
        Number of channels on the ring, at least 4. The paper takes 128.
    forcing : float, default=10.0
        Constant drive; the motion is chaotic from about 8.
    step : float, default=0.1
        Time between two rows.
    noise : float, default=0.1
        Standard deviation of the Gaussian noise on every observation.
    burn_in : int, default=1000
        Rows that are simulated first and left out; may be 0.
    random_state : int, RandomState instance or None, default=None
        Determines the start and the noise. Pass an int for reproducible results.

    Returns
    -------
    X : ndarray of shape (n_timepoints, n_features)
        The observed series.
    graph : ndarray of bool of shape (n_features, n_features)
        ``graph[cause, effect]``; every column has four causes, itself among them.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range.

    Notes
    -----
    Time O(n_timepoints n_features). The system is chaotic: the last digits of the
    integration differ between platforms, and after some hundred rows so do the rows.

    References
    ----------
    .. [1] Kim, H., Mok, J., Lee, D., Lew, J., Kim, S. and Yoon, S. "Causality-Aware
       Contrastive Learning for Robust Multivariate Time-Series Anomaly Detection."
       ICML 2025.

    Examples
    --------
    >>> from skicml.datasets import make_lorenz96
    >>> X, graph = make_lorenz96(100, 6, random_state=0)
    >>> X.shape
    (100, 6)
    >>> graph[:, 3].nonzero()[0]  # the causes of channel 3
    array([1, 2, 3, 4])
    """
    from scipy.integrate import solve_ivp

    rng = check_random_state(random_state)
    before2, before, after = (np.roll(np.arange(n_features), shift) for shift in (2, 1, -1))

    def velocity(_, x):
        return (x[after] - x[before2]) * x[before] - x + forcing

    times = step * np.arange(burn_in + n_timepoints)
    start = 0.01 * rng.standard_normal(n_features)
    span = (0.0, max(times[-1], step))
    path = solve_ivp(velocity, span, start, method="DOP853", t_eval=times, rtol=1e-6, atol=1e-6)
    X = path.y.T[burn_in:] + noise * rng.standard_normal((n_timepoints, n_features))

    graph = np.zeros((n_features, n_features), dtype=bool)
    effects = np.arange(n_features)
    for causes in (before2, before, effects, after):
        graph[causes, effects] = True
    return X, graph


@validate_params(
    {
        "n_timepoints": [SIZE],
        "n_features": [SIZE],
        "n_lags": [SIZE],
        "edge_fraction": [FRACTION],
        "coef": ["array-like", None],
        "noise": [NOT_NEGATIVE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_var_process(
    n_timepoints=2000,
    n_features=16,
    *,
    n_lags=3,
    edge_fraction=0.2,
    coef=None,
    noise=0.1,
    random_state=None,
):
    """Vector autoregressive process on a sparse random graph, or with given coefficients.

    ``x_t = sum_k x_{t-k} coef[k-1] + e_t`` with Gaussian e_t. The random coefficients are
    those of the CAROTS paper [1]_: the same matrix at all lags, 3 for a channel on itself, 1
    for ``floor(edge_fraction * n_features) - 1`` other causes of each channel, and all of it
    shrunk by 0.7 / radius until the radius of the companion matrix is at most 0.97.

    Parameters
    ----------
    n_timepoints : int, default=2000
        Number of rows.
    n_features : int, default=16
        Number of channels; ignored if `coef` is given.
    n_lags : int, default=3
        Order of the process; ignored if `coef` is given.
    edge_fraction : float, default=0.2
        Share of the channels that cause a channel, itself included, in [0, 1]; ignored if
        `coef` is given.
    coef : array-like of shape (n_lags, n_features, n_features) or None, default=None
        Coefficients ``coef[lag - 1, cause, effect]`` to use instead of random ones.
    noise : float, default=0.1
        Standard deviation of e_t.
    random_state : int, RandomState instance or None, default=None
        Determines the coefficients and the noise. Pass an int for reproducible results.

    Returns
    -------
    X : ndarray of shape (n_timepoints, n_features)
        The series, after 200 rows that are left out.
    graph : ndarray of bool of shape (n_features, n_features)
        ``graph[cause, effect]``: whether a coefficient is not zero at some lag.
    coef : ndarray of shape (n_lags, n_features, n_features)
        The coefficients.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or `coef` has another shape or
        makes a process that is not stable.

    Notes
    -----
    Time O(n_timepoints n_lags n_features^2), and O((n_lags n_features)^3) for the radius.

    Shrinking leaves little to learn when there are many channels: with 128 of them, as in
    the paper, even the true coefficients explain about 1 % of the variance.

    References
    ----------
    .. [1] Kim, H., Mok, J., Lee, D., Lew, J., Kim, S. and Yoon, S. "Causality-Aware
       Contrastive Learning for Robust Multivariate Time-Series Anomaly Detection."
       ICML 2025.

    Examples
    --------
    A chain 0 -> 1 -> 2:

    >>> import numpy as np
    >>> from skicml.datasets import make_var_process
    >>> chain = 0.8 * np.array([[[1, 1, 0], [0, 0, 1], [0, 0, 0]]])
    >>> X, graph, coef = make_var_process(500, coef=chain, random_state=0)
    >>> X.shape
    (500, 3)
    >>> bool(graph[0, 1]), bool(graph[1, 0])
    (True, False)
    """
    rng = check_random_state(random_state)
    if coef is None:
        coef = _random_coefficients(n_features, n_lags, edge_fraction, rng)
    else:
        coef = check_array(coef, dtype=np.float64, allow_nd=True, input_name="coef")
        if coef.ndim != 3 or coef.shape[1] != coef.shape[2]:
            raise ValueError(
                f"coef must have shape (n_lags, n_features, n_features), got shape {coef.shape}."
            )
        if (radius := _companion_radius(coef)) >= 1:
            raise ValueError(
                f"coef makes a process that is not stable: its companion matrix has radius "
                f"{radius:.3g}, which must be below 1."
            )

    n_lags, n_features, _ = coef.shape
    shocks = noise * rng.standard_normal((_VAR_BURN_IN + n_timepoints, n_features))
    rows = np.zeros((n_lags + len(shocks), n_features))
    newest_first = coef.reshape(-1, n_features)
    for t, shock in enumerate(shocks, start=n_lags):
        past = rows[t - n_lags : t][::-1]
        rows[t] = past.ravel() @ newest_first + shock
    return rows[n_lags + _VAR_BURN_IN :], (coef != 0).any(axis=0), coef


def _random_coefficients(n_features, n_lags, edge_fraction, rng):
    """Coefficients of the paper's process, shape (n_lags, cause, effect)."""
    n_others = max(int(edge_fraction * n_features) - 1, 0)
    matrix = 3.0 * np.eye(n_features)
    for effect in range(n_features):
        others = np.delete(np.arange(n_features), effect)
        matrix[rng.choice(others, n_others, replace=False), effect] = 1.0
    coef = np.tile(matrix, (n_lags, 1, 1))
    while (radius := _companion_radius(coef)) > _MAX_RADIUS:
        coef *= _SHRINK / radius
    return coef


def _companion_radius(coef):
    """Largest absolute eigenvalue of the process's companion matrix."""
    n_lags, n_features, _ = coef.shape
    companion = np.eye(n_lags * n_features, k=-n_features)
    companion[:n_features] = np.hstack([matrix.T for matrix in coef])
    return np.abs(np.linalg.eigvals(companion)).max()


@validate_params(
    {
        "X": ["array-like"],
        "kind": [StrOptions(set(ANOMALY_KINDS))],
        "magnitude": [FINITE],
        "n_channels": [SIZE],
        "fraction": [Interval(Real, 0, 0.5, closed="right")],
        "segment_length": [SIZE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def inject_anomalies(
    X,
    kind="point_global",
    *,
    magnitude=2.0,
    n_channels=1,
    fraction=0.01,
    segment_length=10,
    random_state=None,
):
    """Put anomalies of one kind into some channels of a series, at random times.

    The kinds are those of the CAROTS paper's experiments [1]_, with m for `magnitude`:

    * "point_global": single values become mean + m std of the channel.
    * "point_contextual": single values become mean + m std of the ten rows around them.
    * "collective_trend": +-m (0, 1, 2, ...) is added along a segment, in the units of X;
      the sign is random for each channel and segment.
    * "collective_global": a segment is replaced by a square-like wave,
      ``sum_{k<5} 3 / (2k+1) sin(2 pi 0.04 (2k+1) t)`` at row t. `magnitude` plays no part.

    Parameters
    ----------
    X : array-like of shape (n_timepoints, n_features)
        Series of normal operation; it is not changed.
    kind : {"point_global", "point_contextual", "collective_trend", "collective_global"}, \
            default="point_global"
        Kind of the anomalies.
    magnitude : float, default=2.0
        Size of the anomalies. The paper takes 1 to 4.
    n_channels : int, default=1
        Number of channels, chosen at random, that are changed at the same rows. The paper
        takes 10 of 128.
    fraction : float, default=0.01
        Share of anomalous rows, in (0, 0.5].
    segment_length : int, default=10
        Rows of a collective anomaly.
    random_state : int, RandomState instance or None, default=None
        Determines channels, times and signs. Pass an int for reproducible results.

    Returns
    -------
    X_anomalous : ndarray of shape (n_timepoints, n_features)
        Copy of the series with the anomalies.
    labels : ndarray of int of shape (n_timepoints,)
        1 where the row is anomalous, 0 elsewhere.
    channels : ndarray of int of shape (n_channels,)
        The channels that were changed, in ascending order.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, X has fewer than `n_channels`
        channels, or X is too short for one anomaly.

    Notes
    -----
    Time and memory O(n_timepoints n_features). Segments do not overlap. Means and standard
    deviations are those of the series as given.

    References
    ----------
    .. [1] Kim, H., Mok, J., Lee, D., Lew, J., Kim, S. and Yoon, S. "Causality-Aware
       Contrastive Learning for Robust Multivariate Time-Series Anomaly Detection."
       ICML 2025.

    Examples
    --------
    >>> from skicml.datasets import inject_anomalies, make_lorenz96
    >>> X, _ = make_lorenz96(1000, 6, random_state=0)
    >>> X_test, labels, channels = inject_anomalies(X, "collective_trend", random_state=0)
    >>> int(labels.sum()), channels.shape
    (10, (1,))
    """
    X = check_array(X, dtype=[np.float64, np.float32])
    if n_channels > X.shape[1]:
        raise ValueError(f"n_channels must be in 1..{X.shape[1]}, got {n_channels}.")
    rng = check_random_state(random_state)
    length = segment_length if kind.startswith("collective") else 1
    channels = np.sort(rng.choice(X.shape[1], n_channels, replace=False))
    starts = _disjoint_starts(len(X), length, fraction, rng)
    anomalous = X.copy()
    for start in starts:
        rows = np.arange(start, start + length)
        where = np.ix_(rows, channels)
        anomalous[where] = _anomaly(X[:, channels], rows, kind, magnitude, rng)
    labels = np.zeros(len(X), dtype=int)
    labels[(starts[:, None] + np.arange(length)).ravel()] = 1
    return anomalous, labels, channels


def _disjoint_starts(n_timepoints, length, fraction, rng):
    """First rows of segments that do not overlap, all placements equally likely."""
    n_segments = round(n_timepoints * fraction / length)
    if n_segments < 1:
        raise ValueError(
            f"X is too short: fraction={fraction} of {n_timepoints} rows is less than one "
            f"anomaly of {length} rows."
        )
    n_slots = n_timepoints - n_segments * (length - 1)
    slots = np.sort(rng.choice(n_slots, n_segments, replace=False))
    return slots + (length - 1) * np.arange(n_segments)


def _anomaly(X, rows, kind, magnitude, rng):
    """What takes the place of `rows` of the channels X, shape (len(rows), n_channels)."""
    if kind == "point_global":
        return X.mean(axis=0) + magnitude * X.std(axis=0)
    if kind == "point_contextual":
        local = X[max(rows[0] - _LOCAL, 0) : rows[0] + _LOCAL]
        return local.mean(axis=0) + magnitude * local.std(axis=0)
    if kind == "collective_trend":
        signs = rng.choice([-1.0, 1.0], X.shape[1])
        return X[rows] + magnitude * signs * np.arange(len(rows))[:, None]
    odd = 2 * np.arange(5) + 1
    wave = 3 / odd * np.sin(2 * np.pi * 0.04 * odd * rows[:, None])
    return wave.sum(axis=1, keepdims=True)
