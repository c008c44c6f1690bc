"""Job files are read by the shells and parsers that they are for, whatever the experiment's name."""

import subprocess

import pytest
import yaml

from headwise.errors import UserError
from headwise.planning.job_files import JobConfig, render_job_file

ODD = "my runs/it's $HOME `here`.toml"


def test_slurm_asks_for_the_nodes():
    text = render_job_file("slurm", JobConfig("a.toml", 4, 8, "long-run"))
    options = [line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("#SBATCH")]
    assert {"--nodes=4", "--gpus-per-node=8", "--job-name=long-run", "--requeue"} <= set(options)


def run_script(kind, job, folder, commands, *words, **environment):
    """Run a script with stand-ins for the commands of a cluster, which are not here."""
    for name, body in commands.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    (folder / "job.sh").write_text(render_job_file(kind, job))
    environment["PATH"] = f"{folder}:/usr/bin:/bin"
    run = subprocess.run(["bash", folder / "job.sh", *words], text=True, capture_output=True, env=environment)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_slurm_starts_torchrun_on_every_node(tmp_path):
    commands = {"srun": 'printf "%s\\n" "$@"', "scontrol": "seq -f node-%g 1 100000"}
    given = {"SLURM_CPUS_PER_TASK": "16", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node-[1-100000]"}
    words = run_script("slurm", JobConfig(ODD, 2, 8), tmp_path, commands, **given)
    assert words[-1] == ODD and {"--nnodes=2", "--rdzv-endpoint=node-1:29500"} <= set(words)


def test_ssh_starts_torchrun_on_every_host(tmp_path):
    """The last word of ssh is a command for the shell of the other machine."""
    commands = {"ssh": 'eval "${@: -1}"', "torchrun": 'printf "%s\\n" "$@"'}
    words = run_script("ssh", JobConfig(ODD, 2, 8), tmp_path, commands, "one", "two")
    assert words.count(ODD) == 2 and {"--node-rank=0", "--node-rank=1", "--rdzv-endpoint=one:29500"} <= set(words)


def test_kubernetes_reads_the_job():
    service, job = yaml.safe_load_all(render_job_file("kubernetes", JobConfig(ODD, 4, 8, "long-run")))
    spec = job["spec"]
    container = spec["template"]["spec"]["containers"][0]
    assert (spec["completions"], spec["completionMode"], container["args"][-1]) == (4, "Indexed", ODD)
    assert service["spec"]["selector"] == {"job-name": "long-run"} and service["spec"]["clusterIP"] == "None"
    assert container["livenessProbe"] and container["startupProbe"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 8


def test_wrong_names_are_refused():
    with pytest.raises(UserError, match="use lower-case letters"):
        JobConfig("a.toml", 1, 1, "My job")
