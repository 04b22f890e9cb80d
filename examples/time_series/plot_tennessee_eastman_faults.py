"""
======================================
Which part of the plant is misbehaving
======================================

The Tennessee Eastman process is a simulated chemical plant: a reactor, a condenser, a separator, a
stripper and a compressor, held together by control loops. 41 measurements and the positions of 11
valves are recorded every three minutes. :class:`~skicml.time_series.CAROTS` learns from 25 hours of
normal operation. Then it watches days on which something breaks after eight hours, raises the
alarm, and names the variables that do not follow from the rest of the plant.

The recordings are not part of the package. Set the environment variable ``SKICML_DATA`` to a folder
that holds ``timeseries/tep.npz`` to see them; without it, a small plant of three tanks takes
their place.
"""

# %%
# The recordings
# --------------
# Every recording of a fault is a table with a row every three minutes.

import matplotlib.pyplot as plt
import numpy as np

from skicml.datasets._files import external_file
from skicml.time_series import CAROTS

MEASUREMENTS = """A feed; D feed; E feed; A and C feed; recycle flow; reactor feed; reactor
pressure; reactor level; reactor temperature; purge rate; separator temperature; separator
level; separator pressure; separator underflow; stripper level; stripper pressure; stripper
underflow; stripper temperature; steam flow; compressor work; reactor coolant temperature;
separator coolant temperature"""
VALVES = """D feed valve; E feed valve; A feed valve; A and C feed valve; recycle valve; purge
valve; separator valve; stripper valve; steam valve; reactor coolant valve; condenser coolant
valve"""
FAULTS = {
    4: "reactor coolant comes in warmer",
    14: "reactor coolant valve sticks",
    10: "temperature of the C feed wanders",
    17: "a fault whose cause was never told",
}


def split_names(text):
    return [" ".join(name.split()) for name in text.split(";")]


def tennessee_eastman():
    """Names, normal history, a normal day, days with a fault, and the row where it starts."""
    source = "camaramm/tennessee-eastman-profBraatz on GitHub"
    with np.load(external_file("timeseries/tep.npz", source)) as data:
        components = [f"{c} in reactor feed" for c in "ABCDEF"]
        components += [f"{c} in purge" for c in "ABCDEFGH"]
        components += [f"{c} in product" for c in "DEFGH"]
        names = split_names(MEASUREMENTS) + components + split_names(VALVES)
        days = {title: data[f"test_fault{fault:02d}"] for fault, title in FAULTS.items()}
        return names, data["train_normal"], data["test_normal"], days, 160


def three_tanks(n_rows, seed, start=None, fault=None):
    """Three tanks, each emptying into the next; a controller at each outlet holds the level."""
    rng = np.random.RandomState(seed)
    level, demand, position, rows = np.ones(3), np.ones(3), np.ones(3), []
    feed, last_error = 1.0, np.zeros(3)
    for row in range(n_rows):
        broken = fault if start is not None and row >= start else None
        feed += 0.1 * (1 - feed) + 0.04 * rng.normal()
        inflow, record = feed, [feed]
        for tank in range(3):
            error = level[tank] - 1
            demand[tank] += 2 * (error - last_error[tank]) + 0.1 * error
            last_error[tank] = error
            sticks = broken == "valve 2 sticks" and tank == 1
            if not sticks or abs(demand[tank] - position[tank]) > 0.2:
                position[tank] = demand[tank]
            outflow = position[tank] * np.sqrt(max(level[tank], 0))
            leak = 0.1 if broken == "tank 3 leaks" and tank == 2 else 0.0
            level[tank] += 0.2 * (inflow - outflow - leak)
            record += [level[tank], demand[tank], outflow]
            inflow = outflow
        rows.append(record)
    X = np.array(rows) + 0.01 * rng.normal(size=(n_rows, 10))
    if fault == "level sensor 1 drifts":
        X[start:, 1] += 3e-4 * np.arange(n_rows - start)
    return X


def generated_plant():
    names = ["feed"] + [f"{what} {k}" for k in (1, 2, 3) for what in ("level", "valve", "flow")]
    faults = ["valve 2 sticks", "tank 3 leaks", "level sensor 1 drifts"]
    days = {fault: three_tanks(960, seed + 2, 160, fault) for seed, fault in enumerate(faults)}
    return names, three_tanks(500, 0), three_tanks(960, 1), days, 160


