"""The wheel that users install: on its own, and with each extra, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.minutes]

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DEVELOPMENT = {"dashboards", "dev", "docs", "test", "test-lowest"}
EXTRAS = sorted(set(PROJECT["optional-dependencies"]) - DEVELOPMENT)

IMPORTS = {
    "": ["tidegauge", "tidegauge.instrumentation.spans", "tidegauge.testing"],
    "backtest": ["tidegauge.policies.backtesting"],
    "demo": ["tidegauge.instrumentation.langchain"],
    "embeddings": ["tidegauge.streaming_metrics", "numpy"],
    "every": ["tidegauge.fleet.partition_worker", "tidegauge.instrumentation.openai_agents"],
    "export": ["tidegauge.cli.export", "pyarrow.parquet"],
    "inspect": ["tidegauge.coding_agents.agents", "backports.zstd"],
    "judge": ["tidegauge.diagnose.judges"],
    "kafka": ["tidegauge.fleet.decisions_reader"],
    "langchain": ["tidegauge.instrumentation.langchain", "tidegauge.testing.langchain"],
    "learn": ["tidegauge.policies.learning"],
    "openai-agents": ["tidegauge.instrumentation.openai_agents"],
    "page": ["tidegauge.exporters.page"],
    "postgres": ["tidegauge.run_stores.sql_stores", "psycopg"],
    "report": ["tidegauge.diagnose.report"],
    "serve": ["tidegauge.receivers.grpc_server"],
    "worker": ["tidegauge.fleet.partition_worker"],
}
"""What a user of each extra imports."""

COMMANDS = {
    "": ["--help"],
    "backtest": ["backtest", "--help"],
    "demo": ["demo", "--help"],
    "export": ["export", "--help"],
    "inspect": ["replay", "--help"],
    "judge": ["judge", "--help"],
    "kafka": ["decisions", "--help"],
    "learn": ["learn", "--help"],
    "report": ["report", "--help"],
    "serve": ["serve", "--help"],
    "worker": ["worker", "--help"],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the sdist, which is built from the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "uv", "build", "--out-dir", str(folder), str(ROOT))
    assert len(list(folder.glob("*.tar.gz"))) == 1
    [built] = folder.glob("*.whl")
    return built


def run(*command: str) -> str:
    """Run a command outside of the tree; its output is the reason where it fails."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ended = subprocess.run(
        command,
        cwd="/",
        check=False,
        env=clean | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_every_extra_is_tried() -> None:
    assert set(IMPORTS) == {"", *EXTRAS}


def test_it_holds_the_package_and_its_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "tidegauge"
    expected = {
        f"tidegauge/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert expected <= names
    assert not any(name.startswith(("tests/", "benchmarks/", "dashboards/")) for name in names)
    assert {"LICENSE", "uplot.LICENSE"} == {
        Path(name).name for name in names if "licenses/" in name
    }
    [sdist] = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as source:
        assert f"{sdist.name.removesuffix('.tar.gz')}/dashboards/__main__.py" in source.getnames()


def test_pip_installs_it(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=True)
    run(str(tmp_path / "bin" / "python"), "-m", "pip", "install", "--quiet", str(wheel))
    works(tmp_path, "")
    for command in ("dashboards", "rules"):
        run(str(tmp_path / "bin" / "tidegauge"), command, "--out", str(tmp_path / "files"))


@pytest.mark.parametrize("extra", EXTRAS)
def test_each_extra_is_installed_imported_and_run(wheel: Path, extra: str, tmp_path: Path) -> None:
    uv = [sys.executable, "-m", "uv", "--quiet", "--no-config"]
    run(*uv, "venv", "--python", sys.executable, str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    run(*uv, "pip", "install", "--python", python, f"tidegauge[{extra}] @ {wheel.as_uri()}")
    works(tmp_path / "venv", extra)


def works(environment: Path, extra: str) -> None:
    """What a user imports is there, and so is the command."""
    program = environment / "bin"
    run(str(program / "python"), "-c", "".join(f"import {name}\n" for name in IMPORTS[extra]))
    said = run(str(program / "tidegauge"), *COMMANDS.get(extra, ["--help"]))
    assert said.startswith("Usage: tidegauge")
