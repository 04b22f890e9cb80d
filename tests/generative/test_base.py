"""What a method that stands on the diffusion base may replace."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from skicml.generative import (
    BaseDiffusion,
    ClassifierGuidance,
    DiffusionModel,
    NoiseSchedule,
    sample_loop,
)
from skicml.generative._base import DiffusionSettings
from skicml.generative._guidance_torch import fit_noisy_classifier
from skicml.generative._samplers_torch import SharedNoise
from skicml.generative._training_torch import averaged_module, loss_curve, n_steps_taken


class _PairNetwork(nn.Module):
    """Takes the noisy pair, the known entries and where they are."""

    def __init__(self, n_features):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(3 * n_features + 1, 64), nn.SiLU(), nn.Linear(64, n_features)
        )

    def forward(self, x, t, cond=None, context=None):
        known, mask = cond
        return self.layers(torch.cat([x * (1 - mask), known, mask, t[:, None] / 50], dim=1))


class _PairImputer(BaseDiffusion):
    """Imputer of (a, b) with b = a: own network, loss mask, mask drawn at each step."""

    def __init__(self, max_iter=1500, ema_decay=None):
        self.max_iter = max_iter
        self.ema_decay = ema_decay

    def _settings(self):
        return DiffusionSettings(
            prediction="eps",
            optimizer="Adam",
            weight_decay=1e-6,
            ema_decay=self.ema_decay,
            gradient_clip=None,
            max_iter=self.max_iter,
            batch_size=64,
            learning_rate=3e-3,
        )

    def _make_schedule(self):
        return NoiseSchedule("quad", 50)

    def _make_network(self, shape, n_cond):
        assert n_cond == 0
        return _PairNetwork(shape[0])

    def _make_scheduler(self, optimizer, n_steps):
        self.scheduled_steps_ = n_steps
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(0.75 * n_steps)])

    def _loss(self, net, batch, generator, condition=None):
        x0, observed = batch["x0"], batch["observed"]
        known = observed * (torch.rand(observed.shape, generator=generator) < 0.5)
        noised = net.corrupt(x0, generator)
        output = net(noised.x, noised.t, (x0 * known, known))
        return net.loss(output, noised, mask=observed - known)

    def fit(self, X, y=None, net=None):
        observed = (~np.isnan(X)).astype(float)
        batch = {"x0": np.nan_to_num(X), "observed": observed}
        self.net_ = self._fit_denoiser(batch, X.shape[1:], seed=0, net=net)
        self.ema_module_ = averaged_module(self.net_)
        return self

    def draws(self, X, n_draws, seed=0):
        net = self._denoiser()
        mask = torch.as_tensor(~np.isnan(X)).float()
        given = (torch.as_tensor(np.nan_to_num(X)).float(), mask)
        cond = [part.repeat_interleave(n_draws, dim=0) for part in given]
        noise = SharedNoise(torch.Generator().manual_seed(seed), n_draws)
        with torch.inference_mode():
            x = noise(torch.empty(len(X) * n_draws, X.shape[1]))
            x = sample_loop(
                lambda x, t: net.predict(x, t, cond),
                x,
                net.schedule,
                net.schedule.timesteps(50),
                solver="ddpm",
                noise=noise,
            )
        return x.reshape(len(X), n_draws, -1).numpy()


def _pairs(n_samples=400):
    a = np.random.RandomState(0).standard_normal(n_samples)
    return np.column_stack([a, a])


@pytest.fixture(scope="module")
def imputer():
    X = _pairs()
    X[::10, 0] = np.nan
    return _PairImputer().fit(X)


def test_an_imputer_with_a_mask_drawn_at_each_step(imputer):
    X = np.array([[1.0, np.nan], [np.nan, -1.0], [np.nan, np.nan]])
    draws = imputer.draws(X, n_draws=100)
    assert draws[0, :, 1].mean() == pytest.approx(1, abs=0.2)
    assert draws[1, :, 0].mean() == pytest.approx(-1, abs=0.2)
    assert draws[0, :, 1].std() < 0.4
    assert draws[2, :, 0].std() > 0.6  # nothing is known: the marginal distribution


def test_draws_of_a_row_do_not_depend_on_other_rows(imputer):
    X = np.array([[1.0, np.nan], [np.nan, -1.0], [0.3, np.nan]])
    together, alone = imputer.draws(X, n_draws=4), imputer.draws(X[1:2], n_draws=4)
    np.testing.assert_allclose(together[1:2], alone, atol=1e-5)
    np.testing.assert_array_equal(imputer.draws(X, 4), together)


def test_the_subclass_chooses_optimiser_schedule_and_average(imputer):
    assert isinstance(imputer.net_.optimizer_, torch.optim.Adam)
    assert imputer.scheduled_steps_ == 1500
    assert imputer.ema_module_ is imputer.net_.module_
    assert not imputer.ema_module_.training
    averaged = _PairImputer(max_iter=5, ema_decay=0.9).fit(_pairs())
    assert averaged.ema_module_ is not averaged.net_.module_


def test_loss_curve_and_further_training(imputer):
    losses = loss_curve(imputer.net_)
    assert len(losses) == n_steps_taken(imputer.net_) == 1500
    assert np.mean(losses[-200:]) < 0.8 * np.mean(losses[:100])
    further = _PairImputer(max_iter=7).fit(_pairs(), net=imputer.net_)
    assert n_steps_taken(further.net_) == 1507
    assert n_steps_taken(imputer.net_) == 1500  # the net that was handed in is left alone


def test_the_net_holds_on_to_nothing_of_the_fit(imputer):
    assert imputer.net_.objective is None
    assert imputer.net_.make_scheduler is None
    assert not imputer.net_.optimizer_.state
    again = pickle.loads(pickle.dumps(imputer))
    X = np.array([[1.0, np.nan]])
    np.testing.assert_array_equal(again.draws(X, 2), imputer.draws(X, 2))


def test_the_base_is_abstract():
    with pytest.raises(TypeError, match="abstract"):
        BaseDiffusion()


def test_a_diverged_training_is_an_error():
    class Diverging(_PairImputer):
        def _loss(self, net, batch, generator, condition=None):
            return super()._loss(net, batch, generator) * torch.nan

    with pytest.raises(ValueError, match=r"Training diverged.*learning_rate=0.003"):
        Diverging(max_iter=2).fit(_pairs())


def test_the_gradient_is_clipped():
    class Steep(_PairImputer):
        def _settings(self):
            return replace(
                super()._settings(), optimizer="SGD", gradient_clip=1.0, learning_rate=0.1
            )

        def _make_scheduler(self, optimizer, n_steps):
            return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)

        def _loss(self, net, batch, generator, condition=None):
            return 1e6 * super()._loss(net, batch, generator)

    before, after = (
        torch.cat([p.flatten() for p in Steep(n).fit(_pairs()).net_.module_.parameters()])
        for n in (0, 1)
    )
    assert float((after - before).detach().norm()) == pytest.approx(0.1, rel=1e-2)
    assert DiffusionModel()._settings().gradient_clip == 1.0


# The seams of DiffusionModel ---------------------------------------------------------------------


def _model(**kwargs):
    settings = {"hidden_dim": 16, "n_layers": 1, "max_iter": 20, "random_state": 0} | kwargs
    return DiffusionModel(**settings)


def test_entries_that_stay_clean_are_not_in_the_loss():
    class Planner(DiffusionModel):
        def _make_batch(self, X, y=None):
            fixed = np.zeros(X.shape, dtype=bool)
            fixed[:, 0] = True
            return super()._make_batch(X, y) | {"fixed": fixed}

    X = _pairs()
    planner = Planner(
        prediction="x0", hidden_dim=32, n_layers=2, max_iter=400, scale=None, random_state=0
    ).fit(X)
    # b = a is read off the clean entry, at any noise of the other
    noisy = planner.add_noise(X, 900, random_state=1)
    noisy[:, 0] = X[:, 0]
    assert np.corrcoef(planner.denoise(noisy, 900)[:, 1], X[:, 1])[0, 1] > 0.98


def test_the_loss_takes_an_explicit_condition_with_gradients_through_frozen_weights():
    X = _pairs()
    y = (X[:, 0] > 0).astype(int)
    model = _model().fit(X, y)
    net = model.ema_module_
    assert not any(p.requires_grad for p in net.parameters())
    batch = {"x0": torch.as_tensor(X[:50]).float()}
    embedding = torch.zeros(50, 16, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    model._loss(net, batch, generator, condition=embedding).backward()
    assert embedding.grad.abs().sum() > 0
    assert model.sample(50, condition=embedding.detach().numpy()).shape == (50, 2)
    own = net.condition(torch.zeros(50, dtype=torch.long))
    np.testing.assert_array_equal(
        model.sample(50, condition=own, random_state=1), model.sample(50, y=0, random_state=1)
    )


def test_prediction_is_differentiable():
    model = _model().fit(_pairs())
    x = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
    x0, _ = model._predict(model._denoiser(), x, 500)
    x0.sum().backward()
    assert x.grad.abs().sum() > 0


def test_a_hook_may_ask_the_denoiser():
    model = _model().fit(_pairs())
    seen = []

    def hook(x, t):
        if t:
            seen.append(model._predict(model._denoiser(), x, t)[0].shape)
        return x

    X = model.sample(7, hooks=[hook], n_steps=4, random_state=0)
    assert seen == [(7, 2)] * 3
    np.testing.assert_array_equal(X, model.sample(7, n_steps=4, random_state=0))


def test_imputation_puts_known_values_in_place_with_the_noise_of_the_level():
    seen = {}

    class Watched(DiffusionModel):
        def _predict(self, net, x, t, *args, **kwargs):
            seen[t] = x[:, 0]
            return super()._predict(net, x, t, *args, **kwargs)

    model = Watched(hidden_dim=16, n_layers=1, max_iter=1, random_state=0).fit(_pairs())
    model.impute(np.tile([2.0, np.nan], (2000, 1)), n_steps=4, n_resample=2)
    known = model.scaler_.transform(np.array([[2.0, 0.0]]))[0, 0]
    assert sorted(seen) == [250, 500, 750, 1000]
    for t, x in seen.items():
        assert float(x.mean()) == pytest.approx(model.schedule_.alpha_[t] * known, abs=0.1)
        assert float(x.std()) == pytest.approx(model.schedule_.sigma_[t], abs=0.1)


def test_a_subclass_may_replace_the_prediction():
    class Pulled(DiffusionModel):
        def _predict(self, net, x, t, cond=None, context=None, guidance_scale=0.0):
            x0 = torch.full_like(x, 0.5)
            return x0, (x - net.schedule.alpha_[t] * x0) / net.schedule.sigma_[t]

    model = Pulled(hidden_dim=16, n_layers=1, max_iter=1, scale=None, random_state=0)
    np.testing.assert_allclose(model.fit(_pairs()).sample(3), 0.5, atol=1e-6)


def test_a_noisy_classifier_guides_towards_its_class():
    rng = np.random.RandomState(0)
    y = rng.randint(2, size=600)
    X = np.column_stack([2.0 * y - 1, np.zeros(600)]) + 0.3 * rng.standard_normal((600, 2))
    model = _model(hidden_dim=32, n_layers=2, max_iter=400).fit(X)
    settings = DiffusionSettings(max_iter=300, learning_rate=3e-3)
    rows = model.scaler_.transform(X).astype(np.float32)
    classifier = fit_noisy_classifier(
        model.ema_module_, rows, y, settings, seed=0, hidden_dim=32, n_layers=1
    )
    accuracy = {}
    for t in (1, 300, 900):
        noisy = torch.as_tensor(model.add_noise(X, t, random_state=0)).float()
        accuracy[t] = (classifier(noisy, t).argmax(dim=1).numpy() == y).mean()
    assert accuracy[1] > 0.97
    assert accuracy[1] > accuracy[300] > accuracy[900]
    codes = torch.ones(200, dtype=torch.long)
    guide = ClassifierGuidance(classifier.log_proba_of(codes), model.schedule_, scale=3.0)
    guided = model.sample(200, guidance=[guide], random_state=0)
    plain = model.sample(200, random_state=0)
    assert (guided[:, 0] > 0).mean() > 0.95
    assert 0.3 < (plain[:, 0] > 0).mean() < 0.7


def test_a_classifier_may_have_an_objective_of_its_own():
    X = _pairs().astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model = _model(max_iter=1).fit(X)
    calls = []

    def objective(classifier, batch, generator):
        calls.append(batch["codes"].shape)
        return F.cross_entropy(classifier(batch["x0"], 1), batch["codes"])

    settings = DiffusionSettings(max_iter=3, batch_size=32)
    fit_noisy_classifier(model.ema_module_, X, y, settings, seed=0, objective=objective)
    assert calls == [(32,)] * 3
