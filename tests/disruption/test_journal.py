"""Commands as entries of the decision journal."""

from __future__ import annotations

import subprocess
import sys

import pytest

from karpenter_core.api.decisions import MAX_LISTED, DecisionMethodResult
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.fingerprint import consolidation_fingerprint, digest_fingerprint
from karpenter_core.disruption.journal import command_decision
from karpenter_core.scheduling.steps import run_steps
from tests.disruption.small_clusters import EIGHT, NOW, box, cluster, found, pass_over, pool, runs

KEPT = {"karpenter.sh/do-not-disrupt": "true"}


def record(builder):
    outcome = found(builder)
    (command,) = outcome.commands
    return command_decision(command, outcome, rejection="", obstacles=(), currency="USD")


def replaced():
    """A node of eight cores for one pod, and one that is protected."""
    return cluster(
        box("a", EIGHT),
        runs("one", "a", cpu="3"),
        box("b"),
        runs("two", "b", annotations=KEPT, cpu="3"),
    )


def test_a_replacement_is_on_record_with_its_prices():
    """Candidates, replacements and both prices."""
    made = record(replaced())

    (candidate,), (launch,) = made.candidates, made.launches
    assert (made.kind, made.method, made.reason) == (
        "disrupt", "single-node-consolidation", "Underutilized",
    )  # fmt: skip
    assert (made.id, made.cause, made.at) == ("command-1", "test", NOW)
    assert (candidate.node, candidate.node_claim, candidate.node_pool, candidate.pods) == (
        "a", "a", "default", 1,
    )  # fmt: skip
    assert candidate.price_per_hour.amount == pytest.approx(0.8)
    assert (launch.node_pool, launch.instance_type, launch.pods) == ("default", "four", 1)
    assert made.price_per_hour_before.amount == pytest.approx(0.8)
    assert made.price_per_hour_after.amount == pytest.approx(0.4)
    assert [(ref.kind, ref.name) for ref in made.objects] == [("NodeClaim", "a"), ("Node", "a")]


def test_blockers_of_other_nodes_are_recorded():
    """Once, though several methods met it; with the methods that were asked before."""
    made = record(replaced())

    (obstacle,) = made.obstacles
    assert (obstacle.kind, obstacle.reason, obstacle.count, obstacle.names) == (
        "Node", "DisruptionBlocked", 1, ("b",),
    )  # fmt: skip
    assert "two" in obstacle.message
    *before, last = made.methods
    assert last == DecisionMethodResult(
        method="single-node-consolidation", eligible=1, constrained=False
    )
    assert "emptiness" in [item.method for item in before]


def test_pods_that_fit_elsewhere_are_on_record():
    """By the node that takes them."""
    builder = cluster(
        box("a"), runs("one", "a"), box("b", EIGHT), runs("two", "b", annotations=KEPT)
    )
    made = record(builder)

    (placement,) = made.placements
    assert (placement.node, placement.pods) == ("b", 1)
    assert made.launches == ()
    assert made.price_per_hour_after.amount == 0


def test_nodes_blocked_by_a_budget_are_recorded():
    """By its claim."""
    made = record(cluster(pool(nodes="1"), box("a"), box("b"), box("c")))

    assert len(made.candidates) == 1
    assert len(made.held_back) == 2


def test_the_next_best_moves_are_on_record():
    """By what they would save."""
    builder = cluster(
        pool(nodes="1"), box("a", EIGHT), runs("one", "a", cpu="3"), box("b"), runs("two", "b")
    )
    made = record(builder)

    (candidate,) = made.candidates
    assert (candidate.node, made.price_per_hour_before.amount) == ("a", pytest.approx(0.8))
    assert dict(made.alternatives) == {"b": pytest.approx(0.4)}


def test_a_command_rejected_by_validation_has_a_reason():
    """Nothing was done."""
    outcome = found(replaced())
    made = command_decision(
        outcome.commands[0], outcome, rejection="churn", obstacles=(), currency="USD"
    )

    assert (made.rejection, record(replaced()).rejection) == ("churn", "")


def test_blocked_nodes_are_recorded_after_validation_too():
    """The record is made of the command that is carried out."""
    builder = cluster(pool(nodes="1"), box("a"), box("b"))
    (command,) = found(builder).commands
    verdict = run_steps(EmptinessMethod().validate_steps(command, pass_over(builder)))

    assert verdict.command.evidence.spared_by_budget == command.evidence.spared_by_budget != ()


def test_a_record_is_bounded():
    """However many nodes go at once."""
    count = MAX_LISTED + 20
    made = record(cluster(*(box(f"n-{number:03d}") for number in range(count))))

    assert len(made.candidates) == len(made.objects) == MAX_LISTED
    assert made.omitted == {"candidates": 20, "objects": 2 * count - MAX_LISTED}


def test_the_digest_of_the_inputs_changes_with_them():
    """And with nothing else."""
    digests = [
        digest_fingerprint(consolidation_fingerprint(made().snapshot()))
        for made in (replaced, replaced)
    ]
    other = cluster(box("a", EIGHT), runs("one", "a", cpu="3"))

    assert digests[0] == digests[1] == record(replaced()).inputs
    assert digest_fingerprint(consolidation_fingerprint(other.snapshot())) != digests[0]


def test_the_digest_is_the_same_in_any_process():
    """Python's own hashes of texts are not."""
    code = (
        "from tests.disruption.test_journal import replaced;"
        "from karpenter_core.disruption import fingerprint as f;"
        "print(f.digest_fingerprint(f.consolidation_fingerprint(replaced().snapshot())))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip

    assert shown.strip() == digest_fingerprint(consolidation_fingerprint(replaced().snapshot()))
