"""Logs of episodes: a folder with `manifest.json` and safetensors files of some episodes each. Nothing in them is
executed, and nothing is trusted: digests, shapes and types are compared with the manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from headwise import __version__
from headwise.data.digests import digest_file
from headwise.errors import UserError
from headwise.utils.files import apply_umask, atomic_folder, read_json
from headwise.worlds.episodes import ARRAYS, Episode, Episodes
from headwise.worlds.spaces import Spaces

MANIFEST = "manifest.json"
FORMAT, VERSION = "headwise-episodes", 1
SHARD_BYTES = 256 * 2**20  # of observations in a file, about
DAMAGED = "it may be damaged; collect it again"


@dataclass(frozen=True)
class Manifest:
    """What a log holds: where, how and by whom its episodes were played."""

    environment: str  # the id of Gymnasium
    settings: Mapping[str, Any]
    spaces: Spaces
    policies: Mapping[str, float]  # policy -> its share of the episodes
    seed: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]
    played_by: tuple[str, ...]  # the policy of each episode
    files: Mapping[str, str]  # name -> SHA-256
    versions: Mapping[str, str] = field(default_factory=dict)  # of the packages that it was written with

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"format": FORMAT, "version": VERSION, **data, "spaces": self.spaces.to_json()}

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = folder / MANIFEST
        try:
            data = read_json(path)
        except FileNotFoundError:
            raise UserError(f"{folder}: has no {MANIFEST}; name a folder that `headwise act collect` wrote") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None
        except ValueError:
            raise UserError(f"{path}: is not JSON; {DAMAGED}") from None
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise UserError(f"{path}: is no manifest of episodes of version {VERSION}; collect the log again")
        try:
            manifest = cls(
                **{name: data[name] for name in ("environment", "settings", "policies", "seed", "files", "versions")},
                spaces=Spaces.from_json(data["spaces"]),
                returns=tuple(map(float, data["returns"])),
                lengths=tuple(map(int, data["lengths"])),
                played_by=tuple(map(str, data["played_by"])),
            )
            if any(not isinstance(each, dict) for each in (manifest.settings, manifest.policies, manifest.files)):
                raise ValueError("settings, policies and files must be objects")
            if not manifest.files or not manifest.lengths:
                raise ValueError("without files or episodes")
            if any(name in ("", ".", "..") or Path(name).name != name for name in manifest.files):
                raise ValueError("with files outside its folder")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{path}: {type(error).__name__}: {error}; {DAMAGED}") from None
        return manifest


class LogWriter:
    """Writes episodes as they are played, in files of at most about 256 MB of observations."""

    def __init__(self, folder: Path):
        self.folder, self.waiting, self.files = folder, list[Episode](), dict[str, str]()
        self.returns, self.lengths, self.played_by = list[float](), list[int](), list[str]()

    def add(self, episode: Episode, policy: str) -> None:
        self.waiting.append(episode)
        self.returns.append(episode.total)
        self.lengths.append(len(episode))
        self.played_by.append(policy)
        if sum(each.observations.nbytes for each in self.waiting) >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        joined = Episodes.join(self.waiting)
        path = self.folder / f"episodes-{len(self.files):05d}.safetensors"
        save_file({name: np.ascontiguousarray(getattr(joined, name)) for name in ARRAYS} | {"ends": joined.ends}, path)
        apply_umask(path)
        self.files[path.name] = digest_file(path)
        self.waiting.clear()


def write_log(
    folder: Path,
    episodes: Iterable[tuple[Episode, str]],
    *,
    environment: str,
    settings: Mapping[str, Any],
    spaces: Spaces,
    policies: Mapping[str, float],
    seed: int,
) -> Manifest:
    """Write episodes, each with the policy that played it, as a new log."""
    if folder.exists():
        raise UserError(f"{folder}: exists already; choose another folder")
    import gymnasium

    with atomic_folder(folder) as temporary:
        writer = LogWriter(temporary)
        for episode, policy in episodes:
            writer.add(episode, policy)
        writer.flush()
        versions = {"headwise": __version__, "gymnasium": gymnasium.__version__, "numpy": np.__version__}
        manifest = Manifest(
            environment, dict(settings), spaces, dict(policies), seed, tuple(writer.returns), tuple(writer.lengths),
            tuple(writer.played_by), writer.files, versions,
        )  # fmt: skip
        (temporary / MANIFEST).write_text(json.dumps(manifest.to_json(), indent=1) + "\n", encoding="utf-8")
    return manifest


def read_log(folder: Path) -> tuple[Manifest, Episodes]:
    """The manifest and the episodes of a log."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; write one with `headwise act collect`")
    manifest = Manifest.read(folder)
    parts = [_read_file(folder / name, digest, manifest.spaces) for name, digest in manifest.files.items()]
    episodes = Episodes.concatenate(parts)
    if tuple(episodes.lengths.tolist()) != manifest.lengths:
        raise UserError(f"{folder}: its episodes are not those of {MANIFEST}; {DAMAGED}")
    return manifest, episodes


def _read_file(path: Path, digest: str, spaces: Spaces) -> Episodes:
    try:
        if digest_file(path) != digest:
            raise UserError(f"{path}: has another SHA-256 than {MANIFEST} says; {DAMAGED}")
        tensors = load_file(path)
        observations, actions, rewards, terminated, ends = (tensors[name] for name in (*ARRAYS, "ends"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error}); {DAMAGED}") from None
    except (SafetensorError, KeyError) as error:
        raise UserError(f"{path}: {error}; {DAMAGED}") from None
    steps = len(rewards)
    fits = (
        observations.shape == (steps, *spaces.shape)
        and actions.shape == ((steps,) if spaces.discrete else (steps, spaces.actions))
        and actions.dtype == (np.int64 if spaces.discrete else np.float32)
        and rewards.shape == (steps,)
        and terminated.shape == ends.shape == (len(ends),)
        and len(ends) > 0
        and ends[-1] == steps
        and bool((np.diff(ends, prepend=0) > 0).all())
        and bool(np.isfinite(rewards).all())
        and (not spaces.discrete or bool(((actions >= 0) & (actions < spaces.actions)).all()))
    )
    if not fits:
        raise UserError(f"{path}: its arrays do not fit those of {MANIFEST}; {DAMAGED}")
    return Episodes(observations, actions, rewards, terminated, np.concatenate(([0], ends[:-1])), ends)


def list_files(folder: Path, manifest: Manifest) -> Sequence[Path]:
    return [folder / MANIFEST, *(folder / name for name in manifest.files)]
