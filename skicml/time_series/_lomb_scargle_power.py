"""The Lomb-Scargle periodogram of series with gaps, for numpy arrays and torch tensors alike."""

import sys
from math import isqrt, pi

import numpy as np

from skicml.time_series._panels import in_seconds

NORMALIZATIONS = ("psd", "standard", "unit_area", "log")
LOG_FLOOR = 1e-5  # added to the unit-area power before its logarithm
_FAP_FLOOR = 1e-5
# Sine and cosine count as linearly dependent on the observed times below this determinant of
# their Gram matrix (shares of the total weight), in units of its trace: rounding of the sums
# moves the determinant by some 1e-16 traces.
_RANK_ONE = 1e-9
_CONSTANT = 1e-13  # a standard deviation below this share of the root mean square is rounding
_CELLS = 2**21  # largest table that is built at once: bounds the memory
_FEW_ROWS = 32  # at one time grid, tables shared by all rows pay for more rows than this


def lomb_scargle_power(
    t,
    y,
    frequencies,
    mask=None,
    *,
    fit_mean=False,
    center=True,
    normalization="psd",
    fap_weighting=False,
):
    r"""Lomb-Scargle periodogram of one series or many, with gaps.

    How much of a series a sine of each frequency explains, by least squares at the observed
    times alone: nothing is interpolated.

    Parameters
    ----------
    t : array-like or tensor of shape (n_timepoints,) or (n_series, n_timepoints)
        Times, in any unit and order; one grid for all series, or one for each. Datetimes count
        in seconds.
    y : array-like or tensor of shape (n_timepoints,) or (n_series, n_timepoints)
        Values; NaN means missing.
    frequencies : array-like or tensor of shape (n_frequencies,)
        Frequencies in cycles per unit of time; Hz where `t` are datetimes.
    mask : array-like or tensor of the shape of y, or None, default=None
        Weights, at least 0: True or 1 for observed, False or 0 for missing.
    fit_mean : bool, default=False
        Whether a constant is fitted along with each sine (floating mean).
    center : bool, default=True
        Whether the weighted mean of each series is taken out first.
    normalization : {"psd", "standard", "unit_area", "log"}, default="psd"
        - "psd": the power P of Scargle, in squared units of y times the number of points;
        - "standard": the explained share of the sum of squares, between 0 and 1;
        - "unit_area": P divided by its integral over the frequencies;
        - "log": logarithm of 1e-5 plus the unit-area power.
    fap_weighting : bool, default=False
        Whether P is first divided by its false-alarm probability (plus 1e-5), which makes
        significant peaks stand out.

    Returns
    -------
    power : ndarray or tensor of shape (n_frequencies,) or (n_series, n_frequencies)
        The periodogram, in the floating dtype of y; a tensor if any argument is one.

    Raises
    ------
    ValueError
        If shapes do not fit, a time, frequency or value is infinite, a time is missing, a weight
        is negative, or frequencies do not increase where an integral over them is asked for.

    See Also
    --------
    LombScargle : Transformer that gives the periodogram of each row.
    scipy.signal.lombscargle : One series at a time, in numpy.

    Notes
    -----
    With weights m of sum n and angular frequency w, and sums over the times, let ::

        CC = sum m cos^2 wt    SS = sum m sin^2 wt    CS = sum m cos wt sin wt
        YC = sum m y cos wt    YS = sum m y sin wt     D = CC SS - CS^2

        P = 1/2 (YC^2 SS - 2 YC YS CS + YS^2 CC) / D

    which equals the classical form with the offset tau but needs no arc tangent: its gradient
    exists at the Fourier frequencies of a regular grid, too. Where sine and cosine are linearly
    dependent on the observed times (D <= 1e-9 n (CC + SS): frequency 0, the Nyquist frequency,
    fewer than 3 points), the power of the one direction that is left is
    ``P = 1/2 (YC^2 + YS^2) / (CC + SS)``. With ``fit_mean=True`` all sums are about their means.

    Times are shifted to start at 0, and all is computed in float64, since a phase in float32 is
    meaningless at large times. With tensors the result is differentiable with respect to y, t
    and mask. The false-alarm probability is that of Scargle, ``1 - (1 - exp(-z))^J`` for J
    frequencies and z = P / var(y); the published code takes z = P, for series of variance 1.
    A unit-area power is divided by the integral itself, not by the integral plus 1e-10.

    For B series of L times and J frequencies the time is O(B L J) in matrix products, in three
    ways: tables of sines and cosines shared by all series when they share their times;
    products of about 2 sqrt(J) L sines when frequencies are equally spaced; and direct sums
    over blocks of frequencies otherwise. Memory is O(B J + B L) beside a table of bounded size;
    the gradient of the first keeps O(L J), of the direct sums O(B L J). For one series with
    thousands of points and frequencies a non-uniform FFT (package nifty-ls) is faster.

    References
    ----------
    .. [1] Elizabeth Fons, Alejandro Sztrajman, Yousef El-Laham, Luciana Ferrer, Svitlana
       Vyetrenko and Manuela Veloso, "LSCD: Lomb-Scargle Conditioned Diffusion for Time series
       Imputation", ICML 2025, :arxiv:`2506.17039`.
    .. [2] Jeffrey D. Scargle, "Studies in astronomical time series analysis II", The
       Astrophysical Journal 263, 1982.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.time_series import lomb_scargle_power
    >>> t = np.sort(np.random.RandomState(0).uniform(0, 50, 80))
    >>> frequencies = np.linspace(0.01, 1, 400)
    >>> power = lomb_scargle_power(t, np.sin(2 * np.pi * 0.3 * t), frequencies)
    >>> print(frequencies[power.argmax()].round(2))
    0.3
    """
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {normalization!r}.")
    xp, t, y, frequencies, weights, dtype = _check_arrays(t, y, frequencies, mask)
    if normalization in ("unit_area", "log"):
        check_grid_for_area(frequencies)
    is_one = y.ndim == 1
    if is_one:
        y, weights = y[None], weights[None]

    observed = ~xp.isnan(y)
    weights, y = xp.where(observed, weights, 0.0), xp.where(observed, y, 0.0)
    total = weights.sum(-1)[:, None]
    shares = weights / xp.where(total > 0, total, 1.0)
    unit = _unit(xp, y)
    y = y / unit  # no square over- or underflows
    mean_square = (shares * y * y).sum(-1)[:, None]
    if center or fit_mean:
        y = y - (shares * y).sum(-1)[:, None]
    variance = (shares * y * y).sum(-1)[:, None]
    varies = variance > _CONSTANT**2 * mean_square

    explained = _explained(xp, t, frequencies, shares, shares * y, fit_mean)
    share = xp.where(varies, explained / xp.where(varies, variance, 1.0), 0.0)
    factor = 1.0
    if fap_weighting:
        fap = false_alarm_probability(xp, share * total / 2, len(frequencies))
        factor = 1 / (fap + _FAP_FLOOR)
    if normalization == "psd":
        power = xp.where(varies, explained * total / 2, 0.0) * factor * unit * unit
    elif normalization == "standard":
        power = share * factor
    else:
        power = _unit_area(xp, share * factor, frequencies)
        if normalization == "log":
            power = xp.log(power + LOG_FLOOR)
    power = power.astype(dtype, copy=False) if xp is np else power.to(dtype)
    return power[0] if is_one else power


