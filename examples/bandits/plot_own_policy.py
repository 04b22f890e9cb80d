"""
======================
A policy of one's own
======================

Which of ten headlines is clicked most? A bandit policy tries them on visitors and moves to the
good ones while it learns. Its idea fits into a few lines; what a policy needs besides (tables with
gaps, live use, histories, regret, seeds, grid search) comes from
:class:`~skicml.bandits.BaseBanditPolicy`. We write one, and see what it gains, what privacy would
cost, and how the same is done for actions that are vectors.
"""

# %%
# Twenty lines
# ------------
# A policy says how to begin (``_reset``), which arm to play (``_select``) and what to learn from a
# reward (``_update``). Ours is KL-UCB [1]_: for each arm it takes the largest click rate that the
# clicks so far do not rule out, and plays the arm where that is highest. UCB1 does the same with a
# bound for any rewards in [0, 1]; that of KL-UCB knows how little *rare* events scatter.
#
# .. [1] Garivier, A. and Cappé, O. "The KL-UCB Algorithm for Bounded Stochastic Bandits and
#    Beyond." COLT 2011.

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import ndtr, rel_entr
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

from skicml.bandits import (
    DPTSUCB,
    UCB1,
    BaseBanditPolicy,
    BaseLinearPolicy,
    GaussianThompsonSampling,
    LazyUCB,
    PrivateSuccessiveElimination,
    compare_policies,
)
from skicml.datasets import make_bernoulli_bandit


class KLUCB(BaseBanditPolicy):
    """Upper confidence bounds in units of the Kullback-Leibler divergence."""

    def _reset(self, n_arms):
        self.rng_.shuffle(self._unplayed)
        self._sums = np.zeros(n_arms)

    def _select(self):
        if self._unplayed:
            return self._unplayed[0]
        means = self._sums / self.counts_
        low, high = means, np.ones(self.n_arms_)
        for _ in range(16):  # bisection for the largest rate that is not ruled out
            middle = (low + high) / 2
            divergence = rel_entr(means, middle) + rel_entr(1 - means, 1 - middle)
            possible = self.counts_ * divergence <= np.log(self.t_)
            low, high = np.where(possible, middle, low), np.where(possible, high, middle)
        self._index[:] = low
        return self._argmax(self._index)

    def _update(self, arm, reward):
        self._sums[arm] += reward


# %%
# It replays a table with ``fit`` and plays live with ``ask`` and ``tell``; both play the same arms.

rates = [0.10, 0.06, 0.06, 0.06, 0.04, 0.04, 0.04, 0.02, 0.02, 0.02]
clicks = make_bernoulli_bandit(rates, n_rounds=3000, random_state=0)
replay = KLUCB(random_state=0).fit(clicks)
live = KLUCB(random_state=0).reset(n_arms=10)
for row in clicks:
    arm = live.ask()
    live.tell(arm, row[arm])
print(f"replay and live play the same arms: {(live.actions_ == replay.actions_).all()}")
share = replay.counts_[replay.best_arm_] / replay.t_
print(f"headline {replay.best_arm_} is recommended, and was played in {share:.0%} of the rounds")

# %%
# Against the others
# ------------------
# :func:`~skicml.bandits.compare_policies` takes it as any other. In so few visits UCB1 gets little
# further than a choice at random: a bound that allows for rewards of any kind is too wide for rates
# of a few per cent.


def visits(random_state):
    return make_bernoulli_bandit(rates, n_rounds=8000, random_state=random_state)


policies = {
    "UCB1": UCB1(),
    "Thompson sampling, Gaussian": GaussianThompsonSampling(),
    "KL-UCB, ours": KLUCB(),
}
regrets = compare_policies(policies, visits, means=rates, n_runs=5, random_state=0)
for name, curves in regrets.items():
    print(f"{name}: {curves[:, -1].mean():.0f} clicks lost")
print(f"at random: {8000 * (max(rates) - np.mean(rates)):.0f} clicks lost")

# %%
# What privacy would cost
# -----------------------
# KL-UCB is not private: whoever watches the headlines learns something of each click. Of the
# private policies, :class:`~skicml.bandits.LazyUCB` and
# :class:`~skicml.bandits.PrivateSuccessiveElimination` promise pure epsilon-privacy, and
# :class:`~skicml.bandits.DPTSUCB` promises mu-GDP. To compare them we give all three the same mu:
# epsilon-privacy implies mu-GDP if epsilon is the log odds of a normal variable below mu / 2. With
# rates that differ so little they would not get far; five arms are clearer cut here.

clear = [0.75, 0.625, 0.5, 0.375, 0.25]


def clear_visits(random_state):
    return make_bernoulli_bandit(clear, n_rounds=20_000, random_state=random_state)


