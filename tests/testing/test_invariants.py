"""The invariants detect each breach and report nothing else."""

from __future__ import annotations

import pytest

from karpenter_core.api.crd import render_crd
from karpenter_core.api.provisioning_request import GANG_ATTEMPT, GANG_UID, ProvisioningRequest
from karpenter_core.kube.resources import NODES, PODS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS, PROVISIONING_REQUESTS
from karpenter_core.kube.writer import WriteAttempt
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.expectations import CloudAccount
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.gangs import request
from tests.controllers.whole_controller import GROUP, NODE_CLASS, node_pool
from tests.support.invariants import Invariants, quiet_violations, request_violations

FINALIZER = {"metadata": {"finalizers": ["example.com/held"]}}
POOL = {"karpenter.sh/nodepool": "general"}
ONE = {
    "consolidationPolicy": "WhenEmpty",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "1"}],
}


def claim(name, **spec):
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": POOL, "finalizers": ["karpenter.sh/termination"]},
        "spec": {
            "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
            "requirements": [],
            **spec,
        },
    }


def node(name):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": POOL},
        "spec": {"providerID": f"kwok://{name}"},
    }


def pod(name, on):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": on, "containers": [{"name": "web", "image": "nginx"}]},
    }


class Scene:
    """A cluster without a controller, with one node and its pod; the test writes as one."""

    def __init__(self, harness, watch):
        self.harness, self.cluster, self.watch = harness, harness.cluster, watch

    def status(self, name, **status):
        registry = self.cluster.server.registry
        registry.patch(NODE_CLAIMS, {"status": status}, name, "", part="status")

    def mark(self, name, reason="Drifted"):
        now = f"{self.cluster.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        condition = {"type": "DisruptionReason", "status": "True", "reason": reason}
        self.status(name, conditions=[{**condition, "message": "", "lastTransitionTime": now}])

    def unmark(self, name):
        self.status(name, conditions=[])


@pytest.fixture
def seen(tmp_path):
    """Return a function that runs a scenario and returns the recorded violations."""

    def tell(scenario, **pool):
        async def run_scenario():
            plugins = {"kwok": KwokProvider()}
            async with ControllerHarness(lambda: plugins, folder=tmp_path) as harness:
                watch = Invariants(harness)
                harness.cluster.apply([NODE_CLASS, node_pool(disruption=ONE, **pool)])
                harness.cluster.apply([claim("first", terminationGracePeriod="60s"), node("first")])
                harness.cluster.apply([pod("web", "first")])
                scene = Scene(harness, watch)
                scene.status("first", providerID="kwok://first", capacity={"cpu": "4"})
                await scenario(scene)
                return watch.breaches

        return run_virtual(run_scenario())

    return tell


async def delete_pod(scene):
    op = WriteAttempt(verb="delete", kind=PODS, name="web", namespace="default")
    await scene.watch.note_write(op)


def test_instance_must_not_end_under_its_pods(seen):
    async def scenario(scene):
        scene.watch.note_terminate(["kwok://first"])

    (breach,) = seen(scenario)
    assert breach.endswith("instance ended: first, while pod web runs there and was not evicted")


def test_instance_must_not_end_while_an_evicted_pod_terminates(seen):
    async def scenario(scene):
        scene.cluster.patch(PODS, "web", FINALIZER, namespace="default")
        scene.cluster.delete(PODS, "web", namespace="default")
        scene.watch.note_terminate(["kwok://first"])

    (breach,) = seen(scenario)
    assert breach.endswith("while pod web runs there")


def test_pod_that_hangs_in_termination_keeps_no_instance(seen):
    async def scenario(scene):
        scene.cluster.patch(PODS, "web", FINALIZER, namespace="default")
        scene.cluster.delete(PODS, "web", namespace="default")
        await scene.cluster.clock.sleep(30 + 61)
        scene.watch.note_terminate(["kwok://first"])

    assert seen(scenario) == []


