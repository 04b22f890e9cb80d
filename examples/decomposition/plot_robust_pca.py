"""
Repair a photograph with robust PCA
===================================

A photograph is nearly a matrix of low rank. Here one pixel in ten is overwritten with a random
colour, and scratches leave gaps. :class:`~skicml.decomposition.OPSA` splits what is left into a
low-rank part and a sparse part of errors, and fills the gaps, while
:class:`~sklearn.decomposition.PCA`, which minimises squared errors, spreads the wrong pixels over
the whole picture. With the sparse part one can do better than with the low-rank part alone: it
tells which pixels to replace, and the others keep all their detail.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.decomposition import PCA

from skicml.decomposition import OPSA

N_COMPONENTS = 40

# %%
# The damage
# ----------
# The three colours stand side by side in one table of 214 rows. Scratches are NaN.

photograph = load_sample_image("china.jpg")[::2, ::2] / 255
height, width, _ = photograph.shape

rng = np.random.RandomState(0)
overwritten = rng.uniform(size=(height, width)) < 0.1
damaged = photograph.copy()
damaged[overwritten] = rng.uniform(size=(overwritten.sum(), 3))
columns = np.arange(width)
for start, slope in ((20, 0.5), (150, -0.3), (90, 0.1)):
    rows = (start + slope * columns + 6 * np.sin(columns / 25)).astype(int)
    for thickness in range(3):
        inside = (rows + thickness >= 0) & (rows + thickness < height)
        damaged[rows[inside] + thickness, columns[inside]] = np.nan


def as_table(picture):
    """Colours side by side."""
    return picture.transpose(0, 2, 1).reshape(height, 3 * width)


def as_picture(table):
    return table.reshape(height, 3, width).transpose(0, 2, 1)


X = as_table(damaged)

# %%
# Two decompositions
# ------------------
# PCA takes no gaps, so it gets the mean of the column there.

opsa = OPSA(N_COMPONENTS, random_state=0).fit(X)
filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
pca = PCA(N_COMPONENTS, random_state=0).fit(filled)
by_pca = pca.inverse_transform(pca.transform(filled))

# %%
# A pixel far from the low-rank part in any colour, and every gap, is replaced by it; the others
# are kept.

far = (np.abs(as_picture(opsa.sparse_)) > 0.25).any(axis=2)
wrong = np.isnan(X) | as_table(np.repeat(far[:, :, None], 3, axis=2))
repaired = np.where(wrong, opsa.low_rank_, X)


def error(table):
    """Root mean square error against the undamaged photograph."""
    return np.sqrt(np.mean((table - as_table(photograph)) ** 2))


print(f"PCA            {error(by_pca):.3f}")
print(f"OPSA           {error(opsa.low_rank_):.3f}   rank {opsa.n_components_}")
print(f"OPSA, repaired {error(repaired):.3f}   {wrong.mean():.0%} of the cells replaced")

# %%

panels = [
    ("Photograph", photograph),
    ("Damaged (scratches: NaN)", np.nan_to_num(damaged, nan=1.0)),
    (f"PCA, error {error(by_pca):.3f}", as_picture(by_pca)),
    (f"OPSA, low-rank part, error {error(opsa.low_rank_):.3f}", as_picture(opsa.low_rank_)),
    ("OPSA, sparse part (absolute)", as_picture(np.abs(opsa.sparse_))),
    (f"Repaired, error {error(repaired):.3f}", as_picture(repaired)),
]
figure, axes = plt.subplots(3, 2, figsize=(9, 9.4), layout="constrained")
for ax, (title, picture) in zip(axes.flat, panels):
    ax.imshow(picture.clip(0, 1))
    ax.set_title(title)
    ax.set_axis_off()
plt.show()
