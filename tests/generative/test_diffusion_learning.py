"""What DiffusionModel learns: normal data, shapes in the plane, digits."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_digits, make_moons
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KernelDensity
from sklearn.neural_network import MLPClassifier

from skicml.generative import DiffusionModel
from skicml.metrics import (
    frechet_distance,
    memorization_ratio,
    sliced_wasserstein,
)

COV = np.array([[1.0, 0.6], [0.6, 0.5]])


def _small(**kwargs):
    settings = {
        "hidden_dim": 48,
        "n_layers": 2,
        "max_iter": 700,
        "n_likelihood_steps": 20,
        "random_state": 0,
    }
    return DiffusionModel(**settings | kwargs)


def test_density_and_moments_of_normal_data():
    truth = multivariate_normal([10.0, -20.0], 9 * COV)
    X, test = truth.rvs(3000, random_state=0), truth.rvs(500, random_state=1)
    model = _small().fit(X)
    assert truth.logpdf(test).mean() - model.score(test) == pytest.approx(0, abs=0.1)
    drawn = model.sample(5000)
    np.testing.assert_allclose(drawn.mean(axis=0), truth.mean, atol=0.1 * 3)
    np.testing.assert_allclose(np.cov(drawn.T), truth.cov, atol=0.1 * 9)


@pytest.mark.parametrize(
    ("prediction", "loss_weighting"), [("eps", "simple"), ("x0", "simple"), ("v", "min_snr")]
)
def test_every_prediction_learns(prediction, loss_weighting):
    X = make_moons(1000, noise=0.05, random_state=0)[0]
    held_out = make_moons(1000, noise=0.05, random_state=1)[0]
    model = _small(prediction=prediction, loss_weighting=loss_weighting).fit(X)
    untrained = _small(prediction=prediction, max_iter=0).fit(X)
    distances = [
        sliced_wasserstein(m.sample(1000), held_out, random_state=0) for m in (model, untrained)
    ]
    assert distances[0] < 0.12
    assert distances[0] < 0.5 * distances[1]


def _eight_gaussians(n_samples, seed):
    rng = np.random.RandomState(seed)
    angles = rng.randint(8, size=n_samples) * np.pi / 4
    centers = 2 * np.column_stack([np.cos(angles), np.sin(angles)])
    return centers + 0.1 * rng.standard_normal((n_samples, 2))


def test_all_of_eight_modes_and_as_close_as_a_kernel_density():
    X, held_out = _eight_gaussians(2000, 0), _eight_gaussians(2000, 1)
    drawn = _small(max_iter=1200, hidden_dim=64).fit(X).sample(2000)
    modes = np.round(np.arctan2(drawn[:, 1], drawn[:, 0]) / (np.pi / 4)).astype(int) % 8
    near = np.abs(np.linalg.norm(drawn, axis=1) - 2) < 0.5
    assert (np.bincount(modes[near], minlength=8) > 2000 / 16).all()
    kernel = KernelDensity(bandwidth=0.06).fit(X).sample(2000, random_state=0)
    ours, theirs = (sliced_wasserstein(S, held_out, random_state=0) for S in (drawn, kernel))
    noise = sliced_wasserstein(X, held_out, random_state=0)
    assert ours < 1.3 * max(theirs, noise) + 0.05


def test_conditional_density_tells_the_classes_apart():
    X, y = make_moons(1000, noise=0.1, random_state=0)
    model = _small(label_dropout=0.2).fit(X, y)
    rows, labels = make_moons(200, noise=0.1, random_state=1)
    given = np.stack([model.score_samples(rows, [label] * 200) for label in (0, 1)])
    assert (given.argmax(axis=0) == labels).mean() > 0.95
    # the density without condition is near the mean of the two
    mixture = np.logaddexp(*given) - np.log(2)
    assert np.mean(model.score_samples(rows) - mixture) == pytest.approx(0, abs=0.35)


def test_vector_condition():
    rng = np.random.RandomState(0)
    y = rng.uniform(-1, 1, 2000) * 100
    X = np.column_stack([y / 100, (y / 100) ** 2]) + 0.05 * rng.standard_normal((2000, 2))
    model = _small().fit(X, y)
    for value in (-80.0, 0.0, 60.0):
        drawn = model.sample(300, y=value)
        expected = [value / 100, (value / 100) ** 2]
        np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.12)


def test_imputation_follows_the_dependence():
    """Rows on a line: a half-hidden row is filled in on the line."""
    rng = np.random.RandomState(0)
    a = rng.standard_normal(1500)
    X = np.column_stack([a, 2 * a]) + 0.1 * rng.standard_normal((1500, 2))
    model = _small().fit(X)
    holes = X[:300].copy()
    holes[:, 1] = np.nan
    errors = {}
    for n_resample in (1, 5):
        filled = model.impute(holes, n_resample=n_resample, random_state=1)
        errors[n_resample] = np.sqrt(np.mean((filled[:, 1] - X[:300, 1]) ** 2))
    assert errors[5] < 0.6  # the column has a standard deviation of 2
    assert errors[5] < errors[1]


# Digits ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, test_size=594, stratify=y, random_state=0)


@pytest.fixture(scope="module")
def judge(digits):
    return MLPClassifier((64, 32), max_iter=400, random_state=0).fit(digits[0] / 8 - 1, digits[2])


@pytest.fixture(scope="module")
def digit_model(digits):
    return DiffusionModel(
        network="mlp", image_shape=(8, 8), hidden_dim=96, max_iter=1000, random_state=0
    ).fit(digits[0], digits[2])


CLASSES = np.arange(600) % 10  # asked for


def _agreement(judge, drawn):
    return (judge.predict(drawn / 8 - 1) == CLASSES).mean()


def test_digits_given_their_label(digit_model, digits, judge):
    drawn = digit_model.sample(600, CLASSES, n_steps=20)
    assert _agreement(judge, drawn) > 0.97
    assert memorization_ratio(drawn, digits[0], digits[1]) > 0.8
    distances = {}
    for n_steps in (1, 20):  # a single step can give no more than the mean of a class
        rows = digit_model.sample(600, CLASSES, n_steps=n_steps) / 8 - 1
        distances[n_steps] = frechet_distance(rows, digits[1] / 8 - 1, features=judge)
    untrained = np.random.RandomState(0).uniform(-1, 1, (600, 64))
    worst = frechet_distance(untrained, digits[1] / 8 - 1, features=judge)
    assert distances[20] < 0.5 * distances[1] < worst


def test_guidance_makes_digits_more_typical(digit_model, judge):
    start = np.random.RandomState(0).standard_normal((600, 64))
    agreement, proba = [], []
    for scale in (0.0, 1.0):
        drawn = digit_model.sample(600, CLASSES, x_init=start, n_steps=20, guidance_scale=scale)
        agreement.append(_agreement(judge, drawn))
        proba.append(judge.predict_proba(drawn / 8 - 1)[np.arange(600), CLASSES].mean())
    assert agreement[1] >= agreement[0]
    assert proba[1] > proba[0]


def test_guidance_moves_away_from_the_other_class_and_narrows():
    """Of two classes that overlap, p(x | y)^(1 + w) / p(x)^w lies further out and is narrower."""
    rng = np.random.RandomState(0)
    y = rng.randint(2, size=3000)
    X = rng.standard_normal((3000, 2))
    X[:, 0] += 2 * y - 1
    model = _small(clip=None).fit(X, y)
    drawn = [
        model.sample(1500, y=1, guidance_scale=scale, random_state=1)[:, 0]
        for scale in (0.0, 1.0, 3.0)
    ]
    means, spreads = np.mean(drawn, axis=1), np.std(drawn, axis=1)
    assert means[0] == pytest.approx(1, abs=0.15)
    assert spreads[0] == pytest.approx(1, abs=0.15)
    assert means[0] < means[1] < means[2]
    assert spreads[0] > spreads[1] > spreads[2]


def test_a_model_that_learns_by_heart_is_found_out():
    """Few rows and many steps: good by any distance between distributions, but copied."""
    X = load_digits().data
    few, held_out = X[:40], X[40:80]
    model = DiffusionModel(max_iter=1200, batch_size=40, random_state=0).fit(few)
    assert memorization_ratio(model.sample(200), few, held_out) < 0.5
