"""Static NodePools (`spec.replicas`) keep their number of nodes; with the gate off they are left alone."""

from __future__ import annotations

import json

import pytest

from karpenter_core.kube.transport import ApiRequest
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.whole_controller import (
    GROUP,
    NODE_CLASS,
    deployment,
    node_pool,
    run_controller,
)

ALONE = "--disable-leader-election"
ON = (ALONE, "--feature-gates=StaticCapacity=true,NodeRepair=true")
OFF = (ALONE, "--feature-gates=NodeRepair=true")
CONSOLIDATING = {
    "consolidationPolicy": "WhenEmptyOrUnderutilized",
    "consolidateAfter": "0s",
    "budgets": [{"nodes": "100%"}],
}
NEVER = {**CONSOLIDATING, "consolidateAfter": "Never"}
STATIC_OR_NOT = pytest.mark.parametrize("spec", [{"replicas": 1}, {}], ids=["static", "dynamic"])


def condition(obj, kind):
    results = [c for c in obj.get("status", {}).get("conditions", []) if c["type"] == kind]
    return results[0] if results else None


def is_ready(claim):
    return (condition(claim, "Ready") or {}).get("status") == "True"


def live(scene, pool="general"):
    """Return the names of a pool's claims that are not being deleted."""
    return sorted(
        claim["metadata"]["name"]
        for claim in scene.claims()
        if claim["metadata"]["labels"]["karpenter.sh/nodepool"] == pool
        and "deletionTimestamp" not in claim["metadata"]
    )


def uids(scene):
    return {claim["metadata"]["uid"] for claim in scene.claims()}


def all_ready(scene, count):
    return len(scene.claims()) == count and all(map(is_ready, scene.claims()))


async def scale(scene, replicas, name="general"):
    """Do as `kubectl scale nodepool`."""
    response = await scene.cluster.transport().request(
        ApiRequest(
            method="PATCH",
            path=f"{NODE_POOLS.path()}/{name}/scale",
            content_type="application/merge-patch+json",
            body=json.dumps({"spec": {"replicas": replicas}}).encode(),
        )
    )
    assert response.status == 200


class ClaimCounts:
    """Counts claims at every write: the most at once, all, and the fewest that were not being deleted."""

    def __init__(self, scene):
        self._scene, self._claims = scene, {}
        self.most, self.fewest, self.ever = 0, None, set()
        scene.cluster.server.registry.store.listen(NODE_CLAIMS, self._count)

    def _count(self, change):
        metadata = change.stored.obj["metadata"]
        self.ever.add(metadata["uid"])
        if change.type == "DELETED":
            self._claims.pop(metadata["uid"], None)
        else:
            self._claims[metadata["uid"]] = "deletionTimestamp" not in metadata
        self.most = max(self.most, len(self._claims))
        if self.fewest is not None:
            self.fewest = min(self.fewest, sum(self._claims.values()))

    async def watch(self, *, seconds):
        """Let time pass; return the most claims ever, and the fewest live ones from now on."""
        self.fewest = len(live(self._scene))
        await self._scene.cluster.clock.sleep(seconds)
        return self.most, self.fewest


async def grown(scene, *objects, count, arguments=ON, **spec):
    """Start with a static pool and wait for its nodes."""
    pool = node_pool(**{"disruption": NEVER, "replicas": count, **spec})
    scene.cluster.apply([NODE_CLASS, pool, *objects])
    scene.start(*arguments)
    await scene.settle(lambda: all_ready(scene, count))
    return pool


# -- replicas --------------------------------------------------------------------------------------


