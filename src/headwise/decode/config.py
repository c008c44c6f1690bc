"""The decoding config, `[decode]`: greedy decoding, beam search or sampling, and the logits processors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from headwise.config.base import Config
from headwise.decode.conventions import CONVENTIONS, Convention

TokenId = Annotated[int, Field(ge=0)]
NO_TOKEN = -1  # of keys that name one token: none


class DecodeConfig(Config):
    """Greedy decoding by default; `beams` above 1 is beam search, `temperature` above 0 samples.

    Lengths count tokens without EOS. Vaswani et al. (2017) use 4 beams, a length penalty of 0.6 and at most 50 tokens
    more than the source. Keys with the names of Hugging Face's `GenerationConfig` mean what they mean there, except
    `max_length` and `min_length`, which count the output alone. `convention = "generate"` searches as `generate` does.

        >>> DecodeConfig().search, DecodeConfig(beams=4).search, DecodeConfig(temperature=0.8).search
        ('greedy', 'beam', 'sample')
        >>> DecodeConfig().limit(source_length=10)
        60
    """

    place = "decode"

    beams: int = Field(default=1, ge=1, le=1024, description="number of beams")
    nbest: int = Field(default=1, ge=1, le=1024, description="hypotheses (or samples) returned for each source")
    convention: Literal["headwise", "generate"] = Field(
        default="headwise", description="'generate': beams, scores and ends as in generate of transformers"
    )
    length_penalty: float = Field(
        default=0.6, description="alpha of score = log P / ((5 + |Y|) / 6)^alpha; with 'generate', of log P / |Y|^alpha"
    )
    coverage_penalty: float = Field(
        default=0.0, ge=0, description="beta of score + beta * sum_i log(min(attention to source token i, 1)); 0: none"
    )
    early_stopping: bool | Literal["never"] = Field(
        default="never",
        description="true: stop at enough hypotheses; false: when none is likely to improve; 'never': when none can",
    )

    max_ratio: float = Field(default=1.0, ge=0, description="longest output: max_ratio * source length + extra")
    max_extra: int = Field(default=50, ge=0, description="longest output: max_ratio * source length + extra")
    max_length: int = Field(default=1024, ge=1, description="longest output for any source")
    min_length: int = Field(default=0, ge=0, description="shortest output; the maximum takes precedence")
    max_total_length: int = Field(default=0, ge=0, description="most tokens of BOS, prompt and output; 0: no limit")
    min_total_length: int = Field(default=0, ge=0, description="fewest tokens of BOS, prompt and output before EOS")
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(), description="stop strings; the text is cut before them"
    )

    temperature: float = Field(
        default=0.0, ge=0, description="0: the most probable token; above 0: sample from P^(1/t)"
    )
    top_k: int = Field(default=0, ge=0, description="sample among the k most probable tokens; 0: among all")
    top_p: float = Field(default=1.0, gt=0, le=1, description="sample among the fewest tokens with a total P of p")
    min_p: float = Field(default=0.0, ge=0, le=1, description="sample among tokens with P of at least min_p * max P")
    typical_p: float = Field(default=1.0, gt=0, le=1, description="sample among the most typical tokens of total P p")
    seed: int = Field(default=0, ge=0, description="random seed of sampling")

    repetition_penalty: float = Field(
        default=1.0, gt=0, description="above 1: tokens that occurred before become less likely"
    )
    encoder_repetition_penalty: float = Field(
        default=1.0, gt=0, description="above 1: tokens of the source become more likely"
    )
    no_repeat_ngram_size: int = Field(default=0, ge=0, description="n: no n-gram occurs twice; 0: no limit")
    encoder_no_repeat_ngram_size: int = Field(
        default=0, ge=0, description="n: no n-gram of the source occurs in the output; 0: no limit"
    )
    bad_words_ids: tuple[Annotated[tuple[TokenId, ...], Field(min_length=1)], ...] = Field(
        default=(), description="token sequences that are never generated"
    )
    suppress_tokens: tuple[TokenId, ...] = Field(default=(), description="tokens that are never generated")
    begin_suppress_tokens: tuple[TokenId, ...] = Field(
        default=(), description="tokens that are not generated first, or second if the first is forced"
    )
    forced_bos_token_id: int = Field(
        default=NO_TOKEN, ge=NO_TOKEN, description="first token of an output without prompt; -1: any"
    )
    forced_eos_token_id: int = Field(
        default=NO_TOKEN, ge=NO_TOKEN, description="last token of an output of maximum length; -1: any"
    )
    renormalize_logits: bool = Field(default=False, description="make log P of the tokens left sum to 1 again")
    eos_token_ids: tuple[TokenId, ...] = Field(default=(), description="further tokens that end an output, as EOS does")
    decoder_start_token_id: int = Field(
        default=NO_TOKEN, ge=NO_TOKEN, description="id of BOS or the decoder start in the history; -1: the model's own"
    )

    replace_unknown: bool = Field(default=False, description="replace unknown words by the source words they attend to")
    dictionary: str = Field(default="", description="file of source TAB target that translates the replaced words")

    context: int = Field(default=0, ge=0, description="context length of a language model; 0: as in training")
    marked: bool = Field(default=True, description="prompts start with BOS; false: only empty ones do")
    tokens_per_batch: int = Field(default=4096, ge=1, description="most padded source tokens * rows of a batch")

    @model_validator(mode="after")
    def _one_search(self) -> DecodeConfig:
        if self.temperature == 0 and self.truncates:
            raise ValueError("top_k, top_p, min_p and typical_p limit sampling: set temperature above 0 (1 is usual)")
        if self.temperature > 0 and self.beams > 1:
            raise ValueError("beams and temperature exclude each other: set beams = 1 or temperature = 0")
        if self.temperature == 0 and self.nbest > self.beams:
            raise ValueError(f"nbest = {self.nbest} needs at least as many beams (or temperature above 0)")
        if self.coverage_penalty and self.beams == 1:
            raise ValueError("coverage_penalty ranks the hypotheses of beam search: set beams above 1")
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
    def conventions(self) -> Convention:
        """What the search does where libraries differ."""
        return CONVENTIONS[self.convention]

    @property
    def truncates(self) -> bool:
        """Whether sampling is restricted to some tokens."""
        return bool(self.top_k or self.min_p) or self.top_p < 1 or self.typical_p < 1

    @property
    def reads_source(self) -> bool:
        """Whether a logits processor depends on the source."""
        return bool(self.encoder_no_repeat_ngram_size) or self.encoder_repetition_penalty != 1

    @property
    def processes_logits(self) -> bool:
        """Whether the output depends on more than the model's P and our own rules of search: engines with a search of
        their own, and approximations of P, then do not apply."""
        changed = any(getattr(self, name) != type(self).model_fields[name].default for name in PROCESSED)
        return changed or self.convention != "headwise"

    @property
    def rows(self) -> int:
        """Rows of a decoding batch for each source."""
        return max(self.beams, self.nbest)

    def limit(self, source_length: int) -> int:
        """The maximum length of an output, without EOS."""
        return max(1, min(int(self.max_ratio * source_length) + self.max_extra, self.max_length))


PROCESSED = (
    "stop", "min_length", "min_total_length", "max_total_length", "early_stopping", "repetition_penalty",
    "encoder_repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id", "forced_eos_token_id", "eos_token_ids",
    "renormalize_logits",
)  # fmt: skip
GREEDY = DecodeConfig()
