"""Generators of tables of rewards."""

import numpy as np
import pytest

from skicml.datasets import make_bernoulli_bandit, make_beta_bandit


def test_generators_have_the_moments_they_should():
    means, n = np.array([0.2, 0.5, 0.9]), 200_000
    bernoulli = make_bernoulli_bandit(means, n, random_state=0)
    assert set(np.unique(bernoulli)) == {0.0, 1.0}
    np.testing.assert_allclose(bernoulli.mean(axis=0), means, atol=0.005)
    beta = make_beta_bandit(means, n, concentration=3.0, random_state=0)
    assert ((beta >= 0) & (beta <= 1)).all()
    np.testing.assert_allclose(beta.mean(axis=0), means, atol=0.005)
    np.testing.assert_allclose(beta.var(axis=0), means * (1 - means) / 4, rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(bernoulli.T), np.eye(3), atol=0.01)
    np.testing.assert_array_equal(
        beta, make_beta_bandit(means, n, concentration=3.0, random_state=0)
    )


@pytest.mark.parametrize("make", [make_bernoulli_bandit, make_beta_bandit])
@pytest.mark.parametrize(
    ("means", "n_rounds", "match"),
    [([0.5, 1.5], 5, "means"), ([0.5], 5, "means"), ([0.5, 0.5], 0, "n_rounds")],
)
def test_generators_check_their_arguments(make, means, n_rounds, match):
    with pytest.raises(ValueError, match=match):
        make(means, n_rounds)


@pytest.mark.parametrize("concentration", [0.0, np.inf, np.nan])
def test_beta_needs_a_positive_concentration(concentration):
    with pytest.raises(ValueError, match="concentration"):
        make_beta_bandit([0.5, 0.5], concentration=concentration)
