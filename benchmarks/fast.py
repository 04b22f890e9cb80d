"""Evidence and speed of FAST: ``python -m benchmarks.fast`` (about eight minutes of one core).

The paper has no table that could be repeated without its code; what is measured here is what its
theorems say, against the obvious alternatives.
"""

import time
from functools import partial

import numpy as np
import threadpoolctl
from sklearn.datasets import load_wine
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import scale

from benchmarks._harness import Report
from skicml.bandits import FAST, SafeLinearThompsonSampling
from skicml.datasets import make_bandit_lp

INDEPENDENT = "independent noise per constraint"
UNIFORM = "uniform exploration, same certificates"
MANY_ROUNDS = 1500  # where the search with 100 constraints must have stopped


class Oracle:
    """``Phi a`` plus Gaussian noise."""

    def __init__(self, Phi, noise_std, seed):
        self.Phi, self.noise_std = Phi, noise_std
        self.rng = np.random.RandomState(seed)

    def __call__(self, action):
        return self.Phi @ action + self.noise_std * self.rng.standard_normal(len(self.Phi))


def margins(Phi, actions):
    """Smallest entry of ``Phi a`` of every action."""
    return (np.atleast_2d(actions) @ Phi.T).min(axis=1)


def box(d):
    """Parameters of the box whose corners have norm 1."""
    return {"bounds": (-1 / np.sqrt(d), 1 / np.sqrt(d)), "n_features": d}


def simplex(d):
    return {"action_set": "simplex", "n_features": d}


def cone_rows(n_rows, seed, margin=0.4, spread=0.8):
    """Rows around u = (1, 1, 1) / sqrt(3); the best margin over the box is `margin`, at u."""
    rng = np.random.RandomState(seed)
    u = np.ones(3) / np.sqrt(3)
    across = rng.standard_normal((n_rows, 3))
    across -= np.outer(across @ u, u)
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    return margin * u + spread * across


def symmetric_rows(off_diagonal):
    """Three constraints over the simplex, .5 on the diagonal: margin (.5 + 2 off) / 3."""
    return 0.5 * np.eye(3) + off_diagonal * (1 - np.eye(3))


def run(Phi, noise_std, seed, **parameters):
    """One search against a fresh oracle."""
    policy = FAST(noise_std=noise_std, random_state=seed, **parameters)
    return policy.search(Oracle(Phi, noise_std, seed))


def run_uniform(Phi, noise_std, seed, draw, **parameters):
    """The same certificates, fed with actions that nobody chose."""
    policy = FAST(noise_std=noise_std, random_state=seed, **parameters).reset()
    oracle, rng = Oracle(Phi, noise_std, seed), np.random.RandomState(seed)
    while policy.status_ == "undecided" and policy.t_ < policy.max_rounds:
        action = draw(rng)
        policy.tell(action, oracle(action))
    return policy


# --------------------------------------------------------------------------------------
# Rounds and regret of the search


def instances():
    """Name, rows by seed, best margin, noise, action set, verdict, seeds."""
    for d, m, best in [(2, 4, 0.26), (3, 4, 0.41), (4, 6, 0.32)]:

        def rows(seed, d=d, m=m, best=best):
            return make_bandit_lp(d, m, best, random_state=seed)[0]

        yield f"box, d={d}, m={m}, M*={best}", rows, best, 0.1, box(d), "feasible", 5
    yield "box, d=3, m=5, M*=.4", partial(cone_rows, 5), 0.4, 0.3, box(3), "feasible", 5
    yield (
        "simplex, d=3, m=3, M*=-.233",
        lambda seed: symmetric_rows(-0.6),
        -0.7 / 3,
        0.1,
        simplex(3),
        "infeasible",
        5,
    )
    yield (
        "simplex, d=3, m=3, M*=.1",
        lambda seed: symmetric_rows(-0.1),
        0.1,
        0.1,
        simplex(3),
        "feasible",
        3,
    )


