"""Model card: the README.md of a run, with its data, scores beside baselines, examples, limits and commands."""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.autofit.baselines import BaselineResult
from headwise.autofit.plan import Plan
from headwise.autofit.recognition import Recognition, describe_shape
from headwise.blocks.stack import count_parameters
from headwise.data.config import TextDataConfig
from headwise.evaluate.score import Score
from headwise.experiment.convert import to_hf
from headwise.inference.trained_model import TrainedModel
from headwise.inspect.confusion import draw_confusion_matrix
from headwise.inspect.export import export
from headwise.inspect.files import save
from headwise.interop.hf.text import NATIVE
from headwise.runs import Run
from headwise.tasks.base import Evaluation
from headwise.train.loop import Result
from headwise.utils.files import write

LOWER_IS_BETTER = ("SER", "WER", "PER", "CER", "perplexity", "nats")
MAX_CONFUSION = 40  # labels of a confusion matrix that is drawn
EXAMPLES = 8
MAX_TRIED = 20_000_000  # parameters of a model whose export is tried


def is_better(score: Score, other: Score) -> bool:
    """Whether a score is better than another one of the same name."""
    return score.value < other.value if score.name in LOWER_IS_BETTER else score.value > other.value


def describe_verdict(evaluation: Evaluation, baselines: Sequence[BaselineResult]) -> str:
    """Whether the model beats the best baseline by its first score, in one sentence; empty without baselines."""
    rated = [baseline for baseline in baselines if baseline.scores]
    if not rated or not evaluation.scores:
        return ""
    score = evaluation.scores[0]
    best = rated[0]
    for baseline in rated[1:]:
        if is_better(baseline.scores[0], best.scores[0]):
            best = baseline
    other = best.scores[0]
    overlap = score.low <= other.value <= score.high
    if _write(score) == _write(other):
        return f"no better than the baseline '{best.name}': both have {score.name} {_write(score)}"
    if not is_better(score, other):
        return (
            f"the baseline '{best.name}' is better: {other.name} {_write(other)} against {_write(score)}; "
            "use it, or give the model more data and time"
        )
    if overlap:
        return f"better than '{best.name}' ({_write(score)} against {_write(other)}), but within the interval"
    return f"better than the best baseline, '{best.name}': {score.name} {_write(score)} against {_write(other)}"


def _write(score: Score) -> str:
    return f"{score.value:.1f} {score.unit}".strip() if score.value >= 10 else f"{score.value:.3f} {score.unit}".strip()


@dataclass(frozen=True)
class Fit:
    """A trained run with its evaluation, the baselines, what the data were taken for, and what was held out of them."""

    run: Run
    result: Result
    recognition: Recognition
    plan: Plan
    held_out: tuple[str, ...]
    evaluation: Evaluation
    baselines: list[BaselineResult]


def write_model_card(fitted: Fit, trained: TrainedModel) -> Path:
    """Write README.md, and a picture where there is one, into the run folder."""
    run, evaluation = fitted.run, fitted.evaluation
    picture = draw_picture(run, trained, evaluation)
    sections = [
        f"# {run.name}\n",
        _describe_model(trained, fitted.result),
        "## Data\n",
        _describe_data(fitted.recognition, fitted.plan, fitted.held_out),
        "## Scores\n",
        "\n".join(_list_scores(evaluation, fitted.baselines)),
        *([f"![{picture.stem}]({picture.name})\n"] if picture else []),
        *(["## Examples\n", "\n".join(_list_examples(evaluation))] if evaluation.outputs else []),
        "## Limits\n",
        "\n".join(_list_limits(fitted.plan, trained)),
        "## Use\n",
        "\n".join(_list_commands(run, trained, evaluation)),
    ]
    return write(run.path / "README.md", "\n".join(sections))


def _describe_model(trained: TrainedModel, result: Result) -> str:
    experiment = trained.experiment
    return (
        f"A `{experiment.model.kind}` with {count_parameters(trained.model):,} parameters, trained for the task "
        f"`{experiment.task.kind}` in {result.minutes:.1f} minutes ({result.step:,} steps, seed {experiment.seed}). "
        "The whole experiment is in [config.toml](config.toml).\n"
    )


