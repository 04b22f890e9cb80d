"""Training that is counted in gradient steps, and the moving average that goes with it."""

import copy
import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from skorch.callbacks import Callback

from skicml._torch import (
    EMA,
    SeededNet,
    StepLoader,
    TensorDataset,
    fit_net,
    n_epochs_of,
    seeded_init,
)


def _data(n_samples=20):
    rng = np.random.RandomState(0)
    return rng.randn(n_samples, 3).astype(np.float32), rng.randn(n_samples, 1).astype(np.float32)


def _net(**kwargs):
    settings = {"module__in_features": 3, "module__out_features": 1, "batch_size": 8} | kwargs
    return SeededNet(torch.nn.Linear, lr=0.05, **settings)


def _loader(n_samples, batch_size, n_steps, steps_per_epoch):
    dataset = TensorDataset(np.arange(n_samples, dtype=np.float32)[:, None])
    return StepLoader(
        dataset,
        batch_size=batch_size,
        generator=torch.Generator().manual_seed(0),
        n_steps=n_steps,
        steps_per_epoch=steps_per_epoch,
    )


def test_steps_are_cut_into_epochs_and_passes_go_on_across_them():
    loader = _loader(12, 4, n_steps=7, steps_per_epoch=2)
    epochs = [[batch[0].flatten().tolist() for batch in loader] for _ in range(5)]
    assert [len(epoch) for epoch in epochs] == [2, 2, 2, 1, 0]
    batches = list(chain(*epochs))
    for first in (0, 3):  # two passes of three batches, each row once
        assert sorted(chain(*batches[first : first + 3])) == list(range(12))
    assert batches[:3] != batches[3:6]


def test_rows_that_fill_no_batch_wait_for_the_next_pass():
    batches = [batch[0].flatten() for batch in _loader(10, 4, n_steps=50, steps_per_epoch=50)]
    assert {len(batch) for batch in batches} == {4}
    assert len(torch.cat(batches).unique()) == 10
    (batch,) = (batch[0] for batch in _loader(3, 8, n_steps=1, steps_per_epoch=5))
    assert sorted(batch.flatten().tolist()) == [0, 1, 2]


@pytest.mark.parametrize(("n_steps", "n_epochs"), [(0, 0), (1, 1), (50, 1), (51, 2), (120, 3)])
def test_training_takes_the_steps_asked_for(n_steps, n_epochs):
    net = fit_net(_net(), *_data(), steps=n_steps)
    assert len(net.history) == n_epochs_of(n_steps) == n_epochs
    assert sum(len(epoch["batches"]) for epoch in net.history) == n_steps
    assert net.n_steps_ == n_steps


def test_the_cost_does_not_depend_on_the_number_of_rows():
    for n_samples in (5, 500):
        net = fit_net(_net(), *_data(n_samples), steps=60)
        assert sum(len(epoch["batches"]) for epoch in net.history) == 60


def test_epochs_can_follow_steps():
    net = fit_net(_net(), *_data(), steps=3)
    fit_net(net, *_data(), epochs=2)
    assert [len(epoch["batches"]) for epoch in net.history] == [3, 3, 3]
    assert net.n_steps_ is None


class _Trail(Callback):
    """Record the weights after each step."""

    def __init__(self):
        self.weights = []

    def on_batch_end(self, net, training=False, **kwargs):
        self.weights.append(_weights(net.module_))


def _weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_the_warm_average_soon_forgets_the_initialisation():
    trail, ema = _Trail(), EMA(0.9, warmup=True, swap=False)
    net = _net(callbacks=[trail, ema]).initialize()
    average = _weights(net.module_)
    fit_net(net, *_data(), steps=100)
    for k, weights in enumerate(trail.weights):
        decay = min(0.9, (1 + k) / (10 + k))
        average = decay * average + (1 - decay) * weights
    torch.testing.assert_close(_weights(ema.module_), average)
    torch.testing.assert_close(_weights(net.module_), trail.weights[-1])
    assert ema.n_updates_ == 100


def test_the_average_goes_on_with_further_training():
    ema = EMA(0.999, warmup=True, swap=False)
    net = fit_net(_net(callbacks=[ema]), *_data(), steps=10)
    before = copy.deepcopy(ema.module_)
    fit_net(net, *_data(), steps=0)
    assert torch.equal(_weights(ema.module_), _weights(before))
    fit_net(net, *_data(), steps=1)
    expected = torch.lerp(_weights(before), _weights(net.module_), 1 - 11 / 20)
    torch.testing.assert_close(_weights(ema.module_), expected)


def test_the_average_has_the_latest_buffers_takes_no_gradient_and_pickles():
    def module():
        return torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))

    ema = EMA(0.9, swap=False)
    net = fit_net(SeededNet(module, batch_size=8, callbacks=[ema]), *_data(), steps=5)
    assert torch.equal(ema.module_[0].running_mean, net.module_[0].running_mean)
    assert not any(p.requires_grad for p in ema.module_.parameters())
    again = pickle.loads(pickle.dumps(ema))
    assert torch.equal(_weights(again.module_), _weights(ema.module_))


def test_seeded_blocks_may_stand_within_one_another():
    with seeded_init(0):
        first = torch.randn(2)
        with seeded_init(0):
            inner = torch.randn(2)
        second = torch.randn(2)
    with seeded_init(0):
        together = torch.randn(2), torch.randn(2)
    assert torch.equal(inner, first)
    assert torch.equal(torch.stack([first, second]), torch.stack(together))
