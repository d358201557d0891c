"""Conditions become Events and metrics (acceptance case 277)."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client import generate_latest

from karpenter_core.api.conditions import FALSE, TRUE, UNKNOWN, Condition
from karpenter_core.api.records import NodeConditionView
from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.metrics.process_metrics import Metrics
from karpenter_core.controllers.observability.conditions import ConditionObserver
from karpenter_core.controllers.reconciling.reconciler import ControllerRuntime
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, custom_kind
from karpenter_core.operator.exposition import exposition
from karpenter_core.operator.inline_platform import SequentialIds
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.state.events import InformersSynced, ObjectObserved
from karpenter_core.testing.builders import EPOCH
from karpenter_core.testing.state_builders import node, node_claim, synced_state
from karpenter_provider_kwok.api import KWOKNodeClass
from tests.controllers.clocks import StoryClock
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

WITHOUT_ELECTION = "--disable-leader-election"
KEPT = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
CLASS = 'karpenter_kwok_sh_kwoknodeclass="default"'
POOL = 'karpenter_sh_nodepool="general"'


def series(running, name) -> dict[str, float]:
    """The series of a metric, by their labels."""
    lines = generate_latest(running.process.metrics.registry).decode().splitlines()
    rows = (line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} ")))
    return {labels.removeprefix(name): float(value) for labels, _, value in rows}


def transitions(scene, kind) -> list[tuple[str, str]]:
    return sorted(
        (event["reason"], event["message"])
        for event in scene.events()
        if event["involvedObject"]["kind"] == kind
        and event["message"].startswith("Status condition transitioned")
    )


def test_changed_conditions_are_published_counted_and_measured(tmp_path):
    """A condition seen first is counted, without an earlier status."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)

        ready = "Type: Ready, Status: Unknown -> True, Reason: Ready"
        expected_messages = [("Ready", f"Status condition transitioned, {ready}")]
        assert transitions(scene, "NodeClaim") == expected_messages, (
            "its stages turned True with it"
        )
        assert [name for name, _ in transitions(scene, "NodePool")] == ["NodeRegistrationHealthy"]

        name = "operator_nodeclaim_status_condition"
        counted = series(running, f"{name}_transitions_total")
        assert (
            counted[f'{{{CLASS},{POOL},reason="Registered",status="True",type="Registered"}}'] == 1
        )
        assert (
            counted[
                f'{{{CLASS},{POOL},reason="ConsistentStateFound",status="True",'
                'type="ConsistentStateFound"}'
            ]
            == 1
        )
        measured = series(running, f"{name}_transition_seconds_count")
        assert measured[f'{{{CLASS},{POOL},status="Unknown",type="Registered"}}'] == 1
        assert not any("ConsistentStateFound" in labels for labels in measured)
        old = series(running, "operator_status_condition_transitions_total")
        assert (
            old[
                '{group="karpenter.sh",kind="NodeClaim",reason="Registered",status="True",'
                'type="Registered"}'
            ]
            == 1
        )
        assert any(
            'type="Ready"' in labels and 'karpenter_sh_initialized="true"' in labels
            for labels in series(running, "operator_node_status_condition_count")
        )

    run_controller(tmp_path, scenario)


def test_an_early_stage_is_reported_by_itself(tmp_path):
    async def scenario(scene):
        taint = {"key": "example.com/boot", "effect": "NoSchedule"}
        pool = node_pool(disruption=KEPT, template={"startupTaints": [taint]})
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: transitions(scene, "NodeClaim"), seconds=60)
        await scene.cluster.clock.sleep(10)
        assert [name for name, _ in transitions(scene, "NodeClaim")] == ["Registered"]
        name = scene.nodes()[0]["metadata"]["name"]
        scene.cluster.server.registry.patch(NODES, {"spec": {"taints": None}}, name, "")
        await scene.cluster.clock.sleep(10)
        assert [name for name, _ in transitions(scene, "NodeClaim")] == ["Ready", "Registered"]

    run_controller(tmp_path, scenario)


def test_an_unresponsive_node_gets_one_event(tmp_path):
    """All of its conditions turn Unknown then; one that turns True has an event all the same."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)
        assert transitions(scene, "Node") == []
        node = scene.nodes()[0]

        def report(**statuses):
            conditions = [
                {**item, "status": statuses.get(item["type"], item["status"])}
                for item in node["status"]["conditions"]
            ]
            status = {"status": {"conditions": conditions}}
            scene.cluster.server.registry.patch(
                NODES, status, node["metadata"]["name"], "", part="status"
            )

        report(Ready="Unknown", MemoryPressure="Unknown", DiskPressure="True")
        await scene.cluster.clock.sleep(5)
        assert [name for name, _ in transitions(scene, "Node")] == ["DiskPressure", "Ready"]

    run_controller(tmp_path, scenario)


def test_a_condition_has_one_series_with_its_current_status(tmp_path):
    """With its age; another status, or another label of the object, takes the old one away."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(60)

        def ready():
            result = series(running, "operator_nodepool_status_condition_count")
            return [labels for labels in result if 'type="NodeClassReady"' in labels]

        assert len(ready()) == 1
        assert 'status="True"' in ready()[0]
        scene.cluster.delete(custom_kind(KWOKNodeClass.resource), "default")
        await scene.settle(lambda: 'status="False"' in ready()[0], seconds=30)
        assert len(ready()) == 1
        ages = series(running, "operator_nodepool_status_condition_current_status_seconds")
        assert ages[ready()[0]] < 30
        claims = series(running, "operator_nodeclaim_status_condition_current_status_seconds")
        assert all(seconds > 30 for seconds in claims.values())

    run_controller(tmp_path, scenario)


