"""The batch version of what is measured of answers without calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from tidegauge.streaming_metrics.answers import Answers
from tidegauge.streaming_metrics.records import Answered

from . import batch
from .counterpart import Counterpart


def answers(turns):
    """From all turns: ``Answered``, or (state, action) of a step."""
    pairs, run, streaks, equal, best = [], 0, [], 0, 0
    before: Any = None
    shown: dict[Any, int] = {}  # to how many messages an answer was last given
    for n, turn in enumerate(turns):
        if not isinstance(turn, Answered):
            pairs.append(turn)
            run = equal = 0
        else:
            follows = isinstance(before, Answered)
            key = (turn.shown, turn.answer)
            known = None not in (*key, turn.messages) and turn.messages > shown.get(key, -1)
            if None not in (*key, turn.messages):
                shown[key] = turn.messages
            pairs.append(("said", turn.shown, turn.answer) if known else ("only", n))
            run += 1
            same = follows and turn.answer is not None and turn.answer == before.answer
            equal = equal + 1 if same else 1
        streaks.append(run)
        best = max(best, equal)
        before = turn
    found = batch.loops([SimpleNamespace(state=pair, action=b"") for pair in pairs])
    count = sum(isinstance(turn, Answered) for turn in turns)
    return {
        "answers": count,
        "value": count,
        "streak": equal,
        "streak_max": best,
        "without_calls": run,
        "without_calls_max": max(streaks, default=0),
        "period": found["period"],
        "repeats": found["repeats"],
        "evidence": found["evidence"],
    }


@st.composite
def said(draw):
    """Answers that repeat others, with what they were shown, now and then once more as a sample."""
    pool = draw(
        st.lists(
            st.tuples(st.sampled_from([b"a", b"b", None]), st.sampled_from([b"p", b"q", None])),
            min_size=1,
            max_size=4,
        )
    )
    found, messages = [], 0
    for n in range(draw(st.integers(0, 24))):
        messages = draw(st.sampled_from([messages + 1, messages + 1, messages, None])) or n
        answer, shown = pool[n % len(pool)]
        found.append(Answered(answer, shown, draw(st.sampled_from([messages, messages, None]))))
    return found


COUNTERPARTS = {Answers: Counterpart(said(), answers)}
