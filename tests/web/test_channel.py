"""Messages of JSON and bytes between processes, and how a worker process is started."""

import asyncio
import os
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from headwise.web.channel import LENGTHS, MAX_BYTES, Channel, receive
from headwise.web.launcher import Launcher

MESSAGE = {"id": 3, "text": "a\u2028é", "content": bytes(range(256)) * 5000}


def connect() -> tuple[Channel, socket.socket]:
    one, other = socket.socketpair()
    return Channel(one), other


def test_json_and_bytes_arrive_as_they_were_sent():
    channel, other = connect()
    sender = threading.Thread(target=lambda: [channel.send(each) for each in (MESSAGE, {"plain": [1, None]})])
    sender.start()
    end = Channel(other)
    assert end.receive() == MESSAGE and end.receive() == {"plain": [1, None]}
    sender.join()
    channel.connection.close()
    channel.reader.close()
    assert end.receive() is None
    end.reader.close()
    other.close()


def test_messages_of_several_threads_are_not_mixed():
    channel, other = connect()
    content = os.urandom(2**20)  # more than a socket takes at once
    senders = [
        threading.Thread(target=channel.send, args=({"id": number, "content": bytes([number]) + content},))
        for number in range(4)
    ]
    for sender in senders:
        sender.start()
    end = Channel(other)
    found = [end.receive() for _ in senders]
    assert sorted(each["id"] for each in found) == [0, 1, 2, 3]
    assert all(each["content"] == bytes([each["id"]]) + content for each in found)
    for each in (channel, end):
        each.reader.close()
        each.connection.close()


def test_a_message_beyond_the_limit_ends_the_channel():
    channel, other = connect()
    other.sendall(LENGTHS.pack(2, MAX_BYTES))
    assert channel.receive() is None
    for each in (channel.reader, channel.connection, other):
        each.close()


def test_files_of_the_working_folder_are_no_modules_of_a_worker(tmp_path, monkeypatch):
    """The folder in which a server is started may have come from anybody."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    (tmp_path / "answering.py").write_text("raise SystemExit('imported')")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "answering.py").write_text(
        "import sys\nfrom headwise.web.worker import open_channel\n"
        "channel = open_channel(sys.argv[1])\nchannel.send({'options': sys.argv[2:]})\nchannel.receive()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), *filter(None, sys.path)]))

    async def start() -> object:
        launched = await Launcher("answering", ["--trust"]).launch()
        try:
            return await receive(launched.reader)
        finally:
            await launched.close()

    with ThreadPoolExecutor(1) as apart:  # the browser of other tests has this thread's loop
        assert apart.submit(lambda: asyncio.run(start())).result() == {"options": ["--trust"]}
