"""Paths, weights and objectives, against closed forms."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from skicml.density_ratio import CTSM
from skicml.density_ratio._ctsm_torch import (
    BridgePath,
    CTSMNet,
    PathData,
    TimeScoreNetwork,
    TimeWeight,
    TSMNet,
    VariancePreservingPath,
    double_module,
    time_scores,
)

PATHS = {
    "bridge": BridgePath(1.0, 1e-5),
    "wide bridge": BridgePath(2.0, 1e-5),
    "vp": VariancePreservingPath(1e-5),
}
WEIGHTINGS = ["time_score", "stein", "uniform"]


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _pair(n_features=3, seed=0):
    return torch.randn(2, 1, n_features, dtype=torch.float64, generator=_generator(seed))


def _reference_path(name, t, x0, x1):
    """Mean and variance of the path, as the paper writes them."""
    if name == "vp":
        return t * x1, 1 - t**2
    return (1 - t) * x0 + t * x1, (2.0 if name == "wide bridge" else 1.0) * t * (1 - t)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", PATHS)
def test_target_is_the_derivative_of_the_conditional_log_density(name, weighting):
    """Sign of k', factor of the noise, and weight, by finite differences of log N(x; mu, k)."""
    path, constant, h = PATHS[name], 1.7, 1e-6
    x0, x1 = _pair()
    for time in (0.02, 0.3, 0.5, 0.8, 0.97):
        t = torch.full((1, 1), time, dtype=torch.float64)
        noise = torch.randn(1, 3, dtype=torch.float64, generator=_generator(1))
        x = path.point(t, x0, x1, noise)
        log_densities = []
        for moved in (time - h, time + h):
            mean, k = _reference_path(name, moved, x0, x1)
            log_densities.append(-0.5 * np.log(k) - (x - mean).square() / (2 * k))
        v = (log_densities[1] - log_densities[0]) / (2 * h)
        _, k = _reference_path(name, time, x0, x1)
        k_rate = (
            _reference_path(name, time + h, x0, x1)[1] - _reference_path(name, time - h, x0, x1)[1]
        ) / (2 * h)
        scale = {"bridge": 1.0, "wide bridge": 2.0, "vp": 1.0}[name]  # c' = c sigma^2
        lam = {
            "time_score": 2 * k**2 / (k_rate**2 + 2 * constant * scale * k),
            "stein": k,
            "uniform": 1.0,
        }[weighting]
        root, target = TimeWeight(path, weighting, constant).regression(t, x0, x1, noise)
        assert root.item() == pytest.approx(np.sqrt(lam), rel=1e-6)
        torch.testing.assert_close(target, np.sqrt(lam) * v, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(TimeWeight(path, weighting, constant).root(t), root)


@pytest.mark.parametrize("name", ["bridge", "vp"])
def test_combined_forms_are_those_of_the_paper(name):
    t = torch.linspace(0.01, 0.99, 50, dtype=torch.float64)[:, None]
    x0, x1 = _pair()
    noise = torch.randn(50, 3, dtype=torch.float64, generator=_generator(2))
    c = 0.6
    if name == "bridge":
        s = t * (1 - t)
        q = ((1 - 2 * t) ** 2 + 2 * c * s).sqrt()
        root = np.sqrt(2) * s / q
        target = (1 - 2 * t) / (np.sqrt(2) * q) * (noise**2 - 1)
        target += np.sqrt(2) * s.sqrt() / q * noise * (x1 - x0)
    else:
        k = 1 - t**2
        q = (2 * t**2 + c * k).sqrt()
        root = k / q
        target = (t - t * noise**2 + k.sqrt() * noise * x1) / q
    found = TimeWeight(PATHS[name], "time_score", c).regression(t, x0, x1, noise)
    torch.testing.assert_close(found[0], root)
    torch.testing.assert_close(found[1], target)


@pytest.mark.parametrize("name", PATHS)
def test_target_has_mean_zero_given_the_ends_of_the_path(name):
    """A million draws: fails without the -1 of eps^2 - 1."""
    t = torch.rand(1_000_000, 1, generator=_generator()) * (1 - 2e-5) + 1e-5
    noise = torch.randn(1_000_000, 2, generator=_generator(1))
    x0, x1 = (end.float() for end in _pair(2))
    target = TimeWeight(PATHS[name], "time_score", 1.0).regression(t, x0, x1, noise)[1]
    error = target.std(dim=0) / 1000
    assert (target.mean(dim=0).abs() < 4 * error).all()


@pytest.mark.parametrize("name", PATHS)
def test_time_score_weight_is_the_inverse_second_moment(name):
    path, rng = PATHS[name], np.random.RandomState(0)
    data = PathData(path, rng.normal(1, 0.5, (4000, 4)), rng.normal(-1, 2, (4000, 4)))
    weight = TimeWeight(path, "time_score", path.velocity_scale(data.X0, data.X1))
    for time in (0.05, 0.4, 0.9):
        inputs, target = data.draw(200_000, _generator(), torch.full((200_000, 1), time))
        second_moment = weight.regression(inputs["t"], **target)[1].square().mean()
        assert second_moment == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("name", PATHS)
def test_everything_stays_bounded_at_the_ends(name):
    """v itself, and 1 / k, do not."""
    path = PATHS[name]
    weight = TimeWeight(path, "time_score", 1.0)
    t = torch.tensor([0, path.first, 1e-7, 1e-5, 0.5, 1 - 1e-5, path.last, 1])[:, None]
    noise = torch.randn(8, 3, generator=_generator())
    x0, x1 = (end.float().expand(8, 3) for end in _pair())
    root, target = weight.regression(t, x0, x1, noise)
    assert torch.isfinite(root).all()
    assert torch.isfinite(target).all()
    assert target.abs().max() < 30
    data = PathData(path, np.zeros((5, 3)), np.ones((5, 3)))
    inputs, _ = data.draw(100_000, _generator())
    assert inputs["t"].min() >= path.first
    assert inputs["t"].max() <= path.last
    assert torch.isfinite(inputs["x"]).all()


def test_pairs_are_independent_and_every_step_is_fresh():
    data = PathData(PATHS["bridge"], np.arange(50.0)[:, None], np.arange(80.0)[:, None])
    generator = _generator()
    inputs, target = data.draw(200_000, generator)
    pairs = torch.cat([target["x0"], target["x1"], inputs["t"], target["noise"]], dim=1)
    correlation = np.corrcoef(pairs.T.numpy())
    assert np.abs(correlation - np.eye(4)).max() < 0.015
    table = np.histogram2d(pairs[:, 0], pairs[:, 1], bins=(50, 80))[0]
    assert table.min() > 20  # each of the 4000 pairs, about 50 times
    again, other = data.draw(200_000, generator)
    assert (again["t"] == inputs["t"]).float().mean() < 1e-3
    assert (other["noise"] == target["noise"]).float().mean() < 1e-3


def test_the_first_sample_takes_no_part_in_the_one_sided_path():
    """Noise on both samples would be another method."""
    draws = []
    for level in (0.0, 1e6):
        data = PathData(PATHS["vp"], np.full((5, 2), level), np.ones((7, 2)))
        inputs, target = data.draw(1000, _generator())
        weight = TimeWeight(PATHS["vp"], "time_score", 1.0)
        draws.append((inputs["x"], *weight.regression(inputs["t"], **target)))
    for first, second in zip(*draws):
        assert torch.equal(first, second)
    start = data.draw(4000, _generator(), torch.zeros(4000, 1))[0]["x"]
    assert start.mean().abs() < 0.05
    assert start.std() == pytest.approx(1, abs=0.05)


# ------------------------------------------------------------------ objectives of whole modules


class Quadratic(torch.nn.Module):
    """A time score with one output, to compare objectives with; its mean is 0 at neither end."""

    def __init__(self, a, b):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(a))
        self.b = torch.nn.Parameter(torch.tensor(b))

    def forward(self, x, t):
        return self.a * (x + 0.5) * (1 + t) + self.b * (x.square() - 1) * t.cos()