def test_a_static_pool_gets_its_replicas_without_pods(tmp_path):
    """Cases 312 and 315; the claims list no instance types, and later passes change nothing."""

    async def scenario(scene):
        template = {
            "taints": [{"key": "own", "effect": "NoSchedule"}],
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "example.com/size", "operator": "Gt", "values": ["2"]},
            ],
        }
        await grown(scene, count=3, template=template)
        names = live(scene)
        await scene.cluster.clock.sleep(300)

        assert live(scene) == names
        requirements = {item["key"]: item for item in scene.claims()[0]["spec"]["requirements"]}
        assert requirements["example.com/size"]["operator"] == "Gte"
        assert requirements["example.com/size"]["values"] == ["3"]
        assert "node.kubernetes.io/instance-type" not in requirements
        assert scene.claims()[0]["spec"]["taints"][0]["key"] == "own"
        assert scene.pool("general")["status"]["nodes"] == 3

    run_controller(tmp_path, scenario)


def test_kubectl_scale_adds_and_removes_nodes(tmp_path):
    """Cases 312 and 319: also to nothing, and up again."""

    async def scenario(scene):
        await grown(scene, count=1)
        for replicas in (4, 2, 0, 3):
            await scale(scene, replicas)
            await scene.settle(lambda n=replicas: all_ready(scene, n))
            await scene.settle(
                lambda n=replicas: scene.pool("general")["status"]["nodes"] == n, seconds=30
            )
            assert len(scene.nodes()) == replicas

    run_controller(tmp_path, scenario)


def test_a_deleted_claim_is_replaced(tmp_path):
    async def scenario(scene):
        await grown(scene, count=2)
        gone = live(scene)[0]
        scene.cluster.delete(NODE_CLAIMS, gone)
        await scene.settle(lambda: all_ready(scene, 2) and len(live(scene)) == 2)

    run_controller(tmp_path, scenario)


def test_surplus_claims_are_counted_as_overprovisioned(tmp_path):
    """Budgets do not limit what the user reduces."""

    async def scenario(scene):
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=3, disruption={**NEVER, "budgets": [{"nodes": "0"}]})]
        )
        running = scene.start(*ON)
        await scene.settle(lambda: all_ready(scene, 3))
        await scale(scene, 1)
        await scene.settle(lambda: all_ready(scene, 1))

        labels = (
            'capacity_type="on-demand",consolidation_policy="",nodepool="general",'
            'reason="overprovisioned",termination_mode="graceful"'
        )
        assert running.metric(f"karpenter_nodeclaims_disrupted_total{{{labels}}}") == 2

    run_controller(tmp_path, scenario)


def test_nodes_with_pods_are_kept_when_replicas_are_reduced(tmp_path):
    """Case 320: the empty node goes, and pods stay where they are."""

    async def scenario(scene):
        alone = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": "web"}},
                        "topologyKey": "kubernetes.io/hostname",
                    }
                ]
            }
        }
        await grown(scene, count=3)
        scene.cluster.apply([deployment("web", 2, memory="256Mi", affinity=alone)])
        await scene.settle(lambda: len(scene.pods("Running")) == 2)
        used = {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in scene.pods()}
        await scale(scene, 2)
        await scene.settle(lambda: all_ready(scene, 2))

        assert {pod["spec"]["nodeName"]: pod["metadata"]["uid"] for pod in scene.pods()} == used

    run_controller(tmp_path, scenario)


# -- pods ------------------------------------------------------------------------------------------


def test_pods_use_static_nodes_and_open_none_of_their_pool(tmp_path):
    """Case 133: pods beyond its nodes get nodes of a dynamic pool, or none."""

    async def scenario(scene):
        small = {
            "requirements": [
                {
                    "key": "node.kubernetes.io/instance-type",
                    "operator": "In",
                    "values": ["mem1.xlarge"],
                }
            ]
        }
        await grown(scene, count=1, template=small)
        scene.cluster.apply([deployment("web", 5)])
        await scene.settle(lambda: len(scene.pods("Running")) >= 3)
        await scene.cluster.clock.sleep(60)
        assert len(scene.claims()) == 1
        waiting = 5 - len(scene.pods("Running"))
        assert waiting > 0

        scene.cluster.apply([node_pool("dynamic", disruption=NEVER)])
        await scene.settle(lambda: len(scene.pods("Running")) == 5)
        assert len(live(scene)) == 1
        assert len(live(scene, "dynamic")) >= 1

    run_controller(tmp_path, scenario)


