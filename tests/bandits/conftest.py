import pytest

from skicml.datasets import make_beta_bandit

MEANS = [0.7, 0.5, 0.3, 0.1]


@pytest.fixture
def table():
    """Rewards of 1500 rounds of four arms."""
    return make_beta_bandit(MEANS, 1500, random_state=3)


@pytest.fixture(scope="session")
def standard_means():
    """The Bernoulli instance C2 of the field: five arms, evenly spaced."""
    return [0.75, 0.625, 0.5, 0.375, 0.25]
