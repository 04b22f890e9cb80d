"""LSMI where the exact interactions of every sample are known, on circuits, and on digits.

Run with ``python -m benchmarks.lsmi``.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp
from scipy.stats import mannwhitneyu
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import mutual_info_score
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from benchmarks._harness import Report
from skicml.information import LSMI, InteractionEnsembleClassifier, KnifeDensity
from skicml.information._pointwise import adjust, decompose, mean_adjustment

SEEDS = range(5)
LOG2 = np.log(2)
PAPER_TRAINING = {"init": "random", "learning_rate": 1e-3, "batch_size": 32, "max_epochs": 30}
NO_LIMIT = np.inf
# Exact means of R, U1, U2, S; largest error allowed; what the criterion says; largest error of
# the figures that the paper gives for itself, and for PID-Batch.
CIRCUITS = {
    "XOR": (
        [0, 0, 0, LOG2],
        [0.02, 0.02, 0.02, 0.0331],
        "S >= 0.66, R and U within 0.02",
        (0.002, 0.003),
    ),
    "OR": (
        [0.2158, 0, 0, LOG2 / 2],
        [0.03, 0.02, 0.02, 0.03],
        "R and S within 0.03, U within 0.02",
        (0.001, 0.018),
    ),
    "flag": (
        [0, 0, LOG2 / 2, LOG2 / 2],
        [NO_LIMIT, NO_LIMIT, 0.03, 0.03],
        "U2 and S within 0.03",
        (0.0106, 0.0896),
    ),
    "COPY": (
        [0, LOG2, 0, 0],
        [0.03, 0.0331, 0.03, 0.03],
        "U1 >= 0.66, others within 0.03",
        (None, None),
    ),
    "RDN": (
        [LOG2, 0, 0, 0],
        [0.0331, NO_LIMIT, NO_LIMIT, NO_LIMIT],
        "R >= 0.66",
        (None, None),
    ),
}


@dataclass
class GaussianViews:
    """Two noisy copies of the one-hot label, with correlated noise: everything is known.

    x1 = onehot(y) + u and x2 = onehot(y) + rho u + sqrt(1 - rho^2) v, with u and v normal of
    scale sigma, and y uniform.
    """

    n_classes: int
    rho: float
    sigma: float

    @property
    def views(self):
        return [self.n_classes, self.n_classes]

    def sample(self, n_samples, random_state):
        """X of shape (n_samples, 2 n_classes), and y."""
        rng = np.random.RandomState(random_state)
        y = rng.randint(self.n_classes, size=n_samples)
        onehot = np.eye(self.n_classes)[y]
        u, v = self.sigma * rng.normal(size=(2, n_samples, self.n_classes))
        return np.hstack([onehot + u, onehot + self.rho * u + np.sqrt(1 - self.rho**2) * v]), y

    def _log_likelihoods(self, X):
        """log p(x1|y), log p(x2|y), log p(x1,x2|y) for every class, shape (n_samples, 3, K)."""
        noise1, noise2 = np.split(X, 2, axis=1)
        noise1 = noise1[:, None] - np.eye(self.n_classes)
        noise2 = noise2[:, None] - np.eye(self.n_classes)
        variance = self.sigma**2
        rest = variance * (1 - self.rho**2)
        marginal1 = _log_normal(noise1, variance)
        marginal2 = _log_normal(noise2, variance)
        joint = marginal1 + _log_normal(noise2 - self.rho * noise1, rest)
        return np.stack([marginal1, marginal2, joint], axis=1)

    def log_proba(self, X):
        """log p(y|x1), log p(y|x2), log p(y|x1,x2), shape (n_samples, 3, n_classes)."""
        return log_softmax(self._log_likelihoods(X), axis=2)

    def entropies(self, X):
        """h(x1) and h(x2), shape (n_samples, 2)."""
        marginals = self._log_likelihoods(X)[:, :2]
        return np.log(self.n_classes) - logsumexp(marginals, axis=2)

    def interactions(self, X, y):
        """r, u1, u2, s before any adjustment, shape (n_samples, 4)."""
        mi1, mi2, joint = self.log_proba(X)[np.arange(len(y)), :, y].T + np.log(self.n_classes)
        h1, h2 = self.entropies(X).T
        r = np.minimum(h1, h2) - np.minimum(h1 - mi1, h2 - mi2)
        return np.column_stack([r, mi1 - r, mi2 - r, joint - mi1 - mi2 + r])


def _log_normal(noise, variance):
    n_features = noise.shape[-1]
    squares = (noise**2).sum(axis=-1)
    return -squares / (2 * variance) - n_features / 2 * np.log(2 * np.pi * variance)


def make_circuit(name, n_samples, random_state):
    """Binary inputs and a label that is a function of them: X, y and the widths of the views."""
    a, b, flag = np.random.RandomState(random_state).randint(2, size=(3, n_samples))
    inputs = {"RDN": [a, a], "flag": [a, b, flag]}.get(name, [a, b])
    labels = {
        "XOR": a ^ b,
        "OR": a | b,
        "COPY": a,
        "RDN": a,
        "flag": np.where(flag == 0, a ^ b, 1 - b),
        "two bits": 2 * a + b,
    }
    return np.column_stack(inputs).astype(float), labels[name], [1, len(inputs) - 1]


def make_shuffled_digits(random_state):
    """Left and right halves of digits; 30 % of rows have either half's pixels shuffled.

    Returns X, y, and the index of the shuffled view: 0, 1, or 2 for none.
    """
    rng = np.random.default_rng(random_state)
    digits = load_digits()
    views = np.split(digits.images / 16.0, 2, axis=2)
    views = [view.reshape(len(view), -1) for view in views]
    shuffled = rng.permutation(np.repeat([0, 1, 2], np.diff([0, 539, 1078, len(digits.target)])))
    for v, view in enumerate(views):
        view[shuffled == v] = rng.permuted(view[shuffled == v], axis=1)
    return np.hstack(views), digits.target, shuffled


def table_interactions(X, y, views):
    """Means of R, U1, U2, S of discrete data from counts: the minimum-information split."""
    first, second = X[:, : views[0]], X[:, views[0] :]
    mi1, mi2, joint = [_table_information(columns, y) for columns in (first, second, X)]
    r = min(mi1, mi2)
    return np.array([r, mi1 - r, mi2 - r, joint - mi1 - mi2 + r])


def _table_information(columns, y):
    codes = np.unique(columns, axis=0, return_inverse=True)[1].ravel()
    return mutual_info_score(codes, y)


def column_correlations(left, right):
    return np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(left.T, right.T)])


def experiment_circuits(report):
    """The paper's table: means over the data set, against the circuit and against its sample."""
    apart = {"ours": [], "population": []}
    for name, (exact, tolerance, criterion, (paper, pid_batch)) in CIRCUITS.items():
        ours, tables = [], []
        for seed in SEEDS:
            X, y, views = make_circuit(name, 2000, seed)
            ours.append(LSMI(views, random_state=seed).fit(X, y).mean_interactions_)
            tables.append(table_interactions(X, y, views))
        ours, tables = np.array(ours), np.array(tables)
        apart["ours"].append(np.abs(ours - tables).max(axis=1))
        apart["population"].append(np.abs(tables - exact).max(axis=1))
        quoted = pid_batch is not None
        report.experiment(
            f"Circuit {name}",
            data="logic circuit, 2000 rows",
            metric="largest error of the means R, U1, U2, S in nats",
            ours=np.abs(ours - exact).max(axis=1),
            paper=paper,
            baseline=pid_batch if quoted else np.abs(tables - exact).max(axis=1),
            baseline_name="PID-Batch, from the paper" if quoted else "exact table of the counts",
            criterion=f"{criterion}, mean of the seeds",
            passed=np.all(np.abs(ours.mean(axis=0) - exact) <= tolerance),
            higher_is_better=False,
        )
    apart = {name: np.max(values, axis=0) for name, values in apart.items()}
    report.experiment(
        "All circuits against their samples",
        data="logic circuits, 2000 rows",
        metric="largest difference from the exact table of the counts, nats",
        ours=apart["ours"],
        baseline=apart["population"],
        baseline_name="exact values of the circuit",
        criterion="at most 0.02, every circuit and seed",
        passed=apart["ours"].max() <= 0.02,
        higher_is_better=False,
    )