def _describe_data(recognition: Recognition, plan: Plan, held_out: Sequence[str]) -> str:
    data, statistics = plan.experiment.data, plan.statistics
    lines = [
        f"{', '.join(f'`{path}`' for path in data.train)}: {describe_shape(recognition.shape)} ({recognition.reason})."
    ]
    if statistics is not None:
        lines.append(f"{statistics.distinct_sources:,} different sources or texts.")
        if recognition.shape == "labelled" and statistics.labels:
            shown = [f"`{label}` {count:,}" for label, count in statistics.labels.most_common(20)]
            lines.append(f"Labels: {', '.join(shown)}{' …' if len(statistics.labels) > 20 else ''}.")
    lines += [f"{line[0].upper()}{line[1:]}." for line in held_out]
    lines += [f"Warning: {warning}." for warning in (*recognition.warnings, *plan.warnings)]
    return "\n\n".join(lines) + "\n"


def _list_scores(evaluation: Evaluation, baselines: Sequence[BaselineResult]) -> Iterator[str]:
    """A table of the scores with 95 % intervals, model first."""
    names = [score.name for score in evaluation.scores]
    yield f"On the held-out part, with 95 % bootstrap intervals.\n\n| | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for label, scores in [("**this model**", evaluation.scores), *((base.name, base.scores) for base in baselines)]:
        by_name = {score.name: score for score in scores}
        cells = [_write_cell(by_name[name]) if name in by_name else "" for name in names]
        yield f"| {label} | {' | '.join(cells)} |"
    if verdict := describe_verdict(evaluation, baselines):
        yield f"\n{verdict[0].upper()}{verdict[1:]}."
    yield ""


def _write_cell(score: Score) -> str:
    """A score without its name and details."""
    return str(Score("", score.value, score.low, score.high, unit=score.unit)).strip()


