"""Every controller of a process has its name, and passes over objects that are gone."""

from __future__ import annotations

import sys

import pytest

from karpenter_core.controllers.cluster_state import ClusterState
from karpenter_core.controllers.reconciling.reconciler import DONE, Reconciler
from karpenter_core.disruption.command_queue import StaleDisruptionMark
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.operator import process
from karpenter_core.sim.faults import RequestFault, matching
from tests.controllers.whole_controller import GROUP, NODE_CLASS, node_pool, run_controller

NAMES = {
    "CatalogueController": "catalogue",
    "ClusterMetricsController": "metrics",
    "ConditionObserver": "status",
    "DisruptionController": "disruption",
    "CommandQueue": "disruption.queue",
    "DriftController": "nodeclaim.disruption",
    "EvictionQueue": "eviction-queue",
    "GarbageCollectionController": "nodeclaim.garbagecollection",
    "InstanceSyncController": "nodeclaim.sync",
    "InterruptionController": "interruption",
    "NodeClaimLifecycleController": "nodeclaim.lifecycle",
    "NodeClassController": "nodeclass",
    "NodeHealthController": "node.health",
    "NodePoolController": "nodepool",
    "ScheduleController": "schedule",
    "NodeTerminationController": "node.termination",
    "Provisioner": "provisioner",
}
"""Users' dashboards select logs and metrics by these names."""


@pytest.fixture(name="controllers")
def captured_controllers(monkeypatch):
    """The controllers of the process that a test starts, by the names of their classes."""
    found = {}
    build = process.build_controllers

    def building(dependencies):
        controllers = build(dependencies)
        found.update({type(each).__name__: each for each in controllers})
        return controllers

    monkeypatch.setattr(process, "build_controllers", building)
    return found


def test_every_controller_has_the_name_that_users_know(tmp_path, controllers):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start("--feature-gates=NodeRepair=true")
        await scene.settle(lambda: bool(controllers))
        assert {each: controllers[each].name for each in controllers} == NAMES

    run_controller(tmp_path, scenario)


SUBSCRIPTIONS = {
    "capacity_buffer.burst_observer": {"POD"},
    "capacity_buffer.controller": {
        "CAPACITY_BUFFER", "POD_TEMPLATE", "VIRTUAL_PLACEMENT", "WORKLOAD",
    },
    "catalogue.controller": {"NODE_CLASS", "NODE_POOL"},
    "node.eviction": {"POD"},
    "node.health": {"NODE"},
    "node.termination": {"NODE", "NODE_PODS"},
    "nodeclaim.drift": {"CATALOGUE", "NODE_CLAIM", "NODE_CLASS", "NODE_POOL"},
    "nodeclaim.garbage_collection": {"NODE_CLAIM"},
    "nodeclaim.claim_wakeups": {
        "CATALOGUE", "NODE_CLASS", "NODE_POOL", "POD_EVENT", "RESOURCE_SLICE",
    },
    "nodeclaim.instance_sync": {"NODE_CLAIM", "NODE_CLASS"},
    "nodeclaim.lifecycle": {"NODE_CLAIM"},
    "nodeclass.controller": {"NODE_CLASS"},
    "nodeoverlay.controller": {"CATALOGUE", "NODE_OVERLAY", "NODE_POOL"},
    "nodepool.controller": {"CATALOGUE", "NODE", "NODE_CLAIM", "NODE_CLASS", "NODE_POOL"},
    "observability.conditions": {
        "CAPACITY_BUFFER", "NODE", "NODE_CLAIM", "NODE_OVERLAY", "NODE_POOL",
    },
    "observability.pod_waits": {"POD"},
    "provisioning.provisioner": {
        "CATALOGUE", "DEVICE_CLASS", "NODE", "NODE_CLAIM", "NODE_POOL", "POD", "RESOURCE_CLAIM",
        "RESOURCE_CLAIM_TEMPLATE", "RESOURCE_SLICE", "VIRTUAL_PODS",
    },
    "schedule.controller": {"NODE_POOL"},
}  # fmt: skip
"""Kinds of objects whose changes wake a controller, by its module: what it decides by."""


def test_controllers_are_woken_by_changes_of_what_they_decide_by(tmp_path, monkeypatch):
    """Their tests of behaviour often pass without, a period or a retry later."""
    found = {}
    subscribe = ClusterState.subscribe

    def subscribing(state, kind, listener):
        caller = sys._getframe(1)
        while (module := caller.f_globals["__name__"]) == ClusterState.__module__:
            caller = caller.f_back
        found.setdefault(module.removeprefix("karpenter_core.controllers."), set()).add(kind.name)
        subscribe(state, kind, listener)

    monkeypatch.setattr(ClusterState, "subscribe", subscribing)

    async def scenario(scene):
        scene.start("--feature-gates=NodeRepair=true,CapacityBuffer=true,NodeOverlay=true")
        await scene.settle(lambda: bool(found))
        assert found == SUBSCRIPTIONS

    run_controller(tmp_path, scenario)


