import numpy as np
import pytest
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin, DensityMixin, clone
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit, StratifiedKFold
from sklearn.neighbors import KernelDensity
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils._param_validation import InvalidParameterError

from benchmarks.lsmi import (
    CIRCUITS,
    GaussianViews,
    column_correlations,
    make_circuit,
    table_interactions,
)
from skicml.information import LSMI, KnifeDensity
from skicml.information._pointwise import (
    adjust,
    decompose,
    expected_interactions,
    mean_adjustment,
    pointwise_information,
)

NAMES = ("redundancy", "uniqueness1", "uniqueness2", "synergy")


def quick(**params):
    """LSMI of parts that are fitted in closed form."""
    parts = {"classifier": LogisticRegression(), "density": GaussianMixture(), "random_state": 0}
    return LSMI(**(parts | params))


@pytest.fixture(scope="module")
def iris():
    """Sepal and petal; rows in random order."""
    X, y = load_iris(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(y))
    return X[order], y[order]


@pytest.fixture(scope="module")
def fitted(iris):
    return quick().fit(*iris)


# ------------------------------------------------------------------------------ the arithmetic


def _random_quantities(n_samples=500, random_state=0):
    rng = np.random.RandomState(random_state)
    return rng.normal(size=(n_samples, 3)), 5 * rng.normal(size=(n_samples, 2))


def test_the_three_equations_of_the_lattice_hold():
    mi, h = _random_quantities()
    r, u1, u2, s = decompose(mi, h).T
    np.testing.assert_allclose(np.column_stack([r + u1, r + u2, r + u1 + u2 + s]), mi)


def test_redundancy_lies_between_both_and_tends_to_the_view_of_smaller_entropy():
    mi, h = _random_quantities()
    r = decompose(mi, h)[:, 0]
    assert (r >= mi[:, :2].min(axis=1) - 1e-12).all()
    assert (r <= mi[:, :2].max(axis=1) + 1e-12).all()
    np.testing.assert_allclose(decompose(mi, np.array([100.0, 0.0]))[:, 0], mi[:, 1])
    np.testing.assert_allclose(decompose(mi, np.array([0.0, 100.0]))[:, 0], mi[:, 0])
    np.testing.assert_allclose(decompose(mi, np.array([3.0, 3.0]))[:, 0], mi[:, :2].max(axis=1))


def test_redundancy_is_that_of_the_two_monotone_components():
    mi, h = np.array([[1.0, 0.5, 1.2]]), np.array([[2.0, 1.0]])
    # r+ = min(2, 1) = 1, r- = min(2 - 1, 1 - 0.5) = 0.5
    np.testing.assert_allclose(decompose(mi, h), [[0.5, 0.5, 0.0, 0.2]])


def test_only_the_difference_of_the_entropies_counts():
    mi, h = _random_quantities()
    np.testing.assert_allclose(decompose(mi, h), decompose(mi, h + 7), atol=1e-12)


def test_entropies_may_be_infinite():
    """A density of bounded support gives rows outside it probability 0."""
    mi = np.tile([1.0, 0.5, 1.2], (3, 1))
    h = np.array([[np.inf, np.inf], [np.inf, 2.0], [2.0, np.inf]])
    np.testing.assert_allclose(decompose(mi, h)[:, 0], [1.0, 0.5, 1.0])
    X, y = load_iris(return_X_y=True)
    lsmi = quick(density=KernelDensity(kernel="tophat", bandwidth=0.1), cv=3).fit(X, y)
    assert np.isinf(lsmi.entropies_).all(axis=1).any()
    assert np.isfinite(lsmi.interactions_).all()
    assert np.isfinite(lsmi.transform(X + 9)).all()


def test_swapping_the_views_swaps_the_uniqueness():
    mi, h = _random_quantities()
    swapped = decompose(mi[:, [1, 0, 2]], h[:, ::-1])
    np.testing.assert_allclose(swapped, decompose(mi, h)[:, [0, 2, 1, 3]])


