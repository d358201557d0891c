"""The demo of a cloud skips what the cloud lacks, says so, and judges what it launches."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from karpenter_core.cli.demo.cloud_scenario import CloudScenario, capacity_types_of
from karpenter_core.cli.demo.demo_manifests import DemoManifests, find_node_class
from karpenter_core.cli.demo.processes import DemoFailedError
from karpenter_core.errors import OfferingKey
from karpenter_core.provider.kit.demo_cloud import (
    DemoCloud,
    DemoFeature,
    DemoInstance,
    LoggedLaunchCall,
)

FIRST = OfferingKey(instance_type="small", zone="north", capacity_type="on-demand")
SECOND = OfferingKey(instance_type="large", zone="north", capacity_type="on-demand")


@dataclass
class Cloud(DemoCloud):
    lacking: tuple[DemoFeature, ...] = ()
    running: dict[str, OfferingKey] = field(default_factory=lambda: {"a": FIRST})
    calls: list[LoggedLaunchCall] = field(default_factory=list)
    sold_out: list[OfferingKey] = field(default_factory=list)

    @property
    def environment(self):
        return {}

    @property
    def node_class_spec(self):
        return {}

    @property
    def lacks(self):
        return self.lacking

    def instances(self):
        return {
            name: DemoInstance(offering=offering, image="i", price_per_hour=1.0)
            for name, offering in self.running.items()
        }

    def nodes(self):
        return {}

    def launch_calls(self):
        return tuple(self.calls)

    def sell_out(self, offering):
        self.sold_out.append(offering)


class Cluster:
    """Counts replicas; its statistics are not needed here."""

    async def scale(self, replicas):
        self.replicas = replicas

    async def retire(self):
        self.replicas = 0


def steps_of(cloud):
    return CloudScenario(cloud, Cluster(), None, None).steps()


@pytest.mark.parametrize(
    ("lacking", "skipped"),
    [
        ((), {}),
        (
            (DemoFeature.SPOT,),
            {"interrupt a spot instance": "the simulated cloud has no spot instances"},
        ),
        (
            (DemoFeature.STOCK,),
            {
                "sell out these offerings, scale nginx to 75": (
                    "the simulated cloud has no offerings that sell out"
                )
            },
        ),
        (
            (DemoFeature.NEWER_IMAGE,),
            {"newer image, disruption budget: 2 nodes": ("the simulated cloud has no newer image")},
        ),
    ],
)
def test_steps_that_a_cloud_does_not_support_are_skipped_with_the_reason(lacking, skipped):
    steps = steps_of(Cloud(lacking=lacking))

    assert {step.title: step.skipped for step in steps if step.skipped} == skipped


def test_the_demo_adds_pods_also_without_a_shortage():
    titles = [step.title for step in steps_of(Cloud(lacking=(DemoFeature.STOCK,)))]

    assert titles[1:3] == ["sell out these offerings, scale nginx to 75", "scale nginx to 75"]


def test_a_cloud_without_spot_gets_a_node_pool_of_on_demand_capacity():
    assert capacity_types_of(Cloud()) == ("spot", "on-demand")
    assert capacity_types_of(Cloud(lacking=(DemoFeature.SPOT,))) == ("on-demand",)


def test_a_node_pool_asks_for_no_label_that_the_cloud_does_not_name():
    manifests = DemoManifests(node_class=find_node_class("kwok"), requirements=Cloud().requirements)

    requirements = manifests.node_pool()["spec"]["template"]["spec"]["requirements"]

    assert [each["key"] for each in requirements] == ["karpenter.sh/capacity-type"]


async def reported(cloud, *, launches, calls=()):
    """Sell out, launch and report, as the demo does."""
    step = steps_of(cloud)[1]
    await step.begin()
    assert cloud.sold_out == [FIRST]
    cloud.running |= launches
    cloud.calls += calls
    return step.report()


async def test_a_call_that_met_a_sold_out_offering_is_reported():
    call = LoggedLaunchCall(action="Create", sold_out=[FIRST], bought={SECOND: 2})

    lines = await reported(Cloud(), launches={"b": SECOND}, calls=[call])

    assert lines == [
        "Create: small north on-demand sold out, bought 2 x large north on-demand",
    ]


async def test_calls_for_one_instance_each_are_reported_one_by_one():
    calls = [
        LoggedLaunchCall(action="create", sold_out=[FIRST], bought={}),
        LoggedLaunchCall(action="create", sold_out=[], bought={SECOND: 1}),
    ]

    lines = await reported(Cloud(), launches={"b": SECOND}, calls=calls)

    assert lines == [
        "create: small north on-demand sold out",
        "create: bought 1 x large north on-demand",
    ]


async def test_a_launch_without_shortage_reports_the_launched_offering():
    lines = await reported(Cloud(), launches={"b": SECOND})

    assert lines == ["no launch call met a sold-out offering: bought 1 x large north on-demand"]


@pytest.mark.parametrize(
    ("launches", "message"),
    [({}, "no instance was launched"), ({"b": FIRST}, "is sold out and was launched")],
)
async def test_the_demo_fails_where_nothing_or_a_sold_out_offering_is_launched(launches, message):
    with pytest.raises(DemoFailedError, match=message):
        await reported(Cloud(), launches=launches)


def test_defaults_of_a_cloud_are_those_of_one_that_has_nothing_to_show():
    cloud = Cloud()

    assert cloud.currency == "USD"
    assert (cloud.requirements, cloud.newer_image) == ((), {})
    assert list(cloud.list_resources()) == ["a"]
