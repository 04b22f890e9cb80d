import pickle
import sys
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import pairwise_distances_argmin
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils._param_validation import InvalidParameterError

from skicml.cluster import FedDPKMeans, LocalBackend, _feddp_kmeans, client_statistics
from skicml.cluster._federated import broadcast_of, server_update
from skicml.datasets import make_federated_mixture
from skicml.privacy import PrivacyLeakWarning, split_budget
from tests.cluster.federated_helpers import CLIENT_CLIP, NORM, ROW_SENSITIVITY, state_with


@pytest.fixture(scope="module")
def mixture():
    """20,000 rows, d = 20, k = 5: the paper's recipe, small."""
    return make_federated_mixture(
        n_clients=20, n_samples_per_client=1000, n_clusters=5, n_features=20, random_state=0
    )


@pytest.fixture(scope="module")
def small():
    return make_federated_mixture(
        n_clients=12, n_samples_per_client=60, n_clusters=3, n_features=6, random_state=1
    )


def quiet_fit(model, X, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, **kwargs)


# --------------------------------------------------------------------------------------
# The whole fit


def pipeline_by_hand(X, Q, k, clip_norm, n_lloyd):
    """The algorithm without noise, written with loops and dense matrices."""
    X = np.array([x * min(1.0, clip_norm / np.linalg.norm(x)) for x in X])
    eigenvalues, vectors = np.linalg.eigh(sum(np.outer(x, x) for x in X))
    V = vectors[:, np.argsort(eigenvalues)[-k:]]
    project = V @ V.T
    PX, PQ = X @ project, Q @ project
    votes = np.zeros(len(Q))
    for x in PX:
        votes[np.argmin(((PQ - x) ** 2).sum(1))] += 1
    kept = votes >= 5
    xi = KMeans(k, n_init=20, random_state=7).fit(PQ[kept], sample_weight=votes[kept])
    labels = np.array([np.argmin(((xi.cluster_centers_ - x) ** 2).sum(1)) for x in PX])
    centers = np.array([X[labels == c].mean(0) for c in range(k)])
    for _ in range(n_lloyd):
        labels = np.array([np.argmin(((centers - x) ** 2).sum(1)) for x in X])
        centers = np.array([X[labels == c].mean(0) for c in range(k)])
    return centers


@pytest.mark.parametrize("n_lloyd", [0, 1, 3])
def test_without_noise_it_is_the_pipeline_by_hand(n_lloyd):
    data = make_federated_mixture(  # clusters so clear that k-means has one good optimum
        n_clients=4, n_clusters=5, n_features=20, variance=0.05, random_state=0
    )
    X, Q = data.data, data.server_data
    clip_norm = np.quantile(np.linalg.norm(X, axis=1), 0.9)  # so that rows are clipped
    model = FedDPKMeans(
        5,
        epsilon=np.inf,
        server_data=Q,
        clip_norm=clip_norm,
        n_lloyd_iter=n_lloyd,
        random_state=0,
    ).fit(X)
    expected = pipeline_by_hand(X, Q, 5, clip_norm, n_lloyd)
    order = pairwise_distances_argmin(expected, model.cluster_centers_)
    assert len(set(order)) == 5
    np.testing.assert_allclose(model.cluster_centers_[order], expected, rtol=1e-10, atol=1e-10)
    assert model.privacy_spent_ == (np.inf, 1e-6)
    assert model.n_iter_ == 3 + n_lloyd
    assert all(entry["noise_scale"] == 0 for entry in model.privacy_report())


def optimum(data):
    return ((data.data - data.centers[data.target]) ** 2).sum() / len(data.data)


def cost(model, X):
    return -model.score(X) / len(X)


def noisy_lloyd_from_server_kmeans(data, epsilon, random_state):
    """The paper's baseline: k-means on the server's rows, then one private Lloyd round."""
    start = KMeans(5, n_init=10, random_state=random_state).fit(data.server_data).cluster_centers_
    clip_norm = np.linalg.norm(data.server_data, axis=1).max()
    shares = [("lloyd_sums", "gaussian", 1.0, 1), ("lloyd_counts", "laplace", 1.0, 1)]
    sums, counts = split_budget(epsilon, 1e-6, shares)
    mechanisms = {"lloyd_sums": sums.with_sensitivity(clip_norm), "lloyd_counts": counts}
    state = state_with(
        server_data=data.server_data,
        n_clusters=5,
        clip_norm=clip_norm,
        mechanisms=mechanisms,
        centers=start,
        rng=np.random.default_rng(random_state),
    )
    totals, _ = LocalBackend(data.data).sum_over_clients("lloyd", broadcast_of("lloyd", state))
    centers = server_update("lloyd", totals, state).centers
    nearest = centers[pairwise_distances_argmin(data.data, centers)]
    return ((data.data - nearest) ** 2).sum() / len(data.data)


