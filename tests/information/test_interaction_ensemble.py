import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import mannwhitneyu
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from benchmarks.lsmi import make_shuffled_digits
from skicml.information import LSMI, InteractionEnsembleClassifier, KnifeDensity


def quick(**params):
    """Ensemble of parts that are fitted in closed form."""
    lsmi = LSMI(classifier=LogisticRegression(), density=GaussianMixture())
    parts = {"lsmi": lsmi, "regressor": LinearRegression(), "cv": 3, "random_state": 0}
    return InteractionEnsembleClassifier(**(parts | params))


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


class Constant(RegressorMixin, BaseEstimator):
    """Predict given interactions, and keep what it was fitted to."""

    def __init__(self, interactions=(0, 0, 0, 0)):
        self.interactions = interactions

    def fit(self, X, y):
        self.X_, self.y_ = X, y
        return self

    def predict(self, X):
        return np.tile(np.asarray(self.interactions, dtype=float), (len(X), 1))


def test_weights_are_those_of_the_formula(iris):
    r, u1, u2, s = 0.4, 0.3, -0.2, 0.1
    ensemble = quick(regressor=Constant((r, u1, u2, s)), temperature=0.25).fit(*iris)
    expected = softmax(np.array([r + u1, r + u2, r + u1 + u2 + s]) / 0.25)
    weights = ensemble.model_weights(iris[0])
    np.testing.assert_allclose(weights, np.tile(expected, (150, 1)))
    proba = np.exp(ensemble.lsmi_.log_proba(iris[0]))
    mixed = sum(weight * proba[:, i] for i, weight in enumerate(expected))
    np.testing.assert_allclose(ensemble.predict_proba(iris[0]), mixed)
    np.testing.assert_array_equal(ensemble.predict(iris[0]), mixed.argmax(axis=1))
    np.testing.assert_allclose(ensemble.predict_proba(iris[0]).sum(axis=1), 1)


def test_temperature_goes_from_one_classifier_to_the_average(iris):
    X, _ = iris
    ensemble = quick(temperature=1e-6).fit(*iris)
    assert (ensemble.model_weights(X).max(axis=1) > 0.999).mean() > 0.99
    average = quick(temperature=1e6).fit(*iris).predict_proba(X)
    np.testing.assert_allclose(average, np.exp(ensemble.lsmi_.log_proba(X)).mean(axis=1), atol=1e-5)


def test_the_adjustment_cancels(iris):
    X, _ = iris
    weights = [
        quick().set_params(lsmi__adjust=adjust).fit(*iris).model_weights(X)
        for adjust in (True, False)
    ]
    np.testing.assert_allclose(*weights, rtol=1e-6)


def test_the_regressor_learns_from_held_out_values(iris):
    X, y = iris
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    ensemble = quick(regressor=Constant(), cv=folds).fit(X, y)
    held_out = LSMI(
        classifier=LogisticRegression(), density=GaussianMixture(), cv=folds, random_state=0
    ).fit(X, y)
    np.testing.assert_allclose(ensemble.regressor_.y_, held_out.interactions_, atol=1e-6)
    log_proba = held_out.log_proba_
    proba = np.exp(log_proba)
    known = ensemble.regressor_.X_
    assert known.shape == (150, 4 + 3 * 3 + 3)
    np.testing.assert_array_equal(known[:, :4], X)
    for i in range(3):
        top = known[:, 4 + 3 * i : 7 + 3 * i]
        np.testing.assert_allclose(top, np.sort(proba[:, i])[:, ::-1], atol=1e-6)
        entropy = -(proba[:, i] * log_proba[:, i]).sum(axis=1)
        np.testing.assert_allclose(known[:, 13 + i], entropy, atol=1e-6)
    # New rows are judged by parts fitted to all rows.
    np.testing.assert_allclose(
        ensemble.lsmi_.log_proba(X), clone(held_out).set_params(cv=None).fit(X, y).log_proba(X)
    )


def test_it_trusts_the_view_that_speaks():
    """View 1 is noise in rows that a column of its own tells, view 2 in the others."""
    rng = np.random.RandomState(0)
    n_samples = 1200
    y = rng.randint(2, size=n_samples)
    noise = rng.randint(2, size=n_samples).astype(bool)
    signal = 2.5 * (2 * y - 1)[:, None] * np.column_stack([~noise, noise])
    views = signal + rng.normal(size=(n_samples, 2))
    X = np.column_stack([views[:, 0], noise, views[:, 1]])
    network = MLPClassifier((32,), batch_size=32, tol=1e9, n_iter_no_change=28)
    lsmi = LSMI([2, 1], classifier=network, density=GaussianMixture())
    train, test = slice(0, 800), slice(800, None)
    ensemble = InteractionEnsembleClassifier(lsmi, cv=3, temperature=0.2, random_state=0)
    ensemble.fit(X[train], y[train])
    weights = ensemble.model_weights(X[test])
    silent = noise[test]
    assert weights[~silent, 0].mean() > weights[silent, 0].mean() + 0.2
    assert weights[silent, 1].mean() > weights[~silent, 1].mean() + 0.2


