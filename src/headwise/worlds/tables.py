"""The table of our own worlds: their names, and where each lives."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headwise.worlds.base import World

NAMESPACE = "headwise"
HOMES = {  # name -> module:class, and the class of its settings
    "catch": ("headwise.worlds.catch:Catch", "CatchConfig"),
    "grid": ("headwise.worlds.grid:Grid", "GridConfig"),
    "reach": ("headwise.worlds.reach:Reach", "ReachConfig"),
    "road": ("headwise.worlds.road:Road", "RoadConfig"),
}
VERSIONS = dict.fromkeys(HOMES, 0)  # a change of rules or pictures is another version


def make_world(name: str, count: int = 1, **settings: Any) -> World[Any]:
    """N copies of a world.

    >>> make_world("grid", 3, observe="state").observe().shape
    (3, 217)
    """
    from headwise.config.base import validate

    (home, config), where = HOMES[name], f"settings of {get_id(name)}"
    module, _, world = home.partition(":")
    settings = validate(getattr(import_module(module), config), settings, where)
    made: World[Any] = getattr(import_module(module), world)(settings, count)
    return made


def get_id(name: str) -> str:
    """The id that Gymnasium knows a world by.

    >>> get_id("grid")
    'headwise/Grid-v0'
    """
    return f"{NAMESPACE}/{name.capitalize()}-v{VERSIONS[name]}"
