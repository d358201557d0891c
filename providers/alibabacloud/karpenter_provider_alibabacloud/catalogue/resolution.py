"""Resolves a region's types for one NodeClass, without prices or stock.

Pure functions of values: the same types, zones and NodeClass give the same result in every process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, final

from karpenter_core.api.labels import ON_DEMAND, RESERVED, SPOT, WELL_KNOWN
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_alibabacloud import labels
from karpenter_provider_alibabacloud.catalogue.capacity import (
    capacity_of,
    configures_kubelet,
    ephemeral_storage_gib,
    estimated_memory_bytes,
    fits_network,
    node_pods,
)
from karpenter_provider_alibabacloud.catalogue.offerings import PurchasableType, ZoneVSwitches
from karpenter_provider_alibabacloud.catalogue.overhead import overhead_of
from karpenter_provider_alibabacloud.catalogue.requirements import requirements_of, zone_values
from karpenter_provider_alibabacloud.catalogue.stock import DEFAULT_SPOT_HOURS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Overhead
    from karpenter_provider_alibabacloud.api.nodeclass import (
        CapacityReservation,
        ECSNodeClass,
        ECSNodeClassSpec,
    )
    from karpenter_provider_alibabacloud.catalogue.instance_type_info import InstanceTypeInfo
    from karpenter_provider_alibabacloud.catalogue.stock import RegionStock
    from karpenter_provider_alibabacloud.discovery.cluster import ClusterDetails

__all__ = ["ResolvedType", "TypeInputs", "TypeResolver", "node_class_key", "spot_hours"]

_KNOWN_LABELS: Final = WELL_KNOWN | labels.WELL_KNOWN


class TypeInputs(NamedTuple):
    """The inputs of a resolved type beside its NodeClass."""

    info: InstanceTypeInfo
    on_demand_zones: tuple[str, ...]
    """Zones that ever listed the type; sorted."""
    spot_zones: tuple[str, ...]
    memory_bytes: Mapping[str, int]
    """Memory observed on its nodes, by id of the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedType:
    """An instance type for one NodeClass, without its offerings."""

    inputs: TypeInputs
    sold: PurchasableType
    requirements: Requirements
    capacity: Resources
    overhead: Overhead
    image_id: str
    """The image that its nodes boot; empty when the NodeClass has none that fits."""
    max_pods: int | None
    """The kubelet's limit of pods; None for the kubelet's own."""


def spot_hours(spec: ECSNodeClassSpec) -> int:
    """Return for how many hours spot instances of a NodeClass are safe at least."""
    hours = None if spec.spot is None else spec.spot.duration_hours
    return DEFAULT_SPOT_HOURS if hours is None else hours


def node_class_key(node_class: ECSNodeClass, cluster: ClusterDetails) -> Hashable:
    """Return a value that is equal for NodeClasses whose types are resolved alike."""
    spec, status = node_class.spec, node_class.status
    kubelet = spec.kubelet_configuration
    return (
        cluster.cni,
        cluster.node_cidr_mask,
        configures_kubelet(cluster),
        # Ordered by free addresses, which change with every launch.
        tuple(sorted((each.zone_id, each.id) for each in status.v_switches)),
        tuple(sorted((it.id, it.zone_id, it.instance_type) for it in status.capacity_reservations)),
        tuple((image.id, image.requirements) for image in status.images),
        "" if kubelet is None else json.dumps(kubelet.as_set(), sort_keys=True),
        ephemeral_storage_gib(spec, cluster),
        spot_hours(spec),
        None if spec.spot is None else spec.spot.price_limit,
    )


