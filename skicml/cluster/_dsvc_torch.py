"""The network of DSVC: one autoencoder a view, trained under the guidance of the stream."""

import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import nn
from torch.nn import functional as F

from skicml._torch import SeededNet, fit_net, resolve_device
from skicml.cluster._dsvc import NO_MASS, match_partitions

# Rows that are encoded at once: bounds the memory of the hidden layers.
_CHUNK = 8192
# Fewer rows than this make poor statistics for the batch norm: such a last batch is left out.
_MIN_BATCH_SIZE = 8


class ViewAutoencoder(nn.Module):
    """Fully connected autoencoder whose latent features are centred by a batch norm.

    Without the batch norm all cosines between latents would be close to 1.

    Parameters
    ----------
    n_features : int
        Width of the view.
    n_components : int
        Number of latent features.
    hidden_layer_sizes : sequence of int
        Widths of the encoder's hidden layers; the decoder mirrors them.
    """

    def __init__(self, n_features, n_components, hidden_layer_sizes):
        super().__init__()
        widths = [n_features, *hidden_layer_sizes, n_components]
        self.encoder = nn.Sequential(
            *_dense_layers(widths), nn.BatchNorm1d(n_components, affine=False)
        )
        self.decoder = nn.Sequential(*_dense_layers(widths[::-1]))

    def forward(self, X):
        latents = self.encoder(X)
        return F.normalize(latents), self.decoder(latents)


def _dense_layers(widths):
    """Linear layers of these widths with a ReLU between two of them."""
    layers = []
    for n_inputs, n_outputs in pairwise(widths):
        layers += [nn.Linear(n_inputs, n_outputs), nn.ReLU()]
    return layers[:-1]


@torch.no_grad()
def encode(module, X):
    """Unit latents of all rows of the tensor X, in evaluation mode."""
    module.eval()
    return torch.cat([F.normalize(module.encoder(rows)) for rows in X.split(_CHUNK)])


def _finite(latents):
    """The latents of the training rows, after a check that training has not diverged."""
    if not torch.isfinite(latents).all():
        raise ValueError(
            "The latent features of a view are not finite: training diverged. Lower "
            "learning_rate, or scale values that are too large to be squared."
        )
    return latents


class Guidance:
    """Prototypes of one view, and the targets that they and the history set for its samples.

    Parameters
    ----------
    n_clusters : int
        Number of clusters k.
    partition : tensor of shape (n_samples, k) or None
        Soft partition R of the views before; None for the first view.
    anchors : tensor of shape (k, n_components) or None
        Knowledge prototypes H of the views before; None for the first view.
    history_weight : float
        Largest share of the history in the targets.
    temperature : float
        Temperature of the softmax over cosines.
    n_init, random_state : int
        Of the k-means that starts the prototypes.

    Attributes
    ----------
    prototypes : tensor of shape (k, n_components)
        Prototypes P of the view, unit rows.
    agreement : float
        Chance-corrected agreement g of the view alone with R; 1 for the first view.
    share : float
        Share h of the history in the targets.
    """

    def __init__(
        self,
        n_clusters,
        *,
        partition,
        anchors,
        history_weight,
        temperature,
        n_init,
        random_state,
    ):
        self.n_clusters = n_clusters
        self.partition = partition
        self.anchors = anchors
        self.history_weight = history_weight
        self.temperature = temperature
        self.n_init = n_init
        self.random_state = random_state
        self.prototypes = None

    def start(self, latents):
        """Prototypes from a k-means on the sphere, matched to the history and mixed with it."""
        kmeans = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
        labels = torch.as_tensor(kmeans.fit_predict(latents.cpu().numpy()), dtype=torch.long)
        own = F.one_hot(labels, self.n_clusters).to(latents)
        self.agreement, self.share = 1.0, 0.0
        if self.partition is not None:
            order, self.agreement = match_partitions(
                self.partition.cpu().numpy(), own.cpu().numpy()
            )
            own = own[:, order]
            self.share = self.history_weight * self.agreement
        self.prototypes = F.normalize(self._mix(own).T @ latents)

    def _mix(self, own):
        """(1 - h) own + h R: the view's own partition, mixed with the history."""
        if self.partition is None:
            return own
        return (1 - self.share) * own + self.share * self.partition

    def log_assign(self, latents):
        """Logarithm of the soft assignment of latents to the prototypes."""
        return F.log_softmax(latents @ self.prototypes.T / self.temperature, dim=1)

    def move(self, latents):
        """Move the prototypes half the way to the means of their clusters."""
        assigned = self._mix(self.log_assign(latents).exp())
        means = F.normalize(assigned.T @ latents)
        moved = F.normalize(self.prototypes + means)
        has_mass = assigned.sum(dim=0) > NO_MASS
        self.prototypes = torch.where(has_mass[:, None], moved, self.prototypes)

    def targets(self, latents):
        """Sharpened targets T: the assignment geometrically mixed with the history."""
        log_guide = (self.log_assign(latents).exp() + 1e-6).log()
        if self.partition is not None:
            log_history = (self.partition + 1e-3).log()
            log_guide = (1 - self.share) * log_guide + self.share * log_history
        guide = F.softmax(log_guide, dim=1)
        sharp = guide**2 / guide.sum(dim=0).clamp(min=NO_MASS)
        return sharp / sharp.sum(dim=1, keepdim=True)

    def divergence(self, latents, targets):
        """Knowledge guidance: mean KL(T_i || assignment of latent i)."""
        return F.kl_div(self.log_assign(latents), targets, reduction="batchmean")

    def inconsistency(self, latents):
        """Distribution consistency: cross-entropy of the batch's prototypes and the history's.

        For the first view the view's own prototypes stand in: that only spreads them.
        """
        means = F.normalize(self.log_assign(latents).exp().T @ latents)
        if self.anchors is None:
            anchors, weight = self.prototypes, 1.0
        else:
            anchors, weight = self.anchors, self.share
        own_class = torch.arange(self.n_clusters, device=latents.device)
        return weight * F.cross_entropy(means @ anchors.T / self.temperature, own_class)


