"""``tidegauge serve --kafka``: what was sent is in the topic, once, under the id of its trace."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import KafkaError

from support.framework_spans import read
from support.log_events import LOOP, STEPS, TRACE, logs_request, records, spans, spans_request
from support.processes import PATIENCE
from support.serve import serving
from support.span_orders import arriving
from support.wire_runs import TASK_GROUP, WireRun, request
from tidegauge import catalog, testing
from tidegauge.fleet.fleet_messages import decode_spans
from tidegauge.fleet.gateway import Gateway, GatewaySettings
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import decode_protobuf
from tidegauge.recordings import ContentEncoder

pytestmark = pytest.mark.system

QUEUED = catalog.GATEWAY_QUEUED_MESSAGES.name
SENT = catalog.GATEWAY_MESSAGES.name
FAILED = catalog.GATEWAY_FAILED_MESSAGES.name
DIGESTS = ContentEncoder(bytes.hex, plain=False)


@pytest.fixture
def topic(kafka, topic):
    return kafka.create(topic)


def gateway(tmp_path, kafka, topic, *flags):
    return serving(tmp_path, "--kafka", kafka.address, "--topic", topic, *flags)


def spans_in(messages) -> Counter[tuple[str, str]]:
    """How often each span is there, by trace and id, all under the right key."""
    found: Counter[tuple[str, str]] = Counter()
    for message in messages:
        data = json.loads(message.value())
        assert message.key().decode() == data["run"]
        found.update((data["run"], span["id"]) for span in data["spans"])
    return found


def spans_of(runs) -> Counter[tuple[str, str]]:
    return Counter((run.trace_id.hex(), span.span_id.hex()) for run in runs for span in run.spans)


def test_two_gateways_every_span_once_and_no_content(tmp_path, kafka, topic) -> None:
    runs = [WireRun(number) for number in range(20)]
    one, two = (gateway(tmp_path, kafka, topic) for _ in range(2))
    with one as first, two as second:
        for run in runs:
            assert first.send_grpc([request(run.spans[::2])]) == 0
            second.send([request(run.spans[1::2])])
        messages = kafka.read(topic, until=2 * len(runs))
        assert spans_in(messages) == spans_of(runs)
        assert first.wait_for(SENT, lambda sent: sent == len(runs))
        assert second.value(FAILED) == 0
        assert b"<html" not in second.get("/").body  # there is nothing to be seen
    everything = b"".join(message.value() for message in messages)
    words = {word for run in runs for turn in run.turns for word in (turn.argument, turn.outcome)}
    for word in words | {run.task for run in runs} - {"task 1"}:
        assert json.dumps(word).encode()[:-1] not in everything, word
    assert b'"name":"look"' in everything
    assert TASK_GROUP.encode() in everything


def test_the_runs_are_the_same_as_if_they_were_measured_here(tmp_path, kafka, topic) -> None:
    runs = [WireRun(number) for number in range(20)]
    with gateway(tmp_path, kafka, topic, "--kafka-contents", "on") as server:
        for run in runs:
            server.send_grpc([request(run.spans)])
        messages = kafka.read(topic, until=len(runs))
    assert b"seen 0" in b"".join(message.value() for message in messages)
    sent = [decode_protobuf(request(run.spans).SerializeToString()).spans for run in runs]
    read = [decode_spans(json.loads(message.value())) for message in messages]
    (here, _), (there, _) = arriving(sent), arriving(read)
    assert len(here) == len(runs)
    assert sorted(there, key=repr) == sorted(here, key=repr)


def test_contents_in_log_records_may_reach_another_gateway(tmp_path, kafka, topic) -> None:
    one, two = (gateway(tmp_path, kafka, topic) for _ in range(2))
    with one as first, two as second:
        body = logs_request(records()).SerializeToString()
        url = second.traces_url.replace("traces", "logs")
        assert second.post(body, url=url).status == 200
        first.send([spans_request(spans())])
        messages = kafka.read(topic, until=2)
    assert {message.key().decode() for message in messages} == {f"{TRACE:032x}"}
    assert b"nothing found" not in b"".join(message.value() for message in messages)
    arrived = [decode_spans(json.loads(message.value())) for message in messages]
    for order in (arrived, arrived[::-1]):
        [run] = read([(0.0, batch) for batch in order])
        assert (run.agent, run.steps, run.loop) == ("finder", STEPS, LOOP)


def test_digests_are_keyed_where_a_key_is_given(tmp_path, kafka, topic) -> None:
    run, flags = WireRun(3), []
    for name in ("one", "other"):
        (tmp_path / name).write_text(f"the {name} secret of all gateways\n")
        flags.append(("--kafka-digest-key-file", str(tmp_path / name)))
    first, second = (gateway(tmp_path, kafka, topic, *each) for each in flags)
    with first as one, second as two:
        one.send([request(run.spans)])
        one.send([request(run.spans)])
        kafka.read(topic, until=2)
        two.send([request(run.spans)])
        messages = [message.value() for message in kafka.read(topic, until=3)]
    assert messages[0] == messages[1] != messages[2]
    guessed = DIGESTS.content(run.task).encode()
    assert not [message for message in messages if guessed in message]
    assert len(messages[0]) == len(messages[2])


def test_a_frozen_broker_loses_nothing_and_senders_are_asked_to_wait(
    tmp_path, kafka, topic
) -> None:
    runs = [WireRun(number) for number in range(60)]
    with gateway(tmp_path, kafka, topic, "--kafka-queue-bytes", "20000") as server:
        server.send([request(runs[0].spans)])
        server.wait_for(SENT, lambda sent: sent == 1)
        kafka.pause()
        try:
            taken = [runs[0]]
            for run in runs[1:]:
                answer = server.post(request(run.spans).SerializeToString())
                if answer.status == 503:
                    break
                assert answer.status == 200
                taken.append(run)
            else:
                pytest.fail("the queue is bounded, and never was full")
            assert server.value(QUEUED) == len(taken) - 1 > 0
            assert server.value(catalog.SPANS_REFUSED.name, reason="busy") == len(run.spans)
            assert server.get("/readyz").status == 200
        finally:
            kafka.resume()
        server.send([request(run.spans)])  # waits for room, and is taken
        taken.append(run)
        server.wait_for(SENT, lambda sent: sent == len(taken))
        assert server.value(QUEUED) == 0
    assert spans_in(kafka.read(topic, until=len(taken))) == spans_of(taken)


def test_what_waits_is_delivered_before_the_end(tmp_path, kafka, topic) -> None:
    runs = [WireRun(number) for number in range(10)]
    with gateway(tmp_path, kafka, topic, "--shutdown-seconds", "20") as server:
        kafka.pause()
        try:
            server.send([request(run.spans) for run in runs])
            assert server.value(QUEUED) == len(runs)
            server.process.terminate()
        finally:
            threading.Timer(0.5, kafka.resume).start()
        assert server.process.wait(30) == 0
        log = server.log.read_text()
    assert spans_in(kafka.read(topic, until=len(runs))) == spans_of(runs)
    assert "could" not in log


def test_what_cannot_be_delivered_before_the_end_is_reported_in_a_line(
    tmp_path, kafka, topic
) -> None:
    run = WireRun(1)
    with gateway(tmp_path, kafka, topic, "--shutdown-seconds", "0.5") as server:
        kafka.pause()
        try:
            server.send([request(run.spans)])
            server.process.terminate()
            assert server.process.wait(30) == 0
        finally:
            kafka.resume()
        log = server.log.read_text()
    assert f"1 messages with {len(run.spans)} spans were not delivered in time" in log
    assert "Traceback" not in log


def test_a_span_too_large_for_a_message_goes_with_digests_and_the_rest_in_parts(
    kafka, topic
) -> None:
    with testing.raise_internal_errors():
        encoder = ContentEncoder(bytes.hex, plain=True)
        one = Gateway(
            GatewaySettings(
                brokers=kafka.address,
                topic=topic,
                encoder=encoder,
                digests=DIGESTS,
                config={"message.max.bytes": 2_000},
            )
        )
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
        large = {**attributes, "gen_ai.tool.call.result": "much " * 1_000}
        spans = [SpanData(7, n, None, "look", "any", attributes, 0, n) for n in range(1, 40)]
        spans.append(SpanData(7, 40, None, "look", "any", large, 0, 40))
        spans.append(SpanData(7, 41, None, "n" * 5_000, "any", large, 0, 41))
        assert one.offer(spans)
        assert one.close(20.0) == []
        assert one.failed == {"too_large": 1}
    messages = kafka.read(topic)
    assert len(messages) > 1
    assert max(len(message.value()) for message in messages) <= 2_000
    assert sum(spans_in(messages).values()) == 40
    assert (one.spans, one.failed_spans) == (40, 1)
    assert b"much" not in b"".join(message.value() for message in messages)
    assert one.offer(spans) is False  # it is closed


def test_a_limit_of_the_user_s_and_a_producer_that_cannot_go_on(kafka, topic) -> None:
    one = Gateway(
        GatewaySettings(
            brokers=kafka.address,
            topic=topic,
            encoder=DIGESTS,
            digests=DIGESTS,
            config={"message.timeout.ms": 300},
        )
    )
    span = SpanData(7, 1, None, "look", "any", {}, 0, 1)
    kafka.pause()
    try:
        assert one.offer([span, span._replace(trace_id=8)])
        until = time.monotonic() + PATIENCE
        while one.waiting:
            assert time.monotonic() < until
            time.sleep(0.05)
    finally:
        kafka.resume()
    assert one.failed == {"timed_out": 2}
    assert one.metrics()[catalog.GATEWAY_FAILED_MESSAGES]["timed_out",] == 2
    assert one.alive
    one._errors.record(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced", fatal=True))
    assert not one.alive
    assert one.offer([span]) is False
    assert one.close(PATIENCE) == []


def start(*flags: str) -> subprocess.CompletedProcess[str]:
    """``tidegauge serve`` that is not to start."""
    ports = [f"--{name}-port=0" for name in ("grpc", "http", "metrics")]
    code = "from tidegauge.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "serve", *ports, *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_topic_that_is_not_there_is_not_created(kafka) -> None:
    ended = start("--kafka", kafka.address, "--topic", "nowhere")
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert "topic 'nowhere' does not exist" in line
    assert "--create --topic nowhere" in line
    again = start("--kafka", kafka.address, "--topic", "nowhere")
    assert again.returncode == 2


def test_brokers_that_cannot_be_reached_are_reported_in_a_line() -> None:
    ended = start("--kafka", "127.0.0.1:1", "--topic", "agents")
    assert ended.returncode == 1
    [line] = ended.stderr.splitlines()
    assert line.startswith("tidegauge: the brokers at 127.0.0.1:1 cannot be reached: ")


def test_refused_credentials_are_reported_in_a_line_without_them(tmp_path, kafka, topic) -> None:
    config = tmp_path / "kafka.toml"
    config.write_text(
        'security.protocol = "SASL_PLAINTEXT"\nsasl.mechanisms = "PLAIN"\n'
        'sasl.username = "somebody"\nsasl.password = "hidden-word"\n'
    )
    ended = start("--kafka", kafka.address, "--topic", topic, "--kafka-config", str(config))
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert "SASL" in line
    assert "hidden-word" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--kafka", "b:9092"), "kafka needs a topic; set topic, too"),
        (("--topic", "t"), "topic has no effect without kafka; set kafka, too"),
        (
            ("--kafka", "b:9092", "--topic", "t", "--policy", "steps=3"),
            "policy cannot be combined with",
        ),
        (("--kafka", "b:9092", "--topic", "t", "--record-to", "f"), "record_to cannot be combined"),
    ],
)
def test_settings_that_do_not_go_together(flags, message) -> None:
    ended = start(*flags)
    assert ended.returncode == 2
    [line] = ended.stderr.splitlines()
    assert message in line
