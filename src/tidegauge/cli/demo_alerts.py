"""The alerts of the demo, from Prometheus and Alertmanager if they are installed."""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from rich.text import Text

from tidegauge.cli.terminal import visible
from tidegauge.dashboards import rule_files

_LOOP_ONSET: Final = "TidegaugeLoopOnset"
_INTERVAL: Final = "1s"  # of scrapes and evaluations
_CHECK_SECONDS: Final = 0.2
_HOST: Final = "127.0.0.1"
_TIMEOUT_SECONDS: Final = 5.0
_MAX_BODY: Final = 1_000_000
_POLL_SECONDS: Final = 0.05
_ALERTS_PAGES: Final = ("/alerts", "/classic/alerts")


class Alerts:
    """Prometheus and Alertmanager, on free ports of this machine, while the demo runs.

    A context manager. One thread starts, checks and ends them, so that the agents need not wait.
    If a program is missing or fails, a line says so and the demo continues.

    Args:
        metrics_url: what Prometheus scrapes.
        onset: gives the time when an agent's last loop began, monotonic seconds.
    """

    def __init__(self, metrics_url: str, onset: Callable[[str], float | None]) -> None:
        self._target = urlsplit(metrics_url).netloc
        self._onset = onset
        self._news: deque[Text] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegauge-demo-alerts")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def news(self) -> Iterator[Text]:
        """The events since the last call, a line each."""
        while self._news:
            yield self._news.popleft()

    def _run(self) -> None:
        try:
            self._serve(*_programs(), rule_files())
        except OSError as error:
            self._add(f"no alerts: {error}")
        except Exception as error:  # noqa: BLE001 -- the demo continues without alerts
            self._add(f"no alerts: {type(error).__name__}: {error}")

    def _serve(self, prometheus: str, alertmanager: str, rules: dict[str, str]) -> None:
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegauge-demo-"))
            )
            url = stack.enter_context(webhook(self._take))
            scraper, notifier = _free_address(), _free_address()
            files = rules | {  # YAML includes JSON
                "alertmanager.yml": json.dumps(_alertmanager_config(url)),
                "prometheus.yml": json.dumps(
                    _prometheus_config(self._target, notifier, list(rules))
                ),
            }
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
            commands = {
                "alertmanager": [
                    alertmanager,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'notices'}",
                    f"--web.listen-address={notifier}",
                    "--cluster.listen-address=",  # no cluster
                ],
                "prometheus": [
                    prometheus,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'samples'}",
                    f"--web.listen-address={scraper}",
                ],
            }
            servers = [
                stack.enter_context(_running(command, folder / f"{name}.log"))
                for name, command in commands.items()
            ]

            def waits() -> bool:
                # Also ends with the main thread: a second Ctrl-C may come before the event is set.
                if self._ending.wait(_CHECK_SECONDS) or not threading.main_thread().is_alive():
                    return False
                for server in servers:
                    server.check()
                return True

            page = _alerts_page(f"http://{scraper}", waits)
            self._add(f"alerts: Prometheus is running, {page}")
            while waits():
                pass

    def _take(self, notice: Notice) -> None:
        """Add a notice to the news, with its delay after the loop's onset."""
        arrived = time.monotonic()
        name, agent = notice.labels.get("alertname", ""), notice.labels.get("agent", "")
        labels = f"{agent} ({notice.labels.get('task_group', '')})"
        if notice.status == "resolved":
            self._add(f"resolved: {name}, {labels}", style="green")
            return
        onset = self._onset(agent) if name == _LOOP_ONSET else None
        after = "" if onset is None else f", {arrived - onset:.1f} s after its loop began"
        self._add(f"alert: {name}, {labels}{after}", style="bold red")

    def _add(self, text: str, *, style: str = "") -> None:
        self._news.append(Text(visible(text), style=style))


