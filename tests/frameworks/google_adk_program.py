"""An agent of Google's ADK, which traces itself; its model speaks OpenAI's protocol."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from traced import MODEL, MODEL_URL, TASK, provider, search

traces = provider()


async def main() -> None:
    """Run the agent once."""
    model = LiteLlm(model=f"openai/{MODEL}", api_base=MODEL_URL, api_key="none")
    agent = LlmAgent(name="searcher", model=model, instruction="search", tools=[search])
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    message = types.Content(role="user", parts=[types.Part(text=TASK)])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        pass


asyncio.run(main())
traces.shutdown()
