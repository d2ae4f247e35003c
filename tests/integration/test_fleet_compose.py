"""``examples/fleet/compose.yaml``: no container runs here; whatever can be tried without one is."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from support.commands import PROGRAM, default_ports, given_settings
from support.prometheus import find_binary
from tidegauge.dashboards import dashboard_files

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "fleet"
STACK = yaml.safe_load((FILES / "compose.yaml").read_text())
SERVICES: Mapping[str, dict[str, Any]] = STACK["services"]
COMMANDS = {
    "gateway": "serve",
    "worker-1": "worker",
    "worker-2": "worker",
    "decisions": "decisions",
}


def read(name: str) -> Any:
    return yaml.safe_load((FILES / name).read_text())


def volumes(service: str) -> dict[PurePosixPath, str]:
    """What is mounted where."""
    reported = (volume.split(":") for volume in SERVICES[service].get("volumes", ()))
    return {PurePosixPath(inside): outside for outside, inside, *_ in reported}


def mounts(service: str) -> dict[PurePosixPath, Path]:
    """What of this repository a service sees, by where."""
    found = volumes(service).items()
    return {inside: (FILES / outside).resolve() for inside, outside in found if outside[0] == "."}


def settings_of(service: str) -> dict[str, Any]:
    """The settings that one of our commands gets."""
    start = SERVICES[service].get("entrypoint", [PROGRAM, "serve"])  # the image's
    command, settings = given_settings(start, SERVICES[service]["command"])
    assert command == COMMANDS[service]
    return settings


def balancing() -> tuple[set[int], list[tuple[str, int]]]:
    """The ports at which the balancer listens, and whom it passes requests on to."""
    text = (FILES / "balancer.conf").read_text()
    upstreams = re.findall(r"server ([\w-]+):(\d+) resolve;", text)
    for name in re.findall(r"(?:proxy|grpc)_pass \w+://(\w+);", text):
        assert f"upstream {name} {{" in text
    return (
        {int(port) for port in re.findall(r"listen (\d+)", text)},
        [(host, int(port)) for host, port in upstreams],
    )


def listening() -> dict[str, set[int]]:
    """The ports at which each service listens, as its own configuration or default says."""
    kafka = SERVICES["kafka"]["environment"]["KAFKA_LISTENERS"]
    return {
        "kafka": {int(port) for port in re.findall(r":(\d+)", kafka)},
        "gateway": set(default_ports("serve").values()),
        "worker-1": set(default_ports("worker").values()),
        "worker-2": set(default_ports("worker").values()),
        "decisions": set(default_ports("decisions").values()),
        "balancer": balancing()[0],
        "prometheus": {9090},
        "grafana": {3000},
        "topics": set(),
        "digest-key": set(),
    }


def named() -> Iterator[tuple[str, int]]:
    """Every host and port of another service in a service's settings."""
    environment = SERVICES["kafka"]["environment"]
    addresses = [
        environment["KAFKA_ADVERTISED_LISTENERS"].rpartition("/")[2],
        environment["KAFKA_CONTROLLER_QUORUM_VOTERS"].rpartition("@")[2],
        SERVICES["topics"]["environment"]["BROKERS"],
        *(settings_of(service)["kafka"] for service in COMMANDS),
    ]
    for job in read("prometheus.yml")["scrape_configs"]:
        for static in job.get("static_configs", ()):
            addresses += static["targets"]
        for dns in job.get("dns_sd_configs", ()):
            addresses += [f"{name}:{dns['port']}" for name in dns["names"]]
    [provided] = [
        outside
        for inside, outside in mounts("grafana").items()
        if inside.match("provisioning/datasources")
    ]
    for file in provided.glob("*.yaml"):
        sources = yaml.safe_load(file.read_text())["datasources"]
        addresses += [urlsplit(source["url"]).netloc for source in sources]
    for address in addresses:
        host, _, port = address.rpartition(":")
        yield host, int(port)
    yield from balancing()[1]


@pytest.mark.parametrize("service", COMMANDS)
def test_every_flag_is_a_setting_and_all_use_one_topic(service: str) -> None:
    settings = settings_of(service)
    assert settings["topic"] == SERVICES["topics"]["environment"]["TOPIC"]
    if service != "gateway":  # its image says so
        assert settings["host"] == "0.0.0.0"
    image = (ROOT / SERVICES[service]["build"]["dockerfile"]).read_text()
    assert "TIDEGAUGE_SERVE_HOST=0.0.0.0" in image
    assert f'ENTRYPOINT ["{PROGRAM}", "serve"]' in image


def test_every_named_service_is_there_and_listens() -> None:
    ports = listening()
    assert ports.keys() == SERVICES.keys()
    found = set(named())
    for host, port in found:
        assert port in ports[host], f"{host}:{port}"
    assert {host for host, _ in found} == {"kafka", "prometheus", *COMMANDS}


