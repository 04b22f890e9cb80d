"""Clustering: private and federated, on streams of views, with missing views."""

from skicml.cluster._bacdl import BACDL
from skicml.cluster._dsvc import DSVC
from skicml.cluster._feddp_kmeans import FedDPKMeans
from skicml.cluster._federated import LocalBackend, client_statistics

__all__ = ["BACDL", "DSVC", "FedDPKMeans", "LocalBackend", "client_statistics"]
