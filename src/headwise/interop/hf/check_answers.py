"""Compare what a folder makes of texts in Headwise and in `transformers`: the ids that its model reads, and its answers
(labels, tags, spans, masked words, generated texts), each with its own tokeniser and everything between a text and its
answer.

What `transformers` does is written out here with its tokeniser and model, as its pipelines do it.

Letters: B texts, T tokens, C channels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headwise.config.base import validate
from headwise.decode.config import DecodeConfig
from headwise.interop.hf.check_generation import (
    NEW_TOKENS,
    SearchComparison,
    build_greedy,
    compare_rows,
)
from headwise.interop.hf.read import GENERATIVE_TASKS, ImportedModel
from headwise.interop.hf.text import PAIR_TASKS, distinguish_labels
from headwise.tasks.mask_filling import MASK
from headwise.text import BOS, SPECIALS
from headwise.text.hf import VocabularyMap

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel

TEXTS = ("The cat sat on the mat.", "is it 12 o'clock, or don't you know?", "naïve Zürich ( no 3.5 )")
DRAWN, WORDS = 5, 8  # texts of words of the vocabulary, and tokens in each
TOLERANCE = 1e-4  # of probabilities; of other numbers, relative to those above 1
MAX_SPAN = 30  # tokens of an answer
FILLS = 5

Answer = Sequence[tuple[str, float]]  # labels, words or a text, with a number each
Texts = tuple[str, ...]  # a text, or both texts of a pair


@dataclass(frozen=True)
class AnswerComparison:
    """The answers to some texts in both libraries."""

    task: str
    count: int = 0
    difference: str = ""  # the first one
    reason: str = ""  # why nothing was compared

    @property
    def equal(self) -> bool:
        return not self.difference

    def __str__(self) -> str:
        if self.reason:
            return f"texts: not compared, as {self.reason}"
        if self.difference:
            return f"{self.task}: {self.difference}"
        return f"{self.task}: the answers to all {self.count} texts are equal"


@dataclass(frozen=True)
class Folder:
    """A folder in both libraries."""

    imported: ImportedModel
    loaded: TrainedModel
    hf_model: Any
    tokenizer: Any

    def encode(self, texts: Texts) -> Any:
        return self.tokenizer(*texts, return_tensors="pt")

    def run(self, texts: Texts) -> Any:
        """The outputs of transformers' model."""
        known = inspect.signature(self.hf_model.forward).parameters
        return self.hf_model(**{name: tensor for name, tensor in self.encode(texts).items() if name in known})

    def compare(self) -> tuple[SearchComparison | AnswerComparison, ...]:
        """Compare ids and, where these are equal, answers."""
        task = self.imported.task
        texts = self.list_texts()
        if not texts:
            return (AnswerComparison(task, reason="the tokenizer has no texts that are short enough for the model"),)
        answer, expect = VERBS[task]
        with record_ids(self) as rows:
            ours = [answer(self, each) for each in texts]
        if task == "language-model":
            rows[:] = [self.encode_prompt(*each) for each in texts]
        hf_rows = [self.encode(self.write_masks(each)).input_ids[0].tolist() for each in texts]
        ids = compare_rows("token ids of texts", rows, hf_rows, self.name_tokens())
        if ids.first_differing is not None:
            return (replace(ids, name=f"{ids.name}, {show(texts[ids.first_differing[0] - 1])}"),)
        for each, actual in zip(texts, ours, strict=True):
            if difference := describe_difference(actual, expect(self, each)):
                return (ids, AnswerComparison(task, len(texts), f"{show(each)}: {difference}"))
        return (ids, AnswerComparison(task, len(texts)))

    def name_tokens(self) -> dict[int, str]:
        return {number: repr(token) for token, number in self.tokenizer.get_vocab().items()}

    def write_masks(self, texts: Texts) -> Texts:
        """Texts with the mask token of the tokenizer."""
        mask = self.tokenizer.mask_token
        return tuple(text.replace(MASK, mask) for text in texts) if self.imported.task == "masked" else texts

    def encode_prompt(self, text: str) -> list[int]:
        ids = [BOS] * self.loaded.experiment.decode.marked + self.loaded.tokenisers.target.encode(text)
        return to_hf_ids(self.imported, ids)

    def list_texts(self) -> list[Texts]:
        """Texts, pairs of texts where the task has them, texts with masks."""
        prefix = self.loaded.experiment.data.add_prefix
        texts = [prefix(text) for text in (*TEXTS, *draw_texts(self.tokenizer, self.imported.vocabularies.source))]
        pairs: list[Texts] = list(pairwise(texts)) if self.imported.task in PAIR_TASKS and self.reads_pairs else []
        single: list[Texts] = [] if self.imported.task == "answer" else [(text,) for text in texts]
        if self.imported.task == "masked":
            single = [(mask_word(text, number),) for number, (text,) in enumerate(single)]
        return [each for each in (*single, *pairs) if self.fits(self.write_masks(each))]

    @property
    def reads_pairs(self) -> bool:
        """Whether the tokenizer tells the texts of a pair apart."""
        return int(self.tokenizer.num_special_tokens_to_add(pair=True)) > 1

    def fits(self, texts: Texts) -> bool:
        """Whether the model reads all of it, and can go on where it generates."""
        room = NEW_TOKENS if self.imported.task in GENERATIVE_TASKS else 0
        return 0 < len(self.tokenizer(*texts).input_ids) <= self.imported.context - len(SPECIALS) - room


