"""Send a LangGraph agent's traces to real backends, and take pictures: ``make backends``.

Phoenix and MLflow are installed from PyPI, each into a separate environment below
``.backends/``, and listen on loopback. Needs Chromium and playwright. ``--only phoenix`` does one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, sync_playwright

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
PICTURES: Final = ROOT / "docs" / "images"
WORK: Final = ROOT / ".backends"
PATIENCE: Final = 600.0
"""Seconds until something that must happen is given up: the first start of a server is slow."""


@dataclass(frozen=True)
class Backend:
    """One that takes spans over OTLP.

    Attributes:
        package: its distribution.
        command: starts it, with its port.
        variables: of its environment.
        ready: path that answers once it is ready.
        arguments: of the agent.
        headers: of the OTLP requests.
    """

    package: str
    command: tuple[str, ...]
    variables: dict[str, str]
    ready: str
    arguments: tuple[str, ...] = ()
    headers: str = ""


BACKENDS: Final = {
    "phoenix": Backend(
        "arize-phoenix",
        ("phoenix", "serve"),
        {
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": "{port}",
            "PHOENIX_GRPC_PORT": "{other_port}",
            "PHOENIX_WORKING_DIR": "{data}",
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        },
        "/healthz",
        ("--openinference",),
    ),
    "mlflow": Backend(
        "mlflow",
        (
            *("mlflow", "server", "--host", "127.0.0.1", "--port", "{port}", "--workers", "1"),
            *("--backend-store-uri", "sqlite:///{data}/mlflow.db"),
            *("--artifacts-destination", "{data}/artifacts"),
        ),
        {"MLFLOW_DISABLE_TELEMETRY": "true"},
        "/health",
        headers="x-mlflow-experiment-id=0",
    ),
}


def ask(url: str, body: Any = None) -> Any:
    """The JSON answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def until(what: str, asked: Any) -> Any:
    """Ask again until there is an answer."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if found := asked():
                return found
        time.sleep(1)
    sys.exit(f"{what} took more than {PATIENCE:.0f} seconds")


@contextlib.contextmanager
def started(name: str, backend: Backend) -> Iterator[str]:
    """Install it if it is missing, and run it in an empty folder. Gives its address."""
    place, data = WORK / name, WORK / f"{name}-data"
    if not (place / "bin" / backend.command[0]).exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, backend.package], check=True)
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir()
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        given = {"port": one.getsockname()[1], "other_port": other.getsockname()[1], "data": data}
    program, *arguments = [part.format(**given) for part in backend.command]
    variables = {key: value.format(**given) for key, value in backend.variables.items()}
    with (data / "log.txt").open("w") as log:
        server = subprocess.Popen(
            [place / "bin" / program, *arguments],
            env={**os.environ, **variables},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{given['port']}"
        until(f"{name} to start", lambda: urllib.request.urlopen(url + backend.ready))
        yield url
    finally:
        os.killpg(server.pid, 15)
        server.wait()


def send(url: str, backend: Backend) -> None:
    """Run the agent."""
    endpoint = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{url}/v1/traces",
        "OTEL_EXPORTER_OTLP_HEADERS": backend.headers,
        "OTEL_EXPORTER_OTLP_TIMEOUT": "120",  # the first request is slow
    }
    subprocess.run(
        [sys.executable, HERE / "team_agent.py", *backend.arguments],
        env={**os.environ, **endpoint},
        check=True,
    )


def phoenix(url: str, page: Page) -> None:
    """The team's trace, a model call in it, and the run that is stopped."""
    [project] = ask(f"{url}/v1/projects")["data"]

    def roots() -> list[Any]:
        spans = ask(f"{url}/v1/projects/default/spans?limit=100")["data"]
        return [span for span in spans if not span["parent_id"]] if len(spans) == 22 else []

    traces = {
        span["attributes"]["tidegauge.outcome"]: span["context"]["trace_id"]
        for span in until("phoenix to show the spans", roots)
    }
    pages = f"{url}/projects/{project['id']}/traces"
    taken(page, f"{pages}/{traces['unknown']}", "invoke_agent researcher", "phoenix-trace")
    page.get_by_text("chat scripted-model").first.click()
    page.wait_for_timeout(2_000)
    page.screenshot(path=PICTURES / "phoenix-chat.png")
    taken(page, f"{pages}/{traces['stopped']}", "execute_tool search", "phoenix-stopped")


def mlflow(url: str, page: Page) -> None:
    """The team's trace, a model call in it, and a step that repeats another one."""
    place = {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "0"}}
    search = f"{url}/ajax-api/3.0/mlflow/traces/search"

    def found() -> list[Any]:
        traces = ask(search, {"locations": [place]}).get("traces", [])
        return traces if len(traces) == 2 else []

    for trace in until("mlflow to show the traces", found):
        stopped = '"tool_call"' in trace["response_preview"]
        here = f"{url}/#/experiments/0/traces?selectedEvaluationId={trace['trace_id']}"
        chosen, at = ("execute_tool search", 2) if stopped else ("chat scripted-model", 0)
        taken(page, here, chosen, "mlflow-repeated" if stopped else "mlflow-trace")
        page.get_by_text(chosen).nth(at).click(force=True)
        page.wait_for_timeout(2_000)
        page.screenshot(path=PICTURES / f"mlflow-{'repeated' if stopped else 'chat'}.png")


def taken(page: Page, url: str, text: str, name: str) -> None:
    """Open a page, wait for a text in it, and take a picture."""
    page.goto("about:blank")
    page.goto(url)
    page.get_by_text(text).first.wait_for()
    page.wait_for_timeout(4_000)
    page.screenshot(path=PICTURES / f"{name}.png")


def main() -> None:
    """Start each, send, look."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(BACKENDS))
    asked = parser.parse_args().only
    WORK.mkdir(exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    look = {"phoenix": phoenix, "mlflow": mlflow}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, backend in BACKENDS.items():
            if asked in (None, name):
                with started(name, backend) as url:
                    send(url, backend)
                    page = browser.new_page(viewport={"width": 1400, "height": 840})
                    page.set_default_timeout(120_000)
                    look[name](url, page)
                    page.close()
        browser.close()


if __name__ == "__main__":
    main()
