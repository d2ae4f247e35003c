"""Puts hooks into the settings of coding agents, and takes them out again.

A settings file keeps its formatting and all that is not ours. What it was before is kept beside the
hook: if nothing else has changed since, removing the hooks restores it byte by byte.

Agents, editors and people write these files, too. So a change is planned again when it is made, in
the file as it is then, and a file that changes meanwhile is read again.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidegauge.coding_agents.agents import SETTINGS
from tidegauge.coding_agents.json_edit import append, find_value, remove_item
from tidegauge.coding_agents.known_agent import HookSettings
from tidegauge.errors import ConfigurationError
from tidegauge.fields import without_waiting

_HERE: Final = Path(__file__).parent
_CLIENT: Final = "hook_client.py"
_PLUGIN_HEAD: Final = "// tidegauge:"
_SETTINGS_MODE: Final = 0o600
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_LEVELS: Final = 100
_ATTEMPTS: Final = 5


class AgentFolders(NamedTuple):
    """Where everything is for one user.

    Args:
        data: the folder for the hook and for what settings were before.
        python: the interpreter that runs the hook.
    """

    home: Path
    data: Path
    environ: Mapping[str, str]
    python: str

    @classmethod
    def of_user(cls, environ: Mapping[str, str] = os.environ) -> AgentFolders:
        """That of the user who runs this process."""
        home = Path(os.path.expanduser("~"))
        data = environ.get("XDG_DATA_HOME", "")
        if not os.path.isabs(data):  # hooks run in other folders
            data = str(home / ".local" / "share")
        # That of a virtual environment is gone with it.
        return cls(home, Path(data) / "tidegauge", environ, os.path.realpath(sys.executable))

    def folder(self, agent: str) -> Path:
        """The folder of an agent's settings."""
        return SETTINGS[agent].folder.find(self.home, self.environ)

    def settings(self, agent: str) -> Path:
        """The file of an agent's hooks; if it is a link, the file that it leads to."""
        return Path(os.path.realpath(self.folder(agent) / SETTINGS[agent].file))

    def found(self) -> list[str]:
        """The agents that this user has: their folder exists, or their program."""
        path = self.environ.get("PATH")
        return [
            agent
            for agent in SETTINGS
            if self.folder(agent).is_dir() or shutil.which(agent, path=path) is not None
        ]

    def command(self, agent: str) -> str:
        """The command of an agent's hook. It succeeds and is silent even without its file."""
        parts = [self.python, "-SE", str(self.data / _CLIENT), agent]
        if os.name == "nt":
            return f"{subprocess.list2cmdline(parts)} 2>NUL || exit 0"
        return f"{shlex.join(parts)} 2>/dev/null || exit 0"


class Change(NamedTuple):
    """A change of a file.

    Args:
        before: its text; ``None``, it does not exist.
        after: its text then; ``None``, it is removed.
    """

    agent: str
    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """The change, as ``diff -u`` shows it; of a new plugin only how long it is."""
        if self.before is None and self.after is not None and self.path.name.endswith(".js"):
            lines = len(self.after.splitlines())
            return f"--- /dev/null\n+++ {self.path}\n@@ a new file of {lines} lines @@\n"
        changed = difflib.unified_diff(
            (self.before or "").splitlines(keepends=True),
            (self.after or "").splitlines(keepends=True),
            "/dev/null" if self.before is None else str(self.path),
            "/dev/null" if self.after is None else str(self.path),
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in changed)


def install(user: AgentFolders, agents: Sequence[str]) -> list[Change]:
    """The changes that give agents their hooks; none, if they have them.

    Raises:
        ConfigurationError: a settings file is not of the expected form.
        OSError: a file cannot be read, or could not be written.
    """
    return _plan(user, agents, installing=True)


def remove(user: AgentFolders, agents: Sequence[str]) -> list[Change]:
    """The changes that take the hooks out again; errors as for :func:`install`."""
    return _plan(user, agents, installing=False)


