"""The 2017 Transformer: its sizes, its ties, its initialisation, its gradients."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import headwise
from headwise import UserError
from headwise.blocks.residual import Dropout
from headwise.blocks.stack import count_parameters
from headwise.blocks.tables import POSITIONS
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.models.transformer import TransformerConfig


def build_tiny(**settings: Any) -> EncoderDecoder:
    return headwise.build("transformer-tiny", **{"vocab": 12, "dropout": 0.0, **settings})


def test_parameter_counts_of_the_published_sizes() -> None:
    counts = {
        "base": count_parameters(headwise.build("transformer-base", vocab=37_000, device="meta")),
        "base, no attention biases": count_parameters(
            headwise.build("transformer-base", device="meta", attention_bias=False)
        ),
        "big": count_parameters(headwise.build("transformer-big", device="meta")),
    }
    assert counts == {"base": 63_082_496, "base, no attention biases": 63_045_632, "big": 214_245_376}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor:UserWarning")
def test_the_base_stacks_are_those_of_torch_without_its_final_norms() -> None:
    with torch.device("meta"):
        theirs = sum(p.numel() for p in nn.Transformer().parameters())
    ours = headwise.build("transformer-base", device="meta")
    assert theirs == 44_140_544 == count_parameters(ours) - 37_000 * 512 + 2 * 2 * 512


def test_only_pre_norm_has_a_final_norm() -> None:
    post, pre = build_tiny(), build_tiny(wiring="pre")
    for side in ("encoder", "decoder"):
        assert isinstance(getattr(post, side).stack.final, nn.Identity)
        assert type(getattr(pre, side).stack.final).__name__ == "LayerNorm"
    assert count_parameters(pre) - count_parameters(post) == 2 * 2 * 32


@pytest.mark.parametrize(
    ("tie", "target_vocab", "tables"), [("all", 0, 1), ("target", 9, 2), ("none", 9, 3), ("auto", 9, 2)]
)
def test_ties(tie: str, target_vocab: int, tables: int) -> None:
    model = build_tiny(tie=tie, outputs=target_vocab)
    found = {id(m.weight) for m in (model.encoder.embed.table, model.decoder.embed.table, model.decoder.head.table)}
    assert len(found) == tables and model.vocab == (target_vocab or 12)


def test_one_table_for_two_vocabularies_is_refused() -> None:
    with pytest.raises(UserError, match="tie: one embedding table for source and target needs a shared vocabulary"):
        build_tiny(tie="all", outputs=9)


def test_shared_layers_are_stored_once() -> None:
    once, shared = build_tiny(encoder={"depth": 1}), build_tiny(encoder={"depth": 5, "shared": True})
    assert count_parameters(once) == count_parameters(shared)
    assert shared.encoder.stack.layer_numbers == (0,) * 5


def test_groups_of_shared_layers_have_their_own_weights() -> None:
    groups = build_tiny(encoder={"depth": 5, "shared": True, "groups": 2}).encoder.stack
    assert groups.layer_numbers == (0, 0, 0, 1, 1) and len(groups.layers) == 2
    layers = [["attention", "mlp"], ["mlp"]]
    inner = build_tiny(encoder={"depth": 6, "layers": layers, "shared": True, "groups": 2}).encoder.stack
    assert inner.layer_numbers == (0, 1, 0, 1, 2, 3) and [len(layer.parts) for layer in inner.layers] == [2, 1, 2, 1]
    with pytest.raises(UserError, match="groups: only layers that share weights have groups"):
        build_tiny(encoder={"groups": 2})
    with pytest.raises(UserError, match="groups: 3 do not fit 2 layers"):
        build_tiny(encoder={"depth": 2, "shared": True, "groups": 3})


def test_a_pattern_repeats() -> None:
    mlp, attention = {"kind": "mlp"}, {"kind": "attention"}
    model = build_tiny(encoder={"depth": 5, "layers": [[attention, mlp], [mlp]]})
    assert [len(layer.parts) for layer in model.encoder.stack.layers] == [2, 1, 2, 1, 2]


def test_initial_embeddings_have_unit_variance() -> None:
    torch.manual_seed(0)
    model = build_tiny(vocab=5000, positions="none")
    vectors = model.encoder.embed(torch.arange(5000).unsqueeze(0)).x
    assert vectors.var().item() == pytest.approx(1, rel=0.02)
    spread = model.encoder.stack.layers[0].parts[0].qkv.project.weight.chunk(3)[0].std().item()
    assert spread == pytest.approx(math.sqrt(2 / (32 + 32)), rel=0.1)  # Xavier for each of q, k, v by itself


def last_norms(wiring: str, depth: int) -> list[float]:
    """The gradient norm of each decoder layer's last matrix, at the start of training."""
    torch.manual_seed(0)
    model = build_tiny(vocab=50, wiring=wiring, encoder={"depth": 2}, decoder={"depth": depth})
    source, target, labels = torch.randint(4, 50, (3, 8, 12)).unbind(0)
    loss = model(source, target, labels=labels)
    (loss.total / loss.count).backward()
    return [layer.parts[-1].outer.weight.grad.norm().item() for layer in model.decoder.stack.layers]


