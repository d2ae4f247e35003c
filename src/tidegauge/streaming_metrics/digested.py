"""Digesting events: converts what an adapter reports to plain data, before any lock is taken.

User code (a normaliser, a tool's ``key=``) may run here, and user values are read here. The result
contains only digests, numbers and plain identities, so that no user object is called, compared or
freed while the locks of a run are held.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tidegauge.events import (
    ABSENT,
    Absent,
    Answer,
    Call,
    Identity,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    Task,
    ToolDeclaration,
    made,
)
from tidegauge.safety.guard import arrived_from_outside, internal_errors
from tidegauge.streaming_metrics.clues import (
    CallClues,
    ResultClues,
    clues_of_calls,
    clues_of_results,
)
from tidegauge.streaming_metrics.fingerprint import (
    MAX_KNOWN,
    MAX_NAME,
    RECORDED,
    Normaliser,
    call_digests,
    compared_arguments,
    content_digests,
    joined_digest,
    normaliser_of_arguments,
    round_digest,
    round_name,
    words_of,
)
from tidegauge.streaming_metrics.known_graph import DistanceAnswer
from tidegauge.streaming_metrics.known_noise import Numbers, numbers_in, united
from tidegauge.streaming_metrics.polls import Polling, polling_of
from tidegauge.streaming_metrics.records import MAX_AMOUNT, amount
from tidegauge.values import (
    MAX_IDENTITY,
    Identities,
    ValueCache,
    built_in,
    canonical_start,
    is_plain,
    type_name,
)

MAX_CONTENT: Final = 400
"""How many characters of a step's arguments and of its results are kept, where they are."""

N = TypeVar("N", int, float)
Nearer: TypeAlias = Callable[[str, Identity], DistanceAnswer | None]
"""Asks the user's distance about a run's move to a place."""
_NO_WORDS: Final[frozenset[int]] = frozenset()
_MAX_PARTS: Final = 10_000
_MAX_KNOWN_WORDS: Final = 64
_MAX_SPOKEN: Final = 1 << 16
"""Characters of an answer in which white space means nothing."""


class DigestedStep(NamedTuple):
    """An issued action, as plain data.

    Attributes:
        run: id of the run.
        calls: a digest for each call of the round; of a thought beside other calls, a longer one.
        action: digest of the round, without such thoughts.
        name: its name, without them, too.
        state: digest of what the agent saw; ``None``, not known.
        state_given: whether a state was given; else it is the previous result.
        declared: what is declared of the tool of each call; empty, nothing of any.
        tokens: tokens spent on choosing.
        entropy: entropy of the choice, nats per token.
        uses: entities that the action uses.
        mentions: entities that occur in the state.
        time: seconds since the epoch.
        blockable: whether the calls can be answered without being run.
        similarity: likeness of the action to an earlier one, where it is known already.
        words: checksums of its words, where they are compared.
        shown: the beginning of its arguments, where contents are shown.
        clues: what its texts say, where they are read.
        not_comparable: what of the step cannot be compared: ``arguments``, ``state``.
        exact_action: digest of the round with its noise and thoughts; ``None``, it has none.
        exact_state: digest of the state with its noise; ``None``, it has none.
        exact_calls: for each call, its digest with its noise; ``None``, no call has any.
        noise: the kinds of known noise that were left out of its arguments and state.
        polled: what each call does, as far as it concerns waiting; empty, nothing that is known.
    """

    run: str
    calls: list[bytes]
    action: bytes
    name: str
    state: bytes | None = None
    state_given: bool = False
    declared: Sequence[ToolDeclaration | None] = ()
    tokens: float | None = None
    entropy: float | None = None
    uses: tuple[Identity, ...] = ()
    mentions: tuple[Identity, ...] = ()
    time: float | None = None
    blockable: bool = False
    similarity: float | None = None
    words: frozenset[int] = _NO_WORDS
    shown: str | None = None
    clues: CallClues | None = None
    not_comparable: tuple[str, ...] = ()
    exact_action: bytes | None = None
    exact_state: bytes | None = None
    exact_calls: list[bytes] | None = None
    noise: Sequence[str] = ()
    polled: Sequence[Polling | None] = ()


