import pytest
import torch

from skicml._torch import seeded_init
from skicml.generative import (
    MLPDenoiser,
    NoiseSchedule,
    TransformerDenoiser,
    UNet1dDenoiser,
    UNet2dDenoiser,
)
from skicml.generative._base import Condition
from skicml.generative._denoiser_torch import ConditionEmbedding, Denoiser, guided_prediction

NETWORKS = {
    "mlp": (lambda **kw: MLPDenoiser(10, 16, 2, **kw), (10,)),
    "transformer": (lambda **kw: TransformerDenoiser((2, 4, 6), 2, 16, 2, **kw), (2, 4, 6)),
    "unet1d": (lambda **kw: UNet1dDenoiser((3, 13), 8, **kw), (3, 13)),
    "unet2d": (lambda **kw: UNet2dDenoiser((2, 8, 7), 8, **kw), (2, 8, 7)),
    "deep unet2d": (lambda **kw: UNet2dDenoiser((1, 17, 16), 4, **kw), (1, 17, 16)),
}
every_network = pytest.mark.parametrize(("make", "shape"), NETWORKS.values(), ids=NETWORKS)


def _make(make, **kwargs):
    """The network with output layers that are not zero, as after some training."""
    with seeded_init(0):
        network = make(**kwargs)
        for parameter in network.parameters():
            if (parameter == 0).all():
                torch.nn.init.normal_(parameter, std=0.2)
    return network


def _rows(shape, n_rows=5, seed=0):
    return torch.randn(n_rows, *shape, generator=torch.Generator().manual_seed(seed))


def _times(n_rows=5):
    return torch.arange(1, n_rows + 1) * 100


@every_network
def test_a_new_network_predicts_zero(make, shape):
    with seeded_init(0):
        network = make()
    assert (network(_rows(shape), _times()) == 0).all()


@every_network
def test_output_is_like_x_and_depends_on_x_time_and_condition(make, shape):
    network = _make(make, n_cond=3)
    x, t, cond = _rows(shape), _times(), torch.ones(5, 3)
    output = network(x, t, cond)
    assert output.shape == x.shape
    for changed in (network(x + 1, t, cond), network(x, t + 50, cond), network(x, t, -cond)):
        assert not torch.allclose(output, changed, atol=1e-4)
    torch.testing.assert_close(network(x, t.float(), cond), output)


