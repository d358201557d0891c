"""The documents of the dashboard are bounded, and change only when the cluster does."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from karpenter_core.api.decisions import Decision, DecisionCandidate, DecisionLaunch
from karpenter_core.api.prices import Price
from karpenter_core.cli.cluster_source import ClusterSource
from karpenter_core.cli.dashboard import document
from karpenter_core.cli.dashboard.content import ClusterContent, _input_of
from karpenter_core.cli.rebalance.document import rebalance_document
from karpenter_core.cli.rebalance.simulation import disruptions_now
from karpenter_core.errors import BadInputError
from karpenter_core.operator.dashboard_content import Role
from tests.cli.top.clusters import write_cluster
from tests.dashboard.moments import NOW, moment_of


@pytest.fixture
async def moment(tmp_path):
    write_cluster(tmp_path)
    source = ClusterSource(
        files=(tmp_path / "cluster.yaml",),
        offline=True,
        instance_types_file=tmp_path / "types.json",
    )
    cluster = (await source.read()).cluster
    return moment_of(
        cluster.snapshot,
        now=cluster.now,
        solve=cluster.options,
        problem_settings=cluster.problem_settings,
    )


def by_name(state, key="nodes", name="name"):
    return {row[name]: row for row in state[key]}


async def test_the_state_has_the_rows_and_sums_of_karpenter_top(moment):
    state = ClusterContent().state(moment)

    nodes = by_name(state)
    assert nodes["busy"]["nodePool"] == "general"
    assert nodes["busy"]["pods"] == 6
    assert nodes["busy"]["pricePerHour"] == 1.0
    assert nodes["busy"]["resources"]["cpu"]["requested"] == "3.6"
    assert nodes["silent"]["state"] == "NotReady"
    assert nodes["drained"]["reason"] == "DisruptionReason"
    assert state["totals"]["nodes"] == len(nodes)
    assert by_name(state, "nodePools")["batch"]["limits"] == {"cpu": "100", "memory": "200Gi"}
    assert json.loads(msgspec.json.encode(state))["apiVersion"] == 1


async def test_time_alone_changes_nothing(moment):
    later = replace(moment, now=moment.now + timedelta(minutes=5, microseconds=1234))

    earlier = replace(
        moment, now=moment.now - timedelta(days=900)
    )  # the clock of the node is ahead

    assert ClusterContent().state(moment) == ClusterContent().state(later)
    assert ClusterContent().state(moment) == ClusterContent().state(earlier)


async def test_reasons_of_pods_are_those_of_the_last_pass(moment):
    uid = next(pod.uid for pod in moment.snapshot.pods.values() if pod.name == "huge")
    message = 'nodepool "general": no instance type has enough resources'

    state = ClusterContent().state(replace(moment, reasons={uid: message}))

    pods = by_name(state, "pendingPods", "pod")
    assert state["pendingPods"][0] == pods["shop/huge"]  # those without a prospect come first
    assert pods["shop/huge"] == {
        "pod": "shop/huge", "state": "unschedulable", "message": message,
        "createdAt": pods["shop/huge"]["createdAt"],
    }  # fmt: skip
    assert pods["shop/small"]["message"] == "waits for the next pass"
    assert "scheduling gates: queue" in pods["shop/gated"]["message"]
    assert state["pendingStates"] == {"held": 3, "unschedulable": 1}


@pytest.mark.parametrize(
    ("role", "message"),
    [(Role.STANDBY, "only the leader plans pods"), (Role.OBSERVER, "this process only observes")],
)
async def test_a_process_that_plans_no_pods_says_so(moment, role, message):
    state = ClusterContent().state(replace(moment, role=role))

    pods = by_name(state, "pendingPods", "pod")
    assert pods["shop/small"]["message"].startswith(message)
    assert state["role"] == role.value


async def test_a_standby_says_nothing_of_instance_types_that_it_does_not_list(moment):
    snapshot = replace(moment.snapshot, catalogues={}, listed_catalogues={})
    pools = {
        role: by_name(
            ClusterContent().state(replace(moment, snapshot=snapshot, role=role)), "nodePools"
        )
        for role in (Role.LEADER, Role.STANDBY)
    }

    assert "instance type" in pools[Role.LEADER]["general"]["problem"]
    assert pools[Role.STANDBY]["general"]["problem"] == ""


async def test_lists_are_bounded_and_nodes_that_are_not_ready_are_in_them(moment, monkeypatch):
    monkeypatch.setattr(document, "MOST_NODES", 4)
    monkeypatch.setattr(document, "MOST_PENDING", 1)
    monkeypatch.setattr(document, "MOST_PODS", 2)

    state = ClusterContent().state(moment)
    pods = ClusterContent().pods_of(moment, "busy")

    assert len(state["nodes"]) == 4
    assert state["omittedNodes"] == state["totals"]["nodes"] - 4
    assert all(row["state"] != "Ready" for row in state["nodes"])
    assert len(state["pendingPods"]) == 1
    assert (len(pods["pods"]), pods["omitted"]) == (2, 4)


async def test_pods_of_a_node_are_listed_the_largest_first(moment):
    pods = ClusterContent().pods_of(moment, "busy")["pods"]

    assert [pod["cpu"] for pod in pods] == ["0.7"] * 5 + ["0.1"]
    with pytest.raises(BadInputError, match='no node "none"'):
        ClusterContent().pods_of(moment, "none")


async def test_explanations_are_those_of_karpenter_explain(moment):
    content = ClusterContent()

    node = content.explain_node(moment, "busy")
    pod = content.explain_pod(moment, "shop/huge")

    assert node["methods"]["emptiness"]["message"] == "it is not empty: 6 pods would have to move"
    assert pod["state"] == "unschedulable"
    assert pod["pools"]["general"]["constraint"] == "resource"
    with pytest.raises(BadInputError, match=r'no node "bsy"; near: .*busy'):
        content.explain_node(moment, "bsy")
    with pytest.raises(BadInputError, match="none"):
        content.explain_pod(moment, "shop/none")


async def test_a_rebalance_is_the_disruption_of_karpenter_plan_in_short(moment, monkeypatch):
    expected = rebalance_document(disruptions_now(_input_of(moment)))
    names = [step["nodes"] for step in expected["steps"]]

    assert names
    assert expected["blocked"]
    short = ClusterContent().rebalance(moment)
    assert [step["nodes"] for step in short["steps"]] == names
    assert short["savingsPerHour"] == sum(step["savingsPerHour"] for step in short["steps"])
    assert {**short, "steps": 0} == {**expected, "steps": 0, "omittedSteps": 0}
    monkeypatch.setattr(document, "MOST_NAMES", 0)
    first = ClusterContent().rebalance(moment)["steps"][0]
    assert (first["nodes"], first["omittedNodes"]) == ([], len(names[0]))
    monkeypatch.setattr(document, "MOST_STEPS", 0)
    short = ClusterContent().rebalance(moment)
    assert (short["steps"], short["omittedSteps"]) == ([], len(names))


def test_a_decision_has_the_first_names_of_its_lists():
    candidates = tuple(
        DecisionCandidate(node=f"node-{number}", node_claim=f"claim-{number}", node_pool="web",
                          price_per_hour=Price(0.2, "USD"), pods=1)
        for number in range(12)
    )  # fmt: skip
    launch = DecisionLaunch(
        node_claim="claim-new", node_pool="web", instance_type="large", zone="zone-a",
        capacity_type="spot", instance_types=3, price_per_hour=Price(0.3, "USD"), pods=12,
    )  # fmt: skip
    made = Decision(
        id="d", cause="c", kind="disrupt", at=NOW, summary="12 nodes", reason="Underutilized",
        candidates=candidates, launches=(launch,), omitted={"candidates": 5},
        price_per_hour_before=Price(2.4, "USD"), price_per_hour_after=Price(0.3, "USD"),
    )  # fmt: skip

    short = ClusterContent().decision(made)

    assert short["removed"] == [f"node-{number}" for number in range(10)]
    assert short["launched"] == ["claim-new large zone-a"]
    assert (short["more"], short["priceBefore"], short["priceAfter"]) == (7, 2.4, 0.3)
    assert short["at"] == "2026-01-01T09:00:00Z"
