"""Multi-view input: several blocks of columns of one 2-D X.

A view is a set of columns that describe the same samples. A view that was not recorded for
a sample is a block of NaN in its row.
"""

from collections.abc import Sequence
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike


def _prefix_views(columns):
    """Group columns ``<prefix>__<rest>`` by prefix, in order of first appearance."""
    groups = {}
    for index, name in enumerate(columns):
        prefix, separator, _ = str(name).partition("__")
        if not separator:
            raise ValueError(
                'views="auto" needs column names of the form "<view>__<feature>", as a '
                f"ColumnTransformer gives them; column {name!r} has no prefix."
            )
        groups.setdefault(prefix, []).append(index)
    return [np.array(indices) for indices in groups.values()]


def _width_views(widths, n_features):
    if min(widths) < 1:
        raise ValueError(f"views must hold positive block widths, got {list(widths)}.")
    if sum(widths) != n_features:
        raise ValueError(
            f"The block widths in views add up to {sum(widths)}, but X has {n_features} features."
        )
    ends = np.cumsum(widths)
    return [np.arange(end - width, end) for width, end in zip(widths, ends)]


def _index_views(views, n_features):
    columns = np.arange(n_features)
    if any(not isinstance(view, slice) and np.size(view) == 0 for view in views):
        raise ValueError("Every view in views must name at least one column.")
    try:
        blocks = [columns[view if isinstance(view, slice) else np.asarray(view)] for view in views]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            "views must be None, 'auto', block widths, or index arrays or slices of the "
            f"{n_features} columns of X: {error}"
        ) from error
    if any(block.ndim != 1 or block.size == 0 for block in blocks):
        raise ValueError("Every index array in views must be 1-D and name at least one column.")
    if np.unique(np.concatenate(blocks)).size != sum(block.size for block in blocks):
        raise ValueError("views must not share columns.")
    return blocks


def resolve_views(views, n_features, feature_names=None):
    """Column indices of every view.

    Parameters
    ----------
    views : None, "auto", sequence of int, or sequence of index arrays or slices
        None: one view of all columns. Sequence of int: widths of consecutive blocks that add
        up to `n_features`. Sequence of arrays or slices: the columns of each view; columns
        that no view names are left out. "auto": views from the prefix of the column names,
        ``"<view>__<feature>"``.
    n_features : int
        Number of columns of X.
    feature_names : sequence of str or None, default=None
        Column names, needed for "auto".

    Returns
    -------
    blocks : list of ndarray of int
        One array of column indices a view.

    Raises
    ------
    ValueError
        If `views` does not describe disjoint, non-empty blocks of the columns of X.
    """
    if views is None:
        return [np.arange(n_features)]
    if isinstance(views, str):
        if views != "auto":
            raise ValueError(f"views must be None, 'auto' or a sequence, got {views!r}.")
        if feature_names is None:
            raise ValueError(
                'views="auto" needs a DataFrame with string column names (e.g. by '
                "set_output(transform='pandas') on the step before)."
            )
        return _prefix_views(feature_names)
    views = list(views)
    if not views:
        raise ValueError("views must name at least one view, got an empty sequence.")
    if all(isinstance(view, Integral) for view in views):
        return _width_views([int(width) for width in views], n_features)
    return _index_views(views, n_features)


def split_views(X, blocks):
    """List of the views of X, one array of shape (n_samples, width) each."""
    return [X[:, block] for block in blocks]


def observed_views(X, blocks):
    """Which view was recorded for which sample.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Data; a missing view is a block of NaN.
    blocks : list of ndarray of int
        The columns of each view.

    Returns
    -------
    observed : ndarray of bool of shape (n_samples, n_views)
        True where the view is there.

    Raises
    ------
    ValueError
        If a block is NaN in part only, or a sample has no view at all.
    """
    counts = np.column_stack([np.isnan(view).sum(axis=1) for view in split_views(X, blocks)])
    widths = np.array([block.size for block in blocks])
    missing = counts == widths
    partial = (counts > 0) & ~missing
    if partial.any():
        row, view = np.argwhere(partial)[0]
        raise ValueError(
            f"X holds a partially missing block: view {view} of sample {row} is NaN in "
            f"{counts[row, view]} of {widths[view]} columns. A view is missing as a whole (all "
            "NaN) or not at all; fill in single values first, for instance with "
            "sklearn.impute.SimpleImputer or KNNImputer on the rows where the view was recorded."
        )
    empty = np.flatnonzero(missing.all(axis=1))
    if empty.size:
        raise ValueError(
            f"{empty.size} samples have every view missing (all their features are NaN), the "
            f"first is sample {empty[0]}. Remove them: nothing is known about them."
        )
    return ~missing


def stack_views(arrays: Sequence[ArrayLike]) -> tuple[np.ndarray, list[int]]:
    """Turn a list of views into the one X, with block widths, that skicml takes.

    Parameters
    ----------
    arrays : sequence of array-like of shape (n_samples, n_features_v)
        The views, with the same samples in the same order. 1-D arrays count as one column.

    Returns
    -------
    X : ndarray of shape (n_samples, sum of n_features_v)
        The views side by side.
    views : list of int
        Width of each block, for the parameter `views` of an estimator.

    Raises
    ------
    ValueError
        If there is no view, or the numbers of rows differ.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.utils import stack_views
    >>> X, views = stack_views([np.zeros((4, 2)), np.ones((4, 3))])
    >>> X.shape, views
    ((4, 5), [2, 3])
    """
    blocks = [np.asarray(array) for array in arrays]
    if not blocks:
        raise ValueError("stack_views needs at least one view, got none.")
    blocks = [block[:, None] if block.ndim == 1 else block for block in blocks]
    if any(block.ndim != 2 for block in blocks):
        raise ValueError(f"Views must be 2-D, got shapes {[block.shape for block in blocks]}.")
    if len({len(block) for block in blocks}) != 1:
        raise ValueError(
            f"Views must have the same number of rows, got {[len(block) for block in blocks]} rows."
        )
    return np.hstack(blocks), [block.shape[1] for block in blocks]