def test_near_the_optimum_at_epsilon_one_and_ahead_of_the_baselines():
    pytest.importorskip("dp_accounting")
    ratios, lloyd, server = [], [], []
    for seed in range(5):
        data = make_federated_mixture(
            n_clients=20, n_samples_per_client=1000, n_clusters=5, n_features=20, random_state=seed
        )
        best = optimum(data)
        model = FedDPKMeans(5, epsilon=1.0, server_data=data.server_data, random_state=seed)
        ratios.append(cost(model.fit(data.data, groups=data.groups), data.data) / best)
        lloyd.append(noisy_lloyd_from_server_kmeans(data, 1.0, seed) / best)
        on_server = KMeans(5, n_init=10, random_state=seed).fit(data.server_data)
        server.append(-on_server.score(data.data) / len(data.data) / best)
    assert max(ratios) <= 1.03
    assert np.mean(ratios) < np.mean(lloyd)
    assert np.mean(ratios) < np.mean(server)


def test_more_budget_less_cost(mixture):
    def mean_cost(epsilon):
        settings = {"epsilon": epsilon, "server_data": mixture.server_data, "accountant": "zcdp"}
        models = [FedDPKMeans(5, random_state=seed, **settings) for seed in range(4)]
        return np.mean([cost(model.fit(mixture.data), mixture.data) for model in models])

    costs = [mean_cost(epsilon) for epsilon in (0.1, 0.4, 3.0, np.inf)]
    assert costs == sorted(costs, reverse=True)


def test_server_data_matter(mixture):
    """Public rows near the clusters help, although most of them may be unrelated."""
    settings = {"epsilon": 1.0, "n_lloyd_iter": 0, "random_state": 0, "accountant": "zcdp"}
    good = FedDPKMeans(5, server_data=mixture.server_data, **settings).fit(mixture.data)
    rng = np.random.default_rng(0)
    unrelated = rng.normal(size=(100, 20)) * 0.3 - 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bad = FedDPKMeans(
            5,
            server_data=unrelated,
            clip_norm=np.linalg.norm(mixture.server_data, axis=1).max(),
            **settings,
        ).fit(mixture.data)
    assert cost(good, mixture.data) < cost(bad, mixture.data)


def test_the_client_level_protects_clients_and_still_works():
    data = make_federated_mixture(
        n_clients=3000,
        n_samples_per_client=10,
        n_clusters=4,
        n_features=8,
        concentration=0.3,
        random_state=0,
    )
    clip_norm = np.linalg.norm(data.server_data, axis=1).max()
    clip = {
        "subspace": 10 * clip_norm**2 / 2,
        "weights": 10.0,
        "init_sums": 2 * clip_norm,
        "init_counts": 3.0,
    }
    model = FedDPKMeans(
        4,
        epsilon=2.0,
        privacy_unit="client",
        client_clip=clip,
        server_data=data.server_data,
        n_lloyd_iter=0,
        random_state=0,
    ).fit(data.data, groups=data.groups)
    assert cost(model, data.data) <= 1.1 * optimum(data)
    assert {row["name"]: row["sensitivity"] for row in model.privacy_report()} == clip
    assert model.n_iter_ == 3
    assert 0.999 * 2 <= model.privacy_spent_[0] <= 2


def test_client_level_without_noise_is_not_clipped(small):
    """An infinite epsilon switches off all that client bounds would cost."""
    settings = {
        "epsilon": np.inf,
        "privacy_unit": "client",
        "server_data": small.server_data,
        "n_lloyd_iter": 2,
        "random_state": 0,
    }
    free = FedDPKMeans(3, **settings).fit(small.data, groups=small.groups)
    tight = FedDPKMeans(3, client_clip=dict.fromkeys(CLIENT_CLIP, 1e-3), **settings)
    tight.fit(small.data, groups=small.groups)
    np.testing.assert_array_equal(free.cluster_centers_, tight.cluster_centers_)


