"""What the answers of the model took, for sessions whose hooks report the calls but no tokens.

An agent writes an answer to the file of its session before it runs the calls of the answer, so the
tokens are known when the hook reports the first of these calls. If its hooks give no ids of calls,
the answer is the last one, as long as its calls have no results.
"""

from __future__ import annotations

import os
import stat
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidegauge.coding_agents.claude_sessions import ClaudeTranscript
from tidegauge.coding_agents.codex_sessions import CodexTranscript
from tidegauge.coding_agents.copilot_sessions import CopilotTranscript
from tidegauge.coding_agents.gemini_sessions import GeminiTranscript
from tidegauge.coding_agents.qwen_sessions import QwenTranscript
from tidegauge.coding_agents.session_tail import LinesTail
from tidegauge.coding_agents.session_transcript import SessionTranscript
from tidegauge.safety.guard import internal_errors

_KINDS: Final[Mapping[str, type[SessionTranscript]]] = {
    "claude": ClaudeTranscript,
    "codex": CodexTranscript,
    "gemini": GeminiTranscript,
    "qwen": QwenTranscript,
    "copilot": CopilotTranscript,
}
"""The agents whose files have an answer before its calls are run."""

_MAX_BYTES: Final = 1024 * 1024
_MAX_CALLS: Final = 1_000


class AnswerTokens:
    """The tokens of the answers in the file of a session, each given once.

    It reads at most the last 1 MiB of a file at once.

    Args:
        agent: whose session it is.
        path: the file.
    """

    def __init__(self, agent: str, path: str) -> None:
        kind = _KINDS.get(agent)
        self._tail = None
        if kind is not None:
            self._tail = LinesTail(Path(path), kind, at_most=_MAX_BYTES)
        self._given: OrderedDict[str, None] = OrderedDict()  # calls of the answers that were given

    def take(self, call_id: str | None) -> int | None:
        """The tokens of the last answer, if it has chosen this call.

        Args:
            call_id: id of the call; ``None``, the agent gives none.

        Returns:
            The tokens; ``None``, they are not known, or were given for another call of the answer.
        """
        tail = self._tail
        if tail is None or call_id in self._given:
            return None
        try:
            if not stat.S_ISREG(os.stat(tail.path).st_mode):
                return None
            tail.look()
        except OSError:
            return None
        except Exception as error:  # noqa: BLE001 -- the call counts, whatever its file holds
            internal_errors.record("transcripts.tokens", error)
            self._tail = None
            return None
        answer = tail.open_answer() if call_id is None else tail.answer_with(call_id)
        if answer is None or answer.tokens is None:
            return None
        given = self._given
        again = any(one in given for one in answer.call_ids)
        given.update(dict.fromkeys(answer.call_ids))
        while len(given) > _MAX_CALLS:
            given.popitem(last=False)
        return None if again else answer.tokens