def _alerts_page(url: str, waits: Callable[[], bool]) -> str:
    """Where this Prometheus shows its alerts, once it answers: Debian's has only the classic pages.

    Its address without a path, if it does not answer in time.
    """
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    until = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < until and waits():
        for path in _ALERTS_PAGES:
            try:
                with direct.open(f"{url}{path}", timeout=_TIMEOUT_SECONDS):
                    return f"{url}{path}"
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                break
    return url


def _programs() -> tuple[str, str]:
    """The paths of Prometheus and Alertmanager, which has another name on Debian.

    Raises:
        FileNotFoundError: a program is not on the PATH.
    """
    prometheus = shutil.which("prometheus")
    alertmanager = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if prometheus and alertmanager:
        return prometheus, alertmanager
    missing = [
        name
        for name, path in (("prometheus", prometheus), ("alertmanager", alertmanager))
        if path is None
    ]
    raise FileNotFoundError(f"not on the PATH: {', '.join(missing)}")


def _prometheus_config(target: str, alertmanager: str, rules: list[str]) -> dict[str, Any]:
    """Prometheus's configuration, with short intervals, to alert while a loop lasts."""
    intervals = dict.fromkeys(
        ("scrape_interval", "scrape_timeout", "evaluation_interval"), _INTERVAL
    )
    return {
        "global": intervals,
        "rule_files": rules,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "demo", "static_configs": [{"targets": [target]}]}],
    }


def _alertmanager_config(webhook: str) -> dict[str, Any]:
    """Alertmanager's configuration: each alert alone, and at once."""
    return {
        "route": {
            "receiver": "demo",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": _INTERVAL,
        },
        "receivers": [{"name": "demo", "webhook_configs": [{"url": webhook}]}],
    }


class Notice(NamedTuple):
    """An alert from Alertmanager.

    Attributes:
        status: ``firing`` or ``resolved``.
        labels: of the alert, ``alertname`` among them.
    """

    status: str
    labels: Mapping[str, str]


class _Program(NamedTuple):
    """A running program, and the file of its output."""

    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise ChildProcessError with the last line of output, if the program ended."""
        if self.process.poll() is not None:
            output = self.log.read_text(encoding="utf-8", errors="replace").strip()
            raise ChildProcessError(f"{self.log.stem} ended: {output.rpartition(chr(10))[2]}")


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path) -> Iterator[_Program]:
    """Start a program with its output in a file, and end it when the block ends."""
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 -- found on the PATH, our own arguments
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only the demo, which ends the program
        )
    try:
        yield _Program(process, log)
    finally:
        process.terminate()
        try:
            process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def webhook(take: Callable[[Notice], object]) -> Iterator[str]:
    """Listen for Alertmanager's notices until the block ends; gives the webhook's URL.

    The URL contains a secret, so that no other user of this machine can send notices.
    """
    secret = f"/{secrets.token_urlsafe()}"

    class Handler(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_SECONDS

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            known = secrets.compare_digest(self.path.encode(), secret.encode())
            if not known or not length.isdecimal() or int(length) > _MAX_BODY:
                self.send_error(400)
                return
            try:
                notices = _notices(json.loads(self.rfile.read(int(length))))
            except (ValueError, TypeError, KeyError, AttributeError):
                self.send_error(400)
                return
            for notice in notices:
                take(notice)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the terminal belongs to the demo."""

    class Listener(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """Print nothing: the terminal belongs to the demo."""

    server = Listener((_HOST, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}{secret}"
    finally:
        server.shutdown()
        server.server_close()


def _free_address() -> str:
    """A local address (host:port) that is free now."""
    with socket.create_server((_HOST, 0)) as probe:
        return f"{_HOST}:{probe.getsockname()[1]}"


def _notices(body: Any) -> list[Notice]:
    """The alerts in a request from Alertmanager."""
    return [
        Notice(str(alert["status"]), {str(k): str(v) for k, v in alert["labels"].items()})
        for alert in body["alerts"]
    ]
