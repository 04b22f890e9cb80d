"""Randomness that is reproducible and leaves the global generators alone."""

import threading
from contextlib import contextmanager

import torch
from sklearn.utils import check_random_state

# torch initialises parameters from the one global generator of the process: two threads that
# initialise at the same time would read each other's stream.
_INIT_LOCK = threading.RLock()  # a block may stand within another


def draw_seed(random_state):
    """Draw an int seed for torch from a scikit-learn `random_state`."""
    return int(check_random_state(random_state).randint(2**31 - 1))


@contextmanager
def seeded_init(seed):
    """Initialise modules inside this block: same seed, same parameters.

    The state of torch's global CPU generator is put back at the end. Modules are initialised
    on the CPU and moved afterwards, so no other generator is involved.
    """
    with _INIT_LOCK, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
