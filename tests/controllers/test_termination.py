"""Claims and nodes are terminated by whole controllers (acceptance cases 61-68, 72-76, 82-86, 88-96).

The decision of each pass is tested with the pure steps, in `tests/lifecycle/nodeclaim/test_termination.py`
(61-70), `node/test_termination.py` (72-107) and `test_out_of_service.py`; every write on the way is
failed in `test_every_write.py`, and the process is killed on the way in `test_crash_recovery.py`.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from karpenter_core.errors import ApiError
from karpenter_core.kube.resources import DEPLOYMENTS, NODES, PODS, VOLUME_ATTACHMENTS
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.contract import PollingPeriods
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.faults import RequestFault
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import (
    NODE_CLASS,
    cloud,
    deployment,
    node_pool,
    run_controller,
)

WITHOUT_ELECTION = "--disable-leader-election"
KEEP = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}
FOREIGN = "example.com/theirs"


def pool(**options):
    return node_pool(disruption=KEEP, **options)


def budget(name, app, **spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, **spec},
    }


def attachment(name, node):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {
            "attacher": "csi.example.com",
            "nodeName": node,
            "source": {"persistentVolumeName": f"pv-{name}"},
        },
        "status": {"attached": True},
    }


def unreadable_pod(node):
    container = {"name": "main", "image": "none"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "odd", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "containers": [container],
            "topologySpreadConstraints": "none",
        },
    }


def names(objects):
    return {item["metadata"]["name"] for item in objects}


def labels_of(item):
    return item["metadata"].get("labels", {})


def conditions(claim):
    result = claim.get("status", {}).get("conditions", ())
    return {item["type"]: (item["status"], item["reason"]) for item in result}


def messages(scene, reason):
    return {event["message"] for event in scene.events(reason)}


async def one_node(scene, *objects, pods=1):
    """Start with these objects; return the process and the name of their one node."""
    scene.cluster.apply([NODE_CLASS, *objects])
    running = scene.start(WITHOUT_ELECTION)
    await scene.settle(lambda: len(scene.pods("Running")) == pods, seconds=60)
    await scene.cluster.clock.sleep(5)
    (name,) = names(scene.nodes())
    return running, name


def gone(scene, name):
    return name not in names(scene.nodes()) and name not in names(scene.claims())


def forget_instances(folder):
    """Let the cloud lose every instance, as if terminated by hand."""
    with closing(sqlite3.connect(folder / "kwok.sqlite3")) as instances, instances:
        instances.execute("UPDATE instances SET gone_at = launched_at")


class TestClaims:
    def test_a_deleted_claim_takes_node_and_instance_with_it(self, tmp_path):
        """Cases 61, 62, 64, 75, 84, 92, 96: the instance ends slowly, and each number is one."""

        async def scenario(scene):
            running, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.pods(), seconds=30)
            scene.cluster.delete(NODE_CLAIMS, name)
            started_at = scene.cluster.clock.monotonic()

            await scene.settle(lambda: "Drained" in conditions(scene.claims()[0]), seconds=5)
            assert conditions(scene.claims()[0])["Drained"] == ("Unknown", "Draining")
            (node,) = scene.nodes()
            assert labels_of(node)["node.kubernetes.io/exclude-from-external-load-balancers"]
            await scene.settle(
                lambda: "InstanceTerminating" in conditions(scene.claims()[0]), seconds=20
            )
            assert scene.cluster.clock.monotonic() - started_at >= 5, "late pods are waited for"
            result = conditions(scene.claims()[0])
            assert result["Drained"] == ("True", "Drained")
            assert result["VolumesDetached"] == ("True", "VolumesDetached")
            assert result["Ready"][0] == "True"
            assert len(scene.nodes()) == 1, "the Node stays until its instance is gone"

            await scene.settle(lambda: gone(scene, name), seconds=60)
            pool_label = '{nodepool="general"}'
            for metric in (
                "nodeclaims_termination_duration_seconds_count",
                "nodeclaims_instance_termination_duration_seconds_count",
                "nodes_termination_duration_seconds_count",
                "nodes_lifetime_duration_seconds_count",
                "nodes_drained_total",
            ):
                assert running.metric(f"karpenter_{metric}{pool_label}") == 1.0, metric

        run_controller(tmp_path, scenario, arguments=["--kwok-termination-delay=20s"])

    def test_a_refused_termination_is_retried(self, tmp_path):
        """Case 63."""
        faults = tmp_path / "faults.json"
        faults.write_text(json.dumps([{"fault": "throttle", "operation": "terminate", "count": 3}]))

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            scene.cluster.delete(NODE_CLAIMS, name)
            await scene.settle(lambda: gone(scene, name), seconds=120)

            asked = [c for c in cloud(scene, tmp_path)["calls"] if c["operation"] == "terminate"]
            assert asked[-1]["result"] == "gone"
            assert cloud(scene, tmp_path)["instances"] == []

        run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])

    def test_only_the_own_node_of_a_claim_is_deleted_before_its_instance(self, tmp_path):
        """Cases 65, 66: two other Nodes show its id, and a pod on its own may not leave."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            (node,) = scene.nodes()
            for twin in ("twin-1", "twin-2"):
                scene.cluster.apply(
                    [
                        {
                            "apiVersion": "v1",
                            "kind": "Node",
                            "metadata": {
                                "name": twin,
                                "labels": labels_of(node),
                                "finalizers": ["karpenter.sh/termination"],
                            },
                            "spec": {"providerID": node["spec"]["providerID"]},
                        }
                    ]
                )
            scene.cluster.apply([budget("web", "web", minAvailable=1)])
            scene.cluster.delete(NODE_CLAIMS, name)
            await scene.cluster.clock.sleep(60)
            left = names(scene.nodes())
            assert {name, "twin-1", "twin-2"} <= left
            calls = cloud(scene, tmp_path)["calls"]
            assert not [call for call in calls if call["operation"] == "terminate"]

            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: gone(scene, name), seconds=120)
            calls = cloud(scene, tmp_path)["calls"]
            assert [call["subject"] for call in calls if call["operation"] == "terminate"]

        run_controller(tmp_path, scenario)

    def test_a_claim_that_was_never_launched_touches_nothing(self, tmp_path):
        """Cases 67, 68: no call, and a Node without a provider ID has no claim."""
        faults = tmp_path / "faults.json"
        faults.write_text(json.dumps([{"fault": "throttle", "operation": "launch"}]))
        stranger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stranger"}}

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), stranger, deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.claims()) == 1, seconds=30)
            (name,) = names(scene.claims())
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            scene.cluster.delete(NODE_CLAIMS, name)
            await scene.settle(lambda: not scene.claims(), seconds=90)

            assert names(scene.nodes()) == {"stranger"}
            calls = {call["operation"] for call in cloud(scene, tmp_path)["calls"]}
            assert "terminate" not in calls

        run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])

    def test_a_failed_deletion_counts_a_failed_launch_once(self, tmp_path):
        """Metrics and the health of the pool follow what was done, not what was tried."""
        faults = tmp_path / "faults.json"
        faults.write_text(json.dumps([{"fault": "throttle", "operation": "launch"}]))
        refusals = iter([True] * 12)

        async def refuse(op):
            is_deletion = (op.verb, op.kind.kind, op.stage) == ("delete", "NodeClaim", "request")
            if is_deletion and next(refusals, False):
                raise ApiError("webhook says no", status=500)

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            running = scene.start(WITHOUT_ELECTION, faults=refuse)
            await scene.settle(lambda: len(scene.claims()) == 1, seconds=30)
            first = names(scene.claims())
            await scene.settle(lambda: not first & names(scene.claims()), seconds=600)

            assert next(refusals, None) is None
            series = (
                'karpenter_nodeclaims_disrupted_total{capacity_type="",consolidation_policy="",'
                'nodepool="general",reason="launch_timeout",termination_mode="graceful"}'
            )
            assert running.metric(series) == 1.0

        run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])


