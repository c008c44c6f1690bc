import os
import signal
import subprocess
import sys

import pytest

from headwise.train.signals import Interrupted, Signals

TWICE = """
import os, signal, time
from headwise.train.signals import Signals
with Signals() as signals:
    os.kill(os.getpid(), signal.{first})
    print(signals.received, flush=True)
    os.kill(os.getpid(), signal.{second})
    time.sleep(60)
"""


@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM")])
def test_the_second_signal_ends_the_process_at_once(first, second):
    code = TWICE.format(first=first, second=second)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert ended.stdout == f"{first}\n"
    assert ended.returncode == 128 + signal.SIGTERM
    assert "a second signal quits at once" in ended.stderr


def test_a_signal_interrupts_an_interruptible_block():
    handler = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        with pytest.raises(Interrupted), signals.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted), signals.interruptible():
            raise AssertionError("started after a signal")
    assert signal.getsignal(signal.SIGTERM) is handler
