"""The numbers that Go's `math/rand` deals, which the reference benchmark draws its pods from.

Go's source adds two of its earlier numbers, 607 and 273 back, modulo 2^64. So its first 607
numbers hold its whole future: `data/go-math-rand-seed-42.txt` has those of seed 42, as printed by
`benchmarks/peer` (`peer -random 42`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

__all__ = ["GoRandom"]

LENGTH: Final = 607
TAP: Final = 273
SEED_42: Final = Path(__file__).parent / "data" / "go-math-rand-seed-42.txt"


@final
class GoRandom:
    """A generator that deals what `rand.New(rand.NewSource(42))` does."""

    def __init__(self) -> None:
        self._numbers = [int(text, 16) for text in SEED_42.read_text().split()]
        self._next = 0

    def below(self, bound: int) -> int:
        """Draw from 0 to `bound` - 1, as `Intn` does for bounds below 2^31.

        Go throws away the few numbers that would favour small remainders.
        """
        while True:
            number = self._uint64() >> 32 & 0x7FFF_FFFF
            if number < 2**31 - 2**31 % bound:
                return number % bound

    def _uint64(self) -> int:
        place, self._next = self._next, self._next + 1
        if place >= LENGTH:
            total = self._numbers[place - LENGTH] + self._numbers[place - TAP]
            self._numbers.append(total & 0xFFFF_FFFF_FFFF_FFFF)
        return self._numbers[place]
