"""Oracles and instances that the tests of the linear policies share."""

import numpy as np

from skicml.bandits import FAST

# the best margin over [-1, 1]^2 is .475, at (1, .25)
PHI, BEST = np.array([[0.8, 0.0], [0.6, -0.5], [0.3, 0.7]]), 0.475


class Oracle:
    """``Phi a + constants`` with Gaussian noise; counts its calls and can be pickled."""

    def __init__(self, Phi, noise_std=0.1, seed=0, constants=0.0):
        self.Phi = np.asarray(Phi)
        self.noise_std = noise_std
        self.constants = constants
        self.rng = np.random.RandomState(seed)
        self.n_calls = 0

    def __call__(self, action):
        self.n_calls += 1
        noise = self.noise_std * self.rng.standard_normal(len(self.Phi))
        return self.Phi @ action + self.constants + noise


def margins(Phi, actions):
    """Smallest entry of ``Phi a`` of every action a."""
    return (np.atleast_2d(actions) @ np.transpose(Phi)).min(axis=1)


def unit_corner_box(d):
    """Bounds of the box ``[-1, 1]^d / sqrt(d)``, whose corners have norm 1."""
    corner = np.full(d, 1 / np.sqrt(d))
    return -corner, corner


def make_fast(**parameters):
    return FAST(**{"bounds": ([-1, -1], [1, 1]), "noise_std": 0.1, "random_state": 0, **parameters})
