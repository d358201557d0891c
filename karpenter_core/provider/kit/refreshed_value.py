"""Keeps a large answer, such as the catalogue, and reads it again regularly.

self.types = RefreshedValue("catalogue", self.read_types, period=timedelta(minutes=5))
self.types.get()  # in hooks
[self.types.task()]  # in karpenter_declare_tasks
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

from karpenter_core.provider.contract import PeriodicTask

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

__all__ = ["RefreshedValue"]

T = TypeVar("T")


@final
class RefreshedValue(Generic[T]):
    """A value that is read when it is first used, and then by a task; callable from any thread."""

    def __init__(self, name: str, read: Callable[[], T], *, period: timedelta) -> None:
        """`read` may raise; `name` is that of the task."""
        self._name: Final = name
        self._read: Final = read
        self._period: Final = period
        self._lock: Final = Lock()
        self._value: tuple[T] | None = None

    def get(self) -> T:
        """Return the value that was read last; the first callers wait for one read.

        Raises:
            Exception: what `read` raised, if nothing was read yet.
        """
        value = self._value
        if value is None:
            with self._lock:
                value = self._value = self._value or (self._read(),)
        return value[0]

    def refresh(self) -> None:
        """Read the value again; if that fails, the last one stays."""
        self._value = (self._read(),)

    def task(self) -> PeriodicTask:
        """Return the task that refreshes the value, on every replica."""
        return PeriodicTask(
            name=self._name, period=self._period, run=self.refresh, leader_only=False
        )
