"""How far `headwise plan` is from the truth: memory and time of real steps on this machine, and published runs.

python benchmarks/plan.py memory       # peak memory of six models, measured in processes of their own
python benchmarks/plan.py time         # seconds of a step on one core; wants an idle machine
python benchmarks/plan.py published    # training times and FLOPs that papers report
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter
from typing import Any

import torch

from headwise import build
from headwise.bench.memory import peak_growth, reset_peak
from headwise.models.cost import make_inputs
from headwise.planning.devices import get_device, measure_cpu
from headwise.planning.plan import make_plan
from headwise.planning.strategies import estimate_step
from headwise.planning.trace import build_on_meta, trace_step
from headwise.train.hardware import tune_allocator

MODELS = {  # name: rows, length
    "transformer-base": (16, 64),
    "gpt2-small": (4, 256),
    "bert-base": (8, 128),
    "t5-small": (16, 64),
    "llama-tiny": (32, 128),
    "switch-tiny": (32, 64),
}
SIZES = {"llama-tiny": {"width": 512, "heads": 8}}
PUBLISHED = (  # model, kind, devices, length, tokens a step, tokens, published days, precision
    ("transformer-base", "p100-16gb", 8, 32, 25_000, 100_000 * 25_000, 0.5, "float32"),
    ("transformer-big", "p100-16gb", 8, 32, 25_000, 300_000 * 25_000, 3.5, "float32"),
    ("bert-base", "tpu-v2", 16, 128, 256 * 128, 0.9e6 * 256 * 128, 0.9 * 4 * 128 / (0.9 * 128 + 0.1 * 512), "bfloat16"),
    (
        "bert-large",
        "tpu-v2",
        64,
        128,
        256 * 128,
        0.9e6 * 256 * 128,
        0.9 * 4 * 128 / (0.9 * 128 + 0.1 * 512),
        "bfloat16",
    ),
)
FLOPS = (("gpt3-175b", 2048, 300e9, 3.14e23), ("gpt3-13b", 2048, 300e9, 2.31e22), ("gpt3-small", 2048, 300e9, 2.25e20))
STEPS = 5


def measure(name: str, what: str) -> float:
    """Peak bytes above the start, or median seconds, of steps of a real model with AdamW."""
    torch.set_num_threads(1)
    if what == "time":
        tune_allocator()  # as every training has it
    torch.set_flush_denormal(True)
    rows, length = MODELS[name]
    run_steps("transformer-tiny", 4, 8, 1)  # imports, and what libraries allocate once
    before = reset_peak()
    seconds = run_steps(name, rows, length, STEPS if what == "time" else 3, **SIZES.get(name, {}))
    return float(peak_growth(before) or 0) if what == "memory" else sorted(seconds)[len(seconds) // 2]


def run_steps(name: str, rows: int, length: int, steps: int, **settings: Any) -> list[float]:
    """Train a model on random tokens; the seconds of each step."""
    model = build(name, **settings).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids = torch.randint(5, 1000, (rows, length))
    inputs = [ids for _ in make_inputs(model, rows, length)]
    seconds = []
    for _ in range(steps):
        start = perf_counter()
        loss = model(*inputs, labels=ids)
        (loss.total / loss.count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del loss
        seconds.append(perf_counter() - start)
    return seconds


def compare(what: str) -> None:

    for name, (rows, length) in MODELS.items():
        device = measure_cpu()
        run = subprocess.run(
            [sys.executable, __file__, "measure", name, what], check=True, capture_output=True, text=True
        )
        measured = json.loads(run.stdout.splitlines()[-1])
        trace = trace_step(build_on_meta(name, settings=SIZES.get(name, {})), rows, length)
        step = estimate_step(
            trace, device, strategy="none", devices=1, accumulate=1, precision="float32", checkpointing=False
        )
        planned, unit = (step.total_memory / 1e6, "MB") if what == "memory" else (1e3 * step.seconds, "ms")
        measured = measured / 1e6 if what == "memory" else 1e3 * measured
        print(f"{name:<20} {rows} x {length:<5} planned {planned:>9,.1f} {unit}   measured {measured:>9,.1f} {unit}   "
              f"ratio {planned / measured:.2f}", flush=True)  # fmt: skip


def compare_published() -> None:

    for name, kind, devices, length, batch, tokens, days, precision in PUBLISHED:
        plan = make_plan(
            name,
            get_device(kind),
            devices=devices,
            tokens=tokens,
            length=length,
            batch_tokens=batch,
            precision=precision,
        )
        assert plan.best is not None
        ours = plan.count_days(plan.best)
        said = f"planned {ours:.2f} days   published {days:.2f}   ratio {ours / days:.2f}"
        print(f"{name:<20} {devices} x {kind:<10} {said}", flush=True)
    for name, length, tokens, published in FLOPS:
        step = trace_step(build_on_meta(name), 1, length)
        ours = step.flops / length * tokens
        print(
            f"{name:<20} counted {ours:.2e} FLOPs   published {published:.2e}   ratio {ours / published:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
    elif sys.argv[1:] == ["published"]:
        compare_published()
    elif sys.argv[1:] in (["memory"], ["time"]):
        compare(sys.argv[1])
    else:
        sys.exit(__doc__)
