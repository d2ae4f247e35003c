"""A hand-written agent on OpenAI's client, whose contents OpenTelemetry writes as log records."""

import json
import os

from openai import OpenAI
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from traced import MODEL, MODEL_URL, TASK, provider, search

traces, logs = provider(), LoggerProvider()
exporter = OTLPLogExporter(endpoint=os.environ["RECEIVER_URL"] + "/v1/logs")
logs.add_log_record_processor(BatchLogRecordProcessor(exporter, schedule_delay_millis=200))
OpenAIInstrumentor().instrument(tracer_provider=traces, logger_provider=logs)
client = OpenAI(base_url=MODEL_URL, api_key="none")
parameters = {"type": "object", "properties": {"query": {"type": "string"}}}
tools = [{"type": "function", "function": {"name": "search", "parameters": parameters}}]
messages = [{"role": "user", "content": TASK}]
agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "searcher"}
with traces.get_tracer("own").start_as_current_span("invoke_agent searcher", attributes=agent):
    while True:
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=tools)
        said = answer.choices[0].message
        if not said.tool_calls:
            break
        messages.append(said.model_dump(include={"role", "tool_calls"}))
        for call in said.tool_calls:
            result = search(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
logs.shutdown()
traces.shutdown()
