"""The first page is there at once, and stays there while models work."""

import asyncio
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwise.studio.model_pool import MODEL_WORKERS, ModelPool
from headwise.studio.run_registry import RunRegistry


def test_the_first_page_does_not_wait_for_torch():
    code = "import sys, headwise.studio.server; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_requests_without_a_model_do_not_wait_for_one(runs):
    """As many slow requests as are worked on at once: lists are answered meanwhile."""
    pool, done = ModelPool(RunRegistry([runs])), threading.Event()

    async def asked() -> list[str]:
        slow = [
            asyncio.ensure_future(pool.run_with_model(name, lambda _: done.wait(20))) for name in ("reverse", "align")
        ]
        assert len(slow) == MODEL_WORKERS
        try:
            return await asyncio.wait_for(pool.run(lambda: sorted(pool.registry.items())), 15)
        finally:
            done.set()
            await asyncio.gather(*slow)

    with ThreadPoolExecutor(1) as apart:  # the browser of the other tests has this thread's loop
        assert "reverse" in apart.submit(lambda: asyncio.run(asked())).result()


def test_unchanged_files_are_revalidated_with_not_modified(studio):
    with urllib.request.urlopen(f"{studio.url}static/app.js") as answer:
        tag = answer.headers["etag"]
        assert answer.headers["content-type"].startswith("text/javascript") and b"import" in answer.read()
    again = urllib.request.Request(f"{studio.url}static/app.js", headers={"if-none-match": tag})
    with pytest.raises(urllib.error.HTTPError) as same:
        urllib.request.urlopen(again)
    with same.value as answer:
        assert answer.code == 304 and answer.read() == b""
