"""The pure functions of the two sides: what clients send, what the server makes of it."""

import numpy as np
import pytest
from scipy import linalg

from skicml.cluster import LocalBackend, client_statistics
from skicml.cluster._federated import RELEASES, broadcast_of, server_update
from skicml.privacy import NoiseMechanism
from tests.cluster.federated_helpers import CLIENT_CLIP, NORM, ROW_SENSITIVITY, state_with

STEPS = list(RELEASES)


def random_broadcast(rng, n_features=4, n_clusters=3, n_points=7, clip_norm=2.0, margin=1.0):
    """A broadcast for every step, with a clip norm that many standard normal rows exceed."""
    components = linalg.qr(rng.normal(size=(n_features, 2)), mode="economic")[0].T
    common = {"clip_norm": np.array(clip_norm)}
    projected = common | {"components": components}
    return {
        "subspace": common,
        "weights": projected | {"points": rng.normal(size=(n_points, 2))},
        "centers": projected
        | {"points": rng.normal(size=(n_clusters, 2)), "margin": np.array(margin)},
        "lloyd": common | {"centers": rng.normal(size=(n_clusters, n_features))},
    }


def with_client_bounds(step, broadcast):
    return broadcast | {"client_bounds": np.array([CLIENT_CLIP[name] for name in RELEASES[step]])}


# --------------------------------------------------------------------------------------
# Client side


def test_statistics_of_three_rows():
    X = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, -1.0]])  # the second has norm 5, clipped to 2
    clipped = np.array([[1.0, 0.0], [1.2, 1.6], [0.0, -1.0]])
    common = {"clip_norm": np.array(2.0)}
    got = client_statistics("subspace", X, common)
    np.testing.assert_allclose(got["subspace"], clipped.T @ clipped)
    axis = common | {"components": np.array([[1.0, 0.0]])}  # project to the first coordinate
    got = client_statistics("weights", X, axis | {"points": np.array([[0.0], [1.1], [9.0]])})
    np.testing.assert_array_equal(got["weights"], [1, 2, 0])
    points = {"points": np.array([[0.0], [1.5]])}
    got = client_statistics("centers", X, axis | points | {"margin": np.array(1.0)})
    np.testing.assert_allclose(got["init_sums"], [clipped[2], clipped[0] + clipped[1]])
    np.testing.assert_array_equal(got["init_counts"], [1, 2])
    got = client_statistics("centers", X, axis | points | {"margin": np.array(1 / 3)})
    np.testing.assert_allclose(got["init_sums"], [clipped[2], clipped[1]])  # 0.5 > 1.0 / 3
    np.testing.assert_array_equal(got["init_counts"], [1, 1])
    got = client_statistics("lloyd", X, common | {"centers": np.array([[0.0, -1.0], [1.0, 1.0]])})
    np.testing.assert_allclose(got["lloyd_sums"], [clipped[2], clipped[0] + clipped[1]])
    np.testing.assert_array_equal(got["lloyd_counts"], [1, 2])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bounded", [False, True])
def test_every_step_clips_first(step, bounded):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50, 4)) * 3
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    assert (norms > 2).any()
    broadcast = random_broadcast(rng, margin=0.6)[step]
    if bounded:
        broadcast = with_client_bounds(step, broadcast)
    clipped = X * np.minimum(1, 2 / norms)
    got, expected = (client_statistics(step, rows, broadcast) for rows in (X, clipped))
    for name in RELEASES[step]:
        np.testing.assert_allclose(got[name], expected[name], atol=1e-12)