# -- limits ----------------------------------------------------------------------------------------


def test_a_node_limit_holds_and_the_pool_says_so(tmp_path):
    """Case 313; a raised limit is used, and the condition goes."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=3, limits={"nodes": 2}, disruption=NEVER)]
        )
        scene.start(*ON)
        assert (await counts.watch(seconds=60))[0] == 2
        held = condition(scene.pool("general"), "ReplicasHeldBack")
        assert (held["status"], held["reason"]) == ("True", "NodeLimitReached")
        assert held["message"].startswith("1 of 3 replica(s) are missing: limits.nodes is 2")
        warnings = [e for e in scene.events("ReplicasHeldBack") if e["type"] == "Warning"]
        assert [event["involvedObject"]["name"] for event in warnings] == ["general"]

        scene.cluster.patch(NODE_POOLS, "general", {"spec": {"limits": {"nodes": 3}}})
        await scene.settle(lambda: all_ready(scene, 3))
        await scene.settle(
            lambda: condition(scene.pool("general"), "ReplicasHeldBack") is None, seconds=30
        )

    run_controller(tmp_path, scenario)


def test_launch_limits_hold_for_static_pools(tmp_path):
    async def scenario(scene):
        counts = ClaimCounts(scene)
        scene.cluster.apply([NODE_CLASS, node_pool(replicas=5, disruption=NEVER)])
        scene.start(*ON, "--max-nodes-total=3")
        assert (await counts.watch(seconds=90))[0] == 3

    run_controller(tmp_path, scenario)


def test_nothing_is_created_for_a_template_that_nothing_fits(tmp_path):
    """A claim that cannot be launched would be created again and again."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        template = {
            "requirements": [
                {
                    "key": "node.kubernetes.io/instance-type",
                    "operator": "In",
                    "values": ["no-such-type"],
                }
            ]
        }
        scene.cluster.apply([NODE_CLASS, node_pool(replicas=1, template=template)])
        running = scene.start(*ON)
        await scene.settle(lambda: condition(scene.pool("general"), "ReplicasHeldBack"))
        assert (await counts.watch(seconds=60))[0] == 0
        failed = 'karpenter_reconcile_errors_total{controller="static.provisioning"}'
        assert running.metric(failed) == 0
        held = condition(scene.pool("general"), "ReplicasHeldBack")
        assert held["reason"] == "NoInstanceTypeAvailable"

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("change", ["not ready", "deleting"])
def test_nothing_is_created_for_a_pool_that_is_not_ready_or_deleted(tmp_path, change):
    """Case 311; a pool becomes ready with its NodeClass."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        pool = node_pool(replicas=2, disruption=NEVER)
        if change == "deleting":
            pool["metadata"]["finalizers"] = ["example.com/kept"]
            scene.cluster.apply([pool])
            scene.cluster.delete(NODE_POOLS, "general")
            scene.cluster.apply([NODE_CLASS])
        else:
            scene.cluster.apply([pool])
        scene.start(*ON)
        assert (await counts.watch(seconds=60))[0] == 0
        if change == "not ready":
            scene.cluster.apply([NODE_CLASS])
            await scene.settle(lambda: all_ready(scene, 2))

    run_controller(tmp_path, scenario)


# -- faults ----------------------------------------------------------------------------------------


def test_a_refused_create_is_repeated_and_holds_no_place(tmp_path):
    """Case 317."""

    async def scenario(scene):
        refused = RequestFault(matches=matching("POST", "/nodeclaims"), status=403, times=4)
        scene.cluster.frontend.faults.add(refused)
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=2, limits={"nodes": 2}, disruption=NEVER)]
        )
        scene.start(*ON)
        await scene.settle(lambda: all_ready(scene, 2))
        assert refused.times == 0

    run_controller(tmp_path, scenario)


def test_a_refused_delete_is_repeated(tmp_path):
    """Case 319."""

    async def scenario(scene):
        await grown(scene, count=3)
        refused = RequestFault(matches=matching("DELETE", "/nodeclaims"), status=403, times=3)
        scene.cluster.frontend.faults.add(refused)
        await scale(scene, 1)
        await scene.settle(lambda: all_ready(scene, 1))
        assert refused.times == 0

    run_controller(tmp_path, scenario)


def test_creates_with_lost_answers_are_not_doubled(tmp_path):
    """The limit holds too, although nobody knows for a while how many claims there are."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("POST", "/nodeclaims"), drop_reply=True, times=40)
        )
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=3, limits={"nodes": 4}, disruption=NEVER)]
        )
        scene.start(*ON)
        most, _ = await counts.watch(seconds=120)
        assert most == 3
        await scene.settle(lambda: all_ready(scene, 3))

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("created", [0, 1, 2, 4])
def test_a_restart_between_creation_and_launch_adds_nothing(tmp_path, created):
    """The process dies after some creates; the next one completes the replicas."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=4, limits={"nodes": 4}, disruption=NEVER)]
        )
        first = scene.start(*ON)
        await scene.settle(lambda: len(scene.claims()) >= created)
        await first.kill()
        scene.start(*ON)
        most, _ = await counts.watch(seconds=90)
        assert most == 4
        assert all_ready(scene, 4)

    run_controller(tmp_path, scenario)


def test_two_controllers_at_once_create_each_claim_once(tmp_path):
    """Without leader election, so that both act on the same view: the worst of a hand-over."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        scene.cluster.apply([NODE_CLASS, node_pool(replicas=6, disruption=NEVER)])
        creates = matching("POST", "/nodeclaims")
        scene.cluster.frontend.faults.add(
            RequestFault(matches=creates, times=None, latency_seconds=2.0)
        )
        scene.start(*ON)
        scene.start(*ON)
        most, _ = await counts.watch(seconds=90)
        assert most == 6

    run_controller(tmp_path, scenario)


