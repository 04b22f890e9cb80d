"""
==============================
A diffusion model, taken apart
==============================

:class:`~skicml.generative.DiffusionModel` is put together from parts that can be had one by one:
a schedule of the noise, a network, and a loop with places where something may be hung in. Here
digits are drawn by three networks, a model that never saw a label is steered to one, and curves
with a hidden middle are completed by a model of our own.
"""

# %%
# How fast the data drown
# -----------------------
# A :class:`~skicml.generative.NoiseSchedule` says how much of the data is left at each time,
# x_t = alpha_t x_0 + sigma_t eps. What matters is the logarithm of alpha / sigma: it is high where
# the noise only blurs, and low where nothing is left. The shape of a digit is decided in between.

from functools import partial

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from torch.distributions import MultivariateNormal

from skicml.generative import (
    BaseDiffusion,
    ClassifierGuidance,
    DiffusionModel,
    DiffusionSettings,
    FixedEntries,
    MLPDenoiser,
    NoiseSchedule,
    TransformerDenoiser,
    UNet1dDenoiser,
    UNet2dDenoiser,
    sample_loop,
)
from skicml.metrics import precision_recall_knn

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)

schedules = {
    "cosine": NoiseSchedule("cosine"),
    "linear": NoiseSchedule("linear"),
    "quad": NoiseSchedule("quad", n_timesteps=50),  # the length it is made for
}
colours = dict(zip(schedules, ["tab:blue", "tab:orange", "tab:green"]))
for name, schedule in schedules.items():
    between, lost = np.abs(schedule.log_snr_) < 1, schedule.log_snr_ < -2
    print(f"{name}: {between.mean():.0%} of the times in between, {lost.mean():.0%} below -2")

# %%
# On the right, one digit with the same noise under each schedule. The cosine stays longest where
# the digit is half there; the linear schedule spends more than a third of its time where next to
# nothing is left of it.


def show(ax, pixels):
    ax.imshow(pixels.reshape(8, 8), cmap="magma", vmin=-1, vmax=17)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


left, right = plt.figure(figsize=(11, 2.9), layout="constrained").subfigures(
    1, 2, width_ratios=[1, 2]
)
curve = left.subplots()
curve.axhspan(-1, 1, color="0.93", label="in between")
for name, schedule in schedules.items():
    time = np.arange(1, schedule.n_timesteps + 1) / schedule.n_timesteps
    curve.plot(time, schedule.log_snr_[1:], color=colours[name], lw=2, label=name)
curve.set(xlabel="time t / T", ylabel="log(alpha / sigma)", xlim=(0, 1), ylim=(-6, 6))
curve.legend(frameon=False, loc="lower left")

digit = (X_train[4] - X_train.mean()) / X_train.std()
noise = np.random.RandomState(0).standard_normal(64)
shares = np.linspace(0, 1, 9)
for row, (name, schedule) in zip(right.subplots(3, 9), schedules.items()):
    row[0].set_ylabel(name, color=colours[name])
    for ax, share in zip(row, shares):
        alpha, sigma = schedule.at(max(share * schedule.n_timesteps, 1))
        show(ax, (alpha * digit + sigma * noise) * X_train.std() + X_train.mean())
        if name == "cosine":
            ax.set_title(f"{share:g}", fontsize=9)
plt.show()

# %%
# Three networks
# --------------
# ``network`` takes a function that returns any torch module with the signature
# ``module(x, t, cond=None, context=None)``. The networks of the library are such modules, in the
# size that one likes: a perceptron over columns, a transformer over patches and a U-Net.


def perceptron(n_features, n_cond):
    return MLPDenoiser(n_features, hidden_dim=128, n_layers=3, n_cond=n_cond)


def transformer(image_shape, n_cond):
    return TransformerDenoiser(image_shape, hidden_dim=64, n_layers=2, n_cond=n_cond)


def unet(image_shape, n_cond):
    return UNet2dDenoiser(image_shape, base_channels=16, n_cond=n_cond)


models, drawn = {}, {}
for network, image_shape in ((perceptron, None), (transformer, (8, 8)), (unet, (8, 8))):
    model = DiffusionModel(
        network,
        image_shape=image_shape,
        max_iter=200,
        batch_size=64,
        learning_rate=4e-3,
        n_sampling_steps=20,
        random_state=0,
    ).fit(X_train)
    models[network.__name__] = model
    drawn[network.__name__] = model.sample(500)