def test_clients_do_not_matter_at_the_sample_level(small):
    settings = {"server_data": small.server_data, "accountant": "zcdp", "random_state": 3}
    none = FedDPKMeans(3, **settings).fit(small.data)
    some = FedDPKMeans(3, **settings).fit(small.data, groups=small.groups)
    np.testing.assert_allclose(none.cluster_centers_, some.cluster_centers_, rtol=1e-10)


def test_margin_leaves_undecided_rows_out(small):
    settings = {"server_data": small.server_data, "epsilon": np.inf, "n_lloyd_iter": 0}
    loose = FedDPKMeans(3, margin=1.0, random_state=0, **settings).fit(small.data)
    strict = FedDPKMeans(3, margin=1 / 3, random_state=0, **settings).fit(small.data)
    assert not np.allclose(loose.cluster_centers_, strict.cluster_centers_)
    # The strict centres are means of rows well inside a cluster, hence further apart.
    spread = [np.var(m.cluster_centers_ @ m.components_.T, axis=0).sum() for m in (loose, strict)]
    assert spread[1] > spread[0]


# --------------------------------------------------------------------------------------
# Privacy: what is spent, and what is really added


@pytest.fixture
def released(monkeypatch):
    """Records the noisy totals of every round of every fit."""
    record = {name: [] for name in CLIENT_CLIP}

    def recording(step, totals, state):
        state = server_update(step, totals, state)
        for name, value in state.released.items():
            record[name].append(value - totals[name])
        return state

    monkeypatch.setattr(_feddp_kmeans, "server_update", recording)
    return record


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_noise_really_added_over_200_fits(released, unit):
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(30, 3)), np.repeat(np.arange(10), 3)
    model = FedDPKMeans(
        2,
        epsilon=1.0,
        server_data=rng.normal(size=(6, 3)),
        clip_norm=11.0,
        privacy_unit=unit,
        client_clip=CLIENT_CLIP if unit == "client" else None,
        accountant="zcdp",
        n_init=1,
    )
    for seed in range(200):
        quiet_fit(model.set_params(random_state=seed), X, groups=groups)
    e = model.privacy_report()[0]["nominal_epsilon"]
    shares = [
        (name, "gaussian" if NORM[name] == 2 else "laplace", share, 1)
        for name, share in zip(CLIENT_CLIP, (1.0, 1.0, 0.5, 0.5, 0.5, 0.5))
    ]
    unit_scale = {m.name: m.noise_scale for m in split_budget(1.0, 1e-6, shares, "zcdp")}
    assert unit_scale["weights"] == pytest.approx(1 / e)
    for name, draws in released.items():
        sensitivity = CLIENT_CLIP[name] if unit == "client" else ROW_SENSITIVITY[name](11.0)
        sd = unit_scale[name] * sensitivity * (1 if NORM[name] == 2 else np.sqrt(2))
        draws = np.array(draws)
        if name == "subspace":
            draws = draws[:, *np.triu_indices(3)]
        assert len(draws) == 200
        assert draws.std() == pytest.approx(sd, rel=0.1), name
        assert abs(draws.mean()) < 0.2 * sd


def test_noise_is_fresh_in_every_round(released, small):
    FedDPKMeans(
        3, server_data=small.server_data, n_lloyd_iter=4, accountant="zcdp", random_state=0
    ).fit(small.data)
    rounds = np.array(released["lloyd_sums"])
    assert len(rounds) == 4
    assert len(np.unique(rounds)) == rounds.size


def recomputed_epsilon(report, delta):
    """The composition of a report, by dp-accounting alone."""
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for entry in report:
        relative = entry["noise_scale"] / entry["sensitivity"]
        event = dp.GaussianDpEvent if entry["mechanism"] == "gaussian" else dp.LaplaceDpEvent
        accountant.compose(event(relative), entry["compositions"])
    return accountant.get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("n_lloyd_iter", [0, 1, 5])
