"""The instance type catalogue that `karpenter_list_instance_types` returns.

Every NodePool requests a thousand types with half a dozen offerings each, every few minutes and on
every change. So the labels, capacity and overhead of a type are resolved once for all inputs that
they depend on, and a type that shows no difference, offerings included, is the very object of the
last answer.

Everything that an answer depends on is compared, so answers need not expire.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.catalogue import InstanceType
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_provider_alibabacloud.catalogue.offerings import (
    MarketState,
    OfferingRow,
    PriceList,
    offering_rows,
    offerings_of,
)
from karpenter_provider_alibabacloud.catalogue.resolution import (
    ResolvedType,
    TypeInputs,
    TypeResolver,
    node_class_key,
    spot_hours,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from karpenter_core.provider.kit.learned_memory import LearnedMemory
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.region_types import TypesByName
    from karpenter_provider_alibabacloud.catalogue.stock import RegionStock
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = ["CatalogueInputs", "InstanceTypeCatalogue", "PriceRevisions", "StockSource"]

_MOST_ENTRIES: Final = 32
"""So many NodeClasses that are resolved differently are kept, at some megabytes each."""
_IDLE_LIFE: Final = timedelta(minutes=15)
"""NodePools ask every five minutes; what nobody asked for is of a NodeClass that has changed."""


class PriceRevisions(PriceList, Protocol):
    """The methods of `prices.RegionPrices` that the catalogue uses."""

    @property
    def revision(self) -> int:
        """A number that grows whenever a price changes."""
        ...

    def watch_spot(self, hours: int) -> bool:
        """Read spot prices for that protected time too."""
        ...


class StockSource(Protocol):
    """The methods of `stock.StockReader` that the catalogue uses."""

    def current(self) -> tuple[RegionStock, int]:
        """Return the stock and a number that grows when it is another one."""
        ...

    def watch_spot(self, hours: int) -> bool:
        """Read the stock of spot for that protected time too."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueInputs:
    """The inputs that the caller reads for one answer."""

    now: datetime
    cluster: ClusterDetails


class _ListedType(NamedTuple):
    """A type as last listed."""

    resolved: ResolvedType
    rows: tuple[OfferingRow, ...]
    instance_type: InstanceType


class _ListedTypes(NamedTuple):
    """All types as last listed, and in what state of everything that they depend on."""

    state: Hashable
    listed: Mapping[str, _ListedType]
    types: tuple[InstanceType, ...]


@dataclass(slots=True, kw_only=True)
class _CacheEntry:
    """The types of one key; what changes is replaced, so readers need no lock."""

    name: str
    """Of the NodeClass that asked first."""
    resolver: TypeResolver
    used_at: datetime
    resolved: tuple[Hashable, Mapping[str, ResolvedType]] | None = None
    """The last resolved types, and their inputs."""
    answer: _ListedTypes | None = None
    before: Mapping[str, _ListedType] = field(default_factory=dict[str, _ListedType])
    """The types listed for the same NodeClass before it changed."""