class ExactTimeScore(torch.nn.Module):
    """d/dt log N(x; t m, t^2 s^2 + 1 - t^2): the one-sided path to N(m, s^2) in one column."""

    def __init__(self, m, s):
        super().__init__()
        self.m, self.s = m, s
        self.unused = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x, t):
        variance = t**2 * self.s**2 + 1 - t**2
        rate = 2 * t * (self.s**2 - 1)
        centred = x - t * self.m
        return (
            -rate / (2 * variance)
            + self.m * centred / variance
            + rate * centred.square() / (2 * variance.square())
        )


def _loss(net_class, module, data, weight, n_draws, seed=0):
    net = net_class(lambda: module, weight=weight).initialize()
    batch = data.draw(n_draws, _generator(seed))
    return net.validation_step(batch)["loss"].item()


def test_exact_time_score_is_the_optimum_of_the_regression():
    rng = np.random.RandomState(0)
    data = PathData(PATHS["vp"], np.zeros((1, 1)), rng.normal(1.5, 0.5, (200_000, 1)))
    weight = TimeWeight(PATHS["vp"], "time_score", 1.0)
    exact = ExactTimeScore(1.5, 0.5)
    inputs, given = data.draw(400_000, _generator())
    root, target = weight.regression(inputs["t"], **given)
    x, t = inputs["x"], inputs["t"]
    residual = target - root * exact(x, t)
    # The residual of a conditional mean is uncorrelated with whatever x and t give.
    for feature in (torch.ones_like(x), x, x.square(), t, t * x, (3 * t).sin() * x.square()):
        product = residual * feature
        assert product.mean().abs() < 4 * product.std() / np.sqrt(len(product))
    best = _loss(CTSMNet, exact, data, weight, 100_000)
    for m, s in ((1.3, 0.5), (1.5, 0.7), (-1.5, 0.5)):
        assert _loss(CTSMNet, ExactTimeScore(m, s), data, weight, 100_000) > best + 0.003


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", ["bridge", "vp"])
def test_both_objectives_differ_by_a_constant(name, weighting):
    """Integration by parts: signs, boundary terms and lam' of the baseline."""
    rng = np.random.RandomState(0)
    path = BridgePath(1.0, 0.05) if name == "bridge" else VariancePreservingPath(0.05)
    data = PathData(path, rng.normal(0, 1, (5000, 1)), rng.normal(1, 0.7, (5000, 1)))
    weight = TimeWeight(path, weighting, 1.0)
    gaps = []
    for module in (Quadratic(0.0, 0.0), Quadratic(0.8, 0.0), Quadratic(-0.4, 0.5)):
        losses = [_loss(net, module, data, weight, 1_000_000) for net in (CTSMNet, TSMNet)]
        gaps.append(losses[0] - losses[1])
    scatter = {"time_score": 0.02, "stein": 0.03, "uniform": 0.12}[weighting]
    np.testing.assert_allclose(gaps, gaps[0], atol=scatter)


