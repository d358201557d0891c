"""Writes that an admission policy or a webhook refuses or changes cause no loops.

Those that are refused are named in Events, and repeated slowly.
"""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from karpenter_core.api.nodeclass import NodeClass
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, custom_kind
from karpenter_core.kube.wire.codecs import (
    CAPACITY_QUOTAS,
    NODE_POOLS,
    PROVISIONING_REQUESTS,
)
from karpenter_core.provider.contract import NodeClassHash
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.registry import Registry
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers import test_capacity_buffers as buffers
from tests.controllers.gangs import request, run_gangs
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)
from tests.support.capacity_quotas import DEFINITION, capacity_quota

KWOK_NODE_CLASSES = custom_kind(KWOKNodeClass.resource)


class HashingKwok(KwokProvider):
    """kwok, with a hash of its NodeClasses."""

    @hookimpl
    def karpenter_hash_node_class(self, node_class: NodeClass) -> NodeClassHash:
        return NodeClassHash(value=str(node_class.spec.node_registration_delay), version="v1")


class RefusedRequests:
    """Refuses the requests of one kind, and counts them."""

    def __init__(self, scene, method, path, *, status=403, is_status=None):
        self.count = 0
        self._is_status = is_status
        self._matches = matching(method, path)
        fault = RequestFault(matches=self._match, status=status, times=None)
        self._faults = scene.cluster.frontend.faults
        self._fault = self._faults.add(fault)

    def _match(self, request):
        hit = self._matches(request)
        if self._is_status is not None:
            hit = hit and request.path.endswith("/status") is self._is_status
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


def test_a_pod_says_that_the_creation_of_its_nodeclaim_is_not_answered(tmp_path):
    """Deletions are served meanwhile. Afterwards nothing is launched twice."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("old", 1, cpu="60")])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        posts = matching("POST", "/nodeclaims")
        faults = scene.cluster.frontend.faults
        silence = faults.add(RequestFault(matches=posts, is_unanswered=True, times=None))
        scene.cluster.apply([deployment("web", 40, cpu="90")])
        await scene.settle(lambda: faults.hits > 0, seconds=30)
        scene.cluster.scale(DEPLOYMENTS, "old", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=30)
        await scene.settle(lambda: bool(scene.events("FailedScheduling")), seconds=75)
        assert messages(scene, "FailedScheduling") == {
            ("Pod", "Failed to schedule pod, create nodeclaims: no answer within 35 s")
        }
        faults.remove(silence)
        await scene.settle(lambda: len(scene.pods("Running")) == 40, seconds=120)
        assert len(cloud(scene, tmp_path)["launches"]) == 41

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


def change_writes(monkeypatch, kind, change, *, of=""):
    """Have a webhook change what each write of an object, or of its status, makes of it."""
    replace = Registry._replace

    def replaced(registry, served, old, new, *, part):
        if served.kind.kind == kind and part == of:
            new = copy.deepcopy(new)
            change(new)
        return replace(registry, served, old, new, part=part)

    monkeypatch.setattr(Registry, "_replace", replaced)


def test_a_finalizer_that_a_webhook_takes_off_is_added_ever_more_slowly(tmp_path, monkeypatch):
    """Nothing is launched without it, and each write wakes the claim."""

    def strip(claim):
        claim["metadata"]["finalizers"] = []

    writes = []

    def strip_again(claim):
        writes.append(claim["metadata"].pop("finalizers"))

    change_claims(monkeypatch, strip)
    change_writes(monkeypatch, "NodeClaim", strip_again)

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
    writes = []

    def strip(pool):
        writes.append(pool["metadata"].pop("annotations"))

    change_writes(monkeypatch, "NodePool", strip)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(60)
        assert 2 <= len(writes) <= 20
        assert len(scene.pods("Running")) == 1

    run_controller(tmp_path, scenario)


def test_conditions_that_a_webhook_changes_each_time_are_written_ever_more_slowly(
    tmp_path, monkeypatch
):
    """Each write differs from the last one, as what it answers to does."""
    writes = []

    def shift(pool):
        writes.append(pool)
        pool["status"]["conditions"] = [
            each | {"lastTransitionTime": f"2029-01-01T{len(writes) % 24:02}:00:00Z"}
            for each in pool["status"].get("conditions", ())
            if each["type"] != "Ready"
        ]

    change_writes(monkeypatch, "NodePool", shift, of="status")

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start()
        await scene.cluster.clock.sleep(120)
        assert 2 <= len(writes) <= 200

    run_controller(tmp_path, scenario)


def test_a_webhook_that_keeps_the_taint_of_unregistered_nodes_causes_one_launch(
    tmp_path, monkeypatch
):
    """Each node would be ready without a pod that can run there, and the next one be launched."""
    taint = {"key": "karpenter.sh/unregistered", "effect": "NoExecute"}

    def keep(node):
        others = [each for each in node["spec"].get("taints") or () if each != taint]
        node["spec"]["taints"] = [*others, taint]

    change_writes(monkeypatch, "Node", keep)

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.cluster.clock.sleep(1200)
        assert len(cloud(scene, tmp_path)["launches"]) == 1
        ((about, message),) = messages(scene, "UnregisteredTaintReturned")
        assert about == "NodeClaim"
        assert "karpenter.sh/unregistered" in message
        monkeypatch.undo()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=90)
        assert len(scene.nodes()) == 1

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize("kind", ["nodepools", "kwoknodeclasses"])
def test_a_policy_that_lets_nobody_annotate_an_object_stops_no_launch(tmp_path, kind):
    """As where only a GitOps tool may change NodePools; drift alone needs the hash in there."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        RefusedRequests(scene, "PATCH", f"/{kind}/", is_status=False)
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        ((_, message),) = messages(scene, "WriteRefused")
        assert f"patch {kind}" in message

    run_controller(tmp_path, scenario, plugins={"kwok": HashingKwok()})


