"""Everyday agents that never end, and legitimate ones that repeat themselves.

A neutral generator: nothing here knows tidegauge or any other guard. An agent yields turns; it does
not react to a guard, so every guard sees the same. What its texts contain by chance (a port, a
time) depends on its name alone.

An endless agent begins with a few steps of honest work; ``began`` is the first turn of its loop. A
legitimate one ends by itself; it succeeded. ``declared`` says of a tool what its developer knows:
``poll`` waits for something to change, ``mutates`` changes something although its result is the
same, ``thinks`` only writes a thought down; or which of its arguments count.
"""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = ["AGENTS", "ENDLESS", "LEGITIMATE", "MAX_TURNS", "Agent", "Called", "Turn"]

MAX_TURNS: Final = 200
"""Turns after which an endless agent was not caught."""

Declared: TypeAlias = Literal["poll", "mutates", "thinks"] | tuple[str, ...]


class Called(NamedTuple):
    """A call with its result.

    Attributes:
        tool: name of the tool.
        arguments: its arguments.
        result: what came back, a text or a JSON value.
        failed: whether it failed; ``None``, not known.
    """

    tool: str
    arguments: Mapping[str, Any]
    result: Any
    failed: bool | None = False


class Turn(NamedTuple):
    """A turn of the model.

    Attributes:
        calls: what it called.
        thought: what it said before.
        late: how many turns are taken before the results arrive: workers at the same time.
        state: what it saw before it chose; ``None``, the results before.
    """

    calls: tuple[Called, ...]
    thought: str = ""
    late: int = 0
    state: Any = None


Turns: TypeAlias = Iterator[Turn]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """An agent.

    Attributes:
        name: what it does.
        play: yields its turns; an endless one does not end.
        began: the first turn of its loop, from 0; ``None``, it is legitimate.
        declared: what its developer can declare of its tools, by their names.
    """

    name: str
    play: Callable[[random.Random], Turns]
    began: int | None = None
    declared: Mapping[str, Declared] = field(default_factory=dict)

    def turns(self) -> list[Turn]:
        """All its turns, the same each time."""
        chance = random.Random(zlib.crc32(self.name.encode()))
        return list(itertools.islice(self.play(chance), MAX_TURNS))


_ENDLESS: list[Agent] = []
_LEGITIMATE: list[Agent] = []
_Play: TypeAlias = Callable[[random.Random], Turns]


def _endless(**declared: Declared) -> Callable[[_Play], _Play]:
    """An endless agent, after three steps of honest work."""

    def add(play: _Play) -> _Play:
        def whole(chance: random.Random) -> Turns:
            yield from _WORK
            yield from play(chance)

        name = play.__name__.strip("_").replace("_", " ")
        _ENDLESS.append(Agent(name=name, play=whole, began=len(_WORK), declared=declared))
        return play

    return add


def _legitimate(**declared: Declared) -> Callable[[_Play], _Play]:
    def add(play: _Play) -> _Play:
        name = play.__name__.strip("_").replace("_", " ")
        _LEGITIMATE.append(Agent(name=name, play=play, declared=declared))
        return play

    return add


def _one(
    tool: str, result: Any, /, *, failed: bool = False, late: int = 0, **arguments: Any
) -> Turn:
    return Turn((Called(tool, arguments, result, failed),), late=late)


def _fails(tool: str, result: Any, /, **arguments: Any) -> Turn:
    return _one(tool, result, failed=True, **arguments)


_WORK: Final = (
    _one("list_dir", "README.md\nsetup.cfg\nsrc\ntests", path="."),
    _one("read_file", "# shop\nA small web shop.\n", path="README.md"),
    _one("grep", "src/cart.py:12:def total(items):", pattern="def total"),
)

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_BASE62: Final = _LETTERS + _LETTERS.upper() + "0123456789"


def _drawn(chance: random.Random, length: int, of: str = _BASE62) -> str:
    return "".join(chance.choice(of) for _ in range(length))


def _tempfile(chance: random.Random) -> str:
    return "/tmp/tmp" + _drawn(chance, 8, _LETTERS + "0123456789_")


def _uuid(chance: random.Random) -> str:
    text = _drawn(chance, 32, "0123456789abcdef")
    return "-".join((text[:8], text[8:12], "4" + text[13:16], "a" + text[17:20], text[20:]))


def _clock(second: int) -> str:
    return f"{9 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _again(*turns: Turn) -> Turns:
    return itertools.cycle(turns)


# Endless: the same again, exactly.


@_endless()
def one_call_again_and_again(chance: random.Random) -> Turns:
    return _again(_one("read_file", "def total(items): ...", path="src/cart.py"))


