"""The recipes of ``docs/worker-processes.md``, with real servers and a real Prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from support.otlp_receiver import OtlpReceiver, http_receiver
from support.processes import PATIENCE, stopped_in_the_end, without_otel
from support.prometheus import Prometheus, free_port, scraping
from support.requirements import needs_fork

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.minutes, needs_fork]

DOCS = Path(__file__).parents[2] / "docs" / "worker-processes.md"
AT_ONCE = 8
WORKERS = 2
MOST = 60
"""What a worker does before it is replaced: more than it does until the sums are compared."""

QUEUE = """
import os, threading
from celery.signals import worker_ready
from tasks import answer, app

app.conf.update(broker_url="memory://", broker_transport_options={"polling_interval": 0.1})

def send():
    while work := os.read(0, 64):  # a byte for each task
        for _ in work:
            answer.delay("where?")

@worker_ready.connect
def begin(**_):
    threading.Thread(target=send, daemon=True).start()
"""
"""The tasks with a broker in Celery's main process, which therefore sends them, too."""


class Recipe(NamedTuple):
    """A command of the page.

    Args:
        command: as it is written there.
        options: what it gets in addition; ``{port}`` is replaced.
        parents: processes that serve metrics and have no runs.
        kills: whether the server still ends after one of its workers was killed.
    """

    command: str
    options: str
    parents: int = 0
    kills: bool = True


RECIPES = {
    "uvicorn": Recipe(
        "uvicorn served:app --workers 2", f"--port {{port}} --limit-max-requests {MOST}"
    ),
    "gunicorn": Recipe(
        "gunicorn served:app --workers 2 --worker-class uvicorn.workers.UvicornWorker",
        f"--bind 127.0.0.1:{{port}} --max-requests {MOST}",
    ),
    "gunicorn-preload": Recipe(
        "gunicorn forked:app --workers 2 --preload",
        f"--bind 127.0.0.1:{{port}} --max-requests {MOST}",
        parents=1,
    ),
    "celery": Recipe(
        "celery --app tasks worker --concurrency 2",
        f"--max-tasks-per-child {MOST}",
        parents=1,
        kills=False,  # its warm shutdown then hangs, also without us
    ),
}


def test_these_are_the_commands_of_the_page() -> None:
    commands = re.findall(r"^\$ (.*)", DOCS.read_text(), re.MULTILINE)
    assert [recipe.command for recipe in RECIPES.values()] == commands[1:]


class Target(NamedTuple):
    """A process that Prometheus finds."""

    pid: int
    address: str


