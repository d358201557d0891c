"""Writes that an admission policy or a webhook refuses or changes cause no loops.

Those that are refused are named in Events, and repeated slowly.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.registry import Registry
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller


class RefusedRequests:
    """Refuses the requests of one kind, and counts them."""

    def __init__(self, scene, method, path, *, status=403):
        self.count = 0
        self._matches = matching(method, path)
        fault = RequestFault(matches=self._match, status=status, times=None)
        self._faults = scene.cluster.frontend.faults
        self._fault = self._faults.add(fault)

    def _match(self, request):
        hit = self._matches(request)
        self.count += hit
        return hit

    def end(self):
        self._faults.remove(self._fault)


def messages(scene, reason):
    return {(e["involvedObject"]["kind"], e["message"]) for e in scene.events(reason)}


def test_a_pod_says_that_its_nodeclaim_is_refused(tmp_path):
    """A user looks at the pod first."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        refused = RefusedRequests(scene, "POST", "/nodeclaims")
        scene.start()
        await scene.settle(lambda: bool(scene.events("FailedScheduling")), seconds=30)
        assert messages(scene, "FailedScheduling") == {
            ("Pod", "Failed to schedule pod, create nodeclaims: injected fault 403")
        }
        refused.end()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("path", ["/nodes/", "/nodeclaims/"])
def test_a_nodeclaim_says_which_write_is_refused(tmp_path, path):
    """Else a node that does not register would be told apart from a lost one by the log only."""
    kind = path.strip("/")

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        refused = RefusedRequests(scene, "PATCH", path)
        scene.start()
        await scene.settle(lambda: bool(scene.events("WriteRefused")), seconds=60)
        ((about, message),) = messages(scene, "WriteRefused")
        assert about == "NodeClaim"
        assert f"patch {kind}" in message
        assert "injected fault 403" in message
        await scene.cluster.clock.sleep(300)
        assert Counter(e["reason"] for e in scene.events())["WriteRefused"] == 1
        refused.end()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=120)

    run_controller(tmp_path, scenario)


def test_a_deletion_that_is_refused_is_repeated_ever_more_slowly(tmp_path):
    """It was sent every second for each node."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        refused = RefusedRequests(scene, "DELETE", "/nodeclaims/")
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: refused.count > 0, seconds=60)
        await scene.cluster.clock.sleep(200)
        assert refused.count <= 25
        ((about, message),) = messages(scene, "WriteRefused")
        assert about == "NodeClaim"
        assert "delete nodeclaims" in message
        refused.end()
        await scene.settle(lambda: not scene.nodes(), seconds=60)

    run_controller(tmp_path, scenario)


def change_claims(monkeypatch, change):
    """Have a webhook change each NodeClaim that is created."""
    create = Registry.create

    def created(registry, kind, manifest, namespace=""):
        if kind.kind == "NodeClaim":
            manifest = copy.deepcopy(manifest)
            change(manifest)
        return create(registry, kind, manifest, namespace)

    monkeypatch.setattr(Registry, "create", created)


def test_nodes_are_not_launched_for_ever_if_a_webhook_taints_nodeclaims(tmp_path, monkeypatch):
    """The nodes have what their claims say, and no pod of the plan tolerates it."""

    created = []

    def taint(claim):
        created.append(claim)
        claim["spec"]["taints"] = [{"key": "example.com/audit", "effect": "NoSchedule"}]

    change_claims(monkeypatch, taint)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(600)
        assert 2 <= len(created) <= 6

    run_controller(tmp_path, scenario)


def test_claims_are_not_created_for_ever_if_a_webhook_narrows_their_requirements(
    tmp_path, monkeypatch
):
    """Each is given up at once, with no offering that could be taken for sold out."""
    created = []

    def narrow(claim):
        created.append(claim)
        nowhere = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["nowhere"]}
        claim["spec"]["requirements"].append(nowhere)

    change_claims(monkeypatch, narrow)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(300)
        assert 2 <= len(created) <= 6
        (health,) = (
            each
            for each in scene.pool("general")["status"]["conditions"]
            if each["type"] == "NodeRegistrationHealthy"
        )
        assert (health["status"], health["reason"]) == ("False", "NoOfferingAllowed")

    run_controller(tmp_path, scenario)


def test_a_finalizer_that_a_webhook_takes_off_is_added_ever_more_slowly(tmp_path, monkeypatch):
    """Nothing is launched without it, and each write wakes the claim."""

    def strip(claim):
        claim["metadata"]["finalizers"] = []

    change_claims(monkeypatch, strip)
    patch = Registry.patch
    writes = []

    def patched(registry, kind, body, name, *place, **options):
        if kind.kind == "NodeClaim" and "finalizers" in body["metadata"]:
            writes.append(name)
            body["metadata"]["finalizers"] = []
        return patch(registry, kind, body, name, *place, **options)

    monkeypatch.setattr(Registry, "patch", patched)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(150)
        assert 2 <= len(writes) <= 20
        assert scene.nodes() == []
        monkeypatch.undo()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=90)

    run_controller(tmp_path, scenario)


def test_an_annotation_that_a_webhook_takes_off_is_written_ever_more_slowly(tmp_path, monkeypatch):
    """The watch shows each write, and wakes the controller that has made it."""
    patch = Registry.patch
    writes = []

    def patched(registry, kind, body, name, *place, **options):
        if kind.kind == "NodePool" and "annotations" in body.get("metadata", {}):
            writes.append(name)
            body["metadata"]["annotations"] = {}
        return patch(registry, kind, body, name, *place, **options)

    monkeypatch.setattr(Registry, "patch", patched)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(60)
        assert 2 <= len(writes) <= 20
        assert len(scene.pods("Running")) == 1

    run_controller(tmp_path, scenario)
