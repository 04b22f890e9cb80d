"""
===========================================
A tank whose supply has a rhythm of its own
===========================================

Liquid flows through a heated tank. Level and temperature are measured; the supply pump is not, and
it cycles every three hours. Sixty runs were recorded for eight hours each, all started with the
pump but from different levels and temperatures. What will a new run do in its first day?

A neural ODE does the same whenever the tank is in the same state, so it can but average over the
pump. :class:`~skicml.time_series.KoNODE` lets the weights of its vector field move along a few
oscillating modes: it finds the rhythm, and carries it on.
"""

# %%
# Sixty short runs
# ----------------
# The law of the tank is known here, so that forecasts can be compared with what happens.

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

from skicml.time_series import KoNODE

PERIOD = 3.0  # hours
STEP = 0.1  # hours between two rows


def run_tank(n_runs, hours, random_state):
    """Level (m) and temperature (degrees C) of some runs, one row every six minutes."""
    rng = np.random.default_rng(random_state)
    start = np.stack([rng.uniform(0.6, 1.8, n_runs), rng.uniform(25, 60, n_runs)])

    def velocity(t, state):
        level, temperature = state.reshape(2, n_runs)
        supply = 0.6 * (1 + 0.6 * np.cos(2 * np.pi * t / PERIOD))
        heating = (supply * (15 - temperature) + 18) / level
        return np.concatenate([supply - 0.6 * np.sqrt(level), heating])

    times = STEP * np.arange(round(hours / STEP) + 1)
    solution = solve_ivp(velocity, (0, hours), start.ravel(), t_eval=times, rtol=1e-8)
    return times, solution.y.reshape(2, n_runs, -1).transpose(1, 2, 0)


rng = np.random.default_rng(0)
_, runs = run_tank(60, 8, 0)
runs = runs + rng.normal(size=runs.shape) * [0.01, 0.2]  # sensor noise
times, truth = run_tank(40, 24, 1)
print("training panel (runs, rows, channels):", runs.shape)

# %%
# Two models of one size
# ----------------------
# All runs share a clock, so w(0) is learnt, and t = 0 is the first row. ``koopman_dim=0`` is the
# plain neural ODE. Both get the same training.

settings = {
    "horizon": 80,
    "time_step": STEP,
    "initial_latent": "learned",
    "solver": "euler",
    "max_epochs": 500,
    "learning_rate": 0.01,
    "learning_rate_decay": 0.992,
    "random_state": 0,
}
konode = KoNODE(koopman_dim=4, **settings).fit(runs)
plain = KoNODE(koopman_dim=0, **settings).fit(runs)
forecasts = {
    "KoNODE": konode.forecast(240, truth[:, :1]),
    "plain neural ODE": plain.forecast(240, truth[:, :1]),
}

# %%
# A day from one row
# ------------------
# Both see the first row of a run and nothing else. The shaded part is as long as the training runs.

colors = {"KoNODE": "tab:orange", "plain neural ODE": "tab:blue"}
fig, axes = plt.subplots(2, 1, figsize=(8.5, 5.2), sharex=True, layout="constrained")
for channel, (ax, name) in enumerate(zip(axes, ["level (m)", "temperature (°C)"])):
    ax.axvspan(0, 8, color="0.93", zorder=0)
    ax.plot(times, truth[0, :, channel], color="black", lw=1.5, label="what happens")
    for model, forecast in forecasts.items():
        style = "--" if model == "KoNODE" else "-"
        ax.plot(times[1:], forecast[0, :, channel], style, color=colors[model], lw=2, label=model)
    ax.set_ylabel(name)
    ax.margins(x=0)
axes[0].legend(ncols=3, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
axes[1].set(xlabel="hours since the pump was started", xticks=range(0, 25, 3))
plt.show()

# %%
# How errors grow, and what drives the parameters
# -----------------------------------------------
# Left: root mean square error over 40 new runs, in standard deviations of the channels. Middle: the
# periods of the modes, 2 pi / b. Right: the two main directions of theta(t), the weights of the
# vector field, over the day, coloured by the phase of the pump. The parameters go around in a
# circle, once a cycle of the pump, as nobody has told them.

fig, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
for model, forecast in forecasts.items():
    error = (forecast - truth[:, 1:]) / truth.std(axis=(0, 1))
    axes[0].semilogy(times[1:], np.sqrt(np.square(error).mean(axis=(0, 2))), color=colors[model])
axes[0].axvspan(0, 8, color="0.93", zorder=0)
axes[0].set(title="Error of the forecast", xlabel="hours ahead", ylabel="RMSE (std)")
axes[0].set_ylim(3e-4, 3)
axes[0].legend(forecasts, frameon=False, loc="lower right")

periods = np.sort(2 * np.pi / konode.koopman_eigenvalues_.imag)
print("periods found:", periods.round(2), "hours")
axes[1].axvline(PERIOD, color="0.7", lw=6, label="pump")
axes[1].stem(periods, np.hypot(*konode.koopman_trajectory([0.0]).reshape(-1, 2).T))
axes[1].set(title="Koopman modes", xlabel="period (hours)", ylabel="amplitude of w", xlim=(0, 6))
axes[1].legend(frameon=False)

theta = konode.parameter_trajectory(times)
centred = theta - theta.mean(axis=0)
_, _, directions = np.linalg.svd(centred, full_matrices=False)
points = axes[2].scatter(
    *(centred @ directions[:2].T).T, c=times % PERIOD, cmap="hsv", s=14, vmax=PERIOD
)
axes[2].set(title="Parameters over the day", xlabel="direction 1", ylabel="direction 2")
fig.colorbar(points, ax=axes[2], label="hours into the pump's cycle")
plt.show()

# %%
# The same state, another time
# ----------------------------
# One state of the tank, and where it goes: the answer depends on the clock.

state = [[1.0, 45.0]]
for hours in (8.0, 8.0 + PERIOD / 2):
    level, temperature = konode.vector_field(state, hours)[0]
    constant = plain.vector_field(state, hours)[0]
    print(
        f"after {hours:4.1f} h: level {level:+.2f} m/h, {temperature:+.1f} °C/h"
        f"   (plain: {constant[0]:+.2f} m/h, {constant[1]:+.1f} °C/h)"
    )