def test_client_level_statistics_are_means_indicators_and_scaled_as_a_whole():
    X = np.array([[1.0, 0.0], [0.8, 0.0], [0.0, 3.0]])
    broadcast = {
        "clip_norm": np.array(10.0),
        "components": np.eye(2),
        "points": np.array([[1.0, 0.0], [0.0, 3.0], [-9.0, -9.0]]),
        "margin": np.array(1.0),
        "client_bounds": np.array([1.0, 0.5]),
    }
    got = client_statistics("centers", X, broadcast)
    means = np.array([[0.9, 0.0], [0.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(got["init_sums"], means / np.linalg.norm(means))
    np.testing.assert_allclose(got["init_counts"], [0.25, 0.25, 0.0])
    got = client_statistics(
        "lloyd",
        X,
        {
            "clip_norm": np.array(10.0),
            "centers": broadcast["points"],
            "client_bounds": np.array([np.inf, 1.5]),
        },
    )
    np.testing.assert_allclose(got["lloyd_sums"], [[1.8, 0], [0, 3], [0, 0]])  # sums, not means
    np.testing.assert_allclose(got["lloyd_counts"], [1.0, 0.5, 0.0])


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bounded", [False, True])
def test_a_client_without_rows_sends_zeros(step, bounded):
    broadcast = random_broadcast(np.random.default_rng(0), margin=0.5)[step]
    if bounded:
        broadcast = with_client_bounds(step, broadcast)
    for value in client_statistics(step, np.empty((0, 4)), broadcast).values():
        assert not value.any()


def test_client_statistics_refuse_bad_input():
    with pytest.raises(ValueError, match="step must be one of"):
        client_statistics("votes", np.eye(2), {"clip_norm": np.array(1.0)})
    with pytest.raises(ValueError, match="NaN"):
        client_statistics("subspace", [[np.nan, 1.0]], {"clip_norm": np.array(1.0)})
    for bad in (0.0, -1.0, np.nan):  # a bound that would not bound
        with pytest.raises(ValueError, match="clip_norm of the broadcast must be positive"):
            client_statistics("subspace", np.eye(2), {"clip_norm": np.array(bad)})
        bounds = {"clip_norm": np.array(1.0), "client_bounds": np.array([bad])}
        with pytest.raises(ValueError, match="client_bounds of the broadcast must be positive"):
            client_statistics("subspace", np.eye(2), bounds)


def test_local_backend_checks_its_input():
    totals, _ = LocalBackend([[3, 4], [0, 1]]).sum_over_clients(
        "subspace", {"clip_norm": np.array(9.0)}
    )
    np.testing.assert_array_equal(totals["subspace"], [[9, 12], [12, 17]])
    with pytest.raises(ValueError, match="X contains NaN"):
        LocalBackend([[np.nan, 1.0]])
    with pytest.raises(ValueError, match="groups contains NaN"):
        LocalBackend(np.eye(3), [0.0, np.nan, np.nan])
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[3, 9\]"):
        LocalBackend(np.eye(3), np.eye(3))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("margin", [1.0, 0.5])
def test_local_backend_is_the_sum_over_clients(step, bounded, margin):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 4)) * 2
    groups = rng.choice(["oslo", "rome", "lima", "kyiv"], p=[0.6, 0.3, 0.09, 0.01], size=300)
    broadcast = random_broadcast(rng, margin=margin)[step]
    if bounded:
        broadcast = with_client_bounds(step, broadcast)
    totals, n_clients = LocalBackend(X, groups).sum_over_clients(step, broadcast)
    assert n_clients == 4
    clients = [client_statistics(step, X[groups == name], broadcast) for name in np.unique(groups)]
    assert totals.keys() == set(RELEASES[step])
    for name, total in totals.items():
        np.testing.assert_allclose(total, sum(client[name] for client in clients), atol=1e-12)


def test_local_backend_without_groups_has_a_client_a_row():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(20, 4)) * 2
    for step, broadcast in random_broadcast(rng).items():
        broadcast = with_client_bounds(step, broadcast)
        totals, n_clients = LocalBackend(X).sum_over_clients(step, broadcast)
        expected, _ = LocalBackend(X, np.arange(20)).sum_over_clients(step, broadcast)
        assert n_clients == 20
        for name in totals:
            np.testing.assert_allclose(totals[name], expected[name])


# --------------------------------------------------------------------------------------
# Sensitivity by construction: what a neighbour changes, in the stated norm


def change(name, step, X, neighbour, broadcast, groups=None, neighbour_groups=None):
    totals, _ = LocalBackend(X, groups).sum_over_clients(step, broadcast)
    others, _ = LocalBackend(neighbour, neighbour_groups).sum_over_clients(step, broadcast)
    return np.linalg.norm((totals[name] - others[name]).ravel(), NORM[name])


@pytest.mark.parametrize("step", STEPS)
def test_one_row_changes_no_more_than_the_sensitivity(step):
    rng = np.random.default_rng(7)
    for _ in range(40):
        D = rng.uniform(0.5, 4)
        broadcast = random_broadcast(rng, clip_norm=D, margin=rng.choice([1.0, 0.4]))[step]
        X = rng.normal(size=(rng.integers(1, 30), 4)) * rng.uniform(0.1, 5)
        row = rng.normal(size=(1, 4)) * rng.choice([0.1, 1, 100])
        for name in RELEASES[step]:
            bound = ROW_SENSITIVITY[name](D) * (1 + 1e-9)
            assert change(name, step, X, np.vstack([X, row]), broadcast) <= bound