def experiment_closed_form(report):
    """Values of single samples against the exact ones, which dataset means cannot replace."""
    cases = [
        (GaussianViews(2, 0.5, 0.5), {"r": 0.95, "u1": 0.95, "s": 0.90}),
        (GaussianViews(5, 0.5, 0.5), {"r": 0.95}),
        (GaussianViews(3, -0.5, 0.6), {"r": 0.95}),
    ]
    for views, floors in cases:
        strict = views.n_classes == 2  # more classes, more noise in the means of two samples
        data = (
            f"{views.n_classes} Gaussian classes, rho {views.rho}, sigma {views.sigma}, "
            "4000 + 4000 rows"
        )
        ours, blind, errors, blind_errors = [], [], [], []
        for seed in SEEDS:
            lsmi = LSMI(views.views, random_state=seed).fit(*views.sample(4000, 2 * seed))
            X, y = views.sample(4000, 2 * seed + 1)
            exact = views.interactions(X, y)
            found = lsmi.interactions(X, y)
            ours.append(column_correlations(found, exact))
            guess = decompose(lsmi.pointwise_mi(X, y), np.zeros(2))
            blind.append(column_correlations(guess, exact))
            target = adjust(exact, mean_adjustment(exact)).mean(axis=0)
            errors.append(np.abs(found.mean(axis=0) - target).max())
            guess = adjust(guess, mean_adjustment(guess))
            blind_errors.append(np.abs(guess.mean(axis=0) - target).max())
        ours, blind = np.array(ours), np.array(blind)
        for name, floor in floors.items():
            column = ["r", "u1", "u2", "s"].index(name)
            report.experiment(
                f"Sample-level {name}",
                data=data,
                metric="correlation with the exact values of test rows",
                ours=ours[:, column],
                baseline=blind[:, column],
                baseline_name="no densities: equal entropies",
                criterion=f"at least {floor:.2f}, every seed",
                passed=ours[:, column].min() >= floor,
            )
        report.experiment(
            "Adjusted means",
            data=data,
            metric="largest error of the means R, U1, U2, S on test rows, nats",
            ours=errors,
            baseline=blind_errors,
            baseline_name="no densities: equal entropies",
            criterion="at most 0.03, " + ("every seed" if strict else "mean of the seeds"),
            passed=(max(errors) if strict else np.mean(errors)) <= 0.03,
            higher_is_better=False,
        )