@pytest.mark.parametrize(
    ("means", "c"),
    [
        ([-0.2, 0.3, 0.4, 0.1], 0.2),  # negative redundancy
        ([0.2, 0.3, 0.4, -0.1], 0.1),  # negative synergy
        ([-0.2, 0.5, 0.4, -0.3], 0.3),  # both
        ([0.5, -0.1, -0.2, 0.3], -0.2),  # negative uniqueness: r falls
        ([0.5, 0.1, 0.2, 0.3], 0.0),
    ],
)
def test_mean_adjustment(means, c):
    interactions = np.array(means) + np.random.RandomState(0).normal(size=(400, 4))
    interactions += means - interactions.mean(axis=0)
    assert mean_adjustment(interactions) == pytest.approx(c)
    r, u1, u2, s = means
    adjusted = adjust(interactions, c)
    np.testing.assert_allclose(adjusted.mean(axis=0), [r + c, u1 - c, u2 - c, s + c], atol=1e-12)
    np.testing.assert_allclose(adjusted[:, :2].sum(axis=1), interactions[:, :2].sum(axis=1))
    np.testing.assert_allclose(adjusted.sum(axis=1), interactions.sum(axis=1))


def test_adjusted_means_are_a_non_negative_decomposition():
    rng = np.random.RandomState(0)
    for _ in range(200):
        mi = rng.uniform(0, 2, size=3)
        mi[2] = mi.max() + rng.uniform(0, 1)  # both views tell no less than either
        mi, h = mi + rng.normal(size=(50, 3)), rng.normal(size=(50, 2))
        if mi[:, :2].mean(axis=0).min() < 0 or mi.mean(axis=0).argmax() != 2:
            continue
        raw = decompose(mi, h)
        adjusted = adjust(raw, mean_adjustment(raw)).mean(axis=0)
        assert adjusted.min() >= -1e-12
        if raw.mean(axis=0)[1:3].min() < 0 <= min(raw.mean(axis=0)[[0, 3]]):
            # The means then do not depend on the densities.
            assert adjusted[0] == pytest.approx(mi[:, :2].mean(axis=0).min())


def test_label_free_values_average_over_the_labels(monkeypatch):
    rng = np.random.RandomState(0)
    log_proba = np.log(rng.dirichlet(np.ones(4), size=(30, 3)))
    log_prior, h = np.log(np.full(4, 0.25)), rng.normal(size=(30, 2))
    expected = np.zeros((30, 4))
    for i in range(30):
        for k in range(4):
            mi = pointwise_information(log_proba[i : i + 1], log_prior, np.array([k]))
            expected[i] += np.exp(log_proba[i, 2, k]) * decompose(mi, h[i : i + 1])[0]
    np.testing.assert_allclose(expected_interactions(log_proba, log_prior, h), expected)
    monkeypatch.setattr("skicml.information._pointwise._CHUNK", 9)
    np.testing.assert_allclose(expected_interactions(log_proba, log_prior, h), expected)


# ------------------------------------------------------- known answers: the values of samples


class ExactDensity(DensityMixin, BaseEstimator):
    """The true density of either of the Gaussian views."""

    def __init__(self, truth):
        self.truth = truth

    def fit(self, X, y=None):
        self.fitted_ = True
        return self

    def score_samples(self, X):
        return -self.truth.entropies(np.hstack([X, X]))[:, 0]


class ExactClassifier(ClassifierMixin, BaseEstimator):
    """The true posterior of one or both of the Gaussian views."""

    def __init__(self, truth):
        self.truth = truth

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        joint = X.shape[1] == sum(self.truth.views)
        return np.exp(self.truth.log_proba(X if joint else np.hstack([X, X]))[:, 2 if joint else 0])


def _balanced(truth, n_samples, random_state):
    """A sample whose class frequencies are the true ones."""
    X, y = truth.sample(n_samples, random_state)
    smallest = np.bincount(y).min()
    rows = np.concatenate([np.flatnonzero(y == k)[:smallest] for k in range(truth.n_classes)])
    return X[rows], y[rows]


@pytest.mark.parametrize("n_classes", [2, 5])
def test_exact_parts_give_the_exact_interactions(n_classes):
    truth = GaussianViews(n_classes, 0.5, 0.5)
    X, y = _balanced(truth, 400, 0)
    lsmi = LSMI(
        classifier=ExactClassifier(truth),
        density=ExactDensity(truth),
        standardize=False,
        adjust=False,
    ).fit(X, y)
    exact = truth.interactions(X, y)
    np.testing.assert_allclose(lsmi.raw_interactions_, exact, atol=1e-10)
    np.testing.assert_allclose(lsmi.interactions(X, y), exact, atol=1e-10)
    expected = sum(
        np.exp(truth.log_proba(X)[:, 2, k : k + 1]) * truth.interactions(X, np.full(len(y), k))
        for k in range(n_classes)
    )
    np.testing.assert_allclose(lsmi.transform(X), expected, atol=1e-10)

    swapped = clone(lsmi).set_params(views=[slice(n_classes, 2 * n_classes), slice(0, n_classes)])
    swapped.fit(X, y)
    np.testing.assert_allclose(
        swapped.interactions(X, y), lsmi.interactions(X, y)[:, [0, 2, 1, 3]], atol=1e-10
    )


