"""Tests the reading of a region's VM sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.errors import CloudProviderError
from karpenter_provider_azure.catalogue.region_sizes import RegionSizeReader, refresh_period
from providers.azure.tests.catalogue.sku_items import LOCATION, SetClock, sku_item

if TYPE_CHECKING:
    from pathlib import Path

D4, D8 = "Standard_D4s_v5", "Standard_D8s_v5"


class Skus:
    """A region's SKUs that a test sets."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.error: CloudProviderError | None = None
        self.damaged: dict[str, dict[str, object]] = {}
        """Odd fields by name of the size."""
        self.calls = 0

    def __call__(self) -> list[dict[str, Any]]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return [sku_item(name) | self.damaged.get(name, {}) for name in self.names]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def reader(skus: Skus, clock: SetClock, folder: Path) -> RegionSizeReader:
    return RegionSizeReader(LOCATION, clock, folder, fetch=skus, cache_key="subscription")


def test_the_first_reading_must_succeed(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)  # case 39
    skus.error = CloudProviderError("skus:list: no answer")

    with pytest.raises(CloudProviderError, match="no answer"):
        reader(skus, clock, tmp_path).current()


def test_a_failed_refresh_keeps_the_last_sizes(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)  # case 39
    sizes = reader(skus, clock, tmp_path)
    before = sizes.current()
    clock.advance(hours=12)
    skus.error = CloudProviderError("skus:list: no answer")

    with pytest.raises(CloudProviderError):
        sizes.refresh()

    assert sizes.current() == before


def test_an_empty_answer_is_an_error_and_replaces_nothing(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)  # case 40
    sizes = reader(skus, clock, tmp_path)
    before = sizes.current()
    skus.names = []
    clock.advance(hours=12)

    with pytest.raises(CloudProviderError, match=f"no VM sizes found in region {LOCATION}"):
        sizes.refresh()

    assert sizes.current() == before


@pytest.mark.parametrize("odd", [{"capabilities": []}, {"locationInfo": 3}, {"name": "x"}])
def test_a_size_that_cannot_be_read_is_read_again_and_a_known_one_stays(
    clock: SetClock, tmp_path: Path, odd: dict[str, object]
) -> None:
    """A single damaged value must not end the launches of a size for half a day."""
    skus = Skus(D4, D8)
    skus.damaged[D8] = odd
    sizes = reader(skus, clock, tmp_path)
    assert list(sizes.current()[0]) == [D4]
    with pytest.raises(CloudProviderError, match=r"skus:list: items cannot be read: .*VM size"):
        sizes.refresh()
    skus.damaged.clear()
    assert sizes.refresh()
    known, _ = sizes.current()
    assert list(known) == [D4, D8]

    clock.advance(hours=12)
    skus.damaged[D8] = odd
    with pytest.raises(CloudProviderError):
        sizes.refresh()
    assert sizes.current()[0] is known


def test_other_sizes_change_the_revision_and_equal_ones_do_not(
    clock: SetClock, tmp_path: Path
) -> None:
    skus = Skus(D4)
    sizes = reader(skus, clock, tmp_path)
    _, revision = sizes.current()

    clock.advance(hours=12)
    assert not sizes.refresh()
    assert sizes.current()[1] == revision

    skus.names = [D4, D8]
    clock.advance(hours=12)
    assert sizes.refresh()
    found, changed = sizes.current()
    assert (list(found), changed) == ([D4, D8], revision + 1)


def test_sizes_are_read_again_after_half_the_period(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)
    sizes = reader(skus, clock, tmp_path)
    sizes.current()

    clock.advance(hours=6, seconds=-1)
    sizes.refresh()
    assert skus.calls == 1
    clock.advance(seconds=1)
    sizes.refresh()
    assert skus.calls == 2


def test_sizes_that_nodes_cannot_use_are_left_out(clock: SetClock, tmp_path: Path) -> None:
    found, _ = reader(Skus(D4, "Standard_B1ms", "Standard_DC8s_v3"), clock, tmp_path).current()

    assert list(found) == [D4]


def test_a_new_process_begins_with_the_sizes_on_disk(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)
    sizes = reader(skus, clock, tmp_path).current()[0]
    skus.error = CloudProviderError("skus:list: no answer")

    assert reader(skus, clock, tmp_path).current()[0] == sizes
    assert skus.calls == 1


def test_sizes_on_disk_are_not_used_for_another_subscription(
    clock: SetClock, tmp_path: Path
) -> None:
    reader(Skus(D4), clock, tmp_path).current()

    other = RegionSizeReader(LOCATION, clock, tmp_path, fetch=Skus(D8), cache_key="other")

    assert list(other.current()[0]) == [D8]


def test_many_callers_wait_for_one_reading(clock: SetClock, tmp_path: Path) -> None:
    skus = Skus(D4)
    sizes = reader(skus, clock, tmp_path)
    for _ in range(20):
        sizes.current()

    assert skus.calls == 1


@pytest.mark.parametrize(("draw", "hours"), [(0, 10.8), (0.5, 12), (1, 13.2)])
def test_readings_are_spread_around_twelve_hours(draw: float, hours: float) -> None:
    assert refresh_period(draw).total_seconds() == pytest.approx(hours * 3600)
