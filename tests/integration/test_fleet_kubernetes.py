"""``examples/fleet/kubernetes/``: there is no cluster; that all of it fits together can be seen."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from support.commands import default_ports, given_settings
from tidegauge.cli.server_settings import read_kafka_config

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "fleet" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FILES / "kustomization.yaml").read_text())
ASIDE = ("pod-monitor.yaml", "strimzi-topics.yaml")
Manifest = dict[str, Any]


def read(name: str) -> list[Manifest]:
    return [found for found in yaml.safe_load_all((FILES / name).read_text()) if found]


MANIFESTS = [manifest for name in KUSTOMIZATION["resources"] for manifest in read(name)]
API = {
    "Namespace": "v1",
    "Service": "v1",
    "Job": "batch/v1",
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "PodDisruptionBudget": "policy/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "KafkaTopic": "kafka.strimzi.io/v1",
}
COMMANDS = {"gateway": "serve", "worker": "worker", "decisions": "decisions"}


def of_kind(*kinds: str) -> list[Manifest]:
    return [manifest for manifest in MANIFESTS if manifest["kind"] in kinds]


SETS = {found["metadata"]["name"]: found for found in of_kind("Deployment", "StatefulSet")}
PODS: dict[str, Manifest] = {
    found["metadata"]["name"]: found["spec"]["template"]
    for found in [*SETS.values(), *of_kind("Job")]
}


def container(name: str) -> Manifest:
    [found] = PODS[name]["spec"]["containers"]
    return dict(found)


def ports(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(name).get("ports", ())}


def variables(name: str) -> dict[str, Manifest]:
    return {each["name"]: each for each in container(name)["env"]}


def settings_of(name: str) -> dict[str, Any]:
    """The settings that one of our commands gets."""
    one = container(name)
    command, settings = given_settings(one["command"], one["args"], variables(name))
    assert command == COMMANDS[name]
    return settings


def selected(selector: Mapping[str, Any]) -> set[str]:
    """The pods that a selector selects."""

    def matches(labels: Mapping[str, str]) -> bool:
        plain = selector.get("matchLabels", {}).items() <= labels.items()
        among = selector.get("matchExpressions", ())
        return plain and all(labels.get(each["key"]) in each["values"] for each in among)

    return {name for name, pod in PODS.items() if matches(pod["metadata"]["labels"])}


def generated() -> dict[str, dict[str, str]]:
    """The config maps that kustomize makes: their keys and values, a file's by its name."""
    found: dict[str, dict[str, str]] = {}
    for made in KUSTOMIZATION["configMapGenerator"]:
        literals = (literal.split("=", 1) for literal in made.get("literals", ()))
        files = {name: (FILES / name).read_text() for name in made.get("files", ())}
        found[made["name"]] = {**dict(literals), **files}
    return found


def secrets() -> dict[str, set[str]]:
    """The secrets that the README has made beforehand, and their keys."""
    text = (FILES.parent / "README.md").read_text()
    found = re.findall(r"create secret generic (\S+) --from-(?:file|literal)=([\w.]+)", text)
    return {name: {key} for name, key in found}


def test_every_file_is_a_resource_or_said_to_be_aside() -> None:
    used = {*KUSTOMIZATION["resources"], *ASIDE, "kustomization.yaml", "kafka.toml"}
    used |= {name for made in KUSTOMIZATION["configMapGenerator"] for name in made.get("files", ())}
    assert {path.name for path in FILES.iterdir()} == used
    readme = (FILES.parent / "README.md").read_text()
    for name in (*ASIDE, "kafka.toml"):
        assert f"kubernetes/{name}" in readme