def search_costs(report):
    """Rounds, and regret ``sum(M* - M(a_t))``, of coupled and independent noise."""
    for name, rows, best, noise_std, action_set, verdict, n_seeds in instances():
        rounds, regret, right = {}, {}, True
        for coupled in (True, False):
            policies = [
                run(rows(s), noise_std, s, coupled=coupled, **action_set) for s in range(n_seeds)
            ]
            rounds[coupled] = [p.t_ for p in policies]
            regret[coupled] = [
                (best - margins(rows(s), p.actions_)).sum() for s, p in enumerate(policies)
            ]
            right = right and all(p.status_ == verdict for p in policies)
        data = f"{name}, noise {noise_std}"
        report.experiment(
            "rounds to the verdict",
            data=data,
            metric="rounds",
            ours=rounds[True],
            baseline=rounds[False],
            baseline_name=INDEPENDENT,
            higher_is_better=False,
            criterion=f"verdict {verdict} in every run, at most one test later than independent "
            "noise (tests are 20% apart)",
            passed=right and np.mean(rounds[True]) <= 1.2 * np.mean(rounds[False]),
        )
        report.experiment(
            "regret of the search",
            data=data,
            metric="sum of M* - M(a_t)",
            ours=regret[True],
            baseline=regret[False],
            baseline_name=INDEPENDENT,
            higher_is_better=False,
            criterion="no more than independent noise",
            passed=np.mean(regret[True]) <= np.mean(regret[False]),
        )


def uniform_costs(report):
    """What the choice of actions saves against actions that nobody chose."""
    corner = 1 / np.sqrt(3)

    def draw(rng):
        return rng.uniform(-corner, corner, 3)

    ours = [run(cone_rows(5, seed), 0.3, seed, **box(3)) for seed in range(5)]
    uniform = [run_uniform(cone_rows(5, seed), 0.3, seed, draw, **box(3)) for seed in range(5)]
    regret = [
        [(0.4 - margins(cone_rows(5, seed), p.actions_)).sum() for seed, p in enumerate(policies)]
        for policies in (ours, uniform)
    ]
    report.experiment(
        "regret of the search",
        data="box, d=3, m=5, M*=.4, noise 0.3",
        metric="sum of M* - M(a_t)",
        ours=regret[0],
        baseline=regret[1],
        baseline_name=UNIFORM,
        higher_is_better=False,
        criterion="less than half",
        passed=np.mean(regret[0]) < 0.5 * np.mean(regret[1]),
    )


def many_constraints(report, n_seeds=3):
    """A hundred constraints: what the coupling is for."""
    coupled, independent, few = [], [], []
    for seed in range(n_seeds):
        options = {**box(3), "max_rounds": MANY_ROUNDS}
        few.append(run(cone_rows(5, seed), 0.3, seed, **options))
        coupled.append(run(cone_rows(100, seed), 0.3, seed, **options))
        independent.append(run(cone_rows(100, seed), 0.3, seed, coupled=False, **options))
    data = "box, d=3, m=100, M*=.4, noise 0.3"
    report.experiment(
        "rounds to the verdict",
        data=data,
        metric=f"rounds, at most {MANY_ROUNDS}",
        ours=[p.t_ for p in coupled],
        baseline=[p.t_ for p in independent],
        baseline_name=f"{INDEPENDENT} (undecided when it ends)",
        higher_is_better=False,
        criterion=f"coupled noise stops in {MANY_ROUNDS} rounds, independent noise does not",
        passed=all(p.status_ == "feasible" for p in coupled)
        and all(p.status_ == "undecided" for p in independent),
    )
    report.experiment(
        "rounds with 100 and with 5 constraints",
        data="box, d=3, M*=.4, noise 0.3",
        metric="rounds",
        ours=[p.t_ for p in coupled],
        baseline=[p.t_ for p in few],
        baseline_name="FAST with 5 constraints",
        higher_is_better=False,
        criterion="at most twice as many",
        passed=np.mean([p.t_ for p in coupled]) <= 2 * np.mean([p.t_ for p in few]),
    )
    report.experiment(
        "margin of the answer after 1500 rounds",
        data=data,
        metric="M(answer) / M*",
        ours=[margins(cone_rows(100, s), p.best_action_)[0] / 0.4 for s, p in enumerate(coupled)],
        baseline=[
            margins(cone_rows(100, s), p.best_action_)[0] / 0.4 for s, p in enumerate(independent)
        ],
        baseline_name=INDEPENDENT,
        criterion=">= .5 with coupled noise",
        passed=all(
            margins(cone_rows(100, s), p.best_action_)[0] >= 0.2 for s, p in enumerate(coupled)
        ),
    )


