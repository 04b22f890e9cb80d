"""Deep streaming view clustering."""

from dataclasses import dataclass, field, replace
from numbers import Integral, Real

import numpy as np
from scipy.special import softmax
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.preprocessing import StandardScaler, normalize
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _get_feature_names, check_is_fitted, validate_data

from skicml._views import resolve_views, split_views
from skicml.metrics import match_labels

# Least weight of a view, relative to the best one.
_MIN_WEIGHT = 0.01
# A cluster with less mass than this has no direction: it keeps its old prototype.
NO_MASS = 1e-8


class DSVC(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    ClusterMixin,
    TransformerMixin,
    BaseEstimator,
):
    """Deep streaming view clustering, after Yuan et al. 2025; losses reconstructed.

    The same samples are described by views that become available one after another, and the
    raw data of earlier views are gone when a new one comes. Of each view only an encoder, its
    latent features and its soft partition stay; a knowledge base of cluster prototypes and one
    soft partition carries the cluster structure from view to view. A new view is brought in
    by three steps: an autoencoder extracts its features and prototypes (knowledge
    aggregation), its prototypes are aligned with those of the knowledge base (distribution
    consistency), and both sharpen the cluster structure of its features (knowledge
    guidance). The more the view contradicts the history, the less the two touch each other.

    Read more in the :ref:`User Guide <dsvc>`.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    views : None, "auto", sequence of int, or sequence of index arrays or slices, default=None
        The views in `X` of :meth:`fit`, in the order in which they arrive. None: one view of
        all columns. Sequence of int: widths of consecutive blocks that add up to
        `n_features`. Sequence of arrays or slices: the columns of each view. "auto": views
        from the prefix of DataFrame columns named ``"<view>__<feature>"``.
        :meth:`partial_fit` takes one view at a time and ignores this parameter.
    n_components : int, default=16
        Number of latent features a view. More help when there are many clusters.
    hidden_layer_sizes : int or sequence of int, default=(256,)
        Widths of the hidden layers of each encoder; the decoder mirrors them.
    temperature : float, default=0.2
        Temperature of the softmax over cosines of latent features and prototypes.
    consistency : float, default=0.1
        Weight of the distribution consistency loss.
    guidance : float, default=0.5
        Weight of the knowledge guidance loss.
    history_weight : float, default=0.5
        Share of the history in the targets of a view that agrees with it completely, in
        [0, 1]; it shrinks in proportion to ``view_agreement_``.
    pretrain_epochs : int, default=40
        Epochs a view on the reconstruction alone.
    max_epochs : int, default=30
        Epochs a view on all losses.
    learning_rate : float, default=1e-3
        Learning rate of Adam in the pretraining; half of it is used afterwards.
    batch_size : int, default=256
        Rows a training step; all rows where there are fewer. A last batch of fewer than 8
        rows is left out.
    n_init : int, default=10
        Number of starts of each k-means.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where the networks train. The fitted networks are on the CPU.
    random_state : int, RandomState instance or None, default=None
        Seed of initialisation, batches and k-means. Pass an int for the same result every
        time.

    Attributes
    ----------
    labels_ : ndarray of int of shape (n_samples,)
        Cluster of each sample after the last view.
    labels_per_view_ : list of ndarray of int of shape (n_samples,)
        Clusters after each view. Numbers stay with their clusters over the stream.
    partition_ : ndarray of shape (n_samples, n_clusters)
        Soft partition of the knowledge base; rows add up to 1.
    knowledge_prototypes_ : ndarray of shape (n_clusters, n_components)
        Prototypes of the knowledge base, rows of unit length.
    view_partitions_ : list of ndarray of shape (n_samples, n_clusters)
        Soft partition of each view alone, matched to the stream when the view came.
    view_weights_ : ndarray of shape (n_views,)
        Weight of each view: how well its own partition agrees with those of the other
        views, relative to the best view; between 0.01 and 1. All 1 until the third view.
    view_agreement_ : ndarray of shape (n_views,)
        Agreement of each view, before any guidance, with the partition that it met: 0 as by
        chance, 1 the same. 1 for the first view. ``1 - view_agreement_`` measures drift.
    cluster_centers_ : ndarray of shape (n_clusters, n_views * n_components)
        Centres of the clusters in the embedding.
    embedding_ : ndarray of shape (n_samples, n_views * n_components)
        Weighted latent features of all views side by side.
    nets_ : list of skorch.NeuralNet
        The trained autoencoder of each view, without optimiser and training history.
    n_views_seen_ : int
        Number of views seen.
    n_samples_seen_ : int
        Number of samples, the same in every view.
    n_features_in_ : int
        Number of features of all views seen.
    feature_names_in_ : ndarray of str of shape (n_features_in_,)
        Names of the features; defined only if all views came with string names.

    See Also
    --------
    sklearn.cluster.KMeans : The baseline where all views are there at the same time.
    sklearn.cluster.MiniBatchKMeans : Clustering of samples, not views, that come in a stream.

    Notes
    -----
    The paper states the three steps; its formulas were not at hand. The losses, the update of
    the knowledge base and the defaults are our derivation, on the ground of the autoencoders
    and the cosine losses of the authors' earlier papers. With :math:`z_i` the unit latent
    feature of sample i, :math:`P` the prototypes of the view, :math:`H` and :math:`R` the
    prototypes and the soft partition of the knowledge base, :math:`\\tau` the temperature, g
    the agreement of the view with R and :math:`h = g \\cdot` `history_weight`, a batch has
    the loss

    .. math::

        \\text{MSE}(\\hat x, x)
        + \\gamma \\, \\text{mean}_i \\, \\text{KL}(T_i \\| \\text{softmax}(P z_i / \\tau))
        + \\alpha h \\, \\text{mean}_j \\, \\text{CE}(\\text{softmax}(H p_j / \\tau), j)

    with :math:`p_j` the prototypes of the batch and T the sharpened geometric mean, with
    weights 1 - h and h, of the view's own assignment and R. P and T are computed anew from
    all samples before every epoch. For the first view P stands in for H, which only spreads
    the prototypes. After training, k-means on the weighted latent features of all views
    gives the new R; it starts from the old clusters and, a second time, from scratch, so that
    the stream can undo clusters that an early view merged.

    On the data of our benchmarks the guidance and the history make the later views better; the
    consistency loss as derived here makes next to no difference.

    Choices of ours where even the derivation leaves some: P is moved before T is computed from
    it; the agreement of the first view is 1; with a single cluster all agreements are 1; a
    feature that is constant in training counts as 0 in new rows, too. Encoders train in
    float32 and are evaluated in double precision, so that a row's features do not depend on
    the rows beside it.

    Time a view O(n_epochs * n * (d * 256 + 256 * p) + n * k * p * t) for n samples, d features
    in the view, p components, k clusters, t views so far and one hidden layer of 256; memory
    O(n * (p + k) * t), whatever the width of earlier views.

    A callback that asks to stop at the end of an epoch ends the training of that view; one
    that asks at the end of a view ends the stream there, and later columns of X are ignored.

    References
    ----------
    .. [1] H. Yuan, X. Li, J. Dai, X. You, Y. Sun and Z. Ren, "Deep Streaming View
       Clustering", International Conference on Machine Learning, PMLR 267, 2025.

    Examples
    --------
    >>> from skicml.cluster import DSVC
    >>> from skicml.datasets import make_multiview_blobs
    >>> X, y = make_multiview_blobs(120, views=(6, 4), random_state=0)
    >>> stream = DSVC(3, pretrain_epochs=5, max_epochs=5, random_state=0)
    >>> stream = stream.partial_fit(X[:, :6])  # the first view arrives
    >>> stream = stream.partial_fit(X[:, 6:])  # the second one; the first is not needed again
    >>> stream.n_views_seen_, stream.predict(X).shape
    (2, (120,))
    """

    _parameter_constraints = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "views": [None, "array-like", StrOptions({"auto"})],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "consistency": [Interval(Real, 0, None, closed="left")],
        "guidance": [Interval(Real, 0, None, closed="left")],
        "history_weight": [Interval(Real, 0, 1, closed="both")],
        "pretrain_epochs": [Interval(Integral, 0, None, closed="left")],
        "max_epochs": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "device": [StrOptions({"cpu", "cuda", "auto"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        views=None,
        n_components=16,
        hidden_layer_sizes=(256,),
        temperature=0.2,
        consistency=0.1,
        guidance=0.5,
        history_weight=0.5,
        pretrain_epochs=40,
        max_epochs=30,
        learning_rate=1e-3,
        batch_size=256,
        n_init=10,
        device="cpu",
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.views = views
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.temperature = temperature
        self.consistency = consistency
        self.guidance = guidance
        self.history_weight = history_weight
        self.pretrain_epochs = pretrain_epochs
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_init = n_init
        self.device = device
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None):
        """Cluster the samples, taking in the views one after another.

        The same as :meth:`partial_fit` of every view in turn on a fresh estimator.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All views side by side, see the parameter `views`.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If `views` does not fit X, there are fewer samples than clusters, a hidden layer
            has no positive width, training diverged, or `device` is "cuda" and there is none.
        """
        names = _get_feature_names(X)
        X = self._checked(X)
        blocks = resolve_views(self.views, X.shape[1], names)
        return self._learn(self._new_knowledge(X), X, blocks, X.shape[1], names)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X, y=None):
        """Take in one new view of the same samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features_new)
            The new view, of any width, with the samples in the order of the views before.
        y : None
            Ignored.

        Returns
        -------
        self : object
            The estimator, which has seen one more view.

        Raises
        ------
        ValueError
            If the number of samples is not that of the views before, there are fewer samples
            than clusters, `n_clusters` or `n_components` changed within the stream, or
            training diverged.
        """
        names = _get_feature_names(X)
        X = self._checked(X)
        block = np.arange(X.shape[1])
        if not hasattr(self, "_knowledge"):
            return self._learn(self._new_knowledge(X), X, [block], block.size, names)
        self._check_continues(X)
        known = getattr(self, "feature_names_in_", None)
        names = None if known is None or names is None else np.concatenate([known, names])
        return self._learn(self._knowledge, X, [block], self.n_features_in_ + block.size, names)

    def transform(self, X):
        """Weighted latent features of all views seen.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples, not necessarily those of the stream, with all views: the columns of
            :meth:`fit`, then those of each view given to :meth:`partial_fit`.

        Returns
        -------
        embedding : ndarray of shape (n_samples, n_views * n_components)
            The features, the views side by side in order of arrival.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return self._knowledge.embed(X)

    def predict(self, X):
        """Cluster of each sample: the nearest centre.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples with all views, as for :meth:`transform`.

        Returns
        -------
        labels : ndarray of int of shape (n_samples,)
            Index of the cluster.
        """
        return _squared_distances(self.transform(X), self.cluster_centers_).argmin(axis=1)

    def _checked(self, X):
        """X as an array; unlike validate_data this leaves the estimator alone on an error."""
        X = check_array(X, dtype=[np.float64, np.float32], ensure_min_samples=2, estimator=self)
        _check_layer_sizes(self.hidden_layer_sizes)
        if X.shape[0] < self.n_clusters:
            raise ValueError(f"n_samples={X.shape[0]} should be >= n_clusters={self.n_clusters}.")
        return X

    def _check_continues(self, X):
        if X.shape[0] != self.n_samples_seen_:
            raise ValueError(
                f"The new view has {X.shape[0]} samples, but the views before have "
                f"{self.n_samples_seen_}: views are of the same samples in the same order."
            )
        if self.knowledge_prototypes_.shape != (self.n_clusters, self.n_components):
            raise ValueError(
                "n_clusters and n_components cannot change within a stream: it began with "
                f"{self.knowledge_prototypes_.shape}, now ({self.n_clusters}, "
                f"{self.n_components}). Use fit, or a clone, to begin a new stream."
            )

    def _new_knowledge(self, X):
        from skicml._torch import draw_seed

        return _Knowledge(n_samples=X.shape[0], seed=draw_seed(self.random_state))

    def _learn(self, knowledge, X, blocks, n_features, names):
        """Take in the views in `blocks` of X, then set the fitted attributes.

        `n_features` and `names` are those of all views, the last of which are in X.
        """
        offset = n_features - X.shape[1]
        n_epochs = self.pretrain_epochs + self.max_epochs
        fit_task = self._init_callback_context(max_subtasks=len(blocks))
        fit_task.call_on_fit_task_begin(estimator=self, X=X)
        for block, view in zip(blocks, split_views(X, blocks)):
            task = fit_task.subcontext(task_name=f"view {knowledge.n_views}", max_subtasks=n_epochs)
            task.call_on_fit_task_begin(estimator=self, X=X)
            knowledge = self._add_view(knowledge, view, block + offset, task)
            attributes = _fitted_attributes(knowledge, n_features)
            if task.call_on_fit_task_end(estimator=self, X=X, reconstruction_attributes=attributes):
                break
        fit_task.call_on_fit_task_end(estimator=self, X=X, reconstruction_attributes=attributes)

        vars(self).update(attributes)
        vars(self).pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        return self

    def _add_view(self, knowledge, view, block, task):
        """Knowledge after one more view; steps 0 to 4 of the derivation."""
        from skicml.cluster._dsvc_torch import fit_view

        rng = np.random.RandomState([knowledge.seed, knowledge.n_views])
        scaler = _fit_scaler(view)
        net, learned = fit_view(self, scaler.transform(view), knowledge, rng, task)
        knowledge = knowledge.with_view(block, scaler, net, learned)
        return knowledge.reclustered(self.n_clusters, self.n_init, rng)

    @property
    def _n_features_out(self):
        return self.embedding_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@dataclass(frozen=True, eq=False)
class _Knowledge:
    """What stays of the views seen; never their raw data.

    Attributes
    ----------
    n_samples, seed : int
        Of the stream.
    blocks, scalers, nets : list
        Columns, scaler and network of each view, for new rows.
    latents, partitions : list of ndarray
        Unit latent features Z_t (n, p) and one-view partitions q_t (n, k).
    agreement : list of float
        Agreement g_t of each view with the history that it met.
    mutual : ndarray of shape (t, t)
        Agreement A of the one-view partitions with each other; the diagonal is 0.
    labels : list of ndarray
        Clusters after each view.
    weights, partition, prototypes, centers : ndarray
        View weights w, soft partition R, prototypes H, and centres in the embedding.
    """

    n_samples: int
    seed: int
    blocks: list = field(default_factory=list)
    scalers: list = field(default_factory=list)
    nets: list = field(default_factory=list)
    latents: list = field(default_factory=list)
    partitions: list = field(default_factory=list)
    agreement: list = field(default_factory=list)
    mutual: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    labels: list = field(default_factory=list)
    weights: np.ndarray = None
    partition: np.ndarray = None
    prototypes: np.ndarray = None
    centers: np.ndarray = None

    @property
    def n_views(self):
        return len(self.nets)

    def with_view(self, block, scaler, net, learned):
        """Knowledge that holds one more view, its weights brought up to date."""
        mutual = np.zeros((self.n_views + 1, self.n_views + 1))
        mutual[:-1, :-1] = self.mutual
        for other, partition in enumerate(self.partitions):
            mutual[other, -1] = match_partitions(partition, learned.partition)[1]
        mutual[-1] = mutual[:, -1]
        return replace(
            self,
            blocks=[*self.blocks, block],
            scalers=[*self.scalers, scaler],
            nets=[*self.nets, net],
            latents=[*self.latents, learned.latents],
            partitions=[*self.partitions, learned.partition],
            agreement=[*self.agreement, learned.agreement],
            mutual=mutual,
            weights=_view_weights(mutual),
        )

    def reclustered(self, n_clusters, n_init, rng):
        """Knowledge with R, H, centres and labels from all views that it holds."""
        embedding = self.embedding
        centers = _kmeans_centers(embedding, self.partition, n_clusters, n_init, rng)
        partition = soft_partition(_squared_distances(embedding, centers))
        if self.partition is not None:
            order = match_partitions(self.partition, partition)[0]
            centers, partition = centers[order], partition[:, order]
        share = self.weights[-1] / self.weights.sum()
        prototypes = _updated_prototypes(self.prototypes, partition, self.latents[-1], share)
        labels = _squared_distances(embedding, centers).argmin(axis=1)
        return replace(
            self,
            partition=partition,
            prototypes=prototypes,
            centers=centers,
            labels=[*self.labels, labels],
        )

    @property
    def embedding(self):
        """U = [sqrt(w_1) Z_1 | ... | sqrt(w_t) Z_t]."""
        return _weighted(self.latents, self.weights)

    def embed(self, X):
        """The embedding of new rows."""
        from skicml.cluster._dsvc_torch import encode_rows

        latents = [
            encode_rows(net, scaler.transform(view)).astype(X.dtype)
            for net, scaler, view in zip(self.nets, self.scalers, split_views(X, self.blocks))
        ]
        return _weighted(latents, self.weights)


def _check_layer_sizes(sizes):
    """Refuse widths that are no positive integers, before torch does it less clearly."""
    widths = np.atleast_1d(np.asarray(sizes, dtype=object))
    is_width = [isinstance(width, Integral) and width > 0 for width in widths]
    if not all(is_width):
        raise ValueError(f"hidden_layer_sizes must be integers > 0, got {sizes!r}.")


def _fitted_attributes(knowledge, n_features):
    """The fitted attributes that an estimator with this knowledge has."""
    return {
        "labels_": knowledge.labels[-1],
        "labels_per_view_": knowledge.labels,
        "partition_": knowledge.partition,
        "knowledge_prototypes_": knowledge.prototypes,
        "view_partitions_": knowledge.partitions,
        "view_weights_": knowledge.weights,
        "view_agreement_": np.array(knowledge.agreement),
        "cluster_centers_": knowledge.centers,
        "embedding_": knowledge.embedding,
        "nets_": knowledge.nets,
        "n_views_seen_": knowledge.n_views,
        "n_samples_seen_": knowledge.n_samples,
        "n_features_in_": n_features,
        "_knowledge": knowledge,
    }


def _fit_scaler(view):
    """Standardisation of a view that maps constant features to 0, in new rows, too."""
    scaler = StandardScaler().fit(view)
    scaler.scale_[np.ptp(view, axis=0) == 0] = np.inf
    return scaler


def match_partitions(reference, partition):
    """Match the clusters of two partitions, and measure how well they agree.

    Parameters
    ----------
    reference, partition : ndarray of shape (n_samples, n_clusters)
        Hard (one-hot) or soft partitions.

    Returns
    -------
    order : ndarray of int of shape (n_clusters,)
        ``partition[:, order]`` has its clusters in the order of `reference`.
    agreement : float
        Mean overlap of the matched rows, corrected for chance: 0 as by chance or worse, 1
        for the same hard partition. 1 for a single cluster.
    """
    n_samples, n_clusters = reference.shape
    overlap = reference.T @ partition
    order = match_labels(overlap)
    if n_clusters == 1:
        return order, 1.0
    chance = 1 / n_clusters
    mean = overlap[np.arange(n_clusters), order].sum() / n_samples
    return order, max(0.0, float(mean - chance) / (1 - chance))


def _view_weights(mutual):
    """Weight of each view: its mean agreement with the others, relative to the best view."""
    n_views = len(mutual)
    if n_views <= 2:  # two views that disagree do not tell which one is wrong
        return np.ones(n_views)
    mean = mutual.sum(axis=1) / (n_views - 1)
    best = mean.max()
    return np.maximum(mean / best, _MIN_WEIGHT) if best > 0 else np.ones(n_views)


def _weighted(latents, weights):
    roots = np.sqrt(weights).tolist()  # Python floats keep the dtype of the latents
    return np.hstack([root * latent for root, latent in zip(roots, latents)])


def _kmeans_centers(embedding, partition, n_clusters, n_init, rng):
    """Centres from scratch, or from the old partition if that is no worse."""
    seed = rng.randint(2**31 - 1)
    fresh = KMeans(n_clusters, n_init=n_init, random_state=seed).fit(embedding)
    if partition is None:
        return fresh.cluster_centers_
    mass = np.maximum(partition.sum(axis=0), NO_MASS)
    start = (partition.T @ embedding) / mass[:, None]
    warm = KMeans(n_clusters, init=start.astype(embedding.dtype), n_init=1).fit(embedding)
    return (warm if warm.inertia_ <= fresh.inertia_ else fresh).cluster_centers_


def _squared_distances(embedding, centers):
    return euclidean_distances(embedding, centers, squared=True)


def soft_partition(distances):
    """Soft partition from squared distances to the centres; the median margin sets the scale.

    Parameters
    ----------
    distances : ndarray of shape (n_samples, n_clusters)
        Squared distances.

    Returns
    -------
    partition : ndarray of shape (n_samples, n_clusters)
        Rows add up to 1.
    """
    if distances.shape[1] == 1:
        return np.ones_like(distances)
    nearest = np.partition(distances, 1, axis=1)
    margin = np.median(nearest[:, 1] - nearest[:, 0])
    scale = max(margin / 2, np.finfo(distances.dtype).eps)
    return softmax(-(distances - nearest[:, :1]) / scale, axis=1)


def _updated_prototypes(prototypes, partition, latents, share):
    """H moved towards the means of the clusters in the newest view."""
    means = normalize(partition.T @ latents)
    if prototypes is None:
        return means
    moved = normalize((1 - share) * prototypes + share * means)
    has_mass = partition.sum(axis=0) > NO_MASS
    return np.where(has_mass[:, None], moved, prototypes)
