"""Log density of a denoiser by the ordinary differential equation of the probability flow."""

import copy
import math

import torch

from skicml.generative._prediction import split_prediction

_MAX_RHO = 200.0  # noise-to-signal ratio at which the density is taken to be normal
# Numbers in the Jacobians of the rows that are integrated at once.
_CHUNK = 2**20


def double_copy(denoiser):
    """Copy in double precision: in single precision a row's density depends on those beside it."""
    return copy.deepcopy(denoiser).double().requires_grad_(False)


def log_density(denoiser, x, *, cond=None, context=None, n_steps=50, probe=None):
    """Log density of rows under a denoiser.

    With rho = sigma / alpha and xbar = x / alpha, the flow is d xbar / d log rho = rho eps, and
    log p(x) is that of a normal distribution at the largest rho plus the integral of the
    divergence. Classical Runge-Kutta steps of equal size in log rho, the same for all rows.

    Parameters
    ----------
    denoiser : Denoiser
        From :func:`double_copy`.
    x : tensor of float64 of shape (n_samples, ...)
        Data in scaled units.
    cond, context : tensor or None, default=None
        Condition of each row.
    n_steps : int, default=50
        Number of steps, of four evaluations each.
    probe : tensor of shape (...) or None, default=None
        Signs that estimate the trace of the Jacobian by one product; None computes it exactly.

    Returns
    -------
    log_density : tensor of float64 of shape (n_samples,)
        In nats, per scaled units; the density is that of x with noise of the smallest rho.
    """
    entries = x[0].numel()
    size = max(1, _CHUNK // (entries * (entries if probe is None else 1)))
    parts = []
    for start in range(0, len(x), size):
        rows = slice(start, start + size)
        given = (None if condition is None else condition[rows] for condition in (cond, context))
        flow = _Flow(denoiser, *given, probe)
        parts.append(_integrate(flow, x[rows], denoiser.schedule, n_steps))
    return torch.cat(parts)


def _integrate(flow, xbar, schedule, n_steps):
    log_rho = schedule.log_rho()
    start, end = log_rho[0], min(math.log(_MAX_RHO), log_rho[-1])
    h = (end - start) / n_steps
    log_det = torch.zeros(len(xbar), dtype=xbar.dtype, device=xbar.device)
    for step in range(n_steps):
        u = start + step * h
        k1, d1 = flow(xbar, u)
        k2, d2 = flow(xbar + h / 2 * k1, u + h / 2)
        k3, d3 = flow(xbar + h / 2 * k2, u + h / 2)
        k4, d4 = flow(xbar + h * k3, u + h)
        xbar = xbar + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        log_det = log_det + h / 6 * (d1 + 2 * d2 + 2 * d3 + d4)
    rows = xbar.flatten(1)
    log_normal = -rows.square().sum(dim=1) / (2 * math.exp(2 * end))
    return log_det + log_normal - rows.shape[1] * (end + math.log(2 * math.pi) / 2)


class _Flow:
    """Velocity of xbar in u = log rho, and its divergence."""

    def __init__(self, denoiser, cond, context, probe):
        self.denoiser = denoiser
        self.cond = cond
        self.context = context
        self.probe = probe

    def __call__(self, xbar, u):
        rho = math.exp(u)
        alpha = 1 / math.sqrt(1 + rho**2)
        t = float(self.denoiser.schedule.times_at(u))
        with torch.enable_grad():
            x = (alpha * xbar).detach().requires_grad_()
            times = torch.full((len(x),), t, dtype=x.dtype, device=x.device)
            output = self.denoiser(x, times, self.cond, self.context)
            prediction = self.denoiser.prediction
            _, eps = split_prediction(output, x, alpha, rho * alpha, prediction)
            trace = self._trace(eps, x)
        return rho * eps.detach(), rho * alpha * trace

    def _trace(self, eps, x):
        """Trace of d eps / d x of every row."""
        if not eps.requires_grad:
            return x.new_zeros(len(x))
        if self.probe is not None:
            (product,) = torch.autograd.grad((eps * self.probe).sum(), x)
            return (product * self.probe).flatten(1).sum(dim=1)
        n_entries = x[0].numel()
        basis = torch.eye(n_entries, dtype=x.dtype, device=x.device).view(
            n_entries, 1, *x.shape[1:]
        )
        basis = basis.expand(n_entries, *x.shape)
        (jacobian,) = torch.autograd.grad(eps, x, basis, is_grads_batched=True)
        return jacobian.flatten(2).diagonal(dim1=0, dim2=2).sum(dim=1)
