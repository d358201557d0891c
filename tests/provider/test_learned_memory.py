"""Memory of real nodes is learned: acceptance case 46 of AWS, 47 of Alibaba Cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from karpenter_core.provider.kit.disk_cache import DiskCache
from karpenter_core.provider.kit.learned_memory import LearnedMemory, image_set

NOW = datetime(2026, 3, 1, tzinfo=UTC)
KIB = 1024
SOLD = 8 * 2**30
IMAGES = image_set(["ami-1"])


def disk(folder: Path) -> DiskCache:
    return DiskCache(folder, "aws-memory", version="1")


def test_the_smallest_amount_counts(tmp_path: Path):
    """Case 46."""
    learned = LearnedMemory(disk(tmp_path), now=NOW)

    assert learned.observe("m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW)
    assert not learned.observe("m5.large", IMAGES, 7_700_000 * KIB, sold_bytes=SOLD, now=NOW)
    assert learned.amounts(IMAGES, now=NOW) == {"m5.large": 7_600_000 * KIB}
    assert learned.observe("m5.large", IMAGES, 7_500_000 * KIB, sold_bytes=SOLD, now=NOW)
    assert learned.amounts(IMAGES, now=NOW) == {"m5.large": 7_500_000 * KIB}


def test_other_images_have_amounts_of_their_own(tmp_path: Path):
    """Case 46."""
    learned = LearnedMemory(disk(tmp_path), now=NOW)
    learned.observe("m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW)

    assert learned.amounts(image_set(["ami-2"]), now=NOW) == {}
    assert learned.amounts(image_set(["ami-1", "ami-2"]), now=NOW) == {}


def test_the_order_of_images_does_not_matter():
    assert image_set(["ami-2", "ami-1", "ami-2"]) == image_set(["ami-1", "ami-2"])


def test_an_amount_is_kept_for_60_days_after_its_last_observation(tmp_path: Path):
    """Case 46."""
    learned = LearnedMemory(disk(tmp_path), now=NOW)
    learned.observe("m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW)
    learned.observe(
        "m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW + timedelta(days=30)
    )

    assert learned.amounts(IMAGES, now=NOW + timedelta(days=89)) != {}
    assert learned.amounts(IMAGES, now=NOW + timedelta(days=90)) == {}


def test_after_its_expiry_a_larger_amount_is_learned(tmp_path: Path):
    learned = LearnedMemory(disk(tmp_path), now=NOW)
    learned.observe("m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW)
    later = NOW + timedelta(days=60)

    assert learned.observe("m5.large", IMAGES, 7_700_000 * KIB, sold_bytes=SOLD, now=later)
    assert learned.amounts(IMAGES, now=later) == {"m5.large": 7_700_000 * KIB}


def test_learned_memory_survives_a_restart(tmp_path: Path):
    LearnedMemory(disk(tmp_path), now=NOW).observe(
        "m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW
    )
    again = LearnedMemory(disk(tmp_path), now=NOW + timedelta(hours=1))

    assert again.amounts(IMAGES, now=NOW + timedelta(hours=1)) == {"m5.large": 7_600_000 * KIB}


def test_a_renewed_expiry_is_written_once_a_day(tmp_path: Path):
    learned = LearnedMemory(disk(tmp_path), now=NOW)
    for hours in range(0, 24 * 31, 6):
        learned.observe(
            "m5.large", IMAGES, 7_600_000 * KIB, sold_bytes=SOLD, now=NOW + timedelta(hours=hours)
        )
    later = NOW + timedelta(days=85)

    assert LearnedMemory(disk(tmp_path), now=later).amounts(IMAGES, now=later) != {}


def test_a_damaged_cache_file_is_ignored(tmp_path: Path):
    disk(tmp_path).write([["m5.large", IMAGES, "much", "yesterday"]], now=NOW)

    assert LearnedMemory(disk(tmp_path), now=NOW).amounts(IMAGES, now=NOW) == {}


def test_a_node_that_reports_nothing_teaches_nothing(tmp_path: Path):
    learned = LearnedMemory(disk(tmp_path), now=NOW)

    assert not learned.observe("m5.large", IMAGES, 0, sold_bytes=SOLD, now=NOW)
    assert learned.amounts(IMAGES, now=NOW) == {}


@pytest.mark.parametrize(
    ("memory_bytes", "learns"),
    [(1, False), (SOLD // 2 - 1, False), (SOLD // 2, True), (SOLD, True), (SOLD + 1, False)],
)
def test_an_amount_that_no_kernel_reports_teaches_nothing(
    tmp_path: Path, memory_bytes: int, learns: bool
):
    """A compromised node would keep a type from being launched, or have pods planned that do not fit."""
    learned = LearnedMemory(disk(tmp_path), now=NOW)

    assert learned.observe("m5.large", IMAGES, memory_bytes, sold_bytes=SOLD, now=NOW) is learns
    assert bool(learned.amounts(IMAGES, now=NOW)) is learns


def test_an_amount_from_the_future_expires_too(tmp_path: Path):
    """A clock that was wrong for a moment would otherwise keep larger amounts out for years."""
    wrong = NOW + timedelta(days=600)
    LearnedMemory(disk(tmp_path), now=wrong).observe(
        "m5.large", IMAGES, SOLD - KIB, sold_bytes=SOLD, now=wrong
    )
    disk(tmp_path).write(disk(tmp_path).read(now=wrong, max_age=timedelta()), now=NOW)
    learned = LearnedMemory(disk(tmp_path), now=NOW)

    assert learned.amounts(IMAGES, now=NOW) == {}
    assert learned.observe("m5.large", IMAGES, SOLD, sold_bytes=SOLD, now=NOW)
    assert learned.amounts(IMAGES, now=NOW) == {"m5.large": SOLD}


def test_amounts_with_times_of_no_zone_are_ignored(tmp_path: Path):
    disk(tmp_path).write([["m5.large", IMAGES, 7, "2026-03-01T00:00:00"]], now=NOW)
    learned = LearnedMemory(disk(tmp_path), now=NOW)

    assert learned.amounts(IMAGES, now=NOW) == {}
