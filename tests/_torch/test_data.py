import numpy as np
import pytest
import torch

from skicml._torch import TensorDataset, TensorLoader


def test_every_row_once_in_an_order_of_the_generator():
    data = TensorDataset(np.arange(10.0)[:, None], np.arange(10))
    loader = TensorLoader(
        data, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    first, second = (list(loader) for _ in range(2))
    assert [len(y) for _, y in first] == [4, 4, 2]
    assert len(loader) == 3
    orders = [torch.cat([y for _, y in batches]) for batches in (first, second)]
    assert [sorted(order.tolist()) for order in orders] == [list(range(10))] * 2
    assert not torch.equal(*orders)
    for X, y in first:  # rows and targets stay together
        torch.testing.assert_close(X[:, 0], y.to(torch.float32))


def test_a_short_last_batch_is_left_out_unless_it_is_the_only_one():
    data = TensorDataset(np.zeros((10, 1)))
    assert len(list(TensorLoader(data, batch_size=4, min_batch_size=3))) == 2
    assert len(list(TensorLoader(data, batch_size=5, min_batch_size=3))) == 2
    assert len(list(TensorLoader(data, batch_size=20, min_batch_size=30))) == 1


def test_shuffle_needs_a_generator():
    with pytest.raises(ValueError, match="generator"):
        TensorLoader(TensorDataset(np.zeros((3, 1))), shuffle=True)


def test_nested_inputs_share_their_rows():
    X = {"a": np.arange(6.0), "pair": (np.arange(6), np.arange(6.0)[:, None])}
    data = TensorDataset(X, y=[np.arange(6), np.arange(6) * 2])
    inputs, targets = next(iter(TensorLoader(data, batch_size=3)))
    assert inputs["a"].dtype == torch.float32
    assert inputs["pair"][0].tolist() == targets[0].tolist() == [0, 1, 2]
    assert targets[1].tolist() == [0, 2, 4]


def test_data_come_as_float32_and_read_only_arrays_are_copied():
    frozen = np.arange(4.0)
    frozen.flags.writeable = False
    data = TensorDataset(frozen)
    assert data.X.dtype == torch.float32
    data.X += 1
    np.testing.assert_array_equal(frozen, np.arange(4.0))
