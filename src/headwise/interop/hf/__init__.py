"""Hugging Face folders, import and export: `config.json`, safetensors, and `tokenizer.json` or, for image models,
`preprocessor_config.json`. Nothing in them is executed.

How to add an architecture: one file beside this one, and its name in `ARCHITECTURES`.

1. A subclass of `HfTextConfig`: the keys of its `config.json` that change outputs, with the defaults of
   `transformers`. A key that Headwise has no equivalent for is a `Literal` of the one supported value; a key that
   changes no outputs is in `ignored_keys` (ignored_keys.py has those of all models); any other key is refused.
   `aliases` is the `attribute_map` of `transformers`. `to_settings(task, names)` gives the settings of the Headwise
   model config, `from_model_config(config, vocab)` the way back. The latter need not check anything: an export is
   refused where reading the result back gives another config, with the key that differs. `tied_weights(class_name)` is
   `all_tied_weights_keys` of a class. `tests/parity/test_hf_keys.py` and `test_hf_ties.py` compare all of this with
   `transformers`.
2. An `Architecture`: `classes` maps classes of `transformers` to tasks (of several the first that can hold a model is
   written; `required_tensors` names a tensor that only a certain class can hold), `config` is the Headwise model
   config, and `name_map` maps Headwise modules to Hugging Face modules. `{i}` is the number of a layer, `{stage}` of
   the stack that it is in where there are several, `{side}` is encoder or decoder; `{n}` is the number of a module,
   once where layers share its weights, and `{n-1}` in a value the number before it; a value may have `{group}` and
   `{inner}` for a layer that shares its weights (ALBERT). Parameters follow from the module
   (table -> weight). A value is a name; `fuse(...)` of several modules whose rows are concatenated here;
   `keep_fused(...)` of one that fuses the same projections; `transpose(...)` of one with transposed weights;
   `stack_experts(...)` of tensors that each expert `{e}` has; `any_of(...)` of names of which a checkpoint has one;
   for anything else a `WeightConverter` with two functions. A key may also be a whole tensor name, with whole tensor
   names as values. `head_maps` has the names of heads, by task or by class. A tied tensor has an entry for each of its
   names. `ignored` has patterns of tensors that are ignored, each with the reason.
3. `special_names`, where the special tokens are not called pad, bos, eos and unk: `{"bos": "cls", "eos": "sep", ...}`.
   Ids are looked up in `config.json`, then by name through `tokenizer_config.json`.

An image model differs in this: its schema is an `HfImageConfig` (images.py), whose `to_settings` has `image` and
`channels`; there are no `special_names`, and `from_model_config` is given no vocabulary. `flatten_kernel(...)` is for a
convolution that cuts patches, `concatenate_vectors(...)` for class tokens and position embeddings. Its classes have the
task `classify-images`, `detect` or, without a head, `encode-images`; the task builds the model, for the labels of
`id2label`. Resize, crop and normalisation are read from
`preprocessor_config.json` (image_processor.py). An example is vit.py with
`tests/parity/test_hf_vit.py`.

A model that acts in an environment has an `HfAgentConfig` (decision_transformer.py) and the task `act`; what a folder
of `transformers` does not say of its environment is in `headwise-tokenisers.json` (write_agent.py).

Models of timm have another `config.json`; headwise.interop.timm says how to add one.

Tied tables, absent biases, layers that share weights, the base model's prefix, the order of the vocabulary
(`text/hf.py`, `VocabularyMap`), shards, and errors about missing, unexpected or misshapen tensors need no further code.
A parity test is in `tests/parity/test_hf_decoders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError, nearest
from headwise.interop.timm import FAMILIES, import_architecture, is_timm_config, load_family

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

ARCHITECTURES = {  # model_type -> module:name
    "openai-gpt": "headwise.interop.hf.gpt:GPT",
    "gpt2": "headwise.interop.hf.gpt:GPT2",
    "beit": "headwise.interop.hf.beit:BEIT",
    "gpt_neox": "headwise.interop.hf.gpt_neox:GPT_NEOX",
    "nystromformer": "headwise.interop.hf.nystromformer:NYSTROMFORMER",
    "opt": "headwise.interop.hf.opt:OPT",
    "bert": "headwise.interop.hf.bert:BERT",
    "albert": "headwise.interop.hf.bert:ALBERT",
    "big_bird": "headwise.interop.hf.bigbird:BIGBIRD",
    "deberta": "headwise.interop.hf.deberta:DEBERTA",
    "deberta-v2": "headwise.interop.hf.deberta_v2:DEBERTA_V2",
    "decision_transformer": "headwise.interop.hf.decision_transformer:DECISION_TRANSFORMER",
    "deit": "headwise.interop.hf.deit:DEIT",
    "dinov2": "headwise.interop.hf.dinov2:DINOV2",
    "dinov2_with_registers": "headwise.interop.hf.dinov2:DINOV2_WITH_REGISTERS",
    "detr": "headwise.interop.hf.detr:DETR",
    "distilbert": "headwise.interop.hf.distilbert:DISTILBERT",
    "electra": "headwise.interop.hf.electra:ELECTRA",
    "ernie": "headwise.interop.hf.ernie:ERNIE",
    "fnet": "headwise.interop.hf.fnet:FNET",
    "funnel": "headwise.interop.hf.funnel:FUNNEL",
    "t5": "headwise.interop.hf.t5:T5",
    "bart": "headwise.interop.hf.bart:BART",
    "levit": "headwise.interop.hf.levit:LEVIT",
    "llama": "headwise.interop.hf.llama:LLAMA",
    "longformer": "headwise.interop.hf.longformer:LONGFORMER",
    "marian": "headwise.interop.hf.marian:MARIAN",
    "mbart": "headwise.interop.hf.mbart:MBART",
    "pegasus": "headwise.interop.hf.mbart:PEGASUS",
    "mistral": "headwise.interop.hf.llama:MISTRAL",
    "mt5": "headwise.interop.hf.t5:MT5",
    "perceiver": "headwise.interop.hf.perceiver:PERCEIVER",
    "mixtral": "headwise.interop.hf.mixtral:MIXTRAL",
    "qwen2": "headwise.interop.hf.qwen:QWEN2",
    "qwen3": "headwise.interop.hf.qwen:QWEN3",
    "modernbert": "headwise.interop.hf.modernbert:MODERNBERT",
    "reformer": "headwise.interop.hf.reformer:REFORMER",
    "resnet": "headwise.interop.hf.resnet:RESNET",
    "roberta": "headwise.interop.hf.roberta:ROBERTA",
    "swin": "headwise.interop.hf.swin:SWIN",
    "swinv2": "headwise.interop.hf.swin:SWIN_V2",
    "switch_transformers": "headwise.interop.hf.switch:SWITCH",
    "vit": "headwise.interop.hf.vit:VIT",
    "xlm-roberta": "headwise.interop.hf.roberta:XLM_ROBERTA",
}


def find_architecture(data: Mapping[str, Any], where: str = "config.json") -> Architecture:
    """Import the architecture that a `config.json` names, of `transformers` or of timm; errors begin with `where`."""
    if is_timm_config(data):
        return load_family(str(data["architecture"]), where)
    return load_architecture(str(data.get("model_type")), where)


def list_architectures(timm: bool = False) -> Iterator[Architecture]:
    """Import all architectures of `transformers`, or those of timm."""
    return (import_architecture(place) for place in (FAMILIES if timm else ARCHITECTURES).values())


def load_architecture(model_type: str, where: str = "config.json") -> Architecture:
    """Import the architecture of a `model_type`; errors begin with `where`."""
    if model_type in ("", "None"):
        raise UserError(f"{where}: has no model_type; name a folder as `save_pretrained` of transformers writes it")
    if model_type not in ARCHITECTURES:
        raise UserError(f"{where}: model_type '{model_type}' is not known; {nearest(model_type, ARCHITECTURES)}")
    return import_architecture(ARCHITECTURES[model_type])
