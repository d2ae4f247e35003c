"""The live page in a real Chromium, beside agents that run in this process."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import tidegauge
from support.browser import Visit, chromium, visit
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.exporters.reading import visible
from tidegauge.policies import Rule
from tidegauge.testing import Capture, capture

pytestmark = pytest.mark.system

EVIL = (
    "<img src=x onerror=\"document.title='taken'\"></script><script>document.title='taken'</script>"
)
SMOOTH_SECONDS = 4.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def served() -> Iterator[Capture]:
    with serving() as seen:
        yield seen


@contextlib.contextmanager
def serving(**settings: Any) -> Iterator[Capture]:
    with capture(**({"serve_metrics": True, "metrics_port": 0} | settings)) as seen:
        yield seen


@contextlib.contextmanager
def looking(browser: Browser, seen: Capture, **context: object) -> Iterator[Visit]:
    """The page, once it shows something; it has nothing to complain of, and asks nobody else."""
    url = seen.pipeline.page_url
    with visit(browser, url, **context) as opened:
        expect(opened.page.locator("#connection")).to_have_text("live")
        yield opened
        assert opened.complaints == []
        assert opened.hosts == {urlsplit(str(url)).netloc}


def go_round(run: tidegauge.Run, *, rounds: int = 1) -> None:
    """Steps through the same two places."""
    for _ in range(rounds):
        for place in ("hall", "attic"):
            run.act("go", {"to": place})
            run.observe(f"you are in the {place}")


def fact(page: Page, name: str) -> Locator:
    """A number of the chosen run. The page draws it a moment after the run's row."""
    pair = page.locator("#facts div", has=page.get_by_text(name, exact=True))
    return pair.locator("dd")


def rows(page: Page) -> list[str]:
    return page.locator("#list .row:visible .agent").all_inner_texts()


@pytest.mark.end_to_end
def test_a_loop_that_sets_in_is_shown_within_a_second(browser: Browser, served: Capture) -> None:
    with looking(browser, served) as opened:
        page = opened.page
        with tidegauge.run(agent="calm"), tidegauge.run(agent="browser") as run:
            go_round(run, rounds=2)
            expect(page.locator("#list .row:visible")).to_have_count(2)
            expect(page.locator("#sentence")).to_have_text("Nothing loops")
            page.evaluate(
                """() => new MutationObserver((_, observer) => {
                  if (document.querySelector('.row[data-trouble="looping"]')) {
                    window.shownAt = Date.now() / 1000;
                    observer.disconnect();
                  }
                }).observe(document.getElementById("list"), {subtree: true, attributes: true})"""
            )
            began = time.time()
            run.act("go", {"to": "hall"})  # completes the first repetition
            expect(page.locator("#sentence")).to_have_text("1 of 2 runs is looping")
            assert page.evaluate("window.shownAt") - began < 1.0
            assert rows(page) == ["browser", "calm"]
            expect(page.locator("#announcer")).to_contain_text("Loop: browser at step 4")
            expect(page.locator("#looping .chip")).to_have_text(
                re.compile("browser2 steps, repeated once, for 0:0[0-9]")
            )
            expect(page.locator(".row.onset")).to_have_count(1)
            expect(page.locator("#chosen-agent")).to_have_text("browser")  # nobody chose
            expect(page.locator("#trail-rows tr.looped")).to_have_count(2)
        expect(page.locator("#sentence")).to_have_text("Nothing runs")
        expect(page.locator("#chosen-state")).to_have_text("ended")


def test_a_page_that_is_opened_late_shows_the_last_run(browser: Browser, served: Capture) -> None:
    for agent in ("first", "last"):
        with tidegauge.run(agent=agent) as run:
            go_round(run, rounds=3)
    with looking(browser, served) as opened:
        expect(opened.page.locator("#chosen-agent")).to_have_text("last")
        expect(fact(opened.page, "Loop")).to_have_text("2 steps, repeated twice")