def apply(user: AgentFolders, agreed: Sequence[Change], *, installing: bool) -> list[Change]:
    """Make changes in the files as they are now: all of them, or none if one fails.

    Args:
        agreed: the changes, as they were planned.
        installing: whether :func:`install` planned them.

    Returns:
        The changes that were made. What changed in a file since it was planned is kept.

    Raises:
        ConfigurationError: as for :func:`install`; or a path leads to another file now, or a file
            changes all the time.
        OSError: a file cannot be written.
    """
    _plan(user, [change.agent for change in agreed], installing=installing)
    made: list[Change] = []
    done: list[Change] = []
    try:
        if installing:
            user.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            client = user.data / _CLIENT
            text = (_HERE / _CLIENT).read_text(encoding="utf-8")
            done.append(_replaced(Change("", client, _read(client), text)))
        for one in agreed:
            made += _make(user, one, done, installing=installing)
    except BaseException:
        for change in reversed(done):
            with contextlib.suppress(OSError, ConfigurationError):
                _replace(change.path, change.after, change.before)
        raise
    if not installing:
        _clean(user, made)
    return made


def _plan(user: AgentFolders, agents: Sequence[str], *, installing: bool) -> list[Change]:
    """The changes of these agents' files that change something, if all of them can be made."""
    change_of = _install if installing else _remove
    planned = [change_of(user, agent) for agent in dict.fromkeys(agents)]
    found = [change for change in planned if change.before != change.after]
    for change in found:
        folder = change.path.parent
        while not folder.exists():
            folder = folder.parent
        if not os.access(folder, os.W_OK) or (
            change.before is not None and not os.access(change.path, os.W_OK)
        ):
            raise PermissionError(13, "Permission denied", str(change.path))
    return found


def _make(
    user: AgentFolders, agreed: Change, done: list[Change], *, installing: bool
) -> list[Change]:
    """Make one change; adds what was written to ``done``."""
    kept = user.data / f"{agreed.agent}.json"
    state = _state(kept)
    for _ in range(_ATTEMPTS):
        change = (_install if installing else _remove)(user, agreed.agent)
        if change.path != agreed.path:
            raise ConfigurationError(
                f"{agreed.path} was replaced by a link to {change.path}; nothing was changed"
            )
        if change.before == change.after:
            return []
        if installing:
            done.append(_replaced(Change("", kept, _read(kept), _kept_text(change, state))))
        if _replace(change.path, change.before, change.after):
            done.append(change)
            return [change]
    raise ConfigurationError(
        f"{agreed.path} is changed by another program all the time; nothing was changed"
    )


def _clean(user: AgentFolders, removed: Sequence[Change]) -> None:
    """Remove what was kept for hooks that are gone."""
    for change in removed:
        kept = user.data / f"{change.agent}.json"
        _remove_folders(change, kept)
        kept.unlink(missing_ok=True)
    if not any(user.data.glob("*.json")):
        with contextlib.suppress(OSError):
            (user.data / _CLIENT).unlink()
            user.data.rmdir()


def _install(user: AgentFolders, agent: str) -> Change:
    path, where = user.settings(agent), SETTINGS[agent]
    before = _read(path)
    command = user.command(agent)
    if not _is_unicode(command):
        raise ConfigurationError(
            f"{user.data} is not UTF-8, so settings cannot name it; set XDG_DATA_HOME"
        )
    if where.own is not None:
        if before is not None and not _is_own(before):
            raise ConfigurationError(f"{path} is not of tidegauge; rename it")
        return Change(agent, path, before, where.own(where, command))
    groups = [(event, {"matcher": where.tools}) for event in where.before]
    groups += [(event, {}) for event in where.other]
    current = _parsed(path, before, where)
    expected = {event: [command] for event, _ in groups}
    if before is not None and _ours(current) == expected:
        return Change(agent, path, before, before)
    text = "{}\n" if before is None else _without_ours(before)
    hook = {"type": "command", "command": command, "timeout": where.timeout}
    for event, matcher in groups:
        text = _with_group(text, event, {**matcher, "hooks": [hook]})
    return Change(agent, path, before, text)


