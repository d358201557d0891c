"""A controller that starts on what Karpenter's own controller for AWS has left changes no node."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from karpenter_core.kube.wire.codecs import NODE_CLAIMS
from karpenter_core.sim.virtual_time import run_virtual
from karpenter_core.testing.harness import ControllerHarness
from karpenter_provider_aws.hashing import HASH_VERSION
from karpenter_provider_aws.plugin import AwsProvider
from karpenter_provider_aws.sdk import ClientLimits
from karpenter_simulated_aws.testing import attempts
from providers.aws.tests.takeover.reference_state import (
    CLUSTER,
    NODE_CLASS_HASH_VERSION,
    NODE_POOL_HASH,
    ReferenceState,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMITS = ClientLimits(connect_seconds=1, read_seconds=5, retries=attempts(2))
ARGUMENTS = (f"--cluster-name={CLUSTER}", "--eks-control-plane")
HOUR = 3600
CHANGES = ("CreateFleet", "TerminateInstances", "RunInstances")


@pytest.fixture
def play(few_types_aws, few_types_shared, tmp_path):
    """Play a story on the reference's state; the controller starts when the story says so."""

    def run(story: Callable[[ReferenceState], Awaitable[None]]) -> None:
        async def scenario() -> None:
            harness = ControllerHarness(
                lambda: {"aws": AwsProvider(limits=LIMITS, shared=few_types_shared)},
                folder=tmp_path,
                arguments=ARGUMENTS,
            )
            async with harness:
                state = ReferenceState(few_types_aws, harness)
                state.node_class()
                state.node_pool()
                few_types_aws.calls.clear()
                await story(state)

        run_virtual(scenario(), epoch=few_types_aws.time())

    return run


STATIC = ("--feature-gates=StaticCapacity=true",)


