"""Types of a region are read page by page and cached between two processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_core.provider.kit.cached_response import Fetched
from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_provider_aws.catalogue import region_types
from karpenter_provider_aws.catalogue.region_types import (
    RegionTypeReader,
    RegionTypes,
    fetch_region_types,
    impossible_field,
)
from karpenter_provider_aws.instance_type_info import (
    InstanceTypeInfo,
    NetworkCard,
    read_instance_type,
)
from providers.aws.tests.catalogue.recorded_region import (
    NOW,
    info,
    raw_types,
    region,
    small_region,
)
from providers.aws.tests.stubbed_clients import StubbedClients

TYPES = "describe_instance_types"
OFFERINGS = "describe_instance_type_offerings"


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at: datetime = NOW

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


def types_request(**more: Any) -> dict[str, Any]:
    return {
        "Filters": [
            {"Name": "supported-virtualization-type", "Values": ["hvm"]},
            {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
        ],
        "MaxResults": 100,
        **more,
    }


def offerings_request(**more: Any) -> dict[str, Any]:
    return {"LocationType": "availability-zone", "MaxResults": 1000, **more}


def sold(name: str, zone: str) -> dict[str, str]:
    return {"InstanceType": name, "Location": zone, "LocationType": "availability-zone"}


def described(*names: str) -> list[Any]:
    return [raw_types()[name] for name in names]


def cloud(*names: str, zones: tuple[str, ...] = ("us-east-1b", "us-east-1a")) -> StubbedClients:
    clients = StubbedClients()
    clients.page(TYPES, {"InstanceTypes": described(*names)}, types_request())
    offerings = [sold(name, zone) for name in names for zone in zones]
    clients.page(OFFERINGS, {"InstanceTypeOfferings": offerings}, offerings_request())
    return clients


def store(clients: StubbedClients, folder: Path, clock: SetClock | None = None) -> RegionTypeReader:
    return RegionTypeReader(clients, clock or SetClock(), folder)


def test_all_pages_are_read_with_the_filters():
    clients = StubbedClients()
    clients.page(
        TYPES,
        {"InstanceTypes": described("m5.large"), "NextToken": "more"},
        types_request(),
    )
    clients.page(TYPES, {"InstanceTypes": described("m6g.large")}, types_request(NextToken="more"))
    clients.page(
        OFFERINGS,
        {"InstanceTypeOfferings": [sold("m5.large", "us-east-1b")], "NextToken": "on"},
        offerings_request(),
    )
    clients.page(
        OFFERINGS,
        {
            "InstanceTypeOfferings": [
                sold("m6g.large", "us-east-1a"),
                sold("m5.large", "us-east-1a"),
            ]
        },
        offerings_request(NextToken="on"),
    )

    found = fetch_region_types(clients).value

    assert found.types == {
        name: read_instance_type(raw_types()[name]) for name in ("m5.large", "m6g.large")
    }
    assert found.zones == {
        "m5.large": ("us-east-1a", "us-east-1b"),
        "m6g.large": ("us-east-1a",),
    }


@pytest.mark.parametrize(
    ("types", "offerings", "said"),
    [
        ([], [sold("m5.large", "us-east-1a")], "no instance types found"),
        (described("m5.large"), [], "no instance types offerings found"),
    ],
)
def test_a_region_without_types_is_an_error(types: Any, offerings: Any, said: str):
    clients = StubbedClients()
    clients.page(TYPES, {"InstanceTypes": types}, types_request())
    clients.page(OFFERINGS, {"InstanceTypeOfferings": offerings}, offerings_request())

    with pytest.raises(CloudProviderError, match=said):
        fetch_region_types(clients)


def test_a_refusal_names_the_action(tmp_path: Path):
    clients = cloud("m5.large")
    clients._answers.pop((TYPES, ""))
    clients.fail(TYPES, "UnauthorizedOperation")

    with pytest.raises(AuthError, match="ec2:DescribeInstanceTypes"):
        store(clients, tmp_path).current()


def test_the_region_is_read_once(tmp_path: Path):
    clients = cloud("m5.large")
    catalogue = store(clients, tmp_path)

    first, revision = catalogue.current()

    assert catalogue.current() == (first, revision)
    assert sorted(clients.called) == [OFFERINGS, TYPES]


def test_a_new_process_reads_the_disk_cache_and_makes_no_call(tmp_path: Path):
    known, _ = store(cloud("m5.large", "p4d.24xlarge", "inf2.xlarge"), tmp_path).current()
    unused_clients = StubbedClients()

    found, _ = store(unused_clients, tmp_path).current()

    assert found == known
    assert unused_clients.called == []


def test_the_whole_region_survives_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(region_types, "fetch_region_types", lambda *_: Fetched(region()))
    store(StubbedClients(), tmp_path).current()

    found, _ = store(StubbedClients(), tmp_path).current()

    assert found == region()
    assert list(found.types) == sorted(found.types)


def test_another_regions_file_is_not_read(tmp_path: Path):
    store(cloud("m5.large"), tmp_path).current()
    elsewhere = StubbedClients("eu-west-1")
    elsewhere.fail(TYPES, "InternalError")
    elsewhere.fail(OFFERINGS, "InternalError")

    with pytest.raises(CloudProviderError):
        store(elsewhere, tmp_path).current()


@pytest.mark.parametrize("damage", ['{"version": "1"}', "nonsense", "[]"])
def test_a_damaged_cache_file_counts_as_missing(tmp_path: Path, damage: str):
    store(cloud("m5.large"), tmp_path).current()
    (file,) = tmp_path.iterdir()
    file.write_text(damage)

    found, _ = store(cloud("m6g.large"), tmp_path).current()

    assert list(found.types) == ["m6g.large"]


def test_a_cached_value_of_another_shape_counts_as_missing(tmp_path: Path):
    clock = SetClock()
    catalogue = store(cloud("m6g.large"), tmp_path, clock)
    store(cloud("m5.large"), tmp_path, clock).current()
    (file,) = tmp_path.iterdir()
    disk = DiskCache(tmp_path, file.stem, version="1")
    disk.write({"types": {"m5.large": {"name": 5}}, "zones": {}}, now=NOW)

    found, _ = catalogue.current()

    assert list(found.types) == ["m6g.large"]


def test_a_refresh_that_finds_the_same_keeps_the_objects(tmp_path: Path):
    clock = SetClock()
    first = store(cloud("m5.large"), tmp_path, clock)
    first.current()
    catalogue = store(cloud("m5.large"), tmp_path, clock)
    known, revision = catalogue.current()

    assert not catalogue.refresh()
    found, same = catalogue.current()
    assert found is known
    assert same == revision


def test_a_refresh_that_finds_more_is_a_new_revision(tmp_path: Path):
    clock = SetClock()
    store(cloud("m5.large"), tmp_path, clock).current()
    catalogue = store(cloud("m5.large", "m5.xlarge"), tmp_path, clock)
    _, revision = catalogue.current()

    assert catalogue.refresh()
    found, newer = catalogue.current()
    assert newer > revision
    assert len(found.types) == 2


def test_types_are_read_again_after_half_the_period(tmp_path: Path):
    """The first hook may have read them long after the start, or right before the task."""
    clock, clients = SetClock(), cloud("m5.large")
    catalogue = store(clients, tmp_path, clock)
    catalogue.current()

    clock.at += timedelta(hours=6, seconds=-1)
    assert not catalogue.refresh()
    assert len(clients.called) == 2
    clock.at += timedelta(seconds=1)
    clients.fail(TYPES, "InternalError")
    clients.fail(OFFERINGS, "InternalError")
    with pytest.raises(CloudProviderError):
        catalogue.refresh()


def test_a_failed_refresh_keeps_the_last_answer(tmp_path: Path):
    clock = SetClock()
    clients = cloud("m5.large")
    catalogue = store(clients, tmp_path, clock)
    known, _ = catalogue.current()
    clock.at += timedelta(hours=12)
    clients.fail(TYPES, "InternalError")
    clients.fail(OFFERINGS, "InternalError")

    with pytest.raises(CloudProviderError):
        catalogue.refresh()
    assert catalogue.current()[0] is known


DAMAGED_TYPES = (
    ({"InstanceType": "x"}, 'InstanceType is "x"'),
    ({"VCpuInfo": {"DefaultVCpus": -1}}, 'c5.large: DefaultVCpus is "-1"'),
    ({"MemoryInfo": {}}, 'c5.large: SizeInMiB is "0"'),
    ({"ProcessorInfo": {}}, "c5.large: SupportedArchitectures is missing"),
)


@pytest.mark.parametrize(("fields", "reason"), DAMAGED_TYPES)
def test_a_type_that_cannot_be_read_is_asked_for_again_and_a_known_one_stays(
    tmp_path: Path, fields: dict[str, Any], reason: str
):
    """A single damaged number must not end the launches of a type for half a day."""
    clock, clients = SetClock(), cloud("m5.large", "c5.large")
    catalogue = store(clients, tmp_path, clock)
    known, _ = catalogue.current()
    clock.at += timedelta(hours=12)
    clients.page(
        TYPES,
        {"InstanceTypes": [*described("m5.large"), described("c5.large")[0] | fields]},
        types_request(),
    )
    offerings = [
        sold(name, f"us-east-1{zone}") for name in ("m5.large", "c5.large") for zone in "ab"
    ]
    clients.page(OFFERINGS, {"InstanceTypeOfferings": offerings}, offerings_request())

    with pytest.raises(CloudProviderError, match="items cannot be read") as caught:
        catalogue.refresh()
    assert reason in str(caught.value)
    assert catalogue.current()[0] is known


@pytest.mark.parametrize(
    ("offering", "reason"),
    [
        (sold("", "us-east-1b"), 'InstanceType is ""'),
        (sold("m5.large", "x"), 'm5.large: Location is "x"'),
    ],
)
def test_a_zone_that_cannot_be_read_is_asked_for_again_and_known_ones_stay(
    tmp_path: Path, offering: Any, reason: str
):
    clock, clients = SetClock(), StubbedClients()
    clients.page(TYPES, {"InstanceTypes": described("m5.large")}, types_request())
    a, b = (sold("m5.large", f"us-east-1{zone}") for zone in "ab")
    clients.page(OFFERINGS, {"InstanceTypeOfferings": [a, b]}, offerings_request())
    catalogue = store(clients, tmp_path, clock)
    known, _ = catalogue.current()
    clock.at += timedelta(hours=12)
    clients.page(TYPES, {"InstanceTypes": described("m5.large")}, types_request())
    clients.page(OFFERINGS, {"InstanceTypeOfferings": [a, offering]}, offerings_request())

    with pytest.raises(CloudProviderError, match="items cannot be read") as caught:
        catalogue.refresh()
    assert reason in str(caught.value)
    assert catalogue.current()[0] is known


@pytest.mark.parametrize(
    ("fields", "is_possible"),
    [
        ({"vcpus": 1, "memory_mib": 1, "ipv4_per_interface": 1}, True),
        ({"vcpus": 2**31 - 1}, True),
        ({"vcpus": 2**31}, False),
        ({"vcpus": 0}, False),
        ({"memory_mib": 0}, False),
        ({"ipv4_per_interface": 0}, False),
        ({"storage_gb": 0}, True),
        ({"storage_gb": -1}, False),
        ({"network_cards": ()}, True),
        ({"network_cards": (NetworkCard(index=0, max_interfaces=1),)}, True),
        ({"network_cards": (NetworkCard(index=0, max_interfaces=0),)}, False),
        ({"name": "m5"}, False),
        ({"architectures": ()}, False),
    ],
)
def test_a_type_is_possible_within_the_bounds_of_each_field(fields: Any, is_possible: bool):
    assert (not impossible_field(replace(info("m5.large"), **fields))) == is_possible


def test_no_recorded_type_has_an_impossible_field():
    assert {name: it for name in raw_types() if (it := impossible_field(info(name)))} == {}


def test_concurrent_callers_share_one_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started, go, reads = Event(), Event(), list[int]()

    def slow(*_: object) -> Fetched[RegionTypes]:
        reads.append(1)
        started.set()
        assert go.wait(10)
        return Fetched(small_region("m5.large"))

    monkeypatch.setattr(region_types, "fetch_region_types", slow)
    catalogue = store(StubbedClients(), tmp_path)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(catalogue.current) for _ in range(4)]
        assert started.wait(10)
        go.set()
        found = [answer.result() for answer in answers]

    assert {id(answer[0]) for answer in found} == {id(found[0][0])}
    assert len(reads) == 1


def test_an_item_that_says_little_is_read():
    assert read_instance_type({"InstanceType": "x.large"}) == InstanceTypeInfo(
        name="x.large", architectures=(), vcpus=0, memory_mib=0, has_processor_info=False
    )


# -- places of EFAs ----------------------------------------------------------------------------------


def _places(name):
    return [(each.card, each.device, each.kind) for each in info(name).efa_places]


def test_efas_are_the_first_device_of_the_first_card_and_the_second_of_others():
    assert _places("p4d.24xlarge") == [(0, 0, "efa"), (1, 1, "efa"), (2, 1, "efa"), (3, 1, "efa")]


def test_a_card_for_one_interface_has_its_efa_as_the_first_device():
    assert _places("hpc6id.32xlarge") == [(0, 0, "efa"), (1, 0, "efa")]


def test_a_first_card_without_efa_has_the_primary_interface():
    places = _places("p6-b300.48xlarge")

    assert places[0] == (0, 0, "interface")
    assert places[1:] == [(card, 1, "efa") for card in range(1, 17)]


def test_a_card_that_only_takes_interfaces_without_addresses_has_one_of_them():
    """EC2 describes the odd cards of p6e-gb200 so."""
    cards = (
        NetworkCard(index=0, max_interfaces=2, interface_types=("interface", "efa", "efa-only")),
        NetworkCard(index=1, max_interfaces=1, interface_types=("efa-only",)),
        NetworkCard(index=2, max_interfaces=2, interface_types=("interface", "efa", "efa-only")),
    )
    gb200 = replace(info("p4d.24xlarge"), network_cards=cards, efa_max_interfaces=3)

    assert [(each.card, each.device, each.kind) for each in gb200.efa_places] == [
        (0, 0, "efa"),
        (1, 0, "efa-only"),
        (2, 1, "efa"),
    ]


def test_no_more_efas_are_attached_than_the_type_takes():
    assert _places("i7ie.48xlarge") == [(0, 0, "efa")]


def test_every_type_has_a_place_for_each_of_its_efas():
    for name, it in region().types.items():
        efas = [each for each in it.efa_places if each.kind != "interface"]
        assert len(efas) == (it.efa_max_interfaces or 0), name
