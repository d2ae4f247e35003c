"""Budgets: how much runs, conversations and agents may spend, and what has been spent."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias, get_args

from tidegauge.errors import ConfigurationError
from tidegauge.events import ModelUsage, RunStarted
from tidegauge.policies.prices import DOLLAR
from tidegauge.policies.rule import ACTIONS, PolicyAction
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.settings import shown

Spendable: TypeAlias = Literal[
    "usd",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "seconds",
    "calls",
]
Per: TypeAlias = Literal["run", "conversation", "agent"]
Count: TypeAlias = "int | tuple[tuple[int, int], ...]"
"""What was spent: a sum, or the sums of the parts of a window, each with its number."""

KINDS: Final[tuple[str, ...]] = get_args(Spendable)
_PERS: Final[tuple[str, ...]] = get_args(Per)
_SECOND: Final = 10**6
_SCALES: Final = {"usd": DOLLAR, "seconds": _SECOND}
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_PARTS: Final = 60
_MAX_SCOPES: Final = 10_000
_MAX_DEPTH: Final = 32
_NOTHING: Final[Mapping[str, int]] = {}
_MAX_AMOUNT: Final = 10**9 * DOLLAR


@dataclass(frozen=True, slots=True)
class Budget:
    """How much may be spent, and what happens at its end.

    It is asked at the end of every model call and before every call of a tool, so it is exceeded
    by what is under way then; a budget of calls is not exceeded.

    Args:
        kind: ``usd``, ``tokens`` (of both directions), ``input_tokens``, ``output_tokens``,
            ``cache_read_tokens``, ``cache_write_tokens``, ``reasoning_tokens``, ``seconds`` or
            ``calls`` (of tools).
        limit: how much of it.
        per: whose budget it is: of a ``run`` with all runs inside it, of a ``conversation``, or of
            all runs of an ``agent`` of this process. A run in no conversation is its own.
        window: the time in which so much may be spent, such as ``"1h"`` or seconds; ``None``, all
            the time. It moves on in 60 parts.
        action: what happens when it is used up: ``observe`` counts what would have been stopped;
            ``nudge`` informs the model; ``block`` answers calls instead of running them; ``stop``
            ends the run.
        agent: the agent whose runs it is for; ``None``, all.
        tool: the tool whose calls it is for; ``None``, all.
        nudge_at: share of it at which the model is informed of what is left; 0, never.

    Raises:
        ConfigurationError: a value is not valid.
    """

    kind: Spendable
    limit: float
    per: Per = "run"
    window: str | float | None = None
    action: PolicyAction = "stop"
    agent: str | None = None
    tool: str | None = None
    nudge_at: float = 0.8

    def __post_init__(self) -> None:
        for name, value, known in (
            ("kind", self.kind, KINDS),
            ("per", self.per, _PERS),
            ("action", self.action, ACTIONS),
        ):
            if value not in known:
                raise ConfigurationError(
                    f"the {name} of a budget is {shown(value)}; use one of {', '.join(known)}"
                )
        limit = self.limit
        if (
            isinstance(limit, bool)
            or not isinstance(limit, int | float)
            or not 0 < limit < math.inf
            or (self.kind not in _SCALES and limit != int(limit))
        ):
            number = "a number above 0" if self.kind in _SCALES else "a whole number above 0"
            raise ConfigurationError(f"a budget of {self.kind} is {shown(limit)}; use {number}")
        if self.tool is not None and self.kind != "calls":
            raise ConfigurationError(
                f"a budget of {self.kind} has a tool; only a budget of calls has one"
            )
        for name, text in (("tool", self.tool), ("agent", self.agent)):
            if text is not None and not isinstance(text, str):
                raise ConfigurationError(f"the {name} of a budget is {shown(text)}; use a name")
        share = self.nudge_at
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < 1:
            raise ConfigurationError(
                f"nudge_at of a budget is {shown(share)}; use 0 or more, but less than 1"
            )
        if self.window_seconds and (self.kind, self.per) == ("seconds", "run"):
            raise ConfigurationError("a budget of seconds of one run has a window; remove it")

    @property
    def window_seconds(self) -> float | None:
        """The window in seconds.

        >>> Budget("usd", 50, per="agent", window="1h").window_seconds
        3600.0
        """
        given = self.window
        if given is None:
            return None
        seconds = math.nan
        if isinstance(given, str):
            number, unit = given[:-1], given[-1:]
            if unit in _UNITS and number.replace(".", "", 1).isdecimal():
                seconds = float(number) * _UNITS[unit]
        elif isinstance(given, int | float) and not isinstance(given, bool):
            seconds = float(given)
        if not 0 < seconds < math.inf:
            raise ConfigurationError(
                f"the window of a budget is {shown(given)}; use a time such as 30s, 10m, 1h or 1d"
            )
        return seconds

    @property
    def reason(self) -> str:
        """Its name as the reason of a decision."""
        return f"budget_{self.kind}"

    @property
    def units(self) -> int:
        """The limit in the whole parts that are counted."""
        return round(self.limit * _SCALES.get(self.kind, 1))

    def observing(self) -> Budget:
        """The same budget, which only counts what it would have stopped."""
        return replace(self, action="observe")

    def text(self, units: int) -> str:
        """An amount in words.

        >>> Budget("usd", 2.0).text(DOLLAR // 2), Budget("calls", 50, tool="search").text(1)
        ('$0.50', '1 call of search')
        """
        if self.kind == "usd":
            dollars = units / DOLLAR
            return f"${dollars:,.2f}" if dollars >= 0.01 or not units else f"${dollars:.3g}"
        amount = units / _SCALES[self.kind] if self.kind in _SCALES else units
        what = self.kind.replace("_", " ")
        if amount == 1:
            what = what.removesuffix("s")
        of_tool = f" of {self.tool}" if self.tool is not None else ""
        number = f"{amount:,.0f}" if amount >= 10 or amount == int(amount) else f"{amount:.2g}"
        return f"{number} {what}{of_tool}"

    def __str__(self) -> str:
        whose = {"run": "this run", "conversation": "this conversation", "agent": "this agent"}
        window = f" in {_time(self.window_seconds)}" if self.window_seconds else ""
        return f"the budget of {self.text(self.units)}{window} for {whose[self.per]}"


def _time(seconds: float) -> str:
    for unit, length in reversed(_UNITS.items()):
        if seconds % length == 0:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:g}s"


class Spender(Protocol):
    """What a run has spent, which its policy's state holds.

    Attributes:
        spent: by the names of the meters. It is replaced, never changed, so that it can be saved
            while another thread counts.
        around: the run around it, and its state; ``None``, there is none.
        began: since when it works, in seconds since the epoch; ``None``, it waits for a person.
        worked: seconds that it worked before.
        counted: how many of its seconds others have counted, in parts.
    """

    spent: dict[str, Count]
    around: tuple[RunStarted, Spender] | None
    began: float | None
    worked: float
    counted: int


class UsedBudget(NamedTuple):
    """A budget that is used up, or nearly.

    Attributes:
        budget: the budget.
        used: how much of it is used, in its units.
        over: whether it is used up.
    """

    budget: Budget
    used: int
    over: bool

    @property
    def name(self) -> str:
        """What the model is informed of once."""
        return f"{self.budget!r} {'over' if self.over else 'near'}"

    @property
    def message(self) -> str:
        """What happened, in a sentence for logs and people."""
        budget = self.budget
        if self.over:
            return f"{budget} is used up: {budget.text(self.used)}"
        return f"{budget} is nearly used up: {self._left} left"

    @property
    def _left(self) -> str:
        return self.budget.text(max(self.budget.units - self.used, 0))

    def advice(self, *, blocked: bool) -> str:
        """The same for the model."""
        if not self.over:
            return f"T{self.message[1:]}. Finish with what you have."
        end = "Use what you have, or finish and say what is missing."
        text = f"{self.budget} is used up"
        return f"This call was not run: {text}. {end}" if blocked else f"T{text[1:]}. {end}"


class _Meter(NamedTuple):
    """What is counted for all budgets of one kind: it outlives a change of the limit."""

    name: str
    kind: str
    per: str
    width: float | None
    agent: str | None
    tool: str | None

    @classmethod
    def of(cls, budget: Budget) -> _Meter:
        window = budget.window_seconds
        fields = (budget.kind, budget.per, window and window / _PARTS, budget.agent, budget.tool)
        return cls("|".join(map(str, fields)), *fields)

    def calls(self, names: Sequence[str]) -> int:
        return len(names) if self.tool is None else names.count(self.tool)

    def added(self, count: Count, amount: int, now: float) -> Count:
        if self.width is None:
            return (count if isinstance(count, int) else 0) + amount
        part = int(now // self.width)
        kept = [one for one in count if one[0] >= part - _PARTS] if count else []  # type: ignore[union-attr]
        if kept and kept[-1][0] >= part:  # also if the clock went back
            kept[-1] = (kept[-1][0], kept[-1][1] + amount)
        else:
            kept.append((part, amount))
        return tuple(kept)

    def total(self, count: Count, now: float) -> int:
        if isinstance(count, int):
            return count
        first = int(now // (self.width or 1)) - _PARTS
        return sum([amount for part, amount in count if part >= first])


class LiveBudgets:
    """What was spent, and the budgets that are used up. Thread-safe; memory for 10,000 scopes.

    What a run has spent is in the state of its policy, which is saved with the run. What runs share
    is here: of more than 10,000 conversations and agents, the one unused for longest is forgotten.

    Attributes:
        spent: of all model calls, by kind.
        changed: whether what runs share has changed since :meth:`state` was called.
    """

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._budgets = [
            (budget, _Meter.of(budget), budget.units, budget.nudge_at * budget.units)
            for budget in budgets
        ]
        self._meters = list({meter.name: meter for _, meter, *_ in self._budgets}.values())
        self._of_time = [one for one in self._meters if one.kind == "seconds" and one.per != "run"]
        self._shared: OrderedDict[tuple[str, str], Count] = OrderedDict()
        self.spent: dict[str, int] = {}
        self.changed = False
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()

    @property
    def kinds(self) -> frozenset[str]:
        """What is counted."""
        return frozenset(meter.kind for meter in self._meters)

    def asked(
        self,
        run: RunStarted,
        state: Spender,
        now: float,
        *,
        amounts: Mapping[str, int] = _NOTHING,
        names: Sequence[str] = (),
        refusing: Collection[str] = (),
    ) -> list[UsedBudget]:
        """The budgets that are used up, or nearly, the most severe action first.

        Args:
            run: the run.
            state: what it has spent.
            now: seconds since the epoch.
            amounts: what it has spent since, by kind.
            names: the tools that it is about to call. They count at once, unless they are refused.
            refusing: the actions that refuse them.
        """
        found: list[UsedBudget] = []
        with here.critical, self._lock:
            if amounts:
                spent = self.spent
                for kind, amount in amounts.items():
                    spent[kind] = spent.get(kind, 0) + amount
                for meter in self._meters:
                    if amount := amounts.get(meter.kind, 0):
                        self._add(meter, run, state, amount, now)
            if self._of_time:
                self._count_time(run, state, now)
            for budget, meter, limit, near in self._budgets:
                if budget.agent is not None and not _is_of(budget.agent, run, state):
                    continue
                coming = 0
                if meter.kind == "calls":
                    coming = meter.calls(names)
                    if not coming:
                        continue
                used = self._used(meter, run, state, now) + coming
                over = used > limit if coming else used >= limit
                if over or (near and used >= near):
                    found.append(UsedBudget(budget, used - coming if over else used, over))
            if found:
                found.sort(key=_severity, reverse=True)
            if names and not [x for x in found if x.over and x.budget.action in refusing]:
                self._add_calls(run, state, names, 1, now)
        return found

    def give_back(self, run: RunStarted, state: Spender, names: Sequence[str], now: float) -> None:
        """Calls that counted are not run."""
        with here.critical, self._lock:
            self._add_calls(run, state, names, -1, now)

    def state(self) -> list[Any]:
        """What runs share, as plain data."""
        with here.critical, self._lock:
            self.changed = False
            return [[*key, count] for key, count in self._shared.items()]

    def load(self, state: Iterable[Any]) -> None:
        """Add what was shared before a restart.

        Raises:
            TypeError, ValueError: the state has another form.
        """
        loaded: OrderedDict[tuple[str, str], Count] = OrderedDict()
        for meter, scope, count in state:
            parts = (
                [(int(part), int(amount)) for part, amount in count]
                if (isinstance(count, list))
                else int(count)
            )
            loaded[str(meter), str(scope)] = tuple(parts) if isinstance(parts, list) else parts
        with here.critical, self._lock:
            self._shared = loaded

    def _add_calls(
        self, run: RunStarted, state: Spender, names: Sequence[str], sign: int, now: float
    ) -> None:
        for meter in self._meters:
            if meter.kind == "calls" and (calls := meter.calls(names)):
                self._add(meter, run, state, sign * calls, now)

    def _count_time(self, run: RunStarted, state: Spender, now: float) -> None:
        """Seconds of runs inside others are those of the others, too: they count once."""
        worked = elapsed(state, now)
        new, state.counted = worked - state.counted, worked
        if new > 0 and state.around is None:
            for meter in self._meters:
                if meter.kind == "seconds" and meter.per != "run":
                    self._add(meter, run, state, new, now)

    def _add(self, meter: _Meter, run: RunStarted, state: Spender, amount: int, now: float) -> None:
        name = meter.name
        if state.around is None and meter.agent is None and meter.per == "run":  # as nearly always
            state.spent = {
                **state.spent,
                name: meter.added(state.spent.get(name, 0), amount, now),
            }
            return
        if meter.per != "run":
            if meter.agent is None or _is_of(meter.agent, run, state):
                key = (name, _scope(meter, run, state))
                self._shared[key] = meter.added(self._shared.pop(key, 0), amount, now)
                if len(self._shared) > _MAX_SCOPES:
                    self._shared.popitem(last=False)
                self.changed = True
            return
        for started, one in _chain(run, state):
            if meter.agent is None or started.agent == meter.agent:
                before = one.spent.get(name, 0)
                one.spent = {**one.spent, name: meter.added(before, amount, now)}

    def _used(self, meter: _Meter, run: RunStarted, state: Spender, now: float) -> int:
        if meter.per != "run":
            count = self._shared.get((meter.name, _scope(meter, run, state)), 0)
            return meter.total(count, now)
        if state.around is None:
            if meter.kind == "seconds":
                return elapsed(state, now)
            return meter.total(state.spent.get(meter.name, 0), now)
        used = [
            elapsed(one, now)
            if meter.kind == "seconds"
            else meter.total(one.spent.get(meter.name, 0), now)
            for started, one in _chain(run, state)
            if meter.agent is None or started.agent == meter.agent
        ]
        return max(used, default=0)


def elapsed(state: Spender, now: float) -> int:
    """How long a run has worked, in parts of a second."""
    working = 0.0 if state.began is None else max(now - state.began, 0.0)
    return round((state.worked + working) * _SECOND)


def amounts_of(usage: ModelUsage, cost: int | None) -> dict[str, int]:
    """What a model call has used, by kind; what is not known is left out.

    >>> amounts_of(ModelUsage(None, 7, 3), None)
    {'tokens': 10, 'input_tokens': 7, 'output_tokens': 3}
    """
    counts = (cost, usage.total, *usage[1:6])
    return {
        kind: amount
        for kind, amount in zip(KINDS, counts, strict=False)
        if amount is not None and 0 <= amount <= _MAX_AMOUNT
    }


def _severity(verdict: UsedBudget) -> int:
    """Of one that is only near its end, less than of any other."""
    return ACTIONS.index(verdict.budget.action) + 10 * verdict.over


def _chain(run: RunStarted, state: Spender) -> Iterator[tuple[RunStarted, Spender]]:
    """A run and those around it, innermost first; a wrong id cannot make a circle of them."""
    seen: list[Spender] = []
    around: tuple[RunStarted, Spender] | None = (run, state)
    while around is not None and len(seen) < _MAX_DEPTH and around[1] not in seen:
        seen.append(around[1])
        yield around
        around = around[1].around


def _is_of(agent: str, run: RunStarted, state: Spender) -> bool:
    return any(started.agent == agent for started, _ in _chain(run, state))


def _scope(meter: _Meter, run: RunStarted, state: Spender) -> str:
    """Whose count it is: an agent, a conversation, or the outermost run if there is none."""
    if meter.per == "agent":
        return meter.agent or run.agent
    outermost = run
    for started, _ in _chain(run, state):
        if started.conversation is not None:
            return started.conversation
        outermost = started
    return outermost.run