def test_pending_pods_are_told_which_pool_is_not_ready(tmp_path):
    """That no NodePool is found, which is there, would mislead."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT)])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(30)
        scene.cluster.delete(custom_kind(KWOKNodeClass.resource), "default")
        await scene.cluster.clock.sleep(30)
        scene.cluster.apply([deployment("web", 1)])
        await scene.settle(lambda: bool(scene.events("FailedScheduling")), seconds=60)
        (event,) = scene.events("FailedScheduling")
        assert event["message"] == (
            "Failed to schedule pod, no dynamic nodepools found; "
            'nodepool "general" is not ready: NodeClassReady is False: NodeClass not found on cluster'
        )

    run_controller(tmp_path, scenario)


def test_a_node_overlay_that_is_not_applied_has_a_series(tmp_path):
    overlay = {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "cut"},
        "spec": {"requirements": [], "capacity": {"example.com/fuse": "1"}, "weight": 1},
    }
    rival = {**overlay, "metadata": {"name": "rival"}}

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEPT), overlay, rival])
        running = scene.start(WITHOUT_ELECTION, "--feature-gates=NodeOverlay=true")

        def conflicts():
            result = series(running, "operator_nodeoverlay_status_condition_count")
            return [labels for labels in result if 'reason="Conflict"' in labels]

        await scene.settle(lambda: bool(conflicts()), seconds=60)
        assert all('status="False"' in labels for labels in conflicts())
        (labels,) = [each for each in conflicts() if 'type="ValidationSucceeded"' in each]
        assert 'name="cut"' in labels

    run_controller(tmp_path, scenario)


def test_the_end_of_an_object_is_measured_and_its_series_go(tmp_path):
    """`Finalized` is recorded for the claim, and for the Node with a foreign finalizer."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (name,) = [claim["metadata"]["name"] for claim in scene.claims()]

        foreign = {"metadata": {"finalizers": ["karpenter.sh/termination", "example.com/keep"]}}
        scene.cluster.server.registry.patch(NODES, foreign, name, "")
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        ending = "operator_nodeclaim_termination_current_time_seconds"
        await scene.settle(lambda: series(running, ending), seconds=120)
        await scene.settle(
            lambda: scene.nodes()[0]["metadata"]["finalizers"] == ["example.com/keep"], seconds=120
        )
        scene.cluster.server.registry.patch(NODES, {"metadata": {"finalizers": None}}, name, "")
        await scene.settle(lambda: not scene.nodes() and not scene.claims(), seconds=120)
        await scene.cluster.clock.sleep(10)

        assert not series(running, ending)
        assert not any(
            name in labels for labels in series(running, "operator_status_condition_count")
        )
        for kind, labels in (
            ("nodeclaim", f"{{{CLASS},{POOL}}}"),
            ("node", f'{{{CLASS},karpenter_sh_initialized="true",{POOL}}}'),
        ):
            assert series(running, f"operator_{kind}_termination_duration_seconds_count") == {
                labels: 1
            }
        finalized = [
            (event["involvedObject"]["kind"], event["message"], event["count"])
            for event in scene.events("Finalized")
        ]
        assert sorted(finalized) == [
            ("Node", "Finalized example.com/keep", 1),
            ("NodeClaim", "Finalized karpenter.sh/termination", 1),
        ]

    run_controller(tmp_path, scenario)


