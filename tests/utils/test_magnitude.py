import numpy as np
import pytest

from skicml.utils._magnitude import check_magnitude


def test_large_values_are_refused_by_name():
    check_magnitude(np.array([[-1e100, 0.0]]), "X")
    check_magnitude(np.empty((0, 2)), "X")
    with pytest.raises(ValueError, match=r"outcome holds a value of magnitude 2.0e\+100, .* Scale"):
        check_magnitude(np.array([1.0, -2e100]), "outcome")
