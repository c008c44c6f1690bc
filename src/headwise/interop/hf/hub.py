"""Repositories of the Hugging Face Hub: downloads the files that the importer reads, and no others.

`huggingface_hub` has the cache (HF_HOME), the offline mode (HF_HUB_OFFLINE), the token (HF_TOKEN) and the address
(HF_ENDPOINT). It compares sizes, not contents, of what it downloads; contents are compared here: in its cache a file is
named by its SHA-256 or, if it is not in LFS, by its git blob hash. Pickles are never downloaded.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import lru_cache
from glob import escape
from pathlib import Path
from typing import Any

from headwise.errors import UserError
from headwise.interop.folders import read_json
from headwise.interop.hf.files import INDEX, PICKLES, WEIGHTS
from headwise.interop.hf.image_processor import NESTED_PROCESSOR, PROCESSOR
from headwise.interop.hf.marian import SENTENCEPIECE_FILES
from headwise.interop.hf.read import ADAPTER, GENERATION_CONFIG
from headwise.interop.hf.text import NATIVE
from headwise.interop.hf.tokenizer_config import ADDED_TOKENS, SPECIAL_TOKENS_MAP, TOKENIZER, TOKENIZER_CONFIG
from headwise.interop.hf.vocabulary_files import BPE_VOCABULARY, MERGES, WORD_PIECE
from headwise.utils.extras import needed_for

log = logging.getLogger(__name__)

CONFIG = "config.json"
FILES = (  # all that the importer reads, except the weights
    CONFIG, GENERATION_CONFIG, ADAPTER, PROCESSOR, NESTED_PROCESSOR, INDEX, NATIVE,
    TOKENIZER, TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, ADDED_TOKENS,
    *SENTENCEPIECE_FILES, "target_vocab.json", WORD_PIECE, BPE_VOCABULARY, MERGES,
)  # fmt: skip
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+", re.ASCII)
SHA256, GIT_BLOB = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")  # a commit is like the latter
RUNS = "runs"  # the folder of runs, unless told otherwise
MAX_SILENCE = 20  # seconds that a server may be silent
CHUNK = 2**20  # bytes that are hashed at once


@dataclass(frozen=True)
class ModelFolder:
    """A folder to import. `origin` has repository, revision and commit if it was downloaded; else it is empty."""

    path: Path
    origin: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the model: that of the folder, or of the repository without its owner."""
        return self.origin["repository"].partition("/")[2] if self.origin else self.path.stem


def is_repository(source: str | Path, revision: str = "") -> bool:
    """Whether `source` names a repository, `org/name`, and no file. Where there is a local folder `org`, it is a path,
    and so is `runs/name`: a misspelt run is not looked up. A `revision` says that it is a repository."""
    path = Path(source)
    named = bool(REPOSITORY.fullmatch(str(source))) and not path.exists()
    return named and (bool(revision) or not (path.parent.name == RUNS or path.parent.is_dir()))


def find_folder(source: str | Path, revision: str = "") -> ModelFolder:
    """The folder that `source` names, or else the repository of that name, which is downloaded unless the cache has
    it."""
    if is_repository(source, revision):
        return download(str(source), revision or "main")
    if revision:
        raise UserError(f"{source}: is no repository such as org/name, so it has no revision {revision}; leave it out")
    return ModelFolder(Path(source))


def download(repository: str, revision: str = "main") -> ModelFolder:
    """Download a repository into the cache of `huggingface_hub`: configs and tokeniser, then the weights."""
    with needed_for(f"{repository}: there is no such folder, and to download it"):
        from huggingface_hub import HfApi, constants, snapshot_download
    offline = constants.is_offline_mode()
    if not offline:
        log.info("%s: looked up at %s", repository, constants.ENDPOINT)
    with explain_errors(repository, revision), hide_bars(), shorten_warnings(), limit_waiting():
        resolved = HfApi().resolve_revision(repository, revision=revision, local_files_only=offline)
        commit = resolved.resolved
        if not GIT_BLOB.fullmatch(commit):  # the client makes paths of it
            raise UserError(
                f"{repository}: {constants.ENDPOINT} answers with no commit for '{revision}'; ask its owner"
            )
        folder = Path(snapshot_download(repository, revision=resolved, allow_patterns=list(FILES)))
        for weights in ([WEIGHTS], list_shards(folder)):  # of both, transformers reads the one file
            patterns = [CONFIG, *map(escape, weights)]  # a file that exists: the client warns where nothing matches
            snapshot_download(repository, revision=commit, allow_patterns=patterns)
            if any((folder / name).is_file() for name in weights):
                break
    if not any((folder / name).is_file() for name in weights):
        raise UserError(explain_missing_weights(repository, revision, commit))
    for name in (*FILES, *weights):
        if (folder / name).is_file():
            check_contents(folder / name, repository)
    return ModelFolder(folder, {"repository": repository, "revision": revision, "commit": commit})


def list_shards(folder: Path) -> list[str]:
    """The files of the weights that an index names."""
    if not (folder / INDEX).is_file():
        return []
    index = read_json(folder / INDEX).get("weight_map")
    names = {str(name) for name in index.values()} if isinstance(index, dict) else set()
    if not names or any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
        raise UserError(f"{folder / INDEX}: must map tensors to safetensors of this folder; name another revision")
    return sorted(names)


