"""MkDocs hook: pages that are made when the site is built, and links to files outside docs/.

README.md is the home page. The command line, the keys of experiment files and the Python API are read from the code,
and the navigation of the API from the tree of files, so that none of them is listed by hand.
"""

from __future__ import annotations

import gc
import posixpath
import re
from pathlib import Path
from typing import Any

import api_reference
import cli_reference
import key_reference
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {  # documents outside docs/ -> their pages
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "benchmarks.md",
}
SOURCES = {uri: path for path, uri in PAGES.items()}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")
LANGUAGES = {".py": "python", ".toml": "toml"}
BOOST = {"changes.md": 0.2, api_reference.FOLDER: 0.5, "files": 0.2}  # ranks of search results

gc.set_threshold(200_000, 20, 100)  # the trees of the API are large and stay: visiting them took a fifth of the time


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and put those of the API and of keys into the navigation."""
    made = {uri: (ROOT / path).read_text(encoding="utf-8") for path, uri in PAGES.items()}
    made["reference/command-line.md"] = cli_reference.render()
    keys, nav_of_keys = key_reference.render()
    api, nav_of_api = api_reference.render(ROOT / "src" / "headwise")
    made |= keys | api
    for path in linked_files(made):
        fence = "````" if "```" in (text := (ROOT / path).read_text(encoding="utf-8")) else "```"
        made[file_page(path)] = f"# {path}\n\n{fence}{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}\n{fence}\n"
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    replace_in_nav(config.nav, {"reference/keys": nav_of_keys, "reference/api": nav_of_api})
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files of the repository become links to their pages; symbols of the glossary lead to the API."""
    uri = page.file.src_uri
    if uri == "index.md":
        page.meta["hide"] = ["navigation"]
    for start, boost in BOOST.items():
        if uri.startswith(start):
            page.meta["search"] = {"boost": boost}
    if name := api_reference.get_module(uri):
        page.meta["title"] = name  # whole, where the navigation has its last part
    if uri == "glossary.md":
        page.meta["tags"] = re.findall(r"^\| (?!term \|)([^|`]+?) \|", markdown, flags=re.M)  # search ranks them first
        markdown = link_symbols(markdown)
    return LINK.sub(lambda match: relink(match[0], uri), markdown)


def relink(link: str, uri: str) -> str:
    """The link of a page as the site has it: `docs/data.md` of README.md is `data.md` of the home page."""
    home = SOURCES.get(uri, f"docs/{uri}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(home), link))
    if path.startswith("..") or not (ROOT / path).exists():
        return link  # MkDocs says so where it is broken
    if path.startswith("docs/"):
        target = path.removeprefix("docs/")
    else:
        target = PAGES.get(path, file_page(path))
    return posixpath.relpath(target, posixpath.dirname(uri) or ".")


def file_page(path: str) -> str:
    return f"files/{path}.md"


def linked_files(made: dict[str, str]) -> set[str]:
    """Files outside docs/ that some page links to and that have no page yet."""
    pages = {path.relative_to(ROOT / "docs").as_posix(): path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    linked = set()
    for uri, text in {**pages, **made}.items():
        home = posixpath.dirname(SOURCES.get(uri, f"docs/{uri}"))
        for link in LINK.findall(text):
            path = posixpath.normpath(posixpath.join(home, link))
            if not path.startswith(("..", "docs/")) and path not in PAGES and (ROOT / path).is_file():
                linked.add(path)
    return linked


def link_symbols(glossary: str) -> str:
    """`blocks/cache.py:DecodingCache` as a link to the documentation of that symbol."""

    def link(match: re.Match[str]) -> str:
        module = match[1].removesuffix("/__init__").replace("/", ".")
        shown = re.sub(r"([/:])", r"\1<wbr>", match[0].strip("`"))
        return f"[<code>{shown}</code>][headwise.{module}.{match[2]}]"

    return re.sub(r"`([\w/]+)\.py:([\w.]+)`", link, glossary)


def replace_in_nav(items: list[Any], made: dict[str, list[Any]]) -> None:
    """Put generated parts of the navigation where mkdocs.yml names them."""
    for item in items:
        for title, value in item.items():
            if isinstance(value, list):
                replace_in_nav(value, made)
            elif value in made:
                item[title] = made[value]