def _unit(xp, y):
    """Power of two next to the largest value of each row: division by it does not round."""
    if xp is not np:
        y = y.detach()  # the unit cancels in every result, and so in every gradient
    largest = xp.amax(xp.abs(y), -1)[:, None]
    largest = xp.where(largest > 0, largest, 1.0)
    return largest / (2 * xp.frexp(largest)[0])


def false_alarm_probability(xp, z, n_frequencies):
    """Chance that noise has a peak of normalised power z at one of the frequencies."""
    z = xp.clip(z, 1e-12, None)
    return -xp.expm1(n_frequencies * xp.log1p(-xp.exp(-z)))


def _unit_area(xp, power, frequencies):
    """Power divided by its integral over the frequencies; zeros stay zeros."""
    gaps = frequencies[1:] - frequencies[:-1]
    area = ((power[:, 1:] + power[:, :-1]) / 2 * gaps).sum(-1)[:, None]
    return power / xp.where(area > 0, area, 1.0)


def _explained(xp, t, frequencies, shares, shares_y, fit_mean):
    """Mean square that the best sine of each frequency explains, shape (B, J).

    Gram matrix and right-hand side of the least squares, and its closed form.
    """
    y_cos, y_sin, sin_sin, cos_sin, *means = _sums(xp, t, frequencies, shares, shares_y, fit_mean)
    cos_cos = shares.sum(-1)[:, None] - sin_sin
    if fit_mean:  # y is centred, so only the sine and the cosine have means to be taken out
        cos, sin = means
        cos_cos, sin_sin, cos_sin = cos_cos - cos**2, sin_sin - sin**2, cos_sin - cos * sin
    determinant = cos_cos * sin_sin - cos_sin**2
    trace = cos_cos + sin_sin
    quadratic = y_cos**2 * sin_sin - 2 * y_cos * y_sin * cos_sin + y_sin**2 * cos_cos
    # Both branches of `where` need a finite gradient, hence the inner ones.
    some = trace > _RANK_ONE
    regular = determinant > _RANK_ONE * xp.clip(trace, _RANK_ONE, None)
    rank_one = xp.where(some, (y_cos**2 + y_sin**2) / xp.where(some, trace, 1.0), 0.0)
    return xp.where(regular, quadratic / xp.where(regular, determinant, 1.0), rank_one)