@pytest.mark.parametrize(
    ("toleration", "breaches"),
    [
        ({"operator": "Exists"}, 0),
        ({"key": "karpenter.sh/disrupted", "operator": "Exists"}, 0),
        ({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}, 0),
        ({"key": "karpenter.sh/disrupted", "operator": "Equal", "value": "so"}, 1),
        ({"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoExecute"}, 1),
        ({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}, 1),
    ],
)
def test_pods_that_tolerate_the_taint_need_not_be_drained(seen, toleration, breaches):
    async def scenario(scene):
        scene.cluster.server.registry.delete(PODS, "web", "default", grace_seconds=0)
        tolerant = pod("tolerant", "first")
        tolerant["spec"]["tolerations"] = [toleration]
        scene.cluster.apply([tolerant])
        scene.watch.note_terminate(["kwok://first"])

    assert len(seen(scenario)) == breaches


@pytest.mark.parametrize("kind", ["DaemonSet", "Node"])
def test_daemons_and_static_pods_need_not_be_drained(seen, kind):
    async def scenario(scene):
        scene.cluster.server.registry.delete(PODS, "web", "default", grace_seconds=0)
        owned = pod("owned", "first")
        owner = {"apiVersion": "v1", "kind": kind, "name": "first", "uid": "of-the-owner"}
        owned["metadata"]["ownerReferences"] = [owner]
        scene.cluster.apply([owned])
        scene.watch.note_terminate(["kwok://first"])

    assert seen(scenario) == []


@pytest.mark.parametrize(("seconds", "breaches"), [(29, 1), (31, 0)])
def test_a_deadline_that_has_passed_by_the_clock_of_the_cluster_allows_the_end(
    seen, seconds, breaches
):
    async def scenario(scene):
        scene.cluster.delete(NODE_CLAIMS, "first")
        await scene.cluster.clock.sleep(seconds)
        scene.watch.note_terminate(["kwok://first"])

    assert len(seen(scenario)) == breaches


@pytest.mark.parametrize(("minutes", "breaches"), [(19, 0), (21, 1), (180, 1)])
def test_no_instance_is_without_a_claim_for_more_than_twenty_minutes(seen, minutes, breaches):
    async def scenario(scene):
        for _ in range(minutes + 1):
            scene.watch.note_instances(["kwok://first", "kwok://stray"])
            await scene.cluster.clock.sleep(60)

    result = seen(scenario)
    assert len(result) == breaches
    assert all(
        each.endswith("for too long: instance kwok://stray without claim") for each in result
    )


def test_an_instance_that_gets_a_claim_in_time_is_no_stray(seen):
    async def scenario(scene):
        for minute in range(120):
            strays = [] if minute % 20 == 0 else ["kwok://stray"]
            scene.watch.note_instances(["kwok://first", *strays])
            await scene.cluster.clock.sleep(60)

    assert seen(scenario) == []


def test_time_in_which_nothing_was_seen_does_not_count_for_instances_without_a_claim(seen):
    async def scenario(scene):
        for minute in range(80):
            scene.watch.note_instances(["kwok://stray"], blind_seconds=60 * (10 <= minute < 72))
            await scene.cluster.clock.sleep(60)
        assert scene.watch.breaches == []
        for _ in range(10):
            scene.watch.note_instances(["kwok://stray"])
            await scene.cluster.clock.sleep(60)

    assert len(seen(scenario)) == 1


def test_limits_that_were_cut_unseen_may_have_been_used(seen):
    async def scenario(scene):
        scene.watch.blind_since = scene.cluster.clock.now()
        await scene.cluster.clock.sleep(60)
        scene.cluster.apply([node_pool(disruption=ONE, limits={"cpu": "5"})])
        await scene.cluster.clock.sleep(1800)
        scene.cluster.apply([claim("second")])
        scene.status("second", providerID="kwok://second", capacity={"cpu": "6"})
        scene.watch.blind_since = None
        scene.cluster.apply([claim("third")])
        scene.status("third", providerID="kwok://third", capacity={"cpu": "0"})

    (breach,) = seen(scenario, limits={"cpu": "10"})
    assert "third" in breach