def test_the_report_composes_to_the_budget(small, epsilon, n_lloyd_iter):
    pytest.importorskip("dp_accounting")
    model = FedDPKMeans(
        3,
        epsilon=epsilon,
        delta=1e-5,
        server_data=small.server_data,
        n_lloyd_iter=n_lloyd_iter,
        random_state=0,
    )
    quiet_fit(model, small.data)
    spent, delta = model.privacy_spent_
    assert delta == 1e-5
    assert 0.999 * epsilon <= spent <= epsilon
    report = model.privacy_report()
    assert recomputed_epsilon(report, delta) == pytest.approx(spent, rel=2e-3)
    assert len(report) == (6 if n_lloyd_iter else 4)
    assert {entry["compositions"] for entry in report[4:]} <= {n_lloyd_iter}


def test_zcdp_accountant_needs_more_noise_and_no_package(small, monkeypatch):
    pytest.importorskip("dp_accounting")
    pld = FedDPKMeans(3, server_data=small.server_data, random_state=0).fit(small.data)
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    zcdp = FedDPKMeans(3, server_data=small.server_data, accountant="zcdp", random_state=0)
    zcdp.fit(small.data)
    for sharp, loose in zip(pld.privacy_report(), zcdp.privacy_report()):
        assert loose["noise_scale"] > sharp["noise_scale"]
    with pytest.raises(ImportError, match=r"skicml\[privacy\]"):
        FedDPKMeans(3, epsilon=0.98765, server_data=small.server_data).fit(small.data)


def test_budget_split_moves_the_noise(small):
    settings = {"server_data": small.server_data, "accountant": "zcdp", "random_state": 0}
    usual = FedDPKMeans(3, **settings).fit(small.data).privacy_report()
    moved = FedDPKMeans(3, budget_split={"weights": 3.0, "subspace": 0.2}, **settings)
    moved = moved.fit(small.data).privacy_report()
    nominal = {entry["name"]: entry["nominal_epsilon"] for entry in moved}
    assert nominal["weights"] / nominal["subspace"] == pytest.approx(15)
    assert nominal["init_sums"] / nominal["subspace"] == pytest.approx(2.5)
    assert moved[1]["noise_scale"] < usual[1]["noise_scale"]
    assert moved[0]["noise_scale"] > usual[0]["noise_scale"]
    scaled = dict.fromkeys(CLIENT_CLIP, 7.0)
    even = FedDPKMeans(3, budget_split=scaled, **settings).fit(small.data).privacy_report()
    assert len({entry["nominal_epsilon"] for entry in even}) == 1


def test_clip_norm_from_private_rows_is_reported_as_a_leak(small):
    with (
        pytest.warns(PrivacyLeakWarning, match="guarantee does not"),
        pytest.warns(UserWarning, match="server_data is None"),
    ):
        model = FedDPKMeans(3, random_state=0, accountant="zcdp").fit(small.data)
    largest = np.linalg.norm(small.data, axis=1).max()
    assert model.privacy_report()[0]["sensitivity"] == pytest.approx(largest**2)
    assert issubclass(PrivacyLeakWarning, RuntimeWarning)


@pytest.mark.parametrize(
    "public",
    [
        {"server_data": np.random.default_rng(0).normal(size=(40, 6))},
        {"clip_norm": 3.0},
        {"epsilon": np.inf},
    ],
)
def test_no_leak_is_reported_where_there_is_none(small, public):
    model = FedDPKMeans(3, random_state=0, accountant="zcdp", **public)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(small.data)
    assert not [w for w in caught if issubclass(w.category, PrivacyLeakWarning)]
    poor = [w for w in caught if "server_data is None" in str(w.message)]
    assert len(poor) == ("server_data" not in public)


def test_default_server_rows_fill_the_ball():
    points = _feddp_kmeans._uniform_in_ball(4000, 3, 2.0, np.random.default_rng(0))
    radii = np.linalg.norm(points, axis=1)
    assert radii.max() <= 2
    assert np.mean(radii <= 1) == pytest.approx(1 / 8, abs=0.03)  # of the volume


def test_default_noise_is_not_that_of_the_global_generator(small):
    model = FedDPKMeans(3, server_data=small.server_data, accountant="zcdp")
    state, centers = np.random.get_state(), []
    for _ in range(2):
        np.random.set_state(state)
        centers.append(model.fit(small.data).cluster_centers_)
    assert not np.allclose(*centers)


# --------------------------------------------------------------------------------------
# Backends


