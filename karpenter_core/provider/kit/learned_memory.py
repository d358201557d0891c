"""Remembers the observed memory of nodes, by instance type and images.

A cloud publishes the memory of an instance type; the kernel of the image reports less. The
difference is known only after a node of that type has registered. Estimates have to be low, and
waste memory of every node. So an observed amount replaces the estimate, for two months after it was
last observed. Of several amounts the smallest is used, since pods that do not fit would stay
pending.

The amounts are kept on disk, so that a restart does not return to estimates.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, cast, final

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from karpenter_core.provider.kit.disk_cache import DiskCache

__all__ = ["LearnedMemory", "image_set"]

MEMORY_LIFE: Final = timedelta(days=60)


class _MemoryReading(NamedTuple):
    memory_bytes: int
    last_seen: datetime


def image_set(image_ids: Iterable[str]) -> str:
    """Return the key of a set of images."""
    return ",".join(sorted(set(image_ids)))


@final
class LearnedMemory:
    """Bytes of memory by (instance type, image set); callable from any thread."""

    def __init__(self, disk: DiskCache, *, now: datetime) -> None:
        self._disk: Final = disk
        self._lock: Final = Lock()
        self._writing: Final = Lock()
        self._readings: Final = _read(disk, now)
        self._written = now

    def observe(
        self,
        instance_type: str,
        images: str,
        memory_bytes: int,
        *,
        sold_bytes: int,
        now: datetime,
    ) -> bool:
        """Record a node's `status.capacity.memory`; return True if the amount changes.

        Record only nodes with an image that their NodeClass would select today: other images report
        other amounts. `sold_bytes` is the published memory of the type. A kubelet reports what it likes,
        so more than that, or less than half of it, is not recorded: one compromised node would keep the
        type from being launched.
        """
        if not sold_bytes <= 2 * memory_bytes <= 2 * sold_bytes:
            return False
        key = (instance_type, images)
        with self._lock:
            learned = self._current(key, now)
            if learned is not None and memory_bytes > learned.memory_bytes:
                return False
            changed = learned is None or memory_bytes < learned.memory_bytes
            self._readings[key] = _MemoryReading(memory_bytes, now)
            # The same amount again only lengthens the life: once a day is often enough on disk.
            is_due = changed or abs(now - self._written) > timedelta(days=1)
            if is_due:
                self._written = now
        if is_due:
            self._write(now)
        return changed

    def amounts(self, images: str, *, now: datetime) -> Mapping[str, int]:
        """Return the bytes of memory by instance type, for nodes with these images."""
        with self._lock:
            return {
                instance_type: seen.memory_bytes
                for (instance_type, of), seen in self._readings.items()
                if of == images and _counts(seen, now)
            }

    def by_image(
        self, image_ids: Iterable[str], *, now: datetime
    ) -> tuple[Mapping[str, Mapping[str, int]], Hashable]:
        """Return the amounts for each image alone, and a value that is equal only for equal ones."""
        seen = {each: self.amounts(image_set([each]), now=now) for each in image_ids}
        return seen, tuple((image, tuple(sorted(of.items()))) for image, of in sorted(seen.items()))

    def _current(self, key: tuple[str, str], now: datetime) -> _MemoryReading | None:
        seen = self._readings.get(key)
        return seen if seen is not None and _counts(seen, now) else None

    def _write(self, now: datetime) -> None:
        with self._writing:
            with self._lock:
                rows = [
                    [instance_type, images, seen.memory_bytes, seen.last_seen.isoformat()]
                    for (instance_type, images), seen in sorted(self._readings.items())
                    if _counts(seen, now)
                ]
            self._disk.write(rows, now=now)


def _counts(seen: _MemoryReading, now: datetime) -> bool:
    """Tell whether a reading is recent; a clock that was wrong may have dated it in the future."""
    return abs(now - seen.last_seen) < MEMORY_LIFE


def _read(disk: DiskCache, now: datetime) -> dict[tuple[str, str], _MemoryReading]:
    """Read the stored amounts; ignore damaged data."""
    value: object = disk.read(now=now, max_age=MEMORY_LIFE)
    if not isinstance(value, list):
        return {}
    rows = cast("list[tuple[str, str, int, str]]", value)
    try:
        readings = {
            (str(name), str(images)): _MemoryReading(int(memory), datetime.fromisoformat(seen))
            for name, images, memory, seen in rows
        }
        return {key: seen for key, seen in readings.items() if _counts(seen, now)}
    except (TypeError, ValueError):
        return {}
