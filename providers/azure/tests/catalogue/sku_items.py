"""Items of Microsoft.Compute/skus, and catalogues of them without a cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.catalogue.class_traits import general_exclusion
from karpenter_provider_azure.catalogue.instance_types import (
    InstanceTypeCatalogue,
)
from karpenter_provider_azure.catalogue.prices import ListedPrices, RegionPrices
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.catalogue.size_names import read_size_name
from karpenter_provider_azure.catalogue.vm_sizes import VmSize, parse_skus
from karpenter_provider_azure.settings import AzureSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering

LOCATION = "westus2"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 2**20
GIB = 2**30
ZONES = ("1", "2", "3")


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def advance(self, **duration: float) -> None:
        self.at += timedelta(**duration)

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return (self.at - NOW).total_seconds()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class EmptyDiskCache:
    """A disk cache that stores nothing."""

    def read(self, **_: object) -> None:
        return None

    def write(self, value: object, **_: object) -> None:
        """Ignore the value."""


def sku_item(
    name: str,
    *,
    cpus: object = 2,
    memory_gib: object = 8,
    zones: Iterable[str] = ZONES,
    location: str = LOCATION,
    family: str | None = None,
    restrictions: Iterable[Mapping[str, Any]] = (),
    ultra_ssd_zones: Iterable[str] = (),
    **capabilities: object,
) -> dict[str, Any]:
    """Return an item; a capability that is None is left out."""
    values: dict[str, object] = {
        "vCPUs": cpus,
        "MemoryGB": memory_gib,
        "CpuArchitectureType": "x64",
        "HyperVGenerations": "V1,V2",
        "LowPriorityCapable": "True",
        "PremiumIO": "True",
        "AcceleratedNetworkingEnabled": "True",
        **capabilities,
    }
    ultra = list(ultra_ssd_zones)
    details = {"name": ultra, "capabilities": [{"name": "UltraSSDAvailable", "value": "True"}]}
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "family": f"{name.split('_')[1]}Family" if family is None else family,
        "locations": [location],
        "locationInfo": [
            {
                "location": location,
                "zones": list(zones),
                "zoneDetails": [details] if ultra else [],
            }
        ],
        "capabilities": [
            {"name": key, "value": str(value)} for key, value in values.items() if value is not None
        ],
        "restrictions": list(restrictions),
    }


def restriction(
    kind: str, *, zones: Iterable[str] = (), location: str = LOCATION
) -> dict[str, Any]:
    """Return a restriction of type `Location` or `Zone`."""
    return {
        "type": kind,
        "values": [location],
        "restrictionInfo": {"locations": [location], "zones": list(zones)},
        "reasonCode": "NotAvailableForSubscription",
    }


def vm_size(name: str, **fields: Any) -> VmSize:
    """Return a size; fields as of `sku_item`."""
    parsed = parse_skus([sku_item(name, **fields)], LOCATION)
    return parsed.sizes[name]


def plain_vm_size(name: str, **fields: Any) -> VmSize:
    """Return a size without any special ability; fields as of `VmSize`."""
    plain: dict[str, Any] = {
        "arch": "amd64",
        "gpus": 0,
        "ultra_ssd_zones": (),
        "regional_ultra_ssd": False,
        "premium_io": False,
        "accelerated_networking": False,
        "encryption_at_host": False,
        "trusted_launch": False,
        "low_priority_capable": True,
        "hyperv_generations": ("1", "2"),
        "ephemeral_os_disks": (),
    }
    return VmSize(name=name, size_name=read_size_name(name), **(plain | fields))


def usage(name: str, *, limit: int, used: int) -> dict[str, Any]:
    """Return an item of Microsoft.Compute/locations/usages."""
    return {"name": {"value": name}, "limit": limit, "currentValue": used, "unit": "Count"}


def node_class(
    spec: Mapping[str, Any] | None = None,
    *,
    name: str = "general",
    status: Mapping[str, Any] | None = None,
) -> AKSNodeClass:
    """Return a NodeClass of this spec and status."""
    return AKSNodeClass.model_validate(
        {"metadata": {"name": name}, "spec": dict(spec or {}), "status": dict(status or {})}
    )


def catalogue_settings(location: str, group: str) -> AzureSettings:
    """Return settings of a cluster; those that the catalogue does not read are empty."""
    return AzureSettings(
        cluster_name="",
        cluster_endpoint="",
        kubelet_bootstrap_token="",
        ssh_public_key="",
        vnet_subnet_id="",
        node_resource_group=group,
        azure_subscription_id="",
        location=location,
    )


class World:
    """A catalogue with all that it reads."""

    def __init__(self, *items: Mapping[str, Any], usages: Iterable[Mapping[str, Any]] = ()) -> None:
        self.clock = SetClock()
        self.items = list(items)
        self.revision = 1
        self.usages: Sequence[Mapping[str, Any]] = list(usages)
        self.prices = RegionPrices(LOCATION)
        self.quotas = RegionQuotas(self.clock, fetch=lambda: self.usages)
        if self.usages:
            self.quotas.refresh()
        self.unavailable = UnavailableOfferings()
        self.learned = LearnedMemory(EmptyDiskCache(), now=NOW)  # pyright: ignore[reportArgumentType] - a cache that keeps nothing
        self.catalogue = InstanceTypeCatalogue(
            catalogue_settings(LOCATION, "mc_group"),
            self.clock,
            sizes=self.sizes,
            prices=self.prices,
            quotas=self.quotas,
            unavailable_offerings=self.unavailable,
            learned=self.learned,
        )

    def sizes(self) -> tuple[dict[str, VmSize], int]:
        """Return the sizes that nodes can use, as `RegionSizeReader.current`."""
        parsed = parse_skus(self.items, LOCATION)
        sizes = {name: it for name, it in parsed.sizes.items() if not general_exclusion(it)}
        return sizes, self.revision

    def set_prices(
        self, on_demand: Mapping[str, float], spot: Mapping[str, float] | None = None
    ) -> None:
        """Take prices as read from the price list."""
        self.prices.update(ListedPrices(dict(on_demand), dict(spot or {})), now=self.clock.now())

    def list(
        self, spec: Mapping[str, Any] | None = None, *, status: Mapping[str, Any] | None = None
    ) -> tuple[InstanceType, ...]:
        """Return the types of a NodeClass."""
        return self.catalogue.instance_types(node_class(spec, status=status))

    def names(
        self, spec: Mapping[str, Any] | None = None, *, status: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Return the names of the types of a NodeClass."""
        return [it.name for it in self.list(spec, status=status)]

    def type(self, name: str, spec: Mapping[str, Any] | None = None) -> InstanceType:
        """Return one type."""
        return next(it for it in self.list(spec) if it.name == name)

    def offering(self, name: str, zone: str, capacity_type: str) -> Offering:
        """Return one offering of a type."""
        return next(
            it
            for it in self.type(name).offerings
            if (it.zone, it.capacity_type) == (zone, capacity_type)
        )

    def available(self, name: str) -> set[tuple[str, str]]:
        """Return zone and capacity type of the available offerings of a type."""
        return {(it.zone, it.capacity_type) for it in self.type(name).offerings if it.available}
