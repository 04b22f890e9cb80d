"""Known ratios of two densities: errors of CTSM and of what else one would try."""

import time

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

from benchmarks.ctsm import (
    bimodal,
    classifier_log_ratio,
    correlated_blocks,
    far_gaussian,
    kernel_log_ratio,
    mixtures,
    shift,
)
from skicml.density_ratio import CTSM, TSM, mutual_information
from tests.density_ratio.test_ctsm_objective import ExactTimeScore

LAYERS = (64, 64, 64)
FAST = {"hidden_layer_sizes": LAYERS, "max_iter": 1000, "learning_rate": 5e-3}


def _judge(problem, n_samples, estimator, seed=0):
    X, y = problem.samples(n_samples, seed)
    log_ratio = estimator.set_params(random_state=seed).fit(X, y).log_density_ratio
    return problem.judge(log_ratio, 2000, seed)


def _baseline(problem, n_samples, classifier):
    log_ratio = classifier_log_ratio(classifier, *problem.samples(n_samples, 0))
    return problem.judge(log_ratio, 2000, 0)


def test_problems_state_their_true_ratio():
    """By the identity E_p0[r] = 1, and the divergences of the paper's tasks."""
    for problem, divergence in ((shift(), 1.29), (bimodal(), 2.93), (mixtures(2), 16.5)):
        X, y = problem.samples(400_000, 0)
        exact = problem.log_ratio(X)
        assert exact[y == 1].mean() == pytest.approx(divergence, abs=0.1)
        if divergence < 10:  # else the mean is that of a few rows of the far tail
            assert np.exp(exact[y == 0]).mean() == pytest.approx(1, abs=0.1)
    X, _ = far_gaussian(3).samples(10, 0)
    densities = [-np.square(X - mean).sum(axis=1) / 2 for mean in (4, 0)]
    np.testing.assert_allclose(far_gaussian(3).log_ratio(X), densities[0] - densities[1])
    np.testing.assert_allclose(
        np.corrcoef(np.hstack(correlated_blocks(100_000, 2, 0)).T)[0, 1], 0.795, atol=0.01
    )


@pytest.mark.parametrize("seed", range(2))
def test_shift(seed):
    """E1."""
    errors = _judge(shift(), 2000, CTSM(hidden_layer_sizes=LAYERS, max_iter=2000), seed)
    assert errors["mse"] <= 0.5
    assert errors["kl_error"] <= 0.25
    assert errors["correlation"] >= 0.98


def test_shift_beats_classifiers_and_kernels():
    ours = _judge(shift(), 2000, CTSM(**FAST))["mse"]
    assert _baseline(shift(), 2000, LogisticRegression())["mse"] > 4 * ours
    assert (
        _baseline(shift(), 2000, HistGradientBoostingClassifier(random_state=0))["mse"] > 3 * ours
    )
    pytest.importorskip("densratio")
    kernels = shift().judge(kernel_log_ratio("uLSIF", *shift().samples(2000, 0)), 2000, 0)
    assert kernels["mse"] > 6 * ours


def test_two_modes():
    """E2."""
    errors = _judge(bimodal(), 2000, CTSM(hidden_layer_sizes=LAYERS))
    assert errors["mse_p1"] <= 0.4
    assert errors["kl_error"] <= 0.2
    boosting = _baseline(bimodal(), 2000, HistGradientBoostingClassifier(random_state=0))
    assert boosting["mse_p1"] > 2 * errors["mse_p1"]


@pytest.mark.parametrize("seed", range(2))
def test_chasm(seed):
    """E3: nearly no overlap, where a regularised classifier saturates."""
    errors = _judge(mixtures(2), 5000, CTSM(**FAST), seed)
    assert errors["mse"] <= 4
    assert errors["kl_error"] <= 1.5
    for classifier in (LogisticRegression(), HistGradientBoostingClassifier(random_state=0)):
        assert _baseline(mixtures(2), 5000, classifier)["mse"] > errors["mse"] + 2


def test_mutual_information_of_ten_pairs():
    """E4: 5 nats."""
    first, second = correlated_blocks(5000, 20, 0)
    ctsm = CTSM("vp", activation="silu", max_iter=1500)
    assert mutual_information(first, second, ctsm, random_state=0) == pytest.approx(5, abs=0.8)


@pytest.mark.parametrize("vectorized", [True, False])
def test_the_trained_time_score_is_that_of_the_gaussian_path(vectorized):
    """E5: p_t = N(t m, t^2 s^2 + 1 - t^2) is known for all t."""
    rng = np.random.RandomState(0)
    m, s = 2.0, 0.7
    X = np.vstack([rng.normal(size=(5000, 1)), rng.normal(m, s, (5000, 1))])
    ctsm = CTSM("vp", vectorized=vectorized, random_state=0, **FAST)
    ctsm.fit(X, np.repeat([0, 1], 5000))
    exact = ExactTimeScore(m, s)
    for t in (0.25, 0.5, 0.75):
        x = rng.normal(t * m, np.sqrt(t**2 * s**2 + 1 - t**2), (2000, 1))
        truth = exact(torch.tensor(x), torch.full((2000, 1), t, dtype=torch.float64))
        found = ctsm.time_score(x, t)
        assert np.corrcoef(found, truth.detach().numpy()[:, 0])[0, 1] >= 0.99
        assert np.abs(found - truth.detach().numpy()[:, 0]).mean() < 0.25


def _step_seconds(estimator, X, y):
    """Processor time of a training; import and initialisation are small beside it."""
    start = time.process_time()
    estimator.fit(X, y)
    return time.process_time() - start


def test_a_step_costs_at_most_half_of_one_with_time_derivatives():
    """E7."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(1000, 20)), np.repeat([0, 1], 500)
    params = {"max_iter": 60, "random_state": 0}
    for cls in (CTSM, TSM):
        cls(**params | {"max_iter": 2}).fit(X, y)
    ratios = [
        _step_seconds(CTSM(**params), X, y) / _step_seconds(TSM(**params), X, y) for _ in range(5)
    ]
    assert np.median(ratios) <= 0.5


def test_in_equal_time_conditioning_is_closer_to_the_truth():
    """Two to three steps of CTSM for one of TSM, which is generous to the latter."""
    errors = []
    params = {"hidden_layer_sizes": LAYERS, "learning_rate": 5e-3}
    for seed in range(3):
        conditional = _judge(shift(), 2000, CTSM(max_iter=400, **params), seed)["mse"]
        unconditional = _judge(shift(), 2000, TSM(max_iter=160, **params), seed)["mse"]
        errors.append([conditional, unconditional])
    conditional, unconditional = np.mean(errors, axis=0)
    assert conditional < unconditional
