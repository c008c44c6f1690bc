"""Hugging Face folders, in and out: `config.json`, safetensors, and `tokenizer.json` or, of models that read images,
`preprocessor_config.json`. Nothing in them is executed.

How to add an architecture: one file beside this one, and its name in `ARCHITECTURES`.

1. A subclass of `Theirs`: the keys of its `config.json` that matter, with the defaults of `transformers`. A key that
   changes the numbers and that we cannot follow is a `Literal` of the one value that we can; one that changes none is
   in `unread` (unread.py has those that all models may have); any other is refused. `aliases` are their
   `attribute_map`. `ours(task, names)` gives the settings of our config; `of(config, vocab)` the way back. `of` need
   not check anything: a model is refused where reading back what would be written gives another config, and the key
   that differs is named. `tied(name)` has the tensors that a class of theirs ties, as its `all_tied_weights_keys`;
   `tests/parity/test_hf_keys.py` and `test_hf_ties.py` compare all of this with `transformers`.
2. An `Architecture`: which class of theirs means which task of ours (of several the first that can hold a model is
   written; `hints` say which tensor of ours only a certain one can), our config class, and `keys`, a table from our
   modules to theirs. `{i}` is the number of a layer, `{stage}` of the stack that it is in where there are several,
   `{side}` is encoder or decoder. Leaves follow by themselves (table -> weight). A name is plain;
   `fused(...)` are several whose rows stand one after the other in ours; `turned(...)` is one of which we have the
   transpose; `either(...)` are names of which a folder has one; for anything else a `Key` with two functions. A key may
   also be a whole tensor name of ours, with whole names of theirs. `heads` has the names of what stands on an encoder,
   by task or by class. A tied tensor of ours has a key for each of its names. `ignored` has patterns of tensors that
   are left aside, each with the reason.
3. `roles`, where its marks are not called pad, bos, eos and unk: `{"bos": "cls", "eos": "sep", ...}`. The ids are
   looked for in `config.json`, then by name through `tokenizer_config.json`.

One that reads images differs in this: its schema is a `TheirImages` (images.py), whose `ours` has `image` and
`channels`; there are no `roles`, and `of` is given no vocabulary. Keys have `kernel(...)` for a convolution that cuts
patches and `vectors(...)` for marks and places. Its classes mean `classify-images`, `detect` or, without a head,
`encode-images`; the task builds the model, for the labels of `id2label`. How bytes are scaled is read from
`preprocessor_config.json`. An example is vit.py with `tests/parity/test_hf_vit.py`.

What follows by itself: tied tables, biases that are absent, layers that share weights, the base model's prefix, the
order of the vocabulary (`text/hf.py`, `Rows`), sharded files, and every complaint about missing, further or misshapen
tensors. A parity test is in `tests/parity/test_hf_decoders.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

ARCHITECTURES = {  # their model_type -> where it lives
    "openai-gpt": "headwise.interop.hf.gpt:GPT",
    "gpt2": "headwise.interop.hf.gpt:GPT2",
    "bert": "headwise.interop.hf.bert:BERT",
    "albert": "headwise.interop.hf.bert:ALBERT",
    "big_bird": "headwise.interop.hf.bigbird:BIGBIRD",
    "deberta": "headwise.interop.hf.deberta:DEBERTA",
    "deit": "headwise.interop.hf.deit:DEIT",
    "detr": "headwise.interop.hf.detr:DETR",
    "fnet": "headwise.interop.hf.fnet:FNET",
    "t5": "headwise.interop.hf.t5:T5",
    "bart": "headwise.interop.hf.bart:BART",
    "levit": "headwise.interop.hf.levit:LEVIT",
    "llama": "headwise.interop.hf.llama:LLAMA",
    "marian": "headwise.interop.hf.marian:MARIAN",
    "mistral": "headwise.interop.hf.llama:MISTRAL",
    "resnet": "headwise.interop.hf.resnet:RESNET",
    "swin": "headwise.interop.hf.swin:SWIN",
    "swinv2": "headwise.interop.hf.swin:SWIN_V2",
    "vit": "headwise.interop.hf.vit:VIT",
}


def architecture_of(model_type: str, where: str = "config.json") -> Architecture:
    """The architecture that a `config.json` names."""
    if model_type not in ARCHITECTURES:
        raise UserError(f"{where}: model_type '{model_type}' is not known; {nearest(model_type, ARCHITECTURES)}")
    module, _, name = ARCHITECTURES[model_type].partition(":")
    found: Architecture = getattr(import_module(module), name)
    return found