def test_scalar_and_vectorised_losses_are_those_of_the_formulas():
    rng = np.random.RandomState(0)
    data = PathData(PATHS["bridge"], rng.normal(size=(50, 3)), rng.normal(size=(60, 3)))
    weight = TimeWeight(PATHS["bridge"], "time_score", 1.0)
    inputs, given = data.draw(64, _generator())
    root, target = weight.regression(inputs["t"], **given)
    for n_outputs in (3, 1):
        module = TimeScoreNetwork(3, n_outputs, (8,), "elu")
        outputs = module(**inputs).detach()
        if n_outputs == 3:
            expected = (target - root * outputs).square().mean()
        else:
            expected = (target.sum(dim=1) - (root * outputs)[:, 0]).square().mean() / 3
        assert _loss(CTSMNet, module, data, weight, 64) == pytest.approx(expected.item(), rel=1e-5)


def test_scores_of_a_vectorised_module_are_the_sums_of_its_outputs():
    module = double_module(TimeScoreNetwork(2, 2, (8, 8), "tanh"))
    X, times = np.random.RandomState(0).normal(size=(5, 2)), np.array([0.1, 0.7, 1.0])
    found = time_scores(module, X, times)
    for i, x in enumerate(X):
        for j, t in enumerate(times):
            outputs = module(torch.tensor(x[None]), torch.tensor([[t]], dtype=torch.float64))
            assert found[i, j] == pytest.approx(outputs.sum().item())


@pytest.mark.parametrize("path", ["bridge", "vp"])
def test_the_time_score_integrates_to_the_log_ratio(path):
    """Not a classifier in disguise; and the quadrature is fine enough."""
    rng = np.random.RandomState(0)
    X = np.vstack([rng.normal(0, 1, (500, 2)), rng.normal(2, 0.5, (500, 2))])
    ctsm = CTSM(path, hidden_layer_sizes=(32, 32), max_iter=500, random_state=0)
    ctsm.fit(X, np.repeat([0, 1], 500))
    rows = X[::100]
    first = 1e-5 if path == "bridge" else 0.0
    solution = solve_ivp(
        lambda t, _: ctsm.time_score(rows, t),
        (first, 1 - 1e-5),
        np.zeros(len(rows)),
        rtol=1e-8,
        atol=1e-8,
    )
    np.testing.assert_allclose(ctsm.log_density_ratio(rows), solution.y[:, -1], atol=1e-3)
