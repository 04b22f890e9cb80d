"""The Flower backend of the examples, on real Flower objects."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from skicml.cluster import FedDPKMeans

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster" / "flower_backend.py"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "OMP_NUM_THREADS": "1",
}

pytestmark = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import flwr"], capture_output=True).returncode != 0,
    reason="needs the extra skicml[federated]",
)


@pytest.fixture(scope="module")
def example():
    """Names of the example, run as a module that is not the main one."""
    patch = pytest.MonkeyPatch()
    for name, value in QUIET.items():
        patch.setenv(name, value)
    _identify_process(patch)
    yield runpy.run_path(str(EXAMPLE))
    patch.undo()


def _identify_process(patch):
    """Recent releases of Flower make messages only in a process that they have started."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    for name in ("_task_id", "_run_id", "_node_id"):
        patch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="module")
def local(example):
    """The fit in one process with the noise of the example's server."""
    data = example["federated_data"]()
    model = FedDPKMeans(4, epsilon=1.0, server_data=data.server_data, random_state=0)
    return model.fit(data.data, groups=data.groups)


class FakeGrid:
    """A grid whose nodes answer in this process; nodes in `broken` answer with an error."""

    def __init__(self, client_app, n_nodes, broken=()):
        self.client_app, self.n_nodes, self.broken = client_app, n_nodes, broken
        self.n_messages = 0

    def get_node_ids(self):
        return [100 + node for node in range(self.n_nodes)]

    def send_and_receive(self, messages, *, timeout=None):
        from flwr.app import Context, Error, Message, RecordDict

        replies = []
        for message in messages:
            self.n_messages += 1
            partition = message.metadata.dst_node_id - 100
            config = {"partition-id": partition, "num-partitions": self.n_nodes}
            context = Context(1, message.metadata.dst_node_id, config, RecordDict(), {})
            if partition in self.broken:
                replies.append(Message(Error(code=0, reason="disk full"), reply_to=message))
            else:
                replies.append(self.client_app(message, context))
        return replies


def test_fake_grid_gives_the_centres_of_the_local_fit(example, local):
    grid = FakeGrid(example["client_app"], n_nodes=5)
    data = example["federated_data"]()
    model = FedDPKMeans(
        4,
        epsilon=1.0,
        server_data=data.server_data,
        backend=example["FlowerBackend"](grid),
        random_state=0,
    ).fit(None)
    np.testing.assert_allclose(model.cluster_centers_, local.cluster_centers_, rtol=1e-9)
    assert grid.n_messages == 5 * 4  # nodes x (three rounds and one of Lloyd's)


def test_client_level_on_a_fake_grid(example):
    data = example["federated_data"]()
    clip = {"subspace": 5e4, "weights": 2e3, "init_sums": 12.0, "init_counts": 4.0}
    settings = {
        "epsilon": 1.0,
        "privacy_unit": "client",
        "client_clip": clip,
        "n_lloyd_iter": 0,
        "server_data": data.server_data,
        "random_state": 0,
    }
    backend = example["FlowerBackend"](FakeGrid(example["client_app"], n_nodes=5))
    remote = FedDPKMeans(4, backend=backend, **settings).fit(None)
    near = FedDPKMeans(4, **settings).fit(data.data, groups=data.groups)
    np.testing.assert_allclose(remote.init_centers_, near.init_centers_, rtol=1e-9)


def test_a_node_that_fails_is_reported(example):
    grid = FakeGrid(example["client_app"], n_nodes=5, broken={3})
    model = FedDPKMeans(
        4,
        server_data=example["federated_data"]().server_data,
        backend=example["FlowerBackend"](grid),
    )
    with pytest.raises(RuntimeError, match=r"failed in step 'subspace': disk full"):
        model.fit(None)
    assert not hasattr(model, "cluster_centers_")


# A process of its own: ray and pytest's workers do not go well together. The call of Flower's
# simulation is in one place, the function `simulate` of the example.
SIMULATION = """
import runpy, sys
import numpy as np

names = runpy.run_path(sys.argv[1])
model = names["simulate"]()
np.savez(sys.argv[2], centers=model.cluster_centers_, spent=model.privacy_spent_)
"""


def test_simulation_with_five_nodes_gives_the_centres_of_the_local_fit(tmp_path, local):
    pytest.importorskip("ray")
    result = tmp_path / "result.npz"
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SIMULATION, str(EXAMPLE), str(result)],
        env=os.environ | QUIET | {"PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with np.load(result) as federated:
        np.testing.assert_allclose(federated["centers"], local.cluster_centers_, rtol=1e-9)
        assert tuple(federated["spent"]) == local.privacy_spent_
