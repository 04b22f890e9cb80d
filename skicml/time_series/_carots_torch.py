"""The contrastive half of CAROTS: encoder, augmentations along the causal graph, SOC loss."""

import math

import numpy as np
import torch
from skorch.callbacks import GradientNormClipping, LRScheduler
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from skicml._torch import SeededNet, TensorLoader, fit_net, resolve_device
from skicml.time_series._cuts_plus_torch import WindowDataset

# Windows that are encoded at once: bounds the memory of the hidden layers.
_CHUNK = 2048
_WARMUP_START = 1e-4  # learning rate of the first epoch of the warm-up
_MAX_GRADIENT_NORM = 0.5


class WindowEncoder(nn.Module):
    """LSTM over the rows of a window, whose last state a projector maps to the embedding.

    Parameters
    ----------
    n_features : int
        Number of channels N.
    hidden_dim : int
        Width of the LSTM.
    projection_dim : int
        Width of the embedding; the hidden layer of the projector is twice as wide.
    """

    def __init__(self, n_features, hidden_dim, projection_dim):
        super().__init__()
        self.lstm = nn.LSTM(n_features, hidden_dim, batch_first=True)
        self.projector = nn.Sequential(
            nn.Linear(hidden_dim, 2 * projection_dim),
            nn.BatchNorm1d(2 * projection_dim),
            nn.GELU(),
            nn.Linear(2 * projection_dim, projection_dim),
        )

    def forward(self, windows):
        _, (state, _) = self.lstm(windows)
        return self.projector(state[0])


class CausalAugmenter:
    """Positives that keep the causal relations, negatives that break them.

    Parameters
    ----------
    adjacency : ndarray of bool of shape (N, N)
        The causal graph, [cause, effect].
    forecast : callable
        Maps an array of windows (B, W, N) to the forecast (B, N) of their last row from the
        rows before it.
    n_causes : int
        Number of variables M that are disturbed to make positives.
    cause_noise : float
        Standard deviation of that disturbance.
    stop_probability : float
        Chance that the walk over the graph goes no further from a node.
    bias_values : sequence of float
        Absolute values of the biases of negatives.
    bias_fraction : float
        Share of the rows of a window that get a bias.
    generator : torch.Generator
        CPU generator of all random choices.
    """

    def __init__(
        self,
        adjacency,
        forecast,
        *,
        n_causes,
        cause_noise,
        stop_probability,
        bias_values,
        bias_fraction,
        generator,
    ):
        self.adjacency = torch.as_tensor(adjacency)
        self.forecast = forecast
        self.n_causes = n_causes
        self.cause_noise = cause_noise
        self.stop_probability = stop_probability
        biases = torch.as_tensor(np.asarray(bias_values), dtype=torch.float32)
        self.biases = torch.cat([-biases, biases])
        self.bias_fraction = bias_fraction
        self.generator = generator
        self._effects = [np.flatnonzero(row).tolist() for row in np.asarray(adjacency)]

    def preserve(self, windows):
        """Disturb some causes and let their effects follow, by the forecaster.

        The noise is added to the last row of the history, so that it reaches the effects.

        Parameters
        ----------
        windows : tensor of shape (B, W, N)
            Windows.

        Returns
        -------
        positives : tensor of shape (B, W, N)
            One copy of each window.
        """
        n_windows, _, n_features = windows.shape
        causes = torch.randperm(n_features, generator=self.generator)[: self.n_causes]
        effects = self.adjacency[causes].any(dim=0)
        noise = torch.randn(n_windows, len(causes), generator=self.generator)
        positives = windows.clone()
        positives[:, -2, causes] += self.cause_noise * noise.to(windows)
        if effects.any():
            forecast = torch.as_tensor(self.forecast(positives.cpu().numpy())).to(windows)
            positives[:, -1, effects] = forecast[:, effects]
        return positives

    def disturb(self, windows):
        """Shift, in some rows, variables that hang together without their other causes.

        Parameters
        ----------
        windows : tensor of shape (B, W, N)
            Windows.

        Returns
        -------
        negatives : tensor of shape (B, W, N)
            One disturbed copy of each window.
        """
        n_windows, width, _ = windows.shape
        nodes = torch.tensor(self.walk())
        n_rows = max(1, math.floor(self.bias_fraction * width))
        rows = torch.randperm(width, generator=self.generator)[:n_rows]
        shape = (n_windows, len(rows), len(nodes))
        drawn = torch.randint(len(self.biases), shape, generator=self.generator)
        negatives = windows.clone()
        negatives[:, rows[:, None], nodes] += self.biases[drawn].to(windows)
        return negatives

    def walk(self):
        """Nodes that a random depth-first walk along the edges visits.

        At each effect not yet visited the walk descends, or, with `stop_probability`, goes
        no further from the node that it has come to.

        Returns
        -------
        nodes : list of int
            The nodes in the order of the walk, beginning with its random start.
        """
        n_nodes = len(self._effects)
        # A draw either visits a node or ends the exploration of one: 2 N are enough.
        draws = iter(torch.rand(2 * n_nodes, generator=self.generator).tolist())
        start = torch.randint(n_nodes, (), generator=self.generator).item()
        nodes, visited = [start], {start}
        path = [iter(self._effects[start])]
        while path:
            effect = next((node for node in path[-1] if node not in visited), None)
            if effect is None or next(draws) < self.stop_probability:
                path.pop()
                continue
            nodes.append(effect)
            visited.add(effect)
            path.append(iter(self._effects[effect]))
        return nodes


