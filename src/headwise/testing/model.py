"""Check a model: what its parts declare must hold for the model.

A check that needs a property runs if all parts declare it. If one denies it, the checks of `DENIALS` must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from typing import cast

from torch import nn

from headwise.blocks.stream import Part, Properties
from headwise.models.alphafold2 import AlphaFold2
from headwise.models.generative import GenerativeModel
from headwise.models.image_classifier import ImageClassifier
from headwise.models.language_model import LanguageModel, PrefixLM
from headwise.models.masked_lm import MaskedLanguageModel
from headwise.models.text_classifier import SequenceClassifier, TokenClassifier
from headwise.testing import folding, generative, image_classifier, text_classifier
from headwise.testing.assertions import perturb_parameters
from headwise.testing.verdicts import Verdict, find_violation

Check = Callable[[], None]
DENIALS = ("cached", "packing", "text padding", "text batch")  # checks that must fail where a part denies them


def check_model(model: nn.Module, *, image: tuple[int, int, int] | None = None) -> None:
    """Check an encoder-decoder, a language model, a masked language model, a text, token or image classifier, or a
    folding model.

    `image` is the shape (channels, rows, columns) of an image model's inputs. The model itself is not changed: a copy
    in float64 is tested, with noise on its weights.

    Raises an AssertionError that names every check that fails, and by how much.
    """
    verdicts = judge_model(model, image=image)
    problems = [f"{verdict.check}: {verdict.problem}" for verdict in verdicts if not verdict.passed]
    if problems:
        raise AssertionError("\n  ".join((f"{type(model).__name__} fails these checks:", *problems)))


def judge_model(
    model: nn.Module, *, image: tuple[int, int, int] | None = None, subject: str = "", catch: bool = False
) -> Iterator[Verdict]:
    """The verdicts of `check_model`, with the name `subject`. With `catch`, an exception of the model is one, too."""
    model = perturb_parameters(deepcopy(model))
    declared, subject = combine_properties(model), subject or type(model).__name__
    for name, (check, needed) in list_checks(model, image).items():
        denied = [key for key in needed if not getattr(declared, key)]
        if denied and name not in DENIALS:
            continue
        violation = find_violation(check, catch)
        if denied:
            keys = " and ".join(denied)
            problem = "" if violation else f"holds, though {keys} is denied by a part; declare it"
            yield Verdict(subject, name, problem, f"{keys} is denied: {violation}")
        else:
            yield Verdict(subject, name, violation)


def combine_properties(model: nn.Module) -> Properties:
    """The properties that all parts of a model declare; of a generative model, `causal` and `steppable` are those of
    its decoder."""
    declared = [part.properties for part in model.modules() if isinstance(part, Part)]
    names = [field.name for field in fields(Properties)]
    combined = Properties(**{name: all(getattr(properties, name) for properties in declared) for name in names})
    if not isinstance(model, GenerativeModel):
        return combined
    decoder = combine_properties(model.decoder)
    return replace(combined, causal=decoder.causal, steppable=decoder.steppable)


def list_checks(
    model: nn.Module, image: tuple[int, int, int] | None = None
) -> Mapping[str, tuple[Check, Iterable[str]]]:
    """The checks of a model by name, each with the properties that its parts must declare for it to hold."""
    if isinstance(model, GenerativeModel) and image is None:
        language_model = model if isinstance(model, LanguageModel) and not isinstance(model, PrefixLM) else None
        conditional = cast(
            generative.ConditionalModel, generative.IgnoreSource(language_model) if language_model else model
        )
        checks = {name_of(check): (partial(check, conditional), needed) for check, needed in generative.CHECKS.items()}
        if language_model is not None:
            # Documents may depend on one another through experts' queues, as rows of a batch do.
            edits = combine_properties(model).batch_independent
            checks["packing"] = partial(generative.check_packing, language_model, edits), ("packing",)
        return checks
    if isinstance(model, TokenClassifier | SequenceClassifier | MaskedLanguageModel):
        return {
            f"text {name_of(check)}": (partial(check, model), needed)
            for check, needed in text_classifier.CHECKS.items()
        }
    if isinstance(model, ImageClassifier) and image is not None:
        return {
            f"image {name_of(check)}": (partial(check, model, image), needed)
            for check, needed in image_classifier.CHECKS.items()
        }
    if isinstance(model, AlphaFold2):
        return {
            f"folding {name_of(check)}": (partial(check, model), needed) for check, needed in folding.CHECKS.items()
        }
    raise TypeError(f"there are no checks for {type(model).__name__}" + (": give `image`" if image is None else ""))


def name_of(check: Callable[..., None]) -> str:
    return check.__name__.removeprefix("check_").replace("_", " ")
