"""CAROTS as an estimator: scores, thresholds, panels, discoverers, errors."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.callback import ProgressBar
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from skicml.time_series import CAROTS, CUTSPlus
from skicml.time_series._carots import _warn_unless_learnt

W = 5
SMALL = {
    "window": W,
    "causal_discoverer": "var",
    "hidden_dim": 8,
    "projection_dim": 8,
    "batch_size": 32,
    "max_epochs": 3,
    "random_state": 0,
}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_waves(n_timepoints=300, n_features=4, seed=0):
    """Mixtures of two slow waves and a little noise."""
    rng = np.random.RandomState(seed)
    t = np.arange(n_timepoints)
    waves = np.column_stack([np.sin(t / 8), np.cos(t / 11)])
    mixing = np.random.RandomState(9).normal(size=(2, n_features))
    return waves @ mixing + 0.05 * rng.normal(size=(n_timepoints, n_features))


@pytest.fixture(scope="module")
def series():
    return make_waves()


@pytest.fixture(scope="module")
def fitted(series):
    return CAROTS(**SMALL).fit(series)


def with_score(detector, score_type):
    return copy.copy(detector).set_params(score_type=score_type)


# ------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize("score_type", ["ensemble", "contrastive", "causal"])
def test_score_of_a_row_depends_on_its_window_alone(fitted, series, score_type):
    detector = with_score(fitted, score_type)
    scores = detector.score_samples(series)
    row = 100
    other = series.copy()
    other[: row - W + 1] += 1  # before the window
    other[row + 1 :] -= 1  # after it
    np.testing.assert_allclose(detector.score_samples(other)[row], scores[row], rtol=1e-5)
    alone = detector.score_samples(series[row - W + 1 : row + 1])
    np.testing.assert_allclose(alone, np.full(W, scores[row]), rtol=1e-5)
    for changed in range(row - W + 1, row + 1):  # and on every row of it
        other = series.copy()
        other[changed] += 1
        assert abs(detector.score_samples(other)[row] - scores[row]) > 1e-4


def test_first_rows_have_the_score_of_the_first_window(fitted, series):
    for output in (fitted.score_samples(series), fitted.feature_scores(series)):
        assert len(output) == len(series)
        np.testing.assert_array_equal(output[: W - 1], np.repeat(output[W - 1 : W], W - 1, axis=0))


def test_ensemble_is_the_sum_of_the_standardised_terms(fitted, series):
    terms = np.stack(
        [-with_score(fitted, name).score_samples(series) for name in ("contrastive", "causal")]
    )
    # 300 rows, the last 20 % held out: these are the training windows
    training = terms[:, W - 1 : 240]
    np.testing.assert_allclose(training.mean(axis=1), fitted.score_mean_)
    np.testing.assert_allclose(training.std(axis=1), fitted.score_std_)
    standardised = (terms - fitted.score_mean_[:, None]) / fitted.score_std_[:, None]
    np.testing.assert_allclose(-fitted.score_samples(series), standardised.sum(axis=0))


def test_causal_term_is_the_mean_of_the_feature_scores(fitted, series):
    causal = -with_score(fitted, "causal").score_samples(series)
    np.testing.assert_allclose(fitted.feature_scores(series).mean(axis=1), causal)


def test_feature_scores_are_squared_errors_of_standardised_forecasts(fitted, series):
    scaled = fitted.scaler_.transform(series).astype(np.float32)
    errors = (fitted.causal_discoverer_.predict(scaled) - scaled) ** 2
    np.testing.assert_allclose(fitted.feature_scores(series)[W - 1 :], errors[W - 1 :], rtol=1e-4)


@pytest.mark.parametrize("channel", range(4))
def test_feature_scores_point_at_the_culprit(fitted, series, channel):
    broken = series.copy()
    broken[150, channel] += 2
    scores = fitted.feature_scores(broken)
    assert scores[150].argmax() == channel
    assert fitted.score_samples(broken)[150] < fitted.score_samples(series).min()


@pytest.mark.parametrize("distance", ["l2", "cos"])
def test_contrastive_term_is_the_distance_from_the_centre(series, distance):
    import torch

    detector = CAROTS(**SMALL, distance=distance, score_type="contrastive").fit(series)
    scaled = torch.tensor(detector.scaler_.transform(series), dtype=torch.float32)
    with torch.no_grad():
        embedded = detector.network_.module_(scaled.unfold(0, W, 1).mT).numpy()
    assert not detector.network_.module_.training  # no statistics of the batch in the scores
    if distance == "l2":
        expected = np.linalg.norm(embedded - detector.center_, axis=1)
    else:
        norms = np.linalg.norm(embedded, axis=1) * np.linalg.norm(detector.center_)
        expected = (1 - embedded @ detector.center_ / norms) / 2
    found = -detector.score_samples(series)[W - 1 :]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_centre_is_the_mean_of_the_positives(series):
    """Without noise on the causes, and with effects that are never moved, of the windows."""
    import torch

    detector = CAROTS(**{**SMALL, "causal_discoverer": NoLinks()}, cause_noise=0.0).fit(series)
    scaled = torch.tensor(detector.scaler_.transform(series[:240]), dtype=torch.float32)
    with torch.no_grad():
        embedded = detector.network_.module_(scaled.unfold(0, W, 1).mT)
    np.testing.assert_allclose(detector.center_, embedded.mean(dim=0), rtol=1e-4, atol=1e-5)


def test_labels_play_no_part(fitted, series):
    y = np.where(np.arange(300) % 7 == 0, -1, 1)
    again = CAROTS(**SMALL).fit(series, y)
    np.testing.assert_array_equal(again.score_samples(series), fitted.score_samples(series))


# --------------------------------------------------------------------------------- thresholds


def test_offset_is_a_quantile_of_the_held_out_scores(fitted, series):
    held_out = fitted.score_samples(series)[240:]
    assert fitted.offset_ == pytest.approx(np.quantile(held_out, 0.01))
    decision = fitted.decision_function(series)
    np.testing.assert_array_equal(decision, fitted.score_samples(series) - fitted.offset_)
    np.testing.assert_array_equal(fitted.predict(series), np.where(decision < 0, -1, 1))


@pytest.mark.parametrize("contamination", [0.05, 0.5])
def test_contamination_is_the_share_of_anomalies(series, contamination):
    labels = CAROTS(**SMALL, contamination=contamination).fit_predict(series)
    assert np.mean(labels == -1) == pytest.approx(contamination, abs=0.02)


def test_few_rows_leave_none_to_hold_out():
    X = make_waves(W + 1)
    detector = CAROTS(**SMALL).fit(X)
    assert detector.offset_ == pytest.approx(np.quantile(detector.score_samples(X), 0.01))


# ---------------------------------------------------------------------- panels and discoverers


class NoLinks(BaseEstimator):
    """A discoverer with the least that it needs; keeps the series that it has seen."""

    def __init__(self, n_lags=1):
        self.n_lags = n_lags

    def fit(self, X, y=None):
        self.adjacency_ = np.zeros((X.shape[-1], X.shape[-1]), dtype=bool)
        self.seen_ = X.copy()
        return self

    def predict(self, X):
        return np.vstack([X[:1], X[:-1]])


class Watch(NoLinks):
    """Everything is linked; keeps all the histories that it forecasts from."""

    def __init__(self, log=None):
        self.log = log

    def __sklearn_clone__(self):  # the log is shared
        return Watch(self.log)

    def fit(self, X, y=None):
        super().fit(X)
        self.adjacency_[:] = True
        return self

    def forecast_windows(self, windows):
        self.log.append(windows.copy())
        return windows[:, -1]


def test_windows_never_span_two_series():
    panel = np.stack([make_waves(40, seed=seed) for seed in range(6)])
    panel[:, :, 3] = np.arange(6)[:, None]  # the last channel tells the series
    log = []
    detector = CAROTS(**{**SMALL, "causal_discoverer": Watch(log)}, cause_noise=0.0).fit(panel)
    histories = np.concatenate(log)
    assert len(histories) > 6 * (32 - W + 1)
    assert (histories[:, :, 3] == histories[:, :1, 3]).all()
    assert len(np.unique(histories[:, :, 3])) == 6
    scores = detector.score_samples(panel)
    assert scores.shape == (6, 40)
    assert detector.feature_scores(panel).shape == panel.shape
    assert detector.predict(panel).shape == (6, 40)
    for one, expected in zip(panel, scores):
        np.testing.assert_allclose(detector.score_samples(one), expected, rtol=1e-4, atol=1e-5)


def test_one_series_is_a_panel_of_one(series, fitted):
    panel = CAROTS(**SMALL).fit(series[np.newaxis])
    np.testing.assert_array_equal(
        panel.score_samples(series[np.newaxis])[0], fitted.score_samples(series)
    )


def test_discoverer_of_the_user_is_cloned_and_sees_standardised_training_rows(series):
    given = NoLinks()
    detector = CAROTS(**{**SMALL, "causal_discoverer": given}).fit(series)
    assert not hasattr(given, "adjacency_")
    seen = detector.causal_discoverer_.seen_
    assert seen.shape == (240, 4)
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=0), 1, atol=1e-5)
    assert not detector.adjacency_.any()


def test_discoverer_that_holds_out_rows_itself_sees_all():
    class HoldsOut(NoLinks):
        def __init__(self, validation_fraction=0.1):
            self.validation_fraction = validation_fraction

    detector = CAROTS(**{**SMALL, "causal_discoverer": HoldsOut()}).fit(make_waves())
    assert len(detector.causal_discoverer_.seen_) == 300


def test_default_discoverer_is_cuts_plus(series):
    detector = CAROTS(**{**SMALL, "causal_discoverer": None}, validation_fraction=0.3)
    discoverer = detector.fit(series).causal_discoverer_
    assert type(discoverer) is CUTSPlus
    assert (discoverer.n_lags, discoverer.validation_fraction) == (W - 1, 0.3)
    np.testing.assert_array_equal(detector.adjacency_, discoverer.adjacency_)


def test_discoverer_with_fewer_lags(series):
    tiny = CUTSPlus(n_lags=2, hidden_dim=4, max_epochs=1)
    detector = CAROTS(**{**SMALL, "causal_discoverer": tiny}).fit(series)
    assert detector.causal_discoverer_.random_state is not None
    assert np.isfinite(detector.score_samples(series)).all()


@pytest.mark.parametrize(
    ("discoverer", "message"),
    [
        (NoLinks(n_lags=W), f"n_lags={W}.*only {W - 1} come before"),
        (
            type("Wrong", (NoLinks,), {"fit": lambda self, X: setattr(self, "adjacency_", [[1]])})(
                n_lags=1
            ),
            r"must have shape \(4, 4\), got \(1, 1\)",
        ),
        (
            type("Blind", (NoLinks,), {"fit": lambda self, X: self})(n_lags=1),
            r"causal_discoverer must have the attribute adjacency_ after fit.*\(4, 4\); Blind",
        ),
    ],
)
def test_discoverer_that_does_not_fit(series, discoverer, message):
    with pytest.raises(ValueError, match=message):
        CAROTS(**{**SMALL, "causal_discoverer": discoverer}).fit(series)


def test_too_many_lags_are_found_before_the_training(series):
    class Slow(NoLinks):
        def fit(self, X, y=None):
            raise AssertionError("trained")

    with pytest.raises(ValueError, match=f"n_lags={W}"):
        CAROTS(**{**SMALL, "causal_discoverer": Slow(n_lags=W)}).fit(series)


# -------------------------------------------------------------------------------- the encoder


def test_a_step_pairs_every_positive_with_the_negative_made_from_it(series, monkeypatch):
    from skicml.time_series import _carots_torch

    seen = []
    forward, loss = _carots_torch.WindowEncoder.forward, _carots_torch.soc_loss

    def record(self, windows):
        if self.training:
            seen.append(windows.clone())
        return forward(self, windows)

    def check(positives, negatives, *args):
        assert len(positives) == len(negatives) == 64
        return loss(positives, negatives, *args)

    monkeypatch.setattr(_carots_torch.WindowEncoder, "forward", record)
    monkeypatch.setattr(_carots_torch, "soc_loss", check)
    CAROTS(**{**SMALL, "max_epochs": 1}, cause_noise=5.0).fit(series)
    assert len(seen) == 7
    for windows in seen:
        originals, copies, of_originals, of_copies = windows.chunk(4)
        assert len(originals) == 32
        assert (originals != copies).any(dim=2)[:, -2].all()  # the noise on a cause
        assert (originals[:, :-2] == copies[:, :-2]).all()
        for made, source in ((of_originals, originals), (of_copies, copies)):
            shift = (made - source).abs()
            assert ((shift > 0).any(dim=2).sum(dim=1) == W // 2).all()
            assert shift.max() < 0.51


def test_loss_curve(series):
    detector = CAROTS(**{**SMALL, "max_epochs": 5}, similarity_threshold=(0.2, 0.8)).fit(series)
    curve = detector.loss_curve_
    assert sorted(curve) == ["chance", "epoch", "loss", "n_pairs", "threshold"]
    np.testing.assert_array_equal(curve["epoch"], range(5))
    np.testing.assert_allclose(curve["threshold"], [0.2, 0.35, 0.5, 0.65, 0.8])
    # 236 windows in 7 full batches of 32, 64 positives each
    assert (curve["n_pairs"] <= 7 * 64 * 63).all()
    assert (curve["chance"] <= np.log(65) + 1e-6).all()


def test_rates_decay_and_clipping_of_the_encoder(series, monkeypatch):
    from skicml.time_series import _carots_torch

    seen = {}
    fit_net = _carots_torch.fit_net

    def record(net, *args, **kwargs):
        fit_net(net, *args, **kwargs)
        seen["rates"] = list(net.history[:, "event_lr"])
        seen["decay"] = net.optimizer_.param_groups[0]["weight_decay"]
        seen["norm"] = np.sqrt(sum(float(p.grad.square().sum()) for p in net.module_.parameters()))

    monkeypatch.setattr(_carots_torch, "fit_net", record)
    params = {"learning_rate": 1e-2, "warmup_epochs": 2, "weight_decay": 0.3, "temperature": 1e-3}
    CAROTS(**{**SMALL, "max_epochs": 6}, **params, similarity_threshold=-1).fit(series)
    falling = 1e-2 * (1 + np.cos(np.pi * np.arange(4) / 4)) / 2
    np.testing.assert_allclose(seen["rates"], [1e-4, 5.05e-3, *falling], rtol=1e-6)
    assert seen["decay"] == 0.3
    assert seen["norm"] == pytest.approx(0.5, rel=1e-3)  # steep, so clipped


def test_one_threshold_for_all_epochs(series):
    one = CAROTS(**SMALL, similarity_threshold=-1).fit(series)
    np.testing.assert_array_equal(one.loss_curve_["threshold"], -1)
    np.testing.assert_array_equal(one.loss_curve_["n_pairs"], 7 * 64 * 63)


def test_batch_of_all_windows(series):
    large, exact = (
        CAROTS(**{**SMALL, "batch_size": size}, similarity_threshold=-1).fit(series)
        for size in (10**6, 236)
    )
    np.testing.assert_array_equal(large.loss_curve_["n_pairs"], 472 * 471)
    np.testing.assert_array_equal(large.loss_curve_["loss"], exact.loss_curve_["loss"])


@pytest.mark.filterwarnings("default::sklearn.exceptions.ConvergenceWarning")
def test_warning_if_the_encoder_has_not_learnt(series):
    with pytest.warns(ConvergenceWarning, match="not clearly below chance") as record:
        CAROTS(**{**SMALL, "max_epochs": 1}, learning_rate=1e-8, similarity_threshold=-1).fit(
            series
        )
    assert record[0].filename == __file__  # it points at the caller
    with pytest.warns(ConvergenceWarning, match="no two positives are as similar"):
        _warn_unless_learnt({"loss": [2.0, 0.0], "chance": [3.0, 0.0], "n_pairs": [9, 0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        CAROTS(**{**SMALL, "max_epochs": 20}, learning_rate=1e-2, bias_values=[2, 3]).fit(series)


def test_large_values_are_clipped(fitted, series):
    scores = {}
    for size in (1e3, 1e12):
        huge = series.copy()
        huge[150, 0] = size
        scores[size] = fitted.score_samples(huge)
        assert np.isfinite(scores[size]).all()
    np.testing.assert_array_equal(scores[1e3], scores[1e12])


def test_constant_channels():
    X = make_waves()
    X[:, 1] = 7.0
    detector = CAROTS(**SMALL).fit(X)
    assert detector.scaler_.scale_[1] == 1
    X[200, 1] = 8.0  # a command that was never given in training
    assert detector.feature_scores(X)[200].argmax() == 1
    assert np.isfinite(detector.score_samples(X)).all()


def test_rounding_is_no_variation():
    X = np.ones((60, 3))
    tiny = CUTSPlus(n_lags=W - 1, hidden_dim=4, max_epochs=1)
    detector = CAROTS(**{**SMALL, "causal_discoverer": tiny}).fit(X)
    np.testing.assert_array_equal(detector.score_std_, 1)
    assert np.abs(detector.score_samples(make_waves(60, 3))).max() < 1e4


# ------------------------------------------------------------------------- scikit-learn's world


def test_pipeline_after_a_scaler(fitted, series):
    piped = make_pipeline(StandardScaler(), CAROTS(**SMALL)).fit(series)
    np.testing.assert_allclose(
        piped.score_samples(series), fitted.score_samples(series), rtol=0.02, atol=0.02
    )


def test_grid_search_by_the_area_under_the_curve():
    X = make_waves(600)
    y = np.ones(600, dtype=int)
    for start in range(60, 600, 60):
        X[start : start + 5, start // 60 % 4] += 1
        y[start : start + 5] = -1
    search = GridSearchCV(
        CAROTS(**SMALL),
        {"score_type": ["causal", "ensemble"], "causal_discoverer": ["var", NoLinks()]},
        scoring="roc_auc",
        cv=TimeSeriesSplit(2),
        error_score="raise",
    ).fit(X, y)
    assert search.best_score_ > 0.7


def test_frame_with_a_time_index(fitted, series):
    pd = pytest.importorskip("pandas")
    index = pd.date_range("2025-01-01", periods=300, freq="3min")
    frame = pd.DataFrame(series, index=index, columns=["flow", "level", "heat", "valve"])
    detector = CAROTS(**SMALL).fit(frame)
    assert list(detector.feature_names_in_) == ["flow", "level", "heat", "valve"]
    np.testing.assert_array_equal(detector.score_samples(frame), fitted.score_samples(series))
    with pytest.raises(ValueError, match="feature names"):
        detector.predict(frame.rename(columns={"flow": "pressure"}))
    assert not hasattr(detector.fit(series), "feature_names_in_")


def test_other_seed_other_fit(fitted, series):
    other = CAROTS(**{**SMALL, "random_state": 1}).fit(series)
    assert not np.allclose(other.center_, fitted.center_)


class _Interrupt:
    """Callback that presses Ctrl-C at the end of a task."""

    def __init__(self, task):
        self.task = task

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        if context.task_name == self.task:
            raise KeyboardInterrupt

    def teardown(self, estimator, context):
        pass


@pytest.mark.parametrize("task", ["causal discovery", "epoch 1"])
def test_interrupt_leaves_things_as_they_were(series, task):
    fresh = CAROTS(**SMALL).set_callbacks(_Interrupt(task))
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(series)
    assert [name for name in vars(fresh) if name.endswith("_")] == []

    detector = CAROTS(**SMALL).fit(series)
    before = detector.score_samples(series)
    detector.set_callbacks(_Interrupt(task))
    with pytest.raises(KeyboardInterrupt):
        detector.fit(series[:, :2])
    np.testing.assert_array_equal(detector.score_samples(series), before)


def test_progress_of_discoverer_and_encoder(series, capsys):
    pytest.importorskip("rich")
    tiny = CUTSPlus(n_lags=2, hidden_dim=4, max_epochs=2)
    CAROTS(**{**SMALL, "causal_discoverer": tiny}).set_callbacks(ProgressBar()).fit(series)
    shown = capsys.readouterr().out
    assert "causal discovery" in shown
    assert "CUTSPlus" in shown


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_causes": 5}, "n_causes=5 is more than the 4 variables"),
        ({"bias_values": []}, "bias_values must be positive"),
        ({"bias_values": [0.1, 0.0]}, "bias_values must be positive"),
        ({"bias_values": [np.inf]}, "bias_values must be positive"),
        ({"bias_values": [[0.1]]}, "bias_values must be positive"),
        ({"bias_values": [0.1, None]}, "bias_values must be positive"),
        ({"similarity_threshold": (0.1, 0.2, 0.3)}, "similarity_threshold must be one or two"),
        ({"similarity_threshold": (0.5, 1.5)}, r"numbers in \[-1, 1\]"),
        ({"similarity_threshold": (0.5, None)}, r"numbers in \[-1, 1\]"),
        ({"learning_rate": 1e30}, "Training diverged"),
    ],
)
def test_bad_parameters_for_these_data(series, params, message):
    with pytest.raises(ValueError, match=message):
        CAROTS(**{**SMALL, **params}).fit(series)


@pytest.mark.parametrize(
    "params",
    [
        {"window": 1},
        {"score_type": "sum"},
        {"distance": "l1"},
        {"causal_discoverer": "pcmci"},
        {"contamination": 0.0},
        {"contamination": 0.6},
        {"bias_fraction": 0.0},
        {"stop_probability": 1.1},
        {"validation_fraction": 1.0},
    ],
)
def test_bad_parameters(series, params):
    with pytest.raises(InvalidParameterError, match=next(iter(params))):
        CAROTS(**{**SMALL, **params}).fit(series)


def test_too_few_rows(fitted, series):
    with pytest.raises(ValueError, match=f"needs at least window \\+ 1 = {W + 1} time steps"):
        CAROTS(**SMALL).fit(series[:W])
    with pytest.raises(ValueError, match=f"needs at least {W} time steps"):
        fitted.score_samples(series[: W - 1])
    assert fitted.score_samples(series[:W]).shape == (W,)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_not_finite(fitted, series, bad):
    broken = series.copy()
    broken[10, 1] = bad
    for call in (clone(fitted).fit, fitted.predict, fitted.feature_scores):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            call(broken)


def test_wrong_shapes(fitted, series):
    with pytest.raises(ValueError, match="2 features, but CAROTS is expecting 4"):
        fitted.predict(series[:, :2])
    with pytest.raises(ValueError, match="2D array"):
        clone(fitted).fit(series[:, 0])


def test_no_cuda(series):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(ValueError, match="no CUDA device"):
        CAROTS(**SMALL, device="cuda").fit(series)
