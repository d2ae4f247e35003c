"""The report in a real Chromium: every view of it is driven."""

from __future__ import annotations

import contextlib
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

from support.browser import Visit, chromium, visit
from support.speed import slowness

pytestmark = [pytest.mark.system, pytest.mark.minutes]

EVIL = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)><b>x</b>"
COMMAND = "from tidegauge.cli.main import main; main()"
MOST_SECONDS = 120
"""Of processor time, on a quiet machine."""

MOST_BYTES = 20_000_000


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def report(folder: Path, *arguments: str) -> Path:
    """Made by the command itself."""
    out = folder / "report.html"
    command = [sys.executable, "-c", COMMAND, "report", *arguments, "-o", str(out)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@contextlib.contextmanager
def reading(browser: Browser, file: Path, view: str = "", **context: object) -> Iterator[Visit]:
    """The page, once it is open; it has nothing to complain of, and asks nobody."""
    with visit(browser, f"file://{file}{view}", **({"accept_downloads": True} | context)) as opened:
        expect(opened.page.locator("#opening")).to_be_hidden(timeout=30_000)
        yield opened
        assert opened.complaints == []
        assert opened.hosts == {""}


def selected(page: Page) -> int:
    return int((page.locator("#count strong").text_content() or "").replace(",", ""))


def saved_runs(page: Page) -> list[bytes]:
    with page.expect_download() as waiting:
        page.click("#save")
    return Path(waiting.value.path()).read_bytes().splitlines()


def brush(page: Page, chart: Locator, *corners: tuple[float, float]) -> None:
    """Drag over a chart, by shares of its plot."""
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    assert box is not None
    spots = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*spots[0])
    page.mouse.down()
    for x, y in spots[1:]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


# A small collection in which everything occurs.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    (folder / "runs.jsonl").write_bytes(
        b"".join(orjson.dumps(event) + b"\n" for event in small_collection())
    )
    (folder / "scores.jsonl").write_bytes(
        b"".join(
            orjson.dumps(
                {"run": f"plain-{n}", "competency": "self_verification", "score": 1 + n % 4,
                 "reason": f"looked {n} times", "steps": [0, 2]}
            ) + b"\n"
            for n in range(8)
        )
    )  # fmt: skip
    return report(folder, "runs.jsonl", "--scores", "scores.jsonl", "--policy", "loop_repeats=3")


ROOMS = {
    room[0]: room
    for room in ("attic", "bath", "cellar", "den", "entry", "foyer", "garage", "hall", "xyst")
}


def small_collection() -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []

    def run(name: str, states: str, success: bool | None, **started: Any) -> None:
        events.append({"type": "start", "run": name, "t_max": 20, **started})
        for state in states:
            thinks, room = state == "c", ROOMS[state]
            events.append(
                {"type": "step", "run": name, "state": f"in the {room}",
                 "action": "think" if thinks else "go",
                 "args": f"the {room} door is open" if thinks else f"{room} door",
                 "outcome": f"it is the {room}", "error": state == "x"}
            )  # fmt: skip
        events.append({"type": "end", "run": name, "success": success})

    for n in range(8):
        arm = {"memory": "on" if n % 2 else "off"}
        run(f"plain-{n}", "abcdefgh"[: 4 + n % 4] + "x", n % 4 < 2, agent="walker", **arm)
    run("looping", "abcabcabc", False, agent="looper", task_group="rooms")
    run("stopped", "ab" * 8, False, agent="looper", task_group="rooms")
    events += [
        {"type": "start", "run": "placed", "agent": "explorer", "place": "hall",
         "exits": ["attic", "cellar"], "t_max": 20},
        *({"type": "step", "run": "placed", "action": "move", "args": place, "place": place,
           "exits": ["hall", "den"], "outcome": f"at {place} {n}"}
          for n, place in enumerate(["attic", "hall", "attic", "hall", "attic"])),
        {"type": "end", "run": "placed", "success": False},
        {"type": "start", "run": EVIL, "agent": EVIL, "task": EVIL, "task_group": EVIL},
        {"type": "step", "run": EVIL, "action": EVIL, "args": EVIL, "outcome": EVIL},
        {"type": "end", "run": EVIL, "success": True},
    ]  # fmt: skip
    return events


