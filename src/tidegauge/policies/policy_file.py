"""The file of a policy: rules that people set and thresholds that were learned, in TOML.

::

    format = 2
    calibrated = 2026-11-22T09:00:00Z
    holdout = 0.1                       # of the runs, in which thresholds are only observed

    [[rule]]
    signal = "loop_repeats"
    threshold = 3
    action = "nudge"

    [[budget]]
    kind = "usd"
    limit = 2.0
    per = "run"                           # or "conversation", or "agent"
    window = "1h"                         # without one: all the time
    action = "stop"                       # or "observe", "nudge", "block"

    [[breaker]]
    tool = "search"
    failures = 5                          # of its last calls
    calls = 10
    seconds = 60

    [[threshold]]
    score = "stagnation"                  # or "learned", with file = "score.json"
    score_version = 1
    agent = "browser"
    task_group = "shopping"
    threshold = 31.5
    action = "observe"                    # or "nudge", or "stop"
    runs = 120
    alpha = 0.05
    agents = ["browser"]                  # without an agent: those that it was learned on
    scores = [3, 4.5, 7]                  # that it was learned from, to see whether they change
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.fields import (
    FieldError,
    Fields,
    content_of,
    missing,
    number,
    text,
    text_or_none,
    texts,
    whole,
    wrong,
)
from tidegauge.policies.breaker import Breaker
from tidegauge.policies.budget import Budget
from tidegauge.policies.learned_score import LearnedScore, read_score
from tidegauge.policies.policy import Policy
from tidegauge.policies.prices import Prices
from tidegauge.policies.rule import Rule
from tidegauge.policies.thresholds import Threshold

FORMAT: Final = 2
"""Format of the file; others are rejected. In format 1, a loop was what TIDE calls one."""

_MAX_MEGABYTES: Final = 16
_MAX_INTEGER: Final = (1 << 63) - 1  # TOML has no larger ones
_TOP: Final = {
    "format",
    "calibrated",
    "holdout",
    "calibrated_on",
    "rule",
    "budget",
    "breaker",
    "threshold",
}
_RULE: Final = {"signal", "threshold", "action", "agent", "tool", "share"}
_BUDGET: Final = tuple(field.name for field in fields(Budget))
_BREAKER: Final = tuple(field.name for field in fields(Breaker))
_THRESHOLD: Final = {
    "score",
    "score_version",
    "file",
    "agent",
    "task_group",
    "threshold",
    "action",
    "runs",
    "alpha",
    "agents",
    "task_groups",
    "scores",
}


class PolicyFile(NamedTuple):
    """The contents of a policy's file.

    Attributes:
        holdout: share of the runs in which thresholds are only observed.
        calibrated: when the thresholds were learned, seconds since the epoch; ``None``, unknown.
        calibrated_on: marks of the runs they were learned from, see :func:`run_mark`.
        budgets: how much may be spent.
        breakers: which tools are left alone when they fail.
    """

    rules: tuple[Rule, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    holdout: float = 0.0
    calibrated: float | None = None
    calibrated_on: frozenset[str] = frozenset()
    budgets: tuple[Budget, ...] = ()
    breakers: tuple[Breaker, ...] = ()

    def policy(
        self,
        rules: Iterable[Rule] = (),
        *,
        budgets: Iterable[Budget] = (),
        breakers: Iterable[Breaker] = (),
        prices: Prices | None = None,
    ) -> Policy:
        """The policy of this file, with further rules, budgets and breakers."""
        return Policy(
            (*rules, *self.rules),
            thresholds=self.thresholds,
            holdout=self.holdout,
            budgets=(*budgets, *self.budgets),
            breakers=(*breakers, *self.breakers),
            prices=prices,
        )


def run_mark(run: str) -> str:
    """The mark of a run in the list of runs that thresholds were learned from.

    >>> run_mark("r1")
    '5d5abf15'
    """
    return f"{xxhash.xxh32_intdigest(run.encode('utf-8', 'surrogatepass')):08x}"


def read_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Read a policy's file.

    Raises:
        ConfigurationError: the file cannot be read, is not a policy, has another format, or has a
            threshold of a score whose computation has changed.
    """
    import tomllib  # imported only when a file is read

    name = os.fspath(path)
    content = content_of(path, "policy", megabytes=_MAX_MEGABYTES)
    try:
        return _read(tomllib.loads(content.decode()), os.path.dirname(name))
    except (ConfigurationError, FieldError) as error:
        raise ConfigurationError(f"policy {name}: {error}") from error
    except (ValueError, RecursionError) as error:  # also of bytes, dates and digits
        raise ConfigurationError(f"policy {name}: not valid TOML: {error}") from error


