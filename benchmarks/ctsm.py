"""CTSM where the density ratio is known, for mutual information, and under covariate shift.

Run with ``python -m benchmarks.ctsm``.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from skorch.callbacks import LRScheduler
from threadpoolctl import threadpool_limits
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks._harness import Report
from skicml._torch import fit_net
from skicml.density_ratio import CTSM, TSM, importance_weights, mutual_information
from skicml.density_ratio._ctsm_torch import (
    CTSMNet,
    PathData,
    TimeWeight,
    TSMNet,
    VariancePreservingPath,
)

SEEDS = range(3)
LAYERS = (64, 64, 64)
# Correlation of a pair of columns whose mutual information is 1/2 nat.
RHO = np.sqrt(1 - np.exp(-1))


@dataclass
class Problem:
    """Two densities whose log ratio is known.

    Attributes
    ----------
    draw : callable
        ``draw(n_samples, rng)`` gives rows of p0 and rows of p1.
    log_ratio : callable
        log p1(x) - p0(x) of rows.
    """

    draw: Callable
    log_ratio: Callable

    def samples(self, n_samples, seed):
        """X and y, as fit takes them; `n_samples` of either density."""
        X = np.vstack(self.draw(n_samples, np.random.RandomState(seed)))
        return X, np.repeat([0, 1], n_samples)

    def judge(self, log_ratio, n_samples, seed):
        """Errors of a function of rows on new rows."""
        X, y = self.samples(n_samples, 10_000 + seed)
        exact, found = self.log_ratio(X), log_ratio(X)
        error = np.square(found - exact)
        return {
            "mse": error.mean(),
            "mse_p1": error[y == 1].mean(),
            "relative": error.mean() / exact.var(),
            "kl": found[y == 1].mean(),
            "kl_error": abs(found[y == 1].mean() - exact[y == 1].mean()),
            "correlation": np.corrcoef(found, exact)[0, 1],
        }


def shift():
    """E1: five columns, two of which move and change their scale; 1.29 nats."""
    mean, scale = np.array([1.0, 1, 0, 0, 0]), np.array([0.6, 1.3, 1, 1, 1])

    def draw(n, rng):
        return rng.normal(size=(n, 5)), mean + scale * rng.normal(size=(n, 5))

    def log_ratio(X):
        z = (X - mean) / scale
        return (np.square(X) / 2 - np.square(z) / 2 - np.log(scale)).sum(axis=1)

    return Problem(draw, log_ratio)


def bimodal():
    """E2: a wide Gaussian, and two narrow ones inside it; 2.93 nats."""
    centre = np.array([1.5, 1.5, 0, 0])

    def draw(n, rng):
        side = rng.choice([-1, 1], size=(n, 1))
        return 1.5 * rng.normal(size=(n, 4)), side * centre + 0.5 * rng.normal(size=(n, 4))

    def log_ratio(X):
        narrow = [-2 * np.square(X - side * centre).sum(axis=1) for side in (-1, 1)]
        wide = -np.square(X).sum(axis=1) / 4.5
        return np.logaddexp(*narrow) - np.log(2) - wide + 4 * np.log(3)

    return Problem(draw, log_ratio)


def mixtures(n_features, separation=1.0):
    """The paper's mixtures of two Gaussians each, around -2 and +2."""
    sigma = np.sqrt(4 / (4 + separation**2))
    half_gap = separation * sigma / 2

    def component(n, centre, rng):
        side = rng.choice([-1, 1], size=(n, 1))
        return centre + side * half_gap + sigma * rng.normal(size=(n, n_features))

    def log_density(X, centre):
        distances = [np.square(X - centre - s * half_gap).sum(axis=1) for s in (-1, 1)]
        return np.logaddexp(*(-d / (2 * sigma**2) for d in distances))

    return Problem(
        lambda n, rng: (component(n, -2, rng), component(n, 2, rng)),
        lambda X: log_density(X, 2) - log_density(X, -2),
    )


def far_gaussian(n_features, mean=4.0):
    """The paper's shift from N(0, I) to N(4, I)."""
    return Problem(
        lambda n, rng: (
            rng.normal(size=(n, n_features)),
            mean + rng.normal(size=(n, n_features)),
        ),
        lambda X: mean * X.sum(axis=1) - n_features * mean**2 / 2,
    )


