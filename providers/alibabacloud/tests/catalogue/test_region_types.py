"""Instance types are read page by page and cached between two processes: case 26."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.errors import AuthError, CloudProviderError
from karpenter_provider_alibabacloud.catalogue.region_types import (
    REFRESH_PERIOD,
    RegionTypeReader,
    fetch_region_types,
    refresh_period,
)
from karpenter_provider_alibabacloud.codes import ApiError
from providers.alibabacloud.tests.catalogue.instance_type_data import SIZES, SetClock, info, item
from providers.alibabacloud.tests.catalogue.stubbed_clients import AnsweringClients

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ACTION = "DescribeInstanceTypes"


def cloud(*items: Mapping[str, Any]) -> AnsweringClients:
    """Return clients of a cloud that has these types, and lists a hundred of them per call."""

    def answer(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        start = int(parameters.get("NextToken", 0))
        end = start + min(parameters["MaxResults"], 100)
        token = str(end) if end < len(items) else ""
        return {"InstanceTypes": {"InstanceType": list(items[start:end])}, "NextToken": token}

    return AnsweringClients(**{ACTION: answer})


def catalogue(
    clients: AnsweringClients, folder: Path, clock: SetClock | None = None
) -> RegionTypeReader:
    return RegionTypeReader(clients, clock or SetClock(), folder)


def refuse(code: str, status: int) -> Any:
    def answer(_: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ApiError(code, "simulated", "R-1", status, action=f"ecs:{ACTION}")

    return answer


def test_a_thousand_types_are_ten_calls():
    """Case 26."""
    clients = cloud(*(item(f"ecs.g{number:03}.large") for number in range(1000)))

    assert len(fetch_region_types(clients).value) == 1000
    assert len(clients.asked(ACTION)) == 10
    assert {it["MaxResults"] for it in clients.asked(ACTION)} == {100}


def test_types_are_sorted_and_read_once(tmp_path: Path):
    clients = cloud(*(item(name) for name in sorted(SIZES, reverse=True)))
    types = catalogue(clients, tmp_path)
    first, revision = types.current()

    assert list(first) == sorted(SIZES)
    assert first["ecs.g7.large"] == info("ecs.g7.large")
    assert types.current() == (first, revision)
    assert len(clients.calls) == 1


UNREADABLE = (
    {"CpuArchitecture": "RISC-V"},
    {"CpuArchitecture": None},
    {"CpuCoreCount": 0},
    {"CpuCoreCount": True},
    {"MemorySize": 0},
    {"MemorySize": 1e308},
    {"EniQuantity": 10**30},
    {"EniQuantity": -1},
    {"EniPrivateIpAddressQuantity": None},
    {"GPUAmount": [None]},
    {"GPUAmount": "x"},
    {"InstanceBandwidthRx": "9" * 5000},
    {"InstanceTypeId": "x"},
    {"InstanceTypeId": None},
)


@pytest.mark.parametrize("fields", UNREADABLE, ids=lambda it: f"{it}"[:40])
def test_a_type_that_cannot_be_read_is_left_out_and_asked_for_again(
    tmp_path: Path, fields: dict[str, object]
):
    clients = cloud(item("ecs.g7.large"), item("ecs.c7.large") | fields)
    types = catalogue(clients, tmp_path)

    assert list(types.current()[0]) == ["ecs.g7.large"]
    with pytest.raises(CloudProviderError, match=f"ecs:{ACTION}: items cannot be read: "):
        types.refresh()
    clients.answers[ACTION] = cloud(item("ecs.g7.large"), item("ecs.c7.large")).answers[ACTION]
    assert types.refresh()
    assert list(types.current()[0]) == ["ecs.c7.large", "ecs.g7.large"]


@pytest.mark.parametrize("fields", UNREADABLE, ids=lambda it: f"{it}"[:40])
def test_a_known_type_that_cannot_be_read_stays(tmp_path: Path, fields: dict[str, object]):
    """A single damaged number must not end the launches of a type for half a day."""
    clients, clock = cloud(item("ecs.g7.large"), item("ecs.c7.large")), SetClock()
    types = catalogue(clients, tmp_path, clock)
    known, _ = types.current()
    clock.at += REFRESH_PERIOD
    damaged = cloud(item("ecs.g7.large"), item("ecs.c7.large") | fields)
    clients.answers[ACTION] = damaged.answers[ACTION]

    with pytest.raises(CloudProviderError, match="items cannot be read"):
        types.refresh()
    assert types.current()[0] is known


def test_fields_that_some_types_have_may_be_missing(tmp_path: Path):
    described = item("ecs.g7.large") | {
        "GPUAmount": None,
        "GPUSpec": None,
        "LocalStorageAmount": "",
    }

    assert catalogue(cloud(described), tmp_path).current()[0] == {
        "ecs.g7.large": info("ecs.g7.large")
    }


def test_a_cloud_without_types_is_an_error(tmp_path: Path):
    with pytest.raises(CloudProviderError, match=r"no instance types found in region cn-\w+"):
        catalogue(cloud(), tmp_path).current()


def test_a_refusal_names_the_action(tmp_path: Path):
    clients = cloud()
    clients.answers[ACTION] = refuse("Forbidden.RAM", 403)

    with pytest.raises(AuthError, match=f"ecs:{ACTION}"):
        catalogue(clients, tmp_path).current()


def test_a_new_process_reads_the_disk_cache_and_makes_no_call(tmp_path: Path):
    known, _ = catalogue(cloud(*(item(name) for name in SIZES)), tmp_path).current()
    unused_clients = cloud()

    assert catalogue(unused_clients, tmp_path).current()[0] == known
    assert unused_clients.calls == []


def test_another_regions_file_is_not_read(tmp_path: Path):
    catalogue(cloud(item("ecs.g7.large")), tmp_path).current()
    elsewhere = cloud(item("ecs.c7.large"))
    elsewhere.region = "cn-beijing"

    assert list(catalogue(elsewhere, tmp_path).current()[0]) == ["ecs.c7.large"]


def test_a_refresh_that_finds_more_is_a_new_revision(tmp_path: Path):
    clock = SetClock()
    catalogue(cloud(item("ecs.g7.large")), tmp_path, clock).current()
    types = catalogue(cloud(item("ecs.g7.large"), item("ecs.c7.large")), tmp_path, clock)
    _, revision = types.current()

    assert types.refresh()
    found, newer = types.current()
    assert newer > revision
    assert len(found) == 2


def test_a_failed_refresh_keeps_the_last_answer(tmp_path: Path):
    clock, clients = SetClock(), cloud(item("ecs.g7.large"))
    types = catalogue(clients, tmp_path, clock)
    known, _ = types.current()
    assert not types.refresh()
    clients.answers[ACTION] = refuse("InternalError", 500)
    clock.at += timedelta(hours=12)

    with pytest.raises(CloudProviderError):
        types.refresh()
    assert types.current()[0] is known


def test_an_immediate_refresh_ignores_the_age_of_the_last_answer(tmp_path: Path):
    clients = cloud(item("ecs.g7.large"))
    types = catalogue(clients, tmp_path)
    types.current()

    assert not types.refresh()
    assert len(clients.calls) == 1
    assert not types.refresh(at_once=True)
    assert len(clients.calls) == 2


def test_types_are_read_again_after_half_the_period(tmp_path: Path):
    clock, clients = SetClock(), cloud(item("ecs.g7.large"))
    types = catalogue(clients, tmp_path, clock)
    types.current()

    clock.at += REFRESH_PERIOD / 2 - timedelta(seconds=1)
    types.refresh()
    assert len(clients.calls) == 1
    clock.at += timedelta(seconds=1)
    types.refresh()
    assert len(clients.calls) == 2


def test_the_period_is_spread_by_a_tenth():
    assert refresh_period(0.5) == REFRESH_PERIOD
    assert refresh_period(0.0) == REFRESH_PERIOD * 0.9
    assert refresh_period(1.0) == REFRESH_PERIOD * 1.1
