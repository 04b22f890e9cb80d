"""Denoisers that are known exactly: normal data of any mean and covariance."""

import numpy as np
import torch
from torch import nn


class GaussianDenoiser(nn.Module):
    """What a perfect network says about rows from N(mean, cov), for any prediction.

    Follows the network protocol, with integer or real times.
    """

    def __init__(self, mean, cov, schedule, prediction="eps"):
        super().__init__()
        self.mean = torch.as_tensor(mean, dtype=torch.float64)
        values, vectors = np.linalg.eigh(np.asarray(cov, dtype=float))
        self.variances = torch.as_tensor(values)
        self.axes = torch.as_tensor(vectors)
        self.schedule = schedule
        self.prediction = prediction

    def forward(self, x, t, cond=None, context=None):
        alpha, sigma = (torch.as_tensor(c)[:, None] for c in self.schedule.at(t.cpu().numpy()))
        shifted = (x.double() - alpha * self.mean) @ self.axes
        # E[eps | x] = sigma (alpha^2 cov + sigma^2)^-1 (x - alpha mean)
        eps = (sigma / (alpha**2 * self.variances + sigma**2) * shifted) @ self.axes.T
        x0 = (x - sigma * eps) / alpha
        output = {"eps": eps, "x0": x0, "v": alpha * eps - sigma * x0}[self.prediction]
        return output.to(x.dtype)


def gaussian_predict(mean, cov, schedule):
    """``predict(x, t)`` of the sampling loop in double precision."""
    network = GaussianDenoiser(mean, cov, schedule)

    def predict(x, t):
        eps = network(x, torch.full((len(x),), float(t)))
        alpha, sigma = schedule.alpha_[t], schedule.sigma_[t]
        return (x - sigma * eps) / alpha, eps

    return predict
