"""Clustering of incomplete multi-view data with bifurcated, alienated feature clusters."""

import math
import warnings
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _get_feature_names, check_is_fitted, validate_data

from skicml._views import observed_views, resolve_views
from skicml.cluster._bacdl_init import initial_factors
from skicml.cluster._bacdl_new_rows import embed_rows, membership_centers
from skicml.cluster._bacdl_scaling import BlockScaler
from skicml.cluster._bacdl_updates import Block, sweep
from skicml.utils._fitting import all_or_nothing
from skicml.utils._progress import fit_steps

# New rows are embedded in batches of this size: they are independent, and so few of them stay
# in the cache of the processor over all steps.
_ROWS_AT_ONCE = 4096


class BACDL(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Clustering of multi-view data in which whole views are missing, in linear time.

    Samples are described by several views (blocks of columns), and in each view a part of the
    samples was not recorded: its block is NaN in their rows. A nonnegative factorisation of
    the observed blocks, with feature clusters that all views share and others that belong to
    one view ("bifurcate") and are pushed apart ("alienate"), learns one association of feature
    clusters with sample clusters for all views. The memberships that each view gives are tied
    to one common embedding, which also fills in the memberships of the rows a view lacks.
    Nothing is imputed.

    Read more in the :ref:`User Guide <bacdl>`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    views : None, "auto", sequence of int, or sequence of index arrays or slices, default=None
        The views of X. None: one view of all columns. Sequence of int: widths of consecutive
        blocks that add up to the number of columns. Sequence of arrays or slices: the columns
        of each view. "auto": by the prefix of the column names of a DataFrame,
        ``"<view>__<feature>"``.
    alienation : float, default=1.0
        Weight, lambda in the paper, of the overlap of shared and specific feature clusters in
        the objective.
    consensus : float, default=1.0
        Weight of the agreement of the views with the common embedding. The paper's beta is
        ``consensus / sqrt(n_views * n_samples * n_clusters)``, so that the objective is never
        below ``-consensus``.
    normalize : {"complement", "softmax", "l1"}, default="complement"
        How the rows of each view become nonnegative vectors of mass one, learnt on the
        observed rows. "complement": features scaled to [0, 1], each x then replaced by x and
        1 - x, all divided by the width. "softmax", as in the paper: features standardised,
        then a softmax over the features of each row. "l1": features scaled to [0, 1], rows
        divided by their sum (rows of least values only become even).
    init : {"kmeans", "random"}, default="kmeans"
        Start of the factors: from a k-means clustering of each view, matched across views, or
        uniform at random.
    max_iter : int, default=200
        Largest number of sweeps over all factors.
    tol : float, default=1e-3
        Stop when a sweep lowers the objective by less than `tol` times its magnitude.
    n_init : int, default=10
        Restarts of the final k-means on the rows of the embedding.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the initialisation and of the final k-means.

    Attributes
    ----------
    labels_ : ndarray of int of shape (n_samples,)
        Cluster of each training row.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Common embedding E of the training rows; columns are orthonormal.
    memberships_ : list of ndarray of shape (n_samples, n_clusters)
        Sample clusters E_r seen from each view; rows sum to 1, those of rows without the view
        follow the consensus.
    shared_components_ : list of ndarray of shape (n_clusters, n_scaled_features)
        Shared feature clusters (P_r C)' in the scaled features of each view; rows sum to 1.
        With "complement" there are two scaled features for each feature: all x, then all
        1 - x. See :meth:`folded_components`.
    specific_components_ : list of ndarray of shape (n_clusters, n_scaled_features)
        Feature clusters C_r' of each view alone; rows sum to 1.
    association_ : ndarray of shape (2 * n_clusters, n_clusters)
        D, from feature clusters (shared ones first) to sample clusters, one for all views.
    view_weights_ : ndarray of shape (n_views,)
        Weights a of the views in the reconstruction; their sum is 1.
    consensus_weights_ : ndarray of shape (n_views,)
        Weights b of the views in the consensus; the sum of their squares is 1.
    rotations_ : list of ndarray of shape (n_clusters, n_clusters)
        Orthogonal F_r that turns the memberships of each view to the embedding.
    cluster_centers_ : ndarray of shape (n_clusters, n_clusters)
        Centres of the final k-means in the embedding.
    objective_ : ndarray of shape (n_iter_,)
        Objective after each sweep.
    n_iter_ : int
        Number of sweeps.
    views_ : list of ndarray of int
        Columns of each view.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, if X was a DataFrame with string names.

    See Also
    --------
    skicml.cluster.DSVC : Deep clustering of complete views that arrive one after the other.
    sklearn.cluster.KMeans : Plain k-means, on the stacked views if none is missing.

    Notes
    -----
    With :math:`X_r` the scaled rows observed in view r, the objective is

    .. math::

        J = \\sum_r a_r^2 \\lVert X_r - E_r^{o} D^T [P_r C, C_r]^T \\rVert_F^2
            + \\lambda \\sum_r \\langle P_r C, C_r \\rangle
            - \\beta \\, \\mathrm{tr}\\Bigl(E^T \\sum_r b_r E_r F_r\\Bigr),

    where :math:`E_r^{o}` are the memberships of the observed rows. A sweep updates E_r, C,
    C_r, D and P_r by multiplicative steps, E and F_r by singular value decompositions and the
    weights a and b in closed form, in the order of the paper.

    Each sweep takes O(n d k + v n k² + d k²) time for n rows, d columns, v views and k
    clusters; memory is O(n d + v n k + d k). The k-means of the start is of the same order.
    Embedding m new rows takes O(m d k + v m k²) time.

    The embedding of a new row holds everything but its own memberships fixed. As the training
    rows do, it starts in each view from the nearest cluster (of the mean rows, weighted by
    the memberships of the view), and then takes 30 steps with the data and the consensus.
    Rows do not influence each other. Because the memberships of training rows remember the
    course of the optimisation, :meth:`predict` on the training data agrees with ``labels_``
    on most rows (about 75 to 99 %; only half of them with ``init="random"``) but not on all,
    and ``transform`` is close to ``embedding_`` but not the same; ``fit_predict`` returns
    ``labels_``.

    Departures from the paper: it says nothing of the initialisation, so both choices of `init`
    are ours; :meth:`transform` and :meth:`predict` for new rows are ours; "complement" is the
    default scaling because the paper's "softmax" with a random start loses most of the
    structure of the data; 1e-12 is added to the terms of each ratio and is the least value of
    a nonnegative factor, since a multiplicative step cannot leave zero; the paper's listing
    and appendix differ on whether D is normalised, here it is not, as it carries the scale.
    The consensus term stays between 0 and ``consensus`` while the reconstruction error grows
    with the number of rows, so on large data the consensus mainly decides rows without a view;
    raise `consensus` to have it reach further. A view that is reconstructed trivially, such as
    one of very few features, gets nearly all of the weight a; the paper's rule is kept.

    References
    ----------
    S. Yu, Y. Cheung, S. Wang, X. Liu, E. Zhu, "Bifurcate then Alienate: Incomplete Multi-view
    Clustering via Coupled Distribution Learning with Linear Overhead", ICML 2025 (PMLR 267).

    Examples
    --------
    >>> from sklearn.metrics import adjusted_rand_score
    >>> from skicml.cluster import BACDL
    >>> from skicml.datasets import make_multiview_blobs, mask_views
    >>> X, y = make_multiview_blobs(200, views=(4, 6), separation=4, random_state=0)
    >>> X = mask_views(X, [4, 6], rate=0.4, random_state=0)
    >>> bacdl = BACDL(n_clusters=3, views=[4, 6], random_state=0).fit(X)
    >>> adjusted_rand_score(y, bacdl.labels_)
    1.0
    >>> bacdl.transform(X[:5]).shape
    (5, 3)
    """

    _parameter_constraints = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "views": [None, "array-like", StrOptions({"auto"})],
        "alienation": [Interval(Real, 0, None, closed="left")],
        "consensus": [Interval(Real, 0, None, closed="left")],
        "normalize": [StrOptions({"complement", "softmax", "l1"})],
        "init": [StrOptions({"kmeans", "random"})],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        views=None,
        alienation=1.0,
        consensus=1.0,
        normalize="complement",
        init="kmeans",
        max_iter=200,
        tol=1e-3,
        n_init=10,
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.views = views
        self.alienation = alienation
        self.consensus = consensus
        self.normalize = normalize
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Cluster the rows of X.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The views side by side; a view that a row lacks is a block of NaN.
        y : None
            Not used, present for API consistency.

        Returns
        -------
        self : BACDL
            The fitted estimator.

        Raises
        ------
        ValueError
            If a block is NaN in part only, rows have no view at all, `views` does not fit X,
            or a view has fewer observed rows than `n_clusters`.
        """
        context = self._init_callback_context(max_subtasks=self.max_iter)
        context.call_on_fit_task_begin(estimator=self, X=X)
        data = check_array(
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
            estimator=self,
            input_name="X",
        )
        columns = resolve_views(self.views, data.shape[1], _get_feature_names(X))
        observed = self._check_observed(data, columns)
        rng = check_random_state(self.random_state)
        scalers = [
            BlockScaler.learn(_observed_block(data, observed, columns, view), self.normalize)
            for view in range(len(columns))
        ]
        blocks = _scaled_blocks(data, observed, columns, scalers)
        factors = initial_factors(blocks, len(data), self.n_clusters, self.init, rng)
        beta = self.consensus / math.sqrt(len(columns) * len(data) * self.n_clusters)
        history = self._descend(context, factors, blocks, beta, X)
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=rng)
        kmeans.fit(factors.embedding)
        validate_data(self, X, skip_check_array=True)  # sets n_features_in_, feature_names_in_
        self._publish(columns, scalers, blocks, factors, beta, history, kmeans)
        context.call_on_fit_task_end(estimator=self, X=X)
        return self

    def transform(self, X):
        """Embed rows in the space of the clusters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with at least one view each; a missing view is a block of NaN.

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_clusters)
            The rows of the common embedding that the observed views give.

        Raises
        ------
        ValueError
            If a block is NaN in part only, or rows have no view at all.
        """
        check_is_fitted(self)
        data = validate_data(
            self,
            X,
            reset=False,
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan",
        )
        observed = observed_views(data, self.views_)
        return np.vstack(
            [
                self._embed(data[batch], observed[batch])
                for batch in gen_batches(len(data), _ROWS_AT_ONCE)
            ]
        )

    def predict(self, X):
        """Cluster of each row: the nearest of ``cluster_centers_`` to its embedding.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows with at least one view each; a missing view is a block of NaN.

        Returns
        -------
        labels : ndarray of int of shape (n_samples,)
            Index of the cluster. On training rows it can differ from ``labels_``, see Notes.
        """
        return pairwise_distances_argmin(self.transform(X), self.cluster_centers_)

    def folded_components(self):
        """Feature clusters in the features of X, one value a feature.

        Returns
        -------
        shared : list of ndarray of shape (n_clusters, n_features_v)
            Shared feature clusters of each view. With ``normalize="complement"`` the mass on
            high values of the feature less that on low values; else the component itself.
        specific : list of ndarray of shape (n_clusters, n_features_v)
            The same for the feature clusters of each view alone.
        """
        check_is_fitted(self)
        return tuple(
            [scaler.fold(matrix) for scaler, matrix in zip(self._scalers, components)]
            for components in (self.shared_components_, self.specific_components_)
        )

    def _check_observed(self, data, columns):
        """Which view was observed in which row, with enough rows of each view."""
        observed = observed_views(data, columns)
        if len(data) < self.n_clusters:
            raise ValueError(f"n_samples={len(data)} should be >= n_clusters={self.n_clusters}.")
        counts = observed.sum(axis=0)
        if counts.min() < self.n_clusters:
            view = int(counts.argmin())
            raise ValueError(
                f"View {view} is observed in n_samples={counts[view]} rows, which should be >= "
                f"n_clusters={self.n_clusters}."
            )
        return observed

    def _descend(self, context, factors, blocks, beta, X):
        """Sweep until the objective settles; `factors` change in place."""
        history, converged = [], False
        for _ in fit_steps(context, self, self.max_iter, "sweep", X=X):
            history.append(sweep(factors, blocks, self.alienation, beta))
            converged = _has_settled(history, self.tol)
            if converged:
                break
        if len(history) == self.max_iter and not converged:
            warnings.warn(
                f"BACDL did not converge in max_iter={self.max_iter} sweeps: the last one lowered "
                f"the objective by more than tol={self.tol} of it. Raise max_iter or tol.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return np.array(history)

    def _embed(self, data, observed):
        """Rows of the embedding for a batch of rows."""
        blocks = _scaled_blocks(data, observed, self.views_, self._scalers)
        return embed_rows(self._factors, self._view_centers, blocks, len(data), self._beta)

    def _publish(self, columns, scalers, blocks, factors, beta, history, kmeans):
        """Set all fitted attributes."""
        n_views = len(columns)
        self.views_ = columns
        self.labels_ = kmeans.labels_
        self.cluster_centers_ = kmeans.cluster_centers_
        self.embedding_ = factors.embedding
        self.memberships_ = factors.memberships
        self.shared_components_ = [factors.shared_features(view).T for view in range(n_views)]
        self.specific_components_ = [matrix.T for matrix in factors.specific]
        self.association_ = factors.association
        self.view_weights_ = factors.view_weights
        self.consensus_weights_ = factors.consensus_weights
        self.rotations_ = factors.rotations
        self.objective_ = history
        self.n_iter_ = len(history)
        self._scalers = scalers
        self._view_centers = membership_centers(blocks, factors.memberships)
        self._factors = replace(factors, memberships=None, embedding=None)
        self._beta = beta

    @property
    def _n_features_out(self):
        """Number of columns of the embedding."""
        return self.cluster_centers_.shape[0]

    def __sklearn_is_fitted__(self):
        return hasattr(self, "labels_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _observed_block(data, observed, columns, view):
    """Observed rows of the columns of a view."""
    return data[np.ix_(observed[:, view], columns[view])]


def _scaled_blocks(data, observed, columns, scalers):
    """The observed, scaled part of each view."""
    return [
        Block(
            scaler.transform(_observed_block(data, observed, columns, view)),
            slice(None) if observed[:, view].all() else np.flatnonzero(observed[:, view]),
        )
        for view, scaler in enumerate(scalers)
    ]


def _has_settled(history, tol):
    """Whether the last sweep lowered the objective by less than `tol` times its magnitude."""
    if len(history) < 2:
        return False
    before, after = history[-2:]
    return before - after < tol * abs(before)
