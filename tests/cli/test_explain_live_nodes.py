"""Commands beside an unchanged controller name the reason for which a node stays.

Each reason arises in a whole controller on an embedded cluster, in simulated time.
"""

from __future__ import annotations

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from tests.cli.live_reading import read_live
from tests.controllers.cluster_runs import EDITION, NEWER
from tests.controllers.test_capacity_buffers import buffer, pod_template
from tests.controllers.test_schedules import scheduled, window_in
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

ALONE = "--disable-leader-election"
KEEP = "karpenter.sh/do-not-disrupt"
GOING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "30s",
    "budgets": [{"nodes": "100%"}],
}
SIZES = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2", "8"]}


def pool(capacity="on-demand", *, annotations=None, changes=None, **template):
    """A NodePool of nodes with two or eight cores; `changes` are those of its disruption."""
    bought = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity]}
    made = node_pool(
        disruption={**GOING, **(changes or {})}, template={"requirements": [bought, SIZES], **template}
    )  # fmt: skip
    made["metadata"]["annotations"] = annotations or {}
    return made


def web(**metadata):
    """Pods that make the node large; they go, and small ones stay."""
    small = deployment("small", 1, cpu="500m", memory="128Mi")
    small["spec"]["template"]["metadata"].update(metadata)
    return deployment("large", 1, cpu="6", memory="128Mi"), small


def no_eviction():
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "small"}}},
    }


def closed_budget(scene):
    """Return a budget that allows nothing for an hour from now on."""
    schedule = window_in(scene, 0)["schedule"]
    return pool(changes={"budgets": [{"nodes": "0", "schedule": schedule, "duration": "1h"}]})


def in_window(scene, **changes):
    return scheduled(pool(), window_in(scene, 0, "60m", name="day", **changes))


def keep_nodes(scene):
    for node in scene.nodes():
        patch = {"metadata": {"annotations": {KEEP: "true"}}}
        scene.cluster.patch(NODES, node["metadata"]["name"], patch)


def delete_claims(scene):
    for claim in scene.claims():
        scene.cluster.delete(NODE_CLAIMS, claim["metadata"]["name"])


def empty(scene):
    scene.cluster.scale(DEPLOYMENTS, "small", 0)


def change_template(scene):
    scene.cluster.patch(NODE_POOLS, "general", NEWER)


class LiveReason:
    """A cluster whose nodes stay for one reason; `event` is a part of the Event on the node."""

    def __init__(self, *objects, says, state="stays", event=None, arguments=(), then=None):
        self.objects = objects
        self.says = says
        self.state = state
        self.event = event
        self.arguments = (ALONE, *arguments)
        self.then = then

    def manifests(self, scene):
        return [each(scene) if callable(each) else each for each in (NODE_CLASS, *self.objects)]


