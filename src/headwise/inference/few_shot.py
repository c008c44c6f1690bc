"""Few-shot prompts: examples of what is wanted, written out before the input (Brown et al. 2020, section 2)."""

from __future__ import annotations

from collections.abc import Sequence

from headwise.errors import UserError

TEMPLATE = "input: {input}\noutput: {output}\n\n"


def few_shot(examples: Sequence[tuple[str, str]], text: str, template: str = TEMPLATE, count: int | None = None) -> str:
    """The first `count` examples (all unless said; 0 is zero-shot) and the text, whose output is left to be written.

    >>> print(few_shot([("sea", "mer"), ("sky", "ciel")], "sun", count=1))
    input: sea
    output: mer
    <BLANKLINE>
    input: sun
    output:
    """
    before, found, rest = template.partition("{input}")
    between, also, after = rest.partition("{output}")
    if not (found and also):
        raise UserError(f"template: {template!r} must hold {{input}} and, after it, {{output}}")
    if count is not None and not 0 <= count <= len(examples):
        raise UserError(f"count: {count} of {len(examples)} examples cannot be shown; choose from 0 to {len(examples)}")
    shown = "".join(before + given + between + wanted + after for given, wanted in examples[:count])
    # A space before the answer is the answer's: tokens of words begin with it.
    return shown + before + text + between.rstrip(" ")