class DigestedOutcome(NamedTuple):
    """An observed result, as plain data.

    Attributes:
        run: id of the run.
        results: for each call, the digest of its result (``None``: not comparable; absent: not
            observed) and whether it failed.
        step: index of the step; ``None``, the one issued last.
        place, exits, tasks, achieved, progress, tokens, seconds, time, blocked: as in
            :class:`~tidegauge.events.Outcome`.
        shown: the beginning of its results, where contents are shown.
        nearer: the answer of the user's distance about the move, if any.
        clues: what the texts of its results say, where they are read.
        exact: for each call, the digest of its result with its noise; ``None``, no result has any.
        empty: bit k, result k is empty, or says only that nothing was found.
        negative: bit k, result k says that it failed, or that nothing was found.
        noise: for each result, the kinds of known noise that were left out of it; empty, of none.
        numbers: the numbers in its first result, where they are at hand.
    """

    run: str
    results: Sequence[tuple[bytes | Absent | None, bool | None]] = ()
    step: int | None = None
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    achieved: tuple[Identity, ...] = ()
    progress: float | None = None
    tokens: float | None = None
    seconds: float | None = None
    time: float | None = None
    blocked: bool = False
    shown: str | None = None
    nearer: DistanceAnswer | None = None
    clues: ResultClues | None = None
    exact: Sequence[bytes | Absent | None] | None = None
    empty: int = 0
    negative: int = 0
    noise: Sequence[Sequence[str]] = ()
    numbers: Numbers | None = None


class DigestedAnswer(NamedTuple):
    """An answer without a call, as plain data; the fields are those of
    :class:`~tidegauge.streaming_metrics.records.Answered`, and the tokens."""

    run: str
    answer: bytes | None
    shown: bytes | None = None
    messages: int | None = None
    tokens: float | None = None
    time: float | None = None


