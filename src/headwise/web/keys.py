"""API keys: where they are read from, and how often a client may guess."""

from __future__ import annotations

import hmac
import logging
import os
import stat
from collections import OrderedDict, deque
from pathlib import Path
from time import monotonic

from headwise.errors import UserError
from headwise.utils.files import read_bytes

ENVIRONMENT = "HEADWISE_API_KEY"
MIN_LENGTH = 16
MAX_BYTES = 64 * 2**10  # of a key file
log = logging.getLogger(__name__)


def read_keys(file: Path | None) -> tuple[str, ...]:
    """The keys in a file, one on each line, `#` before comments; without a file those in HEADWISE_API_KEY, separated by
    commas. They are never arguments of a command, which every user of the machine can list."""
    if file is None:
        where, lines = ENVIRONMENT, os.environ.get(ENVIRONMENT, "").split(",")
    else:
        where = f"--key-file {file}"
        try:
            lines = read_bytes(file.resolve(), MAX_BYTES).decode("ascii").splitlines()
            mode = file.stat().st_mode
        except UnicodeDecodeError:
            raise UserError(f"{where}: keys have ASCII characters only; write others") from None
        except OSError as error:
            raise UserError(
                f"{where}: cannot be read ({error.strerror}); name a file with a key on each line"
            ) from None
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            log.warning("%s: others can read this file; run: chmod 600 %s", where, file)
    keys = tuple(dict.fromkeys(key for line in lines if (key := line.partition("#")[0].strip())))
    if file is not None and not keys:
        raise UserError(f"{where}: has no key; write one on a line, such as the output of: openssl rand -hex 24")
    for key in keys:
        if len(key) < MIN_LENGTH or not key.isascii() or not key.isprintable():
            raise UserError(
                f"{where}: a key has {len(key)} characters, and needs {MIN_LENGTH} or more printable ASCII ones; "
                "use the output of: openssl rand -hex 24"
            )
    return keys


def find_equal(given: str, keys: tuple[str, ...]) -> str:
    """The key that equals `given`, or nothing; the time does not depend on which one, or how much of it, is equal."""
    found = ""
    for key in keys:
        if hmac.compare_digest(given.encode(), key.encode()):
            found = key
    return found


class GuessLimit:
    """How many wrong keys a client address may send within a time; beyond it, no key of that address is looked at."""

    def __init__(self, count: int = 20, seconds: float = 60.0, addresses: int = 10_000):
        self.count, self.seconds, self.addresses = count, seconds, addresses
        self.failures: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> None:
        times = self.failures.setdefault(address, deque(maxlen=self.count))
        times.append(monotonic())
        self.failures.move_to_end(address)
        if len(self.failures) > self.addresses:
            self.failures.popitem(last=False)

    def get_wait(self, address: str) -> float:
        """Seconds until the address may try again; 0: now."""
        times = self.failures.get(address)
        if times is None or len(times) < self.count:
            return 0.0
        return max(0.0, times[0] + self.seconds - monotonic())
