"""The net of CUTSPlus against the equations, step by step, and how it is trained."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.nn import functional as F

from benchmarks.cuts_plus import LoopHeads
from skicml._torch import fit_net
from skicml.time_series import CUTSPlus
from skicml.time_series._cuts_plus import _schedule
from skicml.time_series._cuts_plus_torch import (
    CausalForecaster,
    CUTSPlusNet,
    GraphForecaster,
    WindowDataset,
)
from skicml.time_series._series import cut_windows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
N, LAGS, HIDDEN = 4, 3, 5


@pytest.fixture
def forecaster():
    torch_state = torch.get_rng_state()
    torch.manual_seed(0)
    module = GraphForecaster(N, HIDDEN)
    with torch.no_grad():
        module.initial_state.normal_()  # zero at the start of training
        module.head_bias.normal_()
    torch.set_rng_state(torch_state)
    return module


def random_graphs(n_samples=6, seed=0):
    rng = np.random.RandomState(seed)
    graphs = (rng.uniform(size=(n_samples, N, N)) < 0.5).astype(np.float32)
    return rng.normal(size=(n_samples, LAGS, N)).astype(np.float32), graphs


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def leaky(value):
    return np.where(value > 0, value, 0.01 * value)


def forecast_by_the_equations(module, history, graph):
    """One sample, node by node, gate by gate, from the paper's formulas."""
    p = {name: value.detach().numpy() for name, value in module.named_parameters()}
    W_r, W_z, W_c = np.split(p["inputs.weight"], 3)
    b_r, b_z, b_c = np.split(p["inputs.bias"], 3)
    U_r, U_z = np.split(p["gates.weight"], 2)
    forecast = []
    for n in range(N):
        h = p["initial_state"][n]
        for x in history:
            u = np.array([graph[m, n] * x[m] for m in range(N)])
            r = sigmoid(W_r @ u + U_r @ h + b_r)
            z = sigmoid(W_z @ u + U_z @ h + b_z)
            c = np.tanh(W_c @ u + p["candidate.weight"] @ (r * h) + b_c)
            h = z * h + (1 - z) * c
        e1 = leaky(p["embed1.weight"] @ h + p["embed1.bias"])
        e2 = leaky(p["embed2.weight"] @ np.r_[e1, h] + p["embed2.bias"])
        forecast.append(p["head_weight"][n] @ np.r_[e2, h] + p["head_bias"][n])
    return np.array(forecast)


# --- the forecaster ----------------------------------------------------------------------