def test_condition_metrics_can_be_switched_off(tmp_path):
    """`--disable-cluster-state-observability`."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION, "--disable-cluster-state-observability=true")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        await scene.cluster.clock.sleep(30)

        assert transitions(scene, "NodeClaim") == []
        assert series(running, "operator_nodeclaim_status_condition_count") == {}
        assert series(running, "operator_nodeclaim_status_condition_transitions_total") == {}

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ({"Launched": UNKNOWN, "Ready": UNKNOWN}, {"Launched": TRUE, "Ready": TRUE}, ["Ready"]),
        ({"Launched": UNKNOWN, "Ready": UNKNOWN}, {"Launched": TRUE}, ["Launched"]),
        ({"Launched": FALSE, "Ready": FALSE}, {"Launched": TRUE, "Ready": TRUE},
         ["Launched", "Ready"]),
        ({"Launched": TRUE, "Ready": UNKNOWN}, {"Launched": FALSE, "Ready": TRUE},
         ["Launched", "Ready"]),
        ({"Drifted": UNKNOWN, "Ready": UNKNOWN}, {"Drifted": TRUE, "Ready": TRUE},
         ["Drifted", "Ready"]),
        ({"Ready": TRUE}, {"Ready": TRUE, "Launched": FALSE}, ["Launched"]),
        ({"Ready": TRUE}, {"Ready": TRUE, "Launched": TRUE}, []),
        ({}, {"Ready": TRUE}, []),
    ],
)  # fmt: skip
def test_stages_that_turn_true_with_ready_are_not_logged(was, now, told):
    """All other changes are; of new conditions those that somebody must mend."""
    clock, published = StoryClock(), []

    def claim(version, statuses):
        conditions = tuple(
            Condition(type=name, status=status, last_transition_time=EPOCH, reason=name)
            for name, status in statuses.items()
        )
        made = node_claim("web", resource_version=version)
        status = made.status.model_copy(update={"conditions": conditions})
        return made.model_copy(update={"status": status})

    async def story():
        cluster_state = ClusterState(synced_state(claim(1, was)), clock)
        runtime = ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=Metrics())
        observer = ConditionObserver(
            cluster_state=cluster_state, publish=published.append, runtime=runtime
        )
        running = asyncio.create_task(observer.run())
        cluster_state.fold(InformersSynced())
        await clock.sleep(1)
        cluster_state.fold(ObjectObserved(claim(2, was | now)))
        await clock.sleep(1)
        running.cancel()

    run_virtual(story())
    assert sorted(notice.reason for notice in published) == told


@pytest.mark.parametrize("of_node", ["KernelDeadlock", "Ready"])
def test_a_new_false_condition_is_reported_unless_it_is_of_a_node(of_node):
    """Agents say with it that all is well, and the kubelet that it has just begun."""
    clock, published = StoryClock(), []
    claim = node_claim("web", resource_version=1)
    condition = Condition(type="Odd", status=FALSE, last_transition_time=EPOCH, reason="Odd")
    status = claim.status.model_copy(update={"conditions": (condition,)})
    changed = node_claim("web", resource_version=2).model_copy(update={"status": status})
    new = NodeConditionView(type=of_node, status=FALSE, last_transition_time=EPOCH)
    machine = msgspec.structs.replace(node("web", resource_version=1), conditions=())
    begun = msgspec.structs.replace(node("web", resource_version=2), conditions=(new,))

    async def story():
        cluster_state = ClusterState(synced_state(claim, machine), clock)
        runtime = ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=Metrics())
        observer = ConditionObserver(
            cluster_state=cluster_state, publish=published.append, runtime=runtime
        )
        running = asyncio.create_task(observer.run())
        cluster_state.fold(InformersSynced())
        await clock.sleep(1)
        cluster_state.fold(ObjectObserved(changed))
        cluster_state.fold(ObjectObserved(begun))
        await clock.sleep(1)
        running.cancel()

    run_virtual(story())
    assert [notice.regarding.kind for notice in published] == ["NodeClaim"]


def test_series_follow_the_clock_and_the_changes_of_an_object():
    """Their text is kept between scrapes; a percent sign in a reason is none of a form."""
    clock, metrics = StoryClock(), Metrics()
    name = "operator_nodeclaim_status_condition"

    def claim(version, reason):
        condition = Condition(
            type="Drifted", status=TRUE, last_transition_time=EPOCH, reason=reason
        )
        made = node_claim("web", resource_version=version)
        status = made.status.model_copy(update={"conditions": (condition,)})
        return made.model_copy(update={"status": status})

    def scraped():
        lines = b"".join(exposition(metrics.registry)).decode().splitlines()
        found = (line.rpartition(" ") for line in lines if line.startswith(f"{name}_c"))
        return {
            (head.partition("{")[0].removeprefix(f"{name}_"), head.partition('reason="')[2][:4]): v
            for head, _, v in found
        }

    async def story():
        cluster_state = ClusterState(synced_state(claim(1, "50%d")), clock)
        runtime = ControllerRuntime(clock=clock, new_id=SequentialIds("id"), metrics=metrics)
        observer = ConditionObserver(
            cluster_state=cluster_state, publish=lambda _: None, runtime=runtime
        )
        running = asyncio.create_task(observer.run())
        cluster_state.fold(InformersSynced())
        await clock.sleep(1)
        first = scraped()
        await clock.sleep(60)
        second = scraped()
        cluster_state.fold(ObjectObserved(claim(2, "Done")))
        await clock.sleep(1)
        third = scraped()
        running.cancel()
        assert (
            first.keys() == second.keys() == {("count", "50%d"), ("current_status_seconds", "50%d")}
        )
        age = "current_status_seconds"
        assert float(second[age, "50%d"]) - float(first[age, "50%d"]) == 60
        assert third.keys() == {("count", "Done"), (age, "Done")}
        assert {second["count", "50%d"], third["count", "Done"]} == {"1.0"}

    run_virtual(story())
