"""The region us-east-1 as EC2 described it (data that moto ships), and catalogues of it."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from karpenter_core.provider.kit.learned_memory import LearnedMemory
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOfferings
from karpenter_provider_aws.api.nodeclass import EC2NodeClass
from karpenter_provider_aws.catalogue.instance_types import CatalogueInputs, InstanceTypeCatalogue
from karpenter_provider_aws.catalogue.region_types import RegionTypes, read_offerings
from karpenter_provider_aws.instance_type_info import InstanceTypeInfo, read_instance_type
from karpenter_provider_aws.prices import RegionPrices
from karpenter_provider_aws.settings import AwsSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType, Offering
    from karpenter_provider_aws.catalogue.offerings import OfferingResolver
    from karpenter_provider_aws.kubelet.sizing import Evaluate

REGION = "us-east-1"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MIB = 2**20
GIB = 2**30
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d")


class EmptyDiskCache:
    """A disk cache that stores nothing."""

    def read(self, **_: object) -> None:
        return None

    def write(self, value: object, **_: object) -> None:
        """Keep nothing."""


def _load(name: str) -> Any:
    spec = find_spec("moto")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "ec2" / "resources" / f"{name}.json.gz"
    with gzip.open(path) as file:
        return json.load(file)


@cache
def raw_types() -> dict[str, Any]:
    """Items of DescribeInstanceTypes, as our filters let them through, by name."""
    return {
        name: item
        for name, item in sorted(_load("instance_types").items())
        if "hvm" in item["SupportedVirtualizationTypes"]
        and {"x86_64", "arm64"} & set(item["ProcessorInfo"]["SupportedArchitectures"])
    }


@cache
def raw_offerings() -> list[Any]:
    return _load(f"instance_type_offerings/availability-zone/{REGION}")


@cache
def region() -> RegionTypes:
    return RegionTypes(
        types={name: read_instance_type(item) for name, item in raw_types().items()},
        zones=read_offerings(raw_offerings()),
    )


def info(name: str) -> InstanceTypeInfo:
    return region().types[name]


def small_region(*names: str) -> RegionTypes:
    """Some types of the region only, which resolve in no time."""
    whole = region()
    return RegionTypes(
        types={name: whole.types[name] for name in sorted(names)},
        zones={name: whole.zones[name] for name in sorted(names)},
    )


def subnets(*zones: str, each: int = 1) -> list[dict[str, str]]:
    return [
        {"id": f"subnet-{zone[-1]}{number}", "zone": zone, "zoneID": f"use1-az-{zone[-1]}"}
        for zone in zones
        for number in range(1, each + 1)
    ]


def node_class(
    spec: Mapping[str, object] | None = None,
    *,
    family: str = "AL2023",
    zones: Iterable[str] = ZONES,
    name: str = "default",
    **status: object,
) -> EC2NodeClass:
    found = {"subnets": subnets(*zones), "amis": [{"id": "ami-1", "requirements": []}], **status}
    return EC2NodeClass.model_validate(
        {
            "metadata": {"name": name},
            "spec": {"amiFamily": family, **(spec or {})},
            "status": found,
        }
    )


class World:
    """A catalogue with all that it reads within reach."""

    def __init__(
        self,
        *names: str,
        settings: Mapping[str, Any] | None = None,
        evaluate: Evaluate | None = None,
        extensions: Sequence[OfferingResolver] = (),
        learned: LearnedMemory | None = None,
    ) -> None:
        self.region = small_region(*names) if names else region()
        self.revision = 1
        self.prices = RegionPrices(REGION)
        self.unavailable_offerings = UnavailableOfferings()
        self.learned = learned or LearnedMemory(EmptyDiskCache(), now=NOW)
        self.reserved_left: dict[str, int] = {}
        self.catalogue = InstanceTypeCatalogue(
            REGION,
            AwsSettings(cluster_name="test", **(settings or {})),
            source=lambda: (self.region, self.revision),
            prices=self.prices,
            unavailable_offerings=self.unavailable_offerings,
            learned=self.learned,
            reserved_left=lambda name: self.reserved_left.get(name, 0),
            evaluate=evaluate,
            extensions=extensions,
        )

    def list(
        self, of: EC2NodeClass | None = None, **catalogue_inputs: Any
    ) -> dict[str, InstanceType]:
        found = self.catalogue.instance_types(
            of or node_class(), CatalogueInputs(**{"now": NOW, **catalogue_inputs})
        )
        return {it.name: it for it in found}


def resolve(
    name: str,
    of: EC2NodeClass | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    **catalogue_inputs: Any,
) -> InstanceType:
    """Return one type as a NodeClass sees it."""
    return World(name, settings=settings).list(of, **catalogue_inputs)[name]


def labels_of(it: InstanceType) -> dict[str, str]:
    """Labels that have exactly one value, without their domains."""
    return {
        key.rpartition("/")[2]: next(iter(requirement.values))
        for key, requirement in it.requirements.items()
        if not requirement.complement and len(requirement.values) == 1
    }


def bought(it: InstanceType) -> dict[tuple[str, str], Offering]:
    return {(offering.zone, offering.capacity_type): offering for offering in it.offerings}
