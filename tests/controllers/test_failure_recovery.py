"""Nothing is lost, leaked, done twice or left waiting after failures."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

from karpenter_core.errors import CloudProviderError
from karpenter_core.kube.resources import DEPLOYMENTS, NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.provider.contract import Instance
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_provider_kwok.cloud import KwokCloud
from karpenter_provider_kwok.registrar import NodeRegistrar
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}


def cloud_faults(folder, *faults):
    """Write a faults file for the simulated cloud and return the option that names it."""
    path = folder / "faults.json"
    path.write_text(json.dumps(list(faults)))
    return f"--kwok-faults-file={path}"


def test_failing_launch_backs_off(tmp_path):
    """Changes by our own reconciling do not shorten the back-off."""
    option = cloud_faults(tmp_path, {"fault": "lost-reply", "operation": "launch"})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(120)

        launches = [c for c in cloud(scene, tmp_path)["calls"] if c["operation"] == "launch"]
        assert 5 <= len(launches) <= 12

    run_controller(tmp_path, scenario, arguments=[option])


def test_a_claim_that_never_launches_is_deleted(tmp_path):
    """Five minutes after it was created, although every launch fails with an error."""
    option = cloud_faults(tmp_path, {"fault": "throttle", "operation": "launch"})

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.claims()) == 1, seconds=30)
        first = scene.claims()[0]["metadata"]["name"]

        await scene.settle(
            lambda: first not in {claim["metadata"]["name"] for claim in scene.claims()},
            seconds=400,
        )

    run_controller(tmp_path, scenario, arguments=[option])


def test_an_unreadable_instance_is_read_again(tmp_path, monkeypatch):
    """A provider answers with nonsense once: the launch counts as failed, not as open for ever."""
    launch, replies = KwokCloud.launch, []

    def garbled(self, requests):
        outcomes = launch(self, requests)
        replies.append(outcomes)
        if len(replies) == 1:
            return [replace(item, capacity={"cpu": object()}) for item in outcomes]
        return outcomes

    monkeypatch.setattr(KwokCloud, "launch", garbled)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        assert len(replies) == 2
        assert list(cloud(scene, tmp_path)["launches"].values()) == [1]

    run_controller(tmp_path, scenario)


def test_a_recreated_pool_has_a_catalogue(tmp_path):
    """Its predecessor's went with it."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(10)
        scene.cluster.delete(NODE_POOLS, "general")
        await scene.cluster.clock.sleep(10)

        scene.cluster.apply([node_pool(), deployment("web", 1)])

        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

    run_controller(tmp_path, scenario)


def test_a_claim_that_could_not_be_created_is_tried_again(tmp_path):
    """Although nothing else changes meanwhile."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("POST", "/nodeclaims"), times=1, status=409)
        )
        scene.start(WITHOUT_ELECTION)

        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

    run_controller(tmp_path, scenario)


def test_a_lost_answer_makes_one_claim_although_the_watch_is_behind(tmp_path):
    """The server is asked for what it has; the watch need not show it in time."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(10)
        informer = running.process.informers[NODE_CLAIMS]
        tell, informer._sink = informer._sink, lambda _change: None
        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("POST", "/nodeclaims"), times=1, drop_reply=True)
        )
        scene.cluster.apply([deployment("web", 1)])
        await scene.cluster.clock.sleep(60)
        informer._sink = tell

        assert len(scene.claims()) == 1
        assert len(cloud(scene, tmp_path)["launches"]) == 1

    run_controller(tmp_path, scenario)


def test_pods_do_not_wait_for_a_claim_that_lost_its_node(tmp_path):
    """Its Node was torn out of the cluster; it is no capacity, and another one is bought."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        name = scene.nodes()[0]["metadata"]["name"]
        scene.cluster.server.registry.patch(NODES, {"metadata": {"finalizers": None}}, name, "")
        scene.cluster.delete(NODES, name)

        await scene.settle(lambda: not scene.pods("Running"), seconds=180)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

    run_controller(tmp_path, scenario)


def test_a_node_without_the_label_of_its_class_ends_through_its_claim(tmp_path):
    """The label was removed; the claim still names the node."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        name = scene.nodes()[0]["metadata"]["name"]
        label = "karpenter.kwok.sh/kwoknodeclass"
        assert label in scene.nodes()[0]["metadata"]["labels"]
        scene.cluster.server.registry.patch(
            NODES, {"metadata": {"labels": {label: None}}}, name, ""
        )
        scene.cluster.delete(NODES, name)

        await scene.settle(
            lambda: name not in {node["metadata"]["name"] for node in scene.nodes()}, seconds=120
        )

    run_controller(tmp_path, scenario)


