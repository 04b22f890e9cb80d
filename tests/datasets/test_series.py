from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import odeint

from skicml.datasets import inject_anomalies, make_lorenz96, make_var_process
from skicml.datasets._series import ANOMALY_KINDS
from tests.datasets._generators import check_seed

SERIES = np.random.RandomState(0).normal(loc=3, scale=2, size=(2000, 6))
GENERATORS = [
    lambda seed: make_lorenz96(50, 5, burn_in=20, random_state=seed),
    lambda seed: make_var_process(50, 10, random_state=seed),
    lambda seed: inject_anomalies(SERIES, "collective_trend", random_state=seed),
]


@pytest.mark.parametrize("make", GENERATORS)
def test_a_seed_fixes_the_data_and_leaves_the_global_generator_alone(make):
    check_seed(make)


# --- Lorenz-96 ---------------------------------------------------------------------------


def _velocity(x, _, forcing):
    n = len(x)
    return [(x[(i + 1) % n] - x[i - 2]) * x[i - 1] - x[i] + forcing for i in range(n)]


def test_lorenz_rows_are_steps_of_the_system():
    X, _ = make_lorenz96(30, 6, forcing=9.0, step=0.05, noise=0.0, random_state=0)
    for row, after in pairwise(X):
        expected = odeint(_velocity, row, [0, 0.05], args=(9.0,))[-1]
        np.testing.assert_allclose(after, expected, atol=1e-4)


def test_lorenz_starts_near_zero_and_leaves_out_the_burn_in():
    options = {"n_features": 5, "noise": 0.0, "random_state": 0}
    whole, _ = make_lorenz96(60, burn_in=0, **options)
    assert 0 < np.abs(whole[0]).max() < 0.05
    rest, _ = make_lorenz96(40, burn_in=20, **options)
    np.testing.assert_allclose(rest, whole[20:], atol=1e-8)


def test_lorenz_noise_is_on_the_observations_alone():
    clean, _ = make_lorenz96(1000, 6, noise=0.0, random_state=0)
    noisy, _ = make_lorenz96(1000, 6, noise=0.5, random_state=0)
    assert (noisy - clean).std() == pytest.approx(0.5, rel=0.05)
    assert 3 < clean.std() < 5


def test_lorenz_graph_is_where_the_velocity_depends_on():
    _, graph = make_lorenz96(1, 9, random_state=0)
    x = np.random.RandomState(0).normal(size=9)
    base = np.array(_velocity(x, 0, 10.0))
    for cause in range(9):
        moved = x.copy()
        moved[cause] += 1.0
        changed = np.array(_velocity(moved, 0, 10.0)) != base
        np.testing.assert_array_equal(graph[cause], changed)
    assert (graph.sum(axis=0) == 4).all()
    assert not np.array_equal(graph, graph.T)  # so orientation can be told


# --- VAR ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_features", "n_lags"), [(16, 3), (10, 1), (25, 2)])
def test_var_coefficients_of_the_paper(n_features, n_lags):
    _, graph, coef = make_var_process(1, n_features, n_lags=n_lags, random_state=0)
    assert coef.shape == (n_lags, n_features, n_features)
    for other in coef[1:]:
        np.testing.assert_array_equal(other, coef[0])
    unit = coef[0].max() / 3
    np.testing.assert_allclose(np.diag(coef[0]), 3 * unit)
    off_diagonal = coef[0][~np.eye(n_features, dtype=bool)]
    assert set(np.round(off_diagonal / unit, 9)) <= {0.0, 1.0}
    n_causes = max(int(0.2 * n_features), 1)  # of each effect, itself included
    assert (graph.sum(axis=0) == n_causes).all()
    np.testing.assert_array_equal(graph, coef[0] != 0)


def _radius(coef):
    n_lags, n_features, _ = coef.shape
    companion = np.zeros((n_lags * n_features, n_lags * n_features))
    for lag in range(n_lags):
        block = slice(lag * n_features, (lag + 1) * n_features)
        companion[:n_features, block] = coef[lag].T
        if lag:
            before = slice((lag - 1) * n_features, lag * n_features)
            companion[block, before] = np.eye(n_features)
    return np.abs(np.linalg.eigvals(companion)).max()


def test_var_is_shrunk_as_often_as_needed_and_no_more():
    _, _, coef = make_var_process(1, 16, random_state=0)
    assert _radius(coef) <= 0.97
    shrunk = coef * 3 / coef[0, 0, 0]  # 3 on the diagonal, before any shrinking
    n_steps = 0
    while (radius := _radius(shrunk)) > 0.97:
        shrunk = shrunk * 0.7 / radius
        n_steps += 1
    assert n_steps > 1
    np.testing.assert_allclose(coef, shrunk)


def test_var_follows_its_coefficients_cause_to_effect():
    coef = np.zeros((2, 3, 3))
    coef[0, 0, 1], coef[1, 1, 2] = 0.8, 0.7  # 0 -> 1 after one step, 1 -> 2 after two
    X, graph, returned = make_var_process(4000, coef=coef, noise=1.0, random_state=0)
    np.testing.assert_array_equal(returned, coef)
    assert graph.sum() == 2
    assert graph[0, 1]
    assert graph[1, 2]
    residual = X[2:] - X[1:-1] @ coef[0] - X[:-2] @ coef[1]
    assert residual.std() == pytest.approx(1.0, rel=0.05)
    assert abs(np.corrcoef(residual[1:, 1], X[2:-1, 0])[0, 1]) < 0.05
    assert np.corrcoef(X[1:, 1], X[:-1, 0])[0, 1] > 0.5
    assert np.corrcoef(X[2:, 2], X[:-2, 1])[0, 1] > 0.5


