import numpy as np
import pytest

from skicml._views import observed_views, resolve_views, split_views
from skicml.utils import stack_views


def _columns(views, n_features=6, **kwargs):
    return [block.tolist() for block in resolve_views(views, n_features, **kwargs)]


def test_none_is_one_view():
    assert _columns(None, 3) == [[0, 1, 2]]


def test_widths():
    assert _columns([2, 4]) == [[0, 1], [2, 3, 4, 5]]
    assert _columns(np.array([2, 4])) == _columns((2, 4))


def test_index_arrays_slices_and_masks():
    views = [slice(0, 2), [5, 3], np.array([False, False, True, False, False, False])]
    assert _columns(views) == [[0, 1], [5, 3], [2]]


def test_auto_takes_the_prefix_of_column_names():
    names = ["pix__0", "fou__a", "pix__1", "fou__b__c"]
    assert _columns("auto", 4, feature_names=names) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("views", "message"),
    [
        ([2, 3], "add up to 5, but X has 6"),
        ([0, 6], "positive"),
        ([-1, 7], "positive"),
        ([], "at least one view"),
        ("pixels", "got 'pixels'"),
        ("auto", r"DataFrame .*set_output\(transform='pandas'\) on the step before"),
        ([[0, 1], [1, 2]], "share columns"),
        ([[0], []], "at least one column"),
        ([[0], [9]], "index arrays or slices of the 6 columns"),
        ([[0], ["a"]], "index arrays"),
        ([[0], 0.5], "index arrays"),
        ([[[0, 1], [2, 3]]], "1-D"),
    ],
)
def test_bad_views(views, message):
    with pytest.raises(ValueError, match=message):
        resolve_views(views, 6)


def test_auto_refuses_names_without_prefix():
    with pytest.raises(ValueError, match="'plain' has no prefix"):
        resolve_views("auto", 2, ["a__1", "plain"])


def test_observed_views():
    X = np.arange(12.0).reshape(3, 4)
    X[0, :2] = np.nan
    blocks = resolve_views([2, 2], 4)
    np.testing.assert_array_equal(observed_views(X, blocks), [[0, 1], [1, 1], [1, 1]])


def test_observed_views_refuses_partial_blocks_and_empty_rows():
    blocks = resolve_views([2, 2], 4)
    X = np.zeros((3, 4))
    X[1, 3] = np.nan
    message = "partially missing block: view 1 of sample 1 is NaN in 1 of 2 columns.*Imputer"
    with pytest.raises(ValueError, match=message):
        observed_views(X, blocks)
    X[1:] = np.nan
    with pytest.raises(ValueError, match=r"2 samples have every view missing.*sample 1"):
        observed_views(X, blocks)


def test_stack_then_split_gives_the_views_back():
    rng = np.random.RandomState(0)
    arrays = [rng.randn(5, 2), rng.randn(5), rng.randn(5, 3)]
    X, views = stack_views(arrays)
    assert views == [2, 1, 3]
    for array, view in zip(arrays, split_views(X, resolve_views(views, 6))):
        np.testing.assert_array_equal(array.reshape(5, -1), view)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "at least one view"),
        ([np.zeros((3, 2)), np.zeros((4, 2))], "same number of rows"),
        ([np.zeros((3, 2, 1))], "2-D"),
    ],
)
def test_stack_refuses(arrays, message):
    with pytest.raises(ValueError, match=message):
        stack_views(arrays)
