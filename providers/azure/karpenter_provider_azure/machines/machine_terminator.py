"""Terminates AKS machines in batches.

Azure deletes the virtual machines of one request together, and carries on with those that exist if some of
them are gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_provider_azure.arm.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_azure.machines.described_machines import DescribedMachine

__all__ = ["machine_terminator"]

_BATCH: Final = 50
"""As many machines as Karpenter's own provider makes by one request."""
_MAX_REFUSALS: Final = 10
"""More than it takes to find one machine of a batch by halves."""
_PAUSE: Final = timedelta(seconds=30)
"""By then AKS shows that a machine is being deleted; the request is made again if it does not."""
_BAD_REQUEST: Final = 400


def machine_terminator(
    delete: Callable[[Sequence[str]], None], clock: Clock
) -> BatchTerminator[DescribedMachine, ArmError]:
    """Return what terminates machines; `delete` is that of `MachineReader`."""
    return BatchTerminator(
        _MachineDeletions(delete),
        batch_size=_BATCH,
        max_refusals=_MAX_REFUSALS,
        pause=_PAUSE,
        monotonic=clock.monotonic,
    )


@final
class _MachineDeletions:
    """Deletions of several machines each."""

    def __init__(self, delete: Callable[[Sequence[str]], None]) -> None:
        self._delete: Final = delete

    def known_outcome(self, instance: DescribedMachine) -> TerminateOutcome | None:
        """Return STARTED for a machine that is being deleted."""
        return TerminationStatus.STARTED if instance.is_leaving else None

    def send(self, instance_ids: Sequence[str]) -> None:
        """Start deletions."""
        self._delete(instance_ids)

    def read_refusal(self, error: CloudProviderError) -> ArmError | None:
        """Return an error that may be about some of the machines; a conflict is one of the pool."""
        if not isinstance(error, ArmError) or error.may_be_done:
            return None
        return error if error.status == _BAD_REQUEST else None

    def refused_outcome(
        self, instance_id: str, refusal: ArmError, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return an error for a machine."""
        del is_alone
        return CloudProviderError(f"AKS machine {instance_id} was not deleted: {refusal}")
