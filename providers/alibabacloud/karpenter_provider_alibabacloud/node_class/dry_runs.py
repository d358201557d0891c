"""Whether launches with a NodeClass would be allowed: tried out without launching anything.

ECS answers a dry run with an error in any case; one of its codes means that the launch would succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.node_class_parts import UNREACHABLE, code_reason
from karpenter_provider_alibabacloud.codes import SHORTAGES, ApiError, ErrorClass
from karpenter_provider_alibabacloud.node_class.findings import stable_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_provider_alibabacloud.sdk import Clients

__all__ = ["PASSED", "DryRuns", "Outcome", "Verdict", "judge"]

DENIED: Final = "RunInstancesAuthCheckFailed"


class Verdict(Enum):
    """What a dry run tells."""

    PASSED = "passed"
    RETRY = "retry"
    """Nothing about the NodeClass: throttled, or not answered."""
    FAILED = "failed"
    """A launch would be refused, and will be for a while: policies."""
    REFUSED = "refused"
    """A launch would be refused now; what is missing may be there the next minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a dry run, as a condition says it."""

    verdict: Verdict
    reason: str = ""
    message: str = ""


PASSED: Final = Outcome(verdict=Verdict.PASSED)


def judge(error: ApiError | None) -> Outcome:
    """Return what the answer to a dry run of RunInstances tells; None is one without an error."""
    if error is None:
        return PASSED
    said = stable_text(str(error))
    error_class = error.error_class
    if error_class is ErrorClass.DRY_RUN or error_class in SHORTAGES:
        return PASSED  # no stock, but no lack of permission
    if error_class in {ErrorClass.THROTTLED, ErrorClass.TRANSIENT, ErrorClass.STATE}:
        return Outcome(verdict=Verdict.RETRY, reason=UNREACHABLE, message=said)
    if error_class is ErrorClass.AUTH:
        return Outcome(verdict=Verdict.FAILED, reason=DENIED, message=said)
    return Outcome(
        verdict=Verdict.REFUSED,
        reason=code_reason(error.code),
        message=f"launches would be refused: {said}",
    )


@final
class DryRuns:
    """Tries launches out; callable from any thread."""

    def __init__(self, clients: Clients) -> None:
        self._clients: Final = clients

    def run(self, request: Mapping[str, object]) -> Outcome:
        """Return what ECS says of a launch; `request` is one of RunInstances."""
        try:
            self._clients.ecs.call("RunInstances", {**request, "DryRun": True})
        except ApiError as error:
            return judge(error)
        return PASSED
