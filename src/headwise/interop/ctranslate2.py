"""Export to CTranslate2, and an engine that decodes with it, several times faster on CPUs. Extra: `deploy`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.hypothesis import Hypothesis, rank_hypotheses, score_hypothesis
from headwise.errors import UserError
from headwise.interop.ctranslate2_spec import build_spec, find_unsupported
from headwise.interop.folders import create_folder, read_json
from headwise.models.config import ModelConfig
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.tokenisers import Tokenisers
from headwise.utils.extras import needed_for

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.models.encoder_decoder import EncoderDecoder

__all__ = ["CTranslate2Engine", "export_ctranslate2", "find_unsupported"]


def export_ctranslate2(
    model: EncoderDecoder,
    config: ModelConfig,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    int8: bool = False,
) -> None:
    """Write a folder that `ctranslate2.Translator` loads. Without tokenisers, tokens are named by their ids."""
    spec = build_spec(model, config)
    assert isinstance(config, TransformerConfig)
    source, target = _number_tokens(model.encoder.embed.table.num_embeddings), _number_tokens(model.vocab)
    if tokenisers:
        source, target = tokenisers.source.vocabulary, tokenisers.target.vocabulary
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    settings = spec.config
    settings.bos_token, settings.eos_token, settings.unk_token = SPECIALS[BOS], SPECIALS[EOS], SPECIALS[UNK]
    settings.decoder_start_token = target[config.start_id]
    settings.layer_norm_epsilon = config.norm.eps
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    with create_folder(folder) as temporary:
        spec.save(str(temporary))


def _number_tokens(size: int) -> list[str]:
    return [*SPECIALS, *map(str, range(len(SPECIALS), size))]


class CTranslate2Engine:
    """The CTranslate2 translator, with the ids and hypotheses of Headwise.

    Greedy decoding equals the native one, except that an empty text stays empty. Beam search has as many beams but its
    own stopping rule; finished hypotheses are ranked by the native length penalty.
    """

    def __init__(self, folder: Path | str, *, int8: bool = False, threads: int = 1, device: str = "cpu"):
        with needed_for("CTranslate2"):
            from ctranslate2 import Translator
        folder = Path(folder)
        self.source, self.target = _read_vocabularies(folder)
        self.ids = {token: number for number, token in enumerate(self.target)}
        start = read_json(folder / "config.json")["decoder_start_token"]
        self.suppressed = [
            [token] for token in sorted({self.target[PAD], self.target[BOS], start} - {self.target[EOS]})
        ]
        compute_type = "int8" if int8 else "default"
        try:
            self.translator = Translator(str(folder), device=device, compute_type=compute_type, intra_threads=threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{folder}: CTranslate2 cannot load it ({error}); export the run again") from None

    @classmethod
    def from_trained(cls, loaded: TrainedModel, *, int8: bool = False, threads: int = 1) -> CTranslate2Engine:
        """The engine of a model in memory, exported to a temporary folder."""
        with TemporaryDirectory() as folder:
            export_ctranslate2(loaded.model, loaded.experiment.model, loaded.tokenisers, folder)
            return cls(folder, int8=int8, threads=threads)

    def decode(self, sources: Sequence[Sequence[int]], config: DecodeConfig = GREEDY) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first."""
        from headwise.decode.driver import batch_by_length

        if config.search == "sample":
            raise UserError("temperature: CTranslate2 cannot repeat our random draws; use --engine native")
        hypotheses: list[list[Hypothesis]] = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        for numbers in batch_by_length(lengths, config.tokens_per_batch // config.rows):
            batch = self._decode_batch([sources[number] for number in numbers], config)
            for number, row in zip(numbers, batch, strict=True):
                hypotheses[number] = row
        return hypotheses

    def _decode_batch(self, sources: list[Sequence[int]], config: DecodeConfig) -> list[list[Hypothesis]]:
        limits = [config.limit(len(source)) for source in sources]
        try:
            results = self.translator.translate_batch(
                [[self.source[i] for i in (*source, EOS)] for source in sources],
                beam_size=config.beams,
                num_hypotheses=config.beams,  # with fewer, the search would stop at the first finished one
                length_penalty=0,
                max_input_length=0,
                min_decoding_length=config.min_length,
                max_decoding_length=max(limits) + 1,
                suppress_sequences=self.suppressed,
                return_scores=True,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2 cannot decode this: {error}; use --engine native") from None
        return [self._rank(result, limit, config) for result, limit in zip(results, limits, strict=True)]

    def _rank(self, result: Any, limit: int, config: DecodeConfig) -> list[Hypothesis]:
        hypotheses = [
            score_hypothesis([self.ids[token] for token in tokens[:limit]], log_prob, config.length_penalty)
            for tokens, log_prob in zip(result.hypotheses, result.scores, strict=True)
        ]
        return rank_hypotheses(hypotheses, config.nbest)


def _read_vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The source and the target tokens by id."""
    shared = folder / "shared_vocabulary.json"
    files = [shared] * 2 if shared.is_file() else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    try:
        source, target = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: is no CTranslate2 folder of Headwise ({error}); export the run again") from None
    if target[: len(SPECIALS)] != list(SPECIALS):
        raise UserError(f"{folder}: its first tokens are not {' '.join(SPECIALS)}; export the run again")
    return source, target
