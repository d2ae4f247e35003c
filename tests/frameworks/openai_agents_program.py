"""An agent of the OpenAI Agents SDK, traced by OpenInference."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from traced import MODEL, MODEL_URL, TASK, provider, search

traces = provider()
OpenAIAgentsInstrumentor().instrument(tracer_provider=traces)
client = AsyncOpenAI(base_url=MODEL_URL, api_key="none")
model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
agent = Agent(name="searcher", model=model, tools=[function_tool(search)])
Runner.run_sync(agent, TASK, max_turns=20)
traces.shutdown()