def experiment_digits(report):
    """The ensemble where either view is destroyed in some rows, and what u1 says of them."""
    single, uniform, ours, separated, p_values = [], [], [], [], []
    for seed in SEEDS:
        X, y, shuffled = make_shuffled_digits(seed)
        train, test = train_test_split(np.arange(len(y)), stratify=y, random_state=seed)
        ensemble = InteractionEnsembleClassifier(random_state=seed).fit(X[train], y[train])
        proba = np.exp(ensemble.lsmi_.log_proba(X[test]))
        accuracies = (proba.argmax(axis=2) == y[test][:, None]).mean(axis=0)
        single.append(accuracies.max())
        uniform.append((proba.mean(axis=1).argmax(axis=1) == y[test]).mean())
        ours.append(ensemble.score(X[test], y[test]))
        u1 = ensemble.lsmi_.interactions(X[test], y[test])[:, 1]
        destroyed = shuffled[test] == 0
        rank_test = mannwhitneyu(u1[destroyed], u1[~destroyed], alternative="less")
        p_values.append(rank_test.pvalue)
        separated.append(1 - rank_test.statistic / destroyed.sum() / (~destroyed).sum())
    data = "digits, either half shuffled in 30 % of rows"
    for name, baseline, margin in [
        ("uniform average", uniform, 0.02),
        ("best single classifier", single, 0.05),
    ]:
        report.experiment(
            "Interaction ensemble",
            data=data,
            metric="test accuracy",
            ours=ours,
            baseline=baseline,
            baseline_name=name,
            criterion=f"mean at least {margin:.2f} better",
            passed=np.mean(ours) >= np.mean(baseline) + margin,
        )
    report.experiment(
        "u1 of rows whose view 1 is destroyed",
        data=data,
        metric="share of pairs in which a destroyed row has the smaller u1",
        ours=separated,
        baseline=0.5,
        baseline_name="chance",
        criterion="Mann-Whitney p < 1e-3, every seed",
        passed=max(p_values) < 1e-3,
    )


