"""
===================
Digits out of noise
===================

A diffusion model draws a digit by taking noise off, step by step. Here ten digits are drawn at
once, each given its label, and the way from noise to digit is looked at. Then the labels are
exaggerated, and digits of which a half is hidden are completed, each in several ways.
"""

# %%
# Training
# --------
# The labels are the condition: one network learns all ten digits, and what digits are like in
# general. ``network="mlp"`` treats the pixels as columns, which is enough for 8 x 8 of them and
# takes half a minute.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from skicml.generative import DiffusionModel
from skicml.metrics import memorization_ratio

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

model = DiffusionModel(network="mlp", image_shape=(8, 8), random_state=0)
model.fit(X_train, y_train)

# %%
# From noise to digit
# -------------------
# ``return_trajectory`` hands back every point on the way. Columns are the labels asked for, time
# runs downwards. The first third of the steps looks like noise still, but decides on the rough
# shape; the last steps only sharpen it.

labels = np.arange(10)
trajectory = model.sample(10, labels, n_steps=40, return_trajectory=True, random_state=4)


def show(ax, pixels):
    ax.imshow(pixels.reshape(8, 8), cmap="magma", vmin=-1, vmax=17)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


shown = [0, 12, 20, 25, 29, 33, 36, 40]
fig, axes = plt.subplots(len(shown), 10, figsize=(9, 7.4))
for row, step in zip(axes, shown):
    row[0].set_ylabel(f"step {step}", rotation=0, ha="right", va="center")
    for ax, pixels in zip(row, trajectory[step]):
        show(ax, pixels)
for ax, label in zip(axes[0], labels):
    ax.set_title(label)
fig.subplots_adjust(wspace=0.06, hspace=0.06, left=0.1, right=0.99, bottom=0.01, top=0.95)

# %%
# More typical than typical
# -------------------------
# ``guidance_scale`` exaggerates what the label changes. From the same noise, a little of it makes
# the digits cleaner; a lot of it overshoots into glaring contrasts. The classifier judges how
# typical they are, the standard deviation of the pixels how varied.

noise = np.random.RandomState(0).standard_normal((1000, 64))
many_labels = np.repeat([3, 5, 8, 9], 250)
scales = (0.0, 0.5, 3.0)
judge = MLPClassifier((64,), max_iter=500, random_state=0).fit(X_train / 16, y_train)
fig, axes = plt.subplots(len(scales), 12, figsize=(9, 2.9))
for row, scale in zip(axes, scales):
    drawn = model.sample(1000, many_labels, guidance_scale=scale, x_init=noise, n_steps=20)
    spread = np.mean([drawn[many_labels == label].std(axis=0).mean() for label in (3, 5, 8, 9)])
    row[0].set_ylabel(f"w = {scale:g}", rotation=0, ha="right", va="center")
    for ax, pixels in zip(row, drawn[[0, 1, 2, 250, 251, 252, 500, 501, 502, 750, 751, 752]]):
        show(ax, pixels)
    agreement = judge.score(drawn / 16, many_labels)
    print(f"guidance {scale}: as asked for {agreement:.3f}, deviation within a class {spread:.2f}")
fig.subplots_adjust(wspace=0.06, hspace=0.06, left=0.08, right=0.99, bottom=0.01, top=0.99)

# %%
# New, or copied?
# ---------------
# A generator that has learnt its training rows by heart would draw well, too. Its samples would
# lie closer to those rows than to digits that it has not seen.

drawn = model.sample(500, y_test[np.arange(500) % len(y_test)], n_steps=20)
print(f"memorisation ratio {memorization_ratio(drawn, X_train, X_test):.2f}, 0 for copies")

# %%
# The other half
# --------------
# The lower half of unseen digits is hidden. ``impute`` draws it, given the upper half but not the
# label: where that leaves it open which digit it was, the draws differ.

chosen = np.flatnonzero(np.isin(y_test, [1, 2, 3, 7, 8, 9]))[[0, 1, 3, 4, 6, 8]]
holes = X_test[chosen].copy()
holes[:, 32:] = np.nan
draws = [model.impute(holes, random_state=seed) for seed in range(6)]

fig, axes = plt.subplots(len(chosen), 8, figsize=(7.4, 5.6))
for i, row in enumerate(axes):
    for ax, pixels in zip(row, [X_test[chosen[i]], holes[i], *(draw[i] for draw in draws)]):
        show(ax, pixels)
        ax.set_facecolor("0.85")  # hidden
axes[0, 0].set_title("truth")
axes[0, 1].set_title("given")
axes[0, 4].set_title("drawn")
fig.subplots_adjust(wspace=0.06, hspace=0.06, left=0.02, right=0.98, bottom=0.01, top=0.94)
plt.show()