def test_a_stale_watch_terminates_no_instance(tmp_path):
    """The claims are read from the server before an instance is taken for an orphan."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP)])
        old = scene.start(name="old")
        await scene.settle(lambda: old.process.is_leading, seconds=10)
        new = scene.start(name="new")
        await scene.cluster.clock.sleep(10)
        new.process.informers[NODE_CLAIMS]._sink = lambda _change: None
        scene.cluster.apply([deployment("web", 1)])
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        (before,) = cloud(scene, tmp_path)["instances"]
        await old.stop()
        await scene.settle(lambda: new.process.is_leading, seconds=30)
        await scene.cluster.clock.sleep(600)

        (after,) = cloud(scene, tmp_path)["instances"]
        assert before["token"] == after["token"]

    run_controller(tmp_path, scenario)


def test_nothing_is_collected_while_instances_cannot_be_listed(tmp_path, monkeypatch):
    """However long that takes; an instance without a claim goes once they can be."""
    listed = KwokCloud.list
    faults = {"down": False}

    def listing(self, *args, **options):
        if faults["down"]:
            raise CloudProviderError("nobody answers")
        return listed(self, *args, **options)

    monkeypatch.setattr(KwokCloud, "list", listing)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.pods("Running"), seconds=60)
        faults["down"] = True
        claim = scene.claims()[0]["metadata"]["name"]
        scene.cluster.server.registry.patch(
            NODE_CLAIMS, {"metadata": {"finalizers": None}}, claim, ""
        )
        scene.cluster.delete(NODE_CLAIMS, claim)
        await scene.cluster.clock.sleep(900)
        assert len(cloud(scene, tmp_path)["instances"]) == 1

        faults["down"] = False
        await scene.settle(lambda: cloud(scene, tmp_path)["instances"] == [], seconds=900)

    run_controller(tmp_path, scenario)


def test_a_node_is_deleted_with_its_claim_for_any_cloud_answer(tmp_path, monkeypatch):
    """The claim owns it: the deletion does not wait for the cloud."""

    async def later(_registrar, _work):
        pass

    monkeypatch.setattr(NodeRegistrar, "_delete", later)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        (node,) = (each["metadata"]["name"] for each in scene.nodes())
        claim = scene.claims()[0]["metadata"]["name"]
        scene.cluster.server.registry.patch(
            NODE_CLAIMS, {"metadata": {"finalizers": None}}, claim, ""
        )
        scene.cluster.delete(NODE_CLAIMS, claim)

        await scene.settle(
            lambda: node not in {each["metadata"]["name"] for each in scene.nodes()}, seconds=60
        )

    run_controller(tmp_path, scenario)


def test_the_node_of_an_instance_lost_between_processes_is_removed(tmp_path):
    """Although the next process cannot list Nodes for some minutes; then the claim goes too."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        running = scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        (lost,) = (claim["metadata"]["name"] for claim in scene.claims())
        await scene.cluster.clock.sleep(60)
        await running.kill()
        with closing(sqlite3.connect(tmp_path / "kwok.sqlite3")) as instances, instances:
            now = scene.cluster.clock.now().timestamp()
            instances.execute("UPDATE instances SET gone_at = ?", (now,))
        forbidden = RequestFault(
            matches=lambda request: request.method == "GET" and request.path.endswith("/nodes"),
            times=None,
            status=403,
        )
        scene.cluster.frontend.faults.add(forbidden)
        scene.start(WITHOUT_ELECTION)
        await scene.cluster.clock.sleep(180)
        scene.cluster.frontend.faults.remove(forbidden)

        def left():
            return {each["metadata"]["name"] for each in (*scene.nodes(), *scene.claims())}

        await scene.settle(lambda: lost not in left(), seconds=600)

    run_controller(tmp_path, scenario)


