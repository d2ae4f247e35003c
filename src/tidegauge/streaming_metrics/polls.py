"""Polls without a declaration: calls that wait, and looks at what another call has started.

An agent that waits for a build asks for its log again and again, as it should. What a call does is
read from its tool and, of a shell, from its command:

- It *waits*: it sleeps, follows a log, waits for a process, or is an agent's own tool for output
  that is still to come; and all else that it does is looking.
- It *looks*: every command of it only reads (files, processes, the network, the state of a job).
- It *starts* something: a command in the background, a container, a job, a workflow.

A call that waits is a poll if the run has started something, or if the same call was made before
and did not fail: a call that fails the same way again and again is stuck. A look is a poll if it is
at something that the run has started, at its output or at the processes and jobs of its kind; or if
it comes right after a call that only waited, was made before and did not fail.
:class:`~tidegauge.streaming_metrics.polling_allowance.PollingAllowance` knows what was before. A
command that does anything else, such as a build or a test, is no poll, however long it sleeps.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tidegauge.events import Call
from tidegauge.streaming_metrics.clues import SHELLS

ANYTHING: Final = "*"
"""The name of whatever was started: processes, and the network of this machine."""

_MAX_COMMAND: Final = 2_000
_MAX_COMMANDS: Final = 50
_MAX_NAMES: Final = 8


class Polling(NamedTuple):
    """What a call does, as far as it concerns waiting.

    Attributes:
        waits: whether it waits, and does nothing else but look.
        looks: names of what it looks at; ``None``, it does not only look.
        starts: names of what it started, and of its output; ``None``, it starts nothing.
    """

    waits: bool = False
    looks: frozenset[str] | None = None
    starts: frozenset[str] | None = None

    @property
    def rests(self) -> bool:
        """Whether it waits without looking."""
        return self.waits and self.looks is None


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SHELLS: Final = SHELLS | _set("execute_command run_terminal_cmd run_in_terminal shell_command")
_WAITING: Final = _set(
    """
    bashoutput taskoutput task_output agentoutputtool write_stdin wait wait_agent sleep
    read_background_output list_background_processes read_bash read_powershell read_agent
    """
)
"""The tools of agents that wait for output, and generic ones."""

_READING: Final = _set("read read_file readfile view view_file open_file")
_TOOLS: Final = _SHELLS | _WAITING | _READING

_COMMANDS: Final = ("command", "cmd", "code", "script", "input")
_PATHS: Final = ("file_path", "path", "absolute_path", "filepath", "filePath", "target_file")
_IN_BACKGROUND: Final = ("run_in_background", "is_background", "background", "async")
_TASK_OUTPUT: Final = re.compile(r"/tasks/[\w-]{1,80}\.output")

_NEUTRAL: Final = _set(
    """
    cd echo printf date true false : export set pwd seq break continue exit done fi for disown
    clear
    """
)
_PREFIXES: Final = _set(
    """
    ! if then elif else while until do time sudo command exec env nice stdbuf unbuffer nohup setsid
    """
)
_LOOKS: Final = _set(
    """
    cat head tail less more grep egrep fgrep rg find ls stat wc file du df awk sed sort uniq cut
    tr jq yq column diff cmp md5sum sha256sum tac nl strings xxd zcat curl http wget free uptime
    nvidia-smi get-content select-object select-string type [ [[ test
    """
)
_OF_MACHINE: Final = _set(
    """
    ps pgrep pidof top jobs lsof ss netstat nc ncat ping pg_isready kill get-process fg
    """
)
_OF_JOBS: Final = _set("squeue sacct sinfo qstat")
_SUBCOMMANDS: Final[dict[str, frozenset[str]]] = {
    "docker": _set("ps logs inspect stats port top wait"),
    "podman": _set("ps logs inspect stats port top wait"),
    "docker-compose": _set("ps logs top"),
    "kubectl": _set("get describe logs wait top"),
    "oc": _set("get describe logs wait status"),
    "helm": _set("status list history"),
    "systemctl": _set("status is-active show is-failed"),
    "journalctl": frozenset(),
    "git": _set("status log fetch ls-remote show diff"),
    "tmux": _set("capture-pane list-sessions ls"),
    "gh run": _set("list view watch"),
    "gh pr": _set("checks view status list"),
    "gh workflow": _set("view list"),
    "glab ci": _set("status view list get"),
    "kubectl rollout": _set("status history"),
    "docker compose": _set("ps logs top"),
}
"""Which of their commands only look; an empty set, all."""

_NESTED: Final = frozenset(name for name in _SUBCOMMANDS if " " in name)
_WITH_COMMANDS: Final = frozenset(name.partition(" ")[0] for name in _SUBCOMMANDS)
_WITH_VALUE: Final = _set("-n -f -C -R -p -H --namespace --context --file --repo --project-name")
_WAITS: Final = _set("sleep wait inotifywait watch wait-on start-sleep")
_FOLLOWING: Final = re.compile(r"-[a-zA-Z]*[fF]|--follow(?:=\w+)?|-Wait", re.IGNORECASE)
_WATCHING: Final = re.compile(r"-w|--watch(?:=true)?")
_STARTING: Final[dict[str, frozenset[str]]] = {
    "docker": _set("run start restart"),
    "podman": _set("run start restart"),
    "docker-compose": _set("up start restart"),
    "kubectl": _set("apply create delete scale"),
    "systemctl": _set("start restart"),
    "tmux": _set("new-session new send-keys"),
    "git": _set("push"),
    "docker compose": _set("up start restart"),
    "kubectl rollout": _set("restart"),
    "gh run": _set("rerun"),
    "gh workflow": _set("run"),
    "sbatch": frozenset(),
    "qsub": frozenset(),
}
_NO_HANGUP: Final = _set("nohup setsid")
_KIN: Final = {
    **dict.fromkeys(("docker", "podman", "docker-compose"), "docker"),
    **dict.fromkeys(("kubectl", "oc", "helm"), "kubectl"),
    **dict.fromkeys(("git", "gh", "glab"), "gh"),
    **dict.fromkeys(("sbatch", "qsub", *_OF_JOBS), "sbatch"),
    **dict.fromkeys(("systemctl", "journalctl"), "systemctl"),
    "tmux": "tmux",
}
"""Programs that look at what others of their kind have started."""

_HERE: Final = re.compile(r"(?:^|[/@])(?:localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\])(?:[:/]|$)")
_CHANGES: Final[dict[str, re.Pattern[str]]] = {
    "sed": re.compile(r"-[a-zA-Z]*i.*|--in-place.*"),
    "find": re.compile(r"-delete|-exec(?:dir)?|-ok(?:dir)?|-f(?:print0?|printf|ls)"),
    "curl": re.compile(r"-[a-zA-Z]*[dFT].*|--data.*|--form.*|--upload.*|POST|PUT|DELETE|PATCH"),
    "http": re.compile(r"POST|PUT|DELETE|PATCH|.*(?<![=!])=.*"),
    "sort": re.compile(r"-o.*|--output.*"),
    "yq": re.compile(r"-i|--inplace"),
    "date": re.compile(r"-s|--set.*"),
}
"""Options with which a command that looks changes something."""

_ASSIGNED: Final = re.compile(r"\w+=")
_TIMED: Final = re.compile(r"-.*|[\d.]+[smhd]?")
_OUTPUT: Final = re.compile(r"--?[\w-]*(?:out|output|log|logfile|report)[\w-]*=(.+)|-o|--output")
_TOKENS: Final = re.compile(
    r"""(?P<quoted>'[^']*'|"(?:[^"\\]|\\.)*")
    |(?P<redirect>(?:&|\d(?=[<>]))?(?:>>?(?:&[\d-]|\|)?|<<<|<<-?|<(?!\()))
    |(?P<op>&&|\|\||;;|\|&|[;|&\n()]|[{}](?=\s|;|$))
    |(?P<space>[ \t\r]+|\\\n)
    |(?P<word>(?:\\.|\$\{[^}]*\}|[^\s'"\\;|&()<>{}`]|\{[^\s{}]*\})+)
    |(?P<odd>.)""",
    re.VERBOSE | re.DOTALL,
)
_SUBSTITUTED: Final = re.compile(r"\$\(([^()]*)\)")
_DIGEST: Final = "sha:"


def polling_of(call: Call) -> Polling | None:
    """What a call does, as far as it concerns waiting; ``None``, nothing that is known here.

    >>> polling_of(Call("Bash", {"command": "sleep 5 && cat out/build.log"}))
    Polling(waits=True, looks=frozenset({'build.log'}), starts=None)
    >>> sorted(polling_of(Call("bash", {"command": "make > build.log 2>&1 &"})).starts)
    ['*', 'build.log']
    >>> polling_of(Call("bash", {"command": "sleep 1; pytest"}))
    """
    name = call.action
    if type(name) is not str or (tool := name.lower()) not in _TOOLS:
        return None
    given: Any = call.arguments
    if type(given) is dict and len(given) == 1:  # a recorded argument that stands alone
        [key] = given
        given = key if type(key) is str and key.startswith(_DIGEST) else given
    if type(given) is str:
        if given.startswith(_DIGEST):
            return _recorded(given)
        parsed = _parsed(given)
        given = {"command": given} if parsed is None else parsed
    elif given is None:
        given = {}
    if type(given) is not dict:
        return None
    if tool in _WAITING:
        return _of_waiting_tool(tool, given)
    if tool in _READING:
        path = _first_text(given, _PATHS)
        if path is None:
            return None
        if _TASK_OUTPUT.search(path):
            return _WAITED
        return Polling(looks=frozenset((posixpath.basename(path),)))
    return _of_shell(given)


def _of_waiting_tool(tool: str, given: dict[Any, Any]) -> Polling | None:
    if tool == "write_stdin":  # of Codex: without characters, it only reads
        chars = given.get("chars")
        return _WAITED if chars is None or chars == "" else None
    if tool == "wait" and not given:  # in a game, it is a move
        return None
    return _RESTED if tool == "sleep" else _WAITED


def _of_shell(given: dict[Any, Any]) -> Polling | None:
    command = _first_text(given, _COMMANDS)
    if command is None:
        return None
    if not command.strip():  # of OpenHands: more output of the command that runs
        return _WAITED
    if len(command) > _MAX_COMMAND:
        return None
    started = any(given.get(name) is True for name in _IN_BACKGROUND)
    started = started or given.get("mode") == "async"
    return _of_command(command, started)


class _Command(NamedTuple):
    """A command of a line.

    Attributes:
        words: its words.
        outputs: files that it writes.
        background: whether it is started and not waited for.
    """

    words: list[str]
    outputs: list[str]
    background: bool = False


def _of_command(line: str, started: bool) -> Polling | None:
    waits, looks = False, False
    only = True  # whether it does nothing else
    names: set[str] = set()
    outputs: set[str] = set()
    for number, command in enumerate(_commands(line)):
        if command is None or number >= _MAX_COMMANDS:
            only = False
            if command is None:
                continue
            break
        words = _without_prefix(command.words)
        written = [*command.outputs, *_named_outputs(words)]
        if _NO_HANGUP.intersection(command.words[:1]):
            started = True
            outputs.add("nohup.out")
        outputs.update(map(posixpath.basename, written))
        kind = _started(words)
        if kind is not None:
            outputs.add(kind)
        started = started or command.background or kind is not None
        only = only and not written
        if not words or posixpath.basename(words[0]).lower() in _NEUTRAL:
            continue
        found = _looked_at(words)
        if _waits(words):
            waits = True
        elif found is None:
            only = False
            continue
        if found is not None:
            looks = True
            names.update(found)
    if started:
        return Polling(starts=_bounded(outputs) | {ANYTHING})
    if not only or not (waits or looks):
        return None
    return Polling(waits, _bounded(names) if looks else None)


def _bounded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(sorted(names)[:_MAX_NAMES])


def _commands(line: str) -> Iterator[_Command | None]:
    """The commands of a line, those of substitutions, too; ``None``, one that cannot be read."""
    words: list[str] = []
    outputs: list[str] = []
    inputs: list[str] = []
    into = last = words  # where the next word belongs, and where the last one went
    joins = False  # whether what comes next continues a word
    for found in _TOKENS.finditer(line):
        kind, text = found.lastgroup, found[0]
        if kind in ("word", "quoted"):
            if kind == "quoted":
                yield from _substituted(text)
                text = text[1:-1]
            if joins:
                last[-1] += text
            else:
                into.append(text)
                into, last = words, into
            joins = True
            continue
        joins = False
        if kind == "redirect" and not text.startswith("<<"):
            if text[-1] in "><|":  # else it is one such as 2>&1
                into = outputs if ">" in text else inputs
        elif kind == "op":
            if words or outputs or text == "&":
                yield _Command(words, _files(outputs), text == "&")
            words, outputs = [], []
            into = last = words
        elif kind != "space":
            yield None
            if kind == "redirect":
                return  # what follows is a text
    if words or outputs:
        yield _Command(words, _files(outputs))


def _files(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.startswith("/dev/")]


def _substituted(quoted: str) -> Iterator[_Command | None]:
    """The commands whose output stands in a quoted text."""
    if quoted[0] == "'":
        return
    inner = _SUBSTITUTED.findall(quoted)
    if "`" in quoted or quoted.count("$(") > len(inner):
        yield None
    for one in inner:
        yield from _commands(one)


def _without_prefix(words: Sequence[str]) -> Sequence[str]:
    """A command without what runs it: ``timeout 60``, ``sudo -n``, ``CI=1``, ``while``."""
    for _ in range(_MAX_NAMES):
        if not words:
            return words
        if words[0] == "timeout":
            words = words[1:]
            while words and _TIMED.fullmatch(words[0]):
                words = words[1:]
        elif words[0] in _PREFIXES:
            words = words[1:]
            while words and words[0].startswith("-"):
                words = words[1:]
        elif _ASSIGNED.match(words[0]):
            words = words[1:]
        else:
            return words
    return words


def _named_outputs(words: Sequence[str]) -> list[str]:
    """Files that a command writes, by its options."""
    found = [match[1] for word in words if (match := _OUTPUT.fullmatch(word)) and match[1]]
    if words and words[0] == "tee":
        found += [word for word in words[1:] if not word.startswith("-")]
    return _files(found)


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The name of a program, with a group of its commands if it has such; and the rest."""
    name = posixpath.basename(words[0]).lower()
    rest = words[1:]
    if name not in _WITH_COMMANDS:
        return name, rest
    rest = _after_options(rest)
    if rest and (nested := f"{name} {rest[0]}") in _NESTED:
        return nested, _after_options(rest[1:])
    return name, rest


def _after_options(words: Sequence[str]) -> Sequence[str]:
    """The words after options that stand before a command, with their values."""
    while len(words) > 1 and words[0].startswith("-"):
        words = words[2 if "=" not in words[0] and words[0] in _WITH_VALUE else 1 :]
    return words


def _verb(rest: Sequence[str]) -> str:
    return next((word for word in rest if not word.startswith("-")), "")


def _started(words: Sequence[str]) -> str | None:
    """The kind of what a program starts elsewhere; ``None``, nothing."""
    if not words:
        return None
    name, rest = _program(words)
    verbs = _STARTING.get(name)
    if verbs is None or (verbs and _verb(rest) not in verbs):
        return None
    if _verb(rest) in ("run", "up") and not _DETACHED.intersection(rest) and name != "gh workflow":
        return None
    return _kind_of(name)


def _kind_of(name: str) -> str:
    return f":{_KIN[name.partition(' ')[0]]}"


def _waits(words: Sequence[str]) -> bool:
    """Whether a command ends when something has happened, or when time has passed."""
    name, rest = _program(words)
    if name in _WAITS:
        return True
    verb = _verb(rest)
    if name in ("tail", "journalctl", "get-content"):
        return any(_FOLLOWING.fullmatch(word) for word in rest)
    if name not in _SUBCOMMANDS:
        return False
    if verb == "logs":
        return any(_FOLLOWING.fullmatch(word) for word in rest)
    if (name, verb) == ("kubectl rollout", "status") or verb in ("wait", "watch"):
        return True
    return name.startswith(("gh ", "kubectl")) and any(_WATCHING.fullmatch(word) for word in rest)


def _looked_at(words: Sequence[str]) -> set[str] | None:
    """Names of what a command looks at; ``None``, it does more than look."""
    name, rest = _program(words)
    operands = {posixpath.basename(word.rstrip("/")) for word in rest if not word.startswith("-")}
    if name in _LOOKS:
        changes = _CHANGES.get(name)
        if changes is not None and any(changes.fullmatch(word) for word in rest):
            return None
        if name in ("curl", "wget", "http"):
            if not _prints(name, rest):
                return None
            return {ANYTHING} if any(map(_HERE.search, rest)) else operands
        return operands
    if name in _OF_MACHINE:
        return None if name == "kill" and rest[:1] != ["-0"] else {ANYTHING}
    if name in _OF_JOBS:
        return {_kind_of(name)}
    if name == "aws":
        verbs = [word for word in rest if not word.startswith("-")][1:2]
        return operands if verbs and verbs[0].startswith(_AWS_LOOKS) else None
    known = _SUBCOMMANDS.get(name)
    if known is None or (known and _verb(rest) not in known):
        return None
    if name == "git" and _verb(rest) not in ("fetch", "ls-remote"):
        return operands
    return operands | {_kind_of(name)}


def _prints(name: str, rest: Sequence[str]) -> bool:
    """Whether a program that fetches prints what it has fetched, or throws it away."""
    for word, after in zip(rest, [*rest[1:], ""], strict=True):
        if _SAVED_AS.fullmatch(word) and name == "curl" and after not in ("/dev/null", "-"):
            return False
        if name == "curl" and word in ("-O", "--remote-name"):
            return False
    if name != "wget":
        return True
    return "--spider" in rest or any(word.endswith("O-") or word == "-O" for word in rest)


def _first_text(given: dict[Any, Any], names: Iterable[str]) -> str | None:
    for name in names:
        value = given.get(name)
        if type(value) is str:
            return value
        if type(value) is list and value and all(type(one) is str for one in value):
            # ["bash", "-lc", "sleep 5"], or the words of one command
            is_shell = len(value) > 2 and value[-2].startswith("-") and value[-2].endswith("c")
            return str(value[-1] if is_shell else " ".join(value))
    return None


def _parsed(text: str) -> dict[Any, Any] | None:
    if not text.lstrip().startswith("{") or len(text) > 2 * _MAX_COMMAND:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if type(found) is dict else None


def written_polling(call: Call, digest: Callable[[str], str]) -> str:
    """What a recording without contents keeps of a call, behind the digest of its arguments.

    Args:
        call: the call.
        digest: the written form of a name.

    >>> written_polling(Call("bash", "sleep 5; cat build.log"), str.upper)
    '+waits+looks=BUILD.LOG'
    >>> polling_of(Call("bash", "sha:a1+waits+looks=b7"))
    Polling(waits=True, looks=frozenset({'b7'}), starts=None)
    """
    found = polling_of(call)
    if found is None:
        return ""
    text = "+waits" if found.waits else ""
    for name, listed in (("looks", found.looks), ("starts", found.starts)):
        if listed is not None:
            names = sorted(one if one == ANYTHING else digest(one) for one in listed)
            text += f"+{name}={','.join(names)}"
    return text


def _recorded(text: str) -> Polling | None:
    marks = dict(one.partition("=")[::2] for one in text.split("+")[1:])
    if marks.keys().isdisjoint(("waits", "looks", "starts")):
        return None
    looks, starts = (
        frozenset(marks[name].split(",")[:_MAX_NAMES]) if name in marks else None
        for name in ("looks", "starts")
    )
    return Polling("waits" in marks, looks, starts)


_WAITED: Final = Polling(waits=True, looks=frozenset())
_RESTED: Final = Polling(waits=True)
_DETACHED: Final = _set("-d --detach -itd -dit -id -di -td -dt")
_AWS_LOOKS: Final = ("describe", "get", "list", "wait", "ls", "head")
_SAVED_AS: Final = re.compile(r"-[a-zA-Z]*o|--output")