@final
class TypeResolver:
    """Resolves the types of a region for one NodeClass, and for all of the same `node_class_key`."""

    def __init__(
        self,
        node_class: ECSNodeClass,
        cluster: ClusterDetails,
        *,
        region: str,
        overhead_percent: float,
        uses_reservations: bool,
    ) -> None:
        self._spec: Final = node_class.spec
        self._cluster: Final = cluster
        self._region: Final = region
        self._overhead_percent: Final = overhead_percent
        self._ephemeral_gib: Final = ephemeral_storage_gib(node_class.spec, cluster)
        self._spot_hours: Final = spot_hours(node_class.spec)
        v_switches: dict[str, list[str]] = {}
        for each in sorted(node_class.status.v_switches, key=lambda it: (it.zone_id, it.id)):
            v_switches.setdefault(each.zone_id, []).append(each.id)
        self._v_switches: Final = {zone: tuple(of) for zone, of in v_switches.items()}
        reservations: dict[str, list[CapacityReservation]] = {}
        usable = node_class.status.capacity_reservations if uses_reservations else ()
        for pool in sorted(usable, key=lambda it: it.id):
            if pool.zone_id in self._v_switches:
                reservations.setdefault(pool.instance_type, []).append(pool)
        self._reservations: Final = {name: tuple(of) for name, of in reservations.items()}
        self._images: Final = tuple(
            (image.id, Requirements.from_specs(image.requirements))
            for image in node_class.status.images
        )

    def is_sold(self, info: InstanceTypeInfo, stock: RegionStock) -> bool:
        """Whether the region sells a type, and the cluster's network takes it."""
        return (
            info.name in stock.on_demand_listed or info.name in stock.spot_listed
        ) and fits_network(info, self._cluster)

    def resolve(self, inputs: TypeInputs) -> ResolvedType:
        """Resolve one type.

        Raises:
            ValueError: a field of `spec.kubeletConfiguration` cannot be used; names field and value.
        """
        info = inputs.info
        on_demand = self._zones(inputs.on_demand_zones)
        spot = self._zones(inputs.spot_zones)
        reservations = self._reservations.get(info.name, ())
        ways = ((ON_DEMAND, on_demand), (SPOT, spot), (RESERVED, reservations))
        requirements = requirements_of(
            info,
            self._region,
            zone_values(
                zones=(
                    *(each.zone for each in (*on_demand, *spot)),
                    *(pool.zone_id for pool in reservations),
                ),
                capacity_types=(way for way, zones_found in ways if zones_found),
                reservations=(pool.id for pool in reservations),
            ),
        )
        image = self._image_for(requirements)
        pods = node_pods(info, self._spec.kubelet_configuration, self._cluster)
        memory_bytes = inputs.memory_bytes.get(image) or estimated_memory_bytes(
            info, overhead_percent=self._overhead_percent
        )
        capacity = capacity_of(
            info,
            pods=pods.pods,
            memory_bytes=memory_bytes,
            ephemeral_storage_gib=self._ephemeral_gib,
        )
        return ResolvedType(
            inputs=inputs,
            sold=PurchasableType(
                info=info,
                on_demand=on_demand,
                spot=spot,
                has_image=bool(image),
                spot_hours=self._spot_hours,
                spot_price_limit=None if self._spec.spot is None else self._spec.spot.price_limit,
                reservations=reservations,
            ),
            requirements=requirements,
            capacity=capacity,
            overhead=overhead_of(
                info,
                capacity,
                pods=pods.pods,
                kubelet=self._spec.kubelet_configuration,
                cluster=self._cluster,
            ),
            image_id=image,
            max_pods=pods.kubelet_max_pods,
        )

    def _zones(self, zones: Iterable[str]) -> tuple[ZoneVSwitches, ...]:
        return tuple(
            ZoneVSwitches(zone, self._v_switches[zone])
            for zone in sorted(zones)
            if zone in self._v_switches
        )

    def _image_for(self, requirements: Requirements) -> str:
        """Return the first image in status order that fits."""
        return next(
            (
                image
                for image, image_requirements in self._images
                if requirements.compatible(image_requirements, allow_undefined=_KNOWN_LABELS)
            ),
            "",
        )
