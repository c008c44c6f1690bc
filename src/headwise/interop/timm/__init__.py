"""Folders of timm, import and export: `config.json` (`architecture`, `pretrained_cfg`, `model_args`) and safetensors,
as `timm.models.save_for_hf` writes them.

They are read and written by the same code as folders of `transformers` (headwise.interop.hf); a family is an
`Architecture`, too. How to add one: a file beside this one, and its name in `FAMILIES`.

1. A subclass of `TimmConfig` (config.py): the arguments of the model's class in timm, with its defaults. An argument
   that Headwise has no equivalent for is a `Literal` of the one supported value; one that changes no outputs is in
   `ignored_keys`. `variants` has the arguments that each registered function of timm sets, and `locked` those of them
   that `model_args` cannot change. `to_settings` and `list_arguments` convert the arguments to a Headwise model config
   and back.
2. An `Architecture` with the tensor names, or `build_name_map` of the config, where they depend on the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError, nearest

if TYPE_CHECKING:
    from headwise.interop.hf.architecture import Architecture

WRAPPER = "timm_wrapper"  # model_type of a folder that transformers saved
FAMILIES = {  # first word of an architecture's name -> module:name
    "cait": "headwise.interop.timm.cait:CAIT",
    "levit": "headwise.interop.timm.levit:LEVIT",
    "mixer": "headwise.interop.timm.mixer:MIXER",
    "volo": "headwise.interop.timm.volo:VOLO",
}


def is_timm_config(data: Mapping[str, Any]) -> bool:
    """Whether a `config.json` is one of timm."""
    return "architecture" in data and data.get("model_type") in (None, WRAPPER)


def load_family(name: str, where: str = "config.json") -> Architecture:
    """Import the family of an architecture of timm, such as mixer_b16_224; errors begin with `where`."""
    family = FAMILIES.get(name.partition("_")[0])
    architecture = import_architecture(family) if family else None
    if architecture is None or name not in architecture.hf_config.variants:
        names = [variant for place in FAMILIES.values() for variant in import_architecture(place).hf_config.variants]
        raise UserError(f"{where}: architecture '{name}' of timm is not known; {nearest(name, names)}")
    return architecture


def import_architecture(place: str) -> Any:
    """Import an architecture by its "module:name"."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