@final
class InstanceTypeCatalogue:
    """Resolves the types of one region; callable from any thread."""

    def __init__(
        self,
        region: str,
        *,
        overhead_percent: float,
        types: Callable[[], tuple[TypesByName, int]],
        stock: StockSource,
        prices: PriceRevisions,
        unavailable_offerings: UnavailableOfferings,
        learned: LearnedMemory,
        reserved_left: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """`types` is `RegionTypeReader.current`, `reserved_left` returns a private pool's rest."""
        self._region: Final = region
        self._overhead_percent: Final = overhead_percent
        self._types: Final = types
        self._stock: Final = stock
        self._prices: Final = prices
        self._unavailable_offerings: Final = unavailable_offerings
        self._learned: Final = learned
        self._reserved_left: Final = reserved_left
        self._lock: Final = Lock()
        self._entries: Final[OrderedDict[Hashable, _CacheEntry]] = OrderedDict()

    def instance_types(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> tuple[InstanceType, ...]:
        """Return every type that the region sells, sorted by name, available or not.

        Types that the cluster's network does not take are left out.

        Raises:
            NodeClassNotReadyError: the NodeClass has found no vSwitches.
            BadInputError: `spec.kubeletConfiguration` cannot be used; names NodeClass, field, value.
            CloudProviderError: nothing is known of types or stock, and ECS refused or did not answer.
        """
        entry = self._entry(node_class, catalogue_inputs)
        # Revisions are read first: what changes meanwhile is then seen next time.
        prices = self._prices.revision
        shortages = self._unavailable_offerings.view(now=catalogue_inputs.now)
        stock, stock_revision = self._stock.current()
        basis, resolved = self._resolved(entry, node_class, catalogue_inputs, stock, stock_revision)
        pools = sorted({pool.id for it in resolved.values() for pool in it.sold.reservations})
        reserved_by_pool = {pool: self._reserved_left(pool) for pool in pools}
        state = (prices, shortages.revision, basis, tuple(reserved_by_pool.items()))
        answer = entry.answer
        if answer is not None and answer.state == state:
            return answer.types
        market = MarketState(
            stock=stock,
            prices=self._prices,
            shortages=shortages,
            reserved_left=lambda pool: reserved_by_pool.get(pool, 0),
        )
        listed = _list(resolved, market, entry.before if answer is None else answer.listed)
        types = tuple(item.instance_type for item in listed.values())
        if answer is not None and _are_same(types, answer.types):
            types = answer.types
        entry.answer, entry.before = _ListedTypes(state, listed, types), {}
        return types

    def max_pods(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> Callable[[str], int | None]:
        """Return a function from a type's name to its kubelet's limit of pods.

        None stands for what ACK's script does anyway; the type's capacity has the same number. What is
        returned raises CloudProviderError for a type that the region does not sell.

        Raises:
            As `instance_types`.
        """
        resolved = self._now(node_class, catalogue_inputs)
        return lambda name: self._find(resolved, name).max_pods

    def image_for(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> Callable[[str], str]:
        """Return a function from a type's name to the id of the image that its nodes boot.

        It is empty when the NodeClass has none that fits. What is returned raises CloudProviderError
        for a type that the region does not sell.

        Raises:
            As `instance_types`.
        """
        resolved = self._now(node_class, catalogue_inputs)
        return lambda name: self._find(resolved, name).image_id

    def learn_memory(
        self,
        node_class: ECSNodeClass,
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
        resolved = self._find(self._now(node_class, catalogue_inputs), instance_type)
        if not image_id or resolved.image_id != image_id:
            return False
        images = image_set([image_id])
        return self._learned.observe(instance_type, images, memory_bytes, now=catalogue_inputs.now)

    def _now(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> Mapping[str, ResolvedType]:
        entry = self._entry(node_class, catalogue_inputs)
        stock, revision = self._stock.current()
        return self._resolved(entry, node_class, catalogue_inputs, stock, revision)[1]

    def _find(self, resolved: Mapping[str, ResolvedType], name: str) -> ResolvedType:
        resolved_type = resolved.get(name)
        if resolved_type is None:
            raise CloudProviderError(f'instance type "{name}" is not sold in region {self._region}')
        return resolved_type

    def _entry(self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs) -> _CacheEntry:
        name = node_class.metadata.name
        if not node_class.status.v_switches:
            raise NodeClassNotReadyError(f'ECSNodeClass "{name}": no vSwitches found')
        hours = spot_hours(node_class.spec)
        self._stock.watch_spot(hours)
        self._prices.watch_spot(hours)
        now = catalogue_inputs.now
        key = node_class_key(node_class, catalogue_inputs.cluster)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                kin = next((e for e in reversed(self._entries.values()) if e.name == name), None)
                entry = self._entries[key] = _CacheEntry(
                    name=name,
                    resolver=TypeResolver(
                        node_class,
                        catalogue_inputs.cluster,
                        region=self._region,
                        overhead_percent=self._overhead_percent,
                    ),
                    used_at=now,
                    before={} if kin is None or kin.answer is None else kin.answer.listed,
                )
            entry.used_at = now
            self._entries.move_to_end(key)
            self._drop_unused(now)
        return entry

    def _drop_unused(self, now: datetime) -> None:
        """Call under the lock; the entry used last is at the end."""
        for key, entry in list(self._entries.items()):
            if len(self._entries) <= _MOST_ENTRIES and now - entry.used_at < _IDLE_LIFE:
                break
            del self._entries[key]

    def _resolved(
        self,
        entry: _CacheEntry,
        node_class: ECSNodeClass,
        catalogue_inputs: CatalogueInputs,
        stock: RegionStock,
        stock_revision: int,
    ) -> tuple[Hashable, Mapping[str, ResolvedType]]:
        """Return the types by name, and a value that is equal only for equal ones."""
        types, types_revision = self._types()
        seen = {
            image.id: self._learned.amounts(image_set([image.id]), now=catalogue_inputs.now)
            for image in node_class.status.images
        }
        amounts = tuple((image, tuple(sorted(of.items()))) for image, of in sorted(seen.items()))
        key = (types_revision, stock_revision, amounts)
        cached = entry.resolved
        if cached is not None and cached[0] == key:
            return cached
        before = dict[str, ResolvedType]() if cached is None else cached[1]
        types_by_name: dict[str, ResolvedType] = {}
        for name, info in types.items():
            if not entry.resolver.is_sold(info, stock):
                continue
            inputs = TypeInputs(
                info,
                stock.on_demand_listed.get(name, ()),
                stock.spot_listed.get(name, ()),
                {image: of[name] for image, of in seen.items() if name in of},
            )
            same = before.get(name)
            if same is None or same.inputs != inputs:
                same = _resolved_for(node_class, entry.resolver, inputs)
            types_by_name[name] = same
        entry.resolved = resolved = (key, types_by_name)
        return resolved


def _resolved_for(
    node_class: ECSNodeClass, resolver: TypeResolver, inputs: TypeInputs
) -> ResolvedType:
    """Resolve a type; who asks is told of its own NodeClass, whichever the resolver was made for."""
    try:
        return resolver.resolve(inputs)
    except ValueError as error:
        raise BadInputError(f'ECSNodeClass "{node_class.name}": {error}') from error


def _are_same(some: Sequence[InstanceType], others: Sequence[InstanceType]) -> bool:
    return len(some) == len(others) and all(
        it is other for it, other in zip(some, others, strict=True)
    )


def _list(
    resolved: Mapping[str, ResolvedType], market: MarketState, before: Mapping[str, _ListedType]
) -> dict[str, _ListedType]:
    listed: dict[str, _ListedType] = {}
    for name, item in resolved.items():
        rows = offering_rows(item.sold, market)
        listed_before = before.get(name)
        if (
            listed_before is not None
            and listed_before.rows == rows
            and listed_before.resolved.is_like(item)
        ):
            listed[name] = (
                listed_before
                if listed_before.resolved is item
                else listed_before._replace(resolved=item)
            )
        else:
            listed[name] = _ListedType(item, rows, _instance_type(item, rows))
    return listed


def _instance_type(item: ResolvedType, rows: tuple[OfferingRow, ...]) -> InstanceType:
    return InstanceType(
        name=item.sold.info.name,
        requirements=item.requirements,
        offerings=offerings_of(rows),
        capacity=item.capacity,
        overhead=item.overhead,
    )
