"""Draws which of many faults, or of many seeds, one run of the tests plays.

A sweep over every write of a run in every way is the same work for each commit. Each run plays a part of it,
drawn from the seed that it prints (`--hypothesis-seed`): every part comes round, none is left out for ever.
`KARPENTER_EVERY_KILL=1` plays all, as `.ci/run kills` does.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pytest

__all__ = ["EVERY", "PARTS", "drawn_faults", "drawn_of", "drawn_runs", "is_every", "random_of_run"]

EVERY: Final = "KARPENTER_EVERY_KILL"
"""The environment variable that asks for all faults."""
PARTS: Final = 5
"""One of so many faults is played: each write fails in one of the five ways in each run of the tests."""


def is_every() -> bool:
    """Return whether all faults are asked for."""
    return bool(os.environ.get(EVERY))


def random_of_run(config: pytest.Config, name: str) -> random.Random:
    """Return random numbers that depend on the seed of this run of the tests, and on a name."""
    return random.Random(f"{config.getoption('hypothesis_seed')} {name}")


def drawn_faults(config: pytest.Config, name: str, variant: int) -> Callable[[int], bool]:
    """Return which numbers of faults of a sweep are played.

    Every fifth from one that is drawn for the sweep; another fifth in the next variant. So five variants
    together have each fault once, whatever was drawn.
    """
    if is_every():
        return lambda _number: True
    begin = random_of_run(config, name).randrange(PARTS) + variant
    return lambda number: (number + begin) % PARTS == 0


def drawn_of(config: pytest.Config, name: str, seeds: Sequence[int]) -> Sequence[int]:
    """Return one of the seeds, or all where all are asked for."""
    return seeds if is_every() else [random_of_run(config, f"{name} {seeds[0]}").choice(seeds)]


def drawn_runs(
    config: pytest.Config, name: str, seeds: Sequence[int], folder: Path
) -> Iterator[tuple[int, Path]]:
    """Yield the drawn seeds, each with a folder of its own; a test that fails shows which one it was at."""
    for seed in drawn_of(config, name, seeds):
        print(f"{name}: seed {seed}")  # noqa: T201 - seen where it fails
        own = folder / str(seed)
        own.mkdir()
        yield seed, own
