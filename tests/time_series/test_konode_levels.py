"""KoNODE: the three levels against closed forms and independent solvers."""

import copy
import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import block_diag, expm
from scipy.special import expit

from skicml.time_series import KoNODE, _konode_forecast_torch
from skicml.time_series._konode_torch import KoopmanFlow

DT = 0.1
RNG = np.random.default_rng(0)


def make_waves(n_series=6, n_timepoints=40):
    """Two channels, oscillating."""
    t = DT * np.arange(n_timepoints)
    phase = np.linspace(0, 2, n_series)[:, np.newaxis]
    return np.stack([3 + np.cos(2 * t + phase), 10 * np.sin(2 * t + phase)], axis=-1)


def quick(**params):
    defaults = {
        "horizon": 12,
        "time_step": DT,
        "koopman_dim": 4,
        "hidden_dims": (8, 6, 5),
        "decoder_dim": 10,
        "max_epochs": 5,
        "learning_rate": 0.02,
        "stride": 3,
        "random_state": 0,
    }
    return KoNODE(**(defaults | params)).fit(make_waves())


@pytest.fixture(scope="module")
def learned():
    return quick(initial_latent="learned", max_epochs=60)


@pytest.fixture(scope="module")
def encoder():
    return quick(context_length=3, max_epochs=60)


# ------------------------------------------------------------------------------ level 3: w' = A w


@pytest.mark.parametrize("eigenvalues", ["unitary", "stable", "free"])
@pytest.mark.parametrize("initial_latent", ["learned", "encoder"])
def test_the_latent_follows_the_matrix_exponential(eigenvalues, initial_latent):
    model = quick(eigenvalues=eigenvalues, initial_latent=initial_latent)
    A = block_diag(*([[v.real, v.imag], [-v.imag, v.real]] for v in model.koopman_eigenvalues_))
    times = np.array([-1.3, 0, 0.05, 2, 11.7])
    trajectory = model.koopman_trajectory(times, make_waves()[0])
    assert trajectory.shape == (5, 4)
    assert np.abs(trajectory[1]).max() > 0.05
    for t, w in zip(times, trajectory):
        np.testing.assert_allclose(w, expm(A * t) @ trajectory[1], atol=1e-6)


def test_only_the_eigenvalues_are_free_in_the_linear_level():
    n_free = {
        kind: sum(p.numel() for p in KoopmanFlow(5, kind, 20.0).parameters())
        for kind in ("unitary", "stable", "free")
    }
    assert n_free == {"unitary": 5, "stable": 10, "free": 10}


def test_growth_rates_keep_their_sign():
    raw = torch.tensor([-80.0, -1.0, 0.0, 3.0])
    for kind, holds in [
        ("unitary", lambda a: (a == 0).all()),
        ("stable", lambda a: (a <= 0).all()),
        ("free", lambda a: (a.sign() == raw.sign()).all()),
    ]:
        flow = KoopmanFlow(4, kind, 20.0)
        if kind != "unitary":
            flow.raw_growth.data = raw
        assert holds(flow.growth())


@pytest.mark.parametrize("period", [2, 20, 1000])
def test_frequencies_start_spread_out_and_never_alias(period):
    flow = KoopmanFlow(5, "unitary", period)
    b = flow.frequencies().detach().numpy()
    assert b[0] == pytest.approx(2 * np.pi / max(period, 16), rel=1e-5)
    assert b[-1] == pytest.approx(np.pi / 4, rel=1e-5)
    np.testing.assert_allclose(np.diff(np.log(b)), np.log(b[-1] / b[0]) / 4, rtol=1e-4)
    flow.raw_frequencies.data = torch.tensor([-1e4, -10.0, 0.0, 10.0, 1e4])
    b = flow.frequencies().detach().numpy()
    assert ((b >= 0) & (b <= np.pi)).all()


def test_eigenvalues_come_in_the_unit_of_time(learned):
    b = learned.net_.module_.flow.frequencies().detach().numpy()
    np.testing.assert_allclose(learned.koopman_eigenvalues_, 1j * b / DT)


def test_phases_stay_exact_after_a_long_time():
    flow = KoopmanFlow(1, "unitary", 20.0)
    b = float(flow.frequencies().detach()[0])
    w = flow(torch.tensor([1.0, 0.0]), torch.tensor([1e6], dtype=torch.float64))
    np.testing.assert_allclose(w.detach().numpy(), [[np.cos(1e6 * b), -np.sin(1e6 * b)]], atol=1e-5)


