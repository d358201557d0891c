"""Describes failed attempts of a call, and the errors that follow from them.

A cloud classifies what its client raises. The kind of a failure says whether this attempt may have
been carried out; a later attempt that is refused does not take that back.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = [
    "AttemptFailure",
    "AttemptFailureKind",
    "FailedCall",
    "UncertainCallError",
    "core_error",
]


class AttemptFailureKind(StrEnum):
    """Kinds of failed attempts, by what they say of the attempt."""

    THROTTLED = "throttled"
    """Too many calls: it was not carried out, and every call may be made again."""
    UNANSWERED = "unanswered"
    """No answer, or a fault of the cloud: it may have been carried out."""
    IN_PROGRESS = "in-progress"
    """An earlier request with the same token is still being carried out."""
    DENIED = "denied"
    """Credentials are missing or do not permit it: it was not carried out."""
    REFUSED = "refused"
    """Any other refusal: it was not carried out, and would be refused again."""


_MAY_BE_DONE: Final = frozenset({AttemptFailureKind.UNANSWERED, AttemptFailureKind.IN_PROGRESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFailure:
    """A failed attempt of a call, as the cloud's `classify` reads it from an exception."""

    kind: AttemptFailureKind
    message: str = ""
    code: str = ""
    """The cloud's code, for metrics; empty if it did not answer."""
    retry_after: timedelta | None = None
    """The time that the cloud asks to wait, where it names one."""

    @property
    def text(self) -> str:
        """Code and message."""
        return ": ".join(part for part in (self.code, self.message) if part)

    @property
    def may_be_done(self) -> bool:
        """Whether this attempt may have been carried out."""
        return self.kind in _MAY_BE_DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCall:
    """A call that is not attempted again."""

    action: str
    failure: AttemptFailure
    """Of the last attempt."""
    may_be_done: bool = False
    """Whether this attempt, or an earlier one of the same call, may have been carried out."""
    cause: Exception | None = None
    """The exception of the last attempt; None if the call was not sent because of a pause."""

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.action, self.failure.text) if part)
        return f"{text} (it may have been carried out)" if self.may_be_done else text


class UncertainCallError(CloudProviderError):
    """A call that failed and may have been carried out.

    The core takes it like any `CloudProviderError`, and repeats a launch with the same token.
    """


def core_error(call: FailedCall) -> CloudProviderError:
    """Return the core's error for a failed call.

    It is `UncertainCallError` if the call may have been carried out, else `ThrottledError`,
    `AuthError` or, for other refusals, `CloudProviderError`.
    """
    if call.may_be_done:
        return UncertainCallError(str(call))
    match call.failure.kind:
        case AttemptFailureKind.THROTTLED:
            return ThrottledError(str(call), retry_after=call.failure.retry_after)
        case AttemptFailureKind.DENIED:
            return AuthError(str(call), action=call.action)
        case _:
            return CloudProviderError(str(call))
