"""Odd input, interrupts, other processes, threads: every estimator stays right or says why not.

The tests find the estimators by themselves: a new one is covered once it has its settings.
``SKICML_EXAMPLES=300 pytest tests/test_robustness.py`` searches further, with new random input.
"""

import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import NotFittedError

import skicml
from tests.common_checks import OUTPUTS, assert_same, fitted_names, outputs
from tests.estimator_cases import CASES, NAMES, data_for, fitted, new

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

N_EXAMPLES = int(os.environ.get("SKICML_EXAMPLES", 15))
# (odd table, case) -> why it cannot hold. An excuse that is not needed any more fails.
EXCUSES = {}

SECONDS = 5  # of the processor, for one fit and all it says of its rows
SECONDS_ASLEEP = 120  # by the clock: a call that waits for ever uses no processor
# Messages that come from the machinery and say nothing about parameters or data.
RAW = re.compile(
    r"torch|tensor|lapack|gufunc|did not converge|singular|mat1|broadcast|zero-size|out of bounds"
    r"|cannot reshape|not aligned|NoneType|operand|subscript|unpack|cannot convert|positional",
    re.IGNORECASE,
)


class Hangs(AssertionError):
    """A call took too long."""


@contextmanager
def time_limit():
    """Break off a call that takes more processor time, or much more time, than it may."""

    def stop(number, frame):
        raise Hangs(f"more than {SECONDS} s of the processor, or {SECONDS_ASLEEP} s of waiting")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS)}
    timers[signal.SIGALRM] = (signal.ITIMER_REAL, SECONDS_ASLEEP)
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def failures_at_the_end(excused=()):
    """Go on after a failure and raise all of them at the end; those that are excused must be."""
    failures = {}

    @contextmanager
    def try_out(what):
        try:
            yield
        except Exception as error:
            error.add_note(f"in the case of: {what}")
            failures[what] = error

    yield try_out
    unexcused = [error for what, error in failures.items() if what not in excused]
    if unexcused:
        raise ExceptionGroup(f"{len(unexcused)} failures", unexcused)
    assert set(excused) <= failures.keys(), "an excuse is not needed any more"


def check_right_or_refused(case, X, y):
    """Fit and speak of the same rows: finite values of the right shape, or a plain refusal."""
    estimator = new(case)
    with time_limit():
        try:
            estimator.fit(X, y)
        except (ValueError, TypeError) as error:
            assert_plain(error)
            assert fitted_names(estimator) == []
            return
        said = outputs(estimator, X)
    for method, values in said.items():
        assert len(values) == len(X), method
        if values.dtype.kind in "fc":
            assert np.isfinite(values).all(), f"{method} is not finite"
    if is_classifier(estimator):
        assert set(said["predict"].tolist()) <= set(np.asarray(y).tolist())


def assert_plain(error):
    """A message that scikit-learn could have written."""
    if isinstance(error, np.linalg.LinAlgError) or RAW.search(str(error)):
        raise AssertionError(f"a raw {type(error).__name__}: {error}") from error


def test_the_time_limit_ends_a_loop(monkeypatch):
    def loop():
        with time_limit():
            while True:
                pass

    monkeypatch.setitem(globals(), "SECONDS", 0.1)
    with pytest.raises(Hangs):
        loop()


def test_raw_messages_are_told_from_plain_ones():
    assert_plain(ValueError("X has 3 features, but UCB1 is expecting 4 features as input."))
    for error in (
        np.linalg.LinAlgError("Eigenvalues did not converge"),
        ValueError("operands could not be broadcast together with shapes (2,) (3,)"),
    ):
        with pytest.raises(AssertionError, match="a raw"):
            assert_plain(error)


def test_an_excuse_must_be_needed_and_excuses_no_other_failure():
    def run(*failing):
        with failures_at_the_end({"excused"}) as try_out:
            for what in failing:
                with try_out(what):
                    raise ValueError(what)

    run("excused")
    with pytest.raises(AssertionError, match="not needed"):
        run()
    with pytest.raises(ExceptionGroup, match="1 failures"):
        run("excused", "other")


# --- odd tables --------------------------------------------------------------------------


def _rows(n=20, p=4, seed=0):
    return np.random.RandomState(seed).standard_normal((n, p))


def _with(X, index, value):
    X = X.copy()
    X[index] = value
    return X


