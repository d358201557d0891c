"""Fetches, lists and terminates the cluster's instances.

ECS does not describe instances that are gone, nor, for some seconds, new ones. So the absence of an
instance that this process launched less than a minute ago and has not seen yet means nothing; once
the instance was seen, its absence is its end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import InstanceListing, TerminationStatus
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.described_instances import (
    VISIBLE_WITHIN,
    parse_provider_id,
    to_instance,
)
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.instance_terminator import InstanceTerminator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import FetchOutcome, Instance, TerminateOutcome
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches
    from karpenter_core.provider.kit.reservation_counts import ReservationCounts
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["ClusterInstances"]

_SEEN_KEPT: Final = timedelta(hours=1)


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
        on_listed: Callable[[Sequence[DescribedInstance]], None] = lambda _listed: None,
        observe_batch: Callable[[str, int], None] = lambda _batcher, _size: None,
    ) -> None:
        """`on_listed` is told all instances whenever all could be listed.

        Instances that are asked to go are not among them. `observe_batch` is a method of
        `AlibabaCloudMetrics`.
        """
        self._clock: Final = clock
        self._reader: Final = reader
        self._recent: Final = recent
        self._claim_owners: Final = owners
        self._reservation_counts: Final = reservation_counts
        self._on_listed: Final = on_listed
        self._lock: Final = Lock()
        self._listed: dict[str, DescribedInstance] = {}
        """As last listed, by instance id."""
        self._owners: Mapping[str, ClaimRef] = {}
        """Claims of the instances."""
        self._has_listed = False
        self._seen: Final[TtlCache[str, float]] = TtlCache(clock, _SEEN_KEPT)
        """When ECS described an instance first, by the monotonic clock; kept longer than `recent`
        remembers launches."""
        self._deletions: Final = InstanceTerminator(clients, clock, observe_batch=observe_batch)
        self._reserved: Final[dict[str, str]] = {}
        """Private pools of instances that were asked to go, by instance id."""

    # -- look ------------------------------------------------------------------------------------

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Return an instance or an error for each id, in their order.

        Raises:
            CloudProviderError: ECS refused or did not answer.
        """
        parsed = [self._parse_id(text) for text in provider_ids]
        instance_ids = [key for key in parsed if isinstance(key, str)]
        asked_at = self._clock.monotonic()
        described = self._reader.of_ids(instance_ids) if instance_ids else {}
        self._note_seen(described.values())
        owners = self._owners_among(described)
        outcomes: list[FetchOutcome] = []
        for key in parsed:
            if not isinstance(key, str):
                outcomes.append(key)
            elif key in described:
                outcomes.append(self._instance(described[key], owners.get(key)))
            elif self.is_hidden(key, asked_at=asked_at):
                outcomes.append(_not_yet_visible(key))
            else:
                self._recent.forget(key)
                outcomes.append(NodeClaimNotFoundError(f"instance {key} does not exist"))
        return outcomes

    def list(self) -> InstanceListing:
        """Return every instance of the cluster, by provider id.

        Raises:
            CloudProviderError: ECS refused or did not answer.
        """
        asked_at = self._clock.monotonic()
        listing = self._reader.of_cluster()
        described = {instance.id: instance for instance in listing.instances}
        self._note_seen(described.values())
        owners = CLAIM_TAGS.owners_of(
            {name: each.tags for name, each in described.items()}, self._claim_owners()
        )
        shown = [self._instance(each, owners.get(each.id)) for each in described.values()]
        for name, launch in self._recent.all().items():
            if name in described:
                continue
            if self.is_hidden(name, asked_at=asked_at):
                shown.append(launch.instance)
            elif not listing.problem:
                self._recent.forget(name)
        with self._lock:
            # What could not be read is as it was.
            self._listed = {**self._listed, **described} if listing.problem else described
            self._owners = {**self._owners, **owners} if listing.problem else owners
            self._has_listed = True
        if not listing.problem:
            self._on_listed([e for e in listing.instances if not self._deletions.is_started(e.id)])
        instances = sorted(shown, key=lambda instance: instance.provider_id)
        return InstanceListing(
            instances=tuple(instances), complete=not listing.problem, problem=listing.problem
        )

    def last_listed(self) -> Mapping[str, DescribedInstance]:
        """Return the instances as they were last listed, by id; never a call."""
        with self._lock:
            return self._listed

    def is_hidden(self, instance_id: str, *, asked_at: float) -> bool:
        """Whether ECS, asked at a time of the monotonic clock, may only not have shown it yet.

        Never a call.
        """
        launch = self._recent.get(instance_id)
        if launch is None:
            return False
        seen_at = self._seen.get(instance_id)
        if seen_at is not None:
            return seen_at > asked_at
        launched_at = launch.instance.created
        return launched_at is None or self._clock.now() - launched_at < VISIBLE_WITHIN

    def _note_seen(self, described: Iterable[DescribedInstance]) -> None:
        now = self._clock.monotonic()
        for instance in described:
            if self._seen.get(instance.id) is None:
                self._seen.put(instance.id, now)

    def _instance(self, described: DescribedInstance, owner: ClaimRef | None) -> Instance:
        """Return an instance, with the moment of its launch where it is known to the second."""
        shown = to_instance(described, owner, region=self._reader.region)
        launch = self._recent.get(described.id)
        return shown if launch is None else _created(shown, launch.instance.created)

    def _owners_among(self, described: Mapping[str, DescribedInstance]) -> Mapping[str, ClaimRef]:
        """Return whose some instances are.

        To tell one of a group of several the whole cluster must have been listed.
        """
        owners = dict(self._claim_owners())
        settled = {claim.uid for claim in owners.values() if claim.uid}
        undecided: list[str] = []
        for name, instance in described.items():
            claims = CLAIM_TAGS.claims_of(instance.tags)
            if name in owners or not claims or not self._reader.is_ours(instance):
                continue
            if len(claims) == 1:
                if claims[0].uid not in settled:
                    owners[name] = claims[0]
            else:
                undecided.append(name)
        if not undecided:
            return owners
        with self._lock:
            is_known = self._has_listed and all(name in self._listed for name in undecided)
        if not is_known:
            self.list()
        with self._lock:
            return {**self._owners, **owners}

    def _parse_id(self, text: str) -> str | CloudProviderError:
        """Return the instance's id; one of another region cannot be told from one that is gone."""
        try:
            region, name = parse_provider_id(text)
        except CloudProviderError as error:
            return error
        ours = self._reader.region
        if region != ours:
            return CloudProviderError(f'instance {name} is in region "{region}", not in "{ours}"')
        return name

    # -- the end ---------------------------------------------------------------------------------

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Ask instances to go, or say that they are gone, in the order of the ids.

        One that is still being made cannot be deleted: it counts as started, and is deleted when
        it is asked for again.

        Raises:
            CloudProviderError: ECS could not be asked which are there; nothing was done.
        """
        outcomes: dict[str, TerminateOutcome] = {}
        ids: dict[str, str] = {}
        for text in dict.fromkeys(provider_ids):
            key = self._parse_id(text)
            if isinstance(key, str):
                ids[text] = key
            else:
                outcomes[text] = key
        asked_at = self._clock.monotonic()
        described = self._reader.of_ids(ids.values()) if ids else {}
        self._note_seen(described.values())
        results = self._terminate_described(described)
        for text, name in ids.items():
            if name in results:
                outcomes[text] = results[name]
            elif self.is_hidden(name, asked_at=asked_at):
                outcomes[text] = _not_yet_visible(name)
            else:
                outcomes[text] = self._note_gone(name)
        return [outcomes[text] for text in provider_ids]

    def _terminate_described(
        self, described: Mapping[str, DescribedInstance]
    ) -> dict[str, TerminateOutcome]:
        outcomes = self._deletions.start(described)
        for name, instance in described.items():
            if self._deletions.is_started(name) and instance.reservation_id:
                with self._lock:
                    self._reserved[name] = instance.reservation_id
        return outcomes

    def _note_gone(self, name: str) -> TerminationStatus:
        """Note that an instance is gone: its private pool has free capacity again."""
        self._recent.forget(name)
        self._deletions.forget(name)
        with self._lock:
            reservation = self._reserved.pop(name, "")
        if reservation:
            self._reservation_counts.note_terminated(reservation)
        return TerminationStatus.GONE


def _not_yet_visible(name: str) -> CloudProviderError:
    return CloudProviderError(f"instance {name} was just launched, and ECS does not list it yet")


def _created(instance: Instance, moment: datetime | None) -> Instance:
    return instance if moment is None else replace(instance, created=moment)
