"""Check a model: what its parts declare must hold for the whole.

A check that needs a property runs where all parts declare it. Where one denies it, the check must fail if `DENIALS`
has it: then the denial is seen in the model, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from typing import cast

from torch import nn

from headwise.blocks.stream import Part, Properties
from headwise.errors import UserError
from headwise.models.generative import GenerativeModel
from headwise.models.image_classifier import ImageClassifier
from headwise.models.language_model import LanguageModel, PrefixLM
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import SequenceClassifier, TokenClassifier
from headwise.testing import generative, image_classifier, text_classifier
from headwise.testing.assertions import perturb_parameters

Check = Callable[[], None]
DENIALS = ("cached", "packing", "text padding", "text batch")  # checks that must fail where a part denies them


def check_model(model: nn.Module, *, image: tuple[int, int, int] | None = None) -> None:
    """Check an encoder-decoder, a language model, a classifier of texts, tokens or images, or a masked language model.

    A model of `image`s is fed with (channels, rows, columns). The model itself is not changed: a copy in float64 is
    tested, with weights away from their initial values.

    Raises an AssertionError that names every check that fails, and by how much.
    """
    model = perturb_parameters(deepcopy(model))
    declared, problems = combine_properties(model), []
    for name, (check, needed) in list_checks(model, image).items():
        denied = [key for key in needed if not getattr(declared, key)]
        if denied and name not in DENIALS:
            continue
        violation = find_violation(check)
        if violation and not denied:
            problems.append(f"{name}: {violation}")
        elif denied and not violation:
            problems.append(f"{name}: holds, though {' and '.join(denied)} is denied by a part; declare it")
    if problems:
        raise AssertionError("\n  ".join((f"{type(model).__name__} does not keep its promises:", *problems)))


def combine_properties(model: nn.Module) -> Properties:
    """The properties that all parts of a model declare; of a generative model, all of its decoder are causal and
    steppable."""
    declared = [part.properties for part in model.modules() if isinstance(part, Part)]
    combined = Properties(**{key.name: all(getattr(each, key.name) for each in declared) for key in fields(Properties)})
    if not isinstance(model, GenerativeModel):
        return combined
    written = combine_properties(model.decoder)
    return replace(combined, causal=written.causal, steppable=written.steppable)


def list_checks(
    model: nn.Module, image: tuple[int, int, int] | None = None
) -> Mapping[str, tuple[Check, Iterable[str]]]:
    """The checks of a model by name, each with the properties that its parts must declare for it to hold."""
    if isinstance(model, GenerativeModel) and image is None:
        language_model = model if isinstance(model, LanguageModel) and not isinstance(model, PrefixLM) else None
        conditional = cast(
            generative.ConditionalModel, generative.IgnoreSource(language_model) if language_model else model
        )
        checks = {name(check): (partial(check, conditional), needed) for check, needed in generative.CHECKS.items()}
        if language_model is not None:
            # Through queues documents may depend on one another, as rows of a batch do.
            edits = combine_properties(model).batch_independent
            checks["packing"] = partial(generative.check_packing, language_model, edits), ("packing",)
        return checks
    if isinstance(model, TokenClassifier | SequenceClassifier | MaskedLanguageModel):
        return {
            f"text {name(check)}": (partial(check, model), needed) for check, needed in text_classifier.CHECKS.items()
        }
    if isinstance(model, ImageClassifier) and image is not None:
        return {
            f"image {name(check)}": (partial(check, model, image), needed)
            for check, needed in image_classifier.CHECKS.items()
        }
    raise TypeError(f"there are no checks for {type(model).__name__}" + (": give `image`" if image is None else ""))


def name(check: Callable[..., None]) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")


def find_violation(check: Check) -> str:
    """What a check says against the model; empty where it holds."""
    try:
        check()
    except AssertionError as violation:
        return str(violation)
    except UserError as refusal:
        return f"it refuses: {refusal}"
    return ""
