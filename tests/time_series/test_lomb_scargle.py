"""The periodogram against scipy, astropy and the FFT; the transformer; its gradient."""

import pickle
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from scipy.signal import lombscargle
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skicml.datasets import make_gappy_sines
from skicml.time_series import LombScargle, lomb_scargle_power
from skicml.time_series import _lomb_scargle_power as module

FOURIER = np.arange(1, 10) / 20  # of a regular grid of 20 points
IRREGULAR_GRID = np.sort(np.random.default_rng(5).uniform(0.05, 8, 200))
REGULAR_GRID = np.linspace(0.05, 8, 200)


def noisy_sine(n=100, duration=10.0, seed=0, offset=0.0):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, duration, n))
    return t, np.sin(2 * np.pi * 1.1 * t) + rng.normal(size=n) + offset


def oracle(t, y, frequencies, **kwargs):
    """scipy's periodogram of the observed values, centred."""
    observed = ~np.isnan(y)
    t, y = t[observed], y[observed]
    return lombscargle(t, y - y.mean(), 2 * np.pi * frequencies, **kwargs)


# ---- Closed forms and oracles -----------------------------------------------------------------


@pytest.mark.parametrize("frequencies", [REGULAR_GRID, IRREGULAR_GRID], ids=["regular", "any"])
@pytest.mark.parametrize("rows", [None, 3, 50])
@pytest.mark.parametrize("own_times", [False, True])
def test_equals_scipy(frequencies, rows, own_times):
    """Single, few and many rows, shared or own times: every way of evaluating it."""
    t, y = noisy_sine(offset=5.0)
    expected = oracle(t, y, frequencies)
    if rows is not None:
        y = np.tile(y, (rows, 1))
        t = np.tile(t, (rows, 1)) if own_times else t
    power = lomb_scargle_power(t, y, frequencies)
    assert power.shape == (*y.shape[:-1], len(frequencies))
    assert np.abs(power / expected - 1).max() < 1e-9


@pytest.mark.parametrize("shift", [0.0, 2.45e6])
def test_float32_values_at_julian_days(shift):
    t, y = noisy_sine()
    expected = oracle(t, y, REGULAR_GRID)
    power = lomb_scargle_power(t + shift, y.astype(np.float32), REGULAR_GRID)
    assert power.dtype == np.float32
    assert np.abs(power / expected - 1).max() < 1e-4
    tensor = lomb_scargle_power(t + shift, torch.tensor(y, dtype=torch.float32), REGULAR_GRID)
    assert tensor.dtype == torch.float32
    np.testing.assert_allclose(tensor, power, rtol=1e-6)


def test_floating_mean_equals_astropy_and_scipy():
    timeseries = pytest.importorskip("astropy.timeseries")
    t, y = noisy_sine(offset=3.0)
    power = lomb_scargle_power(t, y, IRREGULAR_GRID, fit_mean=True, normalization="standard")
    astropy = timeseries.LombScargle(t, y, fit_mean=True).power(IRREGULAR_GRID, method="slow")
    np.testing.assert_allclose(power, astropy, atol=1e-9)
    scipy = lombscargle(t, y, 2 * np.pi * IRREGULAR_GRID, floating_mean=True, normalize=True)
    np.testing.assert_allclose(power, scipy, atol=1e-9)


@pytest.mark.parametrize("fit_mean", [False, True])
@pytest.mark.parametrize("normalization", ["standard", "psd"])
def test_normalizations_equal_astropy(fit_mean, normalization):
    timeseries = pytest.importorskip("astropy.timeseries")
    t, y = noisy_sine(offset=3.0)
    power = lomb_scargle_power(t, y, REGULAR_GRID, fit_mean=fit_mean, normalization=normalization)
    peer = timeseries.LombScargle(t, y, fit_mean=fit_mean, normalization=normalization)
    expected = peer.power(REGULAR_GRID, method="slow")
    np.testing.assert_allclose(power, expected, atol=1e-9 * expected.max())


