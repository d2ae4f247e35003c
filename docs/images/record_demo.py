"""Record the demos as pictures in docs/images: ``python docs/images/record_demo.py [NAME]``.

A demo runs in a separate tmux terminal. The script captures the screen every few seconds, and shows
the pictures one after another in one SVG, with CSS alone; without animation, the last one is shown.
Needs tmux; ``local-model`` needs what ``make demo-llm`` sets up.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.text import Text

WIDTH: Final = 100
EVERY_SECONDS: Final = 2.0
SHOWN_SECONDS: Final = 1.0
LAST_SHOWN_SECONDS: Final = 8.0
LIMIT_SECONDS: Final = 300.0
HERE: Final = Path(__file__).parent


class Demo(NamedTuple):
    """A command to record.

    Args:
        typed: what a person would type.
        program: what runs instead.
        begun: text on the screen from the first picture on.
        ended: text on the last one.
        height: lines of the terminal.
    """

    typed: str
    program: str
    begun: str
    ended: str
    height: int


DEMOS: Final = {
    "demo": Demo(
        "tidegauge demo",
        f"{Path(sys.executable).with_name('tidegauge')} demo --no-browser",
        begun="agents",
        ended="Next steps",
        height=39,
    ),
    "local-model": Demo(
        "make demo-llm",
        "make --silent demo-llm",
        begun="streak",
        ended="tokens",
        height=35,
    ),
    "watch": Demo(
        "tidegauge watch",
        f"{sys.executable} {HERE / 'watched_sessions.py'}",
        begun="running",
        ended="stopped at step",
        height=30,
    ),
}


def tmux(*arguments: str) -> str:
    """What a command to this recording's own tmux server prints."""
    command = ["tmux", "-L", "tidegauge-record-demo", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603 -- our own words


def screens(demo: Demo) -> Iterator[str]:
    """The demo's screen from its first table to its last words, colours as ANSI codes."""
    command = f"printf '$ {demo.typed}\\n'; {demo.program}; sleep {LIMIT_SECONDS}"
    tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(demo.height), command)
    try:
        until = time.monotonic() + LIMIT_SECONDS
        text = shown = ""
        while demo.ended not in text:
            if time.monotonic() > until:
                raise TimeoutError(f"the demo did not end within {LIMIT_SECONDS:.0f} s")
            time.sleep(EVERY_SECONDS)
            text = tmux("capture-pane", "-p")
            if demo.begun in text and text != shown:
                shown = text
                yield tmux("capture-pane", "-e", "-p")
    finally:
        tmux("kill-server")


def picture(screen: str, demo: Demo, name: str) -> str:
    """A screen as SVG, without the fonts that rich's template loads from the network."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    lines = screen.split("\n")[: demo.height]
    console.print(Text.from_ansi("\n".join([*lines, *[""] * (demo.height - len(lines))])))
    svg = console.export_svg(title=demo.typed, unique_id=name)
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def moving_picture(pictures: Sequence[str]) -> str:
    """Pictures of one size as one, each shown in its turn."""
    box = re.search(r'viewBox="[^"]*"', pictures[0])
    assert box is not None, "rich's SVG has a viewBox"  # noqa: S101
    total = SHOWN_SECONDS * (len(pictures) - 1) + LAST_SHOWN_SECONDS
    styles, frames = [], []
    for number, svg in enumerate(pictures):
        last = number == len(pictures) - 1
        start = 100 * SHOWN_SECONDS * number / total
        end = 100.0 if last else 100 * SHOWN_SECONDS * (number + 1) / total
        hidden_before = f"0% {{ visibility: hidden }} {start:.3f}% {{ visibility: visible }}"
        hidden_after = "" if last else f"{end:.3f}% {{ visibility: hidden }}"
        styles += [
            f"@keyframes turn-{number} {{ {hidden_before} {hidden_after} }}",
            f"#frame-{number} {{ visibility: {'visible' if last else 'hidden'}; "
            f"animation: turn-{number} {total}s step-end infinite }}",
        ]
        frames.append(f'<g id="frame-{number}">{svg}</g>')
    styles.append("@media (prefers-reduced-motion: reduce) { g { animation: none !important } }")
    return "\n".join(
        [
            f'<svg {box[0]} xmlns="http://www.w3.org/2000/svg">',
            "<style>",
            *styles,
            "</style>",
            *frames,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or ["demo"]:
        shots = enumerate(screens(DEMOS[name]))
        taken = [picture(shot, DEMOS[name], f"{name}-{number}") for number, shot in shots]
        (HERE / f"{name}.svg").write_text(moving_picture(taken), encoding="utf-8")