class ViewNet(SeededNet):
    """Autoencoder of one view: pretrained, then trained jointly with its guidance.

    Parameters
    ----------
    module : type
        :class:`ViewAutoencoder`.
    guidance : Guidance
        Prototypes and targets; refreshed before every epoch of the joint training.
    pretrain_epochs : int
        Epochs of reconstruction alone.
    consistency_weight, guidance_weight : float
        Weights alpha and gamma of the losses.
    **kwargs : dict
        Other parameters of SeededNet.
    """

    def __init__(
        self,
        module,
        *,
        guidance,
        pretrain_epochs,
        consistency_weight,
        guidance_weight,
        **kwargs,
    ):
        super().__init__(module, **kwargs)
        self.guidance = guidance
        self.pretrain_epochs = pretrain_epochs
        self.consistency_weight = consistency_weight
        self.guidance_weight = guidance_weight

    @property
    def guided_(self):
        """Whether the joint training has begun."""
        return self.guidance.prototypes is not None

    def on_epoch_begin(self, net, dataset_train=None, **kwargs):
        super().on_epoch_begin(net, dataset_train=dataset_train, **kwargs)
        if len(self.history) <= self.pretrain_epochs:
            return
        latents = _finite(encode(self.module_, dataset_train.X))
        if self.guided_:
            self.guidance.move(latents)
        else:
            self.guidance.start(latents)
            self.set_params(lr=self.lr / 2)
            self.initialize_optimizer()
        dataset_train.y = self.guidance.targets(latents)

    def get_loss(self, y_pred, y_true, X=None, training=False):
        latents, reconstruction = y_pred
        loss = F.mse_loss(reconstruction, X)
        if self.guided_:
            loss = loss + self.guidance_weight * self.guidance.divergence(latents, y_true)
            loss = loss + self.consistency_weight * self.guidance.inconsistency(latents)
        return loss


@dataclass
class LearnedView:
    """What stays of a view: latents (n, p), one-view partition (n, k) and agreement g."""

    latents: np.ndarray
    partition: np.ndarray
    agreement: float


def fit_view(estimator, X, knowledge, rng, task):
    """Train the network of a new view.

    Parameters
    ----------
    estimator : DSVC
        Holds the parameters.
    X : ndarray of shape (n_samples, n_features)
        The standardised view.
    knowledge : object
        Has ``partition`` R and ``prototypes`` H of the views before, or None in both.
    rng : numpy.random.RandomState
        Source of the seeds.
    task : sklearn.callback.CallbackContext
        Every epoch becomes a subtask of it.

    Returns
    -------
    net : ViewNet
        The trained net on the CPU, without what only training needs.
    learned : LearnedView
        What the net says about the samples, in the dtype of X.
    """
    device = resolve_device(estimator.device)
    net_seed, kmeans_seed = rng.randint(2**31 - 1, size=2).tolist()
    guidance = Guidance(
        estimator.n_clusters,
        partition=_as_tensor(knowledge.partition, device),
        anchors=_as_tensor(knowledge.prototypes, device),
        history_weight=estimator.history_weight,
        temperature=estimator.temperature,
        n_init=estimator.n_init,
        random_state=kmeans_seed,
    )
    net = ViewNet(
        ViewAutoencoder,
        module__n_features=X.shape[1],
        module__n_components=estimator.n_components,
        module__hidden_layer_sizes=np.atleast_1d(estimator.hidden_layer_sizes).tolist(),
        guidance=guidance,
        pretrain_epochs=estimator.pretrain_epochs,
        consistency_weight=estimator.consistency,
        guidance_weight=estimator.guidance,
        lr=estimator.learning_rate,
        batch_size=estimator.batch_size,
        min_batch_size=_MIN_BATCH_SIZE,
        optimizer__fused=True,
        max_epochs=estimator.pretrain_epochs + estimator.max_epochs,
        device=device,
        seed=net_seed,
    )
    fit_net(net, X, estimator=estimator, context=task)
    if not net.guided_:  # training ended before the joint epochs
        guidance.start(_finite(encode(net.module_, _as_tensor(X, device))))
    net.trim()
    net.guidance = None
    latents = _finite(torch.as_tensor(encode_rows(net, X)))
    guidance.prototypes = guidance.prototypes.to(latents)
    partition = guidance.log_assign(latents).exp()
    return net, LearnedView(
        latents.numpy().astype(X.dtype), partition.numpy().astype(X.dtype), guidance.agreement
    )


def _as_tensor(array, device):
    if array is None:
        return None
    # A copy: torch warns about read-only memory, as of a knowledge base in a memmap.
    return torch.tensor(array, dtype=torch.float32, device=device)


def encode_rows(net, X):
    """Unit latents of the rows of the standardised array X, in double precision.

    In single precision a row's latents would depend, in the last digits, on the rows beside it.
    """
    module = copy.deepcopy(net.module_).double()
    return encode(module, torch.as_tensor(X, dtype=torch.float64)).numpy()
