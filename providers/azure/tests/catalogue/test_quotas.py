"""Tests the reading of quotas and the reservations of launches."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.catalogue.quotas import (
    Quota,
    RegionQuotas,
    _is_counted,
    parse_usages,
)
from providers.azure.tests.catalogue.sku_items import SetClock, usage, vm_size

FAMILY = "standardDSv5Family"
D2 = vm_size("Standard_D2s_v5", cpus=2, family=FAMILY)
D4 = vm_size("Standard_D4s_v5", cpus=4, family=FAMILY)
D16 = vm_size("Standard_D16s_v5", cpus=16, family=FAMILY)


class Usages:
    """A region's usages that a test sets."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.error: CloudProviderError | None = None

    def __call__(self) -> list[dict[str, Any]]:
        if self.error is not None:
            raise self.error
        return self.items


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def usages() -> Usages:
    return Usages(usage(FAMILY, limit=10, used=8))


@pytest.fixture
def quotas(clock: SetClock, usages: Usages) -> RegionQuotas:
    quotas = RegionQuotas(clock, fetch=usages)
    quotas.refresh()
    return quotas


def test_usages_are_read_by_name_without_case() -> None:
    assert parse_usages([usage(FAMILY, limit=10, used=8)]) == {FAMILY.lower(): Quota(10, 8)}


@pytest.mark.parametrize("limit", [-1, True, "10", None, 10.5])
def test_a_limit_that_is_no_number_restricts_nothing(limit: Any) -> None:
    assert parse_usages([{**usage(FAMILY, limit=10, used=8), "limit": limit}]) == {}


@pytest.mark.parametrize("name", [None, 5, "", {"value": FAMILY}])
def test_a_usage_without_a_name_restricts_nothing(name: Any) -> None:
    odd = {**usage(FAMILY, limit=1, used=1), "name": {"value": name}}
    assert parse_usages([odd, usage(FAMILY, limit=10, used=8)]) == {FAMILY.lower(): Quota(10, 8)}


@pytest.mark.parametrize(("minutes", "left"), [(14, 2), (16, None)])
def test_quotas_are_dropped_15_minutes_after_the_last_reading(
    quotas: RegionQuotas, usages: Usages, clock: SetClock, minutes: int, left: int | None
) -> None:
    revision = quotas.view().revision  # case 56
    usages.error = CloudProviderError("usages:list: no answer")
    clock.advance(minutes=minutes)
    with pytest.raises(CloudProviderError):
        quotas.refresh()

    assert quotas.view().remaining(FAMILY) == left
    assert (quotas.view().revision == revision) is (left is not None)


def reads_within(quotas: RegionQuotas, clock: SetClock, *, minutes: int) -> list[int]:
    """Ask for a reading each minute, and return the minutes in which there was one."""
    found: list[int] = []
    for minute in range(1, minutes + 1):
        clock.advance(minutes=1)
        if quotas.is_due():
            quotas.refresh()
            found.append(minute)
    return found


def test_quotas_are_read_every_ten_minutes(quotas: RegionQuotas, clock: SetClock) -> None:
    assert reads_within(quotas, clock, minutes=25) == [10, 20]


def test_the_first_reading_is_due_at_once(clock: SetClock, usages: Usages) -> None:
    assert RegionQuotas(clock, fetch=usages).is_due()


def test_a_deletion_makes_its_quota_available_within_minutes(
    quotas: RegionQuotas, usages: Usages, clock: SetClock
) -> None:
    assert quotas.view().short_quota(D4, "on-demand") == FAMILY.lower()
    quotas.note_deleted()
    usages.items = [usage(FAMILY, limit=10, used=0)]

    assert reads_within(quotas, clock, minutes=1) == [1]
    assert quotas.view().short_quota(D4, "on-demand") == ""
    # Azure counts a virtual machine until it is gone, so that one reading may be too early.
    assert reads_within(quotas, clock, minutes=20) == [1, 2, 12]


def test_a_reading_that_failed_is_due_again(
    quotas: RegionQuotas, usages: Usages, clock: SetClock
) -> None:
    clock.advance(minutes=10)
    usages.error = CloudProviderError("usages:list: no answer")
    with pytest.raises(CloudProviderError):
        quotas.refresh()

    assert quotas.is_due()


def test_only_different_quotas_change_the_revision(quotas: RegionQuotas, usages: Usages) -> None:
    revision = quotas.view().revision  # case 57

    assert not quotas.refresh()
    assert quotas.view().revision == revision

    usages.items = [usage(FAMILY, limit=20, used=8)]
    assert quotas.refresh()
    assert quotas.view().revision == revision + 1


