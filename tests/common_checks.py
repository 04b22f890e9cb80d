"""Checks of our own that every public estimator passes, beside scikit-learn's."""

import copy
import inspect
import io
import pickle
import re
import tempfile
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import validate
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.estimator_checks import check_param_validation

OUTPUTS = ("predict", "transform", "predict_proba", "decision_function", "score_samples")


def make_data(dtype=np.float64):
    """Forty samples of three well separated groups, with labels."""
    X, y = make_blobs(40, n_features=6, centers=3, cluster_std=0.5, random_state=0)
    return X.astype(dtype), y


def labels_for(estimator, y):
    """Labels 0 and 1 where the estimator takes no more than two, also if it is no classifier."""
    tags = estimator.__sklearn_tags__().classifier_tags
    return y if tags is None or tags.multi_class else (y > 0).astype(int)


def fit_it(estimator, X, y):
    """Fit, with the labels that the estimator takes where it needs them."""
    needs_y = estimator.__sklearn_tags__().target_tags.required
    return estimator.fit(X, labels_for(estimator, y) if needs_y else None)


def fit(estimator, X, y):
    """Fit a clone."""
    return fit_it(clone(estimator), X, y)


def outputs(estimator, X):
    """What every output method of a fitted estimator says about X."""
    return {
        name: np.asarray(getattr(estimator, name)(X))
        for name in OUTPUTS
        if hasattr(estimator, name)
    }


def fitted_arrays(estimator):
    """The numerical fitted attributes."""
    return {
        name: value
        for name, value in vars(estimator).items()
        if name.endswith("_")
        and not name.startswith("_")
        and isinstance(value, (np.ndarray, int, float))
    }


