"""Compare a sample of a generator with a sample of real data."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_array, check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted


def frechet_distance(X, Y, *, features=None):
    """Squared Frechet distance of the normal distributions that fit two samples.

    On features of a classifier it is the FID of the literature [1]_, with a classifier that you
    choose.

    Parameters
    ----------
    X, Y : array-like of shape (n_samples, n_features)
        The two samples; they may differ in length.
    features : None, callable or MLPClassifier, default=None
        What is compared: the columns, ``features(X)``, or the last hidden layer of a fitted
        :class:`sklearn.neural_network.MLPClassifier` (or regressor).

    Returns
    -------
    distance : float
        ||m_X - m_Y||^2 + tr(C_X + C_Y - 2 (C_X^{1/2} C_Y C_X^{1/2})^{1/2}), at least 0.

    Raises
    ------
    ValueError
        If the numbers of columns differ or a sample has a single row.

    Notes
    -----
    Biased upwards, the more the smaller the samples: compare figures of equal sample sizes
    only, and look at the distance of two real samples of that size. Time O(n d^2 + d^3).

    References
    ----------
    .. [1] Heusel, M. et al. "GANs Trained by a Two Time-Scale Update Rule Converge to a Local
       Nash Equilibrium." NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.metrics import frechet_distance
    >>> X = np.random.RandomState(0).normal(size=(1000, 2))
    >>> round(frechet_distance(X, X + [3, 4]), 6)
    25.0
    """
    X, Y = _two_samples(_featurize(X, features), _featurize(Y, features), min_samples=2)
    difference = X.mean(axis=0) - Y.mean(axis=0)
    cov_x, cov_y = np.atleast_2d(np.cov(X.T)), np.atleast_2d(np.cov(Y.T))
    root = _symmetric_root(cov_x)
    cross = np.linalg.eigvalsh(root @ cov_y @ root)
    distance = difference @ difference + np.trace(cov_x) + np.trace(cov_y)
    return max(0.0, float(distance - 2 * np.sqrt(cross.clip(0)).sum()))


def sliced_wasserstein(X, Y, *, n_projections=200, random_state=None):
    """Sliced 2-Wasserstein distance of two samples.

    The root mean square, over random directions, of the Wasserstein distances of the samples
    projected to a line.

    Parameters
    ----------
    X, Y : array-like of shape (n_samples, n_features)
        The two samples; they may differ in length.
    n_projections : int, default=200
        Number of directions.
    random_state : int, RandomState instance or None, default=None
        Determines the directions. Pass an int for reproducible results.

    Returns
    -------
    distance : float
        In the unit of X.

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    Notes
    -----
    Time O(n_projections n (d + log n)).

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.metrics import sliced_wasserstein
    >>> X = np.random.RandomState(0).normal(size=(500, 1))
    >>> round(sliced_wasserstein(X, X + 2, random_state=0), 6)
    2.0
    """
    import ot

    X, Y = _two_samples(X, Y)
    check_scalar(n_projections, "n_projections", Integral, min_val=1)
    directions = check_random_state(random_state).standard_normal((X.shape[1], n_projections))
    directions /= np.linalg.norm(directions, axis=0)
    return float(ot.sliced_wasserstein_distance(X, Y, projections=directions))


def classifier_two_sample_test(X, Y, *, estimator=None, cv=3, round_to=None, random_state=None):
    """How well a classifier tells two samples apart.

    Parameters
    ----------
    X, Y : array-like of shape (n_samples, n_features)
        The two samples.
    estimator : classifier or None, default=None
        Cloned for each fold. None means
        :class:`sklearn.ensemble.HistGradientBoostingClassifier`.
    cv : int or cross-validation generator, default=3
        Folds; an int means shuffled stratified ones.
    round_to : float or None, default=None
        Grid that X and Y are rounded to first, e.g. 1.0 for integers. Real data on a grid is
        told from any continuous sample by what stands behind the point.
    random_state : int, RandomState instance or None, default=None
        Determines the folds and the default classifier.

    Returns
    -------
    auc : float
        Area under the ROC curve of the out-of-fold scores: 0.5 if the samples cannot be told
        apart, 1 if a threshold separates them.

    Raises
    ------
    ValueError
        If the numbers of columns differ, or `round_to` is not positive.

    Notes
    -----
    Takes the time of `cv` fits of the classifier on the rows of both samples.

    References
    ----------
    .. [1] Lopez-Paz, D. and Oquab, M. "Revisiting Classifier Two-Sample Tests." ICLR 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skicml.metrics import classifier_two_sample_test
    >>> X = np.random.RandomState(0).normal(size=(300, 2))
    >>> auc = classifier_two_sample_test(
    ...     X, X + 10, estimator=LogisticRegression(), random_state=0
    ... )
    >>> float(auc)
    1.0
    """
    from sklearn.base import clone
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    X, Y = _two_samples(X, Y, min_samples=2)
    rows = np.concatenate([X, Y])
    if round_to is not None:
        check_scalar(round_to, "round_to", Real, min_val=0, include_boundaries="neither")
        rows = round_to * np.rint(rows / round_to)
    labels = np.repeat([0, 1], [len(X), len(Y)])
    seed = check_random_state(random_state).randint(2**31 - 1)
    if estimator is None:
        estimator = HistGradientBoostingClassifier(random_state=seed)
    if isinstance(cv, Integral):
        cv = StratifiedKFold(cv, shuffle=True, random_state=seed)
    method = "predict_proba" if hasattr(estimator, "predict_proba") else "decision_function"
    scores = cross_val_predict(clone(estimator), rows, labels, cv=cv, method=method)
    scores = scores[:, 1] if scores.ndim == 2 else scores
    return float(roc_auc_score(labels, scores))


def precision_recall_knn(X, Y, *, k=5):
    """Quality and coverage of generated data by nearest neighbours.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Real data.
    Y : array-like of shape (n_generated, n_features)
        Generated data.
    k : int, default=5
        Each row stands for the ball that reaches to its k-th nearest neighbour in its own
        sample.

    Returns
    -------
    precision : float
        Share of the rows of Y within a ball of X: generated rows that look real.
    recall : float
        Share of the rows of X within a ball of Y: real rows that could have been generated.

    Raises
    ------
    ValueError
        If the numbers of columns differ, or a sample has no more than `k` rows.

    Notes
    -----
    Both rise with the sample sizes: compare figures of equal sizes only. Time
    O((n + m)^2 d) for n and m rows of d columns, memory O((n + m) d).

    References
    ----------
    .. [1] Kynkaanniemi, T. et al. "Improved Precision and Recall Metric for Assessing
       Generative Models." NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.metrics import precision_recall_knn
    >>> X = np.random.RandomState(0).normal(size=(300, 2))
    >>> precision_recall_knn(X, np.vstack([X, X + 100]))
    (0.5, 1.0)
    """
    X, Y = _two_samples(X, Y)
    check_scalar(k, "k", Integral, min_val=1)
    if min(len(X), len(Y)) <= k:
        raise ValueError(f"Both samples need more than k={k} rows, got {len(X)} and {len(Y)}.")
    return _share_within(Y, X, k), _share_within(X, Y, k)


def memorization_ratio(X, train, held_out):
    """Whether generated rows lie closer to the training rows than to others of their kind.

    Parameters
    ----------
    X : array-like of shape (n_generated, n_features)
        Generated data.
    train : array-like of shape (n_train, n_features)
        Data that the generator was fitted to.
    held_out : array-like of shape (n_held_out, n_features)
        Data of the same kind that it has not seen.

    Returns
    -------
    ratio : float
        Median over the rows of X of the distance to the nearest training row over that to the
        nearest held-out row. About 1 for new rows, 0 for copies.

    Raises
    ------
    ValueError
        If the numbers of columns differ.

    Notes
    -----
    Where there are more training rows than held-out ones the nearest of them is a little
    nearer: new rows then have a ratio of about (n_held_out / n_train)^(1/d), d the dimension
    that the data really have. Time O((n_train + n_held_out) n_generated d).

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.metrics import memorization_ratio
    >>> train, held_out, new = np.random.RandomState(0).normal(size=(3, 500, 4))
    >>> round(memorization_ratio(new, train, held_out), 1)
    1.0
    >>> memorization_ratio(train, train, held_out)
    0.0
    """
    X, train = _two_samples(X, train)
    train, held_out = _two_samples(train, held_out)
    to_train, to_held_out = _nearest(X, train), _nearest(X, held_out)
    return float(np.median(to_train / np.maximum(to_held_out, np.finfo(float).tiny)))


def _two_samples(X, Y, min_samples=1):
    X = check_array(X, dtype=np.float64, ensure_min_samples=min_samples, input_name="X")
    Y = check_array(Y, dtype=np.float64, ensure_min_samples=min_samples, input_name="Y")
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"The samples must have the same columns, got {X.shape[1]} and {Y.shape[1]}."
        )
    return X, Y


def _featurize(X, features):
    if features is None:
        return X
    if callable(features):
        return features(X)
    check_is_fitted(features)
    return _last_hidden_layer(features, check_array(X, dtype=np.float64))


def _last_hidden_layer(network, X):
    """Activations of the last hidden layer of a multilayer perceptron of scikit-learn."""
    from sklearn.neural_network._base import ACTIVATIONS

    activate = ACTIVATIONS[network.activation]
    for weights, biases in zip(network.coefs_[:-1], network.intercepts_[:-1]):
        X = X @ weights + biases
        activate(X)  # in place
    return X


def _symmetric_root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values.clip(0))) @ vectors.T


def _share_within(rows, centers, k):
    """Share of the rows within the ball of some center."""
    from sklearn.metrics import pairwise_distances_chunked
    from sklearn.neighbors import NearestNeighbors

    radii = NearestNeighbors(n_neighbors=k).fit(centers).kneighbors()[0][:, -1]
    within = [
        (distances <= radii).any(axis=1) for distances in pairwise_distances_chunked(rows, centers)
    ]
    return float(np.concatenate(within).mean())


def _nearest(X, rows):
    """Distance of each row of X to the nearest of the rows."""
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(X)[0][:, 0]
