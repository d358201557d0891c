"""NodePool hashes equal upstream's, and claims are migrated."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from karpenter_core.api.conditions import Condition
from karpenter_core.api.nodeclaim import NodeClaim
from karpenter_core.api.nodepool import NodePool
from karpenter_core.lifecycle.nodepool.hashing import (
    HASH_VERSION,
    node_pool_hash,
    with_current_hash,
    with_hash,
)
from tests.properties import with_examples

REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
NO_REF = {"group": "", "kind": "", "name": ""}
HASH = "karpenter.sh/nodepool-hash"
VERSION = "karpenter.sh/nodepool-hash-version"


def pool(spec: dict[str, Any] | None = None, /, **more: Any) -> NodePool:
    """Read a pool whose template spec has no expiry unless one is given."""
    template = {"spec": {"nodeClassRef": REF, "expireAfter": "Never"} | (spec or {})}
    if "metadata" in more:
        template["metadata"] = more.pop("metadata")
    return NodePool.model_validate(
        {"metadata": {"name": "web"}, "spec": {"template": template} | more}
    )


def claim(*, version: str, old_hash: str, drifted: bool = False) -> NodeClaim:
    conditions = [{"type": "Drifted", "status": "True"}] if drifted else []
    return NodeClaim.model_validate(
        {
            "metadata": {"name": "web-1", "annotations": {HASH: old_hash, VERSION: version}},
            "spec": {"nodeClassRef": REF},
            "status": {"conditions": conditions},
        }
    )


GOLDEN = [
    ("empty template", pool({"nodeClassRef": NO_REF}), "17307646073972311821"),
    ("reference", pool(), "17369979337536258260"),
    ("720h", pool({"expireAfter": "720h"}), "6821555240594823858"),
    ("0s", pool({"expireAfter": "0s"}), "15640125381500602090"),
    ("no grace", pool({"terminationGracePeriod": "0s"}), "17858683486241353230"),
    (
        "taint",
        pool({"taints": [{"key": "a", "effect": "NoSchedule"}]}),
        "17285580507237450665",
    ),
    (
        "taint with time",
        pool(
            {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]}
        ),
        "16182433980171185668",
    ),
    (
        "taint with time of day",
        pool(
            {"taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2026-05-04T12:34:56Z"}]}
        ),
        "13317033663079344215",
    ),
    (
        "taint twice",
        pool({"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}),
        "12366373110665249880",
    ),
    (
        "labels",
        pool({"expireAfter": "720h"}, metadata={"labels": {"team": "a", "tier": "web"}}),
        "11774179708158763811",
    ),
    (
        "all",
        pool(
            {
                "expireAfter": "720h",
                "terminationGracePeriod": "30m",
                "taints": [
                    {"key": "k1", "value": "v1", "effect": "NoSchedule"},
                    {"key": "k2", "effect": "NoExecute"},
                ],
                "startupTaints": [{"key": "s", "effect": "NoSchedule"}],
            },
            metadata={"labels": {"team": "a"}, "annotations": {"x": "y"}},
        ),
        "12238438351863573836",
    ),
    (
        "empty label",
        pool({"nodeClassRef": NO_REF}, metadata={"labels": {"a": ""}}),
        "1509540902029000734",
    ),
    (
        "labels left empty",
        pool({"nodeClassRef": NO_REF}, metadata={"labels": {}}),
        "8138694075160263762",
    ),
    ("metadata left empty", pool({"nodeClassRef": NO_REF}, metadata={}), "17307646073972311821"),
    ("taints left empty", pool({"nodeClassRef": NO_REF, "taints": []}), "5137148602344353791"),
    (
        "not ASCII",
        pool({"nodeClassRef": NO_REF}, metadata={"labels": {"é": "ü"}, "annotations": {"b": "c"}}),
        "4374309636180643146",
    ),
]


@pytest.mark.parametrize(("name", "subject", "expected"), GOLDEN, ids=[g[0] for g in GOLDEN])
def test_hash_is_upstreams(name, subject, expected):
    """Case 141, and more values taken from upstream's own function."""
    assert node_pool_hash(subject) == expected, name


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({}, {"metadata": {"labels": {"a": "b"}}}),
        ({}, {"metadata": {"annotations": {"a": "b"}}}),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, {}),
        ({"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}, {}),
        ({"expireAfter": "1h"}, {}),
        ({"terminationGracePeriod": "1h"}, {}),
        ({"nodeClassRef": REF | {"name": "other"}}, {}),
    ],
)
def test_fields_that_need_a_new_node_change_the_hash(spec, more):
    """Cases 139 and 82."""
    assert node_pool_hash(pool(spec, **more)) != node_pool_hash(pool())


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({"requirements": [{"key": "a", "operator": "Exists"}]}, {}),
        ({}, {"limits": {"cpu": "1"}}),
        ({}, {"weight": 5}),
        ({}, {"replicas": 5}),
        ({}, {"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1h"}}),
        ({}, {"disruption": {"budgets": [{"nodes": "0"}]}}),
    ],
)
def test_other_fields_do_not_change_the_hash(spec, more):
    """Cases 139 and 82."""
    assert node_pool_hash(pool(spec, **more)) == node_pool_hash(pool())


def test_the_spelling_of_a_duration_does_not_matter():
    assert node_pool_hash(pool({"expireAfter": "90m"})) == node_pool_hash(
        pool({"expireAfter": "1h30m0s"})
    )


TAINTS = st.lists(
    st.builds(
        lambda key, value, effect: {"key": key, "value": value, "effect": effect},
        st.text(min_size=1, max_size=4),
        st.text(max_size=4),
        st.sampled_from(["NoSchedule", "NoExecute"]),
    ),
    max_size=4,
)


@given(TAINTS, st.dictionaries(st.text(max_size=4), st.text(max_size=4)), st.randoms())
@with_examples(100)
def test_order_never_matters(taints, labels, random):
    shuffled, items = list(taints), list(labels.items())
    random.shuffle(shuffled)
    random.shuffle(items)

    first = node_pool_hash(pool({"taints": taints}, metadata={"labels": labels}))
    second = node_pool_hash(pool({"taints": shuffled}, metadata={"labels": dict(items)}))

    assert first == second
    assert 0 <= int(first) < 2**64


def test_pool_gets_its_hash_once():
    stamped = with_hash(pool())

    assert stamped.metadata.annotations == {HASH: "17369979337536258260", VERSION: HASH_VERSION}
    assert with_hash(stamped) is stamped


def test_a_claim_of_another_version_is_restamped():
    """Cases 140 and 83."""
    stamped = with_current_hash(claim(version="test", old_hash="1"), pool())

    assert stamped.metadata.annotations == {HASH: "17369979337536258260", VERSION: HASH_VERSION}


def test_a_drifted_claim_keeps_its_hash():
    """Cases 140 and 83."""
    stamped = with_current_hash(claim(version="test", old_hash="1", drifted=True), pool())

    assert stamped.metadata.annotations == {HASH: "1", VERSION: HASH_VERSION}
    assert stamped.status.conditions == (Condition(type="Drifted", status="True"),)


def test_a_claim_of_this_version_is_ignored():
    """Cases 140 and 83."""
    current = claim(version=HASH_VERSION, old_hash="1")

    assert with_current_hash(current, pool()) is current
