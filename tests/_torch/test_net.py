import pickle
import threading
import warnings

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import BaseEstimator
from sklearn.callback import CallbackSupportMixin, with_callbacks
from skorch.callbacks import Callback, GradientNormClipping, LRScheduler

from skicml._torch import (
    EMA,
    EarlyStopping,
    SeededNet,
    draw_seed,
    fit_net,
    resolve_device,
    seeded_init,
)


def _regression(n_samples=64):
    rng = np.random.RandomState(0)
    X = rng.randn(n_samples, 3).astype(np.float32)
    return X, (X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)


def _linear(**kwargs):
    settings = {"module__in_features": 3, "module__out_features": 1, "lr": 0.05} | kwargs
    return SeededNet(torch.nn.Linear, batch_size=16, **settings)


def _weights(net):
    return torch.cat([p.detach().flatten() for p in net.module_.parameters()])


def test_same_seed_same_net_and_global_generator_untouched():
    X, y = _regression()
    before = torch.get_rng_state()
    nets = [fit_net(_linear(seed=seed, max_epochs=3), X, y) for seed in (1, 1, 2)]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(_weights(nets[0]), _weights(nets[1]))
    assert not torch.equal(_weights(nets[0]), _weights(nets[2]))


def test_threads_do_not_read_each_others_randomness():
    X, y = _regression()
    expected = [_weights(fit_net(_linear(seed=seed, max_epochs=2), X, y)) for seed in range(8)]
    found = {}

    def work(seed):
        found[seed] = _weights(fit_net(_linear(seed=seed, max_epochs=2), X, y))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(expected[seed], found[seed]) for seed in range(8))


def test_it_learns_and_goes_on_from_where_it_is():
    X, y = _regression()
    net = fit_net(_linear(max_epochs=5), X, y)
    early = np.mean((net.predict(X) - y) ** 2)
    fit_net(net, X, y, epochs=100)
    assert np.mean((net.predict(X) - y) ** 2) < 1e-4 < early
    assert len(net.history) == 105


def test_two_short_trainings_equal_a_long_one():
    X, y = _regression()
    long = fit_net(_linear(max_epochs=6), X, y)
    short = fit_net(_linear(max_epochs=3), X, y)
    fit_net(short, X, y, epochs=3)
    assert torch.equal(_weights(long), _weights(short))


def test_gradient_clipping_and_schedules_are_skorch_callbacks():
    X, y = _regression()
    plain = fit_net(_linear(max_epochs=1, optimizer=torch.optim.SGD), X, y)
    clipped = fit_net(
        _linear(max_epochs=1, optimizer=torch.optim.SGD, callbacks=[GradientNormClipping(1e-6)]),
        X,
        y,
    )
    start = _linear().initialize()
    assert torch.norm(_weights(clipped) - _weights(start)) <= 4 * 0.05 * 1e-6 * 1.01
    assert torch.norm(_weights(plain) - _weights(start)) > 1e-2
    schedule = LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.1)
    scheduled = fit_net(_linear(max_epochs=3, callbacks=[schedule]), X, y)
    assert scheduled.optimizer_.param_groups[0]["lr"] == pytest.approx(0.05 * 0.1**3)


def test_ema_is_the_moving_average_of_the_weights():
    X, y = _regression(16)
    trail = []
    record = type(
        "Record", (Callback,), {"on_batch_end": lambda self, net, **_: trail.append(_weights(net))}
    )
    net = fit_net(_linear(max_epochs=2, callbacks=[record(), EMA(0.9)]), X, y)
    average = trail[0]
    for weights in trail[1:]:
        average = 0.9 * average + 0.1 * weights
    torch.testing.assert_close(_weights(net), average)


def test_a_net_trained_on_cuda_loads_without_one():
    X, y = _regression()
    net = fit_net(_linear(max_epochs=1), X, y)
    net.__dict__["device"] = "cuda"  # what the pickle of a net on a GPU says
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = pickle.loads(pickle.dumps(net))
    if not torch.cuda.is_available():
        assert str(loaded.device) == "cpu"
    assert torch.equal(_weights(loaded).cpu(), _weights(net))


def test_early_stopping_ends_training_and_keeps_the_net():
    X, y = _regression()
    impatient = EarlyStopping(monitor="train_loss", patience=2, threshold=1e9)
    net = fit_net(_linear(max_epochs=50, callbacks=[impatient]), X, y)
    assert len(net.history) == 3  # the first epoch, and two without the gain asked for
    assert net.predict(X).shape == y.shape


