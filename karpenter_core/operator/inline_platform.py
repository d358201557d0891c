"""The platform of simulated time: one loop, counted ids, no threads or I/O.

Two runs of the same program take the same turns on it, so that a result depends on its input alone.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

from karpenter_core.controllers.planner import InlinePlanner
from karpenter_core.operator.process_platform import ProcessPlatform
from karpenter_core.provider.host.executor import InlineExecutor

if TYPE_CHECKING:
    from pathlib import Path

    from karpenter_core.clock import Clock
    from karpenter_core.kube.transport import Transport
    from karpenter_core.provider.contract import ClusterFacts

__all__ = ["SequentialIds", "inline_platform"]


@final
class SequentialIds:
    """Ids that are the same in every run."""

    def __init__(self, prefix: str) -> None:
        self._prefix: Final = prefix
        self._count = 0

    def __call__(self) -> str:
        """Return the next id."""
        self._count += 1
        return f"{self._prefix}-{self._count:06d}"


def inline_platform(
    *,
    name: str,
    clock: Clock,
    objects: Transport,
    lease: Transport,
    cache_folder: Path,
    cluster: ClusterFacts,
    seed: int,
) -> ProcessPlatform:
    """Return the platform of a process; `seed` decides by how much it spreads its retries."""
    return ProcessPlatform(
        clock=clock,
        new_id=SequentialIds(name),
        executor=InlineExecutor(),
        planner=InlinePlanner(),
        background=InlinePlanner(),
        objects=objects,
        lease=lease,
        identity=name,
        cache_folder=cache_folder,
        cluster=cluster,
        jitter=random.Random(seed).random,  # noqa: S311 - the same each time
        serves_http=False,
    )