async def take_over(state: ReferenceState, *arguments: str, seconds: float = HOUR + 600) -> None:
    """Start the controller, and let it work for longer than its slowest check."""
    state.aws.calls.clear()
    state.harness.start(*arguments)
    clock = state.harness.cluster.clock
    for _ in range(int(seconds // 60)):
        state.aws.time.advance(60)
        await clock.sleep(60)


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {
        c["type"]: (c["status"], c["lastTransitionTime"])
        for c in found["status"].get("conditions", ())
    }


def changes(state: ReferenceState) -> list[str]:
    """Return the calls that launched or ended instances; dry runs are none."""
    return [
        action
        for action in CHANGES
        for call in state.aws.calls.of(action)
        if not call.parameters.get("DryRun")
    ]


def test_nodes_in_service_stay_as_they_are(play):
    async def story(state: ReferenceState) -> None:
        names = [f"web-{number}" for number in range(3)]
        for name in names:
            state.running(name)
        before = {o["metadata"]["name"]: copy.deepcopy(o) for o in state.objects("NodeClaim")}
        living = {each.id for each in state.aws.instances.living}

        await take_over(state)

        after = {o["metadata"]["name"]: o for o in state.objects("NodeClaim")}
        assert sorted(after) == names
        for name, claim in after.items():
            assert claim["metadata"]["uid"] == before[name]["metadata"]["uid"]
            assert claim["spec"] == before[name]["spec"]
            assert claim["status"]["providerID"] == before[name]["status"]["providerID"]
            kept = conditions(claim)
            assert kept == {**kept, **conditions(before[name])}, "times of transitions stay too"
            assert "Drifted" not in kept
            assert "DisruptionReason" not in kept
            assert claim["metadata"]["finalizers"] == ["karpenter.sh/termination"]
            assert before[name]["metadata"]["labels"].items() <= claim["metadata"]["labels"].items()
        assert {each.id for each in state.aws.instances.living} == living
        assert changes(state) == []
        nodes = state.objects("Node")
        assert len(nodes) == 3
        assert not any(node["spec"].get("taints") for node in nodes)

    play(story)


def test_hashes_of_node_pools_are_equal_and_those_of_node_classes_get_a_new_version(play):
    """The version moves on the claim with the hash, so that no comparison finds a difference."""

    async def story(state: ReferenceState) -> None:
        state.running("web-0")

        await take_over(state, seconds=600)

        (claim,), (node_class,) = state.objects("NodeClaim"), state.objects("EC2NodeClass")
        ours, theirs = claim["metadata"]["annotations"], node_class["metadata"]["annotations"]
        for key in ("ec2nodeclass-hash", "ec2nodeclass-hash-version"):
            assert ours[f"karpenter.k8s.aws/{key}"] == theirs[f"karpenter.k8s.aws/{key}"]
        assert ours["karpenter.k8s.aws/ec2nodeclass-hash-version"] == HASH_VERSION
        assert HASH_VERSION != NODE_CLASS_HASH_VERSION
        assert ours["karpenter.sh/nodepool-hash"] == NODE_POOL_HASH
        pool = state.harness.pool("web")["metadata"]["annotations"]
        assert pool["karpenter.sh/nodepool-hash"] == NODE_POOL_HASH

    play(story)


def test_a_change_after_the_move_still_drifts_nodes(play):
    """The proof that drift is on, and compares."""

    async def story(state: ReferenceState) -> None:
        state.running("web-0")
        await take_over(state, seconds=600)

        state.harness.cluster.apply(
            [
                {
                    "apiVersion": "karpenter.k8s.aws/v1",
                    "kind": "EC2NodeClass",
                    "metadata": {"name": "default"},
                    "spec": {"detailedMonitoring": True},
                }
            ]
        )
        await state.harness.settle(
            lambda: any("Drifted" in conditions(c) for c in state.objects("NodeClaim")),
            seconds=900,
        )

    play(story)


def test_a_claim_that_drifted_before_keeps_its_reason_until_it_is_compared(play):
    """Its old hash stays, with the new version: a drifted node stays drifted, as Karpenter has it."""

    async def story(state: ReferenceState) -> None:
        state.running("web-0")
        claim = state.find("NodeClaim", "web-0")
        drifted = {
            "type": "Drifted",
            "status": "True",
            "reason": "NodeClassDrift",
            "message": "NodeClassDrift",
            "lastTransitionTime": "2029-12-31T23:00:00Z",
        }
        status = {"conditions": [*claim["status"]["conditions"], drifted]}
        state.write_status(claim, status)
        state.harness.start("--pause-disruption")
        await state.harness.cluster.clock.sleep(600)

        found = conditions(state.find("NodeClaim", "web-0"))
        assert found["Drifted"] == ("True", "2029-12-31T23:00:00Z")

    play(story)


def test_a_node_that_has_not_come_yet_is_waited_for(play):
    """Its instance has no tag that names its claim, as Karpenter tags after registration."""

    async def story(state: ReferenceState) -> None:
        provider_id = state.launched("web-0")

        await take_over(state, seconds=600)

        (claim,) = state.objects("NodeClaim")
        assert claim["status"]["providerID"] == provider_id
        assert conditions(claim)["Launched"][0] == "True"
        assert changes(state) == []

    play(story)


def test_instances_are_tagged_as_karpenter_tags_them(play):
    """Tags that were missing when the other controller ended are added, those there are not changed."""

    async def story(state: ReferenceState) -> None:
        provider_id = state.running("web-0")
        state.aws.untag(provider_id, "karpenter.sh/nodeclaim")
        state.aws.tag(provider_id, {"Name": "mine"})

        await take_over(state, seconds=600)

        tags = state.aws.instance(provider_id).tags
        assert tags["karpenter.sh/nodeclaim"] == "web-0"
        assert tags["Name"] == "mine"

    play(story)


def test_a_deletion_that_was_under_way_is_finished(play):
    async def story(state: ReferenceState) -> None:
        deadline = {"karpenter.sh/nodeclaim-termination-timestamp": "2030-01-01T02:00:00Z"}
        provider_id = state.running("web-0", annotations=deadline)
        state.running("web-1")
        state.harness.cluster.delete(NODE_CLAIMS, "web-0")

        await take_over(state, seconds=900)

        assert [o["metadata"]["name"] for o in state.objects("NodeClaim")] == ["web-1"]
        assert [o["metadata"]["name"] for o in state.objects("Node")] == ["ip-web-1.ec2.internal"]
        assert provider_id not in {each.provider_id for each in state.aws.instances.living}
        assert len(state.aws.instances.living) == 1

    play(story)


@pytest.mark.parametrize(
    "arguments",
    [pytest.param((), marks=pytest.mark.cluster_runs), STATIC],
    ids=["gate off", "gate on"],
)
def test_a_static_node_pool_is_left_alone(play, arguments):
    """With the gate too, since it has its replicas."""

    async def story(state: ReferenceState) -> None:
        state.node_pool("fixed", replicas=1)
        state.running("fixed-0", pool="fixed")
        before = copy.deepcopy(state.find("NodeClaim", "fixed-0"))

        await take_over(state, *arguments)

        (claim,) = state.objects("NodeClaim")
        assert claim["metadata"]["uid"] == before["metadata"]["uid"]
        assert "Drifted" not in conditions(claim)
        assert changes(state) == []

    play(story)


def test_a_static_node_pool_grows_beside_the_claims_of_the_reference(play):
    """The cloud launches claims that list no instance types, once each."""

    async def story(state: ReferenceState) -> None:
        state.node_pool("fixed", replicas=3)
        state.running("fixed-0", pool="fixed")

        await take_over(state, *STATIC, seconds=600)  # no kubelet of theirs ever registers

        names = [claim["metadata"]["name"] for claim in state.objects("NodeClaim")]
        assert len(names) == 3
        assert "fixed-0" in names
        assert len(state.aws.instances.living) == 3

    play(story)


def test_other_clusters_of_the_account_are_left_alone(play):
    async def story(state: ReferenceState) -> None:
        state.running("web-0")
        foreign = state.aws.launch_foreign()

        await take_over(state, seconds=1200)

        assert foreign in {each.provider_id for each in state.aws.instances.living}

    play(story)


def test_a_launch_in_progress_is_not_repeated(play):
    """The fleets had answered; no NodeClaim was written, and no tag names one."""

    async def story(state: ReferenceState) -> None:
        state.running("web-0")
        state.claim("web-1")
        state.claim("web-2")
        state.aws.time.advance(2)
        bought = {state.launch(), state.launch()}

        await take_over(state, seconds=600)  # nodes that never register end after 15 minutes

        used = {
            o["metadata"]["name"]: o["status"]["providerID"] for o in state.objects("NodeClaim")
        }
        assert {used["web-1"], used["web-2"]} == bought
        assert changes(state) == []
        assert len(state.aws.instances.living) == 3

    play(story)


@pytest.mark.parametrize("difference", ["older", "another pool", "another claim's"])
def test_an_instance_that_cannot_be_a_claims_is_not_given_to_it(play, difference):
    async def story(state: ReferenceState) -> None:
        if difference == "older":
            other = state.launch()
            state.aws.time.advance(60)
            await state.harness.cluster.clock.sleep(60)
            state.claim("web-1")
        else:
            state.claim("web-1")
            state.aws.time.advance(2)
            other = state.launch(pool="db" if difference == "another pool" else "web")
        if difference == "another claim's":
            state.aws.tag(other, {"karpenter.sh/nodeclaim": "web-9"})

        state.harness.start()
        await state.harness.settle(
            lambda: "providerID" in state.objects("NodeClaim")[0].get("status", {}), seconds=300
        )

        (claim,) = state.objects("NodeClaim")
        assert claim["status"]["providerID"] != other

    play(story)