def test_instance_without_pods_may_end(seen):
    async def scenario(scene):
        scene.cluster.server.registry.delete(PODS, "web", "default", grace_seconds=0)
        scene.watch.note_terminate(["kwok://first"])

    assert seen(scenario) == []


def test_instance_reclaimed_by_the_cloud_is_excused(seen):
    async def scenario(scene):
        scene.watch.excuse("kwok://first")
        scene.watch.note_terminate(["kwok://first"])
        await delete_pod(scene)

    assert seen(scenario) == []


def test_a_node_may_not_vanish_under_its_pods(seen):
    async def scenario(scene):
        scene.cluster.delete(NODES, "first")

    (breach,) = seen(scenario)
    assert "Node removed: first" in breach


@pytest.mark.parametrize(("seconds", "breaches"), [(29, 1), (31, 0)])
def test_a_pod_may_be_deleted_so_long_before_the_deadline_as_it_may_take_to_end(
    seen, seconds, breaches
):
    async def scenario(scene):
        scene.cluster.delete(NODE_CLAIMS, "first")
        await scene.cluster.clock.sleep(seconds)
        await delete_pod(scene)

    assert len(seen(scenario)) == breaches


def test_a_pod_may_not_be_deleted_when_nothing_ends(seen):
    assert len(seen(delete_pod)) == 1


def test_commands_may_not_disrupt_more_than_the_budget(seen):
    async def scenario(scene):
        scene.cluster.apply([claim("second")])
        scene.mark("first")
        scene.mark("second")

    (breach,) = seen(scenario)
    assert "2 nodes of general disrupted, 1 allowed" in breach


def test_instance_without_a_node_uses_no_budget(seen):
    async def scenario(scene):
        scene.cluster.apply([claim("second")])
        scene.status("first", nodeName="first")
        scene.mark("first")
        scene.cluster.server.registry.delete(PODS, "web", "default", grace_seconds=0)
        scene.cluster.server.registry.delete(NODES, "first", "")
        scene.mark("second")

    assert seen(scenario) == []


def test_forced_disruption_needs_no_budget(seen):
    async def scenario(scene):
        scene.cluster.apply([claim("second")])
        scene.mark("first")
        scene.mark("second", reason="SpotInterruption")

    assert seen(scenario) == []


def test_a_budget_that_was_cut_a_moment_ago_may_have_been_used(seen):
    async def scenario(scene):
        scene.cluster.apply([claim("second")])
        scene.mark("first")
        scene.cluster.apply([node_pool(disruption={**ONE, "budgets": [{"nodes": "0"}]})])
        scene.mark("second")

    (breach,) = seen(scenario)
    assert "1 allowed" in breach


@pytest.mark.parametrize(("cpu", "breaches"), [("6", 0), ("6500m", 1)])
def test_nodes_may_not_take_a_pool_beyond_its_limits(seen, cpu, breaches):
    async def scenario(scene):
        scene.cluster.apply([claim("second")])
        scene.status("second", providerID="kwok://second", capacity={"cpu": cpu})

    assert len(seen(scenario, limits={"cpu": "10"})) == breaches


def test_node_that_is_being_replaced_counts_against_no_limit(seen):
    async def scenario(scene):
        scene.mark("first")
        scene.cluster.apply([claim("second")])
        scene.status("second", providerID="kwok://second", capacity={"cpu": "8"})

    assert seen(scenario, limits={"cpu": "10"}) == []


@pytest.mark.parametrize("ends", [False, True])
def test_node_marked_for_long_counts_against_no_limit(seen, ends):
    """Not either if its command ends while the new node is launched."""

    async def scenario(scene):
        scene.mark("first")
        await scene.cluster.clock.sleep(600)
        scene.cluster.apply([claim("second")])
        if ends:
            scene.unmark("first")
        scene.status("second", providerID="kwok://second", capacity={"cpu": "8"})

    assert seen(scenario, limits={"cpu": "10"}) == []


