"""Files that start a training on several machines: a SLURM script, a Kubernetes Job, a script over ssh."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template

from headwise.errors import UserError
from headwise.utils.files import write

KINDS = {"slurm": "slurm.sbatch", "kubernetes": "kubernetes.yaml", "ssh": "ssh.sh"}
PORT = 29500
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?")  # of a Kubernetes object


@dataclass(frozen=True)
class JobConfig:
    """What is started where."""

    experiment: str
    nodes: int
    devices: int  # of a node
    name: str = "headwise"

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.devices < 1:
            raise UserError("a job needs at least one node with one device")
        if not NAME.fullmatch(self.name):
            raise UserError(f"{self.name!r} is no name of a job; use lower-case letters, digits and '-'")


def write_job_file(kind: str, job: JobConfig, path: Path) -> Path:
    """Write the file of this kind."""
    return write(path, render_job_file(kind, job))


def render_job_file(kind: str, job: JobConfig) -> str:
    text = resources.files("headwise.planning").joinpath("templates", KINDS[kind]).read_text("utf-8")
    return Template(text).substitute(
        name=job.name, nodes=job.nodes, devices=job.devices, port=PORT, last=job.nodes - 1,
        experiment=shlex.quote(job.experiment), yaml_experiment=_quote_yaml(job.experiment),
    )  # fmt: skip


def _quote_yaml(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