def test_published_ports_and_health_are_those_at_which_it_listens() -> None:
    ports = listening()
    for name, service in SERVICES.items():
        for published in service.get("ports", ()):
            assert published.startswith("127.0.0.1:"), name
            assert int(published.rpartition(":")[2]) in ports[name], name
        asked = shlex.join(service.get("healthcheck", {}).get("test", ()))
        for port in re.findall(r"127\.0\.0\.1\D+(\d+)", asked):
            assert int(port) in ports[name], name


def test_who_waits_for_health_waits_for_a_service_that_reports_it() -> None:
    image = (ROOT / SERVICES["gateway"]["build"]["dockerfile"]).read_text()
    assert "HEALTHCHECK" in image
    for service in SERVICES.values():
        for other, waiting in service.get("depends_on", {}).items():
            if SERVICES[other]["restart"] == "on-failure":
                assert waiting["condition"] == "service_completed_successfully", other
            else:
                assert waiting["condition"] == "service_healthy", other
                assert "healthcheck" in SERVICES[other] or "build" in SERVICES[other], other


def test_files_and_volumes_that_are_mounted_are_there_and_the_other_way_round() -> None:
    outside = [path for service in SERVICES for path in mounts(service).values()]
    assert all(path.exists() for path in outside)
    own = {path for path in FILES.glob("*") if path.is_file()}
    apart = {"compose.yaml", "README.md", "capacity.py"}
    assert own - set(outside) == {FILES / name for name in apart}
    used = [v for name in SERVICES for v in volumes(name).values() if v[0] != "."]
    assert set(used) == STACK["volumes"].keys()


def test_no_two_workers_share_a_volume_and_gateways_share_their_key() -> None:
    states = []
    for name in ("worker-1", "worker-2"):
        assert SERVICES[name].get("scale", 1) == 1
        states.append(volumes(name)[PurePosixPath(settings_of(name)["state_dir"])])
    assert len(set(states)) == len(states)
    key = PurePosixPath(settings_of("gateway")["kafka_digest_key_file"])
    assert volumes("gateway")[key.parent] == volumes("digest-key")[key.parent]
    assert SERVICES["gateway"]["scale"] == 2


def test_the_key_is_drawn_once(tmp_path: Path) -> None:
    [program] = SERVICES["digest-key"]["command"]
    key = PurePosixPath(settings_of("gateway")["kafka_digest_key_file"])
    here = program.replace(str(key), str(tmp_path / key.name))
    assert here != program
    drawn = []
    for _ in range(2):
        exec(compile(here, "digest-key", "exec"), {})
        drawn.append((tmp_path / key.name).read_text())
    assert re.fullmatch("[0-9a-f]{64}", drawn[0])
    assert drawn[1] == drawn[0]
    assert [path.name for path in tmp_path.iterdir()] == [key.name]


def test_images_are_pinned_or_built_from_what_is_here() -> None:
    extras = (ROOT / "pyproject.toml").read_text()
    for name, service in SERVICES.items():
        if "build" in service:
            build = service["build"]
            assert (FILES / build["context"]).resolve() == ROOT
            text = (ROOT / build["dockerfile"]).read_text()
            assert "ARG EXTRAS=" in text
            assert "${EXTRAS}" in text
            for extra in build["args"]["EXTRAS"].split(","):
                assert re.search(rf"^{extra} = \[", extras, re.MULTILINE), extra
        else:
            assert re.fullmatch(r"[\w/.-]+:v?\d+\.\d+\.\d+", service["image"]), name


def test_nothing_takes_the_whole_machine_and_there_is_no_secret() -> None:
    for name, service in SERVICES.items():
        assert service["mem_limit"], name
        assert service["cpus"] <= 1, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
    text = (FILES / "compose.yaml").read_text()
    assert not re.search(r"PASSWORD|TOKEN|SECRET", text.replace("GF_SECURITY", ""))


def test_grafana_finds_the_dashboards_where_its_provider_looks() -> None:
    [folder] = [p for i, p in mounts("grafana").items() if i.match("provisioning/dashboards")]
    [provider] = yaml.safe_load((folder / "tidegauge.yaml").read_text())["providers"]
    where = PurePosixPath(provider["options"]["path"])
    shown = {inside.name for inside in mounts("grafana") if inside.parent == where}
    assert shown == {name for name in dashboard_files() if name.endswith(".json")}
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert PurePosixPath(home) in mounts("grafana")


def test_prometheus_takes_its_configuration_with_the_rules(tmp_path: Path) -> None:
    config = read("prometheus.yml")
    [pattern] = config["rule_files"]
    rules = mounts("prometheus")[PurePosixPath(pattern).parent]
    config["rule_files"] = [str(rules / PurePosixPath(pattern).name)]
    assert list(rules.glob(PurePosixPath(pattern).name))
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    command = [find_binary("promtool"), "check", "config", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
