"""The instance type catalogue that `karpenter_list_instance_types` returns.

Every NodePool requests a thousand sizes with eight offerings each, every few minutes and on every
change. So labels, capacity and overhead of a size are resolved once for all NodeClasses with the same
traits, and a size that shows no difference, offerings included, is the very object of the last answer.

Everything that an answer depends on is compared, so answers need not expire.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.catalogue import InstanceType
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_provider_azure.catalogue.class_traits import ClassTraits, class_exclusion, traits_of
from karpenter_provider_azure.catalogue.offerings import (
    MarketState,
    OfferingRow,
    PriceList,
    is_open,
    offering_rows,
    offerings_of,
)
from karpenter_provider_azure.catalogue.resolution import ResolvedType, TypeInputs, TypeResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import Offering
    from karpenter_core.provider.kit.learned_memory import LearnedMemory
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.quotas import QuotaSnapshot
    from karpenter_provider_azure.catalogue.region_sizes import SizesByName
    from karpenter_provider_azure.catalogue.vm_sizes import VmSize

__all__ = ["CatalogueSettings", "InstanceTypeCatalogue", "PriceRevisions", "QuotaSource"]

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


class QuotaSource(Protocol):
    """The method of `quotas.RegionQuotas` that the catalogue uses."""

    def view(self) -> QuotaSnapshot:
        """Return the quotas."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSettings:
    """The settings that instance types depend on."""

    location: str
    cluster: str = ""
    """Value of the label `kubernetes.azure.com/cluster`."""
    overhead_percent: float = 0.075
    network_plugin: str = "azure"
    network_plugin_mode: str = "overlay"


class _ListedType(NamedTuple):
    """A type as last listed."""

    resolved: ResolvedType
    rows: tuple[OfferingRow, ...]
    instance_type: InstanceType


class _ListedTypes(NamedTuple):
    """All types as last listed, and the state of everything that they depend on."""

    state: Hashable
    listed: Mapping[str, _ListedType]
    types: tuple[InstanceType, ...]


@dataclass(slots=True, kw_only=True)
class _CacheEntry:
    """The types of one key; what changes is replaced, so readers need no lock."""

    name: str
    """The NodeClass that asked first."""
    resolver: TypeResolver
    used_at: datetime
    resolved: tuple[Hashable, Mapping[str, ResolvedType]] | None = None
    """The last resolved types, and their inputs."""
    answer: _ListedTypes | None = None
    before: Mapping[str, _ListedType] = field(default_factory=dict[str, _ListedType])
    """The types listed for the same NodeClass before it changed."""