WAITING = {
    "capacity_buffer.controller", "catalogue.controller", "disruption.controller",
    "interruption.controller", "node.health", "node.termination", "nodeclaim.drift",
    "nodeclaim.garbage_collection", "nodeclaim.instance_sync", "nodeclaim.lifecycle",
    "nodeclass.controller", "nodeoverlay.controller", "nodepool.controller",
    "observability.conditions", "provisioning.provisioner", "static.pool_changes",
}  # fmt: skip
"""Modules of controllers that decide nothing before all objects are listed."""


def test_controllers_wait_until_all_objects_are_listed(tmp_path, monkeypatch):
    """Instances of claims that are not listed yet would be taken for nobody's."""
    found = set()
    wait_synced = ClusterState.wait_synced

    def waiting(state):
        module = sys._getframe(1).f_globals["__name__"]
        found.add(module.removeprefix("karpenter_core.controllers."))
        return wait_synced(state)

    monkeypatch.setattr(ClusterState, "wait_synced", waiting)

    async def scenario(scene):
        scene.start(
            "--feature-gates=NodeRepair=true,CapacityBuffer=true,NodeOverlay=true,StaticCapacity=true"
        )
        await scene.settle(lambda: len(found) >= len(WAITING))
        assert found == WAITING

    run_controller(tmp_path, scenario)


RECONCILERS = {
    "capacitybuffer": (64, 0.2, 60.0, "CapacityBuffer"),
    "catalogue": (64, 1.0, 60.0, "NodeClass"),
    "eviction-queue": (100, 0.1, 10.0, "PodUID"),
    "interruption": (64, 0.2, 60.0, "Node"),
    "node.health": (10, 0.1, 60.0, "Node"),
    "node.termination": (100, 0.1, 10.0, "Node"),
    "nodeclaim.disruption": (64, 0.2, 60.0, "NodeClass"),
    "nodeclaim.lifecycle": (1000, 1.0, 60.0, "NodeClaim"),
    "nodeclaim.sync": (32, 1.0, 60.0, "NodeClaim"),
    "nodeclass": (64, 1.0, 60.0, "NodeClass"),
    "nodeoverlay": (1, 0.2, 60.0, "name"),
    "nodepool": (64, 0.2, 60.0, "NodePool"),
    "static.deprovisioning": (10, 0.2, 60.0, "NodePool"),
    "static.provisioning": (10, 0.2, 60.0, "NodePool"),
}
"""Keys at a time, first and longest wait after failures, and the field of logs, by name."""


def test_reconcilers_have_their_bounds(tmp_path, monkeypatch):
    """A bound that is not passed on falls back to a default, which few tests of behaviour notice."""
    found = {}
    create = Reconciler.__init__

    def creating(self, name, *arguments, **options):
        create(self, name, *arguments, **options)
        backoff = self.queue._backoff
        waits = (backoff.base_seconds, backoff.maximum_seconds)
        found[name] = (self._concurrency, *waits, self._log_field)

    monkeypatch.setattr(Reconciler, "__init__", creating)

    async def scenario(scene):
        scene.start(
            "--feature-gates=NodeRepair=true,CapacityBuffer=true,NodeOverlay=true,StaticCapacity=true"
        )
        await scene.settle(lambda: bool(found))
        assert found == RECONCILERS

    run_controller(tmp_path, scenario)


NODE_CLASS_KEYS = {"CatalogueController", "DriftController", "NodeClassController"}
"""Controllers that reconcile a NodeClass, by group, kind and name; the others by one text."""
RECONCILING = sorted(
    NODE_CLASS_KEYS
    | {
        "EvictionQueue",
        "InstanceSyncController",
        "NodeClaimLifecycleController",
        "NodeHealthController",
        "NodePoolController",
        "NodeTerminationController",
    }
)


def test_an_object_that_is_gone_needs_nothing_more(tmp_path, controllers):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool()])
        scene.start("--feature-gates=NodeRepair=true")
        await scene.settle(lambda: scene.pool("general").get("status", {}).get("conditions"))
        with_keys = {each for each in controllers if hasattr(controllers[each], "reconcile")}
        assert sorted(with_keys) == RECONCILING
        for each in RECONCILING:
            key = (GROUP, "KWOKNodeClass", "gone") if each in NODE_CLASS_KEYS else "gone"
            assert await controllers[each].reconcile(key) == DONE, each

    run_controller(tmp_path, scenario)


FOREIGN = {"group": "other.example.com", "kind": "OtherNodeClass", "name": "default"}
SOON = "2000-01-01T00:00:00Z"
FOREIGN_CLAIM = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodeClaim",
    "metadata": {
        "name": "foreign",
        "labels": {"karpenter.sh/nodepool": "foreign"},
        "finalizers": ["karpenter.sh/termination"],
    },
    "spec": {"nodeClassRef": FOREIGN, "requirements": [], "expireAfter": "1s"},
}
FOREIGN_STATUS = {
    "providerID": "other://foreign",
    "nodeName": "foreign",
    "conditions": [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "lastTransitionTime": SOON,
        }
        for kind in ("Launched", "Registered", "Initialized", "Ready")
    ],
}
FOREIGN_NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "foreign",
        "labels": {"karpenter.sh/nodepool": "foreign", "karpenter.sh/registered": "true"},
        "finalizers": ["karpenter.sh/termination"],
    },
    "spec": {"providerID": "other://foreign"},
    "status": {"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": SOON}]},
}