def soc_loss(positives, negatives, threshold, temperature):
    """Similarity-filtered one-class contrastive loss.

    With s the cosine similarities and :math:`\\tau` the temperature, the pairs of an anchor i
    are :math:`P_i = \\{j \\neq i: s_{ij} \\geq \\alpha\\}`, its negatives :math:`N_i` are made
    from the positives in :math:`P_i \\cup \\{i\\}`, and the loss is the mean over all pairs of

    .. math:: l_{ij} = \\log(1 + \\sum_{k \\in N_i} e^{(s_{ik} - s_{ij}) / \\tau}).

    Parameters
    ----------
    positives, negatives : tensor of shape (n, d)
        Embeddings; negative i was made from positive i.
    threshold : float
        Least similarity :math:`\\alpha` of a pair.
    temperature : float
        Temperature.

    Returns
    -------
    loss : tensor of shape ()
        The loss; 0 if there is no pair.
    chance : float
        The loss of an encoder for which all similarities are equal, the mean over all pairs
        of log(1 + size of :math:`N_i`).
    n_pairs : int
        Number of pairs (i, j), in both directions.
    """
    positives, negatives = F.normalize(positives), F.normalize(negatives)
    similarity = positives @ positives.T
    near = similarity.detach() >= threshold
    kept = near.clone().fill_diagonal_(True)
    pairs = near.fill_diagonal_(False)
    logits = (positives @ negatives.T / temperature).masked_fill(~kept, -math.inf)
    losses = F.softplus(logits.logsumexp(dim=1, keepdim=True) - similarity / temperature)
    n_pairs = pairs.sum()
    loss = losses.masked_fill(~pairs, 0).sum() / n_pairs.clamp(min=1)
    chance = (pairs.sum(dim=1) * kept.sum(dim=1).log1p()).sum() / n_pairs.clamp(min=1)
    return loss, chance.item(), n_pairs.item()


class ContrastiveNet(SeededNet):
    """Encoder trained to tell causality-preserving windows from disturbed ones.

    It is trained on a :class:`WindowDataset`, whose targets are the last rows of the windows.

    Parameters
    ----------
    module : type
        :class:`WindowEncoder`.
    augmenter : callable
        Makes the :class:`CausalAugmenter` from the generator of the net.
    temperature : float
        Temperature of the loss.
    similarity_threshold : tuple of (float, float)
        Threshold of the loss in the first and the last epoch; linear between them.
    **kwargs : dict
        Other parameters of SeededNet.
    """

    def __init__(self, module, *, augmenter, temperature, similarity_threshold, **kwargs):
        super().__init__(module, **kwargs)
        self.augmenter = augmenter
        self.temperature = temperature
        self.similarity_threshold = similarity_threshold

    def initialize(self):
        super().initialize()
        self.augmenter_ = self.augmenter(generator=self.generator_)
        return self

    def on_epoch_begin(self, net, **kwargs):
        super().on_epoch_begin(net, **kwargs)
        first, last = self.similarity_threshold
        done = (len(self.history) - 1) / max(1, self.max_epochs - 1)
        self.history.record("threshold", first + done * (last - first))

    def positives(self, batch):
        """The windows of a batch, and a causality-preserving copy of each."""
        windows = _windows(batch)
        return torch.cat([windows, self.augmenter_.preserve(windows)])

    def train_step_single(self, batch, **fit_params):
        self._set_training(True)
        positives = self.positives(batch)
        embeddings = self.module_(torch.cat([positives, self.augmenter_.disturb(positives)]))
        loss, chance, n_pairs = soc_loss(
            *embeddings.chunk(2), self.history[-1, "threshold"], self.temperature
        )
        loss.backward()
        self.history.record_batch("chance", chance)
        self.history.record_batch("n_pairs", n_pairs)
        return {"loss": loss, "y_pred": embeddings}

    @torch.no_grad()
    def center(self, dataset, distance):
        """Mean embedding of all windows and a causality-preserving copy of each."""
        self.module_.eval()
        total = 0
        for batch in TensorLoader(dataset, batch_size=self.batch_size):
            total = total + _embed(self.module_, self.positives(batch), distance).sum(dim=0)
        return (total / (2 * len(dataset))).cpu().numpy()

    def curve(self):
        """Loss, chance level, threshold and number of pairs of every epoch, as arrays."""
        return {
            "epoch": np.arange(len(self.history)),
            "loss": np.array(self.history[:, "train_loss"]),
            "chance": np.array([_batch_mean(row, "chance") for row in self.history]),
            "threshold": np.array(self.history[:, "threshold"]),
            "n_pairs": np.array([sum(_batch_values(row, "n_pairs")) for row in self.history]),
        }

    def trim(self):
        """Leave in the net what encoding needs, on the CPU: no data, optimiser or graph."""
        super().trim()
        self.augmenter = self.augmenter_ = None


