"""DiffusionModel as an estimator: parameters, errors, seeds, pickles, further training."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.generative import DiffusionModel, NoiseSchedule

X, Y = make_moons(200, noise=0.05, random_state=0)


def _model(network="auto", **kwargs):
    settings = {
        "network": network,
        "hidden_dim": 8,
        "n_layers": 1,
        "max_iter": 5,
        "n_sampling_steps": 5,
        "random_state": 0,
    }
    return DiffusionModel(**settings | kwargs)


def _images(n_samples=30, shape=(4, 6), seed=0):
    return np.random.RandomState(seed).uniform(size=(n_samples, int(np.prod(shape))))


@pytest.fixture(scope="module")
def labelled():
    return _model(max_iter=20).fit(X, Y)


# No NaN whatever the combination -----------------------------------------------------------------


@pytest.mark.parametrize("n_timesteps", [10, 50, 1000])
@pytest.mark.parametrize("schedule", ["cosine", "linear", "quad"])
@pytest.mark.parametrize("prediction", ["v", "eps", "x0"])
def test_samples_are_finite_for_every_schedule_prediction_and_solver(
    prediction, schedule, n_timesteps
):
    for clip in ("data", None):
        model = _model(
            prediction=prediction, schedule=schedule, n_timesteps=n_timesteps, max_iter=3, clip=clip
        ).fit(X, Y)
        for solver in ("ddim", "ddpm", "dpm++1", "dpm++2m"):
            for n_steps in (1, 5, min(n_timesteps, 50)):
                drawn = model.sample(
                    20, y=1, solver=solver, n_steps=n_steps, guidance_scale=1.0, random_state=0
                )
                assert np.isfinite(drawn).all(), (solver, n_steps)
        assert np.isfinite(model.score_samples(X[:5])).all()


@pytest.mark.parametrize(("prediction", "first"), [("eps", 999), ("v", 1000), ("x0", 1000)])
def test_the_noise_estimate_is_not_asked_where_the_data_cannot_be_told(prediction, first):
    seen = []

    def watch(x, t, x0, eps):
        seen.append(t)
        return eps

    _model(prediction=prediction).fit(X).sample(guidance=[watch])
    assert (seen[0], len(seen)) == (first, 5)


def test_all_noise_levels_can_be_visited():
    for prediction in ("v", "eps", "x0"):
        model = _model(prediction=prediction, n_timesteps=1000).fit(X)
        assert np.isfinite(model.sample(4, n_steps=1000)).all()


# Shapes, units, seeds ----------------------------------------------------------------------------


def test_sample_shapes_and_trajectory(labelled):
    assert labelled.sample().shape == (1, 2)
    trajectory = labelled.sample(6, n_steps=4, return_trajectory=True)
    assert trajectory.shape == (5, 6, 2)
    np.testing.assert_array_equal(trajectory[-1], labelled.sample(6, n_steps=4))
    noise = labelled.scaler_.transform(trajectory[0])
    assert 0.4 < noise.std() < 2


def test_sampling_begins_with_the_noise_that_is_given(labelled):
    start = np.random.RandomState(0).standard_normal((6, 2))
    trajectory = labelled.sample(6, x_init=start, return_trajectory=True)
    np.testing.assert_allclose(labelled.scaler_.transform(trajectory[0]), start, atol=1e-6)
    again = labelled.sample(6, x_init=start, random_state=99)  # ddim draws no other noise
    np.testing.assert_array_equal(trajectory[-1], again)
    with pytest.raises(ValueError, match=r"x_init must have shape \(6, 2\), got \(5, 2\)"):
        labelled.sample(6, x_init=start[:5])


def test_seeds():
    model = _model(solver="ddpm").fit(X)
    np.testing.assert_array_equal(model.sample(5), model.sample(5))
    np.testing.assert_array_equal(
        model.sample(5, random_state=3), model.sample(5, random_state=np.random.RandomState(3))
    )
    assert not np.allclose(model.sample(5, random_state=3), model.sample(5, random_state=4))
    assert not np.allclose(*model.sample(2))
    free = _model(random_state=None).fit(X)
    assert not np.allclose(free.sample(5), free.sample(5))
    other = _model(solver="ddpm", random_state=1).fit(X)
    assert not np.array_equal(other.loss_curve_, model.loss_curve_)


def test_global_generators_are_left_alone():
    before_numpy, before_torch = np.random.get_state()[1].copy(), torch.get_rng_state()
    model = _model(solver="ddpm").fit(X, Y)
    model.sample(3, y=0)
    model.impute(np.array([[np.nan, 0.0]]))
    model.add_noise(X, 5)
    np.testing.assert_array_equal(before_numpy, np.random.get_state()[1])
    assert torch.equal(before_torch, torch.get_rng_state())


def test_rows_in_chunks(labelled, monkeypatch):
    from skicml.generative import _drawing_torch

    start = np.random.RandomState(0).standard_normal((10, 2))
    y = np.arange(10) % 2
    at_once = labelled.sample(10, y, x_init=start, return_trajectory=True)
    noisy = labelled.add_noise(X[:10], 300)
    denoised = labelled.denoise(noisy, 300, y)
    monkeypatch.setattr(_drawing_torch, "_CHUNK", 3)
    in_chunks = labelled.sample(10, y, x_init=start, return_trajectory=True)
    np.testing.assert_allclose(in_chunks, at_once, atol=1e-5)
    np.testing.assert_allclose(labelled.denoise(noisy, 300, y), denoised, atol=1e-5)


def test_dtype_of_the_data_is_handed_back():
    for dtype in (np.float32, np.float64):
        model = _model().fit(X.astype(dtype))
        rows = X[:3].astype(dtype)
        assert model.sample(3).dtype == dtype
        assert model.score_samples(rows).dtype == dtype
        assert model.denoise(model.add_noise(rows, 5), 5).dtype == dtype
        assert model.score_function(rows, 5).dtype == dtype
        assert model.impute(rows).dtype == dtype


def test_samples_stay_in_the_range_of_the_data_unless_told_otherwise():
    drawn = _model(clip="data").fit(X).sample(200)
    slack = 1e-5
    assert (drawn >= X.min(axis=0) - slack).all()
    assert (drawn <= X.max(axis=0) + slack).all()
    model = _model(clip=0.5).fit(X)
    assert np.abs(model.scaler_.transform(model.sample(200))).max() <= 0.5 + slack
    free = _model(clip=None).fit(X).sample(200)
    assert (free > X.max(axis=0)).any()


# Times: 1 is hardly noisy, T is noise ------------------------------------------------------------


def test_first_and_last_time():
    model = _model(hidden_dim=32, max_iter=200).fit(X)
    np.testing.assert_allclose(model.denoise(model.add_noise(X, 1), 1), X, atol=0.03)
    np.testing.assert_allclose(model.add_noise(X, 0), model.scaler_.transform(X))
    noise = model.add_noise(np.tile(X, (50, 1)), 1000, random_state=1)
    assert noise.std(axis=0) == pytest.approx(1, abs=0.03)
    assert noise.mean(axis=0) == pytest.approx(0, abs=0.03)
    correlation = np.corrcoef(noise[:, 0], np.tile(X, (50, 1))[:, 0])[0, 1]
    assert abs(correlation) < 0.03


def test_score_function_is_the_gradient_of_the_noisy_log_density():
    """For normal data it is -x at every time."""
    Z = np.random.RandomState(0).standard_normal((2000, 2))
    model = DiffusionModel(hidden_dim=32, n_layers=2, max_iter=400, random_state=0).fit(Z)
    for t in (200, 800):
        points = model.add_noise(Z, t)
        gradient = model.score_function(points, t)
        assert np.mean((gradient + points) ** 2) < 0.05


@pytest.mark.parametrize("method", ["denoise", "score_function"])
def test_times_out_of_range(labelled, method):
    for t in (0, 1001):
        with pytest.raises(ValueError, match="t =="):
            getattr(labelled, method)(X, t)
    with pytest.raises(ValueError, match="t =="):
        labelled.add_noise(X, 1001)


# Scaling -----------------------------------------------------------------------------------------


def test_constant_and_dead_columns():
    constant = np.column_stack([X, np.full(len(X), 7.0), np.zeros(len(X))])
    for scale in ("standard", "minmax"):
        model = _model(scale=scale).fit(constant)
        np.testing.assert_array_equal(model.scaler_.scale[2:], 1)
        drawn = model.sample(20)
        np.testing.assert_allclose(drawn[:, 2:], [[7.0, 0.0]] * 20, atol=1e-5)
        assert np.isfinite(model.score_samples(constant[:3])).all()


def test_images_have_one_scale():
    pixels = _images()
    pixels[:, 0] *= 1e-6  # a border pixel of hardly any variance
    for scale, network in (("standard", "mlp"), ("minmax", "auto")):
        model = _model(network, image_shape=(4, 6), scale=scale).fit(pixels)
        assert np.ptp(model.scaler_.scale) == np.ptp(model.scaler_.center) == 0
        scaled = model.scaler_.transform(pixels)
        if scale == "minmax":
            assert (scaled.min(), scaled.max()) == (-1, 1)
        else:
            assert (scaled.mean(), scaled.std()) == pytest.approx((0, 1))
    columns = _model(scale="minmax").fit(pixels).scaler_.transform(pixels)
    np.testing.assert_allclose([columns.min(axis=0), columns.max(axis=0)], [[-1] * 24, [1] * 24])


def test_values_whose_squares_vanish_are_scaled_all_the_same():
    for magnitude in (1e-160, 1e-200, 1e-300):
        scaled = _model(max_iter=1).fit(X * magnitude).scaler_.transform(X * magnitude)
        np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(scaled.std(axis=0), 1)


def test_scale_none_leaves_the_data(labelled):
    model = _model(scale=None).fit(X)
    np.testing.assert_array_equal(model.scaler_.transform(X), X)


# Conditions --------------------------------------------------------------------------------------


def test_labels_of_any_dtype():
    names = np.array(["left", "right"], dtype=object)[Y]
    model = _model().fit(X, names)
    np.testing.assert_array_equal(model.classes_, ["left", "right"])
    one = model.sample(4, y="left")
    np.testing.assert_array_equal(one, model.sample(4, y=["left"] * 4))
    assert not np.allclose(one, model.sample(4, y="right"))
    with pytest.raises(ValueError, match=r"labels \['up'\].*classes are \['left', 'right'\]"):
        model.sample(2, y="up")
    with pytest.raises(ValueError, match="one for each of 3 rows"):
        model.sample(3, y=["left", "right"])


def test_numbers_as_condition():
    one = _model().fit(X, X[:, 0] * 1000)
    assert one.condition_.kind == "vector"
    assert not hasattr(one, "classes_")
    assert one.sample(3, y=5.0).shape == one.sample(3, y=[5.0, 6.0, 7.0]).shape == (3, 2)
    np.testing.assert_array_equal(one.sample(3, y=5.0), one.sample(3, y=np.full((3, 1), 5.0)))
    other_unit = _model().fit(X, X[:, 0])
    np.testing.assert_allclose(one.sample(3, y=500.0), other_unit.sample(3, y=0.5), atol=1e-5)
    two = _model().fit(X, X)
    np.testing.assert_array_equal(two.sample(3, y=X[0]), two.sample(3, y=X[[0, 0, 0]]))
    with pytest.raises(ValueError, match="conditions of width 3, but fit saw 2"):
        two.sample(1, y=[[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="NaN"):
        one.sample(1, y=np.nan)


def test_tokens_as_condition():
    pixels, tokens = _images(), np.random.RandomState(0).standard_normal((30, 3, 5))
    model = _model(image_shape=(4, 6)).fit(pixels, tokens)
    assert model.condition_.kind == "context"
    assert model.sample(30, y=tokens, guidance_scale=1.0).shape == (30, 24)
    assert model.sample(2, y=tokens[0]).shape == model.sample(2).shape == (2, 24)
    assert np.isfinite(model.score_samples(pixels[:2], tokens[:2])).all()
    np.testing.assert_allclose(
        model.sample(3, y=tokens[:3]), model.sample(3, condition=tokens[:3].astype(np.float32))
    )
    with pytest.raises(ValueError, match='condition="context" needs network="transformer"'):
        _model().fit(X, np.zeros((200, 3, 5)))


def test_the_kind_of_condition_can_be_told():
    assert _model(condition="vector").fit(X, Y).condition_.kind == "vector"
    assert _model(condition="label").fit(X, Y[:, None] > 0).condition_.kind == "label"
    with pytest.raises(ValueError, match="3 axes"):
        _model(condition="context", image_shape=(1, 2), patch_size=1).fit(X, X)


def test_without_condition_the_null_embedding_is_used(labelled):
    null = labelled.ema_module_.condition.null.numpy()
    np.testing.assert_array_equal(
        labelled.sample(5), labelled.sample(5, condition=np.tile(null, (5, 1)))
    )
    # guidance has nothing to exaggerate
    np.testing.assert_array_equal(labelled.sample(5), labelled.sample(5, guidance_scale=3.0))


def test_a_given_condition_is_checked(labelled):
    cond = np.random.RandomState(0).standard_normal((3, 8))
    drawn = labelled.sample(3, condition=cond)
    np.testing.assert_array_equal(drawn, labelled.sample(3, condition=cond.tolist()))
    np.testing.assert_array_equal(drawn, labelled.sample(3, condition=torch.as_tensor(cond)))
    for wrong in (cond[:2], cond[:1], cond[:, :7], cond[0], cond[:, None]):
        with pytest.raises(ValueError, match=r"condition must have shape \(3, 8\), got"):
            labelled.sample(3, condition=wrong)
    with pytest.raises(ValueError, match="condition contains NaN"):
        labelled.sample(3, condition=cond * np.nan)
    with pytest.raises(ValueError, match="fitted without y: condition must be None"):
        _model().fit(X).sample(3, condition=cond)
    tokens = np.zeros((30, 3, 5))
    model = _model(image_shape=(4, 6)).fit(_images(), tokens)
    with pytest.raises(ValueError, match="condition must have shape"):
        model.sample(30, condition=tokens[:, :, :4])


def test_condition_errors(labelled):
    with pytest.raises(ValueError, match="either y or condition"):
        labelled.sample(2, y=0, condition=np.zeros((2, 8)))
    with pytest.raises(ValueError, match="fitted without y"):
        _model().fit(X).sample(2, y=0)
    with pytest.raises(ValueError, match="inconsistent numbers"):
        _model().fit(X, Y[:-1])
    with pytest.raises(ValueError, match="y holds a value of magnitude"):
        _model().fit(X, X * 1e200)


# Errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_data_that_are_not_finite(bad):
    broken = X.copy()
    broken[3, 1] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        _model().fit(broken)


def test_shape_errors(labelled):
    with pytest.raises(ValueError, match="1 sample"):
        _model().fit(X[:1])
    with pytest.raises(ValueError, match="2 features as input"):
        labelled.score_samples(X[:, :1])
    for method in (labelled.impute, labelled.score, lambda Z: labelled.denoise(Z, 5)):
        with pytest.raises(ValueError, match="2 features as input"):
            method(np.ones((4, 3)))
    with pytest.raises(ValueError, match=r"got \(8, 8\) for 2 features"):
        _model(image_shape=(8, 8)).fit(X)
    with pytest.raises(ValueError, match="image_shape must be"):
        _model(image_shape=(2,)).fit(X)
    for sides in ((-1, -2), (1.5, 2)):
        with pytest.raises(ValueError, match="image_shape must be"):
            _model(image_shape=sides).fit(X)
    for network in ("transformer", "unet"):
        with pytest.raises(ValueError, match=f'network="{network}" needs image_shape'):
            _model(network=network).fit(X)
    with pytest.raises(ValueError, match="patch_size=3 must divide"):
        _model(image_shape=(4, 6), patch_size=3).fit(_images())


def test_too_many_steps(labelled):
    with pytest.raises(ValueError, match="n_sampling_steps=20 must not exceed n_timesteps=10"):
        _model(n_timesteps=10, n_sampling_steps=20).fit(X)
    with pytest.raises(ValueError, match="must not exceed n_timesteps=1000"):
        labelled.sample(n_steps=1001)
    with pytest.raises(ValueError, match="n_samples == 0"):
        labelled.sample(0)
    with pytest.raises(ValueError, match="solver must be one of"):
        labelled.sample(solver="euler")


def test_values_that_a_network_cannot_take_are_an_error_and_no_nan(labelled):
    far = np.array([[1e60, 0.0]])
    for method in (lambda Z: labelled.denoise(Z, 5), lambda Z: labelled.score_function(Z, 5)):
        with pytest.raises(ValueError, match="holds a value of magnitude"):
            method(far)
    with pytest.raises(ValueError, match="at most 1e"):
        labelled.impute(np.array([[1e60, np.nan]]))
    with pytest.raises(ValueError, match="at most 1e"):
        labelled.score_samples(far * 1e140)
    assert np.isfinite(labelled.impute(np.array([[1e14, np.nan]]))).all()
    assert np.isfinite(labelled.score_samples(far / 1e50)).all()


def test_the_guidance_scale_of_a_sample_has_the_range_of_the_parameter(labelled):
    for scale in (-1, np.inf):
        with pytest.raises(ValueError, match=f"guidance_scale == {scale}"):
            labelled.sample(2, y=0, guidance_scale=scale)
    with pytest.raises(ValueError, match="guidance_scale must not be NaN"):
        labelled.sample(2, y=0, guidance_scale=np.nan)
    with pytest.raises(TypeError, match="guidance_scale must be"):
        labelled.sample(2, y=0, guidance_scale="high")


def test_nothing_works_before_fit():
    model = _model()
    calls = (
        model.sample,
        lambda: model.score_samples(X),
        lambda: model.score(X),
        lambda: model.impute(X),
        lambda: model.denoise(X, 1),
        lambda: model.add_noise(X, 1),
        lambda: model.score_function(X, 1),
    )
    for call in calls:
        with pytest.raises(NotFittedError):
            call()


def test_an_interrupted_fit_leaves_nothing_behind(monkeypatch):
    from skicml.generative import _training_torch

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(_training_torch, "fit_net", interrupted)
    model = _model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X)
    assert not [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]


# Training on -------------------------------------------------------------------------------------


def test_no_steps_leave_the_network_as_it_was_made():
    model = _model(max_iter=0).fit(X)
    assert (model.n_iter_, len(model.loss_curve_)) == (0, 0)
    assert all(
        torch.equal(mine, other)
        for mine, other in zip(
            model.net_.module_.parameters(), model.ema_module_.parameters(), strict=True
        )
    )
    assert np.isfinite(model.sample(3)).all()


def test_max_iter_counts_gradient_steps_whatever_the_number_of_rows():
    for rows in (X[:7], X, np.tile(X, (5, 1))):
        model = _model(max_iter=60, batch_size=32).fit(rows)
        assert model.n_iter_ == len(model.loss_curve_) == 60


def test_weight_decay_shrinks_the_weights():
    norms = []
    for weight_decay in (0.0, 5.0):
        model = _model(max_iter=50, learning_rate=1e-2, weight_decay=weight_decay).fit(X)
        norms.append(float(model.net_.module_.network.input_layer.weight.detach().norm()))
    assert norms[1] < 0.7 * norms[0]


def test_partial_fit_goes_on_from_the_present_weights():
    model = _model(max_iter=60).fit(X, Y)
    before = copy.deepcopy(model.net_.module_)
    old_net, scale = model.net_, model.scaler_
    model.set_params(max_iter=30, learning_rate=1e-9, weight_decay=0.0).partial_fit(X * 2, Y)
    assert model.n_iter_ == len(model.loss_curve_) == 90
    assert model.scaler_ is scale
    for mine, other in zip(model.net_.module_.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)
    assert sum(len(epoch["batches"]) for epoch in old_net.history) == 60  # left as it was
    first = _model().partial_fit(X, Y)
    np.testing.assert_array_equal(first.loss_curve_, _model().fit(X, Y).loss_curve_)


def test_partial_fit_needs_data_of_the_same_kind():
    model = _model().fit(X, Y)
    with pytest.raises(ValueError, match="with y: y is needed"):
        model.partial_fit(X)
    with pytest.raises(ValueError, match=r"labels \[7\]"):
        model.partial_fit(X, np.full(len(X), 7))
    with pytest.raises(ValueError, match="2 features as input"):
        model.partial_fit(X[:, :1], Y)
    with pytest.raises(ValueError, match="without y: y must be None"):
        _model().fit(X).partial_fit(X, Y)


def test_further_training_widens_the_range_of_samples():
    model = _model(max_iter=100, hidden_dim=16).fit(X)
    further = X + 5
    model.set_params(max_iter=400).partial_fit(further)
    low, high = model.scaler_.inverse_transform(model.data_range_)
    np.testing.assert_allclose(low, X.min(axis=0))
    np.testing.assert_allclose(high, further.max(axis=0))
    drawn = model.sample(200)
    assert (drawn > X.max(axis=0)).all(axis=1).mean() > 0.5


def test_further_training_keeps_the_schedule():
    model = _model().fit(X).set_params(n_timesteps=2000, n_sampling_steps=1500)
    with pytest.raises(ValueError, match="must not exceed n_timesteps=1000"):
        model.partial_fit(X)


def test_warm_start():
    cold = _model(max_iter=10).fit(X).fit(X)
    assert cold.n_iter_ == 10
    warm = _model(max_iter=10, warm_start=True).fit(X).fit(X)
    assert warm.n_iter_ == 20
    np.testing.assert_array_equal(warm.loss_curve_[:10], cold.loss_curve_)


def test_average_of_the_weights():
    model = _model(max_iter=200, hidden_dim=16, learning_rate=1e-2).fit(X)
    last, average = model.net_.module_, model.ema_module_
    assert not torch.equal(last.network.input_layer.weight, average.network.input_layer.weight)
    plain = _model(ema_decay=0).fit(X)
    assert plain.ema_module_ is plain.net_.module_
    # samples come from the average
    moved = copy.deepcopy(model)
    for parameter in moved.net_.module_.parameters():
        parameter.data.zero_()
    np.testing.assert_array_equal(moved.sample(5), model.sample(5))


def test_the_warm_average_is_no_initialisation_after_a_few_steps():
    """With a constant decay of 0.999 the average would still be 97% of the initialisation."""
    model = _model(max_iter=30, learning_rate=1e-2).fit(X)
    untrained = _model(max_iter=0).fit(X)
    weights = [
        torch.cat([p.flatten() for p in module.parameters()]).detach()
        for module in (untrained.ema_module_, model.ema_module_, model.net_.module_)
    ]
    moved, needed = weights[1] - weights[0], weights[2] - weights[0]
    assert moved.norm() > 0.4 * needed.norm()


# Life as an estimator ----------------------------------------------------------------------------


def test_round_trips_and_size(labelled):
    again = pickle.loads(pickle.dumps(labelled))
    np.testing.assert_array_equal(again.sample(5, y=1), labelled.sample(5, y=1))
    again.partial_fit(X, Y)
    assert again.n_iter_ == 40
    n_weights = sum(p.numel() for p in labelled.ema_module_.parameters())
    large = _model(hidden_dim=64, n_layers=2).fit(X)
    n_weights = sum(p.numel() for p in large.ema_module_.parameters())
    # the last and the averaged weights, no third copy and no moments of the optimiser
    assert len(pickle.dumps(large)) < 3 * 4 * n_weights


def test_clone_with_a_schedule_and_a_network_of_its_own():
    schedule = NoiseSchedule("linear", 20)
    model = _model(network=_own_network, schedule=schedule)
    cloned = clone(model)
    assert cloned.network is _own_network
    fitted = cloned.fit(X)
    assert fitted.schedule_.n_timesteps == 20
    assert isinstance(fitted.ema_module_.network, _OwnNetwork)
    assert pickle.loads(pickle.dumps(fitted)).sample(3).shape == (3, 2)
    with pytest.raises(ValueError, match="must not exceed n_timesteps=20"):
        fitted.sample(n_steps=30)


class _OwnNetwork(torch.nn.Module):
    def __init__(self, n_features, n_cond):
        super().__init__()
        self.layer = torch.nn.Linear(n_features + n_cond + 1, n_features)

    def forward(self, x, t, cond=None, context=None):
        parts = [x, t[:, None].to(x.dtype) / 1000] + ([] if cond is None else [cond])
        return self.layer(torch.cat(parts, dim=1))


def _own_network(n_features, n_cond):
    return _OwnNetwork(n_features, n_cond)


def test_own_network_with_condition_and_images():
    model = _model(network=_own_network).fit(X, Y)
    assert model.sample(3, y=1, guidance_scale=2.0).shape == (3, 2)
    seen = []

    def image_network(shape, n_cond):
        seen.append((shape, n_cond))
        return torch.nn.Identity() if not shape else _Flat(shape)

    model = _model(network=image_network, image_shape=(4, 6)).fit(_images())
    assert seen == [((1, 4, 6), 0)]
    assert model.sample(2).shape == (2, 24)


def test_own_networks_of_the_wrong_kind():
    with pytest.raises(TypeError, match="network must return a torch module, got NoneType"):
        _model(network=lambda n_features, n_cond: None).fit(X)
    # an output that would be broadcast
    with pytest.raises(ValueError, match=r"of shape \(128, 2\), but returned \(128, 1\)"):
        _model(network=lambda n_features, n_cond: _OneColumn(n_features)).fit(X)


class _OneColumn(torch.nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.layer = torch.nn.Linear(n_features, 1)

    def forward(self, x, t, cond=None, context=None):
        return self.layer(x)


@pytest.mark.parametrize("network", ["mlp", "transformer", "unet"])
def test_any_width_of_the_network(network):
    for hidden_dim in (5, 10):
        model = _model(network, hidden_dim=hidden_dim, image_shape=(4, 6))
        assert model.fit(_images(), np.arange(30) % 2).sample(2, y=1).shape == (2, 24)


class _Flat(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.layer = torch.nn.Linear(24, 24)

    def forward(self, x, t, cond=None, context=None):
        assert x.shape[1:] == self.shape
        return self.layer(x.flatten(1)).view_as(x)


@pytest.mark.parametrize("network", ["auto", "transformer", "unet", "mlp"])
@pytest.mark.parametrize("image_shape", [(4, 6), (2, 2, 6)])
def test_networks_for_images(network, image_shape):
    model = _model(network=network, image_shape=image_shape).fit(_images(), np.arange(30) % 3)
    assert model.sample(3, y=[0, 1, 2]).shape == (3, 24)
    assert np.isfinite(model.score_samples(_images(2))).all()


def test_in_a_pipeline_and_a_grid_search():
    pipeline = make_pipeline(StandardScaler(), _model(n_likelihood_steps=5)).fit(X)
    assert np.isfinite(pipeline.score(X))
    assert pipeline.score_samples(X).shape == (200,)
    search = GridSearchCV(_model(n_likelihood_steps=5), {"learning_rate": [1e-3, 1e-2]}, cv=2).fit(
        X
    )
    assert search.best_estimator_.sample(2).shape == (2, 2)


def test_verbose_prints_the_loss(capsys):
    _model(max_iter=60, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["step 50", "step 60"]


class _StopAfter:
    def __init__(self, n_tasks):
        self.n_tasks = n_tasks
        self.names = []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        self.names.append(context.task_name)

    def on_fit_task_end(self, estimator, context):
        return len(self.names) > self.n_tasks


def test_callbacks_see_epochs_of_fifty_steps_and_stop_training():
    callback = _StopAfter(2)
    model = _model(max_iter=200).set_callbacks(callback).fit(X)
    assert callback.names == ["fit", "epoch 0", "epoch 1"]
    assert model.n_iter_ == 100
    assert np.isfinite(model.sample(3)).all()
    callback.names.clear()
    model.partial_fit(X)
    assert model.n_iter_ == 200
    assert not hasattr(model, "_callback_fit_ctx")


# Missing values ----------------------------------------------------------------------------------


def test_impute_keeps_what_is_known_and_fills_the_rest(labelled):
    holes = X[:20].copy()
    holes[::2, 0] = np.nan
    holes[1] = np.nan
    filled = labelled.impute(holes, n_resample=2)
    known = ~np.isnan(holes)
    np.testing.assert_array_equal(filled[known], holes[known])
    assert np.isfinite(filled).all()
    assert np.isnan(holes).any()  # the input is left alone
    np.testing.assert_array_equal(labelled.impute(X), X)
    with_labels = labelled.impute(holes, y=Y[:20], random_state=1)
    assert not np.allclose(with_labels, labelled.impute(holes, y=1 - Y[:20], random_state=1))
    for rows in (holes, X[:20]):  # also where nothing is missing
        with pytest.raises(ValueError, match=r"labels \[7\]"):
            labelled.impute(rows, y=7)
    with pytest.raises(ValueError, match="n_resample == 0"):
        labelled.impute(holes, n_resample=0)
    with pytest.raises(ValueError, match="infinity"):
        labelled.impute(np.array([[np.inf, np.nan]]))
