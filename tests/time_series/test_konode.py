"""KoNODE as an estimator: shapes, windows, validation, composition, determinism."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.datasets import make_duffing
from skicml.time_series import KoNODE
from skicml.time_series._konode_torch import Curriculum
from skicml.time_series._konode_windows import _hold_out

RNG = np.random.default_rng(0)


def make_series(n_timepoints=60):
    """Two channels in different units, one of them driven by the clock."""
    t = 0.1 * np.arange(n_timepoints)
    return np.column_stack([5 + np.cos(3 * t), 100 * np.sin(t) + 20 * np.cos(3 * t)])


def quick(**params):
    defaults = {
        "horizon": 5,
        "koopman_dim": 4,
        "hidden_dims": (8,),
        "decoder_dim": 8,
        "max_epochs": 3,
        "learning_rate": 0.01,
        "random_state": 0,
    }
    return KoNODE(**(defaults | params))


@pytest.fixture(scope="module")
def model():
    return quick().fit(make_series())


# -------------------------------------------------------------------------- shapes and contexts


@pytest.mark.parametrize("context_length", [1, 4])
def test_every_row_of_a_series_gets_its_forecast(context_length):
    X = make_series()
    model = quick(context_length=context_length).fit(X)
    forecasts = model.predict(X)
    assert forecasts.shape == (60, 5 * 2)
    for row in (context_length - 1, 30, 59):
        steps = model.forecast(5, X[: row + 1])
        np.testing.assert_allclose(forecasts[row].reshape(5, 2), steps, rtol=1e-9)
    # The contexts of the first rows are filled up with copies of row 0.
    padded = np.vstack([np.repeat(X[:1], context_length - 1, axis=0), X])
    np.testing.assert_allclose(forecasts[0], model.predict(padded)[context_length - 1], rtol=1e-9)


def test_one_step_ahead_has_the_shape_of_the_series():
    X = make_series()
    assert quick(horizon=1).fit(X).predict(X).shape == X.shape


def test_a_panel_is_forecast_from_the_end_of_each_series():
    panel = make_duffing(8, 20, random_state=0)
    model = quick().fit(panel)
    forecasts = model.predict(panel)
    assert forecasts.shape == (8, 5, 2)
    np.testing.assert_allclose(forecasts[3], model.forecast(5, panel[3]), rtol=1e-9)
    np.testing.assert_allclose(model.forecast(7), model.forecast(7, panel), rtol=1e-9)
    assert model.context_.shape == (8, 1, 2)
    assert model.end_time_ == 19


@pytest.mark.parametrize("initial_latent", ["encoder", "learned", "random"])
def test_forecasts_of_any_length_go_on_from_the_training_data(initial_latent):
    X = make_series()
    model = quick(initial_latent=initial_latent, context_length=2, time_step=0.1).fit(X)
    forecast = model.forecast(100)
    assert forecast.shape == (100, 2)
    assert np.isfinite(forecast).all()
    np.testing.assert_allclose(forecast, model.forecast(100, X), rtol=1e-9)
    np.testing.assert_allclose(forecast[:5].ravel(), model.predict(X)[-1], rtol=1e-9)
    np.testing.assert_allclose(model.end_time_, 5.9)


def test_float32_stays_float32():
    X = make_series().astype(np.float32)
    model = quick().fit(X)
    for output in (
        model.predict(X),
        model.forecast(3),
        model.koopman_trajectory([0.0, 1.0]),
        model.parameter_trajectory([0.0, 1.0]),
        model.vector_field(X),
    ):
        assert output.dtype == np.float32
    assert quick().fit(make_series()).predict(X.astype(float)).dtype == np.float64


def test_trajectories_have_a_row_a_time():
    panel = make_duffing(4, 20, random_state=0)
    encoder = quick().fit(panel)
    assert encoder.koopman_trajectory([0, 1, 2]).shape == (4, 3, 4)
    assert encoder.koopman_trajectory([0, 1, 2], panel[0]).shape == (3, 4)
    assert encoder.parameter_trajectory([0, 1]).shape == (4, 2, 3 * 8 + 9 * 2)
    learned = quick(initial_latent="learned").fit(panel)
    assert learned.koopman_trajectory([0, 1, 2], panel).shape == (3, 4)


def test_the_unit_of_time_changes_units_alone():
    X = make_series()
    seconds, minutes = quick(time_step=60.0).fit(X), quick(time_step=1.0).fit(X)
    np.testing.assert_array_equal(seconds.predict(X), minutes.predict(X))
    np.testing.assert_allclose(60 * seconds.koopman_eigenvalues_, minutes.koopman_eigenvalues_)
    np.testing.assert_allclose(60 * seconds.vector_field(X), minutes.vector_field(X))
    np.testing.assert_allclose(
        seconds.koopman_trajectory([0, 600.0]), minutes.koopman_trajectory([0, 10.0]), rtol=1e-6
    )


def test_the_units_of_the_channels_do_not_matter():
    X = make_series()
    scaled = quick().fit(X * [1000, 0.01] + [5, -3]).predict(X * [1000, 0.01] + [5, -3])
    plain = quick().fit(X).predict(X)
    np.testing.assert_allclose(
        scaled, plain * np.tile([1000, 0.01], 5) + np.tile([5, -3], 5), rtol=1e-3
    )


def test_constant_channels_stay_constant():
    X = np.column_stack([make_series(), np.full(60, 7.3)])
    model = quick().fit(X)
    np.testing.assert_allclose(model.forecast(30)[:, 2], 7.3, rtol=1e-12)
    np.testing.assert_array_equal(model.scale_[2], 1)
    constant = quick().fit(np.full((30, 2), 4.0))
    np.testing.assert_allclose(constant.forecast(3), 4.0)


def test_rows_are_forecast_one_by_one(model):
    X = make_series()
    order = RNG.permutation(60)
    np.testing.assert_allclose(model.predict(X[order]), model.predict(X)[order], rtol=1e-10)


def test_score_is_the_share_of_variance_explained(model):
    X = make_series(40)
    forecasts, targets = [], []
    for row in range(35):
        forecasts.append(model.forecast(5, X[: row + 1]) / model.scale_)
        targets.append(X[row + 1 : row + 6] / model.scale_)
    forecasts, targets = np.vstack(forecasts), np.vstack(targets)
    variance = np.square(targets - targets.mean(axis=0)).mean()
    expected = 1 - np.square(forecasts - targets).mean() / variance
    assert model.score(X) == pytest.approx(expected)
    assert model.score(X[:4]) < 1  # over the 3 steps that fit
    with pytest.raises(ValueError, match=r"more than context_length=1 .* n_timepoints = 1"):
        model.score(X[:1])


def test_score_keeps_the_clock():
    X = make_series(30)
    model = quick(initial_latent="learned", context_length=3, time_step=0.1).fit(X)
    part = X[10:]
    forecasts = model.predict(part, start_time=1.0)[2:-5].reshape(-1, 5, 2) / model.scale_
    targets = np.stack([part[row + 1 : row + 6] for row in range(2, 15)]) / model.scale_
    error = np.square(forecasts - targets).mean()
    variance = np.square(targets - targets.mean(axis=(0, 1))).mean()
    assert model.score(part, start_time=1.0) == pytest.approx(1 - error / variance)


# -------------------------------------------------------------------------------- composition


def test_a_frame_with_a_time_index():
    X = make_series()
    index = pd.date_range("2025-01-01", periods=60, freq="h")
    frame = pd.DataFrame(X, index=index, columns=["flow", "pressure"])
    model = quick().fit(frame)
    assert list(model.feature_names_in_) == ["flow", "pressure"]
    np.testing.assert_array_equal(model.predict(frame), quick().fit(X).predict(X))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(model.forecast(4), model.forecast(4, frame))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["pressure", "flow"]])


def test_pipeline_after_a_scaler():
    X = make_series()
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X)
    scaler = pipeline[0]
    unscaled = pipeline.predict(X) * np.tile(scaler.scale_, 5) + np.tile(scaler.mean_, 5)
    np.testing.assert_allclose(unscaled, quick().fit(X).predict(X), rtol=1e-3)
    assert pipeline.score(X) == pytest.approx(quick().fit(X).score(X), abs=1e-3)


def test_grid_search_over_time():
    search = GridSearchCV(
        quick(context_length=2), {"koopman_dim": [0, 4]}, cv=TimeSeriesSplit(3), error_score="raise"
    )
    search.fit(make_series(90))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(make_series(8)).shape == (8, 10)


def test_training_improves_the_score():
    panel = make_duffing(30, 25, random_state=0)
    few, many = (quick(max_epochs=epochs).fit(panel).score(panel) for epochs in (1, 30))
    assert many > max(few, 0.95)


# ---------------------------------------------------------------------------------- the clock


def make_forced(n_timepoints=400):
    """x'' = -1.3^2 x + 4 cos(2t), dt = 0.1: the force turns in 31.4 rows."""
    t, size = 0.1 * np.arange(n_timepoints), 4 / (1.3**2 - 4)
    position = np.cos(1.3 * t) + size * np.cos(2 * t)
    return np.column_stack([position, -1.3 * np.sin(1.3 * t) - 2 * size * np.sin(2 * t)])


def test_an_encoder_tells_the_phase_of_a_window():
    """Equal states half a period of the driver apart go different ways."""
    X = make_forced()
    model = quick(
        context_length=4, horizon=10, time_step=0.1, hidden_dims=(16,), max_epochs=40, stride=2
    ).fit(X)
    window = X[100:104]
    other = X[116:120]
    other = other - other[-1] + window[-1]  # the same state, reached half a period later
    first, second = model.forecast(10, window), model.forecast(10, other)
    assert np.abs(first - second).max() > 0.2 * model.scale_.min()
    blind = clone(model).set_params(koopman_dim=0).fit(X)
    np.testing.assert_allclose(blind.forecast(10, window), blind.forecast(10, other), rtol=1e-9)


def test_learned_windows_of_a_long_series_keep_their_absolute_times():
    model = quick(initial_latent="learned", context_length=3, stride=4, validation_fraction=0)
    training, validation = model._windows(make_series()[np.newaxis], 5, RNG)
    assert validation is None
    # The last window ends with the last row; a context ends 5 rows before.
    np.testing.assert_array_equal(training["start"], np.arange(2, 55, 4))
    for window, start in zip(training["windows"], training["start"]):
        np.testing.assert_array_equal(window, make_series()[start - 2 : start + 6])
    model.set_params(initial_latent="encoder")
    np.testing.assert_array_equal(model._windows(make_series()[None], 5, RNG)[0]["start"], 0)


def test_learned_forecasts_depend_on_the_start_time():
    X = make_series()
    learned = quick(initial_latent="learned", time_step=0.1, max_epochs=30).fit(X)
    early, late = learned.forecast(9, X[:3]), learned.forecast(9, X[:3], start_time=1.0)
    assert np.abs(early - late).max() > 1e-3
    np.testing.assert_allclose(
        learned.predict(X)[20:], learned.predict(X[20:], start_time=2.0), rtol=1e-9
    )
    assert learned.score(X[20:], start_time=2.0) != learned.score(X[20:])
    panel = np.stack([X[20:30], X[20:30]])
    np.testing.assert_allclose(
        learned.predict(panel, start_time=2.0)[1].ravel(), learned.predict(X)[29], rtol=1e-9
    )
    encoder = quick(time_step=0.1).fit(X)
    np.testing.assert_array_equal(encoder.predict(X), encoder.predict(X, start_time=3.0))


# -------------------------------------------------------------------------------- determinism


@pytest.mark.parametrize("initial_latent", ["encoder", "learned", "random"])
def test_predictions_are_deterministic(initial_latent):
    X = make_series()
    model = quick(initial_latent=initial_latent).fit(X)
    np.testing.assert_array_equal(model.predict(X), model.predict(X))
    np.testing.assert_allclose(model.forecast(9), model.forecast(9), rtol=0)
    again = quick(initial_latent=initial_latent).fit(X)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    other = quick(initial_latent=initial_latent, random_state=1).fit(X)
    assert (model.predict(X) != other.predict(X)).any()


def test_random_latents_are_fresh_noise_in_training_alone():
    from skicml.time_series._konode_torch import KoopmanODE

    seen = []
    original = KoopmanODE.forward

    def watched(self, windows, start, noise=None):
        if self.training:
            seen.append(noise.clone())
        return original(self, windows, start, noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KoopmanODE, "forward", watched)
        model = quick(initial_latent="random", batch_size=1000, max_epochs=2).fit(make_series())
    first, second = seen
    assert (first != second).any()
    assert 0.008 < first.std() < 0.012
    assert np.abs(model.koopman_trajectory([0.0])).max() < 0.05


# ----------------------------------------------------------------------------------- training


def test_the_epoch_of_the_least_validation_loss_is_kept(monkeypatch):
    from skicml.time_series._konode_torch import KoNODENet

    original, calls = KoNODENet.get_loss, []

    def climbing(self, *args, training=False, **kwargs):
        calls.append(training)
        loss = original(self, *args, training=training, **kwargs)
        return -loss if training and sum(calls) > 6 else loss  # uphill from epoch 7

    monkeypatch.setattr(KoNODENet, "get_loss", climbing)
    panel = make_duffing(20, 16, random_state=0)
    model = quick(batch_size=1000, max_epochs=12).fit(panel)
    assert model.n_iter_ == len(model.loss_curve_) == len(model.validation_loss_curve_) == 12
    assert model.best_loss_ == model.validation_loss_curve_.min()
    assert model.best_loss_ < model.validation_loss_curve_[-1]
    held_out = np.random.RandomState(0).permutation(20)[:2]
    windows = np.lib.stride_tricks.sliding_window_view(panel[held_out], 6, axis=1)
    windows = windows.transpose(0, 1, 3, 2).reshape(-1, 6, 2)
    error = (model.forecast(5, windows[:, :1]) - windows[:, 1:]) / model.scale_
    assert np.square(error).mean() == pytest.approx(model.best_loss_, rel=1e-4)


def test_without_validation_the_full_horizon_decides():
    model = quick(horizon=25, validation_fraction=0, max_epochs=9).fit(make_series())
    assert model.validation_loss_curve_ is None
    assert model.best_loss_ == model.loss_curve_[5:].min()


def test_the_horizon_doubles_over_the_first_half_of_the_epochs():
    stages = Curriculum(12)
    horizons = [stages.horizon_at(epoch, 60) for epoch in range(12)]
    assert horizons == [10, 10, 20, 20, 40, 40] + 6 * [60]
    assert [Curriculum(4).horizon_at(epoch, 10) for epoch in range(4)] == 4 * [10]
    assert [Curriculum(1).horizon_at(0, 500)] == [10]
    assert [Curriculum(4).horizon_at(epoch, 3) for epoch in range(4)] == 4 * [3]


def test_a_callback_ends_training():
    lengths = []

    class Watch:
        def setup(self, estimator, context):
            pass

        teardown = on_fit_task_begin = setup

        def on_fit_task_end(self, estimator, context):
            return len(lengths.append(1) or lengths) == 2

    stopped = quick(max_epochs=50).set_callbacks(Watch()).fit(make_series())
    assert stopped.n_iter_ == 2
    assert np.isfinite(stopped.forecast(3)).all()


def test_held_out_series_are_whole():
    held_out, kept = _hold_out(np.arange(7), 20, 0.1, 5, 1, np.random.RandomState(0))
    assert (held_out.sum(axis=1) == [7 * row.any() for row in held_out]).all()
    assert held_out.any(axis=1).sum() == 2
    np.testing.assert_array_equal(kept, ~held_out)


def test_held_out_windows_share_no_target_with_training():
    start = np.arange(0, 200, 2)
    held_out, kept = _hold_out(start, 3, 0.1, 12, 4, np.random.RandomState(0))
    assert (held_out.sum(axis=1) == 10).all()
    assert not (held_out & kept).any()
    last_training_row = start[kept[0]].max() + 12 - 1
    first_target = start[held_out[0]].min() + 4
    assert last_training_row == first_target - 1 - (first_target % 2)


@pytest.mark.parametrize("fraction", [0.0, 0.1])
def test_nothing_is_held_out_of_too_little(fraction):
    held_out, kept = _hold_out(np.arange(20), 1, fraction, 20, 1, np.random.RandomState(0))
    assert not held_out.any()
    assert kept.all()


@pytest.mark.parametrize(("stride", "n_windows"), [(None, 1000), (1, 2996), (7, 428)])
def test_windows_by_default_are_at_most_1024(stride, n_windows):
    X = RNG.normal(size=(1, 3000, 1))
    training, _ = quick(stride=stride, horizon=4, validation_fraction=0)._windows(X, 4, RNG)
    assert abs(len(training["windows"]) - n_windows) <= 1
    np.testing.assert_array_equal(training["windows"][-1], X[0, -5:])


def test_panels_keep_the_bound_on_windows():
    X = RNG.normal(size=(300, 14, 1))  # 10 windows a series, of which 3 fit
    training, _ = quick(validation_fraction=0)._windows(X, 4, RNG)
    assert len(training["windows"]) == 900


def test_many_series_give_at_least_one_window_each():
    X = RNG.normal(size=(3000, 10, 1))
    training, _ = quick(validation_fraction=0)._windows(X, 4, RNG)
    assert len(training["windows"]) == 3000


# ---------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"koopman_dim": 3}, "koopman_dim must be even .* got 3"),
        ({"hidden_dims": (8, 0)}, "hidden_dims must be ints"),
        ({"hidden_dims": (8, 2.5)}, "hidden_dims must be ints"),
        ({"context_length": 59}, r"context_length=59 needs at least 61 time steps, got .* = 60"),
    ],
)
def test_parameters_that_do_not_fit(params, message):
    model = quick(**params)
    with pytest.raises(ValueError, match=message):
        model.fit(make_series())
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_must_be_finite(model, bad):
    X = make_series()
    X[7, 1] = bad
    for call in (quick().fit, model.predict, model.score, model.vector_field):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            call(X)
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.forecast(3, X)


def test_a_short_series_cuts_the_training_horizon():
    with pytest.warns(UserWarning, match="training forecasts 7 steps") as record:
        model = quick(horizon=50).fit(make_series(8))
    assert record[0].filename == __file__
    assert model.predict(make_series(8)).shape == (8, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(horizon=7).fit(make_series(8))


def test_other_numbers_of_channels_are_refused(model):
    with pytest.raises(ValueError, match="3 features, but KoNODE is expecting 2"):
        model.forecast(2, np.zeros((4, 3)))
    with pytest.raises(ValueError, match="steps"):
        model.forecast(0)
    with pytest.raises(ValueError, match="context must be one series"):
        model.vector_field(make_series(), context=np.zeros((2, 4, 2)))


def test_divergence_is_said():
    with pytest.raises(ValueError, match="diverged at once: lower learning_rate"):
        quick(learning_rate=1e30, clip_norm=None, batch_size=8).fit(make_series())


def test_divergence_of_the_validation_loss_is_said():
    """One batch an epoch: the first training loss is that of the start, and finite."""
    with pytest.raises(ValueError, match="diverged at once: lower learning_rate"):
        quick(learning_rate=1e30, clip_norm=None, batch_size=1000).fit(make_series())


@pytest.mark.parametrize("params", [{}, {"horizon": 40, "validation_fraction": 0}])
def test_late_divergence_keeps_the_best(monkeypatch, params):
    from skicml.time_series._konode_torch import KoNODENet

    original, calls = KoNODENet.get_loss, []

    def broken(self, *args, training=False, **kwargs):
        calls.append(training)
        loss = original(self, *args, training=training, **kwargs)
        return loss * float("nan") if sum(calls) > 3 else loss

    monkeypatch.setattr(KoNODENet, "get_loss", broken)
    with pytest.warns(ConvergenceWarning, match="diverged in epoch 4") as record:
        model = quick(batch_size=1000, max_epochs=20, **params).fit(make_series())
    assert record[0].filename == __file__
    assert model.n_iter_ == 4
    assert np.isfinite(model.best_loss_)
    assert np.isfinite(model.forecast(5)).all()
