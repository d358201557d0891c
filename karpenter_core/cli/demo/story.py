"""Stories: what is done to a cluster, one act after the other, and what must come of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from karpenter_core.cli.demo.census import Census
    from karpenter_core.cli.demo.stage import Stage

__all__ = ["Scaling", "Step", "Story"]

_SCALES: Final = (50, 500, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One act of a story."""

    title: str
    replicas: int
    """How many pods run in the end."""
    begin: Callable[[], Awaitable[None]]
    """Makes it happen."""
    is_done: Callable[[], bool]
    """Whether what should come of it has; asked at every change."""
    tell: Callable[[], Sequence[str]] = tuple
    """What there is to say afterwards; raises `DemoFailedError` when it is not as promised."""


class Story(Protocol):
    """A story on a stage."""

    def steps(self) -> Sequence[Step]:
        """Return its acts."""
        ...


class Scaling:
    """Pods come and go, and nodes follow."""

    def __init__(self, stage: Stage, census: Census) -> None:
        self._stage: Final = stage
        self._census: Final = census

    def steps(self) -> Sequence[Step]:
        """Return its acts."""
        return [self._scale(replicas) for replicas in _SCALES]

    def _scale(self, replicas: int) -> Step:
        return Step(
            title=f"scale nginx to {replicas}",
            replicas=replicas,
            begin=lambda: self._stage.scale(replicas),
            is_done=lambda: self._census.is_at_rest(replicas),
        )
