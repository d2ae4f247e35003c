"""The package's files: what the generator makes of the catalogue, and complete for an operator."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dashboards.alerts import ALERTS
from dashboards.files import files
from support.grafana import shown_panels
from tidegauge.catalog import LIMITS, RUNBOOKS
from tidegauge.dashboards import dashboard_files, dashboards, rule_files
from tidegauge.dashboards.packaged_files import GRAFANA_URL, MOUNTED_AT, PROMETHEUS_URL, TEMPO_URL
from tidegauge.streaming_metrics.auv import AUV_OF_PROCESS
from tidegauge.streaming_metrics.entropy_split import ACTION_ENTROPY
from tidegauge.streaming_metrics.memory_index import MEMORY_INDEX
from tidegauge.streaming_metrics.registry import METRICS
from tidegauge.streaming_metrics.success import SUCCESS_RATE

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "tidegauge" / "dashboards"
SOURCES = sorted((ROOT / "dashboards").glob("*.py"))
BUILT = files()
BOARDS = {name: json.loads(text) for name, text in BUILT.items() if name.endswith(".json")}


@pytest.mark.parametrize("name", sorted(BUILT))
def test_the_package_holds_what_the_code_builds(name: str) -> None:
    path = PACKAGE / name
    assert path.is_file(), f"{name} is missing: run `make dashboards` and look at the difference"
    assert path.read_text() == BUILT[name], (
        f"{name} is not what the code builds: run `make dashboards` and look at the difference"
    )


def test_the_package_holds_no_other_file() -> None:
    found = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.*")}
    code = {"__init__.py", "packaged_files.py", "push.py"}
    assert {name for name in found if "__pycache__" not in name} == {*BUILT, *code}


def test_two_builds_are_the_same_to_the_byte() -> None:
    assert files() == BUILT


def test_without_settings_files_are_given_as_they_are() -> None:
    given = dashboard_files() | {f"rules/{name}": text for name, text in rule_files().items()}
    assert given == {name: text for name, text in BUILT.items() if name in given}
    assert set(BUILT) - set(given) == {"datasources-with-tempo.yaml"}


def test_json_is_sorted() -> None:
    for name, board in BOARDS.items():
        assert BUILT[name] == json.dumps(board, sort_keys=True, indent=2) + "\n"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_source_spells_the_name_of_a_metric(source: Path) -> None:
    code = re.sub(r">>>[^\n]*\n(?:(?! *>>>)[^\n]+\n)*", "", source.read_text())  # doctests show
    for metric in METRICS:
        assert not re.search(rf"\b{metric.name}\b", code), metric.name


def test_every_name_in_a_query_is_of_the_catalogue() -> None:
    series = {m.name + end for m in METRICS for end in ("", "_bucket", "_sum", "_count")}
    queries = [
        target["expr"]
        for board in BOARDS.values()
        for panel in shown_panels(board)
        for target in panel["targets"]
    ]
    assert len(queries) > 50
    for query in [*queries, *(alert.value for alert in ALERTS)]:
        names = set(re.findall(r"(?<![:\w])tidegauge_\w+", query))
        assert names <= series, names - series


def test_every_metric_is_shown_somewhere() -> None:
    text = "".join(BUILT.values())
    seen = set(re.findall(r"(?<![:\w])tidegauge_\w+", text))
    unseen = {m.name for m in METRICS if not {m.name, f"{m.name}_bucket"} & seen}
    assert unseen == {
        # values of one process: the counters beside them are right for any number of processes
        ACTION_ENTROPY.name,
        AUV_OF_PROCESS.name,
        MEMORY_INDEX.name,
        SUCCESS_RATE.name,
        # only of processes with budgets or breakers, whose own settings say what is much
        *[metric.name for metric in LIMITS],
    }


def test_panels_describe_what_to_do_and_do_not_overlap() -> None:
    for name, board in BOARDS.items():
        rows = [panel for panel in board["panels"] if panel["type"] == "row"]
        ids = [panel["id"] for panel in [*rows, *shown_panels(board)]]
        assert len(set(ids)) == len(ids)
        for panel in shown_panels(board):
            assert len(panel["description"]) > 40, (name, panel["title"])
            assert panel["datasource"]["uid"] == "$datasource"
            refs = [target["refId"] for target in panel["targets"]]
            assert len(set(refs)) == len(refs) > 0
            assert panel["fieldConfig"]["defaults"]["unit"]
        taken: set[tuple[int, int]] = set()
        for panel in [*rows, *shown_panels(board)]:
            at = panel["gridPos"]
            cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
            assert not cells & taken, (name, panel.get("title"))
            assert at["x"] + at["w"] <= 24
            taken |= cells


def test_rows_of_parts_that_not_everyone_runs_are_collapsed() -> None:
    collapsed = [
        panel["title"]
        for board in BOARDS.values()
        for panel in board["panels"]
        if panel["type"] == "row" and panel["collapsed"]
    ]
    assert [title.split(":")[0] for title in collapsed] == [
        "Coding agents of this machine",
        "Central processes",
        "Judges",
    ]


def test_onsets_and_stops_are_marked_on_every_dashboard() -> None:
    for board in BOARDS.values():
        onsets, stops = board["annotations"]["list"]
        assert (onsets["name"], onsets["iconColor"]) == ("Loop onsets", "red")
        assert 'kind="loop"' in onsets["expr"]
        assert (stops["name"], stops["iconColor"]) == ("Stops", "purple")
        assert 'action="stop"' in stops["expr"]
        for one in (onsets, stops):
            assert one["enable"]
            assert one["datasource"]["uid"] == "$datasource"
            assert {*re.findall(r"\$(\w+)", one["expr"])} == {"agent", "task_group"}


def test_dots_of_step_durations_lead_to_traces() -> None:
    [panel] = [
        one for one in shown_panels(BOARDS["tidegauge-run.json"]) if one["title"] == "Step duration"
    ]
    assert all(target["exemplar"] for target in panel["targets"])


def test_variables_that_queries_use_are_there() -> None:
    for name, board in BOARDS.items():
        known = {variable["name"] for variable in board["templating"]["list"]}
        used = set(
            re.findall(
                r"\$(\w+)", "".join(t["expr"] for p in shown_panels(board) for t in p["targets"])
            )
        )
        assert used - {"__interval", "__range"} <= known, name


def test_uids_are_stable() -> None:
    assert [board["uid"] for board in dashboards()] == [
        "tidegauge-fleet",
        "tidegauge-run",
        "tidegauge-diagnosis",
    ]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_alert_has_a_runbook_with_steps_and_a_twin_in_grafana(alert: Any) -> None:
    page = (ROOT / "docs" / "runbooks" / f"{alert.runbook}.md").read_text()
    assert alert.name in page
    assert "\n1. " in page
    provisioned = yaml.safe_load(BUILT["provisioning/alerting/tidegauge.yaml"])
    [rule] = [r for r in provisioned["groups"][0]["rules"] if r["title"] == alert.name]
    value, threshold = rule["data"]
    assert value["model"]["expr"] == alert.value
    assert value["model"]["instant"] is True
    assert threshold["model"]["conditions"][0]["evaluator"] == {
        "params": [alert.threshold],
        "type": "gt",
    }
    assert threshold["model"]["expression"] == value["refId"] == "A"
    assert rule["condition"] == threshold["refId"]
    assert rule["for"] == alert.pending
    # Another name than in Prometheus: the file format of Grafana's provisioning.
    assert rule.get("keepFiringFor", "") == alert.keep_firing
    assert "keep_firing_for" not in rule
    assert rule["labels"] == {"severity": alert.severity}
    annotations = rule["annotations"]
    assert "$value " not in annotations["summary"]
    assert "query" not in annotations["summary"], "Grafana's templates cannot query"
    [of_prometheus] = [
        entry["annotations"]
        for group in yaml.safe_load(BUILT["rules/tidegauge-alerts.yaml"])["groups"]
        for entry in group["rules"]
        if entry["alert"] == alert.name
    ]
    assert of_prometheus["summary"] == alert.summary + alert.details
    assert annotations["summary"] == alert.summary.replace("$value", "$values.A.Value")
    for link in ("runbook_url", "dashboard_url", "panel"):
        assert annotations[link] == of_prometheus[link]
    assert urlsplit(annotations["runbook_url"]).scheme == "https"
    uid, title = alert.panel
    shown = shown_panels(BOARDS[f"{uid}.json"])
    [*_, panel] = [panel for panel in shown if panel["title"] == title]
    assert annotations["panel"] == title
    assert f"/d/{uid}?viewPanel={panel['id']}" in annotations["dashboard_url"]
    assert (rule["dashboardUid"], rule["panelId"]) == (uid, panel["id"])
    assert annotations["__dashboardUid__"] == uid
    assert annotations["__panelId__"] == str(panel["id"])
    assert "tidegauge-prometheus" in BUILT["provisioning/datasources/tidegauge.yaml"]
    assert value["datasourceUid"] == "tidegauge-prometheus"


def test_settings_go_where_they_belong() -> None:
    files = dashboard_files(
        mounted_at="/here",
        prometheus_url="http://p:1",
        tempo_url="http://t:2",
        runbooks="https://wiki.example/runbooks/",
        grafana_url="https://grafana.example/",
    )
    [provider] = yaml.safe_load(files["provisioning/dashboards/tidegauge.yaml"])["providers"]
    assert provider["options"]["path"] == "/here"
    prometheus, tempo = yaml.safe_load(files["provisioning/datasources/tidegauge.yaml"])[
        "datasources"
    ]
    assert (prometheus["url"], tempo["url"]) == ("http://p:1", "http://t:2")
    assert prometheus["jsonData"]["exemplarTraceIdDestinations"] == [
        {"name": "trace_id", "datasourceUid": tempo["uid"]}
    ]
    for text in (
        files["provisioning/alerting/tidegauge.yaml"],
        rule_files(runbooks="https://wiki.example/runbooks", grafana_url="https://grafana.example")[
            "tidegauge-alerts.yaml"
        ],
    ):
        assert "tidegauge.example" not in text
        assert "localhost" not in text
        assert "https://wiki.example/runbooks/loop-onset.md" in text
        assert "https://grafana.example/d/tidegauge-fleet?" in text


def replaced(value: Any, texts: dict[str, str]) -> Any:
    """A value with texts in the place of others, wherever they are in it."""
    if isinstance(value, dict):
        return {name: replaced(item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, texts) for item in value]
    if isinstance(value, str):
        return re.sub("|".join(map(re.escape, texts)), lambda found: texts[found[0]], value)
    return value


@pytest.mark.parametrize(
    "text",
    [
        "http://p:1",
        "a: b # c",
        "\"q\" 's' \\ %20{}&?=",
        "two\nlines\tand a tab ",
        "\u2028\x85\x7f\ufeff\N{GRINNING FACE}",
        "- x",
        "@`|>!*&",
        "{{ . }}",
        "long " * 50,
        "~",
        "",
        f"{RUNBOOKS} {GRAFANA_URL} {MOUNTED_AT}",
    ],
)
def test_any_text_can_be_a_setting(text: str) -> None:
    """The meaning is that of the file with the text in the place of the default."""
    texts = {MOUNTED_AT: text, PROMETHEUS_URL: text, TEMPO_URL: text} | {
        RUNBOOKS: text.rstrip("/"),
        GRAFANA_URL: text.rstrip("/"),
    }
    links = {"runbooks": text, "grafana_url": text}
    given = dashboard_files(mounted_at=text, prometheus_url=text, tempo_url=text, **links) | {
        f"rules/{name}": content for name, content in rule_files(**links).items()
    }
    for name, content in given.items():
        source = "datasources-with-tempo.yaml" if "datasources" in name else name
        assert yaml.safe_load(content) == replaced(yaml.safe_load(BUILT[source]), texts), name


def test_commands_need_neither_the_generator_nor_yaml(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('dashboards', 'grafana_foundation_sdk', 'yaml'): sys.modules[name] = None\n"
        "from tidegauge.cli.main import main\nmain()"
    )
    for command in ("dashboards", "rules"):
        subprocess.run([sys.executable, "-c", code, command, "--out", tmp_path], check=True)
    written = {path.name for path in tmp_path.rglob("*.*")}
    assert written == {Path(name).name for name in BUILT} - {"datasources-with-tempo.yaml"}
