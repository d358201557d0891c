"""The instance type catalogue that `karpenter_list_instance_types` returns.

Every NodePool requests over a thousand types with ten offerings each, every few minutes and on
every change. So the labels, capacity and overhead of a type are resolved once for all inputs that
they depend on, and offerings are rebuilt only for types whose prices, stock or reservations changed
since: a type that did not change is the very object of the last answer.

Everything that an answer depends on is part of a key, so answers need not expire. (The reference's
keys leave inputs out, and its answers live for five minutes.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from karpenter_core.errors import CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.catalogue import InstanceType, Offering
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_core.provider.kit.recent_entries import RecentEntries
from karpenter_core.provider.kit.type_listing import IDLE_LIFE, MOST_ENTRIES
from karpenter_provider_aws.catalogue.capacity import MIB
from karpenter_provider_aws.catalogue.offerings import RESOLVERS, MarketState, PriceList
from karpenter_provider_aws.catalogue.requirements import TypeRequirements
from karpenter_provider_aws.catalogue.resolution import ResolvedType, TypeResolver, node_class_key
from karpenter_provider_aws.families.images import image_for

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.provider.kit.learned_memory import LearnedMemory
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.catalogue.offerings import OfferingResolver, PurchasableType
    from karpenter_provider_aws.catalogue.region_types import RegionTypes
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.kubelet.sizing import Evaluate, KubeletSizing
    from karpenter_provider_aws.settings import AwsSettings

__all__ = ["CatalogueInputs", "InstanceTypeCatalogue", "PriceRevisions"]


class PriceRevisions(PriceList, Protocol):
    """The methods of `prices.RegionPrices` that the catalogue uses."""

    @property
    def revision(self) -> int:
        """A number that grows whenever a price changes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueInputs:
    """The inputs that the caller reads for one answer."""

    now: datetime
    group: DescribedPlacementGroup | None = None
    """The placement group of the NodeClass, if it selects one."""
    shifted_zones: frozenset[str] = frozenset()
    """Ids of zones that traffic is shifted away from."""


class _ListedType(NamedTuple):
    """A type as last listed, and in what state of prices, stock and reservations."""

    state: Hashable
    instance_type: InstanceType


@dataclass(slots=True, kw_only=True)
class _CacheEntry:
    """The types of one key; what changes is replaced, so readers need no lock."""

    origin: Hashable
    """The key without what was learned of memory."""
    memory: Mapping[str, int]
    """Observed memory: bytes by type."""
    resolved: Mapping[str, ResolvedType]
    reservations: tuple[str, ...]
    """Ids of all reservations of these types."""
    listed: Mapping[str, _ListedType]
    answer: tuple[Hashable, tuple[InstanceType, ...]] | None = None
    """The last answer, and in what state it was given."""


