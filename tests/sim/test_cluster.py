"""The embedded cluster works as a whole, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from karpenter_core.errors import BadInputError
from karpenter_core.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
)
from karpenter_core.sim.cluster import EmbeddedCluster
from karpenter_core.sim.kubelets import KubeletTimes, node_is_ready
from karpenter_core.sim.pods import is_ready
from karpenter_core.sim.status import StatusError
from karpenter_core.sim.virtual_time import run_virtual
from tests.sim.objects import budget, deployment, node, pod, workload

DEFAULT = "default"


async def settle(seconds: float = 60.0) -> None:
    """Let virtual time pass."""
    await asyncio.sleep(seconds)


def running(cluster: EmbeddedCluster) -> int:
    return sum(
        is_ready(each) and "deletionTimestamp" not in each["metadata"]
        for each in cluster.list(PODS)
    )


def placements(cluster: EmbeddedCluster) -> Counter[str]:
    return Counter(each["spec"].get("nodeName", "") for each in cluster.list(PODS))


def scheduled_condition(found):
    return next(each for each in found["status"]["conditions"] if each["type"] == "PodScheduled")


def test_a_deployment_is_created_and_deleted():
    """Pods run on ready nodes, are replaced when deleted, and vanish with their owner."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("one"), node("two"), deployment("web", replicas=6)])
            await settle()
            up, spread = running(cluster), placements(cluster)
            victim = cluster.list(PODS)[0]["metadata"]["name"]
            cluster.delete(PODS, victim, namespace=DEFAULT)
            await settle()
            again = running(cluster)
            cluster.scale(DEPLOYMENTS, "web", 2)
            await settle()
            down = running(cluster)
            status = cluster.find(DEPLOYMENTS, "web", namespace=DEFAULT)["status"]
            cluster.delete(DEPLOYMENTS, "web", namespace=DEFAULT)
            await settle()
            left = len(cluster.list(PODS)) + len(cluster.list(REPLICA_SETS))
            return up, spread, again, down, status["readyReplicas"], left

    up, spread, again, down, ready, left = run_virtual(scenario())

    assert (up, again, down, ready, left) == (6, 6, 2, 2, 0)
    assert spread == {"one": 3, "two": 3}


def test_a_rollout_replaces_every_pod_and_keeps_most_of_them():
    """Never fewer than three quarters ready; the old ReplicaSet ends at zero."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("one", cpu="64"), deployment("web", replicas=8)])
            await settle()
            low = 99

            def watch(_change):
                nonlocal low
                low = min(low, running(cluster))

            cluster.server.registry.store.listen(PODS, watch)
            cluster.apply([deployment("web", replicas=8, cpu="2")])
            await settle()
            sets = sorted(each["spec"]["replicas"] for each in cluster.list(REPLICA_SETS))
            return low, running(cluster), sets

    assert run_virtual(scenario()) == (6, 8, [0, 8])


def test_pods_wait_with_a_reason_until_a_node_comes():
    """kube-scheduler's words, counted by node."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            taints = [{"key": "team", "value": "db", "effect": "NoSchedule"}]
            cluster.apply([node("small", cpu="500m"), node("kept", taints=taints)])
            cluster.apply([deployment("web")])
            await settle()
            condition = scheduled_condition(cluster.list(PODS)[0])
            cluster.apply([node("large")])
            await settle()
            return condition, placements(cluster)

    condition, placed = run_virtual(scenario())

    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert condition["message"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {team: db}."
    )
    assert placed == {"large": 1}


def test_unready_nodes_take_no_pods():
    """Until the kubelet is up the not-ready taint stands."""

    async def scenario():
        async with EmbeddedCluster(times=KubeletTimes(node_boot_seconds=30)) as cluster:
            cluster.apply([node("one"), deployment("web")])
            await settle(29)
            early = placements(cluster)
            await settle(5)
            return early, placements(cluster), node_is_ready(cluster.find(NODES, "one"))

    assert run_virtual(scenario()) == ({"": 1}, {"one": 1}, True)


