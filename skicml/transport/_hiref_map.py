"""A matching of two samples as a map of the whole space."""

import numpy as np
from sklearn.neighbors import NearestNeighbors


class NearestDisplacement:
    """Move a point as its nearest source moves.

    The search tree is built at the first use.

    Parameters
    ----------
    sources, images : ndarray of shape (n, d)
        Row k of the sources goes to row k of the images.
    n_jobs : int or None
        For the search.
    """

    def __init__(self, sources, images, n_jobs):
        self.sources, self.images, self.n_jobs = sources, images, n_jobs
        self.origin = sources.mean(axis=0, dtype=np.float64)
        self._search = None

    def __call__(self, X):
        """Images of the rows of X; a row that is a source goes to its image exactly."""
        if np.array_equal(X, self.sources):  # so equal sources each keep their own image
            return self.images.astype(X.dtype)
        nearest = self._nearest(X)
        sources, images = self.sources[nearest], self.images[nearest]
        known = np.equal(X, sources).all(axis=1, keepdims=True)
        return np.where(known, images, X + (images - sources)).astype(X.dtype)

    def _nearest(self, X):
        if self._search is None:
            search = NearestNeighbors(n_neighbors=1, n_jobs=self.n_jobs)
            self._search = search.fit(self.sources - self.origin)
        # centred, as the search in many features expands the squares
        return self._search.kneighbors(X - self.origin, return_distance=False)[:, 0]
