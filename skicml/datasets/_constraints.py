"""What parameters of the generators may be, where several say the same."""

from numbers import Integral, Real

from sklearn.utils._param_validation import Interval

SIZE = Interval(Integral, 1, None, closed="left")
COUNT = Interval(Integral, 0, None, closed="left")
FINITE = Interval(Real, None, None, closed="neither")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
FRACTION = Interval(Real, 0, 1, closed="both")
FRACTION_BELOW_1 = Interval(Real, 0, 1, closed="left")


def check_sizes(name, sizes, n_sizes=None):
    """Raise an error unless a parameter holds integers of at least 1.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    sizes : array-like
        Its value.
    n_sizes : int or None, default=None
        How many there must be; None stands for at least one.

    Raises
    ------
    ValueError
        If it holds anything else, or another number of them.
    """
    right_number = len(sizes) == n_sizes if n_sizes else len(sizes) > 0
    if not right_number or not all(SIZE.is_satisfied_by(size) for size in sizes):
        number = n_sizes or "one or more"
        raise ValueError(f"{name} must hold {number} integers of at least 1, got {sizes!r}.")