@pytest.mark.parametrize("n", [20, 21])
def test_equals_the_fft_on_a_regular_grid(n):
    y = np.random.default_rng(0).normal(size=n)
    k = np.arange(1, (n + 1) // 2)
    power = lomb_scargle_power(np.arange(n), y, k / n)
    np.testing.assert_allclose(power, np.abs(np.fft.rfft(y)[k]) ** 2 / n, atol=1e-12)


@pytest.mark.parametrize("fit_mean", [False, True])
def test_is_the_least_squares_fit(fit_mean):
    """With weights, too: P is half the weighted sum of squares that a sine explains."""
    t, y = noisy_sine(30)
    weights = np.random.default_rng(1).uniform(0.1, 2, 30)
    frequencies = np.array([0.31, 1.1, 2.7])
    power = lomb_scargle_power(t, y, frequencies, weights, fit_mean=fit_mean)
    centred = y - np.average(y, weights=weights)
    root = np.sqrt(weights)
    for frequency, value in zip(frequencies, power):
        phase = 2 * np.pi * frequency * t
        columns = [np.cos(phase), np.sin(phase)] + ([np.ones(30)] if fit_mean else [])
        design = np.column_stack(columns) * root[:, None]
        fitted = design @ np.linalg.lstsq(design, root * centred)[0]
        assert value == pytest.approx(fitted @ fitted / 2, rel=1e-10)


def test_missing_values_are_as_if_they_were_not_there():
    t, y = noisy_sine()
    hidden = np.random.default_rng(2).uniform(size=100) < 0.7
    expected = oracle(t[~hidden], y[~hidden], REGULAR_GRID)
    gappy = np.where(hidden, np.nan, y)
    garbage = np.where(hidden, 1e6, y)
    np.testing.assert_allclose(lomb_scargle_power(t, gappy, REGULAR_GRID), expected, rtol=1e-9)
    masked = lomb_scargle_power(t, garbage, REGULAR_GRID, ~hidden)
    np.testing.assert_allclose(masked, expected, rtol=1e-9)


def test_each_series_has_its_own_times():
    """Neither rows nor times are paired in another order."""
    (t1, y1), (t2, y2) = noisy_sine(seed=0), noisy_sine(seed=1, duration=7.0)
    for frequencies in (REGULAR_GRID, IRREGULAR_GRID):
        power = lomb_scargle_power(np.stack([t1, t2]), np.stack([y1, y2]), frequencies)
        np.testing.assert_allclose(power[0], oracle(t1, y1, frequencies), rtol=1e-9)
        np.testing.assert_allclose(power[1], oracle(t2, y2, frequencies), rtol=1e-9)


@pytest.mark.parametrize("frequencies", [REGULAR_GRID, IRREGULAR_GRID], ids=["regular", "any"])
def test_blocks_do_not_change_the_result(frequencies, monkeypatch):
    t = np.stack([noisy_sine(seed=seed)[0] for seed in range(7)])
    y = np.stack([noisy_sine(seed=seed)[1] for seed in range(7)])
    whole = lomb_scargle_power(t, y, frequencies, fit_mean=True)
    monkeypatch.setattr(module, "_CELLS", 3000)
    np.testing.assert_allclose(lomb_scargle_power(t, y, frequencies, fit_mean=True), whole)


def test_offset_shift_scale_and_unit():
    t, y = noisy_sine()
    power = lomb_scargle_power(t, y, REGULAR_GRID, normalization="standard")
    for other in (
        lomb_scargle_power(t, 1e4 - 7 * y, REGULAR_GRID, normalization="standard"),
        lomb_scargle_power(t - 1e5, y, REGULAR_GRID, normalization="standard"),
        lomb_scargle_power(24 * t, y, REGULAR_GRID / 24, normalization="standard"),
        lomb_scargle_power(t[::-1], y[::-1], REGULAR_GRID, normalization="standard"),
    ):
        np.testing.assert_allclose(other, power, atol=1e-8)


# ---- Normalisations ---------------------------------------------------------------------------


def test_unit_area_and_logarithm():
    t, y = noisy_sine()
    power = lomb_scargle_power(t, y, IRREGULAR_GRID)
    area = lomb_scargle_power(t, y, IRREGULAR_GRID, normalization="unit_area")
    np.testing.assert_allclose(area, power / np.trapezoid(power, IRREGULAR_GRID), rtol=1e-12)
    log = lomb_scargle_power(t, y, IRREGULAR_GRID, normalization="log")
    np.testing.assert_allclose(log, np.log(area + 1e-5), rtol=1e-12)


def test_false_alarm_weights():
    t, y = noisy_sine()
    z = 1e3**2 * lomb_scargle_power(t, y, IRREGULAR_GRID) / np.var(1e3 * y)
    fap = 1 - (1 - np.exp(-z)) ** 200
    weighted = lomb_scargle_power(t, 1e3 * y, IRREGULAR_GRID, fap_weighting=True)
    plain = lomb_scargle_power(t, 1e3 * y, IRREGULAR_GRID)
    np.testing.assert_allclose(weighted, plain / (fap + 1e-5), rtol=1e-6)


def test_false_alarm_probability_is_one_in_noise():
    """Calibrated: the highest peak of noise has a uniform false-alarm probability."""
    y = np.random.default_rng(3).normal(size=(2000, 200))
    k = np.arange(1, 100)
    z = lomb_scargle_power(np.arange(200), y, k / 200).max(axis=1)
    fap = module.false_alarm_probability(np, z, len(k))
    assert abs(np.mean(fap < 0.5) - 0.5) < 0.05
    assert abs(np.mean(fap < 0.1) - 0.1) < 0.04


@pytest.mark.parametrize("normalization", ["psd", "standard", "unit_area", "log"])
@pytest.mark.parametrize("fap_weighting", [False, True])
def test_series_without_variation(normalization, fap_weighting):
    y = np.array([[0.1] * 7, [0.0] * 7, [np.nan] * 7, [np.nan] * 3 + [2.0] + [np.nan] * 3])
    power = lomb_scargle_power(
        np.arange(7.0),
        y,
        np.linspace(1e-5, 0.5, 7),
        normalization=normalization,
        fap_weighting=fap_weighting,
    )
    np.testing.assert_array_equal(power, np.log(1e-5) if normalization == "log" else 0.0)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize("scale", [1e-310, 1e-200, 1e200, 1e300])
def test_huge_and_tiny_values(make, scale):
    t, y = noisy_sine(30)
    for params in ({"normalization": "standard"}, {"normalization": "log", "fap_weighting": True}):
        power = lomb_scargle_power(t, y, REGULAR_GRID, **params)
        scaled = lomb_scargle_power(t, make(y * scale), REGULAR_GRID, **params)
        np.testing.assert_allclose(scaled, power, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-150, 1e-3, 1e150])
