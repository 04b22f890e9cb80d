from itertools import pairwise

import numpy as np
import pytest
import torch

from skicml.generative import ClassifierGuidance, FixedEntries, NoiseSchedule, sample_loop
from skicml.generative._samplers_torch import DDIM, DPMSolverPP, Noise, SharedNoise, make_solver
from tests.generative._closed_form import gaussian_predict

COSINE = NoiseSchedule("cosine", 1000)
MEAN, COV = np.array([1.0, -1.0]), np.array([[1.0, 0.6], [0.6, 0.5]])


def _noise(seed=7):  # not the seed of the start: the two would be correlated
    return Noise(torch.Generator().manual_seed(seed))


def _start(n_samples=500, n_features=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n_samples, n_features, generator=generator, dtype=torch.float64)


def _centred(schedule=COSINE):
    return gaussian_predict(np.zeros(2), COV, schedule)


def _exact_flow(x, a, b):
    """The probability flow of N(0, COV): xbar scales along each axis."""
    values, axes = np.linalg.eigh(COV)
    rho_a, rho_b = (COSINE.sigma_[t] / COSINE.alpha_[t] for t in (a, b))
    scale = np.sqrt((values + rho_b**2) / (values + rho_a**2))
    xbar = (x.numpy() / COSINE.alpha_[a]) @ axes * scale
    return xbar @ axes.T * COSINE.alpha_[b]


def _errors(solver, spacing, n_steps):
    x = _start(2000)
    errors = []
    for n in n_steps:
        times = COSINE.timesteps(n, spacing, start=900, stop=1)
        found = sample_loop(_centred(), x, COSINE, times, solver=solver)
        distances = np.linalg.norm(found.numpy() - _exact_flow(x, 900, 1), axis=1)
        errors.append(np.sqrt(np.mean(distances**2)))
    return np.array(errors)


@pytest.mark.parametrize(
    ("solver", "order", "at_160"), [("ddim", 1, 0.008), ("dpm++1", 1, 0.008), ("dpm++2m", 2, 9e-4)]
)
def test_order_of_the_solvers(solver, order, at_160):
    errors = _errors(solver, "linspace", [40, 80, 160])
    slopes = np.log2(errors[:-1] / errors[1:])
    assert slopes == pytest.approx(order, abs=0.1)
    assert errors[-1] < 1.1 * at_160


def test_second_order_on_equal_steps_of_log_snr():
    first = _errors("ddim", "logsnr", [20, 160])
    second = _errors("dpm++2m", "logsnr", [20, 160])
    assert second[0] < 0.1 * first[0]
    assert second[1] < 0.02 * first[1]


@pytest.mark.parametrize("n_steps", [5, 50, 1000])
def test_first_order_dpm_solver_is_ddim(n_steps):
    times = COSINE.timesteps(n_steps)
    ddim, dpm = (
        sample_loop(_centred(), _start(), COSINE, times, solver=solver)
        for solver in ("ddim", "dpm++1")
    )
    assert (ddim - dpm).abs().max() < 1e-5


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
def test_samples_have_the_mean_and_covariance_of_the_data(eta):
    predict = gaussian_predict(MEAN, COV, COSINE)
    x = sample_loop(
        predict,
        _start(20000),
        COSINE,
        COSINE.timesteps(250),
        solver=DDIM(COSINE, eta),
        noise=_noise(),
    ).numpy()
    np.testing.assert_allclose(x.mean(axis=0), MEAN, atol=0.03)
    np.testing.assert_allclose(np.cov(x.T), COV, atol=0.04)


def test_ancestral_step_is_the_posterior_of_ddpm():
    a, b = 300, 299
    x, x0 = _start(), _start(seed=1)
    alpha, sigma = COSINE.alpha_[a], COSINE.sigma_[a]
    eps = (x - alpha * x0) / sigma
    found = DDIM(COSINE, eta=1.0).step(x, x0, eps, a, b, _noise(2))
    beta, abar_a, abar_b = COSINE.beta_[a], COSINE.abar_[a], COSINE.abar_[b]
    mean = (np.sqrt(abar_b) * beta * x0 + np.sqrt(1 - beta) * (1 - abar_b) * x) / (1 - abar_a)
    std = np.sqrt((1 - abar_b) / (1 - abar_a) * beta)
    np.testing.assert_allclose(found, mean + std * _noise(2)(x), atol=1e-10)


