"""Nothing is lost when a process ends: its spans, its recorded runs and the metrics that it pushes.

A program ends its processes in one way, and a real collector has what they sent. Spans and metrics
are sent once a minute, so that all of it waits when a process ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from support.otlp_receiver import OtlpReceiver, http_receiver
from support.processes import PATIENCE, without_otel
from support.requirements import needs_fork

pytestmark = needs_fork

MAIN = """
import multiprocessing, os, signal, sys, threading, time, warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import tidegauge

warnings.filterwarnings("ignore", "This process .* is multi-threaded")
HOW, METHOD, CONFIGURES = sys.argv[1:4]
RUNS = 4

def configure():
    tidegauge.configure(record_to=os.environ["RECORDED"] + "/{pid}.jsonl", serve_metrics=False)

def work(number):
    with tidegauge.run(agent="helper") as run:
        run.act("look", {"at": number})
        run.observe("nothing")
    return number

if CONFIGURES == "imported":
    configure()

if __name__ == "__main__":
    if CONFIGURES == "main":
        configure()
    context = multiprocessing.get_context(METHOD)
    HOWS[HOW](context)
"""


class Arrived(NamedTuple):
    """What is there after the end of all processes, in numbers of runs."""

    spans: float
    recorded: float
    pushed: float


ALL = Arrived(4, 4, 4)


HOWS = """
def processes(context):
    for number in range(RUNS):
        child = context.Process(target=work, args=(number,))
        child.start()
        child.join()
        assert child.exitcode == 0

def executor(context):
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(work, range(RUNS))) == list(range(RUNS))

def closed_pool(context):
    pool = context.Pool(2)
    assert pool.map(work, range(RUNS), 1) == list(range(RUNS))
    pool.close()
    pool.join()

def short_lived_pool(context):
    pool = context.Pool(2, maxtasksperchild=1)
    assert pool.map(work, range(RUNS), 1) == list(range(RUNS))
    pool.close()
    pool.join()

def left_pool(context):  # terminates its processes
    with context.Pool(2) as pool:
        pool.map(work, range(RUNS), 1)

def work_and_flush(number):
    work(number)
    assert tidegauge.flush()

def left_pool_that_flushes(context):
    with context.Pool(2) as pool:
        pool.map(work_and_flush, range(RUNS), 1)

def exit_with_error(number):
    work(number)
    sys.exit(3)

def errors(context):
    for number in range(RUNS):
        child = context.Process(target=exit_with_error, args=(number,))
        child.start()
        child.join()
        assert child.exitcode == 3

def work_in_threads():
    pool = ThreadPoolExecutor(1)  # a thread that ends when the process does
    pool.submit(work, 0).result()
    go = threading.Event()
    thread = threading.Thread(target=lambda: (go.wait(), time.sleep(0.2), work(1)))
    thread.start()
    threading.Thread(target=lambda: (thread.join(), work(2), work(3))).start()
    go.set()

def threads(context):
    child = context.Process(target=work_in_threads)
    child.start()
    child.join()
    assert child.exitcode == 0