class Workers:
    """A server that runs, and the folder in which its processes are found."""

    def __init__(
        self, recipe: Recipe, folder: Path, targets: Path, options: str = "", **variables: str
    ) -> None:
        self.targets = targets
        self.folder = folder
        self.port = None if "celery" in recipe.command else free_port()
        self.sent = 0
        command = recipe.command.replace("--app tasks", "--app queued")
        options = (options or recipe.options).format(port=self.port)
        arguments = shlex.split(f"{command} {options}")
        environment = without_otel(
            TIDEGAUGE_METRICS_TARGETS=str(targets),
            PYTHONPATH=os.pathsep.join([*sys.path, "."]),
            **variables,
        )
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """End the server as its supervisor does."""
        self.process.terminate()
        assert self.process.wait(2 * PATIENCE) in (0, -signal.SIGTERM), self.log

    def send(self, number: int) -> None:
        """Have the workers do this many runs; requests that a worker loses at its end count not."""
        if self.port is None:
            os.write(self.process.stdin.fileno(), b"." * number)
            self.sent += number
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self.sent += sum(pool.map(self._request, range(number)))

    def _request(self, _: int) -> bool:
        with contextlib.suppress(OSError):
            url = f"http://127.0.0.1:{self.port}/?question=where"
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return bool(answer.read())
        return False

    def busy(self) -> int:
        """How many processes have counted a step."""
        busy = 0
        for target in self.found():
            with urllib.request.urlopen(f"http://{target.address}/metrics") as answer:
                busy += b"\ntidegauge_steps_total{" in answer.read()
        return busy

    def found(self) -> set[Target]:
        """The processes in the folder."""
        found = set()
        for path in self.targets.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                [group] = json.loads(path.read_text())
                found.add(Target(int(path.name.split("-")[1]), *group["targets"]))
        return found

    def wait(self, holds: Callable[[set[Target]], object], work: int = 0) -> set[Target]:
        """The processes in the folder as soon as they are as they must be.

        Args:
            holds: whether they are.
            work: runs to send meanwhile, again and again.
        """
        until = time.monotonic() + 2 * PATIENCE
        while not holds(found := self.found()):
            assert self.process.poll() is None, self.log
            assert time.monotonic() < until, f"{found}\n{self.log}"
            if work:
                self.send(work)
            time.sleep(0.2)
        return found


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Prometheus, Path]]:
    """Prometheus, and the folder in which it finds its targets."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "targets").mkdir()
    with scraping(None, folder) as running:
        yield running, folder / "targets"


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    """A folder with the modules of the page."""
    modules = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(modules) == DOCS.read_text().count("```python")
    for name, text in [*modules, ("queued.py", QUEUE)]:
        (tmp_path / name).write_text(text)
    return tmp_path


def scraped(prometheus: Prometheus, targets: set[Target]) -> None:
    """Wait until Prometheus scrapes these targets, and no others."""
    addresses = {target.address for target in targets}
    prometheus.wait_for(
        "up",
        lambda found: (
            {one.labels["instance"]: one.value for one in found} == dict.fromkeys(addresses, 1)
        ),
    )


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_worker_is_scraped_until_its_end(
    recipe: Recipe, recipes: Path, prometheus: tuple[Prometheus, Path]
) -> None:
    asked, targets = prometheus
    workers = Workers(recipe, recipes, targets)
    with stopped_in_the_end(workers.process), workers.process.stdin:
        first = workers.wait(lambda found: len(found) == WORKERS + recipe.parents)
        workers.send(2 * AT_ONCE)
        while workers.busy() < WORKERS:
            assert workers.sent < MOST, workers.log
            workers.send(AT_ONCE)
            time.sleep(0.5)  # tasks wait in a queue
        asked.wait_for(
            "sum(tidegauge_steps_total)", lambda found: found and found[0].value == workers.sent
        )
        scraped(asked, first)
        assert workers.sent % AT_ONCE == 0, "a request failed"
        assert asked.value("count(tidegauge_steps_total > 0)") == WORKERS, workers.log
        assert asked.value('sum(tidegauge_runs_finished_total{outcome="success"})') == workers.sent
        assert asked.value("sum(tidegauge_runs_active)") == 0

        parents = {target for target in first if target.pid == workers.process.pid}
        assert len(parents) == recipe.parents
        second = workers.wait(
            lambda found: len(found) == len(first) and found & first == parents, work=AT_ONCE
        )
        scraped(asked, second)

        if recipe.kills:
            killed = next(iter(second - parents))
            os.kill(killed.pid, signal.SIGKILL)
            third = workers.wait(lambda found: len(found) == len(first) and killed not in found)
            scraped(asked, third)

        workers.stop()
        assert list(targets.iterdir()) == []
    scraped(asked, set())
    assert "internal error" not in workers.log


PUSHES = {"OTEL_METRICS_EXPORTER": "otlp"}
SOON = {"OTEL_BSP_SCHEDULE_DELAY": "100"}
"""Spans are sent at once; metrics are still pushed once a minute."""


def pushed(receiver: OtlpReceiver) -> float:
    """Steps of all processes, of which each has its own series."""
    found = {
        point.resource["service.instance.id"]: point.value
        for point in receiver.points
        if point.metric == "tidegauge_steps"
    }
    return sum(found.values())


def test_a_function_that_never_continues_has_sent_all(recipes: Path) -> None:
    freeze = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    call = "import function; print(function.handler({'question': 'where?'}, None), flush=True)"
    with http_receiver() as receiver:
        done = subprocess.run(
            [sys.executable, "-c", f"{call}; {freeze}"],
            cwd=recipes,
            env=without_otel(**PUSHES, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint),
            capture_output=True,
            check=False,
        )
    assert done.stdout == b"I do not know.\n"
    assert len(receiver.spans) == 2
    assert pushed(receiver) == 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("celery", "--max-tasks-per-child 1"),
        ("gunicorn", "--bind 127.0.0.1:{port} --max-requests 1"),
        ("gunicorn-preload", "--bind 127.0.0.1:{port} --max-requests 1"),
        ("gunicorn-preload", "--bind 127.0.0.1:{port} --max-requests 1 --threads 2"),
    ],
)
def test_a_worker_that_is_replaced_sends_all(name: str, options: str, recipes: Path) -> None:
    """Without waiting for the next minute, or for the batch of spans that is sent every 5 s."""
    with http_receiver() as receiver:
        pushing = {**PUSHES, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        (recipes / "targets").mkdir()
        workers = Workers(RECIPES[name], recipes, recipes / "targets", options, **pushing)
        with stopped_in_the_end(workers.process), workers.process.stdin:
            workers.wait(lambda found: len(found) >= WORKERS)
            for _ in range(10):
                workers.send(1)
            receiver.wait_until(
                lambda: (
                    len(receiver.spans) == 2 * workers.sent and pushed(receiver) == workers.sent
                ),
                2 * PATIENCE,
            )
            workers.stop()
        assert workers.sent >= 5
        assert len(receiver.spans) == 2 * workers.sent
        assert pushed(receiver) == workers.sent
    assert "internal error" not in workers.log


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("uvicorn", "--port {port}"),
        ("gunicorn", "--bind 127.0.0.1:{port}"),
        ("gunicorn-preload", "--bind 127.0.0.1:{port}"),
        ("celery", "--pool prefork"),
        ("celery", "--pool threads"),
        ("celery", "--pool solo"),
    ],
)
def test_a_server_that_is_stopped_pushes_its_metrics(
    name: str, options: str, recipes: Path
) -> None:
    with http_receiver() as receiver:
        pushing = {**PUSHES, **SOON, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
        (recipes / "targets").mkdir()
        workers = Workers(RECIPES[name], recipes, recipes / "targets", options, **pushing)
        with stopped_in_the_end(workers.process), workers.process.stdin:
            workers.wait(lambda found: found)
            if workers.port:
                workers.wait(lambda found: len(found) >= WORKERS)
            workers.send(10)
            receiver.wait_for(2 * workers.sent, 2 * PATIENCE)
            assert pushed(receiver) == 0
            workers.stop()
        assert len(receiver.spans) == 2 * workers.sent
        assert pushed(receiver) == workers.sent == 10
    assert "internal error" not in workers.log
