"""Hooks written for one item are called concurrently, and each outcome is returned."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.errors import CallPendingError, CloudProviderError, InsufficientCapacityError
from karpenter_core.provider.contract import (
    BatchLimits,
    DriftFinding,
    Instance,
    InstanceListing,
    TerminationStatus,
)
from karpenter_core.provider.host.executor import InlineExecutor, ThreadExecutor
from karpenter_core.provider.kit.one_by_one import one_by_one
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import FakeProvider, launched, node_class

WEB = NodeClassRef(group="web.example.com", kind="WebNodeClass", name="default")
PATIENCE = 10.0
"""Of real threads that wait for each other; nobody waits so long unless something is broken."""


class OneByOne(FakeProvider):
    """A provider whose hooks are written for one item."""

    def __init__(self, do, **options):
        super().__init__(**options)
        self.do = do

    @hookimpl
    @one_by_one
    def karpenter_launch_instances(self, request):
        self.do(request.node_claim.name)
        return launched(request)

    @hookimpl
    @one_by_one
    def karpenter_fetch_instances(self, provider_id):
        self.do(provider_id)
        return Instance(provider_id=provider_id)

    @hookimpl
    @one_by_one
    def karpenter_terminate_instances(self, provider_id):
        self.do(provider_id)
        return TerminationStatus.GONE

    @hookimpl
    @one_by_one
    def karpenter_detect_drift(self, node_claim):
        self.do(node_claim.name)
        return DriftFinding(reason=f"Drift_{node_claim.name[-1]}")


class AsyncOneByOne(FakeProvider):
    """A provider whose launches are coroutines for one item."""

    def __init__(self, do):
        super().__init__()
        self.do = do

    @hookimpl
    @one_by_one
    async def karpenter_launch_instances(self, request):
        await self.do(request.node_claim.name)
        return launched(request)


def world_of(plugin, folder, executor=None):
    return ProviderWorld(
        plugins={"web": plugin},
        cache_folder=folder,
        clock=LoopClock(),
        executor=executor or ThreadExecutor(),
    )


def launches(world, requests):
    return [asyncio.ensure_future(world.providers.launch(request)) for request in requests]


async def requests_for(world, count):
    return [await world.request(f"web-{n}", node_class()) for n in range(count)]


def ids(outcomes):
    return [getattr(outcome, "provider_id", outcome) for outcome in outcomes]


async def test_items_run_side_by_side_in_threads(tmp_path):
    """None of them ends before all have started."""
    started = threading.Barrier(12)
    plugin = OneByOne(lambda _: started.wait(PATIENCE))

    async with world_of(plugin, tmp_path) as world:
        outcomes = await asyncio.gather(*launches(world, await requests_for(world, 12)))
        assert ids(outcomes) == [f"fake://web-{n}" for n in range(12)]

        names = [f"fake://{n}" for n in range(12)]
        fetched = await asyncio.gather(*(world.providers.fetch(WEB, name) for name in names))
        assert ids(fetched) == names
        ended = await asyncio.gather(*(world.providers.terminate(WEB, name) for name in names))
        assert ended == [TerminationStatus.GONE] * 12


async def test_drift_of_many_claims_is_checked_concurrently_in_their_order(tmp_path):
    started = threading.Barrier(6)
    plugin = OneByOne(lambda _: None)

    async with world_of(plugin, tmp_path) as world:
        claims = [request.node_claim for request in await requests_for(world, 6)]
        plugin.do = lambda name: started.wait(PATIENCE) if name != "web-2" else fail(started)
        drift = await world.providers.detect_drift(claims, node_class())

    assert [type(outcome).__name__ for outcome in drift] == [
        "DriftFinding", "DriftFinding", "CloudProviderError", *["DriftFinding"] * 3,
    ]  # fmt: skip
    assert drift[5].reason == "Drift_5"


def fail(barrier):
    barrier.wait(PATIENCE)
    raise OSError("no route to host")


async def test_an_outcome_is_released_while_another_item_hangs(tmp_path):
    """Each claim has its own outcome: of the item that fails, and of those that go well."""
    release = threading.Event()

    def do(name):
        if name == "web-1":
            release.wait(PATIENCE)
        if name == "web-2":
            raise InsufficientCapacityError("sold out")

    async with world_of(OneByOne(do), tmp_path) as world:
        tasks = launches(world, await requests_for(world, 5))
        others = [task for n, task in enumerate(tasks) if n != 1]
        outcomes = await asyncio.wait_for(asyncio.gather(*others), PATIENCE)
        assert not tasks[1].done()
        assert isinstance(outcomes[1], InsufficientCapacityError)
        assert ids(outcomes[:1] + outcomes[2:]) == ["fake://web-0", "fake://web-3", "fake://web-4"]
        release.set()
        assert (await tasks[1]).provider_id == "fake://web-1"


async def test_the_lane_keeps_its_bound_and_a_thread_for_other_calls(tmp_path):
    """With four threads three launches run at once; a listing does not wait for any of them."""
    release, lock, running, most = threading.Event(), threading.Lock(), [0], [0]

    def do(_):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        release.wait(PATIENCE)
        with lock:
            running[0] -= 1

    async with world_of(OneByOne(do), tmp_path, ThreadExecutor(max_workers=4)) as world:
        tasks = launches(world, await requests_for(world, 12))
        listing = await asyncio.wait_for(world.providers.list_instances("web"), PATIENCE)
        assert isinstance(listing, InstanceListing)
        async with asyncio.timeout(PATIENCE):
            while running[0] < 3:  # noqa: ASYNC110 - threads tell nobody
                await asyncio.sleep(0.01)
        release.set()
        outcomes = await asyncio.gather(*tasks)

    assert ids(outcomes) == [f"fake://web-{n}" for n in range(12)]
    assert most == [3]


async def test_a_lane_of_one_thread_serves_every_item(tmp_path):
    async with world_of(OneByOne(lambda _: None), tmp_path, ThreadExecutor(max_workers=1)) as world:
        outcomes = await asyncio.gather(*launches(world, await requests_for(world, 5)))
    assert ids(outcomes) == [f"fake://web-{n}" for n in range(5)]


def test_a_coroutine_that_hangs_holds_up_its_own_claim_only(tmp_path):
    """It passes its own time limit; what comes in the end is handed on for its claim."""

    async def do(name):
        await asyncio.sleep(600 if name == "web-7" else 1)

    async def scenario():
        async with world_of(AsyncOneByOne(do), tmp_path, InlineExecutor()) as world:
            late = []
            world.providers.subscribe_late_launches(lambda r, o: late.append((r.token, o)))
            requests = await requests_for(world, 40)
            started = world.clock.monotonic()
            tasks = launches(world, requests)
            outcomes = await asyncio.gather(*(t for n, t in enumerate(tasks) if n != 7))
            assert world.clock.monotonic() - started == pytest.approx(1, abs=0.2)
            assert len(outcomes) == 39
            assert isinstance(await tasks[7], CallPendingError)
            assert world.providers.overdue_calls() == 1
            await asyncio.sleep(600)
            assert [(token, o.provider_id) for token, o in late] == [
                ("uid-of-web-7", "fake://web-7")
            ]

    run_virtual(scenario())


def test_items_run_inline_in_virtual_time(tmp_path):
    done = []

    async def scenario():
        async with world_of(OneByOne(done.append), tmp_path, InlineExecutor()) as world:
            outcomes = await asyncio.gather(*launches(world, await requests_for(world, 5)))
            assert ids(outcomes) == [f"fake://web-{n}" for n in range(5)]

    run_virtual(scenario())
    assert done == [f"web-{n}" for n in range(5)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_unexpected_error_of_an_item_names_the_plug_in(tmp_path, asynchronous):
    def do(_):
        raise KeyError("zone")

    async def do_async(_):
        raise KeyError("zone")

    async def scenario():
        plugin = AsyncOneByOne(do_async) if asynchronous else OneByOne(do)
        async with world_of(plugin, tmp_path, InlineExecutor()) as world:
            outcome = await world.launch(await world.request("web-1", node_class()))
            assert type(outcome) is CloudProviderError
            assert str(outcome) == (
                "plug-in \"web\" failed in karpenter_launch_instances: KeyError('zone')"
            )

    run_virtual(scenario())


def test_the_declared_time_limit_is_each_item_s_own(tmp_path):
    limits = {"karpenter_launch_instances": BatchLimits(timeout=timedelta(seconds=10))}

    async def do(name):
        await asyncio.sleep(600 if name == "web-1" else 9)

    class Quick(AsyncOneByOne):
        def __init__(self):
            super().__init__(do)
            self.batch_limits = limits

    async def scenario():
        async with world_of(Quick(), tmp_path, InlineExecutor()) as world:
            requests = await requests_for(world, 3)
            outcomes = await asyncio.gather(*launches(world, requests))
            assert [type(o).__name__ for o in outcomes] == [
                "LaunchedInstance", "CallPendingError", "LaunchedInstance",
            ]  # fmt: skip

    run_virtual(scenario())
