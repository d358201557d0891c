"""Throttling of a class of operations pauses the hooks that a provider names, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from karpenter_core.api.nodeclaim import NodeClassRef
from karpenter_core.errors import ALL_HOOKS, ThrottledError
from karpenter_core.provider.contract import InstanceListing, LaunchedInstance, TerminationStatus
from karpenter_core.provider.host.executor import InlineExecutor
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import LoopClock, run_virtual
from karpenter_core.testing.provider_world import ProviderWorld
from tests.provider.fakes import DataNodeClass, FakeProvider, launched, node_class

LAUNCH, LIST = "karpenter_launch_instances", "karpenter_list_instances"
WEB = NodeClassRef(group="web.example.com", kind="WebNodeClass", name="default")


class Throttling(FakeProvider):
    """Throttles the first call of each hook in `throttled`; an error is raised or returned."""

    def __init__(self, *throttled, error, raises=False, **options):
        super().__init__(**options)
        self.throttled, self.error, self.raises = set(throttled), error, raises
        self.calls = []

    def _outcomes(self, hook, outcomes):
        self.calls.append(hook)
        if hook not in self.throttled:
            return outcomes
        self.throttled.discard(hook)
        if self.raises:
            raise self.error
        return [self.error for _ in outcomes]

    @hookimpl
    def karpenter_launch_instances(self, requests):
        return self._outcomes(LAUNCH, [launched(request) for request in requests])

    @hookimpl
    def karpenter_list_instances(self):
        self.calls.append(LIST)
        return InstanceListing(instances=())


def throttled(*pauses, seconds=20):
    retry_after = None if seconds is None else timedelta(seconds=seconds)
    return ThrottledError("too many writes", retry_after=retry_after, pauses=pauses)


def play(tmp_path, scenario, **plugins):
    async def main():
        world = ProviderWorld(
            plugins=plugins, cache_folder=tmp_path, clock=LoopClock(), executor=InlineExecutor()
        )
        async with world:
            await scenario(world)

    run_virtual(main())


async def launch(world, name):
    return await world.launch(await world.request(name, node_class()))


@pytest.mark.parametrize("raises", [True, False])
def test_named_hook_is_not_called_until_the_time_has_passed(raises, tmp_path):
    web = Throttling(LAUNCH, error=throttled(LAUNCH), raises=raises)

    async def scenario(world):
        assert await launch(world, "first") is web.error
        await world.clock.sleep(12)
        second = await launch(world, "second")
        assert isinstance(second, ThrottledError)
        assert 7 <= second.retry_after.total_seconds() <= 8
        await world.providers.list_instances("web")
        assert web.calls == [LAUNCH, LIST], "the second launch was not sent"
        await world.clock.sleep(8)
        assert isinstance(await launch(world, "second"), LaunchedInstance)

    play(tmp_path, scenario, web=web)


def test_all_hooks_of_one_provider_are_paused(tmp_path):
    web = Throttling(LAUNCH, error=throttled(ALL_HOOKS))
    data = FakeProvider("data", DataNodeClass)

    async def scenario(world):
        await launch(world, "first")
        with pytest.raises(ThrottledError):
            await world.providers.list_instances("web")
        assert isinstance(await world.providers.terminate(WEB, "web://1"), ThrottledError)
        await world.providers.list_instances("data")
        await world.clock.sleep(20)
        await world.providers.list_instances("web")
        assert await world.providers.terminate(WEB, "web://1") is TerminationStatus.GONE

    play(tmp_path, scenario, web=web, data=data)


def test_without_names_no_other_call_waits(tmp_path):
    web = Throttling(LAUNCH, error=throttled())

    async def scenario(world):
        await launch(world, "first")
        assert isinstance(await launch(world, "second"), LaunchedInstance)

    play(tmp_path, scenario, web=web)


@pytest.mark.parametrize(("seconds", "paused_seconds"), [(None, 1), (86_400, 300)])
def test_pause_has_a_length_and_a_bound(seconds, paused_seconds, tmp_path):
    """A wrong header of the cloud does not stop a provider for a day."""
    web = Throttling(LAUNCH, error=throttled(LAUNCH, seconds=seconds))

    async def scenario(world):
        await launch(world, "first")
        assert isinstance(await launch(world, "second"), ThrottledError)
        await world.clock.sleep(paused_seconds)
        assert isinstance(await launch(world, "second"), LaunchedInstance)

    play(tmp_path, scenario, web=web)