def test_digits_with_shuffled_halves():
    """Better than the average and than each classifier; and u1 says which half is destroyed."""
    network = MLPClassifier(
        (64,), batch_size=64, learning_rate_init=3e-3, alpha=0.03, tol=1e9, n_iter_no_change=18
    )
    lsmi = LSMI(classifier=network, density=KnifeDensity(max_epochs=20))
    ours, uniform, single = [], [], []
    for seed in range(2):
        X, y, shuffled = make_shuffled_digits(seed)
        train, test = train_test_split(np.arange(len(y)), stratify=y, random_state=seed)
        ensemble = InteractionEnsembleClassifier(lsmi, cv=3, random_state=seed)
        ensemble.fit(X[train], y[train])
        proba = np.exp(ensemble.lsmi_.log_proba(X[test]))
        ours.append(ensemble.score(X[test], y[test]))
        uniform.append((proba.mean(axis=1).argmax(axis=1) == y[test]).mean())
        single.append((proba.argmax(axis=2) == y[test][:, None]).mean(axis=0).max())
        u1 = ensemble.lsmi_.interactions(X[test], y[test])[:, 1]
        destroyed = shuffled[test] == 0
        assert mannwhitneyu(u1[destroyed], u1[~destroyed], alternative="less").pvalue < 1e-3
    assert np.mean(ours) >= np.mean(uniform) + 0.02
    assert np.mean(ours) >= np.mean(single) + 0.05


def test_two_classes_have_two_top_probabilities(iris):
    X, y = iris
    ensemble = quick(regressor=Constant()).fit(X[:100], y[:100])
    assert ensemble.regressor_.X_.shape == (100, 4 + 3 * 2 + 3)
    assert ensemble.predict_proba(X).shape == (150, 2)


def test_default_parts(iris):
    X, y = iris
    ensemble = InteractionEnsembleClassifier(
        LSMI(classifier=LogisticRegression(), density=GaussianMixture()), random_state=0
    ).fit(X, y)
    assert ensemble.lsmi_.cv == 5
    assert ensemble.regressor_.get_params()["min_samples_leaf"] == 5
    assert ensemble.regressor_.random_state is not None
    assert ensemble.score(X, y) > 0.9


def test_cv_of_the_ensemble_replaces_that_of_the_lsmi(iris):
    ensemble = quick().set_params(lsmi__cv=7)
    assert ensemble.fit(*iris).lsmi_.cv == 3
    assert ensemble.lsmi.cv == 7


def test_views_by_column_names(iris):
    pd = pytest.importorskip("pandas")
    X, y = iris
    frame = pd.DataFrame(X, columns=["sepal__a", "sepal__b", "petal__a", "petal__b"])
    labels = np.array(["setosa", "versicolor", "virginica"])[y]
    auto = quick().set_params(lsmi__views="auto").fit(frame, labels)
    np.testing.assert_array_equal(auto.classes_, np.unique(labels))
    np.testing.assert_allclose(
        auto.predict_proba(frame), quick().fit(X, y).predict_proba(X), atol=1e-6
    )


def test_pipeline_and_grid_search(iris):
    pipeline = make_pipeline(StandardScaler(), quick())
    search = GridSearchCV(
        pipeline, {"interactionensembleclassifier__temperature": [0.1, 1.0]}, cv=2
    )
    assert search.fit(*iris).score(*iris) > 0.9


def test_same_seed_same_ensemble(iris):
    X, y = iris
    lsmi = LSMI(classifier=LogisticRegression(), density=KnifeDensity(2, max_epochs=1))
    first, again = (
        InteractionEnsembleClassifier(lsmi, cv=2, random_state=0).fit(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict_proba(X), again.predict_proba(X))


def test_bad_input(iris):
    X, y = iris
    with pytest.raises(InvalidParameterError, match="'lsmi' parameter"):
        quick(lsmi=LogisticRegression()).fit(X, y)
    with pytest.raises(InvalidParameterError, match="'cv' parameter"):
        quick(cv=None).fit(X, y)
    with pytest.raises(InvalidParameterError, match="'temperature' parameter"):
        quick(temperature=0).fit(X, y)
    with pytest.raises(InvalidParameterError, match="'cv' parameter"):
        quick(cv=1).fit(X, y)
    with pytest.raises(ValueError, match="cv must test every row exactly once"):
        quick(cv=[([0, 1], [2, 3])]).fit(X, y)
    with pytest.raises(ValueError, match=r"1 feature\(s\)"):
        quick().fit(X[:, :1], y)
    with pytest.raises(ValueError, match="at least 2 classes in y, got 1 class"):
        quick(cv=KFold(2)).fit(X, np.zeros(150))
    with pytest.raises(ValueError, match="Unknown label type"):
        quick().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="exactly 2 views"):
        quick().set_params(lsmi__views=[1, 1, 2]).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.where(X > 7, np.nan, X), y)