try:
    names, history, normal_day, days, start = tennessee_eastman()
except OSError as reason:
    print(reason)
    print("A generated plant of three tanks takes their place.")
    names, history, normal_day, days, start = generated_plant()
print(f"{len(history)} rows of normal operation, {len(names)} variables")

# %%
# Learn what is normal
# --------------------
# With so few rows the causal graph comes from a linear autoregression, and the encoder takes small
# batches. Its loss must have left the chance level, or a warning says so.

detector = CAROTS(
    causal_discoverer="var",
    hidden_dim=64,
    batch_size=64,
    max_epochs=100,
    random_state=0,
).fit(history)
print(f"{detector.adjacency_.sum()} links among {len(names)} variables")
loss, chance = (detector.loss_curve_[name][-1] for name in ("loss", "chance"))
print(f"contrastive loss {loss:.2f}, by chance {chance:.2f}")
false_alarms = np.mean(detector.predict(normal_day) == -1)
print(f"a day on which nothing happens: alarm at {false_alarms:.1%} of the rows")

# %%
# The alarm
# ---------
# The anomaly score is minus ``score_samples``, the limit minus ``offset_``. It was set by the
# held-out end of the history, so a normal day stays below it most of the time. A score may explode,
# hence the logarithmic part of the axis.

HOURS = np.arange(len(normal_day)) / 20
fig, axes = plt.subplots(
    len(days), 1, figsize=(8, 1.9 * len(days)), sharex=True, layout="constrained"
)
for ax, (title, day) in zip(axes, days.items()):
    anomaly = -detector.score_samples(day)
    alarm = detector.predict(day) == -1
    ax.plot(HOURS, anomaly, color="0.6", lw=0.8)
    ax.scatter(HOURS[alarm], anomaly[alarm], s=4, color="tab:red", label="alarm", zorder=3)
    ax.axhline(-detector.offset_, color="black", lw=1, ls="--", label="limit")
    ax.axvspan(HOURS[start], HOURS[-1], color="tab:orange", alpha=0.12, lw=0, label="fault")
    share = alarm[start:].mean()
    ax.set_title(f"{title}: alarm at {share:.0%} of the rows of the fault", loc="left", fontsize=10)
    ax.set_yscale("symlog", linthresh=10)
    ax.set_ylabel("anomaly score")
fig.legend(
    *axes[0].get_legend_handles_labels(),
    loc="outside upper right",
    ncols=3,
    frameon=False,
    markerscale=2,
)
axes[-1].set(xlabel="hours", xlim=(0, HOURS[-1]))
plt.show()

# %%
# The culprits
# ------------
# ``feature_scores`` gives the squared forecast error of each variable. Divided by its mean on a
# normal day, it tells how many times worse than usual the variable follows from the others. The
# maps show the variables that stand out most in the first five hours of the fault.


def contributions(day):
    """Mean of every 20 rows (an hour), relative to a normal day; shape (n_hours, n_variables)."""
    usual = detector.feature_scores(normal_day).mean(axis=0)
    hourly = detector.feature_scores(day).reshape(-1, 20, len(names)).mean(axis=1)
    return hourly / usual


shown = list(days.items())[:3]
fig, axes = plt.subplots(
    len(shown), 1, figsize=(8, 2.3 * len(shown)), sharex=True, layout="constrained"
)
for ax, (title, day) in zip(axes, shown):
    hourly = contributions(day)
    first_hours = hourly[start // 20 : start // 20 + 5].mean(axis=0)
    culprits = np.argsort(-first_hours)[:6]
    image = ax.imshow(
        np.log10(hourly[:, culprits].T),
        aspect="auto",
        cmap="RdBu_r",
        vmin=-2,
        vmax=2,
        extent=(0, HOURS[-1], len(culprits) - 0.5, -0.5),
        interpolation="nearest",
    )
    ax.axvline(HOURS[start], color="black", lw=1)
    ax.set_yticks(range(len(culprits)), [names[i] for i in culprits], fontsize=8)
    ax.set_title(title, loc="left", fontsize=10)
    print(f"{title}: {names[culprits[0]]}, then {names[culprits[1]]}")
axes[-1].set_xlabel("hours")
bar = fig.colorbar(image, ax=axes, label="forecast error against a normal day")
bar.set_ticks([-2, -1, 0, 1, 2], labels=["1/100", "1/10", "1", "10", "100"])
plt.show()