def test_a_reading_that_begins_after_the_answer_counts_a_launch(
    quotas: RegionQuotas, usages: Usages, clock: SetClock
) -> None:
    usages.items = [usage(FAMILY, limit=20, used=8)]
    quotas.refresh()
    quotas.reserve("claim-1", D4, "on-demand")
    quotas.refresh()
    assert quotas.view().remaining(FAMILY) == 8

    clock.advance(seconds=1)
    quotas.note_launched("claim-1")
    assert quotas.view().remaining(FAMILY) == 8

    clock.advance(seconds=1)
    usages.items = [usage(FAMILY, limit=20, used=12)]
    quotas.refresh()
    assert quotas.view().remaining(FAMILY) == 8


def test_a_refused_launch_is_not_counted(quotas: RegionQuotas) -> None:
    quotas.reserve("claim-1", D2, "on-demand")
    assert quotas.view().short_quota(D4, "on-demand") == FAMILY.lower()

    quotas.release("claim-1")

    assert quotas.view().remaining(FAMILY) == 2


def test_a_repeated_launch_counts_once(quotas: RegionQuotas, usages: Usages) -> None:
    usages.items = [usage(FAMILY, limit=12, used=8)]
    quotas.refresh()
    assert quotas.reserve("claim-1", D4, "on-demand") == ""
    assert quotas.reserve("claim-1", D4, "on-demand") == ""
    assert quotas.view().remaining(FAMILY) == 0


def test_a_launch_beyond_the_quota_is_not_reserved(quotas: RegionQuotas, usages: Usages) -> None:
    assert quotas.reserve("claim-1", D4, "on-demand") == FAMILY.lower()
    assert quotas.view().remaining(FAMILY) == 2
    usages.items = [usage(FAMILY, limit=20, used=8)]
    quotas.refresh()
    assert quotas.reserve("claim-1", D4, "on-demand") == ""
    assert quotas.reserve("claim-1", D16, "on-demand") == FAMILY.lower()
    assert quotas.view().remaining(FAMILY) == 8  # of the reservation before


def test_quotas_that_went_out_of_date_are_reported_once(
    quotas: RegionQuotas, clock: SetClock
) -> None:
    clock.advance(minutes=16)
    with capture_logs() as logs:
        assert quotas.view().remaining(FAMILY) is None
        assert quotas.reserve("claim-1", D4, "on-demand") == ""
        quotas.view()
    assert [each["log_level"] for each in logs] == ["warning"]
    assert quotas.is_due()


def test_a_launch_that_never_ends_is_not_counted_forever(
    quotas: RegionQuotas, clock: SetClock
) -> None:
    quotas.reserve("claim-1", D2, "on-demand")
    assert quotas.view().remaining(FAMILY) == 0
    clock.advance(minutes=10)

    assert quotas.view().remaining(FAMILY) == 2


def test_spot_counts_against_its_own_quota_alone(clock: SetClock) -> None:
    usages = Usages(usage(FAMILY, limit=10, used=8), usage("lowPriorityCores", limit=6, used=0))
    quotas = RegionQuotas(clock, fetch=usages)
    quotas.refresh()
    quotas.reserve("claim-1", D4, "spot")

    assert quotas.view().remaining(FAMILY) == 2
    assert quotas.view().remaining("lowPriorityCores") == 2
    assert quotas.view().short_quota(D4, "spot") == "lowprioritycores"


@given(
    limit=st.integers(0, 200),
    launches=st.lists(st.integers(1, 64), max_size=30),
)
def test_launches_at_the_same_time_never_exceed_a_quota_and_leave_no_room(
    limit: int, launches: list[int]
) -> None:
    quotas = RegionQuotas(SetClock(), fetch=lambda: [usage(FAMILY, limit=limit, used=0)])
    quotas.refresh()
    sizes = [vm_size("Standard_D4s_v5", cpus=cpus, family=FAMILY) for cpus in launches]
    start = Barrier(4)

    def launch(worker: int) -> int:
        start.wait()
        return sum(
            size.cpus
            for number, size in enumerate(sizes)
            if number % 4 == worker and not quotas.reserve(str(number), size, "on-demand")
        )

    with ThreadPoolExecutor(4) as pool:
        launched = sum(pool.map(launch, range(4)))

    assert launched <= limit
    assert quotas.view().remaining(FAMILY) == limit - launched
    refused = sum(launches) - launched
    assert not refused or limit - launched < max(launches)


@pytest.mark.parametrize(
    ("answered", "counted"), [(None, False), (4.9, True), (5.0, True), (5.1, False)]
)
def test_a_reading_counts_launches_that_were_answered_before_it_began(answered, counted):
    assert _is_counted(SimpleNamespace(answered_at=answered), 5.0) is counted
