"""
===========================================
Find a dose that is effective and tolerated
===========================================

Two drugs are given together. The doses must be high enough to work and low enough for liver
and kidney, but nobody knows how the three depend on the doses; every treatment shows noisy
measurements of them. Is there a pair of doses that meets all three limits, and which one meets
them with room to spare?

:class:`~skicml.bandits.FAST` answers with a certificate, and wastes few treatments outside the
limits on the way. :class:`~skicml.bandits.SafeLinearThompsonSampling` then goes on and looks for
the doses that patients feel best with, without ever leaving the limits.
"""

# %%
# Three limits, seen through noise
# --------------------------------
# An outcome is affine in the two doses. The effect must reach 0.55; the loads on liver and kidney
# must stay below 0.75, so they enter with the opposite sign. The policy knows the limits and the
# size of the noise, not the coefficients.

import matplotlib.pyplot as plt
import numpy as np

from skicml.bandits import FAST, SafeLinearThompsonSampling

COEFFICIENTS = np.array([[0.7, 0.6], [-0.9, -0.1], [-0.1, -0.9]])
CONSTANTS = np.array([0.1, 0.0, 0.0])
LIMITS = np.array([0.55, -0.75, -0.75])
NOISE = 0.1


def true_margin(doses):
    return (doses @ COEFFICIENTS.T + CONSTANTS - LIMITS).min(axis=-1)


def patients(seed):
    """Return the function that treats one patient and measures the three outcomes."""
    rng = np.random.RandomState(seed)
    return lambda doses: COEFFICIENTS @ doses + CONSTANTS + NOISE * rng.standard_normal(3)


settings = {
    "bounds": ([0, 0], [1, 1]),
    "thresholds": LIMITS,
    "fit_intercept": True,
    "noise_std": NOISE,
    "norm_bound": 1.0,
    "reg": 0.1,
    "check_growth": 1.1,
}
search = FAST(**settings, random_state=0).search(patients(0))
print(f"{search.status_} after {search.n_rounds_} treatments: doses {search.best_action_.round(2)}")
print(
    f"certified: a margin of at least {search.margin_lower_:.2f}, no doses reach more than ", end=""
)
print(f"{search.margin_upper_:.2f}; truth: {true_margin(search.best_action_):.2f}")

# %%
# What was played, and what is known
# ----------------------------------
# On the left, the doses that meet all limits (the triangle between the lines) and the
# treatments, dark points first. Now the policy can vouch for the green region and rules out the
# red one. On the right, the two numbers that the search compares: a margin that is certain for
# one pair of doses, and a margin that no doses exceed. It stops when the first is half of the
# second.

grid = np.stack(np.meshgrid(np.linspace(0, 1, 201), np.linspace(0, 1, 201)), axis=-1)


def show_doses(ax, policy, title):
    """Certified regions, true limits and treatments in the plane of the doses."""
    verdict = policy.predict(grid.reshape(-1, 2)).reshape(grid.shape[:2])
    ax.contourf(
        *np.moveaxis(grid, -1, 0),
        verdict,
        levels=[-1.5, -0.5, 0.5, 1.5],
        colors=["#f4c7c3", "#eeeeee", "#b7e1cd"],
    )
    for row, constant, limit in zip(COEFFICIENTS, CONSTANTS, LIMITS):
        ax.contour(
            *np.moveaxis(grid, -1, 0),
            grid @ row + constant - limit,
            levels=[0.0],
            colors="black",
            linewidths=1.0,
        )
    played = policy.actions_
    ax.scatter(*played.T, c=np.arange(len(played)), cmap="viridis", s=18, zorder=3)
    ax.scatter(*policy.best_action_, marker="*", s=260, color="gold", ec="black", zorder=4)
    ax.set(xlabel="dose of drug 1", ylabel="dose of drug 2", title=title, aspect="equal")


fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
show_doses(left, search, "Treatments and certificates")
rounds, lower, upper = np.transpose(search.certificates_)
best_margin = true_margin(grid).max()
right.plot(rounds, upper, "v-", color="tab:red", label="no doses have a larger margin")
right.plot(rounds, lower, "^-", color="tab:green", label="one pair of doses has this margin")
right.axhline(best_margin, color="black", lw=1, label="best margin (unknown)")
right.axhline(0.0, color="0.7", lw=1)
right.set(xlabel="treatments", ylabel="margin", title="Until the verdict")
right.set_ylim(-0.1, 0.7)
right.legend(frameon=False)
plt.show()

# %%
# The same certificates can be had by treating at random. That takes many treatments outside the
# limits.

naive, rng, treat = FAST(**settings).reset(), np.random.RandomState(0), patients(0)
while naive.status_ == "undecided":
    doses = rng.uniform(0, 1, 2)
    naive.tell(doses, treat(doses))
for name, policy in (("FAST", search), ("random doses", naive)):
    outside = true_margin(policy.actions_) < 0
    print(f"{name}: {policy.n_rounds_} treatments, {outside.sum()} of them outside the limits")

# %%
# Where no doses will do
# ----------------------
# With stricter limits no doses are left. A search by trial and error would go on for ever; the
# upper bound falls below 0 and ends it.

strict = {**settings, "thresholds": [0.8, -0.4, -0.4]}
hopeless = FAST(**strict, random_state=0).search(patients(1))
print(f"{hopeless.status_} after {hopeless.n_rounds_} treatments")

# %%
# Go on inside the limits
# -----------------------
# Patients also report how they feel, which falls with both doses. The safe bandit first searches as
# above, and then moves towards the best doses. A treatment after the search is always a mixture of
# the safe doses and its target that is certified to meet all limits.

WELL_BEING = np.array([-0.2, -0.6])


def reporting_patients(seed):
    rng, treat = np.random.RandomState(seed + 1), patients(seed)
    return lambda doses: np.append(
        0.5 + WELL_BEING @ doses + NOISE * rng.standard_normal(), treat(doses)
    )


del settings["check_growth"]
policy = SafeLinearThompsonSampling(**settings, horizon=1500, random_state=0)
policy.search(reporting_patients(0))
careful = policy.actions_[policy.n_init_rounds_ :]
print(f"{(true_margin(careful) < 0).sum()} of {len(careful)} treatments outside the limits")

inside = grid[true_margin(grid) >= 0]
best = (inside @ WELL_BEING).max()
regret = best - careful @ WELL_BEING

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
show_doses(left, policy, "After 1500 treatments")
left.scatter(*policy.safe_action_, marker="o", s=90, fc="none", ec="black", lw=2, zorder=4)
right.plot(np.convolve(regret, np.ones(50) / 50, mode="valid"), color="tab:blue")
right.axhline(
    best - policy.safe_action_ @ WELL_BEING, color="black", ls="--", lw=1, label="the safe doses"
)
right.set(
    xlabel="treatments after the search",
    ylabel="well-being lost against the best doses",
    title="Better and better, never outside",
)
right.set_ylim(0)
right.legend(frameon=False)
plt.show()