def _sums(xp, t, frequencies, shares, shares_y, fit_mean):
    """Sums of y cos, y sin, sin^2, cos sin (and for `fit_mean` cos, sin), each (B, J).

    `t` has shape (L,) for a grid that all rows share, or (B, L).
    """
    few = t.ndim == 2 or len(shares) <= _FEW_ROWS
    if few and _is_equally_spaced(frequencies):
        t = t if t.ndim == 2 else t[None]
        return _factored_sums(xp, t, frequencies, shares, shares_y, fit_mean)
    if t.ndim == 1:
        return _table_sums(xp, t, frequencies, shares, shares_y, fit_mean)
    sums = _table_sums(xp, t, frequencies, shares[:, None], shares_y[:, None], fit_mean)
    return [part[:, 0] for part in sums]


def _table_sums(xp, t, frequencies, shares, shares_y, fit_mean):
    """The sums as products with tables of sines, in blocks of frequencies.

    Tables are (L, j) for shared times with rows (B, L), or (B, L, j) with rows (B, 1, L).
    """
    pieces = []
    width = max(1, _CELLS // t.size if xp is np else _CELLS // t.numel())
    for start in range(0, len(frequencies), width):
        phase = 2 * pi * (t[..., None] * frequencies[start : start + width])
        cos, sin = xp.cos(phase), xp.sin(phase)
        # sin^2 itself instead of (1 - cos(2 phase)) / 2: exact digits at low frequencies.
        piece = [shares_y @ cos, shares_y @ sin, shares @ (sin * sin), shares @ (cos * sin)]
        pieces.append(piece + ([shares @ cos, shares @ sin] if fit_mean else []))
    return [xp.concat(parts, -1) for parts in zip(*pieces)]


def _factored_sums(xp, t, frequencies, shares, shares_y, fit_mean):
    """The sums at equally spaced frequencies f_0 + (a q + b) df, in blocks of rows.

    exp(i w t) is the product of a factor of a and a factor of b: about 2 sqrt(J) L sines.
    """
    n_frequencies = len(frequencies)
    n_inner = isqrt(n_frequencies - 1) + 1
    n_outer = -(-n_frequencies // n_inner)
    step = (frequencies[-1] - frequencies[0]) / max(n_frequencies - 1, 1)
    inner = step * _arange(xp, n_inner, frequencies)
    outer = frequencies[0] + step * n_inner * _arange(xp, n_outer, frequencies)

    def sums_over_time(rows, u, v):
        """sum_l rows[l] exp(i w_k t_l), from the two factors, shape (B, J)."""
        return ((rows[..., None] * u).mT @ v).reshape(len(rows), -1)[:, :n_frequencies]

    pieces = []
    height = max(1, _CELLS // (t.shape[1] * n_inner))
    for start in range(0, len(shares), height):
        rows = slice(start, start + height)
        times = (t if len(t) == 1 else t[rows])[..., None]
        u, v = xp.exp(2j * pi * (times * outer)), xp.exp(2j * pi * (times * inner))
        single = sums_over_time(shares_y[rows], u, v)
        double = sums_over_time(shares[rows], u * u, v * v)
        sin_sin = (shares[rows].sum(-1)[:, None] - double.real) / 2
        piece = [single.real, single.imag, sin_sin, double.imag / 2]
        if fit_mean:
            mean = sums_over_time(shares[rows], u, v)
            piece += [mean.real, mean.imag]
        pieces.append(piece)
    return [xp.concat(parts, 0) for parts in zip(*pieces)]


def _is_equally_spaced(frequencies):
    """Whether the frequencies are an arithmetic progression, up to rounding."""
    if hasattr(frequencies, "detach"):
        frequencies = frequencies.detach().cpu().numpy()
    grid = np.linspace(frequencies[0], frequencies[-1], len(frequencies))
    return bool(np.abs(frequencies - grid).max() <= 8 * np.spacing(np.abs(grid).max()))


def _namespace(*arrays):
    """torch if one of the arrays is a tensor, else numpy. Never imports torch."""
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(array, torch.Tensor) for array in arrays):
        return torch
    return np


def _arange(xp, n, like):
    """0, ..., n - 1 in float64."""
    if xp is np:
        return np.arange(n, dtype=np.float64)
    return xp.arange(n, dtype=xp.float64, device=like.device)


def _check_arrays(t, y, frequencies, mask):
    """All arrays in float64 in one namespace and checked, and the dtype of the result."""
    xp = _namespace(t, y, frequencies, mask)
    if xp is np or not isinstance(t, xp.Tensor):
        t = in_seconds(t, "t")
    if xp is np:
        y = np.asarray(y)
        dtype = y.dtype if y.dtype.kind == "f" else np.float64

        def double(array):
            return np.asarray(array, dtype=np.float64)
    else:
        device = next(a.device for a in (y, t, mask, frequencies) if isinstance(a, xp.Tensor))
        y = xp.as_tensor(y, device=device)
        dtype = y.dtype if y.is_floating_point() else xp.float64

        def double(array):
            return xp.as_tensor(array, dtype=xp.float64, device=device)

    t, y, frequencies = double(t), double(y), double(frequencies)
    weights = xp.ones_like(y) if mask is None else double(mask)
    if y.ndim not in (1, 2) or y.shape[-1] == 0:
        raise ValueError(
            f"y must have shape (n_timepoints,) or (n_series, n_timepoints), got {tuple(y.shape)}."
        )
    if tuple(t.shape) not in ((y.shape[-1],), tuple(y.shape)):
        raise ValueError(
            f"t must have shape {(y.shape[-1],)} or that of y, {tuple(y.shape)}, "
            f"got {tuple(t.shape)}."
        )
    if weights.shape != y.shape:
        raise ValueError(
            f"mask must have the shape of y, {tuple(y.shape)}, got {tuple(weights.shape)}."
        )
    if frequencies.ndim != 1 or len(frequencies) == 0:
        raise ValueError(
            f"frequencies must have shape (n_frequencies,), got {tuple(frequencies.shape)}."
        )
    for name, array in (("t", t), ("frequencies", frequencies)):
        if not xp.isfinite(array).all():
            raise ValueError(f"{name} contains NaN or infinity.")
    if xp.isinf(y).any():
        raise ValueError("y contains infinity; a missing value is NaN.")
    if not (weights >= 0).all():
        raise ValueError("mask must hold weights >= 0.")
    return xp, t - t[..., :1], y, frequencies, weights, dtype


def check_grid_for_area(frequencies):
    """An integral over the frequencies needs an interval, from left to right."""
    if len(frequencies) < 2 or not (frequencies[1:] > frequencies[:-1]).all():
        raise ValueError(
            "frequencies must be at least 2 and increase strictly for normalization='unit_area' "
            "and 'log', which integrate over them."
        )
