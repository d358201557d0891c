"""Fetches, lists, terminates and tags the cluster's instances.

An instance that EC2 does not show is gone, with two exceptions: EC2 may not show yet what this
process launched a moment ago, and no news is believed from a zone that traffic is shifted away
from.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import InstanceListing, TerminationStatus
from karpenter_provider_aws.described_instances import (
    DescribedInstance,
    parse_provider_id,
    to_instance,
)
from karpenter_provider_aws.instance_tags import CLAIM_TAGS
from karpenter_provider_aws.instance_terminator import InstanceTerminator
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NAME_TAG, NODE_CLAIM_TAG
from karpenter_provider_aws.zonal_shift import ZoneShiftedError, no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.provider.contract import (
        FetchOutcome,
        Instance,
        TerminateOutcome,
    )
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_aws.described_instances import InstanceReader
    from karpenter_provider_aws.discovery.reservations import ReservationCounts
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["ClusterInstances", "TerminationCounter", "no_terminations_counted"]

_TAGS_IN_THE_END: Final = frozenset({NAME_TAG, NODE_CLAIM_TAG, EKS_CLUSTER_NAME_TAG})


class TerminationCounter(Protocol):
    """Counts instances that could not be terminated (`AwsMetrics.count_termination_failure`)."""

    def __call__(self, *, zone: str, zone_id: str) -> None:
        """Count one."""
        ...


def no_terminations_counted(*, zone: str, zone_id: str) -> None:
    """Count nothing."""


@final
class ClusterInstances:
    """The instances of one cluster; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
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
        self._reader: Final = reader
        self._recent: Final = recent
        self._owners: Final = owners
        self._reservation_counts: Final = reservation_counts
        self._shifts: Final = shifts
        self._count_failure: Final = count_failure
        self._terminations: Final = InstanceTerminator(clients, observe_batch=observe_batch)
        self._lock: Final = Lock()
        self._seen: dict[str, Instance] = {}
        """As last listed or fetched, by instance id."""
        self._tagged: frozenset[str] = frozenset()
        """Ids of those that had all their tags when they were last listed."""
        self._reserved: Final[dict[str, str]] = {}
        """Reservations of instances that were asked to go, by instance id."""

    # -- look ------------------------------------------------------------------------------------

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Return an instance or an error for each id, in their order.

        Raises:
            CloudProviderError: EC2 refused or did not answer.
        """
        parsed = [_parse_ids(text) for text in provider_ids]
        shifted = self._shifts()
        known_before = self._not_terminated(shifted)
        instance_ids = [
            key[1]
            for key in parsed
            if not isinstance(key, CloudProviderError) and key[1] not in known_before
        ]
        described = self._reader.of_ids(instance_ids) if instance_ids else {}
        shown = known_before | self._visible_instances(described.values())
        outcomes: list[FetchOutcome] = []
        for key in parsed:
            if isinstance(key, CloudProviderError):
                outcomes.append(key)
                continue
            instance = shown.get(key[1]) or self._not_yet_visible(key[1], described)
            outcomes.append(instance or NodeClaimNotFoundError(f"instance {key[1]} does not exist"))
        with self._lock:
            self._seen |= shown
            for name in instance_ids:
                if name not in shown:
                    self._seen.pop(name, None)
        return outcomes

    def list(self) -> InstanceListing:
        """Return every instance of the cluster, by provider id.

        Raises:
            CloudProviderError: EC2 refused or did not answer.
        """
        listing = self._reader.of_cluster()
        described = {instance.id: instance for instance in listing.instances}
        shown = self._visible_instances(described.values())
        for name in self._recent.all():
            if name not in shown and (unseen := self._not_yet_visible(name, described)) is not None:
                shown[name] = unseen
        shown = self._not_terminated(self._shifts()) | shown
        tagged = frozenset(n for n, i in described.items() if i.tags.keys() >= _TAGS_IN_THE_END)
        with self._lock:
            self._seen = {**self._seen, **shown} if listing.problem else dict(shown)
            self._tagged = tagged
        if not listing.problem:
            self._terminations.keep_only(shown)
        instances = sorted(shown.values(), key=lambda instance: instance.provider_id)
        return InstanceListing(
            instances=tuple(instances), complete=not listing.problem, problem=listing.problem
        )

    def is_tagged(self, instance_id: str) -> bool:
        """Whether an instance had all its tags when instances were last listed; never a call."""
        with self._lock:
            return instance_id in self._tagged

    def _visible_instances(self, described: Iterable[DescribedInstance]) -> dict[str, Instance]:
        """Return the instances that are not gone; what was seen to go is not recent any more."""
        described = tuple(described)
        owners = CLAIM_TAGS.owners_of({it.id: it.tags for it in described}, self._owners())
        shown: dict[str, Instance] = {}
        for instance in described:
            if instance.is_gone:
                self._recent.forget(instance.id)
            else:
                shown[instance.id] = to_instance(instance, owners.get(instance.id))
        return shown

    def _not_yet_visible(
        self, name: str, described: Mapping[str, DescribedInstance]
    ) -> Instance | None:
        """Return an instance that was just launched and that EC2 does not show yet."""
        launch = self._recent.get(name)
        return None if launch is None or name in described else launch.instance

    def _not_terminated(self, shifted: ShiftedZones) -> dict[str, Instance]:
        """Return what is known of the zones that traffic is shifted away from."""
        if not shifted.names:
            return {}
        with self._lock:
            return {key: seen for key, seen in self._seen.items() if shifted.has(seen.zone)}

    # -- the end ---------------------------------------------------------------------------------

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Ask instances to go, or say that they are gone, in the order of the ids.

        Raises:
            CloudProviderError: EC2 could not be asked which are there; nothing was done.
        """
        shifted = self._shifts()
        outcomes: dict[str, TerminateOutcome] = {}
        ids: dict[str, str] = {}
        for text in dict.fromkeys(provider_ids):
            key = _parse_ids(text)
            if isinstance(key, CloudProviderError):
                outcomes[text] = key
            elif shifted.has(key[0]):
                outcomes[text] = ZoneShiftedError("termination", what=key[1], zone=key[0])
            else:
                ids[text] = key[1]
        described = self._reader.of_ids(ids.values()) if ids else {}
        here = {n: i for n, i in described.items() if not i.is_gone}
        leaving = {name for name, instance in here.items() if instance.is_leaving}
        results = self._terminate_described({n: i for n, i in here.items() if n not in leaving})
        for text, name in ids.items():
            if name in leaving:
                outcomes[text] = TerminationStatus.STARTED
            elif name in results:
                outcomes[text] = results[name]
            elif self._not_yet_visible(name, described) is not None:
                outcomes[text] = CloudProviderError(
                    f"instance {name} was just launched, and EC2 does not list it yet"
                )
            else:
                outcomes[text] = self._note_gone(name)
        return [outcomes[text] for text in provider_ids]

    def _terminate_described(
        self, instances: Mapping[str, DescribedInstance]
    ) -> dict[str, TerminateOutcome]:
        outcomes = self._terminations.start(instances)
        for name, outcome in outcomes.items():
            instance = instances[name]
            if isinstance(outcome, CloudProviderError):
                self._count_failure(zone=instance.zone, zone_id=instance.zone_id)
            elif instance.capacity_type == RESERVED:
                with self._lock:
                    self._reserved[name] = instance.reservation_id
        return outcomes

    def _note_gone(self, name: str) -> TerminationStatus:
        """Note that an instance is gone: a reservation has room again."""
        self._recent.forget(name)
        with self._lock:
            self._seen.pop(name, None)
            reservation = self._reserved.pop(name, "")
        if reservation:
            self._reservation_counts.note_terminated(reservation)
        return TerminationStatus.GONE


def _parse_ids(text: str) -> tuple[str, str] | CloudProviderError:
    try:
        return parse_provider_id(text)
    except CloudProviderError as error:
        return error