def test_kinds_are_of_their_versions_and_names_are_names() -> None:
    every = [*MANIFESTS, *(found for name in ASIDE for found in read(name))]
    for manifest in every:
        assert manifest["apiVersion"] == API[manifest["kind"]]
        name = manifest["metadata"]["name"]
        assert re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name)
    identities = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in every]
    assert len(set(identities)) == len(identities)
    [namespace] = of_kind("Namespace")
    assert namespace["metadata"]["name"] == KUSTOMIZATION["namespace"]
    assert {found["metadata"]["namespace"] for found in read("pod-monitor.yaml")} == {
        KUSTOMIZATION["namespace"]
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_and_variable_is_a_setting(name: str) -> None:
    settings = settings_of(name)
    assert settings["host"] == "0.0.0.0"
    assert {"kafka", "topic", "kafka_config"} <= settings.keys()
    assert set(ports(name).values()) == set(default_ports(COMMANDS[name]).values())


def test_variables_come_from_where_they_are_set() -> None:
    made = generated()
    for name in PODS:
        for each in variables(name).values():
            if "valueFrom" in each:
                source = each["valueFrom"]["configMapKeyRef"]
                assert source["key"] in made[source["name"]]
    assert read_kafka_config(str(FILES / "kafka.toml")) == {}


def test_the_kafka_config_is_one_when_its_comments_are_taken_away(tmp_path: Path) -> None:
    lines = (FILES / "kafka.toml").read_text().splitlines()
    file = tmp_path / "kafka.toml"
    file.write_text("\n".join(line.removeprefix("# ") for line in lines if '" = "' in line))
    reported = read_kafka_config(str(file))
    assert reported["security.protocol"] == "SASL_SSL"
    del reported["ssl.ca.location"]  # which is not here
    Producer({"bootstrap.servers": "127.0.0.1:1", **reported})


@pytest.mark.parametrize("name", PODS)
def test_whatever_is_mounted_is_there(name: str) -> None:
    pod, made, known = PODS[name]["spec"], generated(), secrets()
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    claims = SETS.get(name, {}).get("spec", {}).get("volumeClaimTemplates", ())
    volumes |= {claim["metadata"]["name"]: claim for claim in claims}
    mounted = {mount["name"]: mount for mount in container(name)["volumeMounts"]}
    assert mounted.keys() == volumes.keys()
    files: set[PurePosixPath] = set()
    for volume, mount in mounted.items():
        reported = volumes[volume]
        keys: set[str] = set()
        if "secret" in reported:
            keys = known[reported["secret"]["secretName"]]
        elif "configMap" in reported:
            keys = set(made[reported["configMap"]["name"]])
        files |= {PurePosixPath(mount["mountPath"]) / key for key in keys}
        assert mount.get("readOnly", False) == bool(keys), volume
    one = container(name)
    named = [part.partition("=")[2] or part for part in [*one["command"], *one.get("args", ())]]
    for path in map(PurePosixPath, named):
        if path.is_relative_to("/etc/tidegauge") or path.is_relative_to("/topics"):
            assert path in files


def test_no_secret_is_made_that_nobody_mounts() -> None:
    used = {
        volume["secret"]["secretName"]
        for pod in PODS.values()
        for volume in pod["spec"]["volumes"]
        if "secret" in volume
    }
    assert used == secrets().keys()


def test_workers_keep_their_state_on_a_volume_of_their_own() -> None:
    [state] = [
        mount["mountPath"]
        for mount in container("worker")["volumeMounts"]
        if mount["name"] == "state"
    ]
    assert settings_of("worker")["state_dir"] == state
    spec = SETS["worker"]["spec"]
    [service] = [s for s in of_kind("Service") if s["metadata"]["name"] == spec["serviceName"]]
    assert service["spec"]["clusterIP"] == "None"
    assert PODS["worker"]["spec"]["securityContext"]["fsGroup"]


def test_selectors_select_their_pods() -> None:
    for name, each in SETS.items():
        assert selected(each["spec"]["selector"]) == {name}
        for spread in PODS[name]["spec"]["topologySpreadConstraints"]:
            assert selected(spread["labelSelector"]) == {name}
    for budget in of_kind("PodDisruptionBudget"):
        assert selected(budget["spec"]["selector"]) == {budget["metadata"]["name"]}
    assert {budget["metadata"]["name"] for budget in of_kind("PodDisruptionBudget")} == SETS.keys()
    for service in of_kind("Service"):
        name = service["metadata"]["name"]
        assert selected({"matchLabels": service["spec"]["selector"]}) == {name}
        for port in service["spec"]["ports"]:
            assert ports(name)[port["targetPort"]] == port["port"]
    for scaler in of_kind("HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        scaled = SETS[target["name"]]
        assert (scaled["apiVersion"], scaled["kind"]) == (target["apiVersion"], target["kind"])
        assert "replicas" not in scaled["spec"], "it would undo what the autoscaler does"
        assert "cpu" in container(target["name"])["resources"]["requests"]


def test_prometheus_finds_every_pod_by_annotations_and_by_the_operator() -> None:
    for name in SETS:
        noted = PODS[name]["metadata"]["annotations"]
        assert noted["prometheus.io/scrape"] == "true"
        assert int(noted["prometheus.io/port"]) in ports(name).values()
    found: set[str] = set()
    for monitor in read("pod-monitor.yaml"):
        watched = selected(monitor["spec"]["selector"])
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert all(endpoint["port"] in ports(name) for name in watched)
        found |= watched
    assert found == SETS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_probes_ask_where_somebody_answers(name: str) -> None:
    one = container(name)
    assert one["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert one["readinessProbe"]["httpGet"]["path"] == "/readyz"
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        if kind in one:
            assert one[kind]["httpGet"]["port"] in ports(name)


@pytest.mark.parametrize("name", PODS)
def test_pods_may_do_nothing_that_they_need_not(name: str) -> None:
    """As the namespace demands: the restricted standard, and a root folder that stays as it is."""
    pod, one = PODS[name]["spec"], container(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    assert pod["automountServiceAccountToken"] is False
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in one["resources"]["limits"]
    if name in SETS:
        assert pod["terminationGracePeriodSeconds"] >= 30
        assert one["image"] in {image["name"] for image in KUSTOMIZATION["images"]}


# The topics


def of_commands(lines: Iterable[str]) -> dict[str, Manifest]:
    """What commands of kafka-topics.sh create, as Strimzi's operator would get it."""
    found: dict[str, Manifest] = {}
    for line in lines:
        words = shlex.split(line)
        flags = dict(pairwise(words))
        config = dict(value.split("=") for flag, value in pairwise(words) if flag == "--config")
        found[flags["--topic"]] = {
            "partitions": int(flags["--partitions"]),
            "replicas": int(flags["--replication-factor"]),
            "config": config,
        }
    return found


def script_lines(tmp_path: Path, given: Mapping[str, str]) -> list[str]:
    """What the script asks for, where kafka-topics.sh only says what it was asked."""
    script = generated()["topics"]["topics.sh"]
    (tmp_path / "kafka-topics.sh").write_text("printf '%q ' \"$@\"; echo\n")
    here = tmp_path / "topics.sh"
    here.write_text(script.replace("/opt/kafka/bin/", f"bash {tmp_path}/"))
    done = subprocess.run(
        ["/bin/bash", str(here)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **given},
    )
    return done.stdout.splitlines()


def of_script(tmp_path: Path) -> dict[str, Manifest]:
    """What the script creates with the job's variables."""
    return of_commands(script_lines(tmp_path, of_job()))


def of_job() -> dict[str, str]:
    """The variables that the job gives the script."""
    made = generated()
    return {
        each["name"]: each.get("value")
        or made[(source := each["valueFrom"]["configMapKeyRef"])["name"]][source["key"]]
        for each in variables("topics").values()
    }


def test_both_ways_to_create_topics_create_the_same(tmp_path: Path) -> None:
    script = of_script(tmp_path)
    operator = {
        each["metadata"]["name"]: {
            **{name: each["spec"][name] for name in ("partitions", "replicas")},
            "config": {name: str(value) for name, value in each["spec"]["config"].items()},
        }
        for each in read("strimzi-topics.yaml")
    }
    assert script == operator
    topic = generated()["fleet"]["topic"]
    suffixes = ("", ".summaries", ".decisions", ".dead-letters")
    assert script.keys() == {topic + suffix for suffix in suffixes}


def test_the_topics_of_the_docs_are_those_of_the_script(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "fleets.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^\$ (kafka-topics\.sh .*--create.*)$", text, re.MULTILINE)
    assert of_commands(commands) == of_script(tmp_path)


def test_the_script_may_run_again_and_shows_who_it_is(tmp_path: Path) -> None:
    reported = of_job()
    for properties in (None, "/etc/client.properties"):
        if properties is not None:
            reported["CLIENT_CONFIG"] = properties
        for line in script_lines(tmp_path, reported):
            flags = dict(pairwise(shlex.split(line)))
            assert flags["--bootstrap-server"] == reported["BROKERS"]
            assert flags.get("--command-config") == properties
            assert "--if-not-exists" in flags


def test_the_script_creates_nothing_where_something_is_not_set(tmp_path: Path) -> None:
    reported = of_job()
    del reported["PARTITIONS"]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        script_lines(tmp_path, reported)
    assert failed.value.stdout == ""
