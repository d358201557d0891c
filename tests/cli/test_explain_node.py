"""`karpenter explain node` names obstacles or moves, method by method."""

from __future__ import annotations

import json

import pytest

from karpenter_core.cli.explain.tables import NODE_STATES
from tests.cli.inputs import (
    NODE_CLASS_REF,
    instance_type,
    node,
    offering,
    paid_commitment,
    pod,
    pool,
    write,
)

OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}  # fmt: skip
INSTANCE_TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10)),
    instance_type("large", "4", "8Gi", offering(0.20)),
]
START, SETTLED, NOW = (f"2026-01-01T0{hour}:00:00Z" for hour in (7, 8, 9))


def condition(type_, at=START, reason=None):
    return {"type": type_, "status": "True", "reason": reason or type_, "lastTransitionTime": at}


SETTLED_LONG_AGO = (condition("Consolidatable", SETTLED),)


def claim_with_node(name, *, of="general", conditions=SETTLED_LONG_AGO, deleted=None, **metadata):
    """A NodeClaim of a large node that was initialised long ago, and its Node."""
    labels = {
        "karpenter.sh/nodepool": of,
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": "large",
        "topology.kubernetes.io/zone": "z1",
        "karpenter.sh/capacity-type": "on-demand",
    }
    ready = [condition(each) for each in ("Launched", "Registered", "Initialized")]
    claim = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": f"{of}-{name}",
            "labels": {"karpenter.sh/nodepool": of},
            "creationTimestamp": START,
            **({"deletionTimestamp": deleted} if deleted else {}),
        },
        "spec": {"nodeClassRef": NODE_CLASS_REF, "requirements": []},
        "status": {
            "nodeName": name,
            "providerID": f"test://{name}",
            "conditions": [*ready, *conditions],
        },
    }
    result = node(name, cpu="4", labels=labels)
    result["metadata"].update(metadata)
    return claim, result


def web(name, on, *, cpu="1", memory="128Mi", **metadata):
    """A pod that would have to move."""
    metadata = {"ownerReferences": [OWNER], **metadata}
    return pod(name, cpu=cpu, memory=memory, nodeName=on, metadata=metadata)


@pytest.fixture
def explain(program, tmp_path):
    """Explain a node of a cluster made of these objects and a pod that was made last."""
    types = tmp_path / "types.json"
    types.write_text(json.dumps(INSTANCE_TYPES))

    def run(name, *objects, options=("-o", "json"), code=0):
        flat = [each for item in objects for each in (item if isinstance(item, tuple) else (item,))]
        last = pod(
            "last", metadata={"creationTimestamp": NOW}, schedulingGates=[{"name": "x/hold"}]
        )
        file = write(tmp_path / "cluster.yaml", *flat, last)
        shown = program(
            "explain", "node", name, "--offline", file, "--instance-types-file", types, *options,
            code=code,
        )  # fmt: skip
        return json.loads(shown.out) if code == 0 and options == ("-o", "json") else shown

    return run


CONSOLIDATING = pool(
    disruption={
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "consolidateAfter": "5m",
        "budgets": [{"nodes": "100%"}],
    }
)


def verdicts(found):
    return {name: method["verdict"] for name, method in found["methods"].items()}


def single(found):
    return found["methods"]["single-node-consolidation"]


def test_an_empty_node_is_disrupted_now(explain):
    """By the first method, at all of its price."""
    explanation = explain("a", CONSOLIDATING, claim_with_node("a"))

    assert (explanation["state"], explanation["nodeClaim"], explanation["pods"]) == (
        "disrupted",
        "general-a",
        0,
    )
    emptiness = explanation["methods"]["emptiness"]
    assert (emptiness["verdict"], emptiness["move"]["decision"]) == ("chosen", "delete")
    assert emptiness["move"]["savingsPerHour"] == pytest.approx(0.20)
    assert emptiness["budget"] == {"nodes": 1, "allowed": 1, "consuming": 0, "remaining": 1}
    assert single(explanation)["declined"] == "empty"


