import numpy as np
import pytest

from skicml.datasets import make_duffing


def test_a_seed_fixes_the_data_and_leaves_the_global_generator_alone():
    before = np.random.get_state()[1].copy()
    first, second, other = (make_duffing(3, noise=0.1, random_state=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_the_trajectories_follow_the_equation():
    params = {"alpha": 1.0, "beta": 0.2, "gamma": 0.3, "delta": 0.5}
    X = make_duffing(4, 400, time_step=0.01, random_state=0, **params)
    q, p = X[..., 0], X[..., 1]
    velocity = (X[:, 2:] - X[:, :-2]) / 0.02
    force = -q - 0.2 * q**3 - 0.3 * p + 0.5 * np.cos(0.01 * np.arange(400))
    np.testing.assert_allclose(velocity[..., 0], p[:, 1:-1], atol=1e-3)
    np.testing.assert_allclose(velocity[..., 1], force[:, 1:-1], atol=1e-3)


def test_a_linear_oscillator_turns_in_a_circle():
    X = make_duffing(5, 63, alpha=1.0, beta=0.0, random_state=0)
    radius = np.hypot(*X.transpose(2, 0, 1))
    np.testing.assert_allclose(radius, np.repeat(radius[:, :1], 63, axis=1), rtol=1e-7)
    angle = np.unwrap(np.arctan2(X[..., 1], X[..., 0]))
    np.testing.assert_allclose(angle[:, -1] - angle[:, 0], -6.2, rtol=1e-6)


def test_initial_states_fill_the_ring():
    start = make_duffing(4000, 2, radius=(0.5, 1.0), random_state=0)[:, 0]
    radius = np.hypot(*start.T)
    assert 0.5 <= radius.min() < 0.51
    assert 0.99 < radius.max() <= 1
    assert abs(np.mean(radius**2) - 0.625) < 0.01  # uniform in area
    assert np.abs(start.mean(axis=0)).max() < 0.05


def test_noise_has_the_size_asked_for():
    clean, noisy = (make_duffing(50, noise=noise, random_state=0) for noise in (0.0, 0.05))
    assert 0.048 < (noisy - clean).std() < 0.052
    assert clean.shape == (50, 31, 2)


@pytest.mark.parametrize("radius", [(1.0, 0.5), (-0.1, 1.0), (1,), (0, np.inf), (0, np.nan)])
def test_bad_rings_are_errors(radius):
    with pytest.raises(ValueError, match="radius"):
        make_duffing(radius=radius)


def test_one_row_is_the_initial_state():
    np.testing.assert_allclose(
        make_duffing(3, 1, random_state=0), make_duffing(3, 4, random_state=0)[:, :1]
    )


def test_an_escape_to_infinity_is_said():
    with pytest.raises(ValueError, match="runs off to infinity"):
        make_duffing(3, 200, beta=-5.0, random_state=0)
