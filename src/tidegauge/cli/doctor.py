"""``tidegauge doctor``: what is installed and set here, and whether it works, on one screen."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import click

import tidegauge
from tidegauge.cli.terminal import print_line
from tidegauge.errors import TidegaugeError
from tidegauge.policies import read_policy
from tidegauge.tracer.provider import unreadable_variables

_PROGRAMS: Final = {
    "prometheus": "'tidegauge demo' shows alerts",
    "prometheus-alertmanager": "'tidegauge demo' shows alerts",
    "chromium": "tests of the pages",
}
_FOR_DEVELOPERS: Final = ("dashboards", "dev", "docs", "every", "test", "test-lowest")
_VARIABLES: Final = re.compile("OTEL_|TIDEGAUGE_")
_SECRET: Final = re.compile("HEADERS|KEY|PASSWORD|TOKEN")
_SECONDS: Final = 3.0
_GRPC_PORT: Final = 4317
_LAST_PORT: Final = 65_535


class Check(NamedTuple):
    """What was tried: whether it works, and a line about it that says what to do if it doesn't."""

    works: bool
    line: str


@click.command()
def doctor() -> None:
    """Show what is installed and set on this machine, and check that it works.

    Paste the output into a report of a bug: values of variables that may be secret are left out.
    The exit code is 1 if a check fails.

    \b
    Checks:
      the port of /metrics and of the live page is free
      the policy in TIDEGAUGE_POLICY can be read
      the collector at OTEL_EXPORTER_OTLP_ENDPOINT answers
    """
    for line in _about():
        print_line(line)
    for heading, lines in (
        ("packages", _packages()),
        ("extras", _extras()),
        ("programs", _programs()),
        ("variables", _variables()),
    ):
        print_line(heading)
        for line in lines:
            print_line(f"  {line}")
    print_line("checks")
    found = list(checks())
    for check in found:
        print_line(f"  {'ok  ' if check.works else 'FAIL'}  {check.line}")
    if not all(check.works for check in found):
        raise click.exceptions.Exit(1)


def checks() -> Iterator[Check]:
    """Everything that can be tried."""
    yield _port()
    for name, value in unreadable_variables().items():
        if value:
            yield Check(False, f"{name}={value!r} is not a number above 0: the default is used")
    path = os.environ.get("TIDEGAUGE_POLICY")
    if path:
        yield _policy(path)
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if endpoint:
        yield _collector(endpoint)


def _about() -> Iterator[str]:
    yield f"tidegauge {tidegauge.__version__} in {Path(tidegauge.__file__).parent}"
    yield (
        f"Python {platform.python_version()} ({sys.executable}) on {platform.platform()}, "
        f"{os.cpu_count()} processors"
    )


def _packages() -> Iterator[str]:
    for requirement, extra in _requirements():
        if extra is None:
            yield f"{requirement} {_version(requirement) or 'is missing: pip install . in a clone'}"


def _extras() -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for requirement, extra in _requirements():
        if extra is not None and extra not in _FOR_DEVELOPERS:
            found.setdefault(extra, []).append(requirement)
    for extra, names in sorted(found.items()):
        versions = {name: _version(name) for name in names if name != "tidegauge"}
        missing = [name for name, version in versions.items() if version is None]
        if missing:
            yield f"{extra}: no {', '.join(missing)}; pip install '.[{extra}]' in a clone"
        else:
            yield f"{extra}: {', '.join(f'{name} {it}' for name, it in versions.items())}"


def _requirements() -> Iterator[tuple[str, str | None]]:
    """Names of required packages, and the extra that requires each."""
    for line in importlib.metadata.requires("tidegauge") or ():
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name is not None:
            yield name[0], None if extra is None else extra[1]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _programs() -> Iterator[str]:
    for name, use in _PROGRAMS.items():
        yield f"{name}: {shutil.which(name) or f'not found; with it, {use}'}"


def _variables() -> Iterator[str]:
    for name, value in sorted(os.environ.items()):
        if _VARIABLES.match(name):
            yield f"{name} is set" if _SECRET.search(name) else f"{name}={_without_user(value)}"


def _without_user(text: str) -> str:
    """A URL without user and password.

    >>> _without_user("http://me:secret@collector:4318")
    'http://collector:4318'
    """
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _port() -> Check:
    host = os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "127.0.0.1"
    text = os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT") or "9464"
    what = f"{host}:{text}, of /metrics and of the live page,"
    try:
        port = int(text)
        if not 0 <= port <= _LAST_PORT:
            raise ValueError
        with socket.create_server((host, port)):
            return Check(True, f"{what} is free")
    except ValueError:
        why = f"use a port from 1 to {_LAST_PORT}"
    except OSError as error:
        why = (error.errno and os.strerror(error.errno)) or str(error)
    advice = "set OTEL_EXPORTER_PROMETHEUS_PORT to another, or to 0 for any free one"
    return Check(False, f"{what} cannot be used: {why}; {advice}")


def _policy(path: str) -> Check:
    try:
        read_policy(path)
    except (TidegaugeError, OSError) as error:
        return Check(False, f"TIDEGAUGE_POLICY stops nothing: {error}")
    return Check(True, f"TIDEGAUGE_POLICY: {path} is a policy")


def _collector(endpoint: str) -> Check:
    shown = _without_user(endpoint)
    try:
        if os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc":
            parts = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}")
            address = (parts.hostname or "", parts.port or _GRPC_PORT)
            with socket.create_connection(address, _SECONDS):
                return Check(True, f"the collector at {shown} accepts connections")
        return _post(endpoint, shown)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return Check(False, f"the collector at {shown} does not answer: {why}; is it running?")


def _post(endpoint: str, shown: str) -> Check:
    """Send no spans; a collector answers 200."""
    import requests  # the exporter sends with it, too

    if urlsplit(endpoint).scheme not in ("http", "https"):
        return Check(False, f"{shown} is no address of a collector; use http://HOST:4318")
    headers = {"Content-Type": "application/x-protobuf"}
    for item in os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(","):
        name, equals, value = item.partition("=")
        if equals:
            headers[name.strip()] = unquote(value.strip())
    url = f"{endpoint.rstrip('/')}/v1/traces"
    try:
        answer = requests.post(url, data=b"", headers=headers, timeout=_SECONDS)
    except requests.RequestException as error:
        raise OSError(type(error).__name__) from None
    if not answer.ok:
        return Check(
            False, f"the collector at {shown} answers {answer.status_code} {answer.reason}"
        )
    return Check(True, f"the collector at {shown} takes spans")
