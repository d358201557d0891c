"""Shares a listing of virtual machines between the tasks that follow launches."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from karpenter_core.clock import Clock
    from karpenter_provider_azure.described_vms import DescribedVm

__all__ = ["RecentListing"]

_LIFE: Final = timedelta(seconds=10)
"""Launches take a minute; their failures are looked for every few seconds, and may wait for so long."""
_ALL: Final = ""


@final
class RecentListing:
    """The virtual machines of the cluster, as of ten seconds ago at most; callable from any thread."""

    def __init__(self, clock: Clock, read: Callable[[], tuple[DescribedVm, ...]]) -> None:
        """`read` lists them; it may raise CloudProviderError."""
        self._read: Final = read
        self._kept: Final[TtlCache[str, tuple[DescribedVm, ...]]] = TtlCache(clock, _LIFE)

    def __call__(self) -> tuple[DescribedVm, ...]:
        """Return the virtual machines.

        Raises:
            CloudProviderError: they could not be listed.
        """
        vms = self._kept.get(_ALL)
        if vms is None:
            vms = self._read()
            self._kept.put(_ALL, vms)
        return vms
