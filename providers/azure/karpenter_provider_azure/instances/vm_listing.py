"""Shares listings of virtual machines between those who need no fresh one.

Failed launches and missing extensions are looked for every few seconds while nodes launch, and each of
these looks would be a listing of its own.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.instances.described import DescribedInstances
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = ["VmListing"]

RECENT: Final = timedelta(seconds=5)
"""A listing of this age is used again."""


@final
class VmListing:
    """The virtual machines of the cluster as they were listed recently; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        read: Callable[[], DescribedInstances[DescribedVm]],
        *,
        max_age: timedelta = RECENT,
    ) -> None:
        """`read` is `VmReader.of_cluster`."""
        self._clock: Final = clock
        self._read: Final = read
        self._max_age_seconds: Final = max_age.total_seconds()
        self._lock: Final = Lock()
        self._listed: DescribedInstances[DescribedVm] | None = None
        self._read_at = 0.0
        """When the last listing was begun, by the monotonic clock."""

    def recent(self) -> DescribedInstances[DescribedVm]:
        """Return a recent listing, with the time that it shows; threads that need one share it.

        Raises:
            CloudProviderError: Azure refused or did not answer.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._listed is None or now - self._read_at > self._max_age_seconds:
                as_of = self._clock.now()
                self._listed = None
                self._listed = replace(self._read(), as_of=as_of)
                self._read_at = now
            return self._listed
