"""Parts of CAROTS: the loss, the two augmentations, and the autoregressive discoverer."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import breadth_first_order
from sklearn.base import clone
from torch.nn import functional as F

from skicml.time_series._carots_causal import CausalModel
from skicml.time_series._carots_torch import CausalAugmenter, WindowEncoder, soc_loss
from skicml.time_series._carots_var import VARDiscoverer

# ----------------------------------------------------------------------------------- the loss


def naive_soc_loss(positives, negatives, threshold, temperature):
    """The formula, pair by pair; and the means of the anchors, which the text of the paper has."""

    def cosine(a, b):
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    n = len(positives)
    per_anchor, chances = [], []
    for i in range(n):
        kept = [j for j in range(n) if j == i or cosine(positives[i], positives[j]) >= threshold]
        against = sum(
            math.exp(cosine(positives[i], negatives[k]) / temperature) for k in kept
        )  # the negative made from i itself is among them
        losses = []
        for j in kept:
            if j != i:
                for_it = math.exp(cosine(positives[i], positives[j]) / temperature)
                losses.append(-math.log(for_it / (for_it + against)))
                chances.append(math.log(1 + len(kept)))
        per_anchor.append(losses)
    pairs = [loss for losses in per_anchor for loss in losses]
    anchors = [np.mean(losses) for losses in per_anchor if losses]
    return np.mean(pairs), np.mean(anchors), np.mean(chances), len(pairs)


def embeddings(n=12, dim=3, seed=0):
    rng = np.random.RandomState(seed)
    return rng.normal(size=(n, dim)), rng.normal(size=(n, dim))


def as_loss(positives, negatives, threshold, temperature=0.1):
    loss, chance, n_pairs = soc_loss(
        torch.tensor(positives), torch.tensor(negatives), threshold, temperature
    )
    return loss.item(), chance, n_pairs


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.5, 0.9])
def test_loss_is_the_formula(threshold, temperature):
    positives, negatives = embeddings()
    pair_mean, anchor_mean, chance, n_pairs = naive_soc_loss(
        positives, negatives, threshold, temperature
    )
    found = as_loss(positives, negatives, threshold, temperature)
    np.testing.assert_allclose(found, (pair_mean, chance, n_pairs), rtol=1e-6)
    if threshold == 0.5:  # all pairs count alike, whatever the number of pairs of an anchor
        assert abs(found[0] - anchor_mean) > 1e-3


def test_loss_drops_the_negative_of_a_filtered_positive():
    # Two groups of positives. Only the second one has close negatives: at a threshold between
    # the groups these do not disturb the first.
    first, second = np.array([[1.0, 0.0]] * 3), np.array([[0.0, 1.0]] * 3)
    positives = np.vstack([first, second])
    negatives = np.vstack([-first, first])
    at_chance, apart = math.log1p(6), math.log1p(3 * math.exp(-2 / 0.1))
    # first anchors: 3 own negatives at cosine -1; second anchors: 3 at cosine 0
    expected = (apart + math.log1p(3 * math.exp(-1 / 0.1))) / 2
    assert as_loss(positives, negatives, 0.5)[0] == pytest.approx(expected, rel=1e-9)
    assert as_loss(positives, negatives, -1.0)[0] > at_chance


def test_threshold_is_the_number_of_pairs():
    positives, negatives = embeddings()
    counts = [as_loss(positives, negatives, threshold)[2] for threshold in (-1, 0, 0.5, 0.9)]
    assert counts[0] == 12 * 11
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_loss_at_chance_where_nothing_is_told_apart():
    same = np.ones((8, 3))
    loss, chance, _ = as_loss(same, same, 0.5)
    assert loss == pytest.approx(math.log1p(8))
    assert chance == pytest.approx(math.log1p(8))


def test_loss_without_pairs_is_zero_and_has_a_gradient():
    positives = torch.eye(4, requires_grad=True)
    loss, chance, n_pairs = soc_loss(positives, -torch.eye(4), 0.5, 0.1)
    loss.backward()
    assert (loss.item(), chance, n_pairs) == (0, 0, 0)
    assert torch.equal(positives.grad, torch.zeros(4, 4))


def test_loss_does_not_overflow():
    positives = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    positives.requires_grad_()
    loss, _, _ = soc_loss(positives, -positives.detach(), -1.0, 1e-4)  # exp(1e4) overflows
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(positives.grad).all()


# --------------------------------------------------------------------------- the augmentations

N, W = 5, 6


def chain(n_nodes):
    """Adjacency of 0 -> 1 -> 2 -> ..."""
    return np.eye(n_nodes, k=1, dtype=bool)


def last_row(windows):
    """Forecast that doubles the last row of the history: noise there is seen in it."""
    return 2 * windows[:, -2]


def make_augmenter(adjacency=None, forecast=last_row, seed=0, **params):
    defaults = {
        "n_causes": 1,
        "cause_noise": 0.1,
        "stop_probability": 0.1,
        "bias_values": (0.1, 0.2, 0.3, 0.4, 0.5),
        "bias_fraction": 0.5,
    }
    return CausalAugmenter(
        chain(N) if adjacency is None else adjacency,
        forecast,
        generator=torch.Generator().manual_seed(seed),
        **(defaults | params),
    )


def random_windows(n_windows=40, n_features=N, width=W):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n_windows, width, n_features, generator=generator)


def changed_cells(before, after):
    """Rows and variables, of any window, that differ."""
    rows, variables = np.nonzero((before != after).any(dim=0).numpy())
    return set(zip(rows.tolist(), variables.tolist()))


@pytest.mark.parametrize("seed", range(8))
def test_preserving_copy_disturbs_a_cause_and_lets_its_effects_follow(seed):
    windows = random_windows()
    kept = windows.clone()
    positives = make_augmenter(seed=seed).preserve(windows)
    assert torch.equal(windows, kept)
    changed = changed_cells(windows, positives)
    (cause,) = [variable for row, variable in changed if row == W - 2]
    effects = {(W - 1, cause + 1)} if cause < N - 1 else set()
    assert changed == {(W - 2, cause)} | effects
    noise = positives[:, W - 2, cause] - windows[:, W - 2, cause]
    assert len(noise.unique()) == len(noise)
    for _, effect in effects:  # the forecast of the disturbed history
        np.testing.assert_array_equal(positives[:, W - 1, effect], 2 * positives[:, W - 2, effect])


def test_noise_reaches_the_effects():
    graph = np.zeros((N, N), dtype=bool)
    graph[:, 0] = True  # all cause 0, the forecast of 0 is the sum of the last history row
    augmenter = make_augmenter(graph, lambda windows: np.tile(windows[:, -2].sum(1)[:, None], N))
    windows = random_windows(5000)
    positives = augmenter.preserve(windows)
    response = positives[:, -1, 0] - windows[:, -2].sum(dim=1)
    assert response.std().item() == pytest.approx(0.1, rel=0.05)
    assert abs(response.mean().item()) < 0.01


def test_several_causes_have_the_union_of_their_effects():
    augmenter = make_augmenter(n_causes=3)
    windows = random_windows()
    changed = changed_cells(windows, augmenter.preserve(windows))
    causes = {variable for row, variable in changed if row == W - 2}
    assert len(causes) == 3
    effects = {variable for row, variable in changed if row == W - 1}
    assert effects == {cause + 1 for cause in causes if cause < N - 1}


def test_preserving_copy_without_edges_needs_no_forecast():
    augmenter = make_augmenter(np.zeros((N, N), dtype=bool), forecast=None)
    windows = random_windows()
    assert len(changed_cells(windows, augmenter.preserve(windows))) == 1


def random_graph(n_nodes=12, share=0.15, seed=0):
    return np.random.RandomState(seed).uniform(size=(n_nodes, n_nodes)) < share


def test_walk_that_never_stops_visits_all_descendants():
    graph = random_graph()
    augmenter = make_augmenter(graph, stop_probability=0.0)
    starts = set()
    for _ in range(100):
        nodes = augmenter.walk()
        starts.add(nodes[0])
        descendants = breadth_first_order(graph, nodes[0], return_predecessors=False)
        assert sorted(nodes) == sorted(descendants)
    assert starts == set(range(12))


def test_walk_follows_edges_from_cause_to_effect():
    augmenter = make_augmenter(chain(4), stop_probability=0.0)
    for _ in range(20):
        nodes = augmenter.walk()
        assert nodes == list(range(nodes[0], 4))


def test_walk_that_always_stops_is_its_start():
    augmenter = make_augmenter(np.ones((N, N), dtype=bool), stop_probability=1.0)
    assert all(len(augmenter.walk()) == 1 for _ in range(20))


def test_stop_ends_the_whole_exploration_of_a_node():
    # From the hub, with chance 1/2 to stop, 1 of 30 effects is visited on average; if a stop
    # only left out one effect it would be 15. Every node may start, so each is a hub.
    graph = np.ones((31, 31), dtype=bool)
    graph[1:] = False
    augmenter = make_augmenter(graph, stop_probability=0.5)
    walks = [augmenter.walk() for _ in range(20000)]
    from_hub = [len(walk) - 1 for walk in walks if walk[0] == 0]
    assert len(from_hub) > 400
    assert np.mean(from_hub) == pytest.approx(1, abs=0.3)  # standard error 0.06


def test_walk_has_no_limit_of_depth():
    n_nodes = 3000  # beyond Python's default limit of recursion
    augmenter = make_augmenter(chain(n_nodes), stop_probability=0.0)
    assert max(len(augmenter.walk()) for _ in range(5)) > 1000


def test_disturbing_copy_shifts_some_rows_of_the_walk():
    augmenter = make_augmenter(np.ones((N, N), dtype=bool), stop_probability=0.3)
    windows = random_windows(300)
    sizes = set()
    for _ in range(10):
        shift = augmenter.disturb(windows) - windows
        rows, variables = (np.unique(axis) for axis in np.nonzero((shift != 0).any(0).numpy()))
        sizes.add(len(variables))
        assert len(rows) == W // 2
        cells = shift[:, rows[:, None], variables].reshape(len(windows), -1)
        assert shift.count_nonzero() == cells.numel()  # the same cells in every window
        steps = np.unique(cells.numpy().round(3))
        np.testing.assert_allclose(steps, np.r_[-5:0, 1:6] / 10, atol=1e-6)
        correlations = np.corrcoef(cells.T.numpy())
        off_diagonal = correlations[~np.eye(len(correlations), dtype=bool)]
        assert np.abs(off_diagonal).max() < 0.35  # independent: standard error 0.06
    assert len(sizes) > 1


def test_disturbing_copy_of_short_windows_shifts_one_row():
    windows = random_windows(width=2)
    shift = make_augmenter(bias_fraction=0.1).disturb(windows) - windows
    assert (shift != 0).any(dim=2).sum(dim=1).unique().tolist() == [1]


def test_encoder_reads_all_rows_of_a_window():
    encoder = WindowEncoder(N, 8, 4).eval()
    windows = random_windows(1)
    for row in range(W):
        other = windows.clone()
        other[:, row] += 1
        assert not torch.allclose(encoder(windows), encoder(other), atol=1e-5)
    assert encoder(windows).shape == (1, 4)
    widths = [layer.out_features for layer in encoder.projector if hasattr(layer, "out_features")]
    assert widths == [8, 4]


# -------------------------------------------------------------------- the linear discoverer


def make_chain(n_timepoints=800, coupling=0.85, seed=0):
    """0 -> 1 -> 2, each driven by the past of the one before."""
    noise = np.random.RandomState(seed).normal(size=(n_timepoints, 3))
    X = noise.copy()
    for t in range(1, n_timepoints):
        X[t, 1:] = coupling * X[t - 1, :2] + 0.5 * noise[t, 1:]
    return X


@pytest.mark.parametrize("seed", range(5))
def test_var_finds_the_chain_and_its_direction(seed):
    found = VARDiscoverer(n_lags=2).fit(make_chain(seed=seed)).adjacency_
    assert found[0, 1]
    assert found[1, 2]
    assert not found[1, 0]
    assert not found[2, 0]
    assert found.sum() <= 4  # at most two of the seven links that are not there


def test_var_forecasts_as_well_as_the_truth():
    train, test = make_chain(), make_chain(seed=1)
    var = VARDiscoverer(n_lags=2).fit(train)
    errors = np.square(var.predict(test) - test)[2:].mean(axis=0)
    np.testing.assert_allclose(errors, [1, 0.25, 0.25], rtol=0.15)  # the variance of the noise


def test_var_finds_no_links_in_noise():
    X = np.random.RandomState(0).normal(size=(500, 4))
    var = VARDiscoverer(n_lags=3).fit(X)
    assert not var.adjacency_.any()
    np.testing.assert_allclose(var.predict(X)[3:], np.tile(X[3:].mean(axis=0), (497, 1)))


def test_var_forecasts_windows_as_it_forecasts_series():
    X = make_chain(50)
    var = VARDiscoverer(n_lags=2).fit(X)
    forecast = var.predict(X)
    windows = np.stack([X[t - 2 : t] for t in range(2, 50)])
    np.testing.assert_allclose(var.forecast_windows(windows), forecast[2:])
    np.testing.assert_allclose(forecast[:2], np.tile(X.mean(axis=0), (2, 1)))


def test_var_takes_panels_and_keeps_their_series_apart():
    panel = make_chain(400).reshape(4, 100, 3)
    var = VARDiscoverer(n_lags=2).fit(panel)
    forecast = var.predict(panel)
    assert forecast.shape == panel.shape
    for series, part in zip(panel, forecast):
        np.testing.assert_allclose(var.predict(series), part)
    far = panel + 1e3 * np.arange(4)[:, None, None]  # a window over a seam would see 1000
    assert np.abs(VARDiscoverer(n_lags=2).fit(panel[:, ::-1]).coef_).max() < 2
    assert np.abs(clone(var).fit(far - far.mean(axis=1, keepdims=True)).coef_).max() < 2


def test_var_of_constant_channels_and_few_rows():
    X = np.column_stack([make_chain(12), np.ones(12)])
    var = VARDiscoverer(n_lags=4).fit(X)
    assert np.isfinite(var.predict(X)).all()
    assert not var.adjacency_[3].any()
    with pytest.raises(ValueError, match="at least 6 time steps"):
        VARDiscoverer(n_lags=4).fit(X[:5])


# --------------------------------------------------------------------- what CAROTS asks of one


class Doubler:
    """Forecasts twice the row before; has but the least that a discoverer needs."""

    def fit(self, X, y=None):
        self.adjacency_ = np.eye(X.shape[-1])
        return self

    def predict(self, X):
        return 2 * np.vstack([X[:1], X[:-1]])


def test_forecast_of_windows_by_a_discoverer_that_knows_series_only():
    windows = np.random.RandomState(0).normal(size=(7, 4, 3))
    model = CausalModel(Doubler().fit(windows[0]), 4, 3)
    np.testing.assert_allclose(model.forecast(windows), 2 * windows[:, -2])
    assert model.adjacency.dtype == bool


def test_forecast_of_windows_ignores_their_last_row():
    windows = np.random.RandomState(0).normal(size=(7, 5, 3)).astype(np.float32)
    other = windows.copy()
    other[:, -1] = 9
    for n_lags in (2, 4):
        model = CausalModel(VARDiscoverer(n_lags).fit(make_chain(100)), 5, 3)
        np.testing.assert_array_equal(model.forecast(windows), model.forecast(other))
        series = np.vstack([windows[0], windows[0]])
        np.testing.assert_allclose(
            model.forecast(windows[:1])[0], model.discoverer.predict(series)[4], rtol=1e-5
        )


def test_squared_errors_of_the_last_rows():
    panel = np.random.RandomState(0).normal(size=(2, 6, 3))
    model = CausalModel(Doubler().fit(panel), 3, 3)
    errors = model.squared_errors(panel)
    assert errors.shape == (2, 4, 3)
    np.testing.assert_allclose(errors, (2 * panel[:, 1:-1] - panel[:, 2:]) ** 2)


def test_negatives_are_farther_than_positives_from_what_they_were_made_of():
    """On a tight chain the preserving copy keeps the coupling, the disturbing one breaks it."""
    X = make_chain(400)
    X = torch.tensor((X - X.mean(axis=0)) / X.std(axis=0), dtype=torch.float32)
    model = CausalModel(VARDiscoverer(n_lags=1).fit(X.numpy()), 2, 3)
    windows = X.unfold(0, 2, 1).mT
    augmenter = make_augmenter(model.adjacency, model.forecast, bias_values=(1.0,), n_causes=3)

    def misfit(windows):
        forecast = model.forecast(windows.numpy())
        return F.mse_loss(torch.tensor(forecast).float(), windows[:, -1]).item()

    preserved = np.mean([misfit(augmenter.preserve(windows)) for _ in range(10)])
    disturbed = np.mean([misfit(augmenter.disturb(windows)) for _ in range(10)])
    assert preserved < misfit(windows) < disturbed