def assert_same(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


def fitted_names(estimator):
    return [name for name in vars(estimator) if name.endswith("_") and not name.startswith("__")]


def check_same_seed_same_fit(estimator):
    X, y = make_data()
    first, second = fit(estimator, X, y), fit(estimator, X, y)
    assert_same(fitted_arrays(first), fitted_arrays(second))
    assert_same(outputs(first, X), outputs(second, X))


def check_refit_forgets(estimator):
    X, y = make_data()
    once = fit(estimator, X, y)
    twice = fit(estimator, X[::2, :4], y[::2])
    assert_same(outputs(once, X), outputs(fit_it(twice, X, y), X))


def check_global_generators_untouched(estimator):
    X, y = make_data()
    before_numpy, before_torch = np.random.get_state(), torch.get_rng_state()
    outputs(fit(estimator, X, y), X)
    after_numpy = np.random.get_state()
    assert before_numpy[2] == after_numpy[2]
    np.testing.assert_array_equal(before_numpy[1], after_numpy[1])
    assert torch.equal(before_torch, torch.get_rng_state())


def check_round_trips(estimator):
    X, y = make_data()
    fitted = fit(estimator, X, y)
    stream = io.BytesIO()
    joblib.dump(fitted, stream)
    stream.seek(0)
    for other in (pickle.loads(pickle.dumps(fitted)), joblib.load(stream), copy.deepcopy(fitted)):
        assert_same(outputs(fitted, X), outputs(other, X))


def check_clone_is_unfitted(estimator):
    X, y = make_data()
    cloned = clone(fit(estimator, X, y))
    assert fitted_names(cloned) == []
    assert repr(cloned.get_params()) == repr(estimator.get_params())


def check_not_fitted_error(estimator):
    X, _ = make_data()
    unfitted = clone(estimator)
    for name in OUTPUTS:
        if hasattr(unfitted, name):
            with pytest.raises(NotFittedError):
                getattr(unfitted, name)(X)


def check_feature_names(estimator):
    pd = pytest.importorskip("pandas")
    X, y = make_data()
    frame = pd.DataFrame(X, columns=[f"column {i}" for i in range(X.shape[1])])
    fitted = fit(estimator, frame, y)
    assert list(fitted.feature_names_in_) == list(frame.columns)
    assert_same(outputs(fitted, frame), outputs(fit(estimator, X, y), X))
    if hasattr(fitted, "get_feature_names_out"):
        names = fitted.get_feature_names_out()
        assert len(names) == fitted.transform(frame).shape[1]
        assert len(set(names)) == len(names)


def check_set_output(estimator):
    if not hasattr(estimator, "set_output"):
        pytest.skip("no set_output")
    X, y = make_data()
    plain = fit(estimator, X, y)
    expected = plain.transform(X)
    for library in ("pandas", "polars"):
        module = pytest.importorskip(library)
        framed = clone(estimator).set_output(transform=library)
        frame = fit_it(framed, X, y).transform(X)
        assert isinstance(frame, module.DataFrame)
        assert list(frame.columns) == list(plain.get_feature_names_out())
        np.testing.assert_array_equal(frame.to_numpy(), expected)


def check_input_is_left_alone(estimator):
    X, y = make_data()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "X.npy"
        np.save(path, X)
        mapped = np.load(path, mmap_mode="r")
        from_memmap = fit(estimator, mapped, y)
        result = outputs(from_memmap, mapped)
        np.testing.assert_array_equal(np.load(path), X)
    writable = X.copy()
    fitted = fit(estimator, writable, y)
    assert_same(outputs(fitted, writable), result)
    np.testing.assert_array_equal(writable, X)


def check_float32(estimator):
    X, y = make_data(np.float32)
    fitted = fit(estimator, X, y)
    for name, value in outputs(fitted, X).items():
        if value.dtype.kind == "f":
            assert np.isfinite(value).all(), name
    if hasattr(fitted, "transform") and "float32" in str(
        estimator.__sklearn_tags__().transformer_tags.preserves_dtype
    ):
        assert fitted.transform(X).dtype == np.float32


def check_bad_parameter_leaves_nothing_behind(estimator):
    X, y = make_data()
    check_param_validation(type(estimator).__name__, estimator)
    for name, constraints in estimator._parameter_constraints.items():
        if constraints == "no_validation":
            continue
        bad = clone(estimator).set_params(**{name: type("Unheard", (), {})()})
        with pytest.raises(InvalidParameterError, match=f"'{name}'"):
            bad.fit(X, y)
        assert fitted_names(bad) == []


def check_bad_input_leaves_nothing_behind(estimator):
    X, y = make_data()
    X[3, 2] = np.inf
    broken = clone(estimator)
    with pytest.raises(ValueError, match=r"infinity|inf\b"):
        broken.fit(X, y)
    assert fitted_names(broken) == []


class _StopAtOnce:
    """Callback that asks to stop at the first chance and counts what it sees."""

    def __init__(self):
        self.began = self.ended = 0

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.began += 1

    def on_fit_task_end(self, estimator, context):
        self.ended += 1
        return True

    def teardown(self, estimator, context):
        pass


class _Watch(_StopAtOnce):
    def on_fit_task_end(self, estimator, context):
        super().on_fit_task_end(estimator, context)


def check_callbacks(estimator):
    if not hasattr(estimator, "set_callbacks"):
        pytest.skip("no callbacks: fit has no long loop")
    X, y = make_data()
    counts = {}
    for callback in (_Watch(), _StopAtOnce()):
        watched = clone(estimator).set_callbacks(callback)
        fit_it(watched, X, y)
        assert callback.began == callback.ended > 1
        counts[type(callback)] = callback.began
        assert outputs(watched, X)
        assert not hasattr(watched, "_callback_fit_ctx")
    assert counts[_StopAtOnce] <= counts[_Watch]


def check_docstring(estimator):
    cls = type(estimator)
    errors = [
        f"{code}: {text}"
        for code, text in validate(f"{cls.__module__}.{cls.__qualname__}")["errors"]
        # parameters against the signature, order, missing types and descriptions
        if code in {"PR01", "PR02", "PR03", "PR04", "PR07", "GL08", "SS01", "SS03", "RT03"}
    ]
    assert errors == []
    doc = NumpyDocString(inspect.getdoc(cls))
    for section in ("Attributes", "Notes", "References", "Examples"):
        assert doc[section], f"{cls.__name__} lacks the section {section}"
    assert re.search(r"O\(", "\n".join(doc["Notes"])), "Notes state no complexity"
    fitted = fit(estimator, *make_data())
    documented = {
        name.strip() for attribute in doc["Attributes"] for name in attribute.name.split(",")
    }
    public = {name for name in vars(fitted) if name.endswith("_") and not name.startswith("_")} - {
        "feature_names_in_"
    }
    assert public <= documented, f"undocumented attributes: {sorted(public - documented)}"
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if name.startswith("_") or not method.__module__.startswith("skicml"):
            continue
        errors = [
            f"{code}: {text}"
            for code, text in validate(f"{cls.__module__}.{cls.__qualname__}.{name}")["errors"]
            if code in {"PR01", "PR02", "PR03", "PR04", "PR07", "GL08", "RT01", "SS01"}
        ]
        assert errors == [], f"{name}: {errors}"


CHECKS = [
    value
    for name, value in sorted(globals().items())
    if name.startswith("check_") and value.__module__ == __name__
]
