"""Where keys are read from, and how often one may guess."""

import logging

import pytest

from headwise import UserError
from headwise.web.keys import ENVIRONMENT, GuessLimit, find_equal, read_keys

KEYS = ("0123456789abcdef", "fedcba9876543210")


def test_keys_of_a_file_and_of_the_environment(tmp_path, monkeypatch, caplog):
    file = tmp_path / "keys"
    file.write_text(f"# for the shop\n{KEYS[0]}\n\n{KEYS[1]}  # for the office\n")
    file.chmod(0o600)
    assert read_keys(file) == KEYS and not caplog.records
    file.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert read_keys(file) == KEYS
    assert "others can read this file" in caplog.text
    monkeypatch.setenv(ENVIRONMENT, ",".join(KEYS))
    assert read_keys(None) == KEYS
    monkeypatch.delenv(ENVIRONMENT)
    assert read_keys(None) == ()


@pytest.mark.parametrize(
    ("content", "told"),
    [(b"", "has no key"), (b"short\n", "needs 16"), (b"\xff" * 20, "ASCII"), (None, "cannot be read")],
)
def test_bad_key_files_are_refused(tmp_path, content, told):
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=told):
        read_keys(file)


def test_keys_are_compared_whole():
    assert find_equal(KEYS[1], KEYS) == KEYS[1]
    assert not any(find_equal(guess, KEYS) for guess in ("", KEYS[0][:-1], KEYS[0] + "0", "é"))


def test_guesses_are_limited_by_address():
    limit = GuessLimit(count=3, seconds=60, addresses=2)
    for _ in range(3):
        assert limit.get_wait("a") == 0
        limit.add("a")
    assert 0 < limit.get_wait("a") <= 60 and limit.get_wait("b") == 0
    for address in ("b", "c"):
        limit.add(address)
    assert len(limit.failures) == 2
