import numpy as np
import pytest

from skicml.datasets import make_gappy_sines


def test_bad_sines():
    with pytest.raises(ValueError, match="missing_fraction"):
        make_gappy_sines(missing_fraction=1.0)
    with pytest.raises(ValueError, match="gaps"):
        make_gappy_sines(gaps="none")
    with pytest.raises(ValueError, match="1 frequency_ranges but 2 amplitudes"):
        make_gappy_sines(amplitudes=(1, 2))
    with pytest.raises(ValueError, match="frequency_ranges must hold pairs"):
        make_gappy_sines(frequency_ranges=[(0.5, 1.0, 1.5)])
    with pytest.raises(ValueError, match="amplitudes must be 1-D"):
        make_gappy_sines(amplitudes=[(1.0,)])
    with pytest.raises(ValueError, match="n_timepoints"):
        make_gappy_sines(n_timepoints=1)


def test_sines():
    block = make_gappy_sines(50, 40, n_channels=2, gaps="block", missing_fraction=0.3)
    missing = np.isnan(block.X)
    np.testing.assert_array_equal(missing.sum(axis=1), 12)
    np.testing.assert_array_equal((np.diff(missing, axis=1) != 0).sum(axis=1) <= 2, True)
    np.testing.assert_array_equal(block.X[~missing], block.complete[~missing])
    scattered = make_gappy_sines(200, 100, missing_fraction=0.4, random_state=0)
    assert np.isnan(scattered.X).mean() == pytest.approx(0.4, abs=0.02)
    assert scattered.frequencies.min() >= 0.5
    assert scattered.frequencies.max() <= 1.5


def test_channels_share_frequencies_but_not_phases():
    data = make_gappy_sines(
        5,
        400,
        n_channels=2,
        frequency_ranges=((0.5, 1.5), (3, 4)),
        amplitudes=(1, 2),
        missing_fraction=0.0,
        random_state=0,
    )
    assert data.frequencies.shape == (5, 2)
    np.testing.assert_array_equal(data.X, data.complete)
    for series, frequencies in zip(data.complete, data.frequencies):
        angles = 2 * np.pi * np.outer(data.times, frequencies)
        design = np.hstack([np.sin(angles), np.cos(angles)])
        coefficients, residual, *_ = np.linalg.lstsq(design, series)
        np.testing.assert_allclose(residual, 0, atol=1e-20)
        amplitudes = np.hypot(coefficients[:2], coefficients[2:])
        np.testing.assert_allclose(amplitudes, [[1, 1], [2, 2]])
        assert np.abs(coefficients[:, 0] - coefficients[:, 1]).max() > 0.01


def test_noise_and_seed():
    quiet = make_gappy_sines(3, 50, random_state=4)
    np.testing.assert_array_equal(quiet.X, make_gappy_sines(3, 50, random_state=4).X)
    noise = make_gappy_sines(200, 100, amplitudes=(0.0,), noise=0.5, random_state=0).complete
    assert noise.std() == pytest.approx(0.5, rel=0.02)
