"""``examples/compose/``: no container runs here; whatever can be tried without one is.

That every file, host, port, path and uid that one part names is there in the other; that
Prometheus, Alertmanager and ``tidegauge serve`` take what they are given; and that the loop of the
example's agent reaches the service that prints them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from support.commands import default_ports
from support.processes import wait_until_ready
from support.prometheus import Prometheus, answers, find_binary, free_port
from support.serve import serving
from tidegauge.dashboards import dashboard_files

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "compose"
STACK = yaml.safe_load((FILES / "compose.yaml").read_text())
SERVICES: Mapping[str, dict[str, Any]] = STACK["services"]
RECEIVERS = "tidegauge-receivers"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATIENCE = 60.0


def read(name: str) -> Any:
    return yaml.safe_load((FILES / name).read_text())


def mounts(service: str) -> dict[PurePosixPath, Path]:
    """What of this repository a service sees, by where."""
    parts = (volume.split(":") for volume in SERVICES[service].get("volumes", ()))
    return {
        PurePosixPath(inside): (FILES / outside).resolve()
        for outside, inside, *_ in parts
        if outside.startswith(".")
    }


def seen(service: str, path: str) -> Path:
    """The file of this repository that a service finds at a path."""
    found = mounts(service)
    inside = PurePosixPath(path)
    for parent in (inside, *inside.parents):
        if parent in found:
            return found[parent] / inside.relative_to(parent)
    raise AssertionError(f"{service} has nothing at {path}")


def merged(below: Any, above: Any) -> Any:
    """As the collector puts configurations together: maps are joined, the rest is replaced."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {name: merged(below.get(name), value) for name, value in above.items()}


def collector() -> Any:
    config: Any = {}
    for flag in SERVICES["collector"]["command"]:
        path = seen("collector", flag.removeprefix("--config="))
        config = merged(config, yaml.safe_load(path.read_text()))
    return config


def listening() -> dict[str, set[int]]:
    """The ports at which each service listens, as its own configuration or default says."""

    def otlp(receivers: Any) -> set[int]:
        protocols = receivers["otlp"]["protocols"].values()
        return {int(protocol["endpoint"].rpartition(":")[2]) for protocol in protocols}

    tempo = read("tempo.yaml")
    return {
        "collector": otlp(collector()["receivers"]),
        RECEIVERS: set(default_ports("serve").values()),
        "prometheus": {9090},
        "alertmanager": {9093},
        "grafana": {3000},
        "agent": set(),
        "notices": {int(SERVICES["notices"]["entrypoint"][-1])},
        "tempo": {
            tempo["server"]["http_listen_port"],
            *otlp(tempo["distributor"]["receivers"]),
        },
    }


def named() -> Iterator[tuple[str, int]]:
    """Every host and port of another service in a service's settings."""
    config = collector()
    balancing = config["exporters"]["loadbalancing"]["resolver"]["dns"]
    addresses = [f"{balancing['hostname']}:{balancing['port']}"]
    addresses += [e["endpoint"] for e in config["exporters"].values() if "endpoint" in e]
    prometheus = read("prometheus.yml")
    for manager in prometheus["alerting"]["alertmanagers"]:
        addresses += [target for one in manager["static_configs"] for target in one["targets"]]
    for job in prometheus["scrape_configs"]:
        addresses += [f"{n}:{dns['port']}" for dns in job["dns_sd_configs"] for n in dns["names"]]
    for receiver in read("alertmanager.yml")["receivers"]:
        addresses += [urlsplit(hook["url"]).netloc for hook in receiver["webhook_configs"]]
    for source in data_sources():
        addresses.append(urlsplit(source["url"]).netloc)
    addresses.append(urlsplit(SERVICES["agent"]["environment"][ENDPOINT]).netloc)
    for address in addresses:
        host, _, port = address.rpartition(":")
        yield host, int(port)


def data_sources() -> list[dict[str, Any]]:
    folder = seen("grafana", "/etc/grafana/provisioning/datasources")
    files = sorted(folder.glob("*.yaml"))
    return [each for file in files for each in yaml.safe_load(file.read_text())["datasources"]]


def test_every_file_that_is_mounted_is_there_and_every_file_there_is_mounted() -> None:
    outside = [path for service in SERVICES for path in mounts(service).values()]
    assert all(path.exists() for path in outside)
    own = {path for path in FILES.rglob("*") if path.is_file()}
    used = {file for path in outside for file in (path, *path.rglob("*")) if file.is_file()}
    assert own - used == {FILES / "compose.yaml", FILES / "README.md"}


