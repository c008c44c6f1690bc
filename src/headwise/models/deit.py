"""Data-efficient image Transformer (Touvron et al. 2021): a ViT whose second mark, the distillation token, learns what
a teacher says (`task.teacher`). At test time both heads count equally (section 4).

Without the second mark it is a ViT, trained as the paper does (experiments/fashion-deit.toml).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from torch import nn

from headwise.models.entry import Check, Entry
from headwise.models.vit import ViTConfig


class DeiTConfig(ViTConfig):
    kind: Literal["deit"] = "deit"  # type: ignore[assignment]
    class_tokens: int = Field(2, ge=1)
    class_heads: int = Field(0, ge=0)  # how many class_tokens have a head, the first ones; 0: all
    drop_path: float = Field(0.1, ge=0, lt=1)

    def build_heads(self, outputs: int) -> list[nn.Module]:
        return super().build_heads(outputs)[: self.class_heads or self.class_tokens]


PLAIN = {"class_tokens": 1}
TI, S = {"width": 192, "heads": 3}, {"width": 384, "heads": 6}
SIZES: dict[str, dict[str, Any]] = {
    "b-distilled": {},
    "s-distilled": S,
    "ti-distilled": TI,
    "b-distilled-384": {"image": 384},
    "b": PLAIN,
    "s": {**PLAIN, **S},
    "ti": {**PLAIN, **TI},
    "b-384": {**PLAIN, "image": 384},
    "tiny": {"image": 16, "channels": 1, "patch": 4, "width": 32, "heads": 4, "depth": 2},
}

ENTRY = Entry(
    name="deit",
    paper="Touvron et al., Training data-efficient image transformers & distillation through attention",
    year=2021,
    family="vision",
    config=DeiTConfig,
    sizes=SIZES,
    vocab=0,
    outputs=1000,
    published={"b": "86M", "s": "22M", "ti": "5M"},
    checks=(
        Check(
            "transformers.DeiTForImageClassificationWithTeacher",
            "tests/parity/test_hf_vit.py::test_both_heads_of_a_distilled_model_are_theirs",
            "transformers",
        ),
        Check("timm deit_*_distilled (by hand, outside the test suite)", "benchmarks/timm_parity.py", "timm"),
    ),
)
