"""DSVC: the stream of views, its knowledge base, and the guidance."""

import copy
import pickle
import types
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import NotFittedError
from sklearn.metrics.cluster import contingency_matrix
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, minmax_scale
from torch.nn import functional as F

from skicml.cluster import DSVC
from skicml.datasets import (
    load_leaves100,
    load_multiple_features,
    load_multiview_digits,
    make_multiview_blobs,
)
from skicml.metrics import clustering_accuracy_score, match_labels
from tests.cluster._dsvc_data import TINY, WIDTHS, blocks_of, three_views

# Fewer epochs than the default, enough for the claims.
SHORT = {"pretrain_epochs": 15, "max_epochs": 10}


def stream_of(estimator, blocks):
    for block in blocks:
        estimator.partial_fit(block)
    return estimator


def accuracies(y, labelings):
    return [clustering_accuracy_score(y, labels) for labels in labelings]


def one_view_accuracies(estimator, y):
    return accuracies(y, [partition.argmax(axis=1) for partition in estimator.view_partitions_])


def late_fusion(blocks, n_clusters, seed):
    """The baseline: k-means a view, votes matched to the sum of the votes so far."""
    votes = 0
    for block in blocks:
        kmeans = KMeans(n_clusters, n_init=5, random_state=seed).fit(minmax_scale(block))
        vote = np.eye(n_clusters)[kmeans.labels_]
        votes = votes + (vote if np.isscalar(votes) else vote[:, match_labels(votes.T @ vote)])
    return votes.argmax(axis=1)


@pytest.fixture(scope="module")
def blobs():
    return three_views()


@pytest.fixture(scope="module")
def fitted(blobs):
    return DSVC(3, views=WIDTHS, **TINY).fit(blobs[0])


@pytest.fixture(scope="module")
def mfeat():
    data = load_multiple_features()
    return data, blocks_of(data.data, data.views)


@pytest.fixture(scope="module")
def mfeat_streams(mfeat):
    data, _ = mfeat
    return [
        DSVC(10, views=data.views, random_state=seed, **SHORT).fit(data.data) for seed in range(3)
    ]


# --- the paper's claim -------------------------------------------------------------------


def test_stream_beats_late_fusion_on_mfeat(mfeat, mfeat_streams):
    data, blocks = mfeat
    ours = np.mean([accuracies(data.target, [s.labels_])[0] for s in mfeat_streams])
    votes = [late_fusion(blocks, 10, seed) for seed in range(3)]
    assert ours >= 0.94
    assert ours >= np.mean(accuracies(data.target, votes)) + 0.05


def test_accuracy_does_not_drop_from_view_to_view(mfeat, mfeat_streams):
    data, _ = mfeat
    curve = np.mean([accuracies(data.target, s.labels_per_view_) for s in mfeat_streams], axis=0)
    assert np.diff(curve).min() >= -0.03


def test_hundred_clusters(data_folder):
    data = load_leaves100()
    blocks = blocks_of(data.data, data.views)
    stream = DSVC(100, views=data.views, random_state=0, **SHORT).fit(data.data)
    ours, votes = accuracies(data.target, [stream.labels_, late_fusion(blocks, 100, 0)])
    assert ours >= votes + 0.20


def test_guidance_makes_the_later_views_better(mfeat, mfeat_streams):
    data, _ = mfeat
    gains = []
    for guided in mfeat_streams[:2]:
        off = clone(guided).set_params(guidance=0, consistency=0).fit(data.data)
        curves = [one_view_accuracies(stream, data.target) for stream in (guided, off)]
        gains.append(np.subtract(*curves)[1:].mean())
    assert np.mean(gains) >= 0.03


def test_the_stream_undoes_the_mistakes_of_a_weak_first_view(mfeat):
    data, blocks = mfeat
    weak_first = [blocks[data.view_names.index(name)] for name in ("mor", "kar", "pix", "fac")]
    stream = stream_of(DSVC(10, random_state=0, **SHORT), weak_first)
    curve = accuracies(data.target, stream.labels_per_view_)
    assert curve[0] < 0.75
    assert curve[-1] > 0.90


def test_noise_view_is_survived_and_recognised():
    digits = load_multiview_digits()
    pixels, _, gradients, projections = blocks_of(digits.data, digits.views)
    noise = np.random.RandomState(0).standard_normal((len(pixels), 50))
    views = [pixels, noise, gradients, projections]
    stream = stream_of(DSVC(10, random_state=0, **SHORT), views)
    before, after, *_ = accuracies(digits.target, stream.labels_per_view_)
    assert after >= before - 0.03
    assert stream.view_agreement_[1] < 0.1
    assert stream.view_weights_[1] < 0.2
    assert stream.view_weights_[[0, 2, 3]].min() > 0.5


