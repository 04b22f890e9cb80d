"""LSCDImputer trained: errors, calibration and spread on sines whose gaps can be filled."""

import numpy as np
import pytest

from skicml.datasets import make_gappy_sines
from skicml.time_series import LSCDImputer, lomb_scargle_power

SMALL = {
    "n_layers": 4,
    "n_channels": 32,
    "n_heads": 4,
    "time_embedding_dim": 32,
    "spectral_channels": 16,
}
SINES = {
    "n_timepoints": 16,
    "duration": 1.5,
    "frequency_ranges": ((0.95, 1.05),),
    "frequency_shape": 1,
    "amplitudes": (np.sqrt(2),),
    "noise": 0.1,
}


@pytest.fixture(scope="module")
def test_panel():
    return make_gappy_sines(200, missing_fraction=0.5, random_state=1, **SINES)


@pytest.fixture(scope="module")
def trained():
    """About 55 s of one core."""
    data = make_gappy_sines(2000, missing_fraction=0.0, random_state=0, **SINES)
    imputer = LSCDImputer(
        times=data.times,
        max_iter=1500,
        batch_size=48,
        learning_rate=2e-3,
        validation_fraction=0.05,
        n_samples=8,
        random_state=0,
        **SMALL,
    )
    return imputer.fit(data.X)


@pytest.fixture(scope="module")
def filled(trained, test_panel):
    return trained.transform(test_panel.X)


def test_beats_interpolation_by_half(filled, test_panel):
    """Limit of the mean absolute error 0.30; interpolation 0.56, zero 0.91."""
    hidden = np.isnan(test_panel.X)
    errors = np.abs(filled - test_panel.complete)[hidden]
    assert errors.mean() <= 0.30
    line = np.zeros_like(test_panel.X)
    for row, filled in zip(test_panel.X, line):
        seen = ~np.isnan(row)
        if seen.any():
            filled[:] = np.interp(test_panel.times, test_panel.times[seen], row[seen])
    assert errors.mean() < 0.55 * np.abs(line - test_panel.complete)[hidden].mean()


def test_has_left_the_plateau(trained, test_panel):
    """A network that ignores its condition has losses 0.91 and 0.28."""
    assert trained.score(test_panel.complete) > -0.3
    assert trained.validation_loss_[10] < 0.5
    assert trained.validation_loss_[25] < 0.1


def test_intervals_cover(trained, test_panel):
    some = slice(0, 60)
    hidden = np.isnan(test_panel.X[some])
    low, high = np.quantile(trained.sample(test_panel.X[some], 20), (0.05, 0.95), axis=0)
    truth = test_panel.complete[some]
    coverage = ((low <= truth) & (truth <= high))[hidden].mean()
    assert 0.70 <= coverage <= 0.97


def test_draws_spread_where_little_is_known(trained):
    """A network that predicts the mean has a good error and no spread."""
    data = make_gappy_sines(40, missing_fraction=0.9, random_state=2, **SINES)
    spread = trained.sample(data.X, 10).std(axis=0)[np.isnan(data.X)]
    assert spread.mean() > 0.1 * data.complete.std()
    # and the more, the less is known
    more = make_gappy_sines(40, missing_fraction=0.3, random_state=2, **SINES)
    assert trained.sample(more.X, 10).std(axis=0)[np.isnan(more.X)].mean() < spread.mean()


def test_imputed_values_have_the_right_spectrum(filled, test_panel):
    """Nearer to the spectrum of the complete series than that of zero-filled ones by half."""
    frequencies = np.linspace(0.3, 3, 28)

    def distance(X):
        power = lomb_scargle_power(test_panel.times, X, frequencies, normalization="standard")
        truth = lomb_scargle_power(
            test_panel.times, test_panel.complete, frequencies, normalization="standard"
        )
        return np.abs(power - truth).mean()

    zero = np.where(np.isnan(test_panel.X), 0.0, test_panel.X)
    assert distance(filled) < 0.5 * distance(zero)