def test_creates_in_flight_at_a_hand_over_are_not_doubled(tmp_path):
    """Requests of the old leader reach the server after the new one has created its claims."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        in_flight = []

        def creates(request):
            is_create = request.method == "POST" and "/nodeclaims" in request.path
            if is_create:
                in_flight.append(request)
            return is_create

        delayed = RequestFault(matches=creates, drop_request=True, times=None)
        scene.cluster.frontend.faults.add(delayed)
        scene.cluster.apply(
            [NODE_CLASS, node_pool(replicas=3, limits={"nodes": 3}, disruption=NEVER)]
        )
        first = scene.start(*ON)
        await scene.settle(lambda: len(in_flight) == 3)
        await first.kill()
        scene.cluster.frontend.faults.remove(delayed)
        scene.start(*ON)
        await scene.settle(lambda: len(scene.claims()) == 3)
        answers = [await scene.cluster.transport().request(each) for each in in_flight]
        assert [answer.status for answer in answers] == [409, 409, 409]
        await counts.watch(seconds=60)
        assert counts.most == 3
        assert all_ready(scene, 3)

    run_controller(tmp_path, scenario)


# -- disruption ------------------------------------------------------------------------------------


def drift(scene):
    """Change the template, so that every node of the pool has drifted."""
    template = {"metadata": {"annotations": {"revision": "2"}}}
    scene.cluster.patch(NODE_POOLS, "general", {"spec": {"template": template}})


def revised(scene):
    return [
        claim["metadata"]["name"]
        for claim in scene.claims()
        if claim["metadata"]["annotations"].get("revision") == "2"
    ]


@pytest.mark.parametrize(
    ("limits", "budget", "most"), [({}, "2", 6), ({"nodes": 5}, "100%", 5)], ids=["budget", "limit"]
)
def test_drifted_nodes_get_their_replacement_first(tmp_path, limits, budget, most):
    """Cases 187 and 189: within budget and node limit, and never fewer nodes than replicas."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        disruption = {**NEVER, "budgets": [{"nodes": budget}]}
        await grown(scene, count=4, limits=limits, disruption=disruption)
        drift(scene)
        seen, fewest = await counts.watch(seconds=400)
        assert (seen, fewest) == (most, 4)
        assert len(revised(scene)) == 4
        assert all_ready(scene, 4)

    run_controller(tmp_path, scenario)


