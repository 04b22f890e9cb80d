"""What private policies may publish, and how their guarantee reads as (epsilon, delta)."""

from skicml.privacy import gdp_to_delta, gdp_to_epsilon

# Raw rewards, and what is computed from them without noise.
EVALUATION_RECORDS = ("means_", "rewards_", "regret_")


class PrivatePolicyMixin:
    """Private policies: what may be published, and the conversion of ``gdp_mu_``.

    The guarantee covers the actions and :meth:`private_state`. The attributes `means_`,
    `rewards_` and `regret_` and the methods `regret` and `score` are evaluation records.
    """

    def private_state(self):
        """What may be published under the guarantee: never a reward or a raw mean.

        Returns
        -------
        state : dict
            ``t``, ``horizon``, ``gdp_mu``, ``counts`` and, with ``store_history=True``,
            ``actions``; beside them what this policy releases with noise.
        """
        self._check_live()
        state = {
            "t": self.t_,
            "horizon": self.horizon_,
            "gdp_mu": float(self.gdp_mu_),
            "counts": self.counts_.copy(),
        }
        if self._actions is not None:
            state["actions"] = self.actions_
        return {**state, **self._released()}

    def privacy_delta(self, epsilon):
        """Smallest delta at which the guarantee ``gdp_mu_`` is (epsilon, delta)-privacy.

        Parameters
        ----------
        epsilon : array-like of float
            Privacy parameter, at least 0.

        Returns
        -------
        delta : float or ndarray
            In [0, 1].
        """
        self._check_live()
        return gdp_to_delta(epsilon, self.gdp_mu_)

    def privacy_epsilon(self, delta):
        """Smallest epsilon at which the guarantee ``gdp_mu_`` is (epsilon, delta)-privacy.

        Parameters
        ----------
        delta : array-like of float
            Privacy parameter, in [0, 1].

        Returns
        -------
        epsilon : float or ndarray
            At least 0.
        """
        self._check_live()
        return gdp_to_epsilon(delta, self.gdp_mu_)

    def _released(self):
        """Noisy quantities that the policy acts on, by name."""
        return {"arm_scores": self.arm_scores()}

    def _get_fitted_attr_html(self, doc_link=""):
        """Leave the evaluation records out of the picture of a notebook."""
        attributes = super()._get_fitted_attr_html(doc_link)
        for name in EVALUATION_RECORDS:
            attributes.pop(name, None)
        return attributes