def test_pods_with_pod_affinity_are_retried_when_others_are_placed():
    """A follower waits for its leader."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "leader"}},
            }
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            cluster.apply([node("one"), node("two")])
            cluster.apply([deployment("follower", affinity={"podAffinity": required})])
            await settle()
            alone = placements(cluster)
            cluster.apply([deployment("leader")])
            await settle()
            return alone, placements(cluster)

    alone, together = run_virtual(scenario())

    assert alone == {"": 1}
    assert sorted(together.values()) == [2]


def test_zone_spread_holds_for_a_whole_deployment():
    """Ten pods over three zones differ by one at most."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node(f"n-{zone}", cpu="16", zone=zone) for zone in "abc"])
            constraint = {
                "topologyKey": "topology.kubernetes.io/zone",
                "maxSkew": 1,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            cluster.apply([deployment("web", replicas=10, topologySpreadConstraints=[constraint])])
            await settle()
            return sorted(placements(cluster).values())

    assert run_virtual(scenario()) == [3, 3, 4]


def test_higher_priority_is_scheduled_first():
    """Of two pods for one place."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            low, high = pod("low", cpu="3"), pod("high", cpu="3", priority=1000)
            cluster.apply([{**each, "metadata": {"name": each["metadata"]["name"]}}
                           for each in (low, high)])  # fmt: skip
            cluster.apply([node("one")])
            await settle()
            return {each["metadata"]["name"]: each["spec"].get("nodeName")
                    for each in cluster.list(PODS)}  # fmt: skip

    assert run_virtual(scenario()) == {"low": None, "high": "one"}


def test_a_nominated_pod_is_bound_to_its_node():
    """Although another one has more room; who finds no room anywhere loses the nomination."""
    waiting = {"first": "2", "second": "2", "huge": "20"}

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("large", cpu="16"), node("small", cpu="2")])
            gates = [{"name": "example.com/wait"}]
            made = [pod(name, cpu=cpu, schedulingGates=gates) for name, cpu in waiting.items()]
            cluster.apply({**each, "metadata": {"name": each["metadata"]["name"]}} for each in made)
            registry = cluster.server.registry
            await settle()
            for name in waiting:
                nomination = {"status": {"nominatedNodeName": "small"}}
                registry.patch(PODS, nomination, name, DEFAULT, part="status")
                registry.patch(PODS, {"spec": {"schedulingGates": None}}, name, DEFAULT)
                await settle()
            results = [cluster.find(PODS, name, namespace=DEFAULT) for name in waiting]
            nominated = [each["status"].get("nominatedNodeName") for each in results]
            return [each["spec"].get("nodeName") for each in results], nominated

    assert run_virtual(scenario()) == (["small", "large", None], [None, None, None])


def test_gated_pods_are_not_scheduled():
    """Until the gates are gone."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            gated = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
            cluster.apply([node("one"), {**gated, "metadata": {"name": "gated"}}])
            await settle()
            before = cluster.find(PODS, "gated", namespace=DEFAULT)
            ungated = {"spec": {"schedulingGates": None}}
            cluster.server.registry.patch(PODS, ungated, "gated", DEFAULT)
            await settle()
            return scheduled_condition(before)["reason"], placements(cluster)

    assert run_virtual(scenario()) == ("SchedulingGated", {"one": 1})


def test_daemon_sets_run_on_every_node_that_takes_them():
    """New nodes get one, excluded ones none, and it tolerates a cordon."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            taints = [{"key": "team", "effect": "NoSchedule"}]
            cluster.apply([workload("DaemonSet", "agent", cpu="100m"), node("one")])
            cluster.apply([node("kept", taints=taints)])
            await settle()
            cluster.server.registry.patch(NODES, {"spec": {"unschedulable": True}}, "one")
            cluster.apply([node("two")])
            await settle()
            status = cluster.find(DAEMON_SETS, "agent", namespace=DEFAULT)["status"]
            return placements(cluster), status["numberReady"]

    assert run_virtual(scenario()) == ({"one": 1, "two": 1}, 2)


def test_pods_of_a_vanished_node_are_collected_and_replaced():
    """Even those that were ending."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("one"), deployment("web", replicas=2)])
            await settle()
            cluster.kubelets.fail("one")
            ending = cluster.list(PODS)[0]["metadata"]["name"]
            cluster.delete(PODS, ending, namespace=DEFAULT)
            await settle()
            stuck = cluster.find(PODS, ending, namespace=DEFAULT) is not None
            cluster.apply([node("two")])
            cluster.delete(NODES, "one")
            await settle()
            return stuck, placements(cluster), running(cluster)

    assert run_virtual(scenario()) == (True, {"two": 2}, 2)


def test_a_failed_node_is_tainted_and_its_pods_unready_until_it_recovers():
    """Nothing new goes there meanwhile."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("one"), deployment("web", replicas=2)])
            await settle()
            cluster.kubelets.fail("one", ready="Unknown")
            await settle()
            broken = cluster.find(NODES, "one")
            lost = running(cluster)
            cluster.kubelets.heal("one")
            await settle()
            healed = cluster.find(NODES, "one")
            keys = {each["key"] for each in broken["spec"]["taints"]}
            return keys, lost, running(cluster), healed["spec"].get("taints", [])

    keys, lost, back, taints = run_virtual(scenario())

    assert keys == {"node.kubernetes.io/unreachable"}
    assert (lost, back, taints) == (0, 2, [])


def test_only_nodes_with_a_kubelet_boot():
    """Those without kwok's annotation have one; another value than its own says that one has none."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            fake, dead = node("fake"), node("dead")
            fake["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
            dead["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "none"}
            cluster.apply([fake, node("other"), dead])
            await settle()
            return [n["metadata"]["name"] for n in cluster.list(NODES) if not node_is_ready(n)]

    assert run_virtual(scenario()) == ["dead"]


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 3}, 1),
        ({"minAvailable": "60%"}, 1),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "30%"}, 2),
        ({"maxUnavailable": 0}, 0),
        ({"minAvailable": "100%"}, 0),
    ],
)
def test_budgets_count_allowed_disruptions(spec, allowed):
    """Of four; percentages round up."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node("one"), deployment("web", replicas=4), budget("b", "web", **spec)])
            await settle()
            return cluster.find(POD_DISRUPTION_BUDGETS, "b", namespace=DEFAULT)["status"]

    assert run_virtual(scenario())["disruptionsAllowed"] == allowed


def test_namespaces_take_their_contents_along():
    """And refuse new ones meanwhile."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
            cluster.apply([node("one"), space])
            cluster.apply([deployment("web", replicas=2)], namespace="team")
            await settle()
            cluster.delete(NAMESPACES, "team")
            with pytest.raises(StatusError) as refused:
                cluster.apply([deployment("more")], namespace="team")
            await settle()
            gone = cluster.find(NAMESPACES, "team") is None
            return refused.value.code, gone, len(cluster.list(PODS))

    assert run_virtual(scenario()) == (403, True, 0)


