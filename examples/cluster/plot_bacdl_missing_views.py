"""
Clustering when whole views are missing
=======================================

Handwritten digits are described by four views: pixels, Fourier coefficients, gradients and
projections. For many of them, one or several views were never recorded. Filling in column means
pulls such digits to the middle of everything; leaving them out wastes most of the data.
:class:`~skicml.cluster.BACDL` uses every view that is there and lets the agreement of the views
stand in for those that are not.
"""

# %%
# Data with missing views
# -----------------------
# A view that is missing in a row is a block of NaN. At a rate of 50 %, only one digit in sixteen
# still has all four views.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import minmax_scale

from skicml.cluster import BACDL
from skicml.datasets import load_multiview_digits, mask_views
from skicml.metrics import clustering_accuracy_score, match_labels

digits = load_multiview_digits()
X, y, views = digits.data, digits.target, digits.views


def imputed_kmeans(X):
    """Baseline: scaled views side by side, column means for what is missing, k-means."""
    scaled = minmax_scale(X) / np.sqrt(np.repeat(views, views))
    filled = np.where(np.isnan(scaled), np.nanmean(scaled, axis=0), scaled)
    return KMeans(10, n_init=10, random_state=0).fit_predict(filled)


# %%
# The more is missing, the larger the difference
# ----------------------------------------------
# With complete views, plain k-means on all columns is as good. Then its accuracy falls fast.
# Each point is the mean of two draws of missing views.

rates = [0, 0.15, 0.3, 0.45, 0.6, 0.7]


def accuracies(rate, seed):
    incomplete = mask_views(X, views, rate=rate, random_state=seed)
    bacdl = BACDL(10, views=views, tol=5e-3, random_state=seed).fit(incomplete)
    labelings = (bacdl.labels_, imputed_kmeans(incomplete))
    return [clustering_accuracy_score(y, labels) for labels in labelings]


curves = np.mean([[accuracies(rate, seed) for rate in rates] for seed in range(2)], axis=0)

# %%
# What the fit knows about digits whose pixels it never saw
# ---------------------------------------------------------
# ``memberships_`` holds, for each view, the clusters of *all* rows: where the view is missing the
# consensus with the other views fills them in. Multiplied with the clusters of the pixel view,
# made of shared and specific feature clusters, they draw a picture of a digit whose pixels were
# missing in fit.

incomplete = mask_views(X, views, rate=0.5, random_state=0)
bacdl = BACDL(10, views=views, tol=5e-3, random_state=0).fit(incomplete)
shared, specific = (parts[0] for parts in bacdl.folded_components())
pixel_clusters = bacdl.association_.T @ np.vstack([shared, specific])

unseen = np.flatnonzero(np.isnan(incomplete[:, 0]))
one_of_each = np.array([unseen[y[unseen] == digit][1] for digit in range(10)])
drawn = bacdl.memberships_[0][one_of_each] @ pixel_clusters

# %%
# The first row of pictures shows the hidden pixels, the second what the other views make of
# them. The bars are the accuracies by the number of views that a digit was left with.

n_left = sum(~np.isnan(incomplete[:, block[0]]) for block in bacdl.views_)


def accuracy_by_views(labels):
    """Share of digits in the cluster matched to their class, for 1, 2, 3 and 4 views left."""
    cluster_of_class = match_labels(contingency_matrix(y, labels))
    correct = labels == cluster_of_class[y]
    return [correct[n_left == n].mean() for n in range(1, 5)]


names = ["BACDL", "column means + k-means"]
by_views = [accuracy_by_views(labels) for labels in (bacdl.labels_, imputed_kmeans(incomplete))]

fig = plt.figure(figsize=(12, 7), layout="constrained")
top, bottom = fig.subfigures(2, 1, height_ratios=[1.7, 1])
left, right = top.subplots(1, 2)
for name, curve, style in zip(names, curves.T, ["o-", "s--"]):
    left.plot(rates, curve, style, lw=2, label=name)
left.set(ylim=(0, 1), xlabel="share of missing views", ylabel="accuracy", title="Accuracy")
left.legend(loc="lower left")
for offset, name, values in zip((-0.2, 0.2), names, by_views):
    right.bar(np.arange(1, 5) + offset, values, width=0.4, label=name)
right.set(ylim=(0, 1), xticks=range(1, 5), xlabel="views that a digit was left with")
right.set_title("Half of the views missing")
right.legend(loc="upper left")

for row, pictures in enumerate([X[one_of_each][:, :64], drawn]):
    for column, picture in enumerate(pictures):
        ax = bottom.add_subplot(2, 10, 10 * row + column + 1)
        ax.imshow(picture.reshape(8, 8), cmap="gray_r")
        ax.set(xticks=[], yticks=[])
bottom.suptitle("Digits without pixels: the truth, and what the other views say")
plt.show()
