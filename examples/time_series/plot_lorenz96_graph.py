"""
==============================================
Which sensor drives which: CUTS+ on Lorenz-96
==============================================

Twelve sensors around a ring, and nothing is known but what they recorded. Which of them drive
which? Correlation cannot say: it is symmetric, and everything that shares a cause is correlated.
:class:`~skicml.time_series.CUTSPlus` learns to forecast each sensor through a graph whose edges
cost something, and keeps the edges that pay.

The Lorenz-96 system is a good judge, for its graph is known: sensor i listens to i-2, i-1, itself
and i+1, through products such as :math:`x_{i+1} x_{i-1}`.
"""

# %%
# The recording
# -------------
# Waves travel around the ring, but chaotically.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from skicml.datasets import make_lorenz96, make_var_process
from skicml.time_series import CUTSPlus

X, graph = make_lorenz96(2500, 12, random_state=0)
X_train, X_test = X[:2000], X[2000:]
n_channels = X.shape[1]

fig, ax = plt.subplots(figsize=(9, 2.8), layout="constrained")
image = ax.imshow(X_train[:200].T, aspect="auto", cmap="RdBu_r", interpolation="nearest")
ax.set(xlabel="time step", ylabel="sensor", yticks=range(0, n_channels, 2))
fig.colorbar(image, label="reading")
plt.show()

# %%
# The graph
# ---------
# ``edge_probability_`` has causes in its rows and effects in its columns, the diagonal says
# whether a sensor helps to forecast itself. Beside it stands what is usually looked at first: the
# correlation of each sensor with each one a time step later. Boxes mark the true edges.

cuts = CUTSPlus(n_lags=1, batch_size=64, max_epochs=30, random_state=0).fit(X_train)

Z = (X_train - X_train.mean(axis=0)) / X_train.std(axis=0)
correlation = np.abs(Z[:-1].T @ Z[1:]) / (len(Z) - 1)


def draw_matrix(ax, scores, title, **kwargs):
    image = ax.imshow(scores, cmap="Blues", **kwargs)
    for cause, effect in np.argwhere(graph):
        corner = (effect - 0.5, cause - 0.5)
        ax.add_patch(plt.Rectangle(corner, 1, 1, fill=False, ec="tab:orange", lw=1.3))
    ax.set_title(title)
    ax.set(xlabel="effect", xticks=range(0, n_channels, 2), yticks=range(0, n_channels, 2))
    return image


def auroc(scores):
    return roc_auc_score(graph.ravel(), scores.ravel())


fig, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
draw_matrix(axes[0], graph.astype(float), "true graph")
axes[0].set_ylabel("cause")
image = draw_matrix(axes[1], correlation, f"lagged correlation\nAUROC {auroc(correlation):.2f}")
fig.colorbar(image, ax=axes[1], shrink=0.7)
image = draw_matrix(
    axes[2],
    cuts.edge_probability_,
    f"CUTS+, edge probability\nAUROC {auroc(cuts.edge_probability_):.2f}",
)
fig.colorbar(image, ax=axes[2], shrink=0.7)
plt.show()

# %%
# Which edges to believe
# ----------------------
# A ranking is good if a gap parts the true edges from the rest. Where it has one, the threshold
# does not matter much. Edges just above 0.5 deserve less trust than those far above it.

fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
bins = 25
for ax, scores, title in (
    (axes[0], correlation, "lagged correlation"),
    (axes[1], cuts.edge_probability_, "CUTS+, edge probability"),
):
    edges = np.linspace(scores.min(), scores.max(), bins)
    ax.hist(scores[~graph], edges, color="0.7", label="no edge")
    ax.hist(scores[graph], edges, color="tab:orange", alpha=0.8, label="true edge")
    ax.set(xlabel=title)
axes[1].axvline(cuts.threshold, color="black", ls=":", lw=1)
axes[1].annotate("threshold", (cuts.threshold, axes[1].get_ylim()[1]), ha="center", va="bottom")
axes[0].set_ylabel("number of pairs")
axes[0].legend(frameon=False)
plt.show()

for effect in range(3):
    drivers = np.argsort(-cuts.edge_probability_[:, effect])[:5]
    listing = ", ".join(f"{m} ({cuts.edge_probability_[m, effect]:.2f})" for m in drivers)
    print(f"sensor {effect} listens to {listing}")

# %%
# It forecasts, too
# -----------------
# The graph was learned by forecasting, so a forecast comes with it: of every row from the
# ``n_lags`` rows before it. Here on rows that were not seen in fit.

forecast = cuts.predict(X_test)
explained = 1 - ((X_test - forecast)[1:] ** 2).sum() / ((X_test - X_test.mean(axis=0)) ** 2).sum()
fig, axes = plt.subplots(2, 1, figsize=(9, 3.6), layout="constrained", sharex=True)
for channel, ax in enumerate(axes):
    ax.plot(X_test[:120, channel], color="0.4", label="recorded")
    ax.plot(np.arange(1, 120), forecast[1:120, channel], ".", color="tab:blue", label="forecast")
    ax.set_ylabel(f"sensor {channel}")
axes[0].legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
axes[0].set_title(f"{explained:.0%} of the variance explained", size=10)
axes[1].set_xlabel("time step after the end of training")
plt.show()

# %%
# When a linear model is enough
# -----------------------------
# Lorenz-96 is nonlinear, but over one short step its couplings have a linear part, so the
# coefficients of an autoregression by ridge rank these edges as well, in a thousandth of the
# time: always try that first. It is blind where the linear part is missing, as if a valve acted
# on a flow by the size of its deviation, in either direction.

rng = np.random.RandomState(0)
source, _, _ = make_var_process(1500, coef=[[[0.5]]], noise=1.0, random_state=0)
valve = source[:, 0]
flow = np.r_[0, np.abs(valve[:-1])] + 0.3 * rng.normal(size=1500)
other = rng.normal(size=1500)
plant = np.column_stack([valve, flow, other])

linear = np.abs(np.corrcoef(valve[:-1], flow[1:])[0, 1])
nonlinear = CUTSPlus(n_lags=1, batch_size=64, graph_learning_rate=(5e-2, 5e-3), random_state=0).fit(
    plant
)
print(f"correlation of the valve with the flow one step later: {linear:.2f}")
print("edge probabilities, causes in rows: valve, flow, other")
print(nonlinear.edge_probability_.round(2))