def test_the_overview_shows_groups_and_charts(browser: Browser, small: Path) -> None:
    with reading(browser, small) as opened:
        page = opened.page
        rows = page.locator("#groups tbody tr:not(.end)")
        expect(rows).to_have_count(5)
        looper = rows.filter(has_text="looper")
        expect(looper).to_contain_text("rooms")
        # What was not measured is a dash: no place was reported.
        assert looper.locator("td").all_text_contents()[-2:] == ["—", "—"]
        explorer = rows.filter(has_text="explorer").locator("td").all_text_contents()
        assert re.fullmatch(r"\d+(\.\d)?%", explorer[-2])
        expect(page.locator("#memory tbody tr:not(.end)")).to_have_count(1)
        for chart in ("curves", "tasks", "comparison"):
            expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
        expect(page.locator("#curves .scatterlayer .trace")).to_have_count(5)
        page.locator("#groups th button", has_text="Loop ratio").click()
        expect(rows.first).to_contain_text("looper")
        expect(page.locator("#groups th[aria-sort=descending]")).to_have_text("Loop ratio")
        rows.first.get_by_role("button").click()
        expect(page.locator("#view-runs")).to_be_visible()
        assert selected(page) == 2


def test_runs_are_filtered_sorted_opened_and_saved(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#runs") as opened:
        page = opened.page
        rows = page.locator("#runs-table tbody tr:not(.end)")
        expect(rows).to_have_count(12)
        page.locator("#runs-table th button", has_text="Loop ratio").click()
        assert "looping" in (rows.first.text_content() or "") or "stopped" in (
            rows.first.text_content() or ""
        )
        page.select_option("#controls [name=agent]", "walker")
        page.select_option("#controls [name=outcome]", "success")
        expect(rows).to_have_count(4)
        page.fill("#controls [name=text]", "THE FOYER")
        expect(rows).to_have_count(0)
        page.fill("#controls [name=text]", "")
        page.select_option("#controls [name=measure]", "auv")
        page.fill("#controls [name=from]", "0.75")
        expect(rows).to_have_count(2)
        expect(page.locator("#filters li")).to_have_count(3)
        lines = saved_runs(page)
        kept = {orjson.loads(line)["run"] for line in lines}
        assert kept == {"plain-0", "plain-4"}
        whole = (small.parent / "runs.jsonl").read_bytes().splitlines()
        assert lines == [line for line in whole if orjson.loads(line)["run"] in kept]
        page.locator("#filters button").first.click()
        page.click("#clear")
        expect(rows).to_have_count(12)
        assert page.input_value("#controls [name=from]") == ""
        page.get_by_role("link", name="looping").click()
        expect(page.locator("#run-name")).to_have_text("looping")


def test_a_run_shows_its_loops_and_where_it_was_stopped(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#run/8") as opened:
        page = opened.page
        expect(page.locator("#run-facts")).to_contain_text("2 steps, repeated twice, since step 3")
        expect(page.locator("#timeline circle.dot")).to_have_count(9)
        # Its thoughts, every third step, are in no loop.
        expect(page.locator("#timeline circle.dot.loop")).to_have_count(4)
        expect(page.locator("#graph .place")).to_have_count(3)
        expect(page.locator("#graph .move.loop")).to_have_count(2)
        expect(page.locator("#steps > li")).to_have_count(9)
        expect(page.locator("#steps > li.loop")).to_have_count(4)
        expect(page.locator("#steps > li").first).to_contain_text("it is the attic")
        page.locator("#timeline circle.dot").nth(4).click()
        expect(page.locator("#step-4")).to_be_focused()
        page.get_by_role("link", name="Next →").click()
        expect(page.locator("#run-name")).to_have_text("stopped")
        expect(page.locator("#run-outcome")).to_have_text("stopped")
        expect(page.locator("#steps .badge[data-kind=intervention]")).to_have_text(
            "stop: loop repeats"
        )
        page.get_by_role("link", name="Next →").click()
        expect(page.locator("#run-chart .scatterlayer .trace")).to_have_count(2)
        expect(page.locator("#steps .badge[data-kind=progress]")).to_have_count(1)
        expect(page.locator("#graph .place title").first).to_contain_text("hall")


def test_the_steps_come_first_and_charts_are_beside_them(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#run/8") as opened:
        steps, chart = (opened.page.locator(one).bounding_box() for one in ("#steps", "#run-chart"))
        assert steps is not None
        assert chart is not None
        assert steps["x"] + steps["width"] <= chart["x"]
        assert steps["y"] < chart["y"]
    with reading(browser, small, "#run/8", viewport={"width": 390, "height": 800}) as opened:
        steps, chart = (opened.page.locator(one).bounding_box() for one in ("#steps", "#run-chart"))
        assert steps is not None
        assert chart is not None
        assert steps["y"] + steps["height"] <= chart["y"]


def test_hits_of_a_search_are_marked_and_jumped_to(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#runs?text=CELLAR+door") as opened:
        page = opened.page
        page.get_by_role("link", name="looping").click()
        expect(page.locator("#steps mark")).to_have_text(["cellar door"] * 3)
        expect(page.locator("#find-count")).to_have_text("in 3 steps")
        page.get_by_role("button", name="Next hit").click()
        expect(page.locator("#find-count")).to_have_text("1 of 3")
        expect(page.locator("#steps > .hit")).to_have_attribute("id", "step-2")
        page.get_by_role("button", name="Previous hit").click()
        expect(page.locator("#steps > .hit")).to_have_attribute("id", "step-8")
        page.fill("#find-text", "(attic|")
        expect(page.locator("#steps mark")).to_have_count(0)
        page.fill("#find-text", "the attic")
        expect(page.locator("#steps mark")).to_have_text(["the attic"] * 3)


def test_a_hit_in_a_folded_text_unfolds_it(browser: Browser, tmp_path: Path) -> None:
    far = {"type": "step", "run": "r", "action": "read", "outcome": "x " * 5_000 + "needle"}
    steps = [{"type": "step", "run": "r", "action": "go", "args": n} for n in range(250)]
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join(map(orjson.dumps, [*steps, far])))
    with reading(browser, report(tmp_path, "runs.jsonl"), "#run/0") as opened:
        page = opened.page
        page.fill("#find-text", "needle")
        page.keyboard.press("Enter")
        expect(page.locator("#step-250 mark")).to_be_visible()


def test_the_address_keeps_filters_and_the_view(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#runs") as opened:
        page = opened.page
        page.select_option("#controls [name=agent]", "walker")
        page.select_option("#controls [name=measure]", "auv")
        page.fill("#controls [name=from]", "0.5")
        page.get_by_role("link", name="Patterns").click()
        page.get_by_role("button", name="2 words").click()
        page.locator("#cloud button", has_text="cellar door").click()
        page.get_by_role("link", name="Scores").click()
        page.locator(".score select").first.select_option("2")
        before = selected(page)
        labels = page.locator("#filters li").all_text_contents()
        assert len(labels) == 4
        page.reload()
        expect(page.locator("#opening")).to_be_hidden(timeout=30_000)
        expect(page.locator("#view-scores")).to_be_visible()
        assert (selected(page), page.locator("#filters li").all_text_contents()) == (before, labels)
        expect(page.locator(".score select").first).to_have_value("2")
        page.get_by_role("link", name="Runs").click()
        expect(page.locator("#controls [name=from]")).to_have_value("0.5")
        page.goto(
            f"file://{small}#patterns?words=2+words%7Ccellar+door&tasks=0-3&nothing=1&agent=no"
        )
        expect(page.locator("#cloud [aria-pressed=true]")).to_have_text("cellar door")
        page.click("#clear")
        assert page.evaluate("location.hash") == "#patterns"


def test_two_runs_side_by_side(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#runs") as opened:
        page = opened.page
        page.get_by_label("Compare looping").check()
        expect(page.locator("#compare-hint")).to_contain_text("Select a second run")
        page.get_by_label("Compare stopped").check()
        expect(page.locator("#view-compare")).to_be_visible()
        expect(page.locator("#compare-note")).to_have_text("Their first 2 steps are the same")
        expect(page.locator("#compare-steps > li.differs")).to_have_count(1)
        expect(page.locator("#compare-steps > li").nth(2)).to_contain_text("cellar door")
        row = page.locator("#compare-facts tbody tr", has_text=re.compile("^Loops"))
        expect(row).to_contain_text("2 steps, repeated twice, since step 3")
        expect(row).to_contain_text("2 steps, repeated 3 times, since step 2")
        page.get_by_role("link", name="stopped").click()
        expect(page.locator("#run-name")).to_have_text("stopped")
        page.get_by_role("button", name="Compare…").click()
        page.get_by_label("Compare plain-0").check()
        expect(page.locator("#compare-facts thead")).to_contain_text("plain-0")


def test_columns_without_a_value_are_hidden(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"type":"step","run":"r","action":"go"}\n')
    with reading(browser, report(tmp_path, "runs.jsonl")) as opened:
        page = opened.page
        assert "Memory" not in page.locator("#groups th").all_text_contents()
        page.goto(f"file://{tmp_path}/report.html#runs")
        heads = page.locator("#runs-table th").all_text_contents()
        assert heads[:3] == ["Compare", "Run", "Outcome"]
        page.goto(f"file://{tmp_path}/report.html#run/0")
        assert "—" not in page.locator("#run-facts dd").all_text_contents()


@pytest.mark.slow
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Browser, small: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    with reading(browser, small, "#overview", color_scheme=scheme, viewport=size) as opened:
        page = opened.page
        for view in (
            *("overview", "runs?text=attic", "patterns?words=2+words%7Ccellar+door", "scores"),
            *("run/9?text=door", "compare/8/9"),
        ):
            page.goto(f"file://{small}#{view}")
            found = Axe().run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["target"]) for one in found] == [], view
            assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_words_select_runs(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#patterns") as opened:
        page = opened.page
        page.get_by_role("button", name="2 words").click()
        word = page.locator("#cloud button", has_text="cellar door")
        word.click()
        expect(word).to_have_attribute("aria-pressed", "true")
        with_c = selected(page)
        assert 0 < with_c < 12
        page.locator("#cloud button", has_text="door is").click()
        assert selected(page) == with_c == 9
        page.get_by_role("button", name="Actions", exact=True).click()
        assert selected(page) == 12


def test_a_region_of_the_map_selects_runs(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#patterns") as opened:
        page = opened.page
        chart = page.locator("#map")
        brush(page, chart, (0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99), (0.01, 0.03))
        expect(page.locator("#region tbody tr:not(.end)").first).to_be_visible()
        assert selected(page) == 12
        expect(page.locator("#filters")).to_contain_text("of the chart")
        expect(page.locator("#map .selectionlayer path").first).to_be_attached()
        page.click("#clear")
        expect(page.locator("#region")).to_be_hidden()
        expect(page.locator("#map .selectionlayer path")).to_have_count(0)
        page.fill("#map-find", "garage")
        lit = page.evaluate(
            "byId('map').data.flatMap(t => t.marker.opacity).filter(o => o > 0.5).length"
        )
        assert lit == 1


def test_scores_are_shown_and_a_range_selects(browser: Browser, small: Path) -> None:
    with reading(browser, small, "#scores") as opened:
        page = opened.page
        card = page.locator(".score[data-competency=self_verification]")
        expect(card).to_contain_text("mean 2.50 of 8 runs")
        card.locator("select").first.select_option("3")
        assert selected(page) == 4
        page.click("#clear")
        brush(page, card.locator(".chart"), (0.02, 0.1), (0.3, 0.95))
        expect(page.locator("#count strong")).to_have_text("2")
        expect(card.locator("select").nth(1)).to_have_value("1")
        page.goto(f"file://{small}#run/0")
        expect(page.locator("#run-scores")).to_contain_text("looked 0 times")
        page.locator("#run-scores button", has_text="2").last.click()
        expect(page.locator("#step-2")).to_be_focused()


def test_a_recording_that_is_a_script_shows_as_text(browser: Browser, small: Path) -> None:
    with reading(browser, small) as opened:
        page = opened.page
        expect(page.locator("#groups")).to_contain_text(EVIL)
        expect(page.locator("#curves .legend")).to_contain_text(EVIL)
        for view in ("runs", "patterns", "scores", "overview"):
            page.goto(f"file://{small}#{view}")
        page.locator("#tasks .nsewdrag").first.hover()
        page.goto(f"file://{small}#run/11")
        expect(page.locator("#run-name")).to_have_text(EVIL)
        expect(page.locator("#run-task")).to_have_text(EVIL)
        expect(page.locator("#steps pre").first).to_have_text(EVIL)
        expect(page.locator("main img")).to_have_count(0)
        assert page.title() == f"{EVIL} · tidegauge"


def test_without_scores_the_page_says_how_to_get_some(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text('{"type":"step","run":"r","action":"go"}\n')
    with reading(browser, report(tmp_path, "runs.jsonl"), "#scores") as opened:
        expect(opened.page.locator("#view-scores")).to_contain_text("tidegauge judge")
        opened.page.goto(f"file://{tmp_path}/report.html#patterns")
        expect(opened.page.locator("#map-note")).to_contain_text("too few")


def test_a_page_without_contents_works(browser: Browser, small: Path, tmp_path: Path) -> None:
    file = report(tmp_path, str(small.parent / "runs.jsonl"), "--no-contents")
    with reading(browser, file, "#patterns") as opened:
        page = opened.page
        expect(page.locator("#map-note")).to_contain_text("no contents")
        page.goto(f"file://{file}#run/8")
        expect(page.locator("#steps > li.loop")).to_have_count(4)
        expect(page.locator("#steps")).to_contain_text("sha:")
        expect(page.locator("#steps")).not_to_contain_text("attic")
        page.get_by_role("link", name="Next →").click()
        expect(page.locator("#steps > li.intervention")).to_have_count(1)  # of the default rules


def test_whatever_was_recorded_opens(browser: Browser, tmp_path: Path) -> None:
    step: dict[str, Any] = {"type": "step", "run": "odd"}
    events = [
        {"type": "start", "run": "empty", "agent": "e"},
        {"type": "end", "run": "empty", "success": False},
        {"type": "start", "run": "begun"},
        {**step, "action": "", "args": None, "outcome": None},
        {**step, "calls": [{"action": "a", "args": {"k": 1}, "outcome": 1.5, "error": True},
                           {"action": "b", "args": [1, 2], "outcome": None}]},
        {**step, "action": "%{x}<b>", "args": "%{y}\u2028\0\U0001f600", "outcome": True},
        {**step, "action": "long", "args": "A" * 200_000, "outcome": list(range(500))},
        *({"type": "step", "run": "far", "action": "go", "args": n % 7, "state": str(n * n % 211)}
          for n in range(3_000)),
    ]  # fmt: skip
    (tmp_path / "runs.jsonl").write_bytes(b"\n".join(map(orjson.dumps, events)))
    with reading(browser, report(tmp_path, "runs.jsonl")) as opened:
        page = opened.page
        for view in ("runs", "patterns", "scores", "run/0", "run/1"):
            page.evaluate("view => { location.hash = view }", f"#{view}")
            expect(page.locator("main > section:not([hidden])")).to_have_count(1)
        page.evaluate("location.hash = '#run/2'")
        expect(page.locator("#steps > li")).to_have_count(4)
        page.locator("#steps summary").first.click()
        expect(page.locator("#steps details[open] > pre").first).to_have_text("A" * 200_000)
        page.evaluate("location.hash = '#run/3'")
        expect(page.locator("#steps > li")).to_have_count(100)
        expect(page.locator("#graph-note")).to_contain_text("The first 60 of")
        page.locator("#timeline circle.dot").nth(2_500).click()
        expect(page.locator("#step-2500")).to_be_focused()
    (tmp_path / "runs.jsonl").write_bytes(b"")
    with reading(browser, report(tmp_path, "runs.jsonl")) as opened:
        expect(opened.page.locator("#count")).to_have_text("0 of 0 runs selected")
        for view in ("runs", "patterns", "scores"):
            opened.page.evaluate("view => { location.hash = view }", f"#{view}")


def test_light_and_dark(browser: Browser, small: Path) -> None:
    def ground(page: Page) -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    with reading(browser, small, color_scheme="dark") as opened:
        page = opened.page
        dark = ground(page)
        paper = "byId('curves').layout.paper_bgcolor"
        was = page.evaluate(paper)
        page.get_by_role("button", name="Light").click()
        assert ground(page) != dark
        assert page.evaluate(paper) != was


def test_by_keyboard_alone(browser: Browser, small: Path) -> None:
    with reading(browser, small) as opened:
        page = opened.page
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.locator("#view-runs")).to_be_visible()
        page.locator("#runs-table a.run").nth(8).focus()
        page.keyboard.press("Enter")
        expect(page.locator("#view-run")).to_be_visible()
        page.locator("#step-0").focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        expect(page.locator("#step-2")).to_be_focused()
        page.goto(f"file://{small}#patterns")
        page.locator("#cloud button").first.focus()
        page.keyboard.press("Space")
        expect(page.locator("#cloud button[aria-pressed=true]")).to_be_focused()
        expect(page.locator("#clear")).to_be_visible()


# Everything that is recorded.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, recorded_runs: Path) -> Path:
    files = [str(file) for file in sorted(recorded_runs.glob("*.events.jsonl"))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    file = report(tmp_path_factory.mktemp("whole"), *files)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < MOST_SECONDS * slowness()
    assert file.stat().st_size < MOST_BYTES
    return file


@pytest.mark.slow
def test_all_recorded_runs_in_one_page(browser: Browser, whole: Path, recorded_runs: Path) -> None:
    with reading(browser, whole) as opened:
        page = opened.page
        assert selected(page) == 2_822
        expect(page.locator("#groups tbody tr:not(.end)")).to_have_count(16)
        # a box over tasks that loop
        brush(page, page.locator("#tasks"), (0.3, 0.02), (0.98, 0.98))
        expect(page.locator("#filters li")).to_have_count(1)
        in_box = selected(page)
        assert 0 < in_box < 2_822
        page.click("#clear")
        # words
        page.get_by_role("link", name="Patterns").click()
        page.locator("#cloud button", has_text="bash: find").click()
        finding = selected(page)
        assert 0 < finding < 2_822
        # and the map
        brush(
            page,
            page.locator("#map"),
            (0.1, 0.4),
            (0.5, 0.4),
            (0.5, 0.95),
            (0.1, 0.95),
            (0.1, 0.42),
        )
        expect(page.locator("#filters li")).to_have_count(2)
        both = selected(page)
        assert 0 < both <= finding
        # a filter more, sorted
        page.get_by_role("link", name="Runs").click()
        page.select_option("#controls [name=agent]", "gpt-4")
        page.locator("#runs-table th button", has_text="Loop ratio").click()
        first = page.locator("#runs-table tbody tr").first
        expect(first).to_contain_text("gpt-4")
        # saved as it was recorded
        lines = saved_runs(page)
        file = recorded_runs / "intercode_bash.events.jsonl"
        assert len({orjson.loads(line)["run"] for line in lines}) == selected(page)
        assert set(lines) <= set(file.read_bytes().splitlines())
        # a run
        first.locator("a.run").click()
        expect(page.locator("#steps > li").first).to_be_visible()
        expect(page.locator("#graph .place").first).to_be_visible()
        page.get_by_role("link", name="↑ Runs").click()
        page.click("#clear")
        page.locator("#runs-scroll").evaluate("element => element.scrollTo(0, 1e6)")
        expect(page.locator("#runs-table tbody tr").nth(150)).to_be_attached()


def test_long_names_leave_room_for_the_numbers(browser: Browser, tmp_path: Path) -> None:
    name, file = "x" * 300, tmp_path / "runs.jsonl"
    events = [
        {"type": "start", "run": name, "agent": name, "task_group": name},
        {"type": "step", "run": name, "action": name, "outcome": name},
        {"type": "end", "run": name, "success": True},
    ]
    file.write_bytes(b"".join(orjson.dumps(event) + b"\n" for event in events))
    with reading(browser, report(tmp_path, str(file))) as opened:
        for view, table in (("overview", "groups"), ("runs", "runs-table")):
            opened.page.evaluate(f"location.hash = '#{view}'")
            shown = opened.page.locator(f"#{table}")
            expect(shown).to_be_visible()
            inside = "one => one.scrollWidth <= one.parentElement.clientWidth"
            assert shown.evaluate(inside), table
