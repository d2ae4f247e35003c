"""Agents behind FastAPI, traced by OpenTelemetry's instrumentations of FastAPI and of HTTP clients.

Requests of every kind at once: each span is in the trace of its request, the client span of a tool
under the tool, that of a model call under the call, that of a node under the agent.
"""

from __future__ import annotations

import asyncio
import collections
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
from opentelemetry.instrumentation.httpx import HTTPX2ClientInstrumentor, HTTPXClientInstrumentor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from support.langchain_agents import nothing_is_left
from support.scripted_model import answers, chooses
from support.scripted_openai import OpenAIServer, serving
from tidegauge import testing
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

KINDS = ["invoke", "ainvoke", "stream", "astream", "events", "batch", "broken", "cancelled"]
REQUESTS = 64


def fetches(messages: Sequence[BaseMessage], tools: Sequence[str]) -> AIMessage:
    """Chooses two pages; answers when they are there."""
    if isinstance(messages[-1], ToolMessage):
        return answers("there is none at all")
    name = messages[0].content
    return chooses(*[(tool, {"page": f"{name}-{n}"}) for n, tool in enumerate(tools)])


def agent_for(server: OpenAIServer) -> Any:
    """A graph whose nodes, tools and model make HTTP requests."""
    pages = server.url.removesuffix("/v1")
    client, later = httpx.Client(base_url=pages), httpx.AsyncClient(base_url=pages)

    @tool
    def fetch(page: str) -> str:
        """Fetch a page."""
        return client.get(f"/tool/{page}").text

    @tool
    async def fetch_later(page: str) -> str:
        """Fetch a page."""
        return (await later.get(f"/tool/{page}")).text

    def think(model: Any) -> Any:
        def sync(state: MessagesState) -> Any:
            name = state["messages"][0].content
            client.get(f"/node/{name}")
            message = model.invoke(state["messages"])
            client.get(f"/node/{name}")
            return {"messages": [message]}

        async def asynchronous(state: MessagesState) -> Any:
            name = state["messages"][0].content
            await later.get(f"/node/{name}")
            message = await model.ainvoke(state["messages"])
            await later.get(f"/node/{name}")
            return {"messages": [message]}

        return RunnableLambda(sync, asynchronous)

    def compiled(*tools: Any) -> Any:
        names = [tools[0].name, tools[-1].name]
        model = server.model(f"scripted-{len(tools)}", lambda messages: fetches(messages, names))
        graph = StateGraph(MessagesState)
        graph.add_node("think", think(model.bind_tools(tools)))
        graph.add_node("tools", ToolNode(tools))
        graph.add_edge(START, "think")
        graph.add_conditional_edges("think", tools_condition)
        graph.add_edge("tools", "think")
        return graph.compile(name="fetcher")

    return compiled(fetch), compiled(fetch, fetch_later), client, later


