"""DSVC: matching, weights, soft partitions and the guidance, step by step."""

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.preprocessing import normalize
from torch.nn import functional as F

from skicml.cluster import DSVC, _dsvc_torch
from skicml.cluster._dsvc import (
    _kmeans_centers,
    _updated_prototypes,
    _view_weights,
    match_partitions,
    soft_partition,
)
from skicml.cluster._dsvc_torch import Guidance
from skicml.datasets import make_multiview_blobs
from tests.cluster._dsvc_data import TINY, WIDTHS, blocks_of, three_views


@pytest.fixture(scope="module")
def blobs():
    return three_views()


# --- matching, weights, partitions in closed form ----------------------------------------


def one_hot(labels, n_clusters):
    return np.eye(n_clusters)[labels]


def softmax_rows(scores):
    powers = np.exp(scores)
    return powers / powers.sum(axis=1, keepdims=True)


def test_matching_undoes_a_renumbering():
    rng = np.random.RandomState(0)
    hard = one_hot(rng.randint(4, size=50), 4)
    renumbering = np.array([2, 0, 3, 1])
    order, agreement = match_partitions(hard, hard[:, renumbering])
    np.testing.assert_array_equal(hard[:, renumbering][:, order], hard)
    assert agreement == 1


def test_agreement_is_corrected_for_chance():
    rng = np.random.RandomState(0)
    hard = one_hot(rng.randint(4, size=5000), 4)
    assert match_partitions(hard, np.full((5000, 4), 0.25))[1] == 0
    assert match_partitions(hard, rng.permutation(hard))[1] < 0.05
    half = np.where(np.arange(5000)[:, None] < 2500, hard, 0.25)
    assert match_partitions(hard, half)[1] == pytest.approx(0.5)  # the middle of 0 and 1
    assert match_partitions(np.ones((5, 1)), np.ones((5, 1)))[1] == 1


def test_view_weights():
    lonely = np.array([[0, 0.8, 0], [0.8, 0, 0], [0, 0, 0]])
    np.testing.assert_allclose(_view_weights(lonely), [1, 1, 0.01])
    uneven = np.array([[0, 0.8, 0.4], [0.8, 0, 0.2], [0.4, 0.2, 0]])
    np.testing.assert_allclose(_view_weights(uneven), [1, 1 / 1.2, 0.6 / 1.2])
    np.testing.assert_array_equal(_view_weights(np.zeros((3, 3))), 1)
    np.testing.assert_array_equal(_view_weights(lonely[1:, 1:]), 1)


def test_soft_partition():
    distances = np.array([[0.0, 2.0], [5.0, 1.0], [3.0, 6.0]])  # margins 2, 4, 3
    expected = 1 / (1 + np.exp(-np.array([2, -4, 3]) / 1.5))
    np.testing.assert_allclose(soft_partition(distances)[:, 0], expected)
    np.testing.assert_allclose(soft_partition(7 * distances), soft_partition(distances))
    shifted = distances + np.array([[1], [2], [3]])
    np.testing.assert_allclose(soft_partition(shifted), soft_partition(distances))
    np.testing.assert_array_equal(soft_partition(np.ones((3, 2))), 0.5)  # no margin at all
    np.testing.assert_array_equal(soft_partition(np.ones((3, 1))), 1)


def test_empty_cluster_keeps_its_knowledge_prototype():
    old = np.eye(3)
    latents = normalize(np.random.RandomState(0).standard_normal((20, 3)))
    partition = np.tile([0.5, 0.5, 0.0], (20, 1))
    new = _updated_prototypes(old, partition, latents, share=0.5)
    mean = normalize(latents.mean(axis=0)[None])[0]
    np.testing.assert_array_equal(new[2], old[2])
    np.testing.assert_allclose(new[0], normalize((old[0] + mean)[None])[0])


