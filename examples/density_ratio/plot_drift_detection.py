"""
=========================================
Which rows are new, and how new are they?
=========================================

A model in use meets rows that drift away from those it was trained on. A test says that something
has changed. A density ratio says it row by row: log p1(x) / p0(x) is high for rows that look like
new ones and not like old ones.

The table is scikit-learn's breast cancer data: thirty measurements of cell nuclei. We build drift
of which we know the truth. The screening programme that gave the reference rows saw few malignant
cases; a second batch comes from a clinic to which suspicious cases are sent. The diagnosis is kept
from the detector: it serves as judge only.
"""

# %%
# Reference and batch
# -------------------
# Rows are disjoint. One in ten of the reference rows is malignant, and three in five of the batch.
# A third sample, drawn as the reference was, is the control: there the detector must stay quiet.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.density_ratio import CTSM

X, target = load_breast_cancer(return_X_y=True)
malignant = target == 0
rng = np.random.RandomState(0)
sick = rng.permutation(np.flatnonzero(malignant))
healthy = rng.permutation(np.flatnonzero(~malignant))
reference = np.concatenate([healthy[:160], sick[:18]])
control = np.concatenate([healthy[160:270], sick[18:30]])
batch = np.concatenate([healthy[270:350], sick[30:150]])

# %%
# One half learns, the other is judged
# ------------------------------------
# A flexible network tells any two small samples apart by heart. So the ratio is learnt from one
# half of the rows, with early stopping, and the divergence is estimated on the other. Six principal
# components keep the problem small.


def drift(old, new, seed):
    """Held-out estimate of KL(new || old), and a log ratio for each held-out new row."""
    rng = np.random.RandomState(seed)
    old, new = rng.permutation(old), rng.permutation(new)
    learn = np.concatenate([old[::2], new[::2]])
    labels = np.repeat([0, 1], [len(old[::2]), len(new[::2])])
    detector = make_pipeline(
        StandardScaler(),
        PCA(6, whiten=True),
        CTSM(
            hidden_layer_sizes=(32, 32),
            max_iter=600,
            early_stopping=True,
            validation_fraction=0.25,
            random_state=seed,
        ),
    ).fit(X[learn], labels)
    log_ratio = detector[-1].log_density_ratio(detector[:-1].transform(X[new[1::2]]))
    return log_ratio.mean(), log_ratio, new[1::2]


drifted = [drift(reference, batch, seed) for seed in range(5)]
quiet = [drift(reference, control, seed) for seed in range(5)]
divergence = {
    "batch": [result[0] for result in drifted],
    "control": [result[0] for result in quiet],
}
log_ratio = np.concatenate([result[1] for result in drifted])
rows = np.concatenate([result[2] for result in drifted])
auc = roc_auc_score(malignant[rows], log_ratio)
for name, values in divergence.items():
    print(f"KL({name} || reference) in nats, five splits: {np.round(values, 2)}")
print(f"malignant rows rank above benign ones of the batch in {auc:.0%} of pairs")

# %%
# What has drifted
# ----------------
# Rows of the batch that the reference hardly knew have a high log ratio; rows that both share
# have a low one. The hidden diagnosis explains the difference, and a person who looks into the
# drift would be led to the right rows.

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1, 2])
for place, values in enumerate(divergence.values()):
    axes[0].scatter(np.full(5, place), values, s=50, alpha=0.7)
axes[0].axhline(0, c="0.7", lw=1)
axes[0].set(
    xticks=[0, 1],
    xticklabels=divergence,
    xlim=(-0.5, 1.5),
    ylabel="KL from the reference, nats",
    title="is there drift?",
)
bins = np.linspace(*np.quantile(log_ratio, [0.01, 0.99]), 30)
for flag, name in ((False, "benign"), (True, "malignant")):
    axes[1].hist(log_ratio[malignant[rows] == flag], bins, alpha=0.6, label=name)
axes[1].legend(title="hidden diagnosis")
axes[1].set(
    xlabel="log density ratio of held-out rows of the batch",
    ylabel="rows, five splits",
    title="which rows have drifted?",
)
plt.show()
