"""`karpenter plan --rebalance` shows the steps, the savings and the obstacles of a rebalance."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from karpenter_core.cli.rebalance.report import rebalance_report
from tests.cli.inputs import instance_type, offering, pod, pool, write
from tests.cli.test_explain_node import CONSOLIDATING, START, claim_with_node, web

TYPES = [
    instance_type("small", "2", "4Gi", offering(0.10)),
    instance_type("medium", "4", "8Gi", offering(0.18)),
    instance_type("large", "16", "32Gi", offering(1.00)),
]


@pytest.fixture
def rebalance(program, tmp_path):
    """Preview the rebalance of a cluster made of these objects."""
    types = tmp_path / "types.json"
    types.write_text(json.dumps(TYPES))

    def run(*objects, options=("-o", "json")):
        flat = [each for item in objects for each in (item if isinstance(item, tuple) else (item,))]
        file = write(tmp_path / "cluster.yaml", *flat)
        shown = program(
            "plan", "--rebalance", "--offline", file, "--instance-types-file", types, *options
        )
        return json.loads(shown.out) if "json" in options else shown.out

    return run


def test_passes_follow_each_other_until_nothing_more_can_be_done(rebalance):
    """Empty nodes go, and the pods of the others share one cheaper node."""
    nodes = [claim_with_node(f"node-{number}") for number in range(4)]
    pods = [web(f"web-{number}", f"node-{number}", cpu="500m") for number in range(3)]

    found = rebalance(CONSOLIDATING, *nodes, *pods)

    assert found["before"]["nodes"] == 4
    assert found["after"] == {"nodes": 1, "pricePerHour": 0.1, "nodesWithoutPrice": 0}
    assert found["complete"]
    assert found["steps"][0]["method"] == "emptiness"
    assert sum(step["savingsPerHour"] for step in found["steps"]) == pytest.approx(
        found["before"]["pricePerHour"] - found["after"]["pricePerHour"]
    )
    assert found["steps"][-1]["pricePerHour"] == pytest.approx(found["after"]["pricePerHour"])
    starts = [step["afterSeconds"] for step in found["steps"]]
    assert starts == sorted(starts)


def test_pods_that_were_nominated_for_their_node_are_evicted_as_others(rebalance):
    """Until 1.35, Kubernetes leaves the nomination of a bound pod; who replaces the pod has none."""
    nodes = [claim_with_node(f"node-{number}") for number in range(4)]
    pods = [web(f"web-{number}", f"node-{number}", cpu="500m") for number in range(3)]
    plain = rebalance(CONSOLIDATING, *nodes, *pods)
    for number, each in enumerate(pods):
        each["status"] = {"phase": "Running", "nominatedNodeName": f"node-{number}"}

    assert rebalance(CONSOLIDATING, *nodes, *pods)["steps"] == plain["steps"]


def test_a_cheaper_node_for_the_room_of_a_buffer_stays(rebalance):
    """Virtual pods go with the room that is kept for them, to nodes that the preview launches."""
    request = {"cpu": "500m", "memory": "512Mi"}
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "room", "namespace": "default"},
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": request}}]}},
    }
    buffer = {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "headroom", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "room"}, "replicas": 1},
    }
    nodes = [claim_with_node(f"node-{number}") for number in range(3)]

    found = rebalance(CONSOLIDATING, template, buffer, *nodes)

    assert found["after"]["nodes"] == 1


def test_each_step_keeps_to_the_budgets(rebalance):
    one_at_a_time = pool(
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "30s",
            "budgets": [{"nodes": "1"}],
        }
    )
    nodes = [claim_with_node(f"node-{number}") for number in range(4)]

    found = rebalance(one_at_a_time, *nodes)

    assert [len(step["nodes"]) for step in found["steps"]] == [1, 1, 1, 1]
    assert found["after"]["nodes"] == 0


def test_a_blocked_node_stays_and_is_named_with_its_obstacle(rebalance):
    guarded = web("guarded", "node-1", labels={"app": "guarded"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": "strict",
            "namespace": guarded["metadata"].get("namespace", "default"),
        },
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}},
    }
    objects = CONSOLIDATING, claim_with_node("node-1"), claim_with_node("node-2"), guarded, budget

    found = rebalance(*objects)

    assert [node["node"] for step in found["steps"] for node in step["nodes"]] == ["node-2"]
    (blocked,) = found["blocked"]
    assert (blocked["obstacle"], blocked["nodes"]) == ("podDisruptionBudget", ["node-1"])
    text = rebalance(*objects, options=())
    assert text.startswith("1 step save")
    assert "node-1: PodDisruptionBudget" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_node_that_is_not_quiet_yet_is_taken_after_its_quiet_time(rebalance):
    claim, made = claim_with_node("node-1", conditions=())
    claim["status"]["lastPodEventTime"] = START

    (step,) = rebalance(CONSOLIDATING, claim, made)["steps"]

    assert step["afterSeconds"] == 300
    assert step["nodes"][0]["node"] == "node-1"


def test_the_report_is_one_page_that_needs_nothing_else(rebalance):
    """No script, no resource, no markup from names; its chart has a text for screen readers."""
    nodes = [claim_with_node(f"node-{number}") for number in range(3)]
    pods = [web(f"web-{number}", f"node-{number}", cpu="500m") for number in range(2)]

    page = rebalance(CONSOLIDATING, *nodes, *pods, options=("-o", "html"))

    root = ET.fromstring(re.sub(r"<!DOCTYPE html>|<meta [^>]*>", "", page))
    tags = {element.tag.lower() for element in root.iter()}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    attributes = {name for element in root.iter() for name in element.attrib}
    assert attributes.isdisjoint({"src", "href", "style", "onload", "onclick"})
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|url\(|@import", page)
    chart = root.find(".//svg")
    assert chart.attrib["aria-label"].startswith("Price per hour, from 3.0000 to 0.1000")
    assert len(root.findall(".//h2")) == 2
    assert "node-2" in "".join(root.itertext())


def test_the_report_writes_times_as_the_table_does(rebalance):
    """In minutes, where a number of seconds would have to be converted."""
    claim, made = claim_with_node("node-1", conditions=())
    claim["status"]["lastPodEventTime"] = START
    objects = (CONSOLIDATING, claim, made)

    assert "5m00s" in rebalance(*objects, options=())
    assert ">5m00s<" in rebalance(*objects, options=("-o", "html"))


def test_names_are_text_in_the_report():
    """Whatever a file calls a node."""
    costs = {"nodes": 1, "pricePerHour": 1.0, "nodesWithoutPrice": 0}
    blocked = {"obstacle": "pod", "message": "<b>x</b> & y", "count": 1, "nodes": ["<script>"]}
    document = {
        "before": costs,
        "after": costs,
        "steps": [],
        "blocked": [blocked],
        "budgetsUsedUp": ["<i>"],
    }

    page = rebalance_report(document, "<u>answer</u>")

    assert not re.search(r"<(script|b|i|u)>", page)
    assert "&lt;script&gt;" in page


def test_a_report_is_of_a_rebalance(program, tmp_path):
    file = write(tmp_path / "cluster.yaml", CONSOLIDATING)
    shown = program("plan", "--offline", file, "-o", "html", code=2)
    assert "add --rebalance" in shown.err


def test_a_cluster_without_a_saving_says_so(rebalance):
    assert rebalance(CONSOLIDATING, pod("web"), options=()).startswith(
        "nothing to rebalance: 0 nodes"
    )


def test_nodes_without_a_claim_are_noted_as_such_that_stay(program, tmp_path):
    """Beside Cluster Autoscaler "nothing to rebalance: 0 nodes" would say that there are none."""
    group = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "group-1"}}
    file = write(tmp_path / "cluster.yaml", CONSOLIDATING, group)
    shown = program("plan", "--rebalance", "--offline", file)
    assert (
        "note: 1 node has no NodeClaim of a loaded provider and stays; `karpenter run --observe"
        in shown.err
    )
    file = write(tmp_path / "cluster.yaml", CONSOLIDATING, *claim_with_node("node-1"))
    assert "NodeClaim" not in program("plan", "--rebalance", "--offline", file).err


def test_a_plan_shows_the_nodes_that_are_removed_and_the_price_before_and_after(program, tmp_path):
    types = tmp_path / "types.json"
    types.write_text(json.dumps(TYPES))
    file = write(
        tmp_path / "cluster.yaml", CONSOLIDATING, *claim_with_node("node-1"), pod("huge", cpu="12")
    )
    options = ("--offline", file, "--instance-types-file", types)

    found = json.loads(program("plan", *options, "-o", "json").out)["disruption"]

    assert (found["nodesRemoved"], found["before"]["nodes"], found["after"]["nodes"]) == (1, 1, 0)
    text = program("plan", *options).out
    price = found["before"]["pricePerHour"]
    assert f"price per hour: {price:.4f} before, 1.0000 after this plan" in text


def test_pending_pods_get_their_nodes_first(rebalance):
    """A node that is launched for them is no saving, and one that has room for them stays."""
    objects = CONSOLIDATING, *claim_with_node("node-1"), *claim_with_node("node-2")
    waiting = [pod("small", cpu="500m"), pod("huge", cpu="14")]
    busy = [web(f"web-{number}", f"node-{number}", cpu="4") for number in (1, 2)]

    found = rebalance(*objects, *busy, *waiting)

    launched = found["launchedForPendingPods"]
    assert launched == {"nodes": 1, "pricePerHour": 1.0, "nodesWithoutPrice": 0}
    total = found["before"]["pricePerHour"] + 1.0 - found["savingsPerHour"]
    assert found["after"]["pricePerHour"] == pytest.approx(total)
    assert found["after"]["nodes"] == 2
    text = " ".join(rebalance(*objects, *busy, *waiting, options=()).split())
    assert "; 1 node at 1.0000 for pending pods" in text


def windowed(*budgets):
    return pool(
        disruption={
            "consolidationPolicy": "WhenEmptyOrUnderutilized",
            "consolidateAfter": "30s",
            "budgets": list(budgets),
        }
    )


def test_an_evicted_pod_that_the_scheduler_leaves_without_room_gets_a_node(rebalance):
    """The scheduler puts the small pod where the plan has the large one."""
    stays = {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}
    objects = (
        CONSOLIDATING,
        *(claim_with_node(f"node-{number}") for number in range(4)),
        web("full", "node-0", cpu="3400m", **stays),
        web("half", "node-1", cpu="2900m", **stays),
        web("a-small", "node-2", cpu="400m"),
        web("b-large", "node-3", cpu="900m"),
    )

    found = rebalance(*objects)

    assert found["steps"][0]["existingNodes"] == {
        "node-0": ["shop/a-small"], "node-1": ["shop/b-large"],
    }  # fmt: skip
    assert found["launchedForEvictedPods"]["nodes"] == 1
    saved = sum(step["savingsPerHour"] for step in found["steps"])
    again = found["launchedForEvictedPods"]["pricePerHour"]
    assert found["savingsPerHour"] == pytest.approx(saved - again)
    assert found["after"]["pricePerHour"] == pytest.approx(
        found["before"]["pricePerHour"] - found["savingsPerHour"]
    )
    assert "for evicted pods" in " ".join(rebalance(*objects, options=()).split())


def test_the_end_of_a_window_is_awaited(rebalance):
    """No step before; windows that meet count as one."""
    closed = {"nodes": "0", "schedule": "0 * * * *", "duration": "20m"}
    next_one = {"nodes": "0", "schedule": "15 * * * *", "duration": "30m"}

    (alone,) = rebalance(windowed(closed), *claim_with_node("node-1"))["steps"]
    (both,) = rebalance(windowed(closed, next_one), *claim_with_node("node-1"))["steps"]

    assert 0 < alone["afterSeconds"] <= 20 * 60
    assert both["afterSeconds"] - alone["afterSeconds"] == 25 * 60


def test_a_window_that_never_ends_is_not_awaited(rebalance):
    always = {"nodes": "0", "schedule": "* * * * *", "duration": "10m"}
    found = rebalance(windowed(always), *claim_with_node("node-1"))

    assert (found["steps"], found["complete"]) == ([], True)
    assert found["budgetsUsedUp"] == ["general"]
