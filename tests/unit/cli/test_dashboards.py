"""``tidegauge dashboards --out`` and ``tidegauge rules --out``: files where they are wanted."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tidegauge.cli.main import cli
from tidegauge.dashboards import dashboard_files, rule_files


def test_dashboards_are_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["dashboards", "--out", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    for name, text in dashboard_files().items():
        assert (tmp_path / "new" / name).read_text() == text
        assert name in done.output


def test_settings_are_passed_on(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli, ["dashboards", "--out", str(tmp_path), "--tempo-url", "http://t:3200"]
    )
    assert done.exit_code == 0, done.output
    sources = (tmp_path / "provisioning" / "datasources" / "tidegauge.yaml").read_text()
    assert "http://t:3200" in sources


def test_rules_are_written_with_links_that_lead_somewhere(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        cli,
        [
            *("rules", "--out", str(tmp_path)),
            *("--runbooks", "https://wiki.example", "--grafana-url", "https://grafana.example"),
        ],
    )
    assert done.exit_code == 0, done.output
    built = rule_files(runbooks="https://wiki.example", grafana_url="https://grafana.example")
    for name, text in built.items():
        assert (tmp_path / name).read_text() == text


def test_it_has_to_be_said_where_to() -> None:
    done = CliRunner().invoke(cli, ["dashboards"])
    assert done.exit_code == 2
    assert "--out" in done.output
