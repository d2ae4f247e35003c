"""Web pages: which page it is, and which links count."""

from __future__ import annotations

import json

import pytest
from langchain_core.messages import ToolMessage

from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import WebPages
from tidegauge.instrumentation.extractors.web_pages import links_in, normalised_url

SHOP = "https://shop.example/"
HTML = """<!doctype html><html><body>
<nav><a class="x" href="/cart">Cart</a> <A HREF='help/index.html#top'>Help</A></nav>
<a href=deals?page=2&amp;sort=price>Deals</a> <a href="#reviews">Reviews</a>
<a href="mailto:me@shop.example">Mail</a> <a href="javascript:void(0)">Menu</a> <a name="x"></a>
<area shape="rect" href="https://www.shop.example/map"> <a href="https://elsewhere.example/">x</a>
<abbr href="/no-link">abbr</abbr> <img src="/picture.png">
</body></html>"""


def test_html_links_of_the_site_are_exits():
    call = Call("goto", {"url": "HTTPS://Shop.example:443/#main"})
    seen = WebPages().observe(call, CallResult(HTML))
    assert seen.place == SHOP
    assert seen.exits == (
        SHOP + "cart",
        SHOP + "help/index.html",
        SHOP + "deals?page=2&sort=price",
        "https://www.shop.example/map",
    )
    assert seen.mentions == seen.exits


def test_links_to_other_sites_count_when_asked_for():
    seen = WebPages(same_site=False).observe(Call("goto", {"url": SHOP}), CallResult(HTML))
    assert "https://elsewhere.example/" in seen.exits


def test_markdown_and_plain_links():
    text = (
        "# Docs\n[Start](start.md 'title'), [Wiki](/wiki/Tide_(gauge)), ![logo](<img/logo.svg>)\n"
        "See https://docs.example/faq, (https://docs.example/a_(b)) or https://docs.example/end."
    )
    call = Call("fetch", {"url": "https://docs.example/en/"})
    assert WebPages().observe(call, CallResult(text)).exits == (
        "https://docs.example/en/start.md",
        "https://docs.example/wiki/Tide_(gauge)",
        "https://docs.example/en/img/logo.svg",
        "https://docs.example/faq",
        "https://docs.example/a_(b)",
        "https://docs.example/end",
    )


SNAPSHOT = """### Ran Playwright code
- Page URL: https://shop.example/cart
- Page Title: Cart
```yaml
- link "Pay" [ref=e3]:
  - /url: /pay
```"""


@pytest.mark.parametrize(
    "outcome",
    [
        SNAPSHOT,
        [{"type": "text", "text": SNAPSHOT}],
        ToolMessage(SNAPSHOT, tool_call_id="1"),
        {"url": SHOP + "cart", "links": ["/pay"]},
        json.dumps({"page": SHOP + "cart", "elements": [{"text": "Pay", "href": "/pay"}]}),
        {"current_url": SHOP + "cart", "html": '<a href="pay">Pay</a>'},
        "URL: https://shop.example/cart\n\n[Pay](/pay)",
        "**Current URL:** <https://shop.example/cart>\nPay: https://shop.example/pay",
    ],
)
@pytest.mark.parametrize("arguments", [{"ref": "e2"}, {"url": SHOP + "old"}, "e2", None])
def test_the_page_that_the_result_names_wins(outcome, arguments):
    seen = WebPages().observe(Call("click", arguments), CallResult(outcome))
    assert (seen.place, seen.exits) == (SHOP + "cart", (SHOP + "pay",))


def test_what_a_search_finds_leads_on_from_it():
    found = [
        {"title": "A", "url": "https://a.example/"},
        {"title": "B", "url": "https://b.example"},
    ]
    call = Call("web_search", {"query": "tide  gauges", "limit": 2})
    seen = WebPages().observe(call, CallResult(json.dumps(found)))
    assert seen.place == ("web_search", "tide gauges")
    assert seen.exits == ("https://a.example/", "https://b.example/")
    assert WebPages().observe(call, CallResult("nothing found")) is None


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (Call("add", {"a": 1}), CallResult("see https://a.example")),
        (Call("goto", {"url": "not a url"}), CallResult("")),
        (Call("goto", {"url": "ftp://a.example/"}), CallResult("")),
        (Call("goto", {"url": SHOP}), CallResult("timeout", True)),
        (Call("other", {"url": SHOP}), CallResult("")),
    ],
)
def test_what_is_no_move(call, result):
    tools = None if call.action != "other" else ["goto"]
    assert WebPages(tools=tools).observe(call, result) is None


def test_tracking_is_dropped_and_what_the_user_names():
    pages = WebPages(dropped_query=("session", "utm_*"))
    call = Call("goto", {"url": SHOP + "?utm_medium=x&session=1&id=7&sessions=2"})
    assert list(pages.uses(call)) == [SHOP + "?id=7&sessions=2"]
    assert list(WebPages(tools=["fetch"]).uses(call)) == []


@pytest.mark.parametrize(
    ("url", "normalised"),
    [
        ("http://a.example:8080", "http://a.example:8080/"),
        ("http://[::1]:80/x", "http://[::1]/x"),
        ("https://user:secret@a.example/", "https://a.example/"),
        ("https://a.example/?a&b=", "https://a.example/?a&b="),
        ("http://a.example:99999/", None),
        ("http://[bad/", None),
        ("http:///x", None),
        ("/cart", None),
        ("http://a.example/" + "x" * 3000, None),
    ],
)
def test_urls_are_written_in_one_way(url, normalised):
    assert normalised_url(url) == normalised
    assert normalised is None or normalised_url(normalised) == normalised


def test_relative_links_can_be_left_out():
    text = '<a href="/a">a</a> [b](b) [c](http://c.example)'
    assert list(links_in(text, relative=False)) == ["http://c.example"] * 2