def test_power_is_in_squared_units(unit):
    t, y = noisy_sine(30)
    power = lomb_scargle_power(t, y, REGULAR_GRID)
    scaled = lomb_scargle_power(t, y * unit, REGULAR_GRID)
    np.testing.assert_allclose(scaled / unit**2, power, rtol=1e-9)


@pytest.mark.parametrize("cycles", [0.006, 0.02, 0.1])
def test_floating_mean_at_few_hundredths_of_a_cycle(cycles):
    """Constant, sine and cosine are all but a parabola there, yet three directions."""
    t = np.linspace(0, 1, 50)
    y = np.sin(3 * t) + 0.1 * np.random.default_rng(0).normal(size=50)
    phase = 2 * np.pi * cycles * t
    # spans the same as constant, sine and cosine, without their cancellation
    design = np.column_stack([np.ones(50), np.sin(phase), np.sin(phase / 2) ** 2])
    fitted = design @ np.linalg.lstsq(design, y - y.mean(), rcond=None)[0]
    power = lomb_scargle_power(t, y, [cycles], fit_mean=True)
    assert power[0] == pytest.approx(fitted @ fitted / 2, rel=1e-4)


def test_rank_one_designs():
    y = np.array([1.0, -2.0, 0.5, 3.0, 1.0, -1.0])
    signs = (-1.0) ** np.arange(6)
    zero, nyquist = lomb_scargle_power(np.arange(6), y, [0.0, 0.5])
    assert zero == pytest.approx(0, abs=1e-15)
    assert nyquist == pytest.approx((signs @ (y - y.mean())) ** 2 / 6 / 2)
    # sine and constant alternate alike over half of the points: one direction is left
    gappy = np.where(np.arange(6) % 2, np.nan, y)
    assert lomb_scargle_power(np.arange(6), gappy, [0.5], fit_mean=True)[0] == pytest.approx(0)


# ---- Spectra of series with gaps --------------------------------------------------------------


