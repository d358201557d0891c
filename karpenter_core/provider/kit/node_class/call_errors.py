"""Builds NodeClass conditions from the errors of a cloud's calls.

A refusal by the cloud (credentials, permissions, a parameter it does not take) is a finding about
the NodeClass. A call that the cloud does not answer (no connection, its own fault, too many calls)
is not: the earlier result is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import UNKNOWN
from karpenter_core.errors import AuthError, CloudProviderError, ThrottledError
from karpenter_core.provider.kit.node_class.parts import (
    RETRY_SOON,
    UNREACHABLE_REASON,
    code_reason,
    condition_unknown,
    condition_unmet,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from datetime import timedelta

    from karpenter_core.provider.kit.node_class.parts import ResolutionPart

__all__ = ["UNAUTHORIZED_REASON", "CallErrors"]

UNAUTHORIZED_REASON: Final = "Unauthorized"
"""Reason of a refusal without a code, of a call that needs other credentials or permissions."""


def _soon(_error: CloudProviderError) -> timedelta:
    return RETRY_SOON


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CallErrors:
    """The functions that read the errors of one cloud."""

    is_refusal: Callable[[CloudProviderError], bool]
    """Whether the cloud answered, and would answer the same call alike."""
    code: Callable[[CloudProviderError], str]
    """The cloud's code, which becomes the reason of a condition; empty for none."""
    varying_text: re.Pattern[str] | None = None
    """Parts of messages that differ each time, such as request ids. They are left out: a condition
    whose message changes is written again in each pass."""
    retry_refused_after: Callable[[CloudProviderError], timedelta] = _soon
    """Time until the next resolution after a refusal."""

    def stable_text(self, error: object) -> str:
        """Return the message of an error without the parts that differ each time."""
        text = str(error)
        return text if self.varying_text is None else self.varying_text.sub("", text)

    def with_stable_text(self, error: CloudProviderError) -> CloudProviderError:
        """Return an error that says the same each time, for hooks whose errors become a status.

        The kinds of error that the core distinguishes stay, and an error whose message has no varying
        parts is returned as it is.
        """
        text = self.stable_text(error)
        if text == str(error):
            return error
        if isinstance(error, AuthError):
            return AuthError(text, action=error.action)
        if isinstance(error, ThrottledError):
            return ThrottledError(text, retry_after=error.retry_after)
        return CloudProviderError(text)

    def refusal_reason(self, error: CloudProviderError) -> str:
        """Return the reason of the condition for a refusal: the cloud's code, if it has one."""
        code = self.code(error)
        if not code and isinstance(error, AuthError):
            return UNAUTHORIZED_REASON
        return code_reason(code)

    def failed_part(
        self, condition_type: str, where: str, error: CloudProviderError
    ) -> ResolutionPart:
        """Return a part that is False if the cloud refused, and unanswered otherwise.

        `where` is the field, or the attempt, that the message begins with.
        """
        message = f"{where}: {self.stable_text(error)}"
        if not self.is_refusal(error):
            return condition_unknown(condition_type, message)
        return condition_unmet(
            condition_type,
            self.refusal_reason(error),
            message,
            retry_after=self.retry_refused_after(error),
        )

    def silent_part(self, part: ResolutionPart, error: CloudProviderError | None) -> ResolutionPart:
        """Return an unanswered part as Unknown: its earlier result is not kept any longer."""
        code = "" if error is None else self.code(error)
        reason = code_reason(code) if code else UNREACHABLE_REASON
        condition = part.condition.model_copy(update={"status": UNKNOWN, "reason": reason})
        return replace(part, condition=condition, is_answered=True)
