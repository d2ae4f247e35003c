"""What shell commands do with files."""

from __future__ import annotations

import pytest

from tidegauge.instrumentation.extractors.shell import file_use


@pytest.mark.parametrize(
    ("command", "use"),
    [
        ("cat a.py", ("read", "a.py")),
        ("/bin/cat 'my file.py' | head -5", ("read", "my file.py")),
        ("head -n 5 a.py", ("read", "a.py")),
        ("sed -n '1,40p' src/a.py", ("read", "src/a.py")),
        ("sed -i 's/a/b/' a.py", ("read", "a.py")),
        ("open a.py 293", ("read", "a.py")),
        ("view /repo/a.py --view_range 1 40", ("read", "/repo/a.py")),
        ("echo hi > out.txt", ("read", "out.txt")),
        ("python a.py >> log.txt 2>&1", ("read", "log.txt")),
        ("cat > new.py <<'EOF'\nimport os\ncat old.py\nEOF\n", ("read", "new.py")),
        ("grep -n 'def main' a.py", ("read", "a.py")),
        ("cd src && cd app; cat a.py", ("read", "src/app/a.py")),
        ("cd /repo && cat src/a.py && make", ("read", "/repo/src/a.py")),
        ("ls", ("list", "")),
        ("ls -la src 2>/dev/null", ("list", "src")),
        ("ls -l src/*.py", ("list", "src/")),
        ("ls -l src/a?/*.py", ("list", "src/")),
        ("ls -d */", ("list", "")),
        ("ls src/app", ("list", "src/app")),
        ("cd src && ls", ("list", "src")),
        ("tree -L 2 .", ("list", ".")),
        ("grep -rn TODO src", ("search", "")),
        ("cd /repo && grep -r TODO src | head", ("search", "/repo")),
        ("find . -name '*.py' | xargs grep -l main", ("search", "")),
        ("rg -A 3 main", ("search", "")),
        ("git diff --stat", ("search", "")),
        ("git status", None),
        ("make test", None),
        ("echo cat a.py", None),
        ("ls; python a.py", ("list", "")),
        ("make | grep error", None),
        ("cat", None),
        ("echo 'unclosed; cat a.py", None),
        ("cat a.py; echo 'unclosed", ("read", "a.py")),
        ("", None),
        ("ls 2>&1 >/dev/null", ("list", "")),
    ],
)
def test_the_last_use_of_files_on_a_line(command, use):
    found = file_use(command)
    assert (found and tuple(found)) == use


def test_only_the_beginning_of_a_command_is_read():
    assert file_use("echo " + "x" * 5_000 + "; cat a.py") is None