def experiment_density(report):
    """Likelihood of the default training, of the paper's, and of a Gaussian mixture by EM."""
    views = GaussianViews(5, 0.5, 0.5)
    ours, papers, mixture, correlations, paper_correlations = [], [], [], [], []
    for seed in SEEDS:
        train, test = (views.sample(4000, 2 * seed + i)[0] for i in (0, 1))
        scaler = StandardScaler().fit(train[:, :5])
        exact = views.entropies(test)[:, 0]
        train, test = scaler.transform(train[:, :5]), scaler.transform(test[:, :5])
        default = KnifeDensity(random_state=seed).fit(train).score_samples(test)
        official = KnifeDensity(**PAPER_TRAINING, random_state=seed).fit(train).score_samples(test)
        ours.append(default.mean())
        papers.append(official.mean())
        mixture.append(GaussianMixture(5, random_state=seed).fit(train).score(test))
        correlations.append(np.corrcoef(-default, exact)[0, 1])
        paper_correlations.append(np.corrcoef(-official, exact)[0, 1])
    data = "one view of 5 Gaussian classes, 4000 + 4000 rows"
    report.experiment(
        "KnifeDensity against EM",
        data=data,
        metric="test log-likelihood a row, nats",
        ours=ours,
        baseline=mixture,
        baseline_name="GaussianMixture(5)",
        criterion="mean at most 0.05 worse",
        passed=np.mean(ours) >= np.mean(mixture) - 0.05,
    )
    report.experiment(
        "KnifeDensity against the paper's training",
        data=data,
        metric="test log-likelihood a row, nats",
        ours=ours,
        baseline=papers,
        baseline_name="random start, rate 1e-3, batches of 32",
        criterion="mean not worse",
        passed=np.mean(ours) >= np.mean(papers),
    )
    report.experiment(
        "Pointwise entropy",
        data=data,
        metric="correlation with the exact values of test rows",
        ours=correlations,
        baseline=paper_correlations,
        baseline_name="random start, rate 1e-3, batches of 32",
        criterion="at least 0.97, every seed",
        passed=min(correlations) >= 0.97,
    )


def experiment_discrete(report):
    """Likelihood on half images of digits: few grey levels, constant columns, few rows."""
    ours, mixture = [], []
    X = np.split(load_digits().images, 2, axis=2)[0].reshape(-1, 32)
    for seed in SEEDS:
        train, test = train_test_split(X, random_state=seed)
        scaler = StandardScaler().fit(train)
        train, test = scaler.transform(train), scaler.transform(test)
        ours.append(KnifeDensity(random_state=seed).fit(train).score(test))
        mixture.append(GaussianMixture(5, random_state=seed).fit(train).score(test))
    report.experiment(
        "KnifeDensity against EM",
        data="left halves of digits, 1347 + 450 rows, 32 columns",
        metric="test log-likelihood a row, nats",
        ours=ours,
        baseline=mixture,
        baseline_name="GaussianMixture(5)",
        criterion="better, every seed",
        passed=np.all(np.array(ours) > mixture),
    )


def _wide_problem(n_samples, random_state=0):
    """64 + 64 columns and 10 classes."""
    rng = np.random.RandomState(random_state)
    y = rng.randint(10, size=n_samples)
    return rng.normal(size=(n_samples, 128)) + 0.3 * rng.normal(size=(10, 128))[y], y