ODD_TABLES = {
    "one row": _rows(1),
    "one column": _rows(20, 1),
    "one cell": _rows(1, 1),
    "two rows": _rows(2),
    "two columns": _rows(20, 2),
    "more columns than rows": _rows(5, 12),
    "constant": np.full((20, 4), 3.7),
    "zeros": np.zeros((20, 4)),
    "zeros of single precision": np.zeros((20, 4), np.float32),
    "a constant column": _with(_rows(), np.s_[:, 1], 5.0),
    "all columns the same": np.repeat(_rows(20, 1), 4, axis=1),
    "all rows the same": np.repeat(_rows(1), 20, axis=0),
    "each row twice": np.repeat(_rows(10), 2, axis=0),
    "1e-300": 1e-300 * _rows(),
    "1e-30 of single precision": (1e-30 * _rows()).astype(np.float32),
    "1e8 away": 1e8 + _rows(),
    "1e100": 1e100 * _rows(),
    "1e150": 1e150 * _rows(),
    "1e300": 1e300 * _rows(),
    "1e30 of single precision": (1e30 * _rows()).astype(np.float32),
    "columns of all scales": _rows() * [1e-200, 1, 1e20, 1e200],
    "one huge cell": _with(_rows(), (3, 2), 1e300),
    "integers": (10 * _rows()).astype(np.int64),
    "bytes": (10 * _rows()).astype(np.int8),
    "booleans": _rows() > 0,
    "objects": _rows().astype(object),
    "half precision": _rows().astype(np.float16),
    "strings of numbers": _rows().astype(str),
    "words": np.full((20, 4), "word"),
    "complex": _rows() * 1j,
    "one NaN": _with(_rows(), (3, 2), np.nan),
    "a row of NaN": _with(_rows(), 3, np.nan),
    "a column of NaN": _with(_rows(), np.s_[:, 2], np.nan),
    "half NaN": np.where(_rows(seed=1) > 0, np.nan, _rows()),
    "only NaN": np.full((20, 4), np.nan),
    "infinity": _with(_rows(), (3, 2), np.inf),
    "no rows": np.empty((0, 4)),
    "no columns": np.empty((20, 0)),
    "a vector": _rows()[:, 0],
    "three axes": _rows().reshape(5, 4, 4),
}


def _labels(case, n_rows, labels=(0, 1, 2)):
    n_classes = len(np.unique(data_for(case)[1]))
    return np.asarray(labels)[np.arange(n_rows) % n_classes]


@pytest.mark.parametrize("case", NAMES)
def test_odd_tables(case):
    excused = {table for table, excused_case in EXCUSES if excused_case == case}
    with failures_at_the_end(excused) as try_out:
        for table, X in ODD_TABLES.items():
            with try_out(table):
                check_right_or_refused(case, X, _labels(case, len(X)))


SCALES = [1.0, 1.0, 1.0, 1e-300, 1e-150, 1e-30, 1e-8, 1e8, 1e30, 1e150, 1e300]
LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
}
DTYPES = [np.float64, np.float64, np.float32, np.int64, np.uint8, object]


@st.composite
def tables(draw):
    """Tables of many shapes, kinds, scales, dtypes, gaps and memory layouts."""
    n, p = draw(st.integers(1, 25)), draw(st.integers(1, 8))
    rng = np.random.RandomState(draw(st.integers(0, 1000)))
    values = {
        "normal": rng.standard_normal((n, p)),
        "levels": rng.randint(0, draw(st.integers(1, 3)), (n, p)).astype(float),
        "rank one": np.outer(rng.standard_normal(n), rng.standard_normal(p)),
        "heavy tails": rng.standard_cauchy((n, p)),
    }
    X = draw(st.sampled_from(SCALES)) * values[draw(st.sampled_from(sorted(values)))]
    X += draw(st.sampled_from([0.0, 0.0, 1e6]))
    dtype = draw(st.sampled_from(DTYPES))
    if dtype is np.float32:
        X = X.clip(-1e30, 1e30)  # sums of squares may overflow, sums must not
    elif np.issubdtype(dtype, np.integer):
        X = X.clip(np.iinfo(dtype).min / 2, np.iinfo(dtype).max / 2)
    X = X.astype(dtype)
    if X.dtype.kind in "fO":
        missing = draw(st.sampled_from(["none", "none", "cells", "row", "column"]))
        where = {
            "none": np.s_[:0],
            "cells": rng.uniform(size=(n, p)) < 0.3,
            "row": np.s_[rng.randint(n)],
            "column": np.s_[:, rng.randint(p)],
        }
        X[where[missing]] = np.nan
    X = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](X)
    X.flags.writeable = draw(st.booleans())
    return X


LABELS = {
    "integers": [0, 1, 2],
    "words, not in alphabetical order": ["zebra", "ant", "mole"],
    "with gaps, not in order": [70, -3, 2**40],
    "fractions": [1.0, 2.0, 0.0],
    "objects": np.array(["one", "two", "three"], dtype=object),
    "truths": [True, False, True],
    "one class": [1, 1, 1],
}


