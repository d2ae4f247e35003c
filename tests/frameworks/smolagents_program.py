"""An agent of smolagents, traced by OpenInference."""

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from smolagents import OpenAIServerModel, ToolCallingAgent, tool
from traced import MODEL, MODEL_URL, TASK, provider, search

traces = provider()
SmolagentsInstrumentor().instrument(tracer_provider=traces)
model = OpenAIServerModel(MODEL, api_base=MODEL_URL, api_key="none")
agent = ToolCallingAgent(tools=[tool(search)], model=model, name="searcher", max_steps=20)
agent.run(TASK)
traces.shutdown()
