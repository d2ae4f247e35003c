"""Prints the alerts that Alertmanager sends: ``python notices.py PORT``."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

MAX_BODY: Final = 1_000_000


class Notices(BaseHTTPRequestHandler):
    """Prints Alertmanager's notifications, and rejects anything else."""

    timeout = 5

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY:
            self.send_error(400)
            return
        try:
            alerts = json.loads(self.rfile.read(int(length)))["alerts"]
            lines = [
                f"{alert['status']} {alert['labels']['alertname']}: "
                f"{alert['annotations']['summary']}"
                for alert in alerts
            ]
        except (ValueError, TypeError, KeyError):
            self.send_error(400)
            return
        for line in lines:
            print(line, flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: only alerts are printed."""


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[1])), Notices).serve_forever()
