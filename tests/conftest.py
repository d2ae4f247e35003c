"""Fixtures of all tests: our own faults fail the test, and nothing stays configured."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from opentelemetry import context as otel_context
from opentelemetry.context import Context

from support.requirements import IN_CI, missing
from tidegauge import testing
from tidegauge._span_counts import sampling_counts, span_faults
from tidegauge.runs.open_run import current_run
from tidegauge.safety.guard import internal_errors

# Seconds are not asserted; CI looks longer, and for the same examples every time.
hypothesis.settings.register_profile("dev", max_examples=20, deadline=None)
hypothesis.settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if IN_CI else "dev")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores Control-C, and so would all processes that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True)
def _faults_are_failures() -> Iterator[None]:
    _forget_faults()
    with testing.raise_internal_errors():
        yield
    _forget_faults()  # the fixtures of the next module are set up before its first test
    assert current_run.get() is None, "a test left a run as the current one"


def _forget_faults() -> None:
    internal_errors.clear()
    span_faults.clear()
    sampling_counts.clear()


@pytest.fixture(autouse=True)
def _no_span_is_current() -> None:
    """Some instrumentations leave their last span current: no later test is to be inside of it."""
    otel_context.attach(Context())


@pytest.fixture
def faults_are_swallowed() -> Iterator[None]:
    """As in production: our own faults are counted, not raised."""
    with testing.raise_internal_errors(False):
        yield


@pytest.fixture(scope="session")
def recorded_runs() -> Path:
    """The folder of recorded agent runs."""
    if not SHARED.is_dir():
        missing(f"no recorded runs at {SHARED}; set TIDEGAUGE_DATA to a folder that has them")
    return SHARED
