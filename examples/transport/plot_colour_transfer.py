"""
Give a photograph the colours of another one
============================================

The pixels of a photograph are a cloud of points in the space of colours. Moving the cloud of one
photograph onto that of another one, by the cheapest one-to-one matching, repaints the first in the
colours of the second while neighbouring shades stay neighbours. Each picture has 273 280 pixels: a
cost matrix of all pairs would take 300 GB. :class:`~skicml.transport.HiRef` needs a few megabytes
and some seconds.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from skicml.transport import HiRef

china = load_sample_image("china.jpg") / 255
flower = load_sample_image("flower.jpg") / 255
shape = china.shape

# %%
# One matching, two new pictures
# ------------------------------
# Many pixels share a colour, and equal colours may have to go to different ones, or the colours
# of the other picture would not be used up. With the whole cloud that was fitted, every pixel gets
# its own partner; a hair of noise makes no colour equal to another for the grouping.

rng = np.random.RandomState(0)


def cloud(picture):
    """Colours of all pixels, told apart by less than the eye can see."""
    return picture.reshape(-1, 3) + rng.uniform(-0.5, 0.5, (picture.size // 3, 3)) / 255


hiref = HiRef().fit_pair(cloud(china), cloud(flower))
china_repainted = hiref.transform(hiref.X_source_).reshape(shape)
flower_repainted = hiref.inverse_transform(hiref.X_target_).reshape(shape)

print(f"pairs             {len(hiref.permutation_)}")
print(f"mean distance     {hiref.wasserstein_:.4f}")
print(f"levels of halving {len(hiref.rank_schedule_)}")

# %%
# Matching the means and covariances of the colours, the usual quick way, is a linear map. It
# cannot turn a cloud of one shape into one of another shape, and leaves the range of colours.


def linear_map(source, target):
    """The linear optimal map between Gaussians with the moments of the two clouds."""

    def root(matrix, power):
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * values**power) @ vectors.T

    A, B = np.cov(source.T), np.cov(target.T)
    half, inverse = root(A, 0.5), root(A, -0.5)
    M = inverse @ root(half @ B @ half, 0.5) @ inverse
    return (source - source.mean(axis=0)) @ M + target.mean(axis=0)


china_linear = linear_map(china.reshape(-1, 3), flower.reshape(-1, 3)).reshape(shape)

# %%

panels = [
    ("Before", china),
    ("Before", flower),
    ("After: the colours of the flower", china_repainted),
    ("After: the colours of the palace", flower_repainted),
    ("A linear map for comparison", china_linear),
]
figure, axes = plt.subplots(3, 2, figsize=(9, 9.6), layout="constrained")
for ax, (title, picture) in zip(axes.flat, panels):
    ax.imshow(picture.clip(0, 1))
    ax.set_title(title)
    ax.set_axis_off()

ax = axes[2, 1]
some = rng.choice(len(hiref.X_source_), 1500, replace=False)
before = hiref.X_source_[some].clip(0, 1)
after = hiref.X_target_[hiref.permutation_[some]].clip(0, 1)
for here, there in zip(before[:300], after[:300]):
    ax.plot(*zip(here[[0, 2]], there[[0, 2]]), color="0.8", lw=0.5, zorder=0)
ax.scatter(before[:, 0], before[:, 2], c=before, s=6, marker="s", label="palace")
ax.scatter(after[:, 0], after[:, 2], c=after, s=6, label="flower")
ax.set(title="Some of the pairs", xlabel="red", ylabel="blue")
plt.show()

# %%
# A level for a level
# -------------------
# The cost of the coupling that spreads every pixel over the whole partner block falls with each
# halving, and its last value is that of the matching itself.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogy(hiref.level_costs_, marker="o")
ax.set(xlabel="level", ylabel="mean squared distance", title="Refinement")
plt.show()