@final
class InstanceTypeCatalogue:
    """The instance types of one region; callable from any thread."""

    def __init__(
        self,
        settings: CatalogueSettings,
        clock: Clock,
        *,
        sizes: Callable[[], tuple[SizesByName, int]],
        prices: PriceRevisions,
        quotas: QuotaSource,
        unavailable_offerings: UnavailableOfferings,
        learned: LearnedMemory,
    ) -> None:
        """`sizes` is `RegionSizeReader.current`."""
        self._settings: Final = settings
        self._clock: Final = clock
        self._sizes: Final = sizes
        self._prices: Final = prices
        self._quotas: Final = quotas
        self._unavailable_offerings: Final = unavailable_offerings
        self._learned: Final = learned
        self._lock: Final = Lock()
        self._entries: Final[OrderedDict[ClassTraits, _CacheEntry]] = OrderedDict()

    def instance_types(
        self, node_class: AKSNodeClass, node_pool: NodePool | None = None
    ) -> tuple[InstanceType, ...]:
        """Return the types that a NodeClass can use, sorted by name, available or not.

        The NodePool makes no difference.

        Raises:
            CloudProviderError: no sizes are known, and Azure refused or did not answer.
        """
        del node_pool
        traits = self._traits(node_class)
        now = self._clock.now()
        entry = self._entry(node_class.metadata.name, traits, now)
        # Revisions are read first: what changes meanwhile is then seen next time.
        prices = self._prices.revision
        market = self._market(now)
        basis, resolved = self._resolved(entry, traits, now)
        state = (prices, market.shortages.revision, market.quotas.revision, basis)
        answer = entry.answer
        if answer is not None and answer.state == state:
            return answer.types
        listed = _list(resolved, market, entry.before if answer is None else answer.listed)
        types = tuple(item.instance_type for item in listed.values())
        if answer is not None and _are_same(types, answer.types):
            types = answer.types
        entry.answer, entry.before = _ListedTypes(state, listed, types), {}
        return types

    def size(self, name: str) -> VmSize:
        """Return a VM size.

        Raises:
            CloudProviderError: the region does not sell it, or no sizes are known.
        """
        size = self._sizes()[0].get(name)
        if size is None:
            raise CloudProviderError(
                f'VM size "{name}" is not sold in region {self._settings.location}'
            )
        return size

    def is_open(self, instance_type: InstanceType, offering: Offering) -> bool:
        """Whether an offering can be launched now, by the shortages and quotas of this moment.

        A size that the region does not sell any more cannot.
        """
        size = self._sizes()[0].get(instance_type.name)
        return size is not None and is_open(
            size, offering.zone, offering.capacity_type, self._market(self._clock.now())
        )

    def max_pods(self, node_class: AKSNodeClass) -> int:
        """Return the kubelet's limit of pods on nodes of a NodeClass."""
        return self._traits(node_class).max_pods

    def learn_memory(
        self, node_class: AKSNodeClass, *, instance_type: str, image_id: str, memory_bytes: int
    ) -> bool:
        """Record the memory that a registered node reports; return True if types change.

        A node with another image than the NodeClass would choose for the type today changes nothing.

        Raises:
            CloudProviderError: no sizes are known, and Azure refused or did not answer.
        """
        now, traits = self._clock.now(), self._traits(node_class)
        entry = self._entry(node_class.metadata.name, traits, now)
        resolved = self._resolved(entry, traits, now)[1].get(instance_type)
        if resolved is None or not image_id or resolved.image_id.lower() != image_id.lower():
            return False
        images = image_set([resolved.image_id])
        return self._learned.observe(instance_type, images, memory_bytes, now=now)

    def _traits(self, node_class: AKSNodeClass) -> ClassTraits:
        return traits_of(
            node_class,
            network_plugin=self._settings.network_plugin,
            network_plugin_mode=self._settings.network_plugin_mode,
        )

    def _market(self, now: datetime) -> MarketState:
        return MarketState(
            location=self._settings.location,
            prices=self._prices,
            shortages=self._unavailable_offerings.view(now=now),
            quotas=self._quotas.view(),
        )

    def _entry(self, name: str, traits: ClassTraits, now: datetime) -> _CacheEntry:
        with self._lock:
            entry = self._entries.get(traits)
            if entry is None:
                kin = next((e for e in reversed(self._entries.values()) if e.name == name), None)
                entry = self._entries[traits] = _CacheEntry(
                    name=name,
                    resolver=TypeResolver(
                        traits,
                        location=self._settings.location,
                        cluster=self._settings.cluster,
                        overhead_percent=self._settings.overhead_percent,
                    ),
                    used_at=now,
                    before={} if kin is None or kin.answer is None else kin.answer.listed,
                )
            entry.used_at = now
            self._entries.move_to_end(traits)
            self._drop_unused(now)
        return entry

    def _drop_unused(self, now: datetime) -> None:
        """Call under the lock; the entry used last is at the end."""
        for key, entry in list(self._entries.items()):
            if len(self._entries) <= _MOST_ENTRIES and now - entry.used_at < _IDLE_LIFE:
                break
            del self._entries[key]

    def _resolved(
        self, entry: _CacheEntry, traits: ClassTraits, now: datetime
    ) -> tuple[Hashable, Mapping[str, ResolvedType]]:
        """Return the types by name, and a value that is equal only for equal ones."""
        sizes, revision = self._sizes()
        seen = {
            image.id: self._learned.amounts(image_set([image.id]), now=now)
            for image in traits.images
        }
        amounts = tuple((image, tuple(sorted(of.items()))) for image, of in sorted(seen.items()))
        key = (revision, amounts)
        cached = entry.resolved
        if cached is not None and cached[0] == key:
            return cached
        before = dict[str, ResolvedType]() if cached is None else cached[1]
        types: dict[str, ResolvedType] = {}
        for name, size in sizes.items():
            if class_exclusion(size, traits):
                continue
            inputs = TypeInputs(size, {image: of[name] for image, of in seen.items() if name in of})
            same = before.get(name)
            types[name] = (
                same
                if same is not None and same.inputs == inputs
                else entry.resolver.resolve(inputs)
            )
        entry.resolved = resolved = (key, types)
        return resolved


def _are_same(some: Sequence[InstanceType], others: Sequence[InstanceType]) -> bool:
    return len(some) == len(others) and all(
        it is other for it, other in zip(some, others, strict=True)
    )


def _list(
    resolved: Mapping[str, ResolvedType], market: MarketState, before: Mapping[str, _ListedType]
) -> dict[str, _ListedType]:
    listed: dict[str, _ListedType] = {}
    for name, item in resolved.items():
        rows = offering_rows(item.size, market, has_image=item.has_image)
        last = before.get(name)
        if last is not None and last.rows == rows and last.resolved.is_like(item):
            listed[name] = last if last.resolved is item else last._replace(resolved=item)
        else:
            listed[name] = _ListedType(item, rows, _instance_type(item, rows))
    return listed


def _instance_type(item: ResolvedType, rows: tuple[OfferingRow, ...]) -> InstanceType:
    return InstanceType(
        name=item.size.name,
        requirements=item.requirements,
        offerings=offerings_of(rows),
        capacity=item.capacity,
        overhead=item.overhead,
    )
