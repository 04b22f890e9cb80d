"""Data that is spread over clients, with public rows at a server."""

import numpy as np
from sklearn.utils import Bunch, check_random_state
from sklearn.utils._param_validation import validate_params

from skicml.datasets._constraints import COUNT, NOT_NEGATIVE, POSITIVE, SIZE


@validate_params(
    {
        "n_clients": [SIZE],
        "n_samples_per_client": [SIZE],
        "n_clusters": [SIZE],
        "n_features": [SIZE],
        "variance": [NOT_NEGATIVE],
        "n_server_per_cluster": [COUNT],
        "n_server_outliers": [COUNT],
        "concentration": [POSITIVE, None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_federated_mixture(
    n_clients=100,
    n_samples_per_client=1000,
    *,
    n_clusters=10,
    n_features=100,
    variance=0.5,
    n_server_per_cluster=20,
    n_server_outliers=100,
    concentration=None,
    random_state=None,
):
    """Gaussian mixture held by clients, and a server with a few related and unrelated rows.

    The means are uniform in the unit cube, the covariance of every component is `variance` times
    the identity. The server's rows are some from each component and outliers that are uniform in
    the cube. The defaults are the setting of [1]_ (80 MB).

    Parameters
    ----------
    n_clients : int, default=100
        Number of clients.
    n_samples_per_client : int, default=1000
        Rows of each client.
    n_clusters : int, default=10
        Number of components.
    n_features : int, default=100
        Number of features.
    variance : float, default=0.5
        Variance of each feature within a component.
    n_server_per_cluster : int, default=20
        Public rows from each component; may be 0.
    n_server_outliers : int, default=100
        Public rows that belong to no component; may be 0.
    concentration : float or None, default=None
        Parameter of the symmetric Dirichlet distribution of a client's shares of the components;
        the smaller, the fewer components a client has. None gives every client equal shares.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`
        With ``data`` of shape (n_clients * n_samples_per_client, n_features), ``target``, the
        component of each row, ``groups``, its client, ``server_data`` of shape (n_clusters *
        n_server_per_cluster + n_server_outliers, n_features), ``server_target`` (-1 for
        outliers) and ``centers`` of shape (n_clusters, n_features).

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range.

    References
    ----------
    .. [1] J. Scott, C. H. Lampert, D. Saulpic, "Differentially Private Federated k-Means
       Clustering with Server-Side Data", ICML 2025, PMLR 267:53757-53790.

    Examples
    --------
    >>> from skicml.datasets import make_federated_mixture
    >>> data = make_federated_mixture(n_clients=5, n_samples_per_client=40, n_clusters=3,
    ...                               n_features=4, n_server_outliers=10, random_state=0)
    >>> data.data.shape, data.server_data.shape, len(set(data.groups))
    ((200, 4), (70, 4), 5)
    """
    rng = check_random_state(random_state)
    centers = rng.uniform(size=(n_clusters, n_features))

    def around(target):
        rows = rng.normal(scale=np.sqrt(variance), size=(len(target), n_features))
        rows += centers[target]
        return rows

    if concentration is None:
        shares = np.full((n_clients, n_clusters), 1 / n_clusters)
    else:
        shares = rng.dirichlet(np.full(n_clusters, concentration), size=n_clients)
    target = np.concatenate(
        [rng.choice(n_clusters, size=n_samples_per_client, p=share) for share in shares]
    )
    server_target = np.repeat(np.arange(n_clusters), n_server_per_cluster)
    outliers = rng.uniform(size=(n_server_outliers, n_features))
    return Bunch(
        data=around(target),
        target=target,
        groups=np.repeat(np.arange(n_clients), n_samples_per_client),
        server_data=np.vstack([around(server_target), outliers]),
        server_target=np.concatenate([server_target, np.full(n_server_outliers, -1)]),
        centers=centers,
    )
