"""Normalising: what becomes equal, what stays different, and that hostile text costs no more."""

from __future__ import annotations

import json
import re
import time
import uuid
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegauge
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.events import Call
from tidegauge.streaming_metrics.fingerprint import call_digest, content_digest
from tidegauge.streaming_metrics.normalise import (
    DEFAULT_KINDS,
    VOLATILE_KINDS,
    NoiseKind,
    Normalise,
    Volatile,
    rules,
)

KINDS = get_args(NoiseKind)

REPLACED = {
    "uuids": [
        ("task 123e4567-e89b-12d3-a456-426614174000 done", "task <uuid> done"),
        ("{123E4567-E89B-12D3-A456-426614174000}", "{<uuid>}"),
        (r"a\n123e4567-e89b-12d3-a456-426614174000", r"a\n<uuid>"),
    ],
    "request_ids": [
        ("req_011CSHoEeqs5C35K2UUqR7Fy", "<id>"),
        ("chatcmpl-AbC123dEf456GhI789jKl failed", "<id> failed"),
        ("x-request-id: 8f14e45f", "x-request-id: <id>"),
        ("Request ID: abc-123", "Request ID: <id>"),
        ('{"request_id": "a1b2c3d4"}', '{"request_id": "<id>"}'),
        (json.dumps({"body": '{"trace_id": "a1b2c3"}'}), r'{"body": "{\"trace_id\": \"<id>\"}"}'),
        ("correlationId=77f0-9", "correlationId=<id>"),
    ],
    "addresses": [
        ("<Foo object at 0x7f3c2a1b4d30>", "<Foo object at <address>>"),
        ("<Foo object at 0x7F3C>", "<Foo object at <address>>"),
        ("goroutine 0xc000012345678", "goroutine <address>"),
    ],
    "temporary_paths": [
        ("open /tmp/tmpk3x_9a/log.txt", "open <tmp>/<name>/log.txt"),
        ("/tmp/tmpabcdefgh", "<tmp>/<name>"),
        ("/private/tmp/data.csv", "<tmp>/data.csv"),
        ("/var/tmp/run-20261121", "<tmp>/<name>"),
        ("/var/folders/zz/zyx_k8w1/T/tmp1/a", "<tmp>/<name>/a"),
        ("/tmp/pytest-of-root/pytest-12/test_x0/out", "<tmp>/test_x0/out"),
        ("/tmp/build-AbXyKl/main.o", "<tmp>/<name>/main.o"),
        (r"C:\Users\John Smith\AppData\Local\Temp\tmp1.txt", "<tmp>/<name>"),
        (json.dumps(r"C:\Windows\Temp\report.txt"), '"<tmp>/report.txt"'),
        (r"a\n/tmp/notes.md", r"a\n<tmp>/notes.md"),
    ],
    "durations": [
        ("3 passed in 0.35s", "3 passed in <duration>"),
        ("12 ms, 7ms, 3.5 µs and 9us", "<duration>, <duration>, <duration> and <duration>"),
        ("took 00:00:03", "took <duration>"),
        ("took 2:05.33", "took <duration>"),
        ("real\t0m0.012s", "real\t<duration>"),
        ("done in 1m 23s", "done in <duration>"),
        ("1h2m3.4s", "<duration>"),
        ("retry in 5 seconds", "retry in <duration>"),
        ('{"elapsed_ms": 1234.5}', '{"elapsed_ms": <duration>}'),
        (r"ok\n12 ms", r"ok\n<duration>"),
    ],
    "timestamps": [
        ("2026-11-21T23:25:02Z", "<time>"),
        ("2026-11-21 23:25:02.123456+01:00 x", "<time> x"),
        ("2026-11-21 23:25:02,113 INFO", "<time> INFO"),
        ("2026/11/21 23:25:02 [error]", "<time> [error]"),
        ("backup-2026-11-21_23-25-02.tar", "backup-<time>.tar"),
        ("20261121T232502Z", "<time>"),
        ("Sat, 21 Nov 2026 23:25:02 GMT", "<time>"),
        ("Saturday, 21-Nov-26 23:25:02 GMT", "<time>"),
        ("21 Nov 2026 23:25:02 +0000", "<time>"),
        ("Sat Nov 21 23:25:02 2026", "<time>"),
        ("Sat Nov 21 23:25:02 UTC 2026", "<time>"),
        ("Nov  1 03:05:02 host sshd", "<time> host sshd"),
        ("-rw-r--r-- 1 a a 41 Nov 21 23:25 f", "-rw-r--r-- 1 a a 41 <time> f"),
        ("[21/Nov/2026:23:25:02 +0000]", "[<time>]"),
        ("11/21/2026, 11:25:02 PM", "<time>"),
        ("at 23:25:02.5 it", "at <time> it"),
        ("ts=1763767502 and 1763767502.25", "ts=<time> and <time>"),
        ('{"at":1763767502113}', '{"at":<time>}'),
        (r"a\n2026-11-21 23:25:02", r"a\n<time>"),
    ],
    "hex_ids": [
        ("4bf92f3577b34da6a3ce929d0e0e4736", "<id>"),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-<id>-<id>-01"),
        ("span 00F067AA0BA902B7.", "span <id>."),
        (r"a\nbf92f3577b34da6a3ce9", r"a\n<id>"),
    ],
    "process_ids": [
        ("worker pid 4711 exited", "worker pid <pid> exited"),
        ('{"pid": 4711}', '{"pid": <pid>}'),
        ("PID=4711, process id: 12", "PID=<pid>, process id: <pid>"),
    ],
    "object_addresses": [
        ("<A object at 0x7f3c2a1b4d30>, 0x7f3c2a1b4d30", "<A object at <address>>, 0x7f3c2a1b4d30"),
    ],
    "numbers": [
        ("page 3 of 1,200", "page <number> of <number>"),
        ("1.5e-3 -7 [42]", "<number> -<number> [<number>]"),
        (r"a\n5", r"a\n<number>"),
    ],
}

