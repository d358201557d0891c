"""Provisioning passes start for the right reasons and leave metrics."""

from __future__ import annotations

import json

from karpenter_core.kube.resources import DEPLOYMENTS, REPLICA_SETS, SERVICES
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

ZONE = "topology.kubernetes.io/zone"
PREFIX = "karpenter_scheduler"
BY = '{controller="provisioner"}'


def zonal_defaults(*, when="DoNotSchedule"):
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when}
    return json.dumps({"podTopologySpread": {"defaultConstraints": [constraint]}})


def zones_of(scene):
    return sorted(node["metadata"]["labels"][ZONE] for node in scene.nodes())


def test_a_pass_logs_the_numbers_of_its_decisions(tmp_path):
    """Cases 270, 299 and 300; gauges are reset once no pod waits."""
    missing = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(),
                deployment("web", 3, nodeSelector={ZONE: "test-zone-b"}),
                deployment("anywhere", 2),
                deployment("huge", 2, cpu="100000"),
                deployment("odd", 1, volumes=[missing], nodeSelector={ZONE: "test-zone-c"}),
            ]
        )
        running = scene.start()
        value = running.metric
        await scene.settle(lambda: len(scene.pods("Running")) == 5, seconds=30)

        assert value(f"{PREFIX}_unschedulable_pods_count{BY}") == 2
        assert value(f"{PREFIX}_ignored_pods_count") == 1
        assert value(f"{PREFIX}_scheduling_duration_seconds_count{BY}") > 0
        # Once for each of the eight pods, however many passes there are.
        assert value("karpenter_pods_scheduling_decision_duration_seconds_count") == 8
        await scene.cluster.clock.sleep(30)
        assert value("karpenter_pods_scheduling_decision_duration_seconds_count") == 8

        for name in ("huge", "odd"):
            scene.cluster.scale(DEPLOYMENTS, name, 0)
        await scene.cluster.clock.sleep(15)
        assert value(f"{PREFIX}_unschedulable_pods_count{BY}") == 0
        assert value(f"{PREFIX}_ignored_pods_count") == 0

    run_controller(tmp_path, scenario)


def test_pending_pods_are_counted_by_the_zone_they_can_go_to(tmp_path):
    """Case 300: of the last pass, for pods that no node can be had for."""
    zone = f"{PREFIX}_pending_pods_by_effective_zone_count"

    async def scenario(scene):
        scene.cluster.apply(
            [
                NODE_CLASS,
                node_pool(),
                deployment("there", 3, cpu="100000", nodeSelector={ZONE: "test-zone-b"}),
                deployment("anywhere", 2, cpu="100000"),
            ]
        )
        running = scene.start()
        await scene.settle(
            lambda: running.metric(f"{PREFIX}_unschedulable_pods_count{BY}") == 5, seconds=30
        )

        def count(name):
            return running.metric(f'{zone}{{controller="provisioner",zone="{name}"}}')

        assert (count("test-zone-b"), count("flexible")) == (3, 2)
        for name in ("there", "anywhere"):
            scene.cluster.scale(DEPLOYMENTS, name, 0)
        await scene.cluster.clock.sleep(15)
        assert (count("test-zone-b"), count("flexible")) == (0, 0)

    run_controller(tmp_path, scenario)


def test_pods_get_the_default_spread_of_the_clusters_scheduler(tmp_path):
    """Cases 343 and 346: counted through their ReplicaSet, whose objects are followed for it."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 3)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=30)
        assert len(set(zones_of(scene))) == 3
        followed = running.process.cluster_state.snapshot()
        assert len(followed.workloads) == len(scene.cluster.list(REPLICA_SETS)) == 1

    run_controller(tmp_path, scenario, arguments=[f"--scheduler-config={zonal_defaults()}"])


def test_without_a_configuration_nothing_spreads_and_nothing_more_is_followed(tmp_path):
    """Case 345."""

    async def scenario(scene):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"app": "web"}},
        }
        scene.cluster.apply([NODE_CLASS, node_pool(), service, deployment("web", 3)])
        running = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 3, seconds=30)
        assert set(zones_of(scene)) == {"test-zone-a"}  # the cheapest, for all of them
        snapshot = running.process.cluster_state.snapshot()
        assert (dict(snapshot.services), dict(snapshot.workloads)) == ({}, {})
        assert len(scene.cluster.list(SERVICES)) == 1

    run_controller(tmp_path, scenario)


def test_a_pass_that_finds_nothing_for_its_pods_is_recorded(tmp_path):
    """People ask for the reason of pods that wait, most of all."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("huge", 1, cpu="100000")])
        running = scene.start()
        await scene.settle(
            lambda: running.metric(f"{PREFIX}_unschedulable_pods_count{BY}") == 1, seconds=30
        )
        (entry, *_) = running.process.runtime.journal.latest(kind="provision")
        assert not entry.launches
        assert "huge" in str(entry.obstacles)

    run_controller(tmp_path, scenario)
