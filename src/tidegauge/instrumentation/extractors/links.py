"""URLs and links: finding them in pages, and writing them in one way.

The patterns take time in proportion to the text whatever it is: a page is written by strangers.
The standard library's HTML parser does not (some 100 kB take it minutes), and of a page only the
start tags of links are needed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import urljoin, urlsplit, urlunsplit

__all__ = ["links_in", "normalised_url", "site_of", "told_url"]

_MAX_URL: Final = 2_048
_PORTS: Final = {"http": 80, "https": 443}
_LINK_TAG: Final = re.compile(r"<(?:a|area)\s([^<>]*)>", re.IGNORECASE)
_HREF: Final = re.compile(
    r"""\bhref\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"']+))""", re.IGNORECASE
)
_MARKDOWN: Final = re.compile(r"\]\(\s{0,9}<?((?:[^\s<>()]|\([^\s<>()]{0,200}\)){1,2048})")
_SNAPSHOT: Final = re.compile(r"^[ \t]{0,99}- /url:[ \t]{1,9}(\S{1,2048})", re.MULTILINE)
_PLAIN: Final = re.compile(r"https?://[^\s<>\"'`\\|{}^\[\]]{1,2048}", re.IGNORECASE)
_TOLD: Final = re.compile(
    r"^[ \t*#>-]{0,20}(?:(?:page|current|final)[ _])?url[ \t*]{0,9}:[ \t*]{0,9}<?"
    r"(https?://[^\s<>\"'`*]{1,2048})",
    re.IGNORECASE | re.MULTILINE,
)


def told_url(text: str) -> str | None:
    """The URL in a line such as ``URL: ...`` or ``Page URL: ...``, by which browsers tell theirs.

    >>> told_url("### Page state\\n- Page URL: https://a.example/cart\\n- Page Title: Cart")
    'https://a.example/cart'
    """
    match = _TOLD.search(text)
    return match.group(1) if match else None


def links_in(text: str, *, relative: bool = True) -> Iterator[str]:
    """The targets of a text's links: of HTML, Markdown and page snapshots, then plain URLs.

    Args:
        text: what to look through.
        relative: whether to give targets that are no whole URL.

    >>> list(links_in('<a href="/cart?a=1&amp;b=2">Cart</a>, [help](help.html) or http://b.example.'))
    ['/cart?a=1&b=2', 'help.html', 'http://b.example']
    """
    for tag in _LINK_TAG.finditer(text):
        href = _HREF.search(tag.group(1))
        if href is not None:
            target = html.unescape(next(filter(None, href.groups()), "")).strip()
            if target and (relative or "://" in target):
                yield target
    for pattern in (_MARKDOWN, _SNAPSHOT):
        for match in pattern.finditer(text):
            if relative or "://" in match.group(1):
                yield match.group(1)
    for match in _PLAIN.finditer(text):
        yield _trimmed(match.group())


def normalised_url(url: str, *, base: str = "", dropped_query: Collection[str] = ()) -> str | None:
    """The URL in the one way it is written here; ``None``, it leads to no page.

    Host and scheme in small letters, no default port, no fragment, no user or password, no
    dropped query keys, ``/`` for an empty path.

    Args:
        url: a URL, relative to ``base`` if there is one.
        base: the URL of the page it was found on.
        dropped_query: keys that don't tell pages apart; one that ends with ``*`` is a prefix.

    >>> normalised_url("HTTP://me:pw@A.example:80?utm_source=x&id=7#top", dropped_query=["utm_*"])
    'http://a.example/?id=7'
    >>> normalised_url("../help", base="https://a.example/shop/cart")
    'https://a.example/help'
    """
    if len(url) > _MAX_URL:
        return None
    try:
        parts = urlsplit(urljoin(base, url.strip()))
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host:
        return None
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != _PORTS[parts.scheme]:
        host = f"{host}:{port}"
    query = parts.query
    if query and dropped_query:
        query = "&".join([pair for pair in query.split("&") if not _matches(pair, dropped_query)])
    return urlunsplit((parts.scheme, host, parts.path or "/", query, ""))


def site_of(url: str) -> str:
    """The host of a normalised URL, without a leading ``www.``."""
    return urlsplit(url).netloc.removeprefix("www.")


def _matches(pair: str, keys: Collection[str]) -> bool:
    name = pair.partition("=")[0]
    return any(name.startswith(key[:-1]) if key.endswith("*") else name == key for key in keys)


def _trimmed(url: str) -> str:
    """A URL in running text without the punctuation that ends its sentence."""
    url = url.rstrip(".,;:!?*_")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?*_")
    return url
