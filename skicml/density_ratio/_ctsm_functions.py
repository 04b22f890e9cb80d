"""What density ratios are for: mutual information, and weights under covariate shift."""

from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, validate_params
from sklearn.utils.validation import check_is_fitted

from skicml.density_ratio._ctsm import CTSM


@validate_params(
    {
        "X1": ["array-like"],
        "X2": ["array-like"],
        "estimator": [HasMethods(["fit", "kl_divergence"]), None],
        "n_permutations": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=False,
)
def mutual_information(X1, X2, estimator=None, *, n_permutations=1, random_state=None):
    """Mutual information of two blocks of continuous columns, by their density ratio.

    It is the divergence between the pairs as they are and pairs whose second part is
    permuted, KL(p(x1, x2) || p(x1) p(x2)).

    Parameters
    ----------
    X1 : array-like of shape (n_samples, n_features_1) or (n_samples,)
        First block.
    X2 : array-like of shape (n_samples, n_features_2) or (n_samples,)
        Second block, with the same rows.
    estimator : estimator or None, default=None
        Density ratio with ``kl_divergence``, cloned. None means :class:`CTSM`. With
        ``CTSM(path="vp")`` both blocks must be standard normal.
    n_permutations : int, default=1
        Number of permutations of the second block, stacked into the sample of the
        denominator.
    random_state : int, RandomState instance or None, default=None
        Determines the permutations, and the estimator if its own ``random_state`` is None.
        Pass an int for reproducible results.

    Returns
    -------
    information : float
        Mutual information in nats: mean log density ratio over the given rows.

    Raises
    ------
    ValueError
        If the blocks have different numbers of rows.

    See Also
    --------
    sklearn.feature_selection.mutual_info_regression : Of single columns with a target.

    Notes
    -----
    The rows are those that the ratio is learnt from, so with few of them the value comes out
    too large; an estimator with ``early_stopping=True`` guards against this. The cost is one
    fit and O(n_samples) predictions; memory is O(n_permutations n_samples n_features).

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.density_ratio import CTSM, mutual_information
    >>> rng = np.random.RandomState(0)
    >>> x1, noise = rng.normal(size=(2, 1000))
    >>> x2 = 0.8 * x1 + 0.6 * noise  # -log(0.6) = 0.51 nats
    >>> ctsm = CTSM(hidden_layer_sizes=(32, 32), max_iter=500)
    >>> bool(0.3 < mutual_information(x1, x2, ctsm, random_state=0) < 0.7)
    True
    """
    random_state = check_random_state(random_state)
    first, second = _block(X1, "X1"), _block(X2, "X2")
    check_consistent_length(first, second)
    estimator = clone(CTSM() if estimator is None else estimator)
    if "random_state" in (params := estimator.get_params()) and params["random_state"] is None:
        estimator.set_params(random_state=random_state.randint(2**31 - 1))
    joint = np.hstack([first, second])
    permuted = [
        np.hstack([first, second[random_state.permutation(len(second))]])
        for _ in range(n_permutations)
    ]
    X = np.vstack([*permuted, joint])
    y = np.repeat([0, 1], [n_permutations * len(joint), len(joint)])
    return estimator.fit(X, y).kl_divergence(joint)


def importance_weights(estimator, X, normalize=True):
    """Weights that make rows of the denominator count as rows of the numerator.

    Under covariate shift training rows come from p0(x) and new rows from p1(x), with the same
    p(label | x). Training with these weights, as ``sample_weight`` of any estimator,
    minimises the expected loss under p1.

    Parameters
    ----------
    estimator : fitted density ratio, or Pipeline that ends in one
        Estimator with ``log_density_ratio``, such as :class:`CTSM`, fitted with the training
        rows as denominator and rows of the new kind, which need no labels, as numerator.
    X : array-like of shape (n_samples, n_features)
        Training rows.
    normalize : bool, default=True
        Whether the weights are divided by their mean. False gives the density ratio.

    Returns
    -------
    weights : ndarray of shape (n_samples,)
        Non-negative weights; their mean is 1 if `normalize` is set.

    Raises
    ------
    TypeError
        If `estimator` has no ``log_density_ratio``.

    Notes
    -----
    Takes time and memory O(n_samples) beside the log density ratio. Few rows carry most of
    the weight where p1 is narrower than p0 or far from it: Kish's effective sample size
    ``weights.sum() ** 2 / (weights ** 2).sum()`` says how many rows are left.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.density_ratio import CTSM, importance_weights
    >>> rng = np.random.RandomState(0)
    >>> train, new = rng.normal(0, 1, (300, 1)), rng.normal(1, 0.5, (300, 1))
    >>> ctsm = CTSM(hidden_layer_sizes=(32, 32), max_iter=300, random_state=0)
    >>> _ = ctsm.fit(np.vstack([train, new]), np.repeat([0, 1], 300))
    >>> weights = importance_weights(ctsm, train)
    >>> bool(abs(np.average(train[:, 0], weights=weights) - 1) < 0.2)
    True
    """
    if isinstance(estimator, Pipeline):
        check_is_fitted(estimator)
        X = estimator[:-1].transform(X) if len(estimator) > 1 else X
        estimator = estimator[-1]
    if not hasattr(estimator, "log_density_ratio"):
        raise TypeError(
            "estimator must have a method log_density_ratio, as CTSM has, or be a Pipeline that "
            f"ends in such an estimator; got {estimator!r}."
        )
    if not normalize:
        return estimator.density_ratio(X)
    log_ratio = estimator.log_density_ratio(X)
    weights = np.exp(log_ratio - log_ratio.max())
    return weights / weights.mean()


def _block(X, name):
    """Block as a 2-D array of floats; a 1-D one becomes a column."""
    if np.ndim(X) == 1:
        X = np.reshape(X, (-1, 1))
    return check_array(X, dtype=[np.float64, np.float32], input_name=name)
