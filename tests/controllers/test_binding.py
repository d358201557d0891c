"""Pods are nominated for planned nodes, and a plan's nodes admitted together."""

from __future__ import annotations

import pytest

from karpenter_core.controllers.nodeclaim import admission
from karpenter_core.controllers.provisioning.new_claims import DECISION
from karpenter_core.errors import ApiError, ConflictError
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.resources import PODS as PODS_KIND
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.kubelets import KubeletTimes
from tests.controllers.test_crash_recovery import WITHOUT_ELECTION, WriteTrigger, faults_file
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

NEVER = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
TOLD = ("patch", "Pod", "status")
SMALL = {
    "requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]},
    ]
}


def spread(app):
    """Spread over zones, hard."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
    ]


def mixed():
    """Pods of several sizes on nodes of four cores."""
    return [
        NODE_CLASS,
        node_pool(disruption=NEVER, template=SMALL),
        deployment("large", 3, cpu="2500m"),
        deployment("small", 6, cpu="500m"),
        deployment("even", 3, topologySpreadConstraints=spread("even")),
    ]


PODS = 12


class Listener:
    """Records nominations, and the plan as it was before the first one."""

    def __init__(self):
        self.running = None
        self.plan = {}

    async def __call__(self, op):
        if (op.verb, op.kind.kind, op.subresource, op.stage) == (*TOLD, "request"):
            placements = self.running.process.cluster_state.snapshot().ledger.placements
            self.plan = {uid: place.target for uid, place in placements.items()} | self.plan

    def start(self, scene):
        self.running = scene.start(faults=self)
        return self.running


def is_ready(claim):
    conditions = claim.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def bound_claims(scene):
    """The claim behind the node of each running pod, by the pod's UID."""
    owners = {
        node["metadata"]["name"]: node["metadata"]["ownerReferences"][0]["name"]
        for node in scene.nodes()
    }
    return {
        pod["metadata"]["uid"]: owners[pod["spec"]["nodeName"]] for pod in scene.pods("Running")
    }


def bound_nodes(scene):
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in scene.pods("Running")}


async def all_run(scene, pods=PODS, *, seconds=60):
    await scene.settle(lambda: len(scene.pods("Running")) == pods, seconds=seconds)


def test_different_pods_are_bound_where_they_were_planned(tmp_path):
    """Each is nominated once; pods of a spread may exchange nodes."""

    async def scenario(scene):
        scene.cluster.apply(mixed())
        listener = Listener()
        running = listener.start(scene)
        await all_run(scene)

        planned, bound = listener.plan, bound_claims(scene)
        even = {
            pod["metadata"]["uid"]
            for pod in scene.pods()
            if pod["metadata"]["labels"]["app"] == "even"
        }
        assert {uid: name for uid, name in bound.items() if uid not in even} == {
            uid: name for uid, name in planned.items() if uid not in even
        }
        assert sorted(bound.values()) == sorted(planned.values())
        assert running.process.kube_writer.counts[TOLD] == PODS

    run_controller(tmp_path, scenario)