def _batch_values(row, key):
    return [batch[key] for batch in row["batches"]]


def _batch_mean(row, key):
    return np.average(_batch_values(row, key), weights=_batch_values(row, "train_batch_size"))


def _warmup_then_cosine(epoch, *, start, warmup_epochs, max_epochs):
    """Factor of the learning rate: linear from `start` to 1, then a half cosine towards 0."""
    if epoch < warmup_epochs:
        return start + (1 - start) * epoch / warmup_epochs
    done = (epoch - warmup_epochs) / max(1, max_epochs - warmup_epochs)
    return (1 + math.cos(math.pi * min(1.0, done))) / 2


def _schedule(learning_rate, warmup_epochs, max_epochs):
    def factor(epoch):
        return _warmup_then_cosine(
            epoch,
            start=min(1.0, _WARMUP_START / learning_rate),
            warmup_epochs=warmup_epochs,
            max_epochs=max_epochs,
        )

    return LRScheduler(LambdaLR, lr_lambda=factor)


def fit_encoder(estimator, panel, augmenter, seed, context):
    """Train the encoder, and find the centre of the positives.

    Parameters
    ----------
    estimator : CAROTS
        Holds the parameters.
    panel : ndarray of shape (n_series, n_timepoints, N)
        The standardised training series.
    augmenter : callable
        Makes the :class:`CausalAugmenter` from a generator.
    seed : int
        Seed of the net.
    context : sklearn.callback.CallbackContext
        Every epoch becomes a subtask of it.

    Returns
    -------
    net : ContrastiveNet
        The trained net on the CPU, without what only training needs.
    center : ndarray of shape (projection_dim,)
        Mean embedding of the training windows and their causality-preserving copies.
    curve : dict of str to ndarray
        Loss, chance level, threshold and number of pairs of every epoch.
    """
    device = resolve_device(estimator.device)
    net = ContrastiveNet(
        WindowEncoder,
        module__n_features=panel.shape[2],
        module__hidden_dim=estimator.hidden_dim,
        module__projection_dim=estimator.projection_dim,
        augmenter=augmenter,
        temperature=estimator.temperature,
        similarity_threshold=np.broadcast_to(estimator.similarity_threshold, 2).tolist(),
        lr=estimator.learning_rate,
        optimizer__weight_decay=estimator.weight_decay,
        max_epochs=estimator.max_epochs,
        batch_size=estimator.batch_size,
        # The loss of a short last batch is on another scale: it is left out.
        min_batch_size=estimator.batch_size,
        callbacks=[
            GradientNormClipping(_MAX_GRADIENT_NORM),
            _schedule(estimator.learning_rate, estimator.warmup_epochs, estimator.max_epochs),
        ],
        device=device,
        seed=seed,
    )
    dataset = WindowDataset(panel, estimator.window, device=device)
    fit_net(net, dataset, estimator=estimator, context=context)
    center = net.center(dataset, estimator.distance)
    curve = net.curve()
    net.trim()
    return net, center, curve


def _windows(batch):
    """Whole windows of shape (B, W, N) from a batch of a :class:`WindowDataset`."""
    history, last = batch
    return torch.cat([history, last[:, None]], dim=1)


def _embed(module, windows, distance):
    embeddings = module(windows)
    return F.normalize(embeddings) if distance == "cos" else embeddings


@torch.no_grad()
def center_distances(net, center, panel, window, distance):
    """Distance of the embedding of every window from the centre.

    Parameters
    ----------
    net : ContrastiveNet
        The trained net.
    center : ndarray of shape (projection_dim,)
        The centre.
    panel : ndarray of shape (n_series, n_timepoints, N)
        The standardised series.
    window : int
        Rows W of a window.
    distance : {"l2", "cos"}
        Euclidean distance, or (1 - cosine) / 2.

    Returns
    -------
    distances : ndarray of shape (n_series, n_windows)
        The distances.
    """
    net.module_.eval()
    center = torch.as_tensor(center)
    parts = []
    for batch in TensorLoader(WindowDataset(panel, window), batch_size=_CHUNK):
        embeddings = net.module_(_windows(batch))
        if distance == "cos":
            parts.append((1 - F.cosine_similarity(embeddings, center, dim=1)) / 2)
        else:
            parts.append((embeddings - center).norm(dim=1))
    return torch.cat(parts).double().numpy().reshape(len(panel), -1)
