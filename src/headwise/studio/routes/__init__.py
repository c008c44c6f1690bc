"""API routes: one module per page, each with `routes(pool) -> APIRouter`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter

from headwise.studio.routes import catalogue, explain, fold, intervene, look, neuron, picture, play, runs, step, workers
from headwise.studio.worker_pool import WorkerPool

ROUTES: tuple[Callable[[WorkerPool], APIRouter], ...] = (
    runs.routes,
    catalogue.routes,
    look.routes,
    step.routes,
    intervene.routes,
    picture.routes,
    fold.routes,
    play.routes,
    explain.routes,
    neuron.routes,
    workers.routes,
)
