"""Records refused launches that a dry run cannot predict.

Such refusals are missing permissions, and an account that cannot pay. RunInstances is tried out
beforehand. Provisioning groups cannot be, nor can the listing of instances that comes before a
launch. So the refusal of a launch becomes a condition of its NodeClass, and until it expires
nothing is launched from the NodeClass. ECS does not report that a policy was corrected: the next
launch after the expiry finds out.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import AuthError
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.provider.kit.node_class.parts import code_reason
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.codes import ApiError, ErrorClass
from karpenter_provider_alibabacloud.node_class.conditions import stable_text
from karpenter_provider_alibabacloud.node_class.dry_runs import DryRunOutcome, DryRunVerdict, denied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest

__all__ = ["RefusedLaunches", "launch_refusal"]

LIFE: Final = timedelta(minutes=5)
"""How long nothing is launched after a refusal."""
_FORBIDDEN: Final = "Forbidden."
_BY_POLICY: Final = "Forbidden.RAM"
"""What begins like it forbids something about what was asked for, as a private pool of others."""


def launch_refusal(error: CloudProviderError) -> DryRunOutcome | None:
    """Return what the outcome of a launch says of every other launch; None when it says nothing."""
    said = f"launches were refused: {stable_text(str(error))}"
    cause = error.__cause__
    code = cause.code if isinstance(cause, ApiError) else ""
    if isinstance(error, AuthError) and (code == _BY_POLICY or not code.startswith(_FORBIDDEN)):
        return DryRunOutcome(
            verdict=DryRunVerdict.FAILED, reason=denied(error.action), message=said
        )
    if isinstance(cause, ApiError) and cause.error_class is ErrorClass.FUNDS:
        return DryRunOutcome(
            verdict=DryRunVerdict.REFUSED, reason=code_reason(cause.code), message=said
        )
    return None


@final
class RefusedLaunches:
    """Remembers refusals by the name of the NodeClass; callable from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._refusals: Final[TtlCache[str, DryRunOutcome]] = TtlCache(clock, LIFE)

    def note(self, requests: Iterable[LaunchRequest], outcomes: Iterable[LaunchOutcome]) -> None:
        """Take down what came of launches at once, in the order of the requests.

        One that succeeded says that launches from its NodeClass are not refused.
        """
        refused: dict[str, DryRunOutcome] = {}
        succeeded: set[str] = set()
        for request, outcome in zip(requests, outcomes, strict=True):
            name = request.node_class.name
            if isinstance(outcome, LaunchedInstance):
                succeeded.add(name)
            elif (refusal := launch_refusal(outcome)) is not None:
                refused[name] = refusal
        for name in succeeded:
            self._refusals.drop(name)
        for name in refused.keys() - succeeded:
            self._refusals.put(name, refused[name])

    def of(self, node_class: str) -> DryRunOutcome | None:
        """Return what launches from a NodeClass were refused for lately."""
        return self._refusals.get(node_class)

    def forget(self, node_class: str) -> None:
        """Forget a NodeClass."""
        self._refusals.drop(node_class)
