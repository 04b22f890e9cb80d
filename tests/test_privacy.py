import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from skicml import privacy
from skicml.privacy import (
    NoiseMechanism,
    analytic_gaussian_sigma,
    compose_gdp,
    composed_epsilon,
    dp_to_gdp,
    gdp_to_delta,
    gdp_to_epsilon,
    pure_dp_to_gdp,
    split_budget,
    zcdp_to_epsilon,
)

DELTA = 1e-6

# The paper's releases with its nominal shares: subspace, votes, then sums and counts.
INIT = [
    ("subspace", "gaussian", 1.0, 1),
    ("weights", "laplace", 1.0, 1),
    ("init_sums", "gaussian", 0.5, 1),
    ("init_counts", "laplace", 0.5, 1),
]


def lloyd(n_rounds):
    return [
        ("lloyd_sums", "gaussian", 0.5, n_rounds),
        ("lloyd_counts", "laplace", 0.5, n_rounds),
    ]


def at_nominal(e, shares, delta=DELTA):
    """Mechanisms with single rounds at nominal epsilons e * share."""
    return [
        NoiseMechanism(
            name,
            kind,
            analytic_gaussian_sigma(e * share, delta) if kind == "gaussian" else 1 / (e * share),
        )
        for name, kind, share, _ in shares
    ]


# --------------------------------------------------------------------------------------
# Gaussian differential privacy


@pytest.mark.parametrize("mu", [0.05, 0.7, 2.0, 9.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_delta_is_the_formula(epsilon, mu):
    expected = stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    assert gdp_to_delta(epsilon, mu) == pytest.approx(expected, rel=1e-9, abs=1e-16)


@pytest.mark.parametrize(
    ("epsilon", "mu"), [(30.0, 1.0), (1e3, 40.0), (3e4, 190.0), (0.2, 0.01), (1e-3, 1e-4)]
)
def test_delta_in_high_precision(epsilon, mu):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(400):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
    assert gdp_to_delta(epsilon, mu) == pytest.approx(float(exact), rel=1e-6)


def test_delta_at_the_ends():
    assert gdp_to_delta(0.0, 0.0) == 0
    assert gdp_to_delta(3.0, np.inf) == 1
    assert gdp_to_delta(np.inf, 3.0) == 0
    assert gdp_to_delta(1e9, 1e-3) == 0
    assert gdp_to_delta(0.0, 1e3) == pytest.approx(1)


def test_epsilon_inverts_delta_and_broadcasts():
    deltas = np.array([1e-12, 1e-6, 1e-3, 0.05])[:, np.newaxis]
    mus = np.array([0.5, 2.88, 33.1, 270.0])
    epsilons = gdp_to_epsilon(deltas, mus)
    assert epsilons.shape == (4, 4)
    np.testing.assert_allclose(gdp_to_delta(epsilons, mus), np.broadcast_to(deltas, (4, 4)), 1e-6)
    assert (np.diff(epsilons, axis=0) < 0).all()
    assert (np.diff(epsilons, axis=1) > 0).all()


def test_epsilon_at_the_ends():
    assert gdp_to_epsilon(1e-6, 0.0) == 0
    assert gdp_to_epsilon(0.0, 1.0) == np.inf
    assert gdp_to_epsilon(1e-6, np.inf) == np.inf
    assert gdp_to_epsilon(1.0, 5.0) == 0
    assert gdp_to_epsilon(0.5, 0.1) == 0  # delta covers it: the total variation is 0.04


def test_scalars_give_scalars():
    for value in (
        gdp_to_delta(1.0, 1.0),
        gdp_to_epsilon(1e-6, 1.0),
        dp_to_gdp(1.0, 1e-6),
        analytic_gaussian_sigma(1.0, 1e-6),
        pure_dp_to_gdp(1.0),
        zcdp_to_epsilon(0.1, 1e-6),
        compose_gdp(1, 2),
    ):
        assert np.ndim(value) == 0
        assert isinstance(value, float)


def test_composition_of_gaussians():
    assert compose_gdp() == 0
    assert compose_gdp(3.0, 4.0, 12.0) == pytest.approx(13)
    np.testing.assert_allclose(compose_gdp([1.0, 0.0], 1.0), [np.sqrt(2), 1])
    # Two releases of one number with noise 1 are one release of their mean with noise 1/sqrt 2.
    assert compose_gdp(1, 1) == pytest.approx(1 / np.sqrt(1 / 2))


def test_analytic_gaussian_values_and_sharpness():
    assert analytic_gaussian_sigma(1.0, 1e-6) == pytest.approx(4.2246789, abs=1e-6)
    assert analytic_gaussian_sigma(0.5, 1e-6) == pytest.approx(8.0576185, abs=1e-6)
    assert analytic_gaussian_sigma(0.5, 1e-6, sensitivity=3) == pytest.approx(3 * 8.0576185)
    for epsilon, delta in [(0.0, 1e-3), (0.1, 1e-6), (5.0, 1e-9), (200.0, 1e-6)]:
        sigma = analytic_gaussian_sigma(epsilon, delta)
        assert gdp_to_delta(epsilon, 1 / sigma) <= delta
        assert gdp_to_delta(epsilon, 1 / (0.9999 * sigma)) > delta
    assert analytic_gaussian_sigma(np.inf, 1e-6) == 0
    assert analytic_gaussian_sigma(1.0, 0.0) == np.inf


def test_dp_to_gdp_inverts_gdp_to_epsilon():
    mus = np.array([1e-3, 0.2, 3.0, 50.0])
    np.testing.assert_allclose(dp_to_gdp(gdp_to_epsilon(1e-6, mus), 1e-6), mus, rtol=1e-8)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 5.0])
