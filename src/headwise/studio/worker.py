"""A process that computes for the studio: `python -m headwise.studio.worker FD [--with PARTS.py] [--trust]`.

Its first message names the runs; then come operations and cancellations. One thread reads them, the main thread runs
models, and one reads files and cached maps; each computes one operation at a time. It ends when the front does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headwise.config.plugins import take_options
from headwise.errors import UserError
from headwise.studio.operations import OPERATIONS, WORKER_OF_LANE, Answer, Lane
from headwise.studio.progress import TASK, Cancelled, Task, watch_modules
from headwise.studio.run_registry import RunRegistry
from headwise.studio.workspace import Workspace
from headwise.web.channel import MAX_BYTES, Channel, Message
from headwise.web.worker import open_channel, read_memory, report


class Worker:
    """The operations of one process."""

    def __init__(self, channel: Channel, workspace: Workspace):
        self.channel, self.workspace = channel, workspace
        self.tasks: dict[int, Task] = {}  # those that are not finished
        self.queues = {lane: SimpleQueue[Message]() for lane in WORKER_OF_LANE}

    def run(self, name: str) -> None:
        """Compute until the front has gone; `name` is that of the lane of the main thread."""
        threading.Thread(target=self._read, daemon=True).start()
        main, *others = [lane for lane, worker in WORKER_OF_LANE.items() if worker == name]
        for lane in others:
            threading.Thread(target=self._compute_all, args=(lane,), daemon=True).start()
        self._compute_all(main)

    def _read(self) -> None:
        while (message := self.channel.receive()) is not None:
            number = message.get("id")
            if "cancel" in message:
                if (task := self.tasks.get(message["cancel"])) is not None:
                    task.cancelled = True
            elif message["op"] == "status":
                self.channel.send({"id": number, "type": "done", "content": encode(self._describe())})
            else:
                self.tasks[message["id"]] = self._make_task(message)
                self.queues[OPERATIONS[message["op"]].lane].put(message)
        os._exit(0)

    def _make_task(self, message: Message) -> Task:
        def send(done: int, total: int) -> None:
            self.channel.send({"id": message["id"], "type": "progress", "done": done, "total": total})

        return Task(message["op"], send)

    def _describe(self) -> dict[str, Any]:
        running = [task.operation for task in list(self.tasks.values())]
        return {"pid": os.getpid(), "running": running, "models": len(self.workspace.models), "memory": read_memory()}

    def _compute_all(self, lane: Lane) -> None:
        while True:
            message = self.queues[lane].get()
            answer = self._compute(message)
            del self.tasks[message["id"]]
            self.channel.send({"id": message["id"], **answer})

    def _compute(self, message: Message) -> Message:
        body = message["body"] | ({"content": message["content"]} if "content" in message else {})
        token = TASK.set(self.tasks[message["id"]])
        try:
            return {"type": "done", "content": encode(OPERATIONS[message["op"]].run(self.workspace, body))}
        except Cancelled:
            return {"type": "cancelled"}
        except UserError as error:
            return {"type": "error", "status": 400, "message": str(error)}
        except Exception as error:  # a fault of ours or of the machine, such as too little memory
            return {"type": "error", "status": 500, "message": report(error)}
        finally:
            TASK.reset(token)


def encode(answer: Answer) -> bytes:
    """An answer as bytes; those that are neither bytes nor text are JSON."""
    if isinstance(answer, dict | list):
        try:
            answer = json.dumps(answer, allow_nan=False, separators=(",", ":"))
        except ValueError:
            raise UserError(
                "the model's numbers are not finite: its weights are damaged or training diverged"
            ) from None
    content = answer.encode() if isinstance(answer, str) else answer
    if len(content) > MAX_BYTES - 2**16:
        raise UserError(f"the answer has {len(content) / 2**20:,.0f} MB, which is too much for a page; ask for less")
    return content


def main(words: list[str]) -> None:
    channel = open_channel(words[0])
    try:
        take_options(words[1:])
    except UserError as error:  # a parts file that was changed or deleted since the studio was started
        channel.send({"failed": str(error)})
        return
    if (first := channel.receive()) is None:
        return
    import_module("headwise.inference.trained_model")  # torch: seconds, while the user is still typing
    watch_modules()
    channel.send({"ready": True})
    registry = RunRegistry([Path(path) for path in first["paths"]], first["data_root"])
    Worker(channel, Workspace(registry)).run(first["name"])


if __name__ == "__main__":
    main(sys.argv[1:])