@pytest.mark.parametrize(
    ("truth", "raw", "adjusted"),
    [
        ((2, 0.5, 0.5), (0.568, -0.067, -0.069, 0.130), (0.499, 0.002, 0.000, 0.062)),
        ((5, 0.5, 0.5), None, (1.037, 0.001, 0.000, 0.168)),
        ((3, -0.5, 0.6), (0.606, 0.008, 0.007, 0.430), (0.606, 0.008, 0.007, 0.430)),
    ],
)
def test_population_means_of_the_closed_form(truth, raw, adjusted):
    truth = GaussianViews(*truth)
    X, y = truth.sample(100_000, 0)
    exact = truth.interactions(X, y)
    if raw is not None:
        np.testing.assert_allclose(exact.mean(axis=0), raw, atol=0.008)
    np.testing.assert_allclose(
        adjust(exact, mean_adjustment(exact)).mean(axis=0), adjusted, atol=0.008
    )


def _judge(truth, lsmi, seed):
    """Correlations with the exact raw values of test rows, and errors of the adjusted means."""
    lsmi.set_params(views=truth.views, random_state=seed).fit(*truth.sample(4000, 2 * seed))
    X, y = truth.sample(4000, 2 * seed + 1)
    exact, found = truth.interactions(X, y), lsmi.interactions(X, y)
    target = adjust(exact, mean_adjustment(exact)).mean(axis=0)
    return column_correlations(found, exact), np.abs(found.mean(axis=0) - target)


def test_default_parts_find_the_values_of_single_samples():
    correlations, errors = _judge(GaussianViews(2, 0.5, 0.5), LSMI(), seed=0)
    assert (correlations >= [0.95, 0.95, 0.95, 0.90]).all()
    assert errors.max() <= 0.03


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("truth", [(2, 0.5, 0.5), (5, 0.5, 0.5), (3, -0.5, 0.6)])
def test_a_well_specified_classifier_finds_the_values_of_single_samples(truth, seed):
    """The posterior of the Gaussian views is a logistic regression; the density is KNIFE."""
    density = KnifeDensity(max_epochs=20)
    lsmi = LSMI(classifier=LogisticRegression(), density=density)
    correlations, errors = _judge(GaussianViews(*truth), lsmi, seed)
    assert correlations.min() >= 0.95
    assert errors.max() <= 0.03
    if truth == (3, -0.5, 0.6):
        assert abs(lsmi.adjustment_) <= 0.02  # the case that needs none


def test_means_pass_without_any_density_but_samples_do_not():
    """Why the means of a data set prove nothing."""
    truth = GaussianViews(2, 0.5, 0.5)
    X, y = truth.sample(4000, 0)
    exact = truth.interactions(X, y)
    mi = pointwise_information(truth.log_proba(X), np.log([0.5, 0.5]), y)
    blind = decompose(mi, np.zeros(2))
    means = [adjust(values, mean_adjustment(values)).mean(axis=0) for values in (blind, exact)]
    np.testing.assert_allclose(means[0], means[1], atol=0.01)
    assert column_correlations(blind, exact)[0] < 0.9


# --------------------------------------------------------------------- known answers: circuits


@pytest.mark.parametrize("name", CIRCUITS)
def test_circuits(name):
    exact, tolerance, *_ = CIRCUITS[name]
    found = []
    for seed in range(3):
        X, y, views = make_circuit(name, 2000, seed)
        lsmi = quick(views=views, classifier=DecisionTreeClassifier())
        found.append(lsmi.fit(X, y).mean_interactions_)
        np.testing.assert_allclose(found[-1], table_interactions(X, y, views), atol=1e-3)
    assert (np.abs(np.mean(found, axis=0) - exact) <= tolerance).all()


def test_default_parts_solve_the_exclusive_or():
    X, y, views = make_circuit("XOR", 1000, 0)
    lsmi = LSMI(views, density=GaussianMixture(), random_state=0).fit(X, y)
    r, u1, u2, s = lsmi.mean_interactions_
    assert s >= 0.66
    assert max(abs(r), abs(u1), abs(u2)) <= 0.02


