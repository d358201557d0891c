"""Declares what checks and dry runs of a NodeClass find."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, final

__all__ = ["PASSED", "ConditionFinding", "DryRunOutcome", "DryRunVerdict", "NodeClassFinding"]


class ConditionFinding(Protocol):
    """A mistake: reason and message of a condition."""

    @property
    def reason(self) -> str:
        """One word in CamelCase."""
        ...

    @property
    def message(self) -> str:
        """Field, value and cause."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassFinding:
    """A mistake in a NodeClass."""

    reason: str
    message: str


class DryRunVerdict(Enum):
    """Meanings of a dry run's answer."""

    PASSED = "passed"
    RETRY = "retry"
    """Says nothing about the NodeClass: throttled, not answered, not yet consistent."""
    FAILED = "failed"
    """A launch would not be permitted, or could never succeed."""
    REFUSED = "refused"
    """A launch would be refused now; what is missing may exist the next minute."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunOutcome:
    """The outcome of a dry run, as its condition shows it."""

    verdict: DryRunVerdict
    reason: str = ""
    message: str = ""


PASSED: Final = DryRunOutcome(verdict=DryRunVerdict.PASSED)
