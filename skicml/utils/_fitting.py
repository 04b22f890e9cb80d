"""Leave nothing half fitted behind."""

import functools


def all_or_nothing(method):
    """Make a fit all or nothing: an error or an interrupt leaves the estimator as it was.

    The outermost decorator, above ``with_callbacks``. What is undone are attributes that were
    set, changed or removed; an array that the method changes in place stays changed.

    Parameters
    ----------
    method : method
        A ``fit`` or ``partial_fit``.

    Returns
    -------
    method : method
        The decorated method.
    """

    @functools.wraps(method)
    def undone_if_it_fails(estimator, *args, **kwargs):
        before = vars(estimator).copy()
        try:
            return method(estimator, *args, **kwargs)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return undone_if_it_fails
