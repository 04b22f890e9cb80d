"""The sampling loop, its solvers, and what may be hung into it.

Times are ints, so the coefficients of a step are plain floats and x keeps its dtype. Nothing
here switches gradients off: the caller does, where it can.
"""

from itertools import pairwise
from math import expm1, isinf, sqrt

import torch

from skicml.generative._prediction import split_prediction

SOLVERS = ("ddim", "ddpm", "dpm++1", "dpm++2m")


class Noise:
    """Standard normal numbers, independent for every row.

    Parameters
    ----------
    generator : torch.Generator
        CPU generator.
    """

    def __init__(self, generator):
        self.generator = generator

    def __call__(self, like):
        """Noise of the shape, dtype and device of the tensor `like`."""
        return self._draw(like.shape, like)

    def _draw(self, shape, like):
        noise = torch.randn(shape, generator=self.generator, dtype=like.dtype)
        return noise.to(like.device)


class SharedNoise(Noise):
    """Standard normal numbers that all data rows share; a row is `n_draws` rows of the batch.

    Row r and draw j stand at place ``r * n_draws + j`` of the batch. What is sampled for a row
    then does not depend on the other rows.

    Parameters
    ----------
    generator : torch.Generator
        CPU generator.
    n_draws : int
        Draws a row, independent of one another.
    """

    def __init__(self, generator, n_draws):
        super().__init__(generator)
        self.n_draws = n_draws

    def __call__(self, like):
        noise = self._draw((self.n_draws, *like.shape[1:]), like)
        n_rows = len(like) // self.n_draws
        return noise.repeat(n_rows, *[1] * (noise.ndim - 1))


class DDIM:
    """Denoising diffusion implicit steps; `eta` = 1 is the ancestral sampler of DDPM.

    Parameters
    ----------
    schedule : NoiseSchedule
        The noise schedule.
    eta : float, default=0.0
        Share of the posterior's noise; 0 is deterministic.
    """

    def __init__(self, schedule, eta=0.0):
        self.schedule = schedule
        self.eta = eta

    def step(self, x, x0, eps, a, b, noise):
        """From x at time a to time b < a.

        Parameters
        ----------
        x, x0, eps : tensor
            Present point, and the data and noise that it is made of.
        a, b : int
            Times.
        noise : callable
            Gives noise like a tensor.

        Returns
        -------
        x : tensor
            Point at time b.
        """
        sigma_b = float(self.schedule.sigma_[b])
        fresh = self._fresh(a, b) if self.eta else 0.0
        kept = sqrt(max(sigma_b**2 - fresh**2, 0.0))
        x = float(self.schedule.alpha_[b]) * x0 + kept * eps
        return x + fresh * noise(x) if fresh else x

    def _fresh(self, a, b):
        # eta sqrt((sigma_b^2 / sigma_a^2) (1 - abar_a / abar_b))
        ratio = self.schedule.sigma_[b] / self.schedule.sigma_[a]
        return self.eta * float(ratio) * self.schedule.ancestor(a, b)[1]


class DPMSolverPP:
    """Multistep DPM-Solver++ of the data prediction.

    Parameters
    ----------
    schedule : NoiseSchedule
        The noise schedule.
    order : {1, 2}, default=2
        Order 1 is the same as DDIM. The first step and the step to t = 0 are of order 1.
    """

    def __init__(self, schedule, order=2):
        self.schedule = schedule
        self.order = order
        self._last = self._before = None  # (time, x0) of the last two times

    def step(self, x, x0, eps, a, b, noise):
        """From x at time a to time b < a; see :meth:`DDIM.step`."""
        self._remember(a, x0)
        log_snr = self.schedule.log_snr_
        h = float(log_snr[b] - log_snr[a])
        ratio = float(self.schedule.sigma_[b] / self.schedule.sigma_[a])
        alpha_b = float(self.schedule.alpha_[b])
        return ratio * x - alpha_b * expm1(-h) * self._extrapolated(x0, a, h)

    def _remember(self, a, x0):
        last = a if self._last is None else self._last[0]
        if last > a:  # a time may be visited again
            self._before = self._last
        elif last < a:  # another walk begins
            self._before = None
        self._last = (a, x0)

    def _extrapolated(self, x0, a, h):
        if self.order == 1 or self._before is None or isinf(h):
            return x0
        time, before = self._before
        h_before = float(self.schedule.log_snr_[a] - self.schedule.log_snr_[time])
        weight = h / (2 * h_before)  # 1 / (2 r)
        return (1 + weight) * x0 - weight * before


def make_solver(solver, schedule):
    """Solver object of a name; an object that has ``step`` is passed on."""
    if solver == "ddim":
        return DDIM(schedule)
    if solver == "ddpm":
        return DDIM(schedule, eta=1.0)
    if solver == "dpm++1":
        return DPMSolverPP(schedule, order=1)
    if solver == "dpm++2m":
        return DPMSolverPP(schedule, order=2)
    if hasattr(solver, "step"):
        return solver
    raise ValueError(f"solver must be one of {SOLVERS} or have a method step, got {solver!r}.")


