"""The view of `karpenter top`: states, sums, prices and reasons."""

from __future__ import annotations

import json

import pytest

from karpenter_core.cli.top.view import NodeState
from tests.cli.top.clusters import read_view, write_cluster

STATES = {
    "busy": "Ready",
    "drained": "Draining",
    "chosen": "Disrupted",
    "ending": "Terminating",
    "cordoned": "Cordoned",
    "silent": "NotReady",
    "batch-asked": "Launching",
    "batch-booting": "Registering",
    "young": "Initializing",
    "own": "Ready",
}


@pytest.fixture
def document(program, tmp_path):
    return json.loads(program("top", *write_cluster(tmp_path), "-o", "json").out)


def test_each_node_has_its_state(document):
    """A NodeClaim without a Node is a row, too."""
    assert {row["name"]: row["state"] for row in document["nodes"]} == STATES
    assert {state.value for state in NodeState} == set(STATES.values())
    reasons = {row["name"]: row["reason"] for row in document["nodes"] if row["reason"]}
    assert reasons["silent"] == "the condition Ready is Unknown"
    assert set(reasons) >= {"drained", "chosen"}


def test_a_row_has_use_and_price(document):
    """Pods that have finished use nothing."""
    (row,) = (row for row in document["nodes"] if row["name"] == "busy")

    assert row["nodePool"] == "general"
    assert (row["instanceType"], row["zone"], row["capacityType"]) == ("large", "z1", "on-demand")
    assert row["pods"] == 6
    assert row["pricePerHour"] == 1.0
    assert row["resources"]["cpu"] == {"requested": "3600m", "allocatable": "4", "share": 0.9}
    assert row["resources"]["pods"] == {"requested": "6", "allocatable": "10", "share": 0.6}


def test_totals_are_sums_of_the_rows(document):
    totals = document["totals"]

    assert totals["nodes"] == len(STATES)
    assert sum(totals["states"].values()) == len(STATES)
    assert (totals["pods"], totals["boundPods"], totals["pendingPods"]) == (10, 6, 4)
    assert totals["runningPods"] == 6
    prices = [row["pricePerHour"] for row in document["nodes"]]
    assert totals["pricePerHour"] == sum(price for price in prices if price is not None) == 7.0
    assert totals["pricePerMonth"] == 7.0 * 730
    assert totals["unpricedNodes"] == prices.count(None) == 3
    assert totals["resources"]["cpu"]["requested"] == "3600m"
    assert sum(pool["nodes"] for pool in document["nodePools"]) == len(STATES) - 1


def test_pods_without_a_node_have_the_reasons_of_a_plan(document, program, tmp_path):
    """Pods that fit nowhere have the first cause that `karpenter explain pod` names."""
    options = (*write_cluster(tmp_path), "-o", "json")
    plan = json.loads(program("plan", *options).out)
    explained = json.loads(program("explain", "pod", "shop/huge", *options).out)
    waiting = {pod["pod"]: pod for pod in document["pendingPods"]}

    assert {key: pod["state"] for key, pod in waiting.items()} == {
        "shop/gated": "held",
        "shop/huge": "unschedulable",
        "shop/large": "launch",
        "shop/small": "existing",
    }
    for key, reason in plan["unschedulable"].items():
        assert waiting[key]["pools"] == reason["pools"]
    assert "large z1 on-demand" in waiting["shop/large"]["message"]
    assert waiting["shop/gated"]["message"] == plan["unschedulable"]["shop/gated"]["message"]
    said = waiting["shop/huge"]["message"]
    assert explained["answer"] == f"shop/huge: stays pending: {said}"


def test_limits_of_pools_are_shown(document):
    pools = {pool["name"]: pool["limits"] for pool in document["nodePools"]}

    assert pools == {"general": {}, "batch": {"cpu": "100", "memory": "200Gi"}}


async def test_a_selector_leaves_other_nodes_and_their_pods_out(tmp_path):
    """Pods without a node stay: they may go to any."""
    view = await read_view(tmp_path, node_selector={"karpenter.sh/nodepool": "batch"})

    assert {row.name for row in view.nodes} == {"cordoned", "batch-asked", "batch-booting"}
    assert (view.totals.nodes, view.totals.bound_pods, view.totals.pending_pods) == (3, 0, 4)


async def test_prices_can_be_left_out(tmp_path):
    view = await read_view(tmp_path, with_prices=False)

    assert {row.price_per_hour for row in view.nodes} == {None}
    assert view.totals.unpriced_nodes == 0
    assert not view.has_prices
