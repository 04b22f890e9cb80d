"""Federated, differentially private k-means with public data at the server."""

import warnings
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
from sklearn.metrics import pairwise_distances_argmin, pairwise_distances_argmin_min
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.extmath import row_norms
from sklearn.utils.validation import check_is_fitted, validate_data

from skicml.cluster._federated import LocalBackend, ServerState, broadcast_of, server_update
from skicml.privacy import PrivacyLeakWarning, composed_epsilon, split_budget
from skicml.utils._fitting import all_or_nothing

_DTYPES = [np.float64, np.float32]

# Name of each release: distribution of its noise, default share of the budget.
_RELEASES = {
    "subspace": ("gaussian", 1.0),
    "weights": ("laplace", 1.0),
    "init_sums": ("gaussian", 0.5),
    "init_counts": ("laplace", 0.5),
    "lloyd_sums": ("gaussian", 0.5),
    "lloyd_counts": ("laplace", 0.5),
}


class FedDPKMeans(
    CallbackSupportMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClusterMixin,
    BaseEstimator,
):
    """Federated k-means with differential privacy and public data at the server.

    Clients hold rows that they may not show. The server holds a few public rows of its own, of
    which only some need to look like the clients' rows. The centres that it releases are
    (`epsilon`, `delta`)-differentially private: whether any one row (or all rows of any one
    client) took part can hardly be told from them.

    The fit takes three rounds for the initialisation and `n_lloyd_iter` rounds of Lloyd's
    algorithm. In every round each client sends a statistic, and the server sees only the sum
    over clients, with noise: (1) outer products, whose top eigenvectors span a subspace; (2) in
    the subspace, how many rows are nearest to each public row; weighted k-means on the public
    rows gives projected centres; (3) sums and counts of the rows of each projected centre, which
    bring the centres back to the original space; (4) sums and counts of Lloyd's algorithm.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters.
    epsilon : float, default=1.0
        Total privacy budget of one call of fit, by the add/remove relation of neighbouring data
        sets. ``numpy.inf`` switches noise and client bounds off.
    delta : float, default=1e-6
        Probability with which the bound of `epsilon` may fail; well below one over the number of
        units.
    privacy_unit : {"sample", "client"}, default="sample"
        What is protected: one row, or all rows of one client (see `groups` of ``fit``).
    server_data : array-like of shape (n_points, n_features) or None, default=None
        Public rows of the server. None draws ``50 * n_clusters`` rows uniformly in the ball of
        radius `clip_norm`, with a warning: that is poor in more than a few dimensions.
    clip_norm : float or None, default=None
        Rows longer than this (Euclidean norm, in units of X) are scaled back to it by the
        client in every round; the noise is proportional to it. It must be known without looking
        at private rows. None takes the largest norm in `server_data`; without server data, the
        largest norm in X, with a :class:`~skicml.privacy.PrivacyLeakWarning`.
    n_lloyd_iter : int, default=1
        Rounds of Lloyd's algorithm after the initialisation. 0 is usual for
        ``privacy_unit="client"``.
    margin : float, default=1.0
        In round 3 a row counts for its nearest projected centre if the distance to it is at most
        `margin` times that to the second nearest, else not at all. In (0, 1]; the paper's
        theory has 1/3, its experiments 1.
    min_server_weight : float, default=5.0
        Public rows with a smaller noisy number of votes are dropped.
    budget_split : dict or None, default=None
        Shares of the budget of the releases "subspace", "weights", "init_sums", "init_counts",
        "lloyd_sums" and "lloyd_counts" (all rounds together); only their ratios matter. Keys
        that are left out keep the default: 1 for the first two, 0.5 for the others.
    client_clip : dict or None, default=None
        For ``privacy_unit="client"``: bound of a client's statistic for each of the releases of
        `budget_split`, in units of the statistic: Frobenius norm of the outer products
        ("subspace"), number of votes ("weights"), Euclidean norm of all means ("init_sums") or
        sums ("lloyd_sums") of a client, number of clusters that it has rows in ("init_counts"),
        number of its rows ("lloyd_counts"). A larger statistic is scaled down as a whole.
        Required there unless `epsilon` is infinite; the Lloyd keys only with Lloyd rounds.
    n_init : int, default=10
        Restarts of the server's weighted k-means; free of privacy cost.
    backend : object or None, default=None
        How the server reaches its clients: an object with a method ``sum_over_clients(step,
        broadcast)`` that has every client call :func:`~skicml.cluster.client_statistics` and
        returns the summed arrays and the number of clients. None plays all clients with the rows
        of X.
    accountant : {"pld", "zcdp"}, default="pld"
        How the budget is composed: privacy loss distributions, which need the extra
        ``skicml[privacy]``, or zero-concentrated privacy, which needs nothing and more noise.
    random_state : int, RandomState instance or None, default=None
        Source of noise and of the server's k-means. None draws from the operating system.
        Whoever knows the seed can take the noise away again: fix it in tests only.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        The released centres.
    init_centers_ : ndarray of shape (n_clusters, n_features)
        The centres before the Lloyd rounds.
    labels_ : ndarray of shape (n_samples,)
        Nearest centre of each row of X. Not a private output. Absent after a fit with a
        `backend`.
    components_ : ndarray of shape (min(n_clusters, n_features), n_features)
        Orthonormal basis of the released subspace.
    server_weights_ : ndarray of shape (n_points,)
        Noisy number of rows that are nearest to each public row.
    privacy_spent_ : tuple of (float, float)
        Epsilon and delta of the whole fit, computed anew from the noise of all planned rounds.
    n_iter_ : int
        Number of rounds, 3 and those of Lloyd's algorithm.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X had names that are all strings.

    See Also
    --------
    sklearn.cluster.KMeans : Where all rows may be seen.
    client_statistics : What a client runs.
    LocalBackend : The backend that plays all clients.

    Notes
    -----
    **Trust model.** Central differential privacy over aggregates: the server, or a secure
    aggregation layer in front of it, sees exact sums over clients and adds the noise once.
    Clients trust it to do so, and the broadcast bounds to be the agreed ones. The world sees
    noisy sums only. Neighbouring data sets differ by one unit that is *added or removed*;
    replacing a unit is two such steps, and covered at 2 epsilon and delta (1 + exp(epsilon)).

    **What is private.** ``cluster_centers_``, ``init_centers_``, ``components_``,
    ``server_weights_`` and what is computed from them and public data. ``labels_``,
    ``predict``, ``transform`` and ``score`` on private rows are computed from those rows in the
    clear: they are *not* private outputs, nor is a choice made by them. One call of fit is one
    release: fitting again, a grid search, or the best of several fits costs the budget each
    time. A scaler that is fitted on private rows ahead of this estimator is a leak; fit it on
    the server's rows. The Gaussian and Laplace noise is in floating point and not hardened
    against attacks on its least significant bits.

    **Noise.** With D = `clip_norm`, one row changes the outer products by at most D**2, the
    cluster sums by D (both in the L2 norm, Gaussian noise), the histogram of votes and the
    counts by 1 (L1, Laplace noise). For clients the bounds are those of `client_clip`. Each
    release gets the noise of a nominal epsilon, its share; the common factor of the shares is
    such that the composition of all releases spends exactly the given budget.

    Means (or sums) and indicators (or counts) of clients are clipped apart. Where that shrinks
    one more than the other, all centres move towards or away from the origin: choose bounds
    that few clients reach.

    **Cost.** Client with n rows: time O(n d^2 + n k (d + Q)) for Q public rows, memory
    O(n d + d^2), upload d^2 + Q + (T + 1) k (d + 1) numbers for T Lloyd rounds. Server: time
    O(d^3), and O(Q k^2) an iteration of its k-means, memory O(d^2 + Q d).

    **Departures from the paper.** The outer products get the noise of the sensitivity D**2;
    the noise of D, with which its figures were made, does not meet the stated guarantee. The
    user gives the total budget, not nominal ones. The server's k-means restarts 10 times, not
    once. A centre with a noisy count below 1 stays where it was. A threshold that leaves fewer
    than `n_clusters` public rows is lowered. The three rounds of the initialisation always run;
    a callback that asks to stop ends the Lloyd rounds, and does not give back their budget, for
    the decision may rest on what was released. The value 1/3 of `margin` was not checked against
    the paper's text.

    References
    ----------
    .. [1] J. Scott, C. H. Lampert, D. Saulpic, "Differentially Private Federated k-Means
       Clustering with Server-Side Data", ICML 2025, PMLR 267:53757-53790.

    Examples
    --------
    >>> from skicml.cluster import FedDPKMeans
    >>> from skicml.datasets import make_federated_mixture
    >>> data = make_federated_mixture(n_clients=20, n_samples_per_client=500, n_clusters=4,
    ...                               n_features=10, random_state=0)
    >>> model = FedDPKMeans(4, epsilon=1.0, server_data=data.server_data, accountant="zcdp",
    ...                     random_state=0).fit(data.data)
    >>> model.cluster_centers_.shape
    (4, 10)
    >>> epsilon, delta = model.privacy_spent_
    >>> print(f"{epsilon:.3f} {delta}")
    1.000 1e-06
    """

    _parameter_constraints = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="right")],
        "delta": [Interval(Real, 0, 1, closed="neither")],
        "privacy_unit": [StrOptions({"sample", "client"})],
        "server_data": ["array-like", None],
        "clip_norm": [Interval(Real, 0, None, closed="neither"), None],
        "n_lloyd_iter": [Interval(Integral, 0, None, closed="left")],
        "margin": [Interval(Real, 0, 1, closed="right")],
        "min_server_weight": [Interval(Real, 0, None, closed="left")],
        "budget_split": [dict, None],
        "client_clip": [dict, None],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "backend": [HasMethods("sum_over_clients"), None],
        "accountant": [StrOptions({"pld", "zcdp"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_clusters=8,
        *,
        epsilon=1.0,
        delta=1e-6,
        privacy_unit="sample",
        server_data=None,
        clip_norm=None,
        n_lloyd_iter=1,
        margin=1.0,
        min_server_weight=5.0,
        budget_split=None,
        client_clip=None,
        n_init=10,
        backend=None,
        accountant="pld",
        random_state=None,
    ):
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.delta = delta
        self.privacy_unit = privacy_unit
        self.server_data = server_data
        self.clip_norm = clip_norm
        self.n_lloyd_iter = n_lloyd_iter
        self.margin = margin
        self.min_server_weight = min_server_weight
        self.budget_split = budget_split
        self.client_clip = client_clip
        self.n_init = n_init
        self.backend = backend
        self.accountant = accountant
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None, *, groups=None):
        """Find centres; spends the privacy budget once.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or None
            Rows of all clients, stacked. Not touched if there is a `backend`; may be None then.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,) or None, default=None
            The client of each row. None: one row a client. Matters only if the privacy unit is
            the client.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError
            If the shapes of X, `groups`, `server_data` or of what the backend returns do not
            agree, or client bounds are missing.
        ImportError
            If `accountant` is "pld" and dp-accounting is not installed.
        """
        rows = None if self.backend is not None else self._check_rows(X)
        backend = self.backend if rows is None else LocalBackend(rows, groups)
        state = self._initial_state(rows)
        planned = tuple(state.mechanisms.values())
        state, n_rounds = self._run_rounds(backend, state, rows)

        dtype = np.float32 if _is_float32(self.server_data if rows is None else rows) else float
        centers = state.centers.astype(dtype)
        labels = None if rows is None else pairwise_distances_argmin(rows, centers)
        epsilon_spent = composed_epsilon(planned, self.delta, self.accountant)

        if rows is None:
            self._forget_rows()
            self.n_features_in_ = state.centers.shape[1]
        else:
            validate_data(self, X, skip_check_array=True)  # number and names of the features
            self.labels_ = labels
        self.cluster_centers_ = centers
        self.init_centers_ = state.init_centers.astype(dtype)
        self.components_ = state.components.astype(dtype)
        self.server_weights_ = state.server_weights
        self._mechanisms = planned
        self.privacy_spent_ = (epsilon_spent, float(self.delta))
        self.n_iter_ = n_rounds
        return self

    def fit_predict(self, X, y=None, *, groups=None):
        """Find centres and the nearest one of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows of all clients, stacked.
        y : None
            Ignored.
        groups : array-like of shape (n_samples,) or None, default=None
            The client of each row.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Not a private output.
        """
        self.fit(X, groups=groups)
        return self.predict(X) if self.backend is not None else self.labels_

    def predict(self, X):
        """Nearest released centre of each row; not a private output of private rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            Index of the centre.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_DTYPES, order="C")
        return pairwise_distances_argmin(X, self.cluster_centers_)

    def transform(self, X):
        """Distance of each row to each released centre.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        distances : ndarray of shape (n_samples, n_clusters)
            Euclidean distances.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_DTYPES, order="C")
        return euclidean_distances(X, self.cluster_centers_)

    def score(self, X, y=None):
        """Minus the k-means cost of the rows; not a private output of private rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Minus the sum of squared distances to the nearest centre.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=_DTYPES, order="C")
        _, distances = pairwise_distances_argmin_min(X, self.cluster_centers_)
        return -float(np.sum(distances.astype(np.float64) ** 2))

    def privacy_report(self):
        """The noise of every planned release, which `privacy_spent_` is the composition of.

        Returns
        -------
        report : list of dict
            One entry a release: ``name``, ``mechanism`` ("gaussian" or "laplace"),
            ``sensitivity``, ``nominal_epsilon``, ``noise_scale`` (standard deviation or Laplace
            scale of one release) and ``compositions``.
        """
        check_is_fitted(self)
        return [
            {
                "name": mechanism.name,
                "mechanism": mechanism.kind,
                "sensitivity": mechanism.sensitivity,
                "nominal_epsilon": mechanism.epsilon,
                "noise_scale": mechanism.noise_scale,
                "compositions": mechanism.compositions,
            }
            for mechanism in self._mechanisms
        ]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self):
        return self.cluster_centers_.shape[0]

    def _check_rows(self, X):
        if X is None:
            raise ValueError("X may be None only if a backend reaches the clients.")
        return check_array(X, dtype=_DTYPES, order="C", estimator=self, input_name="X")

    def _forget_rows(self):
        """Remove what an earlier fit knew of its rows and this one may not know."""
        for name in ("labels_", "feature_names_in_"):
            vars(self).pop(name, None)

    def _initial_state(self, rows):
        """All that is fixed before the first round."""
        rng = _noise_generator(self.random_state)
        server_data = self._check_server_data(rows)
        clip_norm = self._resolve_clip_norm(server_data, rows)
        if server_data is None:
            server_data = _uniform_in_ball(50 * self.n_clusters, rows.shape[1], clip_norm, rng)
        sensitivities, client_bounds = self._sensitivities(clip_norm)
        mechanisms = split_budget(
            float(self.epsilon), float(self.delta), self._shares(), self.accountant
        )
        return ServerState(
            server_data=server_data,
            n_clusters=self.n_clusters,
            clip_norm=clip_norm,
            margin=self.margin,
            min_server_weight=self.min_server_weight,
            n_init=self.n_init,
            mechanisms={m.name: m.with_sensitivity(sensitivities[m.name]) for m in mechanisms},
            client_bounds=client_bounds,
            rng=rng,
        )

    def _check_server_data(self, rows):
        if self.server_data is None:
            if rows is None:
                raise ValueError("server_data must be given if a backend reaches the clients.")
            warnings.warn(
                "server_data is None: the server draws its rows uniformly from a ball, which "
                "gives poor results in more than a few dimensions.",
                UserWarning,
                stacklevel=7,
            )
            return None
        server_data = check_array(self.server_data, dtype=np.float64, input_name="server_data")
        if rows is not None and server_data.shape[1] != rows.shape[1]:
            raise ValueError(
                f"server_data has {server_data.shape[1]} features, but X has {rows.shape[1]}."
            )
        if len(server_data) < self.n_clusters:
            raise ValueError(
                f"server_data must have at least n_clusters={self.n_clusters} rows, "
                f"got {len(server_data)}."
            )
        return server_data

    def _resolve_clip_norm(self, server_data, rows):
        if self.clip_norm is not None:
            return float(self.clip_norm)
        if server_data is None and np.isfinite(self.epsilon):
            warnings.warn(
                "clip_norm is taken from the private rows of X: the privacy guarantee does not "
                "hold. Give clip_norm or server_data.",
                PrivacyLeakWarning,
                stacklevel=7,
            )
        norms = row_norms(rows if server_data is None else server_data)
        return float(norms.max()) or 1.0

    def _release_names(self):
        return [name for name in _RELEASES if self.n_lloyd_iter > 0 or not name.startswith("lloyd")]

    def _shares(self):
        """The releases of all rounds, as split_budget takes them."""
        split = {name: share for name, (_, share) in _RELEASES.items()}
        _check_positive_values("budget_split", self.budget_split or {}, required=())
        split.update(self.budget_split or {})
        return tuple(
            (
                name,
                _RELEASES[name][0],
                float(split[name]),
                self.n_lloyd_iter if name.startswith("lloyd") else 1,
            )
            for name in self._release_names()
        )

    def _sensitivities(self, clip_norm):
        """Sensitivity of each release, and the bounds that clients keep to (None: rows only)."""
        names = self._release_names()
        if self.privacy_unit == "sample":
            per_row = {"subspace": clip_norm**2, "init_sums": clip_norm, "lloyd_sums": clip_norm}
            return {name: per_row.get(name, 1.0) for name in names}, None
        if np.isinf(self.epsilon):
            return dict.fromkeys(names, 1.0), dict.fromkeys(names, np.inf)
        if self.client_clip is None:
            raise ValueError(
                "privacy_unit='client' needs client_clip, a dict with a bound for each of "
                f"{names}, unless epsilon is infinite."
            )
        _check_positive_values("client_clip", self.client_clip, required=names)
        bounds = {name: float(self.client_clip[name]) for name in names}
        return bounds, bounds

    def _run_rounds(self, backend, state, rows):
        """Play the protocol; one callback task a round."""
        steps = ["subspace", "weights", "centers"] + ["lloyd"] * self.n_lloyd_iter
        fit_task = self._init_callback_context(max_subtasks=len(steps))
        fit_task.call_on_fit_task_begin(estimator=self, X=rows)
        n_rounds, stop = 0, False
        for step in steps:
            task = fit_task.subcontext(task_name=f"round {step}")
            task.call_on_fit_task_begin(estimator=self, X=rows)
            totals, n_clients = backend.sum_over_clients(step, broadcast_of(step, state))
            if n_clients == 0:
                raise ValueError(f"No client answered in step {step!r}.")
            state = server_update(step, totals, state)
            n_rounds += 1
            result = {"X": rows, "reconstruction_attributes": _provisional_attributes(state)}
            # Before there are centres there is nothing to stop with: ask, but go on.
            stop |= task.call_on_fit_task_end(estimator=self, **result)
            if stop and state.centers is not None:
                break
        fit_task.call_on_fit_task_end(estimator=self, **result)
        return state, n_rounds


def _provisional_attributes(state):
    """What predict needs, once there are centres."""
    if state.centers is None:
        return None
    return {"cluster_centers_": state.centers, "n_features_in_": state.centers.shape[1]}


def _noise_generator(random_state):
    """Generator of the noise; never one that others know, unless it was asked for."""
    if random_state is None:
        return np.random.default_rng()
    seeds = check_random_state(random_state).randint(np.iinfo(np.int32).max, size=8)
    return np.random.default_rng(seeds)


def _uniform_in_ball(n_points, n_features, radius, rng):
    directions = rng.normal(size=(n_points, n_features))
    directions /= row_norms(directions)[:, np.newaxis]
    return radius * rng.random((n_points, 1)) ** (1 / n_features) * directions


def _is_float32(array):
    return getattr(array, "dtype", None) == np.float32


def _check_positive_values(parameter, values, required):
    """Raise unless the dict has known keys, all that are required, and positive finite values."""
    if unknown := sorted(set(values) - set(_RELEASES), key=str):
        raise ValueError(f"{parameter} has unknown keys {unknown}; known are {list(_RELEASES)}.")
    if missing := [name for name in required if name not in values]:
        raise ValueError(f"{parameter} lacks the keys {missing}.")
    for name, value in values.items():
        if not isinstance(value, Real) or not 0 < value < np.inf:
            raise ValueError(f"{parameter}[{name!r}] must be positive and finite, got {value!r}.")
