"""Causal discovery by a sparse linear autoregression: the quick alternative to CUTS+."""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from skicml.time_series._series import cut_windows, validate_series

# Ridge penalties that are tried, as multiples of the number of training rows.
_PENALTIES = np.logspace(-4, 0, 5)


class VARDiscoverer(BaseEstimator):
    """Ridge vector autoregression whose strongest links are the causal graph.

    The penalty of the full regression is chosen by cross-validation over contiguous blocks
    of time. The strength of a link is the Euclidean norm of its coefficients over all lags.
    A nested sequence of graphs, each with 0.7 times as many links as the one before, is
    refitted with these links only. The sparsest one is kept whose cross-validated error is
    within one standard error, of the differences between blocks, of the best.

    Parameters
    ----------
    n_lags : int, default=9
        Rows of history H that a forecast depends on.
    cv : int, default=5
        Number of blocks of the cross-validation; one a row where there are fewer rows.

    Attributes
    ----------
    strength_ : ndarray of shape (N, N)
        Norm of the coefficients over the lags, [cause, effect], in the full regression.
    adjacency_ : ndarray of bool of shape (N, N)
        The graph, [cause, effect].
    coef_ : ndarray of shape (H * N, N)
        Coefficients given the graph; the history is flattened, oldest row first.
    intercept_, mean_ : ndarray of shape (N,)
        Intercepts, and means of the series.
    penalty_ : float
        The chosen penalty.
    n_features_in_ : int
        Number of channels N.

    Notes
    -----
    Time O(n (H N)^2 + N (H N)^3) for n rows, memory O(n H N + (H N)^2).
    """

    def __init__(self, n_lags=9, *, cv=5):
        self.n_lags = n_lags
        self.cv = cv

    def fit(self, X, y=None):
        """Find the graph and fit the autoregression.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, N) or (n_series, n_timepoints, N)
            One series or a panel; at least `n_lags` + 2 time steps.
        y : None
            Ignored.

        Returns
        -------
        self : VARDiscoverer
            The fitted estimator.
        """
        panel, _ = validate_series(self, X, min_timepoints=self.n_lags + 2)
        windows = cut_windows(panel, self.n_lags + 1).reshape(-1, self.n_lags + 1, panel.shape[2])
        windows = windows.astype(np.float64)
        history, target = windows[:, :-1].reshape(len(windows), -1), windows[:, -1]
        moments = _Moments(history, target)
        blocks = _leave_block_out(history, target, min(self.cv, len(windows)))

        penalty = _PENALTIES[_block_errors(blocks, _full_coefs).mean(axis=1).argmin()]
        self.penalty_ = penalty * len(windows)
        full = moments.solve(self.penalty_)
        self.strength_ = np.linalg.norm(full.reshape(self.n_lags, -1, full.shape[1]), axis=0)
        graphs = _nested_graphs(self.strength_)
        errors = _block_errors(
            blocks, lambda part: (part.solve_graph(penalty * part.n, graph) for graph in graphs)
        )
        self.adjacency_ = graphs[_sparsest_within_one_se(errors)]
        self.coef_ = moments.solve_graph(self.penalty_, self.adjacency_)
        self.intercept_ = moments.target_mean - moments.history_mean @ self.coef_
        self.mean_ = panel.mean(axis=(0, 1), dtype=np.float64)
        return self

    def predict(self, X):
        """Forecast each row from the `n_lags` rows before it.

        Parameters
        ----------
        X : array-like of shape (n_timepoints, N) or (n_series, n_timepoints, N)
            One series or a panel.

        Returns
        -------
        forecast : ndarray of the shape of X
            The forecasts; the first `n_lags` rows, which have too little history, are the
            means of the training series.
        """
        check_is_fitted(self)
        panel, is_panel = validate_series(self, X, reset=False)
        forecast = np.empty_like(panel)
        forecast[:, : self.n_lags] = self.mean_
        if panel.shape[1] > self.n_lags:
            windows = cut_windows(panel[:, :-1], self.n_lags)
            rows = self.forecast_windows(windows.reshape(-1, *windows.shape[2:]))
            forecast[:, self.n_lags :] = rows.reshape(len(panel), -1, panel.shape[2])
        return forecast if is_panel else forecast[0]

    def forecast_windows(self, windows):
        """Forecast the row after each window.

        Parameters
        ----------
        windows : ndarray of shape (n_windows, n_lags, N)
            Histories.

        Returns
        -------
        forecast : ndarray of shape (n_windows, N)
            The row that comes next.
        """
        return windows.reshape(len(windows), -1) @ self.coef_ + self.intercept_


class _Moments:
    """Centred second moments of histories and targets: all that a ridge regression needs."""

    def __init__(self, history, target):
        self.n = len(history)
        self.history_mean, self.target_mean = history.mean(axis=0), target.mean(axis=0)
        centered = history - self.history_mean
        self.gram = centered.T @ centered
        self.cross = centered.T @ (target - self.target_mean)

    def solve(self, penalty):
        """Coefficients of shape (H N, N) of the regression on the whole history."""
        return np.linalg.solve(self.gram + penalty * np.eye(len(self.gram)), self.cross)

    def solve_graph(self, penalty, graph):
        """Coefficients of shape (H N, N) where only the causes of an effect count."""
        if graph.all():
            return self.solve(penalty)
        n_lags = len(self.gram) // len(graph)
        coefs = np.zeros_like(self.cross)
        for effect, is_cause in enumerate(graph.T):
            used = np.flatnonzero(np.tile(is_cause, n_lags))
            if used.size:
                gram = self.gram[np.ix_(used, used)] + penalty * np.eye(used.size)
                coefs[used, effect] = np.linalg.solve(gram, self.cross[used, effect])
        return coefs


def _leave_block_out(history, target, n_blocks):
    """Moments of all rows but a block, and the rows of the block, for each block of time."""
    folds = KFold(n_blocks).split(history)
    return [
        (_Moments(history[train], target[train]), history[test], target[test])
        for train, test in folds
    ]


def _full_coefs(part):
    """Coefficients of the full regression for every penalty."""
    return (part.solve(penalty * part.n) for penalty in _PENALTIES)


def _block_errors(blocks, candidates):
    """Mean squared error of every candidate on every block, shape (n_candidates, n_blocks)."""
    errors = []
    for part, history, target in blocks:
        centered, expected = history - part.history_mean, target - part.target_mean
        errors.append([np.mean((centered @ coefs - expected) ** 2) for coefs in candidates(part)])
    return np.array(errors).T


def _nested_graphs(strength):
    """Graphs of the strongest links: all, then 0.7 times as many again and again, to none."""
    order = np.argsort(-strength, axis=None, kind="stable")
    sizes = [strength.size]
    while sizes[-1] > 0:
        sizes.append(int(0.7 * sizes[-1]))
    graphs = np.zeros((len(sizes), strength.size), dtype=bool)
    for graph, size in zip(graphs, sizes):
        graph[order[:size]] = True
    return graphs.reshape(-1, *strength.shape)


def _sparsest_within_one_se(errors):
    """Index of the last graph that is no worse than the best, to one standard error."""
    excess = errors - errors[errors.mean(axis=1).argmin()]
    n_blocks = errors.shape[1]
    noise = excess.std(axis=1, ddof=1) / np.sqrt(n_blocks)
    return np.flatnonzero(excess.mean(axis=1) <= noise)[-1]
