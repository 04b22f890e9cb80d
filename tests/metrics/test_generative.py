import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from skicml.metrics import (
    classifier_two_sample_test,
    frechet_distance,
    memorization_ratio,
    precision_recall_knn,
    sliced_wasserstein,
)


def _normal(n_samples, n_features, seed=0, scale=1.0, shift=0.0):
    rng = np.random.RandomState(seed)
    return rng.standard_normal((n_samples, n_features)) * scale + shift


def test_frechet_distance_of_normals_is_the_closed_form():
    rng = np.random.RandomState(0)
    X = rng.standard_normal((400, 5)) @ rng.standard_normal((5, 5))
    Y = rng.standard_normal((300, 5)) @ rng.standard_normal((5, 5)) + 1
    cov_x, cov_y = np.cov(X.T), np.cov(Y.T)
    difference = X.mean(axis=0) - Y.mean(axis=0)
    expected = difference @ difference + np.trace(cov_x + cov_y - 2 * sqrtm(cov_x @ cov_y).real)
    assert frechet_distance(X, Y) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(Y, X) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_survives_singular_covariances():
    X = np.hstack([_normal(50, 2), np.zeros((50, 3))])
    assert frechet_distance(X, X) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(X, X + 1) == pytest.approx(5)
    assert frechet_distance(X[:, :1], X[:, :1] * 2) == pytest.approx(
        X[:, 0].mean() ** 2 + X[:, 0].var(ddof=1)
    )


def test_frechet_distance_is_biased_upwards_in_small_samples():
    small = [frechet_distance(_normal(50, 8, s), _normal(50, 8, s + 100)) for s in range(5)]
    large = [frechet_distance(_normal(1000, 8, s), _normal(1000, 8, s + 100)) for s in range(5)]
    assert np.mean(small) > 5 * np.mean(large) > 0


def test_features_of_a_classifier_are_its_last_hidden_layer():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600] / 8 - 1, y[:600]
    network = MLPClassifier((32, 8), max_iter=30, tol=1, random_state=0).fit(X, y)

    def by_hand(rows):
        first = np.maximum(rows @ network.coefs_[0] + network.intercepts_[0], 0)
        return np.maximum(first @ network.coefs_[1] + network.intercepts_[1], 0)

    logits = by_hand(X) @ network.coefs_[2] + network.intercepts_[2]
    np.testing.assert_array_equal(network.classes_[logits.argmax(axis=1)], network.predict(X))
    distance = frechet_distance(X[:300], X[300:], features=network)
    assert distance == pytest.approx(frechet_distance(by_hand(X[:300]), by_hand(X[300:])))
    assert distance == pytest.approx(frechet_distance(X[:300], X[300:], features=by_hand))


def test_sliced_wasserstein_of_a_shift_and_seeds():
    X = _normal(500, 4)
    shift = np.array([3.0, 0, 0, 0])
    # the mean squared projection of a vector to random directions is its square over d
    distance = sliced_wasserstein(X, X + shift, n_projections=5000, random_state=0)
    assert distance == pytest.approx(3 / 2, rel=0.05)
    assert sliced_wasserstein(X, X[::-1], random_state=0) == pytest.approx(0, abs=1e-12)
    Y = _normal(300, 4, seed=1)
    first = sliced_wasserstein(X, Y, random_state=3)
    assert first == sliced_wasserstein(X, Y, random_state=3)
    assert first != sliced_wasserstein(X, Y, random_state=4)


def test_two_sample_test_is_fair_and_sharp():
    same = [
        classifier_two_sample_test(
            _normal(300, 3, s), _normal(300, 3, s + 50), estimator=LogisticRegression()
        )
        for s in range(4)
    ]
    assert abs(np.mean(same) - 0.5) < 0.06
    X, Y = _normal(300, 3), _normal(300, 3, seed=1, shift=5)
    assert classifier_two_sample_test(X, Y, random_state=0) > 0.99
    # a normal distribution and a mixture with the same mean and covariance
    mixture = np.sign(_normal(600, 1)) * 0.95 + 0.3 * _normal(600, 1, seed=2)
    X = _normal(600, 1, seed=3)
    assert classifier_two_sample_test(X, mixture, random_state=0) > 0.65
    linear = LogisticRegression()
    assert classifier_two_sample_test(X, mixture, estimator=linear, random_state=0) < 0.6


def test_rounding_takes_away_the_give_away_of_integers():
    X = np.rint(_normal(400, 3, scale=4))
    Y = _normal(400, 3, seed=1, scale=4)
    assert classifier_two_sample_test(X, Y, random_state=0) > 0.9
    assert classifier_two_sample_test(X, Y, round_to=1.0, random_state=0) < 0.6


def test_precision_and_recall_tell_quality_from_coverage():
    real = np.vstack([_normal(200, 2), _normal(200, 2, seed=1, shift=20)])
    half = _normal(400, 2, seed=2)
    precision, recall = precision_recall_knn(real, half)
    assert precision > 0.9
    assert 0.4 < recall < 0.55
    too_much = np.vstack([_normal(200, 2, seed=3), _normal(200, 2, seed=4, shift=20), half + 50])
    precision, recall = precision_recall_knn(real, too_much)
    assert 0.4 < precision < 0.55
    assert recall > 0.9


def test_memorization_ratio():
    train, held_out, new = _normal(400, 3), _normal(400, 3, seed=1), _normal(400, 3, seed=2)
    assert memorization_ratio(new, train, held_out) == pytest.approx(1, abs=0.15)
    assert memorization_ratio(train[:100], train, held_out) == 0
    nearly = train[:100] + 0.01 * _normal(100, 3, seed=3)
    assert memorization_ratio(nearly, train, held_out) < 0.2
    assert np.isfinite(memorization_ratio(held_out, train, held_out))


@pytest.mark.parametrize(
    "metric",
    [
        frechet_distance,
        sliced_wasserstein,
        classifier_two_sample_test,
        precision_recall_knn,
        lambda X, Y: memorization_ratio(X, X, Y),
    ],
)
def test_bad_input(metric):
    X = _normal(20, 3)
    with pytest.raises(ValueError, match="same columns, got 3 and 2"):
        metric(X, X[:, :2])
    broken = X.copy()
    broken[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        metric(X, broken)


def test_too_few_rows():
    with pytest.raises(ValueError, match="more than k=5 rows, got 20 and 5"):
        precision_recall_knn(_normal(20, 2), _normal(5, 2))
    with pytest.raises(ValueError, match="minimum of 2"):
        frechet_distance(_normal(20, 2), _normal(1, 2))


def test_the_grid_that_samples_are_rounded_to_must_be_positive():
    X = np.arange(20.0)[:, None]
    for grid in (0, -1.0):
        with pytest.raises(ValueError, match="round_to == "):
            classifier_two_sample_test(X, X, round_to=grid)
