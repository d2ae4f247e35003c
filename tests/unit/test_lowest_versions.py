"""`make test-lowest` runs with the lower bounds of pyproject.toml, not with what is newer."""

from __future__ import annotations

import os
from importlib.metadata import metadata, requires, version

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

LOWEST = "TIDEGAUGE_LOWEST"
ELSEWHERE = {"dev", "docs", "test"}
"""Extras of which `make test-lowest` installs nothing."""


@pytest.mark.skipif(LOWEST not in os.environ, reason="for make test-lowest, which sets " + LOWEST)
def test_each_lower_bound_is_the_version_that_is_installed() -> None:
    extras = ["", *sorted(set(metadata("tidegauge").get_all("Provides-Extra", ())) - ELSEWHERE)]
    bounds = {
        requirement.name: Version(specifier.version)
        for requirement in map(Requirement, requires("tidegauge") or ())
        if requirement.name != "tidegauge"
        and (
            not requirement.marker
            or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)
        )
        for specifier in requirement.specifier
    }
    assert {name: Version(version(name)) for name in bounds} == bounds
