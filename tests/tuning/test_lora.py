"""LoRA: where it begins, what it learns, and that merging changes nothing."""

import pytest
import torch

from headwise import UserError, build
from headwise.decode.config import DecodeConfig
from headwise.decode.driver import decode
from headwise.decode.int8 import quantize
from headwise.decode.weight_layout import to_column_major
from headwise.models.encoder_decoder import EncoderDecoder
from headwise.testing import assert_parity
from headwise.tuning.config import LoraConfig, TuningConfig
from headwise.tuning.freezing import apply_tuning
from headwise.tuning.lora import LoraLinear, add_lora, merge_lora

MODELS = [("gpt2-tiny", ""), ("llama-tiny", ""), ("transformer-tiny", "transduce"), ("bert-tiny", "classify")]
IDS = torch.tensor([[5, 6, 7, 8, 2], [9, 10, 11, 2, 0]])


def made(name: str, task: str = ""):
    return build(name, vocab=50, task=task).eval()


def outputs(model):
    return model(IDS, IDS) if isinstance(model, EncoderDecoder) else model(IDS)


@torch.no_grad()
def away(form, model) -> float:
    """How far a form's outputs are from the model's, as a share of them."""
    wanted = outputs(model)
    return float((outputs(form) - wanted).norm() / wanted.norm())


def disturb(model) -> None:
    """As after some training."""
    for module in model.modules():
        if isinstance(module, LoraLinear):
            torch.nn.init.normal_(module.up, std=0.3)


@pytest.mark.parametrize(("name", "task"), MODELS)
def test_lora_starts_as_the_base_model_and_merges_into_plain_layers(name, task):
    model = made(name, task)
    before, names = outputs(model), list(model.state_dict())
    add_lora(model, LoraConfig(rank=3, targets=("*",)))
    assert torch.equal(outputs(model), before)
    disturb(model)
    adapted = outputs(model)
    assert (adapted - before).abs().max() > 0.01
    merge_lora(model)
    assert_parity(outputs(model), adapted)
    assert list(model.state_dict()) == names and not any(isinstance(module, LoraLinear) for module in model.modules())


def test_only_lora_matrices_and_the_head_are_trained():
    model = made("gpt2-tiny", "classify")
    apply_tuning(model, TuningConfig(lora={"rank": 2, "targets": ["*qkv.project", "*.outer"]}))
    learning = {name: weight.numel() for name, weight in model.named_parameters() if weight.requires_grad}
    each = 2 * (32 + 96) + 2 * (128 + 32)  # the fused product, and the second map of the feed-forward network
    head = {name: count for name, count in learning.items() if name.startswith("head.")}
    assert sum(learning.values()) == 2 * each + sum(head.values()) and sum(head.values()) == 50 * 32 + 50
    assert {name.rpartition(".")[2] for name in learning if name not in head} == {"up", "down"}


@pytest.mark.parametrize("name", ["gpt2-tiny", "transformer-tiny"])
def test_an_unmerged_model_decodes_the_same_in_every_form(name):
    torch.manual_seed(0)  # some random models have two words that are nearly as likely, and 8 bits decide otherwise
    model = made(name)
    add_lora(model, LoraConfig(rank=2))
    disturb(model)
    plain = made(name)
    plain.load_state_dict(model.state_dict(), strict=False)
    settings = DecodeConfig(max_ratio=0, max_extra=6)

    def written(form):
        return [found[0] for found in decode(form, [[5, 6], [7, 8]], settings, torch.device("cpu"))]

    wanted = written(model)
    assert [each.ids for each in wanted] != [each.ids for each in written(plain)]
    for found, right in zip(written(to_column_major(model)), wanted, strict=True):
        assert found.log_prob == pytest.approx(right.log_prob, abs=1e-5)
    assert away(quantize(model, min_weights=1), model) < 0.05 < away(plain, model)
    merge_lora(model)
    assert [each.ids for each in written(model)] == [each.ids for each in wanted]


def test_dropout_is_only_in_training():
    wrapped = LoraLinear(torch.nn.Linear(8, 8), rank=2, dropout=0.5)
    torch.nn.init.ones_(wrapped.up)
    x = torch.randn(4, 8)
    assert not torch.equal(wrapped(x), wrapped(x))
    wrapped.eval()
    assert torch.equal(wrapped(x), wrapped(x))


def test_targets_without_a_match_are_an_error():
    with pytest.raises(UserError, match=r"tuning\.lora\.targets: .*'\*qkv\.projekt'; the nearest are .*qkv\.project"):
        add_lora(made("gpt2-tiny"), LoraConfig(rank=2, targets=("*qkv.projekt",)))
