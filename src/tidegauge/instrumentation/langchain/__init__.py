"""LangChain and LangGraph: a callback handler that makes every invocation of an agent a run.

>>> from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
>>> handler = TidegaugeCallbackHandler(agent="researcher", task_group="docs")
>>> config = {"callbacks": [handler]}  # agent.invoke(inputs, config=config)

:func:`instrument` gives one to every invocation in the process.

:class:`TidegaugeMiddleware` carries out what the policy decides, in agents of
``langchain.agents.create_agent``. The handler needs langchain-core only, the middleware langchain.

Needs ``pip install '.[langchain]'``.
"""

from typing import TYPE_CHECKING, Any

from tidegauge.errors import MissingExtraError

try:
    import langchain_core  # noqa: F401 -- looked for, so that its absence says what to install
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain_core", extra="langchain") from error

from tidegauge.instrumentation.langchain.global_handler import instrument, uninstrument
from tidegauge.instrumentation.langchain.graph_hooks import nudge_hook, stop_hook
from tidegauge.instrumentation.langchain.handler import TidegaugeCallbackHandler
from tidegauge.instrumentation.langchain.messages import stopped_by

if TYPE_CHECKING:
    from tidegauge.instrumentation.langchain.middleware import TidegaugeMiddleware

__all__ = [
    "TidegaugeCallbackHandler",
    "TidegaugeMiddleware",
    "instrument",
    "nudge_hook",
    "stop_hook",
    "stopped_by",
    "uninstrument",
]


def __getattr__(name: str) -> Any:
    if name == "TidegaugeMiddleware":
        from tidegauge.instrumentation.langchain.middleware import TidegaugeMiddleware

        return TidegaugeMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