def test_rows_are_matched_by_position(mfeat):
    _, blocks = mfeat
    permuted = np.random.RandomState(0).permutation(blocks[2])
    stream = DSVC(10, random_state=0, **SHORT).partial_fit(blocks[0])
    other = copy.deepcopy(stream).partial_fit(permuted)
    stream.partial_fit(blocks[2])
    assert other.view_agreement_[1] < 0.03
    assert stream.view_agreement_[1] > 0.2


# --- the stream --------------------------------------------------------------------------


def assert_same_stream(left, right):
    arrays = "labels_ partition_ knowledge_prototypes_ view_partitions_ view_weights_"
    arrays += " view_agreement_ cluster_centers_ embedding_ labels_per_view_"
    for name in arrays.split():
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    for name in ("n_views_seen_", "n_samples_seen_", "n_features_in_"):
        assert getattr(left, name) == getattr(right, name), name
    for one, other in zip(left.nets_, right.nets_, strict=True):
        state, other_state = one.module_.state_dict(), other.module_.state_dict()
        assert all(torch.equal(state[key], other_state[key]) for key in state)


@pytest.mark.parametrize("seed", [0, np.random.RandomState(3)], ids=["int", "generator"])
def test_fit_is_a_chain_of_partial_fit(blobs, seed):
    whole = DSVC(3, views=WIDTHS, **TINY | {"random_state": copy.deepcopy(seed)}).fit(blobs[0])
    stream = DSVC(3, **TINY | {"random_state": copy.deepcopy(seed)})
    assert_same_stream(whole, stream_of(stream, blocks_of(blobs[0], WIDTHS)))
    np.testing.assert_array_equal(whole.transform(blobs[0]), stream.transform(blobs[0]))


def test_a_stream_goes_on_after_pickling(blobs, fitted):
    stream = DSVC(3, **TINY)
    for block in blocks_of(blobs[0], WIDTHS):
        stream = pickle.loads(pickle.dumps(stream)).partial_fit(block)
    assert_same_stream(fitted, stream)


@pytest.mark.filterwarnings("error")
def test_a_stream_goes_on_from_read_only_memory(blobs, fitted, tmp_path):
    first, *others = blocks_of(blobs[0], WIDTHS)
    joblib.dump(DSVC(3, **TINY).partial_fit(first), tmp_path / "stream")
    stream = joblib.load(tmp_path / "stream", mmap_mode="r")
    assert not stream.partition_.flags.writeable
    assert_same_stream(fitted, stream_of(stream, others))


def test_shapes_and_ranges(blobs, fitted):
    n_samples = len(blobs[0])
    assert fitted.n_views_seen_ == 3
    assert fitted.n_samples_seen_ == n_samples
    assert fitted.n_features_in_ == sum(WIDTHS)
    assert fitted.embedding_.shape == (n_samples, 48)
    assert fitted.cluster_centers_.shape == (3, 48)
    assert fitted.knowledge_prototypes_.shape == (3, 16)
    np.testing.assert_allclose(np.linalg.norm(fitted.knowledge_prototypes_, axis=1), 1)
    for partition in (fitted.partition_, *fitted.view_partitions_):
        assert partition.shape == (n_samples, 3)
        np.testing.assert_allclose(partition.sum(axis=1), 1)
    norms = [np.linalg.norm(block, axis=1) for block in np.split(fitted.embedding_, 3, axis=1)]
    np.testing.assert_allclose(np.square(norms).T, np.tile(fitted.view_weights_, (n_samples, 1)))
    assert fitted.view_agreement_[0] == 1
    assert fitted.view_weights_.max() == 1
    assert [net.module_.encoder[0].in_features for net in fitted.nets_] == WIDTHS


def test_cluster_numbers_stay_over_the_stream(mfeat_streams):
    for stream in mfeat_streams:
        for before, after in zip(stream.labels_per_view_, stream.labels_per_view_[1:]):
            table = contingency_matrix(before, after)
            np.testing.assert_array_equal(match_labels(table), np.arange(10))