@_endless()
def one_call_that_fails(chance: random.Random) -> Turns:
    return _again(_fails("run", "bash: pytets: command not found", command="pytets tests"))


@_endless()
def two_searches_that_find_nothing(chance: random.Random) -> Turns:
    return _again(
        _one("search", "No results found.", query="total rounding"),
        _one("search", "No results found.", query="rounding of totals"),
    )


@_endless()
def a_folder_made_and_removed(chance: random.Random) -> Turns:
    return _again(
        _one("run", "", command="mkdir -p build/out"), _one("run", "", command="rm -r build/out")
    )


@_endless()
def an_edit_and_back_with_failing_tests(chance: random.Random) -> Turns:
    failed = _fails("run", "FAILED tests/test_cart.py::test_total\n1 failed", command="pytest")
    return _again(
        _one("edit", "Applied.", path="src/cart.py", old="a + b", new="a - b"),
        failed,
        _one("edit", "Applied.", path="src/cart.py", old="a - b", new="a + b"),
        failed,
    )


@_endless()
def one_call_twice_then_another(chance: random.Random) -> Turns:
    look = _one("search", "3 hits", query="cart")
    return _again(look, look, _one("open", "page 404", hit=1))


@_endless()
def three_tools_that_say_ok(chance: random.Random) -> Turns:
    return _again(*(_one(tool, "ok") for tool in ("save", "format", "lint")))


@_endless()
def two_files_read_in_turn(chance: random.Random) -> Turns:
    return _again(
        _one("read_file", "import cart", path="src/app.py"),
        _one("read_file", "def total(items): ...", path="src/cart.py"),
    )


@_endless()
def a_form_that_is_rejected(chance: random.Random) -> Turns:
    return _again(
        _one("fill", "ok", field="e-mail", text="jo@example"),
        _one("click", "ok", element="submit"),
        _one("read_page", "Please enter a valid e-mail address.", url="/sign-up"),
    )


@_endless()
def a_status_set_to_and_fro(chance: random.Random) -> Turns:
    return _again(
        _one("set_status", {"ok": True}, task=4, status="in progress"),
        _one("set_status", {"ok": True}, task=4, status="open"),
    )


@_endless()
def one_memory_saved_again(chance: random.Random) -> Turns:
    return _again(_one("save_memory", "Saved.", text="The user likes tea."))


def _cycle(period: int, results: int) -> None:
    """A cycle of so many calls with so many different results."""

    def play(chance: random.Random) -> Turns:
        given = [f"part {n % results}" for n in range(period)]
        chance.shuffle(given)
        return _again(
            *(_one("read_file", result, path=f"src/m{n}.py") for n, result in enumerate(given))
        )

    play.__name__ = f"cycle_of_{period}_calls_with_{results}_results"
    _endless()(play)


for _period, _results in (
    (3, 2),
    (4, 1),
    (5, 3),
    (6, 6),
    (7, 2),
    (9, 4),
    (12, 5),
    (25, 3),
    (40, 9),
):
    _cycle(_period, _results)


@_endless()
def a_page_that_does_not_scroll(chance: random.Random) -> Turns:
    return _again(_one("scroll", "You are at the end of the page.", down=800))


@_endless()
def pages_that_begin_again(chance: random.Random) -> Turns:
    return _again(
        *(
            _one("list_orders", {"orders": [10 * n, 10 * n + 1], "next": (n + 1) % 6}, page=n)
            for n in range(6)
        )
    )


@_endless()
def a_dialog_opened_and_closed(chance: random.Random) -> Turns:
    return _again(
        _one("click", "<dialog>Settings</dialog>", element="gear"),
        _one("click", "<main>Orders</main>", element="close"),
    )


@_endless()
def agents_that_hand_over_to_each_other(chance: random.Random) -> Turns:
    return _again(
        _one("transfer_to_billing", "Transferred to billing."),
        _one("transfer_to_support", "Transferred to support."),
    )


@_endless()
def a_planner_that_delegates_in_vain(chance: random.Random) -> Turns:
    return _again(
        _one("delegate", "I need the customer's number.", to="worker", task="refund order 7"),
        _one("ask_planner", "Use the customer's number.", question="Which customer?"),
    )


@_endless()
def thanks_for_thanks(chance: random.Random) -> Turns:
    return _again(
        _one("say", "delivered", to="writer", text="Thank you, that is all."),
        _one("say", "delivered", to="reviewer", text="You are welcome. Anything else?"),
    )


@_endless()
def five_calls_in_each_turn(chance: random.Random) -> Turns:
    calls = tuple(Called("read_file", {"path": f"src/m{n}.py"}, f"part {n}") for n in range(5))
    return _again(Turn(calls))


