"""What a worker keeps between requests: loaded models, attention maps and counted architectures."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from headwise.errors import UserError
from headwise.studio.map_cache import MapCache
from headwise.studio.run_registry import RunFolder, RunRegistry

if TYPE_CHECKING:
    from headwise.inference.maps import Maps
    from headwise.inference.trained_model import TrainedModel
    from headwise.inspect.fold_inspection import FoldInspection
    from headwise.studio.model_tree import ModelTrees
    from headwise.studio.neurons import NeuronView
    from headwise.studio.pictures import ImageMaps
    from headwise.studio.playing import PlayedEpisode

MAX_MODELS = 3  # loaded models kept in memory


class Workspace:
    """Loads a model at its first request, and again when its run has a newer checkpoint. One thread uses the models;
    another reads the caches."""

    def __init__(self, registry: RunRegistry):
        self.registry = registry
        self.models: OrderedDict[tuple[str, float], TrainedModel] = OrderedDict()
        self.started = perf_counter()
        self.maps: MapCache[Maps] = MapCache()
        self.neurons: MapCache[NeuronView] = MapCache(2)  # queries and keys of all layers are larger than maps
        self.images: MapCache[ImageMaps] = MapCache(3)  # maps of many windows are large
        self.chains: MapCache[FoldInspection] = MapCache(3)  # maps of triangle attention are large
        self.episodes: MapCache[PlayedEpisode] = MapCache(4, "this episode is no longer in the cache; press Play again")

    @cached_property
    def trees(self) -> ModelTrees:
        from headwise.studio.model_tree import ModelTrees

        return ModelTrees()

    def get_model(self, name: str) -> TrainedModel:
        """The model of a run."""
        folder = self.registry[name]
        key = (str(folder.path), checkpoint_time(folder))
        if key not in self.models:
            for stale in [entry for entry in self.models if entry[0] == key[0]]:
                del self.models[stale]
            self.models[key] = load_model(folder, self.registry.data_root)
            while len(self.models) > MAX_MODELS:
                self.models.popitem(last=False)
        self.models.move_to_end(key)
        self.started = perf_counter()
        return self.models[key]

    def measure(self) -> dict[str, Any]:
        """The milliseconds since the model of the operation was there."""
        return {"milliseconds": round(1e3 * (perf_counter() - self.started), 1)}


def load_model(folder: RunFolder, data_root: str | Path = "") -> TrainedModel:
    from headwise.experiment.load import load

    try:
        return load(folder.path, data_root=data_root)
    except UserError:
        raise
    except Exception as error:  # a damaged folder must not stop the studio
        raise UserError(f"{folder.name}: cannot be opened ({error})") from error


def checkpoint_time(folder: RunFolder) -> float:
    """When it was last decided which checkpoint is the best, or the last where none is; 0 if there is none."""
    for pointer in ("best", "last"):
        with suppress(OSError):
            return (folder.path / pointer).stat().st_mtime
    return 0.0  # a folder of another library, or one that was just deleted
