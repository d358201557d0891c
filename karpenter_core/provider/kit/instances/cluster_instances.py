"""Fetches, lists and terminates the instances of a cluster.

A cloud shows a new instance with a delay. So the absence of an instance that this process launched is
its end only if the cloud has shown the instance before, or shows all it has launched by now. A cloud
that goes on describing terminated instances says itself when one is gone; there, absence means nothing
while a launch is remembered.

If the tags of an instance name all claims of its launch call, its own claim is found by a listing of all
instances of that call: the whole cluster is listed where the last listing does not have them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, Protocol, final

from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.provider.contract import Instance, InstanceListing, TerminationStatus
from karpenter_core.provider.kit.instances.described import Described, Described_contra
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import FetchOutcome, TerminateOutcome
    from karpenter_core.provider.kit.instances.described import InstanceReader, OwnerReader
    from karpenter_core.provider.kit.recent_launches import ClaimRef, RecentLaunches
    from karpenter_core.provider.kit.reservation_counts import ReservationCounts

__all__ = ["ClusterInstances", "FoundInstances", "Terminator"]

_SEEN_KEPT: Final = timedelta(hours=1)
"""Longer than `RecentLaunches` remembers a launch."""


class Terminator(Protocol[Described_contra]):
    """Terminates instances (`BatchTerminator`)."""

    def start(self, instances: Mapping[str, Described_contra]) -> Mapping[str, TerminateOutcome]:
        """Terminate described instances; return an outcome for each, by id."""
        ...

    def forget(self, instance_id: str) -> None:
        """Drop what is remembered of an instance that is gone."""
        ...

    def keep_only(self, instance_ids: Collection[str]) -> None:
        """Drop what is remembered of all instances but these."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInstances(Generic[Described]):
    """Instances that were looked up by id; those in neither field are gone."""

    present: Mapping[str, Described]
    """Instances that exist, by id."""
    hidden: frozenset[str]
    """Instances that were just launched, and that the cloud does not show yet."""
    service: str
    """The cloud's name, for messages."""

    def absence_error(self, instance_id: str) -> CloudProviderError:
        """Return the error for an instance that is not present."""
        if instance_id in self.hidden:
            return CloudProviderError(
                f"instance {instance_id} was just launched, and {self.service} does not list it yet"
            )
        return NodeClaimNotFoundError(f"instance {instance_id} does not exist")