@every_network
def test_rows_do_not_see_one_another(make, shape):
    network = _make(make).double()
    x, t = _rows(shape).double(), _times()
    together = network(x, t)
    alone = torch.cat([network(x[i : i + 1], t[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


@every_network
def test_every_weight_gets_a_gradient(make, shape):
    network = _make(make, n_cond=3)
    network(_rows(shape), _times(), torch.ones(5, 3)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_patches_go_both_ways():
    network = TransformerDenoiser((3, 4, 6), 2, 8, 1, 2)
    x = _rows((3, 4, 6))
    tokens = network.patchify(x)
    assert tokens.shape == (5, 6, 12)
    torch.testing.assert_close(tokens[:, 1].reshape(5, 3, 2, 2), x[:, :, :2, 2:4])
    torch.testing.assert_close(network.unpatchify(tokens), x)


def test_patch_size_must_divide_the_image():
    with pytest.raises(ValueError, match="patch_size=3 must divide"):
        TransformerDenoiser((1, 8, 8), 3)


@pytest.mark.parametrize("name", ["mlp", "transformer"])
def test_blocks_expose_what_upcycling_replaces(name):
    network = NETWORKS[name][0]()
    assert isinstance(network.input_layer, torch.nn.Linear)
    for block in network.blocks:
        assert isinstance(block.norm2, torch.nn.LayerNorm)
        assert block.ffn.fc1.out_features == block.ffn.fc2.in_features


def test_the_context_reaches_the_transformer():
    network = _make(NETWORKS["transformer"][0], n_context=4)
    x, t = _rows((2, 4, 6)), _times()
    contexts = _rows((3, 4), seed=1), _rows((3, 4), seed=2)
    outputs = [network(x, t, context=context) for context in contexts]
    assert not torch.allclose(*outputs, atol=1e-4)
    # attention without positions does not mind the order of the tokens
    torch.testing.assert_close(network(x, t, context=contexts[0].flip(1)), outputs[0])
    assert network(x, t).shape == x.shape


def test_a_classifier_is_a_denoiser_with_other_outputs():
    network = MLPDenoiser(10, 16, 2, n_outputs=3)
    assert network(_rows((10,)), _times()).shape == (5, 3)


# The denoiser around a network ------------------------------------------------------------------


def _denoiser(prediction="v", dropout=0.0, kind="label", n_inputs=4):
    n_cond = 0 if kind == "context" else 6
    condition = Condition(kind, n_inputs, n_cond, dropout)
    with seeded_init(0):
        embedding = ConditionEmbedding(condition)
        torch.nn.init.normal_(embedding.null)
        if kind == "context":
            network = _make(NETWORKS["transformer"][0], n_context=n_inputs)
        else:
            network = _make(NETWORKS["mlp"][0], n_cond=6)
    return Denoiser(network, NoiseSchedule(), prediction, condition=embedding)


def test_without_condition_the_null_vector_is_taken():
    net = _denoiser()
    x, t = _rows((10,)), _times()
    null = net.condition.null.expand(5, -1)
    torch.testing.assert_close(net(x, t), net.network(x, t, null))
    cond = net.condition(torch.tensor([0, 1, 2, 3, 0]))
    assert not torch.allclose(net(x, t), net(x, t, cond), atol=1e-4)


def test_labels_are_left_out_as_often_as_asked_for():
    embedding = _denoiser(dropout=0.3).condition
    labels = torch.zeros(4000, dtype=torch.long)
    embedded = embedding(labels, torch.Generator().manual_seed(0))
    left_out = (embedded == embedding.null).all(dim=1).float().mean()
    assert abs(left_out - 0.3) < 0.03
    assert not (embedding(labels) == embedding.null).all(dim=1).any()


@pytest.mark.parametrize("kind", ["label", "context"])
def test_classifier_free_guidance_mixes_two_predictions_in_one_call(kind):
    net = _denoiser(kind=kind)
    x = _rows((10,) if kind == "label" else (2, 4, 6))
    if kind == "label":
        given = {"cond": net.condition(torch.tensor([0, 1, 2, 3, 0]))}
    else:
        given = {"context": _rows((3, 4), seed=3)}
    calls = []
    net.network.register_forward_hook(lambda module, inputs, output: calls.append(len(output)))
    guided = guided_prediction(net, x, 400, **given, guidance_scale=2.0)
    assert calls == [10]
    null = {name: net.condition.null_like(value) for name, value in given.items()}
    pairs = zip(net.predict(x, 400, **given), net.predict(x, 400, **null))
    for found, (with_condition, without) in zip(guided, pairs):
        torch.testing.assert_close(found, 3 * with_condition - 2 * without)
    for found, expected in zip(
        guided_prediction(net, x, 400, **given), net.predict(x, 400, **given)
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("prediction", ["v", "eps", "x0"])
def test_predictions_are_consistent_with_x(prediction):
    net = _denoiser(prediction)
    x, t = _rows((10,)), _times()
    x0, eps = net.predict(x, t)
    alpha, sigma = net.coefficients(t, x)
    torch.testing.assert_close(alpha * x0 + sigma * eps, x, rtol=1e-4, atol=1e-4)
    for row, time in enumerate(t.tolist()):  # an int is the same time for all rows
        torch.testing.assert_close(net.predict(x, time)[0][row], x0[row], rtol=1e-4, atol=1e-4)


def test_noising_draws_times_from_1_to_T_and_unit_noise():
    net = Denoiser(torch.nn.Identity(), NoiseSchedule("cosine", 4), "eps")
    x0 = torch.full((4000, 3), 2.0)
    noised = net.corrupt(x0, torch.Generator().manual_seed(0))
    counts = torch.bincount(noised.t, minlength=5)
    assert counts[0] == 0
    assert (counts[1:] / 1000 - 1).abs().max() < 0.1
    assert abs(noised.eps.mean()) < 0.03
    assert abs(noised.eps.std() - 1) < 0.03
    alpha, sigma = net.coefficients(noised.t, x0)
    torch.testing.assert_close(noised.x, alpha * x0 + sigma * noised.eps)
    fixed = torch.tensor([True, False, False])
    noised = net.corrupt(x0, torch.Generator().manual_seed(0), fixed=fixed)
    assert (noised.x[:, 0] == 2).all()
    assert (noised.x[:, 1] != 2).all()


def test_the_loss_counts_the_entries_of_the_mask():
    net = Denoiser(torch.nn.Identity(), NoiseSchedule(), "x0")
    x0 = torch.zeros(2, 4)
    noised = net.noise_to(x0, torch.tensor([5, 10]), torch.randn(2, 4))
    output = torch.tensor([[1.0, 2, 3, 4], [0, 0, 0, 5]])
    assert net.loss(output, noised) == pytest.approx((1 + 4 + 9 + 16 + 25) / 8)
    mask = torch.tensor([[1.0, 0, 0, 1], [0, 0, 0, 1]])
    assert net.loss(output, noised, mask) == pytest.approx((1 + 16 + 25) / 3)
    assert net.loss(output, noised, torch.zeros(2, 4)) == 0


@pytest.mark.parametrize("prediction", ["v", "eps", "x0"])
def test_the_loss_weighs_the_times(prediction):
    schedule = NoiseSchedule()
    weighted, plain = (
        Denoiser(torch.nn.Identity(), schedule, prediction, loss_weighting=weighting)
        for weighting in ("min_snr", "simple")
    )
    for t in (20, 500, 950):
        noised = plain.noise_to(_rows((4,), 1), torch.tensor([t]), _rows((4,), 1, seed=1))
        output = torch.zeros(1, 4)
        snr = schedule.abar_[t] / (1 - schedule.abar_[t])
        weight = min(snr, 5) / {"x0": 1, "eps": snr, "v": snr + 1}[prediction]
        expected = weight * float(plain.loss(output, noised))
        assert float(weighted.loss(output, noised)) == pytest.approx(expected, rel=1e-4)


def test_the_null_vector_is_learnt():
    net = _denoiser(dropout=0.5)
    cond = net.condition(torch.zeros(40, dtype=torch.long), torch.Generator().manual_seed(0))
    net(_rows((10,), 40), _times(40), cond).square().sum().backward()
    assert net.condition.null.grad.abs().sum() > 0
