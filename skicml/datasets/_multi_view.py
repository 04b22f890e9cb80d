"""Multi-view data: small real sets, and generators.

Every loader gives ONE 2-D ``data`` and the widths of its blocks, ``views``.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch, check_array, check_random_state
from sklearn.utils._param_validation import validate_params

from skicml._views import resolve_views, stack_views
from skicml.datasets._constraints import FRACTION, NOT_NEGATIVE, SIZE, check_sizes
from skicml.datasets._files import bundled_file, external_file


def _as_bunch(blocks, y, view_names, description, return_X_y, as_frame):
    data, views = stack_views(blocks)
    names = [f"{name}__{i}" for name, width in zip(view_names, views) for i in range(width)]
    if as_frame:
        from sklearn.utils._optional_dependencies import check_pandas_support

        data = check_pandas_support("as_frame=True").DataFrame(data, columns=names)
    if return_X_y:
        return data, y
    return Bunch(
        data=data,
        target=y,
        views=views,
        view_names=list(view_names),
        feature_names=names,
        DESCR=description,
    )


def _read_views(path):
    """Views and labels of a file with arrays X0, X1, ..., y and view_names."""
    with np.load(path) as content:
        names = [str(name) for name in content["view_names"]]
        blocks = [content[f"X{v}"].astype(np.float64) for v in range(len(names))]
        return blocks, content["y"].astype(np.int64), names


def load_multiple_features(*, return_X_y=False, as_frame=False):
    """Handwritten digits described by six sets of features (UCI "Multiple Features").

    2000 samples of 10 digits; views fac (216 profile correlations), fou (76 Fourier
    coefficients), kar (64 Karhunen-Loeve coefficients), mor (6 morphological features), pix
    (240 pixel averages) and zer (47 Zernike moments). The rows are sorted by class.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Give `data` as a pandas DataFrame whose columns are named ``<view>__<index>``, so
        that ``views="auto"`` finds the blocks.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`, or tuple (data, target)
        With ``data`` of shape (2000, 649), ``target`` (2000,), ``views`` (block widths),
        ``view_names``, ``feature_names`` and ``DESCR`` (source and licence, CC BY 4.0).

    References
    ----------
    R. Duin, "Multiple Features", UCI Machine Learning Repository, doi 10.24432/C5HC70.

    Examples
    --------
    >>> from skicml.datasets import load_multiple_features
    >>> digits = load_multiple_features()
    >>> digits.data.shape, digits.views
    ((2000, 649), [216, 76, 64, 6, 240, 47])
    """
    blocks, y, names = _read_views(bundled_file("multiple_features.npz"))
    description = bundled_file("LICENSE-multiple_features.txt").read_text()
    return _as_bunch(blocks, y, names, description, return_X_y, as_frame)


def load_dermatology(*, return_X_y=False, as_frame=False):
    """Erythemato-squamous diseases: clinical and histopathological findings (UCI).

    358 patients with one of 6 diseases; views clinical (12 features) and histopathological
    (22 features).

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Give `data` as a pandas DataFrame with columns ``<view>__<index>``.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`, or tuple (data, target)
        With ``data`` of shape (358, 34), ``target`` (358,), ``views``, ``view_names``,
        ``feature_names`` and ``DESCR`` (source and licence, CC BY 4.0).

    References
    ----------
    N. Ilter and H. Guvenir, "Dermatology", UCI Machine Learning Repository,
    doi 10.24432/C5FK5P.

    Examples
    --------
    >>> from skicml.datasets import load_dermatology
    >>> load_dermatology().views
    [12, 22]
    """
    blocks, y, names = _read_views(bundled_file("dermatology.npz"))
    description = bundled_file("LICENSE-dermatology.txt").read_text()
    return _as_bunch(blocks, y, names, description, return_X_y, as_frame)


def load_leaves100(*, return_X_y=False, as_frame=False):
    """Leaves of one hundred plant species, three views of 64 features (UCI).

    1600 leaves of 100 species described by histograms of margin, shape and texture. Not part
    of the package: read from ``multiview/leaves100.npz`` in the folder that the environment
    variable SKICML_DATA names.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Give `data` as a pandas DataFrame with columns ``<view>__<index>``.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`, or tuple (data, target)
        With ``data`` of shape (1600, 192), ``target`` (1600,), ``views``, ``view_names``,
        ``feature_names`` and ``DESCR``.

    Raises
    ------
    OSError
        If SKICML_DATA is not set or does not hold the file.

    References
    ----------
    C. Mallah, J. Cope and J. Orwell, "One-hundred plant species leaves data set", UCI
    Machine Learning Repository, doi 10.24432/C5RG76.

    Examples
    --------
    >>> from skicml.datasets import load_leaves100
    >>> leaves = load_leaves100()  # doctest: +SKIP
    >>> leaves.data.shape, leaves.views  # doctest: +SKIP
    ((1600, 192), [64, 64, 64])
    """
    source = "UCI, doi 10.24432/C5RG76, CC BY 4.0; arrays X0, X1, X2, y, view_names"
    blocks, y, names = _read_views(external_file("multiview/leaves100.npz", source))
    return _as_bunch(blocks, y, names, f"100 leaves ({source})", return_X_y, as_frame)


def _gradient_histograms(images):
    """Histograms of gradient directions (8 bins) in 2 x 2 cells of every image."""
    gy, gx = np.gradient(images, axis=(1, 2))
    turn = np.mod(np.arctan2(gy, gx), 2 * np.pi) / (2 * np.pi)
    bins = np.minimum((turn * 8).astype(int), 7)
    weighted = np.eye(8)[bins] * np.hypot(gx, gy)[..., None]
    cells = weighted.reshape(len(images), 2, 4, 2, 4, 8).sum(axis=(2, 4))
    histograms = cells.reshape(len(images), -1)
    return histograms / (np.linalg.norm(histograms, axis=1, keepdims=True) + 1e-9)


def _projections(images):
    """Sums over rows, columns and both families of diagonals of every image."""
    diagonals = [
        np.trace(rotated, offset=offset, axis1=1, axis2=2)
        for rotated in (images, images[:, :, ::-1])
        for offset in range(-7, 8)
    ]
    return np.column_stack([images.sum(axis=1), images.sum(axis=2), *diagonals])


def load_multiview_digits(*, return_X_y=False, as_frame=False):
    """scikit-learn's 8x8 digits as four views: pixels, Fourier, gradients, projections.

    1797 images; 64 pixels, 40 log-magnitudes of the Fourier transform, 32 entries of
    histograms of gradient directions, 46 sums along rows, columns and diagonals.

    Parameters
    ----------
    return_X_y : bool, default=False
        Return ``(data, target)`` instead of a Bunch.
    as_frame : bool, default=False
        Give `data` as a pandas DataFrame with columns ``<view>__<index>``.

    Returns
    -------
    dataset : :class:`~sklearn.utils.Bunch`, or tuple (data, target)
        With ``data`` of shape (1797, 182), ``target`` (1797,), ``views``, ``view_names``,
        ``feature_names`` and ``DESCR``.

    Examples
    --------
    >>> from skicml.datasets import load_multiview_digits
    >>> load_multiview_digits().views
    [64, 40, 32, 46]
    """
    digits = load_digits()
    images = digits.images / 16.0
    blocks = [
        images.reshape(len(images), -1),
        np.log1p(np.abs(np.fft.rfft2(images))).reshape(len(images), -1),
        _gradient_histograms(images),
        _projections(images),
    ]
    names = ["pixels", "fourier", "gradients", "projections"]
    return _as_bunch(blocks, digits.target, names, digits.DESCR, return_X_y, as_frame)


# Means (view, class, feature) and covariances (view, class; variances then the covariances of
# features 01, 02, 12) of the well-known set "synthetic3d", rounded.
_SYNTHETIC3D_MEANS = [
    [[1, 1, 1], [3, 4, 3], [5, 5, 5]],
    [[1, 1.8, 1.4], [3, 3, 3], [4, 3, 4]],
    [[1, 1, 2], [3, 1, 2.2], [5, 4, 5]],
]
_SYNTHETIC3D_COVARIANCES = [
    [[1, 1.6, 1.2, 0.6, 0.8, 0.7], [1, 1, 1, 0.2, 0.2, 0.1], [1, 1, 1, -0.4, 0.25, 0.25]],
    [
        [1.3, 1.3, 1.4, -0.2, 0.3, -0.3],
        [0.65, 0.7, 1, 0.05, 0.2, 0.25],
        [0.75, 0.95, 1.5, 0.1, 0.3, 0.35],
    ],
    [
        [0.6, 0.95, 0.85, 0.1, 0.15, 0.35],
        [1, 0.7, 0.9, 0.4, 0.2, 0.3],
        [1, 1, 0.95, 0.25, -0.3, 0.3],
    ],
]


@validate_params(
    {
        "n_samples_per_class": [SIZE],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_synthetic3d(n_samples_per_class=200, *, random_state=None):
    """Three Gaussian classes in three views of three features, like "synthetic3d".

    Parameters
    ----------
    n_samples_per_class : int, default=200
        Samples of each of the three classes.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    X : ndarray of shape (3 * n_samples_per_class, 9)
        The three views side by side, widths ``[3, 3, 3]``.
    y : ndarray of shape (3 * n_samples_per_class,)
        Class, sorted.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range.

    Examples
    --------
    >>> from skicml.datasets import make_synthetic3d
    >>> make_synthetic3d(5, random_state=0)[0].shape
    (15, 9)
    """
    rng = check_random_state(random_state)
    views = []
    for means, moments in zip(_SYNTHETIC3D_MEANS, _SYNTHETIC3D_COVARIANCES):
        classes = []
        for mean, (a, b, c, ab, ac, bc) in zip(means, moments):
            covariance = [[a, ab, ac], [ab, b, bc], [ac, bc, c]]
            classes.append(rng.multivariate_normal(mean, covariance, n_samples_per_class))
        views.append(np.vstack(classes))
    return np.hstack(views), np.repeat(np.arange(3), n_samples_per_class)


@validate_params(
    {
        "n_samples": [SIZE],
        "views": ["array-like"],
        "centers": [SIZE],
        "separation": [NOT_NEGATIVE],
        "noise_views": ["array-like"],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_multiview_blobs(
    n_samples=300, views=(5, 5), *, centers=3, separation=3.0, noise_views=(), random_state=None
):
    """Isotropic Gaussian clusters seen in several views, some of which may be pure noise.

    Parameters
    ----------
    n_samples : int, default=300
        Number of samples.
    views : sequence of int, default=(5, 5)
        Width of each view.
    centers : int, default=3
        Number of clusters.
    separation : float, default=3.0
        Standard deviation of the cluster centres; the noise has standard deviation 1.
    noise_views : sequence of int, default=()
        Indices of views that do not depend on the cluster.
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    X : ndarray of shape (n_samples, sum(views))
        The views side by side.
    y : ndarray of shape (n_samples,)
        Cluster of each sample.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, a width is not an integer of at
        least 1, or `noise_views` names a view that is not there.

    Examples
    --------
    >>> from skicml.datasets import make_multiview_blobs
    >>> X, y = make_multiview_blobs(10, views=(2, 3), noise_views=[1], random_state=0)
    >>> X.shape, y.shape
    ((10, 5), (10,))
    """
    check_sizes("views", views)
    if not np.isin(noise_views, np.arange(len(views))).all():
        raise ValueError(
            f"noise_views must hold indices in 0..{len(views) - 1}, got {noise_views!r}."
        )
    rng = check_random_state(random_state)
    y = rng.randint(centers, size=n_samples)
    blocks = []
    for view, width in enumerate(views):
        spread = 0.0 if view in noise_views else separation
        means = spread * rng.standard_normal((centers, width))
        blocks.append(means[y] + rng.standard_normal((n_samples, width)))
    return np.hstack(blocks), y


@validate_params(
    {
        "X": ["array-like"],
        "views": ["array-like", None],
        "rate": [FRACTION],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def mask_views(X, views, *, rate=0.3, random_state=None):
    """Remove whole views of samples at random; every sample keeps at least one.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Complete data.
    views : None, sequence of int, or sequence of index arrays or slices
        The views, as the estimators take them.
    rate : float, default=0.3
        Probability that a view of a sample is removed, in [0, 1].
    random_state : int, RandomState instance or None, default=None
        Source of randomness.

    Returns
    -------
    X_missing : ndarray of shape (n_samples, n_features)
        Copy of X with NaN in the blocks that were removed.

    Raises
    ------
    ValueError
        If a parameter is of another type or out of its range, or `views` does not describe
        disjoint, non-empty blocks of the columns of X, or X holds infinity.

    Examples
    --------
    >>> import numpy as np
    >>> from skicml.datasets import mask_views
    >>> X = mask_views(np.ones((4, 3)), [2, 1], rate=0.5, random_state=0)
    >>> bool(np.isnan(X).all(axis=1).any())
    False
    """
    rng = check_random_state(random_state)
    X = check_array(X, dtype=np.float64, copy=True, ensure_all_finite="allow-nan")
    blocks = resolve_views(views, X.shape[1])
    keep = rng.uniform(size=(len(X), len(blocks))) >= rate
    empty = np.flatnonzero(~keep.any(axis=1))
    keep[empty, rng.randint(len(blocks), size=empty.size)] = True
    for view, block in enumerate(blocks):
        X[np.ix_(~keep[:, view], block)] = np.nan
    return X