class Digester:
    """Digests events as one engine compares them.

    Args:
        normaliser: applied to texts before they are digested; ``None`` compares exactly.
        declarations: what is declared of tools, by their names.
        words: whether the words of actions are compared.
        clues: whether the clues in the texts of steps are read.
        contents: whether the beginnings of arguments and results are shown to people.
        polls: whether calls that wait, or look, are found; see
            :mod:`~tidegauge.streaming_metrics.polls`.
        nearer: the user's distance; ``None``, there is none.
    """

    __slots__ = (
        "_nearer",
        "_numbers",
        "_of_arguments",
        "_words",
        "clues",
        "contents",
        "declarations",
        "normaliser",
        "polls",
        "words",
    )

    def __init__(
        self,
        normaliser: Normaliser | None = None,
        declarations: Mapping[str, ToolDeclaration] | None = None,
        *,
        words: bool = False,
        clues: bool = False,
        contents: bool = False,
        polls: bool = False,
        nearer: Nearer | None = None,
    ) -> None:
        self.normaliser = normaliser
        self._nearer = nearer
        self._of_arguments = normaliser_of_arguments(normaliser)
        # What was read of the last texts, by their digests: agents in loops repeat them.
        self._words: dict[bytes, frozenset[int]] = {}
        self._numbers: dict[bytes, Numbers | None] = {}
        self.declarations = dict(declarations or {})
        self.words = words
        self.clues = clues
        self.contents = contents
        self.polls = polls

    def run(self, event: RunStarted) -> RunStarted:
        """The same event with plain text, numbers and identities in it."""
        place, exits, tasks, goal = event.place, event.exits, event.tasks, event.goal
        identities = Identities()
        return dataclasses.replace(
            event,
            run=_text(event.run) or "",
            agent=_text(event.agent) or "",
            task=_text(event.task),
            task_group=_text(event.task_group) or "",
            model=_text(event.model),
            t_max=_whole(event.t_max),
            memory=_text(event.memory),
            operations=_whole(event.operations),
            height=_whole(event.height),
            place=None if place is None else _identity(place, identities),
            exits=None if exits is None else _identities(exits, identities),
            tasks=_tasks(tasks, identities),
            goal=None if goal is None else _identity(goal, identities),
            time=_number(event.time),
        )

    def end(self, event: RunEnded) -> RunEnded:
        """The same event with plain text and numbers in it."""
        success = event.success
        return dataclasses.replace(
            event,
            run=_text(event.run) or "",
            success=success if success is None else _flag(success),
            reason=_text(event.reason),
            time=_number(event.time),
            agent_name=_text(event.agent_name),
            children=tuple(filter(None, map(_text, event.children))),
            evicted=event.evicted is True,
        )

    def text(self, value: str | None) -> tuple[bytes | None, bytes | None]:
        """The digest of a text, and that with its noise; ``None``, there is none."""
        if value is None:
            return None, None
        digest, exact, _, _ = content_digests(value, self.normaliser)
        return digest, exact or digest

    def step(self, event: Step, cache: ValueCache | None = None) -> DigestedStep:
        """Digest an issued action.

        Args:
            event: the action.
            cache: remembers what was read of it, for the next reader.
        """
        # Read at once: a field of a named tuple takes longer than a name.
        run, chosen, seen, tokens, entropy, uses, mentions, time, blockable, similarity = event
        normaliser = self.normaliser
        calls: Sequence[Call] = chosen
        declared: Sequence[ToolDeclaration | None] = ()
        first = calls[0] if len(calls) == 1 else None
        name = None if first is None else first.action
        plain = type(name) is str and len(name) <= MAX_NAME
        if (
            self.declarations
            or first is None
            or first.declared is not None
            or not plain
            or "think" in name.lower()  # type: ignore[union-attr]
        ):
            calls, declared = self._declared(calls)
        polled: Sequence[Polling | None] = ()
        if self.polls and first is not None:
            one = polling_of(first)
            polled = polled if one is None else (one,)
        elif self.polls:
            found = [polling_of(call) for call in chosen]
            polled = found if any(found) else polled
        given = seen is not ABSENT
        if cache is None and given:
            cache = ValueCache()  # states and arguments often are the same objects
        missing: tuple[str, ...] = ()
        digests: list[bytes] = []
        exact: list[bytes] | None = None
        noise: Sequence[str] = ()
        texts: list[bytes | None] = []
        for call in calls:
            digest, whole, left_out, text = call_digests(call, self._of_arguments, cache)
            texts.append(text)
            if left_out:
                noise = united(noise, left_out)
            if digest is None:
                missing = ("arguments",)
                digest = os.urandom(16)  # equal to nothing
            if whole is not None and exact is None:
                exact = digests.copy()
            digests.append(digest)
            if exact is not None:
                exact.append(whole or digest)
        state: bytes | None = None
        exact_state: bytes | None = None
        if given:
            state, exact_state, left_out, _ = content_digests(seen, normaliser, cache)
            if left_out:
                noise = united(noise, left_out)
            if state is None:
                missing = (*missing, "state")
        whole_action = None if exact is None else round_digest(exact)
        compared = digests
        thoughts = [one is not None and one.thinks for one in declared] if len(calls) > 1 else []
        if True in thoughts and False in thoughts:
            # New words beside a call hide nothing: the round is compared as if they were not there.
            whole_action = whole_action or round_digest(digests)
            texts = [one for one, thought in zip(texts, thoughts, strict=True) if not thought]
            calls = [one for one, thought in zip(calls, thoughts, strict=True) if not thought]
            compared = [one for one, thought in zip(digests, thoughts, strict=True) if not thought]
            digests = [
                _THOUGHT + one if thought else one
                for one, thought in zip(digests, thoughts, strict=True)
            ]
        action = compared[0] if len(compared) == 1 else round_digest(compared)
        words = self._words.get(action, _NO_WORDS)
        if self.words and not words:
            words = words_of(calls, self._of_arguments, texts)
            if len(words) <= _MAX_KNOWN_WORDS and not missing:
                if len(self._words) >= MAX_KNOWN:
                    self._words.clear()
                self._words[action] = words
        fields = (
            run,
            digests,
            action,
            name if plain else round_name(calls),
            state,
            given,
            declared,
            tokens
            if tokens is None or (type(tokens) is int and 0 <= tokens <= MAX_AMOUNT)
            else amount(_number(tokens)),
            entropy if entropy is None else _number(entropy),
            _identities(uses, Identities(cache)) if uses else (),
            _identities(mentions, Identities(cache)) if mentions else (),
            time if time is None else _number(time),
            blockable,
            similarity if similarity is None else _number(similarity),
            words,
            _beginning([call.arguments for call in chosen]) if self.contents else None,
            clues_of_calls(chosen) if self.clues else None,
            missing,
            whole_action,
            exact_state,
            exact,
            noise,
            polled,
        )
        return made(DigestedStep, fields)

    def outcome(self, event: Outcome, cache: ValueCache | None = None) -> DigestedOutcome:
        """Digest an observed result; the arguments are those of :meth:`step`."""
        (run, given_results, step, place, exits, tasks, achieved,
         progress, tokens, seconds, time, blocked) = event  # fmt: skip
        normaliser = self.normaliser
        results: list[tuple[bytes | Absent | None, bool | None]] = []
        exact: list[bytes | Absent | None] | None = None
        empty = negative = 0
        noise: dict[int, Sequence[str]] = {}
        text: bytes | None = None
        comparable = True  # else the round has no outcome
        for outcome, error in given_results:
            digest: bytes | Absent | None = ABSENT
            whole: bytes | None = None
            if outcome is not ABSENT:
                digest, whole, left_out, read = content_digests(outcome, normaliser, cache)
                if not results:
                    text = read
                if left_out:
                    noise[len(results)] = left_out
                comparable = comparable and digest is not None
            if whole is not None and exact is None:
                exact = [one for one, _ in results]
            plain = error is None or error is True or error is False
            results.append((digest, error if plain else _flag(error)))
            if exact is not None:
                exact.append(whole or digest)
            if type(outcome) is str:  # as nearly always: a call less
                says = _said(outcome) if len(outcome) <= _SHORT else _NOTHING_SAID
            else:
                says = what_it_says(outcome)
            says_empty, says_no = says
            empty |= says_empty << len(results) - 1
            negative |= says_no << len(results) - 1
        numbers: Numbers | Absent | None = None
        if text is not None and type(results[0][0]) is bytes:
            compared = results[0][0]
            numbers = self._numbers.get(compared, ABSENT)
            if numbers is ABSENT:
                numbers = numbers_in(text)
                if len(self._numbers) >= MAX_KNOWN:
                    self._numbers.clear()
                self._numbers[compared] = numbers
        shown = None
        if self.contents:
            shown = _beginning([one.outcome for one in given_results if one.outcome is not ABSENT])
        if place is not None or exits is not None or tasks or achieved:
            identities = Identities(cache)  # together they cost no more than one value
            place = place if place is None else _identity(place, identities)
            exits = exits if exits is None else _identities(exits, identities)
            tasks = _tasks(tasks, identities) if tasks else ()
            achieved = _identities(achieved, identities) if achieved else ()
        else:
            tasks, achieved = (), ()
        fields = (
            run,
            results,
            step,
            place,
            exits,
            tasks,
            achieved,
            progress if progress is None else _number(progress),
            tokens
            if tokens is None or (type(tokens) is int and 0 <= tokens <= MAX_AMOUNT)
            else amount(_number(tokens)),
            seconds if seconds is None else _number(seconds),
            time if time is None else _number(time),
            blocked,
            shown,
            None if self._nearer is None or place is None else self._nearer(run, place),
            clues_of_results(given_results) if self.clues else None,
            exact,
            empty,
            negative,
            [noise.get(i, ()) for i in range(len(results))] if noise and comparable else (),
            numbers,
        )
        return made(DigestedOutcome, fields)

    def answer(self, event: Answer) -> DigestedAnswer:
        """Digest an answer without a call."""
        run, text, shown, messages, tokens, time = event
        return DigestedAnswer(
            run,
            self._spoken(text),
            self._spoken(shown),
            _whole(messages),
            None if tokens is None else amount(_number(tokens)),
            _number(time),
        )

    def _spoken(self, value: object) -> bytes | None:
        """The digest of a message; ``None``, it is not known, or not comparable."""
        if value is ABSENT:
            return None
        if type(value) is str and len(value) <= _MAX_SPOKEN:
            value = " ".join(value.split())
        return content_digests(value, self.normaliser)[0]

    def _declared(
        self, calls: Sequence[Call]
    ) -> tuple[Sequence[Call], Sequence[ToolDeclaration | None]]:
        """The calls as they are compared, and what is declared of their tools."""
        by_name = self.declarations
        declared = [
            call.declared or declared_by_name(by_name, call.action) or thinking(call.action)
            for call in calls
        ]
        if not any(declared):
            return calls, ()
        compared = [
            call
            if one is None or one.key is None
            else call._replace(arguments=compared_arguments(one, call.arguments))
            for call, one in zip(calls, declared, strict=True)
        ]
        return compared, declared