class TestNodes:
    def test_a_deleted_node_takes_its_claim_with_it(self, tmp_path):
        """Cases 74, 76: ten at once, and nothing of them is left."""

        async def scenario(scene):
            big = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["4"]}
            scene.cluster.apply(
                [NODE_CLASS, pool(template={"requirements": [big]}), deployment("web", 10, cpu="3")]
            )
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.pods("Running")) == 10, seconds=60)
            first = names(scene.nodes())
            assert len(first) == 10
            for name in first:
                scene.cluster.delete(NODES, name)

            await scene.settle(
                lambda: not first & (names(scene.nodes()) | names(scene.claims())), seconds=120
            )
            await scene.settle(lambda: len(scene.pods("Running")) == 10, seconds=120)
            account = cloud(scene, tmp_path)
            assert len(account["instances"]) == len(scene.nodes()) == len(scene.claims())

        run_controller(tmp_path, scenario)

    def test_a_node_that_is_gone_before_its_finalizer_ends_is_not_counted(self, tmp_path):
        """Somebody else has removed the finalizer: neither a failure nor an end that we brought about."""

        async def scenario(scene):
            running, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.pods(), seconds=30)

            def removes_finalizer(request):
                path = request.path.endswith(f"/nodes/{name}")
                return path and request.method == "PATCH" and b"finalizers" in request.body

            faults = scene.cluster.frontend.faults
            faults.add(RequestFault(matches=removes_finalizer, status=404, times=None))
            scene.cluster.delete(NODES, name)
            await scene.settle(lambda: faults.hits > 0, seconds=120)
            await scene.cluster.clock.sleep(2)
            ended = 'karpenter_nodes_terminated_total{nodepool="general",zone="test-zone-a"}'
            failed = 'karpenter_reconcile_errors_total{controller="node.termination"}'
            assert running.metric(failed) == 0
            assert not running.metric(ended)

            faults.clear()
            scene.cluster.patch(NODES, name, {"metadata": {"labels": {"touched": "yes"}}})
            await scene.settle(lambda: gone(scene, name), seconds=120)
            assert running.metric(ended) == 1

        run_controller(tmp_path, scenario)

    def test_an_instance_stays_while_the_pods_of_its_node_cannot_be_listed(self, tmp_path):
        """The watch may not have shown a pod yet: no answer is not the answer that there is none."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.pods(), seconds=30)

            def lists_its_pods(request):
                selector = request.query.get("fieldSelector", "")
                return selector == f"spec.nodeName={name}" and "watch" not in request.query

            fault = RequestFault(matches=lists_its_pods, status=500, times=None)
            scene.cluster.frontend.faults.add(fault)
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(90)
            assert cloud(scene, tmp_path)["terminated"] == []
            assert names(scene.nodes()) == names(scene.claims()) == {name}

            scene.cluster.frontend.faults.remove(fault)
            await scene.settle(lambda: gone(scene, name), seconds=120)

        run_controller(tmp_path, scenario)

    def test_an_instance_stays_while_a_pod_of_its_node_cannot_be_parsed(self, tmp_path):
        """Nobody knows whether that pod must be evicted."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: not scene.pods(), seconds=30)
            scene.cluster.apply([unreadable_pod(name)])
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(90)
            assert cloud(scene, tmp_path)["terminated"] == []
            assert names(scene.nodes()) == names(scene.claims()) == {name}
            assert any("it has a pod that cannot be parsed" in text for text in blocked(scene))

            scene.cluster.delete(PODS, "odd", namespace="default")
            await scene.settle(lambda: gone(scene, name), seconds=300)

        run_controller(tmp_path, scenario)

    def test_a_node_that_is_not_ours_is_ignored(self, tmp_path):
        """Case 73."""
        theirs = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "theirs", "finalizers": ["karpenter.sh/termination"]},
            "spec": {"providerID": "other://1"},
        }

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), theirs])
            scene.start(WITHOUT_ELECTION)
            await scene.cluster.clock.sleep(5)
            scene.cluster.delete(NODES, "theirs")
            await scene.cluster.clock.sleep(60)

            (node,) = scene.nodes()
            assert node["metadata"]["finalizers"] == ["karpenter.sh/termination"]
            assert not any("karpenter" in t["key"] for t in node["spec"].get("taints") or ())

        run_controller(tmp_path, scenario)

    def test_a_budget_holds_the_node_and_is_named(self, tmp_path):
        """Cases 82, 100: until the pod may be evicted."""

        async def scenario(scene):
            running, name = await one_node(
                scene, pool(), budget("keep", "web", minAvailable=1), deployment("web", 1)
            )
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(300)
            assert name in names(scene.nodes())
            assert len(scene.pods("Running")) == 1
            assert running.metric('karpenter_pods_eviction_requests_total{code="429"}') > 5
            (pod,) = names(scene.pods())
            text = (
                f"Failed to drain node, evicting pod violates a PDB (Pod=default/{pod}): "
                "PodDisruptionBudget default/keep"
            )
            assert text in messages(scene, "FailedDraining")

            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            await scene.settle(lambda: gone(scene, name), seconds=60)

        run_controller(tmp_path, scenario)

    def test_two_budgets_are_both_named(self, tmp_path):
        """Case 101."""

        async def scenario(scene):
            budgets = [budget(name, "web", maxUnavailable=1) for name in ("one", "two")]
            running, name = await one_node(scene, pool(), *budgets, deployment("web", 1))
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(300)

            assert name in names(scene.nodes())
            assert running.metric('karpenter_pods_eviction_requests_total{code="500"}') > 5
            assert any(
                "eviction does not support multiple PDBs" in message
                and message.endswith(": PodDisruptionBudgets default/one, default/two")
                for message in messages(scene, "FailedDraining")
            )

        run_controller(tmp_path, scenario)

    def test_an_unresponsive_node_without_an_instance_is_released_undrained(self, tmp_path):
        """Case 85: while its kubelet spoke it was believed."""

        async def scenario(scene):
            _, name = await one_node(
                scene, pool(), budget("keep", "web", minAvailable=1), deployment("web", 1)
            )
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(30)
            forget_instances(tmp_path)
            await scene.cluster.clock.sleep(30)
            assert name in names(scene.nodes())

            scene.cluster.kubelets.fail(name)
            await scene.settle(lambda: gone(scene, name), seconds=60)

        run_controller(tmp_path, scenario)

    def test_a_pod_that_never_ends_is_ignored_after_a_minute(self, tmp_path):
        """Case 86: a foreign finalizer keeps it."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            (pod,) = names(scene.pods())
            patch = {"metadata": {"finalizers": [FOREIGN]}}
            scene.cluster.server.registry.patch(PODS, patch, pod, "default")
            started_at = scene.cluster.clock.monotonic()
            scene.cluster.delete(NODES, name)
            await scene.settle(lambda: gone(scene, name), seconds=200)

            assert 60 <= scene.cluster.clock.monotonic() - started_at <= 120

        run_controller(tmp_path, scenario)

    def test_an_attached_volume_holds_the_node(self, tmp_path):
        """Case 93: its event names it; only the cluster detaches."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.apply([attachment("va-1", name)])
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(120)
            (claim,) = (c for c in scene.claims() if c["metadata"]["name"] == name)
            assert conditions(claim)["VolumesDetached"] == ("Unknown", "AwaitingVolumeDetachment")
            assert messages(scene, "AwaitingVolumeDetachment") == {
                "Awaiting deletion of bound volumeattachments (va-1)"
            }
            assert len(scene.cluster.list(VOLUME_ATTACHMENTS)) == 1

            scene.cluster.delete(VOLUME_ATTACHMENTS, "va-1")
            await scene.settle(lambda: gone(scene, name), seconds=60)

        run_controller(tmp_path, scenario)


