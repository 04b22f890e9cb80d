"""The two sides of federated private k-means: what a client sends, what the server does.

One round is ``totals = backend.sum_over_clients(step, broadcast_of(step, state))`` followed by
``state = server_update(step, totals, state)``. Only sums over clients cross the line between the
two sides, and the server adds noise to each sum before it looks at it.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_chunked
from sklearn.utils import assert_all_finite, check_array, check_consistent_length
from sklearn.utils.extmath import row_norms

# The statistics that each step releases, in the order of the client bounds.
RELEASES = {
    "subspace": ("subspace",),
    "weights": ("weights",),
    "centers": ("init_sums", "init_counts"),
    "lloyd": ("lloyd_sums", "lloyd_counts"),
}

# --------------------------------------------------------------------------------------
# Client side


def client_statistics(step, X, broadcast):
    """Statistics that one client sends to the server in one step.

    A pure function of the client's rows and the broadcast; it draws no random numbers, for the
    noise is added once, to the sum over clients.

    Parameters
    ----------
    step : {"subspace", "weights", "centers", "lloyd"}
        The step of the protocol.
    X : array-like of shape (n_samples, n_features)
        The client's rows; there may be none.
    broadcast : dict of str to ndarray
        What the server sent: ``clip_norm`` (), in the middle steps ``components``
        (n_components, n_features), ``points`` (n_points, n_components) in "weights" and
        "centers", ``margin`` () in "centers", ``centers`` (n_clusters, n_features) in "lloyd",
        and ``client_bounds``, a bound for each statistic, if the privacy unit is the client.

    Returns
    -------
    statistics : dict of str to ndarray
        "subspace": ``subspace`` (n_features, n_features). "weights": ``weights`` (n_points,).
        "centers": ``init_sums`` (n_clusters, n_features) and ``init_counts`` (n_clusters,),
        which are means and indicators if the privacy unit is the client. "lloyd":
        ``lloyd_sums`` and ``lloyd_counts`` of the same shapes.

    Raises
    ------
    ValueError
        If `step` is unknown, X holds NaN or infinity, or a bound of the broadcast is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.cluster import client_statistics
    >>> client_statistics("subspace", [[3.0, 4.0]], {"clip_norm": np.array(1.0)})
    {'subspace': array([[0.36, 0.48],
           [0.48, 0.64]])}
    """
    if step not in RELEASES:
        raise ValueError(f"step must be one of {list(RELEASES)}, got {step!r}.")
    X = check_array(X, dtype=np.float64, ensure_min_samples=0, input_name="X")
    for name in {"clip_norm", "client_bounds"} & broadcast.keys():
        if not (np.asarray(broadcast[name]) > 0).all():  # NaN would switch the clipping off
            raise ValueError(f"{name} of the broadcast must be positive, got {broadcast[name]!r}.")
    return sum_of_statistics(step, X, np.zeros(len(X), dtype=np.intp), broadcast)


def sum_of_statistics(step, X, client, broadcast):
    """The sum over clients of :func:`~skicml.cluster.client_statistics`, all clients at once.

    Parameters
    ----------
    step : str
        The step of the protocol.
    X : ndarray of shape (n_samples, n_features)
        The rows of all clients; those of a client are consecutive.
    client : ndarray of int of shape (n_samples,)
        Number of the client of each row, from 0 without gaps, ascending.
    broadcast : dict of str to ndarray
        What the server sent.

    Returns
    -------
    totals : dict of str to ndarray
        As :func:`~skicml.cluster.client_statistics`.
    """
    X = _clip_rows(X.astype(np.float64, copy=False), float(broadcast["clip_norm"]))
    bounds = broadcast.get("client_bounds")
    if bounds is None:  # the privacy unit is the row: clients do not matter
        client = np.zeros(len(X), dtype=np.intp)
    if step == "subspace":
        return {"subspace": _outer_products(X, client, bounds)}
    if step == "weights":
        return {"weights": _votes(X, client, broadcast, bounds)}
    if step == "centers":
        labels = _assign_with_margin(X, broadcast)
        n_clusters, means = len(broadcast["points"]), bounds is not None
    else:
        labels = _nearest(X, broadcast["centers"])
        n_clusters, means = len(broadcast["centers"]), False
    sums, counts = _cluster_sums(X, labels, client, n_clusters, bounds, means=means)
    return dict(zip(RELEASES[step], (sums, counts)))


def _clip_rows(X, clip_norm):
    """Scale rows longer than clip_norm back to that norm."""
    norms = row_norms(X)
    long = norms > clip_norm
    if long.any():
        X = X.copy()
        X[long] *= (clip_norm / norms[long])[:, np.newaxis]
    return X


def _shrinkage(norms, bound):
    """Factors that bring norms down to a bound, as whole statistics, never entry by entry."""
    factors = np.ones(len(norms))
    return np.divide(bound, norms, out=factors, where=norms > bound)


def _outer_products(X, client, bounds):
    """Sum of x x'; each client's sum is scaled to the Frobenius norm bounds[0]."""
    if bounds is not None and np.isfinite(bounds[0]):
        factor = _shrinkage(_frobenius_norms(X, client), bounds[0])
        X = X * np.sqrt(factor)[client, np.newaxis]
    return X.T @ X


def _frobenius_norms(X, client):
    """Frobenius norm of X_j' X_j for each client j, by the smaller of the two Gram matrices."""
    ends = np.flatnonzero(np.diff(client)) + 1
    return np.array(
        [
            np.linalg.norm(rows @ rows.T if len(rows) < rows.shape[1] else rows.T @ rows)
            for rows in np.split(X, ends)
        ]
    )