def test_ancestral_step_in_terms_of_the_noise_prediction():
    quad = NoiseSchedule("quad", 50)
    x, eps = _start(), _start(seed=1)
    for a in (50, 20, 2):
        b = a - 1
        x0 = (x - quad.sigma_[a] * eps) / quad.alpha_[a]
        found = make_solver("ddpm", quad).step(x, x0, eps, a, b, _noise(2))
        mean = (x - quad.beta_[a] / quad.sigma_[a] * eps) / np.sqrt(1 - quad.beta_[a])
        std = np.sqrt((1 - quad.abar_[b]) / (1 - quad.abar_[a]) * quad.beta_[a])
        np.testing.assert_allclose(found, mean + std * _noise(2)(x), atol=1e-10)


def test_the_last_step_gives_the_data_whatever_the_solver():
    x, x0 = _start(), _start(seed=1)
    eps = (x - COSINE.alpha_[7] * x0) / COSINE.sigma_[7]
    for name in ("ddim", "ddpm", "dpm++1", "dpm++2m"):
        solver = make_solver(name, COSINE)
        torch.testing.assert_close(solver.step(x, x0, eps, 7, 0, _noise()), x0)
    with pytest.raises(ValueError, match="solver must be one of"):
        make_solver("euler", COSINE)


def test_a_time_visited_again_does_not_count_as_history():
    """The second-order step extrapolates from the time before, not from a repetition."""
    points = {900: _start(seed=1), 600: _start(seed=2)}
    steps = []
    for visits in ([900, 600], [900, 900, 600, 600]):
        solver = DPMSolverPP(COSINE)
        for a in visits:
            b = {900: 600, 600: 300}[a]
            last = solver.step(_start(), points[a], None, a, b, None)
        steps.append(last)
    torch.testing.assert_close(*steps)


def test_a_solver_does_not_remember_an_earlier_walk():
    solver, times = DPMSolverPP(COSINE), COSINE.timesteps(10)
    walks = [sample_loop(_centred(), _start(n), COSINE, times, solver=solver) for n in (7, 5)]
    torch.testing.assert_close(
        walks[1], sample_loop(_centred(), _start(5), COSINE, times, solver="dpm++2m")
    )


# Against diffusers -----------------------------------------------------------------------------


def _their_times(scheduler, times):
    """Our times in the convention of diffusers, whose index t is our t + 1."""
    scheduler.set_timesteps(len(times) - 1)
    scheduler.timesteps = torch.as_tensor(times[:-1] - 1)
    return scheduler


def test_ddim_agrees_with_diffusers():
    diffusers = pytest.importorskip("diffusers")
    linear = NoiseSchedule("linear", 1000)
    times = np.arange(1000, -1, -50)  # their previous time is 50 before
    theirs = diffusers.DDIMScheduler(
        trained_betas=linear.beta_[1:],
        clip_sample=False,
        set_alpha_to_one=True,
        timestep_spacing="trailing",
    )
    _their_times(theirs, times)
    predict = _centred(linear)
    x = y = _start().float()
    for a, b in pairwise(times):
        x0, eps = predict(x, a)
        x = DDIM(linear).step(x, x0, eps, a, b, None)
        y = theirs.step(predict(y, a)[1], a - 1, y).prev_sample
        assert (x - y).abs().max() < 1e-5


def test_second_order_solver_agrees_with_diffusers():
    diffusers = pytest.importorskip("diffusers")
    linear = NoiseSchedule("linear", 1000)
    theirs = diffusers.DPMSolverMultistepScheduler(
        trained_betas=linear.beta_[1:],
        algorithm_type="dpmsolver++",
        solver_order=2,
        final_sigmas_type="zero",
        timestep_spacing="trailing",
    )
    theirs.set_timesteps(20)
    times = np.append(theirs.timesteps.numpy() + 1, 0)
    assert times[0] == 1000
    predict = _centred(linear)
    solver = DPMSolverPP(linear)
    x = y = _start()
    for a, b in pairwise(times):
        x0, eps = predict(x, a)
        x = solver.step(x, x0, eps, a, b, None)
        y = theirs.step(predict(y, a)[1], a - 1, y).prev_sample
        assert (x - y).abs().max() < 1e-5