def test_gdp_of_pure_privacy_is_tight(epsilon):
    mu = pure_dp_to_gdp(epsilon)
    other = np.linspace(0, epsilon, 50)
    randomised_response = (np.exp(epsilon) - np.exp(other)) / (1 + np.exp(epsilon))
    assert (randomised_response <= gdp_to_delta(other, mu) + 1e-12).all()
    assert randomised_response[0] > gdp_to_delta(0.0, 0.9999 * mu)
    assert mu == pytest.approx(2 * stats.norm.ppf(np.exp(epsilon) / (1 + np.exp(epsilon))))


def test_gdp_of_pure_privacy_at_large_epsilon():
    assert np.isfinite(pure_dp_to_gdp(1e5))
    assert pure_dp_to_gdp(np.inf) == np.inf
    assert pure_dp_to_gdp(0.0) == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gdp_to_delta(-1, 1),
        lambda: gdp_to_delta(1, -1),
        lambda: gdp_to_delta(np.nan, 1),
        lambda: gdp_to_epsilon(1.5, 1),
        lambda: gdp_to_epsilon(-1e-3, 1),
        lambda: compose_gdp(1, -1),
        lambda: dp_to_gdp(-1, 1e-6),
        lambda: analytic_gaussian_sigma(1, 1e-6, sensitivity=-1),
        lambda: pure_dp_to_gdp(-1),
        lambda: zcdp_to_epsilon(-1, 1e-6),
    ],
)
def test_bad_numbers(call):
    with pytest.raises(ValueError, match=r"must be"):
        call()


# --------------------------------------------------------------------------------------
# Zero-concentrated privacy


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_zcdp_bounds_the_gaussian(mu, delta):
    assert zcdp_to_epsilon(mu**2 / 2, delta) >= gdp_to_epsilon(delta, mu)


def test_zcdp_values():
    gaussian = NoiseMechanism("a", "gaussian", 4.0)  # rho = 1 / (2 sigma^2)
    laplace = NoiseMechanism("b", "laplace", 4.0, compositions=3)  # epsilon^2 / 2, three times
    for mechanism, rho in ((gaussian, 1 / 32), (laplace, 3 / 32)):
        expected = rho + 2 * np.sqrt(rho * np.log(1e6))
        assert composed_epsilon([mechanism], 1e-6, "zcdp") == pytest.approx(expected)
    assert zcdp_to_epsilon(0.5, np.exp(-2.0)) == pytest.approx(2.5)
    assert zcdp_to_epsilon(0.0, 0.0) == 0
    assert zcdp_to_epsilon(0.1, 0.0) == np.inf


# --------------------------------------------------------------------------------------
# Composition


