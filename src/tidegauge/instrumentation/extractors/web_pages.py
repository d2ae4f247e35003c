"""Web pages: where a browsing agent is, and where it can go.

The patterns take time in proportion to the text whatever it is: anyone may have written a page.
The standard library's HTML parser does not (some 100 kB take it minutes), and of a page only the
start tags of links are needed.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from tidegauge.events import Call, CallResult, Identity, Reach
from tidegauge.instrumentation.extractors.contents import (
    Leaf,
    applies,
    arguments_of,
    body_of,
    first_text,
    leaves,
    search_place,
    searches,
    tool_names,
)
from tidegauge.runs.extraction import MAX_ITEMS, Observation

TRACKING_QUERY: Final = ("utm_*", "fbclid", "gclid", "msclkid", "mc_cid", "mc_eid", "igshid")
"""Query keys that say how a visitor came to a page, and not which page it is."""

_LINK_KEYS: Final = frozenset({"url", "href", "link", "links", "hrefs", "urls"})
_PAGE_KEYS: Final = ("url", "page_url", "current_url", "final_url", "page")
_ARGUMENTS: Final = ("url", "uri", "href", "link", "page", "address", "start_url")

_MAX_URL: Final = 2_048
_PORTS: Final = {"http": 80, "https": 443}
_LINK_TAG: Final = re.compile(r"<(?:a|area)\s([^<>]*)>", re.IGNORECASE)
_HREF: Final = re.compile(
    r"""\bhref\s{0,9}=\s{0,9}(?:"([^"]*)"|'([^']*)'|([^\s"']+))""", re.IGNORECASE
)
_MARKDOWN: Final = re.compile(r"\]\(\s{0,9}<?((?:[^\s<>()]|\([^\s<>()]{0,200}\)){1,2048})")
_SNAPSHOT: Final = re.compile(r"^[ \t]{0,99}- /url:[ \t]{1,9}(\S{1,2048})", re.MULTILINE)
_PLAIN: Final = re.compile(r"https?://[^\s<>\"'`\\|{}^\[\]]{1,2048}", re.IGNORECASE)
_URL_LINE: Final = re.compile(
    r"^[ \t*#>-]{0,20}(?:(?:page|current|final)[ _])?url[ \t*]{0,9}:[ \t*]{0,9}<?"
    r"(https?://[^\s<>\"'`*]{1,2048})",
    re.IGNORECASE | re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WebPages:
    """Reads web pages: the place is the page's URL, its exits are its links.

    The page is taken from the result: from a key at its top (``url``, ``page_url``,
    ``current_url``, ``final_url``, ``page``) or a line ``URL: ...``, because only the result knows
    it after a redirect or a click. Else it is taken from the arguments. A call without a page that
    says what to search for (``query`` and the like, or text alone) and brings links back, is a
    place itself, from which they lead on. Any other call is not a move.

    Links are those of HTML, Markdown and page snapshots, values of JSON keys such as ``url`` and
    ``href``, and plain URLs; relative ones are joined to the page's. Entities (for the recall
    lag) are the URLs of the page's exits, and those in a call's arguments.

    Args:
        tools: names of the tools to read; ``None``, all whose arguments or results name a page.
        arguments: names of the arguments that hold a URL, the first that does is taken.
        page_keys: keys at the top of a JSON result that hold the page's URL.
        same_site: whether only links to the page's own host count as exits (a ``www.`` in front
            makes no difference). A search has no site: all that it finds are its exits.
        dropped_query: query keys that don't distinguish pages, such as a session's; one that ends
            with ``*`` is a prefix.
        reach: how the agent moves between pages.

    >>> pages = WebPages()
    >>> call = Call("open_page", {"url": "https://Shop.example/?utm_source=mail"})
    >>> seen = pages.observe(call, CallResult('<a href="cart#top">Cart</a> http://other.example'))
    >>> seen.place, seen.exits
    ('https://shop.example/', ('https://shop.example/cart',))
    """

    tools: Collection[str] | None = None
    arguments: Collection[str] = _ARGUMENTS
    page_keys: Collection[str] = _PAGE_KEYS
    same_site: bool = True
    dropped_query: Collection[str] = TRACKING_QUERY
    reach: Reach | None = "adjacent"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", tool_names(self.tools))

    def uses(self, call: Call) -> Iterable[Identity]:
        """The page that the call asks for."""
        page = self._asked(arguments_of(call)) if applies(self.tools, call) else None
        return () if page is None else (page,)

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        """Which page it is, and its links."""
        if result.error or not applies(self.tools, call):
            return None
        arguments, body = arguments_of(call), body_of(result.outcome)
        page = self._shown_page(body) or self._asked(arguments)
        if page is not None:
            exits = self._exits(body, page)
            return Observation(page, exits, mentions=exits)
        exits = self._exits(body, None) if searches(arguments) else ()
        return Observation(search_place(call, arguments), exits, mentions=exits) if exits else None

    def _asked(self, arguments: Mapping[str, object] | str) -> str | None:
        def is_url(text: str) -> bool:
            return self._normalised(text) is not None

        url = first_text(arguments, self.arguments, fits=is_url)
        return None if url is None else self._normalised(url)

    def _shown_page(self, body: object) -> str | None:
        if isinstance(body, Mapping):
            url = first_text(body, self.page_keys, fits=lambda text: "://" in text)
            if url is not None:
                return self._normalised(url)
        texts = (_labelled_url(leaf.text) for leaf in leaves(body))
        url = next(filter(None, texts), None)
        return None if url is None else self._normalised(url)

    def _exits(self, body: object, page: str | None) -> tuple[str, ...]:
        site = None if page is None else _site_of(page)
        exits: dict[str, None] = {}
        for link in islice(self._links(body, page is not None), 10 * MAX_ITEMS):
            url = None if link.startswith("#") else self._normalised(link, page or "")
            if url is None or url == page:
                continue
            if site is None or not self.same_site or _site_of(url) == site:
                exits[url] = None
                if len(exits) >= MAX_ITEMS:
                    break
        return tuple(exits)

    def _links(self, body: object, relative: bool) -> Iterator[str]:
        for leaf in leaves(body):
            if _is_link(leaf):
                yield leaf.text
            else:
                yield from links_in(leaf.text, relative=relative)

    def _normalised(self, url: str, base: str = "") -> str | None:
        return normalised_url(url, base=base, dropped_query=self.dropped_query)


def _is_link(leaf: Leaf) -> bool:
    return leaf.key in _LINK_KEYS and not any(map(str.isspace, leaf.text.strip()))


def _labelled_url(text: str) -> str | None:
    """The URL in a line such as ``URL: ...`` or ``Page URL: ...``, as browsers write it.

    >>> _labelled_url("### Page state\\n- Page URL: https://a.example/cart\\n- Page Title: Cart")
    'https://a.example/cart'
    """
    match = _URL_LINE.search(text)
    return match.group(1) if match else None


def links_in(text: str, *, relative: bool = True) -> Iterator[str]:
    """The targets of a text's links: of HTML, Markdown and page snapshots, then plain URLs.

    Args:
        relative: whether to give targets that are not whole URLs.

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
        dropped_query: keys that don't distinguish pages; one that ends with ``*`` is a prefix.

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


def _site_of(url: str) -> str:
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
