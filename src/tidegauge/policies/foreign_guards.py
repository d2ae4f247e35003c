"""Guards of other projects, to compare with: what each would save and break on recorded runs.

Written from their published rules, each as a function from the calls of a run to one number a call.
A fixed rule gives 1 where it stops the run, else 0. A score gets a threshold from successful runs,
as its project does, too.

- Identical calls in a row (name and arguments), 3 or 5: the usual rule of thumb.
- OpenHands (software-agent-sdk 1.58, ``stuck_detector.py``): the same action with the same result
  four times; the same action with an error four times; two actions with their results in turn,
  three times each. Its monologue of messages, and the thoughts that it compares with actions, are
  not in a recording.
- Gemini CLI (0.61, ``loopDetectionService.ts``): a cycle of one to five calls, five times in a row.
  Its checks of streamed text and its question to a model are not in a recording.
- LoopBrake (0.6, ``signals.py``): its ``fixed`` rule, and its scores, of which 0.9 is left after a
  step. What it stops runs with is the calibrated number of steps: the score ``steps`` here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Final, NamedTuple

from tidegauge.streaming_metrics.declaration import StopKind


class GuardedCall(NamedTuple):
    """A call as guards see it.

    Attributes:
        arguments: its arguments as text.
        result: its result as text; ``None``, not observed.
        error: whether it failed; ``None``, not known.
    """

    name: str
    arguments: str
    result: str | None = None
    error: bool | None = None

    @property
    def action(self) -> str:
        """Name and arguments."""
        return f"{self.name} {self.arguments}"


class ForeignGuard(NamedTuple):
    """A guard of another project.

    Attributes:
        read: one number for each call, from the calls up to it.
        at_issue: whether it decides before the call runs, without its result.
        calibrated: whether its threshold is learned from successful runs; else it stops at 1.
        reads_words: whether it compares contents in another way than by equality, which a recording
            of digests does not allow.
        stops: why it ends runs.
    """

    name: str
    read: Callable[[Sequence[GuardedCall]], Sequence[float]]
    at_issue: bool = False
    calibrated: bool = False
    reads_words: bool = False
    stops: tuple[StopKind, ...] = ("waste",)


def _identical(calls: Sequence[GuardedCall], *, times: int) -> list[float]:
    return [
        float(number >= times)
        for _, group in groupby(calls, key=lambda call: call.action)
        for number, _ in enumerate(group, 1)
    ]


_OPENHANDS_SAME: Final = 4
_OPENHANDS_ERRORS: Final = 4  # it sends the model a message at 3, and stops at one more
_OPENHANDS_TURNS: Final = 6


def _openhands(calls: Sequence[GuardedCall]) -> list[float]:
    ends = range(1, len(calls) + 1)
    return [float(_openhands_stuck(calls[max(0, end - _OPENHANDS_TURNS) : end])) for end in ends]


def _openhands_stuck(calls: Sequence[GuardedCall]) -> bool:
    same = calls[-_OPENHANDS_SAME:]
    failing = calls[-_OPENHANDS_ERRORS:]
    turns = calls[-_OPENHANDS_TURNS:]
    return (
        (len(same) == _OPENHANDS_SAME and len(set(same)) == 1)
        or (
            len(failing) == _OPENHANDS_ERRORS
            and len({call.action for call in failing}) == 1
            and all(call.error for call in failing)
        )
        or (len(turns) == _OPENHANDS_TURNS and turns[2:] == turns[:-2])
    )


_GEMINI_ROUNDS: Final = 5
_GEMINI_PERIODS: Final = range(1, 6)


def _gemini_cli(calls: Sequence[GuardedCall]) -> list[float]:
    actions = [call.action for call in calls]
    ends = range(1, len(actions) + 1)
    return [
        float(any(_cycles(actions[:end], period) for period in _GEMINI_PERIODS)) for end in ends
    ]


def _cycles(actions: Sequence[str], period: int) -> bool:
    last = actions[-period * _GEMINI_ROUNDS :]
    return len(last) == period * _GEMINI_ROUNDS and last[period:] == last[:-period]


_LOOPBRAKE_SAME: Final = 3
_LOOPBRAKE_STEPS: Final = 21
_LOOPBRAKE_WINDOW: Final = 10
_LOOPBRAKE_FADING: Final = 0.9
"""How much of a score is left after a step; its explanations use it, too."""

_WORD: Final = re.compile(r"[a-z0-9_]+")
_DIGITS: Final = re.compile(r"\d+")
_ERROR_WORDS: Final = re.compile(r"error|exception|traceback|not found|no such file", re.IGNORECASE)
_MAX_ERROR: Final = 200


def _loopbrake_fixed(calls: Sequence[GuardedCall]) -> list[float]:
    return [
        float(count >= _LOOPBRAKE_SAME or step >= _LOOPBRAKE_STEPS)
        for step, count in enumerate(_times_seen(calls), 1)
    ]


def _loopbrake_exact(calls: Sequence[GuardedCall]) -> list[float]:
    highest, found = 0, []
    for count in _times_seen(calls):
        highest = max(highest, count)
        found.append(float(highest))
    return found


def _times_seen(calls: Sequence[GuardedCall]) -> Iterator[int]:
    seen: Counter[str] = Counter()
    for call in calls:
        seen[call.action] += 1
        yield seen[call.action]


def _repeating(calls: Sequence[GuardedCall]) -> list[float]:
    """The largest share of words in common with one of the ten calls before."""
    words = [frozenset(_WORD.findall(call.action.lower())) for call in calls]
    return [
        max(
            (
                len(own & other) / len(own | other)
                for other in words[max(0, index - _LOOPBRAKE_WINDOW) : index]
                if own | other
            ),
            default=0.0,
        )
        for index, own in enumerate(words)
    ]


def _nothing_new(calls: Sequence[GuardedCall]) -> list[float]:
    """The share of the result's lines that the run has seen, whatever their numbers are."""
    seen: set[str] = set()
    found = []
    for call in calls:
        lines = [line for line in map(_masked, (call.result or "").splitlines()) if line]
        new = sum(line not in seen for line in lines)
        seen.update(lines)
        found.append(1 - new / len(lines) if lines else 0.0)
    return found