def peaks_found(data, frequencies, power):
    """Share of series whose highest peak is within 0.1 of the strongest tone."""
    return np.mean(np.abs(frequencies[power.argmax(axis=1)] - data.frequencies[:, -1]) < 0.1)


def interpolated_fft(data):
    observed = ~np.isnan(data.X)
    rows = zip(data.X, observed)
    filled = [np.interp(data.times, data.times[o], row[o]) for row, o in rows]
    power = np.abs(np.fft.rfft(filled)) ** 2
    power[:, 0] = 0
    return np.fft.rfftfreq(len(data.times), data.times[1]), power


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("params", "ours", "fft"),
    [
        ({}, 0.98, 0.5),
        (
            {"frequency_ranges": ((0.5, 1.5), (1.25, 2.75)), "amplitudes": (0.5, 1)},
            0.97,
            0.05,
        ),
    ],
    ids=["one tone", "two tones"],
)
def test_peaks_under_gaps(seed, params, ours, fft):
    data = make_gappy_sines(500, missing_fraction=0.75, random_state=seed, **params)
    spectra = LombScargle(times=data.times).fit(data.X)
    assert peaks_found(data, spectra.frequencies_, spectra.transform(data.X)) >= ours
    assert peaks_found(data, *interpolated_fft(data)) <= fft


def test_peaks_under_extreme_gaps():
    data = make_gappy_sines(2000, missing_fraction=0.9, random_state=0)
    spectra = LombScargle(times=data.times).fit(data.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a few series have fewer than 3 values
        power = spectra.transform(data.X)
    assert 0.75 < peaks_found(data, spectra.frequencies_, power) < 0.9


def test_real_light_curve(data_folder):
    star = np.genfromtxt(f"{data_folder}/timeseries/LINEAR_11375941.csv", delimiter=",", names=True)
    frequencies = np.linspace(0.2, 12, 60_000)
    power = lomb_scargle_power(star["t"], star["mag"], frequencies, fit_mean=True)
    assert 24 / frequencies[power.argmax()] == pytest.approx(2.580, abs=5e-4)


# ---- Tensors ----------------------------------------------------------------------------------


@pytest.mark.parametrize("frequencies", [FOURIER, np.array([0.05, 0.11, 0.3])], ids=str)
@pytest.mark.parametrize("own_times", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"fit_mean": True},
        {"normalization": "standard"},
        {"center": False},
        {"normalization": "log", "fap_weighting": True},
    ],
    ids=str,
)
def test_gradients(frequencies, own_times, params):
    """Also on the regular grid with its Fourier frequencies, where tau is undefined."""
    generator = torch.Generator().manual_seed(0)
    draw = {"generator": generator, "dtype": torch.float64}
    t = torch.arange(20, dtype=torch.float64)
    t = (torch.stack([t, 1.1 * t]) if own_times else t).requires_grad_()
    y = torch.randn(2, 20, **draw).requires_grad_()
    mask = (0.2 + torch.rand(2, 20, **draw)).requires_grad_()

    def power(t, y, mask=None):
        return lomb_scargle_power(t, y, frequencies, mask, **params)

    assert torch.autograd.gradcheck(power, (t, y, mask))
    assert torch.autograd.gradcheck(power, (t, y))


def test_gradients_stay_finite_where_nothing_can_be_fitted():
    y = torch.zeros(4, 20, dtype=torch.float64)
    y[1], y[2, 3], y[3] = 1.0, 2.0, torch.nan
    mask = torch.ones_like(y)
    mask[2] = 0
    mask[2, 3] = 1
    tensors = [torch.arange(20.0, dtype=torch.float64), y, mask]
    t, y, mask = (tensor.requires_grad_() for tensor in tensors)
    frequencies = [1e-5, 0.25, 0.5]
    for normalization in module.NORMALIZATIONS:
        power = lomb_scargle_power(t, y, frequencies, mask, normalization=normalization)
        for gradient in torch.autograd.grad(power.sum(), (t, y, mask)):
            assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("frequencies", [REGULAR_GRID, IRREGULAR_GRID], ids=["regular", "any"])
