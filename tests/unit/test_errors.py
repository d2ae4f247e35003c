"""The exceptions of tidegauge cross the border of a process, and are copied, as they are."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from support.processes import run_python
from tidegauge import errors
from tidegauge.dashboards.push import PushError
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.instrumentation.langchain.control_flow import STOP
from tidegauge.instrumentation.openai_agents.agent_run import AgentRunStopped

_STOP: dict[str, Any] = {
    "step": 1,
    "reason": "steps",
    "message": "enough",
    "metrics": {"steps": 2},
    "state": {},
}
_ERRORS = [
    errors.TidegaugeError("text", 2),
    errors.RunStopped("r1", **_STOP),
    STOP("r1", **_STOP),
    AgentRunStopped("r1", **_STOP),
    errors.CallBlocked("look", advice="try another"),
    errors.ConfigurationError("steps=-1"),
    errors.MissingExtraError("langchain_core", extra="langchain"),
    errors.StepEventError("no run"),
    PushError("no answer"),
    MessageError("version", "version 9"),
]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, *range(pickle.HIGHEST_PROTOCOL + 1)])
@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_is_copied_as_it_is(error, way):
    error.add_note("seen by the agent")
    again = pickle.loads(pickle.dumps(error, way)) if isinstance(way, int) else way(error)
    assert type(again) is type(error)
    assert (again.args, str(again), vars(again)) == (error.args, str(error), vars(error))
    assert getattr(again, "msg", None) == getattr(error, "msg", None)


def _stopped() -> None:
    raise errors.RunStopped("r1", **_STOP)


def test_a_stop_leaves_a_pool_of_processes_whole():
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(errors.RunStopped) as caught:
            pool.submit(_stopped).result(timeout=60)
        assert caught.value.reason == "steps"
        assert pool.submit(len, "abc").result(timeout=60) == 3


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import tidegauge.policies.backtesting", "backtest"),
        ("import tidegauge.policies.learning", "learn"),
        ("from tidegauge.streaming_metrics import EmbeddingMatcher as E; E(len)", "embeddings"),
    ],
)
def test_what_needs_numpy_says_what_to_install(code, extra):
    said = run_python(f"""
import sys
sys.modules["numpy"] = None
import tidegauge
try:
    {code}
except tidegauge.MissingExtraError as error:
    print(error)
""")
    assert said.stdout == f"numpy is not installed: pip install '.[{extra}]' in a clone\n"