@pytest.mark.parametrize(
    ("e", "init", "total"),
    [
        (0.1, 0.25303, 0.30822),
        (0.25, 0.63524, 0.77507),
        (0.5, 1.27471, 1.55750),
        (1.0, 2.55936, 3.13265),
    ],
)
def test_accountant_values_of_the_paper(e, init, total):
    pytest.importorskip("dp_accounting")
    assert composed_epsilon(at_nominal(e, INIT), DELTA) == pytest.approx(init, abs=1e-4)
    assert composed_epsilon(at_nominal(e, INIT + lloyd(1)), DELTA) == pytest.approx(total, abs=1e-4)


def test_gaussians_compose_to_the_exact_curve():
    pytest.importorskip("dp_accounting")
    mechanisms = [
        NoiseMechanism("a", "gaussian", 12.0, sensitivity=4.0),
        NoiseMechanism("b", "gaussian", 5.0, compositions=3),
    ]
    exact = gdp_to_epsilon(DELTA, compose_gdp(1 / 3, np.sqrt(3) / 5))
    assert exact <= composed_epsilon(mechanisms, DELTA) <= exact + 1e-3


def test_one_laplace_release_is_pure():
    pytest.importorskip("dp_accounting")
    spent = composed_epsilon([NoiseMechanism("a", "laplace", 2.0)], 1e-9)
    assert spent == pytest.approx(0.5, abs=1e-4)


def test_agrees_with_the_accountant_of_dp_accounting():
    dp = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    mechanisms = [
        NoiseMechanism("a", "gaussian", 30.0, sensitivity=6.0, compositions=2),
        NoiseMechanism("b", "laplace", 9.0, sensitivity=3.0, compositions=4),
        NoiseMechanism("c", "laplace", 5.0),
    ]
    accountant = PLDAccountant()
    accountant.compose(dp.GaussianDpEvent(5.0), 2)
    accountant.compose(dp.LaplaceDpEvent(3.0), 4)
    accountant.compose(dp.LaplaceDpEvent(5.0), 1)
    expected = accountant.get_epsilon(1e-5)
    assert composed_epsilon(mechanisms, 1e-5) == pytest.approx(expected, rel=1e-3)
    backwards = composed_epsilon(reversed(mechanisms), 1e-5)
    assert backwards == pytest.approx(composed_epsilon(mechanisms, 1e-5))


@pytest.mark.parametrize("accountant", ["pld", "zcdp"])
def test_composition_holds_by_simulation(accountant):
    """delta(epsilon) = E max(0, 1 - exp(epsilon - loss)), the loss being sampled."""
    if accountant == "pld":
        pytest.importorskip("dp_accounting")
    rng = np.random.default_rng(0)
    mechanisms = [NoiseMechanism("a", "gaussian", 2.0), NoiseMechanism("b", "laplace", 3.0)]
    delta = 0.02
    epsilon = composed_epsilon(mechanisms, delta, accountant)
    n = 1_000_000
    gaussian, laplace = rng.normal(scale=2.0, size=n), rng.laplace(scale=3.0, size=n)
    loss = (gaussian**2 - (gaussian - 1) ** 2) / -8 + (np.abs(laplace - 1) - np.abs(laplace)) / 3
    sample = np.maximum(0, -np.expm1(epsilon - loss))
    error = 4 * sample.std() / np.sqrt(n)
    assert sample.mean() <= delta + error
    if accountant == "pld":  # and it is not much more than needed
        assert sample.mean() >= delta - error - 1e-4


@pytest.mark.parametrize("e", [0.02, 0.5, 3.0])
def test_zcdp_accountant_is_an_upper_bound(e):
    pytest.importorskip("dp_accounting")
    mechanisms = at_nominal(e, INIT + lloyd(1))
    assert composed_epsilon(mechanisms, DELTA, "zcdp") >= composed_epsilon(mechanisms, DELTA)


def test_no_noise_is_no_privacy():
    assert composed_epsilon([NoiseMechanism("a", "laplace", 0.0)], DELTA, "zcdp") == np.inf
    assert composed_epsilon([], DELTA, "zcdp") == 0


def test_unknown_accountant():
    with pytest.raises(ValueError, match="accountant must be 'pld' or 'zcdp', got 'moments'"):
        composed_epsilon([], DELTA, "moments")


