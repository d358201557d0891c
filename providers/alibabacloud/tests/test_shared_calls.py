"""Tests that concurrent requests share calls (cases 67 and 81)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import NAMESPACE_DNS, uuid5

import pytest

from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.contract import Instance, LaunchedInstance
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_alibabacloud.testing import node_class_for, subject_on

ON_DEMAND = (
    RequirementSpec(key="karpenter.sh/capacity-type", operator="In", values=("on-demand",)),
)


@pytest.fixture
def play(few_types_cloud, tmp_path):
    """Plays a scenario with a started provider."""
    subject = subject_on(few_types_cloud)

    def run(scenario):
        async def run_calls():
            async with ProviderWorld(
                plugins={subject.name: subject.make()},
                cache_folder=tmp_path,
                settings=subject.settings,
            ) as world:
                await scenario(world)

        asyncio.run(run_calls())

    return run


async def requests(world, cloud, number):
    """Return requests for claims that are the same but for names and UIDs, which are the core's."""
    one = await world.request("one", node_class_for(cloud), requirements=ON_DEMAND)
    return [replace(one, node_claim=_named(one.node_claim, each)) for each in range(number)]


def _named(claim, number):
    uid = str(uuid5(NAMESPACE_DNS, f"claim-{number}"))
    name = {"name": f"default-{uid[:5]}", "uid": uid}
    return claim.model_copy(update={"metadata": claim.metadata.model_copy(update=name)})


def test_a_hundred_claims_that_are_launched_at_the_same_time_are_two_groups(few_types_cloud, play):
    """Case 67: a hundred instances."""
    cloud = few_types_cloud

    async def scenario(world):
        asked = await requests(world, cloud, 100)

        outcomes = await asyncio.gather(*(world.providers.launch(each) for each in asked))

        assert {type(each) for each in outcomes} == {LaunchedInstance}
        assert len({each.provider_id for each in outcomes}) == 100
        assert len(cloud.held().instances) == 100
        assert cloud.calls.count("CreateAutoProvisioningGroup") == 2

    play(scenario)


def test_fifty_instances_that_are_fetched_at_the_same_time_are_one_call(few_types_cloud, play):
    """Case 81."""
    cloud = few_types_cloud

    async def scenario(world):
        asked = await requests(world, cloud, 50)
        launched = await asyncio.gather(*(world.providers.launch(each) for each in asked))
        ref = asked[0].node_claim.spec.node_class_ref
        cloud.calls.clear()

        fetched = await asyncio.gather(
            *(world.providers.fetch(ref, each.provider_id) for each in launched)
        )

        assert {type(each) for each in fetched} == {Instance}
        assert [each.token for each in fetched] == [each.node_claim.uid for each in asked]
        assert cloud.calls.count("DescribeInstances") == 1

    play(scenario)
