"""
Three methods in three minutes
==============================

Real data, each method in a :class:`~sklearn.pipeline.Pipeline`, and beside each the plain
scikit-learn alternative:

* a photograph with one pixel in ten overwritten: :class:`~skicml.decomposition.OPSA`
  against :class:`~sklearn.decomposition.PCA`, the number of components chosen by
  :class:`~sklearn.model_selection.GridSearchCV`;
* handwritten digits described by six sets of features that arrive one after another:
  :class:`~skicml.cluster.DSVC` against :class:`~sklearn.cluster.KMeans`;
* the palette of a photograph whose pixels are private:
  :class:`~skicml.cluster.FedDPKMeans` against :class:`~sklearn.cluster.KMeans`.
"""

import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.callback import ProgressBar
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_image
from sklearn.decomposition import PCA
from sklearn.metrics import pairwise_distances_argmin
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, minmax_scale

from skicml.cluster import DSVC, FedDPKMeans
from skicml.datasets import load_multiple_features
from skicml.decomposition import OPSA
from skicml.metrics import clustering_accuracy_score

# The steps before ours have no long loop to report, and say so.
warnings.filterwarnings("ignore", message="The estimator .* does not support callbacks")

table = []


def keep(task, metric, ours, ours_value, plain, plain_value):
    """Keep one row of the table at the end."""
    table.append(
        f"{task:<28} {metric:<14} {ours:<12} {ours_value:>7.3f}   {plain:<18} {plain_value:>7.3f}"
    )


started = time.perf_counter()

# %%
# A photograph with gross errors
# ------------------------------
# Ten per cent of the pixels are overwritten with black or white. The photograph is nearly of low
# rank, the errors are sparse, and OPSA takes the two apart without knowing the rank. The number
# of components is chosen by the reconstruction of the pixels in held-out rows: its score is a
# median, which gross errors do not move.


def to_unit_range(X):
    """Grey levels from 0..255 to 0..1."""
    return X / 255


photograph = load_sample_image("china.jpg")[::2, ::2].mean(axis=2)
rng = np.random.RandomState(0)
overwritten = rng.uniform(size=photograph.shape) < 0.1
corrupted = np.where(overwritten, rng.choice([0, 255], size=photograph.shape), photograph)

search = GridSearchCV(
    make_pipeline(FunctionTransformer(to_unit_range), OPSA(random_state=0)),
    {"opsa__n_components": [10, 20, 40]},
    cv=3,
)
search.set_callbacks(ProgressBar()).fit(corrupted)
opsa = search.best_estimator_.named_steps["opsa"]
pca = PCA(opsa.n_components_, random_state=0).fit(corrupted / 255)
by_pca = pca.inverse_transform(pca.transform(corrupted / 255))


def error(reconstruction):
    """Root mean square error against the clean photograph, grey levels in 0..1."""
    return np.sqrt(np.mean((reconstruction - photograph / 255) ** 2))


keep(
    "photograph, 10% overwritten", "RMS error", "OPSA", error(opsa.low_rank_), "PCA", error(by_pca)
)

# %%
# Digits, one view after another
# ------------------------------
# Six sets of features describe the same 2000 digits. DSVC takes them in as a stream: after each
# view it knows the clusters so far, and the raw view is gone. KMeans sees all of them at once.

digits = load_multiple_features()
stream = make_pipeline(MinMaxScaler(), DSVC(10, views=digits.views, random_state=0))
stream.set_callbacks(ProgressBar()).fit(digits.data)
dsvc = stream.named_steps["dsvc"]
after_view = [clustering_accuracy_score(digits.target, y) for y in dsvc.labels_per_view_]

weights = np.repeat(1 / np.sqrt(digits.views), digits.views)
static = KMeans(10, n_init=10, random_state=0).fit_predict(minmax_scale(digits.data) * weights)
keep(
    "digits, six views",
    "accuracy",
    "DSVC",
    after_view[-1],
    "KMeans (all views)",
    clustering_accuracy_score(digits.target, static),
)

# %%
# A private palette
# -----------------
# The pixels of a photograph are private, those of another one are public. FedDPKMeans finds 16
# colours with a guarantee of (1, 1e-6)-differential privacy for every pixel. The scaling by 255
# needs no look at the data, so it leaks nothing.

private = load_sample_image("china.jpg")[::2, ::2].reshape(-1, 3).astype(float)
public = load_sample_image("flower.jpg")[::4, ::4].reshape(-1, 3) / 255
palette = make_pipeline(
    FunctionTransformer(to_unit_range),
    FedDPKMeans(16, epsilon=1.0, server_data=public, clip_norm=np.sqrt(3), random_state=0),
)
palette.set_callbacks(ProgressBar()).fit(private)
colours = palette.named_steps["feddpkmeans"].cluster_centers_
not_private = KMeans(16, n_init=3, random_state=0).fit(private / 255)


def colour_error(centers):
    """Root mean square distance of a pixel to its colour."""
    nearest = centers[pairwise_distances_argmin(private / 255, centers)]
    return np.sqrt(np.mean((nearest - private / 255) ** 2))


keep(
    "palette of 16 colours",
    "RMS error",
    "FedDPKMeans",
    colour_error(colours),
    "KMeans, no privacy",
    colour_error(not_private.cluster_centers_),
)

# %%
# What came out
# -------------

print(f"{'data':<28} {'metric':<14} {'skicml':<12} {'':>7}   {'scikit-learn':<18}")
print("\n".join(table))

shape = (*load_sample_image("china.jpg")[::2, ::2].shape[:2], 3)
recoloured = np.clip(colours, 0, 1)[palette.predict(private)].reshape(shape)

figure, axes = plt.subplots(2, 3, figsize=(12, 6.2), layout="constrained")
for axis, picture, title in [
    (axes[0, 0], corrupted / 255, "overwritten pixels"),
    (axes[0, 1], by_pca, f"PCA, {pca.n_components_} components"),
    (axes[0, 2], opsa.low_rank_, f"OPSA, {opsa.n_components_} components"),
]:
    axis.imshow(picture, cmap="gray", vmin=0, vmax=1)
    axis.set_title(title)
    axis.set_axis_off()
axes[1, 0].plot(range(1, 7), after_view, "o-", label="DSVC")
axes[1, 0].axhline(
    clustering_accuracy_score(digits.target, static), color="grey", label="KMeans on all views"
)
axes[1, 0].set_xticks(range(1, 7), digits.view_names)
axes[1, 0].set(title="digits: views arrive from left to right", ylabel="accuracy")
axes[1, 0].legend()
axes[1, 1].imshow(private.reshape(shape) / 255)
axes[1, 1].set_title("private pixels")
axes[1, 2].imshow(recoloured)
axes[1, 2].set_title("16 colours, epsilon = 1")
axes[1, 1].set_axis_off()
axes[1, 2].set_axis_off()

figure_path = Path("quickstart.png").resolve()
figure.savefig(figure_path, dpi=100)
print(f"\nfigure: {figure_path}")
print(f"time: {time.perf_counter() - started:.0f} s")