class Federation:
    """Clients that are reached one by one; the estimator never sees a row."""

    def __init__(self, data, shards):
        self.shards = [data[groups] for groups in shards]
        self.asked = []

    def sum_over_clients(self, step, broadcast):
        self.asked.append(step)
        answers = [client_statistics(step, rows, broadcast) for rows in self.shards]
        return {name: sum(a[name] for a in answers) for name in answers[0]}, len(answers)


@pytest.mark.parametrize("unit", ["sample", "client"])
def test_any_backend_gives_the_centres_of_the_local_one(small, unit):
    settings = {
        "server_data": small.server_data,
        "privacy_unit": unit,
        "client_clip": CLIENT_CLIP if unit == "client" else None,
        "n_lloyd_iter": 2,
        "accountant": "zcdp",
        "random_state": 4,
    }
    shards = [small.groups == client for client in np.unique(small.groups)]
    federation = Federation(small.data, shards)
    model = FedDPKMeans(3, backend=federation, **settings)
    local = FedDPKMeans(3, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remote = model.fit(None)
        local.fit(small.data, groups=small.groups)
    np.testing.assert_allclose(remote.cluster_centers_, local.cluster_centers_, rtol=1e-9)
    assert federation.asked == ["subspace", "weights", "centers", "lloyd", "lloyd"]
    assert not hasattr(remote, "labels_")
    assert remote.n_features_in_ == 6
    np.testing.assert_array_equal(remote.predict(small.data), local.predict(small.data))


def test_a_backend_leaves_x_untouched_and_forgets_earlier_labels(small):
    shards = [small.groups == client for client in np.unique(small.groups)]
    model = FedDPKMeans(3, server_data=small.server_data, epsilon=np.inf, random_state=0)
    model.fit(small.data)
    assert hasattr(model, "labels_")
    model.set_params(backend=Federation(small.data, shards))
    model.fit("not even rows")
    assert not hasattr(model, "labels_")
    labels = model.fit_predict(small.data)
    np.testing.assert_array_equal(labels, model.predict(small.data))


def test_backend_needs_server_data_and_clients(small):
    federation = Federation(small.data, [slice(None)])
    with pytest.raises(ValueError, match="server_data must be given if a backend"):
        FedDPKMeans(3, backend=federation).fit(None)
    with pytest.raises(ValueError, match="X may be None only if a backend"):
        FedDPKMeans(3, server_data=small.server_data).fit(None)

    class Nobody:
        def sum_over_clients(self, step, broadcast):
            return {}, 0

    with pytest.raises(ValueError, match="No client answered in step 'subspace'"):
        FedDPKMeans(3, server_data=small.server_data, backend=Nobody()).fit(None)


# --------------------------------------------------------------------------------------
# Behaviour of the estimator


class Counter:
    """Callback that counts tasks, and asks once, after the n-th, to stop."""

    def __init__(self, stop_after=None):
        self.names, self.costs, self.stop_after = [], [], stop_after

    def setup(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        self.names.append(context.task_name)
        self.costs.append(fitted_estimator and -fitted_estimator.score(X))
        return len(self.names) == self.stop_after

    def teardown(self, estimator, context):
        pass


def test_one_callback_task_a_round(small):
    counter = Counter()
    model = FedDPKMeans(3, server_data=small.server_data, n_lloyd_iter=2, accountant="zcdp")
    model.set_callbacks(counter).fit(small.data)
    rounds = ["round subspace", "round weights", "round centers", "round lloyd", "round lloyd"]
    assert counter.names == [*rounds, "fit"]
    assert counter.costs[:2] == [None, None]  # there are centres from the third round on
    assert counter.costs[-1] == counter.costs[-2] == pytest.approx(-model.score(small.data))


@pytest.mark.parametrize(("stop_after", "n_rounds"), [(1, 3), (3, 3), (4, 4)])
def test_a_callback_ends_the_lloyd_rounds_without_a_refund(small, stop_after, n_rounds):
    model = FedDPKMeans(
        3, server_data=small.server_data, n_lloyd_iter=5, accountant="zcdp", random_state=0
    ).set_callbacks(Counter(stop_after))
    quiet_fit(model, small.data)
    assert model.n_iter_ == n_rounds
    assert model.privacy_spent_[0] >= 0.999
    assert model.predict(small.data).shape == (720,)


def test_same_seed_same_centres_and_other_seed_others(small):
    model = FedDPKMeans(3, server_data=small.server_data, accountant="zcdp", random_state=0)
    first = model.fit(small.data).cluster_centers_
    np.testing.assert_array_equal(clone(model).fit(small.data).cluster_centers_, first)
    other = clone(model).set_params(random_state=1).fit(small.data).cluster_centers_
    assert not np.allclose(first, other)


def test_outputs_belong_together(small):
    model = FedDPKMeans(3, server_data=small.server_data, accountant="zcdp", random_state=0)
    labels = model.fit_predict(small.data)
    distances = model.transform(small.data)
    np.testing.assert_array_equal(labels, model.labels_)
    np.testing.assert_array_equal(labels, model.predict(small.data))
    np.testing.assert_array_equal(labels, distances.argmin(axis=1))
    assert model.score(small.data) == pytest.approx(-np.sum(distances.min(axis=1) ** 2))
    assert list(model.get_feature_names_out()) == [f"feddpkmeans{i}" for i in range(3)]
    assert model.components_.shape == (3, 6)
    assert model.server_weights_.shape == (len(small.server_data),)
    assert model.init_centers_.shape == model.cluster_centers_.shape == (3, 6)


def test_float32_stays_float32(small):
    settings = {"epsilon": np.inf, "random_state": 0}
    X, Q = small.data.astype(np.float32), small.server_data.astype(np.float32)
    model = FedDPKMeans(3, server_data=Q, **settings).fit(X)
    wide = FedDPKMeans(3, server_data=Q.astype(float), **settings).fit(X.astype(float))
    assert model.cluster_centers_.dtype == model.transform(X).dtype == np.float32
    np.testing.assert_allclose(model.cluster_centers_, wide.cluster_centers_, atol=1e-6)


def test_pickle(small):
    model = FedDPKMeans(3, server_data=small.server_data, accountant="zcdp").fit(small.data)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.transform(small.data), model.transform(small.data))
    assert other.privacy_report() == model.privacy_report()


def test_centring_by_the_servers_mean_in_a_pipeline(mixture):
    """A scaler fitted on public rows is no leak, and a smaller clip norm needs less noise."""
    public = StandardScaler(with_std=False).fit(mixture.server_data)
    settings = {"epsilon": 0.3, "accountant": "zcdp", "random_state": 0}
    plain = FedDPKMeans(5, server_data=mixture.server_data, **settings).fit(mixture.data)
    centred = FedDPKMeans(5, server_data=public.transform(mixture.server_data), **settings)
    pipeline = make_pipeline(FrozenEstimator(public), centred).fit(mixture.data)
    noise = [m.privacy_report()[0]["noise_scale"] for m in (pipeline[-1], plain)]
    assert noise[0] < noise[1]
    assert pipeline.score(mixture.data) / plain.score(mixture.data) < 1.02


def test_groups_by_metadata_routing(small):
    settings = {
        "server_data": small.server_data,
        "privacy_unit": "client",
        "client_clip": CLIENT_CLIP,
        "accountant": "zcdp",
        "random_state": 0,
    }
    alone = quiet_fit(FedDPKMeans(3, **settings), small.data, groups=small.groups)
    ungrouped = quiet_fit(FedDPKMeans(3, **settings), small.data)
    assert not np.allclose(alone.cluster_centers_, ungrouped.cluster_centers_)
    identity = FrozenEstimator(StandardScaler(with_std=False, with_mean=False).fit(small.data))
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(identity, FedDPKMeans(3, **settings).set_fit_request(groups=True))
        quiet_fit(routed, small.data, groups=small.groups)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = routed.fit_predict(small.data, groups=small.groups)
    np.testing.assert_array_equal(routed[-1].cluster_centers_, alone.cluster_centers_)
    np.testing.assert_array_equal(labels, alone.labels_)
    plain = make_pipeline(identity, FedDPKMeans(3, **settings))
    quiet_fit(plain, small.data, feddpkmeans__groups=small.groups)
    np.testing.assert_array_equal(plain[-1].cluster_centers_, alone.cluster_centers_)


def test_grid_search_spends_once_a_fit(small):
    search = GridSearchCV(
        FedDPKMeans(3, server_data=small.server_data, accountant="zcdp", random_state=0),
        {"epsilon": [0.05, np.inf], "margin": [1.0, 0.8]},
        cv=2,
    )
    quiet_fit(search, small.data)
    assert search.best_params_["epsilon"] == np.inf


@pytest.mark.parametrize(
    "params",
    [
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": np.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"n_clusters": 0},
        {"privacy_unit": "user"},
        {"clip_norm": 0.0},
        {"n_lloyd_iter": -1},
        {"margin": 0.0},
        {"margin": 1.5},
        {"min_server_weight": -1},
        {"accountant": "rdp"},
        {"n_init": 0},
        {"backend": "flower"},
    ],
)
def test_bad_parameters(small, params):
    with pytest.raises(InvalidParameterError, match=f"'{next(iter(params))}'"):
        FedDPKMeans(**({"n_clusters": 3} | params)).fit(small.data)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"server_data": np.zeros((9, 5))}, "server_data has 5 features, but X has 6"),
        ({"server_data": np.zeros((2, 6))}, "server_data must have at least n_clusters=3 rows"),
        ({"server_data": np.full((9, 6), np.nan)}, "server_data contains NaN"),
        ({"budget_split": {"votes": 1.0}}, r"budget_split has unknown keys \['votes'\]"),
        ({"budget_split": {"weights": 0.0}}, r"budget_split\['weights'\] must be positive"),
        ({"budget_split": {"weights": "all"}}, r"budget_split\['weights'\] must be positive"),
        ({"privacy_unit": "client"}, "needs client_clip"),
        ({"privacy_unit": "client", "client_clip": {}}, "client_clip lacks the keys"),
        (
            {"privacy_unit": "client", "client_clip": dict.fromkeys(CLIENT_CLIP, -1.0)},
            "client_clip.*must be positive",
        ),
        (
            {"privacy_unit": "client", "client_clip": CLIENT_CLIP | {"c5": 1.0}},
            "client_clip has unknown keys",
        ),
    ],
)
def test_bad_values_leave_nothing_behind(small, params, match):
    model = FedDPKMeans(**({"n_clusters": 3, "server_data": small.server_data} | params))
    with pytest.raises(ValueError, match=match):
        model.fit(small.data)
    assert not [name for name in vars(model) if name.endswith("_")]


