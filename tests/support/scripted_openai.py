"""An HTTP server that answers as OpenAI's chat completions do, and serves pages to tools."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["serve_openai"]


class _Handler(BaseHTTPRequestHandler):
    """Asked without tool results, the model chooses ``fetch`` twice; then it answers.

    The request's name is the text of the user's message.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(0.002)
        self._send("text/plain", [self.path.encode()])

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        time.sleep(0.002)
        message = _message(asked["messages"], [tool["function"]["name"] for tool in asked["tools"]])
        if not asked.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            body = json.dumps({**_COMPLETION, "choices": [choice]}).encode()
            self._send("application/json", [body])
            return
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": f"{word} "} for word in (message["content"] or "").split()]
        for number, call in enumerate(message.get("tool_calls", ())):
            deltas.append({"tool_calls": [{"index": number, **call}]})
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        lines = [json.dumps({**_COMPLETION, **chunk}) for chunk in chunks]
        events = [f"data: {line}\n\n".encode() for line in [*lines, "[DONE]"]]
        self._send("text/event-stream", events)

    def _send(self, kind: str, parts: list[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(sum(map(len, parts))))
        self.end_headers()
        for part in parts:
            self.wfile.write(part)
            self.wfile.flush()

    def log_message(self, *args: Any) -> None:
        """Nothing is printed."""


_COMPLETION = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted-1"}


def _message(messages: list[dict[str, Any]], tools: list[str]) -> dict[str, Any]:
    if any(message["role"] == "tool" for message in messages):
        return {"role": "assistant", "content": "there is none at all"}
    name = next(message["content"] for message in messages if message["role"] == "user")
    calls = [
        {
            "id": f"{name}-{number}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps({"page": f"{name}-{number}"})},
        }
        for number, tool in enumerate((tools[0], tools[-1]))
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is expected."""


@contextmanager
def serve_openai() -> Iterator[str]:
    """The address of the server, while it runs."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
