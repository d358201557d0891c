"""Faults that strike the Nodes of instances."""

from __future__ import annotations

from datetime import timedelta

from karpenter_core.api.labels import ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_provider_kwok.faults import Fault, FaultKind
from providers.kwok.tests.worlds import launch, only, run_kwok


def test_a_failing_node_is_created_in_the_end(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(Fault(kind=FaultKind.FAILED_NODE, count=2))
        await launch(world)
        assert world.nodes.nodes == {}
        for _ in range(5):
            await world.clock.sleep(1)
            await world.settle()
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


def test_a_node_without_kubelet_registers_and_is_not_ready(tmp_path):
    """Those of instances that were there before, or that come after the last strike, are well."""

    async def scenario(world):
        await launch(world, "web-1")
        world.cloud.disturbances.inject(
            Fault(kind=FaultKind.UNREADY_NODE, node_claims=("web-*",), count=1)
        )
        await launch(world, "data-1")
        for name in ("web-2", "web-3"):
            await launch(world, name)
        marks = {
            name: (node.annotations["kwok.x-k8s.io/node"], node.labels["kwok.x-k8s.io/node"])
            for name, node in world.nodes.nodes.items()
        }
        none, fake = ("none", "none"), ("fake", "fake")
        assert marks == {"web-1": fake, "data-1": fake, "web-2": none, "web-3": fake}
        (ready,) = world.nodes.manifests["web-2"]["status"]["conditions"]
        assert (ready["type"], ready["status"]) == ("Ready", "False")
        assert "conditions" not in world.nodes.manifests["web-3"]["status"]

    run_kwok(scenario, tmp_path)


def test_a_node_lacks_the_resources_that_a_fault_takes(tmp_path):
    """Only the Node: the launch promises what the instance type has."""

    async def scenario(world):
        world.cloud.disturbances.inject(
            Fault(kind=FaultKind.MISSING_RESOURCE, zones=("*-a",), resources=("mem*",))
        )
        a, b = (
            RequirementSpec(key=ZONE, operator="In", values=(f"test-zone-{zone}",)) for zone in "ab"
        )
        struck = await launch(world, "web-1", requirements=[only("std1.large"), a])
        await launch(world, "web-2", requirements=[only("std1.large"), b])
        first, second = (world.nodes.nodes[name] for name in ("web-1", "web-2"))
        assert "memory" in struck.capacity.keys() & struck.allocatable.keys()
        assert first.capacity.keys() == struck.capacity.keys() - {"memory"}
        assert first.allocatable.keys() == struck.allocatable.keys() - {"memory"}
        assert "memory" in second.capacity.keys() & second.allocatable.keys()

    run_kwok(scenario, tmp_path)


def test_some_nodes_of_a_launch_appear_late(tmp_path):
    async def scenario(world):
        slow = {"kind": FaultKind.SLOW_NODE, "delay": timedelta(minutes=4)}
        world.cloud.disturbances.inject(Fault(**slow, node_claims=("web-*",), count=1))
        for name in ("web-1", "data-1", "web-2"):
            await launch(world, name)
        await world.clock.sleep(230)
        await world.run_task("kwok", "nodes")
        assert set(world.nodes.nodes) == {"data-1", "web-2"}
        await world.clock.sleep(11)
        await world.run_task("kwok", "nodes")
        assert set(world.nodes.nodes) == {"data-1", "web-2", "web-1"}

    run_kwok(scenario, tmp_path)
