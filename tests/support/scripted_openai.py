"""A server with OpenAI's chat completions that follows scripts: real clients, over real HTTP.

The scripts are those of :mod:`support.scripted_model`: a function from the messages to the answer.

>>> from support.scripted_model import answers
>>> with serving() as server:
...     server.model("one", lambda messages: answers("four")).invoke("2 + 2").content
'four'
"""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from langchain_core.messages import AIMessage, convert_to_messages
from langchain_openai import ChatOpenAI

from support.scripted_model import Script

__all__ = ["OpenAIServer", "serving"]

_ENDLESS = 5_000
"""Words of an answer without end: more than sockets hold, as they are padded; and a test that fails
ends."""
_PADDING = 5_000


class OpenAIServer:
    """Models that answer by scripts, each under its name.

    Attributes:
        url: for ``base_url`` of clients.
        requests: bodies of all requests, in their order.
        cut: the names of the models whose streams a client closed before their end.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[dict[str, Any]] = []
        self.cut: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._scripts: dict[str, Script] = {}

    def model(self, name: str, script: Script, **options: Any) -> ChatOpenAI:
        """A client of the model with this name, which answers by this script from now on.

        Args:
            name: of the model.
            script: from the messages of a request to the answer.
            **options: of ``ChatOpenAI``.
        """
        self._scripts[name] = script
        given: dict[str, Any] = {"stream_usage": True, "max_retries": 0, **options}
        return ChatOpenAI(model=name, base_url=self.url, api_key="none", **given)  # type: ignore[arg-type]

    def answer(self, body: dict[str, Any]) -> AIMessage:
        """The answer to a request."""
        self.requests.append(body)
        messages = [{"content": None, **message} for message in body["messages"]]
        return self._scripts[body["model"]](convert_to_messages(messages))


@contextlib.contextmanager
def serving() -> Iterator[OpenAIServer]:
    """A server, until the end of the block."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    http.daemon_threads = True
    server = OpenAIServer(f"http://127.0.0.1:{http.server_port}/v1")
    http.scripted = server  # type: ignore[attr-defined]
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        server: OpenAIServer = self.server.scripted  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            self._respond(404, "application/json", b"{}")
        elif body.get("stream"):
            self._stream(server, server.answer(body), body)
        else:
            text = json.dumps(_completion(server.answer(body), body))
            self._respond(200, "application/json", text.encode())

    def _stream(self, server: OpenAIServer, answer: AIMessage, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in itertools.chain(_chunks(answer, body), ["[DONE]"]):
                padding = " " * _PADDING if answer.additional_kwargs.get("endless") else ""
                data = f"data: {event}{padding}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client has closed the connection
            server.cut.put(body["model"])
            self.close_connection = True

    def do_GET(self) -> None:
        """A page for tools: its own path."""
        self._respond(200, "text/plain", self.path.encode())

    def _respond(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


def _completion(message: AIMessage, body: dict[str, Any]) -> dict[str, Any]:
    calls = [_call(call) for call in message.tool_calls]
    said = {"role": "assistant", "content": message.content or None}
    choice = {
        "index": 0,
        "message": {**said, **({"tool_calls": calls} if calls else {})},
        "finish_reason": _finish_reason(message),
    }
    head = _head("chat.completion", body)
    return {**head, "choices": [choice], "usage": _usage(message)}


def _chunks(message: AIMessage, body: dict[str, Any]) -> Iterator[str]:
    words = [{"content": f"{word} "} for word in str(message.content).split()]
    deltas: Iterable[dict[str, Any]] = [{"role": "assistant", "content": ""}, *words]
    if message.additional_kwargs.get("endless"):
        deltas = itertools.chain(deltas, itertools.islice(itertools.cycle(words), _ENDLESS))
    for index, call in enumerate(message.tool_calls):
        whole = _call(call)
        arguments = whole["function"]["arguments"]
        half = len(arguments) // 2
        first = {**whole, "function": {**whole["function"], "arguments": arguments[:half]}}
        rest = {"function": {"arguments": arguments[half:]}}
        pieces = [{"tool_calls": [{"index": index, **piece}]} for piece in (first, rest)]
        deltas = [*deltas, *pieces]
    head = _head("chat.completion.chunk", body)
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield json.dumps({**head, "choices": [choice]})
    last = {"index": 0, "delta": {}, "finish_reason": _finish_reason(message)}
    yield json.dumps({**head, "choices": [last]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield json.dumps({**head, "choices": [], "usage": _usage(message)})


def _head(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body["model"]}


def _call(call: Any) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["args"])}
    return {"id": call["id"], "type": "function", "function": function}


def _finish_reason(message: AIMessage) -> str:
    return "tool_calls" if message.tool_calls else "stop"


def _usage(message: AIMessage) -> dict[str, int]:
    usage = message.usage_metadata
    assert usage is not None
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }
