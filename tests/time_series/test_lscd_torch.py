"""The network of LSCD and its parts: what they see, and what they must not see."""

import numpy as np
import pytest
import torch
from scipy.signal import lombscargle
from torch import nn

from skicml.generative import NoiseSchedule
from skicml.generative._denoiser_torch import Denoiser
from skicml.time_series._lomb_scargle import LombScargle
from skicml.time_series._lscd_torch import (
    LSCDNetwork,
    SpectralEncoder,
    StepEmbedding,
    consistency_loss,
    draw_known,
    draw_windows,
    log_spectrum,
    sinusoids,
)

N_SERIES, N_CHANNELS, N_TIMEPOINTS = 4, 3, 10
SMALL = {
    "spectral": True,
    "n_layers": 3,
    "width": 8,
    "n_heads": 2,
    "time_dim": 6,
    "channel_dim": 4,
    "spectral_layers": 1,
    "spectral_width": 8,
    "early": True,
}


def make_network(n_channels=N_CHANNELS, trained=True, **params):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = LSCDNetwork(n_channels, N_TIMEPOINTS, 50, **SMALL | params)
        if trained:  # the output layer starts at zero
            nn.init.normal_(network.output[-1].weight)
    return network.eval()


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(1)
    shape = (N_SERIES, N_CHANNELS, N_TIMEPOINTS)
    x0 = torch.randn(shape, generator=generator)
    known = (torch.rand(shape, generator=generator) < 0.6).float()
    gaps = 0.5 + torch.rand(N_SERIES, N_TIMEPOINTS, generator=generator)
    times = gaps.cumsum(1) - gaps[:, :1]
    return x0, known, times


# ---- Spectrum ---------------------------------------------------------------------------------


def test_every_channel_is_paired_with_the_times_of_its_series(batch):
    x0, known, times = batch
    frequencies = torch.linspace(0.05, 0.45, N_TIMEPOINTS, dtype=torch.float64)
    spectrum = log_spectrum(x0, known, times, frequencies)
    assert spectrum.dtype == torch.float32
    for i in range(N_SERIES):
        for k in range(N_CHANNELS):
            seen = known[i, k].bool().numpy()
            t, y = times[i].double().numpy()[seen], x0[i, k].double().numpy()[seen]
            power = lombscargle(t, y - y.mean(), 2 * np.pi * frequencies.numpy())
            z = power / y.var()
            power = power / (1 - (1 - np.exp(-z)) ** N_TIMEPOINTS + 1e-5)
            area = power / np.trapezoid(power, frequencies.numpy())
            expected = (np.log(area + 1e-5) + 5) / 5
            np.testing.assert_allclose(spectrum[i, k], expected, rtol=1e-4, atol=1e-5)


def test_the_condition_is_the_spectrum_of_the_transformer(batch):
    x0, known, _ = batch
    times = torch.arange(float(N_TIMEPOINTS)).expand(N_SERIES, -1)
    network = make_network()
    spectrum = log_spectrum(x0, known, times, network.frequencies)
    gappy = np.where(known.bool(), x0, np.nan).transpose(0, 2, 1)
    spectra = LombScargle(normalization="log", fap_weighting=True).fit(gappy)
    np.testing.assert_allclose(network.frequencies, spectra.frequencies_)
    enough = known.sum(-1).numpy() >= 3
    expected = (spectra.transform(gappy).transpose(0, 2, 1) + 5) / 5
    np.testing.assert_allclose(spectrum.numpy()[enough], expected[enough], rtol=1e-4, atol=1e-5)


def test_the_encoder_tells_frequencies_apart():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = SpectralEncoder(1, 8, 2, 1).eval()
    low, high = torch.zeros(1, 1, 12), torch.zeros(1, 1, 12)
    low[..., 2], high[..., 9] = 1.0, 1.0
    swapped = encoder(high).flip(2)
    assert (encoder(low) - swapped).abs().max() > 1e-2


# ---- Leakage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spectral", [True, False])
def test_hidden_values_do_not_leak(batch, spectral):
    """Nothing but x_t tells the network of the hidden cells."""
    x0, known, times = batch
    network = make_network(spectral=spectral)
    other = x0 + 1e3 * (1 - known)
    first, second = (network.condition(values, known, times) for values in (x0, other))
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.start, second.start)
    for left, right in zip(first.sides, second.sides):
        assert torch.equal(left, right)


def test_known_cells_of_x_are_not_looked_at(batch):
    x0, known, times = batch
    network = make_network()
    condition = network.condition(x0, known, times)
    t = torch.tensor([1, 10, 25, 50])
    x = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    other = torch.where(known.bool(), x + 7, x)
    assert torch.equal(network(x, t, condition), network(other, t, condition))
    changed = torch.where(known.bool(), x, x + 7)
    assert not torch.allclose(network(x, t, condition), network(changed, t, condition))