# %%
# All had 200 short steps and no labels. Precision is the share of the drawn digits that lie among
# real ones, recall the share of the real ones that lie among those drawn. The perceptron draws
# clean digits, but leaves out many kinds. The transformer does the opposite: it must learn first
# which patches are neighbours. Convolutions know that from the start, and after so little training
# it is the U-Net, with the fewest weights, that comes closest to both. Columns begin with the same
# noise, and often all three see the same digit in it.

real = X_test[:500]
precision, recall, *_ = precision_recall_knn(real, X_train[:500])
print(f"{'training':>12}: precision {precision:.2f}, recall {recall:.2f}")
fig, axes = plt.subplots(3, 14, figsize=(10, 2.5))
for row, (name, rows) in zip(axes, drawn.items()):
    precision, recall, *_ = precision_recall_knn(real, rows)
    n_weights = sum(weights.numel() for weights in models[name].ema_module_.parameters())
    print(f"{name:>12}: precision {precision:.2f}, recall {recall:.2f}, {n_weights} weights")
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
    for ax, pixels in zip(row, rows):
        show(ax, pixels)
fig.subplots_adjust(wspace=0.06, hspace=0.06, left=0.11, right=0.99, bottom=0.01, top=0.99)
plt.show()

# %%
# Steered without labels
# ----------------------
# The U-Net has learnt what digits are like, but not which is which. A classifier may join it
# afterwards: :class:`~skicml.generative.ClassifierGuidance` follows the gradient of its log
# probability at each step. It must judge *noisy* digits, and here no training is needed for that.
# Linear discriminant analysis takes each class for a Gaussian, and noise turns one Gaussian into
# another: the mean is multiplied by alpha, the covariance becomes alpha^2 S + sigma^2 I.

model = models["unet"]
schedule, scaler = model.schedule_, model.scaler_
lda = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X_train, y_train)
means = torch.as_tensor(scaler.transform(lda.means_)).float()
covariance = torch.as_tensor(lda.covariance_ / scaler.scale[0] ** 2).float()


def steering(wanted, scale):
    """Guidance of row i to the class wanted[i]."""

    def log_proba(x, t):
        alpha, sigma = schedule.at(t)
        classes = MultivariateNormal(
            float(alpha) * means, float(alpha) ** 2 * covariance + float(sigma) ** 2 * torch.eye(64)
        )
        log_joint = classes.log_prob(x.flatten(1)[:, None])
        return log_joint.log_softmax(dim=1)[torch.arange(len(x)), torch.as_tensor(wanted)]

    return ClassifierGuidance(log_proba, schedule, scale)


# %%
# Each row starts from a single noise, ten times over: without steering it becomes the same digit
# ten times. The stronger the pull, the more often a classifier that had no part in it agrees with
# the wish, and the more alike become the digits of a class.

judge = MLPClassifier((64,), max_iter=500, random_state=0).fit(X_train / 16, y_train)
scales = (0, 1, 2, 4)
wanted = np.arange(200) % 10
for scale in scales:
    steered = model.sample(200, guidance=[steering(wanted, scale)], random_state=1)
    spread = np.mean([steered[wanted == label].std(axis=0).mean() for label in range(10)])
    agreement = judge.score(steered / 16, wanted)
    print(f"scale {scale}: as asked for {agreement:.2f}, deviation within a class {spread:.2f}")

digits = np.arange(10)
fig, axes = plt.subplots(len(scales), 20, figsize=(11, 2.6))
for half, seed in ((axes[:, :10], 0), (axes[:, 10:], 5)):
    start = np.repeat(np.random.RandomState(seed).standard_normal((1, 64)), 10, axis=0)
    for row, scale in zip(half, scales):
        for ax, pixels in zip(
            row, model.sample(10, guidance=[steering(digits, scale)], x_init=start)
        ):
            show(ax, pixels)
    for ax, label in zip(half[0], digits):
        ax.set_title(label, fontsize=9)
for ax, scale in zip(axes[:, 0], scales):
    ax.set_ylabel(f"scale {scale}", rotation=0, ha="right", va="center")
fig.subplots_adjust(wspace=0.06, hspace=0.06, left=0.07, right=0.99, bottom=0.01, top=0.92)
plt.show()

# %%
# A method of one's own
# ---------------------
# What all diffusion estimators share is :class:`~skicml.generative.BaseDiffusion`. A subclass says
# how to train (``_settings``), how noise rises (``_make_schedule``) and what denoises
# (``_make_network``), and gets the training. It may also override the hooks for the training data
# (``_make_batch``), for the loss (``_loss``), for the learning rate (``_make_scheduler``) and for
# what is read off the network (``_predict``). The rows here are curves over time, of one channel.


