"""Check every part of a parts file: `headwise check my_parts.py`.

Mixers, feed-forward networks, norms, positions and score mods are checked alone and in small models, token embeddings
and output layers in small models, whole models with each of their tasks, tasks by a training of some steps on made-up
data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from headwise import catalog
from headwise.blocks.interface import skip_claims
from headwise.config.base import Config
from headwise.config.plugins import list_configs, read_parts_file, use_parts
from headwise.errors import UserError, nearest
from headwise.models.build import build, build_entry
from headwise.models.generative import GenerativeModel
from headwise.models.language_model import LanguageModel
from headwise.testing.assertions import GRADIENT_TOLERANCE, assert_independent, assert_parity, perturb_parameters
from headwise.testing.generative import ConditionalModel, IgnoreSource, check_round_trip
from headwise.testing.model import judge_model
from headwise.testing.part import SMALL_CONTEXT, judge_part
from headwise.testing.task import judge_task
from headwise.testing.verdicts import Verdict, find_violation

# A model of few numbers, in which the part under test stands.
SMALL: Mapping[str, Any] = {"vocab": 12, "width": 8, "heads": 2, "hidden": 8, "dropout": 0.0}
IN_MODELS = {"language-model": "in a language model", "masked": "in a masked language model"}
TASKS_OF_MODELS = ("transduce", "language-model", "masked", "tag", "classify")  # those that `judge_model` can check


def judge_file(file: str | Path, kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, Verdict]]:
    """The verdicts on every part of a file, or on those of these kinds, each with the kind of its part."""
    use_parts(file)
    parts = read_parts_file(file)
    configs = {config.model_fields["kind"].default: (table, config) for table, config in list_configs(parts)}
    if not configs:
        raise UserError(f"{file}: adds no part; put a decorator such as @PARTS.add above a config (headwise new)")
    for kind in kinds:
        if kind not in configs:
            raise UserError(f"{file}: has no part '{kind}'; {nearest(kind, configs)}")
    for kind, (table, config) in configs.items():
        if not kinds or kind in kinds:
            judge = JUDGES.get(table.what)
            if judge is None:
                yield kind, Verdict(kind, table.what, "", f"there are no checks for a {table.what}")
                continue
            yield from ((kind, verdict) for verdict in _judge_safely(judge, config, kind))


def _judge_safely(judge: Judge, config: type[Config], kind: str) -> Iterator[Verdict]:
    """The verdicts of one part. Whatever its code raises outside a check, as while it is built, is one, too."""
    upcoming: list[Verdict | None] = []

    def advance() -> None:
        upcoming.append(next(judging, None))

    try:
        judging = judge(config())
    except Exception as error:
        yield Verdict(kind, "config", f"cannot be made with its defaults: {str(error).splitlines()[0]}")
        return
    while not (problem := find_violation(advance, catch=True)):
        if (verdict := upcoming.pop()) is None:
            return
        yield verdict
    yield Verdict(kind, "build", problem)


Judge = Callable[[Any], Iterator[Verdict]]


def judge_mixer(config: Any) -> Iterator[Verdict]:
    """A mixer or a feed-forward network: alone, and in models in the place of attention or of the network."""
    yield from judge_part(config, catch=True)
    by_token = any(_build_part(config, causal).by_token for causal in (False, True) if _can_build(config, causal))
    yield from judge_in_models({"feedforward" if by_token else "mixer": config})


def _build_part(config: Any, causal: bool) -> Any:
    return config.build(replace(SMALL_CONTEXT, causal=causal, shared={}))


def _can_build(config: Any, causal: bool) -> bool:
    return not find_violation(lambda: _build_part(config, causal))


def judge_in_models(settings: Mapping[str, Any]) -> Iterator[Verdict]:
    """The checks of models in which a part stands, and that their weights can be saved and loaded."""
    refusals: list[str] = []
    for task, place in IN_MODELS.items():
        try:
            model = build_small(task, settings)
        except UserError as refusal:  # of an encoder's part in a decoder, or the other way round
            refusals.append(str(refusal))
            continue
        yield from judge_model(model, subject=place, catch=True)
        yield judge_round_trip(model, lambda task=task: build_small(task, settings), place)  # type: ignore[misc]
    if len(refusals) == len(IN_MODELS):
        yield Verdict("in models", "build", f"it refuses all of them: {'; '.join(refusals)}")


def build_small(task: str, settings: Mapping[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    with skip_claims():
        return build("transformer-tiny", task=task, **{"positions": "sinusoid", **SMALL, **settings})


def judge_round_trip(model: nn.Module, rebuild: Callable[[], nn.Module], subject: str) -> Verdict:
    """Whether a model gives the same after its weights were saved and loaded into another one."""

    def check() -> None:
        first, second = perturb_parameters(model), rebuild().double().eval()
        with TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            if isinstance(first, LanguageModel) and isinstance(second, LanguageModel):
                check_round_trip(IgnoreSource(first), IgnoreSource(second), path)
            elif isinstance(first, GenerativeModel):
                check_round_trip(_as_conditional(first), _as_conditional(second), path)
            else:
                second.load_state_dict(first.state_dict())
                ids = torch.arange(4, 10).unsqueeze(0)
                with torch.no_grad():
                    assert_parity(second(ids), first(ids), 1e-12)

    return Verdict(subject, "save and load", find_violation(check, catch=True))


def _as_conditional(model: Any) -> ConditionalModel:
    return model


def judge_norm(config: Any) -> Iterator[Verdict]:
    """A norm: alone, and in models."""
    norm = perturb_parameters(config.build(SMALL_CONTEXT.width))
    name = type(norm).__name__
    x = torch.randn(2, 5, SMALL_CONTEXT.width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def check_shape() -> None:
        outputs = norm(x)
        assert outputs.shape == x.shape, f"inputs of {tuple(x.shape)} give outputs of {tuple(outputs.shape)}"
        assert outputs.isfinite().all() and norm(0 * x).isfinite().all(), "some outputs are not finite"

    def check_by_token() -> None:
        others = torch.arange(5) != 2
        assert_independent(norm, x, (slice(None), 2), (slice(None), others), tolerance=GRADIENT_TOLERANCE)
        assert_independent(norm, x, 0, slice(1, None), tolerance=GRADIENT_TOLERANCE)

    def check_gradients() -> None:
        inputs = x.clone().requires_grad_()
        (norm(inputs) * torch.linspace(1, 2, SMALL_CONTEXT.width)).sum().backward()
        lost = [key for key, value in norm.named_parameters() if value.grad is None or not value.grad.any()]
        assert not lost, f"no gradient reaches {', '.join(lost)}"
        assert inputs.grad is not None and inputs.grad.isfinite().all() and inputs.grad.any(), "inputs have no gradient"

    checks = {"shape": check_shape, "by token": check_by_token, "gradients": check_gradients}
    for check, function in checks.items():
        yield Verdict(name, check, find_violation(function, catch=True))
    yield from judge_in_models({"norm": config})


def judge_positions(config: Any) -> Iterator[Verdict]:
    """Positions: in models, where the order of tokens must matter."""

    def check_order() -> None:
        model = perturb_parameters(build_small("masked", {"positions": config}))
        ids = torch.tensor([[4, 5, 6, 7]])
        with torch.no_grad():
            change = (model(ids.flip(1)).flip(1) - model(ids)).abs().max().item()
        assert change > 1e-9, "the order of tokens makes no difference to the outputs"

    yield Verdict(config.kind, "order", find_violation(check_order, catch=True))
    yield from judge_in_models({"positions": config})


def judge_score_mod(config: Any) -> Iterator[Verdict]:
    """A score mod: all kernels of attention give the same with it, and models do what their parts declare."""

    def run(kernel: str) -> Tensor:
        mixer = {"kind": "attention", "score_mods": [config], "kernel": kernel}
        model = perturb_parameters(build_small("masked", {"mixer": mixer}))
        with torch.no_grad():
            outputs: Tensor = model(torch.tensor([[4, 5, 6, 7, 8], [9, 10, 4, 0, 0]]))
        return outputs

    for kernel in ("auto", "chunked"):
        problem = find_violation(lambda kernel=kernel: assert_parity(run(kernel), run("plain"), 1e-9), catch=True)  # type: ignore[misc]
        yield Verdict(config.kind, f"kernel {kernel}", problem, "equals the plain kernel")
    yield from judge_in_models({"mixer": {"kind": "attention", "score_mods": [config]}})


def judge_token_embedding(config: Any) -> Iterator[Verdict]:
    """A token embedding: in models."""
    yield from judge_in_models({"token_embedding": config})


def judge_output_layer(config: Any) -> Iterator[Verdict]:
    """An output layer: in models, where its loss must be the cross-entropy of its logits."""
    yield from judge_in_models({"output_layer": config})


def judge_own_model(config: Any) -> Iterator[Verdict]:
    """A model with each of its tasks, at a small size where its settings allow that."""
    entry, size = catalog.find(config.kind)
    fields = entry.config.known_keys()
    settings = {key: value for key, value in {**SMALL, "depth": 2}.items() if key in fields}
    for task in entry.config.tasks:

        def rebuild(task: str = task) -> nn.Module:
            torch.manual_seed(0)
            outputs = 9 if task in ("tag", "classify") else 0
            return build_entry(entry, size, vocab=SMALL["vocab"], outputs=outputs, task=task, **settings)

        subject = f"task {task}"
        if task not in TASKS_OF_MODELS:
            problem = find_violation(rebuild, catch=True)
            yield Verdict(subject, "build", problem, "can be built; there are no other checks for this task")
            continue
        model = rebuild()
        yield from judge_model(model, subject=subject, catch=True)
        yield judge_round_trip(model, rebuild, subject)


JUDGES: dict[str, Judge] = {  # by what the table of the config holds
    "part": judge_mixer,
    "norm": judge_norm,
    "position": judge_positions,
    "score mod": judge_score_mod,
    "token embedding": judge_token_embedding,
    "output layer": judge_output_layer,
    "model": judge_own_model,
    "task": judge_task,
}
