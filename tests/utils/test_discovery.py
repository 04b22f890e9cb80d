import pytest
from sklearn.base import ClusterMixin

from skicml.utils import all_estimators


def test_filters():
    everything = dict(all_estimators())
    clusterers = dict(all_estimators(type_filter="cluster"))
    assert clusterers
    assert clusterers.items() <= everything.items()
    assert all(issubclass(cls, ClusterMixin) for cls in clusterers.values())
    both = dict(all_estimators(type_filter=["cluster", "regressor"]))
    assert both.keys() == clusterers.keys() | dict(all_estimators("regressor")).keys()
    assert all(
        cls.__module__.startswith("skicml.cluster") for _, cls in all_estimators(package="cluster")
    )


def test_names_are_sorted():
    names = [name for name, _ in all_estimators()]
    assert names == sorted(names)


def test_unknown_filters():
    with pytest.raises(ValueError, match="type_filter must be among"):
        all_estimators(type_filter="clusterer")
    with pytest.raises(ValueError, match="package must be one of"):
        all_estimators(package="clusters")