def test_two_bit_copy_counts_as_redundant():
    """Inherent in redundancies made of minima, and documented."""
    X, y, views = make_circuit("two bits", 2000, 0)
    lsmi = quick(views=views, classifier=DecisionTreeClassifier()).fit(X, y)
    np.testing.assert_allclose(lsmi.mean_interactions_, [np.log(2), 0, 0, np.log(2)], atol=0.02)


# ------------------------------------------------------------------------------------ the traps


def test_an_uninformative_view_of_unbalanced_classes_tells_nothing():
    """log K instead of -log p(y) would say log 2 - 0.325 = 0.368."""
    rng = np.random.RandomState(0)
    y = np.repeat([0, 1], [1800, 200])
    X = np.column_stack([rng.normal(size=(2000, 2)), y + 0.3 * rng.normal(size=2000)])
    lsmi = quick(views=[2, 1]).fit(X, y)
    np.testing.assert_allclose(lsmi.class_log_prior_, np.log([0.9, 0.1]))
    assert abs(lsmi.pointwise_mi_[:, 0].mean()) < 0.01
    entropy = -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    assert 0.7 * entropy < lsmi.pointwise_mi_[:, 1].mean() <= entropy


def test_all_values_of_a_row_belong_to_that_row(fitted, iris):
    """The official loop gathers entropies and informations in different orders."""
    X, y = iris
    order = np.random.RandomState(1).permutation(len(y))
    np.testing.assert_allclose(fitted.interactions(X[order], y[order]), fitted.interactions_[order])
    np.testing.assert_allclose(fitted.pointwise_mi(X[order], y[order]), fitted.pointwise_mi_[order])
    np.testing.assert_allclose(fitted.entropies(X[order]), fitted.entropies_[order])
    np.testing.assert_allclose(fitted.log_proba(X[order]), fitted.log_proba_[order])
    np.testing.assert_allclose(
        fitted.raw_interactions_, decompose(fitted.pointwise_mi_, fitted.entropies_)
    )
    scaled = StandardScaler().fit_transform(X)
    np.testing.assert_allclose(
        fitted.entropies_[:, 1],
        -GaussianMixture(random_state=0).fit(scaled[:, 2:]).score_samples(scaled[:, 2:]),
    )


def test_held_out_values_are_not_inflated_by_an_overfit_classifier():
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(400, 6)), rng.randint(2, size=400)  # nothing to know
    forest = RandomForestClassifier(20, min_samples_leaf=3, random_state=0)
    inside = quick(classifier=forest).fit(X, y)
    outside = quick(classifier=forest, cv=5).fit(X, y)
    assert inside.pointwise_mi_.mean(axis=0).min() > 0.2
    assert outside.pointwise_mi_.mean(axis=0).max() < 0.02


def test_held_out_values_come_from_parts_that_have_not_seen_the_row(iris):
    X, y = iris
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    lsmi = quick(cv=folds).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    for train, test in folds.split(X, y):
        for i, columns in enumerate([slice(0, 2), slice(2, 4), slice(0, 4)]):
            classifier = LogisticRegression().fit(scaled[train, columns], y[train])
            expected = classifier.predict_log_proba(scaled[test, columns])
            np.testing.assert_allclose(lsmi.log_proba_[test, i], expected, rtol=1e-6)
        for i, columns in enumerate([slice(0, 2), slice(2, 4)]):
            density = GaussianMixture().fit(scaled[train, columns])
            expected = -density.score_samples(scaled[test, columns])
            np.testing.assert_allclose(lsmi.entropies_[test, i], expected)
    # New rows are judged by parts that have seen all rows.
    np.testing.assert_allclose(lsmi.log_proba(X), quick().fit(X, y).log_proba(X))


def test_a_class_that_a_fold_has_not_seen_gets_the_least_probability():
    X, y = load_iris(return_X_y=True)  # sorted by class
    lsmi = quick(cv=KFold(3)).fit(X, y)
    own = np.take_along_axis(lsmi.log_proba_, y[:, None, None], axis=2)
    np.testing.assert_allclose(own, np.log(1e-12))
    assert np.isfinite(lsmi.interactions_).all()


