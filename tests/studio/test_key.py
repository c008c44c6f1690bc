"""A studio that others can reach: what opens it, for programs and for browsers."""

import pytest
from playwright.sync_api import expect

from headwise.web.guard import Address, Guard

KEY = "a key/with & signs"
ADDRESS = Address("127.0.0.1", 8000, (KEY,))


def ask(path="/", query=b"", method="GET", **headers):
    """Status and headers of the answer of a guarded application."""

    async def behind(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    told = []

    async def send(message):
        told.append(message)

    given = [(name.encode(), value.encode()) for name, value in {"host": "studio.example", **headers}.items()]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": given}
    with pytest.raises(StopIteration):  # nothing in it waits, so no event loop is needed
        Guard(behind, ADDRESS)(scope, None, send).send(None)
    return told[0]["status"], {name.decode(): value.decode() for name, value in told[0]["headers"]}


def entered() -> str:
    status, headers = ask("/", ADDRESS.browser_url.partition("?")[2].encode())
    assert status == 303 and headers["location"] == "/"
    assert "HttpOnly" in headers["set-cookie"] and "SameSite=Strict" in headers["set-cookie"]
    assert KEY not in headers["set-cookie"]
    return headers["set-cookie"].split(";")[0]


def test_the_browser_gets_a_cookie_that_does_not_contain_the_key():
    cookie = entered()
    assert ask(cookie=cookie)[0] == ask(cookie=f"other=1; {cookie}")[0] == 200
    assert ask(cookie=cookie, origin="http://evil.example")[0] == 403
    assert ask(cookie=cookie, origin="http://studio.example")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"cookie": "headwise-8000="},
        {"cookie": "headwise-8000=" + "0" * 64},
        {"cookie": f"headwise-8000={KEY}"},
        {"cookie": "\x01;;=="},
        {"authorization": "Bearer ké"},
        {"authorization": f"Basic {KEY}"},
    ],
)
def test_requests_without_the_key_are_refused(headers):
    status, _ = ask(**headers)
    assert status == 401


def test_a_wrong_key_or_a_key_in_a_post_is_refused():
    assert ask("/", b"key=wrong")[0] == 401
    assert ask("/", ADDRESS.browser_url.partition("?")[2].encode(), method="POST")[0] == 401
    assert ask(authorization=f"Bearer {KEY}")[0] == 200


def test_entering_the_key_never_redirects_elsewhere():
    query = ADDRESS.browser_url.partition("?")[2].encode()
    assert ask("//evil.example/x", query)[1]["location"] == "/evil.example/x"
    assert ask("/static/app.js", b"v=1&" + query)[1]["location"] == "/static/app.js?v=1"


def test_a_page_opens_with_the_key_in_its_url(page, runs, serve):
    with serve(runs, keys=(KEY,)) as address:
        page.goto(f"{address.browser_url}#/look")
        expect(page.locator("main")).to_have_attribute("data-ready", "form", timeout=60_000)
        assert "key" not in page.url and page.evaluate("document.cookie") == ""