def _same_error(calls: Sequence[GuardedCall]) -> list[float]:
    """1 if the call fails with a last line that was the last line of a failure before."""
    seen: set[str] = set()
    found = []
    for call in calls:
        lines = [line for line in (call.result or "").splitlines() if line.strip()]
        last = lines[-1] if lines else ""
        failed = bool(_ERROR_WORDS.search(last)) if call.error is None else call.error
        mark = _masked(last)[:_MAX_ERROR]
        found.append(float(failed and mark in seen))
        if failed:
            seen.add(mark)
    return found


def _masked(line: str) -> str:
    return _DIGITS.sub("0", " ".join(line.split()))


_LOOPBRAKE_SCORES: Final[Mapping[str, Callable[[float, float, float], float]]] = MappingProxyType(
    {
        "fuzzy": lambda repeating, stale, error: repeating,
        "stale": lambda repeating, stale, error: stale,
        "errors": lambda repeating, stale, error: error,
        "mean": lambda repeating, stale, error: (repeating + stale + error) / 3,
        "max": max,
        "loop": lambda repeating, stale, error: repeating * stale,
    }
)


def loopbrake_score(
    calls: Sequence[GuardedCall], name: str, fading: float = _LOOPBRAKE_FADING
) -> list[float]:
    """A score of LoopBrake: its signal, added up over the calls, of which older ones fade.

    Args:
        name: ``fuzzy``, ``stale``, ``errors``, ``mean``, ``max`` or ``loop``.
        fading: how much of the score is left after a call (its ``lam``).

    >>> loopbrake_score([GuardedCall("ls", "{}", "a"), GuardedCall("ls", "{}", "a")], "loop")
    [0.0, 1.0]
    """
    combine = _LOOPBRAKE_SCORES[name]
    score, found = 0.0, []
    for parts in zip(_repeating(calls), _nothing_new(calls), _same_error(calls), strict=True):
        score = fading * score + combine(*parts)
        found.append(score)
    return found


FOREIGN_GUARDS: Final[Mapping[str, ForeignGuard]] = MappingProxyType(
    {
        guard.name: guard
        for guard in (
            ForeignGuard("identical_3", partial(_identical, times=3), at_issue=True),
            ForeignGuard("identical_5", partial(_identical, times=5), at_issue=True),
            ForeignGuard("openhands", _openhands),
            ForeignGuard("gemini_cli", _gemini_cli, at_issue=True),
            ForeignGuard("loopbrake_fixed", _loopbrake_fixed, stops=("waste", "lost cause")),
            ForeignGuard("loopbrake_exact", _loopbrake_exact, calibrated=True),
            *(
                ForeignGuard(
                    f"loopbrake_{name}",
                    partial(loopbrake_score, name=name),
                    calibrated=True,
                    reads_words=True,
                )
                for name in _LOOPBRAKE_SCORES
            ),
        )
    }
)
"""Every guard by its name."""
