"""Terminates virtual machines one by one.

Azure deletes the disk and the interface of a virtual machine with it. It shows at once that a virtual
machine is being deleted, and goes on to show it until it is gone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_provider_azure.arm.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = ["vm_terminator"]

_CALLS_AT_ONCE: Final = 8
_PAUSE: Final = timedelta(seconds=5)
"""How long a virtual machine whose deletion was started or refused is left alone."""
_LOCK_CODES: Final = frozenset({"scopelocked", "cannotdeleteresource"})
"""Codes for a lock that a user has put on the virtual machine or its group."""


def vm_terminator(
    delete: Callable[[str], None], clock: Clock
) -> BatchTerminator[DescribedVm, ArmError]:
    """Return what terminates virtual machines.

    `delete` starts the deletion of the virtual machine with a name, and returns if there is none
    (`VmCalls.delete`).
    """
    return BatchTerminator(
        _VmDeletions(delete),
        batch_size=1,
        max_refusals=1,
        pause=_PAUSE,
        monotonic=clock.monotonic,
        calls_at_once=_CALLS_AT_ONCE,
    )


@final
class _VmDeletions:
    """Deletions, each of one virtual machine."""

    def __init__(self, delete: Callable[[str], None]) -> None:
        self._delete: Final = delete

    def known_outcome(self, instance: DescribedVm) -> TerminateOutcome | None:
        """Return STARTED for a virtual machine that is being deleted, and an error for an AKS machine's.

        Without its virtual machine an AKS machine would stay in its pool.
        """
        if instance.is_leaving:
            return TerminationStatus.STARTED
        try:
            instance.require_no_machine()
        except TerminationRefusedError as error:
            return error
        return None

    def send(self, instance_ids: Sequence[str]) -> None:
        """Start deletions."""
        for name in instance_ids:
            self._delete(name)

    def read_refusal(self, error: CloudProviderError) -> ArmError | None:
        """Return an error that is about the virtual machine itself."""
        return error if isinstance(error, ArmError) and not error.may_be_done else None

    def refused_outcome(
        self, instance_id: str, refusal: ArmError, *, is_alone: bool
    ) -> TerminateOutcome:
        """Return an error for a virtual machine; a lock needs somebody to remove it."""
        del is_alone
        if any(code.lower() in _LOCK_CODES for code in refusal.codes):
            return TerminationRefusedError(
                f"virtual machine {instance_id} has a lock: {refusal.message}"
            )
        return CloudProviderError(f"virtual machine {instance_id} was not deleted: {refusal}")
