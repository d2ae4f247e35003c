"""The site has the files outside of ``docs`` that its pages link to, so that their links work.

``README.md`` is the first page. A linked folder is its ``README.md``; a link to a folder without
one becomes plain text, because a site cannot list folders.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^\]\[]+)\]\((?P<path>[^)#\s:]+)(?P<rest>#[^)\s]*)?\)")
_IMAGE: Final = re.compile(r"(?P<start>!\[[^\]]*\]\()(?P<path>[^)#\s:]+)(?P<end>\))")
_CODE: Final = re.compile(r"^(?P<fence>```|~~~).*?^(?P=fence)", re.DOTALL | re.MULTILINE)
_OUTSIDE: Final = "repository"


def site_path(path: str) -> str:
    """Where a file of the repository is in the site.

    >>> site_path("docs/langchain.md"), site_path("README.md"), site_path("examples/serve.toml")
    ('langchain.md', 'index.md', 'repository/examples/serve.toml')
    """
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{_OUTSIDE}/{path}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what the pages link to, and what these link to."""
    root = _root(config)
    ahead = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
    ahead += [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    known = set(ahead)
    while ahead:
        path = ahead.pop()
        if not path.startswith("docs/"):
            content = (root / path).read_bytes()
            file = File.generated(config, site_path(path), content=content)
            files.append(file)
        if path.endswith(".md"):
            new = set(_linked(root, path)) - known
            known |= new
            ahead += sorted(target for target in new if not target.startswith("docs/"))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to where the files are in the site."""
    root, source = _root(config), _source(page.file.src_uri)
    if source is None:
        return markdown

    def link(found: re.Match[str]) -> str:
        target = _target(root, source, found["path"])
        if target is not None:
            return f"[{found['text']}]({_relative(source, target)}{found['rest'] or ''})"
        return found["text"] if _path(source, found["path"], root).is_dir() else found[0]

    def image(found: re.Match[str]) -> str:
        target = _target(root, source, found["path"])
        if target is None:
            return found[0]
        return f"{found['start']}{_relative(source, target)}{found['end']}"

    return _outside_code(markdown, lambda text: _IMAGE.sub(image, _LINK.sub(link, text)))


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _source(uri: str) -> str | None:
    """The file of the repository that a page of the site is made from."""
    if uri == "index.md":
        return "README.md"
    return uri.removeprefix(f"{_OUTSIDE}/") if uri.startswith(_OUTSIDE) else f"docs/{uri}"


def _linked(root: Path, path: str) -> Iterator[str]:
    text = _CODE.sub("", (root / path).read_text())
    for found in [*_LINK.finditer(text), *_IMAGE.finditer(text)]:
        target = _target(root, path, found["path"])
        if target is not None:
            yield target


def _target(root: Path, source: str, link: str) -> str | None:
    """The file that a link leads to; ``None``, there is none, or it is a folder without a page."""
    path = _path(source, link, root)
    if path.is_dir():
        path /= "README.md"
    return path.relative_to(root).as_posix() if path.is_file() else None


def _path(source: str, link: str, root: Path) -> Path:
    return root / posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _relative(source: str, target: str) -> str:
    return posixpath.relpath(site_path(target), posixpath.dirname(site_path(source)) or ".")


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    parts, at = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(markdown[at:])])