def _nearest(X, points):
    if len(X) == 0:
        return np.zeros(0, dtype=np.intp)
    return pairwise_distances_argmin(X, points)


def _votes(X, client, broadcast, bounds):
    """Histogram of the nearest server points; a client's is scaled to the L1 norm bounds[0]."""
    points = broadcast["points"]
    votes = _nearest(X @ broadcast["components"].T, points)
    share = None
    if bounds is not None:
        share = _shrinkage(np.bincount(client), bounds[0])[client]
    return np.bincount(votes, weights=share, minlength=len(points)).astype(float)


def _assign_with_margin(X, broadcast):
    """Nearest projected centre of each row; -1 where it is not nearest by the margin."""
    points, margin = broadcast["points"], float(broadcast["margin"])
    projected = X @ broadcast["components"].T
    if margin >= 1 or len(points) == 1 or len(X) == 0:
        return _nearest(projected, points)

    def assign(distances, start):
        two = np.partition(distances, 1, axis=1)[:, :2]
        clear = two[:, 0] <= margin * two[:, 1]
        return np.where(clear, distances.argmin(axis=1), -1)

    return np.concatenate(list(pairwise_distances_chunked(projected, points, reduce_func=assign)))


def _cluster_sums(X, labels, client, n_clusters, bounds, *, means):
    """Sums and counts of the rows of each cluster, added over clients.

    With `means`, a client gives the mean of its rows in a cluster and the indicator of having
    any. With `bounds`, a client's (n_clusters, n_features) block is scaled to the L2 norm
    bounds[0], its vector of counts to the L1 norm bounds[1].
    """
    kept = labels >= 0
    if not kept.all():
        X, labels, client = X[kept], labels[kept], client[kept]
    # One pair for every cluster in which a client has rows.
    pairs, pair_of_row = np.unique(client * n_clusters + labels, return_inverse=True)
    owner, cluster = np.divmod(pairs, n_clusters)
    counts = np.bincount(pair_of_row, minlength=len(pairs)).astype(float)
    sums = _add_rows(X, pair_of_row, len(pairs))
    if means:
        sums /= counts[:, np.newaxis]
        counts = np.ones_like(counts)
    if bounds is not None:
        norms = np.sqrt(np.bincount(owner, weights=row_norms(sums, squared=True)))
        sums *= _shrinkage(norms, bounds[0])[owner, np.newaxis]
        counts *= _shrinkage(np.bincount(owner, weights=counts), bounds[1])[owner]
    totals = np.bincount(cluster, weights=counts, minlength=n_clusters)
    return _add_rows(sums, cluster, n_clusters), totals


