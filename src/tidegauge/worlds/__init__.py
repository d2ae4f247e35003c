"""Small worlds with scripted agents: for the demo, and for truth in tests.

:class:`DocumentWorld`, an archive to look facts up in, with scripts that a chat model can play.
:class:`GridWorld`, cells with the tasks of a :class:`TaskGraph`, for exploring and exploiting.
:func:`document_task` and :func:`code_task`, long chains of pages to read (LORE).

:class:`Measured` and :class:`Recording` take an attempt's steps where no run is open;
:func:`survey` puts every scripted agent beside the others.
"""

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
from tidegauge.worlds.grid import GridWorld, Walk
from tidegauge.worlds.grid_agents import GRID_AGENTS, GridAgent
from tidegauge.worlds.lore import document_task
from tidegauge.worlds.lore_agents import LORE_AGENTS, LoreAgent
from tidegauge.worlds.lore_code import code_task
from tidegauge.worlds.lore_task import LoreTask, Page, Reading
from tidegauge.worlds.measured import Measured
from tidegauge.worlds.recording import Recording
from tidegauge.worlds.steps import Start, Steps
from tidegauge.worlds.survey import SurveyRow, survey
from tidegauge.worlds.task_graph import TaskGraph

__all__ = [
    "GRID_AGENTS",
    "LORE_AGENTS",
    "SCRIPTS",
    "Desk",
    "Document",
    "DocumentWorld",
    "GridAgent",
    "GridWorld",
    "LookupTask",
    "LoreAgent",
    "LoreTask",
    "Measured",
    "Page",
    "Reading",
    "Recording",
    "Script",
    "ScriptMaker",
    "Section",
    "Start",
    "Steps",
    "SurveyRow",
    "TaskGraph",
    "ToolFailed",
    "Walk",
    "code_task",
    "document_task",
    "looper",
    "play",
    "retrier",
    "solver",
    "survey",
    "wanderer",
]
