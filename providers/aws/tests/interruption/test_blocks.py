"""Capacity blocks that end (acceptance case 143), and reservations that have ended."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from karpenter_core.api.labels import CAPACITY_TYPE, REGISTERED
from karpenter_core.errors import NotFoundError
from karpenter_core.provider.contract import InterruptionKind as Kind
from karpenter_provider_aws.api.terms import CapacityReservationTerm
from karpenter_provider_aws.capacity_type_sync import CapacityTypeSync
from karpenter_provider_aws.labels import (
    CAPACITY_RESERVATION_ID,
    CAPACITY_RESERVATION_TYPE,
    RESERVATION_LABELS,
)
from providers.aws.tests.interruption.cloud_world import ZONE_A, World, in_minutes


def block(world: World, *, ends_in_minutes: float, kind: str = "capacity-block"):
    return world.aws.reservations.add(
        instance_type="m5.large",
        zone=ZONE_A,
        total=5,
        kind=kind,
        ends_at=in_minutes(world.clock, ends_in_minutes),
    )


def launched_in(world: World, reservation) -> str:
    market = "capacity-block" if reservation.kind == "capacity-block" else ""
    (instance_id,) = world.launch(reservation=reservation.id, market=market)
    return instance_id


def reserved_labels(reservation) -> dict[str, str]:
    return {
        CAPACITY_TYPE: "reserved",
        CAPACITY_RESERVATION_ID: reservation.id,
        CAPACITY_RESERVATION_TYPE: reservation.kind,
    }


def test_instances_of_a_block_end_forty_minutes_before_it(world: World):
    reservation = block(world, ends_in_minutes=41)
    instance_id = launched_in(world, reservation)
    world.join(instance_id, **reserved_labels(reservation))
    assert world.poll() == ()

    world.clock.forward(61)
    (said,) = world.poll()

    assert (said.kind, said.provider_id) == (Kind.RESERVATION_RECLAIM, instance_id)
    deadline = reservation.ends_at.replace(microsecond=0) - timedelta(minutes=30)
    assert said.deadline == deadline
    assert reservation.id in said.detail


def test_a_block_end_is_announced_until_acknowledged(world: World):
    reservation = block(world, ends_in_minutes=20)
    world.join(launched_in(world, reservation), **reserved_labels(reservation))
    first, second = world.poll(), world.poll()
    world.acknowledge(*second)

    assert len(first) == 1
    assert first == second
    assert world.poll() == ()


def test_instances_without_a_node_are_interrupted_too(world: World):
    """A NodeClass selects the block; EC2 lists its instances."""
    reservation = block(world, ends_in_minutes=20)
    instance_id = launched_in(world, reservation)
    world.reservations.find([CapacityReservationTerm(id=reservation.id)])

    assert [one.provider_id for one in world.poll()] == [instance_id]


def test_other_reservations_announce_no_interruption(world: World):
    """An on-demand reservation leaves its instances running."""
    reservation = block(world, ends_in_minutes=20, kind="default")
    world.join(launched_in(world, reservation), **reserved_labels(reservation))
    lasting = block(world, ends_in_minutes=200)
    world.join(launched_in(world, lasting), **reserved_labels(lasting))

    assert world.poll() == ()


def test_without_blocks_no_call_is_made(world: World):
    world.join(world.launch()[0])

    world.interruption_sources.blocks.run()

    assert world.aws.calls.count("DescribeCapacityReservations") == 0


class Nodes:
    """Notes what is written."""

    def __init__(self, gone=()):
        self.patches = {}
        self.gone = gone

    async def patch(self, name, patch):
        if name in self.gone:
            raise NotFoundError(f"nodes {name}", status=404)
        self.patches[name] = patch


def relabelled(world: World, *, gone=()):
    nodes = Nodes(gone)
    part = CapacityTypeSync(
        directory=world.interruption_sources.directory, read_nodes=lambda: world.nodes, nodes=nodes
    )
    asyncio.run(part.run())
    return nodes.patches


def test_an_instance_of_an_ended_reservation_is_labelled_on_demand(world: World):
    kept, ended = (block(world, ends_in_minutes=n, kind="default") for n in (90, 30))
    stays, goes = launched_in(world, kept), launched_in(world, ended)
    for instance_id, reservation in ((stays, kept), (goes, ended)):
        world.join(instance_id, **reserved_labels(reservation))
    assert relabelled(world) == {}

    world.aws.instance(goes).capacity_reservation_id = ""

    labels = {CAPACITY_TYPE: "on-demand", **dict.fromkeys(RESERVATION_LABELS)}
    name = goes.rpartition("/")[2]
    assert relabelled(world) == {name: {"metadata": {"labels": labels}}}
    assert relabelled(world, gone=[name]) == {}


@pytest.mark.parametrize("labels", [{CAPACITY_TYPE: "spot"}, {REGISTERED: ""}])
def test_nodes_that_are_not_reserved_or_not_registered_cost_no_call(world: World, labels):
    reservation = block(world, ends_in_minutes=90, kind="default")
    world.join(world.launch()[0], **{**reserved_labels(reservation), **labels})

    assert relabelled(world) == {}
    assert world.aws.calls.count("DescribeInstances") == 0