@pytest.mark.parametrize("step", STEPS)
def test_one_client_changes_no_more_than_its_bound(step):
    rng = np.random.default_rng(8)
    for _ in range(40):
        broadcast = with_client_bounds(
            step, random_broadcast(rng, clip_norm=4.0, margin=rng.choice([1.0, 0.4]))[step]
        )
        X = rng.normal(size=(25, 4)) * rng.uniform(0.5, 3)
        groups = rng.integers(4, size=25)
        newcomer = rng.normal(size=(rng.integers(1, 60), 4)) * rng.uniform(0.1, 10)
        for name in RELEASES[step]:
            got = change(
                name,
                step,
                X,
                np.vstack([X, newcomer]),
                broadcast,
                groups,
                np.append(groups, np.full(len(newcomer), 9)),
            )
            assert got <= CLIENT_CLIP[name] * (1 + 1e-9)


@pytest.mark.parametrize("name", list(NORM))
def test_the_row_sensitivity_is_reached(name):
    """So a smaller one, such as the clip norm itself for the outer products, would be wrong."""
    step = next(step for step in STEPS if name in RELEASES[step])
    rng = np.random.default_rng(9)
    broadcast = random_broadcast(rng, clip_norm=11.0)[step]
    X = rng.normal(size=(10, 4))
    row = np.array([[0.0, 500.0, 0.0, 0.0]])
    got = change(name, step, X, np.vstack([X, row]), broadcast)
    assert got == pytest.approx(ROW_SENSITIVITY[name](11.0))


def test_the_client_bound_is_reached():
    rng = np.random.default_rng(10)
    X = rng.normal(size=(10, 4))
    crowd = np.vstack([X, rng.normal(size=(500, 4)) * 10])
    groups, crowd_groups = np.zeros(10), np.append(np.zeros(10), np.ones(500))
    for step, broadcast in random_broadcast(rng, clip_norm=11.0).items():
        broadcast = with_client_bounds(step, broadcast)
        for name in RELEASES[step]:
            got = change(name, step, X, crowd, broadcast, groups, crowd_groups)
            assert got == pytest.approx(CLIENT_CLIP[name])


def test_released_triangle_of_an_outer_product_is_within_its_norm():
    rng = np.random.default_rng(0)
    for x in rng.normal(size=(50, 5)):
        triangle = np.outer(x, x)[np.triu_indices(5)]
        assert np.linalg.norm(triangle) <= x @ x * (1 + 1e-12)


# --------------------------------------------------------------------------------------
# Server side


def test_subspace_is_spanned_by_the_top_eigenvectors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4)) * [1.0, 9.0, 3.0, 0.1]
    state = server_update("subspace", {"subspace": X.T @ X}, state_with(n_clusters=2))
    np.testing.assert_allclose(state.components @ state.components.T, np.eye(2), atol=1e-12)
    _, _, Vt = np.linalg.svd(X)
    np.testing.assert_allclose(state.components.T @ state.components, Vt[:2].T @ Vt[:2], atol=1e-12)
    np.testing.assert_allclose(np.abs(state.components[0] @ Vt[0]), 1)  # the largest comes first


def test_more_clusters_than_features_keep_all_directions():
    state = server_update("subspace", {"subspace": np.eye(4)}, state_with(n_clusters=9))
    np.testing.assert_allclose(state.components.T @ state.components, np.eye(4), atol=1e-12)


def test_subspace_noise_is_symmetric_with_equal_variance():
    noisy = {"subspace": NoiseMechanism("subspace", "gaussian", 3.0)}
    state = state_with(mechanisms=noisy)
    draws = np.array(
        [
            server_update("subspace", {"subspace": np.zeros((4, 4))}, state).released["subspace"]
            for _ in range(3000)
        ]
    )
    np.testing.assert_array_equal(draws, draws.transpose(0, 2, 1))
    np.testing.assert_allclose(draws.std(axis=0), 3.0, rtol=0.1)
    assert abs(np.corrcoef(draws[:, 0, 1], draws[:, 0, 0])[0, 1]) < 0.1


