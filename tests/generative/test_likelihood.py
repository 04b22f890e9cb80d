from functools import partial

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from skicml.generative import DiffusionModel, NoiseSchedule
from tests.generative._closed_form import GaussianDenoiser

SCHEDULE = NoiseSchedule("cosine", 1000)


def _gaussian_network(n_features, n_cond, mean, cov, prediction="eps"):
    return GaussianDenoiser(mean, cov, SCHEDULE, prediction)


def _exact_model(X, mean, cov, prediction="eps", **kwargs):
    """A model whose network is the perfect one, without training."""
    network = partial(_gaussian_network, mean=mean, cov=cov, prediction=prediction)
    settings = {"scale": None, "max_iter": 0, "random_state": 0} | kwargs
    return DiffusionModel(network, prediction=prediction, **settings).fit(X)


def _normal(mean, cov, n_samples=200, seed=0):
    return np.random.RandomState(seed).multivariate_normal(mean, cov, n_samples)


def _random_covariance(n_features, seed=0):
    A = np.random.RandomState(seed).standard_normal((n_features, n_features))
    return A @ A.T / n_features + 0.2 * np.eye(n_features)


@pytest.mark.parametrize("prediction", ["eps", "x0", "v"])
def test_density_of_a_normal_distribution(prediction):
    mean, cov = np.array([0.3, -0.2, 0.0]), _random_covariance(3)
    X = _normal(mean, cov)
    model = _exact_model(X, mean, cov, prediction)
    expected = multivariate_normal(mean, cov).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), expected, atol=1e-2)
    assert model.score(X) == pytest.approx(expected.mean(), abs=5e-3)


def test_few_steps_are_enough_and_more_are_better():
    mean, cov = np.zeros(2), np.array([[1.0, 0.6], [0.6, 0.5]])
    X = _normal(mean, cov)
    # the density is that of the data with the smallest noise
    blurred = cov + np.exp(2 * SCHEDULE.log_rho()[0]) * np.eye(2)
    expected = multivariate_normal(mean, blurred).logpdf(X)
    errors = [
        np.abs(_exact_model(X, mean, cov, n_likelihood_steps=n).score_samples(X) - expected).max()
        for n in (10, 25, 50)
    ]
    assert errors[0] > 10 * errors[1]
    assert errors[2] < 1e-3


def test_density_is_in_data_units():
    """Scaling the data shifts the log density by the log of the scale."""
    mean, cov = np.zeros(2), np.eye(2)
    Z = _normal(mean, cov, 5000)
    Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    scale, shift = np.array([10.0, 0.1]), np.array([100.0, -5.0])
    X = Z * scale + shift
    model = _exact_model(X, mean, cov, scale="standard")
    rows = X[:100]
    expected = norm(shift, scale).logpdf(rows).sum(axis=1)
    np.testing.assert_allclose(model.score_samples(rows), expected, atol=1e-2)


def test_one_probe_is_unbiased_over_fits_and_the_same_for_all_rows():
    n_features = 40  # more than are worth an exact trace
    cov = _random_covariance(n_features)
    X = _normal(np.zeros(n_features), cov, 60)
    expected = multivariate_normal(np.zeros(n_features), cov).logpdf(X)
    errors = []
    for seed in range(12):
        model = _exact_model(X, np.zeros(n_features), cov, random_state=seed)
        errors.append(model.score_samples(X) - expected)
    errors = np.array(errors)
    # the divergence of a linear flow does not depend on the row: nor does the error
    assert np.ptp(errors, axis=1).max() < 1e-2
    assert abs(errors.mean()) < 3 * errors[:, 0].std() / np.sqrt(12)
    assert errors[:, 0].std() > 0.1


def test_a_row_is_scored_alike_in_any_company():
    mean, cov = np.zeros(2), np.eye(2)
    X = _normal(mean, cov)
    model = DiffusionModel(
        hidden_dim=8, n_layers=1, max_iter=20, n_likelihood_steps=10, random_state=0
    ).fit(X)
    together = model.score_samples(X)
    np.testing.assert_allclose(model.score_samples(X[::-1])[::-1], together, rtol=1e-9)
    np.testing.assert_allclose(model.score_samples(X[5:6]), together[5:6], rtol=1e-9)


def test_chunks_of_rows_change_nothing(monkeypatch):
    from skicml.generative import _likelihood_torch

    mean, cov = np.zeros(2), np.eye(2)
    X = _normal(mean, cov, 30)
    model = _exact_model(X, mean, cov, n_likelihood_steps=5)
    together = model.score_samples(X)
    monkeypatch.setattr(_likelihood_torch, "_CHUNK", 4 * 7)
    np.testing.assert_allclose(model.score_samples(X), together, rtol=1e-12)


def test_a_schedule_that_ends_early_still_has_a_density():
    mean, cov = np.zeros(2), np.eye(2)
    X = _normal(mean, cov)
    quad = NoiseSchedule("quad", 50)
    network = partial(_quad_network, mean=mean, cov=cov)
    model = DiffusionModel(
        network, schedule=quad, prediction="eps", scale=None, max_iter=0, random_state=0
    ).fit(X)
    expected = multivariate_normal(mean, cov).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), expected, atol=2e-2)


def _quad_network(n_features, n_cond, mean, cov):
    return GaussianDenoiser(mean, cov, NoiseSchedule("quad", 50))