def blocked(scene):
    """Return the texts of Events that a node is not drained."""
    return set(messages(scene, "FailedDraining"))


class TestDeadline:
    def test_a_deadline_that_cannot_be_read_is_named_and_holds_the_node(self, tmp_path):
        """A user or a tool has written it; nobody knows which pods have to go."""
        key = "karpenter.sh/nodeclaim-termination-timestamp"

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            registry = scene.cluster.server.registry
            registry.patch(NODE_CLAIMS, {"metadata": {"annotations": {key: "soon"}}}, name)
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(90)
            assert names(scene.nodes()) == {name}
            (text,) = blocked(scene)
            assert f'NodeClaim {name}: annotation {key} is "soon"' in text

            registry.patch(NODE_CLAIMS, {"metadata": {"annotations": {key: None}}}, name)
            await scene.settle(lambda: gone(scene, name), seconds=300)

        run_controller(tmp_path, scenario)

    def test_a_grace_period_outweighs_budgets_and_annotations(self, tmp_path):
        """Cases 70, 88, 89, 95, 103: pods have their own grace period before the deadline."""

        async def scenario(scene):
            protected = deployment("web", 1, terminationGracePeriodSeconds=30)
            metadata = protected["spec"]["template"]["metadata"]
            metadata["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            _, name = await one_node(
                scene,
                pool(template={"terminationGracePeriod": "5m"}),
                budget("keep", "web", minAvailable=1),
                protected,
            )
            scene.cluster.apply([attachment("va-1", name)])
            (pod,) = names(scene.pods())
            started_at = scene.cluster.clock.monotonic()
            scene.cluster.delete(NODES, name)
            await scene.settle(lambda: pod not in names(scene.pods()), seconds=400)
            assert 269 <= scene.cluster.clock.monotonic() - started_at <= 275
            await scene.settle(lambda: gone(scene, name), seconds=60)
            assert 299 <= scene.cluster.clock.monotonic() - started_at <= 310, (
                "instants are whole seconds"
            )

            (text,) = messages(scene, "Disrupted")
            assert "of its 30 terminationGracePeriodSeconds" in text
            told = {
                event["involvedObject"]["kind"]
                for event in scene.events("TerminationGracePeriodExpiring")
            }
            assert told == {"Node", "NodeClaim"}

        run_controller(tmp_path, scenario)


