"""What a network predicts: the noise, the data or the velocity, and how they convert.

With x = alpha x0 + sigma eps, the velocity is v = alpha eps - sigma x0. The functions take
numbers, numpy arrays or tensors.
"""

from skicml.generative._schedules import MIN_ALPHA

PREDICTIONS = ("eps", "x0", "v")
LOSS_WEIGHTINGS = ("simple", "min_snr")
_SNR_GAMMA = 5.0


def split_prediction(output, x, alpha, sigma, prediction):
    """The data x0 and the noise eps that a prediction at x stands for.

    The one place where predictions are converted.

    Parameters
    ----------
    output, x : array or tensor
        Prediction, and the noisy data that it was made at.
    alpha, sigma : float, array or tensor
        Coefficients at the time of x, broadcastable.
    prediction : {"eps", "x0", "v"}
        What `output` is.

    Returns
    -------
    x0, eps : array or tensor
        With x = alpha x0 + sigma eps, except where alpha < 1e-3 and ``prediction="eps"``:
        alpha is then replaced by 1e-3.
    """
    if prediction == "v":
        return alpha * x - sigma * output, sigma * x + alpha * output
    if prediction == "x0":
        return output, (x - alpha * output) / sigma
    if prediction == "eps":
        return (x - sigma * output) / _at_least_min(alpha), output
    raise ValueError(f"prediction must be one of {PREDICTIONS}, got {prediction!r}.")


def _at_least_min(alpha):
    return alpha.clip(min=MIN_ALPHA) if hasattr(alpha, "clip") else max(alpha, MIN_ALPHA)


def training_target(x0, eps, alpha, sigma, prediction):
    """What the network should say at x = alpha x0 + sigma eps.

    Parameters
    ----------
    x0, eps : array or tensor
        Data and noise.
    alpha, sigma : float, array or tensor
        Coefficients, broadcastable.
    prediction : {"eps", "x0", "v"}
        What the network predicts.

    Returns
    -------
    target : array or tensor
        Like `x0`.
    """
    if prediction == "v":
        return alpha * eps - sigma * x0
    return eps if prediction == "eps" else x0


def min_snr_weights(abar, prediction):
    """Weights of the squared error of a prediction that stop at a signal-to-noise ratio of 5.

    Parameters
    ----------
    abar : ndarray
        alpha^2 at each time.
    prediction : {"eps", "x0", "v"}
        What the network predicts.

    Returns
    -------
    weights : ndarray
        min(SNR, 5) in units of x0, divided by SNR for "eps" and by SNR + 1 for "v".
    """
    snr = abar / (1 - abar).clip(1e-12)
    capped = snr.clip(max=_SNR_GAMMA)
    if prediction == "x0":
        return capped
    if prediction == "v":
        return capped / (snr + 1)
    return (_SNR_GAMMA / snr.clip(1e-12)).clip(max=1)
