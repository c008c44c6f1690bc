"""Ablation of tokens, heads and parts, against models without them."""

import pytest
import torch

from headwise import UserError, build, record
from headwise.blocks.intervene import intervene, survey
from headwise.blocks.stream import NO_RECORD, RECORDER

close = torch.testing.assert_close
SOURCE, TARGET = torch.tensor([[5, 6, 7, 8, 2]]), torch.tensor([[1, 9, 10, 11]])


def build_model(name="transformer-tiny", **settings):
    torch.manual_seed(0)
    return build(name, vocab=20, **settings).eval().double()


def make_mask(*places, length):
    return torch.zeros(1, length, dtype=torch.bool).index_fill_(1, torch.tensor(places, dtype=torch.long), True)


@torch.no_grad()
@pytest.mark.parametrize("place", [("encoder", 0, 0), ("decoder", 1, 0), ("decoder", 0, 1)])
def test_an_ablated_head_equals_zero_output_weights(place):
    model = build_model()
    with intervene(heads={place: make_mask(1, length=4)}):
        outputs = model(SOURCE, TARGET)
    part = getattr(model, place[0]).stack.layers[place[1]].parts[place[2]]
    part.out.weight.unflatten(1, (4, -1))[:, 1] = 0
    close(outputs, model(SOURCE, TARGET))


@torch.no_grad()
def test_an_ablated_part_outputs_zeros_without_its_bias():
    model = build_model()
    part = model.decoder.stack.layers[0].parts[1]
    part.out.bias += 1
    with intervene(parts={("decoder", 0, 1): torch.tensor([True])}):
        outputs = model(SOURCE, TARGET)
    part.out.weight.zero_()
    part.out.bias.zero_()
    close(outputs, model(SOURCE, TARGET))


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["auto", "plain", "chunked"])
def test_hiding_the_last_tokens_of_a_source_equals_removing_them(kernel):
    attention = {"kind": "attention", "kernel": kernel}
    model = build_model(mixer=attention, cross_attention={**attention, "attend_to": "memory"})
    with intervene(hide={"encoder": make_mask(3, 4, length=5)}):
        outputs = model(SOURCE, TARGET)
    close(outputs, model(SOURCE[:, :3], TARGET))


@torch.no_grad()
def test_rows_are_ablated_separately():
    model, place = build_model(), ("decoder", 0, 0)
    heads, hide = torch.eye(4, dtype=torch.bool)[:3], torch.eye(5, dtype=torch.bool)[:3]
    with intervene(heads={place: heads}, hide={"encoder": hide}):
        together = model(SOURCE.expand(3, -1), TARGET.expand(3, -1))
    for row in range(3):
        with intervene(heads={place: heads[row : row + 1]}, hide={"encoder": hide[row : row + 1]}):
            close(together[row : row + 1], model(SOURCE, TARGET))


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer-tiny", "bahdanau-tiny", "luong-tiny"])
def test_decoding_step_by_step_is_ablated_like_one_forward_pass(name):
    model = build_model(name)
    with survey() as layers:
        model(SOURCE, TARGET)
    place = layers.list_paths("cross")[-1]
    heads = {place: make_mask(0, length=layers.head_counts[place])}
    for change in ({"hide": {"encoder": make_mask(1, length=5)}}, {"heads": heads}):
        with intervene(**change):
            whole, state = model(SOURCE, TARGET), model.start(SOURCE)
            for place_in_text, token in enumerate(TARGET[0]):
                logits, state = model.step(token[None], state)
                close(logits[0], whole[0, place_in_text])
        assert not torch.allclose(whole, model(SOURCE, TARGET))


@torch.no_grad()
def test_a_language_model_hides_prompt_tokens_and_attends_to_generated_ones():
    model, text = build_model("gpt-tiny"), torch.tensor([[1, 5, 6, 7, 8]])
    with record() as maps, intervene(hide={"decoder": make_mask(1, length=3)}):
        model(text)
    weights = maps.stack_by_kind()["decoder"]
    assert (weights[..., 1] == 0).all() and (weights[..., -1, [0, 2, 3, 4]] > 0).all()


@torch.no_grad()
def test_records_inside_and_outside_are_equal():
    model, hide = build_model(), {"encoder": make_mask(2, length=5)}
    with record() as outside, intervene(hide=hide):
        first = model(SOURCE, TARGET)
    with intervene(hide=hide), record() as inside:
        second = model(SOURCE, TARGET)
    close(first, second)
    for kind, weights in outside.stack_by_kind().items():
        assert (weights == inside.stack_by_kind()[kind]).all()
    assert RECORDER.get() is NO_RECORD


@torch.no_grad()
def test_mixers_without_scores_ablate_heads_but_hide_no_tokens():
    model = build_model(mixer="linear")
    with survey() as layers:
        model(SOURCE, TARGET)
    assert layers.head_counts["encoder", 0, 0] == 4 and ("encoder", 0, 0) not in layers.keys
    with pytest.raises(UserError, match="hidden"), intervene(hide={"encoder": make_mask(1, length=5)}):
        model(SOURCE, TARGET)
    with intervene(heads={("encoder", 0, 0): make_mask(1, length=4)}):
        changed = model(SOURCE, TARGET)
    assert not torch.allclose(changed, model(SOURCE, TARGET))
