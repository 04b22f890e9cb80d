"""What estimators of the time score share: samples, path, training, integration over time."""

import warnings
from abc import ABC, abstractmethod
from numbers import Integral, Real

import numpy as np
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state, check_X_y, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from skicml.utils._fitting import all_or_nothing

# Rows times nodes that pass the network at once: bounds the memory of the hidden layers.
_CHUNK = 50_000
# Least improvement of the held-out loss that counts for early stopping.
_TOL = 1e-4


class BaseTimeScoreRatio(CallbackSupportMixin, ClassifierMixin, BaseEstimator, ABC):
    """Density ratio as the integral of a learnt time score; subclasses choose the loss."""

    _parameter_constraints = {
        "path": [StrOptions({"bridge", "vp"})],
        "bridge_variance": [Interval(Real, 0, None, closed="neither")],
        "weighting": [StrOptions({"time_score", "stein", "uniform"})],
        "weight_constant": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "hidden_layer_sizes": ["array-like"],
        "activation": [StrOptions({"elu", "relu", "silu", "tanh"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "lr_schedule": [StrOptions({"cosine", "constant"})],
        "time_eps": [Interval(Real, 0, 0.5, closed="neither")],
        "n_quadrature": [Interval(Integral, 1, None, closed="left")],
        "standardize": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "ema_decay": [Interval(Real, 0, 1, closed="left")],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
        "random_state": ["random_state"],
        "warm_start": ["boolean"],
    }

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y):
        """Learn the time score between two samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both samples, one below the other, in any order of rows.
        y : array-like of shape (n_samples,)
            Which sample a row belongs to. The smaller of the two labels is the denominator
            p0 of the ratio, the larger one the numerator p1.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If y has not just two classes, training diverges, `early_stopping` leaves a
            sample without rows, or ``warm_start=True`` meets another shape of the problem.
        """
        from skicml._torch import fit_net, n_epochs_of

        rows, y = check_X_y(X, y, dtype=[np.float64, np.float32], estimator=self)
        classes, codes = _encode_two_classes(y)
        start = self._fitted_net(rows, classes) if self.warm_start else None
        samples = [rows[codes == 0], rows[codes == 1]]
        if self.path == "vp":
            _warn_unless_standard_normal(samples[0])
        mean, scale = (self.mean_, self.scale_) if start else self._scaling(*samples)
        random_state = check_random_state(self.random_state)
        samples = [((sample - mean) / scale).astype(np.float32) for sample in samples]
        data = self._path_data(samples, random_state)
        net = self._make_net(data, random_state, start)

        n_epochs = n_epochs_of(self.max_iter, net.steps_per_epoch)
        context = self._init_callback_context(max_subtasks=n_epochs)
        context.call_on_fit_task_begin(estimator=self, X=rows, y=y)
        fit_net(net, data, steps=self.max_iter, estimator=self, context=context)
        curves = self._curves(net, start)

        _check_feature_names(self, X, reset=True)
        _check_n_features(self, rows, reset=True)
        self.classes_ = classes
        self.class_prior_ = np.bincount(codes) / len(codes)
        self.mean_, self.scale_ = mean, scale
        self.net_ = net
        self.n_iter_, self.loss_curve_, self.validation_curve_ = curves
        context.call_on_fit_task_end(estimator=self, X=rows, y=y)
        return self

    def log_density_ratio(self, X):
        """Logarithm of the density ratio of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_ratio : ndarray of shape (n_samples,)
            log p1(x) - log p0(x) in nats, whatever the sizes of the two samples were.
        """
        rows = self._check_rows(X)
        path = self.net_.weight.path
        nodes, weights = np.polynomial.legendre.leggauss(self.n_quadrature)
        half = (path.last - path.first) / 2
        times = path.first + half * (1 + nodes)
        log_ratio = np.empty(len(rows), dtype=rows.dtype)
        for chunk, scores in self._chunked_scores(rows, times):
            log_ratio[chunk] = half * scores @ weights
        return log_ratio

    def density_ratio(self, X):
        """Density ratio of every row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ratio : ndarray of shape (n_samples,)
            p1(x) / p0(x), positive, and clipped to the range of floating point numbers.
        """
        log_ratio = self.log_density_ratio(X)
        limits = np.finfo(log_ratio.dtype)
        with np.errstate(over="ignore"):
            return np.exp(log_ratio).clip(limits.tiny, limits.max)

    def time_score(self, X, t):
        """Derivative of the log density of the path by time, as the network has learnt it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        t : float or array-like of shape (n_times,)
            Times between 0, where the path is at p0, and 1, where it is at p1.

        Returns
        -------
        scores : ndarray of shape (n_samples,) or (n_samples, n_times)
            d/dt log p_t(x). Its integral over t is the log density ratio.

        Raises
        ------
        ValueError
            If a time is not in [0, 1], or `t` has more than one dimension.
        """
        rows = self._check_rows(X)
        times = np.asarray(t, dtype=np.float64)
        if times.ndim > 1 or not ((times >= 0) & (times <= 1)).all():
            raise ValueError(f"t must be a number or a 1-D array of numbers in [0, 1], got {t!r}.")
        scores = np.empty((len(rows), times.size), dtype=rows.dtype)
        for chunk, values in self._chunked_scores(rows, times.ravel()):
            scores[chunk] = values
        return scores if times.ndim else scores[:, 0]

    def kl_divergence(self, X):
        """Kullback-Leibler divergence KL(p1 || p0).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of the numerator p1, best ones that fit has not seen.

        Returns
        -------
        divergence : float
            Mean of the log density ratio, in nats.
        """
        return float(np.mean(self.log_density_ratio(X), dtype=np.float64))

    def decision_function(self, X):
        """Log odds of the numerator: log density ratio plus log ratio of the class priors.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_odds : ndarray of shape (n_samples,)
            Positive where ``classes_[1]`` is the more likely class.
        """
        log_ratio = self.log_density_ratio(X)
        prior0, prior1 = self.class_prior_
        return log_ratio + np.log(prior1 / prior0).astype(log_ratio.dtype)

    def predict_proba(self, X):
        """Probability of either class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        proba : ndarray of shape (n_samples, 2)
            Columns as in `classes_`.
        """
        log_odds = self.decision_function(X)
        return np.column_stack([expit(-log_odds), expit(log_odds)])

    def predict(self, X):
        """The likelier of the two samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Labels of `classes_`.
        """
        log_odds = self.decision_function(X)
        return self.classes_[(log_odds > 0).astype(int)]

    @abstractmethod
    def _architecture(self, n_features):
        """Class of the net, and number of outputs of its module."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _fitted_net(self, rows, classes):
        """The net that a warm start goes on from; None before the first fit."""
        if not hasattr(self, "net_"):
            return None
        _check_n_features(self, rows, reset=False)
        if not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"warm_start=True needs the classes of the first fit, {self.classes_}, got "
                f"{classes}."
            )
        return self.net_

    def _scaling(self, denominator, numerator):
        """Mean and scale of every column; both samples count the same."""
        n_features = denominator.shape[1]
        if self.path == "vp" or not self.standardize:  # p0 must stay the standard normal
            return np.zeros(n_features), np.ones(n_features)
        samples = [sample.astype(np.float64) for sample in (denominator, numerator)]
        mean = np.mean([sample.mean(axis=0) for sample in samples], axis=0)
        scale = np.sqrt(np.mean([sample.var(axis=0) for sample in samples], axis=0))
        scale[np.all([np.ptp(sample, axis=0) == 0 for sample in samples], axis=0)] = 1
        return mean, scale

    def _path_data(self, samples, random_state):
        """Both samples on the device, with a part held out for early stopping."""
        from skicml._torch import resolve_device
        from skicml.density_ratio._ctsm_torch import PathData, make_path

        device = resolve_device(self.device)
        path = make_path(self.path, bridge_variance=self.bridge_variance, time_eps=self.time_eps)
        if not self.early_stopping:
            return PathData(path, *samples, device)
        parts = [
            train_test_split(sample, test_size=self.validation_fraction, random_state=random_state)
            for sample in samples
        ]
        held_out = PathData(path, *(part[1] for part in parts), device)
        return PathData(path, *(part[0] for part in parts), device, held_out)

    def _make_net(self, data, random_state, start):
        """Untrained net, or one with the weights and the stream of random numbers of `start`."""
        from skicml._torch import draw_seed
        from skicml.density_ratio._ctsm_torch import TimeScoreNetwork, TimeWeight

        constant = self.weight_constant
        if constant == "auto":
            constant = data.path.velocity_scale(data.X0, data.X1)
        n_features = data.X1.shape[1]
        net_class, n_outputs = self._architecture(n_features)
        net = net_class(
            TimeScoreNetwork,
            module__n_features=n_features,
            module__n_outputs=n_outputs,
            module__hidden_layer_sizes=_check_widths(self.hidden_layer_sizes),
            module__activation=self.activation,
            weight=TimeWeight(data.path, self.weighting, constant),
            batch_size=self.batch_size,
            lr=self.learning_rate,
            optimizer__fused=True,
            callbacks=self._net_callbacks(),
            seed=draw_seed(random_state),
            device=str(data.X1.device),
        ).initialize()
        if start is not None:
            _continue_from(net, start)
        return net

    def _net_callbacks(self):
        from skorch.callbacks import LRScheduler
        from skorch.utils import noop
        from torch.optim.lr_scheduler import CosineAnnealingLR

        from skicml._torch import EMA, EarlyStopping

        callbacks = []
        if self.lr_schedule == "cosine":
            callbacks.append(
                LRScheduler(
                    CosineAnnealingLR, T_max=self.max_iter, step_every="batch", event_name=None
                )
            )
        if self.early_stopping:
            callbacks.append(
                EarlyStopping(
                    patience=self.n_iter_no_change,
                    threshold=_TOL,
                    threshold_mode="abs",
                    load_best=not self.ema_decay,
                    sink=noop,
                )
            )
        if self.ema_decay:
            callbacks.append(EMA(self.ema_decay))
        return callbacks

    def _curves(self, net, start):
        """Number of steps, and the losses of every hundred of them, after those of `start`."""
        epochs = net.history
        losses = epochs[:, "train_loss"]
        held_out = epochs[:, "valid_loss"] if self.early_stopping else []
        if not np.isfinite(losses).all():
            raise ValueError(
                f"Training diverged: lower learning_rate={self.learning_rate}, or scale X."
            )
        n_iter = sum(epochs[:, "train_batch_count"])
        if start is not None:
            n_iter += self.n_iter_
            losses = [*self.loss_curve_, *losses]
            held_out = [*(self.validation_curve_ or []), *held_out]
        return n_iter, losses, held_out or None

    def _check_rows(self, X):
        check_is_fitted(self)
        return validate_data(self, X, dtype=[np.float64, np.float32], reset=False)

    def _chunked_scores(self, rows, times):
        """Slices of the rows, with their time scores of shape (n_rows, n_times)."""
        from skicml.density_ratio._ctsm_torch import double_module, time_scores

        module = double_module(self.net_.module_)
        for chunk in gen_batches(len(rows), max(1, _CHUNK // max(1, len(times)))):
            scaled = (rows[chunk] - self.mean_) / self.scale_
            yield chunk, time_scores(module, scaled, times)


def _encode_two_classes(y):
    """The two labels, sorted, and the index of the label of every row."""
    y_type = type_of_target(y, input_name="y", raise_unknown=True)
    if y_type != "binary":
        raise ValueError(
            f"Only binary classification is supported. The type of the target is {y_type}."
        )
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) == 1:
        raise ValueError(
            "y must have two classes, one a sample, but the data contains only one class: "
            f"{classes[0]!r}."
        )
    return classes, codes


def _check_widths(hidden_layer_sizes):
    widths = np.asarray(hidden_layer_sizes)
    if widths.ndim != 1 or widths.dtype.kind not in "iu" or not (widths >= 1).all():
        raise ValueError(
            "hidden_layer_sizes must be a sequence of integers of at least 1, got "
            f"{hidden_layer_sizes!r}."
        )
    return tuple(widths.tolist())


def _warn_unless_standard_normal(X):
    """Warn if moments of X are further from those of N(0, I) than its size explains."""
    n_samples, n_features = X.shape
    X = X.astype(np.float64)
    far_mean = np.abs(X.mean(axis=0)).max() > 0.1 + 5 / np.sqrt(n_samples)
    far_variance = np.abs(X.var(axis=0) - 1).max() > 0.2 + 5 * np.sqrt(2 / n_samples)
    # Squared lengths vary by 2 n_features; by more with correlated columns or heavy tails.
    ratio = np.square(X).sum(axis=1).var() / (2 * n_features)
    noise = np.sqrt((2 + 12 / n_features) / n_samples)
    far_lengths = abs(ratio - 1) > 0.25 + 5 * noise
    if far_mean or far_variance or far_lengths:
        warnings.warn(
            "path='vp' takes the rows of the first class for draws from the standard normal "
            "distribution N(0, I), but their moments differ from it: the ratio will be one to "
            "N(0, I). Use path='bridge' for two samples.",
            UserWarning,
            stacklevel=6,
        )


def _continue_from(net, start):
    """Give a new net the parameters of a trained one and go on in its random numbers."""
    parameters, trained = net.module_.state_dict(), start.module_.state_dict()
    shapes, known = ([tuple(p.shape) for p in d.values()] for d in (parameters, trained))
    if shapes != known:
        raise ValueError(
            f"warm_start=True needs the architecture of the first fit: layers of shape {known}, "
            f"got {shapes}. Change neither hidden_layer_sizes nor the form of the objective."
        )
    net.module_.load_state_dict(trained)
    net.generator_.set_state(start.generator_.get_state())
