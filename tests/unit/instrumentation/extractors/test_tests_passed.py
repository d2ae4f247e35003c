"""How many tests passed, in what test runners print, and which commands run tests."""

from __future__ import annotations

import time

import pytest

from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import CodingAgent
from tidegauge.instrumentation.extractors.shell import changes_files, runs_tests
from tidegauge.instrumentation.extractors.shell_output import share_passed

PRINTED = {
    "pytest": ("=========== 1 failed, 3 passed, 2 skipped, 1 warning in 0.12s ===========", 3 / 4),
    "pytest -q": ("..F\n2 passed, 1 error in 65.30s (0:01:05)\n", 2 / 3),
    "pytest passes": ("\x1b[32m\x1b[1m5 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m", 1.0),
    "pytest without tests": ("======= no tests ran in 0.01s =======", None),
    "pytest all skipped": ("2 skipped in 0.01s", None),
    "unittest": ("Ran 5 tests in 0.003s\n\nFAILED (failures=1, errors=1, skipped=1)\n", 2 / 4),
    "unittest passes": ("Ran 1 test in 0.003s\r\n\r\nOK\r\n", 1.0),
    "jest": (
        "Test Suites: 1 failed, 1 total\nTests:       1 failed, 1 todo, 3 passed, 5 total",
        0.75,
    ),
    "vitest": (" Test Files  1 failed (1)\n      Tests  1 failed | 3 passed (4)\n", 0.75),
    "mocha": ("  3 passing (12ms)\n  1 failing\n", 0.75),
    "mocha passes": ("  3 passing (12ms)\n", 1.0),
    "node": ("# tests 4\n# pass 3\n# fail 1\n# cancelled 0\n", 0.75),
    "go": (
        "ok  \tshop/cart\t0.012s\n--- FAIL: TestA (0.00s)\nFAIL\nFAIL\tshop/app\t0.1s\nFAIL\n",
        0.5,
    ),
    "go -v": (
        "--- PASS: TestA (0.00s)\n    --- PASS: TestA/b\n--- FAIL: TestB (0.00s)\nFAIL\n",
        0.5,
    ),
    "go without tests": ("?   \tshop\t[no test files]\n", None),
    "cargo": (
        "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n"
        "test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
        0.75,
    ),
    "nextest": ("     Summary [   0.005s] 4 tests run: 3 passed, 1 failed, 0 skipped\n", 0.75),
    "rspec": ("4 examples, 1 failure, 1 pending\n", 0.75),
    "none": ("collected 4 items\nInternalError", None),
}


@pytest.mark.parametrize(("text", "share"), PRINTED.values(), ids=PRINTED)
def test_the_share_of_tests_that_passed_is_read(text: str, share: float | None) -> None:
    assert share_passed(text) == share


@pytest.mark.parametrize(
    "command",
    [
        "pytest",
        "cd app && timeout 60 python -m pytest -x tests/ 2>&1 | tail -20",
        "CI=1 uv run pytest -q",
        "npm test",
        "npm run test:unit -- --watch=false",
        "npx vitest run",
        "go test ./...",
        "cargo test --all",
        "make check",
        "python manage.py test shop",
        "python3 -W ignore tests/test_cart.py || true; python tests/test_cart.py",
        "./node_modules/.bin/jest",
        "bundle exec rspec",
        "node --test",
    ],
)
def test_commands_that_run_tests(command: str) -> None:
    assert runs_tests(command)


@pytest.mark.parametrize(
    "command",
    [
        "cat pytest.ini",
        "grep -rn pytest .",
        "npm install jest",
        "git commit -m 'go test'",
        "",
        "CI=1",
    ],
)
def test_commands_that_do_not(command: str) -> None:
    assert not runs_tests(command)


def test_a_result_counts_only_of_a_call_that_ran_tests() -> None:
    agent, result = CodingAgent(), CallResult("3 passed in 0.10s", error=False)
    ran = agent.observe(Call("bash", {"command": "pytest"}), result)
    assert ran is not None
    assert (ran.progress, ran.place) == (1.0, None)
    shown = agent.observe(Call("bash", {"command": "cat log.txt"}), result)
    assert shown is not None
    assert (shown.progress, shown.place) == (None, "log.txt")
    tool = agent.observe(Call("runTests", {}), result)
    assert tool is not None
    assert tool.progress == 1.0


def test_the_end_of_a_huge_output_is_read() -> None:
    text = "warning\n" * 100_000 + "== 1 failed, 1 passed in 9.00s =="
    seen = CodingAgent().observe(Call("bash", {"command": "pytest"}), CallResult(text, error=True))
    assert seen is not None
    assert seen.progress == 0.5


@pytest.mark.parametrize("piece", ["=", "1 passed, ", "\n", " ", "--- PASS: ", "Ran 1 test in "])
def test_the_cost_is_in_proportion_to_the_text(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    began = time.process_time()
    share_passed(text)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("echo x > a.txt", True),
        ("sed -i s/a/b/ a.py", True),
        ("sed -n 1,20p a.py", False),
        ("mv a b", True),
        ("git apply fix.patch", True),
        ("make 2>/dev/null", False),
        ("cat a.py | tee b.py", False),  # what a pipe feeds is not looked at
        ("grep -i cp a.py", False),
    ],
)
def test_commands_that_change_files(command: str, changes: bool) -> None:
    assert changes_files(command) is changes
