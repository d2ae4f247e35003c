"""``tidegauge decisions``: serves the decisions of a fleet to agents, scripts and people."""

from __future__ import annotations

import queue
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from tidegauge.cli.decisions_settings import SETTINGS
from tidegauge.cli.exposure import host_names, tls_files, warn_if_exposed
from tidegauge.cli.secret import read_token
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.fleet.decision_board import DecisionBoard
    from tidegauge.fleet.decision_record import DecisionRecord
    from tidegauge.fleet.decisions_reader import DecisionsReader
    from tidegauge.fleet.decisions_server import DecisionsServer

__all__ = ["decisions"]

_TOKEN: Final = "TIDEGAUGE_DECISIONS_TOKEN"  # noqa: S105 -- the name of a variable
_LOOK_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 10.0
"""Without a record for this long, ``--run`` reports that the topic cannot be read."""


@click.command(context_settings={"max_content_width": 100})
@click.option("--follow", is_flag=True, help="Serve nothing: print decisions as they come.")
@click.option("--run", "run_id", metavar="ID", help="Print what holds for this run, and exit.")
@SETTINGS.options
def decisions(*, follow: bool, run_id: str | None, config: str | None, **flags: str | None) -> None:
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
                                            a JSON line for what holds of each open run,
                                            then one for every change
      tidegauge decisions --kafka broker:9092 --topic agents --run r1
                                            what holds for one run now

    A setting is taken from its flag, else from the variable TIDEGAUGE_DECISIONS_ and its name
    (TIDEGAUGE_DECISIONS_PORT), else from the file. The bearer token may also be in
    TIDEGAUGE_DECISIONS_TOKEN.

    SIGTERM and Ctrl-C: answer the waiting requests, exit code 0. Exit code 1: cannot listen on the
    port, read a file, or (--run) reach a broker; 2: wrong usage.
    """
    if follow and run_id is not None:
        raise click.UsageError("--follow and --run don't go together")
    values = SETTINGS.read(flags, config)
    if values["kafka"] is None or values["topic"] is None:
        raise ConfigurationError("say where the decisions are: --kafka HOST:PORT --topic TOPIC")
    stop = threading.Event()
    if run_id is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    board = _board(values)
    if follow:
        _follow(board, values, stop)
    elif run_id is not None:
        _print_one(board, values, run_id)
    else:
        _serve(board, values, stop)


def _serve(board: DecisionBoard, values: dict[str, Any], stop: threading.Event) -> None:
    token = read_token(values["token_file"], _TOKEN)
    reader = _reader(board, values)
    try:
        server = _server(board, values, reader, token)
        try:
            click.echo(f"decisions: {server.url}/v1/decisions/RUN")
            click.echo(f"metrics: {server.url}/metrics")
            if token is None and values["tls_client_ca"] is None:
                warn_if_exposed(
                    values["host"],
                    "read what is decided of any run",
                    "set token_file and TLS, or tls_client_ca, or restrict who reaches the port",
                )
            while not (stop.is_set() or reader.wait_until_caught_up(_LOOK_SECONDS)):
                pass
            if reader.caught_up:
                click.echo(f"ready: {reader.records} records read, {board.counts.known} runs known")
            stop.wait()
        finally:
            server.stop()
    finally:
        reader.stop()


def _follow(board: DecisionBoard, values: dict[str, Any], stop: threading.Event) -> None:
    changes: queue.SimpleQueue[DecisionRecord] = queue.SimpleQueue()
    reader = _reader(board, values)
    try:
        while not (stop.is_set() or reader.wait_until_caught_up(_LOOK_SECONDS)):
            pass
        for record in board.follow(changes.put):
            click.echo(record.encoded())
        while not stop.is_set():
            try:
                click.echo(changes.get(timeout=_LOOK_SECONDS).encoded())
            except queue.Empty:
                continue
    finally:
        reader.stop()


def _print_one(board: DecisionBoard, values: dict[str, Any], run_id: str) -> None:
    reader = _reader(board, values)
    try:
        before = -1
        while not reader.caught_up:
            if reader.records == before:
                raise OSError(f"{values['topic']}.decisions cannot be read at {values['kafka']}")
            before = reader.records
            reader.wait_until_caught_up(_PATIENCE_SECONDS)
        click.echo(orjson.dumps(board.answer([run_id])[run_id]))
    finally:
        reader.stop()


def _board(values: dict[str, Any]) -> DecisionBoard:
    from tidegauge.fleet.decision_board import DecisionBoard
    from tidegauge.fleet.decision_table import DecisionTable

    return DecisionBoard(
        DecisionTable(max_runs=values["max_runs"], ended_seconds=values["ended_seconds"])
    )


def _reader(board: DecisionBoard, values: dict[str, Any]) -> DecisionsReader:
    from tidegauge.cli.kafka_config import read_kafka_config
    from tidegauge.fleet.decisions_reader import DecisionsReader

    path = values["kafka_config"]
    config = None if path is None else read_kafka_config(path)
    return DecisionsReader(board, values["kafka"], f"{values['topic']}.decisions", config)


def _server(
    board: DecisionBoard, values: dict[str, Any], reader: DecisionsReader, token: str | None
) -> DecisionsServer:
    from tidegauge.fleet.decisions_server import DecisionsServer
    from tidegauge.instrumentation.otlp.listening import Listening

    if values["port"] is None:
        raise ConfigurationError("port cannot be off: agents need it")
    return DecisionsServer(
        board,
        Listening(
            values["host"],
            values["port"],
            max_connections=values["max_connections"],
            allowed_hosts=host_names(values["allowed_hosts"]),
        ),
        ready=lambda: reader.caught_up,
        token=token,
        tls=tls_files(values),
    )
