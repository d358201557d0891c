"""The disk cache returns recent values and ignores damaged files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from karpenter_core.provider.kit.disk_cache import DiskCache

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_a_cached_value_is_read_by_the_next_process_until_stale(tmp_path):
    DiskCache(tmp_path / "new", "types", version="1").write({"m5": [1, 2]}, now=NOW)
    cache = DiskCache(tmp_path / "new", "types", version="1")
    assert cache.read(now=NOW + MINUTE, max_age=MINUTE) == {"m5": [1, 2]}
    assert cache.read(now=NOW + 2 * MINUTE, max_age=MINUTE) is None
    assert DiskCache(tmp_path / "new", "types", version="2").read(now=NOW, max_age=MINUTE) is None


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"version": "1", "written": "2030-01-01", "value": 1}']
)
def test_damaged_content_is_ignored(text, tmp_path):
    cache = DiskCache(tmp_path, "types", version="1")
    (tmp_path / "types.json").write_text(text)
    assert cache.read(now=NOW, max_age=MINUTE) is None


def test_a_disk_that_cannot_be_written_costs_nothing(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    cache = DiskCache(tmp_path / "file", "types", version="1")
    cache.write({"m5": 1}, now=NOW)
    assert cache.read(now=NOW, max_age=MINUTE) is None


def test_nothing_but_the_value_is_left_on_disk(tmp_path):
    cache = DiskCache(tmp_path, "types", version="1")
    for number in range(3):
        cache.write(number, now=NOW)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["value"] == 2


def test_a_value_from_the_future_is_not_kept_for_ever(tmp_path):
    """A clock that was wrong for a moment would otherwise keep it for years."""
    cache = DiskCache(tmp_path, "types", version="1")
    cache.write({"m5": 1}, now=NOW + MINUTE)
    assert cache.read(now=NOW, max_age=MINUTE) == {"m5": 1}
    cache.write({"m5": 1}, now=NOW + 2 * MINUTE)
    assert cache.read(now=NOW, max_age=MINUTE) is None


def test_content_that_is_nested_too_deeply_is_ignored(tmp_path):
    cache = DiskCache(tmp_path, "types", version="1")
    (tmp_path / "types.json").write_text("[" * 100_000)
    assert cache.read(now=NOW, max_age=MINUTE) is None
