"""The file of a policy: rules that people set and lines that were learned, in TOML.

::

    format = 1
    calibrated = 2026-11-22T09:00:00Z
    holdout = 0.1                       # of the runs, in which lines are only observed

    [[rule]]
    signal = "loop_repeats"
    threshold = 3
    rung = "nudge"

    [[line]]
    score = "stagnation"
    score_version = 1
    agent = "browser"
    task_group = "shopping"
    above = 31.5
    rung = "observe"                    # or "nudge", or "stop"
    runs = 120
    alpha = 0.05
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.policies.line import Line
from tidegauge.policies.policy import Policy
from tidegauge.policies.rule import Rule
from tidegauge.policies.scores import SCORES

__all__ = ["FORMAT", "PolicyFile", "read_policy", "run_mark", "write_policy"]

FORMAT: Final = 1
"""Of the file; one of another format is refused."""

_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_INTEGER: Final = (1 << 63) - 1  # TOML has no larger ones
_TOP: Final = {"format", "calibrated", "holdout", "calibrated_on", "rule", "line"}
_RULE: Final = {"signal", "threshold", "rung", "agent", "tool"}
_LINE: Final = {"score", "score_version", "agent", "task_group", "above", "rung", "runs", "alpha"}


class PolicyFile(NamedTuple):
    """What a policy's file says.

    Attributes:
        rules: rules that people set.
        lines: lines that were learned.
        holdout: share of the runs in which lines are only observed.
        calibrated: when the lines were learned, seconds since the epoch; ``None``, not told.
        calibrated_on: marks of the runs that they were learned from, see :func:`run_mark`.
    """

    rules: tuple[Rule, ...] = ()
    lines: tuple[Line, ...] = ()
    holdout: float = 0.0
    calibrated: float | None = None
    calibrated_on: frozenset[str] = frozenset()

    def policy(self, rules: Iterable[Rule] = ()) -> Policy:
        """The policy of this file, with further rules."""
        return Policy((*rules, *self.rules), lines=self.lines, holdout=self.holdout)


def run_mark(run: str) -> str:
    """What stands for a run in the list of those that lines were learned from.

    >>> run_mark("r1")
    '5d5abf15'
    """
    return f"{xxhash.xxh32_intdigest(run.encode('utf-8', 'surrogatepass')):08x}"


def read_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Read a policy's file.

    Raises:
        ConfigurationError: it cannot be read, is no such file, is of another format, or holds a
            line of a score that is reckoned in another way now. One line says which.
    """
    import tomllib  # only those who have such a file pay for it

    name = os.fspath(path)
    try:
        with open(path, "rb", opener=_without_waiting) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise OSError("it is no regular file: give the path of a policy's TOML file")
            content = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"policy {name}: {error.strerror or error}") from error
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(f"policy {name}: more than {_MAX_BYTES >> 20} MiB")
    try:
        return _read(tomllib.loads(content.decode()))
    except ConfigurationError as error:
        raise ConfigurationError(f"policy {name}: {error}") from error
    except (ValueError, RecursionError) as error:  # also of bytes, dates and digits
        raise ConfigurationError(f"policy {name}: no TOML: {error}") from error


def _without_waiting(path: str, flags: int) -> int:
    """An opener for ``open()`` that returns at once, also of a pipe that nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_policy(policy: PolicyFile, *, comment: str = "") -> str:
    """The text of a policy's file.

    >>> print(write_policy(PolicyFile(lines=(Line("steps", 30, "stop", agent="browser"),))))
    format = 1
    <BLANKLINE>
    [[line]]
    score = "steps"
    score_version = 1
    agent = "browser"
    above = 30
    rung = "stop"
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
        told = {name: getattr(rule, name) for name in ("signal", "threshold", "rung")}
        parts.append("[[rule]]\n" + _table({**told, "agent": rule.agent, "tool": rule.tool}))
    for line in policy.lines:
        told = {
            "score": line.score,
            "score_version": SCORES[line.score].version,
            "agent": line.agent,
            "task_group": line.task_group,
            "above": line.above,
            "rung": line.rung,
            "runs": line.runs or None,
            "alpha": line.alpha,
        }
        parts.append("[[line]]\n" + _table(told))
    return "\n".join(part for part in parts if part)


def _read(data: Mapping[str, Any]) -> PolicyFile:
    _known(data, _TOP, "the file")
    if data.get("format") != FORMAT:
        raise ConfigurationError(
            f"format {data.get('format')!r}, where this version reads {FORMAT}: calibrate anew"
        )
    when = data.get("calibrated")
    if when is not None and not isinstance(when, datetime):
        raise ConfigurationError("calibrated is to be a date with a time")
    calibrated = None
    if when is not None:
        calibrated = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    marks = data.get("calibrated_on", [])
    if not isinstance(marks, list) or not all(isinstance(mark, str) for mark in marks):
        raise ConfigurationError("calibrated_on is to be a list of strings")
    found = PolicyFile(
        tuple([_rule(item) for item in _tables(data, "rule")]),
        tuple([_line(item, calibrated) for item in _tables(data, "line")]),
        _number(data, "holdout", 0.0),
        calibrated,
        frozenset(marks),
    )
    found.policy()  # says what does not go together
    return found


def _rule(item: Mapping[str, Any]) -> Rule:
    _known(item, _RULE, "a rule")
    return Rule(
        _text(item, "signal", required=True),  # type: ignore[arg-type]
        _number(item, "threshold"),
        _text(item, "rung") or "observe",  # type: ignore[arg-type]
        agent=_text(item, "agent"),
        tool=_text(item, "tool"),
    )


def _line(item: Mapping[str, Any], calibrated: float | None) -> Line:
    _known(item, _LINE, "a line")
    name = _text(item, "score", required=True) or ""
    alpha = item.get("alpha")
    line = Line(
        name,
        _number(item, "above"),
        _text(item, "rung") or "observe",  # type: ignore[arg-type]
        agent=_text(item, "agent"),
        task_group=_text(item, "task_group"),
        runs=_count(item, "runs"),
        alpha=None if alpha is None else _number(item, "alpha"),
        calibrated=calibrated,
    )
    version = item.get("score_version", SCORES[name].version)
    if version != SCORES[name].version:
        raise ConfigurationError(
            f"{name} of version {version!r}, where this version reckons {SCORES[name].version}: "
            "calibrate anew"
        )
    return line


def _tables(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = data.get(name, [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ConfigurationError(f"{name} is to be a list of tables: [[{name}]]")
    return listed


def _known(data: Mapping[str, Any], names: Iterable[str], where: str) -> None:
    for name in data:
        if name not in names:
            raise ConfigurationError(f"{where} has no {name!r}")


def _text(data: Mapping[str, Any], name: str, *, required: bool = False) -> str | None:
    value = data.get(name)
    if (value is None and not required) or isinstance(value, str):
        return value
    raise ConfigurationError(f"{name} is missing" if value is None else f"{name} is to be a string")


def _number(data: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = data.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(
            f"{name} is missing" if value is None else f"{name} is to be a number"
        )
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        raise ConfigurationError(f"{name} is too large")
    return value


def _count(data: Mapping[str, Any], name: str) -> int:
    value = _number(data, name, 0)
    if not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"{name} is to be a whole number, at least 0")
    return value


def _table(values: Mapping[str, Any]) -> str:
    return "".join(
        f"{name} = {_value(value)}\n" for name, value in values.items() if value is not None
    )


def _value(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float):
        return repr(float(value))  # every digit, also of numpy's: the same line is read again
    # Strings and lists of strings have one form in JSON and in TOML, which wants DEL escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
