"""Logs of Inspect, the evaluation framework: ``.eval`` (a zip file) or JSON.

https://inspect.aisi.org.uk/eval-logs.html. What an agent did for one sample, in one epoch, is one
run. Agents that it calls, or hands over to, are runs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tidegauge.coding_agents.known_agent import KnownAgent, Sessions
from tidegauge.coding_agents.session_files import SessionPart, read_object
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionError,
    SessionTranscript,
    listed,
    mapping,
    mappings,
    parsed_time,
    text_in,
)
from tidegauge.events import ABSENT, Call, CallResult
from tidegauge.values.elements import MOST_OF_A_FILE
from tidegauge.values.exact_json import bounded_json

_MAX_SAMPLE_BYTES: Final = 256 << 20
"""Limit of one sample, unpacked."""

_MAX_SAMPLES: Final = 1_000_000
_MAX_LEVELS: Final = 32
_ZIP: Final = b"PK\3\4"
_ATTACHED: Final = "attachment://"
_SCORES: Final = {"C": True, "I": False, True: True, False: False}


class InspectTranscript(SessionTranscript):
    """What one agent did for one sample."""

    agent = "inspect"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return "eval" in record and "status" in record and "version" in record

    def read(self, record: Record) -> None:
        """Read one event, or one message of a log that has no events."""
        time = parsed_time(record.get("timestamp"))
        match record.get("event") or record.get("role"):
            case "model":
                output = mapping(record.get("output"))
                choice = mapping(next(iter(listed(output.get("choices"))), None))
                total = mapping(output.get("usage")).get("total_tokens")
                self.model = text_in(record, "model") or self.model
                self._choose(mapping(choice.get("message")), total, time)
            case "assistant":
                self._choose(record, None, time)
            case "tool":
                call_id = text_in(record, "id" if "event" in record else "tool_call_id")
                result = record.get("result" if "event" in record else "content", ABSENT)
                error = mapping(record.get("error"))
                done = CallResult(error.get("message") if error else result, bool(error))
                self.observe(call_id or "", done, parsed_time(record.get("completed")))

    def _choose(self, message: Record, tokens: object, time: float | None) -> None:
        chosen = {
            text_in(call, "id") or f"#{number}": Call(
                text_in(call, "function") or "tool", call.get("arguments")
            )
            for number, call in enumerate(mappings(message.get("tool_calls")))
        }
        self.choose(chosen, tokens=tokens if type(tokens) is int else None, time=time)


def _read_log(path: Path) -> Iterator[SessionPart]:
    """The lines of the samples of a log, one after the other."""
    with open(path, "rb") as file:
        packed = file.read(len(_ZIP)) == _ZIP
    whole = None if packed else read_object(path)
    if whole is not None and InspectTranscript.recognizes(whole):
        for number, sample in enumerate(listed(whole.get("samples")), start=1):
            if isinstance(sample, dict):
                yield SessionPart(_lines_of(sample, whole), number)
            else:
                yield SessionPart([], number, 0, "the sample is no JSON object")
    elif packed:
        yield from _read_zip(path)
    else:
        raise SessionError("it is no log of Inspect: use an .eval file, or one in JSON")


def _read_zip(path: Path) -> Iterator[SessionPart]:
    """The samples of an ``.eval`` file, one after the other.

    Raises:
        SessionError: it is no such file, or needs the extra ``inspect``.
        OSError: it cannot be read.
    """
    zipfile = _zipfile()
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as log:
            names = [name for name in log.namelist() if _is_sample(name)][:_MAX_SAMPLES]
            header = _member(log, "header.json")
            if header is None:
                header = _member(log, "_journal/start.json")  # the evaluation was cut short
            if header is None:
                raise SessionError("it is no log of Inspect: it has no header.json")
            for number, name in enumerate(names, start=1):
                size = log.getinfo(name).compress_size
                try:
                    sample = _member(log, name)
                except SessionError as error:
                    yield SessionPart([], number, size, str(error))
                    continue
                if sample is None:
                    why = f"{name} is no JSON object, or is too large"
                    yield SessionPart([], number, size, why)
                else:
                    yield SessionPart(_lines_of(sample, header), number, size)
    except (zipfile.BadZipFile, EOFError, RuntimeError, ValueError) as error:
        if isinstance(error, SessionError):
            raise
        raise SessionError(f"the zip file is broken: {error}") from error


def _zipfile() -> Any:
    """The module that reads zip files, also those that are packed by Zstandard if it can."""
    try:
        from backports.zstd import zipfile
    except ImportError:
        import zipfile  # type: ignore[no-redef]
    return zipfile


def _is_sample(name: str) -> bool:
    return name.startswith("samples/") and name.endswith(".json")


def _member(log: Any, name: str) -> Record | None:
    """A JSON object in a zip file; ``None``, it is not there, or is none.

    Raises:
        SessionError: it cannot be unpacked.
    """
    try:
        with log.open(name) as opened:
            content = opened.read(_MAX_SAMPLE_BYTES + 1)
    except KeyError:
        return None
    except NotImplementedError:
        raise SessionError(
            f"{name} is packed in a way that is not known; for Zstandard: "
            "pip install '.[inspect]' in a clone"
        ) from None
    except Exception as error:  # each way of packing raises other exceptions
        raise SessionError(f"{name} cannot be unpacked: {error}") from error
    if len(content) > _MAX_SAMPLE_BYTES:
        return None
    try:
        found = bounded_json(content, MOST_OF_A_FILE)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _lines_of(sample: Record, header: Record) -> list[dict[str, Any]]:
    """The lines of a sample: those of its agent, and of the agents inside it."""
    about = mapping(header.get("eval"))
    where = about.get("eval_id") or about.get("run_id"), sample.get("id"), sample.get("epoch")
    session = "-".join(str(part) for part in where if part is not None)
    attached = mapping(sample.get("attachments"))
    events = mappings(sample.get("events"))
    if not any(event.get("event") == "model" for event in events):
        events = mappings(sample.get("messages"))
    agents = _Agents(session, text_in(about, "task"), text_in(about, "model"), events)
    outermost = agents.outermost
    outermost.prompt(_task(sample), parsed_time(sample.get("started_at")))
    lines: list[dict[str, Any]] = []
    for event in events:
        match event.get("event"):
            case "tool":
                for agent in agents.all():
                    lines += agent.take(_resolved(event, attached))
            case None | "model" if not agents.scores(event):
                lines += agents.of(event).take(_resolved(event, attached))
    outermost.end(**_ending(sample), time=parsed_time(sample.get("completed_at")))
    for agent in agents.all():
        lines += agent.close()
    return lines


class _Agents:
    """The agents of a sample, by the spans that they work in.

    Attributes:
        outermost: the one that is asked first.
    """

    def __init__(
        self, session: str, task_group: str | None, model: str | None, events: list[Record]
    ) -> None:
        self._session = session
        self._task_group = task_group
        self._model = model
        spans = [event for event in events if event.get("event") == "span_begin"]
        self._spans = {text_in(span, "id") or "": span for span in spans}
        self._found: dict[str | None, InspectTranscript] = {}
        asked = (event for event in events if event.get("event") == "model")
        self.outermost = self.of(next(asked, {}))

    def all(self) -> list[InspectTranscript]:
        """All agents, the outermost first."""
        return list(self._found.values())

    def scores(self, event: Record) -> bool:
        """Whether something happens while the sample is scored."""
        return any(span.get("type") in ("scorer", "scorers") for span in self._around(event))

    def of(self, event: Record) -> InspectTranscript:
        """The agent that asks its model."""
        span = next((one for one in self._around(event) if one.get("type") == "agent"), {})
        key = text_in(span, "id")
        if key not in self._found:
            number = len(self._found)
            session = f"{self._session}-{number}" if number else self._session
            agent = self._found[key] = InspectTranscript(session)
            agent.task_group, agent.model = self._task_group, self._model
            agent.name = text_in(span, "name")
        return self._found[key]

    def _around(self, event: Record) -> list[Record]:
        """The spans around an event, the innermost first."""
        found: list[Record] = []
        span = self._spans.get(text_in(event, "span_id") or "")
        while span is not None and len(found) < _MAX_LEVELS:
            found.append(span)
            span = self._spans.get(text_in(span, "parent_id") or "")
        return found


def _task(sample: Record) -> str | None:
    given = sample.get("input")
    if isinstance(given, str):
        return given
    asked = [mapping(one) for one in listed(given) if mapping(one).get("role") == "user"]
    return text_in(asked[-1], "content") if asked else None


def _ending(sample: Record) -> dict[str, Any]:
    """Whether the sample was solved, if all its scores say the same, and why it ended."""
    scores = [mapping(score).get("value") for score in mapping(sample.get("scores")).values()]
    solved = {_solved(score) for score in scores}
    limit = text_in(mapping(sample.get("limit")), "type")
    reason = "error" if sample.get("error") else limit and f"limit: {limit}"
    return {"success": solved.pop() if len(solved) == 1 else None, "reason": reason}


def _solved(score: object) -> bool | None:
    return _SCORES.get(score) if isinstance(score, str | int | float) else None


def _resolved(event: Record, attached: Record, levels: int = 0) -> Any:
    """An event with its attachments: Inspect keeps long texts apart."""
    found: dict[str, Any] = {}
    for name, value in event.items():
        found[name] = _attached(value, attached, levels) if attached else value
    return found


def _attached(value: Any, attached: Record, levels: int) -> Any:
    if isinstance(value, str):
        known = value.startswith(_ATTACHED)
        return attached.get(value.removeprefix(_ATTACHED), value) if known else value
    if levels > _MAX_LEVELS:
        return value
    if isinstance(value, dict):
        return {key: _attached(one, attached, levels + 1) for key, one in value.items()}
    if isinstance(value, list):
        return [_attached(one, attached, levels + 1) for one in value]
    return value


INSPECT: Final = KnownAgent(
    "inspect",
    "Inspect",
    sessions=Sessions(
        InspectTranscript,
        ("*.eval", "[0-9]*T*_*.json"),
        reader=_read_log,
        begins=_ZIP,
        whole=True,
        note="logs of [Inspect](https://inspect.aisi.org.uk/eval-logs.html): a sample in one epoch "
        "is a run, with its success; agents inside are runs. `.eval` files need "
        "`pip install '.[inspect]'` in a clone",
    ),
)
