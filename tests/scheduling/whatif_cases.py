"""Clusters for what-ifs: the plans of random problems are executed, then some pods end."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import msgspec

from karpenter_core.api.labels import CAPACITY_TYPE, HOSTNAME, NODE_POOL, PODS, ZONE
from karpenter_core.api.records import Taint
from karpenter_core.scheduling.problem import (
    ExistingNode,
    PlanCost,
    ReservationPolicy,
    SchedulingPlan,
    SolveOptions,
    UnschedulablePod,
)
from karpenter_core.scheduling.solve import solve
from karpenter_core.scheduling.whatif.what_if import WhatIf
from tests.support.problems import ALL_FEATURES, ProblemFeature, random_problem, seeded_problem

FEATURES = ALL_FEATURES - {ProblemFeature.OVERRIDES, ProblemFeature.CLOSED}
OPTIONS = SolveOptions(reservations=ReservationPolicy.FALLBACK)


def running(problem, random, share_ended=30):
    """Return the problem after its plan has come true and some pods have ended.

    Each claim is a node of its cheapest type; nothing is pending.
    """
    plan = solve(problem, OPTIONS)
    nodes = [_with(node, plan.existing.get(node.name, ()), problem) for node in problem.nodes]
    nodes += [_launched(problem, number, claim) for number, claim in enumerate(plan.claims)]
    thinned = []
    for node in nodes:
        kept = node
        for pod in node.pods:
            if random.randrange(100) < share_ended and not pod.deletion_timestamp:
                kept = _without(kept, pod, problem)
        thinned.append(kept)
    return replace(problem, pods=(), nodes=tuple(thinned))


def movable(problem):
    """Return the UIDs of the pods that would leave each node: those that are not ending."""
    return {
        node.name: frozenset(pod.uid for pod in node.pods if pod.is_active)
        for node in problem.nodes
    }


def seeded_cluster(seed, features=FEATURES, share_ended=30):
    """Make the cluster of a seed."""
    return running(seeded_problem(seed, features), Random(seed), share_ended)


def drawn_cluster(random, features=FEATURES):
    """Draw a cluster."""
    return running(random_problem(random, features, most_pods=24), random)


def asked(problem, options=OPTIONS):
    """Return a fresh `WhatIf` of a problem."""
    return WhatIf(problem, movable(problem), options)


def plan_of(verdict):
    """Write a verdict down as a plan, for the verifier."""
    claims = verdict.claims
    return SchedulingPlan(
        claims=claims,
        existing=verdict.moves,
        unschedulable={pod.uid: UnschedulablePod(message="left") for pod in verdict.left},
        cost=PlanCost(
            hourly=sum(claim.cheapest.price_per_hour for claim in claims),
        ),
        sequence=verdict.sequence,
    )


def verdict_facts(verdict):
    """Return everything that a verdict says, for comparing."""
    return (
        verdict.outcome,
        verdict.placements,
        verdict.sequence,
        verdict.cost_per_hour,
        [pod.uid for pod in verdict.left],
        [(claim.pool, claim.instance_types, claim.requirements) for claim in verdict.claims],
    )


def _launched(problem, number, claim):
    pool = next(pool for pool in problem.pools if pool.name == claim.pool)
    name = f"launched-{number}"
    chosen_type = next(
        it
        for it in problem.catalogues[claim.pool].instance_types
        if it.name == claim.cheapest.instance_type
    )
    labels = {
        requirement.key: min(requirement.values)
        for requirement in chosen_type.requirements.values()
        if not requirement.complement and len(requirement.values) == 1
    } | {
        **claim.labels,
        HOSTNAME: name,
        ZONE: claim.cheapest.zone,
        CAPACITY_TYPE: claim.cheapest.capacity_type,
        NODE_POOL: claim.pool,
    }
    room = chosen_type.allocatable()
    taken = {PODS: 0, **claim.requests}
    node = ExistingNode(
        name=name,
        labels=labels,
        taints=tuple(
            Taint(key=spec.key, effect=spec.effect, value=spec.value)
            for spec in pool.spec.template.spec.taints
        ),
        available={key: amount - taken.get(key, 0) for key, amount in room.items()},
        capacity=chosen_type.capacity,
        initialized=True,
        pool=claim.pool,
        claim_name=name,
        node_name=name,
        pods=tuple(_bound(pod, name) for pod in claim.pods),
    )
    return replace(node, volumes=_volumes(node, claim.pods, problem))


def _with(node, pods, problem):
    available = dict(node.available)
    for pod in pods:
        for key, amount in {**pod.shape.requests, PODS: 1}.items():
            available[key] = available.get(key, 0) - amount
    here = tuple(_bound(pod, node.name) for pod in pods)
    return replace(
        node,
        available=available,
        pods=(*node.pods, *here),
        volumes=_volumes(node, pods, problem),
    )


def _without(node, gone, problem):
    available = dict(node.available)
    for key, amount in {**gone.shape.requests, PODS: 1}.items():
        available[key] = available.get(key, 0) + amount
    return replace(
        node, available=available, pods=tuple(pod for pod in node.pods if pod is not gone)
    )


def _bound(pod, node):
    return msgspec.structs.replace(pod, node_name=node, phase="Running", unschedulable=False)


def _volumes(node, pods, problem):
    attached = dict(node.volumes)
    for pod in pods:
        if pod.uid in problem.volumes:
            for driver, claims in problem.volumes[pod.uid].attached.items():
                attached[driver] = attached.get(driver, frozenset()) | claims
    return attached
