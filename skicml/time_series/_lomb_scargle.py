"""LombScargle: the spectrum of each series of a panel with gaps, as features."""

import warnings
from numbers import Integral

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from skicml.time_series._lomb_scargle_power import (
    NORMALIZATIONS,
    check_grid_for_area,
    lomb_scargle_power,
)
from skicml.time_series._panels import check_times, validate_panel
from skicml.utils._fitting import all_or_nothing

_MIN_OBSERVED = 3  # a sine and a mean fit any two points
_LOWEST = 1e-5  # lowest frequency of the default grid, in cycles per smallest gap


class LombScargle(TransformerMixin, BaseEstimator):
    """Lomb-Scargle spectrum of every series of a panel, with gaps or at irregular times.

    The spectrum of a series is estimated from its observed values alone, without filling
    its gaps [1]_. It is the first step of a pipeline from series with missing values
    to any estimator of scikit-learn.

    Parameters
    ----------
    times : array-like of shape (n_timepoints,) or None, default=None
        Strictly increasing times of the columns, in any unit. Datetimes count in seconds, so
        that frequencies are in Hz. None means 0, 1, 2, ...
    frequencies : int, array-like of shape (n_frequencies,) or None, default=None
        Frequencies in cycles per unit of `times`, above 0. An int is the number of equally
        spaced frequencies from (nearly) 0 to 0.5 / (smallest gap of `times`), the Nyquist
        frequency of a regular grid. None means ``samples_per_peak * n_timepoints`` of them.
    samples_per_peak : int, default=1
        Number of frequencies per time point, where `frequencies` is None.
    center : bool, default=True
        Whether the mean of the observed values is taken out of each series.
    fit_mean : bool, default=False
        Whether a constant is fitted along with each sine, which helps where the gaps hide one
        side of a slow oscillation.
    normalization : {"psd", "standard", "unit_area", "log"}, default="standard"
        Scale of the power, see :func:`lomb_scargle_power`. "standard" is the share of the
        variance that a sine of that frequency explains.
    fap_weighting : bool, default=False
        Whether the power is divided by its false-alarm probability.

    Attributes
    ----------
    times_ : ndarray of shape (n_timepoints,)
        Times of the columns; datetimes as seconds since the first one.
    frequencies_ : ndarray of shape (n_frequencies,)
        Frequencies.
    n_features_in_ : int
        Number of time points, or of channels for a three-dimensional X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where X has names that are strings.

    See Also
    --------
    lomb_scargle_power : The same for numpy arrays and torch tensors, with times of their own
        for each series.
    LSCDImputer : Fills the gaps, by a diffusion model that knows the spectrum.

    Notes
    -----
    Rows are transformed independently of each other; ``fit`` looks at the shape of X only. A
    series with fewer than 3 observed values has power 0 everywhere.

    At irregular times the smallest gap may be far smaller than the typical one. The default
    grid then spreads few frequencies over a wide range and misses the peaks, whose width is
    1 / (duration): give `frequencies`.

    The grid starts at 1e-5 cycles per smallest gap; the paper's at 1e-5 cycles per unit of time,
    which depends on the unit.

    Time O(n_samples n_timepoints n_frequencies), in matrix products; memory
    O(n_samples (n_timepoints + n_frequencies)) beside a table of bounded size. The computation
    is in float64; float32 X gives float32 spectra.

    References
    ----------
    .. [1] Elizabeth Fons, Alejandro Sztrajman, Yousef El-Laham, Luciana Ferrer, Svitlana
       Vyetrenko and Manuela Veloso, "LSCD: Lomb-Scargle Conditioned Diffusion for Time series
       Imputation", ICML 2025, :arxiv:`2506.17039`.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.time_series import LombScargle
    >>> rng = np.random.RandomState(0)
    >>> X = np.sin(2 * np.pi * np.outer([0.1, 0.3], np.arange(60)))
    >>> X[rng.uniform(size=X.shape) < 0.6] = np.nan
    >>> spectra = LombScargle(frequencies=[0.1, 0.2, 0.3]).fit(X)
    >>> print(spectra.transform(X).round(1))
    [[1.  0.  0.1]
     [0.  0.  0.9]]
    >>> print(spectra.get_feature_names_out())
    ['ls_f0.1' 'ls_f0.2' 'ls_f0.3']
    """

    _parameter_constraints: dict = {
        "times": ["array-like", None],
        "frequencies": [Interval(Integral, 2, None, closed="left"), "array-like", None],
        "samples_per_peak": [Interval(Integral, 1, None, closed="left")],
        "center": ["boolean"],
        "fit_mean": ["boolean"],
        "normalization": [StrOptions(set(NORMALIZATIONS))],
        "fap_weighting": ["boolean"],
    }

    def __init__(
        self,
        *,
        times=None,
        frequencies=None,
        samples_per_peak=1,
        center=True,
        fit_mean=False,
        normalization="standard",
        fap_weighting=False,
    ):
        self.times = times
        self.frequencies = frequencies
        self.samples_per_peak = samples_per_peak
        self.center = center
        self.fit_mean = fit_mean
        self.normalization = normalization
        self.fap_weighting = fap_weighting

    @all_or_nothing
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Fix the times and frequencies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_timepoints) or \
                (n_samples, n_timepoints, n_channels)
            Panel of series, NaN where a value is missing. Only its shape is used.
        y : Ignored
            Not used, present for consistency.

        Returns
        -------
        self : LombScargle
            The fitted transformer.

        Raises
        ------
        ValueError
            If X has fewer than 2 time points or is infinite, `times` do not increase
            strictly, do not fit X or hold a NaT, a frequency is not above 0, or `frequencies`
            do not increase strictly where `normalization` integrates over them.
        """
        panel, n_dims = validate_panel(self, X)
        times = check_times(self.times, panel.shape[1])
        frequencies = self._check_frequencies(times)

        self.times_ = times
        self.frequencies_ = frequencies
        self._n_dims = n_dims
        return self

    def transform(self, X):
        """Spectrum of each series.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_timepoints) or \
                (n_samples, n_timepoints, n_channels)
            Panel of series, NaN where a value is missing.

        Returns
        -------
        spectra : ndarray of shape (n_samples, n_frequencies) or \
                (n_samples, n_frequencies, n_channels)
            The power of every series, and channel, at the frequencies.

        Raises
        ------
        ValueError
            If X is not of the form of the data of fit.
        """
        check_is_fitted(self)
        panel, _ = validate_panel(self, X, n_dims=self._n_dims)
        n_samples, n_timepoints, n_channels = panel.shape
        if n_timepoints != len(self.times_):
            raise ValueError(
                f"X must have {len(self.times_)} time points, as in fit, got {n_timepoints}."
            )
        series = panel.transpose(0, 2, 1).reshape(-1, n_timepoints)
        power = lomb_scargle_power(
            self.times_,
            series,
            self.frequencies_,
            self._mask(series),
            fit_mean=self.fit_mean,
            center=self.center,
            normalization=self.normalization,
            fap_weighting=self.fap_weighting,
        )
        power = power.reshape(n_samples, n_channels, -1).transpose(0, 2, 1)
        return power if self._n_dims == 3 else power[:, :, 0]

    def get_feature_names_out(self, input_features=None):
        """Names of the columns that :meth:`transform` gives.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (n_frequencies,)
            "ls_f" and the frequency, with as many digits as tell the frequencies apart.
        """
        check_is_fitted(self)
        for n_digits in range(4, 18):
            names = [f"ls_f{frequency:.{n_digits}g}" for frequency in self.frequencies_]
            if len(set(names)) == len(names):
                break
        return np.asarray(names, dtype=object)

    def _check_frequencies(self, times):
        if self.frequencies is None:
            return frequency_grid(times, self.samples_per_peak * len(times))
        if isinstance(self.frequencies, Integral):
            return frequency_grid(times, self.frequencies)
        frequencies = check_array(
            self.frequencies, ensure_2d=False, dtype=np.float64, input_name="frequencies"
        )
        if frequencies.ndim != 1 or not (frequencies > 0).all():
            raise ValueError("frequencies must be a one-dimensional array of values above 0.")
        if len(np.unique(frequencies)) < len(frequencies):
            raise ValueError("frequencies must be distinct.")
        if self.normalization in ("unit_area", "log"):
            check_grid_for_area(frequencies)
        return frequencies

    def _mask(self, series):
        """What counts as observed: nothing in series that are too short for a spectrum."""
        observed = ~np.isnan(series)
        too_few = observed.sum(axis=1) < _MIN_OBSERVED
        if too_few.any():
            hint = " Rows of X are series: should X be transposed?" if self._n_dims == 2 else ""
            warnings.warn(
                f"{too_few.sum()} series have fewer than {_MIN_OBSERVED} observed values: their "
                f"power is 0.{hint}",
                UserWarning,
                stacklevel=3,
            )
        return observed & ~too_few[:, np.newaxis]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def frequency_grid(times, n_frequencies):
    """Equally spaced frequencies from nearly 0 to the Nyquist frequency of the smallest gap."""
    smallest_gap = np.diff(times).min()
    return np.linspace(_LOWEST, 0.5, n_frequencies) / smallest_gap