def test_empty_drifted_nodes_outlive_replacements_that_do_not_start(tmp_path):
    """The pool has one node too many after a command that was rolled back: not a node that works."""

    async def scenario(scene):
        faults = tmp_path / "faults.json"
        faults.write_text("[]")
        counts = ClaimCounts(scene)
        await grown(scene, count=2, arguments=(*ON, f"--kwok-faults-file={faults}"))
        working = uids(scene)
        faults.write_text(json.dumps([{"fault": "failed-node"}]))
        drift(scene)
        await counts.watch(seconds=45 * 60)
        assert working <= uids(scene)
        assert len(counts.ever) > 3

        faults.write_text("[]")
        await scene.settle(lambda: working.isdisjoint(uids(scene)), seconds=3600)
        await scene.settle(lambda: all_ready(scene, 2))

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("deleted", [1, 2])
def test_replacements_that_are_deleted_end_no_node_that_works(tmp_path, deleted):
    """Their commands are rolled back; a claim created in their place would be one too many."""

    async def scenario(scene):
        faults = tmp_path / "faults.json"
        faults.write_text(json.dumps([]))
        await grown(scene, count=2, arguments=(*ON, f"--kwok-faults-file={faults}"))
        first = set(live(scene))
        faults.write_text(json.dumps([{"fault": "slow-node", "delay": "1m"}]))
        drift(scene)
        await scene.settle(lambda: len(scene.claims()) == 4, seconds=60)
        await scene.cluster.clock.sleep(15)
        for name in sorted(set(live(scene)) - first)[:deleted]:
            scene.cluster.delete(NODE_CLAIMS, name)

        for _ in range(300):
            await scene.cluster.clock.sleep(1)
            left = [each for each in scene.claims() if "deletionTimestamp" not in each["metadata"]]
            assert sum(map(is_ready, left)) >= 2
        assert len(revised(scene)) == 2

    run_controller(tmp_path, scenario)


def test_a_limit_without_room_for_a_replacement_keeps_drifted_nodes(tmp_path):
    """Case 189: an Event says why."""

    async def scenario(scene):
        await grown(scene, count=2, limits={"nodes": 2})
        names = live(scene)
        drift(scene)
        await scene.cluster.clock.sleep(120)
        assert live(scene) == names
        messages = {event["message"] for event in scene.events("DisruptionBlocked")}
        assert any("limits.nodes=2 leaves no room" in message for message in messages)

    run_controller(tmp_path, scenario)


def test_a_restart_during_drift_leaves_the_replicas(tmp_path):
    """The replacement exists and the old node is still there: one of the two goes."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        await grown(scene, count=2, limits={"nodes": 3})
        process = scene._processes[0]
        drift(scene)
        await scene.settle(lambda: len(scene.claims()) == 3, seconds=60)
        await process.kill()
        scene.start(*ON)
        most, fewest = await counts.watch(seconds=400)
        assert (most, fewest) == (3, 2)
        assert len(revised(scene)) == 2
        assert all_ready(scene, 2)

    run_controller(tmp_path, scenario)


def test_scaling_up_while_nodes_drift_stays_within_the_limit(tmp_path):
    """Case 316."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        await grown(scene, count=3, limits={"nodes": 5})
        drift(scene)
        await scale(scene, 4)
        most, _ = await counts.watch(seconds=400)
        assert most <= 5
        assert len(revised(scene)) == 4
        assert all_ready(scene, 4)

    run_controller(tmp_path, scenario)


