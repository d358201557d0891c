"""Records what launch calls to a simulated cloud tried and launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.demo_cloud import LoggedLaunchCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from karpenter_core.provider.kit.simulated.pools import InstancePool

__all__ = ["LaunchCalls"]


@final
class LaunchCalls:
    """Launch calls, oldest first."""

    def __init__(self) -> None:
        self._calls: Final[list[LoggedLaunchCall]] = []

    def add(
        self,
        action: str,
        *,
        sold_out: Iterable[InstancePool] = (),
        bought: Mapping[InstancePool, int],
    ) -> None:
        """Record a call: the pools that had no capacity, and the number launched from others."""
        self._calls.append(
            LoggedLaunchCall(
                action=action,
                sold_out=[pool.offering for pool in sold_out],
                bought={pool.offering: count for pool, count in bought.items() if count},
            )
        )

    def clear(self) -> None:
        """Remove all calls."""
        self._calls.clear()

    @property
    def all(self) -> Sequence[LoggedLaunchCall]:
        """Return every call."""
        return tuple(self._calls)