@_endless()
def the_same_calls_of_a_turn_in_other_orders(chance: random.Random) -> Turns:
    calls = [Called("search", {"query": word}, "0 hits") for word in ("cart", "total", "sum")]
    while True:
        chance.shuffle(calls)
        yield Turn(tuple(calls))


@_endless()
def two_workers_that_repeat_one_call(chance: random.Random) -> Turns:
    return _again(_one("fetch", "queue is empty", late=1, queue="orders"))


@_endless()
def an_approval_that_never_comes(chance: random.Random) -> Turns:
    return _again(_one("run", "This command needs approval.", command="git push"))


# Endless: the same again, but for noise.


@_endless()
def a_field_took(chance: random.Random) -> Turns:
    while True:
        yield _one("query", {"rows": [], "took": chance.randint(2, 90)}, sql="SELECT 1 WHERE false")


@_endless()
def a_time_in_each_result(chance: random.Random) -> Turns:
    for n in itertools.count():
        text = f"[2026-11-27 {_clock(17 * n)},{chance.randint(100, 999)}] no such order: 7"
        yield _one("read_log", text, last=1)


@_endless()
def a_port_that_changes(chance: random.Random) -> Turns:
    while True:
        port = chance.randint(40_000, 60_000)
        text = f"Serving on http://127.0.0.1:{port}\ncurl: (52) Empty reply from server"
        yield _one("run", text, command="make serve-and-look")