budgets = np.array([0.5, 1.0, 2.0, 4.0, 8.0])
losses = {"PrivateSuccessiveElimination": [], "DPTSUCB": [], "LazyUCB": []}
for mu in budgets:
    epsilon = np.log(ndtr(mu / 2) / ndtr(-mu / 2))
    private = {
        "PrivateSuccessiveElimination": PrivateSuccessiveElimination(epsilon=epsilon),
        "DPTSUCB": DPTSUCB(target_mu=mu),
        "LazyUCB": LazyUCB(epsilon=epsilon),
    }
    guarantees = [policy.fit(clear_visits(0)).gdp_mu_ for policy in private.values()]
    runs = compare_policies(private, clear_visits, means=clear, n_runs=5, random_state=0)
    for name, curves in runs.items():
        losses[name].append(curves[:, -1])
    print(f"mu = {np.round(guarantees, 2)}, epsilon = {epsilon:.2f}: ", end="")
    print(", ".join(f"{name} {curves[:, -1].mean():.0f}" for name, curves in runs.items()))
open_regret = compare_policies(
    {"KL-UCB": KLUCB()}, clear_visits, means=clear, n_runs=2, random_state=0
)["KL-UCB"][:, -1].mean()
print(f"without privacy: KL-UCB {open_regret:.0f}")

# %%
# LazyUCB loses least at each mu, and its guarantee is the stronger one, pure privacy. DPTSUCB
# comes near it where the budget is loose, and pays most for a strict one. Elimination hardly
# depends on the budget: its first epochs are as long as it takes to tell the arms from luck, and
# that is what it pays for.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for (name, curves), colour in zip(regrets.items(), ["black", "tab:gray", "tab:red"]):
    mean, spread = curves.mean(axis=0), curves.std(axis=0)
    rounds = np.arange(len(mean))
    left.plot(rounds, mean, color=colour, lw=2, label=name)
    left.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
left.set(xlabel="visits", ylabel="regret (clicks lost)", title="Ten headlines, rare clicks")
left.margins(x=0)
left.set_ylim(0)
left.legend(frameon=False)

for (name, values), colour in zip(losses.items(), ["tab:purple", "tab:orange", "tab:blue"]):
    values = np.array(values)
    right.errorbar(
        budgets, values.mean(1), values.std(1), color=colour, marker="o", capsize=3, label=name
    )
right.axhline(open_regret, color="tab:red", ls="--", label="KL-UCB, no privacy")
right.set(xscale="log", yscale="log", title="Five arms, equal privacy")
right.set(xlabel="mu (less is more private)", ylabel="regret after 20000 visits")
right.set_xticks(budgets, [f"{mu:g}" for mu in budgets])
right.set_yticks([100, 300, 1000, 3000], ["100", "300", "1000", "3000"])
right.minorticks_off()
right.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 0.08))
plt.show()

# %%
# Actions that are vectors
# ------------------------
# With thousands of candidates that are described by numbers, what one of them pays says something
# about the others. For that there is :class:`~skicml.bandits.BaseLinearPolicy`: ``fit(X, y)``
# replays a table of candidates ``X`` with their recorded outcomes. The policy here looks for
# patients whose diabetes will get worse, may look up 100 of 442, none twice, and takes the one with
# the highest upper confidence bound of a ridge regression.


class LinUCB(BaseLinearPolicy):
    """Upper confidence bounds of a ridge regression; no candidate twice."""

    def __init__(self, *, width=1.0, n_rounds=100, random_state=None):
        self.width = width
        self.n_rounds = n_rounds
        self.random_state = random_state

    def _reset(self, n_features):
        self._precision, self._moments = np.eye(n_features), np.zeros(n_features)
        self._is_open = np.ones(len(self._candidates), dtype=bool)

    def _max_rounds(self):
        return self.n_rounds

    def _select(self):
        X = self._candidates
        widths = np.sqrt(np.einsum("ij,ij->i", X, np.linalg.solve(self._precision, X.T).T))
        bounds = np.where(self._is_open, self.predict(X) + self.width * widths, -np.inf)
        return int(bounds.argmax())

    def _update(self, action, outcome):
        self._precision += np.outer(action, action)
        self._moments += outcome[0] * action
        self._is_open &= (self._candidates != action).any(axis=1)

    def predict(self, X):
        return X @ np.linalg.solve(self._precision, self._moments)


patients, progression = load_diabetes(return_X_y=True)
patients = StandardScaler().fit_transform(patients)
outcome = (progression - progression.mean()) / progression.std()
policy = LinUCB().fit(patients, outcome)
worst = np.sort(outcome)[-policy.t_ :]
print(f"looked up {policy.t_} of {len(outcome)} patients")
print(f"mean outcome {policy.outcomes_.mean():.2f}, ", end="")
print(f"0 at random, {worst.mean():.2f} for whoever knows them all")
print(f"of the {policy.t_} worst it has found {(policy.outcomes_ >= worst.min()).sum()}")