def test_the_fleet_and_the_chosen_run_are_as_measured(browser: Browser) -> None:
    rules = [Rule("loop_repeats", 1, "nudge"), Rule("loop_repeats", 3, "stop")]
    with serving(rules=rules) as served, looking(browser, served) as opened:
        page = opened.page
        expect(page.locator("#success")).to_have_text("—")
        expect(page.locator("#ratio")).to_have_text("—")
        expect(page.locator("#tokens")).to_have_text("— tokens")
        expect(page.locator("#interventions")).to_have_text("—")
        with contextlib.suppress(tidegauge.RunStopped), tidegauge.run(agent="looper") as run:
            go_round(run, rounds=9)
        with tidegauge.run(agent="solver") as run:
            run.act("look", tokens=70)
            run.observe("there it is")
            run.finish(success=True)
        expect(page.locator("#success")).to_have_text("50%")
        expect(page.locator("#ratio")).to_have_text("60%")  # 6 of 10 steps
        expect(page.locator("#lost")).to_have_text("6 steps")
        expect(page.locator("#tokens")).to_have_text("0 tokens")
        expect(page.locator("#interventions")).to_have_text("3")  # nudged twice, then stopped
        assert "success after 1 step" not in page.locator("#events").inner_text()
        page.locator("#events-filter").select_option("all")
        texts = page.locator(".event .text").all_inner_texts()
        assert texts[:2] == ["success after 1 step", "stopped after 9 steps"]
        assert "stopped at step 8: loop repeats" in texts
        assert texts[-1] == "loop onset at step 4"
        page.locator(".event", has_text="stopped after 9 steps").click()
        expect(page.locator("#chosen-agent")).to_have_text("looper")
        expect(page.locator("#chosen-state")).to_have_text("stopped")
        steps = page.locator("#trail-rows tr")
        numbers = steps.locator("td:first-child").all_text_contents()
        assert numbers[:2] == ["8, loop step", "7, loop step"]
        assert "stop" in steps.first.inner_text()
        # An ended run keeps its loop.
        expect(fact(page, "Loop")).to_have_text("2 steps, repeated 3 times")
        expect(fact(page, "Cost of the loop")).to_have_text("6 steps")
        expect(fact(page, "Since")).to_have_text(re.compile("^step 3, "))
        expect(page.locator("#cycle")).to_have_text("Repeats: go → go")
        assert page.locator("#trail-rows .digest code").first.inner_text() != ""
        assert "attic" not in page.content()  # digests, no contents


def test_contents_are_shown_when_they_are_asked_for(browser: Browser) -> None:
    with (
        serving(page_contents=True) as served,
        looking(browser, served) as opened,
        tidegauge.run(agent="browser") as run,
    ):
        go_round(run)
        expect(opened.page.locator("#trail-rows .contents").first).to_have_text(
            '{"to":"attic"}you are in the attic'
        )


@pytest.mark.parametrize("name", [EVIL, "\u202egnp.exe", "a" * 10_000, "\ud800 half", "😀 {{7*7}}"])
def test_a_hostile_name_is_text(browser: Browser, name: str) -> None:
    with serving(page_contents=True) as served, looking(browser, served) as opened:
        page = opened.page
        with tidegauge.run(agent=name, task_group=name, run_id=name, model=name) as run:
            for _ in range(4):
                run.act(name, {name: name})
                run.observe(name)
            expect(page.locator("#trail-rows tr").first).to_be_visible()
            expect(page.locator(".event").first).to_be_visible()
            page.locator("#list").focus()
            page.keyboard.press("Enter")
            page.wait_for_timeout(600)
            assert page.locator("main img, main script, table script").count() == 0
            assert page.title() == "(1) looping · tidegauge"
            shown = page.locator("#list .row:visible .agent").inner_text()
            assert len(shown) <= 128
            plain = visible(name).encode("utf-8", "backslashreplace").decode()
            assert shown.startswith(plain[:100].strip())
            assert "\u202e" not in page.content()
            # Nothing reaches over the edge of its card, or to the other side of it.
            fits = page.evaluate(
                "(root => root.scrollWidth <= innerWidth && root.scrollHeight <= innerHeight)"
                "(document.documentElement)"
            )
            assert fits
            isolated = page.evaluate(
                "[...document.querySelectorAll('.row .agent, .tool, .event .agent')]"
                ".every((one) => one.localName === 'bdi')"
            )
            assert isolated


