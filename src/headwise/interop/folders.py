"""JSON files and folders of other programs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.utils import files
from headwise.utils.files import atomic_folder

NATIVE_TYPE = "headwise"  # model_type of a folder with our own config, for models that transformers cannot express
ONNX_TYPE, TORCH_EXPORT_TYPE = "headwise-onnx", "headwise-torch-export"  # of a folder of exported graphs


def is_native_folder(folder: Path) -> bool:
    """Whether a folder has Headwise's own config."""
    return (folder / "config.json").is_file() and read_json(folder / "config.json").get("model_type") == NATIVE_TYPE


def is_graph_folder(folder: Path) -> bool:
    """Whether a folder has exported graphs."""
    if not (folder / "config.json").is_file():
        return False
    return read_json(folder / "config.json").get("model_type") in (ONNX_TYPE, TORCH_EXPORT_TYPE)


def read_native_tables(folder: Path) -> dict[str, Any]:
    """The tables of the experiment in Headwise's own config."""
    tables = read_json(folder / "config.json").get("experiment")
    if not isinstance(tables, Mapping):
        raise UserError(f"{folder / 'config.json'}: experiment: must be a table of settings; export the run again")
    return dict(tables)


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        data = files.read_json(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); name a folder that has it") from None
    except ValueError:
        raise UserError(f"{path}: is not JSON; fetch it again") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: is not a JSON object; fetch it again")
    return data


@contextmanager
def create_folder(path: Path | str) -> Iterator[Path]:
    """Create a folder atomically: it appears at `path` when it is complete. A folder with files is never replaced."""
    path = Path(path)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(f"{path}: exists already; choose a new folder")
    with atomic_folder(path) as temporary:
        yield temporary