KEPT = [
    "page 3 of 12, total 1200",
    "flights on 2026-11-21",
    "order #W1763767502 and item 9523456873",
    "version 3.11.7, model gpt-4o, port 8080",
    "error 0x80070005 at 0xFF",
    "commit 4bebca5, chapter deadbeef",
    "call_get_weather_report request_processing_failed run_all_the_tests_again",
    '<span id="main-content">',
    "size 9 us, 30 minutes, 24 hours, leave after 11:00",
    "/home/me/tmp/a/tmp1 and https://a.example/tmp/tmp1 and templates/temp",
    "mac 00:11:22:33:44:55",
    "http://host.example/temp/page1/x",
    "ratio 16:9, chapter 12:34",
    "1234567890123456789012345678901234567890",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "x1763767502 1763767502x",
    "",
]

HOSTILE = {  # what each kind begins to match, again and again
    "uuids": ["0", "12345678-", "12345678-1234-1234-1234-"],
    "request_ids": ["req_", "req_a", "call_a", "msg_a1", "request-id: ", 'traceid""', "\\n"],
    "addresses": ["0x", " at 0x", " at 0xf"],
    "temporary_paths": [
        *("/", "/tmp/", "/tmp/a", "/tmp/1/", "/var/folders/a/b/", "/tmp/pytest-of-"),
        *("\\", "C:\\", "C:\\a", "C:/a/", "\\a", "C:\\a\\Temp"),
    ],
    "durations": ["1", "1.", "1m", "1h1m", "1 m", "1.1 ", "in ", "in:", "took 1", "elapsed_ms"],
    "timestamps": [
        *("1", "1:", "12:34:", "12:34:5", "2026-11-21 ", "20261121T", "21/Nov/2026:", " "),
        *("1763767502.", "Mon, 1 Jan ", "Jan 1, 2026 ", "Sat Nov 21 23:25 "),
    ],
    "hex_ids": ["0", "f", "0f", "0123456789abcdef", "0123456789abcdefg"],
    "process_ids": ["pid", "pid ", "pid 1", "process id: "],
    "object_addresses": [" at 0x", " at 0xf"],
    "numbers": ["1", "1.", "1,", "1e", "1e+", "\u0661"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_replaced(kind):
    normalise = Normalise(kind)
    assert [normalise(text) for text, _ in REPLACED[kind]] == [one for _, one in REPLACED[kind]]


@pytest.mark.parametrize("text", KEPT)
def test_what_means_something_is_kept(text):
    assert Normalise()(text) == text


def test_all_at_once():
    text = " | ".join(text for texts in REPLACED.values() for text, _ in texts)
    normalised = Normalise(*KINDS)(text)
    assert not re.search(r"(?<![\w.])\d{3}", normalised)
    assert Normalise(*KINDS)(normalised) == normalised


def test_numbers_only_on_request():
    assert set(DEFAULT_KINDS) == set(KINDS) - {"numbers", "object_addresses"}
    assert Normalise()("page 3") == "page 3"


def test_two_runs_of_one_command_are_equal():
    def output(second, seconds, drawn):
        return (
            f"[2026-11-21 23:25:{second}] worker {uuid.UUID(int=drawn)} at 0x7f{drawn:010x}\n"
            f"wrote /tmp/tmp{drawn:08x}/out.csv\n3 passed in {seconds}s (request-id: r-{drawn})\n"
        )

    first, second = output("02", 0.35, 12345), output("59", 12.1, 987654)
    assert Normalise()(first) == Normalise()(second)
    assert content_digest({"a": first}, Normalise()) == content_digest({"a": second}, Normalise())
    assert content_digest(first) != content_digest(second)
    failed = second.replace("3 passed", "2 passed")
    assert Normalise()(first) != Normalise()(failed)


@given(st.text() | st.text("0123456789abcdefATZ:-/.\\ _reqtmpin<>", max_size=60))
def test_twice_is_once(text):
    normalise = Normalise()
    once = normalise(text)
    assert normalise(once) == once


@given(st.binary())
def test_text_of_any_bytes(data):
    text = data.decode("utf-8", "surrogateescape")
    assert isinstance(Normalise(max_length=10)(text), str)


def test_only_the_ends_of_a_long_text_are_normalised():
    normalise = Normalise("timestamps", max_length=40)
    text = f"23:25:02{'-' * 50}23:25:02{'+' * 50}23:25:02"
    normalised = normalise(text)
    assert normalised.startswith("<time>---")
    assert normalised.endswith("+++<time>")
    assert "84 characters" in normalised
    later = "23:59:59" + text[8:-8] + "23:59:59"
    assert normalise(later) == normalised
    assert normalise(text.replace("-23:25:02+", "-23:59:59+")) != normalised
    assert normalise(text.replace("-23", "--23")) != normalised


def test_a_text_of_just_the_length_is_normalised_as_a_whole():
    text = "-" * 16 + "23:25:02" + "-" * 16
    assert Normalise(max_length=40)(text) == "-" * 16 + "<time>" + "-" * 16
    assert "<time>" not in Normalise(max_length=39)(text)


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_takes_time_as_its_length(kind):
    """A pattern that scans the rest again from every character would take 100 times as long."""
    normalise = Normalise(kind, max_length=10**7)
    slow = []
    for unit in HOSTILE[kind]:
        short, long = (unit * (size // len(unit)) for size in (100_000, 1_000_000))
        took_short, took_long = seconds(normalise, short), seconds(normalise, long)
        if took_long > 30 * max(took_short, 0.002):
            slow.append((unit, took_short, took_long))
    assert not slow


def seconds(normalise, text):
    """Of the processor, so that a busy machine fails no test."""
    start = time.process_time()
    normalise(text)
    return time.process_time() - start


def test_choosing_kinds():
    normalise = Normalise("timestamps", "uuids", "uuids")
    assert normalise.kinds == ("uuids", "timestamps")
    assert repr(normalise) == "Normalise('uuids', 'timestamps', max_length=65536)"
    assert all(rules(kind) for kind in KINDS)


@pytest.mark.parametrize("wrong", [{"max_length": 0}, {"max_length": -1}])
def test_settings_that_cannot_work(wrong):
    with pytest.raises(ConfigurationError, match="max_length"):
        Normalise(**wrong)
    with pytest.raises(ConfigurationError, match="'dates'; known: uuids"):
        Normalise("dates")  # type: ignore[arg-type]


def test_a_loop_that_timestamps_hide():
    def repeats(normaliser):
        with testing.capture(normalise=normaliser) as seen:
            with tidegauge.run(agent="watcher") as run:
                for minute in range(10, 20):
                    run.act("tail", {"file": "app.log"})
                    run.observe(f"2026-11-21 23:{minute}:02 still waiting")
            snapshot = seen.pipeline.engine.snapshot()
        return snapshot.groups[0].totals.loop_steps

    assert repeats("exact") == {}
    assert repeats(Normalise()) == {"tail": 8}


VOLATILE = Volatile()
EXAMPLES = [text for kind in VOLATILE_KINDS for text, _ in REPLACED[kind]]
PARTS = ("0", "12", ":", "-", " ", "s", "ms", "2026", "pid", "/tmp", "a1", "_ms", "T", "took ")


@pytest.mark.parametrize("text", EXAMPLES)
def test_what_is_volatile_is_recognized(text: str) -> None:
    assert VOLATILE.concerns(text.encode())
    assert VOLATILE(text) == Normalise(*VOLATILE_KINDS)(text)


@given(
    st.lists(
        st.sampled_from([*EXAMPLES, *PARTS]) | st.text("0123456789abcdefxTZ:-_/. msµ", max_size=20),
        max_size=6,
    ).map("".join)
)
def test_what_is_replaced_is_recognized(text: str) -> None:
    """Otherwise two texts that stand for the same would be compared in two ways."""
    assert VOLATILE(text) == Normalise(*VOLATILE_KINDS)(text)
    if VOLATILE(text) != text:
        assert VOLATILE.concerns(text.encode())


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("flight on 2024-05-01", "flight on 2024-05-02"),
        ("price 12.50", "price 12.51"),
        ("page 3 of 12", "page 4 of 12"),
        ("12 tests passed", "13 tests passed"),
        ("order W2378156", "order W2378157"),
        ("score 0.35", "score 0.36"),
        ("(Result 1 / 5) Milhouse", "(Result 2 / 5) Milhouse"),
        ("reservation HATHAT", "reservation HATHAU"),
        ("exit code 1", "exit code 2"),
        ("12 shoes", "13 shoes"),
        ("df3b03a223a32744829fe026fa679cbb  -", "909665ab1e8bb4ddfa3f64bb5383af55  -"),
    ],
)
def test_results_that_mean_something_else_stay_different(left: str, right: str) -> None:
    assert content_digest(left, VOLATILE) != content_digest(right, VOLATILE)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("2024-05-01T10:00:00", "2024-05-01T11:00:00"),
        ("123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174001"),
        ("/tmp/tmpk3x_9a/a", "/tmp/tmpk3x_9b/a"),
        ("run_0123456789abcdef", "run_0123456789abcdee"),
        ("0x7f3c2a1b4d30", "0x7f3c2a1b4d38"),
        ("pid 4711", "pid 4712"),
        ("sleep 5ms", "sleep 9ms"),
    ],
)
def test_arguments_that_choose_something_else_stay_different(left: str, right: str) -> None:
    digests = {call_digest(Call("use", one), VOLATILE.arguments) for one in (left, right)}
    assert len(digests) == 2
    assert content_digest(left, VOLATILE) == content_digest(right, VOLATILE)


