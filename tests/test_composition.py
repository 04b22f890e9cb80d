"""Every estimator inside scikit-learn's composing parts and on joblib's backends.

The tests find the estimators by themselves: a new one is covered once it has its settings.
"""

import functools
import inspect
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import is_classifier, is_clusterer, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import StandardScaler

from tests.common_checks import assert_same, fitted_arrays, outputs
from tests.estimator_cases import NAMES, data_for, fitted, new

# (test, estimator) -> why it cannot hold. An excuse that is not needed any more fails.
EXCUSES = {}
# Estimators whose input means something in its own units, which a scaler would take away.
KEEP_UNITS = dict.fromkeys(
    [
        "DPTSUCB",
        "GaussianThompsonSampling",
        "LazyUCB",
        "PrivateSuccessiveElimination",
        "UCB1",
    ],
    "rewards: every arm would pay 0 on average",
)


def every_estimator(names=NAMES):
    """Parametrise a test with the estimators; a failure that is excused must happen."""

    def decorate(test):
        params = [
            pytest.param(
                name,
                marks=[pytest.mark.xfail(reason=EXCUSES[test.__name__, name], strict=True)]
                if (test.__name__, name) in EXCUSES
                else [],
            )
            for name in names
        ]
        return pytest.mark.parametrize("name", params)(test)

    return decorate


def that_can(method):
    return [name for name in NAMES if hasattr(new(name), method)]


def first_of_each_package():
    first = {}
    for name in NAMES:
        first.setdefault(type(new(name)).__module__.split(".")[1], name)
    return first.values()


def scaler_for(name):
    return "passthrough" if name in KEEP_UNITS else StandardScaler()


def pipeline_of(name):
    return Pipeline([("scale", scaler_for(name)), ("model", new(name))])


def scoring_for(name):
    """Its own score, or for clusterers without one the agreement with the labels."""
    if hasattr(new(name), "score"):
        return None
    return "adjusted_rand_score" if is_clusterer(new(name)) else count_of_outputs


def count_of_outputs(estimator, X, y=None):
    """Number of finite values that the estimator says of X."""
    return sum(np.isfinite(values).sum() for values in outputs(estimator, X).values())


def grid_for(name):
    return {"model__random_state": [0, 1]} if "random_state" in new(name).get_params() else {}


def folds():
    return KFold(2, shuffle=True, random_state=0)


def what_it_learned(estimator, X):
    return {**fitted_arrays(estimator), **outputs(estimator, X)}


# --- scikit-learn's composing parts ------------------------------------------------------


@every_estimator()
def test_pipeline_is_the_steps_in_turn(name):
    X, y = data_for(name)
    pipeline = pipeline_of(name).fit(X, y)
    scaled = X if name in KEEP_UNITS else StandardScaler().fit_transform(X)
    alone = new(name).fit(scaled, y)
    assert_same(outputs(pipeline, X), outputs(alone, scaled))
    assert_same(fitted_arrays(pipeline["model"]), fitted_arrays(alone))


@every_estimator()
def test_grid_search(name):
    X, y = data_for(name)
    search = GridSearchCV(
        pipeline_of(name),
        grid_for(name),
        scoring=scoring_for(name),
        cv=folds(),
        n_jobs=2 if name in first_of_each_package() else None,
        error_score="raise",
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    pipeline = pipeline_of(name).set_params(**search.best_params_).fit(X, y)
    assert_same(outputs(search.best_estimator_, X), outputs(pipeline, X))


@every_estimator()
def test_cross_validation(name):
    X, y = data_for(name)
    scores = cross_val_score(
        pipeline_of(name), X, y, scoring=scoring_for(name), cv=folds(), error_score="raise"
    )
    assert scores.shape == (2,)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("library", ["pandas", "polars"])
@every_estimator()
def test_frames(name, library):
    module = pytest.importorskip(library)
    X, y = data_for(name)
    frame = module.DataFrame({f"column {i}": column for i, column in enumerate(X.T)})
    pipeline = pipeline_of(name).set_output(transform=library)
    pipeline.fit(frame, module.Series(y))
    assert list(pipeline["model"].feature_names_in_) == list(frame.columns)
    expected = outputs(pipeline_of(name).fit(X, y), X)
    for method, values in outputs(pipeline, frame).items():
        if values.dtype.kind == "f":  # the scaler sums frames in another order
            np.testing.assert_allclose(values, expected[method], rtol=1e-5, atol=1e-8)
        else:
            np.testing.assert_array_equal(values, expected[method])
    if hasattr(pipeline, "transform"):
        assert isinstance(pipeline.transform(frame), module.DataFrame)


# What methods take beside the data.
ARGUMENTS = {"t": 1, "steps": 2, "times": [0.5, 1.0]}
# Methods whose X is not of the kind that fit takes.
OTHER_X = {
    ("HiRef", "inverse_transform"),
    ("KoNODE", "vector_field"),
    ("OPSA", "inverse_transform"),
}


def methods_of_X(name):
    """Public methods of a fitted estimator that take X, with the names of what they take."""
    for method, function in inspect.getmembers(new(name), inspect.ismethod):
        takes = inspect.signature(function).parameters
        public = not method.startswith("_") and (name, method) not in OTHER_X
        if public and "X" in takes and "fit" not in method.split("_"):
            yield method, list(takes)


@every_estimator()
def test_methods_know_the_frame_of_fit(name):
    """Those that call other methods, too: X has its names where it is checked."""
    pd = pytest.importorskip("pandas")
    X, y = data_for(name)
    frame = pd.DataFrame(X).add_prefix("column ")
    model = new(name).fit(frame, y)
    values = {"X": frame, "y": y, **ARGUMENTS}
    for method, takes in methods_of_X(name):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="X (does not have valid|has) feature names")
            getattr(model, method)(**{key: values[key] for key in takes if key in values})


