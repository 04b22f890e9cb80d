"""Refuse values whose squares would overflow."""

import numpy as np

# Sums of squares of such values stay in the range of float64.
_LARGEST = 1e100


def check_magnitude(values, name):
    """Raise an error if a value is too large to be squared and added up.

    Parameters
    ----------
    values : ndarray
        Finite numbers.
    name : str
        What to call them in the error.

    Raises
    ------
    ValueError
        If the magnitude of a value is above 1e100.
    """
    largest = float(np.abs(values).max(initial=0))
    if largest > _LARGEST:
        raise ValueError(
            f"{name} holds a value of magnitude {largest:.1e}, but at most {_LARGEST:.0e} can be "
            f"reckoned with. Scale {name}."
        )