def test_epoch_losses_are_recorded():
    X, y = _regression(20)
    net = fit_net(_linear(max_epochs=3), X, y)
    for epoch in net.history:
        batches = epoch["batches"]
        weights = [batch["train_batch_size"] for batch in batches]
        losses = [batch["train_loss"] for batch in batches]
        assert epoch["train_loss"] == pytest.approx(np.average(losses, weights=weights))


def test_training_works_with_metadata_routing_enabled():
    X, y = _regression()
    with config_context(enable_metadata_routing=True):
        routed = fit_net(_linear(max_epochs=2), X, y)
    assert torch.equal(_weights(routed), _weights(fit_net(_linear(max_epochs=2), X, y)))


class _Adversarial(SeededNet):
    """An inner maximisation in the step, with noise from the net's own generator."""

    def train_step_single(self, batch, **fit_params):
        X, y = batch
        noise = 0.1 * torch.randn(X.shape, generator=self.generator_)
        noise.requires_grad_()
        inner = self.get_loss(self.infer(X + noise), y)
        (gradient,) = torch.autograd.grad(inner, noise)
        return super().train_step_single((X + 0.1 * gradient.sign(), y), **fit_params)


def test_a_step_of_its_own_is_reproducible_and_leaves_the_global_generator():
    X, y = _regression()
    before = torch.get_rng_state()
    settings = {"module__in_features": 3, "module__out_features": 1, "max_epochs": 2}
    first, second = (fit_net(_Adversarial(torch.nn.Linear, **settings), X, y) for _ in range(2))
    assert torch.equal(_weights(first), _weights(second))
    assert torch.equal(before, torch.get_rng_state())


class _TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.scale = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)

    def forward(self, X):
        return self.mean(X), self.scale(X)


class _TwoHeadsNet(SeededNet):
    def get_loss(self, y_pred, y_true, X=None, training=False):
        mean, log_scale = y_pred
        return (((mean - y_true) / log_scale.exp()) ** 2 / 2 + log_scale).mean()


def test_a_loss_on_several_outputs_and_hooks_on_the_module():
    X, y = _regression()
    net = _TwoHeadsNet(_TwoHeads, lr=0.01, max_epochs=20, batch_size=16).initialize()
    seen = []
    net.module_.mean.register_forward_hook(lambda module, inputs, output: seen.append(len(output)))
    fit_net(net, X, y)
    assert sum(seen) == 20 * len(X)
    mean, log_scale = net.forward(X)
    assert mean.shape == log_scale.shape == (64, 1)
    assert net.history[-1, "train_loss"] < net.history[0, "train_loss"]


def test_keyboard_interrupt_is_not_swallowed():
    X, y = _regression()

    class Interrupted(SeededNet):
        def train_step_single(self, batch, **fit_params):
            raise KeyboardInterrupt

    net = Interrupted(torch.nn.Linear, module__in_features=3, module__out_features=1)
    with pytest.raises(KeyboardInterrupt):
        fit_net(net, X, y)


class _Estimator(CallbackSupportMixin, BaseEstimator):
    @with_callbacks
    def fit(self, X, y):
        context = self._init_callback_context(max_subtasks=7)
        self.net_ = fit_net(_linear(max_epochs=7), X, y, estimator=self, context=context)
        return self


class _StopAfter:
    def __init__(self, n_epochs):
        self.n_epochs = n_epochs
        self.seen = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.seen.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        return len(self.seen) >= self.n_epochs


def test_epochs_are_tasks_and_stop_on_request():
    X, y = _regression()
    callback = _StopAfter(3)
    estimator = _Estimator().set_callbacks(callback).fit(X, y)
    assert callback.seen == ["epoch 0", "epoch 1", "epoch 2"]
    assert len(estimator.net_.history) == 3
    everything = _StopAfter(99)
    assert len(_Estimator().set_callbacks(everything).fit(X, y).net_.history) == 7
    names = [name for name, _ in estimator.net_.callbacks_]
    assert names == ["train_loss", "valid_loss"]  # nothing of the fit hangs on to the net
    pickle.loads(pickle.dumps(estimator))


def test_resolve_device():
    assert resolve_device("cpu") == "cpu"
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert resolve_device("auto") == expected
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no CUDA device"):
            resolve_device("cuda")


def test_seeds():
    assert draw_seed(3) == draw_seed(3)
    with seeded_init(5):
        first = torch.randn(3)
    with seeded_init(5):
        assert torch.equal(first, torch.randn(3))