def test_one_node_that_cannot_be_cleaned_does_not_stop_disruption(tmp_path):
    """A stale mark that a webhook protects is left for the next pass; empty nodes go."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        stuck = scene.nodes()[0]["metadata"]["name"]
        taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        scene.cluster.frontend.faults.add(
            RequestFault(matches=matching("PATCH", f"/nodes/{stuck}"), times=None, status=403)
        )
        scene.cluster.server.registry.patch(NODES, {"spec": {"taints": [taint]}}, stuck, "")
        scene.cluster.apply([deployment("other", 1)])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        scene.cluster.scale(DEPLOYMENTS, "other", 0)

        await scene.settle(lambda: len(scene.nodes()) == 1, seconds=180)

    run_controller(tmp_path, scenario)


def test_an_instance_is_searched_although_a_later_try_was_refused(tmp_path):
    """The first reply was lost, throttling came after it: the claim's end takes its instance along."""
    option = cloud_faults(tmp_path, {"fault": "lost-reply", "operation": "launch", "count": 1})

    def launches(scene):
        return [c for c in cloud(scene, tmp_path)["calls"] if c["operation"] == "launch"]

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.claims()) == 1, seconds=30)
        await scene.settle(lambda: len(launches(scene)) == 1, seconds=30)
        cloud_faults(tmp_path, {"fault": "throttle", "operation": "launch"})
        await scene.cluster.clock.sleep(10)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        (claim,) = scene.claims()
        scene.cluster.delete(NODE_CLAIMS, claim["metadata"]["name"])

        await scene.settle(lambda: not scene.claims(), seconds=20)

        account = cloud(scene, tmp_path)
        assert list(account["launches"].values()) == [1]
        assert not account["instances"]

    run_controller(tmp_path, scenario, arguments=[option])


def test_surplus_of_a_launch_ends_although_there_is_much_of_it(tmp_path, monkeypatch):
    """The limit of garbage collection holds back suspicious deletions, and no proven ones."""
    listed, terminated = KwokCloud.list, KwokCloud.terminate
    there = {}

    def listing(self):
        result = listed(self)
        return replace(result, instances=(*result.instances, *there.values()))

    def terminating(self, provider_ids):
        for provider_id in provider_ids:
            there.pop(provider_id, None)
        return terminated(self, provider_ids)

    monkeypatch.setattr(KwokCloud, "list", listing)
    monkeypatch.setattr(KwokCloud, "terminate", terminating)

    def brought(name, number, *uids):
        ids = [f"kwok://{name}-{each:02}" for each in range(number)]
        there.update((each, Instance(provider_id=each, launched_for=uids)) for each in ids)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(disruption=KEEP), deployment("web", 1)])
        scene.start(WITHOUT_ELECTION)
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
        (used,) = scene.claims()
        scene.cluster.apply([deployment("big", 1, cpu="60")])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=30)
        lost = next(
            each for each in scene.claims() if each["metadata"]["uid"] != used["metadata"]["uid"]
        )
        scene.cluster.scale(DEPLOYMENTS, "big", 0)
        scene.cluster.delete(NODE_CLAIMS, lost["metadata"]["name"])
        await scene.settle(lambda: len(scene.claims()) == 1, seconds=60)
        uids = [each["metadata"]["uid"] for each in (used, lost)]
        brought("twice", 10, *uids)
        brought("failed", 14, uids[1])
        brought("foreign", 14, "uid-in-another-cluster")

        await scene.cluster.clock.sleep(14 * 60)
        assert len(there) == 38
        await scene.cluster.clock.sleep(240)
        assert 20 <= len(there) < 38, "a few at a time"
        await scene.cluster.clock.sleep(15 * 60)

        assert {each.launched_for for each in there.values()} == {("uid-in-another-cluster",)}
        assert len(there) == 14
        surplus_events = scene.events("SurplusInstanceTerminated")
        assert {each["involvedObject"]["name"] for each in surplus_events} == {
            used["metadata"]["name"]
        }
        assert len(surplus_events) == 10
        assert len(scene.claims()) == len(scene.pods("Running")) == 1

    run_controller(tmp_path, scenario)
