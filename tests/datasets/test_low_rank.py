import numpy as np
import pytest

from skicml.datasets import (
    make_background_video,
    make_corrupted_low_rank,
    make_low_rank_sensing,
)
from tests.datasets._generators import check_seed

GENERATORS = [
    lambda seed: make_low_rank_sensing(50, shape=(6, 4), rank=2, random_state=seed),
    lambda seed: make_corrupted_low_rank(20, 10, rank=2, random_state=seed),
    lambda seed: make_background_video(5, random_state=seed),
]


@pytest.mark.parametrize("make", GENERATORS)
def test_a_seed_fixes_the_data_and_leaves_the_global_generator_alone(make):
    check_seed(make)


@pytest.mark.parametrize("shape", [(30, 20), (12, 25)])
def test_sensing_measures_a_matrix_with_the_spectrum_of_the_paper(shape):
    X, y, coef, outliers = make_low_rank_sensing(
        400, shape=shape, rank=5, condition_number=9.0, outlier_fraction=0.1, random_state=0
    )
    assert coef.shape == shape
    spectrum = np.linalg.svd(coef, compute_uv=False)
    np.testing.assert_allclose(spectrum[:5], [9, 7, 5, 3, 1], rtol=1e-10)
    np.testing.assert_allclose(spectrum[5:], 0, atol=1e-12)
    exact = np.einsum("kij,ij->k", X.reshape(-1, *shape), coef)
    np.testing.assert_allclose(y[~outliers], exact[~outliers], rtol=1e-10)
    assert outliers.sum() == 40
    errors = np.abs(y - exact)[outliers]
    assert errors.max() <= 10 * np.abs(exact).max()
    assert errors.mean() > 3 * np.abs(exact).max()  # uniform: about 5
    assert abs(X.mean()) < 0.02
    assert abs(X.std() - 1) < 0.02


def test_sensing_in_float32_is_the_same_data():
    wide = make_low_rank_sensing(30, shape=(5, 4), rank=2, random_state=0)
    narrow = make_low_rank_sensing(30, shape=(5, 4), rank=2, dtype=np.float32, random_state=0)
    assert narrow[0].dtype == np.float32
    assert narrow[1].dtype == np.float64
    np.testing.assert_allclose(narrow[0], wide[0], rtol=1e-6)
    np.testing.assert_array_equal(narrow[2], wide[2])


def test_sensing_noise_is_relative_to_the_spread_of_the_values():
    options = {"shape": (10, 10), "rank": 2, "outlier_fraction": 0.0, "random_state": 0}
    X, y, coef, _ = make_low_rank_sensing(4000, noise=0.1, **options)
    exact = X @ coef.ravel()
    assert (y - exact).std() / exact.std() == pytest.approx(0.1, rel=0.05)


def test_mixed_norm_restricted_isometry_of_gaussian_measurements():
    # ||A(M)||_1 / ||M||_F is nearly the same for all M of rank 20, about sqrt(2/pi) m
    X, _, _, _ = make_low_rank_sensing(4000, shape=(40, 40), rank=4, random_state=0)
    rng = np.random.RandomState(1)
    matrices = [rng.standard_normal((40, 20)) @ rng.standard_normal((20, 40)) for _ in range(20)]
    ratios = np.array([np.abs(X @ M.ravel()).sum() / np.linalg.norm(M) / len(X) for M in matrices])
    assert ratios.mean() == pytest.approx(np.sqrt(2 / np.pi), rel=0.01)
    assert ratios.std() / ratios.mean() < 0.02  # 1/sqrt(m) statistical: 0.012


def test_corrupted_table_adds_up():
    X, low_rank, sparse = make_corrupted_low_rank(
        300, 200, rank=3, condition_number=5.0, missing_fraction=0.3, random_state=0
    )
    spectrum = np.linalg.svd(low_rank, compute_uv=False)
    np.testing.assert_allclose(spectrum[:3] / spectrum[2], [5, 3, 1], rtol=1e-10)
    assert spectrum[3] < 1e-10
    assert np.mean(low_rank**2) == pytest.approx(1)
    missing = np.isnan(X)
    assert missing.mean() == pytest.approx(0.3, abs=0.01)
    np.testing.assert_allclose((low_rank + sparse)[~missing], X[~missing])
    assert (sparse[missing] == 0).all()
    assert np.mean(sparse[~missing] != 0) == pytest.approx(0.1, abs=0.01)
    assert 9.5 < np.abs(sparse).max() <= 10


def test_corrupted_table_with_noise():
    X, low_rank, _ = make_corrupted_low_rank(
        200, 150, outlier_fraction=0.0, noise=0.01, random_state=0
    )
    assert (X - low_rank).std() == pytest.approx(0.01, rel=0.02)


def test_video_is_background_of_rank_two_behind_a_block():
    X, background, foreground = make_background_video(
        50, frame_shape=(20, 24), block_shape=(5, 4), block_value=2.0, random_state=0
    )
    assert X.shape == background.shape == foreground.shape == (50, 480)
    assert np.linalg.matrix_rank(background) == 2
    assert background.min() >= 0
    assert background.max() <= 1
    np.testing.assert_array_equal(X[~foreground], background[~foreground])
    assert (X[foreground] == 2.0).all()
    assert (foreground.sum(axis=1) == 20).all()
    for mask in foreground.reshape(50, 20, 24):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert np.ptp(rows) == 4
        assert np.ptp(columns) == 3
    assert foreground.mean(axis=0).max() < 0.5  # each pixel is seen most of the time


@pytest.mark.parametrize(
    ("make", "params", "message"),
    [
        (make_low_rank_sensing, {"rank": 50}, "rank must be in 1..40"),
        (make_low_rank_sensing, {"rank": 0}, "'rank' parameter"),
        (make_low_rank_sensing, {"outlier_fraction": 1.0}, "'outlier_fraction' parameter"),
        (make_corrupted_low_rank, {"rank": 151}, "rank must be in 1..150"),
        (make_corrupted_low_rank, {"outlier_fraction": -0.1}, "'outlier_fraction' parameter"),
        (make_corrupted_low_rank, {"missing_fraction": 1.0}, "'missing_fraction' parameter"),
        (make_low_rank_sensing, {"condition_number": 0.5}, "'condition_number' parameter"),
        (make_low_rank_sensing, {"shape": (5,)}, "shape must hold 2 integers"),
        (make_low_rank_sensing, {"shape": (5, 2.0)}, "shape must hold 2 integers"),
        (make_background_video, {"block_shape": (31, 2)}, "block_shape .* must fit"),
        (make_background_video, {"block_shape": (0, 2)}, "block_shape must hold 2 integers"),
        (make_background_video, {"frame_shape": (9, 9, 3)}, "frame_shape must hold 2 integers"),
        (
            make_background_video,
            {"frame_shape": (1, 1), "block_shape": (1, 1)},
            "more than one pixel",
        ),
    ],
)
def test_bad_parameters(make, params, message):
    with pytest.raises(ValueError, match=message):
        make(**params)
