"""An interpreter ends while agents are at work: the exit code is the user's, stderr is clean."""

from __future__ import annotations

import pytest

from hostile.harness import interpreter

_AGENT = """
import atexit, os, sys, threading, time
import tidegauge

@tidegauge.tool
def look(place):
    return place + " is empty"

@tidegauge.tool
def slow(place):
    time.sleep(60)

@tidegauge.tool
def stream(place):
    yield place
    yield place

@tidegauge.agent
def agent(task, rounds=5):
    for number in range(rounds):
        assert look("hall") == "hall is empty"

@tidegauge.agent
def endless(task):
    while True:
        look("hall")

def in_background(function, daemon=True):
    thread = threading.Thread(target=function, daemon=daemon)
    thread.start()
    time.sleep(0.1)
    return thread
"""

_ENDINGS = {
    "nothing-open": "agent('find it')",
    "served": "tidegauge.configure(metrics_port=0); agent('find it')",
    "a-run-left-open": "run = tidegauge.run(agent='a'); run.__enter__(); run.act('look')",
    "daemon-threads-at-work": "\n".join(
        ["sys.setswitchinterval(1e-6)"] + ["in_background(lambda: endless('find it'))"] * 4
    ),
    "daemon-thread-in-a-step": "in_background(lambda: agent_of_slow())\n",
    "daemon-threads-served": "tidegauge.configure(metrics_port=0)\n"
    "in_background(lambda: endless('find it'))",
    "a-thread-outlives-main": "in_background(lambda: (time.sleep(0.5), agent('late')), False)",
    "a-tool-in-atexit": "atexit.register(agent, 'at the end')\nagent('before')",
    "a-tool-in-atexit-before-configure": "atexit.register(agent, 'at the end')\n"
    "tidegauge.configure(metrics_port=0)\nagent('before')",
    "a-tool-in-atexit-after-configure": "tidegauge.configure(metrics_port=0)\n"
    "atexit.register(agent, 'at the end')\nagent('before')",
    "a-tool-in-del": """
class Last:
    def __del__(self, agent=agent):
        agent("at the very end")
last = Last()
last.own = last
sys.modules["last"] = last
agent("before")
""",
    "a-stream-left-open": "items = stream('hall'); next(items); items_of = [items]",
    "a-stream-of-a-run-left-open": """
@tidegauge.agent
def streaming(task):
    look("hall")
    for item in stream("hall"):
        yield item
items = streaming("find it")
next(items)
cycle = [items]
cycle.append(cycle)
""",
    "a-thread-started-at-exit": """
@atexit.register
def last():
    try:
        thread = threading.Thread(target=agent, args=("late",))
        thread.start()
        thread.join()
    except RuntimeError:
        pass  # newer Pythons start no threads any more
agent("before")
""",
    "a-coroutine-never-awaited": """
import warnings
warnings.simplefilter("ignore")
@tidegauge.agent
async def later(task):
    look("hall")
later("never")
""",
    "recording": "import tempfile\n"
    "tidegauge.configure(record_to=tempfile.mktemp(), serve_metrics=False)\n"
    "in_background(lambda: endless('find it'))",
    "a-collector-that-is-gone": "os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'] = 'http://127.0.0.1:9'\n"
    "import logging; logging.disable()\n"
    "tidegauge.configure(serve_metrics=False); agent('find it')",
}
_AGENT_OF_SLOW = """
@tidegauge.agent
def agent_of_slow():
    slow("hall")
"""


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(ending, marks=pytest.mark.slow)
        if ending == "a-collector-that-is-gone"
        else ending
        for ending in _ENDINGS
    ],
)
def test_ends_clean(ending: str) -> None:
    ended = interpreter(_AGENT + _AGENT_OF_SLOW + _ENDINGS[ending], deadline=20)
    ended.check()
    assert ended.output == ""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("sys.exit(7)", 7),
        ("os._exit(9)", 9),
        ("raise SystemExit(3)", 3),
        ("os.kill(os.getpid(), 15)", -15),
    ],
)
@pytest.mark.parametrize("where", ["main", "tool"])
def test_the_exit_code_is_the_users(how: str, code: int, where: str) -> None:
    program = _AGENT + "tidegauge.configure(metrics_port=0)\n"
    if where == "main":
        program += f"in_background(lambda: endless('find it'))\n{how}"
    else:
        program += (
            f"@tidegauge.tool\ndef leave():\n    {how}\n"
            "@tidegauge.agent\ndef leaving(task):\n    leave()\nleaving('find it')"
        )
    ended = interpreter(program, deadline=20)
    assert (ended.code, ended.output) == (code, "")


def test_an_error_of_the_user_is_printed_as_ever() -> None:
    ended = interpreter(_AGENT + "@tidegauge.agent\ndef failing(task):\n    1 / 0\nfailing('x')")
    assert ended.code == 1
    assert ended.output.rstrip().endswith("ZeroDivisionError: division by zero")


def test_a_child_of_fork_ends_clean() -> None:
    program = (
        _AGENT
        + """
tidegauge.configure(metrics_port=0)
in_background(lambda: endless('find it'))
import warnings
warnings.simplefilter("ignore")
pid = os.fork()
if pid == 0:
    agent("in the child")
    sys.exit(5)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 5, status
"""
    )
    ended = interpreter(program, deadline=20)
    ended.check()
    assert ended.output == ""
