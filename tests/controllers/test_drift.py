"""The drift controller schedules its checks (cases 126-140)."""

from __future__ import annotations

import asyncio
import json

import pytest

from karpenter_core.controllers.nodeclaim import drift as controller
from karpenter_core.errors import CloudProviderError, NodeClaimNotFoundError
from karpenter_core.kube.resources import custom_kind
from karpenter_core.kube.wire.codecs import NODE_CLAIMS, NODE_POOLS
from karpenter_core.provider.contract import DriftFinding, NodeClassHash
from karpenter_core.provider.markers import hookimpl
from karpenter_core.sim.faults import RequestFault, matching
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_kwok.api import KWOKNodeClass
from karpenter_provider_kwok.plugin import KwokProvider
from tests.controllers.whole_controller import NODE_CLASS, cloud, deployment, node_pool

NODE_CLASSES = custom_kind(KWOKNodeClass.resource)
KEPT = {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}
"""Nothing is disrupted, so that what is found can be looked at."""
ONE_POD_A_NODE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
        ]
    }
}


class Cloud:
    """A provider with scripted answers that records its calls."""

    def __init__(self):
        self.answer = lambda claim: None
        self.asked = []
        self.types = None
        self.version = ""

    def plugin(self):
        provider = KwokProvider()

        def hashed(node_class):
            return NodeClassHash(value=str(node_class.spec), version=self.version)

        def detect(node_claims):
            self.asked.append(sorted(claim.name for claim in node_claims))
            return [self.answer(claim) for claim in node_claims]

        def types():
            sold = KwokProvider.karpenter_list_instance_types(provider)
            return sold if self.types is None else self.types(sold)

        if self.version:
            provider.karpenter_hash_node_class = hookimpl(hashed)
        provider.karpenter_detect_drift = hookimpl(detect)
        provider.karpenter_list_instance_types = hookimpl(types)
        return provider


def run_controller(folder, scenario, *, cloud=None, nodes=3, pool=None):
    """Run a scenario that begins with some nodes, one pod on each."""
    cloud = cloud or Cloud()

    async def run_scenario():
        async with ControllerHarness(lambda: {"kwok": cloud.plugin()}, folder=folder) as scene:
            workload = deployment("web", nodes, affinity=ONE_POD_A_NODE)
            scene.cluster.apply([NODE_CLASS, pool or node_pool(disruption=KEPT), workload])
            scene.running = scene.start("--disable-leader-election")
            await scene.settle(lambda: len(scene.pods("Running")) == nodes, seconds=60)
            await scene.cluster.clock.sleep(5)
            await scenario(scene, cloud)

    run_virtual(run_scenario())


def drifted(scene) -> list[str]:
    """The reasons of all drifted claims."""
    return sorted(
        condition["reason"]
        for claim in scene.claims()
        for condition in claim["status"]["conditions"]
        if condition["type"] == "Drifted" and condition["status"] == "True"
    )


def consolidatable(scene) -> int:
    return sum(
        condition["type"] == "Consolidatable"
        for claim in scene.claims()
        for condition in claim["status"]["conditions"]
    )


def relabel(scene, labels):
    """Change the labels of the pool's template; None takes them away."""
    metadata = None if labels is None else {"labels": labels}
    patch = {"spec": {"template": {"metadata": metadata}}}
    scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")


def test_a_template_change_is_drift_until_reverted(tmp_path):
    """On every claim, with one patch of the status each."""

    async def scenario(scene, cloud):
        before = scene.running.process.kube_writer.counts["patch", "NodeClaim", "status"]
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 3, seconds=5)
        await scene.cluster.clock.sleep(60)
        assert (
            scene.running.process.kube_writer.counts["patch", "NodeClaim", "status"] == before + 3
        )

        relabel(scene, None)
        await scene.settle(lambda: drifted(scene) == [], seconds=5)

    run_controller(tmp_path, scenario)


