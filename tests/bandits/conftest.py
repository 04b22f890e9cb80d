import pytest


@pytest.fixture(scope="session")
def standard_means():
    """The Bernoulli instance C2 of the field: five arms, evenly spaced."""
    return [0.75, 0.625, 0.5, 0.375, 0.25]
