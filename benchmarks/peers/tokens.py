"""Tokens of one answer: read alone, and streamed through LangChain to a handler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda

import tidegauge
from benchmarks.chanting import tokens_in
from benchmarks.chanting_texts import BEGINNING, ORDINARY
from benchmarks.peers.subject import Prepare, Subject
from benchmarks.scripted_agent import Discard
from tidegauge.chanting import Chanting
from tidegauge.instrumentation.langchain import TidegaugeCallbackHandler

__all__ = ["CODE", "PROSE", "READ", "STREAMED", "STREAMED_IDLE", "STREAMED_TO_US"]

_PROSE = tokens_in(BEGINNING)
_TABLES = tokens_in("".join(text for text in ORDINARY.values() if text.isascii()))


class _Streaming(BaseChatModel):
    tokens: list[str]

    @property
    def _llm_type(self) -> str:
        return "streaming"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("".join(self.tokens)))])

    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for token in self.tokens:
            yield ChatGenerationChunk(message=AIMessageChunk(content=token))


class _Idle(BaseCallbackHandler):
    run_inline = True

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        pass


@contextmanager
def _nothing(exporter: Discard) -> Iterator[Prepare]:
    yield lambda tokens: lambda: None


def _read(name: str, tokens: list[str]) -> Subject:
    def prepare(count: int) -> Any:
        taken = list(islice(cycle(tokens), count))

        def run() -> None:
            chanting = Chanting()
            for token in taken:
                chanting.add(token)

        return run

    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        yield prepare

    return Subject(name, setup)


def _streamed(name: str, handler: type[BaseCallbackHandler] | None) -> Subject:
    @contextmanager
    def setup(exporter: Discard) -> Iterator[Prepare]:
        pipeline = tidegauge.configure(serve_metrics=False)

        def prepare(count: int) -> Any:
            model = _Streaming(tokens=list(islice(cycle(_PROSE), count)))

            def ask(question: str) -> str:
                for _ in model.stream(question):
                    pass
                return "done"

            agent = RunnableLambda(ask)
            callbacks = [] if handler is None else [handler()]
            return lambda: agent.invoke("go", {"callbacks": callbacks})

        yield prepare
        pipeline.shutdown()

    return Subject(name, setup)


PROSE = "a token of an answer, read for chanting: prose"
CODE = "a token of an answer, read for chanting: code, tables, logs and lists"
STREAMED_IDLE = "a token that streams to a handler that does nothing"
STREAMED_TO_US = "a token that streams to tidegauge"

READ = (Subject("nothing", _nothing), _read(PROSE, _PROSE), _read(CODE, _TABLES))
STREAMED = (
    _streamed("no handler", None),
    _streamed(STREAMED_IDLE, _Idle),
    _streamed(STREAMED_TO_US, TidegaugeCallbackHandler),
)
