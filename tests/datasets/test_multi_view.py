import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.preprocessing import minmax_scale

from skicml._views import observed_views, resolve_views
from skicml.datasets import (
    load_dermatology,
    load_leaves100,
    load_multiple_features,
    load_multiview_digits,
    make_multiview_blobs,
    make_synthetic3d,
    mask_views,
)
from skicml.metrics import clustering_accuracy_score


@pytest.mark.parametrize(
    ("load", "n_samples", "views", "n_classes"),
    [
        (load_multiple_features, 2000, [216, 76, 64, 6, 240, 47], 10),
        (load_dermatology, 358, [12, 22], 6),
        (load_multiview_digits, 1797, [64, 40, 32, 46], 10),
    ],
)
def test_loaders_agree_with_their_description(load, n_samples, views, n_classes):
    bunch = load()
    assert bunch.data.shape == (n_samples, sum(views))
    assert bunch.views == views
    assert np.unique(bunch.target).tolist() == list(range(n_classes))
    assert np.isfinite(bunch.data).all()
    frame, y = load(return_X_y=True, as_frame=True)
    blocks = resolve_views("auto", sum(views), frame.columns)
    assert [block.size for block in blocks] == views
    np.testing.assert_array_equal(frame.to_numpy(), bunch.data)
    np.testing.assert_array_equal(y, bunch.target)


@pytest.mark.parametrize("load", [load_multiple_features, load_dermatology])
def test_bundled_files_bring_their_licence(load):
    assert "CC BY 4.0" in load().DESCR


def test_kmeans_accuracy_of_the_digits_views_is_the_published_one():
    # figures known for these views: pixels .80, Fourier .64, gradients .69, projections .71
    bunch = load_multiview_digits()
    for block, known in zip(
        np.split(bunch.data, np.cumsum(bunch.views)[:-1], axis=1), (0.80, 0.64, 0.69, 0.71)
    ):
        labels = KMeans(10, n_init=10, random_state=0).fit_predict(minmax_scale(block))
        assert clustering_accuracy_score(bunch.target, labels) == pytest.approx(known, abs=0.03)


def test_external_data_say_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("SKICML_DATA", raising=False)
    with pytest.raises(OSError, match=r"SKICML_DATA to a folder.*multiview/leaves100\.npz"):
        load_leaves100()
    monkeypatch.setenv("SKICML_DATA", str(tmp_path))
    with pytest.raises(OSError, match=r"no file multiview/leaves100\.npz"):
        load_leaves100()


def test_leaves100_from_the_data_folder(data_folder):
    leaves = load_leaves100()
    assert leaves.data.shape == (1600, 192)
    assert np.bincount(leaves.target).tolist() == [16] * 100


def test_synthetic3d_has_the_stated_moments():
    X, y = make_synthetic3d(20000, random_state=0)
    np.testing.assert_allclose(X[y == 1][:, :3].mean(axis=0), [3, 4, 3], atol=0.05)
    np.testing.assert_allclose(
        np.cov(X[y == 2][:, 3:6].T),
        [[0.75, 0.1, 0.3], [0.1, 0.95, 0.35], [0.3, 0.35, 1.5]],
        atol=0.05,
    )


def test_noise_view_carries_no_cluster():
    X, y = make_multiview_blobs(600, views=(4, 4), noise_views=[1], random_state=0)
    accuracy = [
        clustering_accuracy_score(y, KMeans(3, n_init=5, random_state=0).fit_predict(view))
        for view in (X[:, :4], X[:, 4:])
    ]
    assert accuracy[0] > 0.9
    assert accuracy[1] < 0.45


@pytest.mark.parametrize("rate", [0.0, 0.5, 1.0])
def test_mask_views_keeps_one_view_a_sample(rate):
    X, _ = make_multiview_blobs(500, views=(2, 3, 1), random_state=0)
    masked = mask_views(X, (2, 3, 1), rate=rate, random_state=0)
    observed = observed_views(masked, resolve_views((2, 3, 1), 6))
    assert observed.any(axis=1).all()
    # of the rows that would have lost all three views, one view was given back
    expected = 1 - rate + rate**3 / 3
    assert observed.mean() == pytest.approx(expected, abs=0.04)
    np.testing.assert_array_equal(masked[np.isfinite(masked)], X[np.isfinite(masked)])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"views": ()}, "views must hold one or more integers"),
        ({"views": (3, 0)}, "views must hold one or more integers"),
        ({"views": (3, 2.5)}, "views must hold one or more integers"),
        ({"noise_views": [2]}, r"noise_views must hold indices in 0\.\.1, got \[2\]"),
        ({"noise_views": [-1]}, r"noise_views must hold indices in 0\.\.1"),
    ],
)
def test_bad_views_of_blobs(params, message):
    with pytest.raises(ValueError, match=message):
        make_multiview_blobs(**params)


def test_views_are_masked_in_tables_only():
    with pytest.raises(ValueError, match="Expected 2D array"):
        mask_views([1.0, 2.0], [2])
