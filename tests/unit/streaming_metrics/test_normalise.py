"""Normalising: what becomes equal, what stays different, and that hostile text costs no more."""

from __future__ import annotations

import json
import random
import re
import string
import time
import uuid
from collections.abc import Callable
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegauge
from support.speed import seconds_of
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.events import Call
from tidegauge.streaming_metrics.fingerprint import call_digest, content_digest
from tidegauge.streaming_metrics.known_noise import NoiseKind
from tidegauge.streaming_metrics.normalise import DEFAULT_KINDS, Normalise, Volatile

KINDS = get_args(NoiseKind)

REPLACED = {
    "uuids": [
        ("task 123e4567-e89b-12d3-a456-426614174000 done", "task <uuid> done"),
        ("{123E4567-E89B-12D3-A456-426614174000}", "{<uuid>}"),
        (r"a\n123e4567-e89b-12d3-a456-426614174000", r"a\n<uuid>"),
        ("job 01J9ZQ4T6Y5R3E2W1A0B9C8D7F done", "job <id> done"),
        ("01j9zq4t6y5r3e2w1a0b9c8d7f", "<id>"),
        ("evt_01J9ZQ4T6Y5R3E2W1A0B9C8D7F", "evt_<id>"),
    ],
    "request_ids": [
        ("thread_8Ch4pDW46sqKsJhkHgShE3zv", "<id>"),
        ("toolu_bdrk_01gJYA5eks0S3HQ66siOCQDD", "<id>"),
        ("gen-1763767502-e6QiX6tngJsLhaBEqPXD", "<id>"),
        ("chatcmpl-AbCQdEfXGhIRjKlWmNoPqZbT failed", "<id> failed"),
        (f"host id: {'Ab3/' * 19}=", "host id: <id>"),
        (
            f"a: <RequestId>C2S4</RequestId><HostId>{'Ab3/' * 19}</HostId>",
            "a: <RequestId><id></RequestId><HostId><id></HostId>",
        ),
        ("x-amz-cf-id: AbC_d3==", "x-amz-cf-id: <id>"),
        (
            '<input name="csrf_token" value="gB81bSg3TB7"><script nonce="r4nd0mAb">',
            '<input name="csrf_token" value="<id>"><script nonce="<id>">',
        ),
        ("req_011CSHoEeqs5C35K2UUqR7Fy", "<id>"),
        ("chatcmpl-AbC123dEf456GhI789jKl failed", "<id> failed"),
        ("x-request-id: 8f14e45f", "x-request-id: <id>"),
        ("Request ID: abc-123", "Request ID: <id>"),
        ('{"request_id": "a1b2c3d4"}', '{"request_id": "<id>"}'),
        (json.dumps({"body": '{"trace_id": "a1b2c3"}'}), r'{"body": "{\"trace_id\": \"<id>\"}"}'),
        ("correlationId=77f0-9", "correlationId=<id>"),
        ('{"call_id": 17}', '{"call_id": <id>}'),
        ('ETag: W/"33a64df5"', 'ETag: W/"<id>"'),
        ("{'traceID': 'abc'}", "{'traceID': '<id>'}"),
        ("Idempotency-Key: k-1", "Idempotency-Key: <id>"),
        ("x-amzn-RequestId: 5f2c", "x-amzn-RequestId: <id>"),
        ("id cmpl-7QyqpwdfhqwajicIEznoc6Q47XAyW", "id <id>"),
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
        ("/tmp/job/tmpk3x_9aab/a.py:3", "<tmp>/job/<name>/a.py:3"),
        ("/tmp/tmp.fQ0ZpX2b1c: not found", "<tmp>/<name>: not found"),
        ("File tmpk3x_9aab.py, line 3", "File <name>.py, line 3"),
        ("/tmp/go-build1234567890/b001", "<tmp>/<name>/b001"),
        ("/tmp/ipykernel_811/2310.py", "<tmp>/<name>/2310.py"),
    ],
    "transfer_rates": [
        ("saved (1.2 MB/s), 35.10it/s, 980 kB/s", "saved (<rate>), <rate>, <rate>"),
        (
            "Left  Speed\n"
            "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
            "\r100  1256  100  1256    0     0  29531      0 --:--:-- --:--:-- --:--:-- 29904\n",
            "Left  Speed\n100  1256  100  1256    0     0<rate>\n",
        ),
        ("300 bytes/sec, 495.4 runs/s, 2.5s/it", "<rate>, <rate>, <rate>"),
        (
            "a:\n\r  3%| | 1/9 [00:01<?, ?it/s]\r 88%| | 8/9 [00:02<00:01]\r  99% of b\nok 5%\r\n",
            "a:\n\r  99% of b\nok 5%\r\n",
        ),
        (json.dumps("a\n 3%\r 4%\nb"), r'"a\n 4%\nb"'),
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
        ("30 minutes, 24 hours, 1,250 ms", "<duration>, <duration>, <duration>"),
        ("Up 9 seconds, 3d4h", "Up <duration>, <duration>"),
        ("9 seconds ago, 2d ago, just now", "<duration>, <duration>, <duration>"),
        ("3 up, about a minute ago; a few seconds ago", "3 up, <duration>; <duration>"),
        ('{"took":5,"executionTime":"1.5s"}', '{"took":<duration>,"executionTime":"<duration>"}'),
        ("{'duration_in_s': 0.2}", "{'duration_in_s': <duration>}"),
        ("totalMs=12 X-Response-Time: 0.2", "totalMs=<duration> X-Response-Time: <duration>"),
        ("WALL_TIME=3 time_total: 0.25", "WALL_TIME=<duration> time_total: <duration>"),
        ("latency p99: 1m 23s, up", "latency p99: <duration>, up"),
        ('"took" => 5', '"took" => <duration>'),
        ("elapsed=PT1M2.5S", "elapsed=<duration>"),
        ("9/10 [00:01<00:00, 9it/s] 05:33<?", "9/10 [<duration>, 9it/s] <duration>"),
        ("Time: 00:00.067, Memory: 6 MB", "Time: <duration>, Memory: 6 MB"),
        ("# duration_ms 94.598820", "# duration_ms <duration>"),
        ("real 0.41\nuser 0.30\nsys 0.05", "real <duration>"),
        ("0.1s system 38% cpu 1.065 total", "<duration> system <duration>"),
        ("mdev = 8.36/9.46/9.81/0.12 ms", "mdev = <duration>"),
        ("(actual time=0.728..0.099 rows=1)", "(actual time=<duration> rows=1)"),
        ("100% 4.24M=0.3s, 12% 1.1M 7s", "100% <duration>, 12% <duration>"),
        (
            '{"retry_after": 0.51} Retry-After: 5',
            '{"retry_after": <duration>} Retry-After: <duration>',
        ),
        ("server-timing: db;dur=42.3", "server-timing: db;dur=<duration>"),
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
        ("backup-20261121232502.tar", "backup-<time>.tar"),
        ("Current time: 10:05, server_time=9:05 PM", "Current time: <time>, server_time=<time>"),
        ("Last updated 11:02 UTC", "Last updated <time>"),
        ("2026-W47-6T23:25:02Z, 2026-325T23:25:02.5Z", "<time>, <time>"),
        ("_logs/2026-11-21T23_25_02_113Z-debug-0.log", "_logs/<time>Z-debug-0.log"),
        ("E1121 23:25:02.113456   18774 memcache.go:265] no", "E<time> memcache.go:265] no"),
    ],
    "hex_ids": [
        ("4bf92f3577b34da6a3ce929d0e0e4736", "<id>"),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-<id>-<id>-01"),
        ("span 00F067AA0BA902B7.", "span <id>."),
        (r"a\nbf92f3577b34da6a3ce9", r"a\n<id>"),
        ("session 4bf92f3577b34da6a3ce929d0e0e4736 failed", "session <id> failed"),
        ("session_4bf92f3577b34da6 job-a3ce929d0e0e47361", "session_<id> job-<id>"),
    ],
    "process_ids": [
        ("worker pid 4711 exited", "worker pid <pid> exited"),
        ('{"pid": 4711}', '{"pid": <pid>}'),
        ("PID=4711, process id: 12", "PID=<pid>, process id: <pid>"),
        ('{"parentPid":4711,"process_id":"12"}', '{"parentPid":<pid>,"process_id":"<pid>"}'),
        ("find: '/proc/1111/task/1111/fd/5'", "find: '/proc/<pid>/task/<pid>/fd/5'"),
        ("23:25:02 host sshd[811]: no", "23:25:02 host sshd[<pid>]: no"),
        ("2026-11-21 23:25:02.113 UTC [4711] ERROR", "2026-11-21 23:25:02.113 UTC [<pid>] ERROR"),
        ("[2026-11-21 23:25:02 +0000] [4711] [INFO]", "[2026-11-21 23:25:02 +0000] [<pid>] [INFO]"),
        ("Started server process [4711]", "Started server process [<pid>]"),
        ("$ sleep 5 &\n[1] 4711\n$", "$ sleep 5 &\n[1] <pid>\n$"),
        ("[1]+  4711 Killed a.sh", "[1]+  <pid> Killed a.sh"),
        ("[2]  - 4711 done  a.sh", "[2]  - <pid> done  a.sh"),
        (json.dumps("$ a &\r\n[1] 4711\r\n$"), r'"$ a &\r\n[1] <pid>\r\n$"'),
        ("a.sh: line 3: 4711 Segmentation fault   b", "a.sh: line 3: <pid> Segmentation fault   b"),
        ("(node:4711) [DEP0040] x", "(node:<pid>) [DEP0040] x"),
        ("==4711== Memcheck\n==4711==ERROR", "==<pid>== Memcheck\n==<pid>==ERROR"),
        ("goroutine 91 [running]:", "goroutine <pid> [running]:"),
        (
            "thread 'a::b' (80361) panicked at a.rs:2:5",
            "thread 'a::b' (<pid>) panicked at a.rs:2:5",
        ),
    ],
    "ports": [
        ("port 40001 is in use, PORT=80", "port <port> is in use, PORT=<port>"),
        ('{"port": 8080, "localPort": "80"}', '{"port": <port>, "localPort": "<port>"}'),
        ("http://localhost:40001/ 127.0.0.1:54321", "http://localhost:<port>/ 127.0.0.1:<port>"),
        ("10.0.0.5:47201->10.0.0.9:443", "10.0.0.5:<port>->10.0.0.9:443"),
    ],
    "counters": [
        ('{"attempt": 3, "retryCount": 2}', '{"attempt": <n>, "retryCount": <n>}'),
        ("Attempt 3 of 5 failed, retry #2", "Attempt <n> failed, retry #<n>"),
        ("gave up after 7 attempts at the 8th try", "gave up after <n> attempts at the <n> try"),
        ("/bin/bash: line 62215: foo: not found", "/bin/bash: line <n>: foo: not found"),
        ("sh: 17: foo: not found", "sh: <n>: foo: not found"),
        ("Cell In[2], line 3 Out[2]", "Cell In[<n>], line 3 Out[<n>]"),
        ("<ipython-input-3-8d1f0a2b3c4d>", "<ipython-input-<n>>"),
        ("ATTEMPT=4", "ATTEMPT=<n>"),
        ("X-RateLimit-Remaining: 57", "X-RateLimit-Remaining: <n>"),
        ("Run options: --seed 7440", "Run options: --seed <n>"),
        ("p: --randomly-seed=106938408", "p: --randomly-seed=<n>"),
        ('{"seed": 42117}', '{"seed": <n>}'),
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
    "version 3.11.7, model gpt-4o, on port 22",
    "error 0x80070005 at 0xFF",
    "commit 4bebca5, chapter deadbeef",
    "call_get_weather_report request_processing_failed run_all_the_tests_again",
    '<span id="main-content">',
    "size 9 us, in the 80s or 1990s, leave after 11:00, 5 m wide",
    "43%, 44 rows, 12 of 15 files, 980 pixels above, a wall 5 steps forward",
    "support: 5, import=3, rapid: 7, tattempt 4, report 40001",
    "start_ms=120, offset_seconds: 3, positionMs: 4",
    "df3b03a223a32744829fe026fa679cbb  a.txt",
    "sha256:4bf92f3577b34da6a3ce929d0e0e4736, commit 4bf92f3577b34da6a3ce929d0e0e4736",
    "crash: line 5: x, run.sh: line 12: y, ./zsh.sh: 3: z",
    "cursor=eyJwIjo0fQ, page_token: abc17, next_id=5, order_id: 7",
    "/home/me/tmp/a/tmp1 and https://a.example/tmp/tmp1 and templates/temp",
    "mac 00:11:22:33:44:55",
    "http://host.example/temp/page1/x",
    "ratio 16:9, chapter 12:34",
    "1234567890123456789012345678901234567890",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "x1763767502 1763767502x",
    "df3b03a223a32744829fe026fa679cbb12345678\trefs/heads/main",
    "hash=4bf92f3577b34da6 sha256_4bf92f3577b34da6 digest: 4bf92f3577b34da6",
    "iban DE89370400440532013000",
    "cursor_8Ch4pDW46sqKsJhkHgShE3zv, page-token-8Ch4pDW46sqKsJhkHgShE3zv",
    "call_parseHTTP2RequestHeadersNow, test_getUserById2WithOrdersAndItems",
    "a.b-8Ch4pDW46sqKsJhkHgShE3zv, file-SGVsbG8gV29ybGQhIQAA==",
    '<a nonce="5">, "hostId": "web-1", x-ratelimit-limit: 60, remaining: 5, seed: 3',
    "a: seed 120 of 500",
    "[1] 1855, [1]+ 12, items[120]: bad, 120 epoch[121] loss, process [3 of 9], [200] x",
    "[1] 1855",
    "> nrow(d)\n[1] 1855",
    "line 3: 12 files, x == 5 == y, goroutine 5 leaked, node:18, (node:a1), room 3: 30 people",
    "real 0.41 estate, user 1.25, 38% cpu, cost=0.00..1.01, 0.1..0.5, 1/2 cups, wind 5 m/s",
    "12%\r\n13%\r\n, E1121 broken, 2026-W47, 5 tokens/s, 0.0.0.0:8080->80/tcp, a\rb 5%",
    "time: 12:30, 2:1 <b",
    "",
]

HOSTILE = {  # what each kind begins to match, again and again
    "uuids": ["_01", "0", "12345678-", "12345678-1234-1234-1234-", "01J9ZQ4T6Y", "0a"],
    "request_ids": [
        "req_",
        "req_a",
        "call_a",
        "msg_a1",
        "request-id: ",
        'traceid""',
        "\\n",
        "etag",
        "W/",
        "_0a",
        "a-8Ch4pDW46sqKsJhkHgShE3zv",
        "-8Ch4pDW46sqKsJhkHgShE3z",
        '<nonce="',
        '<csrf a" value="1a',
    ],
    "addresses": ["0x", " at 0x", " at 0xf"],
    "temporary_paths": [
        *("/", "/tmp/", "/tmp/a", "/tmp/1/", "/var/folders/a/b/", "/tmp/pytest-of-"),
        *(
            "\\",
            "C:\\",
            "C:\\a",
            "C:/a/",
            "\\a",
            "C:\\a\\Temp",
            "tmp",
            "tmp.",
            "tmpaaaaaaa",
            "/tmp/a/",
        ),
    ],
    "durations": [
        *("1", "1.", "1m", "1h1m", "1 m", "1.1 ", "in ", "in:", "took 1", "elapsed_ms", "duration"),
        *(
            "duration ",
            "took: 1.",
            "_ms",
            "took: 1s ",
            "1,111",
            "a few ",
            "1 second ",
            "PT1",
            "took:PT1",
        ),
        *(
            "1/",
            "1.5/1/",
            "1 ms/",
            "% 1M=1s",
            "00:01<",
            "time: 00:00.1",
            "real 0.11\nuser 0.11\nsys ",
        ),
        *("execution ", "execution_time", "Ms", "About a ", "elapsed: 1h2m3s4"),
    ],
    "timestamps": [
        *("1", "1:", "12:34:", "12:34:5", "2026-11-21 ", "20261121T", "21/Nov/2026:", " "),
        *("E1121 23:25:02 ", "E1121 23:25:02 1 a", "2026-W47-6T1:", "1T1:1"),
        *("1763767502.", "Mon, 1 Jan ", "Jan 1, 2026 ", "Sat Nov 21 23:25 "),
    ],
    "hex_ids": ["0", "f", "0f", "0123456789abcdef", "0123456789abcdefg", "sha256:", "md5 = "],
    "process_ids": [
        *(
            "[1] ",
            "&\n[1] 11",
            "[111]",
            "23:25:02 a[111]",
            "23:25:02 [111",
            "==1",
            '1:" (1) panicked at',
        ),
        *("1: 11 Killed", "(node:1"),
        *("pid", "pid ", "pid 1", "process id: ", "/proc/", "/task/1"),
    ],
    "transfer_rates": [
        *(
            "1",
            "1.",
            "1,",
            "1 k",
            "12.5 MB",
            "\r",
            "\r100  1256  100  1256    0     0  29531      0",
        ),
        "\r  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0",
        *("1%\r", "\r", "%\r\n", "\\r1%"),
        *("\r  0", "  0   1", "\r  0     0    0     0    0     0      0      0 --:--:-- "),
    ],
    "ports": ["port", "port ", "port: 1", "1.1.1.1:", "localhost:", "[::"],
    "counters": [
        *("seed ", "seed 1", "1:seed 111", "x-ratelimit-used-"),
        *("attempt", "attempt_a", "attempt: ", "1 of ", "attempt 1 of ", "3rd", "retry-", "sh: "),
        *("sh: line ", "In [", "ipython-input-1-"),
    ],
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
    assert set(DEFAULT_KINDS) == set(KINDS) - {"numbers"}
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
    assert "84 bytes" in normalised
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
        took_short, took_long = (seconds_of(partial(normalise, text)) for text in (short, long))
        if took_long > 30 * max(took_short, 0.002):
            slow.append((unit, took_short, took_long))
    assert not slow


def test_choosing_kinds():
    normalise = Normalise("timestamps", "uuids", "uuids")
    assert normalise.kinds == ("uuids", "timestamps")
    assert repr(normalise) == "Normalise('uuids', 'timestamps', max_length=65536)"


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


def test_a_text_without_noise_is_returned_itself() -> None:
    for text in (b"page 3 of 12", b'{"a":[null,true]}', b""):
        assert VOLATILE.replaced(text) is text


def spellings(name: str) -> list[str]:
    """A key of several words as languages and headers write it."""
    words = name.split()
    titles = [word.title() for word in words]
    return [
        *("_".join(words), "-".join(words), "_".join(words).upper(), "-".join(titles)),
        *(words[0] + "".join(titles[1:]), "".join(titles)),
    ]


SYNTAXES = (
    '{{"id": 7, "{key}": {value}, "error": "no route"}}',
    '{{"{key}":{value}}}',
    '{{"{key}": "{value}"}}',
    r'{{"body":"{{\"{key}\":{value}}}"}}',
    "{{'{key}': {value}}}",
    "Answer({key}={value}, rows=3)",
    "{key}={value} rows=3",
    "rows: 3\n{key}: {value}\n",
    r'"rows: 3\n{key}: {value}\n"',
)
TIMES = ["5", "0.25", "1234567", "1.5e-05"]
KEYS = {
    "took": TIMES,
    "duration": TIMES,
    "duration ms": TIMES,
    "total duration": TIMES,
    "elapsed": TIMES,
    "elapsed time": TIMES,
    "latency": TIMES,
    "db latency p99": TIMES,
    "execution time": TIMES,
    "response time": TIMES,
    "parse ms": TIMES,
    "render seconds": TIMES,
    "pid": ["1", "4711", "62215"],
    "parent pid": ["1", "4711"],
    "process id": ["1", "4711"],
    "port": ["80", "8080", "40001"],
    "local port": ["80", "40001"],
    "attempt": ["1", "2", "17"],
    "attempt number": ["1", "2", "17"],
    "retry count": ["1", "2", "17"],
    "request id": ["7", "a1b2", "req-17/x", "4f5e"],
    "trace id": ["7", "a1b2"],
    "completion id": ["7", "cmpl-x"],
    "x request id": ["7", "a1b2"],
    "etag": ["a1", "33a64df551425fcc"],
}
MEANT = ("id", "page", "cursor", "next token", "rows", "progress", "status", "order id", "count")


@pytest.mark.parametrize("name", KEYS)
def test_values_of_noisy_keys_are_left_out_in_any_spelling(name: str) -> None:
    different = []
    for key in spellings(name):
        for syntax in SYNTAXES:
            texts = [syntax.format(key=key, value=value) for value in KEYS[name]]
            if len({content_digest(text, VOLATILE) for text in texts}) > 1:
                different.append(texts[:2])
            meant = [text.replace("no route", "timeout").replace("3", "4") for text in texts[:1]]
            if meant[0] != texts[0]:
                assert content_digest(meant[0], VOLATILE) != content_digest(texts[0], VOLATILE)
    assert not different


@pytest.mark.parametrize("name", MEANT)
def test_values_of_other_keys_stay_in_any_spelling(name: str) -> None:
    for key in spellings(name):
        for syntax in SYNTAXES:
            one, other = (syntax.format(key=key, value=value) for value in ("43", "44"))
            assert content_digest(one, VOLATILE) != content_digest(other, VOLATILE)


letters = st.text(string.ascii_letters, min_size=1, max_size=9)
hexadecimal = st.text("0123456789abcdef", min_size=16, max_size=40).filter(
    lambda text: not text.isdigit() and not text.isalpha() and len(text) != 40  # a commit
)
FORMS = {
    "an ISO time": st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(datetime.isoformat),
    "a clock": st.times().map(lambda at: at.strftime("%H:%M:%S")),
    "an e-mail's date": st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(
        lambda at: at.strftime("%a, %d %b %Y %H:%M:%S GMT")
    ),
    "seconds since 1970": st.integers(1_700_000_000, 1_900_000_000).map(str),
    "milliseconds since 1970": st.integers(1_700_000_000_000, 1_900_000_000_000).map(str),
    "a UUID": st.uuids().map(str),
    "a UUID that begins with letters": st.tuples(
        st.text("abcdef", min_size=8, max_size=8), st.uuids()
    ).map(lambda parts: parts[0] + str(parts[1])[8:]),
    "a ULID": st.text("0123456789ABCDEFGHJKMNPQRSTVWXYZ", min_size=24, max_size=24)
    .filter(lambda text: not text.isdigit())
    .map(lambda text: "01" + text),
    "hex of 16 or more": hexadecimal,
    "hex of 16 with its only digit late": st.text("abcdef", min_size=9, max_size=14).map(
        lambda letters: f"{letters}7".ljust(16, "e")
    ),
    "a name of tempfile": st.text(
        string.ascii_lowercase + string.digits + "_", min_size=8, max_size=8
    ).map(lambda name: f"/tmp/tmp{name}/a"),
    "a name of mktemp": st.text(string.ascii_letters + string.digits, min_size=10, max_size=10).map(
        lambda name: f"/tmp/tmp.{name}"
    ),
    "a number with a unit": st.tuples(
        st.integers(0, 99_999), st.sampled_from(["ms", " ms", " seconds", " min", ".5s", " hours"])
    ).map(lambda parts: "".join(map(str, parts))),
    "a duration of seconds": st.integers(10**15, 10**16).map(
        lambda took: f"elapsed: 0.0001{took}7"
    ),
    "a time in a name": st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)).map(
        lambda at: at.strftime("shots/screen_%Y%m%d_%H%M%S.png")
    ),
    "an age in words": st.sampled_from(
        ["just now", "a minute ago", "an hour ago", "about a day ago", "a few seconds ago"]
    ),
    "an age": st.tuples(st.integers(2, 59), st.sampled_from(["seconds", "minutes", "hours"])).map(
        lambda parts: f"{parts[0]} {parts[1]} ago"
    ),
    "a port": st.integers(1024, 65535).map(lambda port: f"port {port}"),
    "a port of a host": st.integers(32768, 60999).map(lambda port: f"http://localhost:{port}/x"),
    "a process": st.integers(1, 4_194_304).map(lambda pid: f"/proc/{pid}/fd/5"),
    "a line of a shell": st.integers(1, 99_999).map(lambda line: f"/bin/bash: line {line}: x"),
    "a cell": st.integers(1, 999).map(lambda cell: f"Cell In[{cell}], line 1"),
    "an attempt": st.tuples(st.integers(1, 99), st.sampled_from(["", "/99", " of 99"])).map(
        lambda parts: f"attempt {parts[0]}{parts[1]}"
    ),
    "a rate": st.floats(0.1, 999).map(lambda rate: f"{rate:.1f} MB/s"),
}


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
def test_forms_of_noise_are_left_out(form: str, data: st.DataObject) -> None:
    one, other = data.draw(FORMS[form]), data.draw(FORMS[form])
    around = data.draw(
        st.sampled_from(["{}", "it is ({}).", '{{"at":"{}"}}', r'"a\n{}\nb"', "a {}, b"])
    )
    left, right = around.format(one), around.format(other)
    assert content_digest(left, VOLATILE) == content_digest(right, VOLATILE)
    word, another = data.draw(letters), data.draw(letters)
    if word != another:
        texts = (f"{word}! {left}", f"{another}! {left}")
        assert len({content_digest(text, VOLATILE) for text in texts}) == 2


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
        ("sha256:df3b03a223a32744829fe026fa679cbb", "sha256:909665ab1e8bb4ddfa3f64bb5383af55"),
        ("building: 43%", "building: 44%"),
        ('{"rows":120,"took":5}', '{"rows":121,"took":5}'),
        ("980 pixels above", "970 pixels above"),
        ("a wall 5 steps forward", "a wall 4 steps forward"),
        ("cannot open /tmp/part_1.csv", "cannot open /tmp/part_2.csv"),
        ("start_ms=100", "start_ms=200"),
        ("open ports: 22", "open ports: 80"),
        ("File a.py, line 17", "File a.py, line 18"),
        (f"{7:040x}", f"{8:040x}"),
        ("[1] 1855", "[1] 1866"),
        ("\r 43%\r 44%", "\r 43%\r 45%"),
        ("a\r10% x\r20% y\nend", "a\r10% x\r20% y\nother"),
        ("9/10 [00:01<00:00, 9.1it/s]", "8/10 [00:01<00:00, 9.1it/s]"),
        ("120 req/s", "130 req/s"),
    ],
)
def test_results_that_mean_something_else_stay_different(left: str, right: str) -> None:
    assert content_digest(left, VOLATILE) != content_digest(right, VOLATILE)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("2024-05-01T10:00:00", "2024-05-01T11:00:00"),
        ("123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174001"),
        ("run_0123456789abcdef", "run_0123456789abcdee"),
        ("0x7f3c2a1b4d30", "0x7f3c2a1b4d38"),
        ("kill pid 4711", "kill pid 4712"),
        ("sleep 5ms", "sleep 9ms"),
        ("gh run view --attempt 3", "gh run view --attempt 4"),
        ("nc -z host port 8001", "nc -z host port 8002"),
        ("git show 4bf92f3577b34da6a3ce929d0e0e4736", "git show 4bf92f3577b34da6a3ce929d0e0e4737"),
        ("grep request_id=a1 log", "grep request_id=b2 log"),
        ('{"seek_ms": 5}', '{"seek_ms": 6}'),
        ('{"duration": 5, "x": 1}', '{"duration": 6, "x": 1}'),
    ],
)
def test_arguments_that_choose_something_else_stay_different(left: str, right: str) -> None:
    digests = {call_digest(Call("use", one), VOLATILE.arguments) for one in (left, right)}
    assert len(digests) == 2
    if "seek" not in left:
        assert content_digest(left, VOLATILE) == content_digest(right, VOLATILE)


