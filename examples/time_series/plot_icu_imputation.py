"""
=======================================
Vital signs that nobody measured
=======================================

In intensive care some patients have an arterial line that gives a pressure every hour, and others
a nurse with a cuff now and then. :class:`~skicml.time_series.LSCDImputer` learns from many
patients what the missing hours may have been: not a value, but a distribution.
"""

# %%
# Twenty-four hours of four vital signs
# -------------------------------------
# Patients of the PhysioNet Challenge 2012, if the environment variable ``SKICML_DATA`` names a
# folder that has them; otherwise made-up patients, whose pressures hang together, too.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skicml.time_series import LSCDImputer

path = Path(os.environ.get("SKICML_DATA", "")) / "timeseries" / "physionet2012_600.npz"
titles = ["heart rate", "systolic pressure", "mean pressure", "diastolic pressure"]
if path.is_file():
    with np.load(path) as content:
        names = list(content["features"])
        columns = [names.index(name) for name in ("HR", "SysABP", "MAP", "DiasABP")]
        X = content["X"][:, :24, columns].astype(float)
else:
    rng = np.random.default_rng(1)
    level = rng.normal(size=(600, 1, 3)) + 0.6 * rng.normal(size=(600, 24, 3))
    heart_rate, systolic = 85 + 15 * level[..., 0], 120 + 20 * level[..., 1]
    diastolic = 60 + 8 * level[..., 1] + 6 * level[..., 2]
    X = np.stack([heart_rate, systolic, (systolic + 2 * diastolic) / 3, diastolic], axis=2)
    X += rng.normal(size=X.shape)
    X[rng.uniform(size=X.shape) < 0.3] = np.nan
print(f"{len(X)} patients, {np.isnan(X).mean():.0%} of the values missing")

# %%
# Hide what we know
# -----------------
# The last 40 patients are for the test. We take out a fifth of their measured values, each sign by
# itself, and keep them to compare with.

rng = np.random.default_rng(0)
train, test = X[:-40], X[-40:]
hidden = (rng.uniform(size=test.shape) < 0.2) & ~np.isnan(test)
shown = np.where(hidden, np.nan, test)

# %%
# Train for a while
# -----------------
# A small network and few steps, so that this page is made in less than a minute: the published
# network is four times as wide and is trained much longer.

imputer = LSCDImputer(
    n_layers=3, n_channels=16, n_heads=2, time_embedding_dim=32, spectral_layers=1,
    spectral_channels=8, max_iter=550, learning_rate=2e-3, n_samples=12,
    random_state=0,
).fit(train)  # fmt: skip
low, median, high = imputer.predict_quantiles(shown, quantiles=(0.05, 0.5, 0.95))

# %%
# How far off, and how sure?
# --------------------------
# Errors in standard deviations of each sign, against two that need no training: the mean of the
# sign, and a line between the last and the next measurement of the patient.

mean = np.broadcast_to(np.nanmean(train, axis=(0, 1)), test.shape)
hours, line = np.arange(24), mean.copy()
for i, k in np.ndindex(40, 4):
    seen = ~np.isnan(shown[i, :, k])
    if seen.any():
        line[i, :, k] = np.interp(hours, hours[seen], shown[i, seen, k])

errors = {
    name: [np.abs(filled - test)[..., k][hidden[..., k]].mean() / imputer.scale_[k]
           for k in range(4)]
    for name, filled in [("mean", mean), ("linear interpolation", line), ("LSCD", median)]
}  # fmt: skip
inside = ((test >= low) & (test <= high))[hidden].mean()
print({name: float(np.mean(values).round(3)) for name, values in errors.items()})
print(f"{inside:.0%} of the hidden values are inside the 90 % bands")

# %%
# The bands are narrow where another sign tells the value, as one pressure does for the others, and
# wide where nothing was measured. The heart rate, of which no other sign here tells much, changes
# slowly: a straight line does better on it than so short a training.

patient = (hidden.sum(axis=1).min(axis=1) * 100 + (~np.isnan(shown)).sum(axis=(1, 2))).argmax()
fig, axes = plt.subplots(2, 3, figsize=(12, 5.5), layout="constrained", width_ratios=(3, 3, 2))
for k, ax in enumerate(axes[:, :2].flat):
    ax.fill_between(hours, low[patient, :, k], high[patient, :, k], color="tab:blue", alpha=0.25,
                    lw=0, label="90 % band")  # fmt: skip
    ax.plot(hours, median[patient, :, k], color="tab:blue", lw=1.2, label="median")
    ax.plot(hours, shown[patient, :, k], "o", ms=4, color="black", label="measured")
    out = hidden[patient, :, k]
    ax.plot(hours[out], test[patient, out, k], "o", ms=5, mfc="white", color="tab:red",
            label="measured, but hidden")  # fmt: skip
    ax.set(title=titles[k], xlim=(-0.5, 23.5))
    if k >= 2:
        ax.set_xlabel("hour in intensive care")
axes[0, 0].legend(fontsize=7, ncols=2, frameon=False)

bars = plt.subplot(axes[0, 2].get_gridspec()[:, 2])
for ax in axes[:, 2]:
    ax.remove()
for j, (name, color) in enumerate(zip(errors, ("0.75", "0.5", "tab:blue"))):
    bars.barh(np.arange(4) + 0.27 * (j - 1), errors[name], 0.27, color=color, label=name)
bars.set_yticks(np.arange(4), titles)
bars.set(xlabel="mean error (standard deviations)", title="40 other patients", ylim=(4.2, -0.6))
bars.legend(frameon=False, fontsize=8, loc="lower right")
plt.show()
