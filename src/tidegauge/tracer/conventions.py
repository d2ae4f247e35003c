"""Names on the wire: OpenTelemetry's GenAI conventions and our own attributes.

The conventions are still "Development" and the constants on PyPI lag behind, so the strings stand
here, with the version they were taken from. Own attributes are under ``tidegauge.``; nothing is
added to ``gen_ai.``.
"""

from __future__ import annotations

from typing import Final

CONVENTION_VERSION: Final = "1.38.0"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{CONVENTION_VERSION}"

OPERATION_NAME: Final = "gen_ai.operation.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
USER_ID: Final = "user.id"
SESSION_ID: Final = "session.id"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 -- not that kind of token
ERROR_TYPE: Final = "error.type"
OTHER_ERROR: Final = "_OTHER"

INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"

EVALUATION_EVENT: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"

CHAT_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 -- not that kind of token
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"

RUN_ID: Final = "tidegauge.run.id"
RUN_PARENT: Final = "tidegauge.run.parent"
TAGS: Final = "tidegauge.tags"
TASK: Final = "tidegauge.task"
TASK_GROUP: Final = "tidegauge.task_group"
MEMORY: Final = "tidegauge.memory"
T_MAX: Final = "tidegauge.t_max"
STEPS: Final = "tidegauge.steps"
LOOP_RATIO: Final = "tidegauge.loop.ratio"
LOOP_REPEATS: Final = "tidegauge.loop.repeats"
LOOP_PERIOD: Final = "tidegauge.loop.period"
LOOP_FIRST_STEP: Final = "tidegauge.loop.first_step"
LOST_STEPS: Final = "tidegauge.loop.lost_steps"
LOST_TOKENS: Final = "tidegauge.loop.lost_tokens"
LOST_SECONDS: Final = "tidegauge.loop.lost_seconds"
STALE_SCORE_MAX: Final = "tidegauge.stale_score.max"
NOVELTY: Final = "tidegauge.novelty"
RECURRENCE_MAX: Final = "tidegauge.recurrence.max"
REPETITION: Final = "tidegauge.repetition"
STAGNATION: Final = "tidegauge.stagnation"
LOOP_ENTROPY: Final = "tidegauge.action_entropy.loop"
OTHER_ENTROPY: Final = "tidegauge.action_entropy.other"
PROGRESS_AUV: Final = "tidegauge.progress_auv"
OUTCOME: Final = "tidegauge.outcome"
STOPPED_REASON: Final = "tidegauge.stopped.reason"
TROUBLED: Final = "tidegauge.troubled"
TROUBLES: Final = "tidegauge.troubles"
SAMPLE_RATIO: Final = "tidegauge.sample.ratio"
CHECKPOINT: Final = "tidegauge.checkpoint"
RESUMED_CHECKPOINT: Final = "tidegauge.checkpoint.resumed"
STEP_INDEX: Final = "tidegauge.step.index"
ACTION_DIGEST: Final = "tidegauge.action.digest"
STATE_DIGEST: Final = "tidegauge.state.digest"
INTERVENTION: Final = "tidegauge.intervention.action"
INTERVENTION_REASON: Final = "tidegauge.intervention.reason"

JUDGE: Final = "tidegauge.judge.name"
JUDGE_MODEL: Final = "tidegauge.judge.model"
RUBRIC_VERSION: Final = "tidegauge.judge.rubric_version"

LOOP_ONSET_EVENT: Final = "tidegauge.loop.onset"
INTERVENTION_EVENT: Final = "tidegauge.intervention"

CAPTURE_CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