def test_a_claim_that_cannot_be_judged_hides_no_drift_of_others(tmp_path, monkeypatch):
    """It is set aside with an Event; the next pass tries it again."""
    odd, genuine = [], controller.local_drift

    def judging(claim, *rest, **named):
        if claim.name in odd:
            raise ValueError("odd claim")
        return genuine(claim, *rest, **named)

    async def scenario(scene, cloud):
        odd.append(scene.claims()[0]["metadata"]["name"])
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 2, seconds=5)
        (reported,) = scene.events("JudgementFailed")
        assert (reported["involvedObject"]["kind"], reported["involvedObject"]["name"]) == (
            "NodeClaim", odd[0],
        )  # fmt: skip

        odd.clear()
        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 3, seconds=330)

    monkeypatch.setattr(controller, "local_drift", judging)
    run_controller(tmp_path, scenario)


def test_only_claims_that_new_requirements_exclude_drift(tmp_path):
    """Case 133."""

    async def scenario(scene, cloud):
        name = scene.claims()[0]["metadata"]["name"]
        labels = {"metadata": {"labels": {"kubernetes.io/os": "windows"}}}
        scene.cluster.server.registry.patch(NODE_CLAIMS, labels, name, "")
        pool = scene.pool("general")
        requirements = pool["spec"]["template"]["spec"]["requirements"]
        excluding = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
        template = {"spec": {"requirements": [*requirements, excluding]}}
        patch = {"spec": {"template": template}}
        scene.cluster.server.registry.patch(NODE_POOLS, patch, "general", "")

        await scene.settle(lambda: drifted(scene) == ["RequirementsDrifted"], seconds=5)

    run_controller(tmp_path, scenario)


def test_the_provider_checks_all_claims_in_one_call(tmp_path):
    """Every five minutes; no longer drifted is removed (cases 126 and 131)."""

    async def scenario(scene, cloud):
        names = sorted(claim["metadata"]["name"] for claim in scene.claims())
        asked = len(cloud.asked)
        cloud.answer = lambda claim: (
            None if claim.name == names[0] else DriftFinding(reason="ImageDrifted")
        )
        await scene.cluster.clock.sleep(310)
        assert drifted(scene) == ["ImageDrifted"] * 2
        assert cloud.asked[asked:] == [names]

        cloud.answer = lambda claim: None
        await scene.cluster.clock.sleep(310)
        assert drifted(scene) == []
        assert cloud.asked[asked:] == [names, names]

    run_controller(tmp_path, scenario)


def test_a_change_of_the_nodeclass_checks_drift_at_once(tmp_path):
    """But not a condition that is stamped on it."""

    async def scenario(scene, cloud):
        cloud.answer = lambda claim: DriftFinding(reason="ImageDrifted")
        delay = {"spec": {"nodeRegistrationDelay": "1s"}}
        scene.cluster.apply([{**NODE_CLASS, **delay}])

        await scene.settle(lambda: drifted(scene) == ["ImageDrifted"] * 3, seconds=5)

    run_controller(tmp_path, scenario)


def test_a_changed_nodeclass_makes_its_claims_drift(tmp_path):
    """By the provider's hash; a new version of the hash function does not."""
    cloud = Cloud()
    cloud.version = "v1"

    async def scenario(scene, cloud):
        hashes = {annotation(claim, "-hash") for claim in scene.claims()}
        assert len(hashes) == 1
        scene.cluster.apply([{**NODE_CLASS, "spec": {"nodeRegistrationDelay": "1s"}}])
        await scene.settle(lambda: drifted(scene) == ["NodeClassDrift"] * 3, seconds=5)

        scene.cluster.apply([{**NODE_CLASS, "spec": {"nodeRegistrationDelay": None}}])
        await scene.settle(lambda: drifted(scene) == [], seconds=5)

        await scene.running.stop()
        cloud.version = "v2"
        scene.start("--disable-leader-election")
        await scene.settle(
            lambda: {annotation(claim, "-hash-version") for claim in scene.claims()} == {"v2"},
            seconds=30,
        )
        await scene.cluster.clock.sleep(310)
        assert drifted(scene) == []

    run_controller(tmp_path, scenario, cloud=cloud)


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_instance_of_an_earlier_launch_has_the_hash_that_it_was_launched_with(
    tmp_path, is_killed
):
    """Its NodeClass changed before the launch was repeated: the node is outdated, and shows it."""
    file = tmp_path / "faults.json"
    file.write_text(json.dumps([{"fault": "lost-reply", "operation": "launch", "count": 1}]))
    hashing = Cloud()
    hashing.version = "v1"

    def is_tried(scene):
        return any(
            (each["type"], each["reason"]) == ("Launched", "LaunchFailed")
            for claim in scene.claims()
            for each in claim.get("status", {}).get("conditions", ())
        )

    async def run_scenario():
        async with ControllerHarness(
            lambda: {"kwok": hashing.plugin()},
            folder=tmp_path,
            arguments=[f"--kwok-faults-file={file}"],
        ) as scene:
            scene.cluster.apply([NODE_CLASS])
            first = scene.start("--disable-leader-election")
            await asyncio.sleep(5)
            scene.cluster.apply([node_pool(disruption=KEPT), deployment("web", 1)])
            await scene.settle(lambda: is_tried(scene), seconds=60)
            if is_killed:
                await first.kill()
            scene.cluster.apply([{**NODE_CLASS, "spec": {"nodeRegistrationDelay": "1s"}}])
            if is_killed:
                scene.start("--disable-leader-election")
            await scene.settle(lambda: len(scene.pods("Running")) == 1, seconds=60)

            assert list(cloud(scene, tmp_path)["launches"].values()) == [1]
            await scene.settle(lambda: drifted(scene) == ["NodeClassDrift"], seconds=30)

    run_virtual(run_scenario())


