"""Hidden tokens and silent heads: what the maths says of a model without them."""

import pytest
import torch

from headwise import UserError, build, record
from headwise.blocks.intervene import intervene, survey
from headwise.blocks.stream import NO_RECORD, RECORDER

close = torch.testing.assert_close
SOURCE, TARGET = torch.tensor([[5, 6, 7, 8, 2]]), torch.tensor([[1, 9, 10, 11]])


def made(name="transformer-tiny", **settings):
    torch.manual_seed(0)
    return build(name, vocab=20, **settings).eval().double()


def on(*places, length):
    return torch.zeros(1, length, dtype=torch.bool).index_fill_(1, torch.tensor(places, dtype=torch.long), True)


@torch.no_grad()
@pytest.mark.parametrize("place", [("encoder", 0, 0), ("decoder", 1, 0), ("decoder", 0, 1)])
def test_a_silent_head_is_one_whose_output_weights_are_zero(place):
    model = made()
    with intervene(heads={place: on(1, length=4)}):
        found = model(SOURCE, TARGET)
    part = getattr(model, place[0]).stack.layers[place[1]].parts[place[2]]
    part.out.weight.unflatten(1, (4, -1))[:, 1] = 0
    close(found, model(SOURCE, TARGET))


@torch.no_grad()
def test_a_silent_part_gives_nothing_not_even_its_bias():
    model = made()
    part = model.decoder.stack.layers[0].parts[1]
    part.out.bias += 1
    with intervene(parts={("decoder", 0, 1): torch.tensor([True])}):
        found = model(SOURCE, TARGET)
    part.out.weight.zero_()
    part.out.bias.zero_()
    close(found, model(SOURCE, TARGET))


@torch.no_grad()
@pytest.mark.parametrize("kernel", ["auto", "plain", "chunked"])
def test_hiding_the_last_tokens_of_a_source_is_not_having_them(kernel):
    attention = {"kind": "attention", "kernel": kernel}
    model = made(mixer=attention, cross_attention={**attention, "attend_to": "memory"})
    with intervene(hide={"encoder": on(3, 4, length=5)}):
        found = model(SOURCE, TARGET)
    close(found, model(SOURCE[:, :3], TARGET))


@torch.no_grad()
def test_rows_have_changes_of_their_own():
    model, place = made(), ("decoder", 0, 0)
    heads, hide = torch.eye(4, dtype=torch.bool)[:3], torch.eye(5, dtype=torch.bool)[:3]
    with intervene(heads={place: heads}, hide={"encoder": hide}):
        together = model(SOURCE.expand(3, -1), TARGET.expand(3, -1))
    for row in range(3):
        with intervene(heads={place: heads[row : row + 1]}, hide={"encoder": hide[row : row + 1]}):
            close(together[row : row + 1], model(SOURCE, TARGET))


@torch.no_grad()
@pytest.mark.parametrize("name", ["transformer-tiny", "bahdanau-tiny", "luong-tiny"])
def test_decoding_step_by_step_is_changed_as_a_whole_pass_is(name):
    model = made(name)
    with survey() as found:
        model(SOURCE, TARGET)
    place = found.list_paths("cross")[-1]
    heads = {place: on(0, length=found.head_counts[place])}
    for change in ({"hide": {"encoder": on(1, length=5)}}, {"heads": heads}):
        with intervene(**change):
            whole, state = model(SOURCE, TARGET), model.start(SOURCE)
            for place_in_text, token in enumerate(TARGET[0]):
                logits, state = model.step(token[None], state)
                close(logits[0], whole[0, place_in_text])
        assert not torch.allclose(whole, model(SOURCE, TARGET))


@torch.no_grad()
def test_a_language_model_hides_what_it_read_and_sees_what_it_writes():
    model, text = made("gpt-tiny"), torch.tensor([[1, 5, 6, 7, 8]])
    with record() as maps, intervene(hide={"decoder": on(1, length=3)}):
        model(text)
    weights = maps.by_kind()["decoder"]
    assert (weights[..., 1] == 0).all() and (weights[..., -1, [0, 2, 3, 4]] > 0).all()


@torch.no_grad()
def test_records_inside_and_outside_see_the_same():
    model, hide = made(), {"encoder": on(2, length=5)}
    with record() as outside, intervene(hide=hide):
        first = model(SOURCE, TARGET)
    with intervene(hide=hide), record() as inside:
        second = model(SOURCE, TARGET)
    close(first, second)
    for kind, weights in outside.by_kind().items():
        assert (weights == inside.by_kind()[kind]).all()
    assert RECORDER.get() is NO_RECORD


@torch.no_grad()
def test_mixers_without_looks_can_be_silenced_but_hide_nothing():
    model = made(mixer="linear")
    with survey() as found:
        model(SOURCE, TARGET)
    assert found.head_counts["encoder", 0, 0] == 4 and ("encoder", 0, 0) not in found.keys
    with pytest.raises(UserError, match="hidden"), intervene(hide={"encoder": on(1, length=5)}):
        model(SOURCE, TARGET)
    with intervene(heads={("encoder", 0, 0): on(1, length=4)}):
        changed = model(SOURCE, TARGET)
    assert not torch.allclose(changed, model(SOURCE, TARGET))