def test_a_loop_has_its_cost_and_what_to_do(browser: Browser) -> None:
    settings = {
        "trace_url": "https://traces.example/{trace_id}",
        "prices": {"m": 1_000.0},
        "runbooks": "https://wiki.example",
    }
    with serving(**settings) as served, looking(browser, served) as opened:
        page = opened.page
        with tidegauge.run(agent="looper", model="m") as run:
            for place in ("hall", "attic", "hall", "attic", "hall"):
                run.act(f"look_{place}", tokens=300)
                run.observe(f"you are in the {place}")
            run.act("look_attic", tokens=300)  # has no result yet
            expect(page.locator("#chosen-agent")).to_have_text("looper")
            expect(page.locator("#cycle")).to_have_text("Repeats: look_hall → look_attic")
            expect(fact(page, "Loop")).to_have_text("2 steps, repeated twice")
            expect(fact(page, "Cost of the loop")).to_have_text("3 steps, 900 tokens, $0.900")
            expect(fact(page, "Tokens")).to_have_text("1,800, $1.80")
            expect(page.locator("#trail-rows tr.looped")).to_have_count(3)  # also the newest
            expect(page.locator("#runbook")).to_have_text("loop onset")
            runbook = page.locator("#runbook").get_attribute("href")
            assert runbook == "https://wiki.example/loop-onset.md"
            expect(page.locator("#tokens")).to_have_text("900 tokens, $0.900")
            expect(page.locator("#ended")).to_have_text("0 ended, $1.80")
            rule = page.locator("#rule").inner_text()
            assert rule == 'tidegauge.configure(guard="stuck")'
            page.context.grant_permissions(["clipboard-read", "clipboard-write"])
            page.locator("#copy").click()
            expect(page.locator("#copy")).to_have_text("Copied")
            assert page.evaluate("navigator.clipboard.readText()") == rule
            link = page.locator("#trace").get_attribute("href")
            assert link == f"https://traces.example/{run.trace_id}"


@pytest.mark.parametrize("width", [1100, 1280, 1400, 1920])
def test_the_trouble_of_a_run_can_be_read_whole(
    browser: Browser, served: Capture, width: int
) -> None:
    viewport = {"width": width, "height": 900}
    with looking(browser, served, viewport=viewport) as opened, tidegauge.run(agent="a") as run:
        for turn in range(19):
            run.act("go", {"to": turn % 3})
            run.observe(f"place {turn % 3}")
        matter = opened.page.locator("#list .row .matter").first
        expect(matter).to_have_text("3 steps, repeated 5 times")
        cut = "one => one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight + 1"
        assert not matter.evaluate(cut)


@pytest.mark.parametrize("width", [390, 1400])
def test_long_names_and_contents_stay_inside(browser: Browser, width: int) -> None:
    viewport = {"width": width, "height": 900}
    with (
        serving(page_contents=True) as served,
        looking(browser, served, viewport=viewport) as opened,
        tidegauge.run(agent="a" * 300, task_group="g" * 300) as run,
    ):
        for turn in range(4):
            run.act("tool" * 60, {"to": "x" * 300})
            run.observe("y" * 500 + str(turn))
        if width < 640:
            opened.page.locator("#list .row").first.click()
        expect(opened.page.locator("#trail-rows tr:not(.contents)")).to_have_count(4)
        if width < 640:
            opened.page.locator("#back").click()
        for part in ("#trail", "body", "#verdict"):
            found = opened.page.locator(part)
            assert found.evaluate("one => one.scrollWidth <= one.clientWidth"), part


