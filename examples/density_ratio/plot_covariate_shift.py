"""
=============================================
A classifier for rows that are not like yours
=============================================

Labelled rows come from one place, the rows that matter from another: patients of one clinic, users
of last year. If the label depends on a row in the same way in both, only the rows themselves have
moved. That is covariate shift, and the cure is to let labelled rows count by the density ratio
of new rows to old ones. :class:`~skicml.density_ratio.CTSM` estimates it from the rows alone;
labels of the new place are not needed.
"""

# %%
# Two places
# ----------
# The boundary between the classes is curved, and a straight line can follow it in one place only.
# Labelled rows lie to the left, new rows to the right.

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skicml.density_ratio import CTSM, TSM, importance_weights


def draw(n_samples, centre, scale, rng):
    """Rows around a centre, and their noisy labels: the same rule everywhere."""
    X = centre + scale * rng.normal(size=(n_samples, 2))
    log_odds = 4 * (X[:, 1] - np.sin(2 * X[:, 0]))
    return X, (rng.uniform(size=n_samples) < 1 / (1 + np.exp(-log_odds))).astype(int)


def two_places(seed):
    """Labelled rows, and rows of the new place with labels that serve as judge only."""
    rng = np.random.RandomState(seed)
    return draw(1500, [0.0, 0.0], [1.0, 1.0], rng), draw(1500, [1.6, 0.1], [0.35, 0.7], rng)


# %%
# The ratio, the weights, the classifier
# --------------------------------------
# ``y`` of the density ratio says which place a row comes from: 0 for the denominator, the labelled
# rows, and 1 for the new ones. The weights go into the Pipeline as ``sample_weight``.


def fit_both(seed):
    """Classifier without and with weights, the weights, and the accuracy of both."""
    (X, y), (X_new, y_new) = two_places(seed)
    ratio = make_pipeline(
        StandardScaler(), CTSM(hidden_layer_sizes=(64, 64), max_iter=800, random_state=seed)
    )
    ratio.fit(np.vstack([X, X_new]), np.repeat([0, 1], [len(X), len(X_new)]))
    weights = importance_weights(ratio, X)
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    weighted = make_pipeline(StandardScaler(), LogisticRegression())
    weighted.fit(X, y, logisticregression__sample_weight=weights)
    return plain, weighted, weights, plain.score(X_new, y_new), weighted.score(X_new, y_new)


results = [fit_both(seed) for seed in range(5)]
accuracy = np.array([result[3:] for result in results])
plain, weighted, weights, *_ = results[0]
effective = weights.sum() ** 2 / (weights**2).sum()
print("accuracy on the new rows, mean of five draws:")
print(f"  without weights  {accuracy[:, 0].mean():.3f}")
print(f"  with weights     {accuracy[:, 1].mean():.3f}")
print(f"gain in points, each draw: {np.round(100 * np.diff(accuracy)[:, 0], 1)}")
print(f"effective number of labelled rows: {effective:.0f} of {len(weights)}")

# %%
# What the weights did
# --------------------
# The size of a labelled row is its weight. Rows where no new ones are expected all but vanish, and
# the line turns to fit the boundary where it counts. The price is the effective number of rows:
# a few labelled rows do all the work.

(X, y), (X_new, _) = two_places(0)
axis = np.linspace(-3, 3.2, 200)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharex=True, sharey=True, layout="constrained")
for ax, model, sizes, title, score in (
    (axes[0], plain, np.full(len(X), 10.0), "all rows count the same", accuracy[0, 0]),
    (axes[1], weighted, 10 * weights, "rows count by the density ratio", accuracy[0, 1]),
):
    ax.scatter(*X_new.T, s=6, c="0.85", label="new rows, no labels")
    for label, colour in ((0, "tab:blue"), (1, "tab:orange")):
        ax.scatter(*X[y == label].T, s=sizes[y == label], c=colour, alpha=0.6, lw=0, label=label)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    log_odds = model.decision_function(grid).reshape(200, 200)
    ax.contour(axis, axis, log_odds, levels=[0], colors="k", linewidths=2)
    ax.plot(axis, np.sin(2 * axis), "k:", lw=1.5)
    ax.set(title=f"{title}\naccuracy on new rows {score:.3f}", xlim=(-3, 3.2), ylim=(-3, 3.2))
axes[0].legend(loc="lower left", title="label", markerscale=1.5)
plt.show()

# %%
# The objective before
# --------------------
# :class:`~skicml.density_ratio.TSM` learns the same time score without conditioning on the ends of
# the path. Here the densities are known, and with them the exact weights. After as many steps the
# two know them about equally well, and the classifiers are as good. But a step of TSM
# differentiates through a derivative: it takes several times as long. In a similar time, TSM gets
# through 250 steps, and its weights lie further from the exact ones.


def exact_weights(X):
    z = (X - [1.6, 0.1]) / [0.35, 0.7]
    ratio = np.exp((X**2 - z**2).sum(axis=1) / 2)
    return ratio / ratio.mean()


def judge(method, max_iter, seed):
    """Seconds of the fit, correlation with the exact weights, accuracy of the classifier."""
    (X, y), (X_new, y_new) = two_places(seed)
    ratio = make_pipeline(
        StandardScaler(), method(hidden_layer_sizes=(64, 64), max_iter=max_iter, random_state=seed)
    )
    start = process_time()
    ratio.fit(np.vstack([X, X_new]), np.repeat([0, 1], [len(X), len(X_new)]))
    seconds = process_time() - start
    weights = importance_weights(ratio, X)
    classifier = make_pipeline(StandardScaler(), LogisticRegression())
    classifier.fit(X, y, logisticregression__sample_weight=weights)
    agreement = np.corrcoef(weights, exact_weights(X))[0, 1]
    return seconds, agreement, classifier.score(X_new, y_new)


for method, max_iter in ((CTSM, 800), (TSM, 800), (TSM, 250)):
    runs = [judge(method, max_iter, seed) for seed in range(3)]
    seconds, agreement, score = np.mean(runs, axis=0)
    print(f"{method.__name__:>4}, {max_iter} steps: {seconds:.1f} s, ", end="")
    print(f"correlation with the exact weights {agreement:.3f}, accuracy {score:.3f}")