def test_the_update_of_the_knowledge_step_by_step():
    X, _ = make_multiview_blobs(90, views=WIDTHS, noise_views=[1], random_state=0)
    stream = DSVC(3, **TINY)
    for block in blocks_of(X, WIDTHS):
        old = getattr(stream, "knowledge_prototypes_", None)
        stream.partial_fit(block)

    agreement = np.zeros((3, 3))
    for a, b in permutations(range(3), 2):
        overlap = stream.view_partitions_[a].T @ stream.view_partitions_[b] / 90
        best = max(overlap[range(3), order].sum() for order in permutations(range(3)))
        agreement[a, b] = max(0, (best - 1 / 3) / (1 - 1 / 3))
    mean = agreement.sum(axis=1) / 2
    weights = np.maximum(mean / mean.max(), 0.01)
    np.testing.assert_allclose(stream.view_weights_, weights)
    assert weights.min() < 0.9

    distances = ((stream.embedding_[:, None] - stream.cluster_centers_) ** 2).sum(axis=2)
    nearest = np.sort(distances, axis=1)
    scale = np.median(nearest[:, 1] - nearest[:, 0]) / 2
    partition = softmax_rows(-(distances - nearest[:, :1]) / scale)
    np.testing.assert_allclose(stream.partition_, partition, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(stream.labels_, partition.argmax(axis=1))

    latents = stream.embedding_[:, 32:] / np.sqrt(weights[2])
    share = weights[2] / weights.sum()
    new = normalize((1 - share) * old + share * normalize(partition.T @ latents))
    np.testing.assert_allclose(stream.knowledge_prototypes_, new, atol=1e-8)


def test_the_better_of_two_starts_of_kmeans():
    points = np.array([[0.0, 0], [0, 2], [40, 0], [40, 2], [90, 0], [90, 2]])
    means = np.array([[90.0, 1], [0, 1], [40, 1]])
    good = one_hot([1, 1, 2, 2, 0, 0], 3)
    rng = np.random.RandomState(0)
    # As good as any: the old clusters stay, in their order.
    np.testing.assert_array_equal(_kmeans_centers(points, good, 3, 10, rng), means)
    # Two true clusters merged and one split: a start from scratch undoes it.
    merged = one_hot([0, 0, 0, 0, 1, 2], 3)
    centers = _kmeans_centers(points, merged, 3, 10, rng)
    np.testing.assert_array_equal(centers[centers[:, 0].argsort()], means[means[:, 0].argsort()])


# --- guidance ----------------------------------------------------------------------------


def unit_latents(n_samples=40, n_components=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(n_samples, n_components, generator=generator))


def make_guidance(partition=None, anchors=None, **kwargs):
    params = {"history_weight": 0.5, "temperature": 0.2, "n_init": 3, "random_state": 0}
    return Guidance(3, partition=partition, anchors=anchors, **(params | kwargs))


def test_targets_without_history_are_sharpened_assignments():
    latents = unit_latents()
    guidance = make_guidance()
    guidance.start(latents)
    cosines = normalize(latents.numpy()) @ normalize(guidance.prototypes.numpy()).T
    q = np.exp(cosines / 0.2)
    q /= q.sum(axis=1, keepdims=True)
    sharp = q**2 / q.sum(axis=0)
    sharp /= sharp.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(guidance.targets(latents), sharp, rtol=1e-3, atol=1e-5)
    assert guidance.agreement == 1
    assert guidance.share == 0


def test_full_share_of_the_history_takes_its_partition():
    latents = unit_latents()
    own = make_guidance()
    own.start(latents)
    partition = F.one_hot(own.log_assign(latents).argmax(dim=1), 3).float()
    guidance = make_guidance(partition, unit_latents(3), history_weight=1.0)
    guidance.start(latents)
    guidance.share = 1.0
    np.testing.assert_array_equal(guidance.targets(latents).argmax(dim=1), partition.argmax(dim=1))
    assert guidance.targets(latents).max(dim=1).values.min() > 0.99


def test_share_of_the_history_is_its_agreement():
    latents = unit_latents()
    contradiction = torch.full((40, 3), 1 / 3)
    guidance = make_guidance(contradiction, unit_latents(3))
    guidance.start(latents)
    assert guidance.agreement == pytest.approx(0, abs=1e-6)
    assert guidance.share == pytest.approx(0, abs=1e-6)
    alone = make_guidance()
    alone.start(latents)
    assert guidance.inconsistency(latents) == pytest.approx(0, abs=1e-5)
    target = guidance.targets(latents).sort(dim=1).values
    np.testing.assert_allclose(target, alone.targets(latents).sort(dim=1).values, atol=1e-3)


def test_prototypes_are_numbered_as_in_the_history():
    latents = unit_latents()
    partition = F.softmax(3 * unit_latents(40, 3, seed=1), dim=1)
    guidance = make_guidance(partition, unit_latents(3))
    guidance.start(latents)
    renumbering = torch.tensor([2, 0, 1])
    other = make_guidance(partition[:, renumbering], unit_latents(3))
    other.start(latents)
    torch.testing.assert_close(other.prototypes, guidance.prototypes[renumbering])
    torch.testing.assert_close(other.targets(latents), guidance.targets(latents)[:, renumbering])


def test_a_view_that_agrees_in_part_step_by_step():
    latents = unit_latents()
    alone = make_guidance()
    alone.start(latents)
    own = F.one_hot(alone.log_assign(latents).argmax(dim=1), 3).float()
    partition = F.softmax(2 * own + unit_latents(40, 3, seed=1), dim=1)
    anchors = unit_latents(3, seed=2)
    guidance = make_guidance(partition, anchors)
    guidance.start(latents)
    h = guidance.share
    assert 0.1 < h < 0.4
    Z, P, H, R = (t.double().numpy() for t in (latents, guidance.prototypes, anchors, partition))

    q = softmax_rows(Z @ P.T / 0.2)
    P = normalize(P / 2 + normalize(((1 - h) * q + h * R).T @ Z) / 2)
    guidance.move(latents)
    np.testing.assert_allclose(guidance.prototypes, P, atol=1e-5)

    q = softmax_rows(Z @ P.T / 0.2)
    guide = softmax_rows((1 - h) * np.log(q + 1e-6) + h * np.log(R + 1e-3))
    target = guide**2 / guide.sum(axis=0)
    target /= target.sum(axis=1, keepdims=True)
    targets = guidance.targets(latents)
    np.testing.assert_allclose(targets, target, rtol=1e-4, atol=1e-6)

    divergence = (target * np.log(target / q)).sum(axis=1).mean()
    assert guidance.divergence(latents, targets).item() == pytest.approx(divergence, rel=1e-4)
    crossed = softmax_rows(normalize(q.T @ Z) @ H.T / 0.2)
    entropy = -np.log(np.diag(crossed)).mean()
    assert guidance.inconsistency(latents).item() == pytest.approx(h * entropy, rel=1e-4)


def test_the_joint_training_has_its_own_optimiser_at_half_the_rate(monkeypatch, blobs):
    steps = []

    class Recording(_dsvc_torch.ViewNet):
        def get_loss(self, *args, **kwargs):
            steps.append((self.guided_, self.optimizer_, self.optimizer_.param_groups[0]["lr"]))
            return super().get_loss(*args, **kwargs)

    monkeypatch.setattr(_dsvc_torch, "ViewNet", Recording)
    DSVC(3, learning_rate=0.01, **TINY).fit(blobs[0])
    assert [(guided, lr) for guided, _, lr in steps] == [(False, 0.01)] * 2 + [(True, 0.005)] * 2
    optimisers = [optimiser for _, optimiser, _ in steps]
    assert optimisers[0] is optimisers[1]
    assert optimisers[1] is not optimisers[2]
    assert optimisers[2] is optimisers[3]


def test_losses_in_closed_form():
    latents = torch.eye(3)
    guidance = make_guidance()
    guidance.prototypes = torch.eye(3)
    assignment = guidance.log_assign(latents).exp()
    assert guidance.divergence(latents, assignment) == pytest.approx(0, abs=1e-6)
    certain = guidance.divergence(latents, torch.eye(3))  # KL of a certain target = -log q
    assert certain == pytest.approx(np.log(1 + 2 * np.exp(-5)), rel=1e-4)
    # Orthonormal anchors that the batch's prototypes hit: the same cross-entropy.
    guidance.anchors, guidance.share, guidance.temperature = torch.eye(3), 0.25, 0.02
    hit = 0.25 * np.log(1 + 2 * np.exp(-50))
    assert guidance.inconsistency(latents) == pytest.approx(hit, abs=1e-6)
    guidance.anchors = torch.eye(3).roll(1, dims=0)
    assert guidance.inconsistency(latents) == pytest.approx(0.25 * 50, rel=1e-3)


def test_only_the_latents_get_gradients():
    latents = unit_latents().requires_grad_()
    partition = F.softmax(unit_latents(40, 3, seed=1), dim=1)
    guidance = make_guidance(partition, unit_latents(3))
    guidance.start(latents.detach())
    targets = guidance.targets(latents.detach())
    loss = guidance.divergence(latents, targets) + guidance.inconsistency(latents)
    loss.backward()
    assert latents.grad.abs().sum() > 0
    assert not guidance.prototypes.requires_grad
    assert not targets.requires_grad


def test_a_cluster_without_mass_keeps_its_prototype():
    guidance = make_guidance(temperature=1e-3)
    guidance.prototypes = torch.eye(3)
    latents = torch.eye(3)[[0, 0, 1, 1]] + torch.tensor([0.0, 0.1, 0.0])
    guidance.move(F.normalize(latents))
    torch.testing.assert_close(guidance.prototypes[2], torch.eye(3)[2])
    torch.testing.assert_close(guidance.prototypes.norm(dim=1), torch.ones(3))
    assert guidance.prototypes[0, 1] > 0


def test_batch_norm_and_small_batches(monkeypatch, blobs):
    calls = []

    class Recording(_dsvc_torch.ViewAutoencoder):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.encoder.register_forward_pre_hook(
                lambda module, args: calls.append((len(args[0]), module.training))
            )

    monkeypatch.setattr(_dsvc_torch, "ViewAutoencoder", Recording)
    DSVC(3, **TINY | {"batch_size": 28}).fit(blobs[0])  # 90 rows: 28 + 28 + 28 + 6
    training = [rows for rows, in_training in calls if in_training]
    assert training == [28] * 12  # the last batch of 6 rows is left out in all 4 epochs
    assert {rows for rows, in_training in calls if not in_training} == {90}
