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
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skicml.time_series import LombScargle, lomb_scargle_power

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

# %%
# A field full of stars
# ---------------------
# One picture shows many stars, so that all of a field share their times, and each star has gaps of
# its own, where it was too close to the moon or to a neighbour. That is a panel, and
# :class:`~skicml.time_series.LombScargle` turns it into columns for any classifier. We make up 600
# stars of four kinds that differ in their periods, with some 45 brightnesses each from two months.

kinds = ["Delta Scuti", "RR Lyrae, type c", "RR Lyrae, type ab", "short Cepheid"]
shortest, longest = np.array([[0.05, 0.2, 0.42, 0.8], [0.18, 0.4, 0.78, 1.6]])  # days
rng = np.random.default_rng(0)
times = np.sort(rng.integers(60, size=90) + rng.uniform(0, 0.3, 90))  # by night
kind = rng.integers(4, size=600)
period = rng.uniform(shortest[kind], longest[kind])
angle = 2 * np.pi * (times / period[:, None] + rng.uniform(size=(600, 1)))
field = rng.uniform(0.1, 0.4, (600, 1)) * (np.sin(angle) + 0.4 * np.sin(2 * angle + 1))
field += rng.normal(15, 0.5, (600, 1)) + rng.normal(0, 0.08, field.shape)
field[rng.uniform(size=field.shape) < 0.5] = np.nan

# %%
# Two stars of one kind have their peaks at similar frequencies, not at the same one. So the
# spectrum is cut into bands, and the highest value of each is what neighbours are judged by. The
# other way is to interpolate the gaps first. A forest gets far less out of that, whether it sees
# the values or their Fourier spectrum in such bands.

grid = np.arange(0.4, 24, 0.2 / 60)[:7000]
regular = np.linspace(times[0], times[-1], 2 * 24 * 60)


def highest_in_bands(spectra, n_bands=70):
    return spectra.reshape(len(spectra), n_bands, -1).max(axis=2)


def filled(X, at=times):
    return np.array([np.interp(at, times[~np.isnan(x)], x[~np.isnan(x)]) for x in X])


def fourier_bands(X):
    values = filled(X, regular)
    spectra = np.abs(np.fft.rfft(values - values.mean(axis=1, keepdims=True)))
    return highest_in_bands(spectra[:, 20:1420])


spectrum = make_pipeline(
    LombScargle(times=times, frequencies=grid, fit_mean=True),
    FunctionTransformer(highest_in_bands),
)
ways = {
    "Lomb-Scargle, 5 neighbours": make_pipeline(spectrum, KNeighborsClassifier(5)),
    "interpolated, forest": make_pipeline(
        FunctionTransformer(filled), RandomForestClassifier(random_state=0)
    ),
    "interpolated, Fourier, forest": make_pipeline(
        FunctionTransformer(fourier_bands), RandomForestClassifier(random_state=0)
    ),
}
for way, classifier in ways.items():
    print(f"{way}: {cross_val_score(classifier, field, kind, cv=3).mean():.0%} right")

# %%
# Each row is a star, the one with the shortest period on top. The bright curve is its frequency;
# what runs along with it, a cycle a day apart, are the aliases of the nights.

fig, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
order = period.argsort()
power = LombScargle(times=times, frequencies=grid, fit_mean=True).fit_transform(field[order])
picture = ax.imshow(
    highest_in_bands(power, 350),
    aspect="auto",
    interpolation="nearest",
    cmap="magma",
    extent=(grid[0], grid[-1], 600, 0),
)
starts = np.concatenate([np.bincount(kind).cumsum() - np.bincount(kind), [600]])
ax.hlines(starts[1:-1], grid[0], grid[-1], color="white", lw=0.8, ls=":")
ax.set_yticks((starts[1:] + starts[:-1]) / 2, kinds)
ax.tick_params(axis="y", length=0)
ax.set(xlabel="frequency (cycles a day)", title="Spectra of 600 stars with gaps")
fig.colorbar(picture, ax=ax, label="share of variance")
plt.show()
