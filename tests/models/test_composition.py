"""Model configs are composed of groups of settings; no model is a subclass of another."""

import pytest

from headwise.catalog import CATALOG
from headwise.config.base import Config
from headwise.models.assemble import TextFields
from headwise.models.config import ModelConfig
from headwise.models.image_fields import ImageFields
from headwise.models.layers import LayerFields

CONFIGS = sorted({entry.config for entry in CATALOG.values()}, key=lambda config: config.__name__)


def chain_length(config: type) -> int:
    """The longest chain of base classes up to `Config`, which is not counted."""
    bases = [base for base in config.__bases__ if issubclass(base, Config) and base is not Config]
    return 1 + max(map(chain_length, bases), default=0)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_no_model_inherits_from_another(config):
    assert not set(config.__mro__[1:]) & set(CONFIGS)
    assert issubclass(config, ModelConfig)
    assert chain_length(config) <= 3


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.__name__)
def test_a_model_of_images_has_no_settings_of_texts(config):
    texts = set(TextFields.model_fields) - set(LayerFields.model_fields) - {"pool", "embedding_width"}
    if issubclass(config, ImageFields):
        assert not texts & set(config.model_fields)