class TestForeignFinalizers:
    def test_foreign_finalizer_on_a_node_keeps_node_and_claim_without_the_instance(self, tmp_path):
        """Pods have moved, our finalizer is off the Node, and the claim goes with the Node."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            (node,) = scene.nodes()
            finalizers = [FOREIGN, *node["metadata"]["finalizers"]]
            scene.cluster.server.registry.patch(
                NODES, {"metadata": {"finalizers": finalizers}}, name, ""
            )
            scene.cluster.delete(NODES, name)

            def held(objects):
                return next(each for each in objects if each["metadata"]["name"] == name)

            await scene.settle(
                lambda: held(scene.nodes())["metadata"]["finalizers"] == [FOREIGN], seconds=60
            )
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
            await scene.cluster.clock.sleep(60)
            assert len(cloud(scene, tmp_path)["instances"]) == 1
            assert conditions(held(scene.claims()))["InstanceTerminating"][0] == "True"
            scene.cluster.server.registry.patch(NODES, {"metadata": {"finalizers": None}}, name, "")
            await scene.settle(lambda: gone(scene, name), seconds=60)
            assert name not in names(scene.claims())

        run_controller(tmp_path, scenario)

    def test_foreign_finalizer_on_a_claim_keeps_only_the_claim(self, tmp_path):
        """The next claim launches, and goes, as if nothing were."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            (claim,) = scene.claims()
            finalizers = [FOREIGN, *claim["metadata"]["finalizers"]]
            scene.cluster.server.registry.patch(
                NODE_CLAIMS, {"metadata": {"finalizers": finalizers}}, name, ""
            )
            scene.cluster.delete(NODE_CLAIMS, name)
            await scene.settle(lambda: name not in names(scene.nodes()), seconds=60)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
            (second,) = names(scene.nodes())
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            scene.cluster.delete(NODE_CLAIMS, second)
            await scene.settle(lambda: not scene.nodes(), seconds=60)

            (held,) = scene.claims()
            assert held["metadata"]["finalizers"] == [FOREIGN]
            assert cloud(scene, tmp_path)["instances"] == []

        run_controller(tmp_path, scenario)


