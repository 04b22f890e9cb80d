"""make_bandit_lp: the best margin is what was asked for."""

import pickle

import numpy as np
import pytest

from skicml.bandits._action_sets import Box, Polytope, Simplex
from skicml.datasets import make_bandit_lp


@pytest.mark.parametrize(("d", "m"), [(1, 1), (2, 1), (2, 5), (4, 3), (3, 100), (8, 6)])
@pytest.mark.parametrize("feasible", [True, False])
def test_best_margin_is_exact(d, m, feasible):
    for seed in range(3):
        Phi, action_set, _ = make_bandit_lp(d, m, 0.3, feasible=feasible, random_state=seed)
        assert Phi.shape == (m, d)
        assert np.linalg.norm(Phi, axis=1).max() <= 1 + 1e-12
        corner = np.full(d, 1 / np.sqrt(d))
        named = Box(-corner, corner) if feasible else Simplex(d)
        best = 0.3 if feasible else -0.3
        assert named.maximin(Phi, np.zeros(m)).value == pytest.approx(best, abs=1e-6)
        assert Polytope(*action_set).maximin(Phi, np.zeros(m)).value == pytest.approx(
            best, abs=1e-6
        )


def test_oracle_is_the_map_plus_noise():
    Phi, _, oracle = make_bandit_lp(2, 3, noise_std=0.5, random_state=0)
    action = np.array([0.3, -0.2])
    errors = np.array([oracle(action) - Phi @ action for _ in range(4000)])
    np.testing.assert_allclose(errors.mean(axis=0), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(errors.T), 0.25 * np.eye(3), atol=0.02)
    _, _, exact = make_bandit_lp(2, 3, noise_std=0.0, random_state=0)
    np.testing.assert_array_equal(exact(action), Phi @ action)


def test_seeds_and_pickle():
    first, second = (make_bandit_lp(3, 4, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    copied = pickle.loads(pickle.dumps(first[2]))
    action = np.ones(3)
    np.testing.assert_array_equal(first[2](action), second[2](action))
    assert np.isfinite(copied(action)).all()
    assert not np.array_equal(first[0], make_bandit_lp(3, 4, random_state=8)[0])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_features": 0}, "n_features"),
        ({"n_constraints": 0}, "n_constraints"),
        ({"margin": 0.0}, "margin"),
        ({"margin": 1.0}, "margin"),
        ({"margin": 0.6, "feasible": False}, "margin must be between 0 and 0.5774"),
        ({"noise_std": -1.0}, "noise_std"),
        ({"noise_std": np.inf}, "noise_std"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_bandit_lp(**parameters)
