"""The noise schedule: how much of the data is left at each diffusion time."""

import numpy as np

# Ends of beta at 1000 steps; for T steps "linear" scales them by 1000 / T.
_LINEAR = (1e-4, 2e-2)
_QUAD = (1e-4, 0.5)
_COSINE_OFFSET = 0.008
_MAX_BETA = 0.999
# Least alpha that is divided by.
MIN_ALPHA = 1e-3


class NoiseSchedule:
    """Variance-preserving noise schedule x_t = alpha_t x_0 + sigma_t eps for t = 0, ..., T.

    t = 0 is clean data, t = T is noise. With noise rates beta_t,
    alpha_t^2 = (1 - beta_1) ... (1 - beta_t) and sigma_t^2 = 1 - alpha_t^2.

    Read more in the :ref:`User Guide <diffusion>`.

    Parameters
    ----------
    kind : {"cosine", "linear", "quad"}, default="cosine"
        "cosine": alpha_t^2 follows a squared cosine, with beta_t at most 0.999 [1]_.
        "linear": beta_t rises linearly, from 1e-4 to 2e-2 at T = 1000 and scaled by 1000 / T
        otherwise [2]_; needs T of 50 or more, or else it ends in nearly pure noise long before
        T. "quad": the square root of beta_t rises linearly, from the root of 1e-4 to that of
        0.5; made for T = 50.
    n_timesteps : int, default=1000
        Number T of noise levels.
    beta_min, beta_max : float or None, default=None
        Ends of beta for "linear" and "quad". None means those above. Values that are given are
        not scaled by 1000 / T.

    Attributes
    ----------
    beta_ : ndarray of float64 of shape (T + 1,)
        Noise rates; ``beta_[0]`` is 0.
    abar_ : ndarray of float64 of shape (T + 1,)
        alpha_t^2.
    alpha_ : ndarray of float64 of shape (T + 1,)
        Share of the data.
    sigma_ : ndarray of float64 of shape (T + 1,)
        Standard deviation of the noise.
    log_snr_ : ndarray of float64 of shape (T + 1,)
        log(alpha_t / sigma_t), decreasing; infinite at t = 0.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    sigma_t^2 is computed as -expm1(sum log1p(-beta)), which keeps its relative precision at
    small t. Making a schedule takes time and memory O(T).

    References
    ----------
    .. [1] Nichol, A. and Dhariwal, P. "Improved Denoising Diffusion Probabilistic Models."
       ICML 2021.
    .. [2] Ho, J., Jain, A. and Abbeel, P. "Denoising Diffusion Probabilistic Models."
       NeurIPS 2020.

    Examples
    --------
    >>> from skicml.generative import NoiseSchedule
    >>> schedule = NoiseSchedule("cosine", n_timesteps=1000)
    >>> print(schedule.alpha_[[0, 500]].round(3))
    [1.    0.703]
    >>> schedule.timesteps(4)
    array([1000,  750,  500,  250,    0])
    """

    def __init__(self, kind="cosine", n_timesteps=1000, *, beta_min=None, beta_max=None):
        if n_timesteps < 1:
            raise ValueError(f"n_timesteps must be at least 1, got {n_timesteps}.")
        self.kind = kind
        self.n_timesteps = int(n_timesteps)
        self.beta_min = beta_min
        self.beta_max = beta_max
        self.beta_ = np.concatenate([[0.0], self._betas()])
        log_abar = np.cumsum(np.log1p(-self.beta_))
        self.abar_ = np.exp(log_abar)
        self.alpha_ = np.exp(log_abar / 2)
        self.sigma_ = np.sqrt(-np.expm1(log_abar))
        with np.errstate(divide="ignore"):
            self.log_snr_ = log_abar / 2 - np.log(self.sigma_)

    def _betas(self):
        n_timesteps = self.n_timesteps
        if self.kind == "cosine":
            if self.beta_min is not None or self.beta_max is not None:
                raise ValueError('beta_min and beta_max do not apply to kind="cosine".')
            angle = (np.arange(n_timesteps + 1) / n_timesteps + _COSINE_OFFSET) / (
                1 + _COSINE_OFFSET
            )
            share = np.cos(angle * np.pi / 2) ** 2
            return np.minimum(1 - share[1:] / share[:-1], _MAX_BETA)
        if self.kind == "linear":
            low, high = self._ends(_LINEAR, scale=1000 / n_timesteps)
            return np.minimum(np.linspace(low, high, n_timesteps), _MAX_BETA)
        if self.kind == "quad":
            low, high = self._ends(_QUAD)
            return np.linspace(np.sqrt(low), np.sqrt(high), n_timesteps) ** 2
        raise ValueError(f'kind must be "cosine", "linear" or "quad", got {self.kind!r}.')

    def _ends(self, default, scale=1.0):
        low = default[0] * scale if self.beta_min is None else self.beta_min
        high = default[1] * scale if self.beta_max is None else self.beta_max
        if not 0 < low <= high or (self.beta_max is not None and high >= 1):
            raise ValueError(f"0 < beta_min <= beta_max < 1 is needed, got {low} and {high}.")
        return low, high

    def timesteps(self, n_steps, spacing="linspace", *, start=None, stop=0):
        """Times that a sampler visits.

        Parameters
        ----------
        n_steps : int
            Number of steps.
        spacing : {"linspace", "logsnr", "quad"}, default="linspace"
            "linspace": equally spaced. "logsnr": equally spaced in the log signal-to-noise
            ratio down to t = 1. "quad": equally spaced square roots, denser near the data.
        start : int or None, default=None
            First time; None means T.
        stop : int, default=0
            Last time.

        Returns
        -------
        timesteps : ndarray of int of shape (n_steps + 1,)
            Strictly decreasing, from `start` to `stop`.

        Raises
        ------
        ValueError
            If there are fewer than `n_steps` times between the ends, or `spacing` is unknown.
        """
        start = self.n_timesteps if start is None else start
        if not 0 <= stop < start <= self.n_timesteps:
            raise ValueError(
                f"0 <= stop < start <= {self.n_timesteps} is needed, got {stop} and {start}."
            )
        if not 1 <= n_steps <= start - stop:
            raise ValueError(
                f"n_steps={n_steps} must be between 1 and the {start - stop} noise levels "
                f"between t={stop} and t={start}."
            )
        spaced = np.rint(self._spaced(n_steps, spacing, start, stop)).astype(int)
        # Rounding may repeat a time: push the later ones down, then up where they ran out.
        index = np.arange(n_steps + 1)
        spaced = np.minimum.accumulate(spaced + index) - index
        return np.maximum(spaced, stop + n_steps - index)

    def _spaced(self, n_steps, spacing, start, stop):
        if spacing == "linspace":
            return np.linspace(start, stop, n_steps + 1)
        if spacing == "quad":
            return stop + (start - stop) * np.linspace(1, 0, n_steps + 1) ** 2
        if spacing == "logsnr":
            last = max(stop, 1)  # the ratio is infinite at t = 0
            n_levels = n_steps + 1 if stop else n_steps
            levels = np.linspace(self.log_snr_[start], self.log_snr_[last], n_levels)
            times = self.times_at(-levels)
            return times if stop else np.append(times, 0)
        raise ValueError(f'spacing must be "linspace", "logsnr" or "quad", got {spacing!r}.')

    def first_divisible(self):
        """Largest time whose alpha may be divided by, at least 1e-3.

        Returns
        -------
        t : int
            Where sampling starts if the network predicts the noise.
        """
        return int(np.flatnonzero(self.alpha_ >= MIN_ALPHA)[-1])

    def ancestor(self, a, b):
        """Coefficients that take x_b to the noisier x_a.

        Parameters
        ----------
        a, b : int
            Times, a > b.

        Returns
        -------
        alpha, sigma : float
            x_a = alpha x_b + sigma z with z standard normal.
        """
        alpha = self.alpha_[a] / self.alpha_[b]
        variance = -np.expm1(np.log1p(-self.beta_[b + 1 : a + 1]).sum())
        return float(alpha), float(np.sqrt(variance))

    def log_rho(self):
        """Logarithm of the noise-to-signal ratios rho_t = sigma_t / alpha_t of t = 1, ..., T.

        Returns
        -------
        log_rho : ndarray of float64 of shape (T,)
            Increasing.
        """
        return -self.log_snr_[1:]

    def times_at(self, log_rho):
        """Real-valued times at which the noise-to-signal ratio has the given logarithms.

        Parameters
        ----------
        log_rho : float or ndarray
            Logarithms of sigma / alpha; values beyond those of t = 1 and T are cut off.

        Returns
        -------
        t : float or ndarray
            Linear interpolation between the times 1, ..., T.
        """
        return np.interp(log_rho, self.log_rho(), np.arange(1, self.n_timesteps + 1))

    def at(self, t):
        """Coefficients at real-valued times, the inverse of :meth:`times_at`.

        Parameters
        ----------
        t : float or ndarray
            Times from 1 to T.

        Returns
        -------
        alpha, sigma : float or ndarray
            Coefficients of the data and of the noise.
        """
        rho = np.exp(np.interp(t, np.arange(1, self.n_timesteps + 1), self.log_rho()))
        alpha = 1 / np.sqrt(1 + rho**2)
        return alpha, rho * alpha

    def __repr__(self):
        return f"NoiseSchedule({self.kind!r}, n_timesteps={self.n_timesteps})"


def check_n_steps(schedule, n_steps):
    """Raise an error if a sample has more steps than a schedule has levels."""
    if n_steps > schedule.n_timesteps:
        raise ValueError(
            f"n_sampling_steps={n_steps} must not exceed n_timesteps={schedule.n_timesteps}."
        )