# Clipping, guidance, hooks, fixed entries ------------------------------------------------------


def test_clipping_keeps_the_noise_consistent_with_x():
    seen = []

    class Watch(DDIM):
        def step(self, x, x0, eps, a, b, noise):
            seen.append((x0, COSINE.alpha_[a] * x0 + COSINE.sigma_[a] * eps - x))
            return super().step(x, x0, eps, a, b, noise)

    bounds = torch.tensor([-0.3, 0.4], dtype=torch.float64).unbind()
    for guidance in ((), [lambda x, t, x0, eps: eps - 5]):  # what guidance does is clipped, too
        sample_loop(
            _centred(),
            _start(),
            COSINE,
            COSINE.timesteps(10),
            solver=Watch(COSINE),
            clip=bounds,
            guidance=guidance,
        )
    assert len(seen) == 20
    for x0, residual in seen:
        assert -0.3 <= x0.min() <= x0.max() <= 0.4
        assert residual.abs().max() < 1e-10


def test_clipping_to_a_wide_range_changes_nothing():
    times = COSINE.timesteps(20)
    wide = (torch.tensor(-1e6), torch.tensor(1e6))
    plain = sample_loop(_centred(), _start(), COSINE, times)
    clipped = sample_loop(_centred(), _start(), COSINE, times, clip=wide)
    torch.testing.assert_close(plain, clipped)


def test_classifier_guidance_gives_the_posterior():
    """A classifier log p(y | x_t) turns N(0, COV) into the posterior of y = x_0[0] + noise."""
    predict = _centred()
    noise_variance, observed = 0.5, 1.5

    def log_proba(x, t):
        alpha, sigma = COSINE.alpha_[t], COSINE.sigma_[t]
        cov_t = torch.as_tensor(alpha**2 * COV + sigma**2 * np.eye(2))
        gain = alpha * torch.as_tensor(COV[0]) @ torch.linalg.inv(cov_t)  # E[x0[0] | x_t]
        variance = COV[0, 0] - alpha * gain @ torch.as_tensor(COV[:, 0]) + noise_variance
        return -((x @ gain - observed) ** 2) / (2 * variance)

    guide = ClassifierGuidance(log_proba, COSINE)
    x = sample_loop(predict, _start(5000), COSINE, COSINE.timesteps(200), guidance=[guide]).numpy()
    gain = COV[:, 0] / (COV[0, 0] + noise_variance)
    np.testing.assert_allclose(x.mean(axis=0), gain * observed, atol=0.04)
    np.testing.assert_allclose(np.cov(x.T), COV - np.outer(gain, COV[0]), atol=0.04)


def test_guidance_of_scale_zero_and_scale_of_time():
    times = COSINE.timesteps(10)
    plain = sample_loop(_centred(), _start(), COSINE, times)

    def log_proba(x, t):
        return x[:, 0]

    off = ClassifierGuidance(log_proba, COSINE, scale=0.0)
    torch.testing.assert_close(
        plain, sample_loop(_centred(), _start(), COSINE, times, guidance=[off])
    )
    seen = []

    def scale(t):
        seen.append(t)
        return 1.0 if t > 500 else 0.0

    early = ClassifierGuidance(log_proba, COSINE, scale=scale)
    guided = sample_loop(_centred(), _start(), COSINE, times, guidance=[early])
    assert guided[:, 0].mean() > plain[:, 0].mean() + 0.1
    assert seen == times[:-1].tolist()