def test_a_stuck_run_says_for_how_long(browser: Browser, served: Capture) -> None:
    with looking(browser, served) as opened, tidegauge.run(agent="a") as run:
        for turn in range(6):
            run.act("go", {"to": turn})
            run.observe("nothing")
        row = opened.page.locator("#list .row").first
        expect(row.locator(".matter")).to_have_text("the same result 6 times")
        expect(row.locator(".lasts")).to_have_text(re.compile(r"^0:\d\d$"))
        since = re.compile(r"^step 2, \d\d:\d\d:\d\d$")
        expect(fact(opened.page, "Since")).to_have_text(since)


def test_runs_are_filtered_and_sorted(browser: Browser, served: Capture) -> None:
    with looking(browser, served) as opened, contextlib.ExitStack() as runs:
        page = opened.page
        for number, agent in enumerate(("calm", "looper", "spender")):
            group = "web" if agent == "calm" else "shop"
            run = runs.enter_context(tidegauge.run(agent=agent, task_group=group))
            run.act("look", tokens=100 * number)
            run.observe(number)
            if agent == "looper":
                go_round(run, rounds=3)
        expect(page.locator("#list .row:visible")).to_have_count(3)
        assert rows(page) == ["looper", "calm", "spender"]
        page.get_by_role("button", name="Tokens").click()
        expect(page.locator("#list .row:visible .agent").first).to_have_text("spender")
        page.get_by_role("button", name="Looping", exact=True).click()  # a tile
        expect(page.locator("#list .row:visible")).to_have_count(1)
        expect(page.locator("#trouble")).to_have_value("looping")
        expect(page.locator("#total")).to_have_text("1 of 3")
        page.get_by_role("button", name="Running").click()
        expect(page.locator("#list .row:visible")).to_have_count(3)
        page.locator("#group").select_option("web")
        expect(page.locator("#list .row:visible")).to_have_count(1)
        assert rows(page) == ["calm"]
        page.locator("#agent").select_option("looper")
        expect(page.locator("#nothing")).to_have_text("No such run is active.")


