"""Runs to be judged, and a model that judges them as scripted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from support.scripted_model import ScriptedChatModel, answers
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step


def verdict(score: int | None = 3, **fields: Any) -> str:
    """A good answer."""
    usual = {"applicable": score is not None, "score": score, "reason": "it did", "steps": [0]}
    return json.dumps(usual | fields)


class Judged(list[Sequence[BaseMessage]]):
    """A model, and the questions that it was asked.

    Each answer is a text, an exception to raise, or something to call for one of them; the last
    one is given again and again.
    """

    def __init__(self, *script: str | Exception | Callable[[], str]) -> None:
        super().__init__()
        ahead = itertools.chain(script, itertools.repeat(script[-1]))

        def answer(messages: Sequence[BaseMessage]) -> Any:
            self.append(list(messages))
            scripted = next(ahead)
            scripted = scripted() if callable(scripted) else scripted
            if isinstance(scripted, Exception):
                raise scripted
            return answers(scripted, (100, 20))

        self.model = ScriptedChatModel(script=answer)


def run_of(steps: int, *, run: str = "r1", task: str | None = "find the order", **fields: Any):
    """The transcript of a run that turned page after page."""
    transcript = Transcript(RunStarted(run=run, task=task, agent="a", task_group="g"), **fields)
    for index in range(steps):
        transcript.issue(Step(run, (Call("open", {"page": index}),)))
        transcript.observe(Outcome(run, (CallResult(f"this is page {index}"),)))
    return transcript
