"""Faults, load and attacks against `headwise serve`, each with the number that must hold.

    python benchmarks/serve_faults.py
    python benchmarks/serve_faults.py --only flood slow --requests 200

Every check starts servers of its own on 127.0.0.1 over a tiny language model with random weights, which it writes to a
temporary folder, and talks to them through plain sockets from this process. The table at the end has what was asked
for and what was found; the exit status is 1 if anything failed. It takes some five minutes, of which the slow clients
are one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from headwise.experiment.config import Experiment
from headwise.inference.trained_model import TrainedModel
from headwise.text.tokenisers import Tokenisers
from headwise.text.vocabulary import Characters

KEY = "0123456789abcdef0123456789abcdef"
LETTERS = "abcdefghijklmnopqrstuvwxyz <>.,\n"
SHORT = {"model": "lm", "prompt": "to be", "max_tokens": 8, "temperature": 0}


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float

    @property
    def is_json(self) -> bool:
        try:
            json.loads(self.body)
        except ValueError:
            return False
        return True


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int

    async def ask(
        self, path: str, body: Any = None, method: str = "", headers: dict[str, str] | None = None, raw: bytes = b""
    ) -> Reply:
        """One request over a connection of its own; status 0: the connection broke."""
        started = time.perf_counter()
        content = raw or (json.dumps(body).encode() if body is not None else b"")
        names = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **(headers or {})}
        if content or body is not None:
            names |= {"Content-Type": "application/json"} | {"Content-Length": str(len(content))}
        head = f"{method or ('POST' if content else 'GET')} {path} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in names.items() if value)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            with suppress(OSError):  # a server that refuses early closes while we send
                writer.write(head.encode("latin-1") + b"\r\n" + content)
                await writer.drain()
            answer = await reader.read(-1)
            writer.close()
        except OSError:
            answer = b""
        return parse_reply(answer, time.perf_counter() - started)

    async def open_stream(self, tokens: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request for a stream of so many tokens."""
        body = {"text": "to be", "max_tokens": tokens, "min_length": tokens, "temperature": 0, "stream": True}
        content = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /api/generate HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
        writer.write(head.encode() + f"Content-Length: {len(content)}\r\n\r\n".encode() + content)
        return reader, writer

    async def read_metric(self, name: str) -> float:
        text = (await self.ask("/metrics")).body.decode()
        found = re.search(rf"^{name}(?:{{[^}}]*}})? ([\d.e+-]+)$", text, re.MULTILINE)
        return float(found[1]) if found else float("nan")

    def list_workers(self) -> list[int]:
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]

    def read_memory(self) -> int:
        """Resident bytes of front and workers."""
        pages = [
            int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (self.process.pid, *self.list_workers())
        ]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def parse_reply(answer: bytes, seconds: float) -> Reply:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split()
    status = int(words[1]) if len(words) > 1 and words[1].isdecimal() else 0
    headers = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return Reply(status, headers, body, seconds)


def write_model(folder: Path) -> Path:
    """A language model with random weights and a context of 4,096 tokens."""
    torch.manual_seed(1)
    given = {"task": {"kind": "language-model", "context": 4096}, "model": "llama-tiny", "data": {"train": "none.tsv"}}
    experiment = Experiment.model_validate({**given, "train": {"steps": 1}})
    letters = Characters(LETTERS)
    tokenisers = Tokenisers(letters, letters)
    model = experiment.create_task(tokenisers).build(experiment.model).eval()
    return TrainedModel(model, tokenisers, experiment).save(folder / "lm").path


@contextmanager
def serving(run: Path, *words: str, **environment: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "headwise", "serve", str(run), "--port", "0", "--threads", "1", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})
    assert process.stderr is not None
    try:
        found = None
        for line in process.stderr:
            found = re.search(r"served at https?://[^ ]*:(\d+)/", line)
            if found:
                break
        if found is None:
            raise SystemExit(f"the server did not start: {' '.join(command)}")
        yield Server(process, int(found[1]))
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        process.stderr.close()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@dataclass
class Finding:
    name: str
    asked: str
    found: str
    passed: bool


