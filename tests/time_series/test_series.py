import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

from skicml.time_series._series import cut_windows, validate_series

RNG = np.random.default_rng(0)


def test_one_series_becomes_a_panel_of_one():
    X = RNG.normal(size=(7, 2))
    estimator = BaseEstimator()
    panel, is_panel = validate_series(estimator, X)
    assert not is_panel
    np.testing.assert_array_equal(panel, X[np.newaxis])
    assert estimator.n_features_in_ == 2


def test_the_features_of_a_panel_are_its_channels():
    X = RNG.normal(size=(4, 7, 2)).astype(np.float32)
    estimator = BaseEstimator()
    panel, is_panel = validate_series(estimator, X)
    assert is_panel
    assert panel.dtype == np.float32
    np.testing.assert_array_equal(panel, X)
    with pytest.raises(ValueError, match="3 features, but BaseEstimator is expecting 2"):
        validate_series(estimator, RNG.normal(size=(4, 7, 3)), reset=False)


def test_the_index_of_a_frame_is_ignored():
    index = pd.date_range("2025-01-01", periods=7, freq="h")
    frame = pd.DataFrame(RNG.normal(size=(7, 2)), index=index, columns=["a", "b"])
    estimator = BaseEstimator()
    panel, _ = validate_series(estimator, frame)
    np.testing.assert_array_equal(panel[0], frame.to_numpy())
    assert list(estimator.feature_names_in_) == ["a", "b"]


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4, 5)])
def test_other_shapes_are_errors(shape):
    with pytest.raises(ValueError, match="array"):
        validate_series(BaseEstimator(), np.zeros(shape))


def test_too_short_names_both_counts():
    with pytest.raises(ValueError, match=r"at least 5 time steps, got n_timepoints = 3"):
        validate_series(BaseEstimator(), np.zeros((2, 3, 1)), min_timepoints=5)


def test_missing_values():
    X = np.array([[1.0], [np.nan], [2.0]])
    with pytest.raises(ValueError, match="contains NaN"):
        validate_series(BaseEstimator(), X)
    panel, _ = validate_series(BaseEstimator(), X, allow_nan=True)
    assert np.isnan(panel[0, 1, 0])
    with pytest.raises(ValueError, match="infinity"):
        validate_series(BaseEstimator(), np.full((3, 1), np.inf), allow_nan=True)


def test_windows_stay_inside_their_series():
    panel = np.arange(2 * 5 * 3).reshape(2, 5, 3)
    windows = cut_windows(panel, 3, stride=2)
    assert windows.shape == (2, 2, 3, 3)
    np.testing.assert_array_equal(windows[1, 1], panel[1, 2:5])
    assert np.shares_memory(windows, panel)