def annotation(claim, ending) -> str:
    return claim["metadata"]["annotations"][f"karpenter.kwok.sh/kwoknodeclass{ending}"]


def test_a_failed_drift_query_changes_nothing_and_is_repeated(tmp_path):
    """An instance that is gone is fine; the claims beside it are judged all the same."""

    async def scenario(scene, cloud):
        cloud.answer = lambda claim: DriftFinding(reason="ImageDrifted")
        await scene.cluster.clock.sleep(310)
        names = sorted(claim["metadata"]["name"] for claim in scene.claims())

        def answer(claim):
            if claim.name == names[0]:
                return NodeClaimNotFoundError("gone")
            return CloudProviderError("try later") if claim.name == names[1] else None

        cloud.answer = answer
        cloud.asked.clear()
        await scene.cluster.clock.sleep(300)
        assert drifted(scene) == ["ImageDrifted"] * 2
        assert cloud.asked[0] == names
        assert len(cloud.asked) < 15

        cloud.answer = lambda claim: None
        await scene.cluster.clock.sleep(40)
        assert drifted(scene) == ["ImageDrifted"]  # of the one that is gone

    run_controller(tmp_path, scenario)


def test_an_instance_type_without_offerings_drifts_after_an_hour(tmp_path):
    """Once found, it is checked again after half an hour."""

    async def scenario(scene, cloud):
        (claim,) = scene.claims()
        kind = claim["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        cloud.types = lambda sold: tuple(item for item in sold if item.name != kind)
        await scene.cluster.clock.sleep(50 * 60)
        assert drifted(scene) == []
        await scene.cluster.clock.sleep(20 * 60)
        assert drifted(scene) == ["InstanceTypeNotFound"]

        cloud.types = None
        await scene.cluster.clock.sleep(10 * 60)
        assert drifted(scene) == []
        cloud.types = lambda sold: tuple(item for item in sold if item.name != kind)
        await scene.cluster.clock.sleep(15 * 60)
        assert drifted(scene) == []
        await scene.cluster.clock.sleep(30 * 60)
        assert drifted(scene) == ["InstanceTypeNotFound"]

    run_controller(tmp_path, scenario, nodes=1)


def test_drift_and_rest_are_shown_beside_each_other(tmp_path):
    """Case 137: both come and both go."""

    async def scenario(scene, cloud):
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: drifted(scene) != [] and consolidatable(scene) == 1, seconds=5)

        relabel(scene, None)
        never = {"spec": {"disruption": {**KEPT, "consolidateAfter": "Never"}}}
        scene.cluster.server.registry.patch(NODE_POOLS, never, "general", "")
        await scene.settle(lambda: drifted(scene) == [] and consolidatable(scene) == 0, seconds=5)

    run_controller(tmp_path, scenario, nodes=1)


def test_claims_of_a_pool_that_is_gone_are_not_judged(tmp_path):
    """Case 130."""

    async def scenario(scene, cloud):
        cloud.answer = lambda claim: DriftFinding(reason="ImageDrifted")
        labels = {"metadata": {"labels": {"karpenter.sh/nodepool": "gone"}}}
        for claim in scene.claims():
            scene.cluster.server.registry.patch(NODE_CLAIMS, labels, claim["metadata"]["name"], "")
        await scene.cluster.clock.sleep(320)
        assert drifted(scene) == []

    run_controller(tmp_path, scenario)


