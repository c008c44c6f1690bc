import subprocess
import sys

import pytest

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.errors import UserError


def test_the_limit_grows_with_the_source_up_to_a_maximum():
    config = DecodeConfig(max_ratio=1.5, max_extra=4, max_length=20)
    assert [config.limit(length) for length in (0, 3, 100)] == [4, 8, 20]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"top_k": 5}, "set temperature above 0"),
        ({"top_p": 0.5}, "set temperature above 0"),
        ({"beams": 4, "temperature": 1.0}, "exclude each other"),
        ({"nbest": 5, "beams": 4}, "nbest = 5 needs at least as many beams"),
        ({"beams": 0}, "beams: .*greater than or equal to 1"),
        ({"temperature": -1.0}, "temperature: .*greater than or equal to 0"),
        ({"temperature": float("nan")}, "temperature: .*finite"),
        ({"nbest": 1_000_000, "temperature": 1.0}, "nbest: .*less than or equal to"),
        ({"beam": 4}, "Headwise calls it decode.beams"),
    ],
)
def test_an_error_names_the_key_and_a_remedy(data, message):
    with pytest.raises(UserError, match=message):
        validate(DecodeConfig, data)


def test_the_config_needs_no_torch():
    code = "import sys, headwise.decode.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
