"""Resolves a region's types for one NodeClass, without prices.

Pure functions of values: the same region and NodeClass give the same result in every process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import ON_DEMAND, SPOT
from karpenter_core.errors import BadInputError
from karpenter_core.provider.catalogue import Overhead
from karpenter_provider_aws.catalogue.capacity import capacity_of, estimated_memory_bytes
from karpenter_provider_aws.catalogue.offerings import PurchasableType, ZoneSubnets
from karpenter_provider_aws.catalogue.overhead import overhead_of
from karpenter_provider_aws.catalogue.requirements import (
    family_values,
    group_values,
    zone_values,
)
from karpenter_provider_aws.families.traits import TRAITS
from karpenter_provider_aws.kubelet.sizing import (
    eni_limited_pods,
    kubelet_sizing,
    read_kubelet_options,
)
from karpenter_provider_aws.type_compatibility import incompatibility

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from karpenter_core.api.records import Resources
    from karpenter_core.provider.catalogue import Requirements
    from karpenter_provider_aws.api.nodeclass import CapacityReservation, EC2NodeClass, Subnet
    from karpenter_provider_aws.catalogue.region_types import RegionTypes
    from karpenter_provider_aws.catalogue.requirements import TypeRequirements, Values
    from karpenter_provider_aws.discovery.placement_groups import DescribedPlacementGroup
    from karpenter_provider_aws.instance_type_info import InstanceTypeInfo
    from karpenter_provider_aws.kubelet.sizing import Evaluate, KubeletSizing
    from karpenter_provider_aws.settings import AwsSettings

__all__ = ["ResolvedType", "TypeResolver", "node_class_key"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedType:
    """An instance type for one NodeClass, without its offerings."""

    sold: PurchasableType
    requirements: Requirements
    capacity: Resources
    overhead: Overhead
    sizing: KubeletSizing
    """The numbers of its kubelet; `capacity` has the same number of pods."""


def node_class_key(node_class: EC2NodeClass, group: DescribedPlacementGroup | None) -> Hashable:
    """Return a value that is equal for NodeClasses whose types are resolved alike.

    Images are not in it: what was learned of them is.
    """
    spec, status = node_class.spec, node_class.status
    cpu, enclaves = spec.cpu_options, spec.enclave_options
    return (
        node_class.ami_family,
        # Ordered by free addresses, which change with every launch.
        tuple(sorted((subnet.zone, subnet.zone_id, subnet.id) for subnet in status.subnets)),
        tuple(sorted(status.capacity_reservations, key=_reservation_id)),
        json.dumps(spec.kubelet, sort_keys=True),
        spec.block_device_mappings,
        spec.instance_store_policy,
        spec.network_interfaces,
        spec.ip_prefix_count,
        spec.connection_tracking is None,
        "" if cpu is None else cpu.nested_virtualization,
        enclaves is not None and enclaves.enabled,
        group,
    )


@final
class TypeResolver:
    """Resolves the types of a region for one NodeClass."""

    def __init__(
        self,
        node_class: EC2NodeClass,
        settings: AwsSettings,
        requirement_sets: TypeRequirements,
        *,
        group: DescribedPlacementGroup | None = None,
        evaluate: Evaluate | None = None,
    ) -> None:
        """Raise BadInputError when `spec.kubelet` cannot be read."""
        self._node_class: Final = node_class
        self._settings: Final = settings
        self._sets: Final = requirement_sets
        self._group: Final = group
        self._evaluate: Final = evaluate
        self._options: Final = read_kubelet_options(node_class)
        self._traits: Final = TRAITS[node_class.ami_family]
        self._subnets: Final = tuple(
            sorted(node_class.status.subnets, key=lambda subnet: (subnet.zone, subnet.id))
        )
        reservations: dict[str, list[CapacityReservation]] = {}
        usable = node_class.status.capacity_reservations if settings.reserved_capacity else ()
        for reservation in sorted(usable, key=_reservation_id):
            reservations.setdefault(reservation.instance_type, []).append(reservation)
        self._reservations: Final = {name: tuple(of) for name, of in reservations.items()}
        self._zones: Final[dict[tuple[str, ...], _Zones]] = {}
        self._amounts: Final[dict[Hashable, Resources]] = {}
        self._values: Final[dict[Values, Values]] = {}
        self._capacity_types: Final[dict[tuple[str, ...], tuple[str, ...]]] = {}

    def resolve(
        self, region: RegionTypes, names: Iterable[str], memory_bytes: Mapping[str, int]
    ) -> dict[str, ResolvedType]:
        """Resolve types of the region, by name in the order given.

        `memory_bytes` is what was seen of nodes, by type; for the rest it is estimated. One type
        that cannot be resolved fails all: a list with holes would tell pods that types do not exist.

        Raises:
            BadInputError: a field of `spec.kubelet` cannot be used; names NodeClass, field, value.
        """
        try:
            return {
                name: self._resolve(
                    region.types[name], region.zones.get(name, ()), memory_bytes.get(name)
                )
                for name in names
            }
        except ValueError as error:
            name = self._node_class.metadata.name
            raise BadInputError(f'EC2NodeClass "{name}": {error}') from error

    def _resolve(
        self, info: InstanceTypeInfo, sold_in: tuple[str, ...], memory_bytes: int | None
    ) -> ResolvedType:
        zones = self._zones.get(sold_in)
        if zones is None:
            zones = self._zones[sold_in] = self._zones_of(sold_in)
        reservations = self._reservations.get(info.name, ())
        sizing = kubelet_sizing(
            info,
            self._node_class,
            self._options,
            self._traits,
            reserved_enis=self._settings.reserved_enis,
            evaluate=self._evaluate,
        )
        if memory_bytes is None:
            memory_bytes = estimated_memory_bytes(
                info, overhead_percent=self._settings.vm_memory_overhead_percent
            )
        capacity = capacity_of(
            info,
            self._node_class,
            self._traits,
            pods=sizing.pods,
            memory_bytes=memory_bytes,
        )
        overhead = overhead_of(
            capacity,
            pods_reserved_for=self._pods_reserved_for(info, sizing),
            kube_reserved=sizing.kube_reserved,
            system_reserved=sizing.system_reserved,
            eviction_hard=self._options.eviction_hard,
        )
        values = family_values(info, self._traits, reservations) + zones.values
        capacity_types = tuple(c for c in (ON_DEMAND, SPOT) if c in info.usage_classes)
        return ResolvedType(
            sold=PurchasableType(
                name=info.name,
                zones=zones.zones,
                capacity_types=self._capacity_types.setdefault(capacity_types, capacity_types),
                cpu_milli=info.vcpus * 1000,
                is_compatible=not incompatibility(info, self._node_class, self._group),
                reservations=reservations,
                group=self._group,
            ),
            requirements=self._sets.find(info, self._values.setdefault(values, values)),
            capacity=self._shared(capacity),
            overhead=Overhead(
                kube_reserved=self._shared(overhead.kube_reserved),
                system_reserved=self._shared(overhead.system_reserved),
                eviction_threshold=self._shared(overhead.eviction_threshold),
            ),
            sizing=sizing,
        )

    def _shared(self, amounts: Resources) -> Resources:
        """Return equal amounts, the same object for all types that have them."""
        return self._amounts.setdefault(tuple(amounts.items()), amounts)

    def _pods_reserved_for(self, info: InstanceTypeInfo, sizing: KubeletSizing) -> int:
        """Return for how many pods the images of the family keep memory.

        Images of Amazon Linux look them up by the instance type, whatever interfaces there are (nodeadm,
        `bootstrap.sh`).
        """
        if self._traits.kube_reserved_uses_eni_pods:
            return eni_limited_pods(info, reserved_enis=0, efa_only=0)
        return sizing.pods

    def _zones_of(self, sold_in: tuple[str, ...]) -> _Zones:
        subnets = tuple(subnet for subnet in self._subnets if subnet.zone in sold_in)
        by_zone: dict[str, list[Subnet]] = {}
        for subnet in subnets:
            by_zone.setdefault(subnet.zone, []).append(subnet)
        return _Zones(
            values=(*zone_values(subnets), *group_values(self._group)),
            zones=tuple(
                ZoneSubnets(zone, of[0].zone_id, tuple(subnet.id for subnet in of))
                for zone, of in by_zone.items()
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zones:
    """Zones in which the NodeClass can launch types that are sold in the same zones."""

    values: Values
    """Labels that follow from it, those of the placement group among them."""
    zones: tuple[ZoneSubnets, ...]


def _reservation_id(reservation: CapacityReservation) -> str:
    return reservation.id
