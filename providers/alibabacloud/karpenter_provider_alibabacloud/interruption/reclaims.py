"""Announces spot instances that ECS has locked and will reclaim.

ECS locks a spot instance about five minutes before it is reclaimed. One call reads all locked
instances of the region, however many others there are. A node on which ACK's node problem detector
runs reports its reclaim by the condition `InstanceExpired`; both reports of one instance have one
id.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, SPOT, ZONE
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Interruption, InterruptionKind
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.described_instances import (
    RECYCLING,
    parse_provider_id,
    provider_id,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_alibabacloud.described_instances import InstanceReader
    from karpenter_provider_alibabacloud.interruption.pending_announcements import (
        PendingAnnouncements,
    )

__all__ = ["NOTICE", "RECLAIMED_SHORTAGE_LIFE", "InterruptionShortages", "SpotPoll", "read_node"]

SOURCE: Final = "reclaim"
NOTICE: Final = timedelta(minutes=5)
"""From the lock of a spot instance to its end."""
RECLAIMED_SHORTAGE_LIFE: Final = timedelta(minutes=15)
"""Time without spot launches of a type in a zone where ECS has reclaimed it: there is no stock."""
EXPIRED_CONDITION: Final = "InstanceExpired"
"""Of Nodes, set by ACK's node problem detector."""


def read_node(node: NodeView) -> tuple[Interruption, ...]:
    """Return what a Node's own conditions announce; on-demand nodes announce nothing in this way."""
    if node.labels.get(CAPACITY_TYPE) != SPOT:
        return ()
    expired = next((c for c in node.conditions if c.type == EXPIRED_CONDITION), None)
    if expired is None or expired.status != "True":
        return ()
    try:
        _, name = parse_provider_id(node.provider_id)
    except CloudProviderError:
        return ()
    since = expired.last_transition_time
    return (
        _announcement(
            name,
            node.provider_id,
            deadline=None if since is None else since + NOTICE,
            announced_at=since,
        ),
    )


@final
class InterruptionShortages:
    """Marks what was taken back as sold out, once for each instance; callable from any thread."""

    def __init__(self, clock: Clock, offerings: UnavailableOfferings) -> None:
        self._clock: Final = clock
        self._offerings: Final = offerings
        self._recorded: Final[TtlCache[str, bool]] = TtlCache(clock, RECLAIMED_SHORTAGE_LIFE)

    def note(self, instance_id: str, *, instance_type: str, zone: str) -> None:
        """Take note that an instance is taken back; where it is not known what it is, of nothing."""
        if not instance_type or not zone or self._recorded.get(instance_id) is not None:
            return
        self._recorded.put(instance_id, value=True)
        mark = UnavailableOffering(instance_type, zone, SPOT)
        self._offerings.mark(mark, now=self._clock.now(), life=RECLAIMED_SHORTAGE_LIFE)

    def note_node(self, node: NodeView, said: Sequence[Interruption]) -> None:
        """Take note of what a Node has announced."""
        for each in said:
            self.note(
                each.provider_id,
                instance_type=node.labels.get(INSTANCE_TYPE, ""),
                zone=node.labels.get(ZONE, ""),
            )


@final
class SpotPoll:
    """Asks which instances are locked for being taken back; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reader: InstanceReader,
        announcements: PendingAnnouncements,
        shortages: InterruptionShortages,
        period: timedelta,
    ) -> None:
        """`period` is how often this runs: a lock may be so old when it is seen first."""
        self._clock: Final = clock
        self._reader: Final = reader
        self._announcements: Final = announcements
        self._shortages: Final = shortages
        self._period: Final = period

    def run(self) -> None:
        """Poll once.

        Raises:
            CloudProviderError: ECS refused or did not answer (`discovery.call_errors`).
        """
        locked = self._reader.locked(RECYCLING)
        now = self._clock.now()
        deadline = now + max(NOTICE - self._period, timedelta())
        region = self._reader.region
        self._announcements.replace(
            SOURCE,
            {
                each.id: _announcement(
                    each.id, provider_id(region, each.id), deadline=deadline, announced_at=now
                )
                for each in locked
            },
        )
        for each in locked:
            self._shortages.note(
                provider_id(region, each.id), instance_type=each.instance_type, zone=each.zone
            )


def _announcement(
    name: str, whole: str, *, deadline: datetime | None, announced_at: datetime | None
) -> Interruption:
    return Interruption(
        id=f"{SOURCE}/{name}",
        kind=InterruptionKind.SPOT_RECLAIM,
        provider_id=whole,
        deadline=deadline,
        announced_at=announced_at,
    )
