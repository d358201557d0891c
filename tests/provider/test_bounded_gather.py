"""Many calls run side by side, and never more than so many."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.provider.kit.bounded_gather import gather_bounded
from karpenter_core.sim.virtual_time import run_virtual


def test_so_many_run_at_once_and_results_keep_their_order():
    """The longest call comes first."""
    running, most = set(), 0

    async def call(item):
        nonlocal most
        running.add(item)
        most = max(most, len(running))
        await asyncio.sleep(10 - item)
        running.remove(item)
        return -item

    assert run_virtual(gather_bounded(call, range(10), at_once=3)) == [-n for n in range(10)]
    assert most == 3


def test_an_error_is_raised_and_ends_no_other_call():
    """Those that wait have their turn."""
    done = []

    async def call(item):
        await asyncio.sleep(1)
        if item == 0:
            raise LookupError
        done.append(item)

    async def story():
        with pytest.raises(LookupError):
            await gather_bounded(call, range(4), at_once=2)
        assert 3 not in done
        await asyncio.sleep(5)

    run_virtual(story())

    assert done == [1, 2, 3]