CHOSEN: dict[str, Callable[[int], object]] = {
    "a date": lambda n: {"date": str(date(2026, 1, 1) + timedelta(n)), "from": "JFK"},
    "a time": lambda n: {"after": f"2026-01-01T{n % 24:02}:{n:02}:00Z"},
    "a time since 1970": lambda n: {"metric": "cpu", "ts": 1_763_767_502 + 3600 * n},
    "a page": lambda n: {"q": "cats", "page": n},
    "a cursor": lambda n: {"q": "cats", "cursor": f"eyJwIjo{n}fQ"},
    "a UUID": lambda n: {"order": str(uuid.UUID(int=n, version=4))},
    "a request of people": lambda n: {"request_id": f"REQ-{1000 + n}", "decision": "approve"},
    "a request that is asked for": lambda n: {"request_id": str(uuid.UUID(int=n, version=4))},
    "a port": lambda n: {"host": "a.example", "port": 8000 + n},
    "a process": lambda n: {"pid": 4000 + n, "signal": 9},
    "a commit": lambda n: f"git show {n:040x}",
    "a trace": lambda n: {"service": "api", "trace_id": f"{n:032x}"},
    "a duration": lambda n: {"timeout_ms": 1000 * n},
    "a part of a temporary folder": lambda n: {"path": f"/tmp/part_{n}.csv"},
    "a numbered temporary file": lambda n: {"path": f"/tmp/tmp_file_{n:02}"},
    "a quarter": lambda n: {"path": f"/tmp/report-{2000 + n // 4}Q{n % 4 + 1}.csv"},
    "a day's file": lambda n: f"cat /tmp/run-{20260101 + n}",
    "an attempt that is read": lambda n: {"attempt": n},
    "a line": lambda n: {"path": "a.py", "line": n},
    "text that quotes keys": lambda n: {"text": f'{{"attempt": {n}}}'},
}


