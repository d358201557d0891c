"""Injects faults into a simulated cloud: refusals, lost replies, outages.

A fault strikes calls whose name matches (`CreateFleet`, `ec2:*`), as often as `times` says, or until
it is taken away.
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
    """An answer of a cloud that says no: a code, a message and the status of HTTP."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code: Final = code
        self.message: Final = message
        self.status: Final = status


class CloudFaultKind(StrEnum):
    """What becomes of a call."""

    REFUSED = "refused"
    """It is answered with an error; nothing is done."""
    LOST_REPLY = "lost-reply"
    """It is carried out; the connection breaks before the answer."""
    SILENT = "silent"
    """It is taken and never answered; nothing is done."""
    UNREACHABLE = "unreachable"
    """The connection is cut; nothing is done."""


@final
@dataclass(slots=True, kw_only=True, eq=False)
class CloudFault:
    """One fault; as a context, it lasts as long as the context."""

    kind: CloudFaultKind
    action: str
    """A shell pattern for the action, or for service and action with a colon between them."""
    error: CloudError | None = None
    """What it refuses with; None for the denial of the cloud."""
    times: int | None = None
    """How often it strikes yet; None for as often as it can."""
    where: Callable[[Mapping[str, object]], bool] | None = None
    """Which calls it strikes, by their parameters."""
    struck: int = 0
    """How often it has struck."""
    board: CloudFaults | None = field(default=None, repr=False)

    def strikes(self, call: NamedCall) -> bool:
        """Whether it would strike this call."""
        name = call.name if ":" in self.action else call.action
        return (
            self.times != 0
            and fnmatchcase(name, self.action)
            and (self.where is None or self.where(call.parameters))
        )

    def end(self) -> None:
        """Take the fault away; calls that hang on it are cut."""
        if self.board is not None:
            self.board.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


@final
class CloudFaults:
    """The faults that are about."""

    def __init__(self) -> None:
        self._changed: Final = Condition()
        self._faults: list[CloudFault] = []

    def add(self, fault: CloudFault) -> CloudFault:
        """Let a fault loose."""
        with self._changed:
            fault.board = self
            self._faults.append(fault)
        return fault

    def remove(self, fault: CloudFault) -> None:
        """Take a fault away; one that is gone already is fine."""
        with self._changed:
            self._faults = [other for other in self._faults if other is not fault]
            self._changed.notify_all()

    def clear(self) -> None:
        """Take all faults away."""
        with self._changed:
            self._faults = []
            self._changed.notify_all()

    def strike(self, call: NamedCall) -> CloudFault | None:
        """Return the first fault that strikes the call, and count it."""
        with self._changed:
            for fault in self._faults:
                if fault.strikes(call):
                    fault.struck += 1
                    if fault.times is not None:
                        fault.times -= 1
                    return fault
        return None

    def hang(self, fault: CloudFault, *, seconds: float) -> None:
        """Wait until the fault is taken away, at most so long."""
        with self._changed:
            self._changed.wait_for(lambda: fault not in self._faults, timeout=seconds)
