"""Claims go from creation to initialised nodes (acceptance cases 29-60).

The decision of each pass is tested with the pure steps: launching in `tests/lifecycle/nodeclaim/test_launch.py`
(29-32, 55), registration, initialisation and liveness in `test_progress.py` (33-59), the health of
pools in `tests/lifecycle/nodepool/test_registration_health.py` (39, 60). Gates on devices (case 54) are not there yet.
"""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from karpenter_core.errors import CloudProviderError, InvalidError
from karpenter_core.kube.resources import NODES
from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.provider.contract import RegistrationGate
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
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
UNREGISTERED = "karpenter.sh/unregistered"


def pool(**options):
    return node_pool(disruption=KEEP, **options)


def names(objects):
    return {item["metadata"]["name"] for item in objects}


def conditions(claim):
    result = claim.get("status", {}).get("conditions", ())
    return {
        item["type"]: (item["status"], item["reason"], item.get("message", "")) for item in result
    }


def status_of(claim, condition):
    return conditions(claim).get(condition, ("", "", ""))[0]


def taints(node):
    return {taint["key"] for taint in node["spec"].get("taints") or ()}


def faults(folder, *found):
    path = folder / "faults.json"
    path.write_text(json.dumps(list(found)))
    return f"--kwok-faults-file={path}"