def owned(scene):
    """The claims, and of the nodes what the cluster itself does not change."""
    metadata = [{**each["metadata"], "resourceVersion": ""} for each in scene.nodes()]
    taints = [taint["key"] for each in scene.nodes() for taint in each["spec"].get("taints", ())]
    return scene.claims(), metadata, [each for each in taints if "karpenter" in each]


@pytest.mark.parametrize("deleted", [(), (NODES,), (NODE_CLAIMS,)], ids=["alive", "node", "claim"])
def test_objects_of_a_node_class_that_no_provider_serves_are_left_alone(
    tmp_path, controllers, deleted
):
    """Another controller of the same API owns them, also while they are deleted."""
    pool = node_pool("foreign")
    pool["spec"]["template"]["spec"]["nodeClassRef"] = FOREIGN

    async def scenario(scene):
        registry = scene.cluster.server.registry
        scene.cluster.apply([NODE_CLASS, node_pool(), pool, FOREIGN_CLAIM, FOREIGN_NODE])
        registry.patch(NODE_CLAIMS, {"status": FOREIGN_STATUS}, "foreign", part="status")
        for kind in deleted:
            scene.cluster.delete(kind, "foreign")
        before = owned(scene)
        assert scene.claims()[0]["status"]["providerID"]
        scene.start("--feature-gates=NodeRepair=true")
        await scene.settle(lambda: scene.pool("general").get("status", {}).get("conditions"))

        for each in RECONCILING:
            key = tuple(FOREIGN.values()) if each in NODE_CLASS_KEYS else "foreign"
            assert await controllers[each].reconcile(key) == DONE, each
        await scene.cluster.clock.sleep(150)

        assert owned(scene) == before

    run_controller(tmp_path, scenario)


def marked_claim(name):
    """A claim and its node with the marks of a command that nobody executes."""
    since = {"status": "True", "message": "", "lastTransitionTime": SOON}
    reason = {**since, "type": "DisruptionReason", "reason": "Drifted"}
    status = {
        "providerID": f"other://{name}",
        "nodeName": name,
        "conditions": [*FOREIGN_STATUS["conditions"], reason],
    }
    claim = {**FOREIGN_CLAIM, "metadata": {**FOREIGN_CLAIM["metadata"], "name": name}}
    taint = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    node = {
        **FOREIGN_NODE,
        "metadata": {**FOREIGN_NODE["metadata"], "name": name},
        "spec": {"providerID": f"other://{name}", "taints": [taint]},
    }
    return claim, status, node


def marks(scene):
    """Names with a mark, of claims and of nodes."""
    claims = {
        each["metadata"]["name"]
        for each in scene.claims()
        if any(one["type"] == "DisruptionReason" for one in each["status"]["conditions"])
    }
    nodes = {
        each["metadata"]["name"]
        for each in scene.nodes()
        if any(one["key"] == "karpenter.sh/disrupted" for one in each["spec"].get("taints", ()))
    }
    return claims, nodes


@pytest.mark.parametrize("status", [0, 409, 500])
def test_stale_marks_are_removed_in_spite_of_others_that_cannot_be(tmp_path, controllers, status):
    """A claim that is being deleted keeps its reason; objects that are gone need nothing."""
    names = ["refused", "deleted", "claim-only", "both"]

    async def scenario(scene):
        registry = scene.cluster.server.registry
        scene.cluster.apply([NODE_CLASS, node_pool()])
        for claim, of_claim, node in map(marked_claim, names):
            there = (claim,) if claim["metadata"]["name"] == "claim-only" else (claim, node)
            scene.cluster.apply(list(there))
            registry.patch(
                NODE_CLAIMS, {"status": of_claim}, claim["metadata"]["name"], part="status"
            )
        scene.cluster.delete(NODE_CLAIMS, "deleted")
        scene.start("--disable-leader-election")
        await scene.settle(lambda: scene.pool("general").get("status", {}).get("conditions"))
        assert marks(scene) == (set(names), {*names} - {"claim-only"})
        if status:
            refused = RequestFault(
                matches=matching("PATCH", "/nodes/refused"), times=None, status=status
            )
            scene.cluster.frontend.faults.add(refused)

        await controllers["CommandQueue"].remove_stale_marks(
            StaleDisruptionMark(node=each, claim=each) for each in ["gone", *names]
        )

        left = {"refused"} if status else set()
        assert marks(scene) == (left | {"deleted"}, left)

    run_controller(tmp_path, scenario)
