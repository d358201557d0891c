"""The core's feature gate ReservedCapacity, on and off, over the SDK and the simulated cloud."""

from __future__ import annotations

import asyncio

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED
from karpenter_core.provider.contract import FeatureGates
from karpenter_core.testing.provider_world import ProviderWorld
from karpenter_simulated_alibabacloud.testing import node_class_for, settings_for, subject_on

RESERVATIONS_READY = "CapacityReservationsReady"
TYPE = "ecs.g7.large"


@pytest.fixture
def cloud(few_types_cloud):
    """A cloud with two instances reserved."""
    zone = few_types_cloud.world.zones[0]
    few_types_cloud.reservations.add("batch", instance_type=TYPE, zone=zone, total=2)
    return few_types_cloud


@pytest.fixture
def play(cloud, tmp_path):
    """Play a scenario with the provider, started with the gate on or off."""

    def played(scenario, *, is_on):
        async def run():
            async with ProviderWorld(
                plugins={"alibabacloud": subject_on(cloud).make()},
                cache_folder=tmp_path,
                settings=settings_for(cloud),
                feature_gates=FeatureGates(reserved_capacity=is_on),
            ) as world:
                return await scenario(world)

        return asyncio.run(run())

    return played


def with_reservations(cloud):
    return node_class_for(cloud, capacityReservationSelectorTerms=[{"name": "batch"}])


@pytest.mark.parametrize("is_on", [True, False])
def test_reservations_are_discovered_and_offered_only_with_the_gate(cloud, play, is_on):
    async def scenario(world):
        found = await world.resolved(with_reservations(cloud))
        return found, await world.catalogue(found)

    found, types = play(scenario, is_on=is_on)

    offered = {it.name for it in types for o in it.offerings if o.capacity_type == RESERVED}
    allowed = {it.name for it in types if it.requirements.get(CAPACITY_TYPE).has(RESERVED)}
    assert offered == allowed == ({TYPE} if is_on else set())
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
