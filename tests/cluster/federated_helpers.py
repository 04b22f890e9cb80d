"""What the tests of the two sides of federated k-means share."""

import numpy as np

from skicml.cluster._federated import ServerState
from skicml.privacy import NoiseMechanism

CLIENT_CLIP = {
    "subspace": 40.0,
    "weights": 5.0,
    "init_sums": 6.0,
    "init_counts": 2.0,
    "lloyd_sums": 15.0,
    "lloyd_counts": 4.0,
}

# Which norm a release is measured in, and its sensitivity to one row at clip norm D.
NORM = {name: (2 if name in ("subspace", "init_sums", "lloyd_sums") else 1) for name in CLIENT_CLIP}
ROW_SENSITIVITY = {
    "subspace": lambda D: D**2,
    "weights": lambda D: 1.0,
    "init_sums": lambda D: D,
    "init_counts": lambda D: 1.0,
    "lloyd_sums": lambda D: D,
    "lloyd_counts": lambda D: 1.0,
}


def state_with(**changes):
    """A server state without noise."""
    rng = np.random.default_rng(0)
    settings = {
        "server_data": rng.normal(size=(30, 4)),
        "n_clusters": 3,
        "clip_norm": 2.0,
        "margin": 1.0,
        "min_server_weight": 5.0,
        "n_init": 10,
        "mechanisms": {name: NoiseMechanism(name, "gaussian", 0.0) for name in CLIENT_CLIP},
        "client_bounds": None,
        "rng": rng,
        "components": np.eye(4)[:3],
    }
    return ServerState(**(settings | changes))