def test_the_address_that_an_object_prints_of_itself_is_no_argument() -> None:
    one, other = (Call("use", {"by": f"<Tool object at 0x7f3c{n}>"}) for n in ("00", "08"))
    assert call_digest(one, VOLATILE.arguments) == call_digest(other, VOLATILE.arguments)


def streak_of_a_log(**settings: Any) -> int | None:
    with testing.capture(**settings) as seen, tidegauge.run(run_id="r") as run:
        for minute in range(3):
            run.act("tail", {"file": "app.log"})
            run.observe(f"2026-11-21 23:{minute:02}:02 waiting for pid {4_000 + minute}")
        found = seen.pipeline.engine.get("r")
        assert found is not None
        return found.report().result_streak


def test_live_runs_are_compared_without_what_is_volatile_unless_exact_is_set() -> None:
    assert streak_of_a_log() == 3
    assert streak_of_a_log(normalise="volatile") == 3
    assert streak_of_a_log(normalise="exact") == 1
    assert streak_of_a_log(normalise=lambda text: "") == 3


def test_a_hostile_result_takes_bounded_time() -> None:
    for part in ("0:00", "2024-05-01 ", "1h", "a1", "0x", "_ms", "request-id:", "0 "):
        began = time.process_time()
        content_digest(part * (1_000_000 // len(part)), VOLATILE)
        assert time.process_time() - began < 0.5
