"""What a question for decisions may hold: kept by who asks, held to by who answers."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_IDS", "MAX_ID_BYTES", "MAX_WAIT_SECONDS"]

MAX_IDS: Final = 64
"""Of one request."""
MAX_ID_BYTES: Final = 512
"""Of the id of a run or trace, in UTF-8."""
MAX_WAIT_SECONDS: Final = 30.0
"""That a request waits for news."""