def declared_by_name(
    declarations: Mapping[str, ToolDeclaration], action: object
) -> ToolDeclaration | None:
    """The declaration of a tool; ``None`` if the name is not a string, which is never hashed."""
    return declarations.get(action) if type(action) is str else None


def thinking(action: object) -> ToolDeclaration | None:
    """The declaration of a tool that only writes down a thought, known by its name.

    >>> thinking("mcp__reasoning__sequentialthinking"), thinking("search")
    (ToolDeclaration(poll=False, key=None, mutates=False, thinks=True), None)
    """
    if type(action) is not str or "think" not in action.lower():
        return None
    name = _SEGMENTS.split(action.lower())[-1]
    return _THINKS if name.replace("_", "").replace("-", "") in _THINKING else None


_SEGMENTS: Final = re.compile(r"__|[.:/]")
_THINKING: Final = frozenset({"think", "thinking", "sequentialthinking"})
_THINKS: Final = ToolDeclaration(thinks=True)

_SHORT: Final = 200
"""Characters of a result that may say no more than that something failed, or is not there."""

_NOTHING_SAID: Final = (False, False)
_NOTHING_FOUND: Final = re.compile(
    r"""[\W_]*(?:
    (?:error\W+)?(?:no|0|zero|without(?:\sany)?)\s(?:[\w-]+\s){0,3}?
      (?:results?|match(?:es)?|rows?|hits?|items?|files?|records?|entries|documents?|data|output)
      (?:\s(?:were|was|are|is))?(?:\s(?:found|available|returned|matched|selected|there))?
      (?:\s(?:for|in|on|at|with|matching)\s.{0,120})?
    |(?:no\s(?:such\s)?[\w\s-]{1,60}|nothing(?:\s[\w]+)?|none|[\w\s'"/.:,()-]{1,80}\snot)\s?(?:found|there)
    |none|null|nil|nothing|empty|n/a|\(?\s?(?:empty|no)\s(?:output|result|response|set)\s?\)?
    )[\W_]*""",
    re.VERBOSE | re.IGNORECASE,
).fullmatch
_SAYS_NO: Final = re.compile(
    r"\b(?:no|not|none|nothing|empty|errors?|fail(?:s|ed|ure)?|cannot|can't|couldn't|could not|"
    r"doesn't|invalid|denied|unable|unknown|missing|time-?out|timed out|refused|forbidden|"
    r"unauthorized|rejected|exception|traceback|(?:http|status|code)\W{1,3}[45]\d\d)\b",
    re.IGNORECASE,
).search
_TELLING: Final = frozenset(
    b"no 0 zero without nothing none not null nil empty n notfound notthere nonefound nonethere "
    b"nothingfound nothingthere error errors fail fails failed failure cannot t "
    b"invalid denied unable unknown missing time timeout timed refused forbidden unauthorized "
    b"rejected exception traceback http status code".split()
)
"""One of these is in every text that the two expressions match; ``t`` is that of ``can't``."""
_AS_WORDS: Final = bytes(byte if chr(byte).isalnum() else ord(" ") for byte in range(256))
_FAULTS: Final = (
    "errors?|problems?|warnings?|failures?|fail(?:s|ed)?|vulnerability|vulnerabilities|violations?|defects?|"
    "conflicts?|diagnostics"
)
_SAYS_NONE_FAILED: Final = re.compile(
    rf"\b(?:no|0|zero|without)\s(?:[\w-]+\s){{0,2}}?(?:{_FAULTS}|issues?)\b", re.IGNORECASE
)
_FAULTLESS: Final = re.compile(
    rf"[\W_]*(?:no|0|zero)\s(?:[\w-]+\s){{0,2}}?(?:{_FAULTS})(?:\s(?:were|was))?\sfound[\W_]*",
    re.IGNORECASE,
).fullmatch
"""What a check says when all is well. A search for issues may find none."""


