"""Traces passes by an injected tracer: spans of steps, counts as attributes.

Only the wiring of the process knows OpenTelemetry (`operator.open_telemetry`); all other code gets a `Tracer`,
which does nothing unless traces are switched on. Decisions are pure and have no spans of their own: the
controllers put spans around them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, Self, final

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["NO_TRACER", "Span", "Tracer"]


class Span(Protocol):
    """A step that is being measured."""

    def note(self, **counts: int | str) -> None:
        """Add attributes, such as `claims=3`; they are exported with the prefix `karpenter.`."""
        ...


class Tracer(Protocol):
    """Measures steps; spans that begin inside another span are its children."""

    def span(self, name: str, **counts: int | str) -> AbstractContextManager[Span]:
        """Return a span that lasts as long as its `with` block; an exception marks it as failed."""
        ...


@final
class _NoSpan:
    """A span that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return

    def note(self, **counts: int | str) -> None:
        """Forget the attributes."""


@final
class _NoTracer:
    """The tracer of a process without traces."""

    __slots__ = ()

    def span(self, name: str, **counts: int | str) -> _NoSpan:  # noqa: ARG002 - nothing is recorded
        """Return the same span every time."""
        return _NO_SPAN


_NO_SPAN: Final = _NoSpan()
NO_TRACER: Final[Tracer] = _NoTracer()
"""The tracer where traces are off."""
