"""Causality-aware contrastive anomaly detection."""

import warnings
from contextlib import nullcontext
from functools import partial
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin, _fit_context, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from skicml.time_series._carots_causal import CausalModel, find_lags, make_discoverer
from skicml.time_series._series import validate_series
from skicml.utils._fitting import all_or_nothing

# A final loss above this share of the chance level: nothing has been learnt.
_CHANCE_SHARE = 0.98
# Quantile of the held-out scores that contamination="auto" takes for the offset.
_AUTO_QUANTILE = 0.01
# Terms are made in float32: a standard deviation below this share of the mean is rounding.
_ROUNDING = 1e-6


class CAROTS(CallbackSupportMixin, OutlierMixin, BaseEstimator):
    """Causality-aware contrastive anomaly detection, after Kim et al. 2025.

    Learns from one multivariate series, or several, of normal operation, and scores every
    later time step. Normal variation keeps the causal relations between variables, anomalies
    break them: first a causal forecaster and its graph are learnt. With them, copies of
    windows are made that keep the relations (a cause is disturbed, its effects follow by the
    forecast) and copies that break them (variables along a walk over the graph are shifted).
    An encoder learns by contrast to tell one from the other. The score of a time step adds
    up how far the embedding of the window that ends there is from that of normal windows,
    and how badly the forecaster foresees the step.

    Read more in the :ref:`User Guide <carots>`.

    Parameters
    ----------
    window : int, default=10
        Rows W of a window, at least 2. The forecaster sees the first W - 1 of them.
    causal_discoverer : None, "var" or estimator, default=None
        What finds the graph and forecasts. None: :class:`CUTSPlus` with
        ``n_lags=window - 1`` and the `validation_fraction`, `device` and seed of this
        estimator. "var": a ridge vector autoregression with the strongest links as the graph,
        how many being chosen by cross-validation; the quick choice, for fewer than about 1000
        rows. Else an unfitted estimator with ``fit(X)``, ``predict(X)`` that forecasts each
        row from no more than W - 1 rows before it, and the fitted attribute ``adjacency_``,
        [cause, effect]. It is cloned, sees standardised data, and gets a seed from this
        estimator if its ``random_state`` is None.
    hidden_dim : int, default=128
        Width of the LSTM. The paper takes 512, a setting for a GPU.
    projection_dim : int, default=128
        Width of the embedding; the paper takes 512.
    n_causes : int, default=1
        Number of variables that are disturbed in a causality-preserving copy.
    cause_noise : float, default=0.1
        Standard deviation of that disturbance, in standard deviations of the variable.
    stop_probability : float, default=0.1
        Chance, at each step of the walk over the graph, to go no further from a variable.
    bias_values : array-like of float, default=(0.1, 0.2, 0.3, 0.4, 0.5)
        Shifts of the causality-disturbing copies, in standard deviations; each is used with
        both signs.
    bias_fraction : float, default=0.5
        Share of the rows of a window that are shifted, in (0, 1].
    temperature : float, default=0.1
        Temperature of the contrastive loss.
    similarity_threshold : float or tuple of (float, float), default=(0.5, 0.9)
        Least cosine of two positives that attract each other, in the first and in the last
        epoch; linear between them. A higher threshold lets different modes of normal
        operation stay apart.
    score_type : {"ensemble", "contrastive", "causal"}, default="ensemble"
        What :meth:`score_samples` tells: the sum of both terms, each standardised by its
        mean and standard deviation over the training windows, or one term alone. All parts
        are fitted in any case.
    distance : {"l2", "cos"}, default="l2"
        Distance of an embedding from the centre: Euclidean, or (1 - cosine) / 2.
    max_epochs : int, default=30
        Epochs of the encoder. Short series need more.
    batch_size : int, default=256
        Windows in a training step; all windows where there are fewer. A last batch that is
        not full is left out. Short series need smaller batches.
    learning_rate : float, default=1e-3
        Learning rate of Adam after the warm-up; it falls to 0 along a cosine.
    weight_decay : float, default=1e-4
        Weight of the squared norm of the weights.
    warmup_epochs : int, default=5
        Epochs in which the learning rate rises linearly from 1e-4.
    clip : float, default=10.0
        Standardised values are clipped to +- this.
    contamination : "auto" or float, default="auto"
        Where the threshold lies. A float in (0, 0.5] is the share of time steps given to fit
        that are anomalous. "auto" takes the 1 % quantile of the scores of the held-out rows.
    validation_fraction : float, default=0.2
        Share of rows at the end of each series that are held out from the training of the
        encoder, in (0, 1).
    random_state : int, RandomState instance or None, default=None
        Seed of all that is random. Pass an int for the same result every time.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the encoder trains. The fitted one is on the CPU.

    Attributes
    ----------
    causal_discoverer_ : estimator
        The fitted forecaster.
    adjacency_ : ndarray of bool of shape (n_features_in_, n_features_in_)
        The causal graph, [cause, effect].
    network_ : skorch.NeuralNet
        The trained encoder, without optimiser and training history.
    center_ : ndarray of shape (projection_dim,)
        Mean embedding of the training windows and their causality-preserving copies.
    score_mean_, score_std_ : ndarray of shape (2,)
        Mean and standard deviation, over the training windows, of the distance from the
        centre and of the squared forecast error.
    offset_ : float
        Scores below it are anomalies.
    loss_curve_ : dict of str to ndarray of shape (n_epochs,)
        ``epoch``, ``loss``, ``chance`` (the loss that an encoder would have that does not
        tell positives from negatives), ``threshold`` of the similarity, and ``n_pairs``, the
        number of pairs of positives that attracted each other.
    scaler_ : sklearn.preprocessing.StandardScaler
        Means and standard deviations of the training rows.
    n_features_in_ : int
        Number of variables.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the variables; defined only if X has string column names.

    Warns
    -----
    ConvergenceWarning
        If the final contrastive loss is near the chance level, or no pair of positives is
        left at the final threshold. The distance from the centre is then noise, which makes
        the ensemble worse than its causal term.

    See Also
    --------
    CUTSPlus : The causal discovery, of use alone.
    sklearn.ensemble.IsolationForest : Baseline that ignores the order of the rows.
    sklearn.decomposition.PCA : Its reconstruction error of flattened windows is a strong and
        cheap baseline.

    Notes
    -----
    For a batch of windows, the causality-preserving copies double it to 2B positives, of
    which 2B negatives are made. With s the cosines of the embeddings, :math:`\\alpha` the
    threshold, :math:`P_i` the other positives with :math:`s_{ij} \\geq \\alpha` and
    :math:`N_i` the negatives made from i and from :math:`P_i`, the loss is the mean over all
    pairs :math:`j \\in P_i` of

    .. math:: \\log \\Bigl(1 + \\sum_{k \\in N_i} e^{(s_{ik} - s_{ij}) / \\tau} \\Bigr).

    Where the text of the paper leaves a choice, or ours differs:

    * The disturbance of a cause is added to the last row of the history, so that it reaches
      the effects through the forecast.
    * The loss is averaged over all pairs, not first within each anchor, and is 0 without pairs.
    * It is not comparable between epochs, as the threshold moves: the last epoch is kept.
    * Standardised values are clipped: a channel that is constant in training may be huge later.
    * A discoverer that has a parameter ``validation_fraction`` gets all rows and holds out its
      own; any other one gets the rows that are not held out.
    * The localisation by :meth:`feature_scores` and the graph by autoregression are ours.
    * No point adjustment: every time step counts by its own score.

    Time O(n e (W d (N + d) + B d)) for n windows, e epochs, N variables, d hidden units and
    batches of B, and that of the discoverer, for :class:`CUTSPlus` O(n e W N^2 h); memory
    O(B W (N + d) + B^2 + n N), no copy of all windows is made.

    Callbacks see a task for the causal discovery and one for each epoch of the encoder; one
    that asks to stop ends the training of the encoder.

    References
    ----------
    .. [1] H. Kim, J. Mok, D. Lee, J. Lew, S. Kim and S. Yoon, "Causality-Aware Contrastive
       Learning for Robust Multivariate Time-Series Anomaly Detection", International
       Conference on Machine Learning, PMLR 267, 2025.

    Examples
    --------
    Two sensors show the same slow oscillation, until the second one goes its own way.

    >>> import numpy as np
    >>> from skicml.time_series import CAROTS
    >>> rng = np.random.RandomState(0)
    >>> phase = 2 * np.pi * np.arange(600) / 50
    >>> X = np.column_stack([np.sin(phase), np.cos(phase)]) + 0.05 * rng.normal(size=(600, 2))
    >>> X[550:, 1] += 1.0
    >>> detector = CAROTS(causal_discoverer="var", hidden_dim=16, projection_dim=16,
    ...                   max_epochs=15, batch_size=32, random_state=0)
    >>> labels = detector.fit(X[:500]).predict(X[500:])
    >>> bool((labels[:45] == -1).mean() < 0.1), bool((labels[50:] == -1).mean() > 0.8)
    (True, True)
    """

    _parameter_constraints = {
        "window": [Interval(Integral, 2, None, closed="left")],
        "causal_discoverer": [None, StrOptions({"var"}), HasMethods(["fit", "predict"])],
        "hidden_dim": [Interval(Integral, 1, None, closed="left")],
        "projection_dim": [Interval(Integral, 1, None, closed="left")],
        "n_causes": [Interval(Integral, 1, None, closed="left")],
        "cause_noise": [Interval(Real, 0, None, closed="left")],
        "stop_probability": [Interval(Real, 0, 1, closed="both")],
        "bias_values": ["array-like"],
        "bias_fraction": [Interval(Real, 0, 1, closed="right")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "similarity_threshold": ["array-like", Interval(Real, -1, 1, closed="both")],
        "score_type": [StrOptions({"ensemble", "contrastive", "causal"})],
        "distance": [StrOptions({"l2", "cos"})],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "warmup_epochs": [Interval(Integral, 0, None, closed="left")],
        "clip": [Interval(Real, 0, None, closed="neither")],
        "contamination": [StrOptions({"auto"}), Interval(Real, 0, 0.5, closed="right")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "random_state": ["random_state"],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
    }

    def __init__(
        self,
        *,
        window=10,
        causal_discoverer=None,
        hidden_dim=128,
        projection_dim=128,
        n_causes=1,
        cause_noise=0.1,
        stop_probability=0.1,
        bias_values=(0.1, 0.2, 0.3, 0.4, 0.5),
        bias_fraction=0.5,
        temperature=0.1,
        similarity_threshold=(0.5, 0.9),
        score_type="ensemble",
        distance="l2",
        max_epochs=30,
        batch_size=256,
        learning_rate=1e-3,
        weight_decay=1e-4,
        warmup_epochs=5,
        clip=10.0,
        contamination="auto",
        validation_fraction=0.2,
        random_state=None,
        device="cpu",
    ):
        self.window = window
        self.causal_discoverer = causal_discoverer
        self.hidden_dim = hidden_dim
        self.projection_dim = projection_dim
        self.n_causes = n_causes
        self.cause_noise = cause_noise
        self.stop_probability = stop_probability
        self.bias_values = bias_values
        self.bias_fraction = bias_fraction
        self.temperature = temperature
        self.similarity_threshold = similarity_threshold
        self.score_type = score_type
        self.distance = distance
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_epochs = warmup_epochs
        self.clip = clip
        self.contamination = contamination
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None):
        """Learn what is normal.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            Mostly normal history: one series, rows being time steps, or a panel of series.
            At least ``window + 1`` time steps. The index of a data frame is ignored.
        y : None
            Ignored.

        Returns
        -------
        self : CAROTS
            The fitted estimator.

        Raises
        ------
        ValueError
            If X is not finite or too short, `n_causes` exceeds the number of variables,
            `bias_values` or `similarity_threshold` are not as described, the discoverer has
            more lags than `window` - 1 or finds no proper graph, training diverges, or
            `device` is "cuda" and there is none.
        """
        # Checked on a clone: this estimator stays as it is until all has gone well.
        panel, is_panel = validate_series(clone(self), X)
        self._check_fit(panel)
        random_state = check_random_state(self.random_state)
        context = self._init_callback_context(max_subtasks=1 + self.max_epochs)
        context.call_on_fit_task_begin(estimator=self, X=X)

        n_train = self._n_training_rows(panel.shape[1])
        scaler = StandardScaler().fit(panel[:, :n_train].reshape(-1, panel.shape[2]))
        scaled = _standardize(panel, scaler, self.clip)
        discoverer = self._make_discoverer(random_state)
        self._discover(discoverer, scaled if is_panel else scaled[0], n_train, context)
        model = CausalModel(discoverer, self.window, panel.shape[2])
        net, center, curve = self._contrast(scaled[:, :n_train], model, random_state, context)
        terms = self._terms(scaled, model, net, center)
        mean, std = _moments(terms[..., : n_train - self.window + 1])
        scores = self._row_scores(terms, mean, std).astype(panel.dtype)

        _check_feature_names(self, X, reset=True)
        self.n_features_in_ = panel.shape[2]
        self.scaler_ = scaler
        self.causal_discoverer_ = discoverer
        self.adjacency_ = model.adjacency
        self.network_ = net
        self.center_ = center
        self.loss_curve_ = curve
        self.score_mean_ = mean
        self.score_std_ = std
        self.offset_ = self._find_offset(scores, n_train)
        _warn_unless_learnt(curve)
        context.call_on_fit_task_end(estimator=self, X=X)
        return self

    def score_samples(self, X):
        """Normality of every time step: minus the anomaly score of the window ending there.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            One series or a panel, of at least `window` time steps.

        Returns
        -------
        scores : ndarray of shape (n_timepoints,) or (n_series, n_timepoints)
            The lower, the more anomalous. The first ``window - 1`` rows of a series have the
            value of its first full window.

        Raises
        ------
        ValueError
            If X is shorter than a window or does not fit the data of :meth:`fit`.
        """
        scaled, panel, is_panel = self._checked(X)
        model = CausalModel(self.causal_discoverer_, self.window, self.n_features_in_)
        terms = self._terms(scaled, model, self.network_, self.center_)
        scores = self._row_scores(terms, self.score_mean_, self.score_std_).astype(panel.dtype)
        return scores if is_panel else scores[0]

    def feature_scores(self, X):
        """Squared forecast error of every variable at every time step, to find the culprits.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            One series or a panel, of at least `window` time steps.

        Returns
        -------
        errors : ndarray of the shape of X
            Squared errors in units of the variance of the training rows; high where the
            variable is not what its causes make expect. The first ``window - 1`` rows of a
            series have the values of the row that ends its first full window.

        Raises
        ------
        ValueError
            If X is shorter than a window or does not fit the data of :meth:`fit`.
        """
        scaled, panel, is_panel = self._checked(X)
        model = CausalModel(self.causal_discoverer_, self.window, self.n_features_in_)
        errors = _to_rows(model.squared_errors(scaled), self.window).astype(panel.dtype)
        return errors if is_panel else errors[0]

    def decision_function(self, X):
        """Normality of every time step, shifted such that anomalies are negative.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            One series or a panel, of at least `window` time steps.

        Returns
        -------
        scores : ndarray of shape (n_timepoints,) or (n_series, n_timepoints)
            ``score_samples(X) - offset_``.
        """
        return self.score_samples(X) - self.offset_

    def predict(self, X):
        """Tell anomalies from normal time steps.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, n_features) or \
                (n_series, n_timepoints, n_features)
            One series or a panel, of at least `window` time steps.

        Returns
        -------
        labels : ndarray of int of shape (n_timepoints,) or (n_series, n_timepoints)
            1 normal, -1 anomalous.
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _check_fit(self, panel):
        n_timepoints, n_features = panel.shape[1:]
        if n_timepoints < self.window + 1:
            raise ValueError(
                f"CAROTS needs at least window + 1 = {self.window + 1} time steps, "
                f"got n_samples = {n_timepoints}."
            )
        if self.n_causes > n_features:
            raise ValueError(
                f"n_causes={self.n_causes} is more than the {n_features} variables of X."
            )
        biases = np.asarray(self.bias_values, dtype=float)
        if biases.ndim != 1 or biases.size == 0 or not np.all((biases > 0) & (biases < np.inf)):
            raise ValueError(
                f"bias_values must be positive numbers, got {self.bias_values!r}: each is used "
                "with both signs."
            )
        thresholds = np.asarray(self.similarity_threshold, dtype=float)
        if thresholds.shape not in {(), (2,)} or not np.all(np.abs(thresholds) <= 1):
            raise ValueError(
                "similarity_threshold must be one or two numbers in [-1, 1], got "
                f"{self.similarity_threshold!r}."
            )

    def _n_training_rows(self, n_timepoints):
        """Rows before the held-out ones; at least two windows lie there."""
        held_out = round(self.validation_fraction * n_timepoints)
        return max(n_timepoints - held_out, self.window + 1)

    def _make_discoverer(self, random_state):
        """Unfitted discoverer with a seed, unless it brings one."""
        from skicml._torch import draw_seed

        seed = draw_seed(random_state)
        if self.causal_discoverer is None or isinstance(self.causal_discoverer, str):
            return make_discoverer(
                self.causal_discoverer,
                window=self.window,
                validation_fraction=self.validation_fraction,
                device=self.device,
                seed=seed,
            )
        discoverer = clone(self.causal_discoverer)
        find_lags(discoverer, self.window)  # an error before the training, not after it
        if discoverer.get_params().get("random_state", seed) is None:
            discoverer.set_params(random_state=seed)
        return discoverer

    def _discover(self, discoverer, series, n_train, context):
        """Fit the discoverer to all rows if it holds out its own, else to the training rows."""
        if "validation_fraction" not in discoverer.get_params():
            series = series[..., :n_train, :]
        task = context.subcontext("causal discovery")
        reports = hasattr(discoverer, "set_callbacks")
        with task.propagate_callback_context(discoverer) if reports else nullcontext():
            task.call_on_fit_task_begin(estimator=self, X=series)
            discoverer.fit(series)
        task.call_on_fit_task_end(estimator=self, X=series)

    def _contrast(self, scaled, model, random_state, context):
        """Encoder of the training windows, centre of its embeddings, and curve of its loss."""
        from skicml._torch import draw_seed
        from skicml.time_series._carots_torch import CausalAugmenter, fit_encoder

        augmenter = partial(
            CausalAugmenter,
            model.adjacency,
            model.forecast,
            n_causes=self.n_causes,
            cause_noise=self.cause_noise,
            stop_probability=self.stop_probability,
            bias_values=self.bias_values,
            bias_fraction=self.bias_fraction,
        )
        net, center, curve = fit_encoder(self, scaled, augmenter, draw_seed(random_state), context)
        if not (np.isfinite(center).all() and np.isfinite(curve["loss"]).all()):
            raise ValueError(f"Training diverged: lower learning_rate={self.learning_rate}.")
        return net, center, curve

    def _checked(self, X):
        """Standardised panel, panel as given, and whether X was one."""
        check_is_fitted(self)
        panel, is_panel = validate_series(self, X, reset=False, min_timepoints=self.window)
        return _standardize(panel, self.scaler_, self.clip), panel, is_panel

    def _terms(self, scaled, model, net, center):
        """Distance from the centre and mean squared forecast error of every window.

        Shape (2, n_series, n_windows).
        """
        from skicml.time_series._carots_torch import center_distances

        distances = center_distances(net, center, scaled, self.window, self.distance)
        return np.stack([distances, model.squared_errors(scaled).mean(axis=2)])

    def _row_scores(self, terms, mean, std):
        """Minus the anomaly score of every row, shape (n_series, n_timepoints)."""
        if self.score_type == "ensemble":
            anomaly = ((terms - mean[:, None, None]) / std[:, None, None]).sum(axis=0)
        else:
            anomaly = terms[0 if self.score_type == "contrastive" else 1]
        return _to_rows(-anomaly, self.window)

    def _find_offset(self, scores, n_train):
        if self.contamination != "auto":
            return float(np.percentile(scores, 100 * self.contamination))
        held_out = scores[:, n_train:]
        return float(np.quantile(held_out if held_out.size else scores, _AUTO_QUANTILE))


def _standardize(panel, scaler, clip):
    """Float32 panel of standardised values, clipped."""
    scaled = scaler.transform(panel.reshape(-1, panel.shape[2])).reshape(panel.shape)
    return np.clip(scaled, -clip, clip).astype(np.float32)


def _moments(terms):
    """Mean and standard deviation of each term over all windows; 1 for a constant one."""
    mean, std = terms.mean(axis=(1, 2)), terms.std(axis=(1, 2))
    return mean, np.where(std > _ROUNDING * mean, std, 1.0)


def _to_rows(values, window):
    """Values of windows for the rows where they end; earlier rows have the first value."""
    return np.concatenate([np.repeat(values[:, :1], window - 1, axis=1), values], axis=1)


def _warn_unless_learnt(curve):
    loss, chance, n_pairs = (curve[name][-1] for name in ("loss", "chance", "n_pairs"))
    if n_pairs == 0:
        reason = "no two positives are as similar as the last similarity_threshold asks for"
    elif loss > _CHANCE_SHARE * chance:
        reason = f"the contrastive loss {loss:.2f} is not clearly below chance, {chance:.2f}"
    else:
        return
    warnings.warn(
        f"The encoder has not learnt: {reason}. Its part of the score is noise. More max_epochs, "
        "a smaller batch_size or a higher learning_rate may help; else use "
        "score_type='causal'.",
        ConvergenceWarning,
        stacklevel=6,  # the caller of fit, beyond its decorators
    )