@every_estimator(that_can("transform"))
def test_column_transformer_and_union(name):
    pd = pytest.importorskip("pandas")
    X, y = data_for(name)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    alone = new(name).fit(frame[list("abcd")], y).transform(frame[list("abcd")])
    columns = ColumnTransformer(
        [("ours", new(name), list("abcd")), ("rest", "passthrough", list("ef"))]
    )
    np.testing.assert_array_equal(
        columns.fit(frame, y).transform(frame), np.hstack([alone, X[:, 4:]])
    )
    names = columns.get_feature_names_out()
    assert len(set(names)) == alone.shape[1] + 2
    union = FeatureUnion([("scaled", StandardScaler()), ("ours", new(name))]).fit(X, y)
    np.testing.assert_array_equal(union.transform(X)[:, 6:], fitted(name).transform(X))


@every_estimator([name for name in NAMES if is_classifier(new(name))])
def test_voting_classifier(name):
    X, y = data_for(name)
    y = np.array(["low", "middle", "high"])[y]
    voting = "soft" if hasattr(new(name), "predict_proba") else "hard"
    voters = [("ours", new(name)), ("logistic", LogisticRegression())]
    vote = VotingClassifier(voters, voting=voting).fit(X, y)
    assert set(vote.predict(X)) <= set(y)
    assert vote.score(X, y) > 0.9  # well separated groups
    assert list(vote.named_estimators_["ours"].classes_) == [0, 1, 2][: len(set(y))]


@every_estimator([name for name in NAMES if is_regressor(new(name))])
def test_voting_regressor(name):
    X, y = data_for(name)
    vote = VotingRegressor([("ours", new(name)), ("linear", LinearRegression())]).fit(X, y)
    expected = (fitted(name).predict(X) + LinearRegression().fit(X, y).predict(X)) / 2
    np.testing.assert_allclose(vote.predict(X), expected)


# --- metadata routing --------------------------------------------------------------------


def metadata_of(name):
    """Names of what fit takes beside X and y."""
    parameters = inspect.signature(type(new(name)).fit).parameters.values()
    return [
        parameter.name
        for parameter in parameters
        if parameter.name not in {"self", "X", "y"} and parameter.kind != parameter.VAR_KEYWORD
    ]


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
@every_estimator()
def test_search_and_pipeline_with_metadata_routing_on(name):
    X, y = data_for(name)
    # Not of the pipeline: its score hands on a sample_weight, which few estimators take, even
    # PCA does not.
    search = GridSearchCV(
        new(name), {}, scoring=scoring_for(name), cv=folds(), error_score="raise"
    ).fit(X, y)
    assert np.isfinite(search.best_score_)
    assert_same(outputs(search, X), outputs(fitted(name), X))
    with sklearn.config_context(enable_metadata_routing=False):
        expected = outputs(pipeline_of(name).fit(X, y), X)
    assert_same(outputs(pipeline_of(name).fit(X, y), X), expected)


@pytest.mark.usefixtures("routing")
@every_estimator([name for name in NAMES if metadata_of(name)])
def test_metadata_reaches_fit(name, monkeypatch):
    X, y = data_for(name)
    cls, metadata = type(new(name)), metadata_of(name)
    seen = []
    original = cls.fit

    @functools.wraps(original)
    def fit(self, X, y=None, **extra):
        seen.append({key: np.asarray(value) for key, value in extra.items()})
        return original(self, X, y, **extra)

    monkeypatch.setattr(cls, "fit", fit)
    pipeline = pipeline_of(name)
    pipeline["model"].set_fit_request(**dict.fromkeys(metadata, True))
    rows = dict.fromkeys(metadata, np.arange(len(X)) // 2)
    pipeline.fit(X, y, **rows)
    assert_same(seen[-1], rows)
    search = GridSearchCV(pipeline, {}, scoring=count_of_outputs, cv=folds(), error_score="raise")
    search.fit(X, y, **rows)
    train = next(folds().split(X))[0]  # the first of two folds; then everything
    assert_same(seen[-3], {key: values[train] for key, values in rows.items()})


# --- joblib's backends -------------------------------------------------------------------


@pytest.fixture(scope="session")
def dask_client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(params=["threading", "loky", "dask"])
def backend(request):
    if request.param == "dask":
        request.getfixturevalue("dask_client")
    with joblib.parallel_config(request.param, n_jobs=2):
        yield request.param


def fit_elsewhere(estimator, X, y):
    """What an estimator learns in a worker, or why it does not."""
    try:
        return what_it_learned(estimator.fit(X, y), X)
    except Exception as error:
        return error


def test_a_fit_in_a_worker_is_the_fit_here(backend):
    """All estimators at once, so that threads do meet."""
    learned = joblib.Parallel()(
        joblib.delayed(fit_elsewhere)(new(name), *data_for(name)) for name in NAMES
    )
    for name, there in zip(NAMES, learned):
        if isinstance(there, Exception):
            raise AssertionError(f"{name} fails on {backend}") from there
        assert_same(there, what_it_learned(fitted(name), data_for(name)[0]))


@every_estimator([name for name in NAMES if "n_jobs" in new(name).get_params()])
def test_n_jobs_takes_any_backend(name, backend):
    X, y = data_for(name)
    parallel = new(name).set_params(n_jobs=2).fit(X, y)
    assert_same(what_it_learned(parallel, X), what_it_learned(fitted(name), X))
