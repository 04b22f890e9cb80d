"""
======================================
The clock of a star, seen in glimpses
======================================

A telescope that surveys the sky comes back to a star when it can: tonight, in three weeks, next
season. Between two looks the star may have pulsed a hundred times. From 280 brightnesses over
five years the period comes out all the same, to a fraction of a second: no gap has to be filled
for that, each frequency is asked how much of the values *at their own times* it explains.
"""

# %%
# Irregular samples
# -----------------
# The star is LINEAR 11375941, if the environment variable ``SKICML_DATA`` names a folder that has
# its light curve; otherwise a star of the same kind is made up.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skicml.time_series import lomb_scargle_power

path = Path(os.environ.get("SKICML_DATA", "")) / "timeseries" / "LINEAR_11375941.csv"
if path.is_file():
    star = np.genfromtxt(path, delimiter=",", names=True)
    name, t, magnitude = "LINEAR 11375941", star["t"], star["mag"]
else:
    rng = np.random.default_rng(0)
    nights = np.sort(rng.choice(1900, 280, replace=False))
    name, t = "A made-up star", 52_600 + nights + rng.uniform(0, 0.3, 280)
    angle = 2 * np.pi * t * 24 / 2.58
    magnitude = 15 + 0.2 * np.sin(angle) + 0.08 * np.sin(2 * angle + 1)
    magnitude += rng.normal(0, 0.04, 280)
print(f"{name}: {len(t)} brightnesses in {t.max() - t.min():.0f} days")

# %%
# Which frequencies?
# ------------------
# A peak is as wide as 1 / (time span), here one cycle in five years, and must not fall between
# two frequencies of the grid. Five a width, up to twelve cycles a day, are more than a hundred
# thousand; a table of their sines at all times would take 500 MB, but is never made.

span = t.max() - t.min()
frequencies = np.arange(0.2, 12, 0.2 / span)
power = lomb_scargle_power(t, magnitude, frequencies, fit_mean=True, normalization="standard")
best = frequencies[power.argmax()]
print(f"{len(frequencies)} frequencies, best period {24 / best:.4f} h")

# %%
# What remains if the gaps are filled first
# -----------------------------------------
# Interpolated to regular times, as a Fourier transform needs them, the light curve has lost the
# pulsation: it is far faster than the samples follow each other.

regular = np.linspace(t.min(), t.max(), 2 * int(12 * span))
filled = np.interp(regular, t, magnitude)
spectrum = np.abs(np.fft.rfft(filled - filled.mean())) ** 2
spectrum *= 2 / len(regular) ** 2 / filled.var()  # the same scale: the share explained
fourier = np.fft.rfftfreq(len(regular), regular[1] - regular[0])

# %%
# Fold the light curve
# --------------------
# With the period known, every look falls somewhere in one pulsation. All nights of five years lie
# on one curve: it rises fast and falls slowly, as in stars that pulsate. The lower peaks on both
# sides of the best one, a cycle a day apart, are aliases: the telescope looks at night only, and
# a gap with a period of its own leaves its mark.

phase = (t * best) % 1
fig, axes = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained")
axes[0, 0].plot(t, magnitude, ".", ms=4, color="0.3")
axes[0, 0].set(xlabel="time (days)", ylabel="magnitude", title=f"{name}: {len(t)} looks")
axes[0, 0].locator_params(axis="x", nbins=5)
axes[0, 0].invert_yaxis()

axes[0, 1].plot(fourier, spectrum, lw=0.7, color="tab:red")
axes[0, 1].set(xlim=(0.2, 12), ylim=(0, 1), title="gaps interpolated, Fourier")
axes[0, 1].axvline(best, color="black", ls=":", lw=1)
axes[1, 1].plot(frequencies, power, lw=0.4, color="tab:blue")
axes[1, 1].plot(best, power.max(), "o", mfc="none", color="black")
axes[1, 1].annotate(
    f"{24 / best:.3f} hours",
    (best, power.max()),
    xytext=(-10, 0),
    textcoords="offset points",
    ha="right",
    va="center",
)
axes[1, 1].set(xlim=(0.2, 12), ylim=(0, 1), title="Lomb-Scargle, gaps left alone")
for ax in axes[:, 1]:
    ax.set(xlabel="frequency (cycles a day)", ylabel="share of variance")

for shift in (0, 1):
    points = axes[1, 0].scatter(phase + shift, magnitude, c=t - t.min(), s=9, cmap="viridis")
fig.colorbar(points, ax=axes[1, 0], label="days since the first look")
axes[1, 0].set(xlabel="phase", ylabel="magnitude", title="folded at the best period")
axes[1, 0].invert_yaxis()
plt.show()