CHANGES = {
    "nodepools": (NODE_POOLS, "general", {"template": {"metadata": {"labels": {"team": "b"}}}}),
    "kwoknodeclasses": (KWOK_NODE_CLASSES, "default", {"nodeRegistrationDelay": "1s"}),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_nodes_are_not_replaced_for_ever_while_a_hash_cannot_be_written(tmp_path, kind):
    """New nodes have the hash of the changed object, which its own annotation lacks."""
    disruption = {
        "consolidationPolicy": "WhenEmpty",
        "consolidateAfter": "1h",
        "budgets": [{"nodes": "100%"}],
    }

    async def scenario(scene):
        pool = node_pool(disruption=disruption)
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        RefusedRequests(scene, "PATCH", f"/{kind}/", is_status=False)
        of_kind, name, spec = CHANGES[kind]
        scene.cluster.server.registry.patch(of_kind, {"spec": spec}, name, "")
        await scene.cluster.clock.sleep(5)
        scene.cluster.apply([deployment("more", 1, cpu="60", memory="200Gi")])
        await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
        await scene.cluster.clock.sleep(300)
        assert len(cloud(scene, tmp_path)["launches"]) <= 3

    run_controller(tmp_path, scenario, plugins={"kwok": HashingKwok()})


ERRORS = 'karpenter_reconcile_errors_total{controller="%s"}'


@pytest.mark.parametrize("patches_before", [0, 1], ids=["acceptance", "attempt"])
def test_a_provisioning_request_with_a_refused_status_holds_up_no_other(tmp_path, patches_before):
    """The policy of one namespace ended the passes of all, and the process was not ready."""

    async def story(scene):
        status = matching("PATCH", "provisioningrequests/a-refused/status")
        faults = scene.cluster.frontend.faults
        fault = faults.add(
            RequestFault(matches=status, status=403, times=None, after=patches_before)
        )
        scene.prepare(request("a-refused"), request("job"))
        running = scene.harness.start()
        await scene.until(lambda: scene.is_true("Provisioned"), seconds=120)
        await scene.passes(300)
        assert not scene.is_true("Provisioned", "a-refused")
        assert faults.hits <= 10
        (event,) = scene.harness.events("WriteRefused")
        about = event["involvedObject"]
        assert (about["kind"], about["name"]) == ("ProvisioningRequest", "a-refused")
        assert "injected fault 403" in event["message"]
        assert not scene.harness.events("PassFailing")
        assert 5 <= running.metric(ERRORS % "provisioningrequest") <= 10

        faults.remove(fault)
        await scene.until(lambda: scene.is_true("Provisioned", "a-refused"), seconds=120)

    run_gangs(tmp_path, story)


def test_an_orphaned_nodeclaim_that_may_not_be_deleted_holds_up_no_request(tmp_path):
    """Its request was deleted while it launched."""

    async def story(scene):
        scene.prepare(request("gone"))
        scene.harness.start()
        await scene.until(lambda: len(scene.harness.claims()) == 2)
        refused = RefusedRequests(scene.harness, "DELETE", "/nodeclaims/")
        scene.cluster.delete(PROVISIONING_REQUESTS, "gone", namespace="default")
        scene.cluster.apply([request("job")])
        await scene.until(lambda: scene.is_true("Accepted"), seconds=30)
        await scene.passes(300)
        assert refused.count <= 20
        assert not scene.harness.events("PassFailing")
        assert {kind for kind, _ in messages(scene.harness, "WriteRefused")} == {"NodeClaim"}

        before = {claim["metadata"]["name"] for claim in scene.harness.claims()}
        refused.end()
        await scene.until(
            lambda: (
                not before & {claim["metadata"]["name"] for claim in scene.harness.claims()}
                and scene.is_true("Provisioned")
            )
        )

    run_gangs(tmp_path, story)


def test_a_capacity_quota_with_a_refused_status_holds_up_no_other(tmp_path):
    async def scenario(scene):
        quotas = [capacity_quota(name, nodes="2") for name in ("a-refused", "b")]
        scene.cluster.apply([DEFINITION])
        refused = RefusedRequests(scene, "PATCH", "capacityquotas/a-refused/status", status=422)
        scene.cluster.apply([NODE_CLASS, node_pool(), *quotas])
        running = scene.start("--disable-leader-election", "--capacity-quotas")

        def counted(name):
            return "used" in scene.cluster.find(CAPACITY_QUOTAS, name).get("status", {})

        await scene.settle(lambda: counted("b"), seconds=30)
        await scene.cluster.clock.sleep(300)
        assert not counted("a-refused")
        assert refused.count <= 10
        ((about, message),) = messages(scene, "WriteRefused")
        assert about == "CapacityQuota"
        assert "patch capacityquotas/status" in message
        assert 5 <= running.metric(ERRORS % "capacityquota") <= 10

        refused.end()
        await scene.settle(lambda: counted("a-refused"), seconds=60)

    run_controller(tmp_path, scenario)


DENIAL = 'is forbidden: admission webhook "w.example.com" denied the request: no such team'


@pytest.mark.parametrize("status", [404, 409, 500])
@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
def test_a_webhook_that_denies_with_any_status_is_named(tmp_path, verb, status):
    """Its 404 is not that of a NodeClaim that is gone, and its 409 not that of another writer."""
    kind, reason = {
        "POST": ("NodePool", "NodeClaimRefused"),
        "PATCH": ("NodeClaim", "WriteRefused"),
        "DELETE": ("NodeClaim", "WriteRefused"),
    }[verb]

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        faults = scene.cluster.frontend.faults
        denied = RequestFault(
            matches=matching(verb, "/nodeclaims"), status=status, message=DENIAL, times=None
        )
        if verb != "DELETE":
            faults.add(denied)
        scene.start()
        if verb == "DELETE":
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
            faults.add(denied)
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: bool(scene.events(reason)), seconds=120)
        ((about, message),) = messages(scene, reason)
        assert about == kind
        assert "denied the request: no such team" in message
        asked = faults.hits
        await scene.cluster.clock.sleep(200)
        assert faults.hits - asked <= 40
        faults.remove(denied)
        if verb == "DELETE":
            await scene.settle(lambda: not scene.nodes(), seconds=120)
        else:
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=120)

    run_controller(tmp_path, scenario)


