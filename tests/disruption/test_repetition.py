"""A pass over the same state is repeated only where it could come to something else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from karpenter_core.api.durations import Duration
from karpenter_core.api.labels import DO_NOT_DISRUPT, RETURN_AFTER
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.api.nodepool import Budget
from karpenter_core.disruption.budgets import pool_budgets
from karpenter_core.disruption.plan import METHODS, plan
from karpenter_core.disruption.repetition import is_repeatable
from karpenter_core.state.events import NodesNominated
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import with_claim_conditions
from tests.disruption.random_clusters import clusters
from tests.disruption.small_clusters import NOW, box, cluster, pass_over, pool, runs
from tests.properties import with_examples

SCHEDULED = Budget(nodes="1", schedule="0 9 * * *", duration=Duration("8h"))
RETURNING = {RETURN_AFTER: "1h"}


def drifted(name):
    its_node, claim = box(name)
    return its_node, with_claim_conditions(claim, DRIFTED, now=NOW)


def remembered(builder):
    """Return the remaining budgets per method, as after a pass without a command."""
    snapshot = builder.snapshot()
    return {
        method.name: tuple(
            (name, budget.remaining)
            for name, budget in sorted(
                pool_budgets(snapshot, method.reason, now=NOW, failed=None, memory=None).items()
            )
        )
        for method in METHODS
    }


def passed(builder, now=NOW):
    """One pass whose methods have answers that they remember."""
    one = pass_over(builder, now=now, idle_methods=remembered(builder))
    return one, plan(one)


@given(clusters(), st.timedeltas(timedelta(), timedelta(days=2)))
@with_examples(60)
def test_a_later_pass_over_the_same_state_has_the_same_result(case, later):
    objects, market = case
    builder = cluster(*objects, market=market)
    first, result = passed(builder)
    event(f"repeatable: {is_repeatable(first, result)}")
    if is_repeatable(first, result):
        _, again = passed(builder, NOW + later)
        assert (again.notices, again.reports) == (result.notices, result.reports)
        assert (again.commands, again.set_aside) == ((), ())


def test_a_cluster_at_rest_needs_no_second_pass():
    assert is_repeatable(*passed(cluster(pool(), box("a"), runs("web", "a"))))


@pytest.mark.parametrize("done", [{"commands": ("one",)}, {"set_aside": ("one",)}], ids=str)
def test_a_pass_that_found_something_is_never_left_out(done):
    first, result = passed(cluster(pool(), box("a"), runs("web", "a")))
    assert not is_repeatable(first, replace(result, **done))


def test_unrecorded_results_are_evaluated_again():
    builder = cluster(pool(), box("a"), runs("web", "a"))
    one = pass_over(builder)
    assert not is_repeatable(one, plan(one))


@pytest.mark.parametrize(
    "changed",
    [
        [pool(budgets=[SCHEDULED]), box("a"), runs("web", "a")],
        [pool(budgets=[Budget(nodes="2"), SCHEDULED]), box("a"), runs("web", "a")],
        [pool(notes=RETURNING), box("a"), runs("web", "a")],
        [pool(), box("a", created=NOW), runs("web", "a")],
        [pool(), box("a"), runs("web", "a", annotations={DO_NOT_DISRUPT: "1h"})],
        [pool(), box("a"), runs("web", "a"), pod("waits")],
        [pool(), drifted("a"), runs("web", "a")],
    ],
    ids=[
        "schedule",
        "one schedule of two budgets",
        "return",
        "new node",
        "protected for an hour",
        "pending pod",
        "drifted",
    ],
)
def test_time_dependent_results_are_evaluated_each_time(changed):
    assert not is_repeatable(*passed(cluster(*changed)))


def test_one_node_or_pool_that_depends_on_time_is_enough():
    quiet = [box("a"), runs("web", "a"), box("b"), runs("api", "b")]
    assert is_repeatable(*passed(cluster(pool(), *quiet)))
    recent = [*quiet, box("c", created=NOW), runs("job", "c")]
    assert not is_repeatable(*passed(cluster(pool(), *recent)))
    assert not is_repeatable(*passed(cluster(pool(), pool("night", budgets=[SCHEDULED]), *quiet)))


def test_a_method_with_a_candidate_and_no_remembered_answer_is_asked_again():
    first, result = passed(cluster(pool(), box("a"), runs("web", "a")))
    assert [report.eligible for report in result.reports if report.eligible]
    other_budgets = dict.fromkeys(first.idle_methods, ())
    for idle_methods in ({}, other_budgets):
        assert not is_repeatable(replace(first, idle_methods=idle_methods), result)


def test_a_nominated_node_is_judged_until_the_nomination_ends():
    builder = cluster(pool(), box("a"), runs("web", "a"))
    builder.apply_event(NodesNominated(names=("a",), until=NOW + timedelta(seconds=20)))
    assert not is_repeatable(*passed(builder))
    assert is_repeatable(*passed(builder, NOW + timedelta(seconds=20)))
