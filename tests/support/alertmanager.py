"""A real Alertmanager that sends its notices to a webhook of the test."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.prometheus import answers, find_binary, free_port


class Notice(NamedTuple):
    """One alert as the webhook got it."""

    arrived: float
    status: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Webhook:
    """Takes notices, and says when each came (seconds of ``time.monotonic``)."""

    def __init__(self, alertmanager: str) -> None:
        self.alertmanager = alertmanager
        self.notices: list[Notice] = []
        self._came = threading.Condition()

    def take(self, body: dict[str, Any]) -> None:
        now = time.monotonic()
        with self._came:
            self.notices += [
                Notice(now, alert["status"], alert["labels"], alert["annotations"])
                for alert in body["alerts"]
            ]
            self._came.notify_all()

    def wait_for(self, status: str, **labels: str) -> Notice:
        """The first notice of this status with these labels, as soon as it is there."""

        def found() -> list[Notice]:
            return [
                notice
                for notice in self.notices
                if notice.status == status and labels.items() <= notice.labels.items()
            ]

        with self._came:
            assert self._came.wait_for(found, PATIENCE), f"{status} {labels}: {self.notices}"
            return found()[0]


@contextlib.contextmanager
def notifying(directory: Path) -> Iterator[Webhook]:
    """Start an Alertmanager that passes everything on at once, and stop it.

    Args:
        directory: where it keeps its data and its log.
    """
    binary = find_binary("prometheus-alertmanager", package="prometheus-alertmanager")
    webhook = Webhook(f"127.0.0.1:{free_port()}")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            webhook.take(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    config = directory / "alertmanager.json"  # YAML includes JSON
    here = f"http://127.0.0.1:{server.server_port}/"
    # An alert is a group of its own, and no group waits for others to join it.
    route = {"receiver": "test", "group_by": ["..."], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": here, "send_resolved": True}]}
    config.write_text(json.dumps({"route": route, "receivers": [receiver]}))
    log = directory / "alertmanager.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                binary,
                f"--config.file={config}",
                f"--storage.path={directory / 'alertmanager'}",
                f"--web.listen-address={webhook.alertmanager}",
                "--cluster.listen-address=",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        with stopped_in_the_end(process):
            wait_until_ready(
                process, log, lambda: answers(f"http://{webhook.alertmanager}/-/ready")
            )
            yield webhook
    finally:
        server.shutdown()
        server.server_close()
