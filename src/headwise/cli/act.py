"""`headwise act`: collect and watch episodes. Agents are trained and evaluated by `headwise train` and `evaluate`,
whether they learn from logs or by acting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from headwise.cli.common import Checkpoint, Device, Json, Threads, load_model, say
from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    from headwise.worlds.environments import Environment
    from headwise.worlds.rollout import Policy

app = App(
    name="act",
    help="Collect and watch episodes of agents. `headwise train EXPERIMENT` trains one, from logs or by acting; "
    "`headwise evaluate RUN` plays new episodes.",
)

Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", negative="", help="A setting of the environment: --set observe=state"),
]
Target = Annotated[
    float | None, Parameter(name="--return", help="The return that a run is asked for; default: the best logged.")
]
AgentSeed = Annotated[int, Parameter(help="The seed of the first episode; the next ones follow.")]


@app.command
def collect(
    environment: str,
    *,
    out: Annotated[Path, Parameter(help="The folder to write.")],
    policy: Annotated[
        list[str] | None,
        Parameter(negative="", help="random, expert, noisy or a run folder; several with their shares: noisy=3."),
    ] = None,
    episodes: Annotated[int, Parameter(help="How many episodes.")] = 100,
    set_: Settings = None,
    return_: Target = None,
    seed: AgentSeed = 0,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
    json_: Json = False,
) -> None:
    """Record episodes in an environment, to train agents on.

    Policies: `random`; `expert`, a scripted one, for our own worlds and classic control tasks; `noisy`, the expert with
    a share of random actions that differs from episode to episode, so that there are all skills; a run folder.

    For example:

        headwise act collect grid --policy noisy --episodes 1000 --out logs/grid --set observe=state
        headwise act collect CartPole-v1 --policy random=1 --policy noisy=3 --out logs/cartpole
        headwise act collect grid --policy runs/grid --return 6 --out logs/replay --set observe=state

    Parameters
    ----------
    environment
        One of our worlds, catch, grid, reach or road, or the id of an environment of Gymnasium.
    """
    from headwise.worlds.environments import Environment
    from headwise.worlds.logs import write_log
    from headwise.worlds.rollout import collect as play_episodes
    from headwise.worlds.spaces import Spaces

    if episodes < 1:
        raise UserError("--episodes: there must be at least one")
    if out.exists():
        raise UserError(f"--out {out}: exists already; choose another folder")
    place = Environment.of(environment, parse_settings(set_ or ()))
    shares = parse_policies(policy or ["random"])
    counts = divide(episodes, shares)
    options = (return_, checkpoint, device, threads)
    players = {name: (make_policy(name, place, *options), counts[name]) for name in shares}
    example = place.make(1)
    spaces = Spaces.of(example)
    example.close()
    manifest = write_log(
        out,
        play_episodes(place, players, seed),
        environment=place.id,
        settings=place.settings,
        spaces=spaces,
        policies={name: share / sum(shares.values()) for name, share in shares.items()},
        seed=seed,
    )
    returns, steps = manifest.returns, sum(manifest.lengths)
    low, mean, high = min(returns), sum(returns) / len(returns), max(returns)
    if json_:
        told = {
            "folder": str(out),
            "episodes": len(returns),
            "steps": steps,
            "lowest": low,
            "mean": mean,
            "highest": high,
        }
        print(json.dumps(told))
    else:
        say(f"{len(returns):,} episodes, {steps:,} steps; returns {low:.4g} to {high:.4g}, mean {mean:.4g}")
        print(out)


@app.command
def watch(
    source: str,
    *,
    out: Annotated[Path, Parameter(help="The .gif to write, or a .png or .svg with some frames.")],
    policy: Annotated[str, Parameter(help="In an environment: random, expert or noisy.")] = "expert",
    set_: Settings = None,
    return_: Target = None,
    seed: AgentSeed = 0,
    checkpoint: Checkpoint = "best",
    device: Device = "auto",
    threads: Threads = 0,
) -> None:
    """Play an episode and write it as a GIF, or some of its frames as a PNG or SVG.

    Over the frames of an Attention Agent: the patches that it reads, the most important first (brightest). Under those
    of a Decision Transformer: its attention to past steps, the present one on the right.

    For example:

        headwise act watch runs/grid --out grid.gif
        headwise act watch runs/grid --return 2 --out slow.png
        headwise act watch road --policy expert --out road.gif
        headwise act watch runs/catch-attention-agent --set distractors=4 --out patches.svg

    Parameters
    ----------
    source
        A run folder, or an environment.
    """
    from headwise.inspect.files import check_ending
    from headwise.inspect.film import write_film
    from headwise.worlds.environments import Environment
    from headwise.worlds.rollout import film

    check_ending(out, ".gif", ".png", ".svg")
    player: Policy
    if Path(source).is_dir():
        player, place = load_player(Path(source), return_, checkpoint, device, threads)
        place = Environment.of(place.id, {**place.settings, **parse_settings(set_ or ())})
    else:
        place = Environment.of(source, parse_settings(set_ or ()))
        player = make_policy(policy, place, return_, checkpoint, device, threads)
    watched = film(place, player, seed)
    write_film(watched, out)
    say(f"{len(watched.episode)} steps, return {watched.episode.total:.4g}")
    print(out)


def parse_settings(changes: list[str] | tuple[()]) -> dict[str, Any]:
    """`key=value` assignments; values are TOML, else plain text."""
    from headwise.experiment.config import parse_changes

    return parse_changes(changes)


def parse_policies(texts: list[str]) -> dict[str, float]:
    """Policies with their shares.

    >>> parse_policies(["random", "noisy=3"])
    {'random': 1.0, 'noisy': 3.0}
    """
    shares: dict[str, float] = {}
    for text in texts:
        name, _, share = text.rpartition("=") if "=" in text else (text, "", "1")
        try:
            shares[name] = float(share)
        except ValueError:
            raise UserError(f"--policy {text}: '{share}' is no share; write it as noisy=3") from None
        if not 0 < shares[name] < float("inf"):
            raise UserError(f"--policy {text}: a share is above 0; write it as noisy=3")
    return shares


def divide(count: int, shares: dict[str, float]) -> dict[str, int]:
    """Whole numbers in the proportion of the shares, which sum to `count`.

    >>> divide(10, {"random": 1, "noisy": 2})
    {'random': 3, 'noisy': 7}
    """
    total, counts, given, before = sum(shares.values()), dict[str, int](), 0, 0.0
    for name, share in shares.items():
        before += share
        counts[name] = round(count * before / total) - given
        given += counts[name]
    if not all(counts.values()):
        raise UserError(f"--episodes: {count} are too few for {len(shares)} policies with these shares; collect more")
    return counts


def make_policy(
    name: str, place: Environment, target: float | None, checkpoint: str, device: str, threads: int
) -> Policy:
    """The policy of a name, or of a run folder."""
    from headwise.worlds.rollout import POLICIES

    if name in POLICIES:
        return POLICIES[name]()
    if not Path(name).is_dir():
        near = nearest(name, POLICIES)
        raise UserError(f"--policy {name}: there is no such policy or run folder; {near}")
    player, own = load_player(Path(name), target, checkpoint, device, threads)
    if own.id != place.id:
        raise UserError(f"--policy {name}: this run was trained in {own.id}, not in {place.id}; name another run")
    return player


def load_player(
    run: Path, target: float | None, checkpoint: str, device: str, threads: int
) -> tuple[Policy, Environment]:
    """The policy of a run that was trained to act, and its environment."""
    from headwise.worlds.environments import Environment

    loaded = load_model(run, checkpoint, device, threads)
    task = loaded.check_command("act")
    place = Environment.of(task.encoder.environment, task.encoder.settings)
    return task.build_policy(loaded.model, target), place