def test_forecaster_is_the_message_passing_unit_of_the_paper(forecaster):
    X, graphs = random_graphs()
    expected = [forecast_by_the_equations(forecaster, x, A) for x, A in zip(X, graphs)]
    found = forecaster(torch.tensor(X), torch.tensor(graphs)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
def test_folding_the_graph_into_the_weights_changes_nothing(forecaster, soft):
    X, graphs = random_graphs()
    graph = torch.tensor(graphs[0])
    if soft:
        graph = torch.rand(N, N, generator=torch.Generator().manual_seed(0))
    X = torch.tensor(X)
    unfolded = forecaster(X, graph.expand(len(X), -1, -1))
    torch.testing.assert_close(forecaster.forecast_folded(X, *forecaster.fold(graph)), unfolded)
    torch.testing.assert_close(forecaster(X, graph), unfolded)


def test_weights_are_shared_but_for_state_and_head():
    sizes = {n: sum(p.numel() for p in GraphForecaster(n, 32).parameters()) for n in (10, 11)}
    per_node = 32 + 64 + 1  # initial state, head, its bias
    one_more_input = 3 * 32
    assert sizes[11] - sizes[10] == per_node + one_more_input
    shared = 3 * 32 * (10 + 32 + 1) + (32 * 32 + 32) + (64 * 32 + 32)
    assert sizes[10] == shared + 10 * per_node


def test_vectorised_heads_are_the_heads_of_the_nodes(forecaster):
    loop = LoopHeads(N, 2 * HIDDEN)
    with torch.no_grad():
        for n, head in enumerate(loop.heads):
            head.weight.copy_(forecaster.head_weight[n][None, :, None])
            head.bias.copy_(forecaster.head_bias[n])
    features = torch.randn(7, N, 2 * HIDDEN, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(forecaster.apply_heads(features), loop(features))


# --- the windows -------------------------------------------------------------------------


def test_windows_of_a_panel():
    panel = np.random.RandomState(0).normal(size=(3, 10, N)).astype(np.float32)
    data = WindowDataset(panel, LAGS + 1)
    flat = cut_windows(panel, LAGS + 1).reshape(-1, LAGS + 1, N)
    assert len(data) == len(flat) == 3 * 7
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    for index in (order, slice(4, 15), slice(14, 99)):
        X, y = data[index]
        np.testing.assert_array_equal(X, flat[index, :-1])
        np.testing.assert_array_equal(y, flat[index, -1])
    assert data.windows.untyped_storage().data_ptr() == data.X.untyped_storage().data_ptr()


def fitted_with_data(monkeypatch, cuts, X):
    """Fit, and hand back the windows that were trained on and those held out."""
    seen = {}
    original = CUTSPlusNet.fit_loop

    def record(self, data, y=None, epochs=None, **kwargs):
        seen["train"], seen["held out"] = data, self.train_split(data)[1]
        return original(self, data, y, epochs, **kwargs)

    monkeypatch.setattr(CUTSPlusNet, "fit_loop", record)
    cuts.fit(X)
    return seen


def make_quick(**params):
    defaults = {"n_lags": LAGS, "hidden_dim": 6, "max_epochs": 2, "batch_size": 16}
    return CUTSPlus(**{**defaults, "random_state": 0, **params})


@pytest.mark.parametrize(
    ("n_rows", "fraction", "n_held_out"), [(100, 0.2, 20), (50, 0.001, 1), (30, 0.99, 26)]
)
def test_the_last_rows_of_each_series_are_held_out(monkeypatch, n_rows, fraction, n_held_out):
    panel = np.random.RandomState(0).normal(size=(2, n_rows, N))
    cuts = make_quick(validation_fraction=fraction)
    seen = fitted_with_data(monkeypatch, cuts, panel)
    n_train = n_rows - n_held_out
    scaled = (panel - panel[:, :n_train].mean((0, 1))) / panel[:, :n_train].std((0, 1))
    targets = seen["train"][:][1].numpy()
    np.testing.assert_allclose(
        targets, scaled[:, LAGS:n_train].reshape(-1, N), rtol=1e-4, atol=1e-5
    )
    histories, targets = (part.numpy() for part in seen["held out"][:])
    np.testing.assert_allclose(targets, scaled[:, n_train:].reshape(-1, N), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        histories[0], scaled[0, n_train - LAGS : n_train], rtol=1e-4, atol=1e-5
    )


def test_held_out_rows_are_not_learnt_from():
    X = np.random.RandomState(0).normal(size=(100, N))
    changed = X.copy()
    changed[80:] = 5.0
    first, second = make_quick().fit(X), make_quick().fit(changed)
    np.testing.assert_array_equal(first.loss_curve_["train_loss"], second.loss_curve_["train_loss"])
    np.testing.assert_array_equal(first.scaler_.mean_, second.scaler_.mean_)
    assert first.validation_loss_ != second.validation_loss_


# --- the two passes ----------------------------------------------------------------------


def make_net(n_features=N, **params):
    defaults = {
        "learning_rates": [1e-2],
        "graph_learning_rates": [1e-2],
        "sparsities": [0.1],
        "max_epochs": 1,
        "batch_size": 16,
        "seed": 0,
    }
    return CUTSPlusNet(
        CausalForecaster,
        module__n_features=n_features,
        module__hidden_dim=HIDDEN,
        **(defaults | params),
    ).initialize()


def windows_of_noise(n_rows=67):
    return WindowDataset(np.random.RandomState(0).normal(size=(1, n_rows, N)), LAGS + 1)


def parameters(net):
    return {name: value.detach().clone() for name, value in net.module_.named_parameters()}


@pytest.mark.parametrize(
    ("rates", "moves", "stays"),
    [
        ({"graph_learning_rates": [0.0]}, "forecaster", "logits"),
        ({"learning_rates": [0.0]}, "logits", "forecaster"),
    ],
)
def test_each_pass_moves_its_own_parameters(rates, moves, stays):
    net = make_net(**rates)
    before = parameters(net)
    fit_net(net, windows_of_noise())
    after = parameters(net)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {name.split(".")[0] for name in changed} == {moves}
    expected = {name for name in before if not name.startswith(stays)}
    assert changed == expected
    assert all(p.requires_grad for p in net.module_.parameters())


def test_both_passes_go_over_all_windows():
    net = fit_net(make_net(), windows_of_noise())
    batches = net.history[-1, "batches"]
    assert sum(batch.get("train_batch_size", 0) for batch in batches) == 64
    assert sum(batch.get("graph_batch_size", 0) for batch in batches) == 64
    order = ["graph" if "graph_loss" in batch else "train" for batch in batches]
    assert order == ["train"] * 4 + ["graph"] * 4


def drawn_graphs(net, in_pass, probability, n_samples=4000):
    with torch.no_grad():
        net.module_.logits.copy_(torch.logit(torch.tensor(probability)))
    net.pass_ = in_pass
    return net._draw_graph(n_samples)


def test_the_forecaster_sees_bernoulli_graphs_drawn_for_each_sample():
    p = np.linspace(0.05, 0.95, N * N).reshape(N, N)
    graphs = drawn_graphs(make_net(), "forecaster", p)
    assert set(graphs.unique().tolist()) == {0.0, 1.0}
    assert not graphs.requires_grad
    np.testing.assert_allclose(graphs.mean(dim=0), p, atol=5 * 0.5 / np.sqrt(4000))
    flat = graphs.flatten(1).numpy()
    correlation = np.corrcoef(flat.T) - np.eye(N * N)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_the_graph_pass_draws_the_published_gumbel_samples():
    p = np.linspace(0.05, 0.95, N * N).reshape(N, N)
    graphs = drawn_graphs(make_net(), "graph", p)
    assert set(graphs.detach().unique().tolist()) == {0.0, 1.0}
    logits = torch.tensor(np.stack([p, 1 - p], axis=-1)).expand(4000, -1, -1, -1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        reference = F.gumbel_softmax(logits, tau=1.0, hard=True)[..., 0]
    bound = 5 * np.sqrt(2) * 0.5 / np.sqrt(4000)
    np.testing.assert_allclose(graphs.detach().mean(0), reference.mean(0), atol=bound)
    np.testing.assert_allclose(graphs.detach().mean(0), sigmoid(2 * p - 1), atol=bound)


def test_gradients_pass_straight_through_the_soft_sample():
    net = make_net()
    p = np.full((N, N), 0.3)
    graphs = drawn_graphs(net, "graph", p, n_samples=20000)
    (gradient,) = torch.autograd.grad(graphs.mean(dim=0).sum(), net.module_.logits)
    u = np.random.RandomState(0).uniform(size=200_000)
    soft = sigmoid(2 * 0.3 - 1 + np.log(u) - np.log(1 - u))
    # d soft / dp = 2 soft (1 - soft), dp / dlogit = p (1 - p)
    expected = np.mean(2 * soft * (1 - soft)) * 0.3 * 0.7
    np.testing.assert_allclose(gradient, np.full((N, N), expected), rtol=0.05)


def test_the_price_is_on_the_mean_probability_and_in_the_graph_pass_alone():
    net = make_net()
    with torch.no_grad():
        net.module_.logits.fill_(float(torch.logit(torch.tensor(0.7))))
    y_pred, y_true = torch.zeros(3, N), torch.full((3, N), 2.0)
    net.sparsity_ = 0.5
    for name, expected in (("forecaster", 4.0), ("graph", 4.0 + 0.5 * 0.7), ("validation", 4.0)):
        net.pass_ = name
        assert net.get_loss(y_pred, y_true).item() == pytest.approx(expected)


def test_adam_of_the_graph_starts_anew_in_every_epoch(monkeypatch):
    created = []
    original = torch.optim.Adam

    class Recorded(original):
        def __init__(self, params, lr):
            super().__init__(params, lr=lr)
            created.append(self)

    net = make_net(
        learning_rates=[1e-2, 1e-3],
        graph_learning_rates=[0.02, 0.01],
        sparsities=[0.1, 0.05],
        max_epochs=2,
    )
    monkeypatch.setattr("torch.optim.Adam", Recorded)
    fit_net(net, windows_of_noise())
    assert [optimizer.param_groups[0]["lr"] for optimizer in created] == [0.02, 0.01]
    assert all(optimizer.param_groups[0]["params"] == [net.module_.logits] for optimizer in created)
    assert net.optimizer_.param_groups[0]["lr"] == 1e-3  # that of the forecaster, second epoch
    assert net.sparsity_ == 0.05


def test_validation_takes_the_soft_graph_and_the_best_epoch_is_kept(monkeypatch):
    X = np.random.RandomState(0).normal(size=(120, N))
    cuts = make_quick(max_epochs=12, learning_rate=0.1, sparsity=0.0)  # overfits
    held_out = fitted_with_data(monkeypatch, cuts, X)["held out"]
    curve = cuts.loss_curve_["validation_loss"]
    assert len(curve) == 12
    assert cuts.best_epoch_ == curve.argmin() < 11
    history, target = held_out[:]
    module = cuts.net_.module_
    with torch.no_grad():
        forecast = module(history, torch.tensor(cuts.edge_probability_, dtype=torch.float32))
    assert cuts.validation_loss_ == curve.min()
    assert float(F.mse_loss(forecast, target)) == pytest.approx(cuts.validation_loss_, rel=1e-4)


def test_longer_training_begins_like_a_shorter_one_with_constant_rates():
    """The best of the first epochs is the same, however many follow."""
    X = np.random.RandomState(0).normal(size=(120, N))
    rates = {"learning_rate": 1e-2, "graph_learning_rate": 1e-2, "sparsity": 0.1}
    short = make_quick(max_epochs=3, **rates).fit(X)
    long = make_quick(max_epochs=6, **rates).fit(X)
    np.testing.assert_array_equal(
        long.loss_curve_["validation_loss"][:3], short.loss_curve_["validation_loss"]
    )


# --- schedules ---------------------------------------------------------------------------


def test_schedules_fall_exponentially_to_their_last_value():
    np.testing.assert_allclose(_schedule("rate", (1e-2, 1e-3), 5), 10.0 ** -np.linspace(2, 3, 5))
    np.testing.assert_array_equal(_schedule("rate", 0.5, 3), [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(_schedule("rate", 0, 2), [0.0, 0.0])
    np.testing.assert_array_equal(_schedule("rate", (0.2, 0.1), 1), [0.2])


@pytest.mark.parametrize(
    ("n_windows", "batch_size", "max_epochs", "factor"),
    [
        (62 * 256, 256, 50, 1.0),  # about the published number of steps, 3100
        (20 * 256, 256, 50, 3.0),
        (20 * 256 - 255, 256, 50, 3.0),  # the last batch counts however small it is
        (256, 256, 50, 10.0),  # at most ten times
        (10**6, 1, 1, 1.0),
    ],
)
def test_auto_rate_of_the_graph(n_windows, batch_size, max_epochs, factor):
    cuts = CUTSPlus(batch_size=batch_size, max_epochs=max_epochs)
    rates = cuts._graph_schedule(n_windows)
    assert rates[0] == pytest.approx(factor * 1e-3)
    assert rates[-1] == pytest.approx(factor * (1e-4 if max_epochs > 1 else 1e-3))
    fixed = CUTSPlus(max_epochs=5, graph_learning_rate=(1e-3, 1e-4))._graph_schedule(256)
    np.testing.assert_allclose(fixed[[0, -1]], [1e-3, 1e-4])


# --- ends of training --------------------------------------------------------------------


class StopAfter:
    """Callback that asks to stop after some tasks."""

    def __init__(self, n_tasks, error=None):
        self.n_tasks = n_tasks
        self.error = error
        self.n_seen = 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.n_seen += 1
        if self.n_seen == self.n_tasks and self.error:
            raise self.error
        return self.n_seen >= self.n_tasks


def test_a_callback_that_stops_leaves_a_whole_estimator():
    X = np.random.RandomState(0).normal(size=(120, N))
    cuts = make_quick(max_epochs=30).set_callbacks(StopAfter(3))
    cuts.fit(X)
    assert len(cuts.loss_curve_["validation_loss"]) == 3
    assert cuts.predict(X).shape == X.shape


def test_an_interrupt_leaves_nothing_behind():
    X = np.random.RandomState(0).normal(size=(120, N))
    cuts = make_quick(max_epochs=30).set_callbacks(StopAfter(2, KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        cuts.fit(X)
    assert not [name for name in vars(cuts) if name.endswith("_") and not name.startswith("_")]


def test_the_net_is_kept_without_what_only_training_needs():
    X = np.random.RandomState(0).normal(size=(120, N))
    cuts = make_quick().fit(X)
    net = cuts.net_
    assert net.train_split is None
    assert net.optimizer_ is None
    assert str(next(net.module_.parameters()).device) == "cpu"
    assert clone(cuts).get_params() == cuts.get_params()


def test_device_that_is_not_there():
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match="no CUDA device"):
        make_quick(device="cuda").fit(np.zeros((20, 2)))
    assert make_quick(device="auto").fit(np.eye(20)).net_.device == "cpu"
