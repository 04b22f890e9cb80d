"""
Find a low-rank matrix from corrupted measurements
==================================================

The experiment of the paper behind :class:`~skicml.decomposition.OPSARegressor`, at a small
scale: a 30 x 30 matrix of rank 3 is measured 720 times, each time through a random matrix, and
one measurement in ten is grossly wrong. There are fewer measurements than entries, so least
squares is lost. The regressor knows neither the rank (it is given twice as many columns), nor
which measurements are wrong, nor how many.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, Ridge

from skicml.datasets import make_low_rank_sensing
from skicml.decomposition import OPSARegressor

SHAPE, RANK, N_SAMPLES = (30, 30), 3, 720

# tol=0 never stops, and the solver of HuberRegressor does not settle on so few samples.
warnings.filterwarnings("ignore", category=ConvergenceWarning)


def make_data(condition_number):
    return make_low_rank_sensing(
        N_SAMPLES, shape=SHAPE, rank=RANK, condition_number=condition_number, random_state=0
    )


def relative_error(coef, truth):
    return np.linalg.norm(coef.reshape(truth.shape) - truth) / np.linalg.norm(truth)


# %%
# A callback of scikit-learn sees every iteration. This one keeps the error.


class ErrorCurve:
    def __init__(self, truth):
        self.truth, self.errors = truth, []

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if fitted_estimator is not None:
            self.errors.append(relative_error(fitted_estimator.coef_, self.truth))

    def teardown(self, estimator, context):
        pass


def error_curve(X, y, truth, n_components=2 * RANK, **params):
    curve = ErrorCurve(truth)
    regressor = OPSARegressor(SHAPE, n_components, tol=0.0, max_iter=1000, **params)
    regressor.set_callbacks(curve).fit(X, y)
    return curve.errors


def plain_subgradient(X, y, truth, max_iter=1000):
    """The l1 loss by subgradients in L and R without preconditioner, same start and step rule."""
    start = OPSARegressor(SHAPE, 2 * RANK, tol=1.0).fit(X, y)  # stops at once
    left, right = start.left_, start.right_
    n_kept = int(np.ceil((1 - start.outlier_fraction_) * len(y)))
    errors = []
    for _ in range(max_iter):
        errors.append(relative_error(left @ right.T, truth))
        residual = X @ (left @ right.T).ravel() - y
        S = (np.sign(residual) @ X).reshape(SHAPE)
        in_left, in_right = S @ right, S.T @ left
        gap = np.sort(np.abs(residual))[:n_kept].sum()
        step = gap / (np.sum(in_left**2) + np.sum(in_right**2))
        left, right = left - step * in_left, right - step * in_right
    return errors


# %%
# The condition number does not matter
# ------------------------------------

by_condition = {}
for kappa in (1, 10, 100):
    X, y, truth, _ = make_data(kappa)
    by_condition[kappa] = error_curve(X, y, truth)

# %%
# What it takes
# -------------
# Three things taken away: the preconditioner, the imbalance of the two starting factors, and the
# surplus columns (which one cannot do without if the rank is not known).

X, y, truth, _ = make_data(10)
variants = {
    "OPSA, twice the columns needed": by_condition[10],
    "with the rank known": error_curve(X, y, truth, n_components=RANK),
    "balanced start (imbalance=1)": error_curve(X, y, truth, imbalance=1.0),
    "no preconditioner": plain_subgradient(X, y, truth),
}

# %%
# Regressors that know nothing of the low rank
# --------------------------------------------

others = {
    "Ridge": Ridge(fit_intercept=False),
    "HuberRegressor": HuberRegressor(fit_intercept=False),
}
for name, regressor in others.items():
    print(f"{name:<15} relative error {relative_error(regressor.fit(X, y).coef_, truth):.2f}")
opsa = OPSARegressor(SHAPE, 2 * RANK).fit(X, y)
print(
    f"OPSARegressor   relative error {relative_error(opsa.coef_, truth):.0e}, rank {opsa.rank_}, "
    f"{(~opsa.inlier_mask_).sum()} measurements found wrong"
)

# %%

figure, axes = plt.subplots(1, 2, figsize=(12, 4), sharey=True, layout="constrained")
for kappa, errors in by_condition.items():
    axes[0].semilogy(errors, label=f"condition number {kappa}")
axes[0].set_title("Linear convergence, whatever the condition")
axes[0].set_ylabel("relative error")
for name, errors in variants.items():
    axes[1].semilogy(errors, label=name)
axes[1].set_title("What it takes")
for ax in axes:
    ax.set_xlabel("iteration")
    ax.grid(alpha=0.3)
axes[0].legend(loc="upper right")
axes[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
plt.show()