def test_hooks_see_every_new_time_and_change_x():
    seen = []

    def hook(x, t):
        seen.append(t)
        return x + 1 if t == 0 else x

    times = COSINE.timesteps(7)
    trajectory = []
    x = sample_loop(_centred(), _start(), COSINE, times, hooks=[hook], trajectory=trajectory)
    assert seen == times[1:].tolist()
    plain = sample_loop(_centred(), _start(), COSINE, times)
    torch.testing.assert_close(x, plain + 1)
    assert len(trajectory) == 8
    torch.testing.assert_close(trajectory[0], _start())
    assert trajectory[-1] is x


def test_a_provider_with_memory_can_stand_in_for_the_denoiser():
    class EverySecond:
        def __init__(self):
            self.calls, self.n_full = 0, 0

        def __call__(self, x, t):
            if self.calls % 2 == 0:
                self.n_full += 1
                self.eps = _centred()(x, t)[1]
            self.calls += 1
            return (x - COSINE.sigma_[t] * self.eps) / COSINE.alpha_[t], self.eps

    provider = EverySecond()
    x = sample_loop(provider, _start(), COSINE, COSINE.timesteps(10, start=900))
    assert (provider.calls, provider.n_full) == (10, 5)
    assert torch.isfinite(x).all()


def _known():
    mask = torch.tensor([True, False])
    return torch.tensor([2.0, 0.0], dtype=torch.float64), mask


def test_clean_fixed_entries_are_clean_at_every_level():
    values, mask = _known()
    trajectory = []

    def drift(x, t):
        return x + 5

    sample_loop(
        _centred(),
        _start(),
        COSINE,
        COSINE.timesteps(6),
        hooks=[drift],  # they are put back after the hooks
        fixed=FixedEntries(values, mask, COSINE),
        trajectory=trajectory,
    )
    assert all((x[:, 0] == 2.0).all() for x in trajectory)


def test_noised_fixed_entries_have_the_noise_of_the_level():
    values, mask = _known()
    fixed = FixedEntries(values, mask, COSINE, _noise())
    for t in (1000, 500, 0):
        x = fixed(_start(20000), t)[:, 0]
        assert float(x.mean()) == pytest.approx(2 * COSINE.alpha_[t], abs=0.03)
        assert float(x.std()) == pytest.approx(COSINE.sigma_[t], abs=0.02)
        torch.testing.assert_close(fixed(_start(), t)[:, 1], _start()[:, 1])


def test_resampling_brings_the_conditional_distribution():
    """x[1] given x[0] = 2 has mean 1.2 and variance 0.5 - 0.36."""
    values, mask = _known()
    found = {}
    for n_resample in (1, 10):
        noise = _noise()
        x = sample_loop(
            _centred(),
            _start(4000),
            COSINE,
            COSINE.timesteps(50),
            solver="ddpm",
            noise=noise,
            fixed=FixedEntries(values, mask, COSINE, noise),
            n_resample=n_resample,
        )
        assert (x[:, 0] == 2.0).all()
        found[n_resample] = float(x[:, 1].mean()), float(x[:, 1].var())
    assert abs(found[10][0] - 1.2) < 0.12 < abs(found[1][0] - 1.2)
    assert abs(found[10][1] - 0.14) < 0.06


def test_shared_noise_makes_rows_independent_of_one_another():
    def draw(n_rows):
        noise = SharedNoise(torch.Generator().manual_seed(0), n_draws=3)
        x = noise(torch.empty(3 * n_rows, 2, dtype=torch.float64))
        return sample_loop(
            _centred(), x, COSINE, COSINE.timesteps(10), solver="ddpm", noise=noise
        ).reshape(n_rows, 3, 2)

    few, many = draw(1), draw(4)
    torch.testing.assert_close(many, few.expand(4, 3, 2))
    assert not torch.allclose(few[0, 0], few[0, 1])


def test_the_loop_is_differentiable():
    x = _start().requires_grad_()
    sample_loop(_centred(), x, COSINE, COSINE.timesteps(5)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert x.grad.abs().min() > 0


def test_the_dtype_of_x_is_kept():
    for dtype in (torch.float32, torch.float64):
        x = sample_loop(
            _centred(),
            _start().to(dtype),
            COSINE,
            COSINE.timesteps(5),
            solver="ddpm",
            noise=_noise(),
        )
        assert x.dtype == dtype
