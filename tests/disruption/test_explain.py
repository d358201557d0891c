"""Explanations of machines agree with what is done to them."""

from __future__ import annotations

import pytest
from hypothesis import given

from karpenter_core.disruption.candidates import Obstacle
from karpenter_core.disruption.explain import Verdict, explain_machine
from karpenter_core.disruption.method import Declined
from karpenter_core.disruption.plan import plan
from tests.disruption.random_clusters import clusters
from tests.disruption.scene import EIGHT, GATE, NOW, box, cluster, look, pool, runs
from tests.properties import tried

KEPT = {"karpenter.sh/do-not-disrupt": "true"}


def answers(builder, name, **options):
    """What every method says of a machine, by the method's name."""
    one = look(builder, **options)
    found = explain_machine(one, one.snapshot.state_node(name))
    return found, {item.method.name: item for item in found.methods}


@given(clusters())
@tried(40)
def test_chosen_are_those_that_the_plan_takes(case):
    """By the method that wins, with the very command; the others are not."""
    objects, market = case
    builder = cluster(*objects, market=market)
    done = plan(look(builder, options=GATE))
    commands = {
        candidate.name: command for command in done.commands for candidate in command.candidates
    }
    for machine in builder.snapshot().state_nodes:
        one = look(builder, options=GATE)
        found = explain_machine(one, one.snapshot.state_node(machine.name))
        assert (found.winner and found.winner.name) == (done.method and done.method.name)
        taken = [
            item
            for item in found.methods
            if item.verdict is Verdict.CHOSEN and item.method is found.winner
        ]
        assert bool(taken) == (machine.claim is not None and machine.claim.name in commands)
        for item in taken:
            expected = commands[machine.claim.name]
            assert [c.name for c in item.command.candidates] == [
                c.name for c in expected.candidates
            ]
            assert item.command.proof.savings_per_hour == expected.proof.savings_per_hour


@given(clusters())
@tried(20)
def test_every_answer_is_complete(case):
    """Each verdict comes with what it is to be explained by."""
    objects, market = case
    builder = cluster(*objects, market=market)
    for machine in builder.snapshot().state_nodes:
        one = look(builder, options=GATE)
        for item in explain_machine(one, one.snapshot.state_node(machine.name)).methods:
            match item.verdict:
                case Verdict.BLOCKED:
                    assert item.blocked.obstacle in Obstacle
                case Verdict.DECLINED:
                    assert item.declined in Declined
                case Verdict.BUDGET:
                    assert item.budget.remaining == 0
                case Verdict.REFUSED:
                    several = item.method.consolidation_type == "multi"
                    told = item.messages or item.scores or item.method.name == "return"
                    assert told or several
                case Verdict.LATER:
                    assert item.others or item.command
                case Verdict.CHOSEN:
                    assert item.command.candidates


@pytest.mark.parametrize(
    ("machine", "pods", "options", "obstacle", "subjects"),
    [
        (box("a", annotations=KEPT), [], {}, Obstacle.ANNOTATION, (next(iter(KEPT)),)),
        (box("a"), [runs("p", "a", annotations=KEPT)], {}, Obstacle.POD, ("default/p", *KEPT)),
        (box("a", stage="Registered"), [], {}, Obstacle.UNINITIALIZED, ()),
        (box("a"), [], {"queued": frozenset({"kwok://a"})}, Obstacle.COMMAND, ()),
    ],
)
def test_the_first_obstacle_is_named(machine, pods, options, obstacle, subjects):
    """For methods that respect pods."""
    _, claim = machine
    if "queued" in options:
        options = {"queued": frozenset({claim.status.provider_id})}
    _, by_method = answers(cluster(machine, pods), "a", **options)
    found = by_method["emptiness"]

    assert (found.verdict, found.blocked.obstacle) == (Verdict.BLOCKED, obstacle)
    assert found.blocked.subjects == subjects


def test_an_earlier_method_wins_over_a_later_one():
    """A node in use waits until the empty ones are gone."""
    builder = cluster(box("empty"), box("a", EIGHT), runs("one", "a", cpu="3"))
    found, by_method = answers(builder, "a")

    assert found.winner.name == "emptiness"
    assert by_method["emptiness"].declined is Declined.NOT_EMPTY
    assert by_method["single-node-consolidation"].verdict is Verdict.CHOSEN


def test_a_drained_budget_is_told_before_the_move_is_looked_for():
    """With its numbers."""
    builder = cluster(pool(nodes="0"), box("a", EIGHT), runs("one", "a", cpu="3"))
    _, by_method = answers(builder, "a")
    found = by_method["single-node-consolidation"]

    assert found.verdict is Verdict.BUDGET
    assert (found.budget.allowed, found.budget.total, found.budget.remaining) == (0, 1, 0)


def test_explaining_changes_nothing():
    """The plan of the same look is what it would have been."""
    builder = cluster(
        box("a", EIGHT), runs("one", "a", cpu="3"), box("b", EIGHT), runs("two", "b", cpu="3")
    )
    one = look(builder, now=NOW)
    for machine in one.snapshot.state_nodes:
        explain_machine(one, machine)

    after, before = plan(one), plan(look(builder, now=NOW))
    assert [str(command) for command in after.commands] == [
        str(command) for command in before.commands
    ]
