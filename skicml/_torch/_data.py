"""Data sets in memory and batches that are slices of tensors."""

from itertools import islice

import numpy as np
import torch


def _to_tensor(value, device):
    """Arrays, or a dict, list or tuple of arrays, as tensors; floating point as float32."""
    if isinstance(value, dict):
        return {key: _to_tensor(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_to_tensor(item, device) for item in value)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        value = value.copy()  # torch warns about read-only memory, as of a memmap
    tensor = torch.as_tensor(value)
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float32)
    return tensor.to(device)


def _take(value, index):
    """Rows `index` of a tensor, or of each tensor in a dict or tuple."""
    if isinstance(value, dict):
        return {key: _take(item, index) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_take(item, index) for item in value)
    return value[index]


def _first(value):
    """Some tensor of a possibly nested value."""
    while not isinstance(value, torch.Tensor):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


class TensorDataset(torch.utils.data.Dataset):
    """Tensors that share their first axis.

    Parameters
    ----------
    X : array, or dict, list or tuple of arrays
        Inputs; axis 0 counts the samples. Floating point data become float32.
    y : array, or dict, list or tuple of arrays, or None, default=None
        Targets. None gives each batch an empty target.
    device : str, default="cpu"
        Where the tensors live; moved once, not batch by batch.
    """

    def __init__(self, X, y=None, device="cpu"):
        self.X = _to_tensor(X, device)
        self.n_samples = len(_first(self.X))
        # skorch takes batches (X, y); without targets y has a row a sample and no column.
        empty = torch.empty(self.n_samples, 0, device=device)
        self.y = empty if y is None else _to_tensor(y, device)

    def __len__(self):
        return self.n_samples

    def __getitem__(self, index):
        return _take(self.X, index), _take(self.y, index)


class TensorLoader:
    """Iterate over a :class:`TensorDataset` in batches, without Python code per sample.

    Parameters
    ----------
    dataset : TensorDataset
        The data.
    batch_size : int, default=256
        Rows a batch; more than there are samples means one batch.
    shuffle : bool, default=False
        Whether every pass over the loader takes a new random order.
    generator : torch.Generator or None, default=None
        Source of the order; needed to shuffle.
    min_batch_size : int, default=1
        A last batch with fewer rows is left out, unless it is the only one.
    """

    def __init__(self, dataset, *, batch_size=256, shuffle=False, generator=None, min_batch_size=1):
        if shuffle and generator is None:
            raise ValueError("shuffle=True needs a generator: the global one is not used.")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.generator = generator
        self.min_batch_size = min_batch_size

    def _starts(self):
        n_samples = len(self.dataset)
        starts = range(0, n_samples, self.batch_size)
        short = n_samples - starts[-1] < self.min_batch_size
        return starts[:-1] if short and len(starts) > 1 else starts

    def __len__(self):
        return len(self._starts())

    def __iter__(self):
        if not self.shuffle:
            for start in self._starts():
                yield self.dataset[start : start + self.batch_size]
            return
        order = _random_order(self.dataset, self.generator)
        for start in self._starts():
            yield self.dataset[order[start : start + self.batch_size]]


def _random_order(dataset, generator):
    """All row numbers in random order, on the device of the data."""
    order = torch.randperm(len(dataset), generator=generator)
    return order.to(_first(dataset.X).device)


class StepLoader:
    """A given number of shuffled batches, however many rows there are, cut into epochs.

    Passes over the data follow one another across the epochs. Each pass takes a new random
    order and leaves out the rows that do not fill a batch; fewer rows than a batch make one
    batch of all.

    Parameters
    ----------
    dataset : TensorDataset
        The data.
    batch_size : int
        Rows a batch.
    generator : torch.Generator
        Source of the order.
    n_steps : int
        Number of batches in all.
    steps_per_epoch : int
        Number of batches of each iteration over the loader but the last one.
    """

    def __init__(self, dataset, *, batch_size, generator, n_steps, steps_per_epoch):
        self.dataset = dataset
        self.batch_size = min(batch_size, len(dataset))
        self.generator = generator
        self.steps_per_epoch = steps_per_epoch
        self._batches = islice(self._endless(), n_steps)

    def _endless(self):
        last_start = len(self.dataset) - self.batch_size
        while True:
            order = _random_order(self.dataset, self.generator)
            for start in range(0, last_start + 1, self.batch_size):
                yield self.dataset[order[start : start + self.batch_size]]

    def __iter__(self):
        return islice(self._batches, self.steps_per_epoch)
