"""Export a model that acts in an environment as a Hugging Face folder. What `transformers` has no file for, the
environment and its normalisation, is in Headwise's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwise.interop.folders import create_folder
from headwise.interop.hf.labels import build_config_json
from headwise.interop.hf.refusal import explain_refusal
from headwise.interop.hf.text import NATIVE, NO_VOCABULARIES, write_json
from headwise.interop.hf.weights import build_state_dict
from headwise.interop.hf.write import choose_architecture, save_checkpoint
from headwise.text.tokenisers import Tokenisers
from headwise.worlds.spaces import EpisodeEncoder


def write_agent(
    model: Any, config: Any, task: str, tokenisers: Tokenisers, folder: Path | str, model_type: str = ""
) -> None:
    """Write a folder that `transformers` loads; its config has the sizes of the environment."""
    with explain_refusal(folder):
        sized = model.config if isinstance(tokenisers.source, EpisodeEncoder) else config
        architecture, hf_config = choose_architecture(sized, task, model_type=model_type)
        class_name = architecture.choose_class_name(task, model.state_dict())
        state = build_state_dict(model, architecture.with_head(class_name), NO_VOCABULARIES)
        with create_folder(folder) as temporary:
            save_checkpoint(state, temporary)
            write_json(temporary / "config.json", build_config_json(hf_config, class_name, ()))
            tokenisers.save(temporary / NATIVE)
