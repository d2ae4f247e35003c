"""An agent of pydantic-ai, which traces itself."""

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from traced import MODEL, MODEL_URL, TASK, provider, search

traces = provider()
Agent.instrument_all()
model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=MODEL_URL, api_key="none"))
Agent(model, name="searcher", tools=[search]).run_sync(TASK)
traces.shutdown()