def verdicts(report, n_instances=20):
    """Criterion (a): verdicts, margins and certificates on random instances."""
    right, share, broken = [], [], 0
    for seed in range(n_instances):
        rng = np.random.RandomState(seed)
        d, m, feasible = rng.randint(2, 5), rng.randint(3, 9), seed % 2 == 0
        best = rng.uniform(0.2, 0.5 if feasible else min(0.5, 0.95 / np.sqrt(d)))
        Phi, action_set, oracle = make_bandit_lp(d, m, best, feasible=feasible, random_state=seed)
        policy = FAST(action_set=action_set, noise_std=0.1, random_state=seed).search(oracle)
        best = best if feasible else -best
        right.append(policy.status_ == ("feasible" if feasible else "infeasible"))
        broken += any(
            lower > best + 1e-6 or upper < best - 1e-6 for _, lower, upper in policy.certificates_
        )
        if feasible:
            share.append(margins(Phi, policy.best_action_)[0] / best)
    data = f"{n_instances} random instances, d 2-4, m 3-8, |M*| .2-.5, both signs"
    report.experiment(
        "right verdicts",
        data=data,
        metric="share",
        ours=np.mean(right),
        baseline=0.95,
        baseline_name="guarantee 1 - delta",
        criterion="no wrong verdict",
        passed=all(right),
    )
    report.experiment(
        "margin of the answer",
        data=data,
        metric="M(answer) / M*",
        ours=share,
        baseline=0.5,
        baseline_name="guarantee 1 - epsilon",
        criterion=">= .5 in every run",
        passed=min(share) >= 0.5,
    )
    report.experiment(
        "runs with a wrong certificate at any test",
        data=data,
        metric="share",
        ours=broken / n_instances,
        baseline=0.05,
        baseline_name="guarantee delta",
        higher_is_better=False,
        criterion="at most delta",
        passed=broken <= 0.05 * n_instances,
    )


def rate(report, n_seeds=6):
    """Criterion (c): the rounds grow like the inverse square of the margin."""
    ratios = []
    for seed in range(n_seeds):
        rounds = [
            run(
                make_bandit_lp(3, 5, best, random_state=seed)[0],
                0.1,
                seed,
                check_growth=1.05,
                **box(3),
            ).t_
            for best in (0.4, 0.2)
        ]
        ratios.append(rounds[1] / rounds[0])
    report.experiment(
        "growth of the rounds when the margin is halved",
        data="box, d=3, m=5, M*=.4 and .2, noise 0.1",
        metric="ratio of rounds",
        ours=ratios,
        baseline=4.0,
        baseline_name="theory, 1 / M*^2",
        higher_is_better=False,
        criterion="2.5 to 8 in every run",
        passed=2.5 <= min(ratios) <= max(ratios) <= 8,
    )


# --------------------------------------------------------------------------------------
# The safe bandit


def safe_run(seed, strategy, n_rounds=1500):
    """Margins and regrets of the rounds after the search, and the regret of the safe action."""
    Phi = make_bandit_lp(3, 4, 0.35, random_state=seed)[0]
    theta = np.random.RandomState(seed).standard_normal(3)
    theta /= np.linalg.norm(theta)
    oracle = Oracle(np.vstack([theta, Phi]), 0.1, seed)
    policy = SafeLinearThompsonSampling(
        strategy=strategy, noise_std=0.1, horizon=10_000, random_state=seed, **box(3)
    ).reset()
    while policy.status_ == "undecided":
        action = policy.ask()
        policy.tell(action, oracle(action))
    policy.search(oracle, n_rounds=n_rounds - (policy.t_ - policy.n_init_rounds_))
    played = policy.actions_[policy.n_init_rounds_ :]
    best = policy._set.linear(theta, Phi, np.zeros(4)).value
    return {
        "violations": (margins(Phi, played) < 0).mean(),
        "regret": best - played @ theta,
        "safe regret": n_rounds * (best - theta @ policy.safe_action_),
    }


