"""Open reservations with the feature gate ReservedCapacity on and off, over boto3 and the simulated AWS.

Acceptance case 132: `CapacityReservationSpecification` of launch templates.
"""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.api.labels import RESERVED
from karpenter_core.provider.contract import FeatureGates, LaunchedInstance
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_aws.testing import node_class_for, subject_on


def played(cloud, shared, folder, scenario, *, is_on):
    subject = subject_on(cloud, shared=shared)

    async def run():
        async with ProviderWorld(
            plugins={"aws": subject.make()},
            cache_folder=folder,
            settings=subject.settings,
            feature_gates=FeatureGates(reserved_capacity=is_on),
        ) as world:
            return await scenario(world)

    return asyncio.run(run())


@pytest.mark.parametrize("is_on", [True, False])
def test_open_reservations_are_not_used_with_the_gate_only(
    few_types_aws, few_types_shared, tmp_path, is_on
):
    """Case 132: without the gate EC2 does as it always did."""

    async def scenario(world):
        request = await world.request("web", node_class_for(few_types_aws))
        return await world.launch(request)

    outcome = played(few_types_aws, few_types_shared, tmp_path, scenario, is_on=is_on)

    assert isinstance(outcome, LaunchedInstance)
    assert outcome.capacity_type != RESERVED
    made = few_types_aws.calls.of("CreateLaunchTemplate")
    wanted = {
        str(call.parameters["LaunchTemplateData"].get("CapacityReservationSpecification"))
        for call in made
    }
    assert made
    assert wanted == {str({"CapacityReservationPreference": "none"} if is_on else None)}
