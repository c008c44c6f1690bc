"""Few-shot prompts, to the letter."""

import pytest

from headwise.errors import UserError
from headwise.inference.few_shot import build_few_shot_prompt

SHOTS = [("sea", "mer"), ("sky {output}", "ciel")]


def test_prompts_follow_the_template():
    assert build_few_shot_prompt(SHOTS, "sun") == (
        "input: sea\noutput: mer\n\ninput: sky {output}\noutput: ciel\n\ninput: sun\noutput:"
    )
    assert build_few_shot_prompt(SHOTS, "sun", count=1) == "input: sea\noutput: mer\n\ninput: sun\noutput:"
    assert build_few_shot_prompt(SHOTS, "sun", count=0) == build_few_shot_prompt([], "sun") == "input: sun\noutput:"
    assert build_few_shot_prompt(SHOTS, "sun", "{input} => {output}; ", count=1) == "sea => mer; sun =>"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"template": "{output} from {input}"}, "must hold {input} and, after it, {output}"),
        ({"count": 3}, "choose from 0 to 2"),
        ({"count": -1}, "choose from 0 to 2"),
    ],
)
def test_a_mistake_is_one_sentence(given, sentence):
    with pytest.raises(UserError, match=sentence):
        build_few_shot_prompt(SHOTS, "sun", **given)