def test_probabilities_are_clipped():
    X, y, views = make_circuit("COPY", 100, 0)
    lsmi = quick(views=views, classifier=DecisionTreeClassifier()).fit(X, y)
    assert lsmi.pointwise_mi(X, 1 - y)[:, 0].max() < -26
    assert np.isfinite(lsmi.transform(X)).all()


@pytest.mark.parametrize("standardize", [True, False])
def test_units_do_not_matter_if_standardized(iris, standardize):
    X, y = iris
    millimetres = X * [1000, 1000, 1, 1]
    # Trees do not see the unit, so the densities alone make the difference.
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    values = [
        quick(classifier=tree, standardize=standardize).fit(data, y).raw_interactions_
        for data in (X, millimetres)
    ]
    assert np.allclose(*values, atol=1e-3) == standardize


def test_adjustment_is_learnt_in_fit_and_not_from_the_rows_given(fitted, iris):
    X, y = iris
    assert fitted.adjustment_ != 0
    np.testing.assert_allclose(fitted.transform(X[:7]), fitted.transform(X)[:7])
    np.testing.assert_allclose(fitted.interactions(X[:7], y[:7]), fitted.interactions_[:7])
    np.testing.assert_allclose(
        fitted.interactions_, adjust(fitted.raw_interactions_, fitted.adjustment_)
    )
    np.testing.assert_allclose(fitted.mean_interactions_, fitted.interactions_.mean(axis=0))
    assert fitted.mean_interactions_.min() > -1e-9
    plain = quick(adjust=False).fit(X, y)
    assert plain.adjustment_ == 0
    np.testing.assert_allclose(
        adjust(plain.transform(X), fitted.adjustment_), fitted.transform(X), atol=1e-12
    )
    np.testing.assert_array_equal(plain.interactions_, plain.raw_interactions_)


# ------------------------------------------------------------------------------------ interface


def test_transform_needs_no_label_and_averages_over_it(fitted, iris):
    X, _ = iris
    posterior = np.exp(fitted.log_proba(X)[:, 2])
    expected = sum(
        posterior[:, [k]] * fitted.interactions(X, np.full(len(X), k)) for k in fitted.classes_
    )
    np.testing.assert_allclose(fitted.transform(X), expected, atol=1e-9)
    np.testing.assert_array_equal(fitted.get_feature_names_out(), NAMES)


def test_fit_transform_equals_fit_then_transform(iris):
    lsmi = quick(cv=3)
    np.testing.assert_array_equal(lsmi.fit_transform(*iris), lsmi.transform(iris[0]))


def test_score_is_the_likelihood_of_all_parts(fitted, iris):
    X, y = iris
    scaled = StandardScaler().fit_transform(X)
    parts = [slice(0, 2), slice(2, 4), slice(0, 4)]
    expected = sum(
        LogisticRegression()
        .fit(scaled[:, columns], y)
        .predict_log_proba(scaled[:, columns])[np.arange(len(y)), y]
        .mean()
        for columns in parts
    ) + sum(GaussianMixture().fit(scaled[:, c]).score(scaled[:, c]) for c in parts[:2])
    assert fitted.score(X, y) == pytest.approx(expected)


@pytest.mark.parametrize("known", [True, False])
def test_partition(fitted, iris, known):
    X, y = iris
    labels = y if known else None
    values = fitted.interactions(X, y) if known else fitted.transform(X)
    groups = fitted.partition(X, labels)
    assert np.bincount(groups).tolist() == [75, 75]
    assert values[groups == 0, 0].max() <= values[groups == 1, 0].min()
    thirds = fitted.partition(X, labels, by="synergy", quantiles=(1 / 3, 2 / 3))
    assert thirds.dtype.kind == "i"
    for low, high in [(0, 1), (1, 2)]:
        assert values[thirds == low, 3].max() <= values[thirds == high, 3].min()
    assert np.bincount(thirds).min() >= 45


def test_dominant_interaction(fitted, iris):
    X, y = iris
    np.testing.assert_array_equal(fitted.dominant_interaction(X), fitted.transform(X).argmax(1))
    np.testing.assert_array_equal(
        fitted.dominant_interaction(X, y), fitted.interactions_.argmax(axis=1)
    )
    X, y, views = make_circuit("XOR", 200, 0)
    lsmi = quick(views=views, classifier=DecisionTreeClassifier()).fit(X, y)
    assert (lsmi.dominant_interaction(X, y) == 3).all()


