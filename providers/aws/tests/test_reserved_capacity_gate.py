"""The core's feature gate ReservedCapacity, on and off, over boto3 and the simulated AWS.

Acceptance case 132 (`CapacityReservationSpecification` of launch templates), and what the gate says of
offerings and of the condition `CapacityReservationsReady`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED
from karpenter_core.provider.contract import FeatureGates, LaunchedInstance
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_aws.testing import node_class_for, subject_on

if TYPE_CHECKING:
    from karpenter_simulated_aws.cloud import SimulatedAws

RESERVATIONS_READY = "CapacityReservationsReady"


@pytest.fixture
def cloud(few_types_aws: SimulatedAws) -> SimulatedAws:
    """A cloud with two instances reserved."""
    few_types_aws.reservations.add(instance_type="m5.large", zone="us-east-1a", total=2)
    return few_types_aws


@pytest.fixture
def play(cloud, few_types_shared, tmp_path):
    """Play a scenario with the provider, started with the gate on or off."""
    return partial(played, cloud, few_types_shared, tmp_path)


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


def with_reservations(cloud):
    return node_class_for(
        cloud, capacityReservationSelectorTerms=[{"instanceMatchCriteria": "targeted"}]
    )


@pytest.mark.parametrize("is_on", [True, False])
def test_reservations_are_discovered_and_offered_only_with_the_gate(cloud, play, is_on):
    async def scenario(world):
        found = await world.resolved(with_reservations(cloud))
        return found, await world.catalogue(found)

    found, types = play(scenario, is_on=is_on)

    offered = {it.name for it in types for o in it.offerings if o.capacity_type == RESERVED}
    allowed = {it.name for it in types if it.requirements.get(CAPACITY_TYPE).has(RESERVED)}
    assert offered == allowed == ({"m5.large"} if is_on else set())
    conditions = {condition.type: condition.status for condition in found.status.conditions}
    assert conditions["Ready"] == "True"
    assert conditions.get(RESERVATIONS_READY) == ("True" if is_on else None)
    assert (cloud.calls.count("DescribeCapacityReservations") > 0) is is_on


def test_reservations_in_the_status_are_not_offered_without_the_gate(cloud, play):
    """The status of a NodeClass outlives the process that wrote it."""

    async def resolve(world):
        return await world.resolved(with_reservations(cloud))

    found = play(resolve, is_on=True)
    assert found.status.capacity_reservations

    async def list_types(world):
        return await world.catalogue(found)

    types = play(list_types, is_on=False)

    assert RESERVED not in {o.capacity_type for it in types for o in it.offerings}


@pytest.mark.parametrize("is_on", [True, False])
def test_open_reservations_are_not_used_with_the_gate_only(cloud, play, is_on):
    """Case 132: without the gate EC2 does as it always did."""

    async def scenario(world):
        request = await world.request("web", node_class_for(cloud))
        return await world.launch(request)

    outcome = play(scenario, is_on=is_on)

    assert isinstance(outcome, LaunchedInstance)
    assert outcome.capacity_type != RESERVED
    made = cloud.calls.of("CreateLaunchTemplate")
    wanted = {
        str(call.parameters["LaunchTemplateData"].get("CapacityReservationSpecification"))
        for call in made
    }
    assert made
    assert wanted == {str({"CapacityReservationPreference": "none"} if is_on else None)}
