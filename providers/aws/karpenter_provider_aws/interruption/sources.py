"""Combines all interruption sources for the interruption hooks.

`poll` answers `karpenter_poll_interruptions`, `acknowledge` answers
`karpenter_acknowledge_interruptions`; `status.run` and `blocks.run` are tasks of the provider.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_provider_aws.interruption.blocks import CapacityBlockPoll
from karpenter_provider_aws.interruption.directory import InstanceDirectory, instance_id_of
from karpenter_provider_aws.interruption.queue import LONGEST_WAIT_SECONDS, InterruptionQueue
from karpenter_provider_aws.interruption.shortages import InterruptionShortages
from karpenter_provider_aws.interruption.status_checks import InstanceStatusPoll
from karpenter_provider_aws.labels import GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ClaimReader, Interruption, NodeReader
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_aws.described_instances import InstanceReader
    from karpenter_provider_aws.discovery.reservations import ReservationReader
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.settings import AwsSettings

__all__ = ["InterruptionSources"]

_READ_MARGIN: Final = timedelta(seconds=5)
"""Between the end of a long poll and that of the SDK's patience."""


@final
class InterruptionSources:
    """The queue, status checks and capacity blocks together; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        settings: AwsSettings,
        reader: InstanceReader,
        read_nodes: NodeReader,
        read_claims: ClaimReader,
        reservations: ReservationReader,
        offerings: UnavailableOfferings,
        count_unhealthy: Callable[[str], None],
    ) -> None:
        """`count_unhealthy` gets the category of each instance that is newly found unhealthy."""
        self.directory: Final = InstanceDirectory(
            reader, clock, cluster=settings.cluster_name, read_nodes=read_nodes
        )
        self.status: Final = InstanceStatusPoll(
            clients,
            clock,
            directory=self.directory,
            has_instances=lambda: _has_instances(read_claims(), read_nodes()),
            count=count_unhealthy,
        )
        self.blocks: Final = CapacityBlockPoll(
            clock, reservations=reservations, directory=self.directory, read_nodes=read_nodes
        )
        self.queue: Final = (
            InterruptionQueue(
                clients,
                clock,
                name=settings.interruption_queue,
                directory=self.directory,
                shortages=InterruptionShortages(
                    clock, offerings=offerings, reservations=reservations.reservation_counts
                ),
                wait_seconds=_longest_wait(clients),
            )
            if settings.interruption_queue
            else None
        )
        self._log: FilteringBoundLogger = structlog.get_logger("aws.interruption")

    def poll(self) -> Sequence[Interruption]:
        """Return all that was announced and not acknowledged.

        Status checks and blocks are answered from what their tasks last saw. The queue is waited
        for only when they have nothing to say.

        Raises:
            AuthError: the queue may not be read.
            CloudProviderError: there is no such queue, or AWS did not answer.
        """
        standing = self.standing()
        if self.queue is None:
            return standing
        try:
            said = self.queue.poll(wait=not standing)
        except CloudProviderError as error:
            # Interruptions from other sources do not wait until the queue works again.
            if not standing:
                raise
            self._log.warning("the interruption queue could not be read", error=str(error))
            said = ()
        # Anew: waiting for the queue takes a third of the tasks' period.
        return (*self.standing(), *said)

    def acknowledge(self, ids: Sequence[str]) -> None:
        """Announce these no more.

        Raises:
            CloudProviderError: a message could not be deleted from the queue.
        """
        self.status.announcements.acknowledge(ids)
        self.blocks.announcements.acknowledge(ids)
        if self.queue is not None:
            self.queue.acknowledge(ids)

    def standing(self) -> tuple[Interruption, ...]:
        """Return what status checks and blocks announce; never a call."""
        return (*self.status.announcements.waiting(), *self.blocks.announcements.waiting())


def _has_instances(claims: Mapping[str, NodeClaim], nodes: Mapping[str, NodeView]) -> bool:
    """Whether an instance may run: its NodeClaim is older than it, and goes after it."""
    return any(claim.spec.node_class_ref.group == GROUP for claim in claims.values()) or any(
        instance_id_of(node) for node in nodes.values()
    )


def _longest_wait(clients: CloudClients) -> int:
    """Return how long to wait for messages, in seconds: the SDK must not give up before SQS answers."""
    patience = timedelta(seconds=clients.limits.read_seconds) - _READ_MARGIN
    return max(min(LONGEST_WAIT_SECONDS, int(patience.total_seconds())), 0)