async def flood(run: Path, requests: int) -> Finding:
    with serving(run, "--queue", "128", "--no-spare") as server:
        await server.ask("/v1/completions", SHORT)
        before = server.read_memory()
        replies = await asyncio.gather(*(server.ask("/v1/completions", SHORT) for _ in range(requests)))
        after = server.read_memory()
    kinds = Counter(reply.status for reply in replies)
    refused = [reply for reply in replies if reply.status in (429, 503)]
    quick = percentile([reply.seconds for reply in refused], 0.99)
    waits = all("retry-after" in reply.headers for reply in refused)
    grown = after / before
    passed = set(kinds) <= {200, 429, 503} and waits and quick < 0.5 and grown < 1.5
    found = f"{dict(kinds)}, refusals p99 {1e3 * quick:.0f} ms, memory x {grown:.2f}"
    return Finding(
        f"{requests:,} requests at once, queue 128",
        "200, 429, 503 with Retry-After; p99 < 500 ms; < 1.5x",
        found,
        passed,
    )


async def trickle(server: Server, head: bytes, body: bool) -> float:
    """Seconds until the server closes a connection that sends a byte a second."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    started = time.perf_counter()
    writer.write(head)
    closed = asyncio.create_task(reader.read(-1))
    with suppress(OSError):
        while not closed.done() and time.perf_counter() - started < 45:
            writer.write(b" " if body else b"x")
            await asyncio.wait({closed}, timeout=1)
    writer.close()
    return time.perf_counter() - started


async def slow(run: Path, requests: int) -> Finding:
    heads, bodies = requests // 2, requests // 10
    with serving(run) as server:
        head = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
        post = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        clients = [asyncio.create_task(trickle(server, head, False)) for _ in range(heads)]
        clients += [
            asyncio.create_task(trickle(server, f"{post}Content-Length: 1000\r\n\r\n".encode(), True))
            for _ in range(bodies)
        ]
        answered: list[float] = []
        while not all(client.done() for client in clients):
            answered.append((await server.ask("/health")).seconds)
            await asyncio.sleep(0.1)
        seconds = [client.result() for client in clients]
    worst = max(seconds[:heads]), max(seconds[heads:])
    health = percentile(answered, 0.99)
    found = f"closed within {worst[0]:.1f} s and {worst[1]:.1f} s; /health p99 {1e3 * health:.0f} ms"
    passed = worst[0] < 12 and worst[1] < 32 and health < 0.2
    return Finding(
        f"{heads} slow headers, {bodies} slow bodies", "10 s and 30 s (+ 2); /health p99 < 200 ms", found, passed
    )


async def sizes(run: Path, requests: int) -> Finding:
    limit = 256 * 1024
    with serving(run, "--no-spare") as server:
        before = server.read_memory()
        replies = [await server.ask("/v1/completions", raw=b" " * (limit + 1))]
        chunk = b"%x\r\n" % limit + b" " * limit + b"\r\n"
        chunks = {"Transfer-Encoding": "chunked", "Content-Length": ""}
        replies.append(await server.ask("/v1/completions", raw=chunk + b"1\r\n \r\n0\r\n\r\n", headers=chunks))
        endless = await server.ask("/v1/completions", raw=chunk * 400, headers=chunks)  # 100 MB
        replies.append(endless)
        exact = await server.ask("/v1/completions", raw=json.dumps(SHORT).encode().ljust(limit))
        grown = server.read_memory() - before
    kinds = [reply.status for reply in replies]
    found = f"{kinds}, at the limit {exact.status}; memory + {grown >> 20} MB after 100 MB"
    passed = all(kind in (413, 0) for kind in kinds) and kinds[0] == 413 and exact.status == 200 and grown < 20 << 20
    return Finding("a byte over the limit: with length, chunked, endless", "413 without buffering it", found, passed)


STRANGE = {
    "invalid UTF-8": b'{"model": "lm", "prompt": "\xff\xfe"}',
    "lone surrogate": b'{"model": "lm", "prompt": "\\ud800"}',
    "NUL": b'{"model": "lm", "prompt": "a\\u0000b"}',
    "NaN": b'{"model": "lm", "prompt": "a", "temperature": NaN}',
    "Infinity": b'{"model": "lm", "prompt": "a", "temperature": 1e999}',
    "nested 200,000 deep": b"[" * 200_000,
    "objects 30,000 deep": b'{"a":' * 30_000,
    "5,000 digits": b'{"model": "lm", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
    "20,000 keys": json.dumps({f"k{number}": 0 for number in range(20_000)}).encode(),
    "two bodies": b'{"model": "lm"}{"model": "lm"}',
    "a list": b"[1, 2]",
    "nothing": b" ",
    "unknown key": b'{"model": "lm", "promt": "a"}',
}


async def strange(run: Path, requests: int) -> Finding:
    with serving(run) as server:
        replies = {name: await server.ask("/v1/completions", raw=body) for name, body in STRANGE.items()}
    wrong = {name: reply.status for name, reply in replies.items() if not (400 <= reply.status < 500 and reply.is_json)}
    slowest = max(reply.seconds for reply in replies.values())
    return Finding(
        f"{len(STRANGE)} bodies that are no requests", "4xx in JSON, never 500",
        f"{len(STRANGE) - len(wrong)} of {len(STRANGE)} {wrong or ''}, slowest {1e3 * slowest:.0f} ms", not wrong,
    )  # fmt: skip


async def values(run: Path, requests: int) -> Finding:
    cases: dict[str, dict[str, Any]] = {
        "prompt over context": {"prompt": "a" * 5000}, "max_tokens 1e9": {"max_tokens": 10**9},
        "n 1e6": {"n": 10**6}, "temperature -1": {"temperature": -1}, "top_p 7": {"top_p": 7},
        "100,001 characters": {"prompt": "a" * 100_001},
        "prompt and max_tokens": {"prompt": "a" * 4000, "max_tokens": 1000},
    }  # fmt: skip
    with serving(run) as server:
        await server.ask("/v1/completions", SHORT)
        replies = {
            name: [await server.ask("/v1/completions", SHORT | case) for _ in range(9)] for name, case in cases.items()
        }
    wrong = {name: row[0].status for name, row in replies.items() if any(each.status != 400 for each in row)}
    medians = {name: percentile([each.seconds for each in row], 0.5) for name, row in replies.items()}
    slowest = max(medians, key=medians.__getitem__)
    found = f"{len(cases) - len(wrong)} of {len(cases)} {wrong or ''}; "
    found += f"slowest median {1e3 * medians[slowest]:.0f} ms ({slowest})"
    return Finding("values out of range", "400 within 50 ms", found, not wrong and medians[slowest] < 0.05)


async def texts(run: Path, requests: int) -> Finding:
    cases = {"1,000,000 characters": "a" * 1_000_000, "100,000 combining marks": "a" + "\u0301" * 99_999}
    with serving(run) as server:
        await server.ask("/v1/completions", SHORT)
        answered: list[float] = []
        statuses = []
        for text in cases.values():
            client = asyncio.create_task(server.ask("/v1/completions", SHORT | {"prompt": text}))
            while not client.done():
                answered.append((await server.ask("/health")).seconds)
            statuses.append(client.result().status)
    lag = max(answered)
    passed = all(status in (400, 413) for status in statuses) or lag < 0.1
    return Finding(
        " and ".join(cases),
        "400 or 413, or others wait < 100 ms",
        f"{statuses}, /health at most {1e3 * lag:.0f} ms",
        passed,
    )


async def disconnects(run: Path, requests: int) -> Finding:
    count = requests // 5
    with serving(run, "--queue", "256", "--max-tokens", "3000") as server:
        alone = await server.ask("/v1/completions", SHORT | {"max_tokens": 64})
        streams = await asyncio.gather(*(server.open_stream(3000) for _ in range(count)))
        await streams[0][0].readuntil(b"data: ")
        other = asyncio.create_task(server.ask("/v1/completions", SHORT | {"max_tokens": 64}))
        await asyncio.sleep(2)
        before = await server.read_metric("headwise_worker_requests")
        rows = await server.read_metric("headwise_worker_rows")
        started = time.perf_counter()
        for _, writer in streams:
            writer.transport.abort()
        freed = float("inf")
        while time.perf_counter() - started < 10:
            left = await server.read_metric("headwise_worker_requests")
            if left <= 1:  # the other one
                freed = time.perf_counter() - started
                break
            await asyncio.sleep(0.02)
        reply = await other
    equal = reply.status == 200 and json.loads(reply.body)["choices"] == json.loads(alone.body)["choices"]
    found = f"{before:.0f} requests and {rows:.0f} rows before, free after {freed:.2f} s; "
    found += f"the other's output {'equal' if equal else 'differs'}"
    return Finding(
        f"{count} clients go while they are answered", "free within 1 s; others unchanged", found, freed < 1 and equal
    )


async def drain(run: Path, requests: int) -> Finding:
    count = requests // 20
    with serving(run, "--max-tokens", "3000") as server:
        workers = server.list_workers()
        body = SHORT | {"max_tokens": 300}
        clients = [asyncio.create_task(server.ask("/v1/completions", body)) for _ in range(count)]
        while await server.read_metric("headwise_worker_requests") < count:
            await asyncio.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        started = time.perf_counter()
        await asyncio.sleep(0.05)
        ready = (await server.ask("/ready")).status
        refused = (await server.ask("/v1/completions", SHORT)).status
        statuses = Counter(reply.status for reply in await asyncio.gather(*clients))
        code = await asyncio.to_thread(server.process.wait, 60)
        seconds = time.perf_counter() - started
    orphans = [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    found = f"/ready {ready}, new {refused}, {dict(statuses)} in {seconds:.1f} s, status {code}, orphans {len(orphans)}"
    passed = (
        ready == 503 and refused in (503, 0) and set(statuses) == {200} and seconds < 30 and code == 0 and not orphans
    )
    return Finding(
        f"SIGTERM with {count} in flight", "/ready 503, all finish in 30 s, status 0, no orphans", found, passed
    )


async def batches(run: Path, requests: int) -> Finding:
    prompts = [
        f"{letter * (1 + number % 7)} to {number % 5 * 'be '}" for number, letter in enumerate("abcdefghijklmnopqrst")
    ]
    bodies = [SHORT | {"prompt": prompt, "max_tokens": 40} for prompt in prompts]
    bodies += [body | {"temperature": 1, "seed": number} for number, body in enumerate(bodies)]
    with serving(run) as server:
        alone = [json.loads((await server.ask("/v1/completions", body)).body)["choices"] for body in bodies]
        order = sorted(range(len(bodies)), key=lambda number: (number * 7919) % 41)
        together = await asyncio.gather(*(server.ask("/v1/completions", bodies[number]) for number in order))
    same = sum(
        json.loads(reply.body)["choices"] == alone[number] for number, reply in zip(order, together, strict=True)
    )
    return Finding(
        "40 requests alone, and together in another order",
        "equal texts",
        f"{same} of {len(bodies)} equal",
        same == len(bodies),
    )


async def defaults(run: Path, requests: int) -> Finding:
    failures = []
    public = subprocess.run(
        [sys.executable, "-m", "headwise", "serve", str(run), "--host", "0.0.0.0"],
        capture_output=True,
        text=True,
        check=False,
    )
    if public.returncode != 2 or "key" not in public.stderr or "Traceback" in public.stderr:
        failures.append("0.0.0.0 without a key")
    with serving(run) as server:
        port = f"{server.port:04X}"
        listening = [
            line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines() if f":{port} 0000" in line
        ]
        if listening != [f"0100007F:{port}"]:
            failures.append(f"listens on {listening}")
        for name, value, expected in (("Host", "evil.example", 421), ("Origin", "http://evil.example", 403)):
            if (status := (await server.ask("/v1/completions", SHORT, headers={name: value})).status) != expected:
                failures.append(f"{name} {value}: {status}")
        headers = (await server.ask("/")).headers
        if "access-control-allow-origin" in headers or headers.get("x-content-type-options") != "nosniff":
            failures.append("headers")
        if "unsafe" in headers.get("content-security-policy", "unsafe"):
            failures.append("content security policy")
    return Finding(
        "defaults",
        "127.0.0.1, key for 0.0.0.0, no CORS, Host, Origin, CSP, nosniff",
        ", ".join(failures) or "all hold",
        not failures,
    )


async def keys(run: Path, requests: int) -> Finding:
    with serving(run, HEADWISE_API_KEY=KEY) as server:
        right = {"Authorization": f"Bearer {KEY}"}
        described = json.loads((await server.ask("/openapi.json", headers=right)).body)
        paths = [*described["paths"], "/", "/static/app.js", "/nothing"]
        statuses = {path: (await server.ask(path)).status for path in paths}
        posts = {path: (await server.ask(path, {})).status for path in paths}
        opened = (await server.ask("/v1/models", headers=right)).status
        guesses = [
            (await server.ask("/v1/models", headers={"Authorization": f"Bearer {n:032d}"})).status for n in range(30)
        ]
    open_paths = {path for path, status in (statuses | posts).items() if status != 401}
    throttled = guesses.count(429)
    command = Path(f"/proc/{os.getpid()}/cmdline").read_text()
    passed = open_paths <= {"/health", "/ready"} and opened == 200 and throttled >= 5 and KEY not in command
    found = f"{len(paths)} paths, open: {sorted(open_paths)}; right key {opened}; {throttled} of 30 guesses 429"
    return Finding("every route without the key", "401 except /health and /ready", found, passed)


async def names(run: Path, requests: int) -> Finding:
    tried = [
        "../lm",
        "/etc/passwd",
        "http://127.0.0.1/x",
        "lm/../lm",
        "lm\x01",
        "link",
        "runs/lm",
        ".",
        "",
        "LM",
        "%2e%2e",
    ]
    link = run.parent / "link"
    if not link.exists():
        link.symlink_to("/etc")
    with serving(run) as server:
        statuses = [(await server.ask("/v1/completions", SHORT | {"model": name})).status for name in tried if name]
        statuses += [(await server.ask("/v1/models/" + name.replace("\x01", "%01"))).status for name in tried]
        opened = await watch_files(server)
    passed = all(status in (400, 404) for status in statuses) and not opened
    return Finding(
        f"{len(statuses)} model names that are paths",
        "404 or 400, no file opened",
        f"{dict(Counter(statuses))}, opened {opened}",
        passed,
    )


async def watch_files(server: Server) -> list[str]:
    """Files outside the installation that the front process has open; names are looked up in a table alone."""
    folder = Path(f"/proc/{server.process.pid}/fd")
    found = []
    for entry in folder.iterdir():
        with suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("/") and not target.startswith(("/dev", "/proc", "/tmp", sys.prefix)):
                found.append(target)
    return found


async def crash(run: Path, requests: int) -> Finding:
    with serving(run, "--max-tokens", "3000") as server:
        await server.ask("/v1/completions", SHORT)
        await asyncio.sleep(15)  # until the process in reserve has imported everything
        client = asyncio.create_task(server.ask("/api/generate", {"text": "a", "max_tokens": 3000, "min_length": 3000}))
        await asyncio.sleep(1)
        os.kill(server.list_workers()[0], signal.SIGKILL)  # the others wait in reserve
        started = time.perf_counter()
        status = (await client).status
        back = float("inf")
        while time.perf_counter() - started < 60:
            if (await server.ask("/v1/completions", SHORT)).status == 200:
                back = time.perf_counter() - started
                break
            await asyncio.sleep(0.05)
        alive = (await server.ask("/health")).status
    found = f"that request {status}, /health {alive}, back after {back:.1f} s"
    return Finding(
        "a worker is killed with kill -9",
        "5xx for its requests; back within 5 s",
        found,
        500 <= status < 600 and back < 5,
    )


async def markup(run: Path, requests: int) -> Finding:
    text = "<script>alert(1)</script>"
    with serving(run) as server:
        reply = await server.ask("/v1/completions", SHORT | {"prompt": text, "echo": True})
        page = await server.ask("/")
    kind, policy = reply.headers.get("content-type", ""), page.headers.get("content-security-policy", "")
    passed = kind == "application/json" and "script-src 'self'" in policy and b"<script>" not in page.body
    found = f"answers are {kind}; scripts of the page: its own files only (tests/serve/test_page.py has a browser)"
    return Finding("HTML and script in texts", "shown as text", found, passed)


CHECKS: dict[str, Callable[[Path, int], Awaitable[Finding]]] = {
    "flood": flood, "slow": slow, "sizes": sizes, "strange": strange, "values": values, "texts": texts,
    "disconnects": disconnects, "drain": drain, "batches": batches, "defaults": defaults, "keys": keys, "names": names,
    "crash": crash, "markup": markup,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=CHECKS, default=list(CHECKS), help="checks to run")
    parser.add_argument("--requests", type=int, default=1000, help="of the flood; the others are in proportion")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else soft, hard))
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        run = write_model(Path(folder))
        for number, name in enumerate(options.only, 1):
            finding = asyncio.run(CHECKS[name](run, options.requests))
            findings.append(finding)
            print(
                f"{number}/{len(options.only)} {name}: {'pass' if finding.passed else 'FAIL'}: {finding.found}",
                flush=True,
            )
    print("\n| what | must hold | found | |\n|---|---|---|---|")
    for each in findings:
        print(f"| {each.name} | {each.asked} | {each.found} | {'pass' if each.passed else '**fail**'} |")
    sys.exit(any(not each.passed for each in findings))


if __name__ == "__main__":
    main()
