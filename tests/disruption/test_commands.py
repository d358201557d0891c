"""Texts of a command (case 270), and the notices about its nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.disruption.command import CommandDecision
from karpenter_core.disruption.consolidation import candidate_notices
from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass
from karpenter_core.disruption.plan import plan
from karpenter_core.scheduling.problem import SolveOptions
from karpenter_core.state.builder import StateBuilder
from karpenter_core.testing.state_builders import MANAGED_KINDS
from tests.disruption.small_clusters import (
    NOW,
    SIXTEEN,
    box,
    cluster,
    multi,
    only,
    pool,
    runs,
    single,
)


def merged():
    """Two nodes with three and two pods, of two pools, that go to a third."""
    return only(
        multi(
            cluster(
                pool("blue"),
                pool("green"),
                box("a", pool="green"),
                box("b", pool="blue"),
                [runs(f"a-{n}", "a", cpu="500m") for n in range(3)],
                [runs(f"b-{n}", "b", cpu="500m") for n in range(2)],
                box("roomy", SIXTEEN, pool="blue"),
                runs("kept", "roomy", annotations={DO_NOT_DISRUPT: "true"}),
            )
        )
    )


class TestText:
    def test_of_a_deletion(self):
        command = merged()
        assert str(command) == (
            "Underutilized/command-1: delete: nodepools=[blue, green]: [b, a] (savings: $0.80)"
        )
        assert sum(len(each.reschedulable_pods) for each in command.candidates) == 5

    def test_of_a_replacement(self):
        command = only(single(cluster(box("web", SIXTEEN), runs("a", "web", cpu="3"))))
        assert str(command) == (
            "Underutilized/command-1: replace: nodepools=[default]: [web] -> [1 replacement]"
            " (savings: $1.20)"
        )
        twice = replace(command, replacements=command.replacements * 2)
        assert "[web] -> [2 replacements]" in str(twice)

    def test_amounts_name_another_reporting_currency(self):
        """A `$` before an amount in yen would be read as a hundred times the savings."""
        yen = DisruptionOptions(solve=SolveOptions(currency="JPY", exchange_rates={"USD": 100.0}))
        builder = cluster(box("web", SIXTEEN), runs("a", "web", cpu="3"))
        command = only(single(builder, options=yen))
        assert "(savings: 120.00 JPY)" in str(command)
        for notice in candidate_notices(command):
            assert notice.message.endswith("(savings: 120.00 JPY)")

    def test_of_nothing(self):
        command = replace(merged(), candidates=())
        assert command.decision is CommandDecision.NO_OP
        assert "no-op: nodepools=[]: []" in str(command)

    def test_on_every_node_and_claim(self):
        notices = candidate_notices(merged())
        assert [(n.regarding.kind, n.regarding.name) for n in notices] == [
            ("Node", "b"),
            ("NodeClaim", "b"),
            ("Node", "a"),
            ("NodeClaim", "a"),
        ]
        for notice in notices:
            assert notice.reason == "ConsolidationCandidate"
            assert notice.message == (
                f"Consolidation candidate: delete: [{notice.regarding.name}] (part of 2-node"
                " consolidation) (savings: $0.80)"
            )

    def test_of_one_node_alone(self):
        command = only(single(cluster(box("web", SIXTEEN), runs("a", "web", cpu="3"))))
        assert {n.message for n in candidate_notices(command)} == {
            "Consolidation candidate: replace: [web] -> [1 replacement] (savings: $1.20)"
        }

    def test_prices_may_change_without_repeating_the_event(self):
        """The deduplication key of an Event has no amounts in it."""
        for notice in candidate_notices(merged()):
            assert "$" not in "".join(notice.dedupe)


def test_a_command_carries_its_evidence():
    command = merged()
    proof = {
        item.claim: (item.pool, item.price.amount, item.pods)
        for item in command.evidence.candidates
    }
    assert proof == {"a": ("green", 0.4, 3), "b": ("blue", 0.4, 2)}
    assert command.evidence.savings_per_hour == pytest.approx(0.8)


def test_nothing_is_judged_before_everything_is_seen():
    disruption_pass = DisruptionPass(
        snapshot=StateBuilder(MANAGED_KINDS).snapshot(), now=NOW, command_id="c"
    )
    assert plan(disruption_pass).reports == ()