def _add_rows(X, target, n_targets):
    """Sums of the rows of X with the same target, shape (n_targets, n_features)."""
    rows = np.arange(len(X))
    indicator = sparse.csr_array((np.ones(len(X)), (target, rows)), shape=(n_targets, len(X)))
    return indicator @ X


class LocalBackend:
    """Backend of rows that are all at hand: plays every client in this process.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        The rows of all clients.
    groups : array-like of shape (n_samples,) or None, default=None
        The client of each row. None: every row is a client of its own.

    Attributes
    ----------
    n_clients_ : int
        Number of clients.

    Raises
    ------
    ValueError
        If X or `groups` holds NaN, or `groups` does not have one entry a row.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.cluster import LocalBackend
    >>> backend = LocalBackend(np.eye(3), groups=["a", "b", "a"])
    >>> totals, n_clients = backend.sum_over_clients("subspace", {"clip_norm": np.array(1.0)})
    >>> totals["subspace"].trace(), n_clients
    (np.float64(3.0), 2)
    """

    def __init__(self, X, groups=None):
        X = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        self._rows, self._client = X, np.arange(len(X))
        self.n_clients_ = len(X)
        if groups is not None:
            groups = np.ravel(check_array(groups, ensure_2d=False, dtype=None, input_name="groups"))
            check_consistent_length(X, groups)
            names, client = np.unique(groups, return_inverse=True)
            order = np.argsort(client, kind="stable")
            if (np.diff(client) < 0).any():
                self._rows = X[order]
            self._client = client[order]
            self.n_clients_ = len(names)

    def sum_over_clients(self, step, broadcast):
        """Sum of the clients' statistics.

        Parameters
        ----------
        step : {"subspace", "weights", "centers", "lloyd"}
            The step of the protocol.
        broadcast : dict of str to ndarray
            What the server sends to every client, see :func:`~skicml.cluster.client_statistics`.

        Returns
        -------
        totals : dict of str to ndarray
            The summed statistics.
        n_clients : int
            Number of clients that answered.
        """
        return sum_of_statistics(step, self._rows, self._client, broadcast), self.n_clients_


# --------------------------------------------------------------------------------------
# Server side


@dataclass(frozen=True)
class ServerState:
    """What the server knows and has released so far.

    Parameters
    ----------
    server_data : ndarray of shape (n_points, n_features)
        The server's public rows.
    n_clusters : int
        Number of clusters.
    clip_norm, margin, min_server_weight : float
        As in :class:`~skicml.cluster.FedDPKMeans`.
    n_init : int
        Restarts of the server's k-means.
    mechanisms : dict of str to NoiseMechanism
        The noise of each release.
    client_bounds : dict of str to float or None
        Bound of each of a client's statistics; None if the privacy unit is the row.
    rng : numpy.random.Generator
        Source of the noise.
    released : dict of str to ndarray
        The noisy totals of the latest step.
    components : ndarray of shape (n_components, n_features)
        Basis of the private subspace, after "subspace".
    server_weights : ndarray of shape (n_points,)
        Noisy number of votes, after "weights".
    projected_centers : ndarray of shape (n_clusters, n_components)
        Centres in the subspace, after "weights".
    init_centers, centers : ndarray of shape (n_clusters, n_features)
        Centres after "centers", and after the latest step.
    """

    server_data: np.ndarray
    n_clusters: int
    clip_norm: float
    margin: float
    min_server_weight: float
    n_init: int
    mechanisms: dict
    client_bounds: dict | None
    rng: np.random.Generator
    released: dict | None = None
    components: np.ndarray | None = None
    server_weights: np.ndarray | None = None
    projected_centers: np.ndarray | None = None
    init_centers: np.ndarray | None = None
    centers: np.ndarray | None = None