class TestOutOfService:
    @pytest.mark.parametrize("asked_for", [True, False])
    def test_a_failed_node_is_tainted_out_of_service_when_configured(self, tmp_path, asked_for):
        """It then stays until its volumes are let go of; without the setting it just goes."""

        async def scenario(scene):
            _, name = await one_node(scene, pool(), deployment("web", 1))
            scene.cluster.apply([attachment("va-1", name)])
            scene.cluster.kubelets.fail(name)
            forget_instances(tmp_path)
            scene.cluster.delete(NODES, name)
            await scene.cluster.clock.sleep(30)
            taints = {
                (taint["key"], taint.get("value"), taint["effect"])
                for node in scene.nodes()
                if node["metadata"]["name"] == name
                for taint in node["spec"].get("taints") or ()
            }
            mark = ("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")
            assert (mark in taints) is asked_for
            assert (name in names(scene.nodes())) is asked_for

            scene.cluster.delete(VOLUME_ATTACHMENTS, "va-1")
            await scene.settle(lambda: gone(scene, name), seconds=60)

        run_controller(
            tmp_path, scenario, arguments=[f"--out-of-service-taint={str(asked_for).lower()}"]
        )


class TestInstancesThatMayNotBeTerminated:
    def test_refused_termination_delays_no_other_and_gets_events(self, tmp_path):
        """It ends once the cloud permits it."""
        faults = tmp_path / "faults.json"
        faults.write_text("[]")

        async def scenario(scene):
            apart = {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "labelSelector": {"matchLabels": {"app": "web"}},
                            "topologyKey": "kubernetes.io/hostname",
                        }
                    ]
                }
            }
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 2, affinity=apart)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.pods("Running")) == 2, seconds=60)
            kept, other = sorted(names(scene.claims()))
            faults.write_text(json.dumps([{"fault": "protected", "nodeClaims": [kept]}]))
            scene.cluster.scale(DEPLOYMENTS, "web", 0)
            for name in (kept, other):
                scene.cluster.delete(NODE_CLAIMS, name)

            await scene.settle(lambda: gone(scene, other), seconds=60)
            await scene.cluster.clock.sleep(600)

            assert names(scene.claims()) == names(scene.nodes()) == {kept}
            told = scene.events("InstanceTerminationRefused")
            assert {event["involvedObject"]["kind"] for event in told} == {"NodeClaim", "Node"}
            assert {event["involvedObject"]["name"] for event in told} == {kept}
            assert [event.get("count", 1) for event in told] == [1, 1]
            assert all("is protected from termination" in event["message"] for event in told)

            faults.write_text("[]")
            await scene.settle(lambda: gone(scene, kept), seconds=60)

        run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])


