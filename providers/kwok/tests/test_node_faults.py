"""Faults of the Nodes of instances."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import structlog

from karpenter_core.api.labels import ZONE
from karpenter_core.api.nodeclaim import RequirementSpec
from karpenter_core.errors import ApiError, FencedError
from karpenter_core.testing.provider_world import FakeNodes
from karpenter_provider_kwok.faults import KwokFault, KwokFaultKind
from providers.kwok.tests.worlds import launch, node_class, only, run_kwok


def test_a_failing_node_is_created_in_the_end(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(KwokFault(kind=KwokFaultKind.FAILED_NODE, count=2))
        await launch(world)
        assert world.nodes.nodes == {}
        for _ in range(5):
            await world.clock.sleep(1)
            await world.settle()
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


REFUSALS = [
    FencedError("this process does not lead"),
    ApiError("etcd has no leader", status=500),
]


async def passes(world, seconds):
    for _ in range(seconds):
        await world.clock.sleep(1)
        await world.settle()


def state_of(world):
    """Return the states of the Nodes of all instances."""
    dump = world.dump()
    return [each["nodeState"] for each in (*dump["instances"], *dump["terminated"])]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_node_whose_creation_is_refused_is_created_later(tmp_path, refusal):
    async def scenario(world):
        world.nodes.failures.extend([refusal, refusal])
        await launch(world)
        assert world.nodes.nodes == {}
        assert state_of(world) == ["due"]
        await passes(world, 10)
        assert set(world.nodes.nodes) == {"web-1"}
        assert state_of(world) == ["made"]
        assert world.nodes.writes == [("create", "web-1")] * 3

    run_kwok(scenario, tmp_path)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda error: type(error).__name__)
def test_a_node_whose_deletion_is_refused_is_deleted_later(tmp_path, refusal):
    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await world.settle()
        world.nodes.failures.append(refusal)
        await world.providers.terminate(request.node_claim.spec.node_class_ref, "kwok://web-1")
        await passes(world, 5)
        writes = [verb for verb, _ in world.nodes.writes]
        assert writes.count("delete") == 2
        assert world.nodes.nodes == {}
        assert state_of(world) == ["removed"]

    run_kwok(scenario, tmp_path)


def test_a_node_that_no_watch_has_shown_is_deleted_with_its_instance(tmp_path, monkeypatch):
    """A reader without Nodes may be one of a process whose watches have listed nothing yet."""
    monkeypatch.setattr(FakeNodes, "__call__", lambda _nodes: {})

    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await world.clock.sleep(600)
        await world.providers.terminate(request.node_claim.spec.node_class_ref, "kwok://web-1")
        await world.settle()
        assert world.nodes.nodes == {}
        assert state_of(world) == ["removed"]

    run_kwok(scenario, tmp_path)


def test_a_node_made_again_under_its_name_is_deleted_with_its_instance(tmp_path, monkeypatch):
    """The watches have shown the first Node of that name and its end, and nothing of the second."""

    async def scenario(world):
        ends = []
        for shown in (True, False):
            if not shown:
                monkeypatch.setattr(FakeNodes, "__call__", lambda _nodes: {})
            request = await world.request("web-1", node_class())
            claim = request.node_claim
            uid = f"uid-{shown}"
            metadata = claim.metadata.model_copy(update={"uid": uid})
            claim = claim.model_copy(update={"metadata": metadata})
            await world.launch(replace(request, node_claim=claim))
            await world.clock.sleep(60)
            await world.providers.terminate(claim.spec.node_class_ref, "kwok://web-1")
            await world.settle()
            ends.append(dict(world.nodes.nodes))
        assert ends == [{}, {}]
        assert state_of(world) == ["removed", "removed"]

    run_kwok(scenario, tmp_path)


def test_a_node_is_not_made_for_an_instance_whose_name_another_one_has(tmp_path):
    """It waits for the name; the other Node is left alone."""

    async def scenario(world):
        await world.nodes.create({"metadata": {"name": "web-1", "labels": {"of": "another"}}})
        await launch(world)
        await passes(world, 5)
        assert world.nodes.nodes["web-1"].labels == {"of": "another"}
        assert state_of(world) == ["due"]

        del world.nodes.nodes["web-1"]
        await passes(world, 40)
        assert "of" not in world.nodes.nodes["web-1"].labels
        assert state_of(world) == ["made"]

    run_kwok(scenario, tmp_path)


def test_two_equal_faults_apply_one_after_the_other(tmp_path):
    async def scenario(world):
        for _ in range(2):
            world.cloud.disturbances.inject(KwokFault(kind=KwokFaultKind.FAILED_NODE, count=1))
        with structlog.testing.capture_logs() as lines:
            await launch(world)
            await passes(world, 10)
        assert set(world.nodes.nodes) == {"web-1"}
        assert [line["attempt"] for line in lines if "attempt" in line] == [0, 1]

    run_kwok(scenario, tmp_path)


def test_faults_of_a_program_end_when_they_are_cleared(tmp_path):
    async def scenario(world):
        world.cloud.disturbances.inject(KwokFault(kind=KwokFaultKind.FAILED_NODE))
        await launch(world)
        await passes(world, 3)
        assert world.nodes.nodes == {}
        world.cloud.disturbances.clear()
        await passes(world, 60)
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)


def test_a_node_without_kubelet_registers_and_is_not_ready(tmp_path):
    """Those of instances that were there before, or that come after the last strike, are well."""

    async def scenario(world):
        await launch(world, "web-1")
        world.cloud.disturbances.inject(
            KwokFault(kind=KwokFaultKind.UNREADY_NODE, node_claims=("web-*",), count=1)
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
            KwokFault(kind=KwokFaultKind.MISSING_RESOURCE, zones=("*-a",), resources=("mem*",))
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
        slow = {"kind": KwokFaultKind.SLOW_NODE, "delay": timedelta(minutes=4)}
        world.cloud.disturbances.inject(KwokFault(**slow, node_claims=("web-*",), count=1))
        for name in ("web-1", "data-1", "web-2"):
            await launch(world, name)
        await world.clock.sleep(230)
        await world.run_task("kwok", "nodes")
        assert set(world.nodes.nodes) == {"data-1", "web-2"}
        await world.clock.sleep(11)
        await world.run_task("kwok", "nodes")
        assert set(world.nodes.nodes) == {"data-1", "web-2", "web-1"}

    run_kwok(scenario, tmp_path)


def test_names_of_removed_nodes_are_forgotten(tmp_path):
    """Also of one that a slow watch still shows after its deletion."""

    async def scenario(world):
        request = await world.request("web-1", node_class())
        await world.launch(request)
        await passes(world, 3)
        (node,) = world.nodes.nodes.values()
        await world.providers.terminate(request.node_claim.spec.node_class_ref, "kwok://web-1")
        await passes(world, 15)
        assert state_of(world) == ["removed"]
        registrar = world.plugin.running.registrar
        world.nodes.nodes["web-1"] = node
        await registrar.run()
        del world.nodes.nodes["web-1"]
        await registrar.run()
        assert registrar._shown == set()

    run_kwok(scenario, tmp_path)


def test_a_process_that_does_not_lead_tries_again_after_half_a_second(tmp_path):
    """It may lead soon, and must not keep its thread busy until then."""

    async def scenario(world):
        world.nodes.failures.append(FencedError("this process does not lead"))
        await launch(world)
        await world.clock.sleep(0.4)
        assert not world.woken
        await world.clock.sleep(0.2)
        assert world.woken
        await world.settle()
        assert set(world.nodes.nodes) == {"web-1"}

    run_kwok(scenario, tmp_path)