def test_growing_modes_are_cut_at_twenty():
    flow = KoopmanFlow(1, "free", 20.0)
    flow.raw_growth.data.fill_(100.0)  # a = 5 a step
    w = flow(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0, 4.0, 5.0, 100.0]))
    expected = np.exp([5, 20, 20, 20])
    np.testing.assert_allclose(w.detach().norm(dim=1).numpy(), expected, rtol=1e-5)


def test_explosive_forecasts_warn():
    model = quick(eigenvalues="free", initial_latent="learned")
    model.koopman_eigenvalues_ = model.koopman_eigenvalues_ + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.forecast(20)  # ends at 0.5 * 5.9
    with pytest.warns(UserWarning, match="growth rate 0.5"):
        model.forecast(70)  # ends at 0.5 * 10.9
    with pytest.warns(UserWarning, match=r"factor of exp\(20\)") as record:
        model.forecast(20_000)
    assert [warning.filename for warning in record] == [__file__]


# ----------------------------------------------------------------------- level 2: theta = D(w)


def network(theta, x, sizes):
    """f(x; theta) in numpy."""
    layers, first = [], 0
    for fan_in, fan_out in pairwise(sizes):
        block = theta[first : first + (fan_in + 1) * fan_out].reshape(fan_in + 1, fan_out)
        layers.append(block)
        first += block.size
    assert first == len(theta)
    for layer in layers[:-1]:
        x = x @ layer[:-1] + layer[-1]
        x = x * expit(x)
    return x @ layers[-1][:-1] + layers[-1][-1]


@pytest.mark.parametrize("name", ["learned", "encoder"])
def test_the_weights_of_f_are_what_the_decoder_makes_of_w(name, request):
    model = request.getfixturevalue(name)
    module = copy.deepcopy(model.net_.module_).double()
    context, states = make_waves()[2, :7], 5 * RNG.normal(size=(4, 2))
    times = [0.0, 0.7, 3.1]
    w = model.koopman_trajectory(times, context)
    theta = model.parameter_trajectory(times, context)
    with torch.no_grad():
        layers = module.decoder(torch.as_tensor(w))
    np.testing.assert_allclose(theta, np.hstack([layer.flatten(1) for layer in layers]))
    assert np.abs(theta[1] - theta[0]).max() > 0.01  # the law moves

    mean, scale = make_waves().mean(axis=(0, 1)), make_waves().std(axis=(0, 1))
    typical = np.sqrt(np.square(np.diff(make_waves() / scale, axis=1)).mean(axis=(0, 1)))
    for t, weights in zip(times, theta):
        f = network(weights, (states - mean) / scale, (2, 8, 6, 5, 2))
        np.testing.assert_allclose(
            model.vector_field(states, t, context), f * typical * scale / DT, rtol=1e-5
        )


