"""Hard choices learn by REINFORCE, through the same call as everything else."""

from typing import Any

import pytest
import torch

import headwise
from headwise.tasks.base import GenerationState, generation_loss


def model(*score_mods: str) -> Any:
    torch.manual_seed(0)
    across = {"kind": "attention", "attend_to": "memory", "score_mods": list(score_mods)}
    layers = [[{"kind": "attention"}, across, {"kind": "mlp"}]]
    return headwise.build("transformer-tiny", vocab=10, dropout=0.0, decoder={"depth": 1, "layers": layers})


def gradients(chosen: Any, source: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    state = GenerationState.of(chosen)
    loss = generation_loss(chosen, source, labels.roll(1, 1), labels=labels, label_smoothing=0.1, state=state)
    loss.total.backward()
    return {name: parameter.grad.clone() for name, parameter in chosen.named_parameters()} | {"nll": loss.nll}


def test_with_one_key_there_is_no_choice() -> None:
    labels = torch.tensor([[4, 5, 6], [7, 8, 0]])
    source = torch.tensor([[5], [6]])
    hard, soft = (gradients(model(*score_mods), source, labels) for score_mods in (("hard",), ()))
    for name, gradient in soft.items():
        torch.testing.assert_close(hard[name], gradient, msg=name)


def test_with_several_keys_the_queries_learn_too() -> None:
    labels = torch.tensor([[4, 5, 6], [7, 8, 9]])
    found = gradients(model("hard"), torch.tensor([[5, 6, 7], [8, 9, 4]]), labels)
    assert found["decoder.stack.layers.0.parts.1.qkv.query.weight"].any()


@pytest.mark.parametrize("score_mods", [("hard",), ()])
def test_validation_is_not_random(score_mods: tuple[str, ...]) -> None:
    chosen = model(*score_mods).eval()
    source, labels = torch.tensor([[5, 6, 7]]), torch.tensor([[4, 5, 6]])
    state = GenerationState.of(chosen)
    first, second = (
        generation_loss(chosen, source, labels, labels=labels, label_smoothing=0.0, state=state).total for _ in range(2)
    )
    assert torch.equal(first, second)
