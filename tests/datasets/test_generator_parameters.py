"""What all generators of data share: bad parameters are errors that name them."""

import re
from inspect import signature

import numpy as np
import pytest
from numpydoc.docscrape import FunctionDoc
from sklearn.utils._param_validation import InvalidParameterError

import skicml.datasets

# Loaders read files and have no parameters to be wrong. Whatever else is public is a generator.
GENERATORS = {
    name: getattr(skicml.datasets, name)
    for name in skicml.datasets.__all__
    if not name.startswith("load_")
}
# Arguments without a default, and smaller sizes where the default ones take long.
SETTINGS = {
    "inject_anomalies": {"X": np.random.RandomState(0).normal(size=(200, 3))},
    "make_bernoulli_bandit": {"means": [0.5, 0.4]},
    "make_beta_bandit": {"means": [0.5, 0.4]},
    "make_federated_mixture": {"n_clients": 3, "n_samples_per_client": 20, "n_features": 4},
    "make_gappy_sines": {"n_channels": 2},
    "make_lorenz96": {"n_timepoints": 20, "burn_in": 10},
    "mask_views": {"X": np.ones((4, 5)), "views": [2, 3]},
}
MAY_BE_ZERO = {"burn_in", "n_server_outliers", "n_server_per_cluster"}
STANDARD_DEVIATIONS = {"noise", "noise_std", "variance"}


def _parameters(of_kind):
    """Pairs of a generator's name and that of a parameter, chosen by name and documented type."""
    return [
        (generator, name)
        for generator, make in GENERATORS.items()
        for parameter in FunctionDoc(make)["Parameters"]
        for name in parameter.name.split(", ")
        if name != "random_state" and of_kind(name, re.split(",| or ", parameter.type)[0])
    ]


SIZES = _parameters(lambda _, documented: documented == "int")
NUMBERS = _parameters(lambda _, documented: documented == "float")
NOISES = _parameters(lambda name, _: name in STANDARD_DEVIATIONS)
FRACTIONS = _parameters(lambda name, _: name == "rate" or name.endswith("fraction"))


def _assert_refused(generator, name, value):
    message = f"The '{name}' parameter of {generator} must be .* Got {value!r} instead"
    with pytest.raises(InvalidParameterError, match=message):
        GENERATORS[generator](**{**SETTINGS.get(generator, {}), name: value})


def _settings(generator):
    """All parameters of a generator, those of SETTINGS or else the defaults."""
    arguments = signature(GENERATORS[generator]).bind(**SETTINGS.get(generator, {}))
    arguments.apply_defaults()
    return arguments.arguments | {"random_state": 0}


def _arrays(result):
    if isinstance(result, np.ndarray):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [part for part in parts if isinstance(part, np.ndarray)]


@pytest.mark.parametrize("generator", GENERATORS)
def test_every_parameter_is_checked(generator):
    make = GENERATORS[generator]
    assert set(make._skl_parameter_constraints) == set(signature(make).parameters)


def test_sizes_and_fractions_are_found():
    assert {"make_duffing", "make_lorenz96", "make_synthetic3d"} <= {name for name, _ in SIZES}
    assert ("make_duffing", "beta") in NUMBERS
    assert ("make_bandit_lp", "noise_std") in NOISES
    assert {("make_var_process", "edge_fraction"), ("mask_views", "rate")} <= set(FRACTIONS)
    assert {name for _, name in SIZES} >= MAY_BE_ZERO


@pytest.mark.parametrize(("generator", "name"), SIZES)
@pytest.mark.parametrize("value", [0, -1, 1.5, "a"])
def test_a_size_is_an_integer_of_at_least_1(generator, name, value):
    if value == 0 and name in MAY_BE_ZERO:
        assert _arrays(GENERATORS[generator](**{**_settings(generator), name: 0}))
    else:
        _assert_refused(generator, name, value)


@pytest.mark.parametrize(("generator", "name"), NUMBERS)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "a"])
def test_a_number_is_finite(generator, name, value):
    _assert_refused(generator, name, value)


@pytest.mark.parametrize(("generator", "name"), NOISES)
def test_noise_is_not_negative(generator, name):
    _assert_refused(generator, name, -0.1)


@pytest.mark.parametrize(("generator", "name"), FRACTIONS)
@pytest.mark.parametrize("value", [-0.5, 1.5])
def test_a_fraction_is_at_most_1(generator, name, value):
    _assert_refused(generator, name, value)


@pytest.mark.parametrize("generator", GENERATORS)
@pytest.mark.parametrize("value", ["a", -1, 0.5])
def test_a_seed_is_one(generator, value):
    _assert_refused(generator, "random_state", value)


@pytest.mark.parametrize("generator", GENERATORS)
def test_numbers_of_numpy_are_as_good_as_those_of_python(generator):
    settings = _settings(generator)
    from_numpy = {
        name: np.array(value)[()] if type(value) in (int, float, bool) else value
        for name, value in settings.items()
    }
    assert isinstance(from_numpy["random_state"], np.integer)
    make = GENERATORS[generator]
    expected, made = _arrays(make(**settings)), _arrays(make(**from_numpy))
    assert len(expected) == len(made) > 0
    for one, other in zip(expected, made):
        np.testing.assert_array_equal(one, other)
