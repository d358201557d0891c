"""Each decision of the journal has exactly one log line, with its id."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import structlog

from karpenter_core.api.decisions import Decision, DecisionCandidate, DecisionObstacle
from karpenter_core.api.prices import Price
from karpenter_core.kube.resources import DEPLOYMENTS
from karpenter_core.operator.decision_log import DECISION_MESSAGES, log_decision
from tests.controllers.whole_controller import NODE_CLASS, deployment, node_pool, run_controller

CANDIDATE = DecisionCandidate(
    node="node-a", node_claim="claim-a", node_pool="web", price_per_hour=Price(0.4), pods=3
)
DISRUPTION = Decision(
    id="id-1",
    cause="pass",
    kind="disrupt",
    at=datetime(2030, 1, 1, tzinfo=UTC),
    summary="Underutilized/id-1: delete: [claim-a]",
    method="single-node-consolidation",
    reason="Underutilized",
    candidates=(CANDIDATE,),
    price_per_hour_before=Price(0.4),
)


def line_of(decision):
    with structlog.testing.capture_logs() as lines:
        log_decision(decision)
    (line,) = lines
    return line


def test_a_disruption_names_its_nodes_pods_and_prices():
    line = line_of(DISRUPTION)

    assert line == {
        "event": "disrupting node(s)",
        "log_level": "info",
        "decision": "id-1",
        "command-id": "id-1",
        "kind": "disrupt",
        "method": "single-node-consolidation",
        "reason": "Underutilized",
        "cause": "pass",
        "command": "Underutilized/id-1: delete: [claim-a]",
        "disrupted-node-count": 1,
        "disrupted-nodes": ["node-a"],
        "disrupted-nodeclaims": ["claim-a"],
        "pod-count": 3,
        "price-per-hour-before": "0.4000 USD/h",
    }


@pytest.mark.parametrize(
    ("changes", "message", "level"),
    [
        ({"rejection": "budget"}, "disruption command rejected", "info"),
        ({"failure": "no replacement"}, "disruption command failed", "error"),
        ({"kind": "provision"}, "computed a plan", "info"),
    ],
)
def test_the_message_has_the_outcome_of_the_decision(changes, message, level):
    line = line_of(replace(DISRUPTION, **changes))
    assert (line["event"], line["log_level"]) == (message, level)
    assert set(changes.values()) <= set(map(str, line.values()))


def test_a_line_stays_short_in_large_clusters():
    """Counts include what the journal left out."""
    many = replace(
        DISRUPTION,
        candidates=(CANDIDATE,) * 100,
        omitted={"candidates": 900},
        obstacles=(
            DecisionObstacle(
                kind="Pod", reason="Budget", message="held by a budget", count=7, names=("a/b",)
            ),
        ),
    )
    line = line_of(many)
    assert line["disrupted-node-count"] == 1000
    assert len(line["disrupted-nodes"]) == 20
    assert (line["obstacles"], line["obstacle"]) == (7, "held by a budget")


def test_every_decision_of_a_process_is_logged_once(tmp_path):
    """Passes, consolidations and forced endings; no other line has such a message."""

    async def scenario(scene):
        pool = node_pool(template={"expireAfter": "5m"})
        scene.cluster.apply([NODE_CLASS, pool, deployment("web", 4)])
        running = scene.start("--disable-leader-election")
        await scene.settle(lambda: len(scene.pods("Running")) == 4, seconds=60)
        await scene.cluster.clock.sleep(400)
        scene.cluster.scale(DEPLOYMENTS, "web", 0)
        await scene.settle(lambda: not scene.nodes(), seconds=200)

        decisions = running.process.runtime.journal.latest()
        logged = [line for line in lines if line["event"] in DECISION_MESSAGES]
        assert {item.method for item in decisions} >= {"emptiness", "expiration"}
        assert {item.kind for item in decisions} == {"provision", "disrupt"}
        assert [line["decision"] for line in reversed(logged)] == [item.id for item in decisions]
        repeated = Counter(line["decision"] for line in logged)
        assert set(repeated.values()) == {1}
        passes = {item.id for item in decisions if item.kind == "provision"}
        launches = [line for line in lines if line["event"] == "launched nodeclaim"]
        assert launches
        assert {line["decision"] for line in launches} <= passes

    with structlog.testing.capture_logs() as lines:
        run_controller(tmp_path, scenario)


def test_a_failed_launch_names_the_decision_that_wanted_it(tmp_path):
    """And giving up its NodeClaim is a decision of its own."""
    faults = tmp_path / "faults.json"
    faults.write_text(json.dumps([{"fault": "stock-out"}]))

    async def scenario(scene):
        scene.cluster.apply([NODE_CLASS, node_pool(), deployment("web", 1)])
        running = scene.start("--disable-leader-election")
        await scene.cluster.clock.sleep(60)

        decisions = running.process.runtime.journal.latest()
        passes = {item.id for item in decisions if item.kind == "provision"}
        given_up = {item.id for item in decisions if item.method == "launch"}
        failures = [line for line in lines if line["event"] == "launch failed"]
        assert failures
        assert {line["decision"] for line in failures} <= passes
        logged = [line["decision"] for line in lines if line["event"] == "disrupting node(s)"]
        assert given_up
        assert sorted(logged) == sorted(given_up)

    with structlog.testing.capture_logs() as lines:
        run_controller(tmp_path, scenario, arguments=[f"--kwok-faults-file={faults}"])
