"""AlphaFold 2 (Jumper et al. 2021, "Highly accurate protein structure prediction with AlphaFold"): the structure of a
protein from its sequence and an alignment of relatives.

Algorithm 2 of the supplement: features are embedded (Algorithms 3-5, 16, 17, 32), an extra MSA stack (18) and the
Evoformer (6) update the alignment and the pairs, the structure module (20) places residues and atoms, and all of it is
run again on its own outputs (30, 31). Reference: the released code; modules are compared with those of transformers'
EsmForProteinFolding, which has no alignment.

Departures are told in the docstrings of the modules: those of the released code (DISCREPANCY), one sample of the
alignment for all cycles, and no ensembling over samples.

Letters: B proteins, S rows of the alignment, L residues, C width of the alignment, K width of the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from headwise.blocks.point_attention import PointAttentionSizes
from headwise.blocks.stream import Context
from headwise.config.base import Config
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry
from headwise.models.evoformer import EvoformerStack, MsaSizes, PairSizes
from headwise.models.folding_heads import FoldingHeads, Prediction
from headwise.models.folding_init import init_folding
from headwise.models.folding_inputs import InputEmbedding, Recycled, RecyclingEmbedding, TemplateEmbedding
from headwise.models.structure_module import StructureModule
from headwise.proteins.features import EXTRA_FEATURES, Features, MsaSettings, make_blank_features
from headwise.proteins.rigid_groups import get_beta, to_atom37
from headwise.utils.notebook import HtmlTree


class ExtraMsaConfig(Config):
    """The stack over the extra alignment, whose columns have global attention."""

    depth: int = Field(4, ge=0)
    width: int = Field(64, ge=1)
    heads: int = Field(8, ge=1)
    head_width: int = Field(8, ge=1)


class TemplateConfig(Config):
    """The stack over templates."""

    depth: int = Field(2, ge=0)
    width: int = Field(64, ge=1)
    heads: int = Field(4, ge=1)
    head_width: int = Field(16, ge=1)
    expand: int = Field(2, ge=1)


class StructureConfig(Config):
    """The structure module: `depth` layers with shared weights."""

    depth: int = Field(8, ge=1)
    width: int = Field(384, ge=1)
    heads: int = Field(12, ge=1)
    head_width: int = Field(16, ge=1)
    query_points: int = Field(4, ge=1)
    value_points: int = Field(8, ge=1)
    hidden: int = Field(128, ge=1)  # of the networks of torsion angles and pLDDT
    dropout: float = Field(0.1, ge=0, lt=1)

    @property
    def sizes(self) -> PointAttentionSizes:
        return PointAttentionSizes(self.heads, self.head_width, self.query_points, self.value_points)


class AlphaFold2Config(ModelConfig):
    """`width`, `heads` and `head_width` are those of the alignment, `pair_...` those of the pairs."""

    tasks = ("fold",)
    kind: Literal["alphafold2"] = "alphafold2"
    depth: int = Field(48, ge=1)
    width: int = Field(256, ge=1)
    heads: int = Field(8, ge=1)
    head_width: int = Field(32, ge=1)
    pair_width: int = Field(128, ge=1)
    pair_heads: int = Field(4, ge=1)
    pair_head_width: int = Field(32, ge=1)
    expand: int = Field(4, ge=1)
    outer_width: int = Field(32, ge=1)  # of the outer product mean
    dropout: float = Field(0.15, ge=0, lt=1)  # of rows of the alignment
    pair_dropout: float = Field(0.25, ge=0, lt=1)
    extra_msa: ExtraMsaConfig = ExtraMsaConfig()
    template: TemplateConfig = TemplateConfig()
    structure: StructureConfig = StructureConfig()
    triangles: bool = True  # triangle multiplication and attention; without them, pairs have their transition alone
    recycles: int = Field(3, ge=0)  # cycles after the first; in training a random number of at most so many
    checkpointing: bool = False  # compute the activations of Evoformer blocks again in the backward pass

    @property
    def pair_sizes(self) -> PairSizes:
        sizes = (self.pair_width, self.pair_heads, self.pair_head_width, self.expand, self.pair_dropout)
        return PairSizes(*sizes, self.triangles)

    @property
    def msa_sizes(self) -> MsaSizes:
        return MsaSizes(self.width, self.heads, self.head_width, self.expand, self.outer_width, self.dropout)

    @property
    def extra_sizes(self) -> MsaSizes:
        extra = self.extra_msa
        sizes = (extra.width, extra.heads, extra.head_width, self.expand, self.outer_width, self.dropout)
        return MsaSizes(*sizes, global_columns=True)

    @property
    def template_sizes(self) -> PairSizes:
        t = self.template
        return PairSizes(t.width, t.heads, t.head_width, t.expand, self.pair_dropout, self.triangles)

    def build(self, vocab: int = 0, outputs: int = 0, task: str = "") -> Any:
        self.resolve_task(task)
        model = AlphaFold2(self)
        init_folding(model)
        return model


def disable_autocast(x: Tensor) -> AbstractContextManager[None]:
    """Leave mixed precision on the device of a tensor; the meta device, where costs are counted, has none."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)