def safe_bandit(report, n_seeds=8, n_seeds_slow=3):
    """Criterion (d): no violation, and a regret that falls."""
    data = "box, d=3, m=4, M*=.35, noise 0.1, 1500 rounds after the search"
    runs = {"colts": [safe_run(seed, "colts") for seed in range(n_seeds)]}
    for strategy in ("optimistic", "doubly-optimistic", "greedy"):
        runs[strategy] = [safe_run(seed, strategy) for seed in range(n_seeds_slow)]

    def of(strategy, summary):
        return [summary(r) for r in runs[strategy]]

    violations = partial(of, summary=lambda r: r["violations"])
    total = partial(of, summary=lambda r: r["regret"].sum())
    report.experiment(
        "violations after the search",
        data=data,
        metric="share of the rounds",
        ours=violations("colts"),
        baseline=violations("doubly-optimistic"),
        baseline_name="doubly-optimistic play",
        higher_is_better=False,
        criterion="none",
        passed=max(violations("colts")) == 0,
    )
    first, last = (
        of("colts", lambda r, part=part: r["regret"][part].mean())
        for part in (slice(None, 100), slice(-100, None))
    )
    report.experiment(
        "regret a round, last 100 against first 100",
        data=data,
        metric="mean regret",
        ours=last,
        baseline=first,
        baseline_name="first 100 rounds",
        higher_is_better=False,
        criterion="at most .6 times, over the seeds",
        passed=np.mean(last) <= 0.6 * np.mean(first),
    )
    report.experiment(
        "regret after the search",
        data=data,
        metric="sum",
        ours=total("colts"),
        baseline=of("colts", lambda r: r["safe regret"]),
        baseline_name="always the safe action",
        higher_is_better=False,
        criterion="less, over the seeds",
        passed=np.mean(total("colts")) < np.mean(of("colts", lambda r: r["safe regret"])),
    )
    for strategy in ("optimistic", "greedy"):
        shared = total("colts")[:n_seeds_slow]
        report.experiment(
            "regret after the search",
            data=data,
            metric="sum",
            ours=shared,
            baseline=total(strategy),
            baseline_name=f"{strategy} target, pulled to safety",
            higher_is_better=False,
            criterion="at most twice as much",
            passed=np.mean(shared) <= 2 * np.mean(total(strategy)),
        )


# --------------------------------------------------------------------------------------
# Real records


def wines(report, n_seeds=5):
    """Wines as a pool: 11 measurements, two outcomes with a lower limit."""
    wine = load_wine()
    outcomes = [list(wine.feature_names).index(name) for name in ("color_intensity", "hue")]
    Y = scale(wine.data[:, outcomes])
    X = scale(np.delete(wine.data, outcomes, axis=1))
    X /= np.linalg.norm(X, axis=1).max()
    limits = np.quantile(Y, 0.25, axis=0)
    fitted = LinearRegression().fit(X, Y)
    options = {
        "thresholds": limits,
        "fit_intercept": True,
        "noise_std": (Y - fitted.predict(X)).std(axis=0).max(),
        "norm_bound": 4.0,
    }
    worst = (Y - limits).min(axis=1)
    truth = (fitted.predict(X) - limits).min(axis=1)
    searches = [FAST(random_state=seed, **options).fit(X, Y) for seed in range(n_seeds)]
    uniform = []
    for seed in range(n_seeds):
        policy = FAST(action_set=X, random_state=seed, **options).reset()
        rng = np.random.RandomState(seed)
        while policy.status_ == "undecided" and policy.t_ < 50 * len(X):
            row = rng.randint(len(X))
            policy.tell(X[row], Y[row])
        uniform.append(policy)

    def cost(policy):
        """Violations that were recorded for the wines that were played."""
        rows = [np.flatnonzero((a == X).all(axis=1))[0] for a in policy.actions_]
        return -np.minimum(worst[rows], 0).sum()

    report.experiment(
        "violations until the verdict",
        data="wine (178 rows), colour and hue above their lower quartile",
        metric="sum of recorded violations",
        ours=[cost(p) for p in searches],
        baseline=[cost(p) for p in uniform],
        baseline_name=UNIFORM,
        higher_is_better=False,
        criterion="feasible in every run with a row that least squares on all rows finds "
        "feasible, at less than half the cost",
        passed=all(p.status_ == "feasible" and truth[p.best_index_] > 0 for p in searches)
        and np.mean([cost(p) for p in searches]) < 0.5 * np.mean([cost(p) for p in uniform]),
    )