def explain_missing_weights(repository: str, revision: str, commit: str) -> str:
    """The error message for a repository without safetensors."""
    from huggingface_hub import HfApi

    with explain_errors(repository, revision):
        names = HfApi().list_repo_files(repository, revision=commit)
    pickles = [name for name in names if any(fnmatch(name, pattern) for pattern in PICKLES)]
    if not pickles:
        return f"{repository}: has no {WEIGHTS}; name the repository of a model"
    return (
        f"{repository}: has its weights only as pickles ({pickles[0]}), which could run code and are not downloaded; "
        "name a --revision with safetensors, or convert them with transformers if you trust them"
    )


@contextmanager
def hide_bars() -> Iterator[None]:
    """Hide the progress bars of the client, unless stderr is a terminal."""
    from huggingface_hub.utils import disable_progress_bars

    with nullcontext() if sys.stderr.isatty() else disable_progress_bars():
        yield


@contextmanager
def shorten_warnings() -> Iterator[None]:
    """Say once, not for each file and each time, that the client waits for a server that fails, and for how long."""
    told: set[str] = set()

    def tell(record: logging.LogRecord) -> bool:
        wait = re.match(r"(?:Rate limited\. Waiting|Retrying in) ([\d.]+)s", record.getMessage())
        if wait and wait[1] not in told:
            told.add(wait[1])
            log.warning("the server fails or is busy: tried again in %.0f s", float(wait[1]))
        return False

    logger = logging.getLogger("huggingface_hub.utils._http")
    logger.addFilter(tell)
    try:
        yield
    finally:
        logger.removeFilter(tell)


@contextmanager
def limit_waiting() -> Iterator[None]:
    """Give up on a server that is silent for a while: some requests of the client have no time limit."""
    from huggingface_hub.utils import get_session

    client = get_session()
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "request": [*hooks["request"], _set_timeout]}
    try:
        yield
    finally:
        client.event_hooks = hooks


def _set_timeout(request: Any) -> None:
    limits = request.extensions.get("timeout", {})
    request.extensions["timeout"] = {name: limit or MAX_SILENCE for name, limit in limits.items()}


@contextmanager
def explain_errors(repository: str, revision: str) -> Iterator[None]:
    """Turn the errors of `huggingface_hub` into sentences."""
    from huggingface_hub import constants, errors

    place = constants.ENDPOINT
    try:
        yield
    except UserError:
        raise
    except errors.GatedRepoError:
        problem = f"is a gated repository; accept its terms at {place}/{repository} and set HF_TOKEN to your token"
    except errors.RepositoryNotFoundError:
        problem = (
            f"there is no such folder, and {place} has no such repository, or it is private; correct the name, or set "
            "HF_TOKEN"
        )
    except errors.RevisionNotFoundError:
        problem = f"has no revision '{revision}'; name a branch, a tag or a commit of it"
    except (errors.RevisionResolutionError, errors.LocalEntryNotFoundError) as error:
        where = f"the cache {constants.HF_HUB_CACHE} does not have it at '{revision}'"
        if constants.is_offline_mode():
            problem = f"HF_HUB_OFFLINE is set and {where}; unset it, or name a folder"
        elif isinstance(error.__cause__, errors.HfHubHTTPError):
            problem = f"{explain_status(error.__cause__.response.status_code, place)}; {where}"
        else:
            problem = f"{place} cannot be reached and {where}; check the network, or name a folder with a copy"
    except errors.HfHubHTTPError as error:
        problem = explain_status(error.response.status_code, place)
    except (errors.HTTPError, OSError) as error:  # also files of another size than the server said
        reason = str(error).strip().partition("\n")[0]
        problem = f"cannot be downloaded from {place} ({type(error).__name__}: {reason}); import it again"
    except errors.HFValidationError as error:
        problem = f"is no name of a repository, or '{revision}' of a revision ({error})"
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError) as error:  # of the client, on answers
        problem = (
            f"{place} does not answer as the Hugging Face Hub does ({type(error).__name__}); check the network, which "
            "may ask for a login, and HF_ENDPOINT"
        )
    else:
        return
    raise UserError(f"{repository}: {problem}") from None


def explain_status(status: int, place: str) -> str:
    """The error message for a server that answers with an HTTP status that says nothing about the repository."""
    if status in (401, 403):
        return f"{place} refuses access (status {status}); set HF_TOKEN to a token that may read it"
    return f"{place} answers with status {status}; import it again later, or name a folder with a copy"


def check_contents(path: Path, repository: str) -> None:
    """Refuse a file that is not what the repository lists, by its hash."""
    blob = path.resolve()
    status = blob.stat()
    expected = blob.name
    if not (SHA256.fullmatch(expected) or GIT_BLOB.fullmatch(expected)):
        return  # a cache without symbolic links does not keep the hash
    if compute_hash(blob, len(expected) == 64, status.st_size, status.st_mtime_ns) != expected:
        raise UserError(
            f"{repository}: {path.name} was damaged in the download or in the cache, as its hash is not {expected}; "
            f"delete {blob} and import it again"
        )


@lru_cache(maxsize=256)
def compute_hash(path: Path, sha256: bool, size: int, changed: int) -> str:
    """The SHA-256 or the git blob hash of a file, once as long as its size and its time stay the same."""
    digest = hashlib.sha256() if sha256 else hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
