"""
Views that arrive one after another
===================================

Two thousand handwritten digits are described by six sets of features. They arrive one after
another, the weakest first, and nobody keeps the raw data of those that came before. One of them is
broken: its rows were mixed up. :class:`~skicml.cluster.DSVC` takes in view after view, notices the
broken one, and repairs the mistakes that the weak first views made.
"""

# %%
# The stream
# ----------
# Rows are matched by position, so permuting the rows of the view ``kar`` makes it useless.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.preprocessing import minmax_scale

from skicml.cluster import DSVC
from skicml.datasets import load_multiple_features
from skicml.metrics import clustering_accuracy_score, match_labels

digits = load_multiple_features()
y = digits.target
views = dict(zip(digits.view_names, np.split(digits.data, np.cumsum(digits.views)[:-1], axis=1)))
views["kar"] = np.random.default_rng(0).permutation(views["kar"])
order = ["mor", "zer", "kar", "fou", "pix", "fac"]

# %%
# Each call of ``partial_fit`` is one view. Fewer epochs than the default are enough here.

stream = DSVC(n_clusters=10, pretrain_epochs=20, max_epochs=15, random_state=0)
for name in order:
    stream.partial_fit(views[name])

# %%
# A baseline that can be streamed, too: k-means on each view, its clusters matched to the votes of
# the views before, and the majority wins.

votes = np.zeros((len(y), 10))
votes_per_view, alone = [], []
for name in order:
    labels = KMeans(10, n_init=5, random_state=0).fit_predict(minmax_scale(views[name]))
    vote = np.eye(10)[labels]
    votes += vote[:, match_labels(votes.T @ vote)]
    votes_per_view.append(votes.argmax(axis=1))
    alone.append(labels)


def accuracies(labelings):
    return [clustering_accuracy_score(y, labels) for labels in labelings]


# %%
# What the stream knows after each view
# -------------------------------------
# On the left, the share of samples in the right cluster. In the middle, the weight that each view
# has in the end, and how well it agreed with the history when it came: both single out the broken
# view. On the right, every row is one digit, sorted by its class, and every column a view: the
# colour is the cluster after that view. Cluster numbers stay with their clusters over the stream,
# so a change of colour is a sample that changes its cluster. Six and nine are hard to tell apart
# until the last view comes.

labels_per_view = np.array(stream.labels_per_view_)
ticks = np.arange(len(order))
fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.5), width_ratios=[1.1, 1, 1], layout="constrained"
)
left.plot(ticks, accuracies(stream.labels_per_view_), "o-", lw=2, label="DSVC")
left.plot(ticks, accuracies(votes_per_view), "s--", label="late fusion of k-means")
left.plot(ticks, accuracies(alone), "x", color="gray", label="k-means on that view alone")
left.set(ylim=(0, 1.25), ylabel="clustering accuracy", title="Accuracy after each view")
left.set_yticks(np.linspace(0, 1, 6))
left.legend(loc="upper left")

middle.bar(ticks - 0.2, stream.view_weights_, width=0.4, label="view_weights_")
middle.bar(ticks[1:] + 0.2, stream.view_agreement_[1:], width=0.4, label="view_agreement_")
middle.set(ylim=(0, 1.25), title="Trust in each view")
middle.legend(loc="upper left", ncols=2)

rows = np.lexsort((stream.labels_, y))
right.imshow(labels_per_view[:, rows].T, aspect="auto", cmap="tab10", interpolation="nearest")
right.set(yticks=100 + 200 * np.arange(10), yticklabels=np.arange(10), ylabel="digit")
right.set_title("Cluster of each sample")

names = [f"{name}\n(broken)" if name == "kar" else name for name in order]
for ax in (left, middle, right):
    ax.set_xticks(ticks, names)
    ax.set_xlabel("arriving view")
plt.show()

# %%
# New samples need all views, side by side in the order of arrival.

X = np.hstack([views[name] for name in order])
print(stream.predict(X[:5]), stream.labels_[:5])