def own_claim(**requests):
    """A claim that a user writes: it says of which pool it is, but no pool owns it."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "own", "labels": {"karpenter.sh/nodepool": "general"}},
        "spec": {
            "requirements": [],
            "resources": {"requests": requests},
            "nodeClassRef": {
                "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default",
            },
        },
    }  # fmt: skip


def health(scene):
    status = scene.pool("general").get("status", {})
    result = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return result.get("NodeRegistrationHealthy")


class TestLaunch:
    def test_claim_of_a_foreign_class_is_ignored(self, tmp_path):
        """Case 29: no call, no finalizer, no condition."""
        theirs = {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "theirs"},
            "spec": {
                "requirements": [],
                "nodeClassRef": {"group": "example.com", "kind": "OtherClass", "name": "default"},
            },
        }

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), theirs])
            scene.start(WITHOUT_ELECTION)
            await scene.cluster.clock.sleep(60)

            (claim,) = scene.claims()
            assert "finalizers" not in claim["metadata"]
            assert not claim.get("status", {}).get("conditions")
            assert cloud(scene, tmp_path)["launches"] == {}

        run_controller(tmp_path, scenario)

    def test_a_claim_that_lost_its_finalizer_gets_it_back_before_it_is_launched(self, tmp_path):
        """Case 30: another client wrote the claim without."""
        order = []

        async def note(op):
            if op.kind.kind in {"NodeClaim", "Node"} and op.stage == "request":
                order.append((op.verb, op.kind.kind, op.subresource))

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), own_claim()])
            scene.start(WITHOUT_ELECTION, faults=note)
            await scene.settle(lambda: bool(scene.nodes()), seconds=60)

            assert order.index(("patch", "NodeClaim", "")) < order.index(("create", "Node", ""))
            assert "karpenter.sh/termination" in scene.claims()[0]["metadata"]["finalizers"]

        run_controller(tmp_path, scenario)

    def test_a_claim_without_capacity_is_deleted_and_counted(self, tmp_path):
        """Case 31."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            running = scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: bool(scene.events("InsufficientCapacityError")), seconds=30)
            series = (
                'karpenter_nodeclaims_disrupted_total{capacity_type="",consolidation_policy="",'
                'nodepool="general",reason="insufficient_capacity",termination_mode="graceful"}'
            )
            assert running.metric(series) == 1.0
            (event,) = scene.events("InsufficientCapacityError")
            assert event["type"] == "Warning"

        run_controller(
            tmp_path, scenario, arguments=[faults(tmp_path, {"fault": "stock-out", "count": 1})]
        )

    def test_a_claim_without_its_node_class_is_deleted_and_reported(self, tmp_path):
        """Case 31: nothing is asked of the cloud."""

        async def scenario(scene):
            claim = own_claim()
            claim["spec"]["nodeClassRef"]["name"] = "nowhere"
            scene.cluster.apply([NODE_CLASS, pool(), claim])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: not scene.claims(), seconds=30)

            (event,) = scene.events("NodeClassNotReady")
            assert event["type"] == "Warning"
            assert "KWOKNodeClass nowhere is not found" in json.dumps(event)
            assert cloud(scene, tmp_path)["launches"] == {}

        run_controller(tmp_path, scenario)

    def test_a_launch_that_fails_shows_why(self, tmp_path):
        """Case 32: the claim has no node either, and says so."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(
                lambda: any(conditions(c).get("Launched", ("",) * 3)[1] == "LaunchFailed"
                            for c in scene.claims()),
                seconds=30,
            )  # fmt: skip
            result = conditions(scene.claims()[0])
            assert result["Launched"][0] == result["Registered"][0] == "Unknown"
            assert result["Registered"][1:] == ("NodeNotFound", "Node not registered with cluster")
            assert result["Ready"][0] == "Unknown"

        throttled = {"fault": "throttle", "operation": "launch"}
        run_controller(tmp_path, scenario, arguments=[faults(tmp_path, throttled)])


class TestRegistration:
    def test_a_node_gets_the_labels_and_taints_of_its_claim(self, tmp_path):
        """Cases 33, 34, 36, 37, 38, 49, 52: and keeps what was taken off again."""
        template = {
            "taints": [{"key": "example.com/team", "value": "a", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "example.com/boot", "effect": "NoSchedule"}],
        }
        tolerant = deployment("web", 1, tolerations=[{"operator": "Exists"}])

        async def scenario(scene):
            manifest = pool(template=template)
            manifest["spec"]["template"]["metadata"] = {
                "labels": {"example.com/tier": "gold"},
                "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            }
            scene.cluster.apply([NODE_CLASS, manifest, tolerant])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
            await scene.cluster.clock.sleep(10)
            (node,), (claim,) = scene.nodes(), scene.claims()
            metadata = node["metadata"]
            assert metadata["labels"]["example.com/tier"] == "gold"
            assert metadata["labels"]["karpenter.sh/registered"] == "true"
            assert metadata["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
            assert taints(node) == {"example.com/team", "example.com/boot"}
            assert [owner["uid"] for owner in metadata["ownerReferences"]] == [
                claim["metadata"]["uid"]
            ]
            assert conditions(claim)["Initialized"] == (
                "Unknown",
                "StartupTaintsExist",
                'StartupTaint "example.com/boot:NoSchedule" still exists',
            )
            assert claim["status"]["nodeName"] == metadata["name"]

            kept = [t for t in node["spec"]["taints"] if t["key"] != "example.com/boot"]
            scene.cluster.server.registry.patch(
                NODES, {"spec": {"taints": kept}}, metadata["name"], ""
            )
            await scene.settle(
                lambda: status_of(scene.claims()[0], "Initialized") == "True", seconds=10
            )
            await scene.cluster.clock.sleep(60)
            (node,) = scene.nodes()
            assert taints(node) == {"example.com/team"}
            assert node["metadata"]["labels"]["karpenter.sh/initialized"] == "true"
            assert health(scene) == "True"

        run_controller(tmp_path, scenario)

    def test_a_pool_is_not_judged_by_claims_that_it_does_not_own(self, tmp_path):
        """Cases 40, 71: as after a pool was made anew; amounts may be written in any form."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), own_claim(cpu="0.5", memory="1073741824")])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(
                lambda: status_of(scene.claims()[0], "Initialized") == "True", seconds=60
            )
            await scene.cluster.clock.sleep(10)
            assert health(scene) == "Unknown"

            scene.cluster.delete(NODE_CLAIMS, "own")
            await scene.settle(lambda: not scene.claims() and not scene.nodes(), seconds=60)

        run_controller(tmp_path, scenario)

    def test_a_generation_that_moves_on_is_observed(self, tmp_path):
        """Case 55: also while the claim is being deleted."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)
            (name,) = names(scene.claims())
            scene.cluster.delete(NODE_CLAIMS, name)
            await scene.settle(lambda: "Drained" in conditions(scene.claims()[0]), seconds=10)
            claim = next(c for c in scene.claims() if c["metadata"]["name"] == name)
            generations = {c["observedGeneration"] for c in claim["status"]["conditions"]}
            assert generations == {claim["metadata"]["generation"]}
            assert status_of(claim, "Ready") == "True"

        run_controller(tmp_path, scenario, arguments=["--kwok-termination-delay=30s"])


class Gated(KwokProvider):
    """A cloud that holds nodes back until its gate opens."""

    answers: list

    @hookimpl
    def karpenter_gate_registration(self, node_claim, node):
        del node_claim, node
        answer = self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def play_gated(folder, answers, scenario):
    """Run a scenario with a cloud whose gates answer with the first of these."""

    def plugins():
        provider = Gated()
        provider.answers = answers
        return {"kwok": provider}

    async def run_scenario():
        async with ControllerHarness(plugins, folder=folder) as harness:
            await scenario(harness)

    run_virtual(run_scenario())


class TestGates:
    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (RegistrationGate(name="disk, network"), "disk, network"),
            (CloudProviderError("the cloud is away"), "the cloud is away"),
        ],
    )
    def test_a_gate_holds_the_node_until_it_opens(self, tmp_path, answer, message):
        """Cases 42-46: labels are synced, the taint stays, and every gate is named."""
        answers = [answer]

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(
                lambda: any("Registered" in conditions(c)
                            and conditions(c)["Registered"][1] == "RegistrationHookPending"
                            for c in scene.claims()),
                seconds=30,
            )  # fmt: skip
            (claim,), (node,) = scene.claims(), scene.nodes()
            assert conditions(claim)["Registered"][0] == "Unknown"
            assert message in conditions(claim)["Registered"][2]
            assert UNREGISTERED in taints(node)
            assert "karpenter.sh/registered" not in node["metadata"]["labels"]
            assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "general"
            assert not claim["status"].get("nodeName")

            answers[0] = None
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=90)
            assert UNREGISTERED not in taints(scene.nodes()[0])

        play_gated(tmp_path, answers, scenario)

    def test_an_open_gate_lets_the_node_in_at_once(self, tmp_path):
        """Cases 41, 47."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=30)

        play_gated(tmp_path, [None], scenario)