def test_blocks_may_be_columns_in_any_order(blobs, fitted):
    X = blobs[0]
    order = np.random.RandomState(0).permutation(X.shape[1])
    blocks = [np.argsort(order)[block] for block in blocks_of(np.arange(15)[None], WIDTHS)]
    shuffled = DSVC(3, views=[block.ravel() for block in blocks], **TINY).fit(X[:, order])
    np.testing.assert_array_equal(shuffled.labels_, fitted.labels_)
    np.testing.assert_array_equal(shuffled.transform(X[:, order]), fitted.transform(X))
    extended = shuffled.partial_fit(X[:, :3])
    assert extended.n_features_in_ == 18
    assert extended.transform(np.hstack([X[:, order], X[:, :3]])).shape == (90, 64)


def test_views_and_names_of_frames(blobs, fitted):
    pd = pytest.importorskip("pandas")
    names = [f"{view}__{i}" for view, width in zip("abc", WIDTHS) for i in range(width)]
    frame = pd.DataFrame(blobs[0], columns=names)
    auto = DSVC(3, views="auto", **TINY).fit(frame)
    assert_same_stream(auto, fitted)
    streamed = DSVC(3, **TINY)
    for view in "abc":
        streamed.partial_fit(frame.filter(regex=f"^{view}__"))
    assert list(streamed.feature_names_in_) == names
    np.testing.assert_array_equal(streamed.predict(frame), fitted.labels_)
    with pytest.raises(ValueError, match="feature names"):
        streamed.predict(frame[names[::-1]])
    streamed.partial_fit(blobs[0][:, :2])  # a view without names
    assert not hasattr(streamed, "feature_names_in_")
    assert len(streamed.get_feature_names_out()) == 64


# --- new rows ----------------------------------------------------------------------------


def test_training_rows_keep_their_labels(mfeat, mfeat_streams):
    data, _ = mfeat
    stream = mfeat_streams[0]
    assert (stream.predict(data.data) == stream.labels_).mean() > 0.999
    assert stream.labels_ is stream.labels_per_view_[-1]


def test_new_rows_find_their_clusters():
    X, y = make_multiview_blobs(400, views=[6, 4], separation=4, random_state=1)
    stream = DSVC(3, views=[6, 4], random_state=0, **SHORT).fit(X[:300])
    assert clustering_accuracy_score(y[300:], stream.predict(X[300:])) > 0.95


def test_a_feature_that_was_constant_says_nothing_about_new_rows(blobs):
    X = np.hstack([blobs[0], np.full((90, 1), 7.0)])
    stream = DSVC(3, **TINY).fit(X)
    changed = X.copy()
    changed[:, -1] = 1e6
    np.testing.assert_array_equal(stream.transform(changed), stream.transform(X))


def test_one_row_at_a_time(blobs, fitted):
    X = blobs[0]
    rows = np.vstack([fitted.transform(row[None]) for row in X])
    np.testing.assert_allclose(rows, fitted.embedding_, rtol=0, atol=1e-12)


# --- what stays of a view ----------------------------------------------------------------


def reachable_arrays(obj, seen=None):
    """All arrays and tensors that can be reached from an object, also bases of slices."""
    seen = set() if seen is None else seen
    if id(obj) in seen or isinstance(obj, (type, types.ModuleType, types.FunctionType)):
        return
    seen.add(id(obj))
    if isinstance(obj, (np.ndarray, torch.Tensor)):
        yield tuple(obj.shape)
        children = [getattr(obj, "base", None)] if isinstance(obj, np.ndarray) else []
    elif isinstance(obj, dict):
        children = obj.values()
    elif isinstance(obj, (list, tuple, set)):
        children = obj
    else:
        children = getattr(obj, "__dict__", {}).values()
    for child in children:
        yield from reachable_arrays(child, seen)


def test_no_raw_view_can_be_reached(blobs):
    rng = np.random.RandomState(0)
    n_samples, widths = 53, [37, 41]
    stream = DSVC(3, **TINY)
    for width in widths:
        stream.partial_fit(rng.standard_normal((n_samples, width)))
    found = set(reachable_arrays(stream))
    assert (n_samples, 32) in found  # the walk does find the embedding
    sizes = {int(np.prod(shape)) for shape in found}
    assert not sizes & {n_samples * 37, n_samples * 41, n_samples * 78}
    assert not any(n_samples in shape and set(widths) & set(shape) for shape in found)


def pickled_size_without_nets(stream):
    bare = copy.copy(stream)
    bare.nets_ = []
    bare._knowledge = replace(stream._knowledge, nets=[], scalers=[], blocks=[])
    return len(pickle.dumps(bare))


