"""Records calls to a simulated cloud: action, time and outcome."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

__all__ = ["CallLog", "LoggedCall", "NamedCall"]


class NamedCall(Protocol):
    """The properties of a call that log, faults and throttling use."""

    @property
    def name(self) -> str:
        """Service and action: `ec2:CreateFleet`."""
        ...

    @property
    def action(self) -> str:
        """The action alone, as the API names it."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """The parameters by their names in the API."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One call; each retry of the SDK is a call."""

    service: str
    action: str
    at: datetime
    parameters: Mapping[str, object]
    outcome: str
    """`ok`, the error code, or the kind of fault that suppressed the answer."""

    @property
    def dry_run(self) -> bool:
        """Whether it was a dry run."""
        return self.parameters.get("DryRun") not in {None, False, "", "false", "False"}


@final
class CallLog:
    """Calls in the order of their answers."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._calls: list[LoggedCall] = []

    def add(self, call: LoggedCall) -> None:
        """Add a call."""
        with self._lock:
            self._calls.append(call)

    def clear(self) -> None:
        """Remove all calls."""
        with self._lock:
            self._calls.clear()

    def of(self, action: str, *, outcome: str | None = None) -> Sequence[LoggedCall]:
        """Return the calls of an action, all or those with this outcome."""
        with self._lock:
            return tuple(
                call
                for call in self._calls
                if call.action == action and outcome in {None, call.outcome}
            )

    def count(self, action: str, *, outcome: str | None = None) -> int:
        """Return the number of calls of an action."""
        return len(self.of(action, outcome=outcome))

    @property
    def all(self) -> Sequence[LoggedCall]:
        """Return every call."""
        with self._lock:
            return tuple(self._calls)