def test_equal_pods_are_not_nominated(tmp_path):
    """They may take each other's places, and the API server has less to do."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(template=SMALL), deployment("web", 10)])
        running = scene.start()
        await all_run(scene, 10)

        assert running.process.kube_writer.counts[TOLD] == 0

    run_controller(tmp_path, scenario)


def test_no_pod_is_nominated_while_too_many_are_pending(tmp_path, monkeypatch):
    """All the same they get their nodes."""
    monkeypatch.setattr(admission, "MOST_NOMINATED_PODS", PODS - 1)

    async def scenario(scene):
        scene.cluster.apply(mixed())
        running = scene.start()
        await all_run(scene)

        assert running.process.kube_writer.counts[TOLD] == 0

    run_controller(tmp_path, scenario)


def registered_at(scene):
    """Times at which claims were admitted."""
    return [
        condition["lastTransitionTime"]
        for claim in scene.claims()
        for condition in claim.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("Registered", "True")
    ]


def test_nodes_of_one_plan_are_admitted_together(tmp_path):
    """The one that comes two seconds after the others is waited for."""
    slow = {"fault": "slow-reply", "operation": "launch", "delay": "2s", "count": 1}
    option = faults_file(tmp_path, slow)

    async def scenario(scene):
        scene.cluster.apply(mixed())
        scene.start()
        await all_run(scene)

        assert len(registered_at(scene)) > 2
        assert len(set(registered_at(scene))) == 1

    run_controller(tmp_path, scenario, arguments=[option])


def test_node_with_conflicting_writes_is_admitted_with_the_others(tmp_path):
    """Its pods have been nominated: they would find it closed. Each attempt waits longer."""
    struck, times = [], []

    async def scenario(scene):
        async def meddle(op):
            if (op.verb, op.kind.kind, op.stage) != ("patch", "Node", "request"):
                return
            if op.name in (struck or [op.name]):
                struck[:] = [op.name]
                times.append(scene.cluster.clock.monotonic())
                if len(times) < 3:
                    raise ConflictError("the object has been modified", status=409)

        scene.cluster.apply(mixed())
        opened = {}

        def note(change):
            node = change.stored.obj
            if "karpenter.sh/registered" in node["metadata"]["labels"]:
                opened.setdefault(node["metadata"]["name"], scene.cluster.clock.monotonic())

        scene.cluster.server.registry.store.listen(NODES, note)
        scene.start(faults=meddle)
        await all_run(scene)

        assert len(opened) > 2
        assert struck[0] in opened
        assert max(opened.values()) - min(opened.values()) < 0.5
        first, second, third = times[:3]
        assert 0 < second - first < third - second

    run_controller(tmp_path, scenario)


def test_writes_of_others_to_a_new_node_cost_no_second_patch(tmp_path):
    """The kubelet and half a dozen controllers write to it while it is being registered."""
    struck = set()
    theirs = {"key": "example.com/theirs", "effect": "PreferNoSchedule"}

    async def scenario(scene):
        registry = scene.cluster.server.registry

        async def meddle(op):
            if (op.verb, op.kind.kind, op.stage) != ("patch", "Node", "request"):
                return
            if op.name not in struck:
                struck.add(op.name)
                node = registry.read(NODES, op.name)
                change = {
                    "metadata": {"annotations": {"example.com/theirs": "yes"}},
                    "spec": {"taints": [*node["spec"]["taints"], theirs]},
                }
                registry.patch(NODES, change, op.name)

        scene.cluster.apply(mixed())
        running = scene.start(faults=meddle)
        await all_run(scene)

        assert len(struck) == len(scene.nodes()) > 2
        assert running.process.kube_writer.counts["patch", "Node", ""] == len(struck)
        for node in scene.nodes():
            assert node["metadata"]["annotations"]["example.com/theirs"] == "yes"
            assert node["spec"]["taints"] == [theirs]

    run_controller(tmp_path, scenario)


def test_missing_node_delays_the_others_only_briefly(tmp_path):
    """The pods of the others run long before it is given up."""
    lost = []

    async def lose(op):
        if (op.verb, op.kind.kind) == ("create", "Node") and op.name in (lost or [op.name]):
            lost[:] = [op.name]
            raise ApiError("no", status=403)

    async def scenario(scene):
        scene.cluster.apply(mixed())
        scene.start(faults=lose)
        await scene.settle(lambda: len(scene.claims()) - len(registered_at(scene)) == 1, seconds=30)

        assert registered_at(scene)
        assert lost

    run_controller(tmp_path, scenario)


def test_nodes_ready_before_admission_are_initialised_with_it(tmp_path):
    """One patch of the Node for both. Here they wait for one that never comes."""
    lost = []

    async def lose(op):
        if (op.verb, op.kind.kind) == ("create", "Node") and op.name in (lost or [op.name]):
            lost[:] = [op.name]
            raise ApiError("no", status=403)

    async def scenario(scene):
        scene.cluster.apply(mixed())
        running = scene.start(faults=lose)
        await scene.settle(lambda: sum(map(is_ready, scene.claims())) == 3, seconds=30)

        assert len(scene.claims()) == 4
        assert running.process.kube_writer.counts["patch", "Node", ""] == 3

    run_controller(tmp_path, scenario, times=KubeletTimes(node_boot_seconds=3.5))


def test_refused_nomination_stops_no_admission(tmp_path):
    """Another client writes the pod each time: the scheduler places it freely."""

    async def refuse(op):
        if (op.verb, op.kind.kind, op.subresource) == TOLD:
            raise ConflictError("the object has been modified", status=409)

    async def scenario(scene):
        scene.cluster.apply(mixed())
        scene.start(faults=refuse)
        await all_run(scene)

        assert len(scene.nodes()) == len(scene.claims())

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("stage", ["request", "reply"])
@pytest.mark.parametrize("number", [1, 5, PODS])
def test_process_killed_between_nomination_and_admission_recovers(tmp_path, stage, number):
    """The next process lets the same nodes in for the same pods and orders no more."""

    async def scenario(scene):
        scene.cluster.apply(mixed())
        first = None
        claims = []

        async def die():
            claims.extend(claim["metadata"]["name"] for claim in scene.claims())
            for cable in first._cables:
                cable.is_cut = True
            first._task.cancel()
            raise ApiError("the process is dead", status=0)

        at = WriteTrigger(*TOLD, stage=stage, number=number, act=die)
        first = scene.start(WITHOUT_ELECTION, faults=at)
        await scene.settle(lambda: at.struck, seconds=60)
        await first.kill()
        scene.start(WITHOUT_ELECTION)
        await all_run(scene)
        await scene.cluster.clock.sleep(60)

        assert sorted(claims) == sorted(claim["metadata"]["name"] for claim in scene.claims())
        assert len(scene.pods("Running")) == PODS

    run_controller(tmp_path, scenario)


def test_pods_find_another_node_when_theirs_is_deleted_before_they_got_there(tmp_path):
    """The nomination names a node that is not there any more: the pods are planned for again."""

    async def scenario(scene):
        scene.cluster.apply(mixed())
        lost = []

        async def lose():
            claim = scene.claims()[0]["metadata"]["name"]
            lost.append(claim)
            scene.cluster.delete(NODE_CLAIMS, claim)

        at = WriteTrigger(*TOLD, number=PODS, act=lose)
        scene.start(faults=at)
        await all_run(scene, seconds=120)

        assert lost
        await scene.settle(
            lambda: lost[0] not in {claim["metadata"]["name"] for claim in scene.claims()},
            seconds=120,
        )
        await all_run(scene, seconds=120)

    run_controller(tmp_path, scenario)


def test_a_node_that_vanishes_with_nominated_pods_is_replaced(tmp_path):
    """Without a scheduler that would take the nominations back."""

    async def scenario(scene):
        scene.cluster.apply(mixed())
        gone = []

        async def vanish():
            for node in scene.nodes():
                gone.append(node["metadata"]["name"])
                scene.cluster.server.registry.patch(
                    NODES, {"metadata": {"finalizers": None}}, node["metadata"]["name"]
                )
                scene.cluster.delete(NODES, node["metadata"]["name"])

        at = WriteTrigger(*TOLD, number=PODS, act=vanish)
        scene.start(faults=at)
        await all_run(scene, seconds=300)

        assert not set(gone) & set(bound_nodes(scene).values())

    run_controller(tmp_path, scenario)


def test_an_idle_cluster_gets_no_more_nominations(tmp_path):
    """Once all pods are bound there is nothing to renew; later pods are nominated for later nodes."""

    async def scenario(scene):
        scene.cluster.apply(mixed())
        listener = Listener()
        running = listener.start(scene)
        await all_run(scene)
        await scene.cluster.clock.sleep(120)
        assert running.process.kube_writer.counts[TOLD] == PODS

        scene.cluster.scale(DEPLOYMENTS, "large", 5)
        scene.cluster.scale(DEPLOYMENTS, "even", 9)
        await all_run(scene, PODS + 8)
        assert running.process.kube_writer.counts[TOLD] > PODS
        decisions = {claim["metadata"]["annotations"][DECISION] for claim in scene.claims()}
        assert len(decisions) == 2

    run_controller(tmp_path, scenario)


def test_a_pod_that_preempts_none_does_not_wait_for_a_full_node_for_ever(tmp_path):
    """The scheduler keeps such a nomination: of an earlier leader, say, whose node others have filled."""
    spec = deployment("large", 1, cpu="40")["spec"]["template"]["spec"]
    large = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "large", "namespace": "default"},
        "spec": {**spec, "preemptionPolicy": "Never"},
    }

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("full", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (node,) = scene.nodes()
        scene.cluster.apply([large])
        nominated = {"status": {"nominatedNodeName": node["metadata"]["name"]}}
        scene.cluster.server.registry.patch(PODS_KIND, nominated, "large", "default", part="status")
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=12 * 60)

    run_controller(tmp_path, scenario)
