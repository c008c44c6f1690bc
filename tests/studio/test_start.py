"""The first page is there at once, and stays there while models work."""

import subprocess
import sys
import urllib.error
import urllib.request

import pytest


def test_the_first_page_does_not_wait_for_torch():
    code = "import sys, headwise.studio.server; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_unchanged_files_are_revalidated_with_not_modified(studio):
    with urllib.request.urlopen(f"{studio.url}static/app.js") as answer:
        tag = answer.headers["etag"]
        assert answer.headers["content-type"].startswith("text/javascript") and b"import" in answer.read()
    again = urllib.request.Request(f"{studio.url}static/app.js", headers={"if-none-match": tag})
    with pytest.raises(urllib.error.HTTPError) as same:
        urllib.request.urlopen(again)
    with same.value as answer:
        assert answer.code == 304 and answer.read() == b""
