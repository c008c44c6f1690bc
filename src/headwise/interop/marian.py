"""Hugging Face MarianMT folders, in and out. Nothing in a folder is executed and nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headwise.errors import UserError
from headwise.interop.folders import new_folder, read_json
from headwise.interop.marian_config import POSITIONS, MarianConfig, config_from_hf, config_to_hf
from headwise.interop.marian_text import MarianTokeniser, arranged_names, read_ids
from headwise.models.transformer import TransformerConfig
from headwise.text import BOS, EOS, PAD
from headwise.text.tokenisers import Tokenisers

if TYPE_CHECKING:
    from torch import Tensor

    from headwise.blocks.stack import EncoderDecoder
    from headwise.interop.marian_weights import Rows

WEIGHTS, PICKLE = "model.safetensors", "pytorch_model.bin"
OURS = "headwise-tokenisers.json"  # in folders that we wrote: both sides, whatever their kind


class Imported(NamedTuple):
    config: TransformerConfig
    model: EncoderDecoder
    tokenisers: Tokenisers | None  # None where the folder has no tokeniser files


def import_marian(folder: Path | str) -> Imported:
    """The model of a Marian folder, with our ids (see `Rows`); in evaluation mode."""
    from headwise.interop.marian_weights import weights_from_hf

    folder = Path(folder)
    data = read_json(folder / "config.json")
    theirs = MarianConfig.read(data, str(folder / "config.json"))
    config = config_from_hf(data)
    source_ids, target_ids = _vocabularies(folder, theirs)
    source, target = _rows(theirs, source_ids, target_ids)
    state = weights_from_hf(_weights(folder), theirs, config, source, target)
    model = config.build(len(source.order), len(target.order))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f"{folder / WEIGHTS}: does not fit config.json: {str(error).splitlines()[-1].strip()}"
        ) from None
    return Imported(config, model.eval(), _tokenisers(folder, source_ids, target_ids, source, target))


def export_marian(
    model: EncoderDecoder, config: TransformerConfig, tokenisers: Tokenisers | None, folder: Path | str
) -> None:
    """A folder that `transformers.MarianMTModel.from_pretrained` loads; ids stay ours."""
    from safetensors.torch import save_file

    from headwise.interop.marian_weights import weights_to_hf

    source, target = model.encoder.embed.table, model.decoder.embed.table
    data = config_to_hf(config, source.num_embeddings, 0 if source is target else target.num_embeddings)
    weights = weights_to_hf(model.state_dict(), config, MarianConfig.read(data))
    marks = {key: data[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")}
    limits = {"forced_eos_token_id": EOS, "bad_words_ids": [[PAD], [BOS]], "max_length": POSITIONS}
    with new_folder(folder) as aside:
        save_file(weights, aside / WEIGHTS, metadata={"format": "pt"})
        _write_json(aside / "config.json", data)
        _write_json(aside / "generation_config.json", marks | limits)
        if tokenisers:
            _write_tokenisers(tokenisers, aside)


def _weights(folder: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / WEIGHTS
    if not path.is_file():
        if (folder / PICKLE).is_file():
            raise UserError(
                f"{folder / PICKLE}: is a pickle, which could run code, and is not read; if you trust it, convert it "
                f"once: MarianMTModel.from_pretrained('{folder}').save_pretrained('NEW_FOLDER') in transformers"
            )
        raise UserError(f"{folder}: has no {WEIGHTS}; name the folder of a MarianMT model")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: cannot be read ({error}); fetch it again") from None


Ids = dict[str, int]


def _vocabularies(folder: Path, theirs: MarianConfig) -> tuple[Ids, Ids]:
    """Piece -> Marian's id for both sides; empty where the folder does not say."""
    path, own = folder / "vocab.json", folder / "target_vocab.json"
    source = read_ids(path) if path.is_file() else {}
    separate = own.is_file() and not theirs.share_encoder_decoder_embeddings
    return source, read_ids(own) if separate else source


def _rows(theirs: MarianConfig, source_ids: Ids, target_ids: Ids) -> tuple[Rows, Rows]:
    """The rows of both sides' tables; a vocabulary's own marks count, the config's where there is none."""
    from headwise.interop.marian_weights import Rows

    def arranged(vocab: int, ids: Ids, start: int) -> Rows:
        pad, eos = ids.get("<pad>", theirs.pad_token_id), ids.get("</s>", theirs.eos_token_id)
        return Rows.arranged(vocab, pad, start, eos, ids.get("<unk>"))

    vocab = theirs.decoder_vocab_size or theirs.vocab_size
    target = arranged(vocab, target_ids, theirs.decoder_start_token_id)
    if source_ids is target_ids and vocab == theirs.vocab_size:
        return target, target
    # Nothing starts on the source side: BOS must only not be a word.
    known = source_ids or {"<s>": theirs.decoder_start_token_id}
    start = known.get("<s>", known.get("<pad>", theirs.pad_token_id))
    return arranged(theirs.vocab_size, source_ids, start), target


def _tokenisers(folder: Path, source_ids: Ids, target_ids: Ids, source: Rows, target: Rows) -> Tokenisers | None:
    if (folder / OURS).is_file():
        return Tokenisers.load(folder / OURS)
    files = [folder / "source.spm", folder / "target.spm"]
    if not (source_ids and all(file.is_file() for file in files)):
        return None
    names = arranged_names(source_ids, source.order), arranged_names(target_ids, target.order)
    return Tokenisers(*(MarianTokeniser(file.read_bytes(), own) for file, own in zip(files, names, strict=True)))


def _write_tokenisers(tokenisers: Tokenisers, folder: Path) -> None:
    """Our own file, and those of Hugging Face's MarianTokenizer where the kind is theirs."""
    source, target = tokenisers.source, tokenisers.target
    if not (isinstance(source, MarianTokeniser) and isinstance(target, MarianTokeniser)):
        tokenisers.save(folder / OURS)
        return
    separate = source.vocabulary != target.vocabulary
    (folder / "source.spm").write_bytes(source.model)
    (folder / "target.spm").write_bytes(target.model)
    for name, side in {"vocab.json": source, "target_vocab.json": target}.items():
        if side is source or separate:
            _write_json(folder / name, {piece: number for number, piece in enumerate(side.vocabulary)})
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", "separate_vocabs": separate})


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
