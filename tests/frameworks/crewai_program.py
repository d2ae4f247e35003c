"""A crew of one agent of CrewAI, traced by OpenInference."""

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from openinference.instrumentation.crewai import CrewAIInstrumentor
from openinference.instrumentation.openai import OpenAIInstrumentor
from traced import MODEL, MODEL_URL, TASK, provider, search

traces = provider()
CrewAIInstrumentor().instrument(tracer_provider=traces)
OpenAIInstrumentor().instrument(tracer_provider=traces)
llm = LLM(model=f"openai/{MODEL}", base_url=MODEL_URL, api_key="none")
given = {"role": "searcher", "goal": "search", "backstory": "-"}
agent = Agent(**given, llm=llm, tools=[tool("search")(search)], max_iter=20)
task = Task(description=TASK, expected_output="the key", agent=agent)
Crew(agents=[agent], tasks=[task]).kickoff()
traces.shutdown()
