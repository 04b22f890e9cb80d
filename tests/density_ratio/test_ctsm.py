"""CTSM and TSM as estimators."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from skicml.density_ratio import CTSM, TSM

ESTIMATORS = [CTSM, TSM]


def quick(cls=CTSM, **params):
    return cls(**({"hidden_layer_sizes": (32, 32), "max_iter": 200, "random_state": 0} | params))


def two_samples(n0=500, n1=500, seed=0):
    """N(0, I) and N((1.5, 0), diag(0.5, 1)) in the plane, with labels."""
    rng = np.random.RandomState(seed)
    numerator = [1.5, 0] + [0.5, 1] * rng.normal(size=(n1, 2))
    return np.vstack([rng.normal(size=(n0, 2)), numerator]), np.repeat([0, 1], [n0, n1])


@pytest.fixture(scope="module")
def fitted():
    return quick(max_iter=600).fit(*two_samples())


# --------------------------------------------------------------------------- what is returned


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_swapped_labels_negate_the_log_ratio(cls):
    X, y = two_samples()
    log_ratio, swapped = (
        quick(cls, max_iter=300).fit(X, labels).log_density_ratio(X) for labels in (y, 1 - y)
    )
    assert np.corrcoef(log_ratio, -swapped)[0, 1] >= 0.98
    assert log_ratio[y == 1].mean() > 0 > log_ratio[y == 0].mean()


def test_labels_may_be_anything_and_are_sorted():
    X, y = two_samples()
    named = quick().fit(X, np.array(["new", "old"])[1 - y])  # "new" is the smaller: p0
    assert list(named.classes_) == ["new", "old"]
    plain = quick().fit(X, 1 - y)
    np.testing.assert_array_equal(named.log_density_ratio(X), plain.log_density_ratio(X))
    assert set(named.predict(X)) == {"new", "old"}


def test_the_class_prior_is_in_the_decision_but_not_in_the_ratio():
    X, y = two_samples(2000, 500)
    ctsm = quick(max_iter=400).fit(X, y)
    np.testing.assert_allclose(ctsm.class_prior_, [0.8, 0.2])
    log_ratio = ctsm.log_density_ratio(X)
    np.testing.assert_allclose(ctsm.decision_function(X), log_ratio - np.log(4))
    proba = ctsm.predict_proba(X)
    np.testing.assert_allclose(np.log(proba[:, 1] / proba[:, 0]), log_ratio - np.log(4))
    np.testing.assert_array_equal(ctsm.predict(X), (log_ratio > np.log(4)).astype(int))
    # Balanced rows give the same ratio, for the ratio has no prior.
    balanced = quick(max_iter=400).fit(*two_samples(500, 500, seed=1))
    assert abs(np.median(log_ratio - balanced.log_density_ratio(X))) < 0.3


def test_time_score_of_one_or_several_times(fitted):
    X, _ = two_samples()
    several = fitted.time_score(X[:7], [0.0, 0.5, 1.0])
    assert several.shape == (7, 3)
    single = fitted.time_score(X[:7], 0.5)
    assert single.shape == (7,)
    np.testing.assert_allclose(single, several[:, 1])
    assert fitted.time_score(X[:7], []).shape == (7, 0)
    for bad in (1.1, -0.1, [0.5, np.nan], [[0.1]]):
        with pytest.raises(ValueError, match="t must be"):
            fitted.time_score(X, bad)


def test_divergence_is_the_mean_log_ratio(fitted):
    X, y = two_samples(seed=1)
    assert fitted.kl_divergence(X[y == 1]) == pytest.approx(
        fitted.log_density_ratio(X[y == 1]).mean()
    )


def test_predictions_do_not_depend_on_chunks(fitted, monkeypatch):
    X, _ = two_samples()
    whole = fitted.log_density_ratio(X)
    monkeypatch.setattr("skicml.density_ratio._ctsm_base._CHUNK", 100)
    np.testing.assert_allclose(fitted.log_density_ratio(X), whole, rtol=1e-10, atol=1e-12)


def test_ratios_stay_in_the_range_of_floats(fitted):
    X = np.array([[1e5, -1e5], [-1e6, 1e6]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float64, np.float32):
            ratio = fitted.density_ratio(X.astype(dtype))
            assert ratio.dtype == dtype
            assert np.isfinite(ratio).all()
            assert (ratio > 0).all()


def test_dtype_of_the_input_is_kept(fitted):
    X, y = two_samples()
    single = quick(max_iter=600).fit(X.astype(np.float32), y)
    for method in ("log_density_ratio", "decision_function", "predict_proba"):
        assert getattr(single, method)(X.astype(np.float32)).dtype == np.float32
        assert getattr(single, method)(X).dtype == np.float64


# ------------------------------------------------------------------------------------ scaling


def test_units_of_the_columns_do_not_matter():
    X, y = two_samples()
    plain = quick().fit(X, y)
    scaled = quick().fit(X * [1024.0, 0.125], y)  # powers of two: exact
    np.testing.assert_array_equal(
        scaled.log_density_ratio(X * [1024.0, 0.125]), plain.log_density_ratio(X)
    )
    shifted = quick().fit(3 * X + [5.0, -70.0], y)
    np.testing.assert_allclose(
        shifted.log_density_ratio(3 * X + [5.0, -70.0]), plain.log_density_ratio(X), atol=0.05
    )


def test_scaling_is_the_mean_of_means_and_the_variance_within():
    X, y = two_samples(900, 300)
    ctsm = quick(max_iter=1).fit(X, y)
    parts = [X[y == 0], X[y == 1]]
    np.testing.assert_allclose(ctsm.mean_, np.mean([part.mean(axis=0) for part in parts], axis=0))
    variances = np.mean([part.var(axis=0) for part in parts], axis=0)
    np.testing.assert_allclose(ctsm.scale_, np.sqrt(variances))
    for plain in (quick(max_iter=1, standardize=False), quick(max_iter=1, path="vp")):
        plain.fit(X, y)
        np.testing.assert_array_equal(plain.mean_, 0)
        np.testing.assert_array_equal(plain.scale_, 1)


def test_constant_columns_are_left_as_they_are():
    X, y = two_samples()
    X = np.column_stack([X, np.full(len(X), 0.1), np.zeros(len(X))])
    ctsm = quick().fit(X, y)
    np.testing.assert_array_equal(ctsm.scale_[2:], 1)
    assert np.isfinite(ctsm.log_density_ratio(X)).all()


# ------------------------------------------------------------------------------ one-sided path


def test_one_sided_path_uses_the_first_sample_for_the_prior_only():
    X, y = two_samples()
    plain = quick(path="vp").fit(X, y)
    moved = X.copy()
    moved[y == 0] = moved[y == 0][::-1] * 1.01
    other = quick(path="vp").fit(moved, y)
    np.testing.assert_array_equal(plain.log_density_ratio(X), other.log_density_ratio(X))


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X + 0.5,
        lambda X: 1.5 * X,
        lambda X: 0.6 * X,
        lambda X: X @ np.linalg.cholesky(np.full((5, 5), 0.6) + 0.4 * np.eye(5)).T,
    ],
    ids=["mean", "large variance", "small variance", "correlation"],
)
def test_one_sided_path_warns_of_a_first_sample_that_is_not_standard_normal(change):
    rng = np.random.RandomState(0)
    first, second = change(rng.normal(size=(1000, 5))), rng.normal(size=(1000, 5)) + 1
    X, y = np.vstack([first, second]), np.repeat([0, 1], 1000)
    with pytest.warns(UserWarning, match="standard normal"):
        quick(path="vp", max_iter=1).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(max_iter=1).fit(X, y)  # the bridge takes any two samples


@pytest.mark.parametrize("shape", [(20, 3), (200, 40), (2000, 1)])
def test_one_sided_path_does_not_warn_of_a_standard_normal_one(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(20):
            rng = np.random.RandomState(seed)
            X = np.vstack([rng.normal(size=shape), 3 + rng.normal(size=shape)])
            quick(path="vp", max_iter=1).fit(X, np.repeat([0, 1], shape[0]))


# ----------------------------------------------------------------------------------- training


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_max_iter_counts_gradient_steps(cls):
    for n_rows in (20, 2000):
        estimator = quick(cls, max_iter=130).fit(*two_samples(n_rows, n_rows))
        assert estimator.n_iter_ == 130
        assert len(estimator.loss_curve_) == 2
        assert estimator.validation_curve_ is None


def test_batches_may_be_larger_than_the_samples_and_samples_of_any_size():
    X, y = two_samples(3, 500)
    assert np.isfinite(quick(batch_size=300, max_iter=5).fit(X, y).log_density_ratio(X)).all()


@pytest.mark.parametrize(
    ("cls", "path", "weighting"),
    [
        (CTSM, "bridge", "time_score"),
        (CTSM, "bridge", "stein"),
        (CTSM, "vp", "time_score"),
        (CTSM, "vp", "stein"),
        (TSM, "bridge", "time_score"),
        (TSM, "vp", "stein"),
    ],
)
def test_every_weight_learns_on_either_path(cls, path, weighting):
    X, y = two_samples()
    params = {"path": path, "weighting": weighting, "weight_constant": "auto", "max_iter": 400}
    estimator = quick(cls, **params).fit(X, y)
    exact = np.square(X[:, 0]) / 2 - np.square((X[:, 0] - 1.5) / 0.5) / 2 + np.log(2)
    assert np.corrcoef(estimator.log_density_ratio(X), exact)[0, 1] > 0.9


def test_early_stopping_protects_small_samples():
    """Ten columns and 200 rows, which the network would learn by heart."""
    rng = np.random.RandomState(0)
    shift = np.r_[1.0, 1.0, np.zeros(8)]
    X = np.vstack([rng.normal(size=(200, 10)), shift + rng.normal(size=(200, 10))])
    new = np.vstack([rng.normal(size=(2000, 10)), shift + rng.normal(size=(2000, 10))])
    y, exact = np.repeat([0, 1], 200), new[:, 0] + new[:, 1] - 1
    params = {"hidden_layer_sizes": (64, 64), "lr_schedule": "constant", "random_state": 0}
    errors = []
    for early_stopping in (False, True):
        ctsm = CTSM(early_stopping=early_stopping, max_iter=1200, **params).fit(X, y)
        errors.append(np.square(ctsm.log_density_ratio(new) - exact).mean())
    assert errors[1] < 0.7 * errors[0]
    curve = ctsm.validation_curve_
    assert len(curve) == len(ctsm.loss_curve_) == ctsm.n_iter_ / 100
    # The held-out draws are fixed, and it is the best network on them that predicts.
    best = int(np.argmin(curve)) + 1
    assert best < len(curve)
    again = CTSM(early_stopping=True, max_iter=100 * best, **params).fit(X, y)
    np.testing.assert_array_equal(again.validation_curve_, curve[:best])
    np.testing.assert_array_equal(again.log_density_ratio(new), ctsm.log_density_ratio(new))


def test_averaged_parameters_are_those_that_predict():
    X, y = two_samples()
    params = {"lr_schedule": "constant", "max_iter": 300}
    last, averaged = quick(**params).fit(X, y), quick(ema_decay=0.95, **params).fit(X, y)
    assert np.allclose(last.loss_curve_, averaged.loss_curve_)
    difference = last.log_density_ratio(X) - averaged.log_density_ratio(X)
    assert 1e-4 < np.abs(difference).mean() < 1


def test_warm_start_goes_on_from_the_last_fit():
    X, y = two_samples()
    ctsm = quick(warm_start=True, max_iter=100).fit(X, y)
    scale, first_loss = ctsm.scale_.copy(), ctsm.loss_curve_[0]
    before = ctsm.log_density_ratio(X)
    ctsm.set_params(learning_rate=1e-9, max_iter=1).fit(2 * X, y)
    np.testing.assert_array_equal(ctsm.scale_, scale)  # the network knows this scale only
    np.testing.assert_allclose(ctsm.log_density_ratio(X), before, atol=1e-5)
    ctsm.set_params(learning_rate=2e-3, max_iter=400).fit(X, y)
    assert ctsm.n_iter_ == 501
    assert len(ctsm.loss_curve_) == 6
    assert ctsm.loss_curve_[0] == first_loss
    assert np.mean(ctsm.loss_curve_[-3:]) < first_loss
    cold = clone(ctsm).fit(X, y)
    assert cold.n_iter_ == 400


def test_warm_start_refuses_another_problem():
    X, y = two_samples()
    ctsm = quick(warm_start=True, max_iter=2).fit(X, y)
    with pytest.raises(ValueError, match="classes of the first fit"):
        ctsm.fit(X, y + 1)
    with pytest.raises(ValueError, match="features"):
        ctsm.fit(X[:, :1], y)
    with pytest.raises(ValueError, match="hidden_layer_sizes"):
        clone(ctsm).fit(X, y).set_params(hidden_layer_sizes=(8,)).fit(X, y)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_same_seed_same_fit_and_another_seed_another(cls):
    X, y = two_samples()
    params = {"early_stopping": True, "ema_decay": 0.9, "max_iter": 100}
    first, second, third = (quick(cls, random_state=seed, **params).fit(X, y) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.log_density_ratio(X), second.log_density_ratio(X))
    assert not np.array_equal(first.log_density_ratio(X), third.log_density_ratio(X))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_pickles(cls):
    X, y = two_samples()
    estimator = quick(cls, early_stopping=True, ema_decay=0.9, warm_start=True).fit(X, y)
    copy = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(copy.log_density_ratio(X), estimator.log_density_ratio(X))
    assert copy.fit(X, y).n_iter_ == 2 * estimator.n_iter_
    assert X.tobytes() not in pickle.dumps(estimator)


# ------------------------------------------------------------------------- company of sklearn


def test_pipeline_and_grid_search_by_a_proper_score():
    X, y = two_samples()
    pipeline = make_pipeline(StandardScaler(), quick(hidden_layer_sizes=(16,)))
    search = GridSearchCV(
        pipeline, {"ctsm__max_iter": [1, 300]}, scoring="neg_log_loss", cv=2, error_score="raise"
    ).fit(X, y)
    assert search.best_params_ == {"ctsm__max_iter": 300}
    assert search.best_estimator_.score(X, y) > 0.8


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_bad_input(cls):
    X, y = two_samples(20, 20)
    with pytest.raises(ValueError, match="one class"):
        quick(cls).fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="Only binary classification"):
        quick(cls).fit(X, np.arange(40) % 3)
    with pytest.raises(ValueError, match=r"Unknown label type|Only binary"):
        quick(cls).fit(X, np.linspace(0, 1, 40))
    for bad in (np.nan, np.inf):
        broken = X.copy()
        broken[3, 1] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            quick(cls).fit(broken, y)
    for name, value in [
        ("max_iter", 0),
        ("path", "spline"),
        ("bridge_variance", 0.0),
        ("weighting", "none"),
        ("weight_constant", "c"),
        ("time_eps", 0.5),
        ("n_quadrature", 0),
        ("ema_decay", 1.0),
        ("validation_fraction", 1.0),
        ("batch_size", 0),
    ]:
        with pytest.raises(InvalidParameterError, match=f"'{name}'"):
            quick(cls, **{name: value}).fit(X, y)
    for sizes in ((0,), (8, -1), (8.5,), [[8, 8]]):
        with pytest.raises(ValueError, match="hidden_layer_sizes"):
            quick(cls, hidden_layer_sizes=sizes).fit(X, y)
    assert quick(cls).__sklearn_tags__().classifier_tags.multi_class is False


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_training_that_diverges_says_so_and_leaves_nothing_behind():
    X, y = two_samples()
    ctsm = quick(learning_rate=1e18, lr_schedule="constant")
    with pytest.raises(ValueError, match="learning_rate"):
        ctsm.fit(X, y)
    assert not hasattr(ctsm, "classes_")


def test_one_row_cannot_be_held_out():
    X, y = two_samples(1, 30)
    with pytest.raises(ValueError, match="n_samples=1"):
        quick(early_stopping=True).fit(X, y)
