"""Datetimes as times: they count in seconds, whatever their unit, library and time zone."""

from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
import torch

from skicml.time_series import LombScargle, LSCDImputer, lomb_scargle_power
from skicml.time_series._panels import check_times, in_seconds

HOURS = np.array([0, 1, 3, 4, 6, 7, 8, 11])
SECONDS = 3600.0 * HOURS
START = datetime(2025, 3, 1, 12)
STAMPS = [START + timedelta(hours=int(hour)) for hour in HOURS]
DATETIMES = np.array(STAMPS, dtype="datetime64[s]")


def pandas_index(zone=None):
    pd = pytest.importorskip("pandas")
    return pd.DatetimeIndex(STAMPS, tz=zone)


def polars_series():
    return pytest.importorskip("polars").Series(STAMPS)


KINDS = {
    "seconds": lambda: DATETIMES,
    "hours": lambda: DATETIMES.astype("datetime64[h]"),
    "milliseconds": lambda: DATETIMES.astype("datetime64[ms]"),
    "nanoseconds": lambda: DATETIMES.astype("datetime64[ns]"),
    "differences": lambda: DATETIMES - DATETIMES[0],
    "objects of Python": lambda: STAMPS,
    "differences of Python": lambda: [stamp - STAMPS[0] for stamp in STAMPS],
    "scalars of numpy": lambda: list(DATETIMES),
    "pandas": pandas_index,
    "pandas in a time zone": lambda: pandas_index(timezone(timedelta(hours=9))),
    "series of pandas": lambda: pandas_index().to_series(),
    "list of pandas": lambda: list(pandas_index()),
    "polars": polars_series,
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_datetimes_count_in_seconds_since_the_first(make):
    times = check_times(make(), len(HOURS))
    assert times.dtype == np.float64
    np.testing.assert_array_equal(times, SECONDS)


def test_days_months_and_parts_of_a_second():
    days = [date(2025, 2, 27), date(2025, 3, 1)]
    months = np.array(["2025-01", "2025-03"], dtype="datetime64[M]")
    nanoseconds = np.array([0, 1500], dtype="datetime64[ns]")
    np.testing.assert_array_equal(in_seconds(days, "t"), [0, 2 * 86400])
    np.testing.assert_array_equal(in_seconds(months, "t"), [0, (31 + 28) * 86400])
    np.testing.assert_allclose(in_seconds(nanoseconds, "t"), [0, 1.5e-6], rtol=1e-15)


def test_numbers_stay_as_they_are():
    numbers = [3, 5]
    assert in_seconds(numbers, "t") is numbers


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("own_times", [False, True])
def test_power_at_datetimes_is_that_at_seconds(own_times, tensors):
    y = np.random.RandomState(0).standard_normal((3, len(HOURS)))
    frequencies = np.linspace(1e-6, 1e-4, 20)
    shifts = np.array([[0], [5], [400]], dtype="timedelta64[D]")
    t = DATETIMES + shifts if own_times else DATETIMES
    expected = lomb_scargle_power(SECONDS, y, frequencies)
    power = lomb_scargle_power(t, torch.as_tensor(y) if tensors else y, frequencies)
    np.testing.assert_allclose(power, expected, rtol=1e-9)


@pytest.mark.parametrize("make", [KINDS["nanoseconds"], pandas_index, lambda: STAMPS])
def test_spectrum_at_datetimes_is_in_hertz(make):
    X = np.sin(2 * np.pi * np.outer([5e-5, 9e-5], SECONDS))
    spectra = LombScargle(times=make(), frequencies=[5e-5, 9e-5]).fit(X)
    np.testing.assert_array_equal(spectra.times_, SECONDS)
    np.testing.assert_array_equal(spectra.transform(X).argmax(axis=1), [0, 1])
    default = LombScargle(times=make()).fit(X)
    assert default.frequencies_.max() == pytest.approx(0.5 / 3600)


def test_imputer_with_datetimes_is_that_with_seconds():
    X = np.random.RandomState(0).standard_normal((6, len(HOURS)))
    X[:, 2] = np.nan
    sizes = {"n_channels": 8, "n_heads": 2, "spectral_channels": 8, "n_layers": 1}
    imputers = [
        LSCDImputer(times=times, max_iter=2, n_samples=2, random_state=0, **sizes).fit(X)
        for times in (DATETIMES.astype("datetime64[ns]"), SECONDS)
    ]
    for name in ("times_", "frequencies_"):
        np.testing.assert_array_equal(getattr(imputers[0], name), getattr(imputers[1], name))
    np.testing.assert_array_equal(imputers[0].transform(X), imputers[1].transform(X))


@pytest.mark.parametrize("position", [0, 1])
def test_missing_time_is_an_error(position):
    pd = pytest.importorskip("pandas")
    holed = DATETIMES.copy()
    holed[position] = "NaT"
    X = np.zeros((2, len(HOURS)))
    for times in (holed, pd.DatetimeIndex(holed), list(pd.DatetimeIndex(holed))):
        for estimator in (LombScargle(times=times), LSCDImputer(times=times)):
            with pytest.raises(ValueError, match="times contains NaT"):
                estimator.fit(X)
        with pytest.raises(ValueError, match="t contains NaT"):
            lomb_scargle_power(times, X, [1e-5])
