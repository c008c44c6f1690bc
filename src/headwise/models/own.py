"""The index of all models: the catalogue and the user's own, read without torch where there are none of the latter."""

from __future__ import annotations

from headwise.catalog import ModelInfo, list_own_models, read_index


def read_full_index() -> dict[str, ModelInfo]:
    """The catalogue, and the models of the user's own."""
    if not list_own_models():
        return read_index()
    from headwise.models.build import describe_own_models

    return {**read_index(), **describe_own_models()}