def test_without_w_the_law_is_constant(learned):
    model = copy.deepcopy(learned)
    with torch.no_grad():
        model.net_.module_.latent.zero_()
        origin = model.net_.module_.decoder(torch.zeros(4))
    theta = model.parameter_trajectory(np.linspace(0, 9, 5))
    np.testing.assert_allclose(np.ptp(theta, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(theta[0], torch.cat([p.flatten() for p in origin]), atol=1e-6)


def test_a_plain_neural_ode_is_built_in():
    model = quick(koopman_dim=0)
    assert model.koopman_eigenvalues_.shape == (0,)
    assert model.koopman_trajectory([0.0, 1.0]).shape == (2, 0)
    np.testing.assert_array_equal(np.ptp(model.parameter_trajectory([0.0, 1.0]), axis=0), 0)
    names = [name for name, _ in model.net_.module_.named_parameters()]
    assert not any("encoder" in name or "trunk" in name for name in names)


def test_training_starts_from_an_ordinary_network():
    """w bends the weights of the start but slightly."""
    start = KoNODE(horizon=5, max_epochs=1, learning_rate=1e-12, random_state=0).fit(make_waves())
    theta = start.parameter_trajectory(np.arange(50.0))[0]
    bound = np.repeat(1 / np.sqrt([2, 32, 32]), [3 * 32, 33 * 32, 33 * 2])
    assert (np.abs(theta) <= 1.3 * bound).all()
    assert 0.4 < np.mean(np.abs(theta[0]) / bound) < 0.6
    assert 0 < np.mean(theta.std(axis=0) / bound) < 0.1


# --------------------------------------------------------------------------- level 1: x' = f(x)


def euler(f, t, x, dt):
    return x + dt * f(t, x)


def three_eighths(f, t, x, dt):
    k1 = f(t, x)
    k2 = f(t + dt / 3, x + dt * k1 / 3)
    k3 = f(t + 2 * dt / 3, x + dt * (k2 - k1 / 3))
    k4 = f(t + dt, x + dt * (k1 - k2 + k3))
    return x + dt * (k1 + 3 * k2 + 3 * k3 + k4) / 8


@pytest.mark.parametrize("initial_latent", ["learned", "encoder"])
@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize(("solver", "step"), [("euler", euler), ("rk4", three_eighths)])
def test_fixed_steps_see_the_parameters_of_their_own_time(solver, step, substeps, initial_latent):
    model = quick(solver=solver, solver_substeps=substeps, initial_latent=initial_latent)
    X, clock = make_waves()[:2], 0.7 if initial_latent == "learned" else 0.0
    found = model.forecast(6, X[:, -1:], start_time=0.7)
    for series, forecast in zip(X, found):
        context = series[-1:]

        def f(t, x, context=context):
            return model.vector_field(x, t, context)

        x, dt = context, DT / substeps
        for k in range(6):
            for j in range(substeps):
                x = step(f, clock + k * DT + j * dt, x, dt)
            np.testing.assert_allclose(forecast[k], x[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["learned", "encoder"])
def test_all_solvers_solve_the_same_equation(name, request):
    model = copy.deepcopy(request.getfixturevalue(name))
    context = make_waves()[1, :5]
    start = 4 * DT if name == "learned" else 0.0
    exact = solve_ivp(
        lambda t, x: model.vector_field(x[np.newaxis], start + t, context)[0],
        (0, 20 * DT),
        context[-1],
        t_eval=DT * np.arange(1, 21),
        rtol=1e-7,
        atol=1e-7,
    ).y.T
    module = model.net_.module_
    for solver, substeps, tolerance in [
        ("rk4", 1, 1e-3),
        ("rk4", 2, 1e-4),
        ("dopri5", 1, 1e-3),
        ("euler", 100, 2e-2),
    ]:
        module.solver, module.substeps = solver, substeps
        forecast = model.forecast(20, context)
        np.testing.assert_allclose(forecast, exact, atol=tolerance * model.scale_.max())


@pytest.mark.parametrize("name", ["learned", "encoder"])
def test_half_the_step_changes_little(name, request):
    model = copy.deepcopy(request.getfixturevalue(name))
    coarse = model.forecast(20) / model.scale_
    model.net_.module_.substeps = 2
    assert np.abs(model.forecast(20) / model.scale_ - coarse).max() < 1e-3


@pytest.mark.parametrize("name", ["learned", "encoder"])
def test_the_adjoint_gives_the_gradients_of_back_propagation(name, request):
    module = copy.deepcopy(request.getfixturevalue(name).net_.module_).double().train()
    module.substeps = 4
    windows = torch.as_tensor(RNG.normal(size=(5, 15, 2)))
    gradients = []
    for module.adjoint in (False, True):
        module.zero_grad()
        forecasts = module(windows, torch.tensor([0, 3, 3, 5, 1]) * (name == "learned"))
        forecasts.square().mean().backward()
        gradients.append({k: p.grad.clone() for k, p in module.named_parameters()})
    assert len(gradients[0]) > 10
    for key, expected in gradients[0].items():
        assert (gradients[1][key] - expected).norm() <= 1e-4 * expected.norm(), key
        assert expected.norm() > 0, key


def test_training_by_the_adjoint_learns_the_same():
    losses = [quick(adjoint=adjoint, max_epochs=3).loss_curve_ for adjoint in (False, True)]
    np.testing.assert_allclose(*losses, rtol=1e-2)


def test_the_adjoint_of_a_plain_neural_ode():
    losses = [quick(koopman_dim=0, adjoint=on, max_epochs=3).loss_curve_ for on in (False, True)]
    np.testing.assert_allclose(*losses, rtol=1e-2)


@pytest.mark.parametrize("name", ["learned", "encoder"])
def test_long_forecasts_are_cut_into_pieces_without_a_seam(name, request, monkeypatch):
    model = request.getfixturevalue(name)
    X = make_waves()[:5]
    expected = model.forecast(30, X)
    monkeypatch.setattr(_konode_forecast_torch, "_SEGMENT", 7)
    monkeypatch.setattr(_konode_forecast_torch, "_TABLE_SIZE", 1)
    np.testing.assert_allclose(model.forecast(30, X), expected, rtol=1e-9)
    rows = model.predict(X[0])
    np.testing.assert_allclose(rows[-1].reshape(12, 2), expected[0, :12], rtol=1e-9)


def test_empty_hidden_dims_make_f_linear():
    model = quick(hidden_dims=(), koopman_dim=0)
    X = RNG.normal(size=(3, 2))
    middle = model.vector_field(X[:2]).mean(axis=0)
    np.testing.assert_allclose(model.vector_field(X[:2].mean(axis=0)[None])[0], middle, rtol=1e-6)
