"""Lists and terminates a cluster's virtual machines by `ClusterInstances`.

Azure deletes the disk and the interface of a virtual machine with it. It shows at once that a virtual
machine is being deleted, and goes on to show it until it is gone; then it does not describe it any more.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, TerminationRefusedError
from karpenter_core.provider.contract import TerminationStatus
from karpenter_core.provider.kit.instances.batch_terminator import BatchTerminator
from karpenter_core.provider.kit.instances.cluster_instances import ClusterInstances
from karpenter_core.provider.kit.launch.instance_claims import SingleClaims
from karpenter_provider_azure.arm.errors import ArmError
from karpenter_provider_azure.instances.vm_reader import claim_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import TerminateOutcome
    from karpenter_core.provider.kit.instances.described import DescribedInstances
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_azure.described_vms import DescribedVm
    from karpenter_provider_azure.instances.vm_reader import VmReader

__all__ = ["SHOWN_WITHIN", "VmListing", "cluster_vms", "vm_terminator"]

RECENT: Final = timedelta(seconds=5)
"""A listing of this age is used again."""


@final
class VmListing:
    """The virtual machines of the cluster as they were listed recently; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        read: Callable[[], DescribedInstances[DescribedVm]],
    ) -> None:
        """`read` is `VmReader.of_cluster`."""
        self._clock: Final = clock
        self._read: Final = read
        self._lock: Final = Lock()
        self._listed: DescribedInstances[DescribedVm] | None = None
        self._read_at = 0.0
        """Time at which the last listing was started, by the monotonic clock."""

    def recent(self) -> DescribedInstances[DescribedVm]:
        """Return a recent listing, with the time that it shows; threads that need one share it.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._listed is None or now - self._read_at > RECENT.total_seconds():
                as_of = self._clock.now()
                self._listed = None
                self._listed = replace(self._read(), as_of=as_of)
                self._read_at = now
            return self._listed


_CALLS_AT_ONCE: Final = 8
_PAUSE: Final = timedelta(seconds=5)
"""Pause after a deletion of a virtual machine that was started or refused."""
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
        """Return an error for a virtual machine; a lock must be removed by a user."""
        del is_alone
        if any(code.lower() in _LOCK_CODES for code in refusal.codes):
            return TerminationRefusedError(
                f"virtual machine {instance_id} has a lock, which must be removed first: {refusal.message}"
            )
        return CloudProviderError(f"virtual machine {instance_id} was not deleted: {refusal}")


SHOWN_WITHIN: Final = timedelta(minutes=1)
"""By then Azure lists a virtual machine whose creation it has accepted."""


def cluster_vms(
    clock: Clock,
    *,
    reader: VmReader,
    recent: RecentLaunches,
    delete: Callable[[str], None],
) -> ClusterInstances[DescribedVm]:
    """Return the virtual machines of one cluster; `delete` is that of `vm_terminator`."""
    return ClusterInstances(
        clock,
        service="Azure",
        reader=reader,
        terminator=vm_terminator(delete, clock),
        claims=SingleClaims(claim_of),
        recent=recent,
        shown_within=SHOWN_WITHIN,
    )