@_endless()
def an_attempt_counter(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("fetch", "The page is blank.", url="https://shop.example/7", attempt=n)


@_endless()
def a_new_temporary_folder_each_time(chance: random.Random) -> Turns:
    while True:
        folder = _tempfile(chance)
        text = (
            f"Traceback (most recent call last):\n  File \"{folder}/a.py\", line 3\nKeyError: 'id'"
        )
        yield _fails("run", text, command=f"cd {folder} && python a.py")


@_endless()
def a_script_under_a_new_name(chance: random.Random) -> Turns:
    while True:
        name = f"/tmp/tmp.{_drawn(chance, 10)}"
        yield _fails("run", f"bash: {name}: line 4: jq: command not found", command=f"bash {name}")


@_endless()
def ids_of_requests(chance: random.Random) -> Turns:
    while True:
        request = f"req_{_drawn(chance, 24)}"
        yield _one(
            "call_api", {"error": "quota exceeded", "request_id": request}, path="/v1/orders"
        )


@_endless()
def an_edit_and_back_with_timed_tests(chance: random.Random) -> Turns:
    for n in itertools.count():
        old, new = ("a + b", "a - b") if n % 2 else ("a - b", "a + b")
        yield _one("edit", "Applied.", path="src/cart.py", old=old, new=new)
        text = f"1 failed, 3 passed in {chance.uniform(0.2, 0.9):.2f}s"
        yield _fails("run", text, command="pytest")


@_endless()
def process_ids(chance: random.Random) -> Turns:
    while True:
        pid = chance.randint(1_000, 90_000)
        yield _one("start_server", f"started (pid {pid})\nexited with code 1", script="serve.py")


@_endless()
def seconds_ago(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("list_jobs", f"nightly  failed  {12 * n} seconds ago", state="any")


@_endless()
def cells_of_a_notebook(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        text = (
            f"Cell In[{n}], line 1\n    df.head(\n           ^\nSyntaxError: '(' was never closed"
        )
        yield _fails("run_cell", text, code="df.head(")


@_endless()
def lines_of_a_shell(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("run", f"/bin/bash: line {40 * n}: tree: command not found", command="tree src")


@_endless()
def headers_of_a_response(chance: random.Random) -> Turns:
    for n in itertools.count():
        text = (
            f"HTTP/1.1 200 OK\ndate: Fri, 27 Nov 2026 {_clock(31 * n)} GMT\n"
            f'etag: "{_drawn(chance, 32, "0123456789abcdef")}"\n\n[]'
        )
        yield _one("run", text, command="curl -i http://shop.example/orders?state=lost")


@_endless(browse=("url",))
def a_new_session_for_each_call(chance: random.Random) -> Turns:
    while True:
        yield _one("browse", "The cart is empty.", url="/cart", session_id=_uuid(chance))


@_endless()
def the_progress_table_of_a_download(chance: random.Random) -> Turns:
    while True:
        table = (
            "  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current\n"
            "                                 Dload  Upload   Total   Spent    Left  Speed\n"
        )
        at = f"{chance.randint(400, 1_900):>6}      0 --:--:-- --:--:-- --:--:--"
        line = f"\r100   146  100   146    0     0 {at} {chance.randint(400, 1_900):>5}"
        yield _one(
            "run", f"{table}{line}\n404 Not Found", command="curl -o a https://shop.example/a"
        )


@_endless()
def a_loop_of_three_with_one_noisy_result(chance: random.Random) -> Turns:
    while True:
        yield _one(
            "search", {"hits": ["a", "b"], "elapsed_ms": chance.randint(3, 99)}, query="cart"
        )
        yield _one("open", "page about carts", hit="a")
        yield _one("back", "ok")


@_endless()
def a_count_of_the_calls_in_the_result(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("lookup", f"Not available. You have used this tool {n} times.", key="vat")


# Endless: the same in other words, or nothing again and again.


@_endless()
def one_question_in_other_words(chance: random.Random) -> Turns:
    first = ("refund", "return", "money back", "reimbursement", "repayment", "credit")
    second = ("policy", "rules", "terms", "conditions", "guide", "FAQ", "page", "period")
    while True:
        words = f"{chance.choice(first)} {chance.choice(second)} {chance.choice(second)}"
        yield _one("search", "No results found.", query=words)


@_endless()
def one_answer_to_all_questions(chance: random.Random) -> Turns:
    found = "1. Our refund policy (shop.example/refunds)\n2. Contact us (shop.example/contact)"
    for n in itertools.count():
        yield _one("search", found, query=f"refund of a gift card bought {n + 2} days ago")


@_endless()
def a_memory_recalled_in_other_words(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one("recall", [{"text": "The user likes tea.", "score": 0.4}], query=f"drink {n}")


@_endless()
def a_range_that_grows_past_the_end(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("read_file", "def total(items): ...", path="src/cart.py", first=1, last=200 * n)


@_endless()
def permission_denied_whatever_is_tried(chance: random.Random) -> Turns:
    tries = ("cat", "less", "head", "sudo cat", "tail", "more", "strings", "xxd", "od -c", "base64")
    for n in itertools.count():
        command = f"{tries[n % 10]} /etc/shop/{'./' * (n // 10)}secret.key"
        yield _fails("run", "Permission denied", command=command)


@_endless()
def tools_that_do_not_exist(chance: random.Random) -> Turns:
    first, second = (
        ("get", "fetch", "read", "load", "query"),
        ("order", "invoice", "customer", "cart"),
    )
    for n in itertools.count():
        tool = f"{first[n % 5]}_{second[n // 5 % 4]}{'_v' + str(n // 20) if n >= 20 else ''}"
        yield _fails(tool, f"Error: {tool} is not a valid tool, try one of [search].", id=7)


@_endless()
def answers_that_are_rejected(chance: random.Random) -> Turns:
    wrong = ("field required", "not a number", "extra field", "too short", "not a list")
    for n in itertools.count():
        text = f"1 validation error for Answer\ntotal\n  {wrong[n % 5]} [input={n}]"
        yield _fails("Answer", text, total=f"about {n}")


@_endless()
def arguments_that_are_no_json(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _fails(
            "write_file", "Invalid JSON in arguments.", raw='{"path": "a.txt", "text": ' + "x" * n
        )


@_endless()
def guessed_paths(chance: random.Random) -> Turns:
    for n in itertools.count():
        folder, name = ("src", "lib", "app", "shop")[n % 4], ("util", "core", "main")[n // 4 % 3]
        path = f"{folder}/{name}{n // 12}.py"
        yield _fails("read_file", f"cat: {path}: No such file or directory", path=path)


@_endless()
def parameters_that_do_not_help(chance: random.Random) -> Turns:
    for n in itertools.count():
        url = f"https://shop.example/api/orders?limit={10 + n}&sort={('asc', 'desc')[n % 2]}"
        yield _fails("fetch", "404 Not Found", url=url)


@_endless()
def requests_over_the_limit(chance: random.Random) -> Turns:
    while True:
        text = f"429 Too Many Requests. Retry after {chance.randint(20, 60)} seconds."
        yield _fails("fetch", text, url="https://shop.example/api/orders")


@_endless()
def longer_and_longer_timeouts(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _fails(
            "run", f"Command timed out after {30 * n} s", command="make e2e", timeout=30 * n
        )


@_endless()
def an_edit_that_does_not_match(chance: random.Random) -> Turns:
    for n in itertools.count():
        old = f"return{' ' * (n % 7 + 1)}a + b{' ' * (n // 7)}"
        yield _fails("edit", "The text to replace was not found.", path="src/cart.py", old=old)


@_endless()
def a_server_that_is_gone(chance: random.Random) -> Turns:
    tools = ("list_issues", "get_issue", "search_issues", "list_labels", "get_user", "list_repos")
    for n in itertools.count():
        yield _fails(tools[n % 6], "MCP error -32000: Connection closed", page=n)


@_endless()
def a_commit_with_nothing_in_it(chance: random.Random) -> Turns:
    for n in itertools.count(2):
        text = "nothing to commit, working tree clean"
        yield _fails("run", text, command=f"git commit -am 'Fix total, attempt {n}'")


@_endless()
def a_question_without_an_answer(chance: random.Random) -> Turns:
    asked = ("Shall I continue?", "May I go on?", "Please confirm.", "Is that fine?", "Ready?")
    for n in itertools.count():
        yield _one("ask_user", "", text=f"{asked[n % 5]}{' Please.' * (n // 5)}")


@_endless()
def quotes_and_spaces(chance: random.Random) -> Turns:
    for n in itertools.count():
        quote, space = "'\""[n % 2], " " * (1 + n // 2)
        yield _fails(
            "run", "grep: unknown option", command=f"grep{space}--colour {quote}total{quote} src"
        )


@_endless()
def days_on_which_nothing_is_free(chance: random.Random) -> Turns:
    for n in itertools.count(1):
        yield _one("find_flights", [], origin="BRE", to="AMS", in_days=n)


@_endless()
def orders_that_do_not_exist(chance: random.Random) -> Turns:
    for n in itertools.count(1_000):
        yield _fails("get_order", f"order {n} does not exist", id=n)


# Endless: something else in between.


@_endless()
def a_thought_between_equal_calls(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one(
            "think", "ok", thought=f"I should look at the cart again, because of reason {n}."
        )
        yield _one("read_file", "def total(items): ...", path="src/cart.py")


@_endless()
def one_thought_again_and_again(chance: random.Random) -> Turns:
    return _again(_one("think", "ok", thought="I should look at the cart."))


@_endless(job_state="poll")
def a_thought_between_looks_at_a_job_that_has_died(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one("think", "ok", thought=f"It may be done by now, {n} minutes later.")
        yield _one("job_state", {"state": "failed", "step": "deploy"}, job="b-7")


@_endless(write_note="thinks")
def a_note_between_equal_calls(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one("write_note", "Noted.", text=f"Looked at the cart {n} times.")
        yield _one("read_file", "def total(items): ...", path="src/cart.py")


@_endless(update_todos="thinks")
def a_list_of_tasks_between_two_calls(chance: random.Random) -> Turns:
    for n in itertools.count():
        todos = [{"text": "fix total", "state": ("open", "doing")[n % 2], "note": f"round {n}"}]
        yield _one("update_todos", "Todos updated.", todos=todos)
        yield _fails("run", "1 failed", command="pytest")
        yield _one("read_file", "def total(items): ...", path="src/cart.py")


@_endless()
def apologies(chance: random.Random) -> Turns:
    for n in itertools.count():
        call = Called("search", {"query": "refund policy"}, "No results found.")
        yield Turn((call,), f"I am sorry, let me look at it in way number {n}.")


@_endless()
def few_calls_in_any_order(chance: random.Random) -> Turns:
    calls = [_one("read_file", f"part {n}", path=f"src/m{n}.py") for n in range(3)]
    while True:
        yield chance.choice(calls)


@_endless()
def new_edits_with_the_same_failing_test(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one("edit", "Applied.", path="src/cart.py", new=f"return round(a + b, {n})")
        yield _fails("run", "FAILED tests/test_cart.py::test_total\n1 failed", command="pytest")


@_endless(job_state="poll")
def a_job_that_has_died(chance: random.Random) -> Turns:
    return _again(_one("job_state", {"state": "failed", "step": "deploy"}, job="b-7"))


@_endless(sleep="poll", job_state="poll")
def longer_and_longer_waits_for_a_job_that_has_died(chance: random.Random) -> Turns:
    for n in itertools.count():
        yield _one("sleep", "ok", seconds=min(5 * 2**n, 300))
        yield _one("job_state", {"state": "failed", "step": "deploy"}, job="b-7")


@_endless()
def one_paragraph_written_again(chance: random.Random) -> Turns:
    return _again(_one("append_text", "ok", path="report.md", text="In conclusion, it depends."))


@_endless()
def a_click_that_loads_the_same(chance: random.Random) -> Turns:
    shown = ["red shoes", "blue shoes"]
    return _again(_one("click", shown, element="load more"), _one("read_page", shown, url="/shoes"))


@_endless()
def two_workers_and_a_third(chance: random.Random) -> Turns:
    for n in itertools.count():
        tool, url = (("fetch", "/orders"), ("fetch", "/orders"), ("report", "/status"))[n % 3]
        yield _one(tool, "502 Bad Gateway", late=2, url=url)


# Legitimate: many alike, each of them new.


@_legitimate()
def files_moved_one_by_one(chance: random.Random) -> Turns:
    for n in range(20):
        yield _one("move_file", "OK", source=f"in/{n}.txt", target=f"out/{n}.txt")


@_legitimate()
def blocks_loaded_one_by_one(chance: random.Random) -> Turns:
    for n in range(40):
        yield _one("load_block", {"ok": True}, number=n)


@_legitimate()
def a_book_read_page_by_page(chance: random.Random) -> Turns:
    for n in range(50):
        yield _one("read_page", f"On page {n} the {chance.choice(_LETTERS)} turns.", page=n)


@_legitimate()
def a_file_read_in_ranges(chance: random.Random) -> Turns:
    for n in range(30):
        text = "\n".join(f"{line}: {_drawn(chance, 20)}" for line in range(100 * n, 100 * n + 5))
        yield _one("read_file", text, path="big.log", first=100 * n, last=100 * n + 99)


@_legitimate()
def files_changed_by_the_same_three_tools(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("read_file", f"# module {n}", path=f"src/m{n}.py")
        yield _one("edit", "Applied.", path=f"src/m{n}.py", old="# module", new="# part")
        yield _one("lint", "no findings", path=f"src/m{n}.py")


@_legitimate()
def letters_to_many(chance: random.Random) -> Turns:
    for n in range(30):
        yield _one("send_mail", "sent", to=f"customer{n}@shop.example", template="reminder")


@_legitimate()
def rows_inserted(chance: random.Random) -> Turns:
    for n in range(30):
        yield _one("query", "INSERT 0 1", sql=f"INSERT INTO orders VALUES ({n}, 'open')")


@_legitimate()
def texts_translated(chance: random.Random) -> Turns:
    for n in range(25):
        yield _one("translate", f"Bestellung {n}", text=f"order {n}", to="de")


@_legitimate()
def questions_with_the_same_answer(chance: random.Random) -> Turns:
    for n in range(12):
        yield _one("ask_user", "yes", text=f"Shall I include chapter {n + 1}?")


@_legitimate()
def inputs_tried_one_by_one(chance: random.Random) -> Turns:
    for n in range(25):
        yield _one("run", "ok", command=f"./parse --input case{n}.json")


@_legitimate()
def five_new_files_in_each_turn(chance: random.Random) -> Turns:
    for turn in range(10):
        numbers = range(5 * turn, 5 * turn + 5)
        yield Turn(
            tuple(Called("read_file", {"path": f"docs/{n}.md"}, f"chapter {n}") for n in numbers)
        )


@_legitimate()
def three_workers_on_different_pages(chance: random.Random) -> Turns:
    for n in range(30):
        yield _one("fetch", f"page {n}", late=2, url=f"/orders?page={n}")


@_legitimate()
def names_looked_up_of_which_few_are_known(chance: random.Random) -> Turns:
    for n in range(24):
        found: Any = {"id": n} if n % 8 == 7 else "not found"
        yield _one("find_customer", found, name=f"{chance.choice(('Kim', 'Lee', 'Cho'))} {n}")


@_legitimate(find_customer="poll")
def names_looked_up_of_which_none_is_known(chance: random.Random) -> Turns:
    for n in range(25):
        yield _one("find_customer", "no customer found", name=f"Kim {n}")
    yield _one("import_customers", "25 imported", path="new.csv")


@_legitimate()
def files_moved_in_four_calls_each(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("exists", True, path=f"in/{n}.txt")
        yield _one("copy", "OK", source=f"in/{n}.txt", target=f"out/{n}.txt")
        yield _one("compare", "equal", first=f"in/{n}.txt", second=f"out/{n}.txt")
        yield _one("delete", "OK", path=f"in/{n}.txt")


@_legitimate()
def days_without_an_appointment(chance: random.Random) -> Turns:
    for n in range(14):
        yield _one("list_events", ["dentist"] if n == 9 else [], day=f"2026-12-{n + 1:02}")


@_legitimate(reachable="poll")
def mirrors_tried_until_one_answers(chance: random.Random) -> Turns:
    for n in range(7):
        yield _fails("reachable", "connection refused", host=f"mirror{n}.shop.example")
    yield _one("reachable", "ok", host="mirror7.shop.example")
    yield _one("download", "done", host="mirror7.shop.example")


@_legitimate()
def four_paths_guessed_until_one_exists(chance: random.Random) -> Turns:
    for path in ("a.toml", "conf/a.toml", "etc/a.toml", "config/a.toml"):
        yield _fails("read_file", f"cat: {path}: No such file or directory", path=path)
    yield _one("read_file", "debug = false", path="settings/a.toml")


# Legitimate: waiting and trying again.


@_legitimate(job_state="poll")
def a_build_that_takes_its_time(chance: random.Random) -> Turns:
    yield _one("start_build", {"job": "b-7"}, branch="main")
    for _ in range(12):
        yield _one("job_state", {"state": "running"}, job="b-7")
    yield _one("job_state", {"state": "passed"}, job="b-7")


@_legitimate(sleep="poll", job_state="poll")
def a_build_looked_at_between_sleeps(chance: random.Random) -> Turns:
    for _ in range(8):
        yield _one("sleep", "ok", seconds=30)
        yield _one("job_state", {"state": "running"}, job="b-7")
    yield _one("job_state", {"state": "passed"}, job="b-7")


@_legitimate(job_state="poll")
def two_builds_looked_at_in_turn(chance: random.Random) -> Turns:
    for n in range(16):
        yield _one("job_state", {"state": "running"}, job=("b-7", "b-8")[n % 2])
    yield _one("job_state", {"state": "passed"}, job="b-7")
    yield _one("job_state", {"state": "passed"}, job="b-8")


@_legitimate()
def a_download_with_percentages(chance: random.Random) -> Turns:
    for n in range(0, 101, 4):
        yield _one("progress", f"{n} % of 1.2 GB", download=3)


@_legitimate()
def a_migration_that_counts_rows(chance: random.Random) -> Turns:
    for n in range(20):
        yield _one(
            "query", [{"count": 1_000 * n + chance.randint(0, 900)}], sql="SELECT count(*) FROM t"
        )


@_legitimate()
def a_request_that_succeeds_at_the_fourth_try(chance: random.Random) -> Turns:
    for wait in (1, 2, 4):
        yield _fails("fetch", "503 Service Unavailable", url="/orders")
        yield _one("sleep", "ok", seconds=wait)
    yield _one("fetch", "[]", url="/orders")


@_legitimate()
def a_flaky_call_tried_three_times(chance: random.Random) -> Turns:
    for n in range(6):
        for _ in range(2):
            yield _fails("fetch", "timeout", url=f"/orders/{n}")
        yield _one("fetch", f"order {n}", url=f"/orders/{n}")


@_legitimate(price="poll")
def a_price_that_rarely_changes(chance: random.Random) -> Turns:
    for n in range(24):
        yield _one("price", {"eur": (9, 10, 9, 8)[n // 7]}, item="tea")
    yield _one("buy", "ok", item="tea")


@_legitimate()
def a_log_that_is_followed(chance: random.Random) -> Turns:
    for n in range(20):
        yield _one("read_log", "" if n % 3 else f"line {n}: {_drawn(chance, 8)}", since="last")


@_legitimate(heartbeat="poll")
def a_heartbeat_during_quiet_work(chance: random.Random) -> Turns:
    yield _one("lock", "ok", name="report")
    for _ in range(15):
        yield _one("heartbeat", "ok", lock="report")
    yield _one("unlock", "ok", name="report")


@_legitimate()
def a_heartbeat_between_pieces_of_work(chance: random.Random) -> Turns:
    for n in range(12):
        yield _one("heartbeat", "ok", lock="report")
        yield _one("write_section", "ok", number=n, text=f"About {_drawn(chance, 6)}.")


@_legitimate(run_test="poll")
def a_test_run_ten_times_for_flakiness(chance: random.Random) -> Turns:
    for _ in range(10):
        yield _one("run_test", f"1 passed in {chance.uniform(0.2, 0.9):.2f}s", name="test_total")


@_legitimate(benchmark="poll")
def a_benchmark_run_several_times(chance: random.Random) -> Turns:
    for _ in range(6):
        yield _one("benchmark", f"total: {chance.uniform(11, 13):.1f} ms", name="total")
    yield _one("edit", "Applied.", path="src/cart.py", new="return sum(items)")
    for _ in range(6):
        yield _one("benchmark", f"total: {chance.uniform(7, 9):.1f} ms", name="total")


# Legitimate: the same call means something else each time.


@_legitimate(press="mutates")
def a_key_pressed_many_times(chance: random.Random) -> Turns:
    yield _one("screenshot", "a list of 20 songs")
    for _ in range(12):
        yield _one("press", "ok", key="Down")
    yield _one("press", "ok", key="Enter")


@_legitimate(append_line="mutates")
def equal_lines_appended(chance: random.Random) -> Turns:
    for _ in range(8):
        yield _one("append_line", "ok", path="table.csv", line="0,0,0")


@_legitimate(volume_up="mutates")
def a_volume_turned_up(chance: random.Random) -> Turns:
    for _ in range(7):
        yield _one("volume_up", "ok")
    yield _one("volume", 70)


@_legitimate(next_page="mutates")
def next_page_that_says_ok(chance: random.Random) -> Turns:
    for n in range(20):
        yield _one("read_text", f"part {n} of the contract")
        yield _one("next_page", "ok")


@_legitimate()
def an_iterator_with_new_values(chance: random.Random) -> Turns:
    for n in range(30):
        yield _one("next_row", {"id": n, "name": _drawn(chance, 6)})


@_legitimate()
def jobs_taken_from_a_queue(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("take_job", {"job": n, "resize": _drawn(chance, 5)})
        yield _one("run_job", "done", job=n)


@_legitimate(roll="mutates")
def dice(chance: random.Random) -> Turns:
    for _ in range(20):
        yield _one("roll", chance.randint(1, 6), sides=6)


@_legitimate()
def a_page_that_scrolls(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("scroll", f"Article {n}: {_drawn(chance, 12)}", down=800)


@_legitimate()
def a_queue_that_is_emptied(chance: random.Random) -> Turns:
    for n in range(18, -1, -1):
        yield _one("delete_oldest", {"remaining": n})


@_legitimate(draw="mutates")
def lots_drawn_until_one_wins(chance: random.Random) -> Turns:
    for _ in range(9):
        yield _one("draw", "no win")
    yield _one("draw", "a mug")


# Legitimate: there and back, and progress in small steps.


@_legitimate()
def tests_that_fail_less_and_less(chance: random.Random) -> Turns:
    for failing in range(8, 0, -1):
        yield _one("edit", "Applied.", path="src/cart.py", new=f"case {failing}")
        yield _fails("run", f"{failing - 1} failed, {20 - failing} passed", command="pytest")
    yield _one("run", "20 passed", command="pytest")


@_legitimate()
def five_edits_until_one_test_passes(chance: random.Random) -> Turns:
    for n in range(5):
        yield _one("edit", "Applied.", path="src/cart.py", new=f"return round(a + b, {n})")
        yield _fails("run", "1 failed", command="pytest")
    yield _one("edit", "Applied.", path="src/cart.py", new="return a + b")
    yield _one("run", "20 passed", command="pytest")


@_legitimate()
def a_list_and_each_of_its_items(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("open", f"item {n}: {_drawn(chance, 6)}", item=n)
        yield _one("back", "a list of 15 items")


@_legitimate()
def two_themes_compared(chance: random.Random) -> Turns:
    for theme in ("dark", "light", "dark", "light"):
        yield _one("set_theme", "ok", theme=theme)
        yield _one("screenshot", f"a {theme} page")
    yield _one("answer", "delivered", text="The dark one reads better.")


@_legitimate()
def a_number_guessed_by_halves(chance: random.Random) -> Turns:
    low, high = 0, 1_000_000
    while low < high:
        middle = (low + high) // 2
        yield _one("guess", "higher" if middle < 765_432 else "lower or equal", number=middle)
        low, high = (middle + 1, high) if middle < 765_432 else (low, middle)


@_legitimate()
def a_commit_found_by_halves(chance: random.Random) -> Turns:
    for n in range(9):
        yield _one("run", f"Bisecting: {2 ** (8 - n)} revisions left", command="git bisect good")
        yield _one("run", "ok", command="make test")


@_legitimate()
def a_house_walked_through(chance: random.Random) -> Turns:
    for n, way in enumerate("nneesswnnwsseenw"):
        wall = n % 5 == 4
        yield _one("go", "There is a wall." if wall else f"Room {n}. Exits: n, e, s, w.", way=way)


@_legitimate()
def moves_of_a_game(chance: random.Random) -> Turns:
    for n in range(30):
        yield _one("move", "ok", piece=chance.choice("NBRQP"), to=f"{_LETTERS[n % 8]}{n % 7 + 1}")


@_legitimate()
def thoughts_between_new_calls(chance: random.Random) -> Turns:
    for n in range(15):
        yield _one("think", "ok", thought=f"Next I read chapter {n}.")
        yield _one("read_file", f"chapter {n}", path=f"docs/{n}.md")


@_legitimate()
def the_whole_suite_between_features(chance: random.Random) -> Turns:
    for n in range(6):
        yield _one("write_file", "ok", path=f"src/feature{n}.py", text=f"def f{n}(): ...")
        yield _one("run", "all passed", command="pytest")


ENDLESS: Final[Sequence[Agent]] = tuple(_ENDLESS)
LEGITIMATE: Final[Sequence[Agent]] = tuple(_LEGITIMATE)
AGENTS: Final[Mapping[str, Agent]] = {agent.name: agent for agent in (*ENDLESS, *LEGITIMATE)}