def test_node_whose_command_ended_long_ago_counts_against_limits(seen):
    async def scenario(scene):
        scene.mark("first")
        scene.unmark("first")
        await scene.cluster.clock.sleep(600)
        scene.cluster.apply([claim("second")])
        scene.status("second", providerID="kwok://second", capacity={"cpu": "8"})

    assert len(seen(scenario, limits={"cpu": "10"})) == 1


def test_a_converged_cluster_has_all_pods_running_and_all_objects_paired(seen):
    wrong = []

    async def scenario(scene):
        one = CloudAccount(instances=[{"providerID": "kwok://first"}], launches={"uid": 1})
        none = CloudAccount(launches={"uid": 2})
        wrong.extend((quiet_violations(scene.harness, one), quiet_violations(scene.harness, none)))

    seen(scenario)
    assert wrong[0] == ["pod web is Pending on first", "claim first is not ready"]
    assert any("not one to one" in each for each in wrong[1])
    assert "token uid launched 2 times" in wrong[1]


def belong_to_attempt(scene, details):
    """Make the claim one of the first attempt for a request whose status has these details."""
    registry = scene.cluster.server.registry
    scene.cluster.apply([render_crd(ProvisioningRequest)])
    asked = registry.create(PROVISIONING_REQUESTS, request(), "default")
    status = {"status": {"provisioningClassDetails": details}}
    registry.patch(PROVISIONING_REQUESTS, status, "job", "default", part="status")
    marks = {GANG_ATTEMPT: "1", GANG_UID: asked["metadata"]["uid"]}
    scene.cluster.patch(NODE_CLAIMS, "first", {"metadata": {"annotations": marks}})


@pytest.fixture
def given_up(seen):
    """Return a function that has the controller delete a claim, and returns the breaches."""

    def give_up(*true, after_seconds=60, lowered_to=None, attempt=None, **pool):
        async def scenario(scene):
            if attempt is not None:
                belong_to_attempt(scene, attempt)
            conditions = [
                {
                    "type": each,
                    "status": "True",
                    "reason": each,
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for each in true
            ]
            scene.status("first", conditions=conditions)
            if lowered_to is not None:
                lower = {"spec": {"replicas": lowered_to}}
                scene.cluster.server.registry.patch(NODE_POOLS, lower, "general", "")
            await scene.cluster.clock.sleep(after_seconds)
            await scene.watch.note_write(
                WriteAttempt(verb="delete", kind=NODE_CLAIMS, name="first", namespace="")
            )

        return seen(scenario, **pool)

    return give_up


def test_a_booting_claim_may_not_be_deleted_at_once(given_up):
    (breach,) = given_up("Launched")
    assert breach.endswith("claim first given up 60 s after creation")


def test_a_claim_may_be_given_up_in_time_or_for_another_reason(given_up):
    assert given_up("Launched", after_seconds=900) == []
    assert given_up() == given_up("Launched", "Registered") == []


def test_a_claim_beyond_the_replicas_of_its_pool_may_be_deleted_at_once(given_up):
    assert given_up("Launched", replicas=1, lowered_to=0) == []
    (breach,) = given_up("Launched", replicas=1)
    assert breach.endswith("claim first given up 60 s after creation")


def test_a_claim_of_an_ended_attempt_may_be_deleted_at_once(given_up):
    number, claims = "karpenter.sh/attempts", "karpenter.sh/attempt-claims"
    (breach,) = given_up("Launched", attempt={number: "1", claims: "3"})
    assert breach.endswith("claim first given up 60 s after creation")
    assert given_up("Launched", attempt={number: "1"}) == []
    assert given_up("Launched", attempt={number: "2", claims: "3"}) == []


def test_claims_that_an_attempt_has_left_and_unanswered_requests_are_found(seen):
    found = []

    async def scenario(scene):
        belong_to_attempt(scene, {"karpenter.sh/attempts": "1"})
        found.extend(request_violations(scene.harness))

    seen(scenario)
    assert found == [
        "request job has no condition Accepted or Failed",
        "claim first is of an attempt that has ended",
    ]
