"""A registered node has the provider's hooks see to its instance, over boto3 and the simulated AWS."""

from __future__ import annotations

from karpenter_core.provider.contract import LaunchedInstance
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_core.testing.state_builders import node
from karpenter_simulated_aws.testing import node_class_for, subject_on


async def test_a_registered_instance_gets_the_name_of_its_node(
    few_types_aws, few_types_shared, tmp_path
):
    """Names of nodes are known when they have registered, so no launch can tag them."""
    subject = subject_on(few_types_aws, shared=few_types_shared)
    async with ProviderWorld(
        plugins={"aws": subject.make()}, cache_folder=tmp_path, settings=subject.settings
    ) as world:
        request = await world.request("web-1", node_class_for(few_types_aws))
        outcome = await world.launch(request)
        assert isinstance(outcome, LaunchedInstance)
        claim = request.node_claim
        status = {"provider_id": outcome.provider_id, "node_name": "ip-10-0-0-1"}
        claim = claim.model_copy(update={"status": claim.status.model_copy(update=status)})

        await world.providers.sync_instance(
            claim, node("ip-10-0-0-1", provider_id=outcome.provider_id, created=EPOCH)
        )

        tags = dict(few_types_aws.instance(outcome.provider_id).tags)
        assert tags["Name"] == "ip-10-0-0-1"