def test_the_size_of_a_stream_does_not_depend_on_the_width_of_its_views():
    rng = np.random.RandomState(0)
    streams = [
        stream_of(DSVC(3, **TINY), [rng.standard_normal((60, width)) for _ in range(2)])
        for width in (5, 500)
    ]
    narrow, wide = map(pickled_size_without_nets, streams)
    assert abs(narrow - wide) < 200
    # All that grows with the width: float32 weights and the scaler, not 60 rows of float64.
    growth = len(pickle.dumps(streams[1])) - len(pickle.dumps(streams[0]))
    weights = 2 * 495 * (256 + 256 + 1) * 4
    assert growth < weights + 2 * 495 * 60 * 8 / 2


def test_nets_are_trimmed(fitted):
    for net in fitted.nets_:
        assert net.optimizer_ is None
        assert net.guidance is None
        assert len(net.history) == 0
        assert not net.module_.training


def test_training_lowers_the_reconstruction_error(mfeat, mfeat_streams):
    _, blocks = mfeat
    stream = mfeat_streams[0]
    scaled = torch.as_tensor(stream._knowledge.scalers[0].transform(blocks[0])).float()
    with torch.no_grad():
        assert F.mse_loss(stream.nets_[0].module_(scaled)[1], scaled) < 0.4


# --- parameters, errors, callbacks -------------------------------------------------------


def test_no_joint_training_and_no_training_at_all(blobs):
    for epochs in ({"max_epochs": 0}, {"pretrain_epochs": 0}):
        stream = DSVC(3, views=WIDTHS, **TINY | epochs).fit(blobs[0])
        assert len(stream.labels_per_view_) == 3
    untrained = DSVC(3, views=WIDTHS, **TINY | {"pretrain_epochs": 0, "max_epochs": 0})
    assert np.isfinite(untrained.fit(blobs[0]).partition_).all()


def test_small_cases(blobs):
    X = blobs[0]
    assert set(DSVC(1, views=WIDTHS, **TINY).fit(X).labels_) == {0}
    pair = DSVC(2, views=WIDTHS, **TINY).fit(X[[0, 40]])
    assert sorted(pair.labels_) == [0, 1]
    deep = DSVC(3, hidden_layer_sizes=(8, 7), n_components=2, **TINY).fit(X)
    assert [layer.out_features for layer in deep.nets_[0].module_.encoder[:5:2]] == [8, 7, 2]
    linear = DSVC(3, hidden_layer_sizes=(), n_components=2, **TINY).fit(X)
    assert linear.embedding_.shape == (90, 2)
    assert DSVC(3, hidden_layer_sizes=9, **TINY).fit(X).n_views_seen_ == 1


def test_float32(blobs):
    X = blobs[0].astype(np.float32)
    stream = DSVC(3, views=WIDTHS, **TINY).fit(X)
    assert stream.embedding_.dtype == stream.transform(X).dtype == np.float32
    assert stream.transform(blobs[0]).dtype == np.float64