def test_images_are_pinned_or_built_from_what_is_here() -> None:
    for name, service in SERVICES.items():
        if "build" in service:
            build = service["build"]
            context = (FILES / build["context"]).resolve()
            assert context == ROOT
            assert (context / build["dockerfile"]).is_file()
        else:
            assert re.fullmatch(r"[\w/.-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_what_the_image_is_built_of_is_not_left_out() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")
    }
    project = (ROOT / "pyproject.toml").read_text()
    assert {"pyproject.toml", "src"} <= kept
    for name in kept:
        assert (ROOT / name).exists()
    for name in re.findall(r'(?:readme = |license-files = \[)"([^"]+)"', project):
        assert name in kept


def test_nobody_else_can_reach_it_and_nothing_takes_the_whole_machine() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), name
        assert service["mem_limit"], name
        assert service["cpus"] <= 1, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    text = (FILES / "compose.yaml").read_text()
    assert not re.search(r"PASSWORD|TOKEN|SECRET(?!URITY)", text.replace("GF_SECURITY", ""))


def test_who_waits_for_health_waits_for_a_service_that_reports_it() -> None:
    image = (ROOT / SERVICES[RECEIVERS]["build"]["dockerfile"]).read_text()
    assert "HEALTHCHECK" in image
    for service in SERVICES.values():
        for other, one in service.get("depends_on", {}).items():
            checked = "healthcheck" in SERVICES[other] or other == RECEIVERS
            assert one["condition"] == ("service_healthy" if checked else "service_started"), other


def test_published_ports_and_health_are_those_at_which_it_listens() -> None:
    ports = listening()
    assert ports.keys() == SERVICES.keys()
    for name, service in SERVICES.items():
        for published in service.get("ports", ()):
            assert int(published.rpartition(":")[2]) in ports[name], name
        asked = shlex.join(service.get("healthcheck", {}).get("test", ()))
        for port in re.findall(r"127\.0\.0\.1\D+(\d+)", asked):
            assert int(port) in ports[name], name


def test_every_named_service_is_there_and_listens() -> None:
    ports = listening()
    found = set(named())
    assert found
    for host, port in found:
        assert port in ports[host], f"{host}:{port}"
    assert {host for host, _ in found} >= SERVICES.keys() - {"grafana", "agent"}


def test_the_collector_passes_every_span_to_the_receivers_by_trace_and_to_tempo() -> None:
    config = collector()
    for pipeline in config["service"]["pipelines"].values():
        for kind, parts in pipeline.items():
            assert set(parts) <= config[kind].keys()
    traces = config["service"]["pipelines"]["traces"]
    assert traces["exporters"] == ["loadbalancing", "otlp/tempo"]
    assert config["exporters"]["loadbalancing"]["routing_key"] == "traceID"
    used = [part for p in config["service"]["pipelines"].values() for part in p["exporters"]]
    assert set(used) == config["exporters"].keys()


def test_grafana_finds_the_dashboards_where_its_provider_looks() -> None:
    folder = seen("grafana", "/etc/grafana/provisioning/dashboards")
    [provider] = yaml.safe_load((folder / "tidegauge.yaml").read_text())["providers"]
    where = PurePosixPath(provider["options"]["path"])
    boards = {name for name in dashboard_files() if name.endswith(".json")}
    shown = {inside.name for inside in mounts("grafana") if inside.parent == where}
    assert shown == boards
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(seen("grafana", home).read_text())["uid"] == "tidegauge-fleet"