def what_it_says(result: object) -> tuple[bool, bool]:
    """Whether a result is empty, or says only that nothing was found; and whether it says no.

    Only plain values and short texts are read; what is long says more than that.

    >>> what_it_says("No results."), what_it_says([]), what_it_says("OK, 500 rows")
    ((True, True), (True, True), (False, False))
    >>> what_it_says("permission denied"), what_it_says(""), what_it_says("12 files, no errors")
    ((False, True), (True, False), (False, False))
    >>> what_it_says("No problems found"), what_it_says("No flights found")
    ((False, False), (True, True))
    """
    kind = type(result)
    if result is None or (kind is float and result - result != 0):  # type: ignore[operator]
        return True, False  # NaN and infinities are null
    if kind is list or kind is dict or kind is tuple:
        return (True, True) if not result else (False, False)
    if not issubclass(kind, str) or str.__len__(result) > _SHORT:  # type: ignore[arg-type]
        return _NOTHING_SAID  # isinstance() would call the object's own code
    return _said(str.__str__(result))


@lru_cache(1_024)
def _said(text: str) -> tuple[bool, bool]:
    if text.startswith(RECORDED):
        return "+empty" in text, "+negative" in text
    plain = text.strip()
    if not plain:
        return True, False
    # Most texts have none of these words: to know it takes a tenth of the expressions' time.
    if plain.isascii() and _TELLING.isdisjoint(plain.encode().lower().translate(_AS_WORDS).split()):
        return (True, True) if plain in ("[]", "{}") else (False, False)
    if plain in ("[]", "{}") or (_NOTHING_FOUND(plain) and not _FAULTLESS(plain)):
        return True, True
    return False, _SAYS_NO(_SAYS_NONE_FAILED.sub("", plain)) is not None


