"""Speed of our own worlds: frames of 64 x 64 x 3 bytes that are stepped and drawn in a second of a core.

    python benchmarks/worlds.py                 # 64 copies together, one second each
    python benchmarks/worlds.py --copies 1

Times are processor time, so that other work on the machine counts little. A frame is a step of the rules with the
expert's last actions and the drawing, without the agent.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

from headwise.worlds.tables import HOMES, make_world

SCENES = {name: {"colours": "random", "distractors": 4} for name in ("catch", "reach", "road")}


def measure(name: str, copies: int, seconds: float, **settings: object) -> float:
    """Frames a second."""
    world = make_world(name, copies, **settings)
    world.reset(np.arange(copies), np.arange(copies, dtype=np.uint64))
    actions, frames, start = world.act_expert(), 0, process_time()
    while process_time() - start < seconds:
        result = world.step(actions)
        world.render()
        frames += copies
        ended = np.nonzero(result.terminated | result.truncated)[0]
        if len(ended):
            world.reset(ended, ended.astype(np.uint64))
    return frames / (process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    for name in HOMES:
        rows = {"plain": {}, **({"colours and distractors": SCENES[name]} if name in SCENES else {})}
        for label, settings in rows.items():
            print(f"{name:6} {label:24} {measure(name, options.copies, options.seconds, **settings):9,.0f} frames/s")


if __name__ == "__main__":
    main()
