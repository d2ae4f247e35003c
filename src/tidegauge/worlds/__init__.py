"""Small worlds with scripted agents: for the demo, and for truth in tests."""

from tidegauge.worlds.document_agents import (
    SCRIPTS,
    Script,
    ScriptMaker,
    looper,
    play,
    retrier,
    solver,
    wanderer,
)
from tidegauge.worlds.documents import (
    Desk,
    Document,
    DocumentWorld,
    LookupTask,
    Section,
    ToolFailed,
)

__all__ = [
    "SCRIPTS",
    "Desk",
    "Document",
    "DocumentWorld",
    "LookupTask",
    "Script",
    "ScriptMaker",
    "Section",
    "ToolFailed",
    "looper",
    "play",
    "retrier",
    "solver",
    "wanderer",
]
