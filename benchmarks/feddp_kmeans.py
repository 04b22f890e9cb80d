"""FedDP-KMeans on the paper's Gaussian mixture, against what else there is at the same budget.

Run with ``python -m benchmarks.feddp_kmeans``.
"""

import time
import warnings

import numpy as np
import sklearn.tree._tree
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from benchmarks._harness import Report
from skicml import privacy
from skicml.cluster import FedDPKMeans, LocalBackend
from skicml.cluster._federated import ServerState, broadcast_of, server_update
from skicml.datasets import make_federated_mixture
from skicml.metrics import clustering_accuracy_score

SEEDS = range(3)
DELTA = 1e-6
CLIP_NORM = 11.0  # of the paper's experiment
MIXTURE = "Gaussian mixture, 100 clients x 1000 x 100, k = 10"
# Total epsilon: the paper's code, cost over the optimum of 49.948 (one seed); our bound.
GRID = {
    0.1: (None, 1.13),
    0.308: (50.52 / 49.948, 1.02),
    0.775: (50.05 / 49.948, 1.005),
    1.557: (49.976 / 49.948, 1.002),
    3.13: (49.955 / 49.948, 1.001),
}


def cost(centers, X):
    """Mean squared distance to the nearest centre."""
    squares = (X**2).sum(axis=1)
    nearest = ((centers**2).sum(axis=1) - 2 * X @ centers.T).min(axis=1)
    return float((squares + nearest).mean())


def optimum(data):
    return float(((data.data - data.centers[data.target]) ** 2).sum(axis=1).mean())


def ours(data, epsilon, seed):
    model = FedDPKMeans(
        10,
        epsilon=epsilon,
        delta=DELTA,
        server_data=data.server_data,
        clip_norm=CLIP_NORM,
        random_state=seed,
    )
    return model.fit(data.data, groups=data.groups)