def test_ways_to_say_the_views(iris):
    pd = pytest.importorskip("pandas")
    X, y = iris
    expected = quick().fit(X, y).interactions_
    for views in [[2, 2], (slice(0, 2), slice(2, 4)), [[0, 1], np.array([2, 3])]]:
        np.testing.assert_array_equal(quick(views=views).fit(X, y).interactions_, expected)
    frame = pd.DataFrame(X, columns=["sepal__a", "sepal__b", "petal__a", "petal__b"])
    auto = quick(views="auto").fit(frame, y)
    np.testing.assert_array_equal(auto.interactions_, expected)
    np.testing.assert_array_equal(
        auto.set_output(transform="pandas").transform(frame).columns, NAMES
    )
    assert auto.partition(frame).shape == (150,)
    # Columns that no view names do not matter; an odd column goes to the second view.
    noisy = np.column_stack([X, np.random.RandomState(0).normal(size=150)])
    part = quick(views=[[0, 1], [2, 3]]).fit(noisy, y)
    np.testing.assert_allclose(part.interactions_, expected)
    assert [len(block) for block in quick().fit(noisy, y).view_indices_] == [2, 3]


@pytest.mark.parametrize("names", [["b", "a", "c"], [7, -2, 40]])
def test_labels_of_any_kind(iris, fitted, names):
    X, y = iris
    labels = np.array(names)[y]
    lsmi = quick().fit(X, labels)
    np.testing.assert_array_equal(lsmi.classes_, np.sort(names))
    np.testing.assert_allclose(lsmi.interactions(X, labels), fitted.interactions_, atol=1e-4)


def test_joint_classifier_judges_both_views_only(iris, fitted):
    lsmi = quick(joint_classifier=DummyClassifier(strategy="prior")).fit(*iris)
    np.testing.assert_allclose(lsmi.pointwise_mi_[:, 2], 0, atol=1e-12)
    np.testing.assert_allclose(lsmi.pointwise_mi_[:, :2], fitted.pointwise_mi_[:, :2])


def test_pipeline_and_grid_search_by_score():
    truth = GaussianViews(3, 0.5, 0.25)  # three well separated groups in either view
    X, y = truth.sample(300, 0)
    pipeline = make_pipeline(
        StandardScaler(),
        LSMI(truth.views, classifier=LogisticRegression(), density=KnifeDensity(max_epochs=20)),
        LogisticRegression(),
    )
    assert pipeline.fit(X, y).score(X, y) > 0.5
    search = GridSearchCV(
        quick(density=GaussianMixture(random_state=0)), {"density__n_components": [1, 3, 40]}, cv=2
    )
    assert search.fit(X, y).best_params_ == {"density__n_components": 3}


def test_nested_seeds_that_are_none_come_from_random_state(iris):
    X, y = iris
    forest, knife = RandomForestClassifier(5), KnifeDensity(2, max_epochs=1)
    first, again, other = (
        LSMI(classifier=forest, density=knife, random_state=seed).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.interactions_, again.interactions_)
    assert not np.array_equal(first.interactions_, other.interactions_)
    seeds = [part.random_state for part in first.classifiers_ + first.densities_]
    assert len(set(seeds)) == 5
    kept = LSMI(
        classifier=make_pipeline(RandomForestClassifier(5, random_state=7)),
        density=knife,
        random_state=0,
    ).fit(X, y)
    assert kept.classifiers_[0][-1].random_state == 7
    nested = LSMI(classifier=make_pipeline(forest), density=knife, random_state=0).fit(X, y)
    assert nested.classifiers_[0][-1].random_state is not None
    assert forest.random_state is None


def test_parallel_parts_are_the_same(iris):
    lsmi = LSMI(
        classifier=RandomForestClassifier(5),
        density=KnifeDensity(2, max_epochs=2),
        cv=2,
        random_state=0,
    )
    alone = clone(lsmi).fit(*iris)
    with parallel_config("threading"):
        together = clone(lsmi).set_params(n_jobs=2).fit(*iris)
    np.testing.assert_array_equal(alone.interactions_, together.interactions_)


def test_float32_stays_float32(iris):
    X, y = iris
    lsmi = quick().fit(X.astype(np.float32), y)
    for values in (lsmi.transform(X.astype(np.float32)), lsmi.interactions_, lsmi.entropies_):
        assert values.dtype == np.float32
    np.testing.assert_allclose(lsmi.interactions_, quick().fit(X, y).interactions_, atol=1e-3)


