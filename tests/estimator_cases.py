"""Every public estimator, as the table of settings makes it, for tests that run all of them."""

from functools import cache

from sklearn.base import clone

from skicml.utils import all_estimators
from tests.common_checks import labels_for, make_data
from tests.estimator_settings import SETTINGS

# "BACDL" is the first setting of BACDL, "BACDL-1" the second one.
CASES = {
    name if number == 0 else f"{name}-{number}": cls(**setting.params)
    for name, cls in all_estimators()
    for number, setting in enumerate(SETTINGS.get(name, []))
}
NAMES = [case for case in CASES if "-" not in case]


def new(case):
    """A fresh estimator."""
    return clone(CASES[case])


def data_for(case):
    """The data of the common checks, with two labels where the estimator takes no more."""
    X, y = make_data()
    return X, labels_for(CASES[case], y)


@cache
def fitted(case):
    """The estimator fitted to its data, once for all tests: do not change it."""
    X, y = data_for(case)
    return new(case).fit(X, y)
