"""The instance type catalogue that `karpenter_list_instance_types` returns.

Everything that an answer depends on is compared, so answers need not expire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, final

from karpenter_core.errors import BadInputError, CloudProviderError, NodeClassNotReadyError
from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_core.provider.kit.type_listing import TypeListings
from karpenter_provider_alibabacloud.catalogue.capacity import MIB
from karpenter_provider_alibabacloud.catalogue.offerings import (
    MarketState,
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
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from datetime import datetime

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.kit.learned_memory import LearnedMemory
    from karpenter_core.provider.kit.type_listing import ResolvedTypes, TypeListing
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.catalogue.region_types import TypesByName
    from karpenter_provider_alibabacloud.catalogue.stock import RegionStock
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = ["CatalogueInputs", "InstanceTypeCatalogue", "PriceRevisions", "StockSource"]


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
        reserved_left: Callable[[str], int] | None,
    ) -> None:
        """`types` is `RegionTypeReader.current`, `reserved_left` returns a private pool's rest.

        Without `reserved_left` (feature gate ReservedCapacity) private pools are not offered.
        """
        self._region: Final = region
        self._overhead_percent: Final = overhead_percent
        self._types: Final = types
        self._stock: Final = stock
        self._prices: Final = prices
        self._unavailable_offerings: Final = unavailable_offerings
        self._learned: Final = learned
        self._reserved_left: Final = reserved_left
        self._listings: Final[TypeListings[Hashable, TypeResolver, ResolvedType]] = TypeListings()

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
        listing = self._listing(node_class, catalogue_inputs)
        # Revisions are read first: what changes meanwhile is then seen next time.
        prices = self._prices.revision
        shortages = self._unavailable_offerings.view(now=catalogue_inputs.now)
        stock, stock_revision = self._stock.current()
        basis, types = self._resolved(listing, node_class, catalogue_inputs, stock, stock_revision)
        pools = sorted({pool.id for it in types.values() for pool in it.sold.reservations})
        left = self._reserved_left
        reserved_by_pool = {} if left is None else {pool: left(pool) for pool in pools}
        market = MarketState(
            stock=stock,
            prices=self._prices,
            shortages=shortages,
            reserved_left=lambda pool: reserved_by_pool.get(pool, 0),
        )
        return listing.listed(
            (prices, shortages.revision, basis, tuple(reserved_by_pool.items())),
            types,
            lambda item: offering_rows(item.sold, market),
            offerings_of,
        )

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
        return self._learned.observe(
            instance_type,
            images,
            memory_bytes,
            sold_bytes=resolved.inputs.info.memory_mib * MIB,
            now=catalogue_inputs.now,
        )

    def _now(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> Mapping[str, ResolvedType]:
        listing = self._listing(node_class, catalogue_inputs)
        stock, revision = self._stock.current()
        return self._resolved(listing, node_class, catalogue_inputs, stock, revision).types

    def _find(self, resolved: Mapping[str, ResolvedType], name: str) -> ResolvedType:
        resolved_type = resolved.get(name)
        if resolved_type is None:
            raise CloudProviderError(f'instance type "{name}" is not sold in region {self._region}')
        return resolved_type

    def _listing(
        self, node_class: ECSNodeClass, catalogue_inputs: CatalogueInputs
    ) -> TypeListing[TypeResolver, ResolvedType]:
        if not node_class.status.v_switches:
            raise NodeClassNotReadyError(f'ECSNodeClass "{node_class.name}": no vSwitches found')
        hours = spot_hours(node_class.spec)
        self._stock.watch_spot(hours)
        self._prices.watch_spot(hours)

        def make() -> TypeResolver:
            return TypeResolver(
                node_class,
                catalogue_inputs.cluster,
                region=self._region,
                overhead_percent=self._overhead_percent,
                uses_reservations=self._reserved_left is not None,
            )

        key = node_class_key(node_class, catalogue_inputs.cluster)
        return self._listings.of(key, node_class.name, make, now=catalogue_inputs.now)

    def _resolved(
        self,
        listing: TypeListing[TypeResolver, ResolvedType],
        node_class: ECSNodeClass,
        catalogue_inputs: CatalogueInputs,
        stock: RegionStock,
        stock_revision: int,
    ) -> ResolvedTypes[ResolvedType]:
        types, types_revision = self._types()
        images = (image.id for image in node_class.status.images)
        seen, amounts = self._learned.by_image(images, now=catalogue_inputs.now)

        def inputs() -> Iterator[tuple[str, TypeInputs]]:
            for name, info in types.items():
                if listing.resolver.is_sold(info, stock):
                    yield (
                        name,
                        TypeInputs(
                            info,
                            stock.on_demand_listed.get(name, ()),
                            stock.spot_listed.get(name, ()),
                            {image: of[name] for image, of in seen.items() if name in of},
                        ),
                    )

        return listing.resolved(
            (types_revision, stock_revision, amounts),
            inputs,
            lambda of: _resolved_for(node_class, listing.resolver, of),
        )


def _resolved_for(
    node_class: ECSNodeClass, resolver: TypeResolver, inputs: TypeInputs
) -> ResolvedType:
    """Resolve a type; errors name the caller's own NodeClass, whichever the resolver was made for."""
    try:
        return resolver.resolve(inputs)
    except ValueError as error:
        raise BadInputError(f'ECSNodeClass "{node_class.name}": {error}') from error
