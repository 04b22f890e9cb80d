import numpy as np
import pytest

from skicml.datasets import make_federated_mixture


def small(**changes):
    settings = {
        "n_clients": 6,
        "n_samples_per_client": 500,
        "n_clusters": 3,
        "n_features": 4,
        "random_state": 0,
    }
    return make_federated_mixture(**(settings | changes))


def test_shapes_and_labels():
    data = small(n_server_per_cluster=7, n_server_outliers=11)
    assert data.data.shape == (3000, 4)
    assert data.target.shape == data.groups.shape == (3000,)
    np.testing.assert_array_equal(np.bincount(data.groups), [500] * 6)
    assert data.server_data.shape == (3 * 7 + 11, 4)
    np.testing.assert_array_equal(np.unique(data.server_target), [-1, 0, 1, 2])
    assert (data.server_target == -1).sum() == 11
    assert data.centers.shape == (3, 4)


def test_moments_of_the_mixture():
    data = small(n_samples_per_client=5000, variance=0.25)
    assert ((data.centers >= 0) & (data.centers <= 1)).all()
    for k in range(3):
        rows = data.data[data.target == k]
        np.testing.assert_allclose(rows.mean(axis=0), data.centers[k], atol=0.03)
        np.testing.assert_allclose(np.cov(rows.T), 0.25 * np.eye(4), atol=0.02)


def test_outliers_are_in_the_cube_and_the_others_around_their_centre():
    data = small(variance=1e-6, n_server_outliers=500)
    outliers = data.server_data[data.server_target == -1]
    assert ((outliers >= 0) & (outliers <= 1)).all()
    np.testing.assert_allclose(outliers.mean(axis=0), 0.5, atol=0.06)
    related = data.server_target >= 0
    np.testing.assert_allclose(
        data.server_data[related], data.centers[data.server_target[related]], atol=0.01
    )


def test_concentration_makes_clients_differ():
    def spread(concentration):
        data = small(concentration=concentration)
        shares = [np.bincount(data.target[data.groups == g], minlength=3) / 500 for g in range(6)]
        return np.std(shares, axis=0).mean()

    assert spread(None) < spread(5.0) < spread(0.1)
    assert spread(None) < 0.04


def test_same_seed_same_data_and_no_global_state():
    before = np.random.get_state()[1].copy()
    first, second, other = small(), small(), small(random_state=1)
    np.testing.assert_array_equal(first.data, second.data)
    np.testing.assert_array_equal(first.server_data, second.server_data)
    assert not np.array_equal(first.data, other.data)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"variance": -1.0}, "'variance' parameter"),
        ({"concentration": 0.0}, "'concentration' parameter"),
    ],
)
def test_bad_parameters(change, match):
    with pytest.raises(ValueError, match=match):
        small(**change)