@pytest.mark.parametrize("rows", [2, 50])
def test_tensors_and_arrays_agree(frequencies, rows):
    t, _ = noisy_sine()
    y = np.random.default_rng(0).normal(size=(rows, 100))
    y[y > 1] = np.nan
    for params in ({}, {"fit_mean": True}, {"normalization": "log", "fap_weighting": True}):
        array = lomb_scargle_power(t, y, frequencies, **params)
        tensor = lomb_scargle_power(t, torch.tensor(y), frequencies, **params)
        assert isinstance(tensor, torch.Tensor)
        np.testing.assert_allclose(tensor, array, rtol=1e-9)


def test_numpy_path_does_without_torch():
    code = (
        "import sys, numpy as np; from skicml.time_series import LombScargle\n"
        "LombScargle().fit_transform(np.random.RandomState(0).normal(size=(5, 9)))\n"
        "assert not {'torch', 'skorch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- Speed and memory -------------------------------------------------------------------------


def cpu_seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def test_panel_is_much_faster_than_a_loop_over_scipy():
    """Limit 10; measured 35."""
    X = np.random.default_rng(0).normal(size=(300, 200))
    X[X > 0.7] = np.nan
    spectra = LombScargle().fit(X)
    times, frequencies = spectra.times_, spectra.frequencies_
    ratios = []
    for _ in range(3):
        ours = cpu_seconds(lambda: spectra.transform(X))
        peer = cpu_seconds(lambda: [oracle(times, row, frequencies) for row in X])
        ratios.append(peer / ours)
    assert max(ratios) >= 10


def test_memory_of_long_series_is_bounded():
    from benchmarks._harness import peak_mb

    t, y = noisy_sine(3000, duration=1000.0)
    frequencies = np.linspace(0.2, 12, 20_000)  # a table of sines would take 480 MB
    assert peak_mb(lambda: lomb_scargle_power(t, y, frequencies)) < 100
    frequencies[7] += 1e-6  # no longer equally spaced
    assert peak_mb(lambda: lomb_scargle_power(t, y, frequencies)) < 200


# ---- Transformer ------------------------------------------------------------------------------


def test_channels_are_transformed_one_by_one():
    data = make_gappy_sines(6, 40, n_channels=3, missing_fraction=0.5, random_state=0)
    spectra = LombScargle(times=data.times, normalization="psd").fit(data.X)
    power = spectra.transform(data.X)
    assert power.shape == (6, 40, 3)
    assert spectra.n_features_in_ == 3
    for k in range(3):
        one = LombScargle(times=data.times, normalization="psd").fit_transform(data.X[:, :, k])
        np.testing.assert_allclose(power[:, :, k], one, rtol=1e-9)


def test_grid_of_frequencies():
    X = np.random.default_rng(0).normal(size=(3, 4))
    spectra = LombScargle(times=[0, 2, 3, 7]).fit(X)
    np.testing.assert_allclose(spectra.frequencies_, np.linspace(1e-5, 0.5, 4))
    spectra.set_params(samples_per_peak=5).fit(X)
    assert len(spectra.frequencies_) == 20
    spectra.set_params(frequencies=7).fit(X)
    np.testing.assert_allclose(spectra.frequencies_, np.linspace(1e-5, 0.5, 7))
    # the unit of time does not matter
    hours = LombScargle(times=np.array([0, 2, 3, 7]) * 3600.0).fit(X)
    days = LombScargle(times=[0, 2, 3, 7]).fit(X)
    np.testing.assert_allclose(hours.transform(X), days.transform(X), atol=1e-9)


def test_names_tell_the_frequencies_apart():
    X = np.zeros((1, 5))
    spectra = LombScargle(frequencies=[0.125, 0.25]).fit(X)
    assert list(spectra.get_feature_names_out()) == ["ls_f0.125", "ls_f0.25"]
    close = LombScargle(frequencies=0.1 + 1e-7 * np.arange(50)).fit(X)
    assert len(set(close.get_feature_names_out())) == 50


def test_short_series_have_no_power():
    X = np.full((3, 5), np.nan)
    X[0] = [1.0, 3.0, 2.0, 5.0, 4.0]
    X[1, :2] = [1.0, 2.0]
    spectra = LombScargle().fit(X)
    with pytest.warns(UserWarning, match="2 series have fewer than 3 observed values") as caught:
        power = spectra.transform(X)
    assert len(caught) == 1
    assert "Rows of X are series: should X be transposed?" in str(caught[0].message)
    np.testing.assert_array_equal(power[1:], 0.0)
    assert power[0].max() > 0.1
    panel = X[:, :, np.newaxis]
    with pytest.warns(UserWarning, match="2 series have fewer .* their power is 0.$"):
        LombScargle().fit(panel).transform(panel)


def test_in_a_pipeline_with_a_search():
    """Classes that differ in frequency only, with half of the values missing."""
    slow = make_gappy_sines(60, 50, frequency_ranges=((0.3, 0.8),), random_state=0)
    fast = make_gappy_sines(60, 50, frequency_ranges=((1.2, 1.8),), random_state=1)
    X, y = np.vstack([slow.X, fast.X]), np.repeat([0, 1], 60)
    pipeline = make_pipeline(LombScargle(times=slow.times), LogisticRegression(C=10))
    search = GridSearchCV(pipeline, {"lombscargle__fit_mean": [False, True]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    restored = pickle.loads(pickle.dumps(search))
    np.testing.assert_array_equal(restored.predict(X), search.predict(X))


# ---- Bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"times": [0, 1, 1, 2]}, "times must increase strictly"),
        ({"times": [0, 1, 2]}, r"times must have shape \(4,\).*got \(3,\)"),
        ({"times": [0, 1, np.nan, 2]}, "times contains NaN"),
        ({"frequencies": [0.1, 0.0]}, "frequencies must be .* above 0"),
        ({"frequencies": [-0.1]}, "frequencies must be .* above 0"),
        ({"frequencies": [[0.1]]}, "frequencies must be a one-dimensional"),
        ({"frequencies": [0.1, 0.1]}, "frequencies must be distinct"),
        ({"frequencies": [0.1], "normalization": "log"}, "increase strictly"),
        ({"frequencies": [0.2, 0.1], "normalization": "unit_area"}, "increase strictly"),
        ({"frequencies": [0.1, np.inf]}, "frequencies contains infinity"),
    ],
)
def test_bad_parameters(params, message):
    with pytest.raises(ValueError, match=message):
        LombScargle(**params).fit(np.zeros((2, 4)))


def test_bad_panels():
    with pytest.raises(ValueError, match="at least 2 time points, got n_features = 1"):
        LombScargle().fit(np.zeros((5, 1)))
    with pytest.raises(ValueError, match="infinity"):
        LombScargle().fit([[1.0, np.inf, 2.0]])
    spectra = LombScargle().fit(np.zeros((2, 5, 3)))
    with pytest.raises(ValueError, match="3 dimensions, as in fit, got 2"):
        spectra.transform(np.zeros((2, 5)))
    with pytest.raises(ValueError, match="5 time points, as in fit, got 4"):
        spectra.transform(np.zeros((2, 4, 3)))
    with pytest.raises(ValueError, match="4 features, but LombScargle is expecting 3"):
        spectra.transform(np.zeros((2, 5, 4)))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"t": [0.0, 1.0]}, r"t must have shape \(3,\)"),
        ({"t": [[0.0, 1.0, 2.0]]}, r"t must have shape \(3,\)"),
        ({"t": [0.0, 1.0, np.nan]}, "t contains NaN"),
        ({"y": 1.0}, "y must have shape"),
        ({"y": np.ones((1, 1, 3))}, "y must have shape"),
        ({"y": [0.0, np.inf, 1.0]}, "y contains infinity"),
        ({"frequencies": 0.5}, "frequencies must have shape"),
        ({"frequencies": [np.nan]}, "frequencies contains NaN"),
        ({"mask": [1.0, 1.0]}, "mask must have the shape of y"),
        ({"mask": [1.0, -1.0, 1.0]}, "mask must hold weights >= 0"),
        ({"frequencies": [0.5, 0.1], "normalization": "log"}, "increase strictly"),
        ({"frequencies": [0.5], "normalization": "unit_area"}, "increase strictly"),
        ({"normalization": "model"}, "normalization must be one of"),
    ],
)
def test_bad_arguments_of_the_function(make, changes, message):
    arguments = {"t": [0.0, 1.0, 2.0], "y": [1.0, 2.0, 0.0], "frequencies": [0.1, 0.2]} | changes
    for name in ("t", "y", "frequencies", "mask"):
        if name in arguments:
            arguments[name] = make(arguments[name])
    with pytest.raises(ValueError, match=message):
        lomb_scargle_power(**arguments)