def test_on_a_phone_a_tap_opens_a_run(browser: Browser, served: Capture) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with looking(browser, served, **phone) as opened, tidegauge.run(agent="looper") as run:
        page = opened.page
        go_round(run, rounds=3)
        expect(page.locator("#sentence")).to_have_text("1 of 1 run is looping")
        expect(page.locator("#chosen-agent")).to_be_hidden()
        page.locator("#list .row:visible").tap()
        expect(page.locator("#cycle")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("#back").tap()
        expect(page.locator("#chosen-agent")).to_be_hidden()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong, at every state of an animation alike."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Browser, served: Capture, scheme: str, width: int) -> None:
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    context = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    with looking(browser, served, bypass_csp=True, **context) as opened:
        page = opened.page
        page.evaluate(axe)
        expect(page.locator("#start")).to_be_visible()
        assert violations(page) == []  # empty
        with tidegauge.run(agent="looper") as run, tidegauge.run(agent="stuck") as stuck:
            go_round(run, rounds=3)
            for _ in range(4):
                stuck.act("look", {"n": _})
                stuck.observe("nothing", error=True)
            expect(page.locator("#sentence")).to_have_text("1 of 2 runs is looping")
            for row in page.locator("#list .row:visible").all():
                row.click()
                expect(page.locator("#rule")).not_to_be_empty()
                assert violations(page) == []
                if width == 390:
                    page.locator("#back").click()
            expect(page.locator(".event").first).to_be_attached()
            # while the row of a new loop flashes: only its edge changes
            flash = page.evaluate(
                "[...document.styleSheets].flatMap(sheet => [...sheet.cssRules])"
                ".find(rule => rule.name === 'onset').cssText"
            )
            assert "background" not in flash
            assert "color:" not in flash
        expect(page.locator("#sentence")).to_have_text("Nothing runs")
        assert violations(page) == []


def test_nothing_jumps(browser: Browser, served: Capture) -> None:
    """Nothing moves up or down but in the two lists in which the newest is on top."""
    with looking(browser, served) as opened:
        page = opened.page
        page.evaluate(
            """() => {
              window.jumps = [];
              new PerformanceObserver((list) => {
                for (const shift of list.getEntries())
                  for (const {node, previousRect, currentRect} of shift.sources)
                    if (previousRect.top !== currentRect.top &&
                        !node?.parentElement?.closest("#trail, #events"))
                      window.jumps.push(node?.id || node?.className || String(node));
              }).observe({type: "layout-shift"});
            }"""
        )
        with tidegauge.run(agent="browser") as run, tidegauge.run(agent="calm"):
            for rounds in range(1, 5):
                go_round(run, rounds=2)
                expect(page.locator("#trail-rows tr")).to_have_count(4 * rounds)
            expect(page.locator("#sentence")).to_have_text("1 of 2 runs is looping")
        expect(page.locator("#sentence")).to_have_text("Nothing runs")
        assert page.evaluate("window.jumps") == []


def test_everything_is_to_be_had_by_keyboard(browser: Browser, served: Capture) -> None:
    with contextlib.ExitStack() as open_runs, looking(browser, served) as opened:
        page, press = opened.page, opened.page.keyboard.press
        for number in range(30):
            run = open_runs.enter_context(tidegauge.run(agent=f"agent {number}"))
            run.act("look")
            run.observe(number)
        expect(page.locator("#total")).to_have_text("30")
        order = []
        for _ in range(17):
            press("Tab")
            order.append(
                page.evaluate("(one => one.id || one.textContent)(document.activeElement)")
            )
        tiles = ["Running", "Looping", "Lost in loops", "Interventions"]
        columns = ["Stale", "Lasts", "Tokens", "Steps"]
        filters = ["trouble", "agent", "group", "find"]
        ends = ["list", "trail", "events-filter"]
        assert order == ["metrics", "theme", *tiles, *filters, *columns, *ends]
        page.locator("#list").focus()
        for _ in range(3):
            press("ArrowDown")
        active = page.locator("#list").get_attribute("aria-activedescendant")
        assert page.locator(f"#{active}").get_attribute("aria-posinset") == "4"
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.row.active')).boxShadow")
            != "none"
        )
        press("Enter")
        expect(page.locator("#chosen-agent")).to_have_text("agent 3")
        press("End")
        press("Enter")
        expect(page.locator("#chosen-agent")).to_have_text("agent 29")
        press("PageUp")
        press("Home")
        press(" ")
        expect(page.locator("#chosen-agent")).to_have_text("agent 0")
        press("/")
        page.keyboard.type("agent 17")
        expect(page.locator("#total")).to_have_text("1 of 30")
        press("ArrowDown")
        press("Enter")
        expect(page.locator("#chosen-agent")).to_have_text("agent 17")


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_light_and_dark(browser: Browser, served: Capture, scheme: str, dark: bool) -> None:
    def is_dark(page: Page) -> bool:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(",")) < 3 * 128

    with looking(browser, served, color_scheme=scheme) as opened:
        page = opened.page
        assert is_dark(page) is dark
        page.locator("#theme").click()
        assert is_dark(page) is not dark
        expect(page.locator("#theme")).to_have_text("Dark" if dark else "Light")
        page.reload()  # the choice holds
        expect(page.locator("#connection")).to_have_text("live")
        assert is_dark(page) is not dark


def test_there_are_charts(browser: Browser, served: Capture) -> None:
    with looking(browser, served) as opened, tidegauge.run(agent="a") as run:
        go_round(run, rounds=3)
        page = opened.page
        expect(page.locator(".row:visible canvas")).to_have_count(1)
        expect(page.locator("#chart canvas")).to_have_count(1)
        for place in (".row:not([hidden]) canvas", "#chart canvas"):
            page.wait_for_function(
                """(place) => {
                  const canvas = document.querySelector(place);
                  const image = canvas.getContext("2d")
                    .getImageData(0, 0, canvas.width, canvas.height);
                  return image.data.some(Boolean);
                }""",
                arg=place,
            )