def no_peeking(report, n_seeds=3):
    """Criterion (e): rows that are not played have no influence."""
    changed = []
    for seed in range(n_seeds):
        rng = np.random.RandomState(seed)
        X = rng.uniform(-1, 1, (300, 3))
        Y = X @ cone_rows(5, seed).T + 0.1 * rng.standard_normal((300, 5))
        before = FAST(noise_std=0.1, random_state=seed).fit(X, Y)
        played = np.array([(before.actions_ == x).all(axis=1).any() for x in X])
        other = np.where(played[:, None], Y, -50 * Y[::-1])
        after = FAST(noise_std=0.1, random_state=seed).fit(X, other)
        changed.append(
            len(after.actions_) != len(before.actions_)
            or float((after.actions_ != before.actions_).mean())
        )
    report.experiment(
        "actions that change with records that were not played",
        data="pool of 300 actions, d=3, m=5",
        metric="share",
        ours=changed,
        baseline=0.0,
        baseline_name="a policy that does not peek",
        higher_is_better=False,
        criterion="none",
        passed=max(changed) == 0,
    )


# --------------------------------------------------------------------------------------
# Speed


def speed(report):
    """Cost of a round with and without linear programs."""
    Phi = make_bandit_lp(4, 6, 0.3, random_state=0)[0]

    def live(**parameters):
        policy = FAST(noise_std=0.1, epsilon=0.01, random_state=0, **box(4), **parameters)
        return policy.search(Oracle(Phi, 0.1, 0), n_rounds=1000)

    def uniform():
        corner = 0.5
        return run_uniform(
            Phi,
            0.1,
            0,
            lambda rng: rng.uniform(-corner, corner, 4),
            epsilon=0.01,
            max_rounds=1000,
            **box(4),
        )

    rng = np.random.RandomState(0)
    X = rng.standard_normal((500, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Y = X @ Phi.T + 0.1 * rng.standard_normal((500, 6))

    def replay():
        policy = FAST(noise_std=3.0, max_rounds=5000, random_state=0).fit(X, Y)
        assert policy.t_ == 5000
        return policy

    def replay_without_choice():
        policy = FAST(action_set=X, noise_std=3.0, random_state=0).reset()
        for row in np.random.RandomState(0).randint(500, size=5000):
            policy.tell(X[row], Y[row])

    report.timing(
        "1000 rounds on the box, d=4, m=6", INDEPENDENT, live, partial(live, coupled=False)
    )
    report.timing("1000 rounds on the box, d=4, m=6", UNIFORM, live, uniform)
    report.timing(
        "5000 rounds on a pool of 500 actions, m=6", UNIFORM, replay, replay_without_choice
    )

    def cpu_seconds(work):
        start = time.process_time()
        work()
        return time.process_time() - start

    report.experiment(
        "CPU time of 1000 rounds with linear programs",
        data="box, d=4, m=6",
        metric="seconds",
        ours=[cpu_seconds(live) for _ in range(3)],
        baseline=6.0,
        baseline_name="limit",
        higher_is_better=False,
        criterion="at most 6 s",
        passed=cpu_seconds(live) <= 6.0,
    )
    rounds = [1e6 * cpu_seconds(replay) / 5000 for _ in range(5)]
    report.experiment(
        "CPU time of a round on a pool",
        data="500 actions, d=4, m=6",
        metric="microseconds",
        ours=rounds,
        baseline=100.0,
        baseline_name="limit",
        higher_is_better=False,
        criterion="at most 100 us",
        passed=np.median(rounds) <= 100.0,
    )


def main():
    report = Report(
        "fast",
        title="Feasible Action Search for Bandit Linear Programs via Thompson Sampling",
        claim="Coupled noise finds an action that satisfies unknown linear constraints, or "
        "certifies that there is none, in O(d^3 / (epsilon M*)^2) rounds whatever the number of "
        "constraints; safe bandits then need no safe action to start from",
    )
    with threadpoolctl.threadpool_limits(1):
        verdicts(report)
        search_costs(report)
        uniform_costs(report)
        many_constraints(report)
        rate(report)
        safe_bandit(report)
        wines(report)
        no_peeking(report)
        speed(report)
    report.write()


if __name__ == "__main__":
    main()
