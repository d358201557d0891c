"""Combines all interruption sources for the interruption hooks.

`poll` answers `karpenter_poll_interruptions`, `acknowledge` `karpenter_acknowledge_interruptions`,
`read` `karpenter_read_interruptions`, and `tasks` are part of `karpenter_declare_tasks`.
`note_listed` gets all instances whenever they are listed: an instance that a user has stopped does
not start again by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.contract import Interruption, InterruptionKind, PeriodicTask
from karpenter_provider_alibabacloud.described_instances import provider_id
from karpenter_provider_alibabacloud.interruption.pending_announcements import PendingAnnouncements
from karpenter_provider_alibabacloud.interruption.reclaims import (
    InterruptionShortages,
    SpotPoll,
    read_node,
)
from karpenter_provider_alibabacloud.interruption.system_events import (
    EVENTS_PERIOD,
    SystemEventPoll,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.settings import AlibabaCloudSettings

__all__ = ["InterruptionSources"]

STOPPED: Final = "stopped"


@final
class InterruptionSources:
    """Locks, system events, stopped instances and Nodes together; callable from any thread.

    With the setting `interruption` off, nothing is looked for and nothing announced.
    """

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        settings: AlibabaCloudSettings,
        reader: InstanceReader,
        offerings: UnavailableOfferings,
    ) -> None:
        self._clock: Final = clock
        self._reader: Final = reader
        self._enabled: Final = settings.interruption
        self._period: Final = settings.interruption_poll_interval
        self._marks: Final = InterruptionShortages(clock, offerings)
        self._announcements: Final = PendingAnnouncements()
        self.spot: Final = SpotPoll(
            clock,
            reader=reader,
            announcements=self._announcements,
            shortages=self._marks,
            period=self._period,
        )
        self.events: Final = SystemEventPoll(
            clients,
            clock,
            reader=reader,
            announcements=self._announcements,
        )

    def tasks(self) -> tuple[PeriodicTask, ...]:
        """Return the polls of all sources."""
        if not self._enabled:
            return ()
        return (
            PeriodicTask(name="spot-reclaims", period=self._period, run=self.spot.run),
            PeriodicTask(name="system-events", period=EVENTS_PERIOD, run=self.events.run),
        )

    def poll(self) -> tuple[Interruption, ...]:
        """Return what was announced and not acknowledged; never a call."""
        return self._announcements.waiting()

    def acknowledge(self, ids: Sequence[str]) -> None:
        """Announce these no more."""
        self._announcements.acknowledge(ids)

    def read(self, node: NodeView) -> tuple[Interruption, ...]:
        """Return what a Node itself announces; never a call."""
        if not self._enabled:
            return ()
        said = read_node(node)
        self._marks.note_node(node, said)
        return said

    def note_listed(self, listed: Sequence[DescribedInstance]) -> None:
        """Take note of instances that stop or have stopped without having been asked to go."""
        if not self._enabled:
            return
        self.events.note_listed(each.id for each in listed)
        now, region = self._clock.now(), self._reader.region
        self._announcements.replace(
            STOPPED,
            {
                each.id: Interruption(
                    id=f"{STOPPED}/{each.id}",
                    kind=InterruptionKind.INSTANCE_STOPPED,
                    provider_id=provider_id(region, each.id),
                    detail=each.status,
                    announced_at=now,
                )
                for each in listed
                if each.is_leaving
            },
        )