_THOUGHT: Final = b"\0"
_SIZE: Final = 16


def full_calls(calls: Sequence[bytes]) -> Sequence[bytes]:
    """The digests of all calls of a round, those of thoughts like any other."""
    return calls if len(calls) == 1 else [one[-_SIZE:] for one in calls]


def compared_calls(calls: Sequence[bytes]) -> Sequence[int]:
    """The places of the calls of a round that are compared: of all but thoughts beside others."""
    return [place for place, one in enumerate(calls) if len(one) <= _SIZE]


def round_outcome(
    calls: Sequence[bytes], results: Sequence[tuple[bytes | Absent | None, bool | None]]
) -> bytes | None:
    """Digest of the results of a round; ``None`` when that is not known or not comparable.

    The digest of a single call is that of its result. Several are taken as a multiset of
    (call, result): the order in which parallel calls come back means nothing. If all results are
    equal, it does not matter which call has which: then it is the multiset of the results.

    Args:
        calls: digests of the round's calls.
        results: those of their results, in the same order; more of them belong to no call. A call
            without one has no result, as with ``ABSENT``.
    """
    if len(calls) == 1 and results:
        digest = results[0][0]
        return None if digest is ABSENT else digest
    first = results[0][0] if results else None
    if isinstance(first, bytes) and len(results) >= len(calls):
        digests = [digest for digest, _ in results[: len(calls)]]  # no generator may lose an error
        if digests.count(first) == len(calls):
            return joined_digest([first] * len(calls))
    parts: list[bytes] = []
    known = False
    for call, (digest, _) in zip(calls, results, strict=False):
        if digest is None:
            return None
        known = known or digest is not ABSENT
        parts.append(call if digest is ABSENT else call + digest)
    parts.extend(calls[len(results) :])
    return joined_digest(parts) if known else None


