"""A clock whose wall and monotonic times are set apart, for tests of clocks."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.testing.builders import EPOCH


class TwoClocks:
    """A wall clock that tests set, beside a monotonic one that goes on."""

    def __init__(self):
        self.seconds, self.wall = 1000.0, EPOCH

    def now(self):
        return self.wall

    def monotonic(self):
        return self.seconds

    async def sleep(self, seconds):
        self.passes(seconds)

    def passes(self, seconds):
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def is_set(self, **by):
        self.wall += timedelta(**by)
