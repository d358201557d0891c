"""Explanations of nodes agree with the plans of disruption."""

from __future__ import annotations

import pytest
from hypothesis import given

from karpenter_core.api.labels import DRIFT, RESERVED
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.disruption.acceptance import DeclineReason
from karpenter_core.disruption.blocked_nodes import DisruptionObstacle
from karpenter_core.disruption.explain import MethodVerdict, explain_state_node
from karpenter_core.disruption.plan import plan
from karpenter_core.testing.state_builders import with_claim_conditions
from tests.disruption.random_clusters import clusters
from tests.disruption.small_clusters import (
    EIGHT,
    EPOCH,
    GATE,
    NOW,
    box,
    cluster,
    kind,
    pass_over,
    pool,
    runs,
)
from tests.properties import with_examples

SIXTY = kind("sixty", 60)
"""Not on the market."""
KEPT = {"karpenter.sh/do-not-disrupt": "true"}


def answers(builder, name, **options):
    """Return each method's verdict on a node, by the method's name."""
    one = pass_over(builder, **options)
    explanation = explain_state_node(one, one.snapshot.state_node(name))
    return explanation, {item.method.name: item for item in explanation.methods}


@given(clusters())
@with_examples(40)
def test_chosen_are_those_that_the_plan_takes(case):
    """By the method that wins, with the very command; the others are not."""
    objects, market = case
    builder = cluster(*objects, market=market)
    done = plan(pass_over(builder, options=GATE))
    commands = {
        candidate.name: command for command in done.commands for candidate in command.candidates
    }
    for state_node in builder.snapshot().state_nodes:
        one = pass_over(builder, options=GATE)
        explanation = explain_state_node(one, one.snapshot.state_node(state_node.name))
        assert (explanation.winner and explanation.winner.name) == (
            done.method and done.method.name
        )
        taken = [
            item
            for item in explanation.methods
            if item.verdict is MethodVerdict.CHOSEN and item.method is explanation.winner
        ]
        assert bool(taken) == (state_node.claim is not None and state_node.claim.name in commands)
        for item in taken:
            expected = commands[state_node.claim.name]
            assert [c.name for c in item.command.candidates] == [
                c.name for c in expected.candidates
            ]
            assert item.command.evidence.savings_per_hour == expected.evidence.savings_per_hour


@given(clusters())
@with_examples(20)
def test_every_answer_is_complete(case):
    """Each verdict comes with what it is to be explained by."""
    objects, market = case
    builder = cluster(*objects, market=market)
    for state_node in builder.snapshot().state_nodes:
        one = pass_over(builder, options=GATE)
        for item in explain_state_node(one, one.snapshot.state_node(state_node.name)).methods:
            match item.verdict:
                case MethodVerdict.BLOCKED:
                    assert item.blocked.obstacle in DisruptionObstacle
                case MethodVerdict.DECLINED:
                    assert item.decline_reason in DeclineReason
                case MethodVerdict.BUDGET:
                    assert item.budget.remaining == 0
                case MethodVerdict.REFUSED:
                    several = item.method.consolidation_type == "multi"
                    told = item.messages or item.scores or item.method.name == "return"
                    assert told or several
                case MethodVerdict.LATER:
                    assert item.others or item.command
                case MethodVerdict.CHOSEN:
                    assert item.command.candidates


@pytest.mark.parametrize(
    ("state_node", "pods", "options", "obstacle", "subjects"),
    [
        (box("a", annotations=KEPT), [], {}, DisruptionObstacle.ANNOTATION, (next(iter(KEPT)),)),
        (
            box("a"),
            [runs("p", "a", annotations=KEPT)],
            {},
            DisruptionObstacle.POD,
            ("default/p", *KEPT),
        ),
        (box("a", stage="Registered"), [], {}, DisruptionObstacle.UNINITIALIZED, ()),
        (box("a"), [], {"queued": frozenset({"kwok://a"})}, DisruptionObstacle.COMMAND, ()),
    ],
)
def test_the_first_obstacle_is_named(state_node, pods, options, obstacle, subjects):
    """For methods that respect pods."""
    _, claim = state_node
    if "queued" in options:
        options = {"queued": frozenset({claim.status.provider_id})}
    _, by_method = answers(cluster(state_node, pods), "a", **options)
    result = by_method["emptiness"]

    assert (result.verdict, result.blocked.obstacle) == (MethodVerdict.BLOCKED, obstacle)
    assert result.blocked.subjects == subjects


NEVER = {"window": "Never"}
RETURNING = {"karpenter.sh/return-after": "5m"}


def drifted(name):
    its_node, claim = box(name)
    return its_node, with_claim_conditions(claim, DRIFTED, now=EPOCH)


