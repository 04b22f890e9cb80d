"""KoNODE: what the paper claims, against a plain neural ODE and least squares."""

import numpy as np
import pytest

from benchmarks.konode import MODULATED, judge, make_modulated
from skicml.time_series import KoNODE


@pytest.mark.parametrize("seed", [0, 1])
def test_a_hidden_frequency_is_found_and_carried_on(seed):
    """x' = 0.8 cos(2t) x: the law changes, the state does not tell when."""
    settings = MODULATED | {"random_state": seed}
    train = make_modulated(100, 60, noise=0.01, random_state=seed)
    test = make_modulated(100, 121, random_state=100 + seed)
    model = KoNODE(koopman_dim=6, **settings)
    inside, beyond = judge(model, train, test)
    plain_inside, plain_beyond = judge(KoNODE(koopman_dim=0, **settings), train, test)
    assert inside <= min(1e-3, plain_inside / 20)
    assert beyond <= min(2e-2, plain_beyond / 4)
    assert np.abs(model.koopman_eigenvalues_.imag - 2).min() <= 0.1


def make_spirals(n_series, n_timepoints, random_state):
    """x' = [[-.05, 1], [-1, -.05]] x in closed form, dt = 0.1, from a ring."""
    rng = np.random.default_rng(random_state)
    radius = np.sqrt(rng.uniform(0.2**2, 1, size=(n_series, 1)))
    start = radius * np.exp(2j * np.pi * rng.uniform(size=(n_series, 1)))
    z = start * np.exp((-0.05 - 1j) * 0.1 * np.arange(n_timepoints))
    return np.stack([z.real, z.imag], axis=-1)


@pytest.mark.parametrize("koopman_dim", [0, 10])
def test_a_constant_linear_system_is_no_harder_than_for_least_squares(koopman_dim):
    train, test = make_spirals(100, 41, 0), make_spirals(100, 101, 1)
    model = KoNODE(
        horizon=40,
        time_step=0.1,
        koopman_dim=koopman_dim,
        initial_latent="learned",
        max_epochs=250,
        batch_size=30,
        learning_rate=1e-2,
        learning_rate_decay=0.98,
        solver="euler",
        random_state=0,
    ).fit(train)
    error = model.forecast(100, test[:, :1]) - test[:, 1:]
    rmse = np.sqrt(np.square(error).mean())
    assert rmse <= 0.02

    # Dynamic mode decomposition of noise-free linear data: one least-squares fit, exact.
    past, future = train[:, :-1].reshape(-1, 2), train[:, 1:].reshape(-1, 2)
    step = np.linalg.lstsq(past, future, rcond=None)[0]
    powers = np.stack([np.linalg.matrix_power(step, k) for k in range(1, 101)])
    least_squares = np.einsum("nc,kcd->nkd", test[:, 0], powers) - test[:, 1:]
    assert rmse <= np.sqrt(np.square(least_squares).mean()) + 0.02
