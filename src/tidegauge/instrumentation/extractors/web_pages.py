"""Web pages: where a browsing agent stands, and where it can go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tidegauge.events import Call, CallResult, Identity, Reach
from tidegauge.instrumentation.extraction import MAX_ITEMS, Observation
from tidegauge.instrumentation.extractors.links import (
    links_in,
    normalised_url,
    site_of,
    told_url,
)
from tidegauge.instrumentation.extractors.reading import (
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

__all__ = ["TRACKING_QUERY", "WebPages"]

TRACKING_QUERY: Final = ("utm_*", "fbclid", "gclid", "msclkid", "mc_cid", "mc_eid", "igshid")
"""Query keys that say how somebody came to a page, and not which page it is."""

_LINK_KEYS: Final = frozenset({"url", "href", "link", "links", "hrefs", "urls"})
_PAGE_KEYS: Final = ("url", "page_url", "current_url", "final_url", "page")
_ARGUMENTS: Final = ("url", "uri", "href", "link", "page", "address", "start_url")


@dataclass(frozen=True, kw_only=True, slots=True)
class WebPages:
    """Reads web pages: the place is the page's URL, its exits are its links.

    Which page it is, the result tells, by a key at its top (``url``, ``page_url``,
    ``current_url``, ``final_url``, ``page``) or a line ``URL: ...``: after a redirect or a click
    nobody else knows. Else the arguments do. A call of which neither tells a page, and which
    says what to search for (``query`` and the like, or text alone) and brings links back, is a
    place itself, from which they lead on. Any other call is no move.

    Links are those of HTML, Markdown and page snapshots, values of JSON keys such as ``url`` and
    ``href``, and plain URLs; relative ones are joined to the page's. Entities (for the recall
    lag) are the URLs of the page's exits, and those in a call's arguments.

    Args:
        tools: names of the tools to read; ``None``, all whose arguments or results tell a page.
        arguments: names of the arguments that hold a URL, the first that does is taken.
        page_keys: keys at the top of a JSON result that hold the page's URL.
        same_site: whether only links to the page's own host count as exits (a ``www.`` in front
            makes no difference). A search has no site: all that it finds are its exits.
        dropped_query: query keys that don't tell pages apart, such as a session's; one that ends
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
        page = self._told(body) or self._asked(arguments)
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

    def _told(self, body: object) -> str | None:
        if isinstance(body, Mapping):
            url = first_text(body, self.page_keys, fits=lambda text: "://" in text)
            if url is not None:
                return self._normalised(url)
        texts = (told_url(leaf.text) for leaf in leaves(body))
        url = next(filter(None, texts), None)
        return None if url is None else self._normalised(url)

    def _exits(self, body: object, page: str | None) -> tuple[str, ...]:
        site = None if page is None else site_of(page)
        exits: dict[str, None] = {}
        for link in islice(self._links(body, page is not None), 10 * MAX_ITEMS):
            url = None if link.startswith("#") else self._normalised(link, page or "")
            if url is None or url == page:
                continue
            if site is None or not self.same_site or site_of(url) == site:
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