def test_gradients_of_pre_are_flat_and_those_of_post_grow_to_the_output() -> None:
    """Xiong et al. (2020): at the last layer O(1) for post whatever the depth, O(1 / sqrt(depth)) for pre."""
    pre, post = last_norms("pre", 12), last_norms("post", 12)
    assert max(pre) < 3 * min(pre)
    assert post[-1] > 4 * post[0]
    assert last_norms("pre", 3)[-1] / pre[-1] == pytest.approx(math.sqrt(12 / 3), rel=0.3)
    assert last_norms("post", 3)[-1] / post[-1] == pytest.approx(1, rel=0.3)


def test_dropout_is_where_the_paper_has_it() -> None:
    """On embedding + position and on the output of each sublayer, nowhere else."""
    model = build_tiny(dropout=0.1)
    names = [name for name, module in model.named_modules() if isinstance(module, Dropout)]
    assert len(names) == 2 + 2 * 2 + 2 * 3
    assert all(name.endswith(("embed.drop", *(f"adds.{i}.drop" for i in range(3)))) for name in names)


@pytest.mark.parametrize("positions", sorted(set(POSITIONS.names) - {"tree", "grid", "fourier"}))  # of trees and images
def test_positions_fit_attentions_with_heads_of_their_own(positions: str) -> None:
    own = {"kind": "attention", "heads": 2}
    narrow = {"kind": "attention", "heads": 3, "head_width": 6}
    model = build_tiny(positions=positions, encoder={"depth": 3, "layers": [[own], [narrow], ["attention"]]}).eval()
    ids = torch.randint(4, 12, (2, 5))
    assert model(ids, ids).shape == (2, 5, 12)


def test_t5_buckets_are_shared_by_all_layers_of_a_stack() -> None:
    model = build_tiny(positions="t5")
    tables = [
        {id(layer.parts[0].score_mods[0].table) for layer in getattr(model, side).stack.layers}
        for side in ("encoder", "decoder")
    ]
    assert len(tables[0]) == len(tables[1]) == 1 and tables[0] != tables[1]


def test_an_encoder_cannot_attend_to_a_memory() -> None:
    with pytest.raises(UserError, match="there is no memory in this stack"):
        build_tiny(encoder={"layers": [[{"kind": "attention", "attend_to": "memory"}]]})


def test_decoding_beyond_learned_positions_is_refused() -> None:
    model = build_tiny(positions={"kind": "learned", "max_length": 3}).eval()
    state = model.start(torch.tensor([[5, 6]]))
    for _ in range(3):
        _, state = model.step(torch.tensor([5]), state)
    with pytest.raises(UserError, match=r"does not fit the learned table of 3; set positions\.max_length"):
        model.step(torch.tensor([5]), state)


@pytest.mark.parametrize("heads", [3, 64])
def test_heads_must_divide_the_width(heads: int) -> None:
    with pytest.raises(UserError, match=f"a width of 32 cannot be divided among {heads} heads"):
        build_tiny(heads=heads)


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"transformer-tiny: widht: unknown key; did you mean width\?"):
        build_tiny(widht=3)


def test_training_in_low_precision_gives_nearly_the_same_loss() -> None:
    torch.manual_seed(0)
    model, ids = build_tiny(positions="alibi"), torch.randint(4, 12, (2, 5))
    exact = model(ids, ids, labels=ids, label_smoothing=0.1).total
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(ids, ids, labels=ids, label_smoothing=0.1).total
    loss.backward()
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_config_defaults_are_the_paper_s() -> None:
    config = TransformerConfig()
    assert (config.width, config.heads, config.encoder.depth, config.dropout) == (512, 8, 6, 0.1)
    assert (config.wiring.kind, config.norm.kind, config.positions.kind) == ("post", "layer", "sinusoid")


def test_settings_reach_their_parts() -> None:
    wide, own = {"kind": "mlp", "expand": 1.5}, {"kind": "mlp", "hidden": 7, "activation": "swiglu"}
    model = build_tiny(encoder={"depth": 3, "layers": [[wide], [own], ["mlp"]]}, attention_dropout=0.2, positions="t5")
    assert [layer.parts[0].outer.in_features for layer in model.encoder.stack.layers] == [48, 7, 128]
    assert [layer.parts[0].gated for layer in model.encoder.stack.layers] == [False, True, False]
    looks = [part for layer in model.decoder.stack.layers for part in layer.parts[:2]]
    assert all(part.dropout == 0.2 for part in looks)
    assert not looks[0].score_mods[0].both_ways
    assert build_tiny(positions="t5").encoder.stack.layers[0].parts[0].score_mods[0].both_ways
