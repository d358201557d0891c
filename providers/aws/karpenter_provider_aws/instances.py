"""Leaves the instances of zones alone that traffic is shifted away from.

No news is believed from such a zone: its instances are shown as they were last listed or fetched, and
none is terminated. All other instances are the kit's.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import Instance, InstanceListing, TerminationStatus
from karpenter_core.provider.kit.instances.cluster_instances import (
    ClusterInstances as OpenClusterInstances,
)
from karpenter_core.provider.kit.launch.instance_claims import TaggedClaims
from karpenter_provider_aws.described_instances import parse_provider_id
from karpenter_provider_aws.instance_tags import CLAIM_TAGS
from karpenter_provider_aws.instance_terminator import InstanceTerminator, no_terminations_counted
from karpenter_provider_aws.zonal_shift import ZoneShiftedError, no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import FetchOutcome, TerminateOutcome
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_aws.described_instances import InstanceReader
    from karpenter_provider_aws.discovery.reservations import ReservationCounts
    from karpenter_provider_aws.instance_terminator import TerminationCounter
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["ClusterInstances"]


@final
class ClusterInstances:
    """The instances of one cluster; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        reader: InstanceReader,
        recent: RecentLaunches,
        owners: InstanceOwners,
        reservation_counts: ReservationCounts,
        shifts: Callable[[], ShiftedZones] = no_shifts,
        count_failure: TerminationCounter = no_terminations_counted,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
    ) -> None:
        """`shifts` is `ZonalShifts.zones`; the last two are methods of `AwsMetrics`."""
        self._shifts: Final = shifts
        self._instances: Final = OpenClusterInstances(
            clock,
            service="EC2",
            reader=reader,
            terminator=InstanceTerminator(
                clients, clock, count_failure=count_failure, observe_batch=observe_batch
            ),
            claims=TaggedClaims(CLAIM_TAGS, owners),
            recent=recent,
            shown_within=None,
            reservation_counts=reservation_counts,
        )
        self.find: Final = self._instances.find
        self.instance_id: Final = self._instances.instance_id
        self.last_listed: Final = self._instances.last_listed
        self._lock: Final = Lock()
        self._seen: dict[str, Instance] = {}
        """As last listed or fetched, by provider ID."""

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Return an instance or an error for each id, in their order.

        Raises:
            CloudProviderError: EC2 refused or did not answer.
        """
        outcomes: dict[str, FetchOutcome] = {**self._seen_in_shifted_zones()}
        asked = [text for text in dict.fromkeys(provider_ids) if text not in outcomes]
        fetched = dict(zip(asked, self._instances.fetch(asked), strict=True))
        with self._lock:
            for text, outcome in fetched.items():
                if isinstance(outcome, Instance):
                    self._seen[text] = outcome
                else:
                    self._seen.pop(text, None)
        outcomes |= fetched
        return [outcomes[text] for text in provider_ids]

    def list(self) -> InstanceListing:
        """Return every instance of the cluster, by provider ID.

        Raises:
            CloudProviderError: EC2 refused or did not answer.
        """
        listing = self._instances.list()
        shown = self._seen_in_shifted_zones()
        shown |= {instance.provider_id: instance for instance in listing.instances}
        with self._lock:
            self._seen = dict(shown) if listing.complete else {**self._seen, **shown}
        return InstanceListing(
            instances=tuple(shown[key] for key in sorted(shown)),
            complete=listing.complete,
            problem=listing.problem,
            as_of=listing.as_of,
        )

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Terminate instances, or report that they are gone, in the order of the ids.

        Raises:
            CloudProviderError: the instances could not be read; nothing was done.
        """
        shifted = self._shifts()
        outcomes: dict[str, TerminateOutcome] = {}
        for text in provider_ids:
            zone, name = _zone_and_id(text)
            if shifted.has(zone):
                outcomes[text] = ZoneShiftedError("termination", what=name, zone=zone)
        asked = [text for text in dict.fromkeys(provider_ids) if text not in outcomes]
        outcomes |= zip(asked, self._instances.terminate(asked), strict=True)
        with self._lock:
            for text in asked:
                if outcomes[text] is TerminationStatus.GONE:
                    self._seen.pop(text, None)
        return [outcomes[text] for text in provider_ids]

    def _seen_in_shifted_zones(self) -> dict[str, Instance]:
        """Return the last known instances of the zones that traffic is shifted away from."""
        shifted = self._shifts()
        if not shifted.names:
            return {}
        with self._lock:
            return {key: seen for key, seen in self._seen.items() if shifted.has(seen.zone)}


def _zone_and_id(text: str) -> tuple[str, str]:
    try:
        return parse_provider_id(text)
    except CloudProviderError:
        return "", ""
