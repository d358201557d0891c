"""Methods do no work twice in a pass, and keep its time limit."""

from __future__ import annotations

import pytest

from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.isolation import isolated_plan_steps
from karpenter_core.disruption.method import PassTimeLimit
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.plan import plan
from karpenter_core.disruption.return_to_preferred import ReturnToPreferred
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.testing.state_builders import with_claim_conditions
from tests.disruption.small_clusters import (
    EPOCH,
    box,
    cluster,
    found,
    gone,
    pass_over,
    pool,
    report,
    runs,
)

RETURNING = {"karpenter.sh/return-after": "5m"}
METHODS = pytest.mark.parametrize(
    "method",
    [DriftMethod(), SingleNodeConsolidation(), MultiNodeConsolidation(), ReturnToPreferred()],
)


def drifted(name):
    its_node, claim = box(name)
    return its_node, with_claim_conditions(claim, DRIFTED, now=EPOCH)


def some(nodes="100%"):
    """Two nodes that every method is about, whose pods fit on one."""
    return cluster(
        pool(nodes=nodes, notes=RETURNING),
        pool("heavy", weight=50),
        drifted("a"),
        drifted("b"),
        runs("one", "a"),
        runs("two", "b"),
    )


@METHODS
def test_without_a_budget_nothing_is_simulated(method):
    """To compile a large cluster takes seconds."""
    one = pass_over(some(nodes="0"))
    outcome = plan(one, methods=(method,))
    assert gone(outcome) == []
    assert report(outcome).constrained
    assert one.simulation._whatif is None

    free = pass_over(some())
    plan(free, methods=(method,))
    assert free.simulation._whatif is not None


@METHODS
def test_a_pass_that_took_too_long_is_cut_short(method):
    """It finds nothing any more, which does not settle anything."""
    outcome = found(some(), method, time_limit=PassTimeLimit(is_reached=True))
    assert gone(outcome) == []
    assert (report(outcome).is_cut_short, report(outcome).is_idle) == (True, False)


def test_a_method_that_fails_at_its_time_limit_is_not_run_again(monkeypatch):
    """Nor is anything set aside: what it could not evaluate was not isolated to the end."""
    effort, asked = PassTimeLimit(), []

    def failing(self, one, candidates, budgets):
        asked.append(len(candidates))
        effort.is_reached = True
        raise RuntimeError("no domains")
        yield

    monkeypatch.setattr(DriftMethod, "plan_steps", failing)
    one = pass_over(some(), time_limit=effort)
    accepted = one.candidates(DriftMethod().disruption_class).candidates
    outcome = run_steps(
        isolated_plan_steps(one, DriftMethod(), accepted, one.budgets(DriftMethod().reason))
    )
    assert (outcome.commands, outcome.is_cut_short) == ((), True)
    assert asked == [2]
    assert one.failed.found == ()


def test_nodes_of_both_method_classes_are_evaluated_once():
    one = pass_over(some())
    graceful = one.candidates(DisruptionClass.GRACEFUL)
    eventual = one.candidates(DisruptionClass.EVENTUAL)
    assert [each.name for each in eventual.candidates] == ["a", "b"]
    assert all(
        theirs is ours
        for ours, theirs in zip(graceful.candidates, eventual.candidates, strict=True)
    )
    assert one.candidates(DisruptionClass.EVENTUAL) is eventual


def test_a_state_is_compiled_in_small_steps_and_once():
    """Other work of the process gets its turn between two of them."""
    one = pass_over(some())
    first = list(one.simulation.prepare_steps(avoid_unsettled=False))
    assert len(first) > 3
    assert list(one.simulation.prepare_steps(avoid_unsettled=False)) == [5]