def processor_seconds(work, *args):
    """Time that the processor spends on this process, whatever else the machine does."""
    start = time.process_time()
    work(*args)
    return time.process_time() - start


def speed(report):
    X, y = _wide_problem(10_000)
    lsmi = LSMI(random_state=0).fit(X, y)
    classifiers = [clone(classifier) for classifier in lsmi.classifiers_]
    columns = [slice(0, 64), slice(64, 128), slice(0, 128)]

    def fit_classifiers():
        for classifier, block in zip(classifiers, columns):
            classifier.fit(X[:, block], y)

    def predict_classifiers():
        for classifier, block in zip(classifiers, columns):
            classifier.predict_proba(X[:, block])

    def fit():
        return LSMI(random_state=0).fit(X, y)

    def fit_density(**params):
        return KnifeDensity(random_state=0, **params).fit(small)

    def fit_mixture():
        return GaussianMixture(5, random_state=0).fit(small)

    rows = "10 000 rows, 64 + 64 columns, 10 classes"
    alone = "predict_proba of the three classifiers"
    report.timing(f"LSMI.fit, {rows}", "fit of the three classifiers", fit, fit_classifiers, 1)
    report.timing(
        f"LSMI.interactions, {rows}", alone, lambda: lsmi.interactions(X, y), predict_classifiers
    )
    report.timing(f"LSMI.transform, {rows}", alone, lambda: lsmi.transform(X), predict_classifiers)
    small = StandardScaler().fit_transform(np.tanh(X[:4000, :10]) + X[:4000, 10:20])
    report.timing(
        "KnifeDensity.fit, 4000 rows, 10 columns",
        "GaussianMixture(5).fit",
        fit_density,
        fit_mixture,
        3,
    )
    report.timing(
        "KnifeDensity.fit, 4000 rows, 10 columns",
        "the paper's training: batches of 32",
        fit_density,
        lambda: fit_density(**PAPER_TRAINING),
        1,
    )
    for name, work, peer, peer_work, limit in [
        ("LSMI.fit", fit, "the three classifiers", fit_classifiers, 90),
        ("LSMI.interactions", lambda: lsmi.interactions(X, y), alone, predict_classifiers, 1),
        ("LSMI.transform", lambda: lsmi.transform(X), alone, predict_classifiers, 1),
        ("KnifeDensity.fit", fit_density, "GaussianMixture(5).fit", fit_mixture, 5),
    ]:
        seconds = processor_seconds(work)
        report.experiment(
            f"Time of {name}",
            data=rows if "LSMI" in name else "4000 rows, 10 columns",
            metric="processor seconds, one thread",
            ours=seconds,
            baseline=processor_seconds(peer_work),
            baseline_name=peer,
            criterion=f"at most {limit} s",
            passed=seconds <= limit,
            higher_is_better=False,
        )


def growth(report):
    """Four times the rows must take about four times as long."""
    seconds = []
    for n_samples in (2000, 8000):
        X, y = _wide_problem(n_samples)
        seconds.append(processor_seconds(LSMI(random_state=0).fit, X, y))
    report.experiment(
        "Growth with the number of rows",
        data="64 + 64 columns, 10 classes",
        metric="processor time at 8000 rows over that at 2000",
        ours=seconds[1] / seconds[0],
        baseline=4.0,
        baseline_name="linear",
        criterion="at most 4.8",
        passed=seconds[1] / seconds[0] <= 4.8,
        higher_is_better=False,
    )


def main():
    torch.set_num_threads(1)
    report = Report(
        "lsmi",
        "Efficient Quantification of Multimodal Interaction at Sample Level",
        "Redundancy, uniqueness and synergy can be estimated for every sample, in linear time, "
        "and tell which of the unimodal and multimodal models to trust.",
    )
    with threadpool_limits(1):
        experiment_circuits(report)
        experiment_closed_form(report)
        experiment_density(report)
        experiment_discrete(report)
        experiment_digits(report)
        growth(report)
        speed(report)
    report.write()


if __name__ == "__main__":
    main()
