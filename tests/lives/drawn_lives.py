"""Short lives of clusters that a seed draws: many features at once, or faults of every kind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, final

from tests.controllers.combinations import Combination
from tests.controllers.histories import History
from tests.controllers.injected_faults import ControllerClock, faulty_cloud
from tests.controllers.whole_controller import run_controller
from tests.support.drawn_doings import do_one

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["live_combination", "live_history"]

COMBINATION_ACTIONS = 7
HISTORY_ACTIONS = 14
PAUSES = (3, 10, 40, 100)
"""Seconds between two actions: shorter than in tests that wait for a cluster to converge."""
LAST_SECONDS = 240.0


@final
class _NoWatch:
    """Stands for the invariants, which other tests check."""

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self.blind_since = None

    def excuse(self, provider_id: str) -> None:
        """Do nothing."""

    def note_instances(self, *_: object, **__: object) -> None:
        """Do nothing."""

    async def note_write(self, _: object) -> None:
        """Do nothing."""


class ShortCombination(Combination):
    """A combination of features that is not left alone for hours."""

    async def unfold(self) -> None:
        """Change this and that, and take the workloads away."""
        self.begin()
        changes: dict[Any, int] = {
            self.scale: 6, self.deploy: 3, self.relabel: 3, self.limit: 2, self.redisrupt: 2,
            self.resize: 3, self.requota: 1, self.ask: 5, self.delete_claim: 2, self.restart: 1,
        }  # fmt: skip
        for _ in range(COMBINATION_ACTIONS):
            await self._pass(self.rng.choice(PAUSES))
            await do_one(self.rng, changes, self._tell)
        await self._pass(LAST_SECONDS)
        self._remove_workloads()
        await self._pass(LAST_SECONDS / 2)


class ShortHistory(History):
    """A history of faults that is not left alone for hours."""

    async def unfold(self) -> None:
        """Let faults happen, and end them."""
        doings = self.doings()
        self.begin()
        for _ in range(HISTORY_ACTIONS):
            await self._pass(self.rng.choice(PAUSES))
            await self.act(doings)
        self.ease()
        await self._pass(LAST_SECONDS)


def live_combination(seed: int, folder: Path) -> None:
    """Play a combination of features."""

    async def life(scene: Any) -> None:
        await ShortCombination(scene, folder, seed, _NoWatch()).unfold()

    run_controller(folder, life, seed=seed)


def live_history(seed: int, folder: Path) -> None:
    """Play a history of faults."""

    async def life(scene: Any) -> None:
        clock = ControllerClock(scene.cluster.clock)
        history = ShortHistory(scene, folder, seed, clock=clock, watch=_NoWatch())
        with closing(history), faulty_cloud(history.injected_faults):
            await history.unfold()

    faults = folder / "faults.json"
    faults.write_text("[]")
    run_controller(folder, life, arguments=[f"--kwok-faults-file={faults}"], seed=seed)
