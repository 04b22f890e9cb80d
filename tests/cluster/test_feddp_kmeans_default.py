"""The common checks on the estimator as it is by default, with noise.

The table of the common checks has the estimator without noise; excuses there are for the class as a
whole, and these hold for the default only.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from skicml.cluster import FedDPKMeans
from tests.common_checks import CHECKS

pytest.importorskip("dp_accounting")

DEFAULT = FedDPKMeans(n_clusters=3, random_state=0)
EXCUSED = {
    "check_clustering": "50 rows in noise for epsilon = 1: no clusters can be found",
}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([DEFAULT], expected_failed_checks=lambda _: EXCUSED, xfail_strict=True)
def test_sklearn_checks_of_the_default(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_common_checks_of_the_default(check):
    check(DEFAULT)
