"""What pages may ask: a module for each, with `routes(desk) -> APIRouter`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from headwise.studio.desk import Desk
from headwise.studio.routes import look, runs

ROUTES: tuple[Callable[[Desk], APIRouter], ...] = (runs.routes, look.routes)
