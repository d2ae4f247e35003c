"""Small worlds with scripted agents, for the demo and as ground truth in tests.

:class:`DocumentWorld`, an archive to look facts up in, with scripts that a chat model can play.
:class:`GridWorld`, cells with the tasks of a :class:`TaskGraph`, for exploring and exploiting.
:func:`document_task` and :func:`code_task`, long chains of pages to read (LORE).

:class:`MeasuredAttempt` and :class:`Recording` take the steps of an attempt outside of a run;
:func:`survey` compares all scripted agents.
"""

from tidegauge.worlds.document_world import (
    SCRIPTS,
    Desk,
    Document,
    DocumentWorld,
    LookupTask,
    Script,
    ScriptMaker,
    Section,
    ToolFailed,
    looper,
    play,
    retrier,
    solver,
    wanderer,
)
from tidegauge.worlds.grid import GRID_AGENTS, GridAgent, GridWorld, Walk
from tidegauge.worlds.lore import LORE_AGENTS, LoreAgent, LoreAttempt, LorePage, LoreTask
from tidegauge.worlds.lore_tasks import code_task, document_task
from tidegauge.worlds.survey import MeasuredAttempt, SurveyRow, survey
from tidegauge.worlds.task_graph import Recording, Start, StepResult, Steps, TaskGraph

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
    "LoreAttempt",
    "LorePage",
    "LoreTask",
    "MeasuredAttempt",
    "Recording",
    "Script",
    "ScriptMaker",
    "Section",
    "Start",
    "StepResult",
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
