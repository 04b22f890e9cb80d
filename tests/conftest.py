import os

import pytest
import threadpoolctl
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Two test processes on two cores: each keeps to one thread, so that sums are reproducible."""
    torch.set_num_threads(1)
    with threadpoolctl.threadpool_limits(1):
        yield


@pytest.fixture(scope="session")
def data_folder():
    """The folder of larger real data sets, or a skip that says how to have it."""
    folder = os.environ.get("SKICML_DATA")
    if not folder:
        pytest.skip("set SKICML_DATA to the folder of the larger real data sets")
    return folder