def test_events_expire():
    """After an hour, so that a simulated day does not drown in them."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            for _ in range(5):
                event = {"apiVersion": "v1", "kind": "Event", "metadata": {"generateName": "e-"}}
                cluster.apply([event])
                await settle(1800)
            return len(cluster.list(EVENTS))

    assert run_virtual(scenario()) == 2


def test_unknown_kinds_are_refused():
    """Naming kind and version."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([{"apiVersion": "x/v1", "kind": "Nothing", "metadata": {"name": "a"}}])

    with pytest.raises(BadInputError, match="no kind Nothing in x/v1"):
        run_virtual(scenario())


def test_an_actor_that_breaks_ends_the_cluster(monkeypatch):
    """Its error is raised to the caller that runs the cluster."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            monkeypatch.setattr(cluster.kubelets, "reconcile", broken)
            cluster.apply([node("one")])
            await settle()

    def broken(_key):
        raise ZeroDivisionError

    with pytest.raises(BaseExceptionGroup) as caught:
        run_virtual(scenario())
    assert caught.group_contains(ZeroDivisionError)


def test_two_runs_of_one_scenario_are_equal():
    """Names, UIDs, versions and placements are functions of the seed."""

    async def scenario():
        async with EmbeddedCluster(seed=7) as cluster:
            cluster.apply([node("one"), node("two"), deployment("web", replicas=6)])
            await settle()
            return cluster.list(PODS)

    assert run_virtual(scenario()) == run_virtual(scenario())


def test_three_thousand_pods_are_bound_quickly():
    """A hundred nodes; counted in writes: made, bound, reported pending, started, no more."""

    async def scenario():
        async with EmbeddedCluster() as cluster:
            cluster.apply([node(f"node-{index}", cpu="64") for index in range(100)])
            await settle()
            before = cluster.server.registry.store.version
            cluster.apply([deployment("web", replicas=3000)])
            await settle()
            return running(cluster), cluster.server.registry.store.version - before

    pods, writes = run_virtual(scenario())

    assert pods == 3000
    assert writes < 3 * 3000 + 200


@pytest.mark.parametrize(("first", "second"), [(118.861, 118.956), (504.435, 506.891)])
def test_a_reason_that_is_to_be_renewed_does_not_stop_time(first, second):
    """Between these instants, ten seconds minus the passed time is below the precision of a float."""

    async def scenario():
        loop = asyncio.get_running_loop()
        async with EmbeddedCluster() as cluster:
            await asyncio.sleep(first - loop.time())
            cluster.apply([pod("stranded", cpu="64")])
            await asyncio.sleep(second - loop.time())
            cluster.apply([node("small")])
            await settle(15)
            return scheduled_condition(cluster.list(PODS)[0])["message"]

    assert run_virtual(scenario()).startswith("0/1 nodes are available")
