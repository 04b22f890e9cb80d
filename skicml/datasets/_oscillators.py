"""Trajectories of nonlinear oscillators."""

import numpy as np
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import validate_params

from skicml.datasets._constraints import FINITE, NOT_NEGATIVE, POSITIVE, SIZE


@validate_params(
    {
        "n_series": [SIZE],
        "n_timepoints": [SIZE],
        "time_step": [POSITIVE],
        "alpha": [FINITE],
        "beta": [FINITE],
        "gamma": [FINITE],
        "delta": [FINITE],
        "radius": ["array-like"],
        "noise": [NOT_NEGATIVE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_duffing(
    n_series=100,
    n_timepoints=31,
    *,
    time_step=0.1,
    alpha=-1.0,
    beta=1.0,
    gamma=0.0,
    delta=0.0,
    radius=(0.2, 1.0),
    noise=0.0,
    random_state=None,
):
    """Trajectories of the Duffing oscillator from random initial states.

    Position q and momentum p follow::

        q' = p
        p' = -alpha q - beta q^3 - gamma p + delta cos t

    The defaults are the undamped double well of the KoNODE paper [1]_, a law that does not
    change in time. With ``delta`` the oscillator is forced: all series share the clock t,
    which is 0 at their first row.

    Parameters
    ----------
    n_series : int, default=100
        Number of trajectories.
    n_timepoints : int, default=31
        Rows of each; the first is the initial state.
    time_step : float, default=0.1
        Time between two rows.
    alpha, beta : float, default=-1.0 and 1.0
        Linear and cubic stiffness.
    gamma : float, default=0.0
        Damping.
    delta : float, default=0.0
        Amplitude of the forcing, whose period is 2 pi.
    radius : tuple of (float, float), default=(0.2, 1.0)
        Initial states are uniform in the ring of these radii around the origin of the
        (q, p) plane.
    noise : float, default=0.0
        Standard deviation of Gaussian noise on all values.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial states and the noise.

    Returns
    -------
    X : ndarray of shape (n_series, n_timepoints, 2)
        Panel of q and p.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, `radius` is not an increasing
        pair of numbers of at least 0, or a trajectory runs off to infinity, as it may where
        `beta` is negative.

    References
    ----------
    .. [1] Bai, H. and Ding, W. "KoNODE: Koopman-Driven Neural Ordinary Differential Equations
       with Evolving Parameters for Time Series Analysis." ICML 2025, PMLR 267:2484-2519.

    Examples
    --------
    The energy of the undamped oscillator stays what it is:

    >>> from skicml.datasets import make_duffing
    >>> q, p = make_duffing(5, 301, random_state=0).transpose(2, 0, 1)
    >>> energy = p**2 / 2 - q**2 / 2 + q**4 / 4
    >>> bool((abs(energy - energy[:, :1]) < 1e-6).all())
    True
    """
    from scipy.integrate import solve_ivp

    radius = check_array(radius, ensure_2d=False, dtype=np.float64, input_name="radius")
    if radius.shape != (2,) or not 0 <= radius[0] <= radius[1]:
        raise ValueError(f"radius must be a pair 0 <= inner <= outer, got {radius}.")
    rng = check_random_state(random_state)
    # Uniform in area, hence in the square of the radius.
    distance = np.sqrt(rng.uniform(*radius**2, n_series))
    angle = rng.uniform(0, 2 * np.pi, n_series)
    initial = distance * np.stack([np.cos(angle), np.sin(angle)])

    def velocity(t, state):
        q, p = state.reshape(2, n_series)
        force = -alpha * q - beta * q**3 - gamma * p + delta * np.cos(t)
        return np.concatenate([p, force])

    times = time_step * np.arange(n_timepoints)
    solution = solve_ivp(
        velocity,
        (0, max(times[-1], time_step)),
        initial.ravel(),
        method="DOP853",
        t_eval=times,
        rtol=1e-10,
        atol=1e-10,
    )
    if not solution.success:
        raise ValueError(
            f"A trajectory runs off to infinity with alpha={alpha}, beta={beta}, gamma={gamma}, "
            f"delta={delta} over {n_timepoints} time steps: {solution.message}"
        )
    X = solution.y.reshape(2, n_series, n_timepoints).transpose(1, 2, 0)
    return X + noise * rng.standard_normal(X.shape)