def work_in_children():
    for number in range(RUNS // 2):
        child = multiprocessing.get_context("fork").Process(target=work, args=(number,))
        child.start()
        child.join()
    [work(number) for number in range(RUNS - RUNS // 2)]

def grandchildren(context):
    child = context.Process(target=work_in_children)
    child.start()
    child.join()
    assert child.exitcode == 0

def fork(end):
    if (pid := os.fork()) == 0:
        [work(number) for number in range(RUNS)]
        end()
    _, status = os.waitpid(pid, 0)

def forked(context):
    fork(sys.exit)

def left_at_once(context):
    fork(lambda: os._exit(0))

def killed(context):
    fork(lambda: os.kill(os.getpid(), signal.SIGKILL))

def terminated(context):
    fork(lambda: os.kill(os.getpid(), signal.SIGTERM))

def terminated_with_handler(context):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    fork(lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(30)))

def flushed_and_left(context):
    fork(lambda: os._exit(0 if tidegauge.flush() else 1))

def flushed_and_killed(context):
    fork(lambda: (tidegauge.flush(), os.kill(os.getpid(), signal.SIGKILL)))

def frozen(context):  # as a function of a cloud between two calls: it may never continue
    if (pid := os.fork()) == 0:
        for number in range(RUNS):
            work(number)
            assert tidegauge.flush()
            os.kill(os.getpid(), signal.SIGSTOP)
    for number in range(RUNS):
        os.waitpid(pid, os.WUNTRACED)
        if number < RUNS - 1:
            os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)

def unused(context):
    for _ in range(RUNS):
        child = context.Process(target=str)
        child.start()
        child.join()

HOWS = {name: function for name, function in globals().items() if callable(function)}
"""


def ended(folder: Path, how: str, method: str = "fork", configures: str = "imported") -> Arrived:
    """Run the program to its end; what has arrived then."""
    with http_receiver() as receiver:
        _run(folder, receiver.endpoint, how, method, configures)
    return _arrived(receiver, folder)


def _run(folder: Path, endpoint: str, how: str, method: str, configures: str) -> None:
    (folder / "program.py").write_text(MAIN.replace("if CONFIGURES", f"{HOWS}\nif CONFIGURES", 1))
    (folder / "recorded").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "program.py", how, method, configures],
        cwd=folder,
        env=without_otel(
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_METRICS_EXPORTER="otlp",
            OTEL_BSP_SCHEDULE_DELAY="60000",
            RECORDED=str(folder / "recorded"),
        ),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def _arrived(receiver: OtlpReceiver, folder: Path) -> Arrived:
    lines = [line for path in folder.glob("recorded/*") for line in path.read_text().splitlines()]
    steps = {
        point.resource["service.instance.id"]: point.value
        for point in receiver.points
        if point.metric == "tidegauge_steps"
    }
    return Arrived(
        len(receiver.spans) / 2,
        [json.loads(line)["type"] for line in lines].count("end"),
        sum(steps.values()),
    )


@pytest.mark.parametrize(
    "method",
    [
        "fork",
        pytest.param("forkserver", marks=pytest.mark.slow),
        pytest.param("spawn", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "how",
    [
        "processes",
        pytest.param("executor", marks=pytest.mark.slow),
        pytest.param("closed_pool", marks=pytest.mark.slow),
        pytest.param("short_lived_pool", marks=pytest.mark.slow),
        pytest.param("left_pool_that_flushes", marks=pytest.mark.slow),
        pytest.param("errors", marks=pytest.mark.slow),
        "threads",
        pytest.param("grandchildren", marks=pytest.mark.slow),
    ],
)
def test_a_child_of_multiprocessing_loses_nothing(how: str, method: str, tmp_path: Path) -> None:
    assert ended(tmp_path, how, method) == ALL


@pytest.mark.slow
@pytest.mark.parametrize("how", ["processes", "executor", "closed_pool"])
def test_it_makes_no_difference_where_tidegauge_is_configured(how: str, tmp_path: Path) -> None:
    assert ended(tmp_path, how, configures="main") == ALL


@pytest.mark.parametrize(
    ("how", "arrives"),
    [
        ("forked", ALL),
        ("terminated_with_handler", ALL),
        ("flushed_and_left", ALL),
        ("flushed_and_killed", ALL),
        ("frozen", ALL),
    ],
)
def test_other_ends(how: str, arrives: Arrived, tmp_path: Path) -> None:
    assert ended(tmp_path, how) == arrives


def test_a_child_without_runs_need_not_wait_for_a_collector(tmp_path: Path) -> None:
    with http_receiver() as receiver:
        _run(tmp_path, receiver.endpoint, "unused", "fork", "imported")
    assert receiver.paths == ["/v1/metrics"]  # of the main process


@pytest.mark.parametrize("how", ["left_at_once", "killed", "terminated", "left_pool"])
def test_what_has_no_end_loses_what_waits(how: str, tmp_path: Path) -> None:
    """The page says so; as soon as one of these can be helped, it must not say so any more."""
    assert ended(tmp_path, how)[::2] == (0, 0)