def test_another_seed_gives_another_embedding(blobs, fitted):
    other = clone(fitted).set_params(random_state=1).fit(blobs[0])
    assert not np.array_equal(other.embedding_, fitted.embedding_)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"n_clusters": 91}, r"n_samples=90 should be >= n_clusters=91"),
        ({"views": [6, 4]}, "add up to 10, but X has 15"),
        ({"views": "auto"}, "DataFrame"),
        ({"hidden_layer_sizes": (4, 0)}, "hidden_layer_sizes must be integers > 0"),
        ({"hidden_layer_sizes": (8.0,)}, "hidden_layer_sizes must be integers > 0"),
        ({"hidden_layer_sizes": ("a",)}, "hidden_layer_sizes must be integers > 0"),
        ({"hidden_layer_sizes": [[3, 4]]}, "hidden_layer_sizes must be integers > 0"),
        ({"learning_rate": 1e30}, "Lower learning_rate"),
        ({"learning_rate": 1e30, "max_epochs": 0}, "Lower learning_rate"),
    ],
)
def test_bad_parameters(blobs, params, match):
    estimator = DSVC(**{"n_clusters": 3} | TINY | params)
    with pytest.raises(ValueError, match=match):
        estimator.fit(blobs[0])
    assert not [name for name in vars(estimator) if name.endswith("_")]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_cuda_that_is_not_there(blobs):
    with pytest.raises(ValueError, match="no CUDA device"):
        DSVC(3, device="cuda", **TINY).fit(blobs[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda(blobs):
    stream = DSVC(3, views=WIDTHS, **TINY | {"device": "cuda"}).fit(blobs[0])
    assert all(p.device.type == "cpu" for net in stream.nets_ for p in net.module_.parameters())
    assert (stream.predict(blobs[0]) == stream.labels_).all()


@pytest.mark.parametrize(
    ("X", "match"),
    [
        (np.ones((89, 4)), "has 89 samples, but the views before have 90"),
        (np.full((90, 4), np.nan), "NaN"),
        (np.ones((1, 4)), "minimum of 2"),
    ],
)
def test_a_bad_view_leaves_the_stream_as_it_is(blobs, fitted, X, match):
    stream = copy.deepcopy(fitted)
    before = dict(vars(stream))
    with pytest.raises(ValueError, match=match):
        stream.partial_fit(X)
    assert vars(stream).keys() == before.keys()
    assert all(vars(stream)[name] is before[name] for name in before)
    assert_same_stream(stream, fitted)


def test_a_stream_keeps_its_numbers_of_clusters_and_components(blobs, fitted):
    for params in ({"n_clusters": 4}, {"n_components": 5}):
        stream = copy.deepcopy(fitted).set_params(**params)
        with pytest.raises(ValueError, match="cannot change within a stream"):
            stream.partial_fit(blobs[0])


def test_new_rows_need_all_views(blobs, fitted):
    with pytest.raises(ValueError, match="expecting 15 features"):
        fitted.predict(blobs[0][:, :6])
    with pytest.raises(NotFittedError):
        DSVC().get_feature_names_out()


class Watcher:
    """Callback that notes the tasks and asks to stop, or is interrupted, where it is told to."""

    def __init__(self, stop_at=(), interrupt_at=()):
        self.stop_at, self.interrupt_at = stop_at, interrupt_at
        self.tasks = []
        self.estimators = {}

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.tasks.append(context.task_name)

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.estimators[context.task_name] = fitted_estimator
        if context.task_name in self.interrupt_at:
            raise KeyboardInterrupt
        return context.task_name in self.stop_at


def watched_fit(X, **kwargs):
    watcher = Watcher(**kwargs)
    stream = DSVC(3, views=WIDTHS, **TINY).set_callbacks(watcher).fit(X)
    return stream, watcher


def test_callbacks_see_views_and_epochs(blobs):
    epochs = [f"epoch {epoch}" for epoch in range(4)]
    stream, watcher = watched_fit(blobs[0])
    assert watcher.tasks == ["fit", "view 0", *epochs, "view 1", *epochs, "view 2", *epochs]
    after_two = watcher.estimators["view 1"]
    assert after_two.n_views_seen_ == 2
    np.testing.assert_array_equal(after_two.predict(blobs[0]), stream.labels_per_view_[1])


def test_early_stop_of_epochs_and_of_the_stream(blobs):
    stream, watcher = watched_fit(blobs[0], stop_at=["epoch 0", "view 1"])
    assert watcher.tasks == ["fit", "view 0", "epoch 0", "view 1", "epoch 0"]
    assert stream.n_views_seen_ == 2
    np.testing.assert_array_equal(stream.predict(blobs[0]), stream.labels_)


def test_partial_fit_calls_back_too(blobs):
    watcher = Watcher()
    stream_of(DSVC(3, **TINY).set_callbacks(watcher), blocks_of(blobs[0], WIDTHS)[:2])
    assert [task for task in watcher.tasks if "view" in task] == ["view 0", "view 1"]


def test_an_interrupt_leaves_nothing_half_fitted(blobs):
    fresh = DSVC(3, views=WIDTHS, **TINY).set_callbacks(Watcher(interrupt_at=["view 1"]))
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(blobs[0])
    assert not [name for name in vars(fresh) if name.endswith("_")]
    stream = DSVC(3, **TINY).partial_fit(blobs[0][:, :6])
    labels = stream.labels_
    stream.set_callbacks(Watcher(interrupt_at=["epoch 3"]))
    with pytest.raises(KeyboardInterrupt):
        stream.partial_fit(blobs[0][:, 6:])
    assert stream.n_views_seen_ == 1
    assert stream.n_features_in_ == 6
    assert stream.labels_ is labels


def test_pipeline_and_grid_search(blobs):
    X, y = blobs
    pipeline = make_pipeline(MinMaxScaler(), DSVC(3, views=WIDTHS, **TINY))
    pipeline.fit(X)
    np.testing.assert_array_equal(pipeline.predict(X), pipeline[-1].labels_)

    def scorer(estimator, X, y):
        return clustering_accuracy_score(y, estimator.predict(X))

    grid = {"dsvc__temperature": [0.1, 0.2]}
    search = GridSearchCV(pipeline, grid, scoring=scorer, cv=2).fit(X, y)
    assert search.best_estimator_.predict(X).shape == y.shape
