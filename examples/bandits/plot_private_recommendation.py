"""
========================================================
Recommend without telling on anyone: regret and privacy
========================================================

A service has six classifiers and sends each visitor's picture to one of them. It learns from
the visitor's answer, *right* or *wrong*, which one to use. What can be learned about one
visitor's answer by watching the choices of the service must be bounded.

:class:`~skicml.bandits.DPTSUCB` plays this bandit problem under a guarantee. We replay a table of
real outcomes, look at the regret and the guarantee side by side, and see what a stricter one
costs.
"""

# %%
# A reward table from real outcomes
# ---------------------------------
# The arms are classifiers that were trained on 60 handwritten digits; a round is a visit with one
# of the other digits, and the reward of an arm is 1 if its answer is right. A policy sees only the
# answer of the arm that it plays.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skicml.bandits import (
    DPTSUCB,
    UCB1,
    GaussianThompsonSampling,
    compare_policies,
)

arms = {
    "SVM": SVC(),
    "logistic regression": LogisticRegression(max_iter=1000),
    "random forest": RandomForestClassifier(random_state=0),
    "5 nearest neighbours": KNeighborsClassifier(5),
    "naive Bayes": GaussianNB(),
    "small tree": DecisionTreeClassifier(max_depth=3, random_state=0),
}
digits, labels = load_digits(return_X_y=True)
train, pictures, train_labels, answers = train_test_split(
    digits, labels, train_size=60, stratify=labels, random_state=0
)
correct = np.column_stack(
    [arm.fit(train, train_labels).predict(pictures) == answers for arm in arms.values()]
).astype(float)

n_rounds = 20_000
visits = np.random.RandomState(0).randint(len(correct), size=n_rounds)
table = correct[visits]
for name, mean in zip(arms, table.mean(axis=0)):
    print(f"{name:>21}: right in {mean:.0%} of the visits")

# %%
# Regret under a guarantee
# ------------------------
# The privacy parameter is mu of Gaussian differential privacy: to tell two answers of one visitor
# apart is at least as hard as to tell a normal variable of mean 0 from one of mean mu. It is no
# epsilon; :meth:`~skicml.bandits.DPTSUCB.privacy_epsilon` converts it. A mu near 3, as at
# alpha = 1, is a modest guarantee: a bound, but not one that hides an answer well. The last
# picture shows what less costs.

policies = {
    "Thompson sampling": GaussianThompsonSampling(),
    "UCB1 (no privacy)": UCB1(),
    "DP-TS-UCB, alpha = 0": DPTSUCB(alpha=0.0),
    "DP-TS-UCB, alpha = 1/2": DPTSUCB(alpha=0.5),
    "DP-TS-UCB, alpha = 1": DPTSUCB(alpha=1.0),
}
colors = dict(zip(policies, ["tab:gray", "black", "tab:green", "tab:orange", "tab:red"]))
regrets = compare_policies(policies, table, n_runs=5, random_state=0)

private = DPTSUCB(alpha=1.0, random_state=0).fit(table)
print(f"recommended arm: {list(arms)[private.best_arm_]}")
print(f"guarantee: {private.gdp_mu_:.2f}-GDP, or epsilon = ", end="")
print(f"{private.privacy_epsilon(1e-6):.1f} at delta = 1e-6")
print(f"reused largest draws: {private.reuse_fraction_:.0%} of all index values")

# %%
# On the left, what is lost against playing the best classifier in every visit. On the right, the
# guarantee for the whole run, for services of different length: that of Thompson sampling
# wears out like the square root of the number of visits; at alpha = 1 it is the same for ever.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for name, curves in regrets.items():
    mean, spread = curves.mean(axis=0), curves.std(axis=0)
    left.plot(mean, color=colors[name], label=name)
    left.fill_between(
        np.arange(n_rounds), mean - spread, mean + spread, color=colors[name], alpha=0.15, lw=0
    )
left.set(xlabel="visits", ylabel="regret (right answers lost)", title="What privacy costs")
left.margins(x=0)
left.set_ylim(0)
left.legend(frameon=False)

horizons = np.logspace(3, 8, 60)
right.loglog(horizons, np.sqrt(horizons), color=colors["Thompson sampling"])
for alpha, name in ((0.0, "alpha = 0"), (0.5, "alpha = 1/2"), (1.0, "alpha = 1")):
    mu = DPTSUCB.gdp_mu(horizons, alpha, accountant="tight")
    right.loglog(horizons, mu, color=colors[f"DP-TS-UCB, {name}"])
right.axvline(n_rounds, color="0.8", zorder=0)
right.set(xlabel="visits (horizon)", ylabel="mu (less is more private)", title="What it buys")
plt.show()

# %%
# A budget instead of a knob
# --------------------------
# Whoever has a privacy budget gives it as `target_mu`; the policy finds its trade-off, and adds
# noise where alpha = 1 does not suffice. Thompson sampling can be made as private by more
# pre-pulls and more noise. With a loose budget that is the better choice; with a strict one
# DP-TS-UCB loses less.

budgets = np.array([2.0, 3.0, 4.5, 7.0, 12.0, 20.0, 40.0, 80.0])
ours, theirs = [], []
for mu in budgets:
    b = max(round(np.sqrt(n_rounds) / mu) - 1, 0)
    pair = {
        "ours": DPTSUCB(target_mu=mu),
        "theirs": GaussianThompsonSampling(pre_pulls=b, variance=n_rounds / (mu**2 * (b + 1))),
    }
    runs = compare_policies(pair, table, n_runs=4, random_state=1)
    ours.append(runs["ours"][:, -1])
    theirs.append(runs["theirs"][:, -1])

fig, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
for losses, color, name in (
    (np.array(ours), "tab:red", "DP-TS-UCB"),
    (np.array(theirs), "tab:gray", "Thompson sampling, pre-pulls and noise alike"),
):
    ax.errorbar(
        budgets, losses.mean(1), losses.std(1), color=color, marker="o", capsize=3, label=name
    )
ax.set(xscale="log", yscale="log", xlabel="budget mu", ylabel=f"regret after {n_rounds} visits")
ax.set_xticks(budgets, [f"{mu:g}" for mu in budgets])
ax.set_yticks([300, 500, 1000, 2000], ["300", "500", "1000", "2000"])
ax.minorticks_off()
ax.set_title("Regret at equal privacy")
ax.legend(frameon=False)
plt.show()
