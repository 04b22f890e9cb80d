import inspect

import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.callback import CallbackSupportMixin, with_callbacks

from skicml.utils._fitting import all_or_nothing


class _Fragile(CallbackSupportMixin, BaseEstimator):
    def __init__(self, error=None):
        self.error = error

    @all_or_nothing
    @with_callbacks
    def fit(self, X, y=None, *, groups=None):
        """Fit."""
        self._init_callback_context()
        self.n_features_in_ = len(X)
        vars(self).pop("labels_", None)
        if self.error is not None:
            raise self.error
        self.labels_ = list(X)
        return self


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failed_fit_leaves_nothing(error):
    estimator = _Fragile(error)
    with pytest.raises(error):
        estimator.fit([1, 2])
    assert vars(estimator) == {"error": error}


def test_a_failed_fit_leaves_the_fit_before():
    estimator = _Fragile().fit([1, 2])
    with pytest.raises(KeyboardInterrupt):
        estimator.set_params(error=KeyboardInterrupt).fit([1, 2, 3])
    assert (estimator.n_features_in_, estimator.labels_) == (2, [1, 2])
    assert estimator.set_params(error=None).fit([1, 2, 3]).labels_ == [1, 2, 3]


def test_the_method_keeps_its_name_and_signature():
    assert _Fragile.fit.__name__ == "fit"
    assert _Fragile.fit.__doc__ == "Fit."
    assert list(inspect.signature(_Fragile.fit).parameters) == ["self", "X", "y", "groups"]
    assert hasattr(clone(_Fragile()), "set_fit_request")
