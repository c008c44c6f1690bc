"""GraphSAGE (Hamilton et al. 2017, "Inductive representation learning on large graphs") with max-pool aggregators.

DISCREPANCY: all neighbours are read, not a sample of them, and vectors are not scaled to unit length, as in GO (Zhou et
al. 2020), whose graphs are placed whole.

Letters: N nodes, E edges, C width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class GraphSageLayer(nn.Module):
    """GraphSAGE: m_v = max over neighbours u of ReLU(W_pool h_u + b); h_v' = ReLU(W [h_v; m_v] + b). m_v is zero for a
    node without neighbours.

    >>> layer = GraphSageLayer(4)
    >>> layer(torch.zeros(3, 4), torch.tensor([[0, 1], [1, 0]])).shape
    torch.Size([3, 4])
    """

    def __init__(self, width: int):
        super().__init__()
        self.pool = nn.Linear(width, width)
        self.update = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Vectors (N, C) from vectors and edges (2, E), from the first row to the second."""
        messages = F.relu(self.pool(x))[edges[0]]  # (E, C)
        targets = edges[1].unsqueeze(1).expand_as(messages)
        # messages are not negative: a maximum with zeros changes none
        pooled = torch.zeros_like(x).scatter_reduce(0, targets, messages, "amax")
        return F.relu(self.update(torch.cat([x, pooled], dim=1)))
