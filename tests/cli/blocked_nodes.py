"""Generates clusters whose nodes are kept from disruption for one known reason each, in a random mix."""

from __future__ import annotations

import random

from tests.cli.inputs import node, pod, pool
from tests.cli.test_explain_node import START, claim_with_node, condition, web

KEEP = {"karpenter.sh/do-not-disrupt": "true"}
AT_ONCE = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]}  # fmt: skip


def pools():
    """Return a NodePool for each kind of rule that a NodePool can have."""
    return [
        pool("general", disruption=AT_ONCE),
        pool("full", disruption=AT_ONCE),
        pool("frozen", disruption={**AT_ONCE, "budgets": [{"nodes": "0"}]}),
        pool("closed", disruption={**AT_ONCE, "budgets": [{"nodes": "0", "reasons": ["Underutilized"]}]}),
        pool("never", disruption={**AT_ONCE, "consolidateAfter": "Never"}),
        pool("empty-only", disruption={**AT_ONCE, "consolidationPolicy": "WhenEmpty"}),
        {**pool("paused", disruption=AT_ONCE), "metadata": {"name": "paused", "annotations": {"karpenter.sh/pause-disruption": "true"}}},
    ]  # fmt: skip


def budget(name, app, **status):
    return {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, **status},
    }  # fmt: skip


def _annotated(name):
    return [*claim_with_node(name, annotations=KEEP), web(f"p-{name}", name)], [
        'annotation "karpenter.sh/do-not-disrupt"'
    ]


def _pod_annotated(name):
    guarded = web(f"p-{name}", name, annotations=KEEP)
    return [*claim_with_node(name), guarded], [
        f'pod "shop/p-{name}" has the annotation "karpenter.sh/do-not-disrupt"'
    ]


def _pod_of_many(name):
    """The pod to blame is not the first."""
    pods = [
        web(f"a-{name}", name, cpu="100m"),
        web(f"z-{name}", name, cpu="100m", annotations=KEEP),
    ]
    return [*claim_with_node(name), *pods], [f'pod "shop/z-{name}" has the annotation']


def _guarded(name):
    pods = [web(f"p-{name}", name, labels={"app": f"guard-{name}"})]
    return [*claim_with_node(name), *pods, budget(f"b-{name}", f"guard-{name}")], [
        f'PodDisruptionBudget "shop/b-{name}"', f'"shop/p-{name}"']  # fmt: skip


def _guarded_twice(name):
    app = f"twice-{name}"
    budgets = [budget(f"{each}-{name}", app, disruptionsAllowed=1) for each in ("one", "two")]
    return [*claim_with_node(name), web(f"p-{name}", name, labels={"app": app}), *budgets], [
        f"shop/one-{name}", f"shop/two-{name}"]  # fmt: skip


def _frozen(name):
    return [*claim_with_node(name, of="frozen"), web(f"p-{name}", name)], [
        'budgets of NodePool "frozen"'
    ]


def _closed(name):
    return [*claim_with_node(name, of="closed"), web(f"p-{name}", name)], [
        'budgets of NodePool "closed"',
        "Underutilized",
    ]


def _never(name):
    return [*claim_with_node(name, of="never", conditions=()), web(f"p-{name}", name)], [
        "consolidateAfter",
        "Never",
    ]


def _not_empty(name):
    return [*claim_with_node(name, of="empty-only"), web(f"p-{name}", name)], [
        'NodePool "empty-only" consolidates empty nodes only'
    ]


def _paused(name):
    return [*claim_with_node(name, of="paused"), web(f"p-{name}", name)], ["pause"]


def _young(name):
    claim, found = claim_with_node(name, conditions=())
    claim["status"]["conditions"] = [condition("Launched"), condition("Registered")]
    found["metadata"]["labels"].pop("karpenter.sh/initialized")
    return [claim, found, web(f"p-{name}", name)], ["not initialised"]


def _unsettled(name):
    claim, found = claim_with_node(name, conditions=())
    claim["status"]["lastPodEventTime"] = "2026-01-01T08:58:00Z"
    return [claim, found, web(f"p-{name}", name)], [
        "consolidateAfter (5m0s) ends at 2026-01-01T09:03:00Z"
    ]


def _unmanaged(name):
    return [node(name), web(f"p-{name}", name, cpu="100m")], ["no NodeClaim"]


def _leaving(name):
    return [*claim_with_node(name, deleted=START), web(f"p-{name}", name)], ["deleted"]


def _nominated(name):
    expected = pod(f"e-{name}", cpu="100m")
    expected["status"] = {"phase": "Pending", "nominatedNodeName": name}
    return [*claim_with_node(name), web(f"p-{name}", name), expected], ["pods are expected on it"]


def _orphan(name):
    return [*claim_with_node(name, of="gone"), web(f"p-{name}", name)], ['NodePool "gone"']


def _full(name):
    """Its pods need what it is, and it is the cheapest that has it."""
    heavy = web(f"p-{name}", name, cpu="3800m")
    heavy["spec"]["nodeSelector"] = {"karpenter.sh/nodepool": "full"}
    return [*claim_with_node(name, of="full"), heavy], ["Can't replace with a cheaper node"]


NODE_FAILURES = {
    "annotated": _annotated, "pod-annotated": _pod_annotated, "pod-of-many": _pod_of_many,
    "guarded": _guarded, "guarded-twice": _guarded_twice, "frozen": _frozen, "closed": _closed,
    "never": _never, "not-empty": _not_empty, "paused": _paused, "young": _young,
    "unsettled": _unsettled, "unmanaged": _unmanaged, "leaving": _leaving, "nominated": _nominated,
    "orphan": _orphan, "full": _full,
}  # fmt: skip


def mixed_nodes(count, seed):
    """Return a cluster with so many blocked nodes, and the texts that explain each by name."""
    kinds = [list(NODE_FAILURES)[number % len(NODE_FAILURES)] for number in range(count)]
    random.Random(seed).shuffle(kinds)
    objects, expected = pools(), {}
    for number, kind in enumerate(kinds):
        name = f"{kind}-{number}"
        made, texts = NODE_FAILURES[kind](name)
        objects += made
        expected[name] = texts
    last = pod(
        "last",
        metadata={"creationTimestamp": "2026-01-01T09:00:00Z"},
        schedulingGates=[{"name": "x/hold"}],
    )
    return [*objects, last], expected
