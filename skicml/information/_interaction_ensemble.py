"""Ensemble of unimodal and joint classifiers, weighed by their interactions."""

from numbers import Integral, Real

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.ensemble import RandomForestRegressor
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    check_is_fitted,
    validate_data,
)

from skicml.information._lsmi import LSMI, seeded_clone
from skicml.utils._progress import fit_as_task

# Largest probabilities of each classifier that describe a sample to the regressor.
_N_TOP = 3
# Rows: what the classifiers of view 1, view 2 and both know, of r, u1, u2, s.
_KNOWN_TO_MODEL = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 1, 1]])


class InteractionEnsembleClassifier(CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Weigh classifiers of view 1, view 2 and both views by the interactions of each sample.

    A classifier of one view is good where redundancy or its uniqueness is high, the joint
    classifier where synergy is. A regressor learns to predict the interactions [1]_ of a
    sample from what is known without its label, and the three classifiers of :class:`LSMI`
    are averaged with weights that follow the prediction.

    Read more in the :ref:`User Guide <lsmi>`.

    Parameters
    ----------
    lsmi : LSMI or None, default=None
        Gives the classifiers and the interactions. None means ``LSMI()``. Its `cv` is
        replaced by that of the ensemble.
    regressor : estimator or None, default=None
        Regressor of the four interactions at once. None means a
        :class:`sklearn.ensemble.RandomForestRegressor` of 100 trees with 5 rows a leaf.
    cv : int, cross-validation generator or iterable, default=5
        Folds from which the interactions and probabilities of the training rows come. Every
        row must be tested exactly once.
    temperature : float, default=0.5
        Temperature of the weights: small values pick one classifier, large ones average.
    random_state : int, RandomState instance or None, default=None
        Seeds those nested estimators whose own ``random_state`` is None. Pass an int for
        reproducible results.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels.
    lsmi_ : LSMI
        Fitted to all rows; its `interactions_` are out of fold.
    regressor_ : estimator
        Fitted regressor of the interactions.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of features seen during fit, if X has string column names.

    See Also
    --------
    LSMI : The interactions themselves.
    sklearn.ensemble.VotingClassifier : The same weights for all samples.
    sklearn.ensemble.StackingClassifier : A classifier on top of the probabilities.

    Notes
    -----
    The paper gives no formula for the weights; this one is ours. With predictions r, u1, u2,
    s and temperature T,

        w = softmax([r + u1, r + u2, r + u1 + u2 + s] / T),

    that is the predicted pointwise mutual information of each classifier's input with the
    label: a classifier that is expected to give the true label a high probability has a
    high weight. The mean adjustment cancels. The regressor sees the columns of both views,
    the three largest probabilities of each classifier in order, and the entropy of each; in
    training these are out of fold, like its targets.

    Fit costs the number of folds plus one fits of the parts of :class:`LSMI` and a fit of
    the regressor, O(n log n) times its number of trees and columns for a forest of n rows.
    Memory is O(n (d + C)) for d features and C classes.

    References
    ----------
    .. [1] Yang, Z., Wang, H. and Hu, D. "Efficient Quantification of Multimodal Interaction
       at Sample Level." ICML 2025, PMLR 267:71302-71317.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.mixture import GaussianMixture
    >>> from skicml.information import LSMI, InteractionEnsembleClassifier
    >>> rng = np.random.RandomState(0)
    >>> y = np.repeat(["left", "right"], 100)
    >>> X = rng.normal(size=(200, 4)) + 2 * (y == "right")[:, None]
    >>> X[::2, :2] = rng.normal(size=(100, 2))  # view 1 says nothing in every other row
    >>> lsmi = LSMI(classifier=LogisticRegression(), density=GaussianMixture())
    >>> ensemble = InteractionEnsembleClassifier(lsmi, random_state=0).fit(X, y)
    >>> ensemble.model_weights(X).shape
    (200, 3)
    >>> ensemble.score(X, y) > 0.9
    True
    """

    _parameter_constraints = {
        "lsmi": [None, LSMI],
        "regressor": [None, HasMethods(["fit", "predict"])],
        "cv": [
            Interval(Integral, 2, None, closed="left"),
            HasMethods(["split", "get_n_splits"]),
            "array-like",
        ],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "random_state": ["random_state"],
    }

    def __init__(self, lsmi=None, *, regressor=None, cv=5, temperature=0.5, random_state=None):
        self.lsmi = lsmi
        self.regressor = regressor
        self.cv = cv
        self.temperature = temperature
        self.random_state = random_state

    @with_callbacks
    # The nested estimators are not validated yet.
    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y):
        """Fit the classifiers, their interactions, and the regressor of the interactions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side, without missing values.
        y : array-like of shape (n_samples,)
            Class labels.

        Returns
        -------
        self : InteractionEnsembleClassifier
            The fitted estimator.

        Raises
        ------
        ValueError
            If `cv` does not test every row exactly once, y has fewer than two classes or is
            continuous, or the views are invalid.
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
        check_classification_targets(y)
        context = self._init_callback_context(max_subtasks=2)
        context.call_on_fit_task_begin(estimator=self, X=data, y=y)
        lsmi, regressor = self._unfitted()
        fit_as_task(lsmi, X, y, self, context.subcontext("interactions"))
        known = _known_features(data, lsmi.view_indices_, lsmi.log_proba_)
        fit_as_task(regressor, known, lsmi.interactions_, self, context.subcontext("regressor"))

        _check_feature_names(self, X, reset=True)
        _check_n_features(self, data, reset=True)
        self.classes_ = lsmi.classes_
        self.lsmi_ = lsmi
        self.regressor_ = regressor
        context.call_on_fit_task_end(estimator=self, X=data, y=y)
        return self

    def predict(self, X):
        """Class with the highest probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Class labels.
        """
        proba = self.predict_proba(X)
        return self.classes_[proba.argmax(axis=1)]

    def predict_proba(self, X):
        """Class probabilities: those of the three classifiers, weighed for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Probability of each class, in the order of `classes_`.
        """
        data = self._check_data(X)
        log_proba = self.lsmi_.log_proba(X)
        return np.einsum("nm,nmk->nk", self._weights(data, log_proba), np.exp(log_proba))

    def model_weights(self, X):
        """Weight of each classifier for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Both views side by side.

        Returns
        -------
        weights : ndarray of shape (n_samples, 3)
            Weights of the classifiers of view 1, view 2 and both; every row adds up to 1.
        """
        data = self._check_data(X)
        return self._weights(data, self.lsmi_.log_proba(X))

    def _unfitted(self):
        """Clones of the LSMI and the regressor, seeded, with defaults put in."""
        random_state = check_random_state(self.random_state)
        lsmi = seeded_clone(LSMI() if self.lsmi is None else self.lsmi, random_state)
        regressor = self.regressor
        if regressor is None:
            regressor = RandomForestRegressor(100, min_samples_leaf=5)
        return lsmi.set_params(cv=self.cv), seeded_clone(regressor, random_state)

    def _check_data(self, X):
        check_is_fitted(self, "lsmi_")
        return validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)

    def _weights(self, X, log_proba):
        """Softmax of what each classifier is predicted to know, shape (n_samples, 3)."""
        known = _known_features(X, self.lsmi_.view_indices_, log_proba)
        information = self.regressor_.predict(known) @ _KNOWN_TO_MODEL.T
        return softmax(information / self.temperature, axis=1)


def _known_features(X, views, log_proba):
    """What is known of a sample without its label: features, top probabilities, entropies."""
    proba = np.exp(log_proba)
    top = np.sort(proba, axis=2)[:, :, : -_N_TOP - 1 : -1]
    entropies = -(proba * log_proba).sum(axis=2)
    return np.hstack([X[:, np.concatenate(views)], top.reshape(len(X), -1), entropies])