def test_var_has_no_start_up_phase():
    """The first row already varies as the process does: rows before it are left out."""
    coef = [0.9 * np.eye(1)]
    rows = [make_var_process(1, coef=coef, noise=1.0, random_state=seed) for seed in range(400)]
    firsts = [X[0, 0] for X, _, _ in rows]
    assert np.std(firsts) == pytest.approx(1 / np.sqrt(1 - 0.81), rel=0.12)


@pytest.mark.parametrize(("n_features", "low", "high"), [(16, 0.2, 0.4), (128, 0.0, 0.03)])
def test_shrinking_leaves_little_to_learn_in_many_channels(n_features, low, high):
    """Why the paper's 128 channels are no evidence of causal learning."""
    X, _, coef = make_var_process(4000, n_features, random_state=0)
    forecast = sum(X[3 - k : -k] @ coef[k - 1] for k in (1, 2, 3))
    explained = 1 - np.mean((X[3:] - forecast) ** 2) / np.var(X)
    assert low <= explained <= high


# --- anomalies ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ANOMALY_KINDS)
def test_only_the_labelled_rows_of_the_named_channels_change(kind):
    X, labels, channels = inject_anomalies(
        SERIES, kind, n_channels=2, fraction=0.05, random_state=0
    )
    changed = X != SERIES
    assert list(channels) == sorted(set(channels))
    assert len(channels) == 2
    assert not changed[:, np.setdiff1d(np.arange(6), channels)].any()
    assert not changed[labels == 0].any()
    assert labels.sum() == 100
    # The trend starts with 0: each segment's first row is anomalous by position alone.
    share = changed[labels == 1][:, channels].mean()
    assert share == pytest.approx(0.9 if kind == "collective_trend" else 1.0)


def test_collective_anomalies_are_segments_that_do_not_overlap():
    for seed in range(20):
        _, labels, _ = inject_anomalies(
            SERIES[:100], "collective_global", fraction=0.5, segment_length=7, random_state=seed
        )
        assert labels.sum() == 7 * round(50 / 7)
        edges = np.flatnonzero(np.diff(np.r_[0, labels, 0]))
        lengths = np.diff(edges)[::2]
        assert (lengths % 7 == 0).all()  # segments may touch


def test_every_row_can_become_anomalous():
    hits = sum(
        inject_anomalies(SERIES[:40], "collective_trend", fraction=0.25, random_state=seed)[1]
        for seed in range(300)
    )
    assert hits.min() > 0
    assert hits[0] < hits[20]


def test_point_global():
    X, labels, (channel,) = inject_anomalies(SERIES, "point_global", magnitude=3, random_state=0)
    column = SERIES[:, channel]
    np.testing.assert_allclose(X[labels == 1, channel], column.mean() + 3 * column.std())


def test_point_contextual():
    X, labels, (channel,) = inject_anomalies(
        SERIES[:200], "point_contextual", magnitude=-1.5, fraction=0.5, random_state=0
    )
    for row in np.flatnonzero(labels):
        around = SERIES[:200][max(row - 5, 0) : row + 5, channel]
        assert X[row, channel] == pytest.approx(around.mean() - 1.5 * around.std())
    assert labels[:5].any()  # also where the past is short


def test_collective_trend():
    X, labels, _ = inject_anomalies(
        SERIES, "collective_trend", n_channels=6, fraction=0.05, random_state=0
    )
    slopes = []
    for start in np.flatnonzero(labels)[::10]:
        added = (X - SERIES)[start : start + 10]
        slopes.append(added[1])
        np.testing.assert_allclose(added, added[1] * np.arange(10)[:, None], atol=1e-12)
    np.testing.assert_allclose(np.abs(slopes), 2.0)
    signs = np.sign(slopes)
    assert 0.2 < (signs > 0).mean() < 0.8
    assert (signs[:, 0] != signs[:, 1]).any()  # drawn for each channel


def test_collective_global_is_the_same_wave_everywhere():
    X, labels, channels = inject_anomalies(
        SERIES, "collective_global", n_channels=2, random_state=0
    )
    rows = np.flatnonzero(labels)
    wave = sum(3 / (2 * k + 1) * np.sin(2 * np.pi * 0.04 * (2 * k + 1) * rows) for k in range(5))
    for channel in channels:
        np.testing.assert_allclose(X[rows, channel], wave)


def test_float32_stays_and_the_input_is_left_alone():
    narrow = SERIES.astype(np.float32)
    before = narrow.copy()
    X, _, _ = inject_anomalies(narrow, "collective_trend", random_state=0)
    assert X.dtype == np.float32
    np.testing.assert_array_equal(narrow, before)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_lorenz96(10, 3), r"'n_features' .* \[4, inf\). Got 3"),
        (lambda: make_var_process(10, edge_fraction=1.5), r"'edge_fraction' .* \[0.0, 1.0\]"),
        (lambda: make_var_process(10, coef=np.eye(2)), r"coef must have shape .* \(2, 2\)"),
        (lambda: make_var_process(10, coef=np.ones((1, 2, 3))), "coef must have shape"),
        (lambda: make_var_process(10, coef=[np.eye(2)]), "not stable.* radius 1"),
        (lambda: inject_anomalies(SERIES, "spike"), "'kind' .* Got 'spike'"),
        (lambda: inject_anomalies(SERIES, n_channels=7), r"n_channels must be in 1\.\.6, got 7"),
        (lambda: inject_anomalies(SERIES, fraction=0.0), r"'fraction' .* \(0.0, 0.5\]"),
        (
            lambda: inject_anomalies(SERIES, "collective_trend", segment_length=0),
            "'segment_length' parameter",
        ),
        (lambda: inject_anomalies(SERIES[:40], "collective_trend"), "too short"),
        (lambda: inject_anomalies(SERIES[0]), "Expected 2D array"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()
