"""What a fitted diffusion model says at single noise levels."""

from numbers import Integral

from sklearn.utils import check_scalar
from sklearn.utils.validation import check_is_fitted

from skicml.generative._scaling import check_scaled


class NoiseLevelsMixin:
    """Noise rows, denoise them, and the gradient of their log density."""

    def add_noise(self, X, t, *, random_state=None):
        """Take rows to a noise level.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Data.
        t : int
            Time from 0 to T.
        random_state : int, RandomState instance or None, default=None
            Determines the noise; None means that of the estimator.

        Returns
        -------
        X_t : ndarray of shape (n_samples, n_features)
            alpha_t x + sigma_t eps for the scaled rows x: in scaled units.
        """
        check_is_fitted(self)
        X = self._validated(X)
        check_scalar(t, "t", Integral, min_val=0, max_val=self.schedule_.n_timesteps)
        noise = self._starting_noise(len(X), None, self._generator(random_state))
        rows = self.scaler_.transform(X)
        noisy = self.schedule_.alpha_[t] * rows + self.schedule_.sigma_[t] * noise
        return noisy.astype(X.dtype, copy=False)

    def denoise(self, X_t, t, y=None):
        """Expected clean rows given noisy ones.

        Parameters
        ----------
        X_t : array-like of shape (n_samples, n_features)
            Noisy rows in scaled units, as from :meth:`add_noise`.
        t : int
            Their time, from 1 to T.
        y : scalar or array-like, default=None
            Condition of all rows or of each.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Estimate of E[x_0 | x_t] in data units.
        """
        return self._to_data_units(self._predict_rows(X_t, t, y)[0])

    def score_function(self, X_t, t, y=None):
        """Gradient of the log density of noisy rows.

        Parameters
        ----------
        X_t : array-like of shape (n_samples, n_features)
            Noisy rows in scaled units, as from :meth:`add_noise`.
        t : int
            Their time, from 1 to T.
        y : scalar or array-like, default=None
            Condition of all rows or of each.

        Returns
        -------
        gradient : ndarray of shape (n_samples, n_features)
            Estimate of grad log p_t(x_t) = -E[eps | x_t] / sigma_t, in scaled units.
        """
        eps = self._predict_rows(X_t, t, y)[1]
        return (-eps / self.schedule_.sigma_[t]).astype(self._dtype)

    def _predict_rows(self, X_t, t, y):
        """Data and noise of noisy rows, in scaled units."""
        from skicml.generative._drawing_torch import predict_rows

        check_is_fitted(self)
        X_t = self._validated(X_t)
        check_scaled(X_t)
        check_scalar(t, "t", Integral, min_val=1, max_val=self.schedule_.n_timesteps)
        shape = self._row_shape(X_t.shape[1])
        condition = self._embedded(y, len(X_t))
        return predict_rows(self._denoiser(), self._predict, X_t, shape, t, condition)