@pytest.mark.parametrize(
    "answer", [{"is_page": True}, {"status": 404, "message": DENIAL}], ids=["proxy", "webhook"]
)
def test_a_finalizer_is_removed_after_a_404_that_is_not_the_objects(tmp_path, answer):
    """The NodeClaim stayed, and nothing woke it again."""

    def removes_finalizers(request):
        return b'"finalizers":null' in request.body and "/nodeclaims/" in request.path

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        fault = RequestFault(matches=removes_finalizers, times=3, **answer)
        scene.cluster.frontend.faults.add(fault)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=300)
        await scene.settle(lambda: not scene.claims(), seconds=120)
        assert scene.cluster.frontend.faults.hits == 3

    run_controller(tmp_path, scenario)


def test_a_node_says_that_its_end_is_refused(tmp_path):
    """Else only the log tells why it stays."""

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        scene.start()
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (name,) = [node["metadata"]["name"] for node in scene.nodes()]
        refused = RefusedRequests(scene, "PATCH", f"/nodes/{name}")
        scene.cluster.delete(NODES, name)
        await scene.cluster.clock.sleep(300)
        ((about, message),) = messages(scene, "WriteRefused")
        assert about == "Node"
        assert "patch nodes" in message
        assert Counter(e["reason"] for e in scene.events())["WriteRefused"] == 1
        refused.end()
        await scene.settle(lambda: scene.cluster.find(NODES, name) is None, seconds=120)

    run_controller(tmp_path, scenario)


