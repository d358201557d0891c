"""The catalogue, stock, disks and prices of the simulated cloud: acceptance cases 26, 40 and 46."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_alibabacloud.catalogue.instance_types import (
    CatalogueInputs,
    InstanceTypeCatalogue,
)
from karpenter_provider_alibabacloud.catalogue.region_types import (
    RegionTypeReader,
    fetch_region_types,
)
from karpenter_provider_alibabacloud.catalogue.stock import StockReader
from karpenter_provider_alibabacloud.catalogue.system_disks import SystemDiskReader
from karpenter_provider_alibabacloud.price_reader import PriceReader
from karpenter_provider_alibabacloud.prices import DISK_VERSION, RegionPrices
from karpenter_provider_alibabacloud.sdk import CloudClients
from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud
from karpenter_simulated_alibabacloud.types import generated_types
from providers.alibabacloud.tests.catalogue.instance_type_data import (
    NOW,
    TERWAY,
    EmptyDiskCache,
    SetClock,
    available,
    node_class,
)
from providers.alibabacloud.tests.reached_hosts import hosts_reached

if TYPE_CHECKING:
    from pathlib import Path

NAME = "ecs.g7.large"


class Parts:
    """Everything of a provider that lists types, put together."""

    def __init__(self, clients: CloudClients, folder: Path) -> None:
        clock = SetClock()
        self.types = RegionTypeReader(clients, clock, folder)
        self.stock = StockReader(clients, clock, folder)
        self.disks = SystemDiskReader(clients, clock)
        self.prices = RegionPrices(clients.region)
        self.reader = PriceReader(
            clients,
            self.prices,
            clock,
            types=self.types.current,
            disk=DiskCache(folder, "alibabacloud-prices", version=DISK_VERSION),
            sleep=lambda _: None,
        )
        self.catalogue = InstanceTypeCatalogue(
            clients.region,
            overhead_percent=0.065,
            types=self.types.current,
            stock=self.stock,
            prices=self.prices,
            unavailable_offerings=UnavailableOfferings(),
            learned=LearnedMemory(EmptyDiskCache(), now=NOW),
            reserved_left=None,
        )

    def list(self, cloud: SimulatedAlibabaCloud) -> dict[str, Any]:
        of = node_class(
            vSwitches=[{"id": it, "zoneID": zone} for zone, it in cloud.world.vswitches.items()]
        )
        catalogue_inputs = CatalogueInputs(now=NOW, cluster=TERWAY)
        return {it.name: it for it in self.catalogue.instance_types(of, catalogue_inputs)}


def test_a_thousand_types_are_ten_calls():
    """Case 26."""
    with SimulatedAlibabaCloud(instance_types=generated_types(1000)) as cloud:
        clients = CloudClients(region="cn-hangzhou", endpoint_ecs=cloud.endpoint, protocol="http")
        with pytest.MonkeyPatch.context() as patch, clients:
            for name, value in cloud.environment.items():
                patch.setenv(name, value)
            found = fetch_region_types(clients).value

        assert len(found) == 1000
        assert cloud.calls.count("DescribeInstanceTypes") == 10


def test_the_catalogue_lists_the_stock_of_the_region(
    cloud: SimulatedAlibabaCloud, clients: CloudClients, tmp_path: Path
):
    """Case 40."""
    cloud.catalogue.set_reported_stock("WithoutStock", instance_type=NAME, zone="cn-hangzhou-b")
    cloud.catalogue.set_reported_stock("ClosedWithStock", instance_type=NAME, zone="cn-hangzhou-g")
    found = Parts(clients, tmp_path).list(cloud)

    assert len(found) > 60
    assert available(found[NAME]) == {
        ("cn-hangzhou-g", "on-demand"),
        ("cn-hangzhou-h", "on-demand"),
        ("cn-hangzhou-g", "spot"),
    }


def test_prices_are_those_of_the_cloud(
    cloud: SimulatedAlibabaCloud, clients: CloudClients, tmp_path: Path
):
    parts = Parts(clients, tmp_path)
    cloud.prices.set_on_demand(NAME, 0.52)
    cloud.prices.set_spot(NAME, "cn-hangzhou-b", 0.11)
    parts.reader.consider([NAME])
    parts.reader.refresh()
    info = parts.types.current()[0][NAME]

    assert parts.prices.on_demand(info).amount == 0.52
    assert parts.prices.spot(info, "cn-hangzhou-b").amount == 0.11
    assert parts.prices.on_demand(info).currency == "CNY"
    other = parts.types.current()[0]["ecs.g7.xlarge"]
    assert parts.prices.spot(other, "cn-hangzhou-b").amount < parts.prices.on_demand(other).amount


def test_a_type_without_essd_support_has_a_price(
    cloud: SimulatedAlibabaCloud, clients: CloudClients, tmp_path: Path
):
    parts = Parts(clients, tmp_path)
    old = next(each for each in cloud.catalogue.types if "cloud_essd" not in each.disk_categories)
    parts.reader.consider([old.name])
    parts.reader.refresh()

    assert not parts.prices.is_estimated(old.name)


def test_system_disks_are_those_of_the_cloud(cloud: SimulatedAlibabaCloud, clients: CloudClients):
    disks = SystemDiskReader(clients, SetClock()).of([NAME])[NAME]

    assert disks is not None
    assert set(disks) == set(cloud.world.zones)
    assert "cloud_essd" in disks["cn-hangzhou-b"]


def test_calls_reach_configured_endpoints_only(cloud: SimulatedAlibabaCloud, tmp_path: Path):
    """Case 46; that of all hooks is in `test_provider_hooks`."""
    clients = CloudClients(region="cn-hangzhou", endpoint_ecs=cloud.endpoint, protocol="http")
    with hosts_reached() as reached, clients:
        parts = Parts(clients, tmp_path)
        parts.reader.consider([NAME])
        parts.reader.refresh()
        parts.list(cloud)
        parts.disks.of([NAME])

    assert reached == {cloud.endpoint}
