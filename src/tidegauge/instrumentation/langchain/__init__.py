"""LangChain and LangGraph: a callback handler that makes every invocation of an agent a run.

>>> from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler
>>> handler = TidegaugeCallbackHandler(agent="researcher", task_group="docs")
>>> config = {"callbacks": [handler]}  # agent.invoke(inputs, config=config)

Needs ``pip install 'tidegauge[langchain]'``.
"""

from tidegauge.errors import MissingExtraError

try:
    import langchain_core  # noqa: F401 -- looked for, so that its absence says what to install
except ModuleNotFoundError as error:
    raise MissingExtraError("langchain_core", extra="langchain") from error

from tidegauge.instrumentation.langchain.handler import TidegaugeCallbackHandler

__all__ = ["TidegaugeCallbackHandler"]