class CurveModel(BaseDiffusion):
    """Diffusion model of curves, with a U-Net over time."""

    def _settings(self):
        return DiffusionSettings(max_iter=300, batch_size=64, ema_decay=None)

    def _make_schedule(self):
        return NoiseSchedule("cosine")

    def _make_network(self, shape, n_cond):
        return UNet1dDenoiser(shape, base_channels=16)

    def fit(self, X, y=None):
        self.net_ = self._fit_denoiser(self._make_batch(X), X.shape[1:], seed=0)
        self.ema_module_ = self.net_.module_  # no average of the weights is kept
        return self


def wave_packets(n_samples, random_state):
    """Waves of random frequency and phase that swell and ebb, (n_samples, 1, 64)."""
    rng = np.random.RandomState(random_state)
    frequency, phase, centre = rng.uniform([2, 0, 0.2], [5, 2 * np.pi, 0.8], (n_samples, 3)).T
    time = np.arange(64) / 64
    swell = 0.4 + np.exp(-((time - centre[:, None]) ** 2) / 0.08)
    waves = np.cos(2 * np.pi * frequency[:, None] * time + phase[:, None])
    return (swell * waves)[:, None].astype(np.float32)


curves = CurveModel().fit(wave_packets(2000, 0))

# %%
# The hidden middle
# -----------------
# Both ends of a curve are known. :class:`~skicml.generative.FixedEntries` puts them in place after
# each step of :func:`~skicml.generative.sample_loop`, with the noise of that level. But the middle
# was sampled before its ends were put right, and so it knows too little of them.
# ``n_resample`` throws noise on the result and takes the step again. From that the middle learns:
# it comes to meet the ends in height, phase and frequency. It is not a matter of time spent: as
# many steps in a finer walk do not help, and leave the middle as wrong as a flat line would be.

truth = torch.as_tensor(wave_packets(20, 1))
known = torch.ones(64, dtype=torch.bool)
known[20:44] = False
predict = partial(curves._predict, curves._denoiser())
schedule = curves._make_schedule()


def complete(n_steps, n_resample):
    """Three completions of every curve, (3, n_curves, 1, 64)."""
    generator = torch.Generator().manual_seed(0)
    thrice = truth.repeat(3, 1, 1)

    def noise(like):
        return torch.randn(like.shape, generator=generator)

    with torch.no_grad():
        drawn = sample_loop(
            predict,
            noise(thrice),
            schedule,
            schedule.timesteps(n_steps),
            noise=noise,
            fixed=FixedEntries(thrice, known, schedule, noise),
            n_resample=n_resample,
        )
    return drawn.unflatten(0, (3, -1))


ways = {
    "25 steps": (25, 1),
    "300 steps": (300, 1),
    "25 steps, each made 12 times": (25, 12),
}
completed = {name: complete(*way) for name, way in ways.items()}
hidden = ~known
print(f"standard deviation of the hidden part: {truth[..., hidden].std():.2f}")
for name, draws in completed.items():
    error = (draws - truth)[..., hidden].square().mean().sqrt()
    print(f"error of {name}: {error:.2f}")

# %%
# Black is given, the dotted line is what was hidden, and each colour is a draw. One draw of the
# last row joins the ends by a faster wave, as no curve of the data does: resampling makes that
# rare, but does not rule it out.

fig, axes = plt.subplots(3, 4, figsize=(11, 5.2), sharex=True, sharey=True, layout="constrained")
time = np.arange(64) / 64
for row, (name, draws) in zip(axes, completed.items()):
    row[0].set_title(name, loc="left", fontsize=10)
    for i, ax in enumerate(row):
        ax.axvspan(time[20], time[43], color="0.95")
        for draw, colour in zip(draws, ["tab:blue", "tab:orange", "tab:green"]):
            ax.plot(time[19:45], draw[i, 0, 19:45], color=colour, lw=1.5)
        ax.plot(time, truth[i, 0], "k:", lw=1.2)
        for part in (slice(0, 20), slice(44, 64)):
            ax.plot(time[part], truth[i, 0, part], "k", lw=2)
        ax.spines[["top", "right"]].set_visible(False)
for ax in axes[-1]:
    ax.set_xlabel("time")
plt.show()
