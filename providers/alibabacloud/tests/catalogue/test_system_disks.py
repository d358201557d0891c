"""System disk categories of types are queried, cached, refreshed and marked as sold out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_provider_alibabacloud.catalogue.system_disks import (
    DiskShortage,
    SystemDiskReader,
    read_system_disks,
    usable_categories,
)
from karpenter_provider_alibabacloud.codes import ApiError
from providers.alibabacloud.tests.catalogue.instance_type_data import A, B, SetClock
from providers.alibabacloud.tests.catalogue.stubbed_clients import AnsweringClients, zones

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME, OTHER = "ecs.g7.large", "ecs.c7.large"
ESSD, AUTO = "cloud_essd", "cloud_auto"
ACTION = "DescribeAvailableResource"
WITH = "WithStock"


def answer(_: Mapping[str, Any]) -> Mapping[str, Any]:
    return zones((A, WITH, {ESSD: WITH, AUTO: WITH}), (B, WITH, {ESSD: WITH}), kind="SystemDisk")


def refuse(_: Mapping[str, Any]) -> Mapping[str, Any]:
    raise ApiError("InternalError", "simulated", "R-1", 500, action=f"ecs:{ACTION}")


class DiskCloud:
    def __init__(self) -> None:
        self.clients = AnsweringClients(**{ACTION: answer})
        self.clock = SetClock()
        self.disks = SystemDiskReader(self.clients, self.clock)

    @property
    def calls(self) -> int:
        return len(self.clients.calls)


@pytest.mark.parametrize(
    ("zone", "disk", "is_there"),
    [
        ({}, {}, True),
        ({"Status": "SoldOut"}, {}, False),
        ({"StatusCategory": "ClosedWithStock"}, {}, False),
        ({}, {"Status": "SoldOut"}, False),
        ({}, {"StatusCategory": "WithoutStock"}, False),
    ],
)
def test_only_available_system_disks_count(
    zone: dict[str, str], disk: dict[str, str], is_there: bool
):
    body = zones((A, WITH, {ESSD: WITH}), kind="SystemDisk")
    described_zone = body["AvailableZones"]["AvailableZone"][0]
    described_zone |= zone
    group = described_zone["AvailableResources"]["AvailableResource"][0]
    group["SupportedResources"]["SupportedResource"][0] |= disk

    assert read_system_disks(body) == ({A: {ESSD}} if is_there else {})


def test_a_disk_without_a_stock_category_counts():
    body = zones((A, WITH, {ESSD: WITH}), kind="SystemDisk")
    group = body["AvailableZones"]["AvailableZone"][0]["AvailableResources"]["AvailableResource"][0]
    del group["SupportedResources"]["SupportedResource"][0]["StatusCategory"]

    assert read_system_disks(body) == {A: {ESSD}}


def test_disk_zones_and_categories_are_fetched_once_per_type():
    shop = DiskCloud()
    found = shop.disks.of([NAME, OTHER, NAME])

    assert found == {name: {A: {ESSD, AUTO}, B: {ESSD}} for name in (NAME, OTHER)}
    assert shop.disks.of([NAME]) == {NAME: found[NAME]}
    assert sorted(it["InstanceType"] for it in shop.clients.asked(ACTION)) == [OTHER, NAME]
    assert {it["DestinationResource"] for it in shop.clients.asked(ACTION)} == {"SystemDisk"}


def test_configured_categories_keep_their_order():
    disks = {A: frozenset({ESSD, AUTO}), B: frozenset({ESSD})}

    assert usable_categories(disks, A, (AUTO, "cloud", ESSD)) == (AUTO, ESSD)
    assert usable_categories(disks, B, (AUTO, "cloud")) == ()
    assert usable_categories(disks, "elsewhere", (AUTO,)) == ()
    assert usable_categories(None, A, (AUTO, ESSD)) == (AUTO, ESSD)


def test_a_failed_disk_query_is_unknown_and_repeated_soon():
    shop = DiskCloud()
    shop.clients.answers[ACTION] = refuse
    assert shop.disks.of([NAME]) == {NAME: None}
    assert shop.disks.of([NAME]) == {NAME: None}
    assert shop.calls == 1

    shop.clients.answers[ACTION] = answer
    shop.clock.at += timedelta(minutes=1)
    assert shop.disks.of([NAME])[NAME] is not None


@pytest.mark.parametrize("said", [{}, {"AvailableZones": None}, {"AvailableZones": {}}])
def test_an_answer_without_a_list_of_zones_is_none(said: Mapping[str, Any]):
    """Else the type could be launched nowhere for half an hour."""
    shop = DiskCloud()
    shop.clients.answers[ACTION] = lambda _: said
    assert shop.disks.of([NAME]) == {NAME: None}

    shop.clients.answers[ACTION] = lambda _: zones()
    shop.clock.at += timedelta(minutes=1)
    assert shop.disks.of([NAME]) == {NAME: {}}


def test_an_answer_is_valid_for_half_an_hour():
    shop = DiskCloud()
    shop.disks.of([NAME])
    shop.clock.at += timedelta(minutes=29)
    shop.disks.of([NAME])
    assert shop.calls == 1

    shop.clock.at += timedelta(minutes=1)
    shop.disks.of([NAME])
    assert shop.calls == 2


def test_types_in_use_are_renewed_before_launches_would_wait():
    shop = DiskCloud()
    shop.disks.of([NAME])
    assert shop.disks.refresh() == 0
    for _ in range(12):
        shop.clock.at += timedelta(minutes=5)
        shop.disks.refresh()
    renewed = shop.calls
    shop.disks.of([NAME])

    assert shop.calls == renewed
    assert 2 <= renewed <= 4


def test_unused_types_are_not_refreshed():
    shop = DiskCloud()
    shop.disks.of([NAME])
    shop.clock.at += timedelta(hours=3)

    assert shop.disks.refresh() == 0
    assert shop.calls == 1


def test_a_renewal_that_fails_leaves_the_answer():
    shop = DiskCloud()
    known = shop.disks.of([NAME])
    shop.clients.answers[ACTION] = refuse
    shop.clock.at += timedelta(minutes=25)

    assert shop.disks.refresh() == 1
    assert shop.disks.of([NAME]) == known


def test_a_kind_that_a_launch_did_not_find_is_gone_for_some_minutes():
    shop = DiskCloud()
    shop.disks.of([NAME, OTHER])
    shop.disks.mark(DiskShortage(NAME, A, ESSD))

    assert shop.disks.of([NAME])[NAME] == {A: {AUTO}, B: {ESSD}}
    assert shop.disks.of([OTHER])[OTHER] == {A: {ESSD, AUTO}, B: {ESSD}}
    shop.clock.at += timedelta(minutes=3)
    assert shop.disks.of([NAME])[NAME] == {A: {ESSD, AUTO}, B: {ESSD}}
