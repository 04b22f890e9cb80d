"""LSCDImputer as an estimator: shapes, windows, units, channels, seeds and bad input."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skicml.datasets import make_gappy_sines
from skicml.generative._denoiser_torch import Denoiser
from skicml.time_series import LSCDImputer, _lscd, _lscd_torch
from skicml.time_series._lscd_windows import Windows

TINY = {
    "n_layers": 2,
    "n_channels": 8,
    "n_heads": 2,
    "time_embedding_dim": 8,
    "spectral_layers": 1,
    "spectral_channels": 8,
    "n_diffusion_steps": 8,
    "max_iter": 3,
    "n_samples": 5,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def sines():
    return make_gappy_sines(30, 12, n_channels=2, missing_fraction=0.4, random_state=0)


@pytest.fixture(scope="module")
def fitted(sines):
    return LSCDImputer(times=sines.times, **TINY).fit(sines.X)


# ---- Shapes and what is left alone ------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", ["panel", "channels", "window"])
def test_observed_values_come_back_bit_by_bit(sines, dtype, shape):
    X = sines.X.astype(dtype) * 1e3 + 7
    params = {}
    if shape == "panel":
        X = X[:, :, 0]
    elif shape == "window":
        X, params = X.reshape(-1, 2), {"window": 9, "stride": 4}
    before = X.copy()
    imputer = LSCDImputer(**TINY, **params).fit(X)
    filled = imputer.transform(X)
    assert filled.shape == X.shape
    assert filled.dtype == dtype
    assert not np.isnan(filled).any()
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    np.testing.assert_array_equal(X, before)
    draws = imputer.sample(X, 4)
    bands = imputer.predict_quantiles(X)
    assert (draws.shape, bands.shape) == ((4, *X.shape), (3, *X.shape))
    for filled in (*draws, *bands):
        assert not np.isnan(filled).any()
        np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])


def test_complete_series_are_returned(fitted, sines):
    np.testing.assert_array_equal(fitted.transform(sines.complete), sines.complete)


def test_the_estimate_is_the_median_of_the_draws(fitted, sines):
    draws = fitted.sample(sines.X)
    np.testing.assert_allclose(fitted.transform(sines.X), np.median(draws, axis=0), rtol=1e-9)
    bands = fitted.predict_quantiles(sines.X, (0.1, 0.8))
    np.testing.assert_allclose(bands, np.quantile(draws, (0.1, 0.8), axis=0), rtol=1e-9)
    hidden = np.isnan(sines.X)
    assert np.abs(draws.mean(axis=0) - bands[0])[hidden].min() > 0
    assert draws.std(axis=0)[hidden].min() > 0


def test_fitted_attributes(fitted, sines):
    np.testing.assert_allclose(fitted.mean_, np.nanmean(sines.X, axis=(0, 1)))
    np.testing.assert_allclose(fitted.scale_, np.nanstd(sines.X, axis=(0, 1)))
    np.testing.assert_array_equal(fitted.times_, sines.times)
    np.testing.assert_allclose(
        fitted.frequencies_, np.linspace(1e-5, 0.5, 12) / (sines.times[1] - sines.times[0])
    )
    assert fitted.n_features_in_ == 2
    assert fitted.n_iter_ == len(fitted.loss_curve_) == 3
    assert fitted.validation_loss_ is None
    assert fitted.network_ is fitted.ema_module_.network
    assert sum(p.numel() for p in LSCDImputer(max_iter=1).fit(sines.X).network_.parameters()) > 2e5


# ---- Rows do not know of each other -----------------------------------------------------------


def test_rows_are_imputed_independently(fitted, sines):
    """Also across the batches that draws are made in; exact up to rounding in float32."""
    filled = fitted.transform(sines.X)
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_allclose(fitted.transform(sines.X[order]), filled[order], rtol=1e-4)
    for i in (0, 17):
        alone = fitted.transform(sines.X[i : i + 1])[0]
        np.testing.assert_allclose(alone, filled[i], rtol=1e-4, atol=1e-6)


def test_batches_of_draws_share_their_noise(fitted, sines, monkeypatch):
    filled = fitted.transform(sines.X)
    monkeypatch.setattr(_lscd, "_CELLS", 1)
    np.testing.assert_allclose(fitted.transform(sines.X), filled, rtol=1e-4, atol=1e-6)


def test_calls_are_repeatable_even_without_a_seed(sines):
    imputer = LSCDImputer(**TINY | {"random_state": None}).fit(sines.X)
    np.testing.assert_array_equal(imputer.transform(sines.X), imputer.transform(sines.X))
    restored = pickle.loads(pickle.dumps(imputer))
    np.testing.assert_array_equal(restored.transform(sines.X), imputer.transform(sines.X))
    other = clone(imputer).fit(sines.X)
    assert not np.array_equal(other.transform(sines.X), imputer.transform(sines.X))


# ---- Leakage ----------------------------------------------------------------------------------


def test_score_hides_what_it_scores(sines, monkeypatch):
    """The imputer is not shown the cells that its error is measured on."""
    imputer = LSCDImputer(**TINY).fit(sines.X)
    seen, original = [], LSCDImputer._impute

    def impute(self, panel, *args, **kwargs):
        seen.append(panel)
        return original(self, panel, *args, **kwargs)

    monkeypatch.setattr(LSCDImputer, "_impute", impute)
    score = imputer.score(sines.X)
    (shown,) = seen
    hidden = np.isnan(shown) & ~np.isnan(sines.X)
    assert hidden.sum() == round(0.2 * (~np.isnan(sines.X)).sum())
    errors = np.abs(imputer.transform(shown) - sines.X) / np.nanstd(sines.X, axis=(0, 1))
    assert score == pytest.approx(-errors[hidden].mean())
    assert score < -0.3  # an untrained imputer that scored well would have peeked
    assert imputer.score(sines.X) == score


@pytest.mark.parametrize("conditioning", ["spectrum", None])
def test_training_hides_what_it_asks_for(fitted, conditioning):
    """The loss is that of the hidden cells alone, and the condition knows nothing of them."""
    rng = np.random.default_rng(0)
    observed = torch.as_tensor(rng.uniform(size=(6, 2, 12)) < 0.7).float()
    x0 = torch.as_tensor(rng.normal(size=(6, 2, 12))).float() * observed
    steps = torch.arange(12.0).expand(6, -1)
    imputer = LSCDImputer(conditioning=conditioning, **TINY)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Denoiser(imputer._make_network((2, 12), 0), imputer._make_schedule(), "eps")
    conditions, condition = [], net.network.condition

    def recorded(*args):
        conditions.append(condition(*args))
        return conditions[-1]

    net.network.condition = recorded

    def loss(x0):
        batch = {"x0": x0, "observed": observed, "times": steps}
        return imputer._loss(net, batch, torch.Generator().manual_seed(3))

    generator = torch.Generator().manual_seed(3)
    hidden = observed - _lscd_torch.draw_known(observed, generator, "random")
    noised = net.corrupt(x0, generator)
    bias = net.network.output[-1].bias  # what an untrained network says everywhere
    expected = ((noised.eps - bias).square() * hidden).sum() / hidden.sum()
    torch.testing.assert_close(loss(x0), expected)
    loss(x0 + 100 * hidden)
    first, second = conditions
    assert torch.equal(first.start, second.start)
    assert all(torch.equal(left, right) for left, right in zip(first.sides, second.sides))
    assert not first.values[hidden > 0].any()


def test_rows_of_gaps_do_not_move_the_statistics(sines):
    """Standardisation looks at observed values only."""
    more = np.concatenate([sines.X, np.full((4, 12, 2), np.nan)])
    mean, scale, seen = _lscd._statistics(more)
    np.testing.assert_array_equal(mean, np.nanmean(sines.X, axis=(0, 1)))
    np.testing.assert_allclose(scale, np.nanstd(sines.X, axis=(0, 1)), rtol=1e-12)
    assert seen.all()


# ---- Times ------------------------------------------------------------------------------------


@pytest.mark.parametrize("transform_times", [lambda t: 0.1 * t, lambda t: 2.45e6 + t / 24])
def test_unit_and_origin_of_time_do_not_matter(sines, transform_times):
    """Tenths of a unit, and Julian days."""
    steps = np.arange(12.0)
    plain = LSCDImputer(times=steps, **TINY).fit_transform(sines.X)
    other = LSCDImputer(times=transform_times(steps), **TINY).fit_transform(sines.X)
    np.testing.assert_allclose(other, plain, rtol=1e-3, atol=1e-4)


def test_irregular_times_matter(sines):
    times = np.arange(12.0)
    irregular = times + np.where(times % 2, 0.4, 0)
    plain = LSCDImputer(times=times, **TINY).fit_transform(sines.X)
    other = LSCDImputer(times=irregular, **TINY).fit_transform(sines.X)
    assert np.abs(plain - other).max() > 1e-4


# ---- Windows ----------------------------------------------------------------------------------


def test_windows_cover_the_series_to_its_end():
    windows = Windows(11, 4, 3)
    assert windows.starts.tolist() == [0, 3, 6, 7]
    assert Windows(10, 4, 3).starts.tolist() == [0, 3, 6]
    assert Windows(4, 4, 4).starts.tolist() == [0]
    panel = np.arange(2 * 11 * 2).reshape(2, 11, 2)
    cut = windows.cut(panel)
    np.testing.assert_array_equal(cut[4 + 3], panel[1, 7:11])
    times = windows.cut_times(np.arange(11.0) ** 2, 2)
    np.testing.assert_array_equal(times[4 + 3], np.arange(7.0, 11.0) ** 2)


@pytest.mark.parametrize("assemble", [Windows.average, Windows.stitch])
def test_windows_are_put_together_again(assemble):
    windows = Windows(11, 4, 3)
    panel = np.random.default_rng(0).normal(size=(2, 11, 3))
    np.testing.assert_allclose(assemble(windows, windows.cut(panel)), panel)
    summaries = np.stack([windows.cut(panel), -windows.cut(panel)], axis=-1)
    np.testing.assert_allclose(assemble(windows, summaries), np.stack([panel, -panel], axis=-1))


def test_overlaps():
    windows = Windows(6, 4, 2)  # starts 0 and 2
    said = np.stack([np.zeros((4, 1)), np.ones((4, 1))])
    np.testing.assert_array_equal(windows.average(said)[0, :, 0], [0, 0, 0.5, 0.5, 1, 1])
    np.testing.assert_array_equal(windows.stitch(said)[0, :, 0], [0, 0, 0, 1, 1, 1])


def test_one_long_series(sines):
    """Rows are time steps; new series may be shorter or longer than that of fit."""
    X = sines.X.reshape(-1, 2)
    imputer = LSCDImputer(window=12, **TINY).fit(X)
    np.testing.assert_allclose(
        imputer.transform(X), LSCDImputer(**TINY).fit_transform(sines.X).reshape(-1, 2), rtol=1e-4
    )
    assert imputer.transform(X[:50]).shape == (50, 2)
    assert imputer.frequencies_.shape == (12,)


def test_windows_of_an_irregular_series_have_their_own_times(sines):
    X = sines.X.reshape(-1, 2)[:36]
    gaps = np.random.default_rng(0).uniform(0.5, 1.5, 36)
    imputer = LSCDImputer(window=12, times=gaps.cumsum(), **TINY).fit(X)
    filled = imputer.transform(X)
    # the same windows as a panel of series at the times of the second one
    panel = LSCDImputer(times=gaps.cumsum()[12:24], **TINY).fit(X.reshape(3, 12, 2))
    for name in ("net_", "ema_module_", "network_", "mean_", "scale_", "_seed", "_gap"):
        setattr(panel, name, getattr(imputer, name))
    np.testing.assert_allclose(panel.transform(X.reshape(3, 12, 2))[1], filled[12:24], rtol=1e-4)
    with pytest.raises(ValueError, match=r"times must have shape \(30,\)"):
        imputer.transform(X[:30])


# ---- Odd data ---------------------------------------------------------------------------------


def test_a_channel_never_observed_is_filled_with_zero(sines):
    X = np.concatenate([sines.X, np.full((30, 12, 1), np.nan)], axis=2) + 5
    with pytest.warns(UserWarning, match=r"Channels \[2\] have no observed values"):
        imputer = LSCDImputer(**TINY).fit(X)
    filled = imputer.transform(X)
    np.testing.assert_array_equal(filled[:, :, 2], 0)
    np.testing.assert_array_equal(imputer.sample(X)[..., 2], 0)
    assert np.abs(filled[:, :, :2]).min() > 0
    X[0, 0, 2] = 3.0  # observed later
    assert imputer.transform(X)[0, 0, 2] == 3.0


def test_constant_channels_and_empty_series(sines):
    X = sines.X.copy()
    X[:, :, 1] = np.where(np.isnan(X[:, :, 1]), np.nan, 0.1)
    X[3] = np.nan
    imputer = LSCDImputer(**TINY).fit(X)
    assert imputer.scale_[1] == 1
    assert np.isfinite(imputer.transform(X)).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_huge_and_tiny_values(fitted, sines, scale):
    filled = LSCDImputer(times=sines.times, **TINY).fit_transform(sines.X * scale)
    np.testing.assert_allclose(filled / scale, fitted.transform(sines.X), rtol=1e-3, atol=1e-4)


# ---- Training schedule ------------------------------------------------------------------------


def test_learning_rate_falls_twice():
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=1e-3)
    scheduler = LSCDImputer()._make_scheduler(optimizer, 40)
    rates = []
    for _ in range(40):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(rates, np.repeat([1e-3, 1e-4, 1e-5], [30, 6, 4]))


# ---- Consistency loss and validation ----------------------------------------------------------


@pytest.mark.parametrize("mode", ["one_step", "chain"])
def test_consistency_loss_comes_in_late(sines, mode, monkeypatch):
    calls = []
    original = _lscd_torch.consistency_loss

    def recorded(net, *args):
        calls.append(net.network.n_batches)
        return original(net, *args)

    monkeypatch.setattr(_lscd_torch, "consistency_loss", recorded)
    params = TINY | {"max_iter": 8, "consistency_mode": mode}
    plain = LSCDImputer(**params).fit(sines.X)
    assert calls == []
    consistent = LSCDImputer(**params, consistency_weight=1.0).fit(sines.X)
    assert calls == [7, 8]
    np.testing.assert_array_equal(consistent.loss_curve_[:6], plain.loss_curve_[:6])
    assert not np.array_equal(consistent.loss_curve_, plain.loss_curve_)


def test_validation_loss_warns_of_the_plateau(sines):
    params = TINY | {"n_diffusion_steps": 50, "validation_fraction": 0.5}
    with pytest.warns(ConvergenceWarning, match="has not left its first plateau"):
        imputer = LSCDImputer(**params).fit(sines.X)
    assert list(imputer.validation_loss_) == [10, 25]
    assert imputer.validation_loss_[25] > 0.8 * imputer.ema_module_.schedule.abar_[25]


# ---- Together with scikit-learn ---------------------------------------------------------------


def test_pipeline_and_search(sines):
    X, y = sines.X[:, :, 0], np.arange(30) % 2
    pipeline = make_pipeline(LSCDImputer(**TINY), LogisticRegression()).fit(X, y)
    assert pipeline.predict(X).shape == (30,)
    search = GridSearchCV(LSCDImputer(**TINY), {"conditioning": ["spectrum", None]}, cv=2).fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(set(search.cv_results_["mean_test_score"])) == 2


def test_frames(sines):
    index = pd.date_range("2025-01-01", periods=360, freq="h")
    frame = pd.DataFrame(sines.X.reshape(-1, 2), index=index, columns=["a", "b"])
    imputer = LSCDImputer(window=12, **TINY).set_output(transform="pandas").fit(frame)
    filled = imputer.transform(frame)
    assert list(filled.columns) == ["a", "b"]
    assert (filled.index == index).all()


def test_score_of_frames(sines):
    """The same with names, and whatever container transform is asked for."""
    X = sines.X.reshape(-1, 2)
    frame = pd.DataFrame(X, columns=["a", "b"])
    expected = LSCDImputer(window=12, **TINY).fit(X).score(X)
    imputer = LSCDImputer(window=12, **TINY).set_output(transform="pandas").fit(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert imputer.score(frame) == expected


# ---- Bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_heads": 3}, "n_heads=3 must divide n_channels=8"),
        ({"spectral_channels": 7}, "n_heads=2 must divide n_channels=8 and spectral_channels=7"),
        ({"time_embedding_dim": 5}, "time_embedding_dim=5 must be even"),
        ({"beta_min": 0.6}, "beta_min <= beta_max"),
        ({"times": [0, 1]}, r"times must have shape \(12,\)"),
        ({"times": np.zeros(12)}, "times must increase strictly"),
        ({"window": 4, "stride": 5}, "stride=5 must be at most window=4"),
        ({"window": 13}, "as long as window=13, got n_timepoints = 12"),
        ({"validation_fraction": 0.99}, "leaves no series or window to train on: n_samples=30"),
    ],
)
def test_bad_parameters(sines, params, message):
    imputer = LSCDImputer(**TINY | params)
    with pytest.raises(ValueError, match=message):
        imputer.fit(sines.X)
    assert {name for name in vars(imputer) if name.endswith("_")} <= {"n_features_in_"}


def test_bad_panels(fitted, sines):
    with pytest.raises(ValueError, match="3 dimensions, as in fit, got 2"):
        fitted.transform(sines.X[0])
    with pytest.raises(ValueError, match="12 time points, as in fit, got 11"):
        fitted.transform(sines.X[:, :11])
    with pytest.raises(ValueError, match="1 features, but LSCDImputer is expecting 2"):
        fitted.transform(sines.X[:, :, :1])
    with pytest.raises(ValueError, match="at least 2 time points"):
        LSCDImputer(**TINY).fit(np.zeros((5, 1)))
    with pytest.raises(ValueError, match="infinity"):
        LSCDImputer(**TINY).fit([[0.0, np.inf, 1.0]])


def test_bad_arguments(fitted, sines):
    with pytest.raises(ValueError, match="quantiles must be between 0 and 1"):
        fitted.predict_quantiles(sines.X, (0.5, 5))
    with pytest.raises(ValueError, match="quantiles must be 1-D and hold one value at least"):
        fitted.predict_quantiles(sines.X, ())
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        fitted.sample(sines.X, 0)
    with pytest.raises(ValueError, match="score needs at least 2 observed values, got 1"):
        fitted.score(np.where(np.arange(24).reshape(1, 12, 2) == 3, 1.0, np.nan))