class RarelyPolled(KwokProvider):
    """A cloud that permits a call for an ending instance every minute."""

    def __init__(self):
        super().__init__()
        self.fetches = 0

    @hookimpl
    def karpenter_fetch_instances(self, provider_ids):
        self.fetches += 1
        return KwokProvider.karpenter_fetch_instances(self, provider_ids)

    @hookimpl
    def karpenter_provider_info(self):
        periods = PollingPeriods(termination=timedelta(minutes=1))
        return replace(KwokProvider.karpenter_provider_info(self), polling_periods=periods)


def test_provider_sets_how_often_an_ending_instance_is_polled(tmp_path):
    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1, cpu="3")])
        scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)
        (claim,) = scene.claims()
        scene.cluster.delete(NODE_CLAIMS, claim["metadata"]["name"])
        await scene.cluster.clock.sleep(300)
        calls = [
            call["at"]
            for call in cloud(scene, tmp_path)["calls"]
            if call["operation"] == "terminate" and call["subject"] == claim["status"]["providerID"]
        ]
        pauses = [round(second - first) for first, second in pairwise(calls)]
        # The written condition and the deleted Node start a call each.
        assert pauses == [0, 60, 60, 60, 0]

    run_controller(
        tmp_path,
        scenario,
        arguments=["--kwok-termination-delay=3m"],
        plugins={"kwok": RarelyPolled()},
    )


def test_rare_polls_of_a_silent_node_delay_no_deadline(tmp_path):
    """Its pods are deleted in time, and its provider is asked no more often than it permits."""
    provider = RarelyPolled()

    async def scenario(scene):
        protected = deployment("web", 1, terminationGracePeriodSeconds=30)
        metadata = protected["spec"]["template"]["metadata"]
        metadata["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
        _, name = await one_node(scene, pool(template={"terminationGracePeriod": "2m"}), protected)
        scene.cluster.apply([attachment("va-1", name)])
        (pod,) = names(scene.pods())
        scene.cluster.kubelets.fail(name)
        await scene.cluster.clock.sleep(60)
        started_at = scene.cluster.clock.monotonic()
        scene.cluster.delete(NODES, name)

        def is_deleted():
            return any(
                "deletionTimestamp" in each["metadata"]
                for each in scene.pods()
                if each["metadata"]["name"] == pod
            )

        await scene.settle(is_deleted, seconds=200)
        assert 89 <= scene.cluster.clock.monotonic() - started_at <= 95
        assert provider.fetches == 2
        await scene.settle(lambda: name not in names(scene.nodes()), seconds=200)
        # The volume is given up at the deadline, and the ending instance is polled a minute later.
        assert 175 <= scene.cluster.clock.monotonic() - started_at <= 190

    run_controller(tmp_path, scenario, plugins={"kwok": provider})