@pytest.mark.parametrize("case", CASES)
def test_any_table(case):
    @hypothesis.settings(
        max_examples=N_EXAMPLES,
        deadline=None,
        database=None,
        derandomize="SKICML_EXAMPLES" not in os.environ,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(tables(), st.sampled_from(sorted(LABELS)))
    def check(X, labels):
        check_right_or_refused(case, X, _labels(case, len(X), LABELS[labels]))

    check()


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize(
    "case", [name for name in NAMES if CASES[name].__sklearn_tags__().target_tags.required]
)
def test_labels_of_any_kind(case, labels):
    X, y = data_for(case)
    check_right_or_refused(case, X, np.asarray(LABELS[labels])[y])


@pytest.mark.parametrize("case", [name for name in NAMES if is_classifier(CASES[name])])
def test_classifiers_keep_the_labels(case):
    X, y = data_for(case)
    words = np.array(LABELS["words, not in alphabetical order"])[y]
    classifier = new(case).fit(X, words)
    assert classifier.classes_.tolist() == sorted(set(words))
    assert (classifier.predict(X) == words).mean() > 0.9  # well separated groups


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", NAMES)
def test_the_layout_in_memory_does_not_matter(case, layout):
    X, y = data_for(case)
    X = LAYOUTS[layout](X)
    X.flags.writeable = False
    there = outputs(new(case).fit(X, y), X)
    for method, values in outputs(fitted(case), data_for(case)[0]).items():
        np.testing.assert_allclose(
            there[method].astype(float), values.astype(float), rtol=1e-4, atol=1e-6
        )


# --- interrupts --------------------------------------------------------------------------

LIBRARY = str(Path(skicml.__file__).parent)


@contextmanager
def interrupt_at(call):
    """Raise KeyboardInterrupt at the n-th call of a function of the library; None only counts.

    Yields a list whose length is the number of calls. A profile function is used, as coverage
    needs the trace function.
    """
    calls = []

    def watch(frame, event, argument):
        code = frame.f_code
        # A generator is also called to be closed, where Python drops every error.
        is_function = not code.co_flags & inspect.CO_GENERATOR
        if event == "call" and is_function and code.co_filename.startswith(LIBRARY):
            calls.append(code.co_name)
            if len(calls) == call:
                sys.setprofile(None)
                raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def moments(n_calls):
    """When to interrupt: at the start, spread over the fit, and at each of the last calls."""
    spread = np.linspace(1, n_calls, 6).astype(int)
    return sorted({*spread.tolist(), *range(max(1, n_calls - 4), n_calls + 1)})


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_fit_leaves_nothing(case):
    X, y = data_for(case)
    expected = outputs(fitted(case), X)
    estimator = new(case)
    with interrupt_at(None) as calls:
        estimator.fit(X, y)
    for moment in moments(len(calls)):
        estimator = new(case)
        with pytest.raises(KeyboardInterrupt), interrupt_at(moment) as made:
            estimator.fit(X, y)
        assert fitted_names(estimator) == [], f"interrupted at call {moment}, {made[-1]}"
        for method in OUTPUTS:
            if hasattr(estimator, method):
                with pytest.raises(NotFittedError):
                    getattr(estimator, method)(X)
    assert_same(outputs(estimator.fit(X, y), X), expected)
    with pytest.raises(KeyboardInterrupt), interrupt_at(max(1, len(calls) // 2)):
        estimator.fit(X[::-1], y[::-1])
    assert_same(outputs(estimator, X), expected)


# --- other processes and threads ---------------------------------------------------------

READER = """
import pickle, sys
from pathlib import Path
from tests.common_checks import outputs
folder = Path(sys.argv[1])
for path in folder.glob("*.fitted"):
    estimator, X = pickle.loads(path.read_bytes())
    path.with_suffix(".said").write_bytes(pickle.dumps(outputs(estimator, X)))
"""


def test_a_fitted_estimator_says_the_same_in_another_process(tmp_path):
    with failures_at_the_end() as try_out:
        for case in CASES:
            with try_out(case):
                stored = pickle.dumps((fitted(case), data_for(case)[0]))
                (tmp_path / f"{case}.fitted").write_bytes(stored)
        with try_out("reading in another process"):
            reader = [sys.executable, "-c", READER, str(tmp_path)]
            subprocess.run(reader, check=True, cwd=Path(LIBRARY).parent, timeout=300)
        for path in tmp_path.glob("*.fitted"):
            with try_out(path.stem):
                said = pickle.loads(path.with_suffix(".said").read_bytes())
                assert_same(said, outputs(fitted(path.stem), data_for(path.stem)[0]))


@pytest.mark.parametrize("case", CASES)
def test_threads_may_share_a_fitted_estimator(case):
    estimator, (X, _) = fitted(case), data_for(case)
    alone = outputs(estimator, X)
    start = threading.Barrier(8)

    def speak(_):
        start.wait()
        return outputs(estimator, X)

    with ThreadPoolExecutor(8) as pool:
        for said in pool.map(speak, range(8)):
            assert_same(said, alone)
