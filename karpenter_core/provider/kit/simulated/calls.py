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
    """What of a call its log, faults and throttling go by."""

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
        """What it is called with, under the names of the API."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedCall:
    """One call, each attempt of the SDK by itself."""

    service: str
    action: str
    at: datetime
    parameters: Mapping[str, object]
    outcome: str
    """`ok`, the code of the refusal, or the kind of fault that swallowed the answer."""

    @property
    def dry_run(self) -> bool:
        """Whether it only asked if it might."""
        return self.parameters.get("DryRun") not in {None, False, "", "false", "False"}


@final
class CallLog:
    """Calls in the order in which they were answered."""

    def __init__(self) -> None:
        self._lock: Final = Lock()
        self._calls: list[LoggedCall] = []

    def add(self, call: LoggedCall) -> None:
        """Note a call."""
        with self._lock:
            self._calls.append(call)

    def clear(self) -> None:
        """Forget all calls."""
        with self._lock:
            self._calls.clear()

    def of(self, action: str, *, outcome: str | None = None) -> Sequence[LoggedCall]:
        """Return the calls of an action, all or those that ended so."""
        with self._lock:
            return tuple(
                call
                for call in self._calls
                if call.action == action and outcome in {None, call.outcome}
            )

    def count(self, action: str, *, outcome: str | None = None) -> int:
        """Return how many calls of an action there were."""
        return len(self.of(action, outcome=outcome))

    @property
    def all(self) -> Sequence[LoggedCall]:
        """Every call."""
        with self._lock:
            return tuple(self._calls)
