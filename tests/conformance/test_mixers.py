"""Every mixer in the place of attention keeps what it promises, and what it denies is seen to fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import checks
import pytest
import readers
import torch
from adapters import Deaf
from moving_average import MovingAverage

import headwise
from headwise import UserError
from headwise.blocks.part import Part, Properties

# Settings under which a mixer has something to approximate or to cut at the few tokens of these checks.
MIXERS: dict[str, dict[str, Any]] = {
    "attention": {},
    "attention-dense": {"score": {"kind": "dense", "max_length": 9}},
    "attention-random": {"score": {"kind": "random", "max_length": 9}},
    "attention-mixture": {"score": {"kind": "mixture", "scores": ["scaled", "factorised", "dense"], "gated": True}},
    "fourier": {},
    "linear": {},
    "performer": {"features": 32},
    "performer-relu": {"features": 32, "kernel": "relu"},
    "tokens": {"max_length": 16},
    "linformer": {"rank": 3, "max_length": 9},
    "linformer-none": {"rank": 4, "max_length": 9, "sharing": "none"},
    "linformer-layerwise": {"rank": 3, "max_length": 9, "sharing": "layerwise"},
    "lsh": {"chunk": 4},
    "lsh-buckets": {"chunk": 4, "buckets": 2},
    "lsh-shortcuts": {"chunk": 2, "shortcuts": True},
    "workspace": {"slots": 3, "top_k": 2},
    "workspace-soft": {"slots": 3, "top_k": 0},
    "local": {"block": 2, "after": 1},
    "window": {"left": 1, "right": 1},
    "strided": {"stride": 2},
    "bigbird": {"block": 1, "window": 1, "random": 1},
    "bigbird-transformers": {"block": 1, "window": 1, "random": 0, "variant": "transformers"},
    "compressed": {},
    "uneven": {"head_width": 3, "value_width": 5},
    "normed": {},
    "nonlocal": {"pool": 1},
    "nonlocal-dot": {"pool": 1, "form": "dot"},
}
FEEDFORWARDS: dict[str, dict[str, Any]] = {
    "mlp": {},
    "mlp-chunk": {"chunk": 2},
    "normed_mlp": {},
    "experts": {"count": 3, "drop": False},
    "experts-two": {"count": 4, "top_k": 2, "capacity_factor": 4.0, "eval_capacity_factor": 4.0},
    "experts-cut": {"count": 4, "capacity_factor": 0.6, "eval_capacity_factor": 0.6},
}
ROWS = {
    **{f"mixer-{name}": {"mixer": {"kind": name.split("-")[0], **settings}} for name, settings in MIXERS.items()},
    **{
        f"feedforward-{name}": {"feedforward": {"kind": name.split("-")[0], **settings}}
        for name, settings in FEEDFORWARDS.items()
    },
}


def build(row: str, task: str, width: int = 8) -> Any:
    torch.manual_seed(0)
    common = {"vocab": 12, "width": width, "heads": 2, "hidden": width, "dropout": 0.0, "positions": "sinusoid"}
    return headwise.build("transformer-tiny", task=task, outputs=9 if task == "classify" else 0, **common, **ROWS[row])


def properties(row: str) -> Properties:
    """What the part under test declares in an encoder."""
    part = build(row, "masked").encoder.stack.layers[0].parts[1 if "feedforward" in ROWS[row] else 0]
    assert isinstance(part, Part)
    return part.properties


def decodes(row: str) -> bool:
    try:
        build(row, "language-model")
    except UserError as problem:
        return "future" not in str(problem)  # refused for another reason it will be refused again, aloud
    return True


def fails(check: Any, model: Any) -> bool:
    try:
        check(model)
    except (AssertionError, UserError, RuntimeError):  # the last: states that do not even fit together
        return True
    return False


@pytest.mark.parametrize("row", ROWS)
def test_in_an_encoder(row: str, tmp_path: Path) -> None:
    model, promised = checks.ready(build(row, "masked")), properties(row)
    denied = {
        readers.check_padding: promised.padding,
        readers.check_batch: promised.padding and promised.batch_independent,
    }
    for check in readers.CHECKS:
        if check is readers.check_sees_everything:
            continue  # some see few tokens by design
        if denied.get(check, True):
            check(model)
        else:
            assert fails(check, model), f"{check.__name__} holds, though it is denied"
    ids = readers.texts()
    assert torch.equal(model(ids), model(ids)) == promised.exact
    readers.check_overfit(build(row, "masked", width=16), steps=200, lr=0.01)


@pytest.mark.parametrize("row", ROWS)
def test_in_a_decoder(row: str, tmp_path: Path) -> None:
    if not decodes(row):
        return
    part = build(row, "language-model").decoder.stack.layers[0].parts[1 if "feedforward" in ROWS[row] else 0]
    assert part.properties.causal
    model = checks.ready(Deaf(build(row, "language-model")))
    denied = {
        checks.check_cached: part.properties.steppable,
        checks.check_beams: part.properties.steppable,
        checks.check_select: part.properties.steppable,
        checks.check_sources_move: part.properties.steppable,
        checks.check_join: part.properties.steppable,
        checks.check_recording: part.properties.steppable,
        checks.check_batch: part.properties.batch_independent,
        # A decoder's parts take padding for tokens of a row.
        checks.check_padding: part.properties.padding and part.properties.batch_independent,
    }
    for check in checks.CHECKS:
        if denied.get(check, True):
            check(model)
    if not part.properties.steppable:
        assert fails(checks.check_cached, model), "steps give what all at once give, though that is denied"
    checks.check_round_trip(model, Deaf(build(row, "language-model")).double().eval(), tmp_path / "model.safetensors")


def claim(monkeypatch: pytest.MonkeyPatch, part: Part, **claims: bool) -> None:
    """Let all parts of a class declare what they deny."""
    declared: Any = vars(next(base for base in type(part).__mro__ if "properties" in vars(base)))["properties"]
    monkeypatch.setattr(type(part), "properties", property(lambda self: replace(declared.fget(self), **claims)))


@torch.no_grad()
def check_ragged(model: Any) -> None:
    """Prompts padded on the right leave the state that they leave alone, also after some steps."""
    prompts, tokens = checks.ids(model, 3, 6), checks.ids(model, 3, 3, seed=1)
    lengths = (6, 1, 4)
    padded = prompts.clone()
    for row, length in enumerate(lengths):
        padded[row, length:] = checks.PAD
    together = checks.stepped(model, model.start(padded), tokens)
    for row, length in enumerate(lengths):
        one = slice(row, row + 1)
        checks.close(checks.stepped(model, model.start(prompts[one, :length]), tokens[one]), together[one])


@torch.no_grad()
def check_packed(model: Any) -> None:
    """Other tokens in one document of a row change nothing in the others."""
    texts, segment = checks.ids(model, 1, 8), torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]])
    pos = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 0]])
    edited = texts.clone()
    edited[:, :3] = edited[:, :3].flip(1) ^ 1
    assert not torch.equal(edited, texts)
    before, after = (model(given, segment=segment, pos=pos) for given in (texts, edited))
    checks.close(after[:, 3:], before[:, 3:])
    assert not torch.allclose(after[:, :3], before[:, :3])


@pytest.mark.parametrize("row", [*ROWS, "lstm", "moving-average"])
def test_what_a_decoding_state_can_do(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`joins`, `ragged` and `packed`, both ways: what is denied fails as soon as it is claimed."""
    if row in ROWS and not decodes(row):
        return
    model = checks.ready(language_model(row))
    model.source_vocab = model.vocab
    part = model.decoder.stack.layers[0].parts[1 if "feedforward" in ROWS.get(row, {}) else 0]
    declared = part.properties
    assert model.joins == declared.joins and model.ragged == declared.ragged
    if declared.steppable:
        if not declared.joins:
            claim(monkeypatch, part, joins=True)
            assert fails(checks.check_join, checks.ready(Deaf(model))), "rows join, though it is denied"
        if declared.ragged:
            check_ragged(model)
        else:
            with pytest.raises(UserError, match=f"prompts: .*{type(part).__name__}.* would take padding for tokens"):
                check_ragged(model)
            claim(monkeypatch, part, ragged=True)
            assert fails(check_ragged, model), "padded prompts are read rightly, though it is denied"
    if declared.packed and declared.batch_independent:  # elsewhere documents compete for places
        check_packed(model)
    elif not declared.packed:
        assert fails(check_packed, model), "documents are kept apart, though it is denied"


def language_model(row: str) -> Any:
    if row in ROWS:
        return build(row, "language-model")
    torch.manual_seed(0)
    if row == "lstm":
        return headwise.build("lstm-tiny", vocab=12, task="language-model")
    model = build("mixer-attention", "language-model")
    for layer in model.decoder.stack.layers:
        layer.parts[0] = MovingAverage(8)
    return model


@pytest.mark.parametrize("row", ROWS)
def test_among_the_patches_of_an_image(row: str) -> None:
    """Each drops into a Vision Transformer: an image alone or among others, and a batch learnt by heart."""
    settings = {"image": 12, "patch": 4, "class_tokens": 0, "width": 16, "heads": 2, "hidden": 16, **ROWS[row]}
    torch.manual_seed(0)
    model = headwise.build("vit-tiny", outputs=4, **settings)
    images = torch.randn(8, 1, 12, 12, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(8) % 4
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    model.eval()
    together = model(images)
    assert (together.argmax(-1) == labels).all()
    if properties(row).batch_independent and properties(row).exact:
        torch.testing.assert_close(torch.cat([model(image[None]) for image in images]), together, rtol=1e-4, atol=1e-4)
