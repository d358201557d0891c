"""The state of drawn clusters, and the scheduling problems made of it, are those that are recorded.

Nothing says that they are right: other tests do. These say which of them a change changes.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from karpenter_core.api.commitments import Commitment
from karpenter_core.api.labels import CPU, ZONE
from karpenter_core.api.quantities import parse_amount
from karpenter_core.api.records import TopologySpread
from karpenter_core.scheduling.solve import solve
from karpenter_core.state.bookings import bookings
from karpenter_core.state.disruption_problem import build_disruption_problem
from karpenter_core.state.launch_ceilings import LaunchCeilings
from karpenter_core.state.launch_limits import LaunchAllowance, LaunchLimits
from karpenter_core.state.node_memory import NodeMemory
from karpenter_core.state.node_pool_usage import (
    pool_status_resources,
    shared_pools,
    spot_shares,
    unpriced_node,
)
from karpenter_core.state.pod_rules import do_not_disrupt, is_drainable, protection_notice
from karpenter_core.state.provisioning_input import ProblemSettings, build_provisioning_input
from karpenter_core.state.static_pools import free_nodes, static_pool_claims, surplus_replicas
from tests.support.canonical_text import canonical_text, whole_text
from tests.support.recorded_digests import assert_digests
from tests.support.run_selection import telling_first
from tests.support.wide_clusters import WideCluster

RECORDED = Path(__file__).with_name("recorded_snapshots.json")
BATCHES = 20
TELLING = (11, 9, 6, 13, 18, 4, 1, 0, 8, 19)
"""Batches that run all but 10 of 2,236 blocks of code that all run together; `cluster_runs` have the others."""
CLUSTERS = 100
STEPS = 5
SETTINGS = (
    ProblemSettings(),
    ProblemSettings(
        priority_cutoff=-10,
        nomination_window=timedelta(seconds=90),
        launch_limits=LaunchLimits(max_nodes_total=8),
    ),
    ProblemSettings(
        default_spread=(
            TopologySpread(topology_key=ZONE, max_skew=1, when_unsatisfiable="ScheduleAnyway"),
        ),
        commitments=(
            Commitment(
                name="savings",
                requirements=(),
                resource=CPU,
                amount=parse_amount(CPU, "40"),
                discount=0.5,
            ),
        ),
        serves_requests=True,
        ignores_devices=False,
    ),
)


def snapshot_text(snapshot):
    """Return all fields of a snapshot; its objects are named, and state nodes are whole."""
    shown = {
        each.name: canonical_text(getattr(snapshot, each.name)) for each in fields(type(snapshot))
    }
    shown["state_nodes"] = list(map(whole_text, snapshot.state_nodes))
    shown["unschedulable"] = sorted(
        name for name, node in snapshot.nodes.items() if node.unschedulable
    )
    return canonical_text(shown)


def creation_texts(snapshot, planned, now):
    """Return which claims of a plan may be created, and what NodePools and nodes count for."""
    limits = LaunchLimits(max_nodes_total=12, launches_per_minute=2)
    allowance = LaunchAllowance(snapshot, limits, now=now, in_flight={"blue": 1})
    ceilings = LaunchCeilings(snapshot, limits, in_flight=planned[:1], leaving=())
    for each in planned[1:]:
        yield canonical_text(ceilings.refusal(each))
        ceilings.count(each)
    for name, pool in sorted(snapshot.node_pools.items()):
        yield canonical_text([allowance.grant(pool) for _ in range(3)])
        found = static_pool_claims(snapshot, name)
        yield canonical_text(
            (
                pool_status_resources(snapshot, name),
                unpriced_node(snapshot, name, {"USD": 1.0}),
                found,
                free_nodes(pool, found),
                surplus_replicas(pool, found),
            )
        )
    yield canonical_text((spot_shares(snapshot), shared_pools(snapshot), bookings(snapshot)))
    for pod in snapshot.pods.values():
        protection = do_not_disrupt(pod, now)
        yield canonical_text(
            (
                protection,
                protection_notice(pod, protection),
                is_drainable(pod, now, snapshot.ledger),
            )
        )


def texts_of(seed):
    """Return the texts of a cluster after each step."""
    changing, memory = WideCluster(Random(f"state {seed}")), NodeMemory()
    changing.fill(0.3)
    for step in range(STEPS):
        changing.change()
        snapshot, now = changing.snapshot, changing.now
        settings = SETTINGS[(seed + step) % len(SETTINGS)]
        given = {"now": now, "problem_settings": settings, "memory": memory}
        yield snapshot_text(snapshot)
        asked = build_provisioning_input(snapshot, **given)
        yield canonical_text(asked)
        yield from creation_texts(snapshot, solve(asked.problem).claims, now)
        yield canonical_text(
            build_disruption_problem(snapshot, **given, moves_expendable=step % 2 == 1)
        )


@pytest.mark.recorded
@pytest.mark.parametrize("batch", telling_first(BATCHES, TELLING))
def test_snapshots_and_problems_are_the_recorded_ones(batch):
    texts = {
        f"state-{seed:03}": "\n".join(texts_of(seed)) for seed in range(batch, CLUSTERS, BATCHES)
    }
    assert_digests(texts, RECORDED)
