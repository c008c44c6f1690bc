"""Weight initialisation of AlphaFold 2 (Jumper et al. 2021, supplement, section 1.11.4).

Linear layers are LeCun-normal with biases of 0, projections of attention Xavier-uniform, layers before a ReLU
He-normal. Gates start open, at sigmoid(1), and the last layer of every residual branch at 0: a block starts as the
identity.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

from headwise.blocks.attention.gated import GatedAttention
from headwise.blocks.attention.multihead import Attention, CrossProjection, SelfProjection
from headwise.blocks.axial import GlobalColumnAttention
from headwise.blocks.feedforward import FeedForward
from headwise.blocks.pair_updates import OuterProductMean, TriangleMultiplication
from headwise.blocks.point_attention import InvariantPointAttention
from headwise.models.folding_heads import FoldingHeads
from headwise.models.structure_module import StructureModule, TorsionBlock, Transition

Init = Callable[[nn.Linear], None]


def init_lecun(linear: nn.Linear, gain: float = 1.0) -> None:
    nn.init.trunc_normal_(linear.weight, std=math.sqrt(gain / linear.in_features))
    init_bias(linear, 0.0)


def init_he(linear: nn.Linear) -> None:
    init_lecun(linear, gain=2.0)


def init_xavier(linear: nn.Linear, blocks: int = 1) -> None:
    for block in linear.weight.chunk(blocks):
        nn.init.xavier_uniform_(block)
    init_bias(linear, 0.0)


def init_open(linear: nn.Linear) -> None:
    """A gate that is open: sigmoid(1)."""
    nn.init.zeros_(linear.weight)
    init_bias(linear, 1.0)


def init_zero(linear: nn.Linear) -> None:
    nn.init.zeros_(linear.weight)
    init_bias(linear, 0.0)


def init_bias(linear: nn.Linear, value: float) -> None:
    if linear.bias is not None:
        nn.init.constant_(linear.bias, value)


SCHEMES: dict[type[nn.Module], dict[str, Init]] = {  # of the linear layers of a module, by their names
    SelfProjection: {"project": lambda linear: init_xavier(linear, blocks=3)},
    CrossProjection: {"query": init_xavier, "project": lambda linear: init_xavier(linear, blocks=2)},
    Attention: {"out": init_zero},
    GatedAttention: {"out": init_zero, "gate": init_open},
    GlobalColumnAttention: {"query": init_xavier, "key_value": init_xavier, "out": init_zero, "gate": init_open},
    TriangleMultiplication: {"project_gate": init_open, "gate": init_open, "out": init_zero},
    OuterProductMean: {"out": init_zero},
    FeedForward: {"inner": init_he, "outer": init_zero},
    InvariantPointAttention: {"out": init_zero},
    Transition: {"layers.0": init_he, "layers.2": init_he, "layers.4": init_zero},
    TorsionBlock: {"layers.1": init_he, "layers.3": init_zero},
    StructureModule: {"backbone_update": init_zero},
    FoldingHeads: {
        "distogram": init_zero, "masked_msa": init_zero, "aligned_error": init_zero, "resolved": init_zero,
        "lddt.1": init_he, "lddt.3": init_he, "lddt.5": init_zero,
    },
}  # fmt: skip


def init_folding(model: nn.Module) -> None:
    """Initialise all linear layers of a model."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            init_lecun(module)
    for module in model.modules():
        for name, init in SCHEMES.get(type(module), {}).items():
            linear = module.get_submodule(name)
            assert isinstance(linear, nn.Linear)
            init(linear)
