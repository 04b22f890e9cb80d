import numpy as np
import pytest

from skicml.generative import NoiseSchedule
from skicml.generative._prediction import (
    PREDICTIONS,
    min_snr_weights,
    split_prediction,
    training_target,
)

KINDS = ("cosine", "linear", "quad")


@pytest.mark.parametrize("n_timesteps", [1, 10, 50, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_tables_are_what_the_rates_say(kind, n_timesteps):
    schedule = NoiseSchedule(kind, n_timesteps)
    assert len(schedule.alpha_) == n_timesteps + 1
    assert (schedule.alpha_[0], schedule.sigma_[0], schedule.beta_[0]) == (1, 0, 0)
    np.testing.assert_allclose(schedule.abar_, np.cumprod(1 - schedule.beta_), rtol=1e-9)
    np.testing.assert_allclose(schedule.alpha_**2 + schedule.sigma_**2, 1, rtol=1e-12)
    assert (schedule.alpha_ > 0).all()
    assert (np.diff(schedule.log_snr_[1:]) < 0).all()
    assert np.isposinf(schedule.log_snr_[0])
    assert all(
        table.dtype == np.float64 for table in (schedule.abar_, schedule.alpha_, schedule.sigma_)
    )


def test_known_values():
    cosine = NoiseSchedule("cosine", 1000)
    share = np.cos((np.arange(1000) / 1000 + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(cosine.abar_[:999], share[:999] / share[0], rtol=1e-10)
    rho = np.exp(cosine.log_rho())
    assert rho[0] == pytest.approx(0.0064, abs=1e-4)
    assert rho[998] == pytest.approx(642, abs=1)
    assert rho[999] > 1e4
    linear = NoiseSchedule("linear", 1000)
    np.testing.assert_allclose(linear.beta_[[1, 1000]], [1e-4, 2e-2])
    for n_timesteps in (50, 200, 1000):  # as much noise at the end, whatever the number
        abar = NoiseSchedule("linear", n_timesteps).abar_[-1]
        assert 1e-6 < abar < 1e-4
    quad = NoiseSchedule("quad", 50)
    np.testing.assert_allclose(quad.beta_[[1, 50]], [1e-4, 0.5])
    np.testing.assert_allclose(np.diff(np.sqrt(quad.beta_[1:]), 2), 0, atol=1e-12)


def test_the_ends_can_be_given():
    schedule = NoiseSchedule("linear", 10, beta_min=1e-3, beta_max=0.3)
    np.testing.assert_allclose(schedule.beta_[1:], np.linspace(1e-3, 0.3, 10))
    schedule = NoiseSchedule("quad", 10, beta_max=0.25)
    np.testing.assert_allclose(schedule.beta_[[1, 10]], [1e-4, 0.25])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "sine"}, "kind must be"),
        ({"n_timesteps": 0}, "n_timesteps must be at least 1"),
        ({"beta_min": 0.1}, "do not apply"),
        ({"kind": "quad", "beta_min": 0.6}, "beta_min <= beta_max"),
        ({"kind": "linear", "beta_max": 1.0}, "beta_max < 1"),
    ],
)
def test_bad_parameters(arguments, message):
    with pytest.raises(ValueError, match=message):
        NoiseSchedule(**arguments)


@pytest.mark.parametrize("spacing", ["linspace", "logsnr", "quad"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_timesteps", "n_steps"), [(10, 10), (10, 3), (1000, 7), (1000, 999)])
def test_timesteps_fall_strictly_from_noise_to_data(kind, spacing, n_timesteps, n_steps):
    times = NoiseSchedule(kind, n_timesteps).timesteps(n_steps, spacing)
    assert times.shape == (n_steps + 1,)
    assert (times[0], times[-1]) == (n_timesteps, 0)
    assert (np.diff(times) < 0).all()


def test_spacings():
    schedule = NoiseSchedule("cosine", 1000)
    np.testing.assert_array_equal(schedule.timesteps(3), [1000, 667, 333, 0])
    np.testing.assert_array_equal(schedule.timesteps(2, start=900, stop=100), [900, 500, 100])
    np.testing.assert_array_equal(schedule.timesteps(2, "quad"), [1000, 250, 0])
    levels = schedule.log_snr_[schedule.timesteps(8, "logsnr", start=900, stop=1)]
    np.testing.assert_allclose(np.diff(levels), np.diff(levels).mean(), rtol=0.1)
    with pytest.raises(ValueError, match="spacing must be"):
        schedule.timesteps(4, "cubic")
    with pytest.raises(ValueError, match="n_steps=1001 must be between 1 and the 1000"):
        schedule.timesteps(1001)
    with pytest.raises(ValueError, match="0 <= stop < start <= 1000"):
        schedule.timesteps(3, start=5, stop=5)


def test_ancestor_composes_the_steps_between_two_times():
    schedule = NoiseSchedule("cosine", 100)
    alpha, sigma = schedule.ancestor(60, 20)
    assert alpha * schedule.alpha_[20] == pytest.approx(schedule.alpha_[60])
    variance = (alpha * schedule.sigma_[20]) ** 2 + sigma**2
    assert variance == pytest.approx(schedule.sigma_[60] ** 2)


def test_real_valued_times_go_both_ways():
    schedule = NoiseSchedule("cosine", 1000)
    t = np.array([1.0, 3.7, 500.0, 999.5, 1000.0])
    alpha, sigma = schedule.at(t)
    np.testing.assert_allclose(schedule.times_at(np.log(sigma / alpha)), t, rtol=1e-9)
    np.testing.assert_allclose(alpha[[0, 2]], schedule.alpha_[[1, 500]], rtol=1e-12)


def test_first_divisible_time():
    schedule = NoiseSchedule("cosine", 1000)
    assert schedule.first_divisible() == 999
    assert schedule.alpha_[999] >= 1e-3 > schedule.alpha_[1000]
    assert NoiseSchedule("linear", 10).first_divisible() < 10


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_predictions_convert_to_the_data_and_noise_they_are_made_of(prediction):
    x0, eps = np.random.RandomState(0).standard_normal((2, 5, 3))
    schedule = NoiseSchedule("cosine", 1000)
    for t in (1, 10, 500, 990):
        alpha, sigma = schedule.alpha_[t], schedule.sigma_[t]
        x = alpha * x0 + sigma * eps
        target = training_target(x0, eps, alpha, sigma, prediction)
        found = split_prediction(target, x, alpha, sigma, prediction)
        np.testing.assert_allclose(found[0], x0, atol=1e-9)
        np.testing.assert_allclose(found[1], eps, atol=1e-9)


def test_no_division_by_a_vanishing_alpha():
    x0, _ = split_prediction(np.zeros(3), np.ones(3), 1e-9, 1.0, "eps")
    np.testing.assert_allclose(x0, 1000)
    with pytest.raises(ValueError, match="prediction must be one of"):
        split_prediction(np.zeros(3), np.ones(3), 0.5, 0.5, "score")


def test_min_snr_weights_are_the_same_loss_of_x0_in_every_prediction():
    abar = NoiseSchedule("cosine", 1000).abar_[1:1000]
    snr = abar / (1 - abar)
    weight = np.minimum(snr, 5)
    np.testing.assert_allclose(min_snr_weights(abar, "x0"), weight)
    # an error d of x0 is alpha / sigma d of eps and d / sigma of v
    np.testing.assert_allclose(min_snr_weights(abar, "eps") * snr, weight, rtol=1e-9)
    np.testing.assert_allclose(min_snr_weights(abar, "v") / (1 - abar), weight, rtol=1e-9)
