"""Sums of sines with gaps: panels whose spectrum is known."""

from math import pi
from numbers import Integral

import numpy as np
from sklearn.utils import Bunch, check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions, validate_params

from skicml.datasets._constraints import FRACTION_BELOW_1, NOT_NEGATIVE, POSITIVE, SIZE


@validate_params(
    {
        "n_samples": [SIZE],
        "n_timepoints": [Interval(Integral, 2, None, closed="left")],
        "n_channels": [SIZE, None],
        "duration": [POSITIVE],
        "frequency_ranges": ["array-like"],
        "frequency_shape": [POSITIVE],
        "amplitudes": ["array-like"],
        "noise": [NOT_NEGATIVE],
        "missing_fraction": [FRACTION_BELOW_1],
        "gaps": [StrOptions({"random", "block"})],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_gappy_sines(
    n_samples=500,
    n_timepoints=100,
    *,
    n_channels=None,
    duration=10.0,
    frequency_ranges=((0.5, 1.5),),
    frequency_shape=2.0,
    amplitudes=(1.0,),
    noise=0.0,
    missing_fraction=0.75,
    gaps="random",
    random_state=None,
):
    """Panel of sums of sines of random frequencies and phases, with missing values.

    Each series is ``sum_i a_i sin(2 pi f_i t + phase_i)`` plus noise, at equally spaced times.
    The channels of a series share its frequencies and have phases of their own.

    Parameters
    ----------
    n_samples : int, default=500
        Number of series.
    n_timepoints : int, default=100
        Length of the series, at least 2.
    n_channels : int or None, default=None
        Number of channels; None gives univariate series as a two-dimensional panel.
    duration : float, default=10.0
        Last time; the first is 0.
    frequency_ranges : sequence of (low, high), default=((0.5, 1.5),)
        Range of the frequency of each tone, in cycles per unit of time.
    frequency_shape : float, default=2.0
        Frequencies are drawn from Beta(frequency_shape, frequency_shape), stretched over their
        range; 1 is the uniform distribution.
    amplitudes : sequence of float, default=(1.0,)
        Amplitude of each tone.
    noise : float, default=0.0
        Standard deviation of Gaussian noise.
    missing_fraction : float, default=0.75
        Share of the values that are missing, in [0, 1).
    gaps : {"random", "block"}, default="random"
        "random": each value is missing with that chance, independently. "block": in each series
        and channel one gap of ``missing_fraction * n_timepoints`` values, at a random place.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    data : :class:`sklearn.utils.Bunch`
        With the attributes

        - ``X``, the panel with NaN where values are missing, of shape (n_samples, n_timepoints)
          or (n_samples, n_timepoints, n_channels);
        - ``complete``, the same without missing values;
        - ``times``, of shape (n_timepoints,);
        - ``frequencies``, those drawn, of shape (n_samples, n_tones).

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, `frequency_ranges` does not hold
        pairs, or there are not as many of them as `amplitudes`.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.datasets import make_gappy_sines
    >>> sines = make_gappy_sines(4, 200, random_state=0)
    >>> sines.X.shape
    (4, 200)
    >>> print(np.isnan(sines.X).mean().round(1))
    0.7
    """
    ranges = check_array(frequency_ranges, dtype=np.float64, input_name="frequency_ranges")
    if ranges.shape[1] != 2:
        raise ValueError(f"frequency_ranges must hold pairs (low, high), got {frequency_ranges!r}.")
    amplitudes = check_array(amplitudes, ensure_2d=False, dtype=np.float64, input_name="amplitudes")
    if amplitudes.ndim != 1:
        raise ValueError(f"amplitudes must be 1-D, got shape {amplitudes.shape}.")
    if len(frequency_ranges) != len(amplitudes):
        raise ValueError(
            f"There are {len(frequency_ranges)} frequency_ranges but {len(amplitudes)} amplitudes."
        )
    rng = check_random_state(random_state)
    shape = (n_samples, n_timepoints, 1 if n_channels is None else n_channels)
    low, high = ranges.T
    draws = rng.beta(frequency_shape, frequency_shape, (n_samples, len(amplitudes)))
    frequencies = low + (high - low) * draws

    times = np.linspace(0, duration, n_timepoints)
    complete = noise * rng.normal(size=shape)
    for frequency, amplitude in zip(frequencies.T, amplitudes):
        phases = rng.uniform(0, 2 * pi, (n_samples, 1, shape[2]))
        angles = 2 * pi * frequency[:, np.newaxis] * times
        complete += amplitude * np.sin(angles[:, :, np.newaxis] + phases)

    X = np.where(_gaps(shape, missing_fraction, gaps, rng), np.nan, complete)
    if n_channels is None:
        X, complete = X[:, :, 0], complete[:, :, 0]
    return Bunch(X=X, complete=complete, times=times, frequencies=frequencies)


def _gaps(shape, fraction, kind, rng):
    """Boolean array, True where a value is missing."""
    if kind == "random":
        return rng.uniform(size=shape) < fraction
    n_samples, n_timepoints, n_channels = shape
    width = round(fraction * n_timepoints)
    starts = rng.randint(n_timepoints - width + 1, size=(n_samples, 1, n_channels))
    steps = np.arange(n_timepoints)[:, np.newaxis] - starts
    return (steps >= 0) & (steps < width)
