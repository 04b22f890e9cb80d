"""Low-rank matrices behind measurements, gross errors and gaps."""

from numbers import Real

import numpy as np
from sklearn.utils import check_random_state, gen_batches
from sklearn.utils._param_validation import Interval, validate_params

from skicml.datasets._constraints import (
    FINITE,
    FRACTION_BELOW_1,
    NOT_NEGATIVE,
    SIZE,
    check_sizes,
)

_SENSING_BATCH = 256  # rows of Gaussian numbers drawn at a time, so that float32 stays small
_CONDITION_NUMBER = Interval(Real, 1, None, closed="left")


def _check_rank(rank, shape):
    if rank > min(shape):
        raise ValueError(f"rank must be in 1..{min(shape)} for shape {tuple(shape)}, got {rank}.")


def _with_spectrum(left, right, condition_number):
    """Matrix with the given singular vectors and values from `condition_number` to 1."""
    return (left * np.linspace(condition_number, 1.0, left.shape[1])) @ right.T


@validate_params(
    {
        "n_samples": [SIZE],
        "shape": ["array-like"],
        "rank": [SIZE],
        "condition_number": [_CONDITION_NUMBER],
        "outlier_fraction": [FRACTION_BELOW_1],
        "outlier_scale": [NOT_NEGATIVE],
        "noise": [NOT_NEGATIVE],
        "dtype": "no_validation",
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_low_rank_sensing(
    n_samples=1280,
    *,
    shape=(40, 40),
    rank=4,
    condition_number=20.0,
    outlier_fraction=0.1,
    outlier_scale=10.0,
    noise=0.0,
    dtype=np.float64,
    random_state=None,
):
    """Gaussian measurements of a low-rank matrix, a share of them grossly wrong.

    The set-up of the experiments of the OPSA paper [1]_: singular values fall linearly from
    `condition_number` to 1, singular vectors are those of random matrices of signs, and the
    errors are uniform and much larger than any true value.

    Parameters
    ----------
    n_samples : int, default=1280
        Number of measurements. The paper takes 8 n rank for an n x n matrix: 8000 for
        ``shape=(100, 100), rank=10``.
    shape : tuple of (int, int), default=(40, 40)
        Shape (n1, n2) of the matrix.
    rank : int, default=4
        Its rank.
    condition_number : float, default=20.0
        Ratio of its largest to its smallest singular value that is not zero, at least 1.
    outlier_fraction : float, default=0.1
        Share of the measurements that is grossly wrong, in [0, 1).
    outlier_scale : float, default=10.0
        The gross errors are uniform in +- this x the largest absolute true value.
    noise : float, default=0.0
        Standard deviation of Gaussian noise on all measurements, relative to that of the
        true values.
    dtype : dtype, default=numpy.float64
        Type of X; float32 halves its memory. y and coef are float64.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_samples, n1 * n2)
        Measurement matrices with standard normal entries, flattened in C order. (The
        paper's script divides them by n_samples, which changes nothing but the scale.)
    y : ndarray of shape (n_samples,)
        Measured values.
    coef : ndarray of shape (n1, n2)
        The low-rank matrix.
    outliers : ndarray of bool of shape (n_samples,)
        True where the measurement is grossly wrong.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or `rank` does not fit `shape`.

    References
    ----------
    .. [1] Paris Giampouras, HanQin Cai and Rene Vidal, "Guarantees of a Preconditioned
       Subgradient Algorithm for Overparameterized Asymmetric Low-rank Matrix Recovery",
       ICML 2025, :arxiv:`2410.16826`.

    Examples
    --------
    >>> from skicml.datasets import make_low_rank_sensing
    >>> X, y, coef, outliers = make_low_rank_sensing(100, shape=(6, 4), rank=2, random_state=0)
    >>> X.shape, y.shape, coef.shape, int(outliers.sum())
    ((100, 24), (100,), (6, 4), 10)
    """
    check_sizes("shape", shape, 2)
    _check_rank(rank, shape)
    rng = check_random_state(random_state)
    left, right = (
        np.linalg.svd(np.sign(rng.standard_normal((n, rank))), full_matrices=False)[0]
        for n in shape
    )
    coef = _with_spectrum(left, right, condition_number)

    X = np.empty((n_samples, coef.size), dtype=dtype)
    y = np.empty(n_samples)
    for rows in gen_batches(n_samples, _SENSING_BATCH):
        X[rows] = rng.standard_normal(X[rows].shape)
        y[rows] = X[rows].astype(np.float64) @ coef.ravel()
    largest, spread = np.abs(y).max(), y.std()
    y += noise * spread * rng.standard_normal(n_samples)

    outliers = np.zeros(n_samples, dtype=bool)
    outliers[rng.permutation(n_samples)[: round(outlier_fraction * n_samples)]] = True
    limit = outlier_scale * largest
    y[outliers] += rng.uniform(-limit, limit, outliers.sum())
    return X, y, coef, outliers


@validate_params(
    {
        "n_samples": [SIZE],
        "n_features": [SIZE],
        "rank": [SIZE],
        "condition_number": [_CONDITION_NUMBER],
        "outlier_fraction": [FRACTION_BELOW_1],
        "outlier_scale": [NOT_NEGATIVE],
        "missing_fraction": [FRACTION_BELOW_1],
        "noise": [NOT_NEGATIVE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_corrupted_low_rank(
    n_samples=200,
    n_features=150,
    *,
    rank=5,
    condition_number=10.0,
    outlier_fraction=0.1,
    outlier_scale=10.0,
    missing_fraction=0.0,
    noise=0.0,
    random_state=None,
):
    """A table of low rank with gross errors in single cells, and gaps.

    Parameters
    ----------
    n_samples, n_features : int, default=200 and 150
        Shape of the table.
    rank : int, default=5
        Rank of the table without errors.
    condition_number : float, default=10.0
        Ratio of its largest to its smallest singular value that is not zero, at least 1; the
        values in between are evenly spaced.
    outlier_fraction : float, default=0.1
        Chance of a cell to be grossly wrong, in [0, 1).
    outlier_scale : float, default=10.0
        The gross errors are uniform in +- this; cells of the low-rank table have root mean
        square 1.
    missing_fraction : float, default=0.0
        Chance of a cell to be missing, in [0, 1).
    noise : float, default=0.0
        Standard deviation of Gaussian noise in all cells.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    X : ndarray of shape (n_samples, n_features)
        The table; NaN where a cell is missing.
    low_rank : ndarray of shape (n_samples, n_features)
        The table without errors, noise and gaps.
    sparse : ndarray of shape (n_samples, n_features)
        The gross errors; 0 in cells without one and in missing cells.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or `rank` does not fit the shape.

    Examples
    --------
    >>> from skicml.datasets import make_corrupted_low_rank
    >>> X, low_rank, sparse = make_corrupted_low_rank(20, 10, rank=2, random_state=0)
    >>> bool(abs(X - low_rank - sparse).max() < 1e-12)
    True
    """
    shape = (n_samples, n_features)
    _check_rank(rank, shape)
    rng = check_random_state(random_state)
    left, right = (np.linalg.qr(rng.standard_normal((n, rank)))[0] for n in shape)
    low_rank = _with_spectrum(left, right, condition_number)
    low_rank /= np.sqrt(np.mean(low_rank**2))

    hit = rng.uniform(size=shape) < outlier_fraction
    sparse = np.where(hit, rng.uniform(-outlier_scale, outlier_scale, shape), 0.0)
    X = low_rank + sparse + noise * rng.standard_normal(shape)
    missing = rng.uniform(size=shape) < missing_fraction
    X[missing], sparse[missing] = np.nan, 0.0
    return X, low_rank, sparse


@validate_params(
    {
        "n_frames": [SIZE],
        "frame_shape": ["array-like"],
        "block_shape": ["array-like"],
        "block_value": [FINITE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_background_video(
    n_frames=80,
    *,
    frame_shape=(30, 40),
    block_shape=(7, 6),
    block_value=1.5,
    random_state=None,
):
    """A video of a still scene under changing light, with a bright block that moves.

    The background has rank 2: two smooth textures, each under a light of its own that
    changes slowly. The block crosses the scene once and covers it.

    Parameters
    ----------
    n_frames : int, default=80
        Number of frames.
    frame_shape : tuple of (int, int), default=(30, 40)
        Height and width of a frame in pixels, more than one of which there must be.
    block_shape : tuple of (int, int), default=(7, 6)
        Height and width of the block in pixels, at most those of the frame.
    block_value : float, default=1.5
        Brightness of the block; that of the background lies between 0 and 1.
    random_state : int, RandomState instance or None, default=None
        Seed of the textures.

    Returns
    -------
    X : ndarray of shape (n_frames, height * width)
        The video, a frame a row, flattened in C order.
    background : ndarray of shape (n_frames, height * width)
        The scene without the block, of rank 2.
    foreground : ndarray of bool of shape (n_frames, height * width)
        True where the block is.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or the block is larger than
        the frame.

    Examples
    --------
    >>> from skicml.datasets import make_background_video
    >>> X, background, foreground = make_background_video(random_state=0)
    >>> X.shape, int(foreground[0].sum())
    ((80, 1200), 42)
    """
    check_sizes("frame_shape", frame_shape, 2)
    check_sizes("block_shape", block_shape, 2)
    if max(frame_shape) == 1:
        raise ValueError("frame_shape must be that of more than one pixel, got (1, 1).")
    if any(block > frame for block, frame in zip(block_shape, frame_shape)):
        raise ValueError(
            f"block_shape {tuple(block_shape)} must fit into frame_shape {tuple(frame_shape)}."
        )
    rng = check_random_state(random_state)
    textures = np.stack([_smooth_texture(frame_shape, rng).ravel() for _ in range(2)])
    phase = np.linspace(0, 2 * np.pi, n_frames)
    light = np.column_stack([0.45 + 0.15 * np.sin(phase), 0.25 + 0.15 * np.cos(1.5 * phase)])
    background = light @ textures

    foreground = _moving_block(n_frames, frame_shape, block_shape).reshape(n_frames, -1)
    return np.where(foreground, block_value, background), background, foreground


def _smooth_texture(shape, rng, n_waves=6):
    """Sum of plane waves of low frequency, scaled to 0..1."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    texture = np.zeros(shape)
    for _ in range(n_waves):
        turns = rng.uniform(-4, 4, 2)
        angle = 2 * np.pi * (turns[0] * rows / shape[0] + turns[1] * columns / shape[1])
        texture += np.cos(angle + rng.uniform(0, 2 * np.pi))
    return (texture - texture.min()) / np.ptp(texture)


def _moving_block(n_frames, frame_shape, block_shape):
    """Where the block is in each frame: once across, up and down on the way."""
    height, width = (frame - block for frame, block in zip(frame_shape, block_shape))
    progress = np.linspace(0, 1, n_frames)
    tops = np.rint(height * (0.5 - 0.5 * np.cos(3 * np.pi * progress))).astype(int)
    lefts = np.rint(width * progress).astype(int)
    mask = np.zeros((n_frames, *frame_shape), dtype=bool)
    for frame, top, left in zip(mask, tops, lefts):
        frame[top : top + block_shape[0], left : left + block_shape[1]] = True
    return mask
