"""List 1,500 VM sizes of an Azure region for one NodeClass, cold and warm.

The sizes are those of the shipped price list, as Microsoft.Compute/skus answers them: thirty
capabilities each, three zones, which makes eight offerings. What is timed:

    json       the answer's text decoded by `json`, for comparison
    parse      from the decoded answer to the sizes
    cold       from the decoded answer to the list: sizes parsed, everything resolved
    disk       from the file that an earlier process kept to the list
    class      another NodeClass: everything resolved, sizes and shared labels at hand
    fresh      prices changed: the offerings of a size made anew, all compared
    shortage   a family was found sold out: only its sizes are made anew
    unchanged  nothing changed: the answer of before

Each is the median of several runs, by the clock on the wall and in CPU time, with the collector of
cycles paused as during a pass; imports are not timed. `load` is the growth of memory by the sizes and
the first list, as Python's allocations. Gates: cold below 0.5 s, and load below 30 MiB.

    python -m benchmarks.azure_catalogue             prints the figures; returns 1 if a gate fails
    python -m benchmarks.azure_catalogue --json
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tracemalloc
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.catalogue_timing import medians_ms, run_benchmark
from karpenter_core.operator.clock import SystemClock
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.shortages import Shortage
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_azure.api.nodeclass import AKSNodeClass
from karpenter_provider_azure.catalogue import requirements
from karpenter_provider_azure.catalogue.instance_types import InstanceTypeCatalogue
from karpenter_provider_azure.catalogue.prices import ListedPrices, RegionPrices
from karpenter_provider_azure.catalogue.quotas import RegionQuotas
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader
from karpenter_provider_azure.catalogue.size_names import read_size_name
from karpenter_provider_azure.catalogue.vm_sizes import parse_skus
from karpenter_provider_azure.data import shipped_prices
from karpenter_provider_azure.settings import AzureSettings

if TYPE_CHECKING:
    from karpenter_core.provider.catalogue import InstanceType

REGION: Final = "eastus"
NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
SIZES: Final = 1500
CAPABILITIES: Final = 30
RUNS: Final = 9
MOST_COLD_MS: Final = 500.0
MOST_LOAD_MIB: Final = 30.0


def sku_items() -> list[dict[str, Any]]:
    """Return the items of Microsoft.Compute/skus."""
    return [_sku_item(name) for name in list(shipped_prices(REGION).prices)[:SIZES]]


def _sku_item(name: str) -> dict[str, Any]:
    parts = read_size_name(name)
    cpus = max(2, parts.cpus)
    capabilities = {
        "vCPUs": str(cpus),
        "MemoryGB": str(cpus * 4),
        "CpuArchitectureType": "Arm64" if "p" in parts.features else "x64",
        "HyperVGenerations": "V1,V2",
        "LowPriorityCapable": "True",
        "PremiumIO": "True",
        "AcceleratedNetworkingEnabled": "True",
        "EncryptionAtHostSupported": "True",
        "EphemeralOSDiskSupported": "True",
        "CachedDiskBytes": str(cpus * 25 * 10**9),
    }
    capabilities |= {f"Other{n}": str(n) for n in range(CAPABILITIES - len(capabilities))}
    return {
        "resourceType": "virtualMachines",
        "name": name,
        "tier": "Standard",
        "size": name.partition("_")[2],
        "family": f"standard{parts.series.replace('_', '')}Family",
        "locations": [REGION],
        "locationInfo": [{"location": REGION, "zones": ["1", "2", "3"], "zoneDetails": []}],
        "capabilities": [{"name": key, "value": value} for key, value in capabilities.items()],
        "restrictions": [],
    }


class RegionCatalogue:
    """A catalogue of one region, with all that it reads."""

    def __init__(self, items: list[dict[str, Any]], folder: Path) -> None:
        clock = SystemClock()
        self.prices = RegionPrices(REGION)
        self.unavailable = UnavailableOfferings()
        self.sizes = RegionSizeReader(REGION, clock, folder, fetch=lambda: items, cache_key="")
        self.catalogue = InstanceTypeCatalogue(
            AzureSettings(
                cluster_name="",
                cluster_endpoint="",
                kubelet_bootstrap_token="",
                ssh_public_key="",
                vnet_subnet_id="",
                node_resource_group="benchmark",
                azure_subscription_id="",
                location=REGION,
            ),
            clock,
            sizes=self.sizes.current,
            prices=self.prices,
            quotas=RegionQuotas(clock, fetch=tuple),
            unavailable_offerings=self.unavailable,
            learned=LearnedMemory(DiskCache(folder, "azure-memory", version="1"), now=NOW),
        )

    def list(self, pods: int = 110) -> tuple[InstanceType, ...]:
        """Return the types of a NodeClass; another `pods` is another NodeClass."""
        of = AKSNodeClass.model_validate(
            {"metadata": {"name": "benchmark"}, "spec": {"maxPods": pods}}
        )
        return self.catalogue.instance_types(of)


def load_mib(items: list[dict[str, Any]], folder: Path) -> float:
    """Return the memory of the sizes and the first list."""
    gc.collect()
    tracemalloc.start()
    world = RegionCatalogue(items, folder)
    listed = world.list()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del listed
    return size / 2**20


def measure(folder: Path) -> dict[str, Any]:
    """Return the medians in milliseconds, the memory, and the number of types."""
    items = sku_items()
    text = json.dumps({"value": items})
    folders = (folder / str(number) for number in count())
    kept = folder / "kept"
    found: dict[str, Any] = {"load_mib": load_mib(items, next(folders))}
    world = RegionCatalogue(items, kept)
    listed = world.list()
    numbers = count(1)

    def list_cold() -> None:
        for shared in vars(requirements).values():
            if hasattr(shared, "cache_clear"):
                shared.cache_clear()
        RegionCatalogue(items, next(folders)).list()

    def change_prices() -> None:
        world.prices.update(ListedPrices({"Standard_D4s_v5": next(numbers) / 1000}, {}), now=NOW)
        world.list()

    def sell_out() -> None:
        zone = f"{REGION}-{next(numbers) % 3 + 1}"
        shortage = Shortage(capacity_type="spot", zone=zone, group="standarddsv5family")
        world.unavailable.flush()
        world.unavailable.mark_shortages(shortage, now=datetime.now(UTC))
        world.list()

    timed = {
        "json": lambda: json.loads(text),
        "parse": lambda: parse_skus(items, REGION),
        "cold": list_cold,
        "disk": lambda: RegionCatalogue(items, kept).list(),
        "class": lambda: world.list(next(numbers)),
        "fresh": change_prices,
        "shortage": sell_out,
        "unchanged": world.list,
    }
    found["types"] = len(listed)
    found["offerings"] = sum(len(it.offerings) for it in listed)
    for name, run in timed.items():
        found[f"{name}_ms"], found[f"{name}_cpu_ms"] = medians_ms(run, runs=RUNS)
    found["cold_to_json"] = found["cold_cpu_ms"] / found["json_cpu_ms"]
    return found


def gate(found: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the gates hold, and the line that tells it."""
    holds = found["cold_cpu_ms"] <= MOST_COLD_MS and found["load_mib"] <= MOST_LOAD_MIB
    verdict = "hold" if holds else "FAIL"
    return holds, (
        f"gates {verdict}: cold below {MOST_COLD_MS:.0f} ms of CPU, load below "
        f"{MOST_LOAD_MIB:.0f} MiB; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__ or "", measure, gate))
