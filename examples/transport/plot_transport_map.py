"""
From a half-moon to an S-curve
==============================

Two samples of 1 000 points are matched one to one, by exact transport (``ot.emd`` of POT) and
by :class:`~skicml.transport.HiRef`, which never looks at the matrix of all distances. The lines
join the pairs. New points, here a grid, move as their nearest source does.
"""

import matplotlib.pyplot as plt
import numpy as np
import ot

from skicml.transport import HiRef

rng = np.random.RandomState(0)
n = 1000


def noisy(points):
    return points + 0.05 * rng.standard_normal(points.shape)


t, s = rng.uniform(0, np.pi, n), 3 * np.pi * (rng.uniform(size=n) - 0.5)
moon = noisy(np.c_[np.cos(t), np.sin(t) - 4])
curve = noisy(np.c_[np.sin(s), np.sign(s) * (np.cos(s) - 1)])

# %%
# The same samples, matched twice
# -------------------------------

plan = ot.emd(ot.unif(n), ot.unif(n), ot.dist(moon, curve))
exact = plan.argmax(axis=1)
hiref = HiRef().fit_pair(moon, curve)


def mean_cost(permutation):
    """Of the centred samples: the shift costs the same, however the points are matched."""
    moved = curve[permutation] - curve.mean(axis=0) - moon + moon.mean(axis=0)
    return np.mean(np.sum(moved**2, axis=1))


ratio = mean_cost(hiref.permutation_) / mean_cost(exact)
print(f"cost over the exact one: {ratio:.4f}")

# %%

x = np.linspace(-1.3, 1.3, 40)
grid = np.stack(np.meshgrid(x, x[x > -0.4] - 4 + 0.2), axis=-1).reshape(-1, 2)
grid = grid[np.abs(np.hypot(grid[:, 0], grid[:, 1] + 4) - 1) < 0.15]

figure, axes = plt.subplots(1, 3, figsize=(10, 5.5), sharey=True, layout="constrained")
hue = moon[:, 0]
for ax, permutation, title in (
    (axes[0], exact, "Exact (ot.emd)"),
    (axes[1], hiref.permutation_, f"HiRef, cost x {ratio:.4f}"),
):
    for k in range(0, n, 8):
        ax.plot(*zip(moon[k], curve[permutation[k]]), color="0.85", lw=0.6, zorder=0)
    ax.scatter(*moon.T, c=hue, s=5, cmap="viridis")
    ax.scatter(*curve[permutation].T, c=hue, s=5, cmap="viridis")
    ax.set_title(title)

moved = hiref.transform(grid)
hue = grid[:, 0]
axes[2].scatter(*curve.T, color="0.85", s=5)
axes[2].scatter(*grid.T, c=hue, s=9, cmap="viridis")
axes[2].scatter(*moved.T, c=hue, s=9, cmap="viridis")
axes[2].set_title("HiRef.transform of new points")
for ax in axes:
    ax.set_aspect("equal")
plt.show()
