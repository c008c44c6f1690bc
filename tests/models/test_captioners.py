"""The recurrent captioners: hard attention is trained by REINFORCE, and attention maps are recorded."""

import pytest
import torch

import headwise
from headwise.blocks.record import collect, record
from headwise.tasks.base import GenerationState, generation_loss

IMAGES, WORDS, LABELS = torch.randn(3, 1, 16, 16), torch.randint(4, 13, (3, 5)), torch.randint(4, 13, (3, 5))


@pytest.mark.parametrize("mods", [[], ["hard"]], ids=["soft", "hard"])
def test_attention_has_a_gradient(mods):
    """Soft attention by the loss, hard attention by REINFORCE alone."""
    torch.manual_seed(0)
    model = headwise.build("show-attend-tell-tiny", outputs=13, score_mods=mods, doubly_stochastic=0.0, dropout=0.0)
    state = GenerationState.of(model)
    assert state.reinforce == bool(mods)
    generation_loss(model, IMAGES, WORDS, labels=LABELS, label_smoothing=0.0, state=state).total.backward()
    score = model.decoder.stack.layers[0].parts[0].glimpse.score
    assert score.query.grad.abs().max() > 0 and score.key.grad.abs().max() > 0


def test_a_sampled_annotation_is_one_of_them():
    model = headwise.build("show-attend-tell-tiny", outputs=13, score_mods=["hard"]).train()
    with torch.no_grad(), collect("hard", "attention_weights") as side:
        model(IMAGES, WORDS)
    assert len(side.list_values("hard")) == 5
    assert all((log_p <= 0).all() for log_p in side.list_values("hard"))


@torch.no_grad()
def test_a_word_has_a_map_over_the_image():
    model = headwise.build("show-attend-tell-tiny", outputs=13).eval()
    with record() as maps:
        model(IMAGES[:1], WORDS[:1])
    ((weights,),) = maps.weights.values()
    assert weights.shape[-2] == 5 and torch.allclose(torch.as_tensor(weights).sum(-1), torch.tensor(1.0))


@torch.no_grad()
def test_the_image_of_show_and_tell_is_read_once():
    """Steps of decoding see the image in the state alone; another image gives other words."""
    model = headwise.build("show-and-tell-tiny", outputs=13).eval()
    logits = model(IMAGES, WORDS)
    state = model.start(IMAGES)
    for position in range(5):
        step, state = model.step(WORDS[:, position], state)
        torch.testing.assert_close(step, logits[:, position])
    assert not torch.allclose(model(IMAGES.flip(0), WORDS)[0], logits[0])
