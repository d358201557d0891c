"""`karpenter explain nodepool` says first whether a NodePool launches, or what is in the way."""

from __future__ import annotations

import json
from functools import partial

import pytest

from karpenter_core.cli.explain.tables import NODE_POOL_STATES
from tests.cli.inputs import instance_type, offering, paid_commitment, pod, pool, write
from tests.cli.test_explain_node import claim_with_node

INSTANCE_TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10)),
    instance_type("large", "4", "8Gi", offering(0.20)),
    instance_type("gone", "8", "16Gi", offering(0.40, Available=False)),
]


def quota(name="team", selector=None, **resources):
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityQuota",
        "metadata": {"name": name},
        "spec": {"selector": selector or {}, "limits": {"resources": resources}},
    }


@pytest.fixture
def explain(explain_kind):
    """Explain the NodePool `general` of a cluster made of these objects."""
    return partial(explain_kind, "nodepool", types=INSTANCE_TYPES, name="general")


def test_a_pool_without_limits_is_open_or_launches(explain):
    idle = explain(pool())
    assert (idle["state"], idle["limits"], idle["quotas"]) == ("open", {}, {})
    assert idle["cheapest"]["instanceType"] == "small"

    busy = explain(pool(), pod("web"))
    assert busy["state"] == "launching"
    assert busy["message"] == "it launches 1 node for 1 pod"
    assert busy["launches"] == {"nodes": 1, "pods": 1}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("node.kubernetes.io/instance-type", "huge", "no instance type meets its requirements"),
        (
            "node.kubernetes.io/instance-type",
            "gone",
            "no instance type that it may launch is available",
        ),
    ],
)
def test_a_pool_without_instance_types_cannot_launch(explain, key, value, said):
    """It is not said to be open, though no pod waits for it."""
    requirement = {"key": key, "operator": "In", "values": [value]}

    found = explain(pool(template={"requirements": [requirement]}))

    assert found["state"] == "unusable"
    assert said in found["answer"]


def test_commitments_count_as_in_a_plan(program, tmp_path):
    types = tmp_path / "types.json"
    types.write_text(json.dumps(INSTANCE_TYPES))
    file = write(tmp_path / "cluster.yaml", pool(), pod("web", cpu="1500m"))
    options = ("--offline", file, "--instance-types-file", types, "-o", "json")
    options += (paid_commitment(),)

    planned = json.loads(program("plan", *options).out)
    explained = json.loads(program("explain", "nodepool", "general", *options).out)

    assert planned["nodeClaims"][0]["cheapest"]["instanceType"] == "large"
    assert explained["cheapest"]["instanceType"] == "large"


@pytest.mark.parametrize(
    ("limits", "resource", "text"),
    [
        ({"cpu": "4"}, "cpu", "used up: 4 of 4"),
        ({"cpu": "5"}, "cpu", "1 left, and its smallest node has 2"),
        ({"nodes": "1"}, "nodes", "used up: 1 of 1"),
        ({"karpenter.sh/price-per-hour": "0.25"}, "karpenter.sh/price-per-hour", "0.05 left"),
    ],
)
def test_the_limit_that_keeps_a_pool_from_launching_is_named(explain, limits, resource, text):
    """A node with 4 cores at 0.20 an hour is there."""
    found = explain(pool(limits=limits), claim_with_node("a"), pod("web"))

    assert (found["state"], found["nodes"]) == ("limited", 1)
    assert text in found["message"]
    assert resource in found["message"]
    assert found["limits"][resource]["message"] == found["message"]


def test_a_limit_with_room_shows_the_rest(explain):
    found = explain(pool(limits={"cpu": "10"}), claim_with_node("a"))
    assert found["state"] == "open"
    assert found["limits"]["cpu"] == {"used": "4", "limit": "10", "left": "6", "message": ""}


def test_only_quotas_that_count_its_nodes_are_shown(explain):
    other = quota("other", {"matchLabels": {"karpenter.sh/nodepool": "batch"}}, nodes="0")
    found = explain(pool(), quota(nodes="1"), other, claim_with_node("a"))

    assert list(found["quotas"]) == ['CapacityQuota "team"']
    assert found["state"] == "limited"
    assert 'nodes of CapacityQuota "team" is used up' in found["message"]


def test_a_quota_that_cannot_be_read_stops_the_pool(explain):
    found = explain(pool(), quota(cpu="many"))
    assert found["state"] == "limited"
    assert "cannot be read" in found["message"]


def test_a_static_pool_shows_its_replicas(explain):
    found = explain(pool(replicas=2))
    assert found["state"] == "static"
    assert found["static"]["replicas"] == 2
    assert found["limits"] == {}


def test_a_static_pool_shows_the_limit_of_its_nodes(explain):
    found = explain(pool(replicas=3, limits={"nodes": "2"}), claim_with_node("a"))
    assert found["limits"]["nodes"] == {"used": "1", "limit": "2", "left": "1", "message": ""}


def test_a_static_pool_names_the_nodeclaims_beyond_its_replicas(explain):
    found = explain(pool(replicas=0), claim_with_node("a"))
    assert found["message"] == "1 NodeClaim too many: general-a"


def test_the_table_begins_with_the_answer(explain):
    shown = explain(pool(limits={"cpu": "4"}), claim_with_node("a"), options=()).out
    assert shown.startswith(f"general: {NODE_POOL_STATES['limited']}")
    assert "cpu: 4 of 4, 0 left" in shown


def test_a_pool_that_does_not_exist_is_an_error_with_similar_names(explain):
    shown = explain(pool(), name="generol", code=2)
    assert "general" in shown.err


def test_notes_about_objects_that_were_not_read_come_with_a_missing_name(program, tmp_path):
    """On a live cluster the object may be among those that are left out, or its kind not served."""
    file = write(
        tmp_path / "cluster.yaml",
        pool("web"),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}},
    )
    shown = program("explain", "nodepool", "nope", "--offline", file, code=2)
    note, error = shown.err.splitlines()
    assert note == "karpenter: note: ignored: 1 of kind ConfigMap"
    assert 'there is no NodePool "nope"' in error
