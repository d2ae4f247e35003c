"""The demo's alerts: Prometheus and Alertmanager beside it, where they are installed."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from rich.text import Text

from tidegauge.cli.demo_servers import Notice, free_address, listening, running
from tidegauge.errors import TidegaugeError

__all__ = ["Alerts"]

_LOOP_ONSET: Final = "TidegaugeLoopOnset"
_OFTEN: Final = "1s"  # scrapes and evaluations
_LOOK_SECONDS: Final = 0.2


class Alerts:
    """Prometheus and Alertmanager, on free ports of this machine, while the demo runs.

    A context manager. One thread starts them, looks after them and ends them, so that the agents
    begin meanwhile; what is missing or goes wrong is a line of news, and the demo goes on.

    Args:
        metrics_url: what Prometheus scrapes.
        onset: tells when an agent's last loop set in, monotonic seconds.
    """

    def __init__(self, metrics_url: str, onset: Callable[[str], float | None]) -> None:
        self._target = urlsplit(metrics_url).netloc
        self._onset = onset
        self._news: deque[Text] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._live, name="tidegauge-demo-alerts")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()

    def news(self) -> Iterator[Text]:
        """What happened since it was last asked, a line each."""
        while self._news:
            yield self._news.popleft()

    def _live(self) -> None:
        try:
            self._watch(*_programs(), _rules())
        except (OSError, TidegaugeError) as error:
            self._news.append(Text(f"no alerts: {error}"))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the demo goes on
            self._news.append(Text(f"no alerts: {type(error).__name__}: {error}"))

    def _watch(self, prometheus: str, alertmanager: str, rules: dict[str, str]) -> None:
        with contextlib.ExitStack() as stack:
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegauge-demo-"))
            )
            webhook = stack.enter_context(listening(self._take))
            scraper, notifier = free_address(), free_address()
            files = rules | {  # YAML includes JSON
                "alertmanager.yml": json.dumps(_notifying(webhook)),
                "prometheus.yml": json.dumps(_scraping(self._target, notifier, list(rules))),
            }
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
            commands = {
                "alertmanager": [
                    alertmanager,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'notices'}",
                    f"--web.listen-address={notifier}",
                    "--cluster.listen-address=",  # nobody to share with
                ],
                "prometheus": [
                    prometheus,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'samples'}",
                    f"--web.listen-address={scraper}",
                ],
            }
            servers = [
                stack.enter_context(running(command, folder / f"{name}.log"))
                for name, command in commands.items()
            ]
            self._news.append(Text(f"alerts: Prometheus watches, http://{scraper}/alerts"))
            # Over when the main thread is, too: a second Ctrl-C may come before anybody says so.
            while not self._ending.wait(_LOOK_SECONDS) and threading.main_thread().is_alive():
                for server in servers:
                    server.check()

    def _take(self, notice: Notice) -> None:
        """Tell a notice, and how long after the loop's onset it came."""
        came = time.monotonic()
        name, agent = notice.labels.get("alertname", ""), notice.labels.get("agent", "")
        about = f"{agent} ({notice.labels.get('task_group', '')})"
        if notice.status == "resolved":
            self._news.append(Text(f"resolved: {name}, {about}", style="green"))
            return
        onset = self._onset(agent) if name == _LOOP_ONSET else None
        after = "" if onset is None else f", {came - onset:.1f} s after its loop set in"
        self._news.append(Text(f"alert: {name}, {about}{after}", style="bold red"))


def _programs() -> tuple[str, str]:
    """The paths of Prometheus and Alertmanager; Debian calls the latter by another name.

    Raises:
        FileNotFoundError: one of them, or both, are not on the PATH.
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


def _rules() -> dict[str, str]:
    """What ``tidegauge rules`` writes.

    Raises:
        MissingExtraError: the extra ``dashboards`` is not installed.
    """
    from tidegauge.dashboards import rule_files

    return rule_files()


def _scraping(target: str, alertmanager: str, rules: list[str]) -> dict[str, Any]:
    """Prometheus's configuration: often, so that a loop is told while it lasts."""
    often = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), _OFTEN)
    return {
        "global": often,
        "rule_files": rules,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [{"job_name": "demo", "static_configs": [{"targets": [target]}]}],
    }


def _notifying(webhook: str) -> dict[str, Any]:
    """Alertmanager's configuration: each alert for itself, and at once."""
    return {
        "route": {
            "receiver": "demo",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": _OFTEN,
        },
        "receivers": [{"name": "demo", "webhook_configs": [{"url": webhook}]}],
    }
