"""Reads the maintenance window in which AKS permits new node images.

AKS publishes the next window of the cluster's schedule `aksManagedNodeOSUpgradeSchedule` in a
ConfigMap. A cluster without a schedule has no ConfigMap, or an empty one: images are updated at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, cast, final

from karpenter_core.errors import BadInputError
from karpenter_core.provider.contract import ObjectRead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import ObjectReader

__all__ = [
    "END_KEY",
    "NAMESPACE_VARIABLE",
    "START_KEY",
    "WINDOW_NAME",
    "MaintenanceWindow",
    "MaintenanceWindowReader",
    "parse_window",
    "window_read",
]

NAMESPACE_VARIABLE: Final = "SYSTEM_NAMESPACE"
"""The variable with the controller's namespace, in which AKS keeps the ConfigMap."""
WINDOW_NAME: Final = "upcoming-maintenance-window"
_SCHEDULE: Final = "aksManagedNodeOSUpgradeSchedule"
START_KEY: Final = f"{_SCHEDULE}-start"
END_KEY: Final = f"{_SCHEDULE}-end"
_READ_PERIOD: Final = timedelta(minutes=5)
"""Images are resolved as often, and windows last for hours."""


def window_read(namespace: str) -> ObjectRead:
    """Return the read of the ConfigMap; declare it in `ProviderInfo.reads`."""
    return ObjectRead(
        resource="configmaps", namespace=namespace, name=WINDOW_NAME, period=_READ_PERIOD
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow:
    """A time in which node images are updated."""

    start: datetime
    end: datetime

    def is_open(self, now: datetime) -> bool:
        """Whether images are updated at `now`."""
        return self.start < now < self.end


def parse_window(data: Mapping[str, object], *, namespace: str) -> MaintenanceWindow | None:
    """Return the window in the data of the ConfigMap; None if the cluster has no schedule.

    Raises:
        BadInputError: a time is missing or cannot be read.
    """
    if not data.get(START_KEY) and not data.get(END_KEY):
        return None
    return MaintenanceWindow(
        start=_time(data, START_KEY, namespace), end=_time(data, END_KEY, namespace)
    )


def _time(data: Mapping[str, object], key: str, namespace: str) -> datetime:
    text = str(data.get(key) or "")
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise BadInputError(
            f'ConfigMap "{namespace}/{WINDOW_NAME}": {key} is "{text}", and not a time such as '
            "2026-01-31T22:00:00Z"
        )
    return time


@final
class MaintenanceWindowReader:
    """Reads the maintenance window; callable from any thread."""

    def __init__(self, clock: Clock, read_objects: ObjectReader, *, namespace: str) -> None:
        """`namespace` is that of the controller; without one there is no window."""
        self._clock: Final = clock
        self._read_objects: Final = read_objects
        self._namespace: Final = namespace

    def is_open(self) -> bool:
        """Whether images may be updated now: always, if the cluster has no schedule.

        Raises:
            BadInputError: the ConfigMap cannot be read as a window.
            CloudProviderError: the ConfigMap was never read.
        """
        if not self._namespace:
            return True
        found = self._read_objects(window_read(self._namespace))
        data = found[0].get("data") if found else None
        window = parse_window(cast("Mapping[str, object]", data or {}), namespace=self._namespace)
        return window is None or window.is_open(self._clock.now())
