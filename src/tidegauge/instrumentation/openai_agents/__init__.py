"""The OpenAI Agents SDK: a trace processor that makes every ``Runner.run`` a run, and run hooks.

The processor sees; the hooks act on what the policy decides.

>>> from agents import add_trace_processor
>>> from tidegauge.instrumentation.openai_agents import (
...     TidegaugeRunHooks,
...     TidegaugeTracingProcessor,
... )
>>> processor = TidegaugeTracingProcessor(task_group="docs")
>>> hooks = TidegaugeRunHooks(processor)
>>> # add_trace_processor(processor), once; Runner.run(agent, task, hooks=hooks)

Needs ``pip install '.[openai-agents]'``.
"""

from tidegauge.errors import MissingExtraError

try:
    import agents  # noqa: F401 -- looked for, so that its absence says what to install
except ModuleNotFoundError as error:
    raise MissingExtraError("agents", extra="openai-agents") from error

from tidegauge.instrumentation.openai_agents.agent_run import AgentRunStopped
from tidegauge.instrumentation.openai_agents.hooks import TidegaugeRunHooks
from tidegauge.instrumentation.openai_agents.tracing_processor import TidegaugeTracingProcessor

__all__ = ["AgentRunStopped", "TidegaugeRunHooks", "TidegaugeTracingProcessor"]