class FixedEntries:
    """Hold known entries of x while the others are sampled.

    Parameters
    ----------
    values : tensor
        Clean values, broadcastable to x; ignored where `mask` is False.
    mask : bool tensor
        Which entries are known.
    schedule : NoiseSchedule
        The noise schedule.
    noise : callable or None, default=None
        Gives noise like a tensor: entries are replaced by known values noised to the present
        level. None replaces them by the clean values at every level, as planners do whose
        network was trained so.
    """

    def __init__(self, values, mask, schedule, noise=None):
        self.values = values
        self.mask = mask
        self.schedule = schedule
        self.noise = noise

    def __call__(self, x, t):
        """x at time t with the known entries in place."""
        known = self.values
        if self.noise is not None and t > 0:
            alpha, sigma = float(self.schedule.alpha_[t]), float(self.schedule.sigma_[t])
            known = alpha * known + sigma * self.noise(x)
        return torch.where(self.mask, known.to(x), x)


def sample_loop(
    predict,
    x,
    schedule,
    timesteps,
    *,
    solver="ddim",
    noise=None,
    guidance=(),
    hooks=(),
    clip=None,
    fixed=None,
    n_resample=1,
    trajectory=None,
):
    """Take x from the first to the last of the times.

    Parameters
    ----------
    predict : callable
        ``predict(x, t) -> (x0, eps)`` for an int t: a denoiser, or anything that stands in for
        it, with or without memory of earlier calls.
    x : tensor of shape (n_samples, ...)
        Start, usually standard normal noise.
    schedule : NoiseSchedule
        The noise schedule.
    timesteps : sequence of int
        Decreasing times.
    solver : str or object, default="ddim"
        "ddim", "ddpm", "dpm++1", "dpm++2m", or an object with
        ``step(x, x0, eps, a, b, noise)``.
    noise : callable or None, default=None
        Gives noise like a tensor, e.g. :class:`Noise`; needed by "ddpm" and to resample.
    guidance : sequence of callable, default=()
        ``g(x, t, x0, eps) -> eps`` in turn.
    hooks : sequence of callable, default=()
        ``h(x, t) -> x`` after every step, at its new time.
    clip : tuple of two tensors or None, default=None
        Lowest and highest x0; eps follows.
    fixed : callable or None, default=None
        ``fixed(x, t) -> x``, e.g. :class:`FixedEntries`: applied at the start, after every
        step, and once more after the hooks.
    n_resample : int, default=1
        Times that every step is made, with noise put back in between (RePaint), so that
        sampled entries may agree with fixed ones.
    trajectory : list or None, default=None
        Every x is appended to it, the start too.

    Returns
    -------
    x : tensor
        x at the last time.

    Examples
    --------
    The exact denoiser of the standard normal distribution takes noise back to itself:

    >>> import torch
    >>> from skicml.generative import NoiseSchedule, sample_loop
    >>> schedule = NoiseSchedule("cosine", 100)
    >>> def predict(x, t):
    ...     return schedule.alpha_[t] * x, schedule.sigma_[t] * x
    >>> x = torch.linspace(-2, 2, 5)[:, None]
    >>> y = sample_loop(predict, x, schedule, schedule.timesteps(20), solver="dpm++2m")
    >>> torch.allclose(x, y, atol=0.02)
    True
    """
    solver = make_solver(solver, schedule)
    if fixed is not None:
        x = fixed(x, int(timesteps[0]))
    if trajectory is not None:
        trajectory.append(x)
    for a, b in pairwise(int(t) for t in timesteps):
        for remaining in reversed(range(n_resample if b > 0 else 1)):
            x0, eps = _steered(predict, x, a, schedule, guidance, clip)
            x = solver.step(x, x0, eps, a, b, noise)
            x = _settled(x, b, hooks, fixed)
            if remaining:
                alpha, sigma = schedule.ancestor(a, b)
                x = alpha * x + sigma * noise(x)
                if fixed is not None:
                    x = fixed(x, a)
        if trajectory is not None:
            trajectory.append(x)
    return x


def _steered(predict, x, a, schedule, guidance, clip):
    """Prediction at time a, guided and clipped, x0 and eps still consistent with x."""
    x0, eps = predict(x, a)
    alpha, sigma = float(schedule.alpha_[a]), float(schedule.sigma_[a])
    for guide in guidance:
        guided = guide(x, a, x0, eps)
        # x0 moves as much as eps says; where alpha is tiny it could not be had from eps alone
        x0 = x0 + split_prediction(guided - eps, 0.0, alpha, sigma, "eps")[0]
        eps = guided
    if clip is not None:
        x0, eps = split_prediction(x0.clamp(*clip), x, alpha, sigma, "x0")
    return x0, eps


def _settled(x, b, hooks, fixed):
    """x at time b after the fixed entries and the hooks had their say."""
    if fixed is not None:
        x = fixed(x, b)
    for hook in hooks:
        x = hook(x, b)
    if hooks and fixed is not None:
        x = fixed(x, b)
    return x