def _flag(value: object) -> bool | None:
    try:
        return bool(value)
    except Exception as error:
        if arrived_from_outside(error):
            raise
        return None


def _text(value: Any) -> str | None:
    """A label or an id as plain text."""
    if value is None or type(value) is str:
        return value
    if issubclass(type(value), str):
        return str.__str__(value)
    return str(_identity(value, Identities()))


def _number(value: Any) -> float | None:
    """A number as plain data; ``None`` and an internal error where it is none."""
    kind = type(value)
    if value is None or kind is float or kind is int:
        return value  # type: ignore[no-any-return]
    if issubclass(kind, int):
        return int.__index__(value)
    if issubclass(kind, float):
        return float.__float__(value)
    return _converted(float, value)


def _whole(value: Any) -> int | None:
    if value is None:
        return None
    if issubclass(type(value), int):
        return int.__index__(value)
    return _converted(int, value)


def _converted(kind: Callable[[Any], N], value: object) -> N | None:
    """What numbers and texts of the interpreter's and of numpy's say: nothing else is asked."""
    try:
        plain: Any = built_in(value)
        if issubclass(type(value), Decimal):
            plain = Decimal.__float__(value)  # type: ignore[arg-type]
        if plain is None:
            raise TypeError(f"{type_name(type(value))} is not a number")
        return kind(plain)
    except (TypeError, ValueError, OverflowError) as error:
        internal_errors.record("value", error)
        return None


def _identity(value: object, identities: Identities) -> Identity:
    """A plain identity; ``None`` and an internal error where it is not comparable."""
    if (type(value) is str and len(value) <= MAX_IDENTITY) or is_plain(value):
        return value
    try:
        return identities.plain(value)
    except ValueError as error:
        internal_errors.record("identity", error)
        return None


def _identities(values: Sequence[Any], identities: Identities) -> tuple[Identity, ...]:
    for value in values:
        if type(value) is not str or len(value) > MAX_IDENTITY:
            plain = [_identity(value, identities) for value in values]
            return tuple([value for value in plain if value is not None])
    return tuple(values)


def _tasks(tasks: Sequence[Task], identities: Identities) -> tuple[Task, ...]:
    plain = [_task(one, identities) for one in tasks]
    return tuple([one for one in plain if one is not None])


def _task(value: object, identities: Identities) -> Task | None:
    """A plain task; ``None`` and an internal error where it is none."""
    try:
        name, requires = _parts(value)
        return Task(
            _identity(name, identities),
            tuple([_identities(_parts(ids), identities) for ids in _parts(requires)]),
        )
    except (TypeError, ValueError) as error:
        internal_errors.record("task", error)
        return None


def _parts(value: Any) -> tuple[Any, ...]:
    """What a tuple, list or set holds, without calling code of its class."""
    for kind in (tuple, list, frozenset, set):
        if issubclass(type(value), kind):
            if kind.__len__(value) > _MAX_PARTS:
                raise ValueError("the task is too large")
            return tuple(kind.__iter__(value))
    raise TypeError(f"{type_name(type(value))} is not a tuple, list or set")


def _beginning(values: Sequence[object]) -> str:
    """The beginnings of the values' texts, one after the other."""
    shown = []
    for value in values:
        # Without the bytes of a character that was cut in two.
        data = canonical_start(value, 4 * MAX_CONTENT)
        shown.append(data.decode("utf-8", "ignore"))
    text = ", ".join(shown)
    return text if len(text) <= MAX_CONTENT else text[: MAX_CONTENT - 1] + "…"