def broadcast_of(step, state):
    """What the server sends to the clients in a step: arrays only, fit for any transport."""
    message = {"clip_norm": np.array(state.clip_norm)}
    if state.client_bounds is not None:
        message["client_bounds"] = np.array([state.client_bounds[name] for name in RELEASES[step]])
    if step == "weights":
        message["components"] = state.components
        message["points"] = state.server_data @ state.components.T
    elif step == "centers":
        message["components"] = state.components
        message["points"] = state.projected_centers
        message["margin"] = np.array(state.margin)
    elif step == "lloyd":
        message["centers"] = state.centers
    return message


def server_update(step, totals, state):
    """Add noise to the totals of a step and take in what they say.

    Parameters
    ----------
    step : {"subspace", "weights", "centers", "lloyd"}
        The step of the protocol.
    totals : dict of str to ndarray
        Exact sums over clients; nothing but their noisy version is used.
    state : ServerState
        The state before.

    Returns
    -------
    state : ServerState
        The state after.

    Raises
    ------
    ValueError
        If the totals do not have the names and shapes of the step, or are not finite.
    """
    _check_totals(step, totals, state)
    released = {name: _add_noise(name, totals[name], state) for name in RELEASES[step]}
    state = replace(state, released=released)
    if step == "subspace":
        return replace(state, components=_top_eigenvectors(released["subspace"], state.n_clusters))
    if step == "weights":
        centers = _weighted_kmeans(released["weights"], state)
        return replace(state, server_weights=released["weights"], projected_centers=centers)
    if step == "centers":
        lifted = state.projected_centers @ state.components
        centers = _divide(released["init_sums"], released["init_counts"], lifted)
        return replace(state, init_centers=centers, centers=centers)
    centers = _divide(released["lloyd_sums"], released["lloyd_counts"], state.centers)
    return replace(state, centers=centers)


def _check_totals(step, totals, state):
    n_points, n_features = state.server_data.shape
    block = ((state.n_clusters, n_features), (state.n_clusters,))
    shapes = {
        "subspace": ((n_features, n_features),),
        "weights": ((n_points,),),
        "centers": block,
        "lloyd": block,
    }
    expected = dict(zip(RELEASES[step], shapes[step]))
    got = {name: np.shape(total) for name, total in totals.items()}
    if got != expected:
        raise ValueError(
            f"In step {step!r} the backend must return arrays of shapes {expected}, got {got}."
        )
    for name, total in totals.items():
        assert_all_finite(total, input_name=name)


def _add_noise(name, total, state):
    noise = state.mechanisms[name].sample(np.shape(total), state.rng)
    if name == "subspace":  # symmetric: the entries on and above the diagonal are released
        noise = np.triu(noise) + np.triu(noise, 1).T
    return total + noise


def _top_eigenvectors(S, n_components):
    """Rows: eigenvectors of the n_components largest eigenvalues, largest first."""
    d = len(S)
    _, vectors = eigh(S, subset_by_index=[d - min(n_components, d), d - 1])
    return np.ascontiguousarray(vectors[:, ::-1].T)


def _weighted_kmeans(weights, state):
    """K-means of the projected server points that got enough votes."""
    threshold = state.min_server_weight
    if (weights >= threshold).sum() < state.n_clusters:
        threshold = np.sort(weights)[-state.n_clusters]
        warnings.warn(
            f"Fewer than n_clusters={state.n_clusters} rows of server_data have a noisy weight of "
            f"at least min_server_weight={state.min_server_weight}; the threshold is lowered to "
            f"{threshold:.3g}. The server data may be far from the clients' data, or epsilon too "
            "small for the number of rows.",
            UserWarning,
            stacklevel=8,  # the call of fit
        )
    kept = weights >= threshold
    points = state.server_data[kept] @ state.components.T
    kmeans = KMeans(
        state.n_clusters,
        n_init=state.n_init,
        random_state=int(state.rng.integers(np.iinfo(np.int32).max)),
    )
    positive = np.maximum(weights[kept], np.finfo(float).eps)  # of a lowered threshold
    return kmeans.fit(points, sample_weight=positive).cluster_centers_


def _divide(sums, counts, previous):
    """Noisy means; the previous centre where a noisy count is below 1."""
    safe = counts >= 1
    means = sums / np.where(safe, counts, 1.0)[:, np.newaxis]
    return np.where(safe[:, np.newaxis], means, previous)
