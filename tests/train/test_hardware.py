import os
import subprocess
import sys
from contextlib import ExitStack

import pytest

from headwise.errors import UserError
from headwise.train.hardware import choose_device, describe_busy_cores
from headwise.utils.cpu import count_busy_cores

HOG = "import os; os.sched_setaffinity(0, [{}]); print(flush=True)\nwhile True: pass"


@pytest.mark.parametrize("name", ["nonsense", "cuda:99", "xla"])
def test_an_unavailable_device_is_an_error(name):
    with pytest.raises(UserError, match=f"'{name}' is not available here; use cpu"):
        choose_device(name)


def test_threads_that_would_wait_for_busy_cores_are_a_warning():
    ours = os.sched_getaffinity(0)
    with ExitStack() as stack:
        for core in ours:
            hog = stack.enter_context(
                subprocess.Popen([sys.executable, "-c", HOG.format(core)], stdout=subprocess.PIPE)
            )
            stack.callback(hog.kill)
            assert hog.stdout
            hog.stdout.readline()
        assert count_busy_cores() == len(ours)
        warning = describe_busy_cores(threads=2)
        assert f"{len(ours)} of {len(ours)} cores busy" in warning
        assert "--set train.threads=1" in warning
        assert describe_busy_cores(threads=1) == ""