def _list_examples(evaluation: Evaluation) -> Iterator[str]:
    yield "| source | output | reference |\n|---|---|---|"
    rows = list(zip(evaluation.sources, evaluation.outputs, evaluation.references, strict=True))
    for source, output, listed in rows[:: max(len(rows) // EXAMPLES, 1)][:EXAMPLES]:
        yield f"| {' | '.join(_escape(text) for text in (source, output, listed[0] if listed else ''))} |"
    yield ""


def _escape(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return line.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _list_limits(plan: Plan, trained: TrainedModel) -> Iterator[str]:
    data = plan.experiment.data
    others = (
        "images of another kind" if trained.experiment.task.reads == "images" else "texts of another kind, language"
    )
    yield f"- It knows what these data show; {others} or time were not tried."
    yield "- The scores are of a held-out part of the same files, and no person has judged the outputs."
    if plan.statistics is not None:
        longest = plan.statistics.source.longest or plan.statistics.target.longest
        yield f"- Its longest training text has {longest:,} characters; longer ones were not tried."
        if isinstance(data, TextDataConfig) and data.truncate and plan.statistics.source.most_words > data.max_length:
            yield f"- It reads the first {data.max_length:,} tokens of a text."
    if not data.test and not data.test_fraction:
        yield "- There is no test part: scores are those of the validation part, by which the checkpoint was chosen."
    yield f"- {describe_export(trained)}"
    yield ""


def _list_commands(run: Run, trained: TrainedModel, evaluation: Evaluation) -> Iterator[str]:
    """Commands that work when they are pasted."""
    yield "In the folder from which it was trained, or with another path of the run:\n\n```sh"
    yield from list_commands(run, trained, evaluation).values()
    yield f"```\n\n```python\nimport headwise\n\nmodel = headwise.load({str(run.path)!r})\n```\n"


def list_commands(run: Run, trained: TrainedModel, evaluation: Evaluation) -> dict[str, str]:
    """What to do next, and the command for it, quoted for a shell."""
    path, task = shlex.quote(str(run.path)), trained.experiment.task
    example = _find_example(trained, evaluation)
    commands = {"use": f"headwise {task.command} {path}{example}"}
    commands["evaluate"] = f"headwise evaluate {path}"
    if task.transduces and evaluation.sources:
        commands["inspect"] = f"headwise inspect {path} {quote_text(choose_source(evaluation))} --out attention.html"
    commands["serve"] = f"headwise serve {path}"
    commands["export"] = f"headwise export {path} --to hf {shlex.quote(run.name + '-hf')}"
    config, copy = shlex.quote(str(run.path / "config.toml")), shlex.quote(f"{run.name}.toml")
    commands["refine"] = f"cp {config} {copy} && headwise train {copy}"
    return commands


def quote_text(text: str) -> str:
    """A text in one line, quoted for a shell; a tab between two texts is written as such, as a terminal completes
    names where one is pasted.

    >>> print(quote_text("it's\\nfine"), quote_text("Who?\\tIt's Ada."))
    'it'"'"'s fine' $'Who?\\tIt\\'s Ada.'
    """
    parts = [" ".join(part.split()) for part in text.split("\t")]
    if len(parts) == 1:
        return shlex.quote(parts[0])
    escaped = (part.replace("\\", "\\\\").replace("'", "\\'") for part in parts)
    return "$'" + r"\t".join(escaped) + "'"


def describe_export(trained: TrainedModel) -> str:
    """Whether transformers or timm can load what `headwise export --to hf` writes, in one sentence."""
    if count_parameters(trained.model) > MAX_TRIED:
        return "`headwise export --to hf` says whether transformers can load it."
    with tempfile.TemporaryDirectory(prefix="headwise-") as parent:
        folder = Path(parent) / "hf"
        reason, own_tokens = to_hf(trained, folder), (folder / NATIVE).exists()
    if not reason:
        library = "transformers or timm" if trained.experiment.task.reads == "images" else "transformers"
        also = "; its tokeniser, which maps rare words to classes or has two vocabularies, by Headwise alone"
        return f"Exported by `headwise export --to hf`, it can be loaded by {library}{also if own_tokens else ''}."
    return (
        f"Exported by `headwise export --to hf`, it is a folder that only Headwise loads ({reason.partition(';')[0]})."
    )


def _find_example(trained: TrainedModel, evaluation: Evaluation) -> str:
    """An input for the task's command."""
    if trained.experiment.task.reads == "images":
        return f" {shlex.quote(str(evaluation.sources[0]))}" if evaluation.sources else ""
    if evaluation.sources:
        return f" {quote_text(choose_source(evaluation))}"
    return ' "The"' if trained.experiment.task.unpaired else ""


def choose_source(evaluation: Evaluation) -> str:
    """A held-out text of about a line's length."""
    return str(min(evaluation.sources[:200], key=lambda text: abs(len(text) - 30)))


def draw_picture(run: Run, trained: TrainedModel, evaluation: Evaluation) -> Path | None:
    """The confusion matrix of a classifier, or the attention map of an output; None where there is neither."""
    if evaluation.confusion is not None and len(evaluation.labels) <= MAX_CONFUSION:
        note = f"{evaluation.scores[0]}; rows: true labels, columns: predicted labels"
        drawing = draw_confusion_matrix(evaluation.confusion, evaluation.labels, run.name, note)
        return save(drawing, run.path / "confusion.svg")
    if trained.experiment.task.transduces and evaluation.sources:
        source = choose_source(evaluation)
        return export(trained.inspect(source), run.path / "alignment.svg", source)
    return None


def to_json(evaluation: Evaluation, baselines: Sequence[BaselineResult]) -> str:
    """Scores of the model and of the baselines as JSON."""
    rows = {base.name: [score.to_json() for score in base.scores] for base in baselines}
    return json.dumps({"scores": [score.to_json() for score in evaluation.scores], "baselines": rows}, indent=1)
