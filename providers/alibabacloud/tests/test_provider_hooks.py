"""The whole provider is called through its hooks: acceptance cases 46, 47 and 79."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from karpenter_core.api.labels import INSTANCE_TYPE, MEMORY
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_alibabacloud.testing import node_class_for, settings_for, subject_on
from providers.alibabacloud.tests.reached_hosts import hosts_reached

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.provider.contract import LaunchRequest
    from karpenter_simulated_alibabacloud.cloud import SimulatedAlibabaCloud

NAME = "alibabacloud"
MIB = 2**20


@pytest.fixture
def make_world(
    few_types_cloud: SimulatedAlibabaCloud, tmp_path: Path
) -> Callable[..., ProviderWorld]:
    """Return what makes a process of the provider; settings by flag, with underscores."""
    quick = subject_on(few_types_cloud)

    def made(**settings: Any) -> ProviderWorld:
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        return ProviderWorld(
            plugins={NAME: quick.make()},
            cache_folder=tmp_path,
            settings={**settings_for(few_types_cloud), **named},
        )

    return made


def written(request: LaunchRequest, outcome: LaunchedInstance) -> NodeClaim:
    """Return a claim once its launch was written down."""
    claim = request.node_claim
    status = {"provider_id": outcome.provider_id, "image_id": outcome.image_id}
    labels = {**claim.metadata.labels, **outcome.labels}
    return claim.model_copy(
        update={
            "status": claim.status.model_copy(update=status),
            "metadata": claim.metadata.model_copy(update={"labels": labels}),
        }
    )


async def test_every_hook_calls_configured_endpoints_only(
    few_types_cloud: SimulatedAlibabaCloud, make_world: Callable[..., ProviderWorld]
):
    """Case 46: from the start to the end of an instance, its NodeClass and the process."""
    cloud, node_class = few_types_cloud, node_class_for(few_types_cloud)
    with hosts_reached() as reached:
        async with make_world() as world:
            await world.providers.hash_node_class(node_class)
            request = await world.request("web-1", node_class)
            outcome = await world.launch(request)
            assert isinstance(outcome, LaunchedInstance)
            claim, manifest = written(request, outcome), cloud.node(outcome.provider_id)
            assert manifest is not None
            node = await world.nodes.create(manifest)
            await world.providers.sync_instance(claim, node)
            for task in world.providers.tasks():
                await task.run()
            await world.providers.list_instances(NAME)
            await world.providers.detect_drift([claim], request.node_class)
            ref = claim.spec.node_class_ref
            await world.providers.fetch(ref, outcome.provider_id)
            await world.providers.poll_interruptions(NAME)
            await world.providers.check()
            await world.providers.terminate(ref, outcome.provider_id)
            await world.providers.finalize_node_class(request.node_class)

    assert {call.service for call in cloud.calls.all} == {"ecs", "vpc", "cs"}
    assert reached == {cloud.endpoint}


async def test_plans_use_the_memory_of_the_first_registered_node(
    few_types_cloud: SimulatedAlibabaCloud, make_world: Callable[..., ProviderWorld]
):
    """Case 47: from its Node to the next list; also in the next life of the process."""
    wanted, cloud = "ecs.g7.large", few_types_cloud
    node_class = node_class_for(cloud)

    async def memory_mib(world: ProviderWorld) -> dict[str, int]:
        return {it.name: it.capacity[MEMORY] // MIB for it in await world.catalogue(node_class)}

    async with make_world() as world:
        before = await memory_mib(world)
        only = RequirementSpec(key=INSTANCE_TYPE, operator="In", values=(wanted,))
        request = await world.request("web-1", node_class, requirements=[only])
        outcome = await world.launch(request)
        assert isinstance(outcome, LaunchedInstance)
        manifest = cloud.node(outcome.provider_id)
        assert manifest is not None
        node = await world.nodes.create(manifest)
        seen = msgspec.structs.replace(node, capacity={**node.capacity, MEMORY: 7700 * MIB})
        await world.providers.sync_instance(written(request, outcome), seen)
        after = await memory_mib(world)

    assert before[wanted] == 7659
    assert after == before | {wanted: 7700}
    async with make_world() as world:
        assert await memory_mib(world) == after


async def test_a_cluster_outside_ack_uses_the_users_text_without_an_ack_call(
    few_types_cloud: SimulatedAlibabaCloud, make_world: Callable[..., ProviderWorld]
):
    """Case 79: from the NodeClass to the instance."""
    cloud, text = few_types_cloud, "#!/bin/sh\njoin-my-cluster --once\n"
    image = cloud.images.add("golden").id
    node_class = node_class_for(
        cloud, imageSelectorTerms=[{"id": image}], userData=text, formatDataDisk=True
    )

    async with make_world(cluster_type="Custom") as world:
        request = await world.request("web-1", node_class)
        outcome = await world.launch(request)
        assert isinstance(outcome, LaunchedInstance)
        for task in world.providers.tasks():
            await task.run()
        await world.providers.check()

    assert outcome.capacity["pods"] == 110
    assert cloud.instance(outcome.provider_id).user_data == text.encode()
    (sent,) = cloud.calls.of("CreateAutoProvisioningGroup")
    assert sent.parameters["LaunchConfiguration"]["UserData"] == base64.b64encode(
        text.encode()
    ).decode("ascii")
    assert [call.action for call in cloud.calls.all if call.service == "cs"] == []