@final
class InstanceTypeCatalogue:
    """Resolves the types of one region; callable from any thread."""

    def __init__(
        self,
        region: str,
        settings: AwsSettings,
        *,
        source: Callable[[], tuple[RegionTypes, int]],
        prices: PriceRevisions,
        unavailable_offerings: UnavailableOfferings,
        learned: LearnedMemory,
        reserved_left: Callable[[str], int],
        evaluate: Evaluate | None = None,
        extensions: Sequence[OfferingResolver] = (),
    ) -> None:
        """`source` is `RegionCatalogue.current`, `reserved_left` is `AvailabilityBook.left`.

        `evaluate` evaluates kubelet expressions; None when their gate is off. `extensions` follow
        in the chain of resolvers, and are asked anew for every answer.
        """
        self._region: Final = region
        self._settings: Final = settings
        self._source: Final = source
        self._prices: Final = prices
        self._unavailable_offerings: Final = unavailable_offerings
        self._learned: Final = learned
        self._reserved_left: Final = reserved_left
        self._evaluate: Final = evaluate
        self._extensions: Final = tuple(extensions)
        self._lock: Final = Lock()
        self._entries: Final[RecentEntries[Hashable, _CacheEntry]] = RecentEntries(
            most=MOST_ENTRIES, idle_life=IDLE_LIFE
        )
        self._sets: tuple[int, TypeRequirements] = (0, TypeRequirements(region))
        """With the revision of the region that they are of."""

    def instance_types(
        self, node_class: EC2NodeClass, catalogue_inputs: CatalogueInputs
    ) -> tuple[InstanceType, ...]:
        """Return every type that the region sells, sorted by name, available or not.

        Raises:
            NodeClassNotReadyError: the NodeClass has found no subnets.
            BadInputError: `spec.kubelet` cannot be used; names NodeClass, field and value.
            CloudProviderError: nothing is known of the region, and EC2 refused or did not answer.
        """
        entry = self._entry(node_class, catalogue_inputs)
        # The revision is read first: prices that change meanwhile are then seen next time.
        prices = self._prices.revision
        shortages = self._unavailable_offerings.view(now=catalogue_inputs.now)
        reserved_by_id = {name: self._reserved_left(name) for name in entry.reservations}
        shifted = catalogue_inputs.shifted_zones
        state = (prices, shortages.revision, shifted, tuple(reserved_by_id.values()))
        answer = entry.answer
        if answer is not None and answer[0] == state and not self._extensions:
            return answer[1]
        market = MarketState(
            prices=self._prices,
            shortages=shortages,
            reserved_left=lambda name: reserved_by_id.get(name, 0),
            shifted_zones=shifted,
        )
        listed = _list(entry, market, (prices, shifted))
        types = tuple(item.instance_type for item in listed.values())
        entry.listed, entry.answer = listed, (state, types)
        return self._extended(types, entry, market) if self._extensions else types

    def sizing(
        self, node_class: EC2NodeClass, catalogue_inputs: CatalogueInputs
    ) -> Callable[[str], KubeletSizing]:
        """Return a function from a type's name to the sizing of its nodes' kubelet.

        The type's capacity has the same number of pods. What is returned raises CloudProviderError
        for a type that the region does not sell.

        Raises:
            As `instance_types`.
        """
        entry = self._entry(node_class, catalogue_inputs)
        return lambda name: self._resolved(entry, name).sizing

    def info(self, instance_type: str) -> InstanceTypeInfo:
        """Return EC2's facts of a type.

        Raises:
            CloudProviderError: the region does not sell it, or nothing is known of the region.
        """
        region, _ = self._source()
        info = region.types.get(instance_type)
        if info is None:
            raise _not_sold(instance_type, self._region)
        return info

    def learn_memory(
        self,
        node_class: EC2NodeClass,
        catalogue_inputs: CatalogueInputs,
        *,
        instance_type: str,
        image_id: str,
        memory_bytes: int,
    ) -> bool:
        """Note how much memory a node that has registered reports; True if types are changed by it.

        A node with another image than the NodeClass would choose for the type today teaches nothing.

        Raises:
            CloudProviderError: the region does not sell the type; or as `instance_types`.
        """
        resolved = self._resolved(self._entry(node_class, catalogue_inputs), instance_type)
        image = image_for(_instance_type(resolved, ()), node_class.status.amis)
        if image is None or image.id != image_id:
            return False
        images = image_set(ami.id for ami in node_class.status.amis)
        return self._learned.observe(
            instance_type,
            images,
            memory_bytes,
            sold_bytes=self.info(instance_type).memory_mib * MIB,
            now=catalogue_inputs.now,
        )

    def _resolved(self, entry: _CacheEntry, instance_type: str) -> ResolvedType:
        resolved = entry.resolved.get(instance_type)
        if resolved is None:
            raise _not_sold(instance_type, self._region)
        return resolved

    def _extended(
        self, types: Iterable[InstanceType], entry: _CacheEntry, market: MarketState
    ) -> tuple[InstanceType, ...]:
        return tuple(
            replace(it, offerings=_resolve(self._extensions, resolved.sold, it.offerings, market))
            for it, resolved in zip(types, entry.resolved.values(), strict=True)
        )

    def _entry(self, node_class: EC2NodeClass, catalogue_inputs: CatalogueInputs) -> _CacheEntry:
        if not node_class.status.subnets:
            raise NodeClassNotReadyError(
                f'EC2NodeClass "{node_class.metadata.name}": no subnets found'
            )
        now = catalogue_inputs.now
        region, revision = self._source()
        images = image_set(ami.id for ami in node_class.status.amis)
        memory = self._learned.amounts(images, now=now)
        origin = (revision, node_class_key(node_class, catalogue_inputs.group))
        key = (origin, tuple(sorted(memory.items())))
        entry = self._entries.get(key, now=now)
        if entry is not None:
            return entry
        with self._lock:
            if self._sets[0] != revision:
                self._sets = (revision, TypeRequirements(self._region))
            sets = self._sets[1]
        kin = self._entries.latest(lambda each: each.origin == origin)
        resolver = TypeResolver(
            node_class,
            self._settings,
            sets,
            group=catalogue_inputs.group,
            evaluate=self._evaluate,
        )
        if kin is None:
            resolved = resolver.resolve(region, region.types, memory)
            listed = dict[str, _ListedType]()
        else:
            # The instances that boot in a burst teach one type after the other: the rest stays.
            changed = [n for n in region.types if kin.memory.get(n) != memory.get(n)]
            resolved = {**kin.resolved, **resolver.resolve(region, changed, memory)}
            listed = {n: item for n, item in kin.listed.items() if n not in changed}
        ids = {r.id for item in resolved.values() for r in item.sold.reservations}
        entry = _CacheEntry(
            origin=origin,
            memory=memory,
            resolved=resolved,
            reservations=tuple(sorted(ids)),
            listed=listed,
        )
        return self._entries.put(key, entry, now=now)


def _not_sold(instance_type: str, region: str) -> CloudProviderError:
    return CloudProviderError(f'instance type "{instance_type}" is not sold in region {region}')


def _list(entry: _CacheEntry, market: MarketState, shared: Hashable) -> dict[str, _ListedType]:
    """List every type; `shared` is the part of their state that all have in common."""
    before = entry.listed
    listed: dict[str, _ListedType] = {}
    states: dict[Hashable, Hashable] = {}
    for name, item in entry.resolved.items():
        state = (
            shared,
            market.shortages.sequence(name),
            tuple(market.reserved_left(r.id) for r in item.sold.reservations),
        )
        listed_before = before.get(name)
        if listed_before is None or listed_before.state != state:
            offerings = _resolve(RESOLVERS, item.sold, (), market)
            state = states.setdefault(state, state)
            listed_before = _ListedType(state, _instance_type(item, offerings))
        listed[name] = listed_before
    return listed


def _instance_type(item: ResolvedType, offerings: tuple[Offering, ...]) -> InstanceType:
    return InstanceType(
        name=item.sold.name,
        requirements=item.requirements,
        offerings=offerings,
        capacity=item.capacity,
        overhead=item.overhead,
    )


def _resolve(
    resolvers: Iterable[OfferingResolver],
    sold: PurchasableType,
    offerings: tuple[Offering, ...],
    market: MarketState,
) -> tuple[Offering, ...]:
    for resolver in resolvers:
        offerings = resolver(sold, offerings, market)
    return offerings
