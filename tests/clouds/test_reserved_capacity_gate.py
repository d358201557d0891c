"""The feature gate ReservedCapacity, on and off, over the SDKs and the simulated clouds with reservations.

What the gate says of offerings and of the condition `CapacityReservationsReady`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, RESERVED
from karpenter_core.provider.contract import FeatureGates
from karpenter_core.testing.provider_world import ProviderWorld

if TYPE_CHECKING:
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.provider.kit.simulated.cloud import SimulatedCloud
    from karpenter_core.testing.subject import ConformanceSubject

RESERVATIONS_READY = "CapacityReservationsReady"


@dataclass(frozen=True, kw_only=True)
class ReservingCloud:
    """A cloud with two instances reserved, and a NodeClass that selects the reservation."""

    cloud: SimulatedCloud[Any]
    subject: Callable[[], ConformanceSubject]
    node_class: NodeClass
    reserved_type: str


@contextmanager
def reserving_aws() -> Iterator[ReservingCloud]:
    from karpenter_simulated_aws.testing import (
        few_types,
        node_class_for,
        simulated_environment,
        subject_on,
    )

    with few_types() as cloud, simulated_environment(cloud):
        cloud.reservations.add(instance_type="m5.large", zone="us-east-1a", total=2)
        terms = [{"instanceMatchCriteria": "targeted"}]
        yield ReservingCloud(
            cloud=cloud,
            subject=partial(subject_on, cloud),
            node_class=node_class_for(cloud, capacityReservationSelectorTerms=terms),
            reserved_type="m5.large",
        )


@contextmanager
def reserving_alibabacloud() -> Iterator[ReservingCloud]:
    from karpenter_simulated_alibabacloud.testing import (
        few_types,
        node_class_for,
        simulated_environment,
        subject_on,
    )

    reserved = "ecs.g7.large"
    with few_types() as cloud, simulated_environment(cloud):
        zone = cloud.world.zones[0]
        cloud.reservations.add("batch", instance_type=reserved, zone=zone, total=2)
        terms = [{"name": "batch"}]
        yield ReservingCloud(
            cloud=cloud,
            subject=partial(subject_on, cloud),
            node_class=node_class_for(cloud, capacityReservationSelectorTerms=terms),
            reserved_type=reserved,
        )


RESERVING = {"aws": reserving_aws, "alibabacloud": reserving_alibabacloud}


@pytest.fixture(params=RESERVING)
def reserving(request):
    with RESERVING[request.param]() as reserving:
        yield reserving


@pytest.fixture
def play(reserving, tmp_path):
    """Play a scenario with the provider, started with the gate on or off."""

    def played(scenario, *, is_on):
        subject = reserving.subject()

        async def run():
            async with ProviderWorld(
                plugins={subject.name: subject.make()},
                cache_folder=tmp_path,
                settings=subject.settings,
                feature_gates=FeatureGates(reserved_capacity=is_on),
            ) as world:
                return await scenario(world)

        return asyncio.run(run())

    return played


@pytest.mark.parametrize("is_on", [True, False])
def test_reservations_are_discovered_and_offered_only_with_the_gate(reserving, play, is_on):
    async def scenario(world):
        found = await world.resolved(reserving.node_class)
        return found, await world.catalogue(found)

    found, types = play(scenario, is_on=is_on)

    offered = {it.name for it in types for o in it.offerings if o.capacity_type == RESERVED}
    allowed = {it.name for it in types if it.requirements.get(CAPACITY_TYPE).has(RESERVED)}
    assert offered == allowed == ({reserving.reserved_type} if is_on else set())
    conditions = {condition.type: condition.status for condition in found.status.conditions}
    assert conditions["Ready"] == "True"
    assert conditions.get(RESERVATIONS_READY) == ("True" if is_on else None)
    assert (reserving.cloud.calls.count("DescribeCapacityReservations") > 0) is is_on


def test_reservations_in_the_status_are_not_offered_without_the_gate(reserving, play):
    """The status of a NodeClass outlives the process that wrote it."""

    async def resolve(world):
        return await world.resolved(reserving.node_class)

    found = play(resolve, is_on=True)
    assert found.status.capacity_reservations

    async def list_types(world):
        return await world.catalogue(found)

    types = play(list_types, is_on=False)

    assert RESERVED not in {o.capacity_type for it in types for o in it.offerings}
