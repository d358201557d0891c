"""`karpenter explain nodeclaim` says first what a NodeClaim waits for, or what blocks its removal."""

from __future__ import annotations

import json
from functools import partial

import pytest

from tests.cli.inputs import instance_type, offering, pool, write
from tests.cli.test_explain_node import CONSOLIDATING, START, claim_with_node, web

TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10)),
    instance_type("large", "4", "8Gi", offering(0.20)),
]
PDB = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}},
}


def strict_budget(pod):
    namespace = pod["metadata"].get("namespace", "default")
    return {**PDB, "metadata": {"name": "strict", "namespace": namespace}}


@pytest.fixture
def explain(explain_kind):
    """Explain the NodeClaim of the node `a`, in a cluster of these objects."""
    return partial(explain_kind, "nodeclaim", types=TYPES, name="general-a")


def at_stage(failing, message, reason="Waiting"):
    """A claim whose first conditions are True, and the one at which it waits."""
    claim, _ = claim_with_node("a", conditions=())
    kept = []
    for condition in claim["status"]["conditions"]:
        if condition["type"] == failing:
            kept.append({**condition, "status": "Unknown", "reason": reason, "message": message})
            break
        kept.append(condition)
    claim["status"]["conditions"] = kept
    return claim


@pytest.mark.parametrize(
    ("failing", "state", "words"),
    [
        ("Launched", "launching", "has no instance yet"),
        ("Registered", "registering", "has an instance whose Node has not joined yet"),
        ("Initialized", "starting", "has a Node that is not ready for pods yet"),
    ],
)
def test_a_starting_claim_shows_its_stage_and_the_message_of_the_condition(
    explain, failing, state, words
):
    found = explain(CONSOLIDATING, at_stage(failing, "no capacity in zone z1"))

    assert (found["state"], found["waitsFor"]) == (state, "no capacity in zone z1")
    assert found["answer"] == f"general-a: {words}: no capacity in zone z1"
    assert found["removal"] is None


def test_a_ready_claim_shows_its_price_and_the_obstacles_to_its_removal(explain):
    guarded = web("db", "a", labels={"app": "db"})
    found = explain(CONSOLIDATING, claim_with_node("a"), guarded, strict_budget(guarded))

    assert found["state"] == "ready"
    assert 'PodDisruptionBudget "' in found["answer"]
    assert found["removal"]["methods"]["single-node-consolidation"]["obstacle"] == (
        "podDisruptionBudget"
    )
    assert (found["instanceType"], found["zone"], found["pricePerHour"]) == ("large", "z1", 0.2)
    assert found["pods"] == 1


def test_a_claim_that_leaves_names_the_pod_that_may_not_be_evicted_first(explain):
    """Then what the conditions of its removal say, then finalizers of others."""
    guarded = web("db", "a", labels={"app": "db"})
    leaving = claim_with_node("a", deleted=START)
    detaching = {
        "type": "VolumesDetached", "status": "Unknown", "reason": "AwaitingVolumeDetachment",
        "message": "VolumeAttachment v-1", "lastTransitionTime": START,
    }  # fmt: skip
    leaving[0]["metadata"]["finalizers"] = ["karpenter.sh/termination", "example.com/hold"]
    found = explain(CONSOLIDATING, leaving, guarded, strict_budget(guarded))
    assert found["state"] == "leaving"
    assert "is being removed: PodDisruptionBudget" in found["answer"]

    leaving[0]["status"]["conditions"].append(detaching)
    found = explain(CONSOLIDATING, leaving)
    assert found["waitsFor"] == "VolumesDetached is Unknown: VolumeAttachment v-1"

    leaving[0]["status"]["conditions"].pop()
    assert explain(CONSOLIDATING, leaving)["waitsFor"] == "finalizers of others: example.com/hold"


def test_the_answer_has_the_reason_of_the_launch(explain):
    claim, made = claim_with_node("a")
    claim["metadata"]["annotations"] = {
        "karpenter.sh/created-for": "provisioned",
        "karpenter.sh/decision-id": "d-7",
        "karpenter.sh/decision-cause": "2 pods",
    }
    text = explain(CONSOLIDATING, claim, made, options=()).out
    assert f"launched {START} for pods that waited, decision d-7 (2 pods)" in text

    claim["metadata"]["annotations"]["karpenter.sh/created-for"] = "underutilized"
    assert explain(CONSOLIDATING, claim, made)["createdFor"] == (
        "in the place of others (underutilized)"
    )
    assert (
        explain(pool(replicas=1), claim, made)["createdFor"] == "as a replica of a static NodePool"
    )


def test_a_claim_is_found_by_its_node_and_an_unknown_one_refused_with_those_that_may_be_meant(
    explain,
):
    assert explain(CONSOLIDATING, claim_with_node("a"), name="a")["nodeClaim"] == "general-a"
    shown = explain(CONSOLIDATING, claim_with_node("a"), name="general-b", code=2)
    assert 'there is no NodeClaim "general-b"; did you mean general-a?' in shown.err


# -- mixed sets ------------------------------------------------------------------------------------


def blocked_nodes():
    """Nodes that each have another first obstacle, with a word that the answer must have."""
    guarded = web("db", "pdb", labels={"app": "db"})
    yield "pdb", (*claim_with_node("pdb"), guarded, strict_budget(guarded)), "PodDisruptionBudget"
    held = claim_with_node("held", annotations={"karpenter.sh/do-not-disrupt": "true"})
    yield "held", (*held, web("w0", "held")), 'it has the annotation "karpenter.sh/do-not-disrupt"'
    stuck = web("stuck", "holding", annotations={"karpenter.sh/do-not-disrupt": "true"})
    yield "holding", (*claim_with_node("holding"), stuck), 'pod "shop/stuck" has the annotation'
    young, made = claim_with_node("young", conditions=())
    young["status"]["lastPodEventTime"] = "2026-01-01T08:58:00Z"
    yield "young", (young, made, web("w1", "young")), "consolidateAfter (5m0s) ends at"
    empty_only = pool("empty-only", disruption={
        "consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"})  # fmt: skip
    yield (
        "policy",
        (empty_only, *claim_with_node("policy", of="empty-only"), web("w2", "policy")),
        "consolidates empty nodes only",
    )
    never = pool("never", disruption={
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never"})  # fmt: skip
    yield (
        "never",
        (never, *claim_with_node("never", of="never"), web("w3", "never")),
        "consolidateAfter: Never",
    )
    yield (
        "leaving",
        claim_with_node("leaving", deleted=START),
        "it is being deleted|is being removed",
    )
    full = web("w4", "full", cpu="3900m")
    yield "full", (*claim_with_node("full"), full), "Can't replace with a cheaper node"


def test_every_blocked_node_of_a_mixed_set_has_the_right_first_cause(program, tmp_path):
    """All of them in one cluster; node and NodeClaim name the same cause."""
    types = tmp_path / "types.json"
    types.write_text(json.dumps(TYPES))
    cases = list(blocked_nodes())
    clock = web("clock", "pdb", labels={"app": "clock"}, creationTimestamp="2026-01-01T09:00:00Z")
    objects = [CONSOLIDATING, clock, *(each for _, found, _ in cases for each in found)]
    file = write(tmp_path / "cluster.yaml", *objects)
    options = ("--offline", file, "--instance-types-file", types, "-o", "json")

    wrong = []
    for name, _, words in cases:
        for kind in ("node", "nodeclaim"):
            answer = json.loads(program("explain", kind, name, *options).out)["answer"]
            if not any(word in answer for word in words.split("|")):
                wrong.append((kind, name, answer))
    assert wrong == []
