"""
Private clustering over a Flower federation
===========================================

:class:`~skicml.cluster.FedDPKMeans` reaches its clients through a *backend*: any object with a
method ``sum_over_clients(step, broadcast)``. The default, :class:`~skicml.cluster.LocalBackend`,
plays all clients in one process. This example writes one for `Flower <https://flower.ai>`_ in about
forty lines, so that the rows stay on the nodes that own them, and runs it in Flower's simulation
with five nodes (``pip install skicml[federated]``).

It is not executed when the documentation is built. Run it with
``python examples/cluster/flower_backend.py``.
"""

# %%
# The client
# ----------
# A node answers one kind of message. It unpacks what the server broadcast, calls
# :func:`~skicml.cluster.client_statistics` on its own rows, and replies with the arrays. A real
# node would read its rows from its own disk, and refuse bounds (``clip_norm``, ``client_bounds``)
# other than the agreed ones.

import os
import time

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from skicml.cluster import FedDPKMeans, client_statistics
from skicml.datasets import make_federated_mixture

N_NODES = 5


def pack(arrays):
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})


def unpack(record):
    return {name: array.numpy() for name, array in record.items()}


def federated_data():
    return make_federated_mixture(
        n_clients=N_NODES,
        n_samples_per_client=2000,
        n_clusters=4,
        n_features=10,
        random_state=0,
    )


def rows_of_node(context):
    data = federated_data()
    return data.data[data.groups == context.node_config["partition-id"]]


client_app = ClientApp()


@client_app.query()
def answer(message, context):
    step = message.content["step"]["name"]
    broadcast = unpack(message.content["broadcast"])
    statistics = client_statistics(step, rows_of_node(context), broadcast)
    return Message(RecordDict({"statistics": pack(statistics)}), reply_to=message)


# %%
# The server
# ----------
# The backend sends one message to each node and adds up the replies. Here the server sees the
# statistics of single nodes; where it must not, run the same exchange under Flower's SecAgg+
# workflow, which hands the server the sum alone. Noise is added to the sum in either case.


class FlowerBackend:
    """Reach the clients of :class:`FedDPKMeans` through a Flower grid."""

    def __init__(self, grid, timeout=600):
        self.grid = grid
        self.timeout = timeout

    def sum_over_clients(self, step, broadcast):
        content = {"broadcast": pack(broadcast), "step": ConfigRecord({"name": step})}
        messages = [
            Message(RecordDict(content), dst_node_id=node, message_type=MessageType.QUERY)
            for node in self.grid.get_node_ids()
        ]
        totals, n_clients = {}, 0
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            if reply.has_error():
                raise RuntimeError(f"A node failed in step {step!r}: {reply.error.reason}")
            for name, value in unpack(reply.content["statistics"]).items():
                totals[name] = totals.get(name, 0.0) + value
            n_clients += 1
        return totals, n_clients


# %%
# Nothing else changes: the same estimator, with ``fit(None)``, for the server has no private rows.

server_app = ServerApp()
fitted = []


@server_app.main()
def main(grid, context):
    while len(list(grid.get_node_ids())) < N_NODES:
        time.sleep(0.1)
    model = FedDPKMeans(
        n_clusters=4,
        epsilon=1.0,
        server_data=federated_data().server_data,
        backend=FlowerBackend(grid),
        random_state=0,  # for the comparison below; never fix the seed of a real release
    )
    fitted.append(model.fit(None))


# %%
# Run it
# ------
# The centres are those of a fit in one process with the same noise.


def simulate():
    from flwr.simulation import run_simulation  # `flwr run` in a Flower project

    run_simulation(
        server_app,
        client_app,
        num_supernodes=N_NODES,
        backend_config={
            "init_args": {"num_cpus": 2, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    return fitted[-1]


if __name__ == "__main__":
    federated = simulate()
    data = federated_data()
    local = FedDPKMeans(n_clusters=4, epsilon=1.0, server_data=data.server_data, random_state=0)
    local.fit(data.data, groups=data.groups)
    gap = np.abs(federated.cluster_centers_ - local.cluster_centers_).max()
    print(f"{len(data.data)} rows on {N_NODES} nodes, epsilon {federated.privacy_spent_[0]:.4f}")
    print(f"largest difference to the centres of the local fit: {gap:.1e}")
