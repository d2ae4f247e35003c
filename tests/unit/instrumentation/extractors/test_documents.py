"""Documents: which one was read, and which ones it mentions."""

from __future__ import annotations

import json

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import Documents
from tidegauge.worlds.lore_tasks import document_task

TICKETS = Documents(pattern=r"\b[A-Z]{2,5}-\d+\b")


@pytest.mark.parametrize(
    "arguments", [{"key": "OPS-7"}, '{"key": "OPS-7"}', "OPS-7", {"keys": ["OPS-7"]}]
)
def test_the_document_read_is_the_place(arguments):
    result = CallResult("OPS-7: blocked by OPS-9 and WEB-12, see OPS-9")
    seen = TICKETS.observe(Call("read", arguments), result)
    assert (seen.place, seen.exits) == ("OPS-7", ("OPS-9", "WEB-12"))
    assert seen.mentions == ("OPS-7", "OPS-9", "WEB-12")


def test_a_search_is_a_place_from_which_its_findings_lead_on():
    call = Call("search", {"query": "disk full"})
    seen = TICKETS.observe(call, CallResult(json.dumps([{"id": "OPS-7"}, {"id": "OPS-9"}])))
    assert (seen.place, seen.exits) == (("search", "disk full"), ("OPS-7", "OPS-9"))


def test_ids_may_be_the_keys_of_a_result():
    seen = TICKETS.observe(Call("list"), CallResult({"OPS-7": "disk", "OPS-9": "full"}))
    assert (seen.place, seen.exits) == (("list",), ("OPS-7", "OPS-9"))


def test_several_documents_at_once_are_no_move():
    call = Call("read", {"keys": ["OPS-7", "OPS-9"]})
    seen = TICKETS.observe(call, CallResult("WEB-1"))
    assert (seen.place, seen.exits, seen.mentions) == (None, None, ("WEB-1",))


def test_an_id_inside_a_longer_argument_is_used_and_not_read():
    call = Call("comment", {"text": "same as OPS-9"})
    assert list(TICKETS.uses(call)) == ["OPS-9"]
    assert TICKETS.observe(call, CallResult("done")) is None


def test_the_first_group_is_the_id():
    documents = Documents(pattern=r"\[\[([^\]|]{1,99})")
    seen = documents.observe(Call("open", "[[Tides]]"), CallResult("see [[Moon]], [[Sun|the sun]]"))
    assert seen.exits == ("Moon", "Sun")


def test_failed_calls_and_other_tools_report_nothing():
    call = Call("read", {"key": "OPS-7"})
    assert TICKETS.observe(call, CallResult("no OPS-7", True)) is None
    others = Documents(pattern=TICKETS.pattern, tools=["open"])
    assert others.observe(call, CallResult("OPS-9")) is None
    assert list(others.uses(call)) == []


def test_a_pattern_that_is_none_is_refused():
    with pytest.raises(ConfigurationError, match="pattern"):
        Documents(pattern="(")


def test_ids_of_the_lore_archive_are_found_by_default():
    task = document_task(seed=1)
    for id_, page in task.pages.items():
        seen = Documents().observe(Call("look_up", {"id": id_}), CallResult(page.text))
        assert seen.place == id_
    first = Documents().observe(Call("ask"), CallResult(task.question))
    assert set(first.exits) == set(task.first)
    assert Documents().observe(Call("say"), CallResult("at 10:30 and/or http://a.b:80/")) is None
