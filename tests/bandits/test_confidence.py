"""Estimate, confidence ellipsoids and perturbations of the linear policies with constraints."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from benchmarks.fast import cone_rows
from skicml.bandits import FAST
from skicml.bandits._ridge import RidgeState
from tests.bandits._linear_oracles import PHI, Oracle, make_fast, unit_corner_box


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_estimate_is_the_ridge_regression_of_all_rounds(fit_intercept):
    policy = make_fast(reg=2.0, fit_intercept=fit_intercept, thresholds=0.1).reset()
    oracle, rng = Oracle(PHI), np.random.RandomState(1)
    for _ in range(450):  # beyond two fresh inversions
        action = rng.uniform(-1, 1, 2)
        policy.tell(action, oracle(action))
    A, Y = policy.actions_, policy.outcomes_
    if fit_intercept:
        A = np.column_stack([A, np.ones(len(A))])
    ridge = Ridge(alpha=2.0, fit_intercept=False).fit(A, Y)
    np.testing.assert_allclose(policy.Phi_, ridge.coef_[:, :2], atol=1e-10)
    np.testing.assert_allclose(
        policy.intercept_, ridge.coef_[:, 2] if fit_intercept else np.zeros(3), atol=1e-10
    )
    V = 2.0 * np.eye(A.shape[1]) + A.T @ A
    np.testing.assert_allclose(policy.precision_, V)
    radius = np.sqrt(2.0) + 0.1 * np.sqrt(
        2 * np.log(3 / 0.05) + np.log(np.linalg.det(V) / 2.0 ** len(V))
    )
    assert policy.radius_ == pytest.approx(radius)
    X = rng.uniform(-1, 1, (5, 2))
    features = np.column_stack([X, np.ones(5)])[:, : len(V)]
    width = radius * np.sqrt(np.einsum("ij,jk,ik->i", features, np.linalg.inv(V), features))
    lower = (ridge.predict(features) - 0.1).min(axis=1) - width
    np.testing.assert_allclose(policy.decision_function(X), lower, atol=1e-9)
    np.testing.assert_array_equal(policy.predict(X) == 1, lower >= 0)
    np.testing.assert_array_equal(policy.predict(X) == -1, lower + 2 * width < 0)


def test_radius_is_linear_in_the_norm_bound():
    short, long = (
        make_fast(norm_bound=S, reg=4.0).search(Oracle(PHI), n_rounds=20) for S in (1.0, 3.0)
    )
    base = make_fast(norm_bound=1.0, reg=4.0).search(Oracle(PHI), n_rounds=20)
    assert base.radius_ == short.radius_
    first = [make_fast(norm_bound=S, reg=4.0).reset().radius_ for S in (1.0, 3.0)]
    assert first[1] - first[0] == pytest.approx(2.0 * np.sqrt(4.0))
    assert long.radius_ > short.radius_


def test_ellipsoids_hold_the_truth_in_every_run():
    """The confidence statement, for all rounds at once; delta = .05 is far from used up."""
    failures = 0
    for seed in range(40):
        policy = make_fast(action_set="ball", ball_radius=1.5, random_state=seed).reset(2)
        oracle = Oracle(PHI, seed=seed)
        for t in range(40):
            action = np.random.RandomState(1000 * seed + t).uniform(-1, 1, 2)
            policy.tell(action, oracle(action))
            error = policy.Phi_ - PHI
            distance = np.sqrt(np.einsum("ij,jk,ik->i", error, policy.precision_, error))
            failures += distance.max() > policy.radius_
    assert failures == 0


def test_noise_of_the_estimate_has_the_law_of_the_ellipsoids():
    """Covariance radius^2 V^{-1}: neither without the radius nor with a further sqrt(d)."""
    for scale_ in (1.0, 0.5):
        policy = make_fast(scale=scale_).search(Oracle(PHI), n_rounds=40)
        before = policy._constraint_coef
        noise = np.array([policy._perturbed()[0] - before[0] for _ in range(4000)])
        squared = np.einsum("ij,jk,ik->i", noise, policy.precision_, noise)
        expected = 2 * (scale_ * policy.radius_) ** 2
        assert squared.mean() == pytest.approx(expected, rel=0.1)
        covariance = noise.T @ noise / len(noise)
        target = (scale_ * policy.radius_) ** 2 * np.linalg.inv(policy.precision_)
        assert np.abs(covariance - target).max() <= 0.1 * np.abs(target).max()


def test_coupled_noise_is_the_same_in_all_rows():
    for coupled in (True, False):
        policy = make_fast(coupled=coupled).search(Oracle(PHI), n_rounds=20)
        noise = policy._perturbed() - policy._constraint_coef
        assert np.allclose(noise, noise[0]) == coupled


def test_probability_of_optimism_does_not_fall_with_the_number_of_rows():
    """The reason for the coupling: all 100 rows optimistic at once with probability >= .16."""
    share = {}
    for coupled in (True, False):
        rows = cone_rows(100, seed=0)
        policy = FAST(
            bounds=unit_corner_box(3), noise_std=0.3, coupled=coupled, random_state=0
        ).search(Oracle(rows, 0.3), n_rounds=30)
        best = np.ones(3) / np.sqrt(3)
        draws = [(policy._perturbed() @ best >= rows @ best).all() for _ in range(2000)]
        share[coupled] = np.mean(draws)
    assert share[True] >= 0.14
    assert share[False] <= 0.01


def test_actions_of_very_different_lengths_leave_a_finite_state():
    state = RidgeState(3, 1.0)
    rng = np.random.RandomState(0)
    for t in range(250):
        x = rng.standard_normal(3) * [1e9, 1.0, 1e-6] if t % 2 else np.array([1e9, 1e9, 1e9])
        state.update(x, np.array([1.0]))
        root = state.root()
        assert np.isfinite(root).all()
        assert np.isfinite(state.norms(np.eye(3))).all()
    state._refresh()
    assert np.all(np.linalg.eigvalsh(state.inverse) >= -1e-12)