def correlated_blocks(n_samples, n_features, seed):
    """The paper's task of mutual information: two blocks with n_features / 4 nats."""
    rng = np.random.RandomState(seed)
    first, noise = rng.normal(size=(2, n_samples, n_features // 2))
    return first, RHO * first + np.sqrt(1 - RHO**2) * noise


def sinc_under_shift(seed, n_samples=400):
    """E6: training and new rows of a regression, and the true weights of the former."""
    rng = np.random.RandomState(seed)
    train = 1 + 0.5 * rng.normal(size=(n_samples, 1))
    new = 2 + 0.25 * rng.normal(size=(n_samples, 1))
    targets = [np.sinc(x[:, 0]) + 0.1 * rng.normal(size=n_samples) for x in (train, new)]
    log_ratio = np.square((train[:, 0] - 1) / 0.5) / 2 - np.square((train[:, 0] - 2) / 0.25) / 2
    return train, new, *targets, np.exp(log_ratio)


def weighted_regression_mse(train, new, y_train, y_new, weights):
    """Test error of a straight line fitted with weights."""
    line = LinearRegression().fit(train, y_train, sample_weight=weights)
    return np.square(line.predict(new) - y_new).mean()


def classifier_log_ratio(classifier, X, y):
    """Log ratio of balanced samples by the odds of a classifier."""
    classifier.fit(X, y)

    def log_ratio(rows):
        log_proba = np.log(np.clip(classifier.predict_proba(rows), 1e-300, None))
        return log_proba[:, 1] - log_proba[:, 0]

    return log_ratio


def kernel_log_ratio(method, X, y):
    """Log ratio by the package densratio: uLSIF, RuLSIF or KLIEP."""
    from densratio import densratio

    state = np.random.get_state()
    np.random.seed(0)  # densratio draws its kernel centres from the global generator
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = densratio(X[y == 1], X[y == 0], method, alpha=0.1, verbose=False)
    np.random.set_state(state)
    return lambda rows: np.log(np.clip(fitted.compute_density_ratio(rows), 1e-10, None))


class PairTimeScore(nn.Module):
    """Vectorised time score of the one-sided path to pairs of columns, of unknown correlations.

    With A = (t^2 S + (1 - t^2) I)^-1 and u = A x, the expectation of v_i given x_t is
    t ([(S - I) u]_i u_i - [(S - I) A]_ii); here S has a correlation for each pair (i, i + d).
    """

    def __init__(self, n_pairs):
        super().__init__()
        self.raw = nn.Parameter(torch.zeros(n_pairs))

    def correlations(self):
        return self.raw.tanh()

    def forward(self, x, t):
        a, b = x.chunk(2, dim=1)
        r, square = self.correlations(), t.square()
        determinant = 1 - (square * r).square()
        product = (a - square * r * b) * (b - square * r * a) / determinant.square()
        scores = t * (r * product + square * r.square() / determinant)
        return torch.cat([scores, scores], dim=1)


class SummedPairTimeScore(PairTimeScore):
    """Its sum, for the objective without conditioning."""

    def forward(self, x, t):
        return super().forward(x, t).sum(dim=1, keepdim=True)


def parametric_information(net_class, module_class, n_features, seed, max_iter=500):
    """Information that a trained parametric time score gives, by its own correlations."""
    pairs = np.hstack(correlated_blocks(20_000, n_features, seed))
    path = VariancePreservingPath(1e-5)
    data = PathData(path, pairs[:1], pairs)
    net = net_class(
        module_class,
        module__n_pairs=n_features // 2,
        weight=TimeWeight(path, "time_score", 1.0),
        batch_size=512,
        lr=0.02,
        seed=seed,
        callbacks=[
            LRScheduler(CosineAnnealingLR, T_max=max_iter, step_every="batch", event_name=None)
        ],
    )
    fit_net(net, data, steps=max_iter)
    r = net.module_.correlations().detach().double().numpy()
    return log_ratio_of_pairs(pairs, r).mean()


def log_ratio_of_pairs(X, r):
    """log N(x; 0, S) - log N(x; 0, I) for pairs of columns with correlations r."""
    a, b = np.hsplit(X, 2)
    quadratic = (r**2 * (a**2 + b**2) - 2 * r * a * b) / (1 - r**2)
    return (-quadratic / 2 - np.log1p(-(r**2)) / 2).sum(axis=1)


def experiment_known_ratios(report):
    """E1 to E3: errors on new rows, against classifiers, kernels and TSM."""
    cases = [
        ("shift of 5 columns", shift(), 2000, "mse", 0.5, "kl_error", 0.25),
        ("two modes in 4 columns", bimodal(), 2000, "mse_p1", 0.4, "kl_error", 0.2),
        ("far mixtures in 2 columns", mixtures(2), 5000, "mse", 4.0, "kl_error", 1.5),
    ]
    for name, problem, n_samples, metric, limit, second, second_limit in cases:
        params = {"hidden_layer_sizes": LAYERS}
        ours, rivals = [], {"LogisticRegression": [], "HistGradientBoosting": [], "TSM": []}
        for seed in SEEDS:
            X, y = problem.samples(n_samples, seed)
            ctsm = CTSM(random_state=seed, **params).fit(X, y)
            ours.append(problem.judge(ctsm.log_density_ratio, 2000, seed))
            # A third of the steps: the same processor time.
            tsm = TSM(max_iter=1000, random_state=seed, **params).fit(X, y)
            log_ratios = {
                "LogisticRegression": classifier_log_ratio(LogisticRegression(), X, y),
                "HistGradientBoosting": classifier_log_ratio(
                    HistGradientBoostingClassifier(random_state=seed), X, y
                ),
                "TSM": tsm.log_density_ratio,
            }
            for rival, log_ratio in log_ratios.items():
                rivals[rival].append(problem.judge(log_ratio, 2000, seed))
        X, y = problem.samples(2000, 0)
        for method in ("uLSIF", "KLIEP"):
            rivals[f"{method} of 2000 + 2000 rows"] = [
                problem.judge(kernel_log_ratio(method, X, y), 2000, 0)
            ]
        data = f"{name}, {n_samples} + {n_samples} rows"
        for rival, errors in rivals.items():
            found = [errors_[metric] for errors_ in ours]
            same_time = rival == "TSM"
            report.experiment(
                "Known ratio" + (", equal processor time" if same_time else ""),
                data=data,
                metric={"mse": "mean squared error of log r", "mse_p1": "the same, rows of p1"}[
                    metric
                ],
                ours=found,
                baseline=[errors_[metric] for errors_ in errors],
                baseline_name=rival,
                criterion="mean below the baseline"
                if same_time
                else f"at most {limit}, every seed, and mean below the baseline",
                passed=(same_time or max(found) <= limit)
                and np.mean(found) < np.mean([errors_[metric] for errors_ in errors]),
                higher_is_better=False,
            )
        found = [errors_[second] for errors_ in ours]
        report.experiment(
            "Divergence of p1 from p0",
            data=data,
            metric="absolute error, nats",
            ours=found,
            baseline=[errors_[second] for errors_ in rivals["LogisticRegression"]],
            baseline_name="LogisticRegression",
            criterion=f"at most {second_limit}, every seed",
            passed=max(found) <= second_limit,
            higher_is_better=False,
        )


def experiment_information(report):
    """E4, and the paper's table with a parametric time score."""
    ours = []
    for seed in SEEDS:
        first, second = correlated_blocks(5000, 20, seed)
        ctsm = CTSM("vp", max_iter=4000)
        ours.append(mutual_information(first, second, ctsm, random_state=seed))
    X = np.vstack([np.hstack([first, np.roll(second, 1, axis=0)]), np.hstack([first, second])])
    kernels = kernel_log_ratio("uLSIF", X, np.repeat([0, 1], 5000))(X[5000:]).mean()
    report.experiment(
        "Mutual information, network",
        data="10 pairs, 5000 rows, 5 nats",
        metric="estimate in nats",
        ours=ours,
        baseline=kernels,
        baseline_name="uLSIF",
        criterion="within 0.8 of 5, every seed",
        passed=np.abs(np.subtract(ours, 5)).max() <= 0.8,
    )
    for n_features in (40, 80, 160, 320):
        exact = n_features / 4
        found, rival = (
            [parametric_information(net, module, n_features, seed) for seed in range(2)]
            for net, module in ((CTSMNet, PairTimeScore), (TSMNet, SummedPairTimeScore))
        )
        report.experiment(
            "Mutual information, parametric time score, equal steps",
            data=f"{n_features // 2} pairs, 20000 rows, {exact:.0f} nats",
            metric="absolute error, nats",
            ours=np.abs(np.subtract(found, exact)),
            baseline=np.abs(np.subtract(rival, exact)),
            baseline_name="TSM",
            criterion="at most 5 % of the truth, every seed, and mean below the baseline",
            passed=np.abs(np.subtract(found, exact)).max() <= 0.05 * exact
            and np.abs(np.subtract(found, exact)).mean() < np.abs(np.subtract(rival, exact)).mean(),
            higher_is_better=False,
        )


def experiment_covariate_shift(report):
    """E6: a straight line fitted with weights."""
    ours, plain = [], []
    for seed in range(5):
        train, new, y_train, y_new, _ = sinc_under_shift(seed)
        ctsm = CTSM(hidden_layer_sizes=(64, 64), max_iter=1000, random_state=seed)
        ctsm.fit(np.vstack([train, new]), np.repeat([0, 1], len(train)))
        for errors, weights in ((ours, importance_weights(ctsm, train)), (plain, None)):
            errors.append(weighted_regression_mse(train, new, y_train, y_new, weights))
    report.experiment(
        "Covariate shift",
        data="sinc, 400 training and 400 new rows",
        metric="test MSE of a linear regression",
        ours=ours,
        baseline=plain,
        baseline_name="no weights",
        criterion="at most 0.02, every seed",
        passed=max(ours) <= 0.02,
        higher_is_better=False,
    )


def experiment_paper_scale(report):
    """E8: the paper's network and number of steps."""
    params = {
        "hidden_layer_sizes": (256, 256, 256),
        "max_iter": 20_000,
        "standardize": False,
        "random_state": 0,
    }
    cases = [
        ("N(0, I) to N(4, I), 2 columns", far_gaussian(2), "vp", 0.0052),
        ("far mixtures in 10 columns", mixtures(10), "bridge", 0.005),
    ]
    for name, problem, path, limit in cases:
        X, y = problem.samples(50_000, 0)
        ctsm = CTSM(path, **params).fit(X, y)
        found = problem.judge(ctsm.log_density_ratio, 2000, 0)
        plain = problem.judge(classifier_log_ratio(LogisticRegression(), X, y), 2000, 0)
        report.experiment(
            "Setting of the paper",
            data=f"{name}, 50000 + 50000 rows, 20000 steps",
            metric="mean squared error of log r / its variance",
            ours=found["relative"],
            baseline=plain["relative"],
            baseline_name="LogisticRegression",
            criterion=f"at most {limit}",
            passed=found["relative"] <= limit,
            higher_is_better=False,
        )


def experiment_seconds(report):
    """Limits in processor time, one thread."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(10_000, 10)), np.arange(10_000) % 2
    ctsm = CTSM(random_state=0, max_iter=100).fit(X, y)
    step, prediction = [], []
    for _ in range(5):
        start = time.process_time()
        ctsm.set_params(max_iter=300).fit(X, y)
        step.append((time.process_time() - start) / 300 * 1000)
        start = time.process_time()
        ctsm.log_density_ratio(X)
        prediction.append(time.process_time() - start)
    for name, found, limit, unit in (
        ("Gradient step", step, 2.0, "ms"),
        ("Prediction of 10000 rows", prediction, 3.0, "s"),
    ):
        report.experiment(
            name,
            data="10 columns, default network, batches of 256",
            metric=f"processor time, {unit}",
            ours=found,
            baseline=limit,
            baseline_name="limit",
            criterion=f"median at most {limit:g} {unit}",
            passed=np.median(found) <= limit,
            higher_is_better=False,
        )


def experiment_speed(report):
    """Against the objective with time derivatives, and against kernels."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(1000, 20)), np.arange(1000) % 2
    row = report.timing(
        "100 steps, 20 columns",
        "TSM",
        lambda: CTSM(max_iter=100, random_state=0).fit(X, y),
        lambda: TSM(max_iter=100, random_state=0).fit(X, y),
    )
    report.experiment(
        "Cost of a step",
        data="20 columns, default network",
        metric="time / time of TSM",
        ours=row["ratio"],
        baseline=1.0,
        baseline_name="TSM",
        criterion="at most 0.5",
        passed=row["ratio"] <= 0.5,
        higher_is_better=False,
    )
    X, y = shift().samples(2000, 0)
    report.timing(
        "fit of 4000 rows, 5 columns, 3000 steps",
        "densratio, uLSIF",
        lambda: CTSM(hidden_layer_sizes=LAYERS, random_state=0).fit(X, y),
        lambda: kernel_log_ratio("uLSIF", X, y),
        repeats=2,
    )


def main():
    torch.set_num_threads(1)
    report = Report(
        "ctsm",
        "Density Ratio Estimation with Conditional Probability Paths",
        "Regression on the conditional time score learns density ratios of distant samples "
        "faster than time score matching, and mutual information in many dimensions",
    )
    with threadpool_limits(1):
        experiment_covariate_shift(report)
        experiment_known_ratios(report)
        experiment_information(report)
        experiment_seconds(report)
        experiment_speed(report)
        experiment_paper_scale(report)
    report.write()


if __name__ == "__main__":
    main()