@pytest.mark.parametrize(
    ("method", "number_of_pool", "state_node", "decline_reason"),
    [
        ("emptiness", {"replicas": 1}, box("a"), DeclineReason.STATIC),
        ("emptiness", NEVER, box("a"), DeclineReason.DISABLED),
        ("emptiness", {}, (box("a"), runs("web", "a")), DeclineReason.NOT_EMPTY),
        ("emptiness", {}, box("a", settled=False), DeclineReason.UNSETTLED),
        ("single-node", {"replicas": 1}, (box("a"), runs("web", "a")), DeclineReason.STATIC),
        ("single-node", NEVER, (box("a"), runs("web", "a")), DeclineReason.DISABLED),
        ("single-node", {}, box("a"), DeclineReason.EMPTY),
        (
            "single-node",
            {"policy": "WhenEmpty"},
            (box("a"), runs("web", "a")),
            DeclineReason.POLICY,
        ),
        ("single-node", {}, (box("a", settled=False), runs("web", "a")), DeclineReason.UNSETTLED),
        ("single-node", {}, (box("a", SIXTY), runs("w", "a")), DeclineReason.UNKNOWN_OFFERING),
        ("drift", {"replicas": 1}, drifted("a"), DeclineReason.STATIC),
        ("drift", {}, box("a"), DeclineReason.NOT_DRIFTED),
        ("drift", {"notes": {DRIFT: "detect-only"}}, drifted("a"), DeclineReason.DETECT_ONLY),
        ("return", {"replicas": 1, "notes": RETURNING}, box("a"), DeclineReason.STATIC),
        ("return", {}, (box("a"), runs("web", "a")), DeclineReason.DISABLED),
        ("return", {"notes": RETURNING}, box("a"), DeclineReason.EMPTY),
        (
            "return",
            {"notes": {"karpenter.sh/return-after": "1h"}},
            (box("a"), runs("web", "a")),
            DeclineReason.YOUNG,
        ),
    ],
)
def test_a_method_explains_why_a_node_is_no_candidate(
    method, number_of_pool, state_node, decline_reason
):
    builder = cluster(pool(**number_of_pool), state_node)
    _, by_method = answers(builder, "a")
    (result,) = [answer for name, answer in by_method.items() if name.startswith(method)]
    assert (result.verdict, result.decline_reason) == (MethodVerdict.DECLINED, decline_reason)


def test_reserved_capacity_of_the_heaviest_pool_is_the_first_choice():
    state_node = (box("a", capacity_type=RESERVED), runs("web", "a"))
    builder = cluster(pool(notes=RETURNING), pool("lighter", weight=0), state_node)
    _, by_method = answers(builder, "a")
    assert (by_method["return"].verdict, by_method["return"].decline_reason) == (
        MethodVerdict.DECLINED,
        DeclineReason.FIRST_CHOICE,
    )


def test_a_pool_whose_drift_is_backed_off_from_is_named():
    _, by_method = answers(cluster(drifted("a")), "a", drift_backoff_pools=frozenset({"default"}))
    assert by_method["drift"].decline_reason is DeclineReason.DRIFT_BACKOFF


def test_an_earlier_method_wins_over_a_later_one():
    """A node in use waits until the empty ones are gone."""
    builder = cluster(box("empty"), box("a", EIGHT), runs("one", "a", cpu="3"))
    result, by_method = answers(builder, "a")

    assert result.winner.name == "emptiness"
    assert by_method["emptiness"].decline_reason is DeclineReason.NOT_EMPTY
    assert by_method["single-node-consolidation"].verdict is MethodVerdict.CHOSEN


def test_an_exhausted_budget_is_reported_before_a_simulation():
    """With its numbers."""
    builder = cluster(pool(nodes="0"), box("a", EIGHT), runs("one", "a", cpu="3"))
    _, by_method = answers(builder, "a")
    result = by_method["single-node-consolidation"]

    assert result.verdict is MethodVerdict.BUDGET
    assert (result.budget.allowed, result.budget.total, result.budget.remaining) == (0, 1, 0)


def test_explaining_changes_nothing():
    """The plan of the same pass is unchanged."""
    builder = cluster(
        box("a", EIGHT), runs("one", "a", cpu="3"), box("b", EIGHT), runs("two", "b", cpu="3")
    )
    one = pass_over(builder, now=NOW)
    for state_node in one.snapshot.state_nodes:
        explain_state_node(one, state_node)

    after, before = plan(one), plan(pass_over(builder, now=NOW))
    assert [str(command) for command in after.commands] == [
        str(command) for command in before.commands
    ]
