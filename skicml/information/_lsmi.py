"""LSMI: redundancy, uniqueness and synergy of two views, sample by sample."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.model_selection import check_cv
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_consistent_length, check_random_state, check_X_y
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _get_feature_names,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from skicml._views import resolve_views
from skicml.information._knife import KnifeDensity
from skicml.information._pointwise import (
    adjust,
    decompose,
    expected_interactions,
    mean_adjustment,
    pointwise_information,
)
from skicml.utils._progress import fit_as_task

INTERACTIONS = ("redundancy", "uniqueness1", "uniqueness2", "synergy")
# Least probability that a classifier is believed to give: bounds i(x;y) from below.
_MIN_PROBA = 1e-12
# Three classifiers and two densities.
_N_PARTS = 5


class LSMI(CallbackSupportMixin, TransformerMixin, BaseEstimator):
    """Sample-level multimodal interaction: which view tells what about the label of a sample.

    For every sample, the information that two views x1 and x2 give about a class label y is
    split into redundancy r (either view tells it), uniqueness u1 and u2 (only that view tells
    it) and synergy s (only both together tell it), all in nats [1]_::

        i(x1;y) = r + u1,    i(x2;y) = r + u2,    i(x1,x2;y) = r + u1 + u2 + s

    Three classifiers estimate the pointwise mutual information i, two density models the
    pointwise entropies, and the redundancy is read off them in closed form. No density of
    both views together is needed.

    Read more in the :ref:`User Guide <lsmi>`.

    Parameters
    ----------
    views : None, "auto", or sequence of two, default=None
        The two views. None: the first half and the second half of the columns. Two ints:
        widths of two blocks that add up to the number of columns. Two index arrays or slices:
        the columns of each view. "auto": from the prefixes of the column names of a
        DataFrame, ``"<view>__<feature>"``.
    classifier : estimator or None, default=None
        Classifier with ``predict_proba``, cloned for each view. None means
        :class:`sklearn.neural_network.MLPClassifier` with two layers of 64, trained for 30
        epochs with batches of 32 rows.
    joint_classifier : estimator or None, default=None
        Classifier of both views side by side. None means a clone of `classifier`.
    density : estimator or None, default=None
        Density with ``score_samples``, cloned for each view, e.g.
        :class:`sklearn.mixture.GaussianMixture`. None means :class:`KnifeDensity`.
    adjust : bool, default=True
        Whether to shift the interactions by the constant that makes their means over the
        training rows non-negative.
    cv : int, cross-validation generator, iterable or None, default=None
        None takes `interactions_` from parts fitted to the same rows. Otherwise they come
        from parts that have not seen the row; parts for new rows are fitted to all rows
        either way. An int means a stratified split. Every row must be tested exactly once.
    standardize : bool, default=True
        Whether to scale every column to mean 0 and variance 1 first: entropies of
        continuous views depend on the unit, see the notes.
    random_state : int, RandomState instance or None, default=None
        Seeds those of the parts whose own ``random_state`` is None. Pass an int for
        reproducible results.
    n_jobs : int or None, default=None
        Number of parts fitted in parallel, by joblib.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    class_log_prior_ : ndarray of shape (n_classes,)
        Logarithm of the class frequencies of the training rows.
    view_indices_ : list of two ndarray of int
        Columns of each view.
    scaler_ : StandardScaler or None
        Scaling of the columns; None if ``standardize=False``.
    classifiers_ : list of three estimators
        Classifiers of view 1, view 2 and both; their classes are indices into `classes_`.
    densities_ : list of two estimators
        Density of each view.
    log_proba_ : ndarray of shape (n_samples, 3, n_classes)
        Logarithm of the class probabilities that the three classifiers give the training
        rows, out of fold if `cv` is set.
    pointwise_mi_ : ndarray of shape (n_samples, 3)
        i(x1;y), i(x2;y) and i(x1,x2;y) of the training rows.
    entropies_ : ndarray of shape (n_samples, 2)
        h(x1) and h(x2) of the training rows.
    raw_interactions_ : ndarray of shape (n_samples, 4)
        r, u1, u2, s of the training rows before the adjustment.
    adjustment_ : float
        The constant c added to r and s, and taken from u1 and u2; learnt in fit and applied
        to all rows. 0 if ``adjust=False``.
    interactions_ : ndarray of shape (n_samples, 4)
        r, u1, u2, s of the training rows, adjusted.
    mean_interactions_ : ndarray of shape (4,)
        Means of `interactions_`.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit, if X has string column names.

    See Also
    --------
    InteractionEnsembleClassifier : Weighs the three classifiers by the interactions.
    KnifeDensity : The default density model.
    sklearn.feature_selection.mutual_info_classif : Mutual information of single columns.

    Notes
    -----
    With h = -log p(x) and i = log p(y|x) - log p(y), the redundancy is

        r = min(h(x1), h(x2)) - min(h(x1) - i(x1;y), h(x2) - i(x2;y)),

    so it lies between the two i, and tends to the i of the view with the smaller entropy.
    Fit costs three classifiers and two densities, each times the number of folds plus one;
    :class:`KnifeDensity` takes time O(n K d^2) an epoch for n rows, d features and K
    components. Interactions take time O(n) and label-free ones O(n C) for C classes, beside
    the predictions of the parts; memory is O(n (d + C)).

    * Values of single samples may be negative: such a view misinforms about that sample.
    * Where a mean uniqueness is negative before the adjustment, the adjusted mean redundancy
      is min(I1, I2) whatever the densities are. Only values of samples then tell good
      densities from bad ones.
    * Entropies depend on units, so `standardize` is on; the scaler is fitted to all training
      rows, so that all folds share one unit. A much narrower view still has the smaller
      entropy.
    * Two independent bits with y = (x1, x2) give r = s = log 2 although nothing is shared.
      That lies in every redundancy made of minima.
    * The method is defined for two views.
    * All parts are needed, so callbacks see one task a part but cannot skip any; a progress
      bar also shows the epochs of :class:`KnifeDensity`.

    Departures from the paper, all ours: log p(y) is that of the class frequencies, not of
    equal classes; `cv`; the scaling; the label-free :meth:`transform`, which averages the
    interactions over the posterior p(y|x1,x2); the :meth:`score`; probabilities are clipped
    at 1e-12; the default network has a weight decay in place of the falling learning rate.
    It is not stopped early, as scikit-learn does that by accuracy: an accurate classifier
    whose probabilities are still far from 1 gives too small an i.

    References
    ----------
    .. [1] Yang, Z., Wang, H. and Hu, D. "Efficient Quantification of Multimodal Interaction
       at Sample Level." ICML 2025, PMLR 267:71302-71317.

    Examples
    --------
    Two bits: the label is their exclusive or, which neither tells alone.

    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from skicml.information import LSMI
    >>> X = np.random.RandomState(0).randint(2, size=(400, 2)).astype(float)
    >>> y = np.logical_xor(X[:, 0], X[:, 1])
    >>> lsmi = LSMI(classifier=DecisionTreeClassifier(), random_state=0).fit(X, y)
    >>> print(lsmi.mean_interactions_.round(2) + 0.0)
    [0.   0.   0.   0.69]
    >>> lsmi.transform(X[:2]).shape
    (2, 4)
    """

    _parameter_constraints = {
        "views": [None, "array-like", StrOptions({"auto"})],
        "classifier": [None, HasMethods(["fit", "predict_proba"])],
        "joint_classifier": [None, HasMethods(["fit", "predict_proba"])],
        "density": [None, HasMethods(["fit", "score_samples"])],
        "adjust": ["boolean"],
        "cv": ["cv_object"],
        "standardize": ["boolean"],
        "random_state": ["random_state"],
        "n_jobs": [None, Integral],
    }

    def __init__(
        self,
        views=None,
        *,
        classifier=None,
        joint_classifier=None,
        density=None,
        adjust=True,
        cv=None,
        standardize=True,
        random_state=None,
        n_jobs=None,
    ):
        self.views = views
        self.classifier = classifier
        self.joint_classifier = joint_classifier
        self.density = density
        self.adjust = adjust
        self.cv = cv
        self.standardize = standardize
        self.random_state = random_state
        self.n_jobs = n_jobs

    @with_callbacks
    # The nested classifiers and densities are not validated yet.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y):
        """Fit the classifiers and the densities, and decompose the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side, without missing values.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : LSMI
            The fitted estimator.

        Raises
        ------
        ValueError
            If `views` does not describe two views of X, y has fewer than two classes or is
            continuous, or `cv` does not test every row exactly once.
        """
        data, y = check_X_y(
            X,
            y,
            dtype=[np.float64, np.float32],
            order="C",
            ensure_min_features=2,
            ensure_min_samples=2,
            estimator=self,
        )
        blocks = self._two_views(data.shape[1], _get_feature_names(X))
        classes, codes = self._encode_classes(y)
        log_prior = np.log(np.bincount(codes) / len(codes))
        scaler = StandardScaler().fit(data) if self.standardize else None
        scaled = data if scaler is None else scaler.transform(data)

        folds = _test_folds(self.cv, scaled, codes)

        n_tasks = _N_PARTS * (len(folds) + 1)
        context = self._init_callback_context(max_subtasks=n_tasks, sequential_subtasks=False)
        context.call_on_fit_task_begin(estimator=self, X=data, y=y)
        parts, log_proba, entropies = self._cross_fit(scaled, codes, blocks, folds, context)
        pointwise_mi = pointwise_information(log_proba, log_prior, codes)
        raw = decompose(pointwise_mi, entropies)
        adjustment = mean_adjustment(raw) if self.adjust else 0.0
        interactions = adjust(raw, adjustment)

        _check_feature_names(self, X, reset=True)
        _check_n_features(self, data, reset=True)
        self.classes_ = classes
        self.class_log_prior_ = log_prior
        self.view_indices_ = blocks
        self.scaler_ = scaler
        self.classifiers_ = parts.classifiers
        self.densities_ = parts.densities
        self.log_proba_ = log_proba.astype(data.dtype, copy=False)
        self.entropies_ = entropies.astype(data.dtype, copy=False)
        self.pointwise_mi_ = pointwise_mi.astype(data.dtype, copy=False)
        self.raw_interactions_ = raw.astype(data.dtype, copy=False)
        self.adjustment_ = adjustment
        self.interactions_ = interactions.astype(data.dtype, copy=False)
        self.mean_interactions_ = interactions.mean(axis=0)
        context.call_on_fit_task_end(estimator=self, X=data, y=y)
        return self

    def transform(self, X):
        """Interactions expected without knowing the label.

        Averages :meth:`interactions` over the candidate labels with weights p(y|x1,x2).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        interactions : ndarray of shape (n_samples, 4)
            Expected r, u1, u2, s, adjusted by `adjustment_`.
        """
        return self._expected_interactions(X)

    def interactions(self, X, y):
        """Interactions of samples whose label is known.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        interactions : ndarray of shape (n_samples, 4)
            r, u1, u2, s, adjusted by `adjustment_`.

        Raises
        ------
        ValueError
            If y holds a label that fit has not seen.
        """
        scaled, codes = self._check_labelled(X, y)
        parts = self._parts()
        mi = pointwise_information(parts.log_proba(scaled), self.class_log_prior_, codes)
        raw = decompose(mi, parts.entropies(scaled))
        return adjust(raw, self.adjustment_).astype(scaled.dtype, copy=False)

    def pointwise_mi(self, X, y):
        """Pointwise mutual information of the views with the label.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        pointwise_mi : ndarray of shape (n_samples, 3)
            i(x1;y), i(x2;y) and i(x1,x2;y).

        Raises
        ------
        ValueError
            If y holds a label that fit has not seen.
        """
        scaled, codes = self._check_labelled(X, y)
        log_proba = self._parts().log_proba(scaled)
        mi = pointwise_information(log_proba, self.class_log_prior_, codes)
        return mi.astype(scaled.dtype, copy=False)

    def entropies(self, X):
        """Pointwise entropies of the views.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        entropies : ndarray of shape (n_samples, 2)
            h(x1) and h(x2), of the scaled columns if ``standardize=True``.
        """
        scaled = self._check_data(X)
        return self._parts().entropies(scaled).astype(scaled.dtype, copy=False)

    def log_proba(self, X):
        """Logarithm of the class probabilities of the three classifiers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, 3, n_classes)
            log p(y|x1), log p(y|x2) and log p(y|x1,x2), bounded below by log 1e-12.
        """
        scaled = self._check_data(X)
        return self._parts().log_proba(scaled).astype(scaled.dtype, copy=False)

    def partition(self, X, y=None, by="redundancy", quantiles=(0.5,)):
        """Group rows by one of the interactions.

        The upper half by redundancy suits contrastive alignment of the views, the lower half
        the training of the weaker view.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels; None takes the interactions expected without label.
        by : {"redundancy", "uniqueness1", "uniqueness2", "synergy"}, default="redundancy"
            The interaction.
        quantiles : sequence of float, default=(0.5,)
            Increasing quantiles of the given rows, between 0 and 1, at which groups end.

        Returns
        -------
        groups : ndarray of int of shape (n_samples,)
            Group of every row, 0 for the lowest.

        Raises
        ------
        ValueError
            If `by` or `quantiles` is invalid.
        """
        if by not in INTERACTIONS:
            raise ValueError(f"by must be one of {INTERACTIONS}, got {by!r}.")
        quantiles = np.asarray(quantiles, dtype=float)
        if quantiles.ndim != 1 or not _increases_within_unit_interval(quantiles):
            raise ValueError(
                f"quantiles must increase strictly between 0 and 1, got {quantiles.tolist()}."
            )
        values = self._known_or_expected(X, y)[:, INTERACTIONS.index(by)]
        return np.searchsorted(np.quantile(values, quantiles), values)

    def dominant_interaction(self, X, y=None):
        """Largest interaction of every row.

        For distillation from a joint model: features where redundancy or uniqueness
        dominates, outputs where synergy does.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.
        y : array-like of shape (n_samples,) or None, default=None
            Class labels; None takes the interactions expected without label.

        Returns
        -------
        dominant : ndarray of int of shape (n_samples,)
            0 for redundancy, 1 and 2 for uniqueness, 3 for synergy.
        """
        return self._known_or_expected(X, y).argmax(axis=1)

    def score(self, X, y):
        """Mean held-out likelihood of all parts.

        Every part is fitted by maximum likelihood, so this tunes each of them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        score : float
            Mean of log p(y|x1) + log p(y|x2) + log p(y|x1,x2) + log p(x1) + log p(x2).

        Raises
        ------
        ValueError
            If y holds a label that fit has not seen.
        """
        scaled, codes = self._check_labelled(X, y)
        parts = self._parts()
        no_prior = np.zeros(len(self.classes_))
        log_proba = pointwise_information(parts.log_proba(scaled), no_prior, codes)
        return float((log_proba.sum(axis=1) - parts.entropies(scaled).sum(axis=1)).mean())

    def get_feature_names_out(self, input_features=None):
        """Names of the columns that :meth:`transform` gives.

        Parameters
        ----------
        input_features : array-like of str or None, default=None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (4,)
            "redundancy", "uniqueness1", "uniqueness2", "synergy".
        """
        check_is_fitted(self, "classifiers_")
        return np.asarray(INTERACTIONS, dtype=object)

    def _two_views(self, n_features, feature_names):
        """Column indices of the two views."""
        if self.views is None:
            half = n_features // 2
            return [np.arange(half), np.arange(half, n_features)]
        blocks = resolve_views(self.views, n_features, feature_names)
        if len(blocks) != 2:
            raise ValueError(
                f"LSMI is defined for exactly 2 views, but views={self.views!r} describes "
                f"{len(blocks)} of the {n_features} features."
            )
        return blocks

    def _encode_classes(self, y):
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"LSMI needs at least 2 classes in y, got {len(classes)} class.")
        return classes, codes

    def _cross_fit(self, X, codes, blocks, folds, context):
        """Fit the parts, and let them judge the training rows, each fold by its own parts.

        Returns
        -------
        parts : _Parts
            Fitted to all rows.
        log_proba : ndarray of shape (n_samples, 3, n_classes)
            Judgement of the classifiers.
        entropies : ndarray of shape (n_samples, 2)
            Judgement of the densities.
        """
        everything = np.arange(len(X))
        training = [train for train, _ in folds] + [everything]
        if not folds:
            folds = [(everything, everything)]
        fitted = self._fit_parts(X, codes, blocks, training, context)
        log_proba = np.empty((len(X), 3, codes.max() + 1))
        entropies = np.empty((len(X), 2))
        for (_, test), parts in zip(folds, fitted):
            log_proba[test] = parts.log_proba(X[test])
            entropies[test] = parts.entropies(X[test])
        return fitted[-1], log_proba, entropies

    def _fit_parts(self, X, codes, blocks, training, context):
        """One set of fitted parts for each set of rows in `training`."""
        classifier, joint_classifier, density = self._unfitted(len(X))
        views = [*blocks, np.concatenate(blocks)]
        parts = [
            ("classifier of view 1", classifier, views[0], codes),
            ("classifier of view 2", classifier, views[1], codes),
            ("joint classifier", joint_classifier, views[2], codes),
            ("density of view 1", density, views[0], None),
            ("density of view 2", density, views[1], None),
        ]
        random_state = check_random_state(self.random_state)
        jobs = [
            (f"{name}, fit {fold}", seeded_clone(part, random_state), rows, columns, target)
            for fold, rows in enumerate(training)
            for name, part, columns, target in parts
        ]
        fitted = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_part)(
                part, X, target, rows, columns, self, context.subcontext(name, task_id=task_id)
            )
            for task_id, (name, part, rows, columns, target) in enumerate(jobs)
        )
        return [
            _Parts(fitted[start : start + 3], fitted[start + 3 : start + 5], views, codes.max() + 1)
            for start in range(0, len(fitted), _N_PARTS)
        ]

    def _unfitted(self, n_samples):
        """The classifier of one view, that of both, and the density, with defaults put in."""
        classifier = self.classifier
        if classifier is None:
            classifier = _default_classifier(n_samples)
        joint_classifier = classifier if self.joint_classifier is None else self.joint_classifier
        density = KnifeDensity() if self.density is None else self.density
        return classifier, joint_classifier, density

    def _parts(self):
        """The fitted parts."""
        views = [*self.view_indices_, np.concatenate(self.view_indices_)]
        return _Parts(self.classifiers_, self.densities_, views, len(self.classes_))

    def _check_data(self, X):
        """X validated and scaled."""
        check_is_fitted(self, "classifiers_")
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        return X if self.scaler_ is None else self.scaler_.transform(X)

    def _check_labelled(self, X, y):
        """X validated and scaled, and the indices of the classes of y."""
        X = self._check_data(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        unseen = np.setdiff1d(y, self.classes_)
        if unseen.size:
            raise ValueError(f"y holds labels that fit has not seen: {unseen.tolist()}.")
        return X, np.searchsorted(self.classes_, y)

    def _expected_interactions(self, X):
        scaled = self._check_data(X)
        parts = self._parts()
        expected = expected_interactions(
            parts.log_proba(scaled), self.class_log_prior_, parts.entropies(scaled)
        )
        return adjust(expected, self.adjustment_).astype(scaled.dtype, copy=False)

    def _known_or_expected(self, X, y):
        return self._expected_interactions(X) if y is None else self.interactions(X, y)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass
class _Parts:
    """Fitted classifiers and densities, and the columns of view 1, view 2 and both."""

    classifiers: list
    densities: list
    views: list
    n_classes: int

    def log_proba(self, X):
        """log p(y|x1), log p(y|x2), log p(y|x1,x2); shape (n_samples, 3, n_classes)."""
        proba = np.zeros((len(X), 3, self.n_classes))
        for i, (classifier, columns) in enumerate(zip(self.classifiers, self.views)):
            # A fold may lack a class altogether.
            proba[:, i, classifier.classes_] = classifier.predict_proba(X[:, columns])
        return np.log(proba.clip(_MIN_PROBA, 1))

    def entropies(self, X):
        """h(x1), h(x2); shape (n_samples, 2)."""
        return -np.column_stack(
            [
                density.score_samples(X[:, columns])
                for density, columns in zip(self.densities, self.views)
            ]
        )


def seeded_clone(estimator, random_state):
    """Clone in which every parameter ``random_state`` that is None gets a seed of its own."""
    estimator = clone(estimator)
    for name, value in sorted(estimator.get_params().items(), key=lambda item: item[0]):
        if value is None and name.split("__")[-1] == "random_state":
            estimator.set_params(**{name: random_state.randint(np.iinfo(np.int32).max)})
    return estimator


def _default_classifier(n_samples):
    """The paper's network, trained for 30 epochs whatever the data."""
    return MLPClassifier(
        (64, 64),
        alpha=0.03,
        batch_size=min(32, n_samples // 2),
        # No improvement is ever large enough to go on: after 28 epochs beyond the first two,
        # training ends without a warning that it has not converged.
        tol=1e9,
        n_iter_no_change=28,
    )


def _test_folds(cv, X, codes):
    """Pairs of training and test indices in which every row is tested once; none for None."""
    if cv is None:
        return []
    folds = list(check_cv(cv, codes, classifier=True).split(X, codes))
    tested = np.concatenate([np.arange(0), *(test for _, test in folds)])
    if not np.array_equal(np.sort(tested), np.arange(len(X))):
        raise ValueError("cv must test every row exactly once, as KFold does.")
    return folds


def _fit_part(part, X, target, rows, columns, estimator, context):
    """Fit a classifier or density to some rows and columns, as one task of `estimator`."""
    y = None if target is None else target[rows]
    return fit_as_task(part, X[np.ix_(rows, columns)], y, estimator, context)


def _increases_within_unit_interval(values):
    return values.size > 0 and np.all(np.diff(np.concatenate([[0.0], values, [1.0]])) > 0)
