import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from benchmarks.lsmi import GaussianViews
from skicml.information import KnifeDensity
from skicml.information._knife_torch import KnifeMixture


def _two_groups(n_samples=600, random_state=0):
    """Standardised rows of two tilted Gaussians in the plane."""
    rng = np.random.RandomState(random_state)
    X = rng.normal(size=(n_samples, 2)) @ [[0.5, 0.3], [0.0, 0.4]]
    X[::2] += [1.5, -1.0]
    return StandardScaler().fit_transform(X)


def _fitted(**params):
    return KnifeDensity(**({"n_components": 3, "max_epochs": 20, "random_state": 0} | params)).fit(
        _two_groups()
    )


@pytest.mark.parametrize("bounded", [True, False])
def test_the_module_is_the_formula_of_the_paper(bounded):
    torch.manual_seed(0)
    n_components, n_features = 3, 4
    mixture = KnifeMixture(n_features, n_components, bounded=bounded)
    torch.nn.init.normal_(mixture.logits)
    X = torch.randn(5, n_features)
    parameters = {name: p.detach().numpy().astype(float) for name, p in mixture.named_parameters()}
    weights = np.exp(parameters["logits"]) / np.exp(parameters["logits"]).sum()
    expected = []
    for x in X.numpy():
        density = 0.0
        for k in range(n_components):
            a = parameters["raw_scales"][k]
            scales = np.tanh(a) if bounded else a
            lower = np.eye(n_features) + np.tril(parameters["triangles"][k], -1)
            z = lower @ np.diag(np.exp(scales)) @ (x - parameters["means"][k])
            log_normal = scales.sum() - z @ z / 2 - n_features / 2 * math.log(2 * math.pi)
            density += weights[k] * math.exp(log_normal)
        expected.append(math.log(density))
    np.testing.assert_allclose(mixture(X).detach().numpy(), expected, rtol=1e-4)


