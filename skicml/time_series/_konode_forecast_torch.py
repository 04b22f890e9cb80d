"""What a trained KoNODE says: forecasts, latents, parameters, vector field; numpy in and out."""

import copy

import torch
from sklearn.utils import gen_batches

# Steps that a forecast advances at once, and numbers in the table of theta meanwhile.
_SEGMENT = 32
_TABLE_SIZE = 2**22
# Trajectories advanced at once when all follow the same theta(t).
_SHARED_BATCH = 4096


class TrainedLevels:
    """The trained levels in double precision, so that batches do not change the last digits.

    Rows are standardised and times count sampling steps, as in training.

    Parameters
    ----------
    module : KoopmanODE
        The trained module; it is copied.
    """

    def __init__(self, module):
        self.module = copy.deepcopy(module).double().eval()

    @torch.no_grad()
    def forecast(self, contexts, start, n_steps):
        """Forecasts of any length, in pieces that bound the memory.

        Parameters
        ----------
        contexts : ndarray of shape (n_windows, context_length, n_channels)
            Rows to forecast from.
        start : ndarray of shape (n_windows,)
            Clock at the last row of each context.
        n_steps : int
            Number of steps.

        Returns
        -------
        forecasts : ndarray of shape (n_windows, n_steps, n_channels)
        """
        contexts, start = self._tensor(contexts), self._tensor(start)
        latent = self.module.initial(contexts)
        forecasts = contexts.new_empty(len(contexts), n_steps, contexts.shape[2])
        for batch in gen_batches(len(contexts), self._batch_size(latent, start, n_steps)):
            state = contexts[batch, -1]
            batch_latent = latent if latent.ndim == 1 else latent[batch]
            for steps in gen_batches(n_steps, _SEGMENT):
                forecasts[batch, steps] = self.module.solve(
                    state, batch_latent, start[batch] + steps.start, steps.stop - steps.start
                )
                state = forecasts[batch, steps.stop - 1]
        return forecasts.cpu().numpy()

    @torch.no_grad()
    def koopman_trajectory(self, contexts, times):
        """w at some times, of shape (n_windows, n_times, 2r), or (n_times, 2r) if all share it."""
        return self._states(contexts, times).cpu().numpy()

    @torch.no_grad()
    def parameter_trajectory(self, contexts, times):
        """theta at some times, shaped like :meth:`koopman_trajectory`."""
        layers = self.module.decoder(self._states(contexts, times))
        return torch.cat([layer.flatten(-2) for layer in layers], dim=-1).cpu().numpy()

    @torch.no_grad()
    def vector_field(self, rows, contexts, time):
        """f(x; theta(time)) a step, for each row with its own context or one for all."""
        rows, latent = self._tensor(rows), self.module.initial(self._tensor(contexts))
        if latent.ndim == 2 and len(latent) == 1:
            latent = latent[0]
        layers = self.module.parameters_at(latent, self._tensor(time))
        states = rows if latent.ndim == 1 else rows[:, None]
        return self.module.field(states, layers).reshape(rows.shape).cpu().numpy()

    @torch.no_grad()
    def eigenvalues(self):
        """a + ib of each mode, a step."""
        flow = self.module.flow
        return torch.complex(flow.growth(), flow.frequencies()).cpu().numpy()

    def _states(self, contexts, times):
        latent = self.module.initial(self._tensor(contexts))
        return self.module.flow(latent[..., None, :], self._tensor(times))

    def _batch_size(self, latent, start, n_steps):
        if self.module.shares_parameters(latent, start):
            return _SHARED_BATCH
        n_stages = self.module.n_stages(min(n_steps, _SEGMENT))
        return max(1, _TABLE_SIZE // (self.module.n_parameters * n_stages))

    def _tensor(self, array):
        return torch.as_tensor(array, dtype=torch.float64, device=self.module.increments.device)