def test_a_node_that_is_hardly_used_is_replaced_by_a_cheaper_one(explain):
    """The answer says by which, for which pods, and what that saves."""
    explanation = explain("a", CONSOLIDATING, claim_with_node("a"), web("one", "a"))

    assert explanation["state"] == "disrupted"
    move = single(explanation)["move"]
    (claim,) = move["nodeClaims"]
    assert (move["decision"], move["existingNodes"]) == ("replace", {})
    assert (claim["pods"], claim["cheapest"]["instanceType"]) == (["shop/one"], "small")
    assert move["savingsPerHour"] == pytest.approx(0.10)


def test_pods_that_fit_elsewhere_are_said_to_go_there(explain):
    """And several nodes that go at once are named."""
    keep = (
        claim_with_node("keep"),
        web("k", "keep", cpu="2", annotations={"karpenter.sh/do-not-disrupt": "true"}),
    )
    explanation = explain("a", CONSOLIDATING, *keep, claim_with_node("a"), web("one", "a"))

    assert single(explanation)["move"]["existingNodes"] == {"keep": ["shop/one"]}
    assert single(explanation)["move"]["nodeClaims"] == []


@pytest.mark.parametrize(
    ("metadata", "on_pod", "obstacle", "subjects", "said"),
    [
        (
            {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, {},
            "annotation", ["karpenter.sh/do-not-disrupt"], 'it has the annotation "karpenter.sh/do-not-disrupt"',
        ),
        (
            {}, {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "pod", ["shop/one", "karpenter.sh/do-not-disrupt"],
            'pod "shop/one" has the annotation "karpenter.sh/do-not-disrupt"',
        ),
        (
            {}, {"labels": {"app": "guarded"}},
            "podDisruptionBudget", ["shop/guard", "shop/one"],
            'PodDisruptionBudget "shop/guard" allows no eviction of pod "shop/one" now',
        ),
    ],
)  # fmt: skip
def test_the_blocking_annotation_is_named(explain, metadata, on_pod, obstacle, subjects, said):
    """For every method alike."""
    guard = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "guard", "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    }  # fmt: skip
    explanation = explain(
        "a", CONSOLIDATING, guard, claim_with_node("a", **metadata), web("one", "a", **on_pod)
    )

    assert explanation["state"] == "stays"
    assert set(verdicts(explanation).values()) == {"blocked"}
    assert {method["obstacle"] for method in explanation["methods"].values()} == {obstacle}
    assert (single(explanation)["subjects"], single(explanation)["message"]) == (subjects, said)


def test_the_awaited_event_is_named_with_its_time(explain):
    """The window of consolidateAfter begins with the last pod that came or went."""
    claim, found_node = claim_with_node("a", conditions=())
    claim["status"]["lastPodEventTime"] = "2026-01-01T08:58:00Z"
    explanation = explain("a", CONSOLIDATING, claim, found_node, web("one", "a"))

    assert explanation["settlesAt"] == "2026-01-01T09:03:00Z"
    assert explanation["message"] == "no method disrupts it before 2026-01-01T09:03:00Z"
    assert single(explanation)["declined"] == "unsettled"
    assert single(explanation)["message"].startswith(
        "consolidateAfter (5m0s) ends at 2026-01-01T09:03:00Z"
    )


def test_a_window_that_has_ended_without_the_condition_is_noticed(explain):
    """The controller sets it; perhaps none runs."""
    explanation = explain("a", CONSOLIDATING, claim_with_node("a", conditions=()), web("one", "a"))

    assert single(explanation)["message"].endswith("but it lacks the condition Consolidatable")


def test_a_budget_that_allows_nothing_is_named(explain):
    """With how many it would allow."""
    disruption = {**CONSOLIDATING["spec"]["disruption"], "budgets": [{"nodes": "0"}]}
    explanation = explain("a", pool(disruption=disruption), claim_with_node("a"), web("one", "a"))

    assert explanation["state"] == "budget"
    assert single(explanation)["verdict"] == "budget"
    assert single(explanation)["message"] == (
        'the budgets of NodePool "general" allow 0 of 1 node for reason Underutilized'
    )


def test_a_node_whose_pods_have_no_other_place_cannot_go(explain):
    """The pod is named."""
    explanation = explain(
        "a", CONSOLIDATING, claim_with_node("a"), web("one", "a", cpu="3"), claim_with_node("b"), web("two", "b", cpu="3")
    )  # fmt: skip

    assert explanation["state"] == "stays"
    assert single(explanation)["verdict"] == "refused"
    assert single(explanation)["message"] == "Can't replace with a cheaper node"


def test_the_second_best_candidate_names_the_first(explain):
    """And what its own move would be."""
    nodes = [
        claim_with_node("a"),
        web("a1", "a"),
        claim_with_node("b"),
        web("b1", "b"),
        web("b2", "b", cpu="500m"),
    ]
    disruption = {**CONSOLIDATING["spec"]["disruption"], "budgets": [{"nodes": "1"}]}
    explanation = explain("b", pool(disruption=disruption), *nodes)

    assert explanation["state"] == "later"
    assert explanation["message"] == (
        "single-node-consolidation would disrupt it after the current command of single-node-consolidation"
    )
    assert single(explanation)["after"] == ["a"]
    assert single(explanation)["move"]["savingsPerHour"] > 0


def test_a_drifted_node_is_replaced_at_any_price(explain):
    """Its pool may forbid it."""
    drifted = claim_with_node("a", conditions=(condition("Drifted", reason="NodePoolDrifted"),))
    explanation = explain("a", CONSOLIDATING, drifted, web("one", "a", cpu="3"))
    assert explanation["state"] == "disrupted"
    assert explanation["methods"]["drift"]["move"]["decision"] == "replace"

    only_shown = {**CONSOLIDATING, "metadata": {"name": "general", "annotations": {"karpenter.sh/drift": "detect-only"}}}  # fmt: skip
    explanation = explain("a", only_shown, drifted, web("one", "a", cpu="3"))
    assert explanation["methods"]["drift"]["declined"] == "detectOnly"
    assert explanation["methods"]["drift"]["message"] == (
        'it has drifted (NodePoolDrifted), and NodePool "general" only reports drift'
    )


def static(replicas, **limits):
    return pool(replicas=replicas, **({"limits": limits} if limits else {}))


def test_a_drifted_node_of_a_static_pool_is_replaced_by_a_claim_of_its_template(explain):
    """Also with pods that fit nowhere else; no other method takes it."""
    drifted = claim_with_node("a", conditions=(condition("Drifted", reason="NodePoolDrifted"),))
    explanation = explain("a", static(1), drifted, web("one", "a", cpu="3"))

    assert (explanation["state"], explanation["message"]) == (
        "disrupted",
        "static-drift disrupts it now",
    )
    move = explanation["methods"]["static-drift"]["move"]
    assert [claim["nodePool"] for claim in move["nodeClaims"]] == ["general"]
    others = {m["declined"] for n, m in explanation["methods"].items() if n != "static-drift"}
    assert others == {"static"}


def test_a_node_limit_without_room_is_named(explain):
    drifted = claim_with_node("a", conditions=(condition("Drifted", reason="NodePoolDrifted"),))
    explanation = explain("a", static(1, nodes=1), drifted)

    assert explanation["state"] == "stays"
    method = explanation["methods"]["static-drift"]
    assert (method["verdict"], method["message"]) == (
        "refused",
        "Drifted node is not replaced: limits.nodes=1 leaves no room for a replacement",
    )


def test_a_node_of_a_dynamic_pool_is_not_explained_by_the_method_of_static_ones(explain):
    assert "static-drift" not in explain("a", CONSOLIDATING, claim_with_node("a"))["methods"]


@pytest.mark.parametrize(
    ("disruption", "declined", "said"),
    [
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"}, "policy", "(WhenEmpty)"),
        (
            {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never"},
            "disabled", "(consolidateAfter: Never)",
        ),
    ],
)  # fmt: skip
def test_the_answer_names_the_field_that_disables_consolidation(
    explain, disruption, declined, said
):
    """By the field that says it."""
    explanation = explain("a", pool(disruption=disruption), claim_with_node("a"), web("one", "a"))

    assert single(explanation)["declined"] == declined
    assert said in single(explanation)["message"]


def test_a_move_below_the_threshold_shows_its_score(explain):
    """Under the policy Balanced."""
    disruption = {**CONSOLIDATING["spec"]["disruption"], "consolidationPolicy": "Balanced"}
    pods = [web(f"a{n}", "a", cpu="100m") for n in range(15)]
    full = [claim_with_node("b"), web("b1", "b", cpu="3500m")]
    explanation = explain("a", pool(disruption=disruption), claim_with_node("a"), *pods, *full)

    assert single(explanation)["verdict"] == "refused"
    assert single(explanation)["score"]["approved"] is False
    assert (
        'the policy Balanced of NodePool "general" rejects it: score'
        in single(explanation)["message"]
    )


def test_an_unmanaged_node_is_ignored(explain):
    """A Node without a NodeClaim."""
    explanation = explain("mine", CONSOLIDATING, node("mine"))

    assert (explanation["state"], explanation["nodePool"]) == ("unmanaged", "")
    assert set(verdicts(explanation).values()) == {"blocked"}


@pytest.mark.parametrize("deleted", [{"deleted": NOW}, {"deletionTimestamp": NOW}])
def test_a_leaving_node_is_reported_as_leaving(explain, deleted):
    """Whether the claim or the Node was deleted, nothing is decided about it any more."""
    explanation = explain("a", CONSOLIDATING, claim_with_node("a", **deleted))

    assert (explanation["state"], explanation["message"]) == ("going", "it is being deleted")


def test_a_command_under_way_is_recognised_by_its_taint(explain):
    """The running controller alone knows the command."""
    claim, found_node = claim_with_node("a")
    found_node["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    explanation = explain("a", CONSOLIDATING, claim, found_node)

    assert explanation["state"] == "going"
    assert "karpenter.sh/disrupted" in explanation["message"]


def test_a_node_can_be_looked_up_by_its_claim_too(explain):
    """And one that is not there is refused with those that may be meant."""
    assert explain("general-a", CONSOLIDATING, claim_with_node("a"))["node"] == "a"

    shown = explain("general-b", CONSOLIDATING, claim_with_node("a"), code=2)
    assert shown.err.strip().splitlines()[-1] == 'karpenter: no node "general-b"; near: general-a'
    shown = explain("zzzzzzzzz", CONSOLIDATING, claim_with_node("a"), code=2)
    assert (
        shown.err.strip().splitlines()[-1] == 'karpenter: no node "zzzzzzzzz"; nodes: a, general-a'
    )


def test_the_answer_does_not_depend_on_the_order_of_objects(explain):
    """To the byte."""
    objects = [
        CONSOLIDATING,
        claim_with_node("a"),
        web("one", "a"),
        claim_with_node("b"),
        web("two", "b"),
    ]

    assert json.dumps(explain("a", *objects)) == json.dumps(explain("a", *objects[::-1]))


def test_people_are_shown_methods_that_say_the_same_together(explain):
    """With the move below."""
    shown = explain("a", CONSOLIDATING, claim_with_node("a"), web("one", "a"), options=()).out

    head, *blocks = shown.strip().split("\n\n")
    assert head.splitlines() == [
        "a: single-node-consolidation disrupts it now, after a validation some seconds later",
        "NodePool general, 1 pod would have to move, 0.2000 per hour",
    ]
    (block,) = [each for each in blocks if each.startswith("single-node-consolidation")]
    assert block.splitlines()[1:] == [
        "  now: it is removed, 1 new node in its place; saves 0.1000 per hour",
        "  to a new small z1 on-demand at 0.1000 per hour: shop/one",
        "  budget left: 1 node",
    ]


def test_wrapped_lines_have_no_spaces_at_their_ends(explain):
    rare = pool(
        "general", disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1m"}
    )
    node = claim_with_node("a", of="a-rather-long-name")
    text = explain("a", rare, node, web("one", "a"), options=()).out
    assert len(text.splitlines()) > 5
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_every_state_has_words():
    """For people."""
    assert set(NODE_STATES) == {"budget", "disrupted", "going", "later", "stays", "unmanaged"}


def test_a_pod_with_the_surge_annotation_is_named_with_its_obstacle(explain):
    """As far as the pod and its node tell; its Deployment is looked at when the node is drained."""
    owner = OWNER | {"name": "web-5d4f"}

    def asking(name, **fields):
        made = web(
            name,
            "a",
            annotations={"karpenter.sh/surge-move": "true"},
            labels={"app": "web", "pod-template-hash": "5d4f"},
            ownerReferences=[owner],
        )
        made["status"] = {"phase": "Running", **fields}
        return made

    ready = asking("ready", conditions=[condition("Ready")])
    starting = asking("starting", conditions=[{**condition("Ready"), "status": "False"}])
    objects = (CONSOLIDATING, claim_with_node("a"), ready, starting, web("plain", "a"))

    moves = explain("a", *objects)["surgeMoves"]
    assert list(moves) == ["shop/ready", "shop/starting"]
    assert moves["shop/ready"] is None
    assert "not ready" in moves["shop/starting"]
    text = explain("a", *objects, options=()).out
    assert "a rollout may replace pod shop/ready" in " ".join(text.split())
    assert "surgeMoves" not in explain("a", CONSOLIDATING, claim_with_node("a"))


def test_a_replacement_fits_the_predicted_requests_of_the_pods(explain):
    """A VerticalPodAutoscaler sets the requests of pods that are created again."""
    scaler = {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}},
        "status": {
            "recommendation": {
                "containerRecommendations": [{"containerName": "app", "target": {"cpu": "3"}}]
            }
        },
    }
    objects = (CONSOLIDATING, claim_with_node("a"), web("one", "a"))
    assert explain("a", *objects)["state"] == "disrupted"
    found = explain("a", *objects, scaler)
    assert found["state"] == "stays"
    assert found["predictedRequests"] == {"pods": 1, "change": {"cpu": "2"}}
    text = " ".join(explain("a", *objects, scaler, options=()).out.split())
    assert "autoscalers change the requests of 1 pod by cpu 2" in text
    assert "predictedRequests" not in explain("a", *objects)


@pytest.mark.parametrize(("start", "state"), [("0 8 * * *", "disrupted"), ("0 20 * * *", "stays")])
def test_a_node_of_a_pool_with_shutdown_hours_names_the_window(explain, start, state):
    """Within the window the method shutdown takes it, with its pods."""
    shut = pool(disruption={"consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]})
    window = {"name": "night", "schedule": start, "duration": "2h", "shutdown": True}
    shut["metadata"]["annotations"] = {"karpenter.sh/schedules": json.dumps([window])}

    found = explain("a", shut, claim_with_node("a"), web("b", "a"))

    assert found["state"] == state
    assert 'window "night"' in found["schedule"]
    assert ("shutdown" in found["methods"]) == (state == "disrupted")


def test_a_node_shows_the_part_of_its_price_that_commitments_pay_anyway(explain):
    """It pays for one node: without one of two nothing of it would be unused."""
    busy = (pool(), claim_with_node("a"), web("one", "a", cpu="3"))
    options = ("-o", "json", paid_commitment())

    found = json.loads(explain("a", *busy, options=options).out)
    assert (found["pricePerHour"], found["paidByCommitments"]) == (0.2, 0.2)
    assert found["state"] == "stays", "a node that is paid for is not replaced for its price"
    assert "paidByCommitments" not in explain("a", *busy)
    two = (*busy, claim_with_node("b"), web("two", "b", cpu="3"))
    assert "paidByCommitments" not in json.loads(explain("a", *two, options=options).out)
    shown = explain("a", *busy, options=(paid_commitment(),)).out
    assert "of which 0.2000 is paid by commitments in any case" in " ".join(shown.split())


def test_a_node_without_the_labels_of_its_type_is_said_to_wait_for_them(explain):
    """It has a provider ID, and it is its claim's: nothing else is wrong with it."""
    claim, node = claim_with_node("fresh")
    for label in ("karpenter.sh/initialized", "node.kubernetes.io/instance-type"):
        del node["metadata"]["labels"][label]

    shown = explain("fresh", CONSOLIDATING, (claim, node), code=2)

    assert 'node "fresh" cannot be used yet' in shown.err
    assert 'explain its NodeClaim "general-fresh"' in shown.err