def _remove(user: AgentFolders, agent: str) -> Change:
    path = user.settings(agent)
    before = _read(path)
    if SETTINGS[agent].own is not None:
        ours = before is not None and _is_own(before)
        return Change(agent, path, before, None if ours else before)
    if before is None or not _ours(_parsed(path, before, SETTINGS[agent])):
        return Change(agent, path, before, before)
    known, original = _original(_state(user.data / f"{agent}.json"), before)
    return Change(agent, path, before, original if known else _without_ours(before))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_own(text: str) -> bool:
    return text.startswith(_PLUGIN_HEAD) or _is_ours({"command": text})


def _with_group(text: str, event: str, group: Any) -> str:
    """The text with a group of hooks for an event, at the end of those that it has."""
    hooks = find_value(text, ("hooks",))
    if hooks is None:
        return append(text, find_value(text, ()) or 0, 0, {event: [group]}, "hooks")
    groups = find_value(text, ("hooks", event))
    if groups is None:
        return append(text, hooks, 1, [group], event)
    return append(text, groups, 2, group)


def _without_ours(text: str) -> str:
    """The text without our hooks, and without what is empty then."""
    for event in _ours(json.loads(text)):
        while True:
            groups = json.loads(text)["hooks"][event]
            index = next((n for n, one in enumerate(groups) if _our_commands(one)), None)
            at = find_value(text, ("hooks", event))
            if index is None or at is None:
                break
            hooks = groups[index]["hooks"]
            if len(hooks) > len(_our_commands(groups[index])):  # a group with others' hooks, too
                number = next(n for n, one in enumerate(hooks) if _is_ours(one))
                inner = find_value(text, ("hooks", event, index, "hooks")) or 0
                text = remove_item(text, inner, number)
            elif len(groups) > 1:
                text = remove_item(text, at, index)
            else:
                text = remove_item(text, find_value(text, ("hooks",)) or 0, event)
                break
    if json.loads(text).get("hooks") == {}:
        text = remove_item(text, find_value(text, ()) or 0, "hooks")
    return text


def _ours(settings: Any) -> dict[str, list[str]]:
    """Our commands in settings, by event."""
    found: dict[str, list[str]] = {}
    for event, groups in settings.get("hooks", {}).items():
        for group in groups if isinstance(groups, list) else ():
            found.setdefault(event, []).extend(_our_commands(group))
    return {event: commands for event, commands in found.items() if commands}


def _our_commands(group: Any) -> list[str]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return [one["command"] for one in hooks if _is_ours(one)] if isinstance(hooks, list) else []