def test_data_sources_are_those_that_the_command_writes_and_one_for_alerts() -> None:
    written = dashboard_files(tempo_url="http://tempo:3200")
    text = (FILES / "grafana" / "tidegauge.yaml").read_text()
    assert text == written["provisioning/datasources/tidegauge.yaml"], (
        "write it anew: tidegauge dashboards --out DIR --tempo-url http://tempo:3200, "
        "and take DIR/provisioning/datasources/tidegauge.yaml"
    )
    sources = {source["uid"]: source for source in data_sources()}
    assert {source["type"] for source in sources.values()} == {
        "prometheus",
        "tempo",
        "alertmanager",
    }
    [link] = sources["tidegauge-prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert sources[link["datasourceUid"]]["type"] == "tempo"
    assert link["name"] == "trace_id"
    assert "--enable-feature=exemplar-storage" in SERVICES["prometheus"]["command"]


def prometheus_config(rules: Path) -> dict[str, Any]:
    """Prometheus's, with the rules where they are on this machine."""
    config: dict[str, Any] = read("prometheus.yml")
    [pattern] = config["rule_files"]
    folder = seen("prometheus", str(PurePosixPath(pattern).parent))
    found = sorted(folder.glob(PurePosixPath(pattern).name))
    assert len(found) == 2
    for file in found:
        (rules / file.name).write_text(file.read_text())
    config["rule_files"] = [str(rules / PurePosixPath(pattern).name)]
    return config


@pytest.mark.system
def test_prometheus_takes_its_configuration_with_the_rules(tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    config.write_text(yaml.safe_dump(prometheus_config(tmp_path)))
    command = [find_binary("promtool"), "check", "config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


@pytest.mark.system
def test_alertmanager_takes_its_configuration_and_sends_loops_at_once() -> None:
    amtool = find_binary("amtool", package="prometheus-alertmanager")
    config = str(FILES / "alertmanager.yml")
    done = subprocess.run(
        [amtool, "check-config", config], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    command = [amtool, "config", "routes", "show", f"--config.file={config}"]
    routes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 'alertname="TidegaugeLoopOnset"' in routes
    [onset] = read("alertmanager.yml")["route"]["routes"]
    assert onset["group_wait"] == "0s"


def localised(service: str, folder: Path, address: str) -> list[str]:
    """The arguments of a server, with paths and address of this machine."""
    here = {"--config.file": folder / f"{service}.yml"}
    here |= dict.fromkeys(("--storage.path", "--storage.tsdb.path"), folder / service)
    options = [argument.split("=", 1) for argument in SERVICES[service]["command"]]
    return [
        *(f"{name}={here.get(name, value)}" for name, value in options),
        f"--web.listen-address={address}",
    ]


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], log: Path, **variables: str
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **variables}
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait_for_line(log: Path, beginning: str) -> str:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for line in log.read_text().splitlines():
            if line.startswith(beginning):
                return line
        time.sleep(0.1)
    raise AssertionError(f"{beginning}: {log.read_text()}")


@pytest.mark.system
@pytest.mark.slow
def test_the_loop_of_the_agent_gets_the_address_where_notices_are_printed(tmp_path: Path) -> None:
    """The stack without containers, and without the collector, Tempo and Grafana."""
    binaries = {
        "alertmanager": find_binary("prometheus-alertmanager", package="prometheus-alertmanager"),
        "prometheus": find_binary("prometheus"),
    }
    address = {name: f"127.0.0.1:{free_port()}" for name in (*binaries, "notices")}
    notices = tmp_path / "notices.log"

    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(serving(tmp_path, *SERVICES[RECEIVERS]["command"]))
        scraping = prometheus_config(tmp_path)
        [manager] = scraping["alerting"]["alertmanagers"]
        manager["static_configs"] = [{"targets": [address["alertmanager"]]}]
        [job] = scraping["scrape_configs"]
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": [urlsplit(receiver.metrics_url).netloc]}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(scraping))
        config = (FILES / "alertmanager.yml").read_text()
        (tmp_path / "alertmanager.yml").write_text(
            config.replace("notices:8080", address["notices"])
        )
        port = address["notices"].rpartition(":")[2]
        stack.enter_context(running([sys.executable, FILES / "notices.py", port], notices))
        for name, binary in binaries.items():
            log = tmp_path / f"{name}.log"
            command = [binary, *localised(name, tmp_path, address[name])]
            server = stack.enter_context(running(command, log))
            wait_until_ready(server, log, partial(answers, f"http://{address[name]}/-/ready"))
        endpoint = f"http://127.0.0.1:{receiver.ports.http}"
        command = [sys.executable, str(FILES / "agent.py"), "15"]
        stack.enter_context(running(command, tmp_path / "agent.log", **{ENDPOINT: endpoint}))
        fired = wait_for_line(notices, "firing TidegaugeLoopOnset")
        assert "reader (example) is looping: 1 cycle was repeated at least twice" in fired
        assert receiver.value("tidegauge_runs_active") == 1, "reported while it lasts"
        now = time.time()
        [series] = Prometheus(f"http://{address['prometheus']}").get(
            "/api/v1/query_exemplars",
            query='tidegauge_loops_total{kind="loop"}',
            start=str(now - PATIENCE),
            end=str(now + 1),
        )
        trace = series["exemplars"][0]["labels"]["trace_id"]
        assert re.fullmatch("[0-9a-f]{32}", trace), "a dot on a graph leads to a trace"
        wait_for_line(notices, "resolved TidegaugeLoopOnset")
        assert (tmp_path / "agent.log").read_text() == ""
