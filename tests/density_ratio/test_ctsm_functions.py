import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.ctsm import correlated_blocks, sinc_under_shift, weighted_regression_mse
from skicml.density_ratio import CTSM, TSM, importance_weights, mutual_information


def quick(**params):
    return CTSM(**({"hidden_layer_sizes": (32, 32), "max_iter": 400, "random_state": 0} | params))


# -------------------------------------------------------------------------- mutual information


def test_information_of_two_columns_is_that_of_their_pairing():
    rng = np.random.RandomState(0)
    x1, noise = rng.normal(size=(2, 2000))
    x2 = 0.8 * x1 + 0.6 * noise
    exact = -np.log(0.6)
    ctsm = quick(bridge_variance=2.0, max_iter=800)
    found, swapped, monotone, shuffled = (
        mutual_information(first, second, ctsm, random_state=0)
        for first, second in ((x1, x2), (x2, x1), (np.exp(x1 / 2), x2), (x1, rng.permutation(x2)))
    )
    assert found == pytest.approx(exact, abs=0.15)
    assert swapped == pytest.approx(exact, abs=0.15)
    assert monotone == pytest.approx(exact, abs=0.15)
    assert abs(shuffled) < 0.06


def test_information_is_reproducible_and_takes_other_estimators_and_permutations():
    first, second = correlated_blocks(300, 2, 0)
    tsm = TSM(hidden_layer_sizes=(16,), max_iter=50)
    found = [mutual_information(first, second, tsm, random_state=seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    assert not hasattr(tsm, "classes_")  # it is cloned
    assert tsm.random_state is None

    class Spy(CTSM):
        def fit(self, X, y):
            Spy.counts = np.bincount(y)
            Spy.pairs = X
            return super().fit(X, y)

    spy = Spy(hidden_layer_sizes=(16,), max_iter=10, random_state=0)
    mutual_information(first, second, spy, n_permutations=3, random_state=0)
    assert list(Spy.counts) == [900, 300]
    np.testing.assert_array_equal(Spy.pairs[900:], np.hstack([first, second]))
    for block in np.split(Spy.pairs[:900], 3):
        np.testing.assert_array_equal(block[:, :1], first)
        np.testing.assert_array_equal(np.sort(block[:, 1]), np.sort(second[:, 0]))
        assert not np.array_equal(block[:, 1:], second)


def test_bad_blocks():
    rng = np.random.RandomState(0)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        mutual_information(rng.normal(size=10), rng.normal(size=9), quick())
    with pytest.raises(ValueError, match="X2 contains NaN"):
        mutual_information(rng.normal(size=10), np.full(10, np.nan), quick())
    with pytest.raises(ValueError, match="n_permutations"):
        mutual_information(rng.normal(size=10), rng.normal(size=10), n_permutations=0)
    with pytest.raises(ValueError, match="estimator"):
        mutual_information(rng.normal(size=10), rng.normal(size=10), LogisticRegression())


# ------------------------------------------------------------------------------------- weights


@pytest.fixture(scope="module")
def shifted():
    """Training rows, and a fitted ratio of new rows to them."""
    train, new, *_ = sinc_under_shift(0)
    X, y = np.vstack([train, new]), np.repeat([0, 1], 400)
    return train, X, y, quick(max_iter=600).fit(X, y)


def test_weights_are_ratios_with_mean_one(shifted):
    train, _, _, ctsm = shifted
    ratio = ctsm.density_ratio(train)
    np.testing.assert_array_equal(importance_weights(ctsm, train, normalize=False), ratio)
    weights = importance_weights(ctsm, train)
    np.testing.assert_allclose(weights, ratio / ratio.mean())
    assert weights.mean() == pytest.approx(1)


def test_huge_ratios_give_finite_weights(shifted):
    class Far:
        def log_density_ratio(self, X):
            return np.array([2000.0, 1999.0, -5000.0])

    weights = importance_weights(Far(), np.zeros((3, 1)))
    np.testing.assert_allclose(weights, 3 * np.array([1, np.exp(-1), 0]) / (1 + np.exp(-1)))


def test_weights_of_a_pipeline(shifted):
    train, X, y, _ = shifted
    pipeline = make_pipeline(StandardScaler(), quick(max_iter=600)).fit(X, y)
    expected = pipeline[-1].density_ratio(pipeline[0].transform(train))
    np.testing.assert_allclose(
        importance_weights(pipeline, train, normalize=False), expected, rtol=1e-12
    )
    alone = make_pipeline(quick(max_iter=600)).fit(X, y)
    assert importance_weights(alone, train).mean() == pytest.approx(1)


def test_weights_move_a_regression_to_the_new_rows():
    """Covariate shift, as in the classical example: five seeds of five."""
    for seed in range(5):
        train, new, y_train, y_new, exact = sinc_under_shift(seed)
        ctsm = CTSM(hidden_layer_sizes=(64, 64), max_iter=600, random_state=seed)
        ctsm.fit(np.vstack([train, new]), np.repeat([0, 1], 400))
        errors = [
            weighted_regression_mse(train, new, y_train, y_new, weights)
            for weights in (importance_weights(ctsm, train), exact, None)
        ]
        assert errors[0] <= 0.02
        assert errors[1] <= 0.02
        assert errors[2] > 0.2


def test_weights_pass_through_a_pipeline_as_sample_weight(shifted):
    train, _, _, ctsm = shifted
    weights = importance_weights(ctsm, train)
    target = np.sinc(train[:, 0])
    pipeline = make_pipeline(StandardScaler(), LinearRegression())
    pipeline.fit(train, target, linearregression__sample_weight=weights)
    plain = LinearRegression().fit(train, target, sample_weight=weights)
    np.testing.assert_allclose(pipeline.predict(train), plain.predict(train))


def test_an_estimator_without_a_ratio_is_refused(shifted):
    _, X, y, _ = shifted
    with pytest.raises(TypeError, match="log_density_ratio"):
        importance_weights(LogisticRegression().fit(X, y), X)
    with pytest.raises(TypeError, match="log_density_ratio"):
        importance_weights(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), X)
