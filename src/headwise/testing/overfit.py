"""Training on one batch, for checks that a model can learn."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

# Mean loss at which a batch is learnt: of up to 23 labels, one that is wrong adds more, as -log(1/2) / 23 > 0.03.
LEARNT = 0.03
INTERVAL = 10  # steps between evaluations


def overfit_batch(model: nn.Module, compute_loss: Callable[[], Tensor], steps: int, lr: float) -> None:
    """Train a model on one batch with Adam for at most `steps` steps, until the mean loss in evaluation mode is below
    `LEARNT`; leave it in evaluation mode."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    model.train()
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = compute_loss()
        loss.backward()
        optimizer.step()
        if step % INTERVAL == 0 and loss < LEARNT:
            model.eval()
            with torch.no_grad():
                if compute_loss() < LEARNT:
                    return
            model.train()
    model.eval()