def application(server: OpenAIServer, handler: TidegaugeCallbackHandler) -> FastAPI:
    """An endpoint for each way to call an agent; each makes a request itself in the end."""
    app = FastAPI()
    agent, agent_later, client, later = agent_for(server)
    config: Any = {"callbacks": [handler]}

    def task(name: str) -> Any:
        return {"messages": [("user", name)]}

    @app.get("/invoke/{name}")
    def invoke(name: str) -> str:
        agent.invoke(task(name), config)
        return client.get(f"/after/{name}").text

    @app.get("/batch/{name}")
    def batch(name: str) -> str:
        agent.batch([task(name)], config)
        return client.get(f"/after/{name}").text

    @app.get("/ainvoke/{name}")
    async def ainvoke(name: str) -> str:
        await agent_later.ainvoke(task(name), config)
        return (await later.get(f"/after/{name}")).text

    @app.get("/stream/{name}")
    def stream(name: str) -> StreamingResponse:
        def body() -> Iterator[str]:
            for _ in agent.stream(task(name), config, stream_mode=["messages", "updates"]):
                yield "."
            yield client.get(f"/after/{name}").text

        return StreamingResponse(body())

    @app.get("/astream/{name}")
    async def astream(name: str) -> StreamingResponse:
        async def body() -> AsyncIterator[str]:
            modes = ["messages", "updates"]
            async for _ in agent_later.astream(task(name), config, stream_mode=modes):
                yield "."
            yield (await later.get(f"/after/{name}")).text

        return StreamingResponse(body())

    @app.get("/events/{name}")
    async def events(name: str) -> str:
        async for _ in agent_later.astream_events(task(name), config, version="v2"):
            pass
        return (await later.get(f"/after/{name}")).text

    @app.get("/broken/{name}")
    async def broken(name: str) -> str:
        chunks = agent_later.astream(task(name), config, stream_mode="updates")
        async with aclosing(chunks) as opened:
            async for _ in opened:
                break
        return (await later.get(f"/after/{name}")).text

    @app.get("/cancelled/{name}")
    async def cancelled(name: str) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.1 * (int(name[1:]) // len(KINDS))):
                await agent_later.ainvoke(task(name), config)
        return (await later.get(f"/after/{name}")).text

    return app


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of an application, while it is served."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < deadline, "the application did not start"
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def test_every_span_is_under_its_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    handler = TidegaugeCallbackHandler()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with (
        testing.capture(stop_on_loop=None, tracer_provider=provider) as seen,
        serving() as server,
    ):
        clients = (HTTPXClientInstrumentor(), HTTPX2ClientInstrumentor())  # the second is OpenAI's
        for client in clients:
            client.instrument(tracer_provider=provider)
        try:
            app = application(server, handler)
            FastAPIInstrumentor.instrument_app(
                app, tracer_provider=provider, exclude_spans=["receive", "send"]
            )
            with served(app) as url:
                asyncio.run(ask(url))
        finally:
            for client in clients:
                client.uninstrument()
        assert nothing_is_left(handler, seen)
    assert "Failed to detach context" not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
    check(exporter.get_finished_spans())


async def ask(url: str) -> None:
    """Send all requests at once, each with its name in the path."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        HTTPXClientInstrumentor.uninstrument_client(client)
        paths = [f"/{KINDS[n % len(KINDS)]}/r{n}" for n in range(REQUESTS)]
        responses = await asyncio.gather(*map(client.get, paths))
    for n, response in enumerate(responses):
        assert response.status_code == 200
        assert response.text.strip('."') == f"/after/r{n}"


def check(spans: Sequence[ReadableSpan]) -> None:
    """Each span has the parent that it must have, by the names that all of them carry."""
    known = {span.context.span_id: span for span in spans if span.context}
    parents = {id(span): known[span.parent.span_id] for span in spans if span.parent}
    servers = {span.context.trace_id: span for span in spans if span.kind is SpanKind.SERVER}
    assert len(servers) == REQUESTS
    counts: dict[str, collections.Counter[str]] = {kind: collections.Counter() for kind in KINDS}
    for span in spans:
        assert span.context is not None
        server = servers[span.context.trace_id]
        _, kind, name = str(server.attributes["http.target"]).split("/")
        if span is server:
            assert span.parent is None
            continue
        parent, attributes = parents[id(span)], span.attributes or {}
        _, _, path = str(attributes.get("http.url", "")).partition("//")
        _, _, path = path.partition("/")
        if path.startswith("tool/"):
            assert parent.name.startswith("execute_tool fetch")
            page = path.removeprefix("tool/")
            assert parent.attributes["gen_ai.tool.call.arguments"] == f'{{"page":"{page}"}}'
        elif path.startswith("node/"):
            assert parent.name == "invoke_agent fetcher", (kind, name, span.name, path)
        elif path.startswith("v1/"):
            assert parent.name.startswith("chat scripted")
        elif path.startswith("after/") or span.name.startswith("invoke_agent"):
            assert parent is server
        else:
            assert span.name.startswith(("execute_tool fetch", "chat scripted"))
            assert parent.name == "invoke_agent fetcher"
        if path and not path.startswith("v1/"):
            assert path.split("/")[1].split("-")[0] == name
        counts[kind][path.split("/")[0] or span.name.split()[0]] += 1
    each = REQUESTS // len(KINDS)
    whole = {"invoke_agent": 1, "node": 4, "chat": 2, "v1": 2, "execute_tool": 2, "tool": 2}
    for kind in set(KINDS) - {"broken", "cancelled"}:
        expected = {name: each * count for name, count in {**whole, "after": 1}.items()}
        assert counts[kind] == expected, kind
    for kind in ("broken", "cancelled"):
        assert counts[kind]["invoke_agent"] == counts[kind]["after"] == each
