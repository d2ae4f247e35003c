"""What a test needs of the machine. Without it the test is skipped; in CI it fails."""

from __future__ import annotations

import os
from typing import Final, NoReturn

import pytest

__all__ = ["IN_CI", "missing", "needs", "needs_fork"]

IN_CI: Final = bool(os.environ.get("CI"))


def missing(reason: str) -> NoReturn:
    """Skip the test that is running; in CI, where everything must be there, fail it.

    Args:
        reason: what is missing, and how to get it.
    """
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


def needs(available: bool, reason: str) -> pytest.MarkDecorator:
    """Mark a test that needs something; in CI the test runs without it, and fails.

    Args:
        available: whether it is there.
        reason: what is missing, where it is not.
    """
    return pytest.mark.skipif(not available and not IN_CI, reason=reason)


needs_fork: Final = needs(hasattr(os, "fork"), "this platform has no os.fork")
