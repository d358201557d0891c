"""Announces the end of capacity blocks before EC2 takes the instances.

Forty minutes before a block's end launches into it stop, and its nodes are drained; half an hour
before the end EC2 begins to terminate its instances.
"""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_provider_aws.api.terms import CapacityReservationTerm
from karpenter_provider_aws.discovery.reservations import CAPACITY_BLOCK, is_expiring
from karpenter_provider_aws.interruption.pending_announcements import PendingAnnouncements
from karpenter_provider_aws.labels import CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeReader
    from karpenter_provider_aws.discovery.reservations import ReservationReader
    from karpenter_provider_aws.interruption.directory import InstanceDirectory, OwnedInstance

__all__ = ["BLOCKS_PERIOD", "CapacityBlockPoll", "block_announcements"]

BLOCKS_PERIOD: Final = timedelta(minutes=1)
RECLAIMED_BEFORE_END: Final = timedelta(minutes=30)
ID_PREFIX: Final = "block"


def block_announcements(
    instances: Iterable[OwnedInstance], ends: Mapping[str, datetime]
) -> dict[tuple[str, ...], Interruption]:
    """Announce the end of instances whose block ends, by instance; `ends` are by reservation."""
    return {
        (owned_instance.id,): Interruption(
            id=f"{ID_PREFIX}/{owned_instance.id}/{owned_instance.reservation_id}",
            kind=InterruptionKind.RESERVATION_RECLAIM,
            provider_id=owned_instance.provider_id,
            deadline=ends[owned_instance.reservation_id] - RECLAIMED_BEFORE_END,
            detail=f"capacity block {owned_instance.reservation_id} ends at "
            f"{ends[owned_instance.reservation_id]:%Y-%m-%dT%H:%M:%SZ}",
        )
        for owned_instance in instances
        if owned_instance.reservation_id in ends
    }


@final
class CapacityBlockPoll:
    """Looks which capacity blocks end, and announces what runs in them; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reservations: ReservationReader,
        directory: InstanceDirectory,
        read_nodes: NodeReader,
    ) -> None:
        self._clock: Final = clock
        self._reservations: Final = reservations
        self._directory: Final = directory
        self._read_nodes: Final = read_nodes
        self.announcements: Final = PendingAnnouncements()

    def run(self) -> None:
        """Look once; without any block that costs no call.

        Raises:
            CloudProviderError: EC2 refused or did not answer (`discovery.call_errors`).
        """
        ids = {*self._reservations.known_blocks(), *_blocks_of_nodes(self._read_nodes)}
        ends = self._ends(sorted(ids)) if ids else {}
        instances = self._directory.in_reservations(ends) if ends else ()
        self.announcements.replace(block_announcements(instances, ends))

    def _ends(self, ids: Collection[str]) -> dict[str, datetime]:
        """Return when those blocks end that are about to."""
        now = self._clock.now()
        blocks = self._reservations.find([CapacityReservationTerm(id=each) for each in ids]).items
        return {
            block.id: block.end_time.astimezone(UTC)
            for block in blocks
            if block.end_time is not None
            and is_expiring(block.reservation_type, block.end_time, now)
        }


def _blocks_of_nodes(read_nodes: NodeReader) -> set[str]:
    """Return the blocks that Nodes run in: a NodeClass need not select them any more."""
    return {
        node.labels[CAPACITY_RESERVATION_ID]
        for node in read_nodes().values()
        if node.labels.get(CAPACITY_RESERVATION_TYPE) == CAPACITY_BLOCK
        and node.labels.get(CAPACITY_RESERVATION_ID)
    }
