"""
==============================================
Find the views that know, then cluster by them
==============================================

Two thousand handwritten digits are described by five sets of features from five files. Nobody
noticed that two of the files were sorted in another order: their views describe other digits.
They still agree with each other, so methods that trust agreeing views can be led astray.

A few labels find them out. :class:`~skicml.information.LSMI` tells what each view knows about the
label that the others know, too, what it alone knows, and what it knows not; then
:class:`~skicml.cluster.BACDL` and :class:`~skicml.cluster.DSVC` cluster all rows by the views
that are left. All steps sit in one Pipeline, for the views are columns of one X.
"""

# %%
# Five views, two of them wrong
# -----------------------------
# The names of the columns say which view they belong to. One row in five has a label; -1 stands
# for none, as elsewhere in scikit-learn.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data

from skicml.cluster import BACDL, DSVC
from skicml.datasets import load_multiple_features
from skicml.information import LSMI, KnifeDensity
from skicml.metrics import clustering_accuracy_score

rng = np.random.RandomState(0)
digits = load_multiple_features(as_frame=True)
names = ["fac", "fou", "mor", "pix", "zer"]
columns = {name: [c for c in digits.data if c.startswith(f"{name}__")] for name in names}
X = digits.data[[column for name in names for column in columns[name]]].copy()
order = rng.permutation(len(X))
for name in ("fac", "pix"):
    X[columns[name]] = X[columns[name]].to_numpy()[order]

y = np.full(len(X), -1)
labelled = rng.permutation(len(X))[:400]
y[labelled] = digits.target[labelled]

# %%
# One view against the others
# ---------------------------
# A feature selector of scikit-learn needs a mask of columns. Ours takes each view as view 1 and
# all others as view 2, and keeps it if it tells at least a tenth of the entropy of the label.
# With ``cv=3`` each row is judged by classifiers that have not seen it; that is what makes
# the information of a wrong view come out at zero or below, and not above.


class InformativeViews(SelectorMixin, BaseEstimator):
    """Keep the views that know something about the label, by a few labelled rows."""

    def __init__(self, lsmi, min_share=0.1):
        self.lsmi = lsmi
        self.min_share = min_share

    def fit(self, X, y):
        prefixes = np.array([name.split("__")[0] for name in X.columns])
        known = np.flatnonzero(y != -1)
        rows, y = validate_data(self, X).take(known, axis=0), y[known]
        self.interactions_, self.support_ = {}, np.zeros(len(prefixes), dtype=bool)
        for name in dict.fromkeys(prefixes):
            view = prefixes == name
            lsmi = clone(self.lsmi).set_params(views=[np.flatnonzero(view), np.flatnonzero(~view)])
            lsmi.fit(rows, y)
            self.interactions_[name] = lsmi.mean_interactions_
            told = lsmi.mean_interactions_[:2].sum()  # r + u1
            entropy = -lsmi.class_log_prior_[np.searchsorted(lsmi.classes_, y)].mean()
            self.support_ |= view & (told > self.min_share * entropy)
        return self

    def _get_support_mask(self):
        return self.support_


# %%
# One Pipeline
# ------------
# The ColumnTransformer reduces each view by itself and names its columns ``<view>__<component>``,
# the selector drops columns, and ``views="auto"`` finds the blocks that are left.

reduce_views = ColumnTransformer(
    [(name, make_pipeline(StandardScaler(), PCA(16)), columns[name]) for name in names]
)
reduce_views.set_params(mor=make_pipeline(StandardScaler(), PCA()))  # it has six columns only
lsmi = LSMI(
    classifier=LogisticRegression(C=0.1),
    density=KnifeDensity(max_epochs=30),
    cv=3,
    random_state=0,
)
pipeline = make_pipeline(
    reduce_views, InformativeViews(lsmi), BACDL(10, views="auto", tol=1e-2, random_state=0)
)
pipeline.set_output(transform="pandas").fit(X, y)

# %%
# The other methods get the same rows, once with all views and once with those that passed.
# KMeans knows of no views and takes what it gets.

reduced, selected = pipeline[0].transform(X), pipeline[:-1].transform(X)
clusterers = {
    "KMeans": KMeans(10, n_init=10, random_state=0),
    "BACDL": clone(pipeline[-1]),
    "DSVC": DSVC(10, views="auto", random_state=0),
}
accuracy = {
    name: [
        clustering_accuracy_score(digits.target, clusterer.fit_predict(views))
        for views in (reduced, selected)
    ]
    for name, clusterer in clusterers.items()
}

# %%
# What each view carries
# ----------------------
# Right views share nearly all they know with the others. The two that belong to other digits share
# nothing and know nothing: what their classifiers say is worse than the frequencies of the classes.
# KMeans and BACDL need them to be gone. DSVC weighs its views by how well they agree with the
# others, and needs it less here.

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
found = pipeline[1].interactions_
means = np.array(list(found.values()))
rows = np.arange(len(found))
axes[0].barh(rows, means[:, 0], color="tab:purple", label="known to the others, too")
axes[0].barh(rows, means[:, 1], left=means[:, 0], color="tab:blue", label="known to this view only")
for row, told in zip(rows, means[:, :2].sum(axis=1)):
    axes[0].text(max(told, 0) + 0.05, row, f"{told:.2f}", va="center")
axes[0].axvline(np.log(10), color="black", ls=":")
axes[0].text(np.log(10) - 0.05, 0, "all there\nis to know", ha="right", va="center")
axes[0].axvline(0, color="black", lw=0.8)
axes[0].set_yticks(rows, found)
axes[0].set(xlim=(-0.4, 2.4), ylim=(6, -0.6))
axes[0].set(xlabel="told about the digit (nats)", title="Views")
axes[0].legend(frameon=False, loc="lower right")

positions = np.arange(len(accuracy))
for j, (label, color) in enumerate([("all views", "0.7"), ("informative views", "tab:green")]):
    heights = [pair[j] for pair in accuracy.values()]
    bars = axes[1].bar(positions + 0.4 * j, heights, 0.4, color=color, label=label)
    axes[1].bar_label(bars, fmt="%.2f")
axes[1].set_xticks(positions + 0.2, accuracy)
axes[1].set(ylim=(0, 1.15), ylabel="clustering accuracy, all rows", title="Clusterings")
axes[1].legend(frameon=False, ncols=2, loc="upper center")
plt.show()