@final
class ClusterInstances(Generic[Described]):
    """The instances of one cluster; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        service: str,
        reader: InstanceReader[Described],
        terminator: Terminator[Described],
        claims: OwnerReader[Described],
        recent: RecentLaunches,
        shown_within: timedelta | None,
        reservation_counts: ReservationCounts | None = None,
        on_listed: Callable[[Sequence[Described]], None] = lambda _listed: None,
    ) -> None:
        """`service` is the cloud's name for messages.

        By `shown_within` after its launch an instance is shown; None for a cloud that describes
        terminated instances. `on_listed` gets all instances whenever all could be listed.
        """
        self._clock: Final = clock
        self._service: Final = service
        self._reader: Final = reader
        self._terminator: Final = terminator
        self._claims: Final = claims
        self._recent: Final = recent
        self._shown_within: Final = shown_within
        self._reservation_counts: Final = reservation_counts
        self._on_listed: Final = on_listed
        self._lock: Final = Lock()
        self._listed: Mapping[str, Described] = {}
        """As last listed, by instance id."""
        self._owners: Mapping[str, ClaimRef] = {}
        """Claims of the instances, as last listed."""
        self._has_listed = False
        self._seen: Final[TtlCache[str, float]] = TtlCache(clock, _SEEN_KEPT)
        """Times at which the cloud first showed instances, by the monotonic clock."""
        self._reserved: Final[dict[str, str]] = {}
        """Reservations of instances that are being terminated, by instance id."""

    # -- reading ---------------------------------------------------------------------------------

    def instance_id(self, provider_id: str) -> str:
        """Return the id of an instance.

        Raises:
            CloudProviderError: the text is no name of an instance of this cloud.
        """
        return self._reader.instance_id(provider_id)

    def find(self, instance_ids: Iterable[str]) -> FoundInstances[Described]:
        """Look instances up by one reading.

        Raises:
            CloudProviderError: the cloud refused or did not answer.
        """
        ids = frozenset(instance_ids)
        asked_at = self._clock.monotonic()
        described: Mapping[str, Described] = self._reader.of_ids(ids) if ids else {}
        self._note_seen(described)
        present = {name: each for name, each in described.items() if not each.is_gone}
        hidden = frozenset(
            name for name in ids - described.keys() if self.is_hidden(name, asked_at=asked_at)
        )
        for name in ids - present.keys() - hidden:
            self._recent.forget(name)
        return FoundInstances(present=present, hidden=hidden, service=self._service)

    def fetch(self, provider_ids: Sequence[str]) -> list[FetchOutcome]:
        """Return an instance or an error for each id, in their order.

        Raises:
            CloudProviderError: the cloud refused or did not answer.
        """
        ids, errors = self._parse(provider_ids)
        found = self.find(ids.values())
        owners = self._owners_among(found.present)
        outcomes: dict[str, FetchOutcome] = {**errors}
        for text, name in ids.items():
            launch = self._recent.get(name) if self._shown_within is None else None
            if name in found.present:
                outcomes[text] = self._instance(found.present[name], owners)
            elif name in found.hidden and launch is not None:
                # Were it terminated, the cloud would say so.
                outcomes[text] = launch.instance
            else:
                outcomes[text] = found.absence_error(name)
        return [outcomes[text] for text in provider_ids]

    def list(self) -> InstanceListing:
        """Return every instance of the cluster, by provider ID.

        Raises:
            CloudProviderError: the cloud refused or did not answer.
        """
        asked_at = self._clock.monotonic()
        listing = self._reader.of_cluster()
        if listing.as_of is not None:
            age = self._clock.now() - listing.as_of
            asked_at = min(asked_at, self._clock.monotonic() - age.total_seconds())
        is_complete = not listing.problem
        described = {instance.id: instance for instance in listing.instances}
        self._note_seen(described)
        owners = self._claims.owners(listing.instances)
        present = {name: each for name, each in described.items() if not each.is_gone}
        shown = {name: self._instance(each, owners) for name, each in present.items()}
        for name, launch in self._recent.all().items():
            if name in present:
                continue
            if name not in described and self.is_hidden(name, asked_at=asked_at):
                shown[name] = launch.instance
            elif is_complete or name in described:
                self._recent.forget(name)
        with self._lock:
            # Instances that could not be read are as they were.
            self._listed = present if is_complete else {**self._listed, **present}
            self._owners = owners if is_complete else {**self._owners, **owners}
            self._has_listed = True
        if is_complete:
            if listing.as_of is None:
                self._terminator.keep_only(shown)
            self._on_listed(tuple(present.values()))
        instances = sorted(shown.values(), key=lambda instance: instance.provider_id)
        return InstanceListing(
            instances=tuple(instances),
            complete=is_complete,
            problem=listing.problem,
            as_of=listing.as_of,
        )

    def last_listed(self) -> Mapping[str, Described]:
        """Return the instances as they were last listed, by id; never a call."""
        with self._lock:
            return self._listed

    def is_hidden(self, instance_id: str, *, asked_at: float) -> bool:
        """Whether the cloud, asked at this monotonic time, may only not have shown an instance yet.

        Never a call.
        """
        launch = self._recent.get(instance_id)
        if launch is None or self._shown_within is None:
            return launch is not None
        seen_at = self._seen.get(instance_id)
        if seen_at is not None:
            return seen_at > asked_at
        launched_at = launch.instance.created
        if launched_at is None:
            return True
        since = timedelta(seconds=self._clock.monotonic() - asked_at)
        return self._clock.now() - since - launched_at < self._shown_within

    def _note_seen(self, instance_ids: Iterable[str]) -> None:
        now = self._clock.monotonic()
        for name in instance_ids:
            if self._seen.get(name) is None:
                self._seen.put(name, now)

    def _parse(
        self, provider_ids: Iterable[str]
    ) -> tuple[dict[str, str], dict[str, CloudProviderError]]:
        """Return the instance ids by provider ID, and the errors of those that have none."""
        ids: dict[str, str] = {}
        errors: dict[str, CloudProviderError] = {}
        for text in dict.fromkeys(provider_ids):
            try:
                ids[text] = self._reader.instance_id(text)
            except CloudProviderError as error:
                errors[text] = error
        return ids, errors

    def _instance(self, described: Described, owners: Mapping[str, ClaimRef]) -> Instance:
        """Return an instance as the contract has it.

        The time of a launch by this process is exact; some clouds tell minutes only.
        """
        owner, launch = owners.get(described.id), self._recent.get(described.id)
        _, claims = self._claims.claims_of_call(described)
        instance = Instance(
            provider_id=self._reader.provider_id(described),
            node_claim="" if owner is None else owner.name,
            token="" if owner is None else owner.uid,
            launched_for=tuple(claim.uid for claim in claims if claim.uid),
            instance_type=described.instance_type,
            zone=described.zone,
            capacity_type=described.capacity_type,
            image_id=described.image_id,
            created=described.launched_at,
            terminating=described.is_leaving,
        )
        if launch is None or launch.instance.created is None:
            return instance
        return replace(instance, created=launch.instance.created)

    def _owners_among(self, described: Mapping[str, Described]) -> Mapping[str, ClaimRef]:
        """Return the claims of some instances, by instance id."""
        if not described:
            return {}
        owners = dict(self._claims.known_owners())
        settled = {claim.uid for claim in owners.values() if claim.uid}
        undecided: list[str] = []
        for name, instance in described.items():
            _, claims = self._claims.claims_of_call(instance)
            if name in owners or not claims or not self._reader.is_ours(instance):
                continue
            if len(claims) > 1:
                undecided.append(name)
            elif claims[0].uid not in settled:
                owners[name] = claims[0]
        if not undecided:
            return owners
        with self._lock:
            is_known = self._has_listed and all(name in self._listed for name in undecided)
        if not is_known:
            self.list()
        with self._lock:
            return {**self._owners, **owners}

    # -- termination -----------------------------------------------------------------------------

    def terminate(self, provider_ids: Sequence[str]) -> list[TerminateOutcome]:
        """Terminate instances, or report that they are gone, in the order of the ids.

        Raises:
            CloudProviderError: the instances could not be read; nothing was done.
        """
        ids, errors = self._parse(provider_ids)
        found = self.find(ids.values())
        outcomes: dict[str, TerminateOutcome] = {**self._terminator.start(found.present)}
        for name, instance in found.present.items():
            if outcomes[name] is TerminationStatus.STARTED and instance.reservation_id:
                with self._lock:
                    self._reserved[name] = instance.reservation_id
        for name in dict.fromkeys(ids.values()):
            if name in found.hidden:
                outcomes[name] = found.absence_error(name)
            elif name not in found.present:
                outcomes[name] = self._note_gone(name)
        return [errors[text] if text in errors else outcomes[ids[text]] for text in provider_ids]

    def _note_gone(self, name: str) -> TerminationStatus:
        """Note that an instance is gone: its reservation has free capacity again."""
        self._terminator.forget(name)
        with self._lock:
            reservation = self._reserved.pop(name, "")
        if reservation and self._reservation_counts is not None:
            self._reservation_counts.note_terminated(reservation)
        return TerminationStatus.GONE