def test_a_buffer_says_that_its_status_is_refused(tmp_path):
    async def scenario(scene):
        await buffers.started(scene, buffers.pod_template(), buffers.buffer())
        RefusedRequests(scene, "PATCH", "capacitybuffers/headroom/status")
        await scene.cluster.clock.sleep(300)
        assert {kind for kind, _ in messages(scene, "WriteRefused")} == {"CapacityBuffer"}
        assert scene.nodes(), "its room is there"

    run_controller(tmp_path, scenario)


def test_a_buffer_has_its_room_although_its_bursts_cannot_be_recorded(tmp_path):
    """A policy lets nobody else annotate it. The record of this process counts."""

    async def scenario(scene):
        sized = buffers.buffer(podTemplateRef={"name": "chunk"}, limits={"cpu": "3"})
        sized["metadata"]["annotations"] = {"karpenter.sh/size-from-bursts": "true"}
        RefusedRequests(scene, "PATCH", "capacitybuffers/headroom", is_status=False)
        await buffers.started(scene, buffers.pod_template(), sized)
        scene.cluster.apply([deployment("web", 2)])
        await scene.settle(
            lambda: buffers.stored(scene).get("status", {}).get("replicas") == 2, seconds=300
        )
        assert {kind for kind, _ in messages(scene, "WriteRefused")} == {"CapacityBuffer"}

    run_controller(tmp_path, scenario)


def test_an_overlay_says_that_its_condition_is_refused(tmp_path):
    async def scenario(scene):
        overlay = {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": "cheaper"},
            "spec": {"requirements": [], "price": "1"},
        }
        scene.cluster.apply([NODE_CLASS, node_pool(), overlay])
        RefusedRequests(scene, "PATCH", "nodeoverlays/cheaper/status", status=422)
        scene.start("--disable-leader-election", "--feature-gates=NodeOverlay=true")
        await scene.cluster.clock.sleep(300)
        ((about, message),) = messages(scene, "WriteRefused")
        assert about == "NodeOverlay"
        assert "patch nodeoverlays/status" in message

    run_controller(tmp_path, scenario)