class AlphaFold2(HtmlTree, nn.Module):
    """AlphaFold 2: features -> structure and confidences (Algorithm 2).

    >>> from headwise.proteins.features import MsaSettings, make_blank_features
    >>> model = AlphaFold2(ENTRY.configure("tiny")).eval()
    >>> model(make_blank_features(1, 5, MsaSettings(clusters=2, extra=3))).chain.atoms.shape
    torch.Size([1, 5, 14, 3])
    """

    def __init__(self, config: AlphaFold2Config):
        super().__init__()
        self.config, structure, template = config, config.structure, config.template
        width, pair_width = config.width, config.pair_width
        self.embedding = InputEmbedding(width, pair_width)
        self.recycling = RecyclingEmbedding(width, pair_width)
        self.template = TemplateEmbedding(width, pair_width, template.depth, config.template_sizes)
        self.extra_embedding = nn.Linear(EXTRA_FEATURES, config.extra_msa.width)
        stack = (config.pair_sizes, config.checkpointing)
        self.extra_stack = EvoformerStack(config.extra_msa.depth, config.extra_sizes, *stack)
        self.evoformer = EvoformerStack(config.depth, config.msa_sizes, *stack)
        self.to_single = nn.Linear(width, structure.width)
        self.structure = StructureModule(
            structure.width, pair_width, structure.sizes, structure.depth, structure.hidden, structure.dropout
        )
        self.heads = FoldingHeads(width, pair_width, structure.width, structure.hidden)

    def forward(self, features: Features, recycles: int = -1) -> Prediction:
        """Predict a batch of features; `recycles` is the number of cycles after the first, by default the model's, in
        training a random number up to it (Algorithm 31). Gradients flow through the last cycle alone."""
        if recycles < 0:
            most = self.config.recycles
            recycles = int(torch.randint(most + 1, ())) if self.training else most
        ctx = Context()
        recycled: Recycled | None = None
        for cycle in range(recycles + 1):
            last = cycle == recycles
            with torch.set_grad_enabled(torch.is_grad_enabled() and last):
                m, z, rows = self.run_trunk(features, recycled, ctx.at(cycle))
                m, z = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (m, z))
                with disable_autocast(z):  # geometry needs more than 8 bits
                    s = self.to_single(m[:, 0])
                    structure_ctx = ctx.at(cycle).at("structure")
                    chain = self.structure(s, z, features.residues, features.keep, ctx=structure_ctx)
            if not last:
                beta = get_beta(to_atom37(chain.atoms, features.residues)[0], features.residues)
                recycled = Recycled(m[:, 0], z, beta)
        with disable_autocast(z):
            return self.heads(m[:, :rows], z, s, chain)

    def run_trunk(self, features: Features, recycled: Recycled | None, ctx: Context) -> tuple[Tensor, Tensor, int]:
        """One cycle of the trunk (Algorithm 2, lines 4-18): alignment (B, S + T, L, C), pairs (B, L, L, K), and S."""
        m, z = self.embedding(features)
        m, z = self.recycling(m, z, recycled if recycled is not None else Recycled.zeros(m, z))
        rows, msa_keep = m.shape[1], features.msa_keep
        pair_keep = features.keep.unsqueeze(2) & features.keep.unsqueeze(1)  # (B, L, L)
        if features.template_keep.shape[1]:
            z = z + self.template.embed_pairs(z, pair_keep, features, ctx.at("template"))
            m = torch.cat((m, self.template.embed_torsions(features)), dim=1)
            template_keep = features.template_keep.unsqueeze(-1) & features.keep.unsqueeze(1)  # (B, T, L)
            msa_keep = torch.cat((msa_keep, template_keep), dim=1)
        if features.extra.shape[1]:
            extra = self.extra_embedding(features.extra)
            _, z = self.extra_stack(extra, z, features.extra_keep, pair_keep, ctx.at("extra"))
        m, z = self.evoformer(m, z, msa_keep, pair_keep, ctx.at("evoformer"))
        return m, z, rows

    def make_blank_inputs(self, rows: int, length: int, device: str = "meta") -> tuple[Features]:
        """Features with an alignment of the published size, to count costs."""
        return (make_blank_features(rows, length, MsaSettings(), templates=4, device=device),)


SMALL: dict[str, Any] = {
    "depth": 4,
    "width": 64,
    "heads": 4,
    "head_width": 16,
    "pair_width": 32,
    "pair_heads": 2,
    "pair_head_width": 16,
    "expand": 2,
    "outer_width": 8,
    "dropout": 0.0,
    "pair_dropout": 0.0,
    "extra_msa": {"depth": 1, "width": 16, "heads": 2, "head_width": 8},
    "template": {"depth": 1, "width": 16, "heads": 2, "head_width": 8},
    "structure": {"depth": 4, "width": 64, "heads": 4, "head_width": 16, "hidden": 64, "dropout": 0.0},
    "recycles": 1,
}
TINY: dict[str, Any] = {
    **SMALL,
    "depth": 1,
    "width": 16,
    "heads": 2,
    "head_width": 8,
    "pair_width": 16,
    "pair_head_width": 4,
    "outer_width": 4,
    "dropout": 0.1,
    "extra_msa": {"depth": 1, "width": 8, "heads": 2, "head_width": 4},
    "template": {"depth": 1, "width": 8, "heads": 2, "head_width": 4},
    "structure": {
        "depth": 2,
        "width": 32,
        "heads": 2,
        "head_width": 8,
        "query_points": 2,
        "value_points": 2,
        "hidden": 16,
    },
}
SIZES: Mapping[str, Mapping[str, Any]] = {"base": {}, "small": SMALL, "tiny": TINY}

ENTRY = Entry(
    name="alphafold2",
    paper="Jumper et al., Highly accurate protein structure prediction with AlphaFold",
    year=2021,
    family="folding",
    config=AlphaFold2Config,
    sizes=SIZES,
    vocab=0,
    published={"base": "93M"},
    checks=(
        Check(
            "transformers.EsmForProteinFolding (triangles, structure module)",
            "tests/parity/test_esmfold.py::test_structure_module",
            "transformers",
        ),
        Check("the supplement's modules, counted", "tests/models/test_alphafold2.py::test_parameters_of_each_module"),
    ),
)