@pytest.mark.parametrize("accountant", ["pld", "zcdp"])
@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, np.nan])
def test_composition_refuses_a_delta_at_which_it_proves_nothing(accountant, delta):
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        composed_epsilon([NoiseMechanism("a", "laplace", 2.0)], delta, accountant)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"noise_scale": -1.0}, "noise_scale must be >= 0"),
        ({"noise_scale": np.nan}, "noise_scale must be >= 0"),
        ({"sensitivity": 0.0}, "sensitivity positive"),
        ({"sensitivity": np.nan}, "sensitivity positive"),
        ({"compositions": 0}, "compositions must be an integer >= 1"),
        ({"compositions": -3}, "compositions must be an integer >= 1"),
        ({"compositions": 1.5}, "compositions must be an integer >= 1"),
    ],
)
def test_a_mechanism_cannot_earn_privacy(change, match):
    with pytest.raises(ValueError, match=match):
        NoiseMechanism(**({"name": "a", "kind": "laplace", "noise_scale": 1.0} | change))


def test_missing_dp_accounting_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    with pytest.raises(ImportError, match=r"skicml\[privacy\]"):
        composed_epsilon([NoiseMechanism("a", "laplace", 1.0)], DELTA)
    assert composed_epsilon([NoiseMechanism("a", "laplace", 1.0)], DELTA, "zcdp") > 0


def test_import_is_light():
    code = "import sys, skicml.privacy; print({'scipy.stats', 'dp_accounting'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# --------------------------------------------------------------------------------------
# Noise


@pytest.mark.parametrize(("kind", "sd"), [("gaussian", 3.0), ("laplace", 3.0 * np.sqrt(2))])
def test_noise_has_the_scale_it_says(kind, sd):
    mechanism = NoiseMechanism("a", kind, 1.5).with_sensitivity(2.0)
    assert (mechanism.noise_scale, mechanism.relative_scale) == (3.0, 1.5)
    noise = mechanism.sample((200, 200), np.random.default_rng(0))
    assert noise.shape == (200, 200)
    assert noise.mean() == pytest.approx(0, abs=0.1)
    assert noise.std() == pytest.approx(sd, rel=0.03)


def test_scaling_with_the_sensitivity_keeps_the_privacy():
    one = [NoiseMechanism("a", "gaussian", 6.0), NoiseMechanism("b", "laplace", 6.0)]
    other = [mechanism.with_sensitivity(121.0) for mechanism in one]
    assert composed_epsilon(one, DELTA, "zcdp") == pytest.approx(
        composed_epsilon(other, DELTA, "zcdp")
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: NoiseMechanism("a", "uniform", 1.0),
        lambda: split_budget(1.0, DELTA, [("a", "uniform", 1.0, 1)], "zcdp"),
        lambda: split_budget(np.inf, DELTA, [("a", "uniform", 1.0, 1)]),
    ],
)
def test_unknown_kind_of_noise(call):
    with pytest.raises(ValueError, match="kind must be 'gaussian' or 'laplace', got 'uniform'"):
        call()


# --------------------------------------------------------------------------------------
# Splitting a budget


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("n_rounds", [1, 4])
@pytest.mark.parametrize("accountant", ["pld", "zcdp"])
def test_split_spends_the_budget_from_below(epsilon, n_rounds, accountant):
    if accountant == "pld":
        pytest.importorskip("dp_accounting")
    mechanisms = split_budget(epsilon, DELTA, INIT + lloyd(n_rounds), accountant)
    spent = composed_epsilon(mechanisms, DELTA, accountant)
    assert 0.9999 * epsilon <= spent <= epsilon


def test_split_keeps_the_ratios():
    pytest.importorskip("dp_accounting")
    mechanisms = split_budget(1.0, DELTA, INIT + lloyd(1))
    nominal = np.array([mechanism.epsilon for mechanism in mechanisms])
    np.testing.assert_allclose(nominal / nominal[0], [1, 1, 0.5, 0.5, 0.5, 0.5])
    # The nominal knob is not the budget: the total is about 3.1 times it.
    assert nominal[0] == pytest.approx(1 / 3.1, rel=0.02)
    by_kind = {"gaussian": analytic_gaussian_sigma, "laplace": lambda e, _: 1 / e}
    for mechanism in mechanisms:
        expected = by_kind[mechanism.kind](mechanism.epsilon, DELTA)
        assert mechanism.noise_scale == pytest.approx(expected)