def test_fitted_attributes_say_the_same_as_the_trained_module():
    density = _fitted()
    X = _two_groups(50, random_state=1)  # the training rows have mean 0
    with torch.no_grad():
        expected = density.net_.module_(torch.as_tensor(X, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(density.score_samples(X), expected, atol=1e-4)


def test_density_is_the_mixture_that_the_attributes_describe():
    stats = pytest.importorskip("scipy.stats")
    density = _fitted()
    X = _two_groups(50, random_state=1)
    expected = 0.0
    for weight, mean, factor in zip(density.weights_, density.means_, density.precisions_cholesky_):
        assert np.array_equal(factor, np.triu(factor))
        covariance = np.linalg.inv(factor @ factor.T)
        expected = expected + weight * stats.multivariate_normal(mean, covariance).pdf(X)
    np.testing.assert_allclose(density.score_samples(X), np.log(expected))
    assert density.score(X) == pytest.approx(np.log(expected).mean())


@pytest.mark.parametrize("init", ["data", "random"])
def test_density_integrates_to_one(init):
    density = _fitted(init=init)
    axis = np.linspace(-12, 12, 601)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    total = np.exp(density.score_samples(grid)).sum() * (axis[1] - axis[0]) ** 2
    assert total == pytest.approx(1, abs=1e-6)


def test_one_component_finds_mean_and_covariance():
    rng = np.random.RandomState(0)
    covariance = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.3], [0.0, -0.3, 1.0]])
    X = rng.multivariate_normal([3.0, -1.0, 100.0], covariance, size=4000)
    density = KnifeDensity(1, max_epochs=30, random_state=0).fit(X)
    factor = density.precisions_cholesky_[0]
    np.testing.assert_allclose(density.means_[0], X.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(np.linalg.inv(factor @ factor.T), np.cov(X.T), atol=0.03)
    assert density.score(X) >= GaussianMixture(1).fit(X).score(X) - 1e-3


def test_pointwise_entropies_match_the_exact_ones():
    views = GaussianViews(2, 0.5, 0.5)
    train, test = (views.sample(4000, seed)[0][:, :2] for seed in (0, 1))
    exact = views.entropies(np.hstack([test, test]))[:, 0]
    density = KnifeDensity(max_epochs=30, random_state=0).fit(train)
    estimated = -density.score_samples(test)
    assert np.corrcoef(estimated, exact)[0, 1] >= 0.97
    # Entropy plus a divergence, so never better than the truth but for noise of the sample.
    assert -0.005 <= estimated.mean() - exact.mean() <= 0.03


def test_default_start_beats_the_random_one_of_the_paper():
    X = StandardScaler().fit_transform(load_digits().data[:, :32])
    train, test = X[:1200], X[1200:]
    scores = [
        KnifeDensity(**params, max_epochs=20, random_state=0).fit(train).score(test)
        for params in ({}, {"init": "random"})
    ]
    assert scores[0] > scores[1] + 5


def test_a_bounded_density_cannot_spike_on_repeated_points():
    X = np.repeat([[-1.0, 1.0], [1.0, -1.0]], 200, axis=0)
    density = KnifeDensity(2, max_epochs=200, random_state=0).fit(X)
    diagonals = np.diagonal(density.precisions_cholesky_, axis1=1, axis2=2)
    assert (diagonals >= np.exp(-1)).all()
    assert (diagonals <= np.e).all()
    assert density.score_samples(X).max() <= 2 * (1 - np.log(2 * np.pi) / 2)
    free = KnifeDensity(2, max_epochs=200, tanh=False, random_state=0).fit(X)
    assert free.score(X) > density.score(X) + 0.1
    assert GaussianMixture(2).fit(X).score(X) > density.score(X) + 5


def test_gradients_are_zeroed_between_steps():
    """The same three full-batch steps by hand."""
    X = _two_groups(100)
    density = KnifeDensity(2, batch_size=100, max_epochs=3, random_state=0).fit(X)
    start = density.net_.get_params()["module__means"]
    mixture = KnifeMixture(2, 2, means=start)
    optimizer = torch.optim.Adam(mixture.parameters())
    for rate in (1e-2, 1e-2, 1e-3):  # a tenth in the last third
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        (-mixture(torch.as_tensor(X, dtype=torch.float32)).mean()).backward()
        optimizer.step()
    weights, means, _ = mixture.to_numpy()
    np.testing.assert_allclose(density.weights_, weights, atol=1e-6)
    np.testing.assert_allclose(density.means_, means, atol=1e-6)
    assert np.abs(means - start).max() > 0.01


def test_start_is_at_rows_of_the_data():
    X = _two_groups(100) + 7
    start = KnifeDensity(4, max_epochs=1, random_state=0).fit(X).net_.get_params()["module__means"]
    rows = (X - X.mean(axis=0)).astype(np.float32)
    assert all((rows == mean).all(axis=1).any() for mean in start)
    assert len(np.unique(start, axis=0)) == 4


def test_a_shift_of_the_data_shifts_the_density():
    X, shift = _two_groups(), 1e5
    plain, shifted = (
        KnifeDensity(3, max_epochs=5, random_state=0).fit(data) for data in (X, X + shift)
    )
    np.testing.assert_allclose(plain.score_samples(X), shifted.score_samples(X + shift), atol=1e-3)


def test_samples_have_the_moments_of_the_mixture():
    density = _fitted()
    X = density.sample(100_000, random_state=0)
    mean = density.weights_ @ density.means_
    covariance = -np.outer(mean, mean)
    for weight, center, factor in zip(
        density.weights_, density.means_, density.precisions_cholesky_
    ):
        covariance += weight * (np.linalg.inv(factor @ factor.T) + np.outer(center, center))
    np.testing.assert_allclose(X.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(np.cov(X.T), covariance, atol=0.03)
    assert density.sample().shape == (1, 2)
    np.testing.assert_array_equal(density.sample(5, random_state=1), density.sample(5, 1))
    # The order is random: the first half is like the second.
    assert np.abs(X[:50_000].mean(axis=0) - X[50_000:].mean(axis=0)).max() < 0.03


def test_scores_do_not_depend_on_the_chunk(monkeypatch):
    density, X = _fitted(), _two_groups()
    expected = density.score_samples(X)
    monkeypatch.setattr("skicml.information._knife._CHUNK", 1)
    np.testing.assert_allclose(density.score_samples(X), expected)


def test_grid_search_over_components_finds_two_groups():
    X = _two_groups()
    density = KnifeDensity(batch_size=100, max_epochs=15, random_state=0)
    search = GridSearchCV(density, {"n_components": [1, 2]}, cv=2)
    assert search.fit(X).best_params_ == {"n_components": 2}


def test_float32_stays_float32():
    X = _two_groups().astype(np.float32)
    density = KnifeDensity(2, max_epochs=2, random_state=0).fit(X)
    assert density.score_samples(X).dtype == np.float32
    assert density.score_samples(X.astype(float)).dtype == np.float64


class _Stop:
    """Ask to stop after some epochs, or interrupt the fit."""

    def __init__(self, n_epochs, error=None):
        self.n_epochs, self.error, self.seen = n_epochs, error, []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.seen.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        if len(self.seen) > self.n_epochs and self.error is not None:
            raise self.error
        return len(self.seen) > self.n_epochs


def test_a_callback_ends_training_early_and_fit_finishes():
    callback = _Stop(4)
    density = KnifeDensity(2, random_state=0).set_callbacks(callback).fit(_two_groups())
    assert callback.seen == ["fit", "epoch 0", "epoch 1", "epoch 2", "epoch 3"]
    assert len(density.net_.history) == 4
    assert np.isfinite(density.score(_two_groups()))


def test_nothing_is_left_behind_by_an_interrupt():
    density = KnifeDensity(2, random_state=0).set_callbacks(_Stop(2, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        density.fit(_two_groups())
    assert [name for name in vars(density) if name.endswith("_")] == []


def test_bad_input():
    X = _two_groups(20)
    with pytest.raises(ValueError, match="n_samples=3 should be >= n_components=5"):
        KnifeDensity().fit(X[:3])
    with pytest.raises(ValueError, match="NaN"):
        KnifeDensity().fit(np.where(X > 1, np.nan, X))
    with pytest.raises(ValueError, match=r"Training diverged: lower learning_rate=1e\+30"):
        KnifeDensity(learning_rate=1e30, max_epochs=3, random_state=0).fit(X)
    for scale in (1e20, 1e300):
        with pytest.raises(ValueError, match="single precision bears at most 1e\\+16: scale X"):
            KnifeDensity(2, max_epochs=1).fit(scale * X)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            KnifeDensity(device="cuda").fit(X)
    density = KnifeDensity(2, max_epochs=1).fit(X)
    with pytest.raises(ValueError, match="n_samples == 0, must be >= 1"):
        density.sample(0)
    with pytest.raises(ValueError, match="3 features, but KnifeDensity is expecting 2"):
        density.score_samples(X[:, [0, 1, 0]])