@pytest.mark.parametrize("what", CHOSEN)
def test_forty_arguments_that_an_agent_chose_are_forty_actions(what: str) -> None:
    calls = [Call("use", CHOSEN[what](n)) for n in range(40)]
    assert len({call_digest(call, VOLATILE.arguments) for call in calls}) == 40


NOT_CHOSEN: dict[str, Callable[[random.Random], object]] = {
    "a counter of attempts": lambda draw: {"q": "cats", "attempt": draw.randrange(99)},
    "a counter of retries": lambda draw: {"q": "cats", "retryCount": draw.randrange(99)},
    "a key of idempotency": lambda draw: {
        "to": "a",
        "headers": {"Idempotency-Key": f"k{draw.random()}"},
    },
    "an id of the request": lambda draw: {
        "q": "cats",
        "requestId": str(uuid.UUID(int=draw.getrandbits(128), version=4)),
    },
    "an id of the call": lambda draw: {"q": "cats", "tool_call_id": f"call_{draw.random()}"},
    "an entity tag": lambda draw: {"url": "a", "If-None-Match": f"{draw.getrandbits(64):x}"},
    "when it was sent": lambda draw: {"q": "cats", "SENT_AT": draw.random()},
    "arguments as JSON": lambda draw: f'{{"q": "cats", "attempt": {draw.randrange(99)}}}',
    "a name of mktemp": lambda draw: (
        f"python /tmp/tmp.{''.join(draw.choices('bcdfghBCDFGH', k=5))}1aB2c/a.py"
    ),
    "a name of tempfile": lambda draw: {
        "path": f"/tmp/tmp{''.join(draw.choices('bcdfghjkm', k=3))}4{'x_9q'}/a.py"
    },
    "a name of Go": lambda draw: f"ls /tmp/go-build{draw.randrange(10**9, 4 * 10**9)}/b001",
}


@pytest.mark.parametrize("what", NOT_CHOSEN)
def test_arguments_that_no_agent_chose_are_left_out(what: str) -> None:
    draw = random.Random(7)
    calls = [Call("use", NOT_CHOSEN[what](draw)) for _ in range(40)]
    assert len({call_digest(call) for call in calls}) > 1
    assert len({call_digest(call, VOLATILE.arguments) for call in calls}) == 1


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
    for part in ("0:00", "2024-05-01 ", "1h", "a1", "0x", "_ms", "request-id:", "0 ", "abcdefa1-"):
        began = time.process_time()
        content_digest(part * (1_000_000 // len(part)), VOLATILE)
        assert time.process_time() - began < 0.5