def test_replicas_and_replacements_in_flight_share_the_limit(tmp_path):
    """Case 316: the pool is scaled while the creation of replacements is not answered."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        await grown(scene, count=3, limits={"nodes": 5})
        slow = RequestFault(matches=matching("POST", "/nodeclaims"), times=None)
        slow.latency_seconds = 20.0
        scene.cluster.frontend.faults.add(slow)
        drift(scene)
        await scene.settle(
            lambda: any(condition(claim, "DisruptionReason") for claim in scene.claims())
        )
        await scale(scene, 5)
        await counts.watch(seconds=600)
        assert counts.most == 5
        assert len(live(scene)) == 5

    run_controller(tmp_path, scenario)


def replace_nodes_that_go(tmp_path, *, at_once, answer_seconds, going):
    """Have two drifted nodes replaced, and delete some while the first creation is not answered.

    `going` gets the names of all claims, and of those that a command has marked.
    """

    async def scenario(scene):
        counts = ClaimCounts(scene)
        await grown(scene, count=2, disruption={**NEVER, "budgets": [{"nodes": str(at_once)}]})
        slow = RequestFault(matches=matching("POST", "/nodeclaims"), times=1)
        slow.latency_seconds = answer_seconds
        scene.cluster.frontend.faults.add(slow)
        drift(scene)
        old = [claim["metadata"]["name"] for claim in scene.claims()]

        def marked():
            claims = [claim for claim in scene.claims() if condition(claim, "DisruptionReason")]
            return [claim["metadata"]["name"] for claim in claims]

        await scene.settle(lambda: bool(marked()))
        for name in going(old, marked()):
            scene.cluster.delete(NODE_CLAIMS, name)
        await counts.watch(seconds=600)
        assert len(counts.ever) == 2 + 2
        assert len(revised(scene)) == 2
        assert all_ready(scene, 2)

    run_controller(tmp_path, scenario)


def test_a_replacement_in_flight_takes_the_place_of_a_node_that_goes_meanwhile(tmp_path):
    """The node that a command replaces is deleted or interrupted while the creation is not answered."""
    replace_nodes_that_go(
        tmp_path, at_once=1, answer_seconds=20.0, going=lambda _old, marked: marked
    )


def test_a_node_that_goes_before_its_turn_is_not_replaced_by_a_command(tmp_path):
    """A command of the same plan is still creating its replacement; the replicas are filled up meanwhile."""
    replace_nodes_that_go(tmp_path, at_once=2, answer_seconds=1.0, going=lambda old, _marked: old)


@pytest.mark.parametrize("removed", [False, True])
def test_no_more_claims_are_created_than_are_still_wanted(tmp_path, removed):
    """Replicas that were a slip of the pen are taken back, or the pool goes, while they are created."""

    async def scenario(scene):
        counts = ClaimCounts(scene)
        await grown(scene, count=2)
        slow = RequestFault(matches=matching("POST", "/nodeclaims"), times=None)
        slow.latency_seconds = 5.0
        scene.cluster.frontend.faults.add(slow)
        await scale(scene, 300)
        await scene.cluster.clock.sleep(8)
        if removed:
            scene.cluster.delete(NODE_POOLS, "general")
        else:
            await scale(scene, 3)
        await scene.cluster.clock.sleep(600)
        assert len(counts.ever) < 80, "those that were under way, of 32 at a time"
        assert len(live(scene)) == (0 if removed else 3)

    run_controller(tmp_path, scenario)


def test_an_expired_node_is_replaced(tmp_path):
    async def scenario(scene):
        await grown(scene, count=2, template={"expireAfter": "10m"})
        names = live(scene)
        await scene.cluster.clock.sleep(15 * 60)
        await scene.settle(lambda: all_ready(scene, 2))
        uids = {claim["metadata"]["uid"] for claim in scene.claims()}
        assert len(names) == 2
        assert len(uids) == 2

    run_controller(tmp_path, scenario)


# -- the gate --------------------------------------------------------------------------------------


def claim_of_the_pool(name="kept", *, expire_after: str):
    """A NodeClaim as another controller, which knows static pools, has left it."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
            ],
            "expireAfter": expire_after,
            "nodeClassRef": {"group": GROUP, "kind": "KWOKNodeClass", "name": "default"},
        },
    }


