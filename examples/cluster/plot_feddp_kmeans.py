"""
==============================================
Centres of patients whom nobody may look at
==============================================

Forty hospitals want to know which kinds of patients they have in common. None may hand out a
record. The coordinating server has a few public records: some from a published study, like the
hospitals' patients, and many from elsewhere, like nobody's.

:class:`~skicml.cluster.FedDPKMeans` lets each hospital send sums only, adds noise to their total,
and releases centres under a budget (epsilon, delta). We look at what the public records are good
for, and at what a budget buys.
"""

# %%
# Private rows, public rows
# -------------------------
# The paper's recipe: a Gaussian mixture in many dimensions, and a server with 20 rows from each
# component among 100 rows that belong to none.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from skicml.cluster import FedDPKMeans
from skicml.datasets import make_federated_mixture

data = make_federated_mixture(
    n_clients=40,
    n_samples_per_client=500,
    n_clusters=5,
    n_features=50,
    variance=0.25,
    random_state=3,
)
X, Q = data.data, data.server_data
optimum = np.mean(np.sum((X - data.centers[data.target]) ** 2, axis=1))


def relative_cost(model):
    return -model.score(X) / len(X) / optimum


# %%
# One private fit
# ---------------
# The bound on the norm of a row must be known without looking at private rows; by default it is
# the largest norm among the public ones. The report lists every release, what one patient can
# change in it, and the noise that hides that change. All of them together spend the budget.

model = FedDPKMeans(n_clusters=5, epsilon=1.0, delta=1e-6, server_data=Q, random_state=0).fit(X)
epsilon, delta = model.privacy_spent_
print(f"spent: epsilon = {epsilon:.4f} at delta = {delta:g}, in {model.n_iter_} rounds")
print(f"cost: {relative_cost(model):.3f} times that of the true centres\n")
for row in model.privacy_report():
    print(
        f"{row['name']:>12}: {row['mechanism']:<8} noise of scale {row['noise_scale']:8.1f}, "
        f"one row changes it by at most {row['sensitivity']:5.1f}"
    )

# %%
# What the public rows are good for
# ---------------------------------
# Every patient votes for the nearest public row, in a subspace that was released before. Rows that
# are like no patient get hardly a vote; the others, weighed by their votes, make the start. The
# area of a circle is the noisy number of votes. With less budget the noise moves votes to rows
# that deserve none, and the centres, which are sums over counts, away from their groups.

view = PCA(2).fit(data.centers)
rng = np.random.RandomState(0)
shown = view.transform(X[rng.choice(len(X), 3000, replace=False)])
fig, axes = plt.subplots(1, 3, figsize=(12, 4.6), layout="constrained", sharex=True, sharey=True)
for ax, epsilon in zip(axes, (0.05, 0.2, 1.0)):
    fitted = FedDPKMeans(n_clusters=5, epsilon=epsilon, server_data=Q, random_state=0).fit(X)
    kept = fitted.server_weights_ >= fitted.min_server_weight
    points = view.transform(Q)
    ax.scatter(*shown.T, s=2, color="0.85", label="patients (never shown)")
    ax.scatter(*points[~kept].T, s=8, color="tab:gray", marker="x", label="public, dropped")
    ax.scatter(
        *points[kept].T,
        s=fitted.server_weights_[kept] / 4,
        facecolor="none",
        edgecolor="tab:blue",
        label="public, by votes",
    )
    ax.scatter(*view.transform(data.centers).T, s=90, color="black", marker="+", label="true")
    ax.scatter(
        *view.transform(fitted.cluster_centers_).T,
        s=70,
        color="tab:red",
        edgecolor="white",
        label="released",
    )
    ax.set_title(f"epsilon = {epsilon:g}: cost {relative_cost(fitted):.2f}")
    ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), xticks=[], yticks=[])
handles, labels = axes[0].get_legend_handles_labels()
fig.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
plt.show()

# %%
# What a budget buys
# ------------------
# Clustering the public rows alone costs no privacy, and is the line to beat. A few tenths of
# epsilon suffice here, for 20,000 patients; with ten times as many, about a tenth of the budget
# would do, for the noise does not grow with the number of rows.

budgets = np.array([0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
costs = np.array(
    [
        [
            relative_cost(FedDPKMeans(5, epsilon=e, server_data=Q, random_state=seed).fit(X))
            for e in budgets
        ]
        for seed in range(3)
    ]
)
public = relative_cost(KMeans(5, n_init=10, random_state=0).fit(Q))
pooled = relative_cost(KMeans(5, n_init=10, random_state=0).fit(X))

fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
ax.plot(budgets, costs.T, color="tab:red", alpha=0.25, lw=1)
ax.plot(budgets, np.median(costs, axis=0), color="tab:red", marker="o", label="FedDP-KMeans")
ax.axhline(public, color="tab:blue", ls="--", label="k-means on public rows")
ax.axhline(pooled, color="black", ls=":", label="k-means on pooled rows (no privacy)")
ax.set(xscale="log", xlabel="total epsilon, at delta = 1e-6", ylabel="cost over that of the truth")
ax.set_xticks(budgets, [f"{e:g}" for e in budgets])
ax.minorticks_off()
ax.set_title("Median of 3 seeds")
ax.legend(frameon=False)
plt.show()
