"""Three sessions of a coding agent, written live for the picture of ``tidegauge watch``.

With ``--fast``, they are written at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Call = tuple[str, dict[str, Any], str]

FILES = ["cart.py", "order.py", "tax.py", "user.py", "mail.py", "stock.py", "price.py", "ship.py"]


def healthy() -> Iterator[Call]:
    """Lists a folder, reads its files, and fixes tests one by one."""
    yield "Bash", {"command": "ls src"}, "\n".join(FILES)
    for number, name in enumerate(FILES):
        path = f"/home/dev/shop/src/{name}"
        yield "Read", {"file_path": path}, f"# {name}\nimport shop\n"
        yield "Edit", {"file_path": path, "old_string": "a", "new_string": "b"}, f"{name} updated"
        passed = f"{8 - number - 1} failed, {number + 1} passed in 0.1{number}s"
        yield "Bash", {"command": "pytest"}, passed


def looping() -> Iterator[Call]:
    """Starts well, then runs the same command again and again."""
    yield "Bash", {"command": "ls"}, "src tests"
    yield "Bash", {"command": "cat src/cart.py"}, "total = sum(prices)"
    for _ in range(10):
        yield "Bash", {"command": "npm test -- cart"}, "Error: no test script"


def in_turn() -> Iterator[Call]:
    """Looks into two files in turn."""
    yield "Bash", {"command": "ls docs"}, "a.md b.md"
    for number in range(12):
        name = "ab"[number % 2]
        yield "Read", {"file_path": f"/home/dev/docs/{name}.md"}, f"see {'ba'[number % 2]}.md"


def write(home: Path, session: str, calls: Iterator[Call], seconds: float) -> None:
    """Write a session of Claude Code, a call at a time."""
    path = home / ".claude" / "projects" / session / f"{session}.jsonl"
    path.parent.mkdir(parents=True)
    with open(path, "a", buffering=1) as file:

        def say(kind: str, content: Any, **fields: Any) -> None:
            message = {"role": kind, "content": content, **fields}
            record = {"type": kind, "sessionId": session, "cwd": "/home/dev/shop"}
            file.write(json.dumps({**record, "message": message}) + "\n")

        say("user", "fix the tests")
        for number, (tool, given, result) in enumerate(calls):
            call = {"type": "tool_use", "id": f"t{number}", "name": tool, "input": given}
            say("assistant", [call], id=f"m{number}", usage={"output_tokens": 900})
            time.sleep(seconds / 2)
            say("user", [{"type": "tool_result", "tool_use_id": f"t{number}", "content": result}])
            time.sleep(seconds / 2)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for session, calls, seconds in (
            ("c4f1", healthy(), 0.9),
            ("9b02", looping(), 2.2),
            ("e77a", in_turn(), 1.6),
        ):
            given = (home, session, calls, 0.0 if "--fast" in sys.argv else seconds)
            threading.Timer(4.0, write, given).start()
        environment = {**os.environ, "HOME": folder, "XDG_RUNTIME_DIR": folder}
        command = [sys.executable, "-c", "from tidegauge.cli.main import main; main()"]
        subprocess.run([*command, "watch", "--metrics-port", "0"], env=environment)  # noqa: S603, PLW1510 -- our own words