def test_the_network_sees_known_values_times_spectrum_and_step(batch):
    x0, known, times = batch
    network = make_network()
    t = torch.tensor([1, 10, 25, 50])
    x = torch.zeros_like(x0)
    base = network(x, t, network.condition(x0, known, times))
    for changed in (
        network(x, t, network.condition(x0 + known, known, times)),
        network(x, t, network.condition(x0, known, 2 * times)),
        network(x, t + torch.tensor([1, 1, 1, -1]), network.condition(x0, known, times)),
        make_network(spectral=False)(x, t, network.condition(x0, known, times)),
    ):
        assert (base - changed).abs().max() > 1e-4


# ---- Network ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("spectral", "n_side"), [(True, 147), (False, 145)])
def test_published_side_information(spectral, n_side):
    network = make_network(
        2, spectral=spectral, width=64, n_heads=8, time_dim=128, channel_dim=16, spectral_width=64
    )
    assert network.blocks[0].side.in_features == n_side
    assert network.step.table.shape == (51, 128)


def test_embeddings():
    positions = torch.tensor([[0.0, 1.5, 4.0]])
    planes = sinusoids(positions, 6)
    assert planes.shape == (1, 3, 6)
    angles = positions[0, :, None].numpy() / 10000 ** (np.arange(3) * 2 / 6)
    np.testing.assert_allclose(planes[0, :, 0::2], np.sin(angles), rtol=1e-5)
    np.testing.assert_allclose(planes[0, :, 1::2], np.cos(angles), rtol=1e-5)
    table = StepEmbedding(50).table
    angles = 37 * 10.0 ** (4 * np.arange(64) / 63)
    np.testing.assert_allclose(table[37], np.r_[np.sin(angles), np.cos(angles)], atol=1e-6)


@pytest.mark.parametrize("early", [True, False])
def test_draws_of_a_series_share_its_condition(batch, early):
    """Rows r * n_draws + j of x belong to row r of the condition."""
    x0, known, times = batch
    network = make_network(early=early)
    condition = network.condition(x0, known, times)
    x = torch.randn(3 * N_SERIES, *x0.shape[1:], generator=torch.Generator().manual_seed(0))
    t = torch.full((len(x),), 20)
    together = network(x, t, condition)
    for i in range(N_SERIES):
        alone = network.condition(x0[i : i + 1], known[i : i + 1], times[i : i + 1])
        rows = slice(3 * i, 3 * i + 3)
        torch.testing.assert_close(together[rows], network(x[rows], t[:3], alone))


def test_the_order_of_channels_is_seen_only_through_their_embedding(batch):
    x0, known, times = batch
    network = make_network()
    order = torch.tensor([2, 0, 1])
    t, x = torch.full((N_SERIES,), 20), x0.flip(0)
    before = network(x, t, network.condition(x0, known, times))
    after = network(x[:, order], t, network.condition(x0[:, order], known[:, order], times))
    assert (before[:, order] - after).abs().max() > 1e-4
    network.channels.weight.data[:] = 0.5
    before = network(x, t, network.condition(x0, known, times))
    after = network(x[:, order], t, network.condition(x0[:, order], known[:, order], times))
    torch.testing.assert_close(before[:, order], after, rtol=1e-4, atol=1e-5)


def test_the_untrained_network_predicts_the_bias_only(batch):
    x0, known, times = batch
    network = make_network(trained=False)
    output = network(x0, torch.full((N_SERIES,), 5), network.condition(x0, known, times))
    assert len(output.unique()) == 1


def test_a_block_is_the_published_one(batch):
    """Step, time, channels, side information, gate, and two outputs of half the planes each."""
    x0, known, times = batch
    network = make_network()
    block, side = network.blocks[0], network.condition(x0, known, times).sides[0]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N_SERIES, N_CHANNELS, N_TIMEPOINTS, 8, generator=generator)
    step = torch.randn(N_SERIES, 128, generator=generator)
    y = x + block.step(step)[:, None, None, :]
    y = torch.stack([block.over_time(y[:, k]) for k in range(N_CHANNELS)], dim=1)
    columns = [block.over_channels(y[:, :, time]) for time in range(N_TIMEPOINTS)]
    y = block.mix(torch.stack(columns, dim=2)) + side
    y = block.out(torch.sigmoid(y[..., :8]) * torch.tanh(y[..., 8:]))
    out, skip = block(x, step, side)
    torch.testing.assert_close(out, (x + y[..., :8]) / 2**0.5)
    torch.testing.assert_close(skip, y[..., 8:])


def test_the_output_is_of_the_skips_of_all_blocks(batch):
    x0, known, times = batch
    network = make_network()
    skips = []
    for block in network.blocks:
        block.register_forward_hook(lambda block, inputs, outputs: skips.append(outputs[1]))
    output = network(x0, torch.full((N_SERIES,), 5), network.condition(x0, known, times))
    expected = network.output(torch.stack(skips).sum(0) / len(skips) ** 0.5)
    assert len(skips) == 3
    torch.testing.assert_close(output, expected[..., 0])


