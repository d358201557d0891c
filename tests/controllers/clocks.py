"""Clocks for controllers that tests drive by hand."""

from __future__ import annotations

import asyncio
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

    def call_later(self, seconds, callback):
        self.passes(seconds)
        return asyncio.get_running_loop().call_later(0, callback)

    def passes(self, seconds):
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds)

    def is_set(self, **by):
        self.wall += timedelta(**by)


class StoryClock:
    """The time of the loop, which begins with the story."""

    def monotonic(self):
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return 0.0

    def now(self):
        return EPOCH + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)

    def call_later(self, seconds, callback):
        return asyncio.get_running_loop().call_later(seconds, callback)
