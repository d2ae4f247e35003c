"""Every number and picture of ``docs/evidence.md``, from folders of recorded runs.

``python -m benchmarks evidence --data NAME=FOLDER`` (once for each folder with ``*.events.jsonl``)
writes ``evidence.json``, the pictures, and the tables of the page. Another data set is another
``--data``: each is evaluated by itself, in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
import orjson
from rich.console import Console
from rich.progress import Progress

from benchmarks.evidence import bounds, pictures
from benchmarks.evidence.page import filled
from benchmarks.evidence.recorded import SCORE_NAMES, Family, families
from benchmarks.evidence.separation import separation
from benchmarks.evidence.stops import ALPHA, BY_TASK, CALIBRATION_RUNS, shares, stop_rules
from benchmarks.evidence.variants import variants

__all__ = ["evidence", "main"]

_DOCS: Final = Path(__file__).parents[2] / "docs"
_SEEN: Final = "learned from the runs that it is judged on"
_SHOWN: Final = ("steps_begun", "stagnation", "learned", "oracle")


def main(arguments: Sequence[str]) -> int:
    """The command; returns its exit code."""
    try:
        evidence.main(list(arguments), prog_name="python -m benchmarks evidence")
    except SystemExit as ended:
        return int(ended.code or 0)


@click.command()
@click.option(
    "--data", "data", multiple=True, required=True, metavar="NAME=FOLDER", help="Recordings."
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=_DOCS, help="Folder of evidence.md."
)
@click.option("--halves", type=click.IntRange(1), default=20, help="Halves of tasks to learn from.")
@click.option("--draws", type=click.IntRange(1), default=10, help="Calibrations for each half.")
def evidence(data: Sequence[str], out: Path, halves: int, draws: int) -> None:
    """Evaluate recorded runs, and write the numbers, pictures and tables of docs/evidence.md."""
    folders: dict[str, Path] = {}
    for one in data:
        name, equals, path = one.partition("=")
        if not equals or not any(Path(path).glob("*.events.jsonl")):
            raise click.ClickException(
                f"--data {one}: use NAME=FOLDER, a folder with *.events.jsonl"
            )
        folders[name] = Path(path)
    found: dict[str, Any] = {
        "alpha": ALPHA,
        "calibration_runs": CALIBRATION_RUNS,
        "by_task": BY_TASK._asdict(),
        "draws": halves * draws,
        "sets": {},
    }
    with Progress(console=Console(stderr=True)) as progress:
        for name, folder in folders.items():
            found["sets"][name] = _evaluated(name, families([folder]), halves, draws, progress)
    (out / "images").mkdir(parents=True, exist_ok=True)
    for name, picture in _pictures(found).items():
        (out / "images" / f"evidence-{name}.svg").write_text(picture, encoding="utf-8")
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    (out / "evidence.json").write_bytes(orjson.dumps(_rounded(found), option=options))
    page = out / "evidence.md"
    if page.exists():
        page.write_text(filled(page.read_text(encoding="utf-8"), _rounded(found)), encoding="utf-8")
    click.echo(f"{out / 'evidence.json'} written")


def _evaluated(
    name: str, runs: Sequence[Family], halves: int, draws: int, progress: Progress
) -> dict[str, Any]:
    groups = [(family, agent) for family in runs for agent in family.groups()]
    few = max(halves // 4, 1)
    attempts = [(family, agent) for family, agent in groups if _has_attempts(family, agent)]
    fits = (len(groups) + len(attempts)) * halves + len(groups) * few * (len(variants()) + 1)
    task = progress.add_task(name, total=fits)

    def judged(
        halves: int, of: Sequence[tuple[Family, str]] = groups, **options: Any
    ) -> dict[tuple[str, str], dict[str, Any]]:
        return {
            (family.name, agent): stop_rules(
                *(family, agent),
                halves=halves,
                draws=draws,
                advance=lambda: progress.advance(task),
                **options,
            )
            for family, agent in of
        }

    rules = judged(halves, names=SCORE_NAMES)
    compared = ("stagnation", "steps_begun")
    by_task = judged(halves, attempts, names=compared, how=BY_TASK)
    tried = {label: judged(few, names=compared, fitter=one) for label, one in variants().items()}
    tried[_SEEN] = judged(few, names=compared, seen=True)
    return {
        "families": [
            {
                "name": family.name,
                "runs": len(family.steps),
                "failed": int(family.failed.sum()),
                "tasks": len(np.unique(family.tasks)),
                "steps": int(family.steps.sum()),
            }
            for family in runs
        ],
        "groups": [
            {"task_group": key[0], "agent": key[1], **_by_score(found)}
            for key, found in rules.items()
        ],
        "means": _means(rules),
        "by_task": {
            "groups": [
                {"task_group": key[0], "agent": key[1], **_by_score(found)}
                for key, found in by_task.items()
            ],
            "means": _means(by_task),
        },
        "tried": {label: _compared(found) for label, found in tried.items()},
        "separation": separation(runs),
        "calibration_size": bounds.calibration_size(runs),
        "transfer": bounds.transfer(runs),
        "ratchet": bounds.ratchet(runs),
    }


def _has_attempts(family: Family, agent: str) -> bool:
    return family.has_attempts(agent, tasks=BY_TASK.size + BY_TASK.spare)


def _by_score(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shares(judged) for name, judged in found.items()}


def _means(rules: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    """The plain mean over the groups, draw by draw, and what the issue compares."""
    names = list(next(iter(rules.values()), {}))
    means = {
        name: shares(np.mean([np.nan_to_num(found[name]) for found in rules.values()], axis=0))
        for name in names
    }
    for name in names:
        stopped = [np.nanmean(found[name][:, 1]) for found in rules.values()]
        means[name]["good_stopped"] = float(np.mean(stopped))
    return {**means, **_compared(rules)} if means else {}


def _compared(rules: Mapping[Any, Mapping[str, Any]]) -> dict[str, Any]:
    saved = {
        name: np.array([np.mean(found[name][:, 0]) for found in rules.values()])
        for name in ("learned", "stagnation", "steps_begun")
    }
    stopped = [np.nanmean(found["learned"][:, 1]) for found in rules.values()]
    mean = {name: float(values.mean()) for name, values in saved.items()}
    names = next(iter(rules.values())).keys() - {"oracle"}
    best = [max(np.mean(found[name][:, 0]) for name in names) for found in rules.values()]
    return {
        "best_in_hindsight": float(np.mean(best)),
        "best_times_stagnation": float(np.mean(best)) / mean["stagnation"],
        "groups": len(rules),
        "saved": mean["learned"],
        "good_stopped_mean": float(np.mean(stopped)),
        "times_stagnation": mean["learned"] / mean["stagnation"],
        "times_steps_begun": mean["learned"] / mean["steps_begun"],
        "worse_than_stagnation": int((saved["learned"] < saved["stagnation"]).sum()),
    }


def _pictures(found: Mapping[str, Any]) -> dict[str, str]:
    drawn: dict[str, str] = {}
    for name, one in found["sets"].items():
        rows: dict[str, dict[str, tuple[float, float, float]]] = {}
        for row in one["separation"]:
            if row["auc"] is not None:
                rows.setdefault(row["metric"].replace("_", " "), {})[f"step {row['step']}"] = (
                    row["auc"],
                    *row["interval"],
                )
        if rows:
            drawn[f"separation-{name}"] = pictures.intervals(
                f"AUC of failed against solved runs, {name}", rows
            )
        saved = {
            f"{row['task_group']} {row['agent']}"[:32]: {
                score.replace("_", " "): row[score]["saved"] for score in _SHOWN
            }
            for row in one["groups"]
        }
        if saved:
            drawn[f"stops-{name}"] = pictures.bars(f"Share of the steps saved, {name}", saved)
        grown = one["ratchet"]
        if grown["groups"]:
            drawn[f"ratchet-{name}"] = pictures.lines(
                "Successful runs stopped, by generation",
                {
                    "recalibrated": grown["without"],
                    "holdout": grown["holdout"],
                },
                most=0.6,
                bound=grown["alpha"],
            )
    return drawn


def _rounded(value: Any) -> Any:
    """With six digits: two machines may differ in the last bits."""
    if isinstance(value, float):
        return None if np.isnan(value) else round(value, 6)
    if isinstance(value, Mapping):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
