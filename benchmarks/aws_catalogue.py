"""List all instance types of an AWS region for one NodeClass, cold and warm.

The region is us-east-1 as EC2 described it (moto ships the answers): over 1,300 types, with an offering
for each of six zones and each capacity type. What is timed:

    answers    from EC2's answers, fetched already, to the list: items read, everything resolved
    disk       from the file that an earlier process kept to the list
    class      another NodeClass: everything resolved, facts and shared labels at hand
    fresh      prices changed: every offering made anew; the gate is 100 ms
    shortage   sixty offerings were found sold out: only their types are made anew
    unchanged  nothing changed: the answer of before

Each is the median of several runs, by the clock on the wall and in CPU time, with the collector of
cycles paused as during a pass; imports are not timed.

    python -m benchmarks.aws_catalogue             prints the medians; returns 1 if a gate fails
    python -m benchmarks.aws_catalogue --json
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from benchmarks.catalogue_timing import medians_ms, run_benchmark
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import (
    UnavailableOffering,
    UnavailableOfferings,
)
from karpenter_provider_aws.catalogue.instance_types import CatalogueInputs, InstanceTypeCatalogue
from karpenter_provider_aws.catalogue.region_types import DISK_LIFE, RegionTypes, read_offerings
from karpenter_provider_aws.instance_type_info import read_instance_type
from karpenter_provider_aws.prices import RegionPrices
from karpenter_provider_aws.settings import AwsSettings
from providers.aws.tests.catalogue.recorded_region import node_class, raw_offerings, raw_types

if TYPE_CHECKING:
    from karpenter_core.provider.catalogue import InstanceType

REGION: Final = "us-east-1"
ZONES: Final = tuple(f"us-east-1{letter}" for letter in "abcdef")
NOW: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
RUNS: Final = 15
MOST_FRESH_MS: Final = 100.0


class RegionCatalogue:
    """A catalogue of one region, with all that it reads."""

    def __init__(self, region: RegionTypes, folder: Path) -> None:
        self.prices = RegionPrices(REGION)
        self.unavailable = UnavailableOfferings()
        self.catalogue = InstanceTypeCatalogue(
            REGION,
            AwsSettings(cluster_name="benchmark"),
            source=lambda: (region, 1),
            prices=self.prices,
            unavailable_offerings=self.unavailable,
            learned=LearnedMemory(DiskCache(folder, "aws-memory", version="1"), now=NOW),
            reserved_left=lambda _: 0,
        )

    def list(self, pods: int = 110) -> tuple[InstanceType, ...]:
        """Return what a NodeClass in all zones may launch; another `pods` is another NodeClass."""
        of = node_class({"kubelet": {"maxPods": pods}}, zones=ZONES)
        return self.catalogue.instance_types(of, CatalogueInputs(now=NOW))


def read_answers() -> RegionTypes:
    """Read EC2's answers as they come from the SDK."""
    return RegionTypes(
        types={name: read_instance_type(item) for name, item in raw_types().items()},
        zones=read_offerings(raw_offerings()),
    )


def read_disk(disk: DiskCache) -> RegionTypes:
    """Read what an earlier process kept."""
    return msgspec.convert(disk.read(now=NOW, max_age=DISK_LIFE), RegionTypes)


def measure(folder: Path) -> dict[str, Any]:
    """Return the medians in milliseconds, and what was listed."""
    region = read_answers()
    disk = DiskCache(folder, f"aws-catalogue-{REGION}", version="1")
    disk.write(msgspec.to_builtins(region), now=NOW)
    world = RegionCatalogue(region, folder)
    listed = world.list()
    numbers = count(1)
    names = [it.name for it in listed[:60]]

    def change_prices() -> None:
        price = next(numbers) / 1000
        world.prices.update_on_demand({"m5.large": price}, now=NOW)
        world.list()

    def sell_out() -> None:
        zone = ZONES[next(numbers) % len(ZONES)]
        world.unavailable.mark(
            *(UnavailableOffering(name, zone, "spot") for name in names), now=NOW
        )
        world.list()

    spot = {
        (it.name, offering.zone): offering.price.amount / 3
        for it in listed
        for offering in it.offerings
    }
    world.prices.update_spot(spot, now=NOW)
    timed = {
        "answers": lambda: RegionCatalogue(read_answers(), folder).list(),
        "disk": lambda: RegionCatalogue(read_disk(disk), folder).list(),
        "class": lambda: world.list(next(numbers)),
        "fresh": change_prices,
        "shortage": sell_out,
        "unchanged": world.list,
    }
    found: dict[str, Any] = {
        "types": len(listed),
        "offerings": sum(len(it.offerings) for it in listed),
    }
    for name, run in timed.items():
        found[f"{name}_ms"], found[f"{name}_cpu_ms"] = medians_ms(run, runs=RUNS)
    return found


def gate(found: dict[str, Any]) -> tuple[bool, str]:
    """Return whether the gate holds, and the line that tells it."""
    holds = found["fresh_ms"] <= MOST_FRESH_MS
    verdict = "holds" if holds else "FAILS"
    return holds, (
        f"gate {verdict}: fresh below {MOST_FRESH_MS:.0f} ms; load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    sys.exit(run_benchmark(__doc__ or "", measure, gate))
