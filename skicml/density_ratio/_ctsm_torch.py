"""Paths between two densities, the network of the time score, and the nets that train it."""

import copy
from itertools import islice, pairwise

import torch
from torch import nn

from skicml._torch import SeededNet

# One epoch of skorch: the steps between two entries of the loss curve, two checks of early
# stopping, or two reports to a callback.
STEPS_PER_EPOCH = 100
# Fixed draws that judge a network on held-out rows, and how many of them at a time.
_VALIDATION_DRAWS = 8192
_VALIDATION_BATCH = 1024

ACTIVATIONS = {"elu": nn.ELU, "relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}


class GaussianPath:
    """Conditional path p_t(x | z) = N(mu_t(z), k_t I) with z = (x0, x1).

    A path has ``first`` and ``last``, the times it is used between, and the methods
    ``variance(t)``, ``mean(t, x0, x1)``, ``velocity(x0, x1)``.
    """

    def point(self, t, x0, x1, noise):
        """Point of the path at time t."""
        return self.mean(t, x0, x1) + self.variance(t)[0].sqrt() * noise


class BridgePath(GaussianPath):
    """x_t = (1 - t) x0 + t x1 + sqrt(sigma^2 t (1 - t)) eps, between two samples.

    Parameters
    ----------
    variance : float
        sigma^2, the scale of the noise.
    time_eps : float
        The path is used on [time_eps, 1 - time_eps]: it has no noise at 0 and 1.
    """

    def __init__(self, variance, time_eps):
        self.bridge_variance = variance
        self.first, self.last = time_eps, 1 - time_eps

    def variance(self, t):
        """k_t and its derivative by t."""
        return self.bridge_variance * t * (1 - t), self.bridge_variance * (1 - 2 * t)

    def mean(self, t, x0, x1):
        """mu_t of the pair (x0, x1)."""
        return torch.lerp(x0, x1, t)

    def velocity(self, x0, x1):
        """Derivative of mu_t by t."""
        return x1 - x0

    def velocity_scale(self, X0, X1):
        """c = E ||velocity||^2 / (n_features sigma^2) over independent pairs of rows."""
        spread = X0.var(dim=0, correction=0) + X1.var(dim=0, correction=0)
        apart = (X1.mean(dim=0) - X0.mean(dim=0)).square()
        return (spread + apart).mean().item() / self.bridge_variance

    def unscaled(self, constant):
        """c' of the weight: E ||velocity||^2 / n_features, as `constant` gives it."""
        return constant * self.bridge_variance


class VariancePreservingPath(GaussianPath):
    """x_t = t x1 + sqrt(1 - t^2) eps, from the standard normal distribution to a sample.

    Parameters
    ----------
    time_eps : float
        The path is used on [0, 1 - time_eps]: it has no noise at 1.
    """

    def __init__(self, time_eps):
        self.first, self.last = 0.0, 1 - time_eps

    def variance(self, t):
        """k_t and its derivative by t."""
        return (1 - t) * (1 + t), -2 * t

    def mean(self, t, x0, x1):
        """mu_t of x1; x0 plays no part."""
        return t * x1

    def velocity(self, x0, x1):
        """Derivative of mu_t by t."""
        return x1

    def velocity_scale(self, X0, X1):
        """c = E ||velocity||^2 / n_features."""
        return X1.square().mean().item()

    def unscaled(self, constant):
        """c' of the weight, which is `constant` itself."""
        return constant


def make_path(name, *, bridge_variance, time_eps):
    """The path called `name`."""
    if name == "bridge":
        return BridgePath(bridge_variance, time_eps)
    return VariancePreservingPath(time_eps)


class TimeWeight:
    """The weight lam(t) of the regression, in forms that stay finite at both ends of the path.

    With g = sqrt(lam) / k, the two products of the objective are

        sqrt(lam)     = g k,
        sqrt(lam) v_i = g k' / 2 (eps_i^2 - 1) + g sqrt(k) mu'_i eps_i,

    while v_i alone has 1 / k in it.

    Parameters
    ----------
    path : BridgePath or VariancePreservingPath
        The path.
    name : {"time_score", "stein", "uniform"}
        lam = 2 k^2 / (k'^2 + 2 c' k), the inverse second moment of v_i; k; or 1.
    constant : float
        c, the mean squared velocity in units of the path.
    """

    def __init__(self, path, name, constant):
        self.path = path
        self.name = name
        self.constant = constant

    def _gain(self, k, k_rate):
        """g = sqrt(lam) / k."""
        if self.name == "time_score":
            return (2 / (k_rate**2 + 2 * self.path.unscaled(self.constant) * k)).sqrt()
        return 1 / k.sqrt() if self.name == "stein" else 1 / k

    def root(self, t):
        """sqrt(lam(t))."""
        k, k_rate = self.path.variance(t)
        return self._gain(k, k_rate) * k

    def regression(self, t, x0, x1, noise):
        """sqrt(lam) and, of the shape of x1, the target sqrt(lam) v of sqrt(lam) s."""
        k, k_rate = self.path.variance(t)
        gain = self._gain(k, k_rate)
        target = gain * k_rate / 2 * (noise.square() - 1)
        target = target + gain * k.sqrt() * self.path.velocity(x0, x1) * noise
        return gain * k, target


class TimeScoreNetwork(nn.Module):
    """Multi-layer perceptron of (x, t).

    Parameters
    ----------
    n_features, n_outputs : int
        Width of x; number of terms that add up to the time score.
    hidden_layer_sizes : sequence of int
        Widths of the hidden layers.
    activation : str
        Name of the activation.
    """

    def __init__(self, n_features, n_outputs, hidden_layer_sizes, activation):
        super().__init__()
        widths = [n_features + 1, *hidden_layer_sizes, n_outputs]
        layers = []
        for n_inputs, width in pairwise(widths):
            layers += [nn.Linear(n_inputs, width), ACTIVATIONS[activation]()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x, t):
        return self.layers(torch.cat([x, t], dim=1))


class PathData(torch.utils.data.Dataset):
    """Two samples, from which every step of the training draws afresh.

    Parameters
    ----------
    path : BridgePath or VariancePreservingPath
        The path between the densities.
    X0, X1 : ndarray of shape (n_samples_0, n_features) and (n_samples_1, n_features)
        Rows of the denominator and of the numerator.
    device : str, default="cpu"
        Where the rows live.
    held_out : PathData or None, default=None
        Rows that judge the network while it is trained.
    """

    def __init__(self, path, X0, X1, device="cpu", held_out=None):
        self.path = path
        self.X0 = torch.as_tensor(X0, dtype=torch.float32, device=device)
        self.X1 = torch.as_tensor(X1, dtype=torch.float32, device=device)
        self.held_out = held_out

    def __len__(self):
        return len(self.X0) + len(self.X1)

    def draw(self, n_draws, generator, unit_times=None):
        """A batch as skorch takes it: points and times of the path, and what they came from.

        x0 and x1 are drawn independently, with replacement, so samples need not have equal
        sizes and no row is tied to another.
        """
        x0 = self._rows(self.X0, n_draws, generator)
        x1 = self._rows(self.X1, n_draws, generator)
        if unit_times is None:
            unit_times = torch.rand(n_draws, 1, generator=generator)
        noise = torch.randn(x1.shape, generator=generator).to(x1.device)
        t = self.path.first + (self.path.last - self.path.first) * unit_times.to(x1.device)
        x = self.path.point(t, x0, x1, noise)
        return {"x": x, "t": t}, {"x0": x0, "x1": x1, "noise": noise}

    def fixed_draws(self, generator):
        """Batches with evenly spread times, drawn once, to compare networks with each other."""
        times = torch.randperm(_VALIDATION_DRAWS, generator=generator) + 0.5
        return [
            self.draw(len(t), generator, t[:, None] / _VALIDATION_DRAWS)
            for t in times.split(_VALIDATION_BATCH)
        ]

    @staticmethod
    def _rows(X, n_draws, generator):
        index = torch.randint(len(X), (n_draws,), generator=generator)
        return X[index.to(X.device)]


class DrawLoader:
    """Draws from a :class:`PathData`, as many as training takes steps, cut into epochs.

    Parameters
    ----------
    data : PathData
        The two samples.
    batch_size : int
        Draws a step.
    generator : torch.Generator
        Source of the draws.
    n_steps : int
        Number of batches in all.
    steps_per_epoch : int
        Number of batches of each iteration over the loader but the last one.
    """

    def __init__(self, data, *, batch_size, generator, n_steps, steps_per_epoch):
        self.steps_per_epoch = steps_per_epoch
        self._batches = (data.draw(batch_size, generator) for _ in range(n_steps))

    def __iter__(self):
        return islice(self._batches, self.steps_per_epoch)


class CTSMNet(SeededNet):
    """Net that regresses its outputs on the conditional time score, step by step.

    It is trained for a number of steps, on a :class:`PathData`. A module
    with one output learns the scalar form, one with an output a feature the vectorised form;
    either loss is an average a feature, so that they compare.

    Parameters
    ----------
    module : type
        :class:`TimeScoreNetwork`, or any module of ``x`` and ``t``.
    weight : TimeWeight
        Weight of the loss over time.
    **kwargs : dict
        Other parameters of SeededNet.
    """

    def __init__(self, module, *, weight, **kwargs):
        self.weight = weight
        super().__init__(module, **({"steps_per_epoch": STEPS_PER_EPOCH} | kwargs))

    def get_split_datasets(self, X, y=None, **fit_params):
        return X, X.held_out

    def get_iterator(self, dataset, training=False):
        if training:
            return DrawLoader(
                dataset,
                batch_size=self.batch_size,
                generator=self.generator_,
                n_steps=self.n_steps_,
                steps_per_epoch=self.steps_per_epoch,
            )
        # Not from generator_: the same draws whenever training goes on.
        return dataset.fixed_draws(torch.Generator().manual_seed(self.seed))

    def get_loss(self, y_pred, y_true, X=None, training=False):
        root, target = self.weight.regression(X["t"], **y_true)
        if y_pred.shape[1] == 1:
            target = target.sum(dim=1, keepdim=True)
        residual = target - root * y_pred
        return residual.square().sum() / y_true["noise"].numel()


class TSMNet(CTSMNet):
    """Net that matches the time score without conditioning, by integration by parts.

        L = E[lam s^2 + 2 d/dt(lam s)] + (E[2 lam s at the start] - E[2 lam s at the end]) / T

    over a path of length T in time. The derivative by t takes a second pass of autograd.
    """

    def infer(self, x, **fit_params):
        x["t"].requires_grad_()
        with torch.enable_grad():
            return super().infer(x, **fit_params)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        with torch.enable_grad():
            root = self.weight.root(X["t"])
            weighted = (root.square() * y_pred).sum()
            slope = torch.autograd.grad(weighted, X["t"], create_graph=training)[0]
            inside = (root * y_pred).square() + 2 * slope
            path = self.weight.path
            start, end = (self._boundary(time, y_true) for time in (path.first, path.last))
            loss = inside.mean() + 2 * (start - end) / (path.last - path.first)
        return loss / y_true["noise"].shape[1]

    def _boundary(self, time, y_true):
        """E[lam s] at one end of the path."""
        t = torch.full_like(y_true["noise"][:, :1], time)
        x = self.weight.path.point(t, **y_true)
        return (self.weight.root(t).square() * self.module_(x, t)).mean()


def double_module(module):
    """Copy of a module in double precision, in which predictions do not depend on chunks."""
    return copy.deepcopy(module).double().eval()


@torch.no_grad()
def time_scores(module, X, times):
    """Time score of every row at every time.

    Parameters
    ----------
    module : nn.Module
        Module of x and t, in double precision.
    X : ndarray of shape (n_samples, n_features)
        Rows in the coordinates of the path.
    times : ndarray of shape (n_times,)
        Times in [0, 1].

    Returns
    -------
    scores : ndarray of shape (n_samples, n_times)
        d/dt log p_t(x).
    """
    device = next(module.parameters()).device
    x = torch.as_tensor(X, dtype=torch.float64, device=device)
    t = torch.as_tensor(times, dtype=torch.float64, device=device)
    rows = x.repeat_interleave(len(t), dim=0)
    outputs = module(rows, t.repeat(len(x))[:, None])
    return outputs.sum(dim=1).reshape(len(x), len(t)).cpu().numpy()
