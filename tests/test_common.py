"""scikit-learn's estimator checks and our own, on every public estimator."""

import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skicml.utils import all_estimators
from tests.common_checks import CHECKS
from tests.estimator_settings import SETTINGS

ESTIMATORS = dict(all_estimators())
PACKAGES = sorted({cls.__module__.split(".")[1] for cls in ESTIMATORS.values()})
CASES = [
    (ESTIMATORS[name](**setting.params), setting.excused)
    for name, settings in sorted(SETTINGS.items())
    for setting in settings
]
INSTANCES = [estimator for estimator, _ in CASES]


def _excused(estimator):
    """The excuses of just this instance."""
    return next(excused for instance, excused in CASES if instance is estimator)


def test_every_estimator_has_settings():
    assert sorted(SETTINGS) == sorted(ESTIMATORS)


@parametrize_with_checks(
    INSTANCES,
    expected_failed_checks=_excused,
    xfail_strict=True,
)
def test_sklearn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("estimator", INSTANCES, ids=lambda estimator: repr(estimator)[:80])
def test_our_checks(estimator, check):
    check(estimator)


def _imported(statement):
    """Modules loaded, and processor seconds taken, by one import in a fresh interpreter."""
    code = (
        "import sys, time; start = time.process_time()\n"
        f"{statement}\n"
        "print(time.process_time() - start, *sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    seconds, *modules = result.stdout.split()
    return float(seconds), set(modules)


def test_import_skicml_is_light():
    assert not {"torch", "skorch", "scipy.stats"} & _imported("import skicml")[1]


@pytest.mark.parametrize(
    "package", sorted({cls.__module__.split(".")[1] for cls in ESTIMATORS.values()})
)
def test_import_of_a_task_package_leaves_torch_out(package):
    assert not {"torch", "skorch"} & _imported(f"import skicml.{package}")[1]


def test_import_costs_no_more_than_sklearn():
    ours = theirs = float("inf")
    for _ in range(5):  # the fastest of interleaved runs
        ours = min(ours, _imported("import skicml; import skicml.cluster")[0])
        theirs = min(theirs, _imported("import sklearn.cluster")[0])
    assert ours <= 1.3 * theirs