def test_draws_are_those_of_the_ancestral_sampler(batch):
    x0, known, times = batch
    network, schedule = make_network(), NoiseSchedule("quad", 6, beta_min=1e-4, beta_max=0.5)
    network.output[-1].weight.data *= 0.1
    rows = {"x0": (x0 * known).numpy(), "observed": known.numpy(), "times": times.numpy()}
    draws = draw_windows(Denoiser(network, schedule, "eps"), rows, 2, seed=5)
    generator = torch.Generator().manual_seed(5)

    def noise():
        return torch.randn(2, 1, N_CHANNELS, N_TIMEPOINTS, generator=generator).expand(
            -1, N_SERIES, -1, -1
        )

    kept = 1 - np.linspace(1e-4**0.5, 0.5**0.5, 6) ** 2  # alphahat_t
    abar = np.r_[1, np.cumprod(kept)]
    condition = network.condition(x0, known, times)
    x = noise()
    with torch.no_grad():
        for t in range(6, 0, -1):
            step = torch.full((N_SERIES,), t)
            eps = torch.stack([network(draw, step, condition) for draw in x])
            x = x - (1 - kept[t - 1]) / np.sqrt(1 - abar[t]) * eps
            x = x / np.sqrt(kept[t - 1])
            if t > 1:
                variance = (1 - abar[t - 1]) / (1 - abar[t]) * (1 - kept[t - 1])
                x = x + np.sqrt(variance) * noise()
    np.testing.assert_allclose(draws, x, rtol=1e-3, atol=1e-4)


# ---- Masks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["random", "mix"])
def test_known_cells_are_observed_ones(strategy):
    generator = torch.Generator().manual_seed(0)
    observed = (torch.rand(2000, 2, 50, generator=generator) < 0.7).float()
    known = draw_known(observed, generator, strategy)
    assert set(known.unique().tolist()) == {0.0, 1.0}
    assert (known <= observed).all()
    assert known.shape == observed.shape
    # the same seed, the same mask
    again = draw_known(observed, torch.Generator().manual_seed(3), strategy)
    assert torch.equal(again, draw_known(observed, torch.Generator().manual_seed(3), strategy))


def test_the_share_of_hidden_cells_is_uniform():
    generator = torch.Generator().manual_seed(0)
    observed = (torch.rand(4000, 2, 50, generator=generator) < 0.7).float()
    known = draw_known(observed, generator, "random")
    share = 1 - known.sum((1, 2)) / observed.sum((1, 2))
    quantiles = torch.quantile(share, torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9]))
    np.testing.assert_allclose(quantiles, [0.1, 0.25, 0.5, 0.75, 0.9], atol=0.03)
    # and no place is hidden more often than another
    rate = (observed - known).sum(0) / observed.sum(0)
    assert (rate - 0.5).abs().max() < 0.06


def test_mixed_masks_have_the_gaps_of_other_series():
    observed = torch.ones(400, 1, 20)
    observed[::2, :, 5:15] = 0  # a gap in half of the series
    generator = torch.Generator().manual_seed(0)
    known = draw_known(observed, generator, "mix")[1::2, 0]
    gap = torch.cat([torch.ones(5), torch.zeros(10), torch.ones(5)])
    share = (known == gap).all(1).float().mean()
    assert 0.17 < share < 0.33  # half of the series, half of which meet one with a gap


# ---- Consistency loss -------------------------------------------------------------------------


def noised_batch(batch, t=3):
    x0, known, times = batch
    network = make_network()
    net = Denoiser(network, NoiseSchedule("quad", 50), "eps")
    condition = network.condition(x0, known, times)
    eps = torch.randn(x0.shape, generator=torch.Generator().manual_seed(2))
    noised = net.noise_to(x0, torch.full((N_SERIES,), t), eps)
    return net, condition, noised, times


@pytest.mark.parametrize("mode", ["one_step", "chain"])
def test_consistency_loss_is_not_that_of_copied_cells(batch, mode):
    net, condition, noised, times = noised_batch(batch)
    output = net(noised.x, noised.t, condition)
    generator = torch.Generator().manual_seed(0)
    loss = consistency_loss(net, noised, output, condition, times, mode, generator)
    assert loss.item() > 1e-3
    loss.backward()
    gradients = [p.grad for p in net.network.blocks[0].parameters()]
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    assert max(gradient.abs().max() for gradient in gradients) > 0


def test_one_step_consistency_vanishes_for_the_right_output(batch):
    """Shown zeros at the known cells, the network rebuilds x0 by eps = -alpha x0 / sigma."""
    net, condition, noised, times = noised_batch(batch)
    alpha, sigma = net.coefficients(noised.t, noised.x)
    output = torch.where(condition.known.bool(), -alpha * noised.x0 / sigma, noised.eps)
    loss = consistency_loss(net, noised, output, condition, times, "one_step", None)
    assert loss.item() < 1e-8


def test_one_step_consistency_leaves_out_noise(batch):
    net, condition, noised, times = noised_batch(batch, t=21)
    output = net(noised.x, noised.t, condition)
    assert net.schedule.abar_[21] > 0.5 > net.schedule.abar_[22]
    assert consistency_loss(net, noised, output, condition, times, "one_step", None).item() > 0
    net, condition, noised, times = noised_batch(batch, t=22)
    output = net(noised.x, noised.t, condition)
    loss = consistency_loss(net, noised, output, condition, times, "one_step", None)
    assert loss.item() == 0
    loss.backward()  # a gradient of zero, but one