def diffprivlib_kmeans(data, epsilon, seed):
    """The public alternative: pure epsilon-privacy, on pooled rows clipped to the unit cube."""
    # diffprivlib's forests, which are not used here, import two names that left scikit-learn.
    for name, dtype in (("DOUBLE", np.float64), ("DTYPE", np.float32)):
        if not hasattr(sklearn.tree._tree, name):
            setattr(sklearn.tree._tree, name, dtype)
    from diffprivlib.models import KMeans as PrivateKMeans

    model = PrivateKMeans(
        10, epsilon=epsilon, bounds=(np.zeros(100), np.ones(100)), random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(data.data)


def server_kmeans(data, seed):
    return KMeans(10, n_init=10, random_state=seed).fit(data.server_data).cluster_centers_


def noisy_lloyd(data, start, epsilon, seed):
    """One private Lloyd round from public centres: the paper's baseline."""
    shares = [("lloyd_sums", "gaussian", 1.0, 1), ("lloyd_counts", "laplace", 1.0, 1)]
    sums, counts = privacy.split_budget(epsilon, DELTA, shares)
    state = ServerState(
        server_data=data.server_data,
        n_clusters=10,
        clip_norm=CLIP_NORM,
        margin=1.0,
        min_server_weight=5.0,
        n_init=10,
        mechanisms={"lloyd_sums": sums.with_sensitivity(CLIP_NORM), "lloyd_counts": counts},
        client_bounds=None,
        rng=np.random.default_rng(seed),
        centers=start,
    )
    totals, _ = LocalBackend(data.data).sum_over_clients("lloyd", broadcast_of("lloyd", state))
    return server_update("lloyd", totals, state).centers


def mixture_experiments(report):
    """Cost over the optimum for a grid of budgets, and the baselines that cost no grid."""
    ratios = {epsilon: [] for epsilon in (*GRID, 0.98, np.inf)}
    peers = {epsilon: [] for epsilon in (*GRID, 0.98)}
    pooled, server, lloyd, accuracy = [], [], [], []
    for seed in SEEDS:
        data = make_federated_mixture(random_state=seed)
        best = optimum(data)
        for epsilon in ratios:
            model = ours(data, epsilon, seed)
            ratios[epsilon].append(cost(model.cluster_centers_, data.data) / best)
            if epsilon == 0.308:
                accuracy.append(clustering_accuracy_score(data.target, model.labels_))
        for epsilon in peers:
            peer = diffprivlib_kmeans(data, epsilon, seed)
            peers[epsilon].append(cost(peer.cluster_centers_, data.data) / best)
        everything = KMeans(10, n_init=3, random_state=seed).fit(data.data)
        pooled.append(cost(everything.cluster_centers_, data.data) / best)
        start = server_kmeans(data, seed)
        server.append(cost(start, data.data) / best)
        lloyd.append(cost(noisy_lloyd(data, start, 0.98, seed), data.data) / best)

    for epsilon, (paper, bound) in GRID.items():
        report.experiment(
            f"cost over optimum, total epsilon {epsilon}",
            data=MIXTURE,
            metric="cost / optimum",
            higher_is_better=False,
            paper=paper,
            baseline_name="diffprivlib KMeans at the same epsilon",
            baseline=peers[epsilon],
            ours=ratios[epsilon],
            criterion=f"every seed <= {bound} and mean below the baseline's",
            passed=max(ratios[epsilon]) <= bound
            and np.mean(ratios[epsilon]) < np.mean(peers[epsilon]),
        )
    report.experiment(
        "cost over optimum against server k-means and one private Lloyd round, epsilon 0.98",
        data=MIXTURE,
        metric="cost / optimum",
        higher_is_better=False,
        baseline_name="server k-means + 1 DP-Lloyd (paper: 55.03 / 49.948 = 1.102)",
        baseline=lloyd,
        ours=ratios[0.98],
        criterion="every seed below every seed of the baseline",
        passed=max(ratios[0.98]) < min(lloyd),
    )
    report.experiment(
        "cost over optimum at total epsilon 0.98 against public rows alone",
        data=MIXTURE,
        metric="cost / optimum",
        higher_is_better=False,
        baseline_name="KMeans on server_data",
        baseline=server,
        ours=ratios[0.98],
        criterion="every seed below every seed of the baseline",
        passed=max(ratios[0.98]) < min(server),
    )
    report.experiment(
        "cost over optimum without noise",
        data=MIXTURE,
        metric="cost / optimum",
        higher_is_better=False,
        baseline_name="KMeans on pooled rows",
        baseline=pooled,
        ours=ratios[np.inf],
        criterion="every seed within 0.1 % of k-means on pooled rows",
        passed=max(np.array(ratios[np.inf]) / pooled) <= 1.001,
    )
    report.experiment(
        "accuracy at total epsilon 0.308",
        data=MIXTURE,
        metric="clustering accuracy",
        paper=0.979,
        baseline_name="chance",
        baseline=[0.1],
        ours=accuracy,
        criterion="mean >= 0.95",
        passed=np.mean(accuracy) >= 0.95,
    )


def client_experiment(report):
    """The client as the unit: many clients with few, unlike rows, within their bounds."""
    ratios, server = [], []
    for seed in SEEDS:
        data = make_federated_mixture(
            20_000, 10, n_features=20, variance=0.1, concentration=0.3, random_state=seed
        )
        best = optimum(data)
        model = FedDPKMeans(
            10,
            epsilon=1.0,
            delta=DELTA,
            privacy_unit="client",
            client_clip={"subspace": 80.0, "weights": 10.0, "init_sums": 8.0, "init_counts": 7.0},
            server_data=data.server_data,
            n_lloyd_iter=0,
            random_state=seed,
        ).fit(data.data, groups=data.groups)
        ratios.append(cost(model.cluster_centers_, data.data) / best)
        server.append(cost(server_kmeans(data, seed), data.data) / best)
    report.experiment(
        "cost over optimum with clients as the unit, total epsilon 1",
        data="Gaussian mixture, 20,000 unlike clients x 10 x 20, k = 10",
        metric="cost / optimum",
        higher_is_better=False,
        baseline_name="KMeans on server_data",
        baseline=server,
        ours=ratios,
        criterion="every seed below every seed of the baseline",
        passed=max(ratios) < min(server),
    )


def accounting_experiment(report):
    """Total epsilon of the paper's nominal shares (1, 1, .5, .5, .5, .5) times e."""
    exact = {0.1: 0.30822, 0.25: 0.77507, 0.5: 1.55750, 1.0: 3.13265}
    for e, paper in exact.items():
        mechanisms = [
            privacy.NoiseMechanism(
                f"{kind} {i}",
                kind,
                privacy.analytic_gaussian_sigma(share, DELTA) if kind == "gaussian" else 1 / share,
            )
            for i, share in enumerate((e, e / 2, e / 2))
            for kind in ("gaussian", "laplace")
        ]
        spent = privacy.composed_epsilon(mechanisms, DELTA)
        report.experiment(
            f"composed epsilon at delta 1e-6 of nominal shares times {e}",
            data="six mechanisms, one Lloyd round",
            metric="epsilon",
            higher_is_better=False,
            paper=paper,
            baseline_name="sum of the nominal epsilons",
            baseline=[4 * e],
            ours=[spent],
            criterion="within 1e-4 of the exact value",
            passed=abs(spent - paper) <= 1e-4,
        )


def cpu_seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def speed(report):
    """A fit with its accounting, against diffprivlib on the same rows."""
    data = make_federated_mixture(random_state=0)

    def fit():
        privacy._split_finite_budget.cache_clear()
        ours(data, 1.0, 0)

    def peer():
        diffprivlib_kmeans(data, 1.0, 0)

    work = "fit of 100,000 x 100, k = 10, 300 public rows, one Lloyd round, with accounting"
    report.timing(work, "diffprivlib.models.KMeans", fit, peer, repeats=3)
    seconds = [cpu_seconds(fit) for _ in range(3)]
    report.experiment(
        work,
        data=MIXTURE,
        metric="CPU seconds on one core",  # what else runs meanwhile does not count
        higher_is_better=False,
        baseline_name="diffprivlib.models.KMeans",
        baseline=[cpu_seconds(peer)],
        ours=seconds,
        criterion="every run <= 3 s",
        passed=max(seconds) <= 3,
    )


def main():
    report = Report(
        "feddp_kmeans",
        "Differentially Private Federated k-Means Clustering with Server-Side Data",
        "with a few public rows at the server, private federated k-means reaches the optimal cost "
        "at a total epsilon below 1, where noisy Lloyd and public rows alone stay far off",
    )
    accounting_experiment(report)
    with threadpool_limits(1):
        mixture_experiments(report)
        client_experiment(report)
        speed(report)
    report.write()


if __name__ == "__main__":
    main()
