"""`headwise plan`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, validators

from headwise.cli.bench_layers import print_table
from headwise.cli.common import Json, log_to_stderr, say
from headwise.errors import UserError

if TYPE_CHECKING:
    from headwise.planning.plan import Plan
    from headwise.planning.strategies import Step

COLUMNS = ("strategy", "GB", "activations", "rows x batches", "sent GB", "ms/step", "waiting", "tokens/s", "of rate")
Positive = validators.Number(gte=1)


def plan(
    model: str,
    *,
    devices: Annotated[int, Parameter(validator=Positive)] = 8,
    kind: str = "h100-80gb",
    tokens: float = 0.0,
    length: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    batch_tokens: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    precision: Literal["bfloat16", "float32"] | None = None,
    vocab: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    set_: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    plot: Path | None = None,
    job: Literal["slurm", "kubernetes", "ssh"] | None = None,
    experiment: Path = Path("experiment.toml"),
    out: Path | None = None,
    json_: Json = False,
) -> None:
    """Plan a training on devices that are not at hand: memory, communication and time of each strategy.

    A training step is traced operation by operation on a model without contents; nothing is allocated or computed, so
    a plan for 175 billion parameters takes a minute. docs/planning.md says what is counted, and how far published runs
    and measured ones are from it.

    For example:

        headwise plan gpt2-small --devices 8 --kind a100-40gb --tokens 10e9
        headwise plan llama-7b --devices 64 --tokens 1e12 --length 2048 --plot plan.svg
        headwise plan transformer-base --kind cpu --devices 2 --length 64 --batch-tokens 4096
        headwise plan llama-7b --devices 16 --job slurm --experiment llama.toml --out llama.sbatch

    Parameters
    ----------
    model
        A model of texts of the catalogue (headwise list).
    devices
        Number of devices.
    kind
        Kind of device: h100-80gb, a100-80gb, a100-40gb, l40s-48gb, rtx4090-24gb, v100-32gb, p100-16gb, tpu-v2, tpu-v3;
        cpu: threads of this machine, which is measured.
    tokens
        Tokens of the whole training, such as 300e9; for days.
    length
        Tokens of each text; 0: 1,024, or the maximum length if that is less.
    batch_tokens
        Tokens of a step, all devices together; 0: 8,192 for each device.
    precision
        Default: bfloat16 (autocast), on CPUs float32.
    vocab
        Vocabulary size; 0: the published one.
    set_
        Change a setting of the model: --set width=1024
    plot
        Draw memory and speed to this .svg or .png.
    job
        Write a file that starts the training of --experiment on these devices.
    experiment
        The experiment file that the job trains.
    out
        The job file to write; default: headwise.sbatch, headwise.yaml or headwise.sh.
    """
    log_to_stderr()
    if not (tokens >= 0 and math.isfinite(tokens)):
        raise UserError(f"--tokens: {tokens} is no number of tokens; give one such as 300e9")
    from headwise import catalog

    catalog.resolve(model)  # a wrong name is an error before torch is imported
    if plot:
        from headwise.inspect.files import check_ending

        check_ending(plot, ".svg", ".png")
    from headwise.cli.models import parse_settings
    from headwise.planning.devices import HERE, get_device
    from headwise.planning.plan import make_plan

    chosen = precision or ("float32" if kind == HERE else "bfloat16")
    result = make_plan(
        model, get_device(kind, chosen), devices=devices, tokens=tokens, length=length, batch_tokens=batch_tokens,
        precision=chosen, vocab=vocab, settings=parse_settings(set_ or []),
    )  # fmt: skip
    print(json.dumps(to_json(result), indent=1)) if json_ else print_plan(result)
    if plot:
        from headwise.planning.plot import plot_plan

        plot_plan(result, plot)
        say(f"plot: {plot}")
    if job:
        _write_job(job, result, experiment, out)


def _write_job(kind: str, plan: Plan, experiment: Path, out: Path | None) -> None:
    from headwise.planning.job_files import KINDS, JobConfig, write_job_file

    size = min(plan.devices, plan.device.node)
    if plan.devices % size:
        raise UserError(
            f"--devices: {plan.devices} devices do not fill nodes of {size}; give {plan.devices // size * size} or "
            f"{(plan.devices // size + 1) * size}"
        )
    path = out or Path("headwise").with_suffix(Path(KINDS[kind]).suffix)
    write_job_file(kind, JobConfig(str(experiment), plan.devices // size, size), path)
    say(f"job: {path}; change what your cluster has otherwise")


def print_plan(plan: Plan) -> None:
    from headwise.compare.render import format_si
    from headwise.planning.plan import count_needed
    from headwise.planning.plot import name_step
    from headwise.planning.strategies import STRATEGIES

    best = plan.best
    rows = [list_cells(plan, step) for step in plan.steps]
    columns = [*COLUMNS, *(["days"] if plan.tokens else [])]
    print_table(
        f"{plan.model}, {plan.parameters:,} parameters, on {plan.devices:,} x {plan.device.name}; texts of "
        f"{plan.length:,} tokens, {plan.precision}",
        columns,
        rows,
    )
    if best:
        said = f"* suggested: {name_step(best)} ({STRATEGIES[best.strategy]})"
        days = f"; {format_days(plan.count_days(best))} days for {format_si(plan.tokens)} tokens" if plan.tokens else ""
        print(said + days)
        return
    needed = count_needed(plan)
    remedy = f"fsdp fits on {needed:,} devices" if needed else "one row is too large: take shorter texts (--length)"
    print(f"nothing fits {plan.device.memory / 1e9:,.0f} GB; {remedy}")


def list_cells(plan: Plan, step: Step) -> list[str]:
    from headwise.planning.plot import name_step

    mark = " *" if step is plan.best else "" if step.fits else "  does not fit"
    activations = sum(size for part, size in step.memory.items() if part.startswith("activations"))
    return [
        name_step(step) + mark,
        f"{step.total_memory / 1e9:,.1f}",
        f"{activations / 1e9:,.1f}",
        f"{step.rows} x {step.accumulate}",
        f"{step.communication / 1e9:,.2f}",
        f"{1e3 * step.seconds:,.0f}",
        f"{step.exposed / step.seconds:.0%}",
        f"{step.tokens_per_second:,.0f}",
        f"{plan.count_utilisation(step):.0%}",
        *([format_days(plan.count_days(step))] if plan.tokens else []),
    ]


def format_days(days: float) -> str:
    """
    >>> format_days(0.00123), format_days(34.6)
    ('0.00123', '34.6')
    """
    return f"{days:,.3g}" if days < 1000 else f"{days:,.0f}"


def to_json(plan: Plan) -> dict[str, Any]:
    steps = [
        {
            "strategy": step.strategy, "checkpointing": step.checkpointing, "fits": step.fits, "rows": step.rows,
            "accumulate": step.accumulate, "memory": dict(step.memory), "total_memory": step.total_memory,
            "communication": step.communication, "seconds": step.seconds, "exposed": step.exposed,
            "tokens_per_second": step.tokens_per_second, "utilisation": plan.count_utilisation(step),
            "flops": step.flops, **({"days": plan.count_days(step)} if plan.tokens else {}),
        }
        for step in plan.steps
    ]  # fmt: skip
    return {
        "model": plan.model, "parameters": plan.parameters, "devices": plan.devices, "kind": plan.device.name,
        "length": plan.length, "batch_tokens": plan.batch_tokens, "precision": plan.precision, "steps": steps,
    }  # fmt: skip