def test_groups_of_the_wrong_length(small):
    model = FedDPKMeans(3, server_data=small.server_data)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[720, 5\]"):
        model.fit(small.data, groups=np.arange(5))
    assert not hasattr(model, "n_features_in_")


def test_lloyd_bounds_are_needed_for_lloyd_rounds_only(small):
    clip = {name: CLIENT_CLIP[name] for name in list(CLIENT_CLIP)[:4]}
    settings = {
        "server_data": small.server_data,
        "privacy_unit": "client",
        "client_clip": clip,
        "accountant": "zcdp",
    }
    quiet_fit(FedDPKMeans(3, n_lloyd_iter=0, **settings), small.data, groups=small.groups)
    with pytest.raises(ValueError, match=r"lacks the keys .*lloyd_sums.*lloyd_counts"):
        FedDPKMeans(3, **settings).fit(small.data, groups=small.groups)


def test_a_failed_refit_leaves_the_earlier_fit_whole(small):
    pd = pytest.importorskip("pandas")
    model = FedDPKMeans(3, server_data=small.server_data, epsilon=np.inf, random_state=0)
    before = dict(vars(model.fit(small.data)))
    mixed = pd.DataFrame(small.data[::-1], columns=["a", 1, 2, 3, 4, 5])
    with pytest.raises(TypeError, match="string names"):
        model.fit(mixed)
    assert vars(model) == before


def test_rows_of_zeros():
    model = FedDPKMeans(2, epsilon=np.inf, random_state=0)
    quiet_fit(model, np.zeros((20, 3)))
    assert np.isfinite(model.cluster_centers_).all()


def test_an_interrupted_fit_leaves_nothing_behind(small):
    class Interrupted:
        def sum_over_clients(self, step, broadcast):
            if step == "centers":
                raise KeyboardInterrupt
            return LocalBackend(small.data).sum_over_clients(step, broadcast)

    model = FedDPKMeans(3, server_data=small.server_data, backend=Interrupted(), epsilon=np.inf)
    with pytest.raises(KeyboardInterrupt):
        model.fit(None)
    assert not [name for name in vars(model) if name.endswith("_")]
