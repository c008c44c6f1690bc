"""Hidden Markov models: a tagger counted from tagged words (Brants 2000, "TnT"), and a language model fitted to texts
without tags (Baum et al. 1970)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from headwise.hmm.language_model import HiddenMarkovLanguageModel
from headwise.hmm.model import HiddenMarkov
from headwise.models.config import ModelConfig
from headwise.models.entry import Check, Entry

UNIVERSAL = 17 + 4  # the universal parts of speech, and the special ids


class HmmConfig(ModelConfig):
    kind: Literal["hmm"] = "hmm"
    tasks: ClassVar[tuple[str, ...]] = ("tag", "language-model")
    order: int = Field(2, ge=2, le=3)  # of the tag n-grams: 2 bigram, 3 trigram
    k: float = Field(0.1, gt=0)  # add-k smoothing of the transition counts
    states: int = Field(32, ge=1)  # hidden states of a language model; those of a tagger are its tags
    iterations: int = Field(30, ge=1)  # of Baum-Welch, by which a language model is fitted, at most
    suffix: int = Field(5, ge=0)  # longest suffix of unknown words, in letters; 0: only their shape (capitals, digits)
    endings: int = Field(32_768, ge=0)  # at most as many suffixes are kept; 0: one distribution for all unknown words

    def build(self, vocab: int, outputs: int = 0, task: str = "") -> Any:
        if self.resolve_task(task) == "language-model":
            return HiddenMarkovLanguageModel(vocab, self.states, self.k, self.iterations)
        return HiddenMarkov(vocab, outputs or UNIVERSAL, self.order, self.k, self.suffix, self.endings)


SIZES: dict[str, dict[str, Any]] = {
    "bigram": {},
    "trigram": {"order": 3},
    "tiny": {"suffix": 2, "endings": 64, "states": 4},
}

ENTRY = Entry(
    name="hmm",
    paper="Rabiner, A Tutorial on Hidden Markov Models; Brants 2000 (suffixes of unknown words)",
    year=1989,
    family="counts",
    config=HmmConfig,
    sizes=SIZES,
    vocab=10_000,
    checks=(
        Check("all sequences of tags, enumerated", "tests/hmm/test_viterbi.py::test_no_other_sequence_is_better"),
        Check(
            "Baum-Welch of nltk",
            "tests/hmm/test_hmm_language_model.py::test_an_iteration_is_that_of_nltk",
            "nltk",
        ),
    ),
)