def test_drift_is_detected_after_a_nodeclass_was_absent(tmp_path):
    """Its finalizers were removed; claims are checked again once there is one of its name."""

    async def scenario(scene, cloud):
        registry = scene.cluster.server.registry
        registry.patch(NODE_CLASSES, {"metadata": {"finalizers": None}}, "default", "")
        scene.cluster.delete(NODE_CLASSES, "default")
        await scene.cluster.clock.sleep(10)
        cloud.asked.clear()
        await scene.cluster.clock.sleep(310)
        assert cloud.asked == [], "unknown without a NodeClass"
        scene.cluster.apply([NODE_CLASS])
        await scene.cluster.clock.sleep(10)
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 2, seconds=30)
        assert all(cloud.asked), "no query without claims"

    run_controller(tmp_path, scenario, nodes=2)


def test_another_hash_version_causes_no_drift(tmp_path):
    """Case 140: hashes of another version are rewritten; who had drifted before stays drifted."""

    async def scenario(scene, cloud):
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: len(drifted(scene)) == 2, seconds=5)
        await scene.running.stop()
        older = {
            "karpenter.sh/nodepool-hash": "1",
            "karpenter.sh/nodepool-hash-version": "test",
        }
        registry = scene.cluster.server.registry
        registry.patch(NODE_POOLS, {"metadata": {"annotations": older}}, "general", "")
        claims = scene.claims()
        for claim in claims:
            name = claim["metadata"]["name"]
            registry.patch(NODE_CLAIMS, {"metadata": {"annotations": older}}, name, "")
        healthy = claims[0]
        kept = [c for c in healthy["status"]["conditions"] if c["type"] != "Drifted"]
        registry.patch(
            NODE_CLAIMS, {"status": {"conditions": kept}}, healthy["metadata"]["name"], "",
            part="status",
        )  # fmt: skip

        scene.start("--disable-leader-election")
        await scene.cluster.clock.sleep(30)

        assert drifted(scene) == ["NodePoolDrifted"]
        hashes = {
            c["metadata"]["annotations"]["karpenter.sh/nodepool-hash"] for c in scene.claims()
        }
        current = scene.pool("general")["metadata"]["annotations"]["karpenter.sh/nodepool-hash"]
        assert hashes == {"1", current}

    run_controller(tmp_path, scenario, nodes=2)


@pytest.mark.parametrize("statuses", [(409, 503), (403,), (403, 403, 403)])
def test_a_write_that_fails_is_made_again(tmp_path, statuses):
    """After a conflict, an overload, or a refusal; the other claims have theirs meanwhile."""

    async def scenario(scene, cloud):
        patches = matching("PATCH", "nodeclaims/")
        faults = scene.cluster.frontend.faults
        for status in statuses:
            faults.add(RequestFault(matches=patches, status=status))
        relabel(scene, {"team": "a"})

        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 3, seconds=60)

    run_controller(tmp_path, scenario)


def test_drift_may_be_shown_and_not_acted_on(tmp_path):
    """As long as the pool says so; after that the nodes are replaced."""
    free = {"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    pool = node_pool(disruption=free)
    pool["metadata"]["annotations"] = {"karpenter.sh/drift": "detect-only"}

    def names(scene):
        return {claim["metadata"]["name"] for claim in scene.claims()}

    async def scenario(scene, cloud):
        before = names(scene)
        relabel(scene, {"team": "a"})
        await scene.settle(lambda: drifted(scene) == ["NodePoolDrifted"] * 2, seconds=5)
        await scene.cluster.clock.sleep(600)
        assert names(scene) == before
        assert drifted(scene) == ["NodePoolDrifted"] * 2

        acted_on = {"metadata": {"annotations": {"karpenter.sh/drift": None}}}
        scene.cluster.server.registry.patch(NODE_POOLS, acted_on, "general", "")
        await scene.settle(
            lambda: (
                not names(scene) & before
                and len(scene.nodes()) == 2
                and len(scene.pods("Running")) == 2
            ),
            seconds=600,
        )
        assert drifted(scene) == []

    run_controller(tmp_path, scenario, nodes=2, pool=pool)