def test_a_server_that_restarts_is_found_again(browser: Browser) -> None:
    with serving() as served, tidegauge.run(agent="first") as run:
        go_round(run, rounds=3)
        port = urlsplit(str(served.pipeline.page_url)).port
        with visit(browser, served.pipeline.page_url) as opened:
            page = opened.page
            expect(page.locator("#chosen-agent")).to_have_text("first")
            expect(page.locator("#events")).to_contain_text("first")
            served.pipeline.stop_serving()
            expect(page.locator("#connection")).to_have_text("disconnected, trying again")
            assert page.locator("body").get_attribute("data-connection") == "disconnected"
            with serving(metrics_port=port), tidegauge.run(agent="second") as other:
                go_round(other, rounds=3)
                expect(page.locator("#connection")).to_have_text("live")
                expect(page.locator("#chosen-agent")).to_have_text("second")
                assert rows(page) == ["second"]
                expect(page.locator("#events")).to_contain_text("second")
                assert "first" not in page.locator("#events").inner_text()
            assert opened.complaints == []


def test_nothing_is_asked_while_nobody_looks(browser: Browser, served: Capture) -> None:
    with looking(browser, served) as opened:
        page = opened.page
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})"
        )
        page.wait_for_timeout(600)
        asked.clear()
        page.wait_for_timeout(900)
        assert asked == []
        page.evaluate(
            "delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))"
        )
        page.wait_for_timeout(600)
        assert asked


def test_a_thousand_live_runs_stay_smooth(browser: Browser) -> None:
    """All step, some loop, and the list is scrolled: frames still come, and no task is long."""
    with serving() as served, looking(browser, served) as opened:
        page, ended = opened.page, threading.Event()
        sink = served.pipeline.recorder.sink
        for number in range(1_000):
            sink.run_started(RunStarted(run=f"run {number}", agent=f"agent {number % 20}"))

        def work() -> None:
            turn = 0
            while not ended.is_set():
                for number in range(1_000):
                    place = turn % 3 if number % 25 == 0 and turn > number // 25 else turn
                    sink.step_issued(Step(f"run {number}", (Call("look", {"at": place}),)))
                    sink.step_observed(Outcome(f"run {number}", (CallResult(f"saw {place}"),)))
                    if number % 20 == 0:
                        time.sleep(0.01)
                turn += 1

        worker = threading.Thread(target=work)
        worker.start()
        try:
            expect(page.locator("#total")).to_have_text("1,000")
            measured = page.evaluate(
                """async (seconds) => {
                  const tasks = [];
                  new PerformanceObserver((list) => {
                    for (const entry of list.getEntries()) tasks.push(entry.duration);
                  }).observe({type: "longtask"});
                  const frames = [], list = document.getElementById("list");
                  const began = performance.now();
                  let last = began, now = began;
                  while (now - began < 1000 * seconds) {
                    now = await new Promise(requestAnimationFrame);
                    frames.push(now - last);
                    last = now;
                    list.scrollTop = (now - began) * 4 % (list.scrollHeight - list.clientHeight);
                  }
                  frames.sort((a, b) => a - b);
                  return {
                    frames: frames.length,
                    median: frames[Math.floor(frames.length / 2)],
                    late: frames[Math.floor(frames.length * 0.95)],
                    longest: Math.max(0, ...tasks),
                    rows: document.querySelectorAll(".row").length,
                  };
                }""",
                SMOOTH_SECONDS,
            )
            expect(page.locator("#sentence")).to_contain_text("of 1,000 runs are looping")
        finally:
            ended.set()
            worker.join()
        assert measured["rows"] < 60
        assert measured["median"] < 40
        assert measured["late"] < 120
        assert measured["longest"] < 300
