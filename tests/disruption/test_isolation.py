"""A node, pod or pool that cannot be evaluated does not stop the others."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import DRIFTED
from karpenter_core.disruption import budgets, candidate_memory, candidates, simulation
from karpenter_core.disruption.blocked_nodes import DisruptionObstacle
from karpenter_core.disruption.budgets import DisruptionReason
from karpenter_core.disruption.candidates import DisruptionClass
from karpenter_core.disruption.drift import DriftMethod
from karpenter_core.disruption.emptiness import EmptinessMethod
from karpenter_core.disruption.explain import explain_state_node
from karpenter_core.disruption.isolation import isolated_plan_steps, isolated_validation_steps
from karpenter_core.disruption.journal import command_decision
from karpenter_core.disruption.method import MethodPlan
from karpenter_core.disruption.multi_node import MultiNodeConsolidation
from karpenter_core.disruption.single_node import SingleNodeConsolidation
from karpenter_core.disruption.validation import CommandRejection
from karpenter_core.scheduling.steps import run_steps
from karpenter_core.scheduling.whatif import what_if as whatif
from karpenter_core.scheduling.whatif.first_fit import FirstFitPlacement
from karpenter_core.state import disruption_problem, state_nodes
from karpenter_core.state.events import DeletionMarked, ObjectObserved, PodsDecided
from karpenter_core.testing.builders import pod
from karpenter_core.testing.state_builders import with_claim_conditions
from tests.disruption.small_clusters import (
    EPOCH,
    NOW,
    ONE,
    box,
    cluster,
    found,
    gone,
    only,
    pass_over,
    pool,
    runs,
)


def test_a_simulation_that_was_not_prepared_evaluates_nothing():
    disruption_pass = pass_over(cluster(box("a")))
    with pytest.raises(RuntimeError, match="not prepared"):
        disruption_pass.simulation.evaluate(())


class FailingTogether:
    """A method that prepares what-ifs, and fails with more than one candidate."""

    name = "failing"

    def plan_steps(self, disruption_pass, candidates, _budgets):
        yield from disruption_pass.simulation.prepare_steps(avoid_unsettled=False)
        if len(candidates) > 1:
            raise ValueError("two are too many")
        return MethodPlan()


def test_a_method_whose_failure_no_candidate_explains_leaves_nothing_to_the_next():
    """Its what-ifs may be incomplete; its pools are named."""
    disruption_pass = pass_over(cluster(box("a"), box("b")))
    candidates = disruption_pass.candidates(DisruptionClass.GRACEFUL).candidates
    made = run_steps(isolated_plan_steps(disruption_pass, FailingTogether(), candidates, None))
    assert not made.commands
    with pytest.raises(RuntimeError, match="not prepared"):
        disruption_pass.simulation.evaluate(())
    ((regarding, message),) = {
        (item.regarding.name, item.message) for item in disruption_pass.failed.found
    }
    assert regarding == "default"
    assert "two are too many" in message


def is_odd(pods):
    return any(pod.name == "odd" for pod in pods)


@pytest.fixture(params=["walk", "compile"])
def fails(request, monkeypatch):
    """Let what-ifs fail for the pod `odd`: in placement, or in compilation."""
    if request.param == "walk":
        place = FirstFitPlacement.place

        def placing(self, works):
            if any(is_odd(pods) for _, pods in works):
                raise ValueError("min() arg is an empty sequence")
            place(self, works)

        monkeypatch.setattr(FirstFitPlacement, "place", placing)
        return
    compile_steps = whatif.compile_steps

    def compiling(asked, *rest):
        if is_odd(asked.pods):
            raise ValueError("min() arg is an empty sequence")
        return compile_steps(asked, *rest)

    # A what-if is compiled with the pods that may move among those that are asked about.
    monkeypatch.setattr(whatif, "compile_steps", compiling)


def drifted(name, **options):
    its_node, claim = box(name, **options)
    return its_node, with_claim_conditions(claim, DRIFTED, now=EPOCH)


def odd_cluster(make=box):
    """Three nodes of which any could go, but for the invalid pod on the first."""
    return cluster(
        *(make(name) for name in ("a", "b", "c")),
        runs("odd", "a", cpu="500m", labels={"app": "odd"}),
        runs("one", "b", cpu="500m"),
        runs("two", "c", cpu="500m"),
    )


def set_aside(outcome):
    return {(item.regarding.kind, item.regarding.name) for item in outcome.set_aside}


@pytest.mark.parametrize("method", [SingleNodeConsolidation(), MultiNodeConsolidation()])
def test_consolidation_continues_without_the_node_of_an_invalid_pod(fails, method):
    """The others are consolidated; the node set aside is reported with the error."""
    outcome = found(odd_cluster(), method)

    assert "a" not in gone(outcome)
    assert gone(outcome)
    assert ("Node", "a") in set_aside(outcome)
    assert all("min() arg is an empty sequence" in item.message for item in outcome.set_aside)


@pytest.mark.parametrize(("settled", "expected"), [(True, ["c"]), (False, [])])
def test_a_node_that_is_still_settling_takes_no_pods_beside_an_invalid_pod(
    fails, settled, expected
):
    """The simulation that leaves the invalid pod out keeps to `consolidateAfter` as any other."""
    outcome = found(
        cluster(
            pool(window="1h"),
            box("a"),
            box("b", settled=settled),
            box("c", ONE),
            runs("odd", "a", cpu="4", labels={"app": "odd"}),
            runs("one", "b", cpu="3"),
            runs("two", "c", cpu="500m"),
        ),
        SingleNodeConsolidation(),
    )

    assert gone(outcome) == expected


def test_judging_candidates_alone_reads_the_whole_cluster_no_more_often_in_a_larger_one(
    fails, monkeypatch
):
    """Otherwise one invalid pod would cost the square of the number of nodes."""
    genuine, reads = simulation.DisruptionSimulation._unsettled, []

    def reading(self):
        reads.append(self)
        return genuine(self)

    monkeypatch.setattr(simulation.DisruptionSimulation, "_unsettled", reading)
    counts = []
    for size in (3, 12):
        reads.clear()
        boxes = [box(f"node-{number}") for number in range(size)]
        pods = [runs(f"pod-{number}", f"node-{number}", cpu="3") for number in range(1, size)]
        odd = runs("odd", "node-0", labels={"app": "odd"})
        outcome = found(cluster(*boxes, odd, *pods), SingleNodeConsolidation())
        assert ("Node", "node-0") in set_aside(outcome)
        counts.append(len(reads))

    assert counts[0] == counts[1]


def test_drift_continues_without_the_node_of_an_invalid_pod(fails):
    """It drifted first, and others are replaced all the same."""
    outcome = found(odd_cluster(drifted), DriftMethod())

    assert gone(outcome) == ["b"]
    assert ("Node", "a") in set_aside(outcome)


def test_drift_continues_without_a_node_that_cannot_be_compiled(monkeypatch):
    """It is set aside by its name: no question is asked about a node that is not there."""
    compile_steps = whatif.compile_steps

    def compiling(asked, *rest):
        if any(each.name == "a" for each in asked.nodes):
            raise ValueError("odd node")
        return compile_steps(asked, *rest)

    monkeypatch.setattr(whatif, "compile_steps", compiling)
    outcome = found(odd_cluster(drifted), DriftMethod())

    assert gone(outcome) == ["b"]
    assert ("Node", "a") in set_aside(outcome)
    assert not any("KeyError" in item.error for item in outcome.set_aside)


def test_an_invalid_pending_pod_stops_no_simulation(fails):
    """It is left out of what is asked."""
    waiting = pod("odd", labels={"app": "odd"})

    outcome = found(cluster(drifted("b"), box("c"), waiting, runs("one", "b")), DriftMethod())

    assert gone(outcome) == ["b"]
    assert set_aside(outcome) == {("Pod", "odd")}


def test_a_pending_pod_without_derivable_places_keeps_the_places_of_others(monkeypatch):
    """The node that another pod is expected on is no candidate, as without the odd one."""
    genuine = candidates.expected_state_nodes

    def expected(snapshot, pods, *, leaving=(), **named):
        if is_odd((*pods, *leaving)):
            raise ValueError("odd pod")
        return genuine(snapshot, pods, leaving=leaving, **named)

    builder = cluster(box("a"), box("b"), pod("odd"), pod("fine"))
    builder.apply_event(
        PodsDecided(placed={item.uid: "b" for item in (pod("odd"), pod("fine"))}, at=NOW)
    )
    before = gone(found(builder, EmptinessMethod()))
    monkeypatch.setattr(candidates, "expected_state_nodes", expected)
    outcome = found(builder, EmptinessMethod())

    assert gone(outcome) == before == ["a"]
    assert ("Pod", "odd") in set_aside(outcome)


def test_a_leaving_pod_without_derivable_places_keeps_the_places_of_others(monkeypatch):
    """The node that another pod of the same leaving node is expected on is no candidate."""
    genuine = candidates.expected_state_nodes

    def expected(snapshot, pods, *, leaving=(), **named):
        if is_odd((*pods, *leaving)):
            raise ValueError("odd pod")
        return genuine(snapshot, pods, leaving=leaving, **named)

    moving = (runs("odd", "old"), runs("fine", "old"))
    builder = cluster(box("a"), box("b"), box("old"), *moving)
    builder.apply_event(PodsDecided(placed={item.uid: "b" for item in moving}, at=NOW))
    builder.apply_event(DeletionMarked(names=("old",), cause="x"))
    before = gone(found(builder, EmptinessMethod()))
    monkeypatch.setattr(candidates, "expected_state_nodes", expected)
    outcome = found(builder, EmptinessMethod())

    assert gone(outcome) == before == ["a"]
    assert ("Pod", "odd") in set_aside(outcome)


def test_a_deferred_method_runs_again_in_the_next_pass(fails):
    """Its empty result is not final."""
    outcome = found(
        cluster(box("a"), runs("odd", "a", labels={"app": "odd"})), SingleNodeConsolidation()
    )

    assert not any(report.is_idle for report in outcome.reports)


def test_the_journal_and_the_explanation_name_objects_set_aside(fails):
    """With the error."""
    builder = odd_cluster()
    outcome = found(builder, SingleNodeConsolidation())

    entry = command_decision(only(outcome), outcome, rejection="", obstacles=(), currency="USD")
    told = [item for item in entry.obstacles if item.reason == "JudgementFailed"]
    assert [(item.kind, item.names) for item in told] == [("Node", ("a",))]

    one = pass_over(builder)
    answer = explain_state_node(
        one, one.snapshot.state_nodes_by_claim["a"], methods=(SingleNodeConsolidation(),)
    )
    assert any("min() arg is an empty sequence" in text for text in answer.methods[0].messages)


def test_a_method_that_always_fails_leaves_the_others_their_turn(monkeypatch):
    """Its pools get an event."""

    def failing(self, pass_over, candidates, budgets):
        raise RuntimeError("broken method")

    monkeypatch.setattr(DriftMethod, "plan_steps", failing)
    outcome = found(cluster(drifted("a"), box("b")), DriftMethod(), EmptinessMethod())

    assert outcome.method == EmptinessMethod()
    assert ("Node", "a") in set_aside(outcome)


def test_a_method_that_fails_with_several_candidates_alone_is_left_out(monkeypatch):
    """No single node is the cause, so its pool gets the event."""
    plan_steps = DriftMethod.plan_steps

    def failing(self, pass_over, candidates, budgets):
        if len(candidates) > 1:
            raise RuntimeError("two are too many")
        return plan_steps(self, pass_over, candidates, budgets)

    monkeypatch.setattr(DriftMethod, "plan_steps", failing)
    outcome = found(cluster(drifted("a"), drifted("b")), DriftMethod(), EmptinessMethod())

    assert ("NodePool", "default") in set_aside(outcome)
    assert outcome.method == EmptinessMethod()


def test_the_last_error_of_a_method_is_the_one_that_its_pools_are_set_aside_for(monkeypatch):
    """The first is of a candidate that was set aside by then."""
    genuine = DriftMethod.plan_steps

    def failing(self, pass_over, candidates, budgets):
        names = {candidate.name for candidate in candidates}
        if "a" in names:
            raise RuntimeError("a is too many")
        if len(names) > 1:
            raise RuntimeError("two are too many")
        return genuine(self, pass_over, candidates, budgets)

    monkeypatch.setattr(DriftMethod, "plan_steps", failing)
    outcome = found(cluster(drifted("a"), drifted("b"), drifted("c")), DriftMethod())

    told = {item.regarding.kind: item.message for item in outcome.set_aside}
    assert "a is too many" in told["Node"]
    assert "two are too many" in told["NodePool"]


def test_a_candidate_that_a_method_cannot_accept_is_set_aside(monkeypatch):
    """The others are taken."""
    accept = EmptinessMethod.accept

    def failing(self, candidate, pass_over):
        if candidate.name == "a":
            raise KeyError("zone")
        return accept(self, candidate, pass_over)

    monkeypatch.setattr(EmptinessMethod, "accept", failing)
    outcome = found(cluster(box("a"), box("b")), EmptinessMethod())

    assert gone(outcome) == ["b"]
    assert set_aside(outcome) == {("Node", "a"), ("NodeClaim", "a")}


def test_a_node_that_cannot_be_evaluated_is_blocked(monkeypatch):
    """With the error as its obstacle."""
    genuine = candidate_memory.NodeProfileReader.read

    def failing(self, state_node):
        if state_node.name == "a":
            raise OverflowError("too long")
        return genuine(self, state_node)

    monkeypatch.setattr(candidate_memory.NodeProfileReader, "read", failing)
    builder = cluster(box("a"), box("b"))
    outcome = found(builder, EmptinessMethod())

    assert gone(outcome) == ["b"]
    blocked = pass_over(builder).candidates(EmptinessMethod().disruption_class).blocked
    assert [(item.state_node.name, item.obstacle) for item in blocked] == [
        ("a", DisruptionObstacle.FAILURE)
    ]
    assert not blocked[0].is_published, "the failed pass is reported already"


def test_a_pool_with_an_unevaluable_budget_allows_nothing_and_others_are_unaffected(
    monkeypatch,
):
    """Unknown is not unlimited."""
    genuine = budgets.allowed_disruptions

    def failing(asked, reason, *, total, now):
        if asked.name == "odd":
            raise OverflowError("too long")
        return genuine(asked, reason, total=total, now=now)

    monkeypatch.setattr(budgets, "allowed_disruptions", failing)
    builder = cluster(pool("odd"), pool("default"), box("a", pool="odd"), box("b"))
    outcome = found(builder, EmptinessMethod())

    assert gone(outcome) == ["b"]
    assert set_aside(outcome) == {("NodePool", "odd")}
    assert "odd" not in pass_over(builder).budgets(DisruptionReason.EMPTY)


def test_only_nodes_that_pods_block_are_evaluated_for_a_second_class_of_methods(monkeypatch):
    """Others have the same verdict, and one that cannot be evaluated is reported once."""
    evaluate, evaluated = candidates._NodeEvaluator.evaluate, Counter()

    def counted(self, state_node, profile):
        evaluated[state_node.name] += 1
        if state_node.name == "odd":
            raise ValueError("min() arg is an empty sequence")
        return evaluate(self, state_node, profile)

    monkeypatch.setattr(candidates._NodeEvaluator, "evaluate", counted)
    builder = cluster(
        *(box(name) for name in ("free", "kept", "odd")),
        box("young", stage="Registered"),
        runs("one", "kept", annotations={DO_NOT_DISRUPT: "true"}),
    )
    one = pass_over(builder)
    one.candidates(DisruptionClass.GRACEFUL)
    second = one.candidates(DisruptionClass.EVENTUAL)

    assert evaluated == {"free": 1, "kept": 2, "odd": 1, "young": 1}
    assert {each.state_node.name for each in second.blocked} >= {"odd", "young"}


def test_a_command_that_cannot_be_validated_is_dropped(monkeypatch):
    """And its nodes get an event."""
    builder = cluster(box("a"))
    outcome = found(builder, EmptinessMethod())

    def failing(self, command, pass_over):
        raise RuntimeError("broken method")

    monkeypatch.setattr(EmptinessMethod, "validate_steps", failing)
    again = pass_over(builder)
    verdict = run_steps(isolated_validation_steps(outcome.method, only(outcome), again))

    assert (verdict.command, verdict.rejection) == (None, CommandRejection.SCHEDULING)
    assert ("Node", "a") in {(i.regarding.kind, i.regarding.name) for i in again.failed.found}


def test_a_node_that_cannot_be_joined_is_left_out_of_the_state(monkeypatch):
    """All others are present, and it is reported."""
    genuine = state_nodes.effective_taints

    def failing(*given, **named):
        raise ValueError("odd taint")

    builder = cluster(box("a"))
    assert builder.snapshot().state_nodes
    monkeypatch.setattr(state_nodes, "effective_taints", failing)
    node, claim = box("b")
    builder.apply_event(ObjectObserved(node))
    builder.apply_event(ObjectObserved(claim))
    snapshot = builder.snapshot()
    assert [state_node.name for state_node in snapshot.state_nodes] == ["a"]
    assert [(i.regarding.kind, i.regarding.name) for i in snapshot.set_aside] == [("Node", "b")]

    monkeypatch.setattr(state_nodes, "effective_taints", genuine)
    builder.apply_event(ObjectObserved(msgspec.structs.replace(node, resource_version=9)))
    snapshot = builder.snapshot()
    assert [state_node.name for state_node in snapshot.state_nodes] == ["a", "b"]
    assert snapshot.set_aside == ()


@pytest.mark.parametrize("marked", [False, True])
def test_a_node_that_cannot_be_joined_counts_in_the_budgets_of_its_pool(monkeypatch, marked):
    """In the total, and as disrupted when it is on its way out."""
    genuine = state_nodes.effective_taints

    def failing(its_node, claim, **named):
        if claim.name == "b":
            raise ValueError("odd taint")
        return genuine(its_node, claim, **named)

    monkeypatch.setattr(state_nodes, "effective_taints", failing)
    builder = cluster(box("a"), box("b"))
    if marked:
        builder.apply_event(DeletionMarked(names=("b",), cause="x"))

    budget = pass_over(builder).budgets(DisruptionReason.EMPTY)["default"]
    assert (budget.total, budget.consuming) == (2, int(marked))
    assert gone(found(builder, EmptinessMethod())) == ["a"]


def test_a_node_with_a_pod_that_fails_judgement_is_not_simulated(monkeypatch):
    """Its pods stay where they are in every other question."""
    genuine = disruption_problem.PodBudgets.is_reschedulable_now

    def failing(self, pod, now):
        if pod.name == "odd":
            raise ValueError("odd pod")
        return genuine(self, pod, now)

    monkeypatch.setattr(disruption_problem.PodBudgets, "is_reschedulable_now", failing)
    outcome = found(odd_cluster(drifted), DriftMethod())

    assert gone(outcome) == ["b"]
    assert ("Node", "a") in set_aside(outcome)
    assert simulation.SIMULATION_STEP in {item.step for item in outcome.set_aside}