def _is_ours(hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    return isinstance(command, str) and "tidegauge" in command and _CLIENT in command


def _parsed(path: Path, text: str | None, where: HookSettings) -> Any:
    """The settings in a file.

    Raises:
        ConfigurationError: they are no JSON object, or have hooks in another form.
    """
    if text is None:
        return {}
    try:
        settings = json.loads(text, object_pairs_hook=_with_own_names)
    except ValueError as error:
        raise ConfigurationError(
            f"{path} is not valid JSON ({error}); correct it, nothing was changed"
        ) from None
    except RecursionError:
        settings = None
    if settings is None or _levels(settings) > _MAX_LEVELS:
        raise ConfigurationError(f"{path} has more than {_MAX_LEVELS} levels; nothing was changed")
    hooks = settings.get("hooks", {}) if isinstance(settings, dict) else None
    events = (*where.before, *where.other)
    if not isinstance(hooks, dict) or not all(_is_known(hooks.get(event, [])) for event in events):
        raise ConfigurationError(
            f"{path} has hooks in another form than expected; nothing was changed"
        )
    return settings


def _levels(value: Any) -> int:
    """How many levels of objects and lists there are, one in the other."""
    levels, layer = 0, [value]
    while layer := [one for one in layer if isinstance(one, dict | list)]:
        levels += 1
        layer = [part for one in layer for part in (one.values() if isinstance(one, dict) else one)]
    return levels


def _with_own_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object; a name that stands there twice is an error, because readers take either."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found


def _is_known(groups: Any) -> bool:
    """Whether the hooks of an event have the form that is known."""
    return isinstance(groups, list) and all(
        isinstance(group, dict)
        and isinstance(group.get("hooks", []), list)
        and all(isinstance(hook, dict) for hook in group.get("hooks", []))
        for group in groups
    )


def _read(path: Path) -> str | None:
    """The text of a file; ``None``, there is none."""
    try:
        with open(path, "rb", opener=without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigurationError(f"{path} is no regular file; nothing was changed")
            content = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(content) > _MAX_BYTES:
        raise ConfigurationError(
            f"{path} has more than {_MAX_BYTES >> 20} MiB; nothing was changed"
        )
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path} is not UTF-8; nothing was changed") from None


def _replaced(change: Change) -> Change:
    """Write a file that only we write."""
    if not _replace(change.path, change.before, change.after):
        raise ConfigurationError(f"{change.path} is changed by another program; try again")
    return change


def _replace(path: Path, before: str | None, after: str | None) -> bool:
    """Replace a file as a whole, with its mode and owner, or remove it.

    Returns:
        Whether it was as before; else it stays as it is.
    """
    if after is None:
        if _read(path) != before:
            return False
        path.unlink(missing_ok=True)
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(number, "w", encoding="utf-8", newline="") as file:
            file.write(after)
            file.flush()
            os.fsync(number)
        _like(path, name)
        if _read(path) != before:  # as late as it can be
            return False
        os.replace(name, path)
        return True
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)


def _like(path: Path, name: str) -> None:
    """Give a file the mode and, where that is allowed, the owner of another."""
    try:
        found = path.stat()
    except FileNotFoundError:
        os.chmod(name, _SETTINGS_MODE)
        return
    own = os.stat(name)
    if hasattr(os, "chown") and (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(name, found.st_uid, found.st_gid)
    os.chmod(name, stat.S_IMODE(found.st_mode))


def _kept_text(change: Change, state: Mapping[str, Any]) -> str:
    """What is kept of a file: what it was before it had our hooks.

    Args:
        change: the change that gives it our hooks.
        state: what was kept of it so far.
    """
    original = change.before
    if original is not None and SETTINGS[change.agent].own is None and _ours(json.loads(original)):
        known, before = _original(state, original)
        original = before if known else _without_ours(original)
    made = state.get("folders") or _missing_folders(change.path)
    return json.dumps({"before": original, "after": _digest(change.after or ""), "folders": made})


def _missing_folders(path: Path) -> list[str]:
    """The folders that must be made for a file, the innermost first."""
    return [str(folder) for folder in path.parents if not folder.exists()]


def _remove_folders(change: Change, kept: Path) -> None:
    """Remove the folders that were made for a file, if nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in _state(kept).get("folders", ()):
            if Path(folder) in change.path.parents:
                os.rmdir(folder)


def _state(kept: Path) -> dict[str, Any]:
    """What was kept of a file; nothing, if that cannot be read."""
    try:
        state = json.loads(_read(kept) or "")
    except (OSError, ValueError, RecursionError, ConfigurationError):
        return {}
    folders = state.get("folders", []) if isinstance(state, dict) else None
    if not isinstance(folders, list) or not all(isinstance(one, str) for one in folders):
        return {}
    return state if isinstance(state.get("before"), str | None) else {}


def _original(state: Mapping[str, Any], text: str) -> tuple[bool, str | None]:
    """Whether a file is as it was left, and what it was before."""
    return state.get("after") == _digest(text), state.get("before")


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
