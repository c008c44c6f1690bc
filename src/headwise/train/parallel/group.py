"""The processes that train one model, and what they agree on: the clock, signals, scores, errors.

Values are exchanged as JSON through torch's TCPStore, never by pickle; only the clock and signals, which are needed at
each step, by an all-reduce.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError

if TYPE_CHECKING:
    from torch.distributed import Store

CONNECT = timedelta(seconds=300)  # until all processes are there: machines start one after the other
WAKE = timedelta(seconds=1)  # between looks whether another process has failed
ERROR = "error"  # key of the number of processes with an error of their own


class PeerFailed(Exception):
    """Another process has ended with an error, which it reports itself."""


class Group:
    """One process alone: it is the main one, and agrees with itself."""

    rank = 0
    size = 1

    @property
    def is_main(self) -> bool:
        """Whether this process validates, writes and prints."""
        return self.rank == 0

    def start(self, timeout: float) -> None:
        """Connect the processes for collectives, before the first of them."""

    def broadcast(self, value: Any = None) -> Any:
        """The value of the main process, which may be all that JSON holds."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank."""
        return [value]

    def max(self, values: Sequence[float]) -> list[float]:
        """The largest of each value over the processes."""
        return list(values)

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """A block that the main process has left before the others enter it."""
        yield

    def check_same(self, facts: Mapping[str, Any]) -> None:
        """Refuse processes that differ in one of these facts."""


ALONE = Group()


class ProcessGroup(Group):
    """The processes that torchrun or another launcher has started, by the variables of their environment."""

    def __init__(self, store: Store, rank: int, size: int):
        from torch.distributed import PrefixStore

        self.store, self.rank, self.size = PrefixStore("headwise", store), rank, size
        self.connections = PrefixStore("torch", store)
        self.exchanges = 0
        self.timeout = CONNECT

    @classmethod
    def connect(cls) -> ProcessGroup:
        """The group of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""
        import torch
        from torch import distributed

        place = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
        try:
            store, rank, size = next(iter(distributed.rendezvous("env://", timeout=CONNECT)))
        except ValueError as error:
            raise UserError(
                f"WORLD_SIZE is set, but the processes cannot meet: {error}; start them with --processes or torchrun"
            ) from None
        except RuntimeError as error:
            if "EADDRINUSE" in str(error):
                raise UserError(
                    f"the processes meet at {place}, and this port is in use; set MASTER_PORT to a free one"
                ) from None
            raise UserError(
                f"the processes cannot meet at {place}: {_first_line(error)}; check MASTER_ADDR and MASTER_PORT"
            ) from None
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        return cls(store, rank, size)

    def start(self, timeout: float) -> None:
        import torch
        from torch import distributed

        self.timeout = timedelta(seconds=timeout)
        if distributed.is_initialized():
            return
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        distributed.init_process_group(
            backend, store=self.connections, rank=self.rank, world_size=self.size, timeout=self.timeout
        )

    def close(self) -> None:
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()

    def broadcast(self, value: Any = None) -> Any:
        return self._exchange({0: value} if self.is_main else {}, [0])[0]

    def gather(self, value: Any) -> list[Any]:
        return self._exchange({self.rank: value}, range(self.size))

    def _exchange(self, mine: Mapping[int, Any], ranks: Sequence[int]) -> list[Any]:
        """Give values and take those of `ranks`."""
        self.exchanges += 1
        for rank, value in mine.items():
            self.store.set(f"{self.exchanges}/{rank}", json.dumps(value))
        return [json.loads(self._read(f"{self.exchanges}/{rank}")) for rank in ranks]

    def _read(self, key: str) -> bytes:
        """The value of a key as soon as it is there; raises PeerFailed if another process fails before."""
        waited = timedelta()
        while waited < self.timeout:
            try:
                self.store.wait([key], WAKE)
                return self.store.get(key)
            except RuntimeError as error:  # of the store: time-out, or the process that keeps it has ended
                if "imeout" not in str(error) and "imed out" not in str(error):
                    raise PeerFailed from None
            if self.store.check([ERROR]):
                raise PeerFailed
            waited += WAKE
        rank = key.partition("/")[2]
        raise UserError(
            f"process {rank} has not answered for {self.timeout.total_seconds():.0f} s; look at it, or raise "
            "train.parallel.timeout"
        )

    def max(self, values: Sequence[float]) -> list[float]:
        import torch
        from torch import distributed

        tensor = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX)
        return tensor.tolist()

    @contextmanager
    def main_first(self) -> Iterator[None]:
        if not self.is_main:
            self.broadcast()
        yield
        if self.is_main:
            self.broadcast(True)

    def check_same(self, facts: Mapping[str, Any]) -> None:
        mine = json.loads(json.dumps({"host": socket.gethostname(), "facts": facts}))
        first, *others = self.gather(mine)
        for rank, other in enumerate(others, 1):
            for name in first["facts"].keys() | other["facts"].keys():
                values = [one["facts"].get(name, "missing") for one in (first, other)]
                if values[0] != values[1]:
                    raise UserError(
                        f"the processes differ: {name} is {values[0]} in process 0 ({first['host']}) and {values[1]} "
                        f"in process {rank} ({other['host']}); start all with the same experiment and packages"
                    )

    def claim_error(self) -> bool:
        """Whether this process is the first with an error, and reports it."""
        try:
            return self.store.add(ERROR, 1) == 1
        except RuntimeError:  # the process that keeps the store has ended, with an error of its own
            return False


_joined: list[ProcessGroup] = []


def is_worker() -> bool:
    """Whether a launcher has started this process as one of several."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


@contextmanager
def join() -> Iterator[Group]:
    """The group of this process, which is left at the end of the block. One process alone has nothing to join, and a
    block inside another has its group.

    Of an error in several processes the first one is raised in its process; the others end without a message.
    """
    if _joined or not is_worker():
        yield _joined[0] if _joined else ALONE
        return
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # DDP warns of settings that are as they should be
    group = ProcessGroup.connect()
    _joined.append(group)
    try:
        yield group
    except PeerFailed:
        leave(1)
    except UserError:
        if not group.claim_error():
            leave(2)
        raise
    except RuntimeError as error:
        if not is_connection_error(error):
            group.claim_error()
            raise
        if group.claim_error():
            print(f"headwise: process {group.rank}: the connection to another process is lost", file=sys.stderr)
        leave(1)
    else:
        group.gather(None)  # the main process may keep the store: it ends last
        group.close()
    finally:
        _joined.clear()


def is_connection_error(error: RuntimeError) -> bool:
    """Whether an error of a collective says that another process has gone."""
    text = str(error)
    return "gloo" in text or "NCCL" in text or "onnection" in text


def leave(status: int) -> None:
    """End at once: threads of a connection to a process that has gone would wait for it."""
    os._exit(status)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
