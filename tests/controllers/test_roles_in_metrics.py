"""Metrics of standbys and observers hold without a leader among them."""

from __future__ import annotations

from prometheus_client import generate_latest

from karpenter_core.kube.resources import NODES
from karpenter_core.sim.faults import RequestFault
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

SYNCED = "karpenter_cluster_state_synced"
UNSYNCED_SECONDS = "karpenter_cluster_state_unsynced_time_seconds"


def lists_nodes(request):
    return request.method == "GET" and request.path == f"/api/v1/{NODES.plural}"


def exported(running):
    return generate_latest(running.process.metrics.registry).decode()


def test_a_standby_that_has_listed_all_kinds_is_synced(tmp_path):
    """Whoever alerts on 0 hears of no replica that could take over at once."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start()
        standby = scene.start()
        await scene.cluster.clock.sleep(60)

        assert not standby.process.is_leading
        assert standby.metric(SYNCED) == 1
        assert standby.metric(UNSYNCED_SECONDS) == 0

    run_controller(tmp_path, scenario)


def test_a_process_that_may_not_list_a_kind_is_unsynced_although_it_never_leads(tmp_path):
    """The alert for missing permissions needs a series of a process that cannot become the leader."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        fault = RequestFault(matches=lists_nodes, status=403, times=None)
        scene.cluster.frontend.faults.add(fault)
        running = scene.start()
        await scene.cluster.clock.sleep(600)

        assert not running.process.is_leading
        assert running.metric(SYNCED) == 0
        assert 590 <= running.metric(UNSYNCED_SECONDS) <= 601

    run_controller(tmp_path, scenario)


def test_an_observer_is_neither_leader_nor_standby_and_spends_nothing(tmp_path):
    """Beside a leader its nodes would cost twice as much, and alone no leader is missing."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 4)])
        leader = scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=60)
        observer = scene.start("--observe")
        await scene.cluster.clock.sleep(600)

        assert "\nkarpenter_nodepools_spent_total{" in exported(leader)
        assert "\nkarpenter_nodepools_price_per_hour{" in exported(observer)
        assert "\nkarpenter_nodepools_spent_total{" not in exported(observer)
        assert "\nleader_election_master_status{" not in exported(observer)

    run_controller(tmp_path, scenario)
