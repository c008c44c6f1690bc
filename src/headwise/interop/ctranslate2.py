"""CTranslate2 folders, and the engine that decodes with them: several times faster on CPUs. Extra: `deploy`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headwise.decode.config import GREEDY, DecodeConfig
from headwise.decode.hypothesis import Hypothesis, rank_hypotheses, score_hypothesis
from headwise.errors import UserError
from headwise.interop.ctranslate2_spec import can_express, specification
from headwise.interop.folders import new_folder, read_json
from headwise.models.config import ModelConfig
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD, SPECIALS, UNK
from headwise.text.tokenisers import Tokenisers
from headwise.utils.extras import needed_for

if TYPE_CHECKING:
    from headwise.inference.trained_model import TrainedModel
    from headwise.models.encoder_decoder import EncoderDecoder

__all__ = ["CTranslate2Engine", "can_express", "export_ctranslate2"]


def export_ctranslate2(
    model: EncoderDecoder,
    config: ModelConfig,
    tokenisers: Tokenisers | None,
    folder: Path | str,
    int8: bool = False,
) -> None:
    """A folder that `ctranslate2.Translator` loads. Without tokenisers, tokens are named by their ids."""
    spec = specification(model, config)
    assert isinstance(config, TransformerConfig)
    sides = _numbered(model.encoder.embed.table.num_embeddings), _numbered(model.vocab)
    if tokenisers:
        sides = tokenisers.source.vocabulary, tokenisers.target.vocabulary
    spec.register_source_vocabulary(list(sides[0]))
    spec.register_target_vocabulary(list(sides[1]))
    settings = spec.config
    settings.bos_token, settings.eos_token, settings.unk_token = SPECIALS[BOS], SPECIALS[EOS], SPECIALS[UNK]
    settings.decoder_start_token = sides[1][config.start_id]
    settings.layer_norm_epsilon = config.norm.eps
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    with new_folder(folder) as aside:
        spec.save(str(aside))


def _numbered(size: int) -> list[str]:
    return [*SPECIALS, *map(str, range(len(SPECIALS), size))]


class CTranslate2Engine:
    """A model that decodes by itself, with our ids and hypotheses.

    Greedy decoding gives what ours gives, except that an empty text stays empty. Beam search follows as many
    hypotheses but stops by its own rule; the finished ones are ranked by our length penalty.
    """

    def __init__(self, folder: Path | str, *, int8: bool = False, threads: int = 1, device: str = "cpu"):
        with needed_for("CTranslate2"):
            from ctranslate2 import Translator
        folder = Path(folder)
        self.names, self.target = _vocabularies(folder)
        self.ids = {name: number for number, name in enumerate(self.target)}
        start = read_json(folder / "config.json")["decoder_start_token"]
        self.never = [[name] for name in sorted({self.target[PAD], self.target[BOS], start} - {self.target[EOS]})]
        compute = "int8" if int8 else "default"
        try:
            self.translator = Translator(str(folder), device=device, compute_type=compute, intra_threads=threads)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"{folder}: CTranslate2 cannot load it ({error}); export the run again") from None

    @classmethod
    def of(cls, loaded: TrainedModel, *, int8: bool = False, threads: int = 1) -> CTranslate2Engine:
        """An engine for a model in memory, by way of a folder that is gone afterwards."""
        with TemporaryDirectory() as folder:
            export_ctranslate2(loaded.model, loaded.experiment.model, loaded.tokenisers, folder)
            return cls(folder, int8=int8, threads=threads)

    def decode(self, sources: Sequence[Sequence[int]], config: DecodeConfig = GREEDY) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first."""
        from headwise.decode.driver import batch_by_length

        if config.search == "sample":
            raise UserError("temperature: CTranslate2 cannot repeat our random draws; use --engine native")
        found: list[list[Hypothesis]] = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        for numbers in batch_by_length(lengths, config.tokens_per_batch // config.rows):
            for number, own in zip(numbers, self._batch([sources[n] for n in numbers], config), strict=True):
                found[number] = own
        return found

    def _batch(self, sources: list[Sequence[int]], config: DecodeConfig) -> list[list[Hypothesis]]:
        limits = [config.limit(len(source)) for source in sources]
        try:
            results = self.translator.translate_batch(
                [[self.names[i] for i in (*source, EOS)] for source in sources],
                beam_size=config.beams,
                num_hypotheses=config.beams,  # asking for all also keeps the search from stopping at the first
                length_penalty=0,
                max_input_length=0,
                min_decoding_length=0,
                max_decoding_length=max(limits) + 1,
                suppress_sequences=self.never,
                return_scores=True,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(f"CTranslate2 cannot decode this: {error}; use --engine native") from None
        return [self._hypotheses(result, limit, config) for result, limit in zip(results, limits, strict=True)]

    def _hypotheses(self, result: Any, limit: int, config: DecodeConfig) -> list[Hypothesis]:
        found = [
            score_hypothesis([self.ids[name] for name in names[:limit]], log_prob, config.length_penalty)
            for names, log_prob in zip(result.hypotheses, result.scores, strict=True)
        ]
        return rank_hypotheses(found, config.nbest)


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    """The names of the source's and the target's ids."""
    shared = folder / "shared_vocabulary.json"
    files = [shared] * 2 if shared.is_file() else [folder / f"{side}_vocabulary.json" for side in ("source", "target")]
    try:
        source, target = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: is no CTranslate2 folder of ours ({error}); export the run again") from None
    if target[: len(SPECIALS)] != list(SPECIALS):
        raise UserError(f"{folder}: its first tokens are not {' '.join(SPECIALS)}; export the run again")
    return source, target
