"""Privacy arithmetic: what a noisy release costs, and how much noise a budget buys.

`epsilon` and `delta` are those of (epsilon, delta)-differential privacy, `mu` is
the parameter of Gaussian differential privacy (GDP), `rho` that of zero-concentrated
differential privacy (zCDP). Every conversion errs on the side of privacy: it never claims more
than what holds, up to the rounding of doubles. Composition is that of fixed mechanisms one after
the other, each of which may look at the results of those before.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache, reduce
from numbers import Integral, Real

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_expit, log_ndtr, ndtri_exp

__all__ = [
    "NoiseMechanism",
    "PrivacyLeakWarning",
    "analytic_gaussian_sigma",
    "compose_gdp",
    "composed_epsilon",
    "dp_to_gdp",
    "gdp_to_delta",
    "gdp_to_epsilon",
    "pure_dp_to_gdp",
    "split_budget",
    "zcdp_to_epsilon",
]


class PrivacyLeakWarning(RuntimeWarning):
    """A quantity was taken from private data without noise: the stated guarantee is void."""


# ---- Gaussian differential privacy


def _nonnegative(**arguments):
    """The arguments as float arrays, none of them negative or NaN."""
    arrays = [np.asarray(value, dtype=float) for value in arguments.values()]
    for name, array in zip(arguments, arrays):
        if not (array >= 0).all():
            raise ValueError(f"{name} must be >= 0, got {arguments[name]!r}.")
    return arrays


def _probability(delta):
    (array,) = _nonnegative(delta=delta)
    if (array > 1).any():
        raise ValueError(f"delta must be a probability in [0, 1], got {delta!r}.")
    return array


def _bisect(holds, low, high):
    """Both ends of brackets, narrowed down; `holds` is monotone, false at low, true at high."""
    for _ in range(120):  # more than the bits of a double, so that small answers are exact
        middle = (low + high) / 2
        above = holds(middle)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return low, high


def gdp_to_delta(epsilon, mu):
    """Smallest delta at which a mu-GDP mechanism is (epsilon, delta)-private.

    ``delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)``,
    evaluated with logarithms, so that neither a large `epsilon` nor a small delta hurts.

    Parameters
    ----------
    epsilon : array-like of float
        Privacy parameter, at least 0.
    mu : array-like of float
        GDP parameter, at least 0; broadcast against `epsilon`.

    Returns
    -------
    delta : float or ndarray
        In [0, 1].

    Raises
    ------
    ValueError
        If an argument is negative or NaN.

    References
    ----------
    .. [1] J. Dong, A. Roth, W. J. Su, "Gaussian Differential Privacy", Journal of the Royal
       Statistical Society B 84, 2022.

    Examples
    --------
    >>> from skicml.privacy import gdp_to_delta
    >>> print(f"{gdp_to_delta(1.0, 1.0):.4f}")
    0.1269
    """
    epsilon, mu = np.broadcast_arrays(*_nonnegative(epsilon=epsilon, mu=mu))
    delta = np.zeros(mu.shape)
    delta[np.isinf(mu) & np.isfinite(epsilon)] = 1.0
    usual = (mu > 0) & np.isfinite(mu) & np.isfinite(epsilon)
    eps, m = epsilon[usual], mu[usual]
    with np.errstate(over="ignore"):  # epsilon / mu = inf: delta is 0
        first = log_ndtr(m / 2 - eps / m)
        second = eps + log_ndtr(-m / 2 - eps / m)
    gap = np.full(m.shape, -np.inf)  # of the logarithms; second <= first but for rounding
    np.subtract(second, first, out=gap, where=np.isfinite(first))
    delta[usual] = np.exp(first) * -np.expm1(np.minimum(gap, 0.0))
    return delta[()]


def gdp_to_epsilon(delta, mu):
    """Smallest epsilon at which a mu-GDP mechanism is (epsilon, delta)-private.

    The inverse of :func:`~skicml.privacy.gdp_to_delta`, by bisection; 0 where `delta` alone
    covers the loss, infinite where ``delta = 0 < mu``.

    Parameters
    ----------
    delta : array-like of float
        Privacy parameter, in [0, 1].
    mu : array-like of float
        GDP parameter, at least 0; broadcast against `delta`.

    Returns
    -------
    epsilon : float or ndarray
        At least 0.

    Raises
    ------
    ValueError
        If `delta` is not in [0, 1], or `mu` is negative or NaN.

    Examples
    --------
    >>> from skicml.privacy import gdp_to_epsilon
    >>> print(f"{gdp_to_epsilon(1e-6, 1.0):.3f}")
    4.887
    """
    delta, mu = np.broadcast_arrays(_probability(delta), *_nonnegative(mu=mu))
    epsilon = np.zeros(mu.shape)
    covered = gdp_to_delta(0.0, mu) <= delta
    hopeless = ~covered & ((delta == 0) | np.isinf(mu))
    epsilon[hopeless] = np.inf
    open_ = ~covered & ~hopeless
    delta, mu = delta[open_], mu[open_]
    valid = zcdp_to_epsilon(mu**2 / 2, delta)  # but not the smallest
    _, epsilon[open_] = _bisect(lambda e: gdp_to_delta(e, mu) <= delta, np.zeros(mu.shape), valid)
    return epsilon[()]


def compose_gdp(*mus):
    """GDP parameter of mechanisms run one after the other, ``sqrt(sum(mu ** 2))``.

    Parameters
    ----------
    *mus : array-like of float
        GDP parameters, at least 0, broadcast against each other.

    Returns
    -------
    mu : float or ndarray
        The parameter of the composition; 0 for no mechanism.

    Raises
    ------
    ValueError
        If a parameter is negative or NaN.

    Examples
    --------
    >>> from skicml.privacy import compose_gdp
    >>> print(compose_gdp(3.0, 4.0))
    5.0
    """
    total = np.float64(0.0)
    for mu in mus:
        total = np.hypot(total, *_nonnegative(mu=mu))
    return total


def dp_to_gdp(epsilon, delta):
    """Largest mu whose GDP implies one given (epsilon, delta).

    It says how much Gaussian noise the pair asks for: a standard deviation of ``1 / mu`` times
    the sensitivity.

    Parameters
    ----------
    epsilon : array-like of float
        Privacy parameter, at least 0.
    delta : array-like of float
        Privacy parameter, in [0, 1]; broadcast against `epsilon`.

    Returns
    -------
    mu : float or ndarray
        0 where ``delta = 0``, infinite where ``delta = 1`` or `epsilon` is infinite.

    Raises
    ------
    ValueError
        If `epsilon` is negative or NaN, or `delta` is not in [0, 1].

    Examples
    --------
    >>> from skicml.privacy import dp_to_gdp
    >>> print(f"{1 / dp_to_gdp(1.0, 1e-6):.4f}")
    4.2247
    """
    epsilon, delta = np.broadcast_arrays(*_nonnegative(epsilon=epsilon), _probability(delta))
    mu = np.zeros(delta.shape)
    free = (delta == 1) | np.isinf(epsilon)
    mu[free] = np.inf
    open_ = ~free & (delta > 0)
    epsilon, delta = epsilon[open_], delta[open_]

    def overspends(mu):
        return gdp_to_delta(epsilon, mu) > delta

    high = np.ones(delta.shape)
    while not (over := overspends(high)).all():
        high = np.where(over, high, 2 * high)
    mu[open_], _ = _bisect(overspends, np.zeros(delta.shape), high)
    return mu[()]


def analytic_gaussian_sigma(epsilon, delta, sensitivity=1.0):
    """Standard deviation of the analytic Gaussian mechanism.

    The smallest one at which Gaussian noise makes a release of the given L2 sensitivity
    (epsilon, delta)-private; also right for ``epsilon > 1``, where the classical formula is not.

    Parameters
    ----------
    epsilon : array-like of float
        Privacy parameter, at least 0.
    delta : array-like of float
        Privacy parameter, in [0, 1].
    sensitivity : float, default=1.0
        L2 sensitivity of the release.

    Returns
    -------
    sigma : float or ndarray
        In the units of `sensitivity`.

    Raises
    ------
    ValueError
        If `epsilon` or `sensitivity` is negative or NaN, or `delta` is not in [0, 1].

    References
    ----------
    .. [1] B. Balle, Y.-X. Wang, "Improving the Gaussian Mechanism for Differential Privacy:
       Analytical Calibration and Optimal Denoising", ICML 2018.

    Examples
    --------
    >>> from skicml.privacy import analytic_gaussian_sigma
    >>> print(f"{analytic_gaussian_sigma(0.5, 1e-6):.4f}")
    8.0576
    """
    (sensitivity,) = _nonnegative(sensitivity=sensitivity)
    with np.errstate(divide="ignore"):
        return sensitivity / dp_to_gdp(epsilon, delta)


def pure_dp_to_gdp(epsilon):
    """GDP parameter implied by pure epsilon-differential privacy.

    ``mu = 2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``: the Gaussian trade-off curve that
    touches that of pure privacy from below, in its kink and at the ends.

    Parameters
    ----------
    epsilon : array-like of float
        Parameter of pure differential privacy, at least 0.

    Returns
    -------
    mu : float or ndarray
        The smallest mu that holds for every epsilon-private mechanism.

    Raises
    ------
    ValueError
        If `epsilon` is negative or NaN.

    Examples
    --------
    >>> from skicml.privacy import pure_dp_to_gdp
    >>> print(f"{pure_dp_to_gdp(1.0):.4f}")
    1.2320
    """
    (epsilon,) = _nonnegative(epsilon=epsilon)
    return -2 * ndtri_exp(log_expit(-epsilon))


# ---- Zero-concentrated differential privacy


def zcdp_to_epsilon(rho, delta):
    """Epsilon that rho-zCDP implies at `delta`, ``rho + 2 sqrt(rho log(1 / delta))``.

    An upper bound, not the smallest epsilon.

    Parameters
    ----------
    rho : array-like of float
        zCDP parameter, at least 0.
    delta : array-like of float
        Privacy parameter, in [0, 1].

    Returns
    -------
    epsilon : float or ndarray
        Infinite where ``delta = 0 < rho``.

    Raises
    ------
    ValueError
        If `rho` is negative or NaN, or `delta` is not in [0, 1].

    References
    ----------
    .. [1] M. Bun, T. Steinke, "Concentrated Differential Privacy: Simplifications, Extensions,
       and Lower Bounds", TCC 2016.

    Examples
    --------
    >>> from skicml.privacy import zcdp_to_epsilon
    >>> print(f"{zcdp_to_epsilon(0.1, 1e-6):.4f}")
    2.4508
    """
    rho, delta = np.broadcast_arrays(*_nonnegative(rho=rho), _probability(delta))
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = rho + 2 * np.sqrt(rho * -np.log(delta))
    return np.where(rho == 0, 0.0, epsilon)[()]


# ---- Mechanisms and their composition


@dataclass(frozen=True)
class NoiseMechanism:
    """Noise that is added to one release, and what its privacy cost depends on.

    The same object draws the noise and is handed to the accountant, so that the reported
    guarantee is that of the noise really added.

    Parameters
    ----------
    name : str
        What is released.
    kind : {"gaussian", "laplace"}
        Distribution of the noise, independent in every entry.
    noise_scale : float
        Standard deviation (Gaussian) or scale (Laplace), in the units of the release.
    sensitivity : float, default=1.0
        Largest change of the release between neighbouring data sets, in the L2 norm (Gaussian)
        or the L1 norm (Laplace).
    epsilon : float, default=numpy.inf
        Nominal epsilon of all compositions together; for the report only.
    compositions : int, default=1
        How many times the release is made, with fresh noise.

    Raises
    ------
    ValueError
        If `kind` is unknown, or a number is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.privacy import NoiseMechanism
    >>> count = NoiseMechanism("count", "laplace", noise_scale=2.0)
    >>> count.relative_scale
    2.0
    >>> count.sample((2, 3), np.random.default_rng(0)).shape
    (2, 3)
    """

    name: str
    kind: str
    noise_scale: float
    sensitivity: float = 1.0
    epsilon: float = np.inf
    compositions: int = 1

    def __post_init__(self):
        if self.kind not in ("gaussian", "laplace"):
            raise ValueError(f"kind must be 'gaussian' or 'laplace', got {self.kind!r}.")
        if not (self.noise_scale >= 0 and 0 < self.sensitivity < np.inf):
            raise ValueError(f"noise_scale must be >= 0 and sensitivity positive, got {self}.")
        if not isinstance(self.compositions, Integral) or self.compositions < 1:
            raise ValueError(f"compositions must be an integer >= 1, got {self.compositions!r}.")

    @property
    def relative_scale(self):
        """Scale of the noise in units of the sensitivity."""
        return self.noise_scale / self.sensitivity

    def with_sensitivity(self, sensitivity):
        """The mechanism of equal privacy for a release of another sensitivity.

        Parameters
        ----------
        sensitivity : float
            The new sensitivity.

        Returns
        -------
        mechanism : NoiseMechanism
            The scale of its noise is changed in proportion.
        """
        scale = self.relative_scale * sensitivity
        return replace(self, sensitivity=sensitivity, noise_scale=scale)

    def sample(self, shape, rng):
        """Draw noise.

        Parameters
        ----------
        shape : tuple of int
            Shape of the release.
        rng : numpy.random.Generator
            Where the randomness comes from.

        Returns
        -------
        noise : ndarray of the given shape
            Zeros if the scale is 0.
        """
        draw = rng.normal if self.kind == "gaussian" else rng.laplace
        return draw(0.0, self.noise_scale, size=shape)


def composed_epsilon(mechanisms, delta, accountant="pld"):
    """Epsilon, at `delta`, of all the mechanisms together.

    Parameters
    ----------
    mechanisms : iterable of NoiseMechanism
        The mechanisms, each counted ``compositions`` times.
    delta : float
        Privacy parameter, in (0, 1).
    accountant : {"pld", "zcdp"}, default="pld"
        "pld" composes privacy loss distributions with dp-accounting (the extra
        ``skicml[privacy]``), rounded up on a grid of 1e-3 (finer below epsilon = 1, coarser
        above 10). "zcdp" adds up zero-concentrated privacy in closed form: needs nothing and
        gives a larger, but valid epsilon.

    Returns
    -------
    epsilon : float
        Infinite if a mechanism adds no noise.

    Raises
    ------
    ImportError
        If `accountant` is "pld" and dp-accounting is not installed.
    ValueError
        If `accountant` is unknown or `delta` is not in (0, 1).

    Examples
    --------
    >>> from skicml.privacy import NoiseMechanism, composed_epsilon
    >>> sums = NoiseMechanism("sums", "gaussian", noise_scale=20.0)
    >>> counts = NoiseMechanism("counts", "laplace", noise_scale=20.0)
    >>> print(f"{composed_epsilon([sums, counts], 1e-6, accountant='zcdp'):.3f}")
    0.374
    """
    if accountant not in ("pld", "zcdp"):
        raise ValueError(f"accountant must be 'pld' or 'zcdp', got {accountant!r}.")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), got {delta!r}.")
    mechanisms = list(mechanisms)
    if any(mechanism.noise_scale == 0 for mechanism in mechanisms):
        return np.inf
    bound = float(zcdp_to_epsilon(sum(map(_rho, mechanisms)), delta))
    if accountant == "zcdp" or bound == 0:
        return bound
    try:
        interval = float(np.clip(1e-3, 1e-4 * bound, 1e-3 * bound))
        return min(bound, _pld_epsilon(mechanisms, delta, interval))
    except OverflowError:  # in dp-accounting, at an epsilon of thousands
        return bound


def _rho(mechanism):
    """The zCDP of one mechanism, all its compositions together.

    That of mu-GDP is ``mu ** 2 / 2``, for Gaussian noise; pure epsilon-privacy, that of Laplace
    noise, implies ``epsilon ** 2 / 2``. Both parameters are one over the relative scale.
    """
    return mechanism.compositions / (2 * mechanism.relative_scale**2)


def _pld_epsilon(mechanisms, delta, interval):
    """Epsilon of the composed privacy loss distributions, discretised pessimistically."""
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError as error:
        raise ImportError(
            "accountant='pld' needs the package dp-accounting: install the extra with "
            "`pip install skicml[privacy]`, or choose accountant='zcdp'."
        ) from error
    gaussian = [m for m in mechanisms if m.kind == "gaussian"]
    laplace = [m for m in mechanisms if m.kind == "laplace"]
    grid = {"value_discretization_interval": interval}
    distributions = [
        pld.from_laplace_mechanism(m.relative_scale, **grid).self_compose(m.compositions)
        for m in laplace
    ]
    if gaussian:  # Gaussians compose exactly, to one with mu = sqrt(sum mu_i^2)
        mu = compose_gdp(*(np.sqrt(m.compositions) / m.relative_scale for m in gaussian))
        distributions.append(pld.from_gaussian_mechanism(1 / mu, **grid))
    total = reduce(lambda left, right: left.compose(right), distributions)
    return float(total.get_epsilon_for_delta(delta))


# ---- From a total budget to the noise of each release


def split_budget(epsilon, delta, shares, accountant="pld"):
    """Noise of several releases that together spend a given (epsilon, delta).

    Each release gets a nominal epsilon of ``e * share``, and its noise is what
    (``e * share``, `delta`) asks for; the common factor ``e`` is then found such that the
    composition of all releases, by the accountant, comes to `epsilon` from below, within a
    relative 1e-4. Nominal epsilons add up to more or less than `epsilon`.

    Parameters
    ----------
    epsilon, delta : float
        The total budget; ``0 < epsilon``, ``0 < delta < 1``. An infinite `epsilon` means no
        noise.
    shares : iterable of (name, kind, share, compositions)
        For each release its name, "gaussian" or "laplace", a positive share, and how many
        times it is made. A share is for all times together: the noise of one Gaussian
        release is ``sqrt(compositions)`` times what the nominal pair asks for, the scale of
        one Laplace release is such that all of them together are (``e * share``, `delta`)-private.
    accountant : {"pld", "zcdp"}, default="pld"
        As in :func:`~skicml.privacy.composed_epsilon`.

    Returns
    -------
    mechanisms : tuple of NoiseMechanism
        For sensitivity 1; see :meth:`~skicml.privacy.NoiseMechanism.with_sensitivity`.

    Raises
    ------
    ImportError
        If `accountant` is "pld" and dp-accounting is not installed.
    TypeError
        If `shares` is not a list of tuples.
    ValueError
        If the budget or a share is not positive, a share is not of its four parts, there is no
        share, or `delta` is below what the accountant can resolve.

    Examples
    --------
    >>> from skicml.privacy import composed_epsilon, split_budget
    >>> shares = [("sums", "gaussian", 1.0, 1), ("counts", "laplace", 0.5, 1)]
    >>> mechanisms = split_budget(1.0, 1e-6, shares, accountant="zcdp")
    >>> round(composed_epsilon(mechanisms, 1e-6, accountant="zcdp"), 3)
    1.0
    """
    if not epsilon > 0 or not 0 < delta < 1:
        raise ValueError(
            f"The budget must have epsilon > 0 and 0 < delta < 1, got {epsilon, delta}."
        )
    shares = _check_shares(shares)
    if np.isinf(epsilon):
        return tuple(
            NoiseMechanism(name, kind, noise_scale=0.0, compositions=compositions)
            for name, kind, _, compositions in shares
        )
    return _split_finite_budget(float(epsilon), float(delta), shares, accountant)


def _check_shares(shares):
    """The shares as a tuple of tuples."""
    if not isinstance(shares, Iterable) or isinstance(shares, (str, Mapping)):
        raise TypeError(
            "shares must be a list with a tuple (name, kind, share, compositions) for each "
            f"release, got {shares!r}."
        )
    shares = tuple(shares)
    if not shares:
        raise ValueError("shares must hold at least one release.")
    for one in shares:
        if not _is_share(one):
            raise ValueError(
                "Each of the shares must be a tuple (name, kind, share, compositions), such as "
                f"('counts', 'laplace', 0.5, 1), got {one!r}."
            )
        name, _, share, compositions = one
        if not 0 < share < np.inf or compositions < 1:
            raise ValueError(
                f"The share of {name!r} must be positive and finite and be used at least once, "
                f"got share={share}, compositions={compositions}."
            )
    return tuple(tuple(one) for one in shares)


def _is_share(value):
    types = (str, str, Real, Real)
    is_row = isinstance(value, (tuple, list)) and len(value) == len(types)
    return is_row and all(map(isinstance, value, types))


@lru_cache(maxsize=512)
def _split_finite_budget(epsilon, delta, shares, accountant):
    target = 0.99995 * epsilon  # the solver stays within a relative 2e-5 of it
    # Below delta only where even nominal epsilons of 0 at delta itself overspend epsilon.
    for nominal_delta in delta * 10.0 ** -np.arange(8):

        @cache
        def spent(e, nominal_delta=nominal_delta):
            mechanisms = _nominal(e, nominal_delta, shares, accountant)
            return composed_epsilon(mechanisms, delta, accountant)

        factor = _solve_increasing(spent, target, guess=epsilon / len(shares), rtol=1e-5)
        if factor > 0:
            while spent(factor) > epsilon:  # the discretised accountant is not quite smooth
                factor *= 1 - 2e-5
            return _nominal(factor, nominal_delta, shares, accountant)
    raise ValueError(
        f"The accountant {accountant!r} finds no noise that meets epsilon={epsilon} at "
        f"delta={delta}: delta is too small for it. Choose a larger delta or accountant='zcdp'."
    )


def _solve_increasing(function, target, guess, rtol):
    """Positive argument at which an increasing function has the value `target`; 0 if none has."""
    low = high = guess
    while function(low) > target:
        low /= 2
        if low < 1e-6 * guess:
            return 0.0
    while function(high) < target:
        high *= 2
    if low == high:
        return low

    def excess(argument):  # finite, as brentq wants it, also where the accountant gives up
        return min(function(argument), 1e3 * target) - target

    return brentq(excess, low, high, xtol=rtol * low, rtol=rtol)


def _nominal(e, delta, shares, accountant):
    """The mechanisms at nominal epsilons ``e * share``, for sensitivity 1."""
    mechanisms = []
    for name, kind, share, rounds in shares:
        scale = float(_round_scale(kind, e * share, delta, rounds, accountant))
        mechanisms.append(NoiseMechanism(name, kind, scale, 1.0, e * share, rounds))
    return tuple(mechanisms)


def _round_scale(kind, epsilon, delta, rounds, accountant):
    """Noise of one round when all rounds together have (epsilon, delta), for sensitivity 1."""
    if kind == "gaussian":
        return np.sqrt(rounds) * analytic_gaussian_sigma(epsilon, delta)
    if rounds == 1:
        return 1 / epsilon

    def spent(round_epsilon):
        laplace = NoiseMechanism("round", "laplace", 1 / round_epsilon, compositions=rounds)
        # Plain addition of the epsilons is a bound too, better than zCDP for few rounds.
        return min(composed_epsilon([laplace], delta, accountant), rounds * round_epsilon)

    return 1 / _solve_increasing(spent, epsilon, guess=epsilon / rounds, rtol=1e-5)
