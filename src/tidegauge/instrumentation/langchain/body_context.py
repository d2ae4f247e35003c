"""Makes a run's spans current for the code that LangChain calls, and for no other code.

A callback at the start of a chain, a tool or a model call runs in the context of the *caller*;
LangChain then copies that context for the *body*. So what the callback sets reaches the body, and
also what the caller does later: LangChain runs the callback at the end in another context if the
call is asynchronous, and runs none after a cancellation or between the pieces of a stream. Undoing
it there is too late, or impossible.

A :class:`BodyContext` therefore decides at each look-up. In the body it has the span. Outside of
it, it is as if the context before were still current:

- The body of a chain or tool has another LangChain config in its context than its caller.
- A model call has no such mark. It is over at its first token, its end, its error, or the end of
  its run. The first token comes before the consumer of a stream gets control.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from langchain_core.runnables.config import var_child_runnable_config
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span, set_span_in_context

_SPAN: Final = next(iter(set_span_in_context(INVALID_SPAN, Context())))
_RUN: Final = otel_context.create_key("tidegauge-langchain-run")
_NO_CALLER: Final = object()
_new: Final[Callable[[type[BodyContext]], BodyContext]] = dict.__new__
"""Makes a context without calling its ``__init__``: at every model call and tool call."""

# OpenTelemetry's variable, which costs less than its functions. Where another library keeps the
# current context in other ways, ours goes nowhere.
_NO_CONTEXT: Final = Context()
current_context: Final[ContextVar[Context]] = getattr(
    otel_context.attach(otel_context.get_current()),
    "var",
    ContextVar("tidegauge_no_context", default=_NO_CONTEXT),
)


class BodyContext(Context):
    """A context in which a span is current inside a body only.

    Args:
        before: the context of the caller.
        span: the span of the body.
        caller: the caller's LangChain config; ``_NO_CALLER``, the body has no other one.
        over: whether the body has not begun yet.

    Attributes:
        over: whether the body has ended: then the span is current nowhere.
    """

    __slots__ = ("before", "caller", "over", "span")

    def __init__(self, before: Context, span: Span, caller: object, over: bool = False) -> None:
        self.before = before
        self.span = span
        self.caller = caller
        self.over = over

    def get(self, key: str, default: Any = None) -> Any:
        """The value that holds here."""
        found = _effective(self)
        if found is not self:
            return found.get(key, default)
        if key == _SPAN:
            return self.span
        return dict.get(self, key) or self.before.get(key, default)

    def copy(self) -> dict[str, object]:
        """The values that hold here; ``set_value`` makes other contexts of them."""
        found = _effective(self)
        if found is not self:
            return found.copy()
        return {**self.before.copy(), **self, _SPAN: self.span}


def enter_chain(span: Span) -> None:
    """A chain of a run begins: the run's span is current in it, unless it is already.

    Args:
        span: the span of the run.
    """
    current = current_context.get()
    if type(current) is BodyContext and current.span is span:
        return  # inherited, as nearly always
    before = _effective(current)
    if before.get(_RUN) is not span:
        context = BodyContext(before, span, var_child_runnable_config.get())
        dict.__setitem__(context, _RUN, span)
        current_context.set(context)
    elif before is not current:  # the body must not inherit a tool that its caller called before
        current_context.set(before)


def enter_tool(span: Span) -> None:
    """A tool is about to run: its span is current in it."""
    before, caller = current_context.get(), var_child_runnable_config.get()
    while type(before) is BodyContext and (before.over or before.caller is caller):
        before = before.before
    context = _new(BodyContext)
    context.before, context.span, context.caller, context.over = before, span, caller, False
    current_context.set(context)


def enter_model(span: Span) -> BodyContext:
    """A model is about to be called: its span is current while ``over`` is false.

    Returns:
        A context that is over. It begins when the caller has stored it, so that its end is sure.
    """
    before = current_context.get()
    context = _new(BodyContext)
    if type(before) is BodyContext and (
        before.over or var_child_runnable_config.get() is before.caller
    ):
        before = _effective(before)
    context.before = before
    context.span, context.caller, context.over = span, _NO_CALLER, True
    current_context.set(context)
    return context


def leave_model(context: BodyContext) -> None:
    """A model call is over: its span is current nowhere."""
    context.over = True
    current = current_context.get()
    # Other instrumentations make contexts of this one, and may leave them behind.
    if current is context or dict.get(current, _SPAN) is context.span:
        current_context.set(context.before)


def leave(span: Span) -> None:
    """Restore the context before, if it was here that ``span`` was made current."""
    current = current_context.get()
    if type(current) is BodyContext and current.span is span:
        current_context.set(current.before)


def _effective(context: Context) -> Context:
    """The context that holds here: a body's only inside of it."""
    while type(context) is BodyContext and (
        context.over or var_child_runnable_config.get() is context.caller
    ):
        context = context.before
    return context
