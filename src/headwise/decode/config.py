"""How outputs are searched for: one value that stands for greedy, beam or sampled decoding."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headwise.config.base import Config


class DecodeConfig(Config):
    """Greedy by default; `beams` above 1 searches wider, `temperature` above 0 draws at random.

    Lengths count tokens without the end mark. Vaswani et al. (2017) use beams 4, a penalty of 0.6 and
    the source's length + 50.

        >>> DecodeConfig().search, DecodeConfig(beams=4).search, DecodeConfig(temperature=0.8).search
        ('greedy', 'beam', 'sample')
        >>> DecodeConfig().limit(source_length=10)
        60
    """

    place = "decode"

    beams: int = Field(default=1, ge=1, le=1024, description="hypotheses followed at once")
    nbest: int = Field(default=1, ge=1, le=1024, description="hypotheses (or samples) returned for a source")
    length_penalty: float = Field(default=0.6, ge=0, description="alpha of score = log P / ((5 + |Y|) / 6)^alpha")

    max_ratio: float = Field(default=1.0, ge=0, description="longest output: max_ratio * source length + extra")
    max_extra: int = Field(default=50, ge=0, description="longest output: max_ratio * source length + extra")
    max_length: int = Field(default=1024, ge=1, description="longest output whatever the source")
    min_length: int = Field(default=0, ge=0, description="shortest output, unless the longest is shorter")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="strings that end a text, which is cut before them"
    )

    temperature: float = Field(default=0.0, ge=0, description="0: the most probable; above 0: draw from P^(1/t)")
    top_k: int = Field(default=0, ge=0, description="draw among the k most probable tokens; 0: among all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="draw among the fewest tokens whose P adds up to p")
    seed: int = Field(default=0, ge=0, description="of the draws")

    repetition_penalty: float = Field(default=1.0, gt=0, description="above 1: tokens that were there are less likely")
    no_repeat_ngram: int = Field(default=0, ge=0, description="n: no sequence of n tokens comes twice; 0: any may")

    replace_unknown: bool = Field(default=False, description="write unknown words as the source's words they look at")
    dictionary: str = Field(default="", description="file of source TAB target, for words so replaced")

    context: int = Field(default=0, ge=0, description="tokens that a language model has in sight; 0: as in training")
    marked: bool = Field(default=True, description="the start mark stands before a prompt, as it does before none")
    tokens_per_batch: int = Field(default=4096, ge=1, description="bounds padded source tokens * rows of a batch")

    @model_validator(mode="after")
    def _one_search(self) -> DecodeConfig:
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise ValueError("top_k and top_p limit random draws: set temperature above 0 (1 is usual)")
        if self.temperature > 0 and self.beams > 1:
            raise ValueError("beams and temperature exclude each other: set beams = 1 or temperature = 0")
        if self.temperature == 0 and self.nbest > self.beams:
            raise ValueError(f"nbest = {self.nbest} needs at least as many beams (or temperature above 0)")
        if self.dictionary and not self.replace_unknown:
            raise ValueError("dictionary serves unknown words: set replace_unknown = true")
        return self

    @property
    def search(self) -> Literal["greedy", "sample", "beam"]:
        if self.temperature > 0:
            return "sample"
        return "beam" if self.beams > 1 else "greedy"

    @property
    def looks_back(self) -> bool:
        """Whether the next token depends on more than the model: on what was written before it."""
        return bool(self.stop or self.min_length or self.no_repeat_ngram) or self.repetition_penalty != 1

    @property
    def rows(self) -> int:
        """Rows of a decoding batch that one source takes."""
        return max(self.beams, self.nbest)

    def limit(self, source_length: int) -> int:
        """The most tokens an output may have, the end mark not counted."""
        return max(1, min(int(self.max_ratio * source_length) + self.max_extra, self.max_length))


GREEDY = DecodeConfig()
