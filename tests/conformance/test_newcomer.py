"""A user's own mixer in one short file: checked by `headwise.testing`, and in a stack beside the built-in parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import headwise
from headwise import UserError
from headwise.blocks.part import BuildContext, PartConfig
from headwise.blocks.stream import Context, Part, Properties, Stream
from headwise.blocks.tables import PARTS
from headwise.catalog import MODELS
from headwise.config.base import Config
from headwise.config.plugins import use_parts
from headwise.tasks.language_model import LanguageModelConfig, LanguageModelTask
from headwise.testing import check_model, check_part, perturb_parameters
from headwise.testing.generative import check_overfit, check_round_trip
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

FILE = Path(__file__).with_name("moving_average.py")


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the user's file as `--with` does, and leave the table of parts as it was."""
    monkeypatch.setattr(PARTS, "loaded", dict(PARTS.loaded))
    use_parts(FILE)


def build_hybrid(width: int = 8, **settings: Any) -> Any:
    """Layers that average and layers that attend, in turn."""
    torch.manual_seed(0)
    average, mlp, cross = "moving-average", "mlp", {"kind": "attention", "attend_to": "memory"}
    return headwise.build(
        "transformer-tiny",
        vocab=11,
        width=width,
        heads=2,
        dropout=0.0,
        encoder={"depth": 2, "layers": [[average, mlp], ["attention", mlp]]},
        decoder={"depth": 3, "layers": [[average, cross, mlp], ["attention", cross, mlp]]},
        **settings,
    )


def test_the_file_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 80


def test_the_part_does_what_it_declares() -> None:
    check_part(PARTS.parse("moving-average"), unidirectional=True)


def test_models_with_it_do_what_their_parts_declare() -> None:
    check_model(build_hybrid())


def test_documents_are_not_packed_where_it_would_mix_them() -> None:
    letters = Characters(list("abc"))
    task = LanguageModelTask(LanguageModelConfig(packing=True), Tokenisers(letters, letters))
    with pytest.raises(UserError, match=r"task\.packing: MovingAverage of 'transformer' would mix the texts"):
        task.build(MODELS.parse({"kind": "transformer-tiny", "decoder": {"layers": [["moving-average", "mlp"]]}}))


@pytest.mark.parametrize("wiring", ["post", "pre"])
def test_is_the_same_after_saving_and_loading_and_learns(wiring: str, tmp_path: Path) -> None:
    fresh = build_hybrid(wiring=wiring).double().eval()
    check_round_trip(perturb_parameters(build_hybrid(wiring=wiring)), fresh, tmp_path / "model.safetensors")
    check_overfit(build_hybrid(width=16, wiring=wiring))


def test_a_shared_layer_has_a_state_for_each_path() -> None:
    layers = [["moving-average", {"kind": "attention", "attend_to": "memory"}]]
    torch.manual_seed(0)
    model = headwise.build("transformer-tiny", vocab=11, decoder={"depth": 3, "layers": layers, "shared": True})
    check_model(model)


def test_a_part_without_build_says_so() -> None:
    class Unfinished(PartConfig):
        kind: str = "unfinished"

    PARTS.add(Unfinished)
    with pytest.raises(UserError, match="unfinished: Unfinished has no build method; write one that returns the part"):
        headwise.build("transformer-tiny", vocab=11, encoder={"layers": [["unfinished"]]})


def test_a_misspelt_part_is_refused_with_the_right_name() -> None:
    assert isinstance(PARTS.parse("moving-average"), Config)
    with pytest.raises(
        UserError, match=r"encoder\.layers.*no part is called 'moving-averag'; did you mean moving-average"
    ):
        headwise.build("transformer-tiny", vocab=11, encoder={"layers": [["moving-averag"]]})


class Mean(Part):
    """The part under test: the mean of the tokens so far, of the token's document, without padding."""

    declares = Properties(causal=True, steppable=True, packing=True)

    @property
    def properties(self) -> Properties:
        return self.declares

    def sees(self, stream: Stream) -> Tensor:
        """(B, T, T) True where the token of the row sees the token of the column."""
        count = stream.x.shape[1]
        sees = torch.ones(count, count, dtype=torch.bool).tril().expand(len(stream.x), -1, -1)
        if stream.segment is not None:
            sees = sees & (stream.segment.unsqueeze(2) == stream.segment.unsqueeze(1))
        return sees

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        count = stream.x.shape[1]
        (x,) = ctx.cache.extend(ctx.path, 1, stream.x)
        # In steps what went before is not in the stream; documents are packed in training alone.
        weights = self.sees(stream if x.shape[1] == count else Stream.of(x)).to(x.dtype)
        return (weights @ x / weights.sum(2, keepdim=True))[:, -count:]


def test_the_part_that_mutants_are_made_of_is_sound() -> None:
    check_part(Mean())