def show(texts: Texts) -> str:
    """
    >>> show(("Who?", "I."))
    "'Who?' and 'I.'"
    """
    return " and ".join(map(repr, texts))


def compare_answers(imported: ImportedModel, loaded: TrainedModel, hf_model: Any, tokenizer: Any) -> tuple[Any, ...]:
    """Compare what both libraries make of texts; `tokenizer` is that of transformers."""
    return Folder(imported, loaded, hf_model, tokenizer).compare()


def draw_texts(tokenizer: Any, vocabulary_map: VocabularyMap) -> list[str]:
    """Texts of words of the vocabulary, in which no special token is spelt."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder, *vocabulary_map.owners, vocabulary_map.mask}
    names = [str(token) for token in tokenizer.added_tokens_decoder.values()]
    words = [number for number in sorted(tokenizer.get_vocab().values()) if number not in special]
    draw = Random(0)
    drawn = [tokenizer.decode(draw.choices(words, k=WORDS)) for _ in range(DRAWN)] if words else []
    texts = [" ".join(text.replace("\N{REPLACEMENT CHARACTER}", " ").split()) for text in drawn]
    return [text for text in texts if text and not any(name in text for name in names)]


def mask_word(text: str, number: int) -> str:
    """
    >>> mask_word("the cat sat", 4)
    'the [MASK] sat'
    """
    words = text.split()
    words[number % len(words)] = MASK
    return " ".join(words)


@contextmanager
def record_ids(folder: Folder) -> Iterator[list[list[int]]]:
    """The Hugging Face ids of every text that the encoder of Headwise reads, its own special tokens included."""
    rows: list[list[int]] = []
    encoder = getattr(folder.loaded.model, "encoder", None)

    def record(module: Any, args: tuple[Any, ...]) -> None:
        (ids,) = args[0].tolist()
        prefix, suffix = module.prefix_id, getattr(module, "suffix_id", None)
        before, after = ([] if number is None else [number] for number in (prefix, suffix))
        rows.append(to_hf_ids(folder.imported, [*before, *ids, *after]))

    if encoder is None:
        yield rows
        return
    handle = encoder.register_forward_pre_hook(record)
    try:
        yield rows
    finally:
        handle.remove()


def to_hf_ids(imported: ImportedModel, ids: Sequence[int]) -> list[int]:
    return [imported.vocabularies.source.hf_ids[number] for number in ids]


def describe_difference(actual: Answer, expected: Answer) -> str:
    """
    >>> describe_difference([("yes", 0.75), ("no", 0.25)], [("yes", 0.5), ("no", 0.5)])
    "'yes' 0.7500 here, 'yes' 0.5000 in transformers"
    """
    for (word, number), (other, value) in zip(actual, expected, strict=False):
        if word != other or not abs(number - value) <= TOLERANCE * max(1.0, abs(value)):
            return f"{word!r} {number:.4f} here, {other!r} {value:.4f} in transformers"
    if len(actual) != len(expected):
        return f"{len(actual)} answers here, {len(expected)} in transformers"
    return ""


def classify(folder: Folder, texts: Texts) -> Answer:
    (probabilities,) = folder.loaded.classify(["\t".join(texts)])
    return list(probabilities.items())


def classify_there(folder: Folder, texts: Texts) -> Answer:
    config, logits = folder.hf_model.config, folder.run(texts).logits[0]
    if config.problem_type == "regression":
        values = logits
    elif config.problem_type == "multi_label_classification" or len(logits) == 1:
        values = logits.sigmoid()
    else:
        values = logits.softmax(-1)
    labels = distinguish_labels(config.id2label[number] for number in range(len(logits)))
    return list(zip(labels, values.tolist(), strict=True))


def regress(folder: Folder, texts: Texts) -> Answer:
    return name_numbers(folder.loaded.regress(["\t".join(texts)]))


def regress_there(folder: Folder, texts: Texts) -> Answer:
    return name_numbers(folder.run(texts).logits[0].tolist())


def name_numbers(numbers: Sequence[float]) -> Answer:
    return [(f"number {place}", number) for place, number in enumerate(numbers, 1)]


def tag(folder: Folder, texts: Texts) -> Answer:
    (words,) = folder.loaded.tag(texts)
    return [(f"{word}: {name}", 0.0) for word, name in words]


def tag_there(folder: Folder, texts: Texts) -> Answer:
    """The tag of a word is that of its first token."""
    names, numbers = folder.hf_model.config.id2label, folder.run(texts).logits[0].argmax(-1).tolist()
    tokens = [found[0] for found in find_word_tokens(folder, *texts)]
    return [(f"{word}: {names[numbers[token]]}", 0.0) for word, token in zip(texts[0].split(), tokens, strict=True)]


def find_word_tokens(folder: Folder, text: str) -> list[list[int]]:
    """The places of the tokens of each word between spaces; a token may be the space before it."""
    encoding = folder.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
    spans = [
        (-1, -1) if special else span
        for span, special in zip(encoding.offset_mapping, encoding.special_tokens_mask, strict=True)
    ]
    places, start = [], 0
    for word in text.split():
        end = start + len(word)
        places.append([place for place, (first, last) in enumerate(spans) if first < end and last >= start])
        start = end + 1
    return places


def detect_replaced(folder: Folder, texts: Texts) -> Answer:
    (words,) = folder.loaded.check_task("replaced-tokens").detect_replaced(folder.loaded.model, texts)
    return [(each.word, each.probability) for each in words]


def detect_replaced_there(folder: Folder, texts: Texts) -> Answer:
    probabilities = folder.run(texts).logits[0].sigmoid().tolist()
    words = zip(texts[0].split(), find_word_tokens(folder, *texts), strict=True)
    return [(word, max(probabilities[place] for place in places)) for word, places in words]


def answer(folder: Folder, texts: Texts) -> Answer:
    question, text = texts
    return [(found, 0.0) for found in folder.loaded.answer([(question, text)])]


def answer_there(folder: Folder, texts: Texts) -> Answer:
    """The span of the second text with the largest sum of its two logits."""
    outputs, encoding = folder.run(texts), folder.tokenizer(*texts)
    places = [place for place, text in enumerate(encoding.sequence_ids()) if text == 1]
    starts, ends = outputs.start_logits[0].tolist(), outputs.end_logits[0].tolist()
    spans = [(first, last) for first in places for last in places if first <= last < first + MAX_SPAN]
    first, last = max(spans, key=lambda span: starts[span[0]] + ends[span[1]])
    return [(folder.tokenizer.decode(encoding.input_ids[first : last + 1]).strip(), 0.0)]


def fill_mask(folder: Folder, texts: Texts) -> Answer:
    (masks,) = folder.loaded.fill_mask(texts, FILLS)
    return [(fill.word.strip(), fill.probability) for fills in masks for fill in fills]


def fill_mask_there(folder: Folder, texts: Texts) -> Answer:
    """The most probable tokens that are not special."""
    texts, tokenizer = folder.write_masks(texts), folder.tokenizer
    ids, outputs = folder.encode(texts).input_ids[0], folder.run(texts)
    logits = getattr(outputs, "prediction_logits", None)
    logits = (outputs.logits if logits is None else logits)[0]
    probabilities: Tensor = logits[: len(ids)][ids == tokenizer.mask_token_id].softmax(-1)  # (masks, V)
    probabilities[:, list_special_ids(folder)] = 0
    best = probabilities.topk(FILLS)
    return [
        (tokenizer.decode([word]).strip(), probability)
        for row in zip(*map(Tensor.tolist, best), strict=True)
        for probability, word in zip(*row, strict=True)
    ]


def list_special_ids(folder: Folder) -> list[int]:
    """The Hugging Face ids of special tokens."""
    added = [number for number, token in folder.tokenizer.added_tokens_decoder.items() if token.special]
    map_ = folder.imported.vocabularies.target
    known = [*map_.owners] if map_.mask is None else [*map_.owners, map_.mask]
    return sorted({*folder.tokenizer.all_special_ids, *added, *known})


def embed(folder: Folder, texts: Texts) -> Answer:
    return name_numbers(folder.loaded.embed(texts)[0].tolist())


def embed_there(folder: Folder, texts: Texts) -> Answer:
    """The mean of the last hidden states."""
    return name_numbers(folder.run(texts).last_hidden_state[0].mean(0).tolist())


def build_limits(folder: Folder) -> dict[str, Any]:
    """Greedy search, of a few tokens."""
    ends = folder.imported.decode_settings.get("eos_token_ids", ())
    lengths = {"max_ratio": 0.0, "max_extra": NEW_TOKENS, "max_length": NEW_TOKENS}
    greedy = validate(DecodeConfig, {"convention": "generate", "eos_token_ids": ends, **lengths})
    settings = {name: value for name, value in greedy if name not in ("context", "marked")}
    start = folder.imported.decode_settings.get("decoder_start_token_id")
    return settings if start is None else settings | {"decoder_start_token_id": start}


def generate(folder: Folder, texts: Texts) -> Answer:
    if folder.imported.task == "transduce":
        found = folder.loaded.translate(texts, **build_limits(folder))
    else:
        found = [nbest[0].text for nbest in folder.loaded.continue_prompts(texts, **build_limits(folder))]
    return [(text.strip(), 0.0) for text in found]


def generate_there(folder: Folder, texts: Texts) -> Answer:
    """What `generate` writes, without special tokens; unknown words are shown, as here."""
    hf_model, ids = folder.hf_model, folder.encode(texts).input_ids
    config = build_greedy(hf_model, folder.loaded.model)
    config.update(max_new_tokens=NEW_TOKENS, max_length=None)
    before, hf_model.generation_config = hf_model.generation_config, config
    try:
        outputs = hf_model.generate(ids, attention_mask=torch.ones_like(ids))
    finally:
        hf_model.generation_config = before
    first = ids.shape[1] if folder.imported.task == "language-model" else 0
    special = {*list_special_ids(folder)} - {folder.imported.vocabularies.target.unk}
    written = [number for number in outputs[0][first:].tolist() if number not in special]
    return [(folder.tokenizer.decode(written).strip(), 0.0)]


Verb = Callable[[Folder, Texts], Answer]
VERBS: Mapping[str, tuple[Verb, Verb]] = {  # task -> the verb here, and written out with transformers
    "language-model": (generate, generate_there),
    "transduce": (generate, generate_there),
    "masked": (fill_mask, fill_mask_there),
    "classify": (classify, classify_there),
    "regress": (regress, regress_there),
    "tag": (tag, tag_there),
    "replaced-tokens": (detect_replaced, detect_replaced_there),
    "answer": (answer, answer_there),
    "encode": (embed, embed_there),
}