def test_votes_weigh_the_kmeans_and_few_votes_are_dropped():
    points = np.array([[0.0, 0], [0.2, 0], [5, 0], [5.4, 0], [99, 0], [98, 0]])
    state = state_with(server_data=points, n_clusters=2, components=np.eye(2))
    votes = np.array([30.0, 10.0, 40.0, 40.0, 4.9, -7.0])
    state = server_update("weights", {"weights": votes}, state)
    centers = state.projected_centers[np.argsort(state.projected_centers[:, 0])]
    np.testing.assert_allclose(centers, [[0.05, 0], [5.2, 0]])
    np.testing.assert_array_equal(state.server_weights, votes)


def test_restarts_find_better_projected_centres():
    points = np.random.default_rng(0).uniform(size=(60, 2))

    def mean_cost(n_init):
        costs = []
        for seed in range(5):
            state = state_with(
                server_data=points,
                n_clusters=8,
                components=np.eye(2),
                n_init=n_init,
                rng=np.random.default_rng(seed),
            )
            state = server_update("weights", {"weights": np.full(60, 9.0)}, state)
            squares = (points[:, np.newaxis] - state.projected_centers) ** 2
            costs.append(squares.sum(axis=2).min(axis=1).sum())
        return np.mean(costs)

    assert mean_cost(20) < 0.99 * mean_cost(1)


@pytest.mark.parametrize(
    ("votes", "threshold"), [([6.0, 3.0, 2.0, 1.0], "2"), ([-1.0, -2.0, -3.0, -4.0], "-3")]
)
def test_threshold_is_lowered_when_too_few_points_are_left(votes, threshold):
    points = np.array([[0.0, 0], [1, 0], [0, 1], [50, 50]])
    state = state_with(server_data=points, n_clusters=3, components=np.eye(2))
    with pytest.warns(UserWarning, match=f"Fewer than n_clusters=3 .* lowered to {threshold}"):
        state = server_update("weights", {"weights": np.array(votes)}, state)
    got = {tuple(np.round(center, 9)) for center in state.projected_centers}
    assert got == {(0, 0), (1, 0), (0, 1)}


@pytest.mark.parametrize("step", ["centers", "lloyd"])
def test_centres_with_a_noisy_count_below_one_stay(step):
    """No division by a count near 0, nor by a negative one."""
    previous = np.arange(12.0).reshape(3, 4)
    state = state_with(projected_centers=previous[:, :3], centers=previous)
    sums, counts = np.full((3, 4), 10.0), np.array([0.999, -3.0, 4.0])
    totals = dict(zip(RELEASES[step], (sums, counts)))
    centers = server_update(step, totals, state).centers
    kept = previous if step == "lloyd" else np.hstack([previous[:, :3], np.zeros((3, 1))])
    np.testing.assert_allclose(centers, [kept[0], kept[1], np.full(4, 2.5)])


@pytest.mark.parametrize("step", STEPS)
def test_wrong_totals_name_the_shapes(step):
    state = state_with(projected_centers=np.zeros((3, 3)), centers=np.zeros((3, 4)))
    with pytest.raises(ValueError, match=rf"step '{step}' the backend must return .* got \{{\}}"):
        server_update(step, {}, state)
    wrong = {name: np.zeros((2, 2)) for name in RELEASES[step]}
    with pytest.raises(ValueError, match=r"got .*\(2, 2\)"):
        server_update(step, wrong, state)


@pytest.mark.parametrize("step", STEPS)
def test_totals_that_are_not_finite_are_refused(step):
    state = state_with(projected_centers=np.zeros((3, 3)), centers=np.zeros((3, 4)))
    shapes = {"subspace": [(4, 4)], "weights": [(30,)]}.get(step, [(3, 4), (3,)])
    totals = dict(zip(RELEASES[step], map(np.ones, shapes)))
    totals[RELEASES[step][0]] = np.full(shapes[0], np.nan)
    with pytest.raises(ValueError, match=f"{RELEASES[step][0]} contains NaN"):
        server_update(step, totals, state)


def test_broadcast_holds_arrays_only():
    state = state_with(
        projected_centers=np.zeros((3, 3)),
        centers=np.zeros((3, 4)),
        client_bounds=CLIENT_CLIP,
    )
    for step in STEPS:
        message = broadcast_of(step, state)
        assert all(isinstance(value, np.ndarray) for value in message.values())
        assert len(message["client_bounds"]) == len(RELEASES[step])
