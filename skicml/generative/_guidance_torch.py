"""Guidance of the sampler by the gradient of a classifier of noisy data."""

import torch
from torch import nn
from torch.nn import functional as F

from skicml._torch import seeded_init
from skicml.generative._networks_torch import MLPDenoiser
from skicml.generative._training_torch import averaged_module, make_net, train


class ClassifierGuidance:
    """Guidance ``eps - scale sigma_t grad_x log p(y | x_t)`` of the sampling loop.

    Parameters
    ----------
    log_proba : callable
        ``log_proba(x, t)`` with t an int gives a differentiable tensor of shape (n_samples,),
        the log probability of what is wanted of each row.
    schedule : NoiseSchedule
        The noise schedule.
    scale : float or callable, default=1.0
        Weight s, or its value at a time, ``scale(t)``.
    """

    def __init__(self, log_proba, schedule, scale=1.0):
        self.log_proba = log_proba
        self.schedule = schedule
        self.scale = scale

    def __call__(self, x, t, x0, eps):
        scale = self.scale(t) if callable(self.scale) else self.scale
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.log_proba(x, t).sum(), x)
        return eps - scale * float(self.schedule.sigma_[t]) * gradient


class NoisyClassifier(nn.Module):
    """Time-embedded perceptron that classifies noisy rows.

    Parameters
    ----------
    n_features : int
        Width of a row; rows of another shape are flattened.
    n_classes : int
        Number of classes.
    hidden_dim : int, default=128
        Width.
    n_layers : int, default=2
        Number of blocks.
    """

    def __init__(self, n_features, n_classes, hidden_dim=128, n_layers=2):
        super().__init__()
        self.network = MLPDenoiser(n_features, hidden_dim, n_layers, n_outputs=n_classes)

    def forward(self, x, t):
        """Logits of the classes; t is an int or a tensor of shape (n_samples,)."""
        if not isinstance(t, torch.Tensor):
            t = torch.full((len(x),), t, device=x.device)
        return self.network(x.flatten(1), t)

    def log_proba_of(self, codes):
        """Function ``(x, t) -> log p(codes | x_t)`` for :class:`ClassifierGuidance`."""
        return lambda x, t: F.log_softmax(self(x, t), dim=1).gather(1, codes[:, None])[:, 0]


def fit_noisy_classifier(denoiser, X, codes, settings, *, seed, objective=None, **network):
    """Train a classifier on data that the denoiser's schedule noises.

    Parameters
    ----------
    denoiser : Denoiser
        Gives the schedule.
    X : array of shape (n_samples, ...)
        Scaled data.
    codes : array of int of shape (n_samples,)
        Classes 0, 1, ...
    settings : DiffusionSettings
        How to train it.
    seed : int
        Seed of initialisation, batches and noise.
    objective : callable or None, default=None
        ``objective(classifier, batch, generator) -> loss`` with the keys ``"x0"`` and
        ``"codes"``; None means the cross-entropy at uniform times.
    **network : dict
        ``hidden_dim`` and ``n_layers`` of :class:`NoisyClassifier`.

    Returns
    -------
    classifier : NoisyClassifier
        In evaluation mode, on the CPU.
    """

    def cross_entropy(classifier, batch, generator):
        noised = denoiser.corrupt(batch["x0"], generator)
        return F.cross_entropy(classifier(noised.x, noised.t), batch["codes"])

    n_features = X[0].size
    with seeded_init(seed):
        classifier = NoisyClassifier(n_features, int(codes.max()) + 1, **network)
    net = make_net(classifier, settings, seed)
    train(
        net,
        {"x0": X, "codes": codes},
        settings,
        objective=objective or cross_entropy,
        device="cpu",
    )
    return averaged_module(net)