def write_policy(policy: PolicyFile, *, comment: str = "", folder: str = "") -> str:
    """The text of a policy's file.

    Args:
        folder: where it is written: files of learned scores are named from there.

    >>> print(write_policy(PolicyFile((), (Threshold("steps", 30, "stop", agent="browser"),))))
    format = 2
    <BLANKLINE>
    [[threshold]]
    score = "steps"
    score_version = 1
    agent = "browser"
    threshold = 30
    action = "stop"
    <BLANKLINE>
    """
    parts = ["".join(f"# {line}\n" for line in comment.splitlines())]
    top: dict[str, Any] = {"format": FORMAT}
    if policy.calibrated is not None:
        top["calibrated"] = datetime.fromtimestamp(policy.calibrated, UTC).replace(microsecond=0)
    if policy.holdout:
        top["holdout"] = policy.holdout
    if policy.calibrated_on:
        top["calibrated_on"] = sorted(policy.calibrated_on)
    parts.append(_table(top))
    for rule in policy.rules:
        shown = {name: getattr(rule, name) for name in ("signal", "threshold", "action")}
        shown |= {"agent": rule.agent, "tool": rule.tool}
        shown["share"] = None if rule.share == 1 else rule.share
        parts.append("[[rule]]\n" + _table(shown))
    for name, limits in (("budget", policy.budgets), ("breaker", policy.breakers)):
        parts += [f"[[{name}]]\n" + _table(_given(one)) for one in limits]
    for threshold in policy.thresholds:
        shown = {
            "score": threshold.score,
            "score_version": threshold.measures.version,
            "file": None
            if threshold.learned is None
            else os.path.relpath(threshold.learned.path, folder or os.curdir),
            "agent": threshold.agent,
            "task_group": threshold.task_group,
            "threshold": threshold.threshold,
            "action": threshold.action,
            "runs": threshold.runs or None,
            "alpha": threshold.alpha,
            "agents": list(threshold.agents) or None,
            "task_groups": list(threshold.task_groups) or None,
            "scores": list(threshold.scores) or None,
        }
        parts.append("[[threshold]]\n" + _table(shown))
    return "\n".join(part for part in parts if part)


def _read(data: Fields, folder: str) -> PolicyFile:
    _known(data, _TOP, "the file")
    if data.get("format") != FORMAT:
        raise ConfigurationError(
            f"format {data.get('format')!r} is not supported; "
            f"use format {FORMAT}, or calibrate again"
        )
    when = data.get("calibrated")
    if when is not None and not isinstance(when, datetime):
        raise ConfigurationError(
            "calibrated is not a date with a time; use one such as 2026-11-22T09:00:00Z"
        )
    calibrated = None
    if when is not None:
        calibrated = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    scores = _Scores(folder)
    found = PolicyFile(
        tuple([_rule(item) for item in _tables(data, "rule")]),
        tuple([_threshold(item, calibrated, scores) for item in _tables(data, "threshold")]),
        _number(data, "holdout", 0.0),
        calibrated,
        frozenset(texts(data, "calibrated_on")),
        tuple([_budget(item) for item in _tables(data, "budget")]),
        tuple([_breaker(item) for item in _tables(data, "breaker")]),
    )
    found.policy()  # raises if rules or thresholds contradict
    return found


def _rule(item: Fields) -> Rule:
    _known(item, _RULE, "a rule")
    return Rule(
        text(item, "signal"),
        _number(item, "threshold"),
        text_or_none(item, "action") or "observe",  # type: ignore[arg-type]
        agent=text_or_none(item, "agent"),
        tool=text_or_none(item, "tool"),
        share=_number(item, "share", 1.0),
    )


def _budget(item: Fields) -> Budget:
    _known(item, _BUDGET, "a budget")
    text(item, "kind")
    _number(item, "limit")
    return Budget(**item)


def _breaker(item: Fields) -> Breaker:
    _known(item, _BREAKER, "a breaker")
    text_or_none(item, "tool")
    return Breaker(**item)


def _given(one: Budget | Breaker) -> dict[str, Any]:
    """The fields of a budget or a breaker that are not the default."""
    return {
        field.name: value
        for field in fields(one)
        if (value := getattr(one, field.name)) != field.default
    }


class _Scores:
    """The learned scores of a policy, each file read once."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read: dict[str, LearnedScore] = {}

    def of(self, file: str | None) -> LearnedScore | None:
        if file is None:
            return None
        if file not in self._read:
            self._read[file] = read_score(os.path.join(self._folder, file))
        return self._read[file]


def _threshold(item: Fields, calibrated: float | None, learned: _Scores) -> Threshold:
    _known(item, _THRESHOLD, "a threshold")
    name = text(item, "score")
    alpha = item.get("alpha")
    threshold = Threshold(
        name,
        _number(item, "threshold"),
        text_or_none(item, "action") or "observe",  # type: ignore[arg-type]
        agent=text_or_none(item, "agent"),
        task_group=text_or_none(item, "task_group"),
        runs=whole(item, "runs") or 0,
        alpha=None if alpha is None else _number(item, "alpha"),
        calibrated=calibrated,
        agents=texts(item, "agents"),
        task_groups=texts(item, "task_groups"),
        scores=_numbers(item, "scores"),
        learned=learned.of(text_or_none(item, "file")),
    )
    version = item.get("score_version", threshold.measures.version)
    if version != threshold.measures.version:
        raise ConfigurationError(
            f"score_version of {name} is {version!r}, but this tidegauge computes version "
            f"{threshold.measures.version}; calibrate again"
        )
    return threshold


def _tables(data: Fields, name: str) -> list[Fields]:
    listed = data.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise wrong(name, f"a list of tables: [[{name}]]", listed)
    return listed


def _known(data: Fields, names: Iterable[str], where: str) -> None:
    for name in data:
        if name not in names:
            raise ConfigurationError(
                f"{where} has the unknown key {name!r}; use {', '.join(sorted(names))}"
            )


def _numbers(data: Fields, name: str) -> tuple[float, ...]:
    listed = data.get(name, [])
    if not isinstance(listed, list):
        raise wrong(name, "a list of numbers", listed)
    return tuple(sorted(_number({name: one}, name) for one in listed))


def _number(data: Fields, name: str, default: float | None = None) -> float:
    value = number(data, name)
    value = default if value is None else value
    if value is None:
        raise missing(name)
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise FieldError(f"{name} is too large")
    return value


def _table(values: Mapping[str, Any]) -> str:
    return "".join(
        f"{name} = {_value(value)}\n" for name, value in values.items() if value is not None
    )


def _value(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        # All digits, and no numpy type, so that the same threshold is read back.
        return repr(float(value))
    # Strings and lists of strings have one form in JSON and in TOML, which wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
