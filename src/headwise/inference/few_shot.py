"""Few-shot prompts: examples of inputs and outputs before the input (Brown et al. 2020, section 2)."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.errors import UserError

TEMPLATE = "input: {input}\noutput: {output}\n\n"


def build_few_shot_prompt(
    examples: Sequence[tuple[str, str]], text: str, template: str = TEMPLATE, count: int | None = None
) -> str:
    """A prompt of the first `count` examples (default: all; 0 is zero-shot) and the text, whose output is missing.

    >>> print(build_few_shot_prompt([("sea", "mer"), ("sky", "ciel")], "sun", count=1))
    input: sea
    output: mer
    <BLANKLINE>
    input: sun
    output:
    """
    before, has_input, rest = template.partition("{input}")
    between, has_output, after = rest.partition("{output}")
    if not (has_input and has_output):
        raise UserError(f"template: {template!r} must hold {{input}} and, after it, {{output}}")
    if count is not None and not 0 <= count <= len(examples):
        raise UserError(f"count: {count} of {len(examples)} examples is not possible; choose from 0 to {len(examples)}")
    shots = "".join(before + source + between + target + after for source, target in examples[:count])
    # Without the space before the answer: tokens of words begin with it.
    return shots + before + text + between.rstrip(" ")