class Leaks(Mean):
    """Adds a share of the last token to all: below what a test of outputs in float32 sees."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(stream, ctx) + 1e-9 * stream.x[:, -1:]


class LeaksByChoice(Mean):
    """Flips the sign by a later token: no gradient goes through the choice."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(stream, ctx) * stream.x.detach()[:, -1:, :1].sign()


class MixesDocuments(Mean):
    def sees(self, stream: Stream) -> Tensor:
        return super().sees(Stream.of(stream.x))


class StepsDiffer(Mean):
    """Forgets what it saw before the prompt's last token."""

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(stream, Context())


class LetsPaddingIn(Mean):
    """The mean of all tokens, padding included."""

    declares = Properties(packing=True)

    def sees(self, stream: Stream) -> Tensor:
        sees = torch.ones_like(super().sees(stream))
        return sees if stream.segment is None else sees & (stream.segment.unsqueeze(2) == stream.segment.unsqueeze(1))


class HearsOtherRows(Mean):
    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(stream, ctx) + 0.01 * stream.x.mean(0)


class Counts(Mean):
    """Has a state of its own between calls."""

    calls = 0

    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        self.calls += 1
        return super().transform(stream, ctx) * self.calls


class RunsOut(Mean):
    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        if stream.x.shape[1] > 20:
            raise UserError("runs-out: takes 20 tokens")
        return super().transform(stream, ctx)


class Drops(Mean):
    def transform(self, stream: Stream, ctx: Context) -> Tensor:
        return super().transform(stream, ctx)[:, 1:]


class IsTooModest(Mean):
    declares = Properties(causal=True, steppable=True, packing=False)


@pytest.mark.parametrize(
    ("mutant", "message"),
    [
        (Leaks, r"causal is claimed, but outputs before token 1 depend on later tokens: .* gradient of \d"),
        (LeaksByChoice, r"causal is claimed, but .* with other values of these inputs an output differs by \d"),
        (MixesDocuments, r"packing is claimed, but documents of 2 and 5 tokens mix: .* gradient of \d"),
        (StepsDiffer, r"steppable is claimed, but step by step, 1 at first, outputs differ: differs by \d"),
        (LetsPaddingIn, r"padding is claimed, but behind padding, real outputs differ: differs by \d"),
        (HearsOtherRows, r"batch_independent is claimed, but outputs have a gradient of \d"),
        (Counts, r"exact is claimed, but the second time, the same inputs' outputs differ: differs by \d"),
        (RunsOut, r"length_free is claimed, but 56 tokens are refused: runs-out: takes 20 tokens"),
        (Drops, r"inputs of \(2, 7, 8\) give outputs of \(2, 6, 8\)"),
        (IsTooModest, r"packing is denied, but holds; declare packing=True"),
    ],
)
def test_a_part_that_does_not_do_what_it_declares_is_caught(mutant: type[Part], message: str) -> None:
    with pytest.raises(AssertionError, match=message) as caught:
        check_part(mutant())
    assert mutant.__name__ in str(caught.value)


class MixesConfig(PartConfig):
    kind: str = "mixes"

    def build(self, build_ctx: BuildContext) -> Part:
        return MixesDocuments()


def test_a_model_with_a_part_that_mixes_documents_is_caught() -> None:
    PARTS.add(MixesConfig)
    model = headwise.build("transformer-tiny", vocab=11, task="language-model", decoder={"layers": [["mixes", "mlp"]]})
    with pytest.raises(AssertionError, match=r"packing: document \d has a gradient of \d"):
        check_model(model)


def test_a_config_that_can_be_built_nowhere_says_why() -> None:
    class Refuses(PartConfig):
        kind: str = "refuses"

        def build(self, build_ctx: BuildContext) -> Part:
            raise UserError("refuses: has no place here")

    with pytest.raises(AssertionError, match="Refuses cannot be built: refuses: has no place here"):
        check_part(Refuses())


def test_the_example_for_contributors_does_what_it_declares(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text("utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "fading_mean.py").write_text(code)
    use_parts(tmp_path / "fading_mean.py")
    check_part(PARTS.parse("fading_mean"))
    (tmp_path / "claims.py").write_text(
        code.replace("fading_mean", "claims").replace("steppable=self.causal", "steppable=self.causal, packing=True")
    )
    use_parts(tmp_path / "claims.py")
    message = re.search(r"FadingMean in an encoder: packing .* gradient of 0\.\d", page)
    assert message
    with pytest.raises(AssertionError, match=re.escape(message[0])):
        check_part(PARTS.parse("claims"))
    (tmp_path / "one_way.py").write_text(
        code.replace("fading_mean", "one_way").replace("self.fade, build_ctx.causal", "self.fade, True")
    )
    use_parts(tmp_path / "one_way.py")
    message = re.search(r"FadingMean in an encoder: it is causal, but .*", page)
    assert message
    with pytest.raises(AssertionError, match=re.escape(message[0])):
        check_part(PARTS.parse("one_way"))
    check_part(PARTS.parse("one_way"), unidirectional=True)
