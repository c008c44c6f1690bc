"""Worker processes end with their parent, however that ends: real processes, really killed."""

import os
import subprocess
import sys
import time

import pytest

from headwise.utils.parent import die_with_parent

# A worker that ignores SIGTERM, and a parent that prints its id and waits.
WORKER = """
import signal, time
from headwise.utils.parent import die_with_parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
die_with_parent({grace})
print("ready", flush=True)
time.sleep(60)
"""
PARENT = """
import subprocess, sys, time
command = [sys.executable, "-c", sys.argv[1]]
worker = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, text=True)
worker.stdout.readline()
print(worker.pid, flush=True)
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_for(done, seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.05)
    return done()


@pytest.mark.parametrize("grace", [0, 1.5])
def test_a_worker_dies_with_its_killed_parent(grace):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, WORKER.format(grace=grace)], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        time.sleep(1.0)
        assert is_alive(pid)  # with its parent
        parent.kill()
        parent.wait()
        killed = time.monotonic()
        assert wait_for(lambda: not is_alive(pid))
        assert time.monotonic() - killed >= grace - 0.1


def test_a_process_with_a_parent_goes_on():
    die_with_parent()
    time.sleep(1.2)
