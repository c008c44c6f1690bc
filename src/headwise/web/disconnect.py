"""ASGI middleware that gives up a request when its client has gone: the task that answers it is cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headwise.web.guard import App, Message, Receive, Scope, Send


class CancelOnDisconnect:
    """Reads the body, which the guard has limited, and watches the connection while the application answers."""

    def __init__(self, app: App):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        messages: list[Message] = []
        while not messages or messages[-1].get("more_body", False):
            messages.append(await receive())
            if messages[-1]["type"] == "http.disconnect":
                return
        gone = asyncio.Event()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        async def replay() -> Message:
            if messages:
                return messages.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        task, watcher = asyncio.create_task(self._run(scope, replay, send)), asyncio.create_task(watch())
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
        finally:
            for each in (task, watcher):
                each.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await each

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)
