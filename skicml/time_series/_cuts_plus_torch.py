"""The causal forecaster of CUTSPlus, and the net that learns it and the graph in turn."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from skicml._torch import SeededNet, TensorDataset


class WindowDataset(TensorDataset):
    """Windows of a panel, copied only when a batch of them is asked for.

    Parameters
    ----------
    panel : ndarray of shape (n_series, n_timepoints, n_channels)
        The series.
    width : int
        Rows of a window: the last one is the target, those before are the history.
    device : str, default="cpu"
        Where the panel lives.
    """

    def __init__(self, panel, width, device="cpu"):
        super().__init__(panel, device=device)
        self.windows = self.X.unfold(1, width, 1).mT  # a view: (series, window, width, channel)
        self.n_samples = self.windows.shape[0] * self.windows.shape[1]

    def __getitem__(self, index):
        if isinstance(index, slice):
            index = torch.arange(*index.indices(len(self)), device=self.X.device)
        n_windows = self.windows.shape[1]
        windows = self.windows[index // n_windows, index % n_windows]
        return windows[:, :-1], windows[:, -1]


class GraphForecaster(nn.Module):
    """Message-passing GRU: each node reads the channels that the graph lets through.

    Weights are shared by all nodes but for the initial state and the last linear map.

    Parameters
    ----------
    n_features : int
        Number of channels N; each is a node.
    hidden_dim : int
        Length h of the state of a node.
    """

    def __init__(self, n_features, hidden_dim):
        super().__init__()
        self.inputs = nn.Linear(n_features, 3 * hidden_dim)  # of reset, update and candidate
        self.gates = nn.Linear(hidden_dim, 2 * hidden_dim, bias=False)
        self.candidate = nn.Linear(hidden_dim, hidden_dim, bias=False)
        self.embed1 = nn.Linear(hidden_dim, hidden_dim)
        self.embed2 = nn.Linear(2 * hidden_dim, hidden_dim)
        self.initial_state = nn.Parameter(torch.zeros(n_features, hidden_dim))
        bound = 1 / math.sqrt(2 * hidden_dim)
        self.head_weight = nn.Parameter(torch.empty(n_features, 2 * hidden_dim))
        self.head_bias = nn.Parameter(torch.zeros(n_features))
        nn.init.uniform_(self.head_weight, -bound, bound)

    def forward(self, X, graph):
        """Forecast the row after each history.

        Parameters
        ----------
        X : tensor of shape (B, n_lags, N)
            Histories.
        graph : tensor of shape (N, N) or (B, N, N)
            ``graph[..., cause, effect]``: one for all, or one for each history.

        Returns
        -------
        forecast : tensor of shape (B, N)
            The next row.
        """
        if graph.ndim == 2:
            return self.forecast_folded(X, *self.fold(graph))
        effect_first = graph.mT.contiguous()
        # What every node hears at each lag, (batch, effect, cause), lag by lag: stays in cache.
        heard = (row[:, None] * effect_first for row in X.unbind(1))
        return self.read_out(self.recur((self.inputs(h) for h in heard), len(X)))

    def fold(self, graph):
        """Input weights (N, N * 3h) of all nodes with a graph (N, N) in them, and biases."""
        weight = graph[:, :, None] * self.inputs.weight.T[:, None]
        return weight.flatten(1), self.inputs.bias.repeat(len(graph))

    def forecast_folded(self, X, weight, bias):
        """Forecast with what :meth:`fold` gives: one product a lag for all nodes and gates."""
        shape = (len(X), X.shape[2], -1)
        inputs = (torch.addmm(bias, row, weight).view(shape) for row in X.unbind(1))
        return self.read_out(self.recur(inputs, len(X)))

    def recur(self, inputs, n_samples):
        """State (B, N, h) of every node after the last lag; inputs (B, N, 3h) of each lag."""
        hidden_dim = self.initial_state.shape[1]
        state = self.initial_state.expand(n_samples, -1, -1)
        for step in inputs:
            for_gates, for_candidate = step.split([2 * hidden_dim, hidden_dim], dim=2)
            reset, update = torch.sigmoid(for_gates + self.gates(state)).chunk(2, dim=2)
            candidate = torch.tanh(for_candidate + self.candidate(reset * state))
            state = torch.lerp(candidate, state, update)
        return state

    def read_out(self, state):
        """Forecast of every node from its state, with node-specific weights at the end."""
        first = F.leaky_relu(self.embed1(state))
        second = F.leaky_relu(self.embed2(torch.cat([first, state], dim=2)))
        return self.apply_heads(torch.cat([second, state], dim=2))

    def apply_heads(self, features):
        """The linear maps of all nodes as one product; (B, N, 2h) to (B, N)."""
        return (features * self.head_weight).sum(dim=2) + self.head_bias


class CausalForecaster(nn.Module):
    """A :class:`GraphForecaster` and the logits of its graph.

    Parameters
    ----------
    n_features, hidden_dim : int
        Sizes N and h.
    """

    def __init__(self, n_features, hidden_dim):
        super().__init__()
        self.forecaster = GraphForecaster(n_features, hidden_dim)
        self.logits = nn.Parameter(torch.zeros(n_features, n_features))
        self.register_buffer("folded_weight", None)
        self.register_buffer("folded_bias", None)

    def edge_probability(self):
        """p[cause, effect], shape (N, N)."""
        return torch.sigmoid(self.logits)

    def forward(self, X, graph):
        return self.forecaster(X, graph)

    @torch.no_grad()
    def freeze(self, graph):
        """Fold a graph of shape (N, N) into the weights, for good."""
        self.folded_weight, self.folded_bias = self.forecaster.fold(graph.to(self.logits))

    @torch.no_grad()
    def forecast(self, X):
        """Forecasts (B, N) of histories (B, n_lags, N) under the frozen graph."""
        return self.forecaster.forecast_folded(X, self.folded_weight, self.folded_bias)


class CUTSPlusNet(SeededNet):
    """Each epoch is a pass for the forecaster and a pass for the graph.

    Validation takes the soft graph p.

    Parameters
    ----------
    module : type
        :class:`CausalForecaster`.
    learning_rates, graph_learning_rates, sparsities : ndarray of shape (max_epochs,)
        Rate of Adam in either pass, and the weight of the mean of p, epoch by epoch.
    **kwargs : dict
        Other parameters of SeededNet.
    """

    def __init__(self, module, *, learning_rates, graph_learning_rates, sparsities, **kwargs):
        super().__init__(module, **kwargs)
        self.learning_rates = learning_rates
        self.graph_learning_rates = graph_learning_rates
        self.sparsities = sparsities

    def initialize_optimizer(self):
        args, kwargs = self.get_params_for_optimizer(
            "optimizer", self.module_.forecaster.named_parameters()
        )
        self.optimizer_ = self.optimizer(*args, **kwargs)
        return self

    def run_single_epoch(self, iterator, training, prefix, step_fn, **fit_params):
        if not training:
            self.pass_ = "validation"
            super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
            return
        epoch = len(self.history) - 1
        self.optimizer_.param_groups[0]["lr"] = self.learning_rates[epoch]
        self.pass_ = "forecaster"
        super().run_single_epoch(iterator, training, prefix, step_fn, **fit_params)
        self._run_graph_pass(epoch, iterator, step_fn, **fit_params)

    def _run_graph_pass(self, epoch, iterator, step_fn, **fit_params):
        """Move the logits alone, with an Adam of this pass."""
        forecaster, optimizer = self.module_.forecaster, self.optimizer_
        forecaster.requires_grad_(False)
        self.optimizer_ = torch.optim.Adam(
            [self.module_.logits], lr=self.graph_learning_rates[epoch]
        )
        self.sparsity_ = self.sparsities[epoch]
        self.pass_ = "graph"
        super().run_single_epoch(iterator, True, "graph", step_fn, **fit_params)
        self.optimizer_ = optimizer
        forecaster.requires_grad_(True)

    def infer(self, x, **fit_params):
        return super().infer(x, graph=self._draw_graph(len(x)), **fit_params)

    def _draw_graph(self, n_samples):
        """The graph of each sample in a training pass, the soft graph in validation."""
        probability = self.module_.edge_probability()
        if self.pass_ == "validation":
            return probability
        noise = torch.rand(n_samples, *probability.shape, generator=self.generator_)
        noise = noise.to(probability.device)
        if self.pass_ == "forecaster":
            return (noise < probability.detach()).to(probability.dtype)
        # Two Gumbel variables differ by a logistic one: this is the first of the two
        # components with the published logits p and 1 - p, at temperature 1.
        soft = torch.sigmoid(2 * probability - 1 + torch.logit(noise, eps=1e-6))
        return (soft > 0.5).to(soft.dtype) + (soft - soft.detach())

    def get_loss(self, y_pred, y_true, X=None, training=False):
        loss = F.mse_loss(y_pred, y_true)
        if self.pass_ == "graph":
            loss = loss + self.sparsity_ * self.module_.edge_probability().mean()
        return loss
