"""The decisions of disruption passes over drawn clusters are those that are recorded.

Nothing says that they are right: other tests do. These say which of them a change changes: commands,
Events, reports, records of the journal, and explanations of single nodes.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.judgements import FailedJudgements
from karpenter_core.api.labels import CPU
from karpenter_core.api.quantities import parse_amount
from karpenter_core.disruption.command import with_candidates
from karpenter_core.disruption.command_queue import find_stale_marks
from karpenter_core.disruption.explain import explain_state_node
from karpenter_core.disruption.journal import command_decision
from karpenter_core.disruption.method import DisruptionOptions, DisruptionPass
from karpenter_core.disruption.pass_memory import DisruptionMemory
from karpenter_core.disruption.plan import methods_of, plan_steps
from karpenter_core.disruption.repetition import is_repeatable
from karpenter_core.disruption.savings_estimate import (
    build_fresh_problem,
    estimate_savings,
    nodes_of_unplaced_pods,
    observed_decision,
)
from karpenter_core.provider.host.catalogue_check import check_catalogue
from karpenter_core.scheduling.compiled.catalogue import CatalogueCache
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from tests.disruption.changing_clusters import ChangingCluster
from tests.support.canonical_text import canonical_text
from tests.support.counted_steps import run_counted
from tests.support.problem_pools import RESERVATION
from tests.support.recorded_digests import assert_digests
from tests.support.run_selection import telling_first
from tests.support.wide_clusters import WideCluster

RECORDED = Path(__file__).with_name("recorded_decisions.json")
BATCHES = 20
TELLING = (14, 12, 6, 7, 18, 1, 15, 4, 13, 8, 19)
"""Batches that run all but 37 of 3,085 blocks of code that all run together; `cluster_runs` have the others."""
CLUSTERS = 100
STEPS = 4
COMMITMENT = Commitment(
    name="savings",
    requirements=(),
    resource=CPU,
    amount=parse_amount(CPU, "24"),
    discount=0.6,
)
OPTIONS = (
    DisruptionOptions(),
    DisruptionOptions(spot_to_spot=True, validation_delay=timedelta(seconds=60)),
    DisruptionOptions(
        static_capacity=True,
        problem_settings=ProblemSettings(priority_cutoff=-10, well_known=frozenset({RESERVATION})),
    ),
    DisruptionOptions(spot_to_spot=True, work_units=3),
    DisruptionOptions(problem_settings=ProblemSettings(commitments=(COMMITMENT,))),
)


def drawn_cluster(random, seed):
    """Draw a cluster: small, with many nodes, with nodes that return, or with virtual pods."""
    shares = {"drifted": random.choice((0.05, 0.3)), "spare": random.choice((0, 0.5))}
    made = WideCluster(random, **shares)
    match seed % 4:
        case 0:
            made.change()
        case 1:
            for _ in range(random.choice((10, 25))):
                made.add_node()
            made.fill(random.choice((0, 0.1, 0.3)))
        case 2:
            made.enable_return()
        case _:
            made.add_buffer()
            made.place_virtual_pods()
            made.add_expendable_pods()
            made.add_expendable_pods()
    if random.random() < 0.2:
        made.reserve_capacity()
    for sold in made.snapshot.catalogues.values():
        check_catalogue(sold.instance_types, plugin="market")
    return made


def savings_text(snapshot, now, options, cause):
    """Return the estimate of what a cluster would cost if it were planned anew."""
    settings = options.problem_settings
    asked = build_provisioning_input(snapshot, now=now, problem_settings=settings).problem
    fresh = build_fresh_problem(
        snapshot, asked, now=now, problem_settings=settings, options=options.solve,
        other_nodes={"example.com/rack": "a"}, keep=[node.name for node in asked.nodes[:1]],
    )  # fmt: skip
    made = solve(fresh.problem, options.solve)
    estimate = estimate_savings(fresh, made, currency="USD")
    decision = observed_decision(fresh, made, estimate, id="observed-1", cause=cause, at=now)
    return canonical_text(
        (fresh, nodes_of_unplaced_pods(fresh, made), estimate, str(estimate), decision)
    )


def plan_texts(made, outcome):
    """Return the texts of a plan, of its commands, and of what the journal says about them."""
    yield canonical_text((outcome, is_repeatable(made, outcome)))
    yield canonical_text(find_stale_marks(made.snapshot, now=made.now))
    for command in outcome.commands:
        yield canonical_text(with_candidates(command, command.candidates[1:], made.prices))
        decision = command_decision(command, outcome, rejection="", obstacles=(), currency="USD")
        yield f"{canonical_text(decision)} {command}"


def later_texts(random, later, outcome, methods):
    """Return the texts of a validation and of explanations, after something has changed."""
    state_nodes = later.snapshot.state_nodes
    for command in outcome.commands[:1]:
        if outcome.method.is_validated:
            yield canonical_text(run_counted(outcome.method.validate_steps(command, later)))
    for state_node in random.sample(state_nodes, min(2, len(state_nodes))):
        if state_node.claim is not None:
            yield canonical_text(explain_state_node(later, state_node, methods=methods))


def texts_of(seed):
    """Return the texts of a cluster after each step."""
    random = Random(f"decisions {seed}")
    changing = drawn_cluster(random, seed)
    memory, cache, idle = DisruptionMemory(), CatalogueCache(), {}
    options = OPTIONS[2] if seed % 4 == 3 else random.choice(OPTIONS)
    for step in range(STEPS):
        if step:
            kind = random.choice((WideCluster, ChangingCluster))
            kind.change(changing)
        snapshot = changing.snapshot
        ids = [each.provider_id for each in snapshot.state_nodes]
        made = DisruptionPass(
            snapshot=snapshot,
            now=changing.now,
            command_id=f"command-{step}",
            cause="test",
            options=options,
            queued=frozenset(each for each in ids if random.random() < 0.03),
            drift_backoff_pools=frozenset({"green"} if random.random() < 0.1 else ()),
            memory=memory,
            cache=cache,
            idle_methods=idle,
        )
        methods = methods_of(options, shuts_down=random.random() < 0.2)
        outcome, units = run_counted(plan_steps(made, methods=methods))
        idle = {
            each.method.name: each.remaining_budgets
            for each in outcome.reports
            if each.is_idle and random.random() < 0.5
        }
        assert made.failed.found == (), "a judgement failed"
        yield str(units)
        yield from plan_texts(made, outcome)
        if random.random() < 0.5:
            ChangingCluster.change(changing)
        later = replace(
            made,
            snapshot=changing.snapshot,
            now=changing.now + timedelta(seconds=15),
            command_id=f"later-{step}",
            memory=DisruptionMemory(),
            cache=None,
            idle_methods={},
            failed=FailedJudgements(),
        )
        yield from later_texts(random, later, outcome, methods)
    yield savings_text(changing.snapshot, changing.now, options, "test")


@pytest.mark.recorded
@pytest.mark.parametrize("batch", telling_first(BATCHES, TELLING))
def test_decisions_are_the_recorded_ones(batch):
    texts = {
        f"decisions-{seed:03}": "\n".join(texts_of(seed))
        for seed in range(batch, CLUSTERS, BATCHES)
    }
    assert_digests(texts, RECORDED)
