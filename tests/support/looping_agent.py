"""A LangGraph agent that looks around, then asks the same thing again and again."""

from __future__ import annotations

import threading
import time
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool

from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

LOOKS = 5
"""Steps before the loop."""


class LoopingAgent:
    """Runs in a separate thread until it is asked to stop.

    Args:
        name: of the agent.
        task_group: of its task.
        step_seconds: how long its tool takes.
    """

    def __init__(self, name: str, task_group: str, *, step_seconds: float = 0.1) -> None:
        self.name = name
        self.task_group = task_group
        self.repeated_at = 0.0
        """When its first repeated action began (seconds of ``time.monotonic``)."""
        self._step_seconds = step_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def stop(self) -> None:
        """Let it answer, and wait until it has."""
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        asked: set[str] = set()

        @tool
        def look(what: str) -> str:
            """Look for something."""
            if what in asked and not self.repeated_at:
                self.repeated_at = time.monotonic()
            asked.add(what)
            self._stop.wait(self._step_seconds)
            return f"nothing about {what}"

        def say(messages: Any) -> Any:
            if self._stop.is_set():
                return answers("I give up")
            return chooses(("look", {"what": f"page {min(turns(messages), LOOKS)}"}))

        agent = create_agent(ScriptedChatModel(script=say), [look], name=self.name)
        handler = TidegaugeCallbackHandler(task_group=self.task_group)
        agent.invoke({"messages": [HumanMessage("find it")]}, config={"callbacks": [handler]})
