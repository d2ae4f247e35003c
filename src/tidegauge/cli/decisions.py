"""``tidegauge decisions``: serves the decisions of a fleet to agents, scripts and people."""

from __future__ import annotations

import queue
import threading
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Final

import click
import orjson

from tidegauge.cli.command_settings import (
    COUNT,
    FILE,
    PORT,
    SECONDS,
    TEXT,
    setting,
    settings_options,
)
from tidegauge.cli.server_settings import ServerSettings, read_token, set_on_signal
from tidegauge.cli.terminal import print_json, print_line

if TYPE_CHECKING:
    from tidegauge.fleet.decision_cache import DecisionCache
    from tidegauge.fleet.decisions_reader import DecisionsReader
    from tidegauge.fleet.decisions_server import DecisionsServer
    from tidegauge.fleet.kafka_records import DecisionRecord

_TOKEN: Final = "TIDEGAUGE_DECISIONS_TOKEN"  # noqa: S105 -- the name of a variable
_POLL_SECONDS: Final = 0.2
_READ_TIMEOUT: Final = 10.0
"""Without a record for this long, ``--run`` reports that the topic cannot be read."""


@dataclass(frozen=True, kw_only=True)
class DecisionsSettings(ServerSettings):
    """Settings of ``tidegauge decisions``."""

    kafka: str = setting(TEXT, MISSING, "Brokers: HOST:PORT, separated by commas.")
    topic: str = setting(
        TEXT, MISSING, "The topic of the fleet; decisions are read from TOPIC.decisions."
    )
    port: int = setting(PORT, 9465, "/v1/decisions, /metrics, /healthz and /readyz.")
    token_file: str | None = setting(FILE, None, "Agents must send the bearer token in this file.")
    max_connections: int = setting(
        COUNT, 1_000, "Limit of connections; each waiting agent has one."
    )
    max_runs: int = setting(COUNT, 100_000, "Runs remembered; beyond this the oldest are evicted.")
    ended_seconds: float = setting(SECONDS, 3_600.0, "How long to remember that a run has ended.")


@click.command()
@click.option("--follow", is_flag=True, help="Print decisions as they come; start no server.")
@click.option("--run", "run_id", metavar="ID", help="Print the decision for this run, and exit.")
@settings_options(DecisionsSettings, "TIDEGAUGE_DECISIONS")
def decisions(settings: DecisionsSettings, *, follow: bool, run_id: str | None) -> None:
    """Serve the decisions of a fleet's workers to agents: above all, which runs must stop.

    Reads the decisions that tidegauge worker writes (to the topic's .decisions), and answers GET
    /v1/decisions/RUN: what holds for that run, or for all runs of that trace. Agents use
    tidegauge.fleet.DecisionClient, or any HTTP client. Any number of these processes may run side
    by side: each reads everything.

    \b
    Examples:
      tidegauge decisions --kafka broker:9092 --topic agents
      curl http://127.0.0.1:9465/v1/decisions/4bf92f3577b34da6a3ce929d0e0e4736
      tidegauge decisions --kafka broker:9092 --topic agents --follow
                                            a JSON line for each open run,
                                            then one for every change
      tidegauge decisions --kafka broker:9092 --topic agents --run r1
                                            the decision on one run

    A setting is taken from its flag, else from the variable TIDEGAUGE_DECISIONS_ and its name
    (TIDEGAUGE_DECISIONS_PORT), else from the file. The bearer token may also be in
    TIDEGAUGE_DECISIONS_TOKEN.

    SIGTERM and Ctrl-C: answer the waiting requests, exit code 0. Exit code 1: cannot listen on the
    port, read a file, or (--run) reach a broker; 2: wrong usage.
    """
    if follow and run_id is not None:
        raise click.UsageError("--follow and --run cannot be combined; use one of them")
    if run_id is not None:
        _print_one(_cache(settings), settings, run_id)
        return
    stop = set_on_signal()
    if follow:
        _follow(_cache(settings), settings, stop)
    else:
        _serve(_cache(settings), settings, stop)


def _serve(cache: DecisionCache, settings: DecisionsSettings, stop: threading.Event) -> None:
    token = read_token(settings.token_file, _TOKEN)
    reader = _reader(cache, settings)
    try:
        server = _server(cache, settings, reader, token)
        server.start()
        try:
            print_line(f"decisions: {server.url}/v1/decisions/RUN")
            print_line(f"metrics: {server.url}/metrics")
            if token is None:
                settings.warn_if_exposed(
                    "read the decisions for any run",
                    "set token_file and TLS, or tls_client_ca, or restrict who reaches the port",
                )
            while not (stop.is_set() or reader.wait_until_caught_up(_POLL_SECONDS)):
                pass
            if reader.caught_up:
                print_line(f"ready: {reader.records} records read, {cache.counts.known} runs known")
            stop.wait()
        finally:
            server.stop()
    finally:
        reader.stop()


def _follow(cache: DecisionCache, settings: DecisionsSettings, stop: threading.Event) -> None:
    changes: queue.SimpleQueue[DecisionRecord] = queue.SimpleQueue()
    reader = _reader(cache, settings)
    try:
        while not (stop.is_set() or reader.wait_until_caught_up(_POLL_SECONDS)):
            pass
        for record in cache.follow(changes.put):
            print_json(record.encoded() + b"\n")
        while not stop.is_set():
            try:
                print_json(changes.get(timeout=_POLL_SECONDS).encoded() + b"\n")
            except queue.Empty:
                continue
    finally:
        reader.stop()


def _print_one(cache: DecisionCache, settings: DecisionsSettings, run_id: str) -> None:
    reader = _reader(cache, settings)
    try:
        before = -1
        while not reader.caught_up:
            if reader.records == before:
                raise OSError(
                    f"cannot read the topic {settings.topic}.decisions from {settings.kafka}; "
                    "check that the brokers can be reached and that a worker writes decisions"
                )
            before = reader.records
            reader.wait_until_caught_up(_READ_TIMEOUT)
        print_json(orjson.dumps(cache.answer([run_id])[run_id], option=orjson.OPT_APPEND_NEWLINE))
    finally:
        reader.stop()


def _cache(settings: DecisionsSettings) -> DecisionCache:
    from tidegauge.fleet.decision_cache import DecisionCache, DecisionTable

    return DecisionCache(
        DecisionTable(max_runs=settings.max_runs, ended_seconds=settings.ended_seconds)
    )


def _reader(cache: DecisionCache, settings: DecisionsSettings) -> DecisionsReader:
    from tidegauge.fleet.decisions_reader import DecisionsReader

    return DecisionsReader(
        cache, settings.kafka, f"{settings.topic}.decisions", settings.kafka_properties()
    )


def _server(
    cache: DecisionCache, settings: DecisionsSettings, reader: DecisionsReader, token: str | None
) -> DecisionsServer:
    from tidegauge.fleet.decisions_server import DecisionsServer
    from tidegauge.net.listener import Listener

    return DecisionsServer(
        cache,
        Listener(
            settings.host,
            settings.port,
            max_connections=settings.max_connections,
            allowed_hosts=settings.host_names,
        ),
        ready=lambda: reader.caught_up,
        token=token,
        tls=settings.tls,
    )
