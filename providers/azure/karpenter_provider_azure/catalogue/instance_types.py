"""The instance type catalogue that `karpenter_list_instance_types` returns.

Everything that an answer depends on is compared, so answers need not expire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.learned_memory import image_set
from karpenter_core.provider.kit.type_listing import TypeListings
from karpenter_provider_azure.catalogue.capacity import MIB
from karpenter_provider_azure.catalogue.class_traits import class_exclusion, traits_of
from karpenter_provider_azure.catalogue.offerings import (
    MarketState,
    is_open,
    offering_rows,
    offerings_of,
)
from karpenter_provider_azure.catalogue.resolution import ResolvedType, TypeInputs, TypeResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_core.provider.kit.learned_memory import LearnedMemory
    from karpenter_core.provider.kit.type_listing import ResolvedTypes, TypeListing
    from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
    from karpenter_provider_azure.api.nodeclass import AKSNodeClass
    from karpenter_provider_azure.catalogue.class_traits import ClassTraits
    from karpenter_provider_azure.catalogue.prices import RegionPrices
    from karpenter_provider_azure.catalogue.quotas import RegionQuotas
    from karpenter_provider_azure.catalogue.region_sizes import SizesByName
    from karpenter_provider_azure.settings import AzureSettings

__all__ = ["InstanceTypeCatalogue"]


@final
class InstanceTypeCatalogue:
    """The instance types of one region; callable from any thread."""

    def __init__(
        self,
        settings: AzureSettings,
        clock: Clock,
        *,
        sizes: Callable[[], tuple[SizesByName, int]],
        prices: RegionPrices,
        quotas: RegionQuotas,
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
        self._listings: Final[TypeListings[ClassTraits, TypeResolver, ResolvedType]] = (
            TypeListings()
        )

    def instance_types(self, node_class: AKSNodeClass) -> tuple[InstanceType, ...]:
        """Return the types that a NodeClass can use, sorted by name, available or not.

        Raises:
            CloudProviderError: no sizes are known, and Azure refused or did not answer.
        """
        now = self._clock.now()
        listing = self._listing(node_class, now)
        # Revisions are read first: what changes meanwhile is then seen next time.
        prices = self._prices.revision
        market = self._market(now)
        basis, types = self._resolved(listing, now)
        return listing.listed(
            (prices, market.shortages.revision, market.quotas.revision, basis),
            types,
            lambda item: offering_rows(item.size, market, has_image=item.has_image),
            offerings_of,
        )

    def is_open(self, instance_type: InstanceType, offering: Offering) -> bool:
        """Whether an offering can be launched now, by the shortages and quotas of this moment.

        A size that the region does not sell any more cannot.
        """
        size = self._sizes()[0].get(instance_type.name)
        return size is not None and is_open(
            size, offering.zone, offering.capacity_type, self._market(self._clock.now())
        )

    def learn_memory(
        self, node_class: AKSNodeClass, *, instance_type: str, image_id: str, memory_bytes: int
    ) -> bool:
        """Record the memory that a registered node reports; return True if types change.

        A node with another image than the NodeClass would choose for the type today changes nothing.

        Raises:
            CloudProviderError: no sizes are known, and Azure refused or did not answer.
        """
        now = self._clock.now()
        resolved = self._resolved(self._listing(node_class, now), now).types.get(instance_type)
        if resolved is None or not image_id or resolved.image_id.lower() != image_id.lower():
            return False
        images = image_set([resolved.image_id])
        return self._learned.observe(
            instance_type, images, memory_bytes, sold_bytes=resolved.size.memory_mib * MIB, now=now
        )

    def _market(self, now: datetime) -> MarketState:
        return MarketState(
            location=self._settings.location,
            prices=self._prices,
            shortages=self._unavailable_offerings.view(now=now),
            quotas=self._quotas.view(),
        )

    def _listing(
        self, node_class: AKSNodeClass, now: datetime
    ) -> TypeListing[TypeResolver, ResolvedType]:
        traits = traits_of(node_class, self._settings)
        return self._listings.of(
            traits, node_class.name, lambda: TypeResolver(traits, self._settings), now=now
        )

    def _resolved(
        self, listing: TypeListing[TypeResolver, ResolvedType], now: datetime
    ) -> ResolvedTypes[ResolvedType]:
        resolver, (sizes, revision) = listing.resolver, self._sizes()
        seen, amounts = self._learned.by_image((it.id for it in resolver.traits.images), now=now)

        def inputs() -> Iterator[tuple[str, TypeInputs]]:
            for name, size in sizes.items():
                if not class_exclusion(size, resolver.traits):
                    memory = {image: of[name] for image, of in seen.items() if name in of}
                    yield name, TypeInputs(size, memory)

        return listing.resolved((revision, amounts), inputs, resolver.resolve)
