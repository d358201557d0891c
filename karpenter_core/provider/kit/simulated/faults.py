"""Injects faults into a simulated cloud: refusals, lost replies, outages.

A fault applies to calls whose name matches (`CreateFleet`, `ec2:*`), `times` times or until it is
removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from threading import Condition
from typing import TYPE_CHECKING, Final, Self, final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from karpenter_core.provider.kit.simulated.calls import NamedCall

__all__ = ["CloudError", "CloudFault", "CloudFaultKind", "CloudFaults"]


class CloudError(Exception):
    """An error of a cloud: a code, a message, the HTTP status, and when to call again."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int = 400,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Final = code
        self.message: Final = message
        self.status: Final = status
        self.retry_after_seconds = retry_after_seconds
        """Pause that the cloud asks for; None if it does not say."""


class CloudFaultKind(StrEnum):
    """The effect of a fault on a call."""

    REFUSED = "refused"
    """The call is answered with an error and has no effect."""
    LOST_REPLY = "lost-reply"
    """The call is executed; the connection breaks before the answer."""
    CUT_BODY = "cut-body"
    """The call is executed; the connection breaks in the middle of the body of the answer."""
    SILENT = "silent"
    """The call is accepted and never answered; it has no effect."""
    UNREACHABLE = "unreachable"
    """The connection is cut; the call has no effect."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class CloudFault:
    """One fault; as a context manager, it lasts as long as the context."""

    kind: CloudFaultKind
    action: str
    """A shell pattern for the action, or for service and action with a colon between them."""
    error: CloudError | None = None
    """The error of the refusal; None for an access error of the cloud."""
    times: int | None = None
    """The number of calls it still applies to; None for no limit."""
    where: Callable[[Mapping[str, object]], bool] | None = None
    """Selects calls by their parameters."""
    struck: int = 0
    """The number of calls it applied to."""
    board: CloudFaults | None = field(default=None, repr=False)

    def strikes(self, call: NamedCall) -> bool:
        """Return whether it applies to this call."""
        name = call.name if ":" in self.action else call.action
        return (
            self.times != 0
            and fnmatchcase(name, self.action)
            and (self.where is None or self.where(call.parameters))
        )

    def end(self) -> None:
        """Remove the fault; calls that wait for it are cut."""
        if self.board is not None:
            self.board.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class CloudFaults:
    """The active faults."""

    def __init__(self) -> None:
        self._changed: Final = Condition()
        self._faults: list[CloudFault] = []

    def add(self, fault: CloudFault) -> CloudFault:
        """Add a fault."""
        with self._changed:
            fault.board = self
            self._faults.append(fault)
        return fault

    def remove(self, fault: CloudFault) -> None:
        """Remove a fault; return if it is not active."""
        with self._changed:
            self._faults = [other for other in self._faults if other is not fault]
            self._changed.notify_all()

    def clear(self) -> None:
        """Remove all faults."""
        with self._changed:
            self._faults = []
            self._changed.notify_all()

    def strike(self, call: NamedCall) -> CloudFault | None:
        """Return the first fault that applies to the call, and count it."""
        with self._changed:
            for fault in self._faults:
                if fault.strikes(call):
                    fault.struck += 1
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def hang(self, fault: CloudFault, *, seconds: float) -> None:
        """Wait until the fault is removed, at most this long."""
        with self._changed:
            self._changed.wait_for(lambda: fault not in self._faults, timeout=seconds)