class _Record:
    """Count tasks; propagated to nested estimators like a progress bar."""

    max_propagation_depth = None

    def __init__(self, error=None):
        self.names, self.error = [], error

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        # The name that the outer estimator gave, if both report the same task.
        self.names.append(context.source_task_name or context.task_name)
        if self.error is not None and context.task_name.startswith("epoch"):
            raise self.error

    def on_fit_task_end(self, estimator, context):
        pass


def test_parts_and_epochs_of_the_densities_are_tasks(iris):
    record = _Record()
    lsmi = LSMI(classifier=LogisticRegression(), density=KnifeDensity(2, max_epochs=3), cv=2)
    lsmi.set_callbacks(record).fit(*iris)
    assert sum(name.startswith("epoch") for name in record.names) == 3 * 2 * 3
    for part in ("classifier of view 1", "joint classifier", "density of view 2"):
        assert [name for name in record.names if name.startswith(part)] == [
            f"{part}, fit {fold}" for fold in range(3)
        ]
    assert not any(hasattr(part, "_skl_callbacks") for part in lsmi.densities_)


def test_nothing_is_left_behind_by_an_interrupt(iris):
    lsmi = LSMI(classifier=LogisticRegression()).set_callbacks(_Record(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        lsmi.fit(*iris)
    assert [name for name in vars(lsmi) if name.endswith("_")] == []


# ------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([1, 1, 2], "exactly 2 views, but .* describes 3 of the 4 features"),
        ([4], "exactly 2 views, but .* describes 1 of the 4 features"),
        ([2, 3], "add up to 5, but X has 4 features"),
        ([1, 1], "add up to 2, but X has 4 features"),
        ([[0, 1], [1, 2]], "must not share columns"),
        ([[0, 1], [2, 4]], "4 columns of X"),
        ("auto", "needs a DataFrame"),
    ],
)
def test_bad_views(iris, views, message):
    with pytest.raises(ValueError, match=message):
        quick(views=views).fit(*iris)


def test_one_column_makes_no_two_views(iris):
    X, y = iris
    with pytest.raises(ValueError, match=r"1 feature\(s\)"):
        quick().fit(X[:, :1], y)


@pytest.mark.parametrize("cv", [ShuffleSplit(2), [([0, 1], [2, 3])], []])
def test_cv_must_test_every_row_once(iris, cv):
    with pytest.raises(ValueError, match="cv must test every row exactly once"):
        quick(cv=cv).fit(*iris)


def test_bad_labels(fitted, iris):
    X, y = iris
    with pytest.raises(ValueError, match="at least 2 classes in y, got 1 class"):
        quick().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="Unknown label type"):
        quick().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="requires y to be passed"):
        quick().fit(X, None)
    for method in (fitted.interactions, fitted.pointwise_mi, fitted.score):
        with pytest.raises(ValueError, match=r"labels that fit has not seen: \[3\]"):
            method(X, y + 1)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            method(X, y[:-1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_values_are_refused(fitted, iris, value):
    X, y = iris[0].copy(), iris[1]
    X[3, 1] = value
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        quick().fit(X, y)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        fitted.transform(X)


def test_parts_must_be_able_to(iris):
    for name, part in [
        ("classifier", LinearSVC()),
        ("joint_classifier", LinearSVC()),
        ("density", LogisticRegression()),
    ]:
        with pytest.raises(InvalidParameterError, match=f"'{name}' parameter of LSMI"):
            quick(**{name: part}).fit(*iris)
    with pytest.raises(InvalidParameterError, match="'n_components' parameter of GaussianMixture"):
        quick(density=GaussianMixture(-1)).fit(*iris)


def test_bad_partitions(fitted, iris):
    with pytest.raises(ValueError, match=r"by must be one of .*got 'u1'"):
        fitted.partition(iris[0], by="u1")
    for quantiles in [(0.5, 0.2), (0.5, 0.5), (0.0,), (1.0,), (), 0.5, (np.nan,)]:
        with pytest.raises(ValueError, match="quantiles must increase strictly between 0 and 1"):
            fitted.partition(iris[0], quantiles=quantiles)


def test_a_failed_refit_leaves_the_old_fit_whole(iris):
    X, y = iris
    lsmi = quick().fit(X, y)
    expected = lsmi.transform(X)
    with pytest.raises(ValueError, match="at least 2 classes"):
        lsmi.fit(X[:, :3], np.zeros(len(y)))
    np.testing.assert_array_equal(lsmi.transform(X), expected)
