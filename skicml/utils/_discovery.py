"""Find the public estimators of the library."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClusterMixin,
    DensityMixin,
    OutlierMixin,
    RegressorMixin,
    TransformerMixin,
)

import skicml

_MIXINS = {
    "classifier": ClassifierMixin,
    "regressor": RegressorMixin,
    "cluster": ClusterMixin,
    "transformer": TransformerMixin,
    "outlier_detector": OutlierMixin,
    "density": DensityMixin,
}


def _task_packages():
    """Names of the public sub-packages of skicml, in alphabetical order."""
    return sorted(
        module.name
        for module in iter_modules(skicml.__path__)
        if module.ispkg and not module.name.startswith("_")
    )


def _is_estimator(obj):
    """Whether this is an estimator class that can be instantiated (base classes are abstract)."""
    return inspect.isclass(obj) and issubclass(obj, BaseEstimator) and not inspect.isabstract(obj)


def all_estimators(
    type_filter: str | list[str] | None = None, package: str | None = None
) -> list[tuple[str, type]]:
    """List the public estimators of skicml.

    Parameters
    ----------
    type_filter : {"classifier", "regressor", "cluster", "transformer", \
            "outlier_detector", "density"}, list of these or None, default=None
        Keep the estimators that are of at least one of the types.
        None keeps all, also those of no type.
    package : str or None, default=None
        Keep the estimators of one task package, e.g. ``"cluster"``.

    Returns
    -------
    estimators : list of (str, type)
        Name and class of each estimator, sorted by name.

    Raises
    ------
    ValueError
        If `type_filter` or `package` is unknown.

    Examples
    --------
    >>> from skicml.utils import all_estimators
    >>> [name for name, _ in all_estimators(package="decomposition")]
    ['OPSA', 'OPSARegressor']
    """
    packages = _task_packages()
    if package is not None:
        if package not in packages:
            raise ValueError(f"package must be one of {packages} or None, got {package!r}.")
        packages = [package]
    types = [type_filter] if isinstance(type_filter, str) else type_filter
    if types is not None and (unknown := sorted(set(types) - set(_MIXINS))):
        raise ValueError(f"type_filter must be among {sorted(_MIXINS)} or None, got {unknown}.")

    found = {}
    for name in packages:
        module = import_module(f"skicml.{name}")
        for public in module.__all__:
            obj = getattr(module, public)
            if _is_estimator(obj):
                found[public] = obj
    if types is not None:
        mixins = tuple(_MIXINS[name] for name in types)
        found = {name: cls for name, cls in found.items() if issubclass(cls, mixins)}
    return sorted(found.items())
