"""Follows the sessions of coding agents in their files, while the agents write them.

- *Which*: files that change after the start, and those that changed in the last minute before. A
  session that is found at work is measured from the beginning of the run that is open; what was
  over before is not measured.
- *Once*: a session that hooks report is theirs. What is read waits for one look, in which the hook
  may be heard. If the hooks are heard later, the run that was read ends. Each line of a run counts
  once, also when its file is written again, copied or moved.
- *When*: the calls of one answer of the model are a step as soon as the next answer, prompt or end
  is written.
- *Bounded*: one look at a file reads at most 16 MiB, and so many files are followed at most; of
  more, the one that has not changed for longest is left. A file that cannot be read is tried
  again, and left after ten failures.

Agents that are read cannot be nudged, refused or stopped: the policy only observes their runs.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tidegauge.coding_agents.agents import SESSIONS
from tidegauge.coding_agents.known_agent import Sessions
from tidegauge.coding_agents.session_files import SessionTail
from tidegauge.coding_agents.session_transcript import SessionError
from tidegauge.errors import StepEventError
from tidegauge.events import RunEnded, RunStarted, StepSink
from tidegauge.recordings.line_replay import Replay
from tidegauge.recordings.step_events import parse_line
from tidegauge.safety.guard import guarded, internal_errors

_SCAN_SECONDS: Final = 5.0
_RECENT_SECONDS: Final = 60.0
_MAX_DEPTH: Final = 6
_MAX_KNOWN: Final = 20_000
_MAX_FOLLOWED: Final = 200
_MAX_HELD: Final = 100_000
_MAX_RUNS: Final = 10_000
_MAX_FAILURES: Final = 10

_logger: Final = logging.getLogger("tidegauge")


class SessionFolder(NamedTuple):
    """A folder with sessions of an agent."""

    sessions: Sessions
    path: Path


def default_folders(environ: Mapping[str, str] = os.environ) -> list[SessionFolder]:
    """Where the agents keep their sessions, by their own environment variables.

    >>> [folder.path.as_posix() for folder in default_folders({"CODEX_HOME": "/c"})][0]
    '/c/sessions'
    """
    home = Path(os.path.expanduser("~"))
    return [
        SessionFolder(kind, kind.folder.find(home, environ))
        for kind in SESSIONS.values()
        if kind.folder is not None
    ]


def read_folders(text: str) -> list[SessionFolder]:
    """The folders of a list, each after its agent.

    Raises:
        ValueError: it has another form, or an agent is unknown.

    >>> read_folders("codex=/srv/a, openhands=/srv/b")[1].path.as_posix()
    '/srv/b'
    """
    known = {name: kind for name, kind in SESSIONS.items() if kind.folder is not None}
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        agent, given, folder = part.partition("=")
        if agent not in known:
            raise ValueError(f"{agent!r} is no agent that can be read; use {', '.join(known)}")
        if not given or not folder:
            raise ValueError(f"{part!r} names no folder; use {agent}=FOLDER")
        found.append(SessionFolder(known[agent], Path(folder).expanduser()))
    return found


class _Followed:
    """A session that is followed."""

    def __init__(self, tail: SessionTail, changed: float, *, new: bool) -> None:
        self.tail = tail
        self.new = new  # it was not there at the start
        self.changed = changed  # by the clock
        self.lines: dict[str, int] = {}  # how many of each run were seen since its first one
        # Of runs that began before the start, while it is not known if they are open.
        self.held: dict[str, list[dict[str, Any]]] = {}
        self.left_out: set[str] = set()  # runs that have too many lines to be measured
        self.read = False  # all that was there at first
        self.failures = 0  # looks that failed one after the other


class Tails:
    """Follows the sessions in folders. Call :meth:`look` from one thread, about once a second.

    Args:
        is_reported: whether hooks report a session of an agent.
        began: called with the agent and the session when a run begins.
        idle_seconds: a run in a file that has not changed for so long is over.
        now: seconds since the epoch.

    Attributes:
        skipped: records and lines that could not be used.
    """

    def __init__(
        self,
        sink: StepSink,
        folders: list[SessionFolder],
        *,
        is_reported: Callable[[str, str], bool] = lambda agent, session: False,
        began: Callable[[str, str], None] = lambda agent, session: None,
        idle_seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.skipped = 0
        self._replay = Replay(sink)
        self._folders = folders
        self._is_reported = is_reported
        self._began = began
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._started = now()
        self._first = True
        self._scanned = -_SCAN_SECONDS
        self._known: OrderedDict[Path, tuple[int, int]] = OrderedDict()
        self._followed: OrderedDict[Path, _Followed] = OrderedDict()  # least recently changed first
        self._fed: OrderedDict[str, int] = OrderedDict()  # lines of a run that were used
        self._open: dict[str, tuple[str, str]] = {}  # agent and session of an open run
        self._waiting: list[tuple[str, str, dict[str, Any]]] = []

    @property
    def active(self) -> list[str]:
        """The agents of the sessions that have an open run."""
        return [agent for agent, _ in dict.fromkeys(tuple(self._open.values()))]

    @guarded("transcripts.look", default=None)
    def look(self) -> None:
        """Read what is new in all sessions, and report what was new at the look before."""
        waiting, self._waiting = self._waiting, []
        for agent, session, line in waiting:
            self._report(agent, session, line)
        for run, (agent, session) in list(self._open.items()):
            if self._is_reported(agent, session):
                self._end(run, "reported by hooks")
        now = self._clock()
        if now - self._scanned >= _SCAN_SECONDS:
            self._scanned = now
            self._scan(now)
        for path, followed in list(self._followed.items()):
            self._read(path, followed, now)

    @guarded("transcripts.close", default=None)
    def close(self) -> None:
        """Report the rest, and end all runs."""
        for path in list(self._followed):
            self._leave(path)
        waiting, self._waiting = self._waiting, []
        for agent, session, line in waiting:
            self._report(agent, session, line)
        for run in list(self._open):
            self._end(run, "closed")

    def _scan(self, now: float) -> None:
        """Find the files that have changed."""
        for folder in self._folders:
            for path in _sessions_in(folder.path, folder.sessions.followed, _MAX_DEPTH):
                state = _state(path)
                if state is None or path in self._followed or self._known.get(path) == state:
                    continue
                known = path in self._known
                self._known[path] = state
                self._known.move_to_end(path)
                if len(self._known) > _MAX_KNOWN:
                    self._known.popitem(last=False)
                if self._first and state[0] / 1e9 < self._started - _RECENT_SECONDS:
                    continue
                kind, since = folder.sessions, self._started - _RECENT_SECONDS
                tail = kind.tail(path, kind.transcript, since)
                self._followed[path] = _Followed(tail, now, new=not (self._first or known))
                if len(self._followed) > _MAX_FOLLOWED:
                    self._leave(next(iter(self._followed)))
        self._first = False

    def _read(self, path: Path, followed: _Followed, now: float) -> None:
        tail = followed.tail
        try:
            look = tail.look()
            followed.failures = 0
        except FileNotFoundError:
            self._leave(path)
            return
        except (OSError, SessionError) as error:
            followed.failures += 1
            if followed.failures == _MAX_FAILURES:
                _logger.warning("tidegauge: %s is not followed any more: %s", path.name, error)
                self._leave(path)
            return
        except Exception as error:  # noqa: BLE001 -- one file must not hold up the others
            internal_errors.record("transcripts.look", error)
            del self._followed[path]
            self._remember(path)
            for run, (agent, session) in list(self._open.items()):
                if agent == tail.kind.agent and session == tail.session_of(run):
                    self._end(run, "its file cannot be read")
            return
        if look is None:
            if now - followed.changed > self._idle_seconds:
                self._leave(path)
            return
        followed.changed = now
        self._followed.move_to_end(path)
        if look.again:
            followed.lines = {}
        self._take(followed, look.lines)
        if look.whole and not followed.read:
            followed.read = True
            held, followed.held = followed.held, {}
            for lines in held.values():
                self._take(followed, lines, counted=True)

    def _take(
        self, followed: _Followed, lines: list[dict[str, Any]], *, counted: bool = False
    ) -> None:
        """Lines of a session: those that were not used before wait for the next look.

        Lines that were held are ``counted`` already, and are used now.
        """
        tail = followed.tail
        for line in lines:
            run, ends = line["run"], line["type"] == "end"
            if not counted:
                number = followed.lines.get(run, 0)
                followed.lines[run] = number + 1
                if ends:
                    del followed.lines[run]
                if number < self._fed.get(run, 0):
                    continue
                self._fed[run] = number + 1
                self._fed.move_to_end(run)
                if len(self._fed) > _MAX_RUNS:
                    oldest, _ = self._fed.popitem(last=False)
                    self._replay.forget(oldest)
                if run in followed.left_out:
                    self.skipped += 1
                    continue
                if not followed.read and self._is_old(followed, line):
                    followed.held[run] = []
                held = followed.held.get(run)
                if held is not None:
                    held.append(line)
                    if ends or len(held) > _MAX_HELD:
                        del followed.held[run]
                    if not ends and len(held) > _MAX_HELD:
                        followed.left_out.add(run)
                    continue
            self._waiting.append((tail.kind.agent, tail.session_of(run), line))

    def _is_old(self, followed: _Followed, line: Mapping[str, Any]) -> bool:
        """Whether a run begins that was there before."""
        if line["type"] != "start":
            return False
        begun = line.get("time")
        if not isinstance(begun, str):
            return not followed.new
        return datetime.fromisoformat(begun).timestamp() < self._started

    def _report(self, agent: str, session: str, line: Mapping[str, Any]) -> None:
        if self._is_reported(agent, session):
            return
        try:
            event = parse_line(orjson.dumps(line))
            if isinstance(event, RunStarted):
                event = replace(event, conversation=session, observe_only=True)
            self._replay.feed(event)
            if isinstance(event, RunStarted):
                self._open[event.run] = (agent, session)
                self._began(event.agent, session)
            elif isinstance(event, RunEnded):
                self._open.pop(event.run, None)
        except (StepEventError, orjson.JSONEncodeError):
            self.skipped += 1

    def _end(self, run: str, reason: str) -> None:
        self._open.pop(run, None)
        self._replay.feed(RunEnded(run=run, outcome="unknown", reason=reason))

    def _leave(self, path: Path) -> None:
        """A session is over, for all that is known."""
        followed = self._followed.pop(path)
        self._take(followed, followed.tail.close())
        self.skipped += followed.tail.skipped
        self._remember(path)

    def _remember(self, path: Path) -> None:
        """A file is followed again when it changes."""
        state = _state(path)
        if state is not None:
            self._known[path] = state


def _sessions_in(folder: Path, pattern: str, depth: int) -> Iterator[Path]:
    """The sessions in a folder and the folders in it, by their names."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if fnmatchcase(entry.name, pattern):
            yield folder / entry.name
        elif depth and entry.is_dir(follow_symlinks=False):
            yield from _sessions_in(folder / entry.name, pattern, depth - 1)


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a session is written: time of the last change, and size.

    A database may write to a file beside it first.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    changed, size = found.st_mtime_ns, found.st_size
    if path.suffix == ".db":
        try:
            beside = os.stat(path.with_name(f"{path.name}-wal"))
        except OSError:
            return changed, size
        changed, size = max(changed, beside.st_mtime_ns), size + beside.st_size
    return changed, size