REASONS = {
    "annotation": LiveReason(
        pool(), *web(), then=keep_nodes,
        says=f'it has the annotation "{KEEP}"', event=f'blocked through the "{KEEP}" annotation',
    ),
    "annotation-of-a-pod": LiveReason(
        pool(), *web(annotations={KEEP: "true"}),
        says=f'has the annotation "{KEEP}"', event=f'Pod has "{KEEP}" annotation',
    ),
    "pod-disruption-budget": LiveReason(
        pool(), *web(), no_eviction(),
        says='PodDisruptionBudget "default/small" allows no eviction of pod "default/small-',
        event="Pdb prevents pod evictions (PodDisruptionBudget=[default/small])",
    ),
    "budget": LiveReason(
        pool(changes={"budgets": [{"nodes": "0"}]}), *web(), state="budget",
        says='the budgets of NodePool "general" allow 0 of 1 node for reason Underutilized',
    ),
    "window-of-a-budget": LiveReason(
        closed_budget, *web(), state="budget",
        says='the budgets of NodePool "general" allow 0 of 1 node for reason Underutilized',
    ),
    "consolidate-after": LiveReason(
        pool(changes={"consolidateAfter": "1h"}), *web(),
        says="consolidateAfter (1h0m0s) ends at 2030-01-01T01:01:00Z",
    ),
    "consolidate-after-of-an-empty-node": LiveReason(
        pool(changes={"consolidateAfter": "1h"}), *web(), then=empty,
        says="consolidateAfter (1h0m0s) ends at 2030-01-01T01:01:00Z",
    ),
    "never": LiveReason(
        pool(changes={"consolidateAfter": "Never"}), *web(),
        says="is not consolidated (consolidateAfter: Never)", event="consolidation disabled",
    ),
    "empty-nodes-only": LiveReason(
        pool(changes={"consolidationPolicy": "WhenEmpty"}), *web(),
        says="consolidates empty nodes only (WhenEmpty)", event="policy WhenEmpty, but node is not empty",
    ),
    "policy-of-a-window": LiveReason(
        lambda scene: in_window(scene, consolidationPolicy="WhenEmpty"), *web(),
        says="consolidates empty nodes only (WhenEmpty)", event="policy WhenEmpty, but node is not empty",
    ),
    "settle-time-of-a-window": LiveReason(
        lambda scene: in_window(scene, consolidateAfter="1h"), *web(),
        says="consolidateAfter (1h0m0s) ends at",
    ),
    "static": LiveReason(
        node_pool(replicas=1), arguments=("--feature-gates=StaticCapacity=true",),
        says='NodePool "general" is static (spec.replicas)',
    ),
    "not-initialised": LiveReason(
        pool(startupTaints=[{"key": "example.com/boot", "effect": "NoSchedule"}]), *web(),
        says="it is not initialised", event="Node isn't initialized",
    ),
    "price": LiveReason(
        pool(), deployment("small", 1, cpu="500m", memory="128Mi"),
        says="Can't replace with a cheaper node", event="Can't replace with a cheaper node",
    ),
    "spot-to-spot": LiveReason(
        pool("spot"), *web(),
        says="SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node",
    ),
    "paused-pool": LiveReason(
        pool(annotations={"karpenter.sh/pause-disruption": "true"}), *web(),
        says='nodepool "general" is paused (karpenter.sh/pause-disruption)',
        event='nodepool "general" is paused (karpenter.sh/pause-disruption)',
    ),
    "paused": LiveReason(
        pool(), *web(), arguments=("--pause-disruption",),
        says="Disruption is paused (--pause-disruption)", event="Disruption is paused (--pause-disruption)",
    ),
    "held-drain": LiveReason(
        pool(), *web(), no_eviction(), then=delete_claims, state="going",
        says='PodDisruptionBudget "default/small" allows no eviction of pod "default/small-',
        event="Pdb prevents pod evictions",
    ),
    "buffer": LiveReason(
        pool(), pod_template(), buffer(), arguments=("--feature-gates=CapacityBuffer=true",),
        says="room on it is kept free for virtual pods",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REASONS)
def test_commands_name_the_reason_for_which_a_node_stays(kind, tmp_path):
    """`explain node` and `explain nodeclaim`, and the Event on the Node where there is one."""
    reason = REASONS[kind]

    async def scenario(scene):
        scene.cluster.apply(reason.manifests(scene))
        scene.start(*reason.arguments)
        await scene.cluster.clock.sleep(60)
        if any(each["metadata"]["name"] == "large" for each in scene.cluster.list(DEPLOYMENTS)):
            scene.cluster.scale(DEPLOYMENTS, "large", 0)
        if reason.then is not None:
            reason.then(scene)
        await scene.cluster.clock.sleep(400)
        answers = await read_live(scene, *reason.arguments)

        nodes = {each["metadata"]["name"] for each in scene.nodes()}
        explained = [answers.node(name) for name in sorted(nodes)]
        staying = [each for each in explained if each["state"] == reason.state]
        assert staying, explained
        for each in staying:
            assert reason.says in each["answer"]
            claim = answers.node_claim(each["nodeClaim"])
            if kind != "not-initialised":  # the claim says for what it waits
                assert reason.says in claim["answer"]
        said = [
            event["message"]
            for name in ("DisruptionBlocked", "Unconsolidatable")
            for event in scene.events(name)
            if event["involvedObject"]["name"] in nodes
        ]
        if reason.event is not None:
            assert any(reason.event in message for message in said), said

    run_controller(tmp_path, scenario)


def test_a_node_whose_replacement_does_not_come_is_being_removed(tmp_path):
    """A command is in progress for it; its replacement names what it waits for."""
    taint = {"key": "example.com/boot", "effect": "NoSchedule"}

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, pool(), *web()])
        scene.start(ALONE)
        await scene.cluster.clock.sleep(25)
        (old,) = (node["metadata"]["name"] for node in scene.nodes())
        newer = {**NEWER["spec"]["template"], "spec": {"startupTaints": [taint]}}
        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"template": newer}})
        await scene.settle(lambda: len(scene.nodes()) == 2, seconds=120)
        await scene.cluster.clock.sleep(60)
        answers = await read_live(scene, ALONE)

        assert answers.node(old)["state"] == "going"
        assert "a disruption command is in progress for it" in answers.node(old)["answer"]
        (new,) = {node["metadata"]["name"] for node in scene.nodes()} - {old}
        assert scene.cluster.find(NODES, new)["metadata"]["labels"].items() >= EDITION.items()
        assert 'StartupTaint "example.com/boot:NoSchedule"' in answers.node_claim(new)["answer"]

    run_controller(tmp_path, scenario)