class TestLiveness:
    @pytest.mark.parametrize(
        ("fault", "arguments", "reason", "kept_seconds", "gone_seconds"),
        [
            ({"fault": "throttle", "operation": "launch"}, (), "launch_timeout", 240, 360),
            (
                {"fault": "throttle", "operation": "launch"},
                ("--launch-timeout=45s",),
                "launch_timeout",
                30,
                60,
            ),
            ({"fault": "failed-node"}, (), "registration_timeout", 840, 960),
            (
                {"fault": "failed-node"},
                ("--registration-timeout=30m",),
                "registration_timeout",
                1740,
                1860,
            ),
        ],
    )
    def test_claims_that_do_not_launch_or_register_are_deleted_in_time(
        self, tmp_path, fault, arguments, reason, kept_seconds, gone_seconds
    ):
        """Cases 56-58: after the time limit, and not before."""

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            running = scene.start(WITHOUT_ELECTION, *arguments)
            await scene.settle(lambda: bool(scene.claims()), seconds=30)
            first = names(scene.claims())
            await scene.cluster.clock.sleep(kept_seconds)
            assert first <= names(scene.claims())
            await scene.cluster.clock.sleep(gone_seconds - kept_seconds)
            assert not first & names(scene.claims())
            counted = [
                line
                for line in _metrics(running)
                if line.startswith("karpenter_nodeclaims_disrupted_total{") and reason in line
            ]
            assert len(counted) == 1

        run_controller(tmp_path, scenario, arguments=[faults(tmp_path, fault)])

    def test_a_claim_whose_node_cannot_be_patched_is_deleted(self, tmp_path):
        """A webhook refuses every change of it; the next one is not refused."""
        refused = set()

        async def refuse(op):
            if (op.verb, op.kind.kind, op.subresource, op.stage) == (
                "patch",
                "Node",
                "",
                "request",
            ):
                refused.add(op.name)
                if len(refused) == 1:
                    raise InvalidError("the webhook says no", status=422)

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION, faults=refuse)
            await scene.settle(lambda: bool(refused), seconds=60)
            (first,) = refused
            await scene.cluster.clock.sleep(840)
            assert first in names(scene.claims())
            await scene.settle(lambda: first not in names(scene.claims()), seconds=180)
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

        run_controller(tmp_path, scenario)

    def test_a_registered_claim_is_never_deleted_by_liveness(self, tmp_path):
        """Case 56: however long it takes to become whole."""

        async def scenario(scene):
            template = {"startupTaints": [{"key": "example.com/boot", "effect": "NoSchedule"}]}
            scene.cluster.apply([NODE_CLASS, pool(template=template), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(
                lambda: any(status_of(c, "Registered") == "True" for c in scene.claims()),
                seconds=30,
            )
            first = names(scene.claims())
            await scene.cluster.clock.sleep(timedelta(hours=1).total_seconds())
            assert first == names(scene.claims())

        run_controller(tmp_path, scenario)

    @pytest.mark.parametrize(
        ("arguments", "annotations", "is_ended"),
        [
            (("--initialization-timeout=20m",), {}, True),
            (("--initialization-timeout=20m", "--pause-disruption=true"), {}, False),
            (("--initialization-timeout=20m",), {"karpenter.sh/do-not-disrupt": "true"}, False),
        ],
    )
    def test_a_node_that_never_initialises_is_replaced_where_a_user_has_set_a_time(
        self, tmp_path, arguments, annotations, is_ended
    ):
        """Its pods would wait for it for ever: its startup taint stays, and they count on it."""

        async def scenario(scene):
            template = {"startupTaints": [{"key": "example.com/boot", "effect": "NoSchedule"}]}
            scene.cluster.apply([NODE_CLASS, pool(template=template), deployment("web", 1)])
            running = scene.start(WITHOUT_ELECTION, *arguments)
            await scene.settle(
                lambda: any(status_of(c, "Registered") == "True" for c in scene.claims()),
                seconds=30,
            )
            (first,) = names(scene.claims())
            marks = {"metadata": {"annotations": annotations}}
            scene.cluster.server.registry.patch(NODE_CLAIMS, marks, first, "")
            await scene.cluster.clock.sleep(1140)
            assert {first} == names(scene.claims())
            await scene.cluster.clock.sleep(180)
            assert (first not in names(scene.claims())) is is_ended
            assert len(scene.claims()) == 1  # the pod has another node, or this one
            ended = [line for line in _metrics(running) if "initialization_timeout" in line]
            assert len(ended) == is_ended

        run_controller(tmp_path, scenario)

    def test_two_failures_make_a_pool_unhealthy_and_one_success_does_not_reset_it(self, tmp_path):
        """Cases 39, 60."""
        path = tmp_path / "faults.json"

        async def scenario(scene):
            scene.cluster.apply([NODE_CLASS, pool(), deployment("web", 1)])
            scene.start(WITHOUT_ELECTION)
            await scene.settle(lambda: health(scene) == "False", seconds=1200)
            path.write_text("[]")
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=1200)
            assert health(scene) == "False"

        throttled = {"fault": "throttle", "operation": "launch"}
        run_controller(tmp_path, scenario, arguments=[faults(tmp_path, throttled)])


def _metrics(running):
    from prometheus_client import generate_latest

    return generate_latest(running.process.metrics.registry).decode().splitlines()