async def taken_over(scene, spec, *, arguments=OFF, expire_after: str = "Never", disruption=None):
    """Start with a pool and a claim of it, and wait for the claim's node."""
    pool = node_pool(disruption=disruption or NEVER, **spec)
    scene.cluster.apply([NODE_CLASS, pool, claim_of_the_pool(expire_after=expire_after)])
    scene.start(*arguments)
    await scene.settle(lambda: any(map(is_ready, scene.claims())))


def test_a_static_pool_is_taken_over_without_a_replacement(tmp_path):
    """Claims of another controller have other names; nothing is launched or ended."""

    async def scenario(scene):
        await taken_over(scene, {"replicas": 1}, arguments=ON)
        await scene.cluster.clock.sleep(10 * 60)
        assert live(scene) == ["kept"]

    run_controller(tmp_path, scenario)


@STATIC_OR_NOT
def test_claims_of_a_static_pool_do_not_expire_while_the_gate_is_off(tmp_path, spec):
    async def scenario(scene):
        await taken_over(scene, spec, expire_after="10m")
        await scene.cluster.clock.sleep(30 * 60)

        assert live(scene) == (["kept"] if spec else [])

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    ("arguments", "is_kept"), [(OFF, True), (ON, False)], ids=["gate off", "gate on"]
)
def test_a_node_of_a_static_pool_is_repaired_only_with_the_gate(tmp_path, arguments, is_kept):
    async def scenario(scene):
        await taken_over(scene, {"replicas": 1}, arguments=arguments)
        (node,) = scene.nodes()
        scene.cluster.kubelets.fail(node["metadata"]["name"])
        await scene.cluster.clock.sleep(30 * 60)

        assert (live(scene) == ["kept"]) is is_kept
        assert len(live(scene)) == 1

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("arguments", [OFF, ON], ids=["gate off", "gate on"])
@STATIC_OR_NOT
def test_empty_nodes_of_a_static_pool_are_not_consolidated(tmp_path, spec, arguments):
    async def scenario(scene):
        await taken_over(scene, spec, disruption=CONSOLIDATING, arguments=arguments)
        await scene.cluster.clock.sleep(10 * 60)

        assert live(scene) == (["kept"] if spec else [])

    run_controller(tmp_path, scenario)


def test_with_the_gate_off_a_static_pool_says_that_its_replicas_are_ignored(tmp_path):
    """By a condition and an Event; nothing is launched for it as if it were dynamic."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(replicas=2), deployment("web", 1)])
        scene.start(*OFF)
        await scene.settle(lambda: condition(scene.pool("general"), "ReplicasIgnored"), seconds=60)
        await scene.cluster.clock.sleep(60)

        reported = condition(scene.pool("general"), "ReplicasIgnored")
        assert (reported["status"], reported["reason"]) == ("True", "StaticCapacityDisabled")
        (event,) = scene.events("ReplicasIgnored")
        assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "general")
        assert event["message"] == reported["message"]
        assert not scene.claims()

    run_controller(tmp_path, scenario)


def test_a_dynamic_pool_says_nothing_of_replicas(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start(*OFF)
        await scene.settle(lambda: condition(scene.pool("general"), "Ready"), seconds=60)

        assert condition(scene.pool("general"), "ReplicasIgnored") is None
        assert not scene.events("ReplicasIgnored")

    run_controller(tmp_path, scenario)


# -- metrics ---------------------------------------------------------------------------------------


def test_the_claims_of_static_pools_are_counted_by_state(tmp_path):
    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(replicas=3, limits={"nodes": 2}, disruption=NEVER),
                node_pool("dynamic", disruption=NEVER),
            ]
        )
        running = scene.start(*ON)
        await scene.settle(lambda: all_ready(scene, 2))
        await scene.cluster.clock.sleep(15)

        def count(state, pool="general"):
            labels = f'nodepool="{pool}",state="{state}"'
            return running.metric(f"karpenter_nodepools_replicas{{{labels}}}")

        states = ("desired", "active", "replacing", "deleting")
        assert [count(state) for state in states] == [3, 2, 0, 0]
        assert count("desired", "dynamic") == 0  # no such series

    run_controller(tmp_path, scenario)
