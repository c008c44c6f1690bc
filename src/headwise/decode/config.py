"""The decoding config, `[decode]`: greedy decoding, beam search or sampling, and the logits processors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headwise.config.base import Config


class DecodeConfig(Config):
    """Greedy decoding by default; `beams` above 1 is beam search, `temperature` above 0 samples.

    Lengths count tokens without EOS. Vaswani et al. (2017) use 4 beams, a length penalty of 0.6 and at most 50 tokens
    more than the source.

        >>> DecodeConfig().search, DecodeConfig(beams=4).search, DecodeConfig(temperature=0.8).search
        ('greedy', 'beam', 'sample')
        >>> DecodeConfig().limit(source_length=10)
        60
    """

    place = "decode"

    beams: int = Field(default=1, ge=1, le=1024, description="number of beams")
    nbest: int = Field(default=1, ge=1, le=1024, description="hypotheses (or samples) returned for each source")
    length_penalty: float = Field(default=0.6, ge=0, description="alpha of score = log P / ((5 + |Y|) / 6)^alpha")

    max_ratio: float = Field(default=1.0, ge=0, description="longest output: max_ratio * source length + extra")
    max_extra: int = Field(default=50, ge=0, description="longest output: max_ratio * source length + extra")
    max_length: int = Field(default=1024, ge=1, description="longest output for any source")
    min_length: int = Field(default=0, ge=0, description="shortest output; the maximum takes precedence")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="stop strings; the text is cut before them"
    )

    temperature: float = Field(
        default=0.0, ge=0, description="0: the most probable token; above 0: sample from P^(1/t)"
    )
    top_k: int = Field(default=0, ge=0, description="sample among the k most probable tokens; 0: among all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sample among the fewest tokens with a total P of p")
    seed: int = Field(default=0, ge=0, description="random seed of sampling")

    repetition_penalty: float = Field(
        default=1.0, gt=0, description="above 1: tokens that occurred before become less likely"
    )
    no_repeat_ngram: int = Field(default=0, ge=0, description="n: no n-gram occurs twice; 0: no limit")

    replace_unknown: bool = Field(default=False, description="replace unknown words by the source words they attend to")
    dictionary: str = Field(default="", description="file of source TAB target that translates the replaced words")

    context: int = Field(default=0, ge=0, description="context length of a language model; 0: as in training")
    marked: bool = Field(default=True, description="prompts start with BOS; false: only empty ones do")
    tokens_per_batch: int = Field(default=4096, ge=1, description="most padded source tokens * rows of a batch")

    @model_validator(mode="after")
    def _one_search(self) -> DecodeConfig:
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise ValueError("top_k and top_p limit sampling: set temperature above 0 (1 is usual)")
        if self.temperature > 0 and self.beams > 1:
            raise ValueError("beams and temperature exclude each other: set beams = 1 or temperature = 0")
        if self.temperature == 0 and self.nbest > self.beams:
            raise ValueError(f"nbest = {self.nbest} needs at least as many beams (or temperature above 0)")
        if self.dictionary and not self.replace_unknown:
            raise ValueError("dictionary translates unknown words: set replace_unknown = true")
        return self

    @property
    def search(self) -> Literal["greedy", "sample", "beam"]:
        """The search that the settings select."""
        if self.temperature > 0:
            return "sample"
        return "beam" if self.beams > 1 else "greedy"

    @property
    def needs_history(self) -> bool:
        """Whether a logits processor depends on the tokens generated before."""
        return bool(self.stop or self.min_length or self.no_repeat_ngram) or self.repetition_penalty != 1

    @property
    def rows(self) -> int:
        """Rows of a decoding batch for each source."""
        return max(self.beams, self.nbest)

    def limit(self, source_length: int) -> int:
        """The maximum length of an output, without EOS."""
        return max(1, min(int(self.max_ratio * source_length) + self.max_extra, self.max_length))


GREEDY = DecodeConfig()