@pytest.mark.parametrize("accountant", ["pld", "zcdp"])
def test_rounds_share_what_one_round_would_have(accountant):
    if accountant == "pld":
        pytest.importorskip("dp_accounting")
    gaussian, laplace = split_budget(2.0, DELTA, lloyd(6), accountant)
    one_sum = analytic_gaussian_sigma(gaussian.epsilon, DELTA)
    assert gaussian.noise_scale == pytest.approx(np.sqrt(6) * one_sum)
    together = composed_epsilon([laplace], DELTA, accountant)
    assert min(together, 6 / laplace.noise_scale) == pytest.approx(laplace.epsilon, rel=1e-4)
    assert laplace.compositions == gaussian.compositions == 6


def test_many_rounds_of_laplace_beat_plain_addition():
    pytest.importorskip("dp_accounting")
    _, laplace = split_budget(1.0, DELTA, lloyd(200))
    assert laplace.noise_scale < 0.7 * 200 / laplace.epsilon


def test_budget_below_what_the_nominal_delta_costs():
    """At delta = 0.01 three Gaussian releases overspend epsilon = 0.01 for any nominal epsilon."""
    mechanisms = split_budget(0.01, 0.01, INIT + lloyd(1), "zcdp")
    assert 0.0099 <= composed_epsilon(mechanisms, 0.01, "zcdp") <= 0.01


def test_infinite_budget_means_no_noise():
    mechanisms = split_budget(np.inf, DELTA, INIT)
    assert [mechanism.noise_scale for mechanism in mechanisms] == [0.0] * 4


def test_split_is_cached():
    first = split_budget(0.77, DELTA, INIT, "zcdp")
    assert split_budget(0.77, DELTA, list(INIT), "zcdp") is first


@pytest.mark.parametrize(
    ("epsilon", "delta", "shares", "match"),
    [
        (0.0, 1e-6, INIT, "epsilon > 0"),
        (-1.0, 1e-6, INIT, "epsilon > 0"),
        (1.0, 0.0, INIT, "0 < delta < 1"),
        (1.0, 1.0, INIT, "0 < delta < 1"),
        (1.0, 1e-6, [("a", "laplace", 0.0, 1)], "share of 'a'"),
        (1.0, 1e-6, [("a", "laplace", np.inf, 1)], "share of 'a'"),
        (1.0, 1e-6, [("a", "laplace", 1.0, 0)], "share of 'a'"),
        (1.0, 1e-6, [("a", "laplace", 1.0, 1.5)], "compositions must be an integer"),
        (1.0, 1e-6, [], "at least one release"),
    ],
)
def test_bad_budget(epsilon, delta, shares, match):
    with pytest.raises(ValueError, match=match):
        split_budget(epsilon, delta, shares, "zcdp")


@pytest.mark.parametrize(
    "share",
    [
        ("counts", "laplace"),
        ("counts", "laplace", 0.5),
        ("counts", "laplace", 0.5, 1, 1),
        (0.5, "counts", "laplace", 1),
        ("counts", 0.5, "laplace", 1),
        ("counts", "laplace", "0.5", 1),
        ("counts", "laplace", 0.5, None),
        "sums",
        0.5,
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, np.inf])
def test_share_that_is_none(epsilon, share):
    message = r"must be a tuple \(name, kind, share, compositions\).*got " + re.escape(repr(share))
    with pytest.raises(ValueError, match=message):
        split_budget(epsilon, DELTA, [*INIT, share], "zcdp")


@pytest.mark.parametrize("shares", [{"counts": 0.5}, "sums", 0.5, None])
def test_shares_that_are_no_list(shares):
    with pytest.raises(TypeError, match=r"a list with a tuple \(name, kind, share, compositions"):
        split_budget(1.0, DELTA, shares, "zcdp")


def test_lists_do_for_shares():
    assert split_budget(1.0, DELTA, map(list, INIT), "zcdp") == split_budget(
        1.0, DELTA, INIT, "zcdp"
    )


def test_everything_public_is_documented():
    for name in privacy.__all__:
        assert getattr(privacy, name).__doc__
