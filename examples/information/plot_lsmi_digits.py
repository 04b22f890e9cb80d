"""
==================================
Which half of a digit carries what
==================================

A handwritten digit is cut in two, and the halves are taken for two views. What does each half
tell about the digit, what do both tell alike, and what is told by neither alone?

:class:`~skicml.information.LSMI` answers for every single digit, in nats: redundancy r, uniqueness
u1 of the left and u2 of the right half, and synergy s. Then some halves are destroyed, and
:class:`~skicml.information.InteractionEnsembleClassifier` has to find out whom to trust.
"""

# %%
# Two halves
# ----------
# Views are blocks of columns of one X. With ``cv=3`` every digit is judged by classifiers and
# densities that have not seen it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skicml.information import LSMI, InteractionEnsembleClassifier

digits = load_digits()
y = digits.target
left, right = np.split(digits.images / 16, 2, axis=2)
X = np.hstack([left.reshape(len(y), -1), right.reshape(len(y), -1)])
views = [32, 32]

lsmi = LSMI(views, cv=3, random_state=0).fit(X, y)
names = ["redundancy", "left only", "right only", "synergy"]
colors = ["tab:purple", "tab:blue", "tab:red", "tab:green"]
for name, mean in zip(names, lsmi.mean_interactions_):
    print(f"{name:>11}: {mean:5.2f} nats")
print(f"all together {lsmi.mean_interactions_.sum():.2f} of {-lsmi.class_log_prior_.mean():.2f}")

# %%
# Digit by digit
# --------------
# The sum of a bar, up and down, is what both halves together tell about the digit; no more than
# log 10 = 2.3 nats can be told. Below zero stands misinformation: such a half alone tells less
# about the digit than what counts as told by both. The left halves of ones and sevens do so most.


def draw_bars(ax, means):
    for bottom_sign in (1, -1):
        heights = np.where(bottom_sign * means > 0, means, 0)
        bottoms = np.cumsum(heights, axis=1) - heights
        for i, (name, color) in enumerate(zip(names, colors)):
            label = name if bottom_sign == 1 else None
            ax.bar(range(10), heights[:, i], bottom=bottoms[:, i], color=color, label=label)
    ax.axhline(0, color="black", lw=0.8)
    ax.set(xticks=range(10), xlabel="digit", ylabel="mean interaction (nats)")
    ax.set_ylim(-0.5, 2.6)


means = np.array([lsmi.interactions_[y == k].mean(axis=0) for k in range(10)])
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
draw_bars(ax, means)
ax.legend(ncols=4, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
plt.show()

# %%
# The extremes of each kind
# -------------------------
# Values belong to samples. These are the digits with the most of each; the blue half is the
# left, the red half the right view.

fig, axes = plt.subplots(4, 8, figsize=(7.6, 4.6), layout="constrained")
for i, row in enumerate(axes):
    for ax, sample in zip(row, np.argsort(-lsmi.interactions_[:, i])[:8]):
        tinted = np.ones((8, 8, 3))
        ink = digits.images[sample] / 16
        tinted[:, :4, :2] -= ink[:, :4, None] * [0.9, 0.6]
        tinted[:, :4, 2] -= ink[:, :4] * 0.2
        tinted[:, 4:, 1:] -= ink[:, 4:, None] * [0.8, 0.8]
        tinted[:, 4:, 0] -= ink[:, 4:] * 0.15
        ax.imshow(tinted.clip(0, 1))
        ax.set_title(f"{y[sample]}: {lsmi.interactions_[sample, i]:.1f}", size=9, color=colors[i])
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(names[i], color=colors[i])
fig.suptitle("digit: nats")
plt.show()

# %%
# Destroyed halves
# ----------------
# In 30 % of the rows the pixels of the left half are shuffled, in another 30 % those of the
# right. Nothing says where. But r + u1 is what the left half tells, r + u2 what the right half
# tells, and :meth:`~skicml.information.LSMI.transform` expects both without a label: where a
# half is destroyed, it is expected to mislead.

rng = np.random.default_rng(0)
destroyed = rng.permutation(np.repeat([0, 1, 2], [539, 539, len(y) - 1078]))
X_shuffled = X.copy()
for v, columns in enumerate([slice(0, 32), slice(32, 64)]):
    rows = destroyed == v
    X_shuffled[rows, columns] = rng.permuted(X_shuffled[rows, columns], axis=1)

train, test = train_test_split(np.arange(len(y)), stratify=y, random_state=0)
ensemble = InteractionEnsembleClassifier(LSMI(views), cv=3, random_state=0)
ensemble.fit(X_shuffled[train], y[train])
expected = ensemble.lsmi_.transform(X_shuffled[test])
weights = ensemble.model_weights(X_shuffled[test])

groups = [(2, "both whole", "tab:gray"), (0, "left destroyed", "tab:red")]
groups.append((1, "right destroyed", "tab:blue"))
fig, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for group, label, color in groups:
    rows = destroyed[test] == group
    told = expected[rows, :1] + expected[rows, 1:3]
    axes[0].scatter(*told.T, s=12, color=color, alpha=0.6, label=label)
axes[0].axhline(0, color="0.8", lw=0.8, zorder=0)
axes[0].axvline(0, color="0.8", lw=0.8, zorder=0)
axes[0].set(xlabel="told by the left half: r + u1 (nats)", ylabel="by the right half: r + u2")
axes[0].set_title("Expected without labels")
axes[0].legend(frameon=False)

height = 0.25
for i, (group, label, color) in enumerate(groups):
    mean = weights[destroyed[test] == group].mean(axis=0)
    axes[1].barh(np.arange(3) + (1 - i) * height, mean, height, color=color, label=label)
axes[1].set_yticks(range(3), ["classifier of\nthe left half", "of the right", "of both"])
axes[1].set(xlabel="mean weight in the ensemble", title="Whom the ensemble trusts")
plt.show()

# %%
# Does it pay?
# ------------
# The average of the three classifiers is the usual way, and better than any of them. Weights that
# follow the interactions are better still.

proba = np.exp(ensemble.lsmi_.log_proba(X_shuffled[test]))
accuracies = {
    "left half": (proba[:, 0].argmax(axis=1) == y[test]).mean(),
    "right half": (proba[:, 1].argmax(axis=1) == y[test]).mean(),
    "both halves": (proba[:, 2].argmax(axis=1) == y[test]).mean(),
    "plain average": (proba.mean(axis=1).argmax(axis=1) == y[test]).mean(),
    "by interactions": ensemble.score(X_shuffled[test], y[test]),
}
for name, accuracy in accuracies.items():
    print(f"{name:>15}: {accuracy:.1%}")
