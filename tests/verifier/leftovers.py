"""Pending pods of a plan that a node would take when everything else is placed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain

from msgspec.structs import replace as replaced

from karpenter_core.api.labels import WELL_KNOWN
from tests.verifier.alone import pool_variants
from tests.verifier.contents import (
    claim_variants,
    existing_node,
    reservation_of,
    reservation_supply,
)
from tests.verifier.places import Place
from tests.verifier.rules import (
    CAPACITY_TYPE,
    DEPRECATED,
    HOSTNAME,
    ZONE,
    add,
    asked_labels,
    hard_spreads,
    quantities,
    term_selects,
)


def untaken(problem, plan, replay):
    """Yield a text for each pod left that some node takes; `replay` has placed all the others."""
    seen = {}
    kept = []
    for pod in problem.pods:
        if pod.uid not in plan.unschedulable:
            continue
        if _waits_for_launching_nodes(problem, pod) or _waits_for_claims(plan, pod):
            continue
        waits_in = {
            name
            for name, rejection in plan.unschedulable[pod.uid].pools.items()
            if rejection.constraint == "reservation"
        }
        question = (id(pod.shape), pod.uid if pod.uid in problem.volumes else "", *waits_in)
        if question not in seen:
            asked = _as_asked(pod)
            kept.append(asked)  # the replay knows shapes by identity
            result = (
                _reserved(problem, plan, pod, asked, replay, waits_in)
                if waits_in
                else _nodes_and_variants(problem, plan, pod, asked[-1], replay)
            )
            seen[question] = next(result, None)
        if seen[question] is not None:
            yield f"{pod.name} is left, {seen[question]}"


def _as_asked(pod):
    """Return what is asked for a pod when it has no more wishes, with each of its required terms.

    Terms are given up before wishes are (upstream's order), so only the last is surely asked
    without them.
    """
    return [
        replaced(pod, shape=replaced(pod.shape, required_node_terms=terms))
        for terms in [(term,) for term in pod.shape.required_node_terms] or [()]
    ]


def _nodes_and_variants(problem, plan, pod, asked, replay):
    """Say what would take a pod that asks for less; what others think of it stays as it is."""
    taken = chain(
        _nodes(problem, plan, pod, asked, replay),
        (name for name, _ in _variants(problem, plan, problem.pools, pod, asked, replay)),
    )
    yield from (f"{name} would take it" for name in taken)


def _reserved(problem, plan, pod, asked, replay, waits_in):
    """Say why a pod need not have waited for the reserved capacity of some pools."""
    supply, held = reservation_supply(problem), _held(problem, plan)
    weight = max(pool.spec.weight or 0 for pool in problem.pools if pool.name in waits_in)
    pools = [pool for pool in problem.pools if (pool.spec.weight or 0) >= weight]
    asked_of_nodes = [r for pool in problem.pools for r in pool.spec.template.spec.requirements]
    if any(r.min_values or r.operator not in {"In", "NotIn"} for r in asked_of_nodes):
        return  # nor are values made up here for labels that pools leave open
    is_plain = len(asked) == 1 and not _has_wishes(asked[0].shape, problem.pools)
    would_do = False
    for one in asked:
        for name, variant in _variants(problem, plan, pools, pod, one, replay, reserved=True):
            reservation = reservation_of(variant.offering)
            if is_plain and held[reservation] < supply[reservation]:
                yield f"{name} would take it, nobody else takes {reservation}"
        for pool in (pool for pool in problem.pools if pool.name in waits_in):
            for variant in pool_variants(problem, pool, one):
                if variant.labels[CAPACITY_TYPE] == "reserved":
                    would_do |= supply[reservation_of(variant.offering)] > 0
    if not would_do:
        yield from _nodes_and_variants(problem, plan, pod, asked[-1], replay)


def _has_wishes(shape, pools):
    """Whether a pod asks for more at first than it insists on."""
    soft = len(hard_spreads(shape)) < len(shape.topology_spread)
    soft |= any(t.effect == "PreferNoSchedule" for p in pools for t in p.spec.template.spec.taints)
    wishes = (shape.preferred_node_terms, shape.preferred_pod_affinity)
    return soft or any(wishes) or bool(shape.preferred_pod_anti_affinity)


def _held(problem, plan):
    """Count the claims that each reservation is set aside for; the default packing holds one."""
    held = Counter()
    for claim in plan.claims:
        variants = chain.from_iterable(claim_variants(problem, claim).values())
        reserved = [m for m in variants if m.labels[CAPACITY_TYPE] == "reserved"]
        held.update({reservation_of(variant.offering) for variant in reserved})
    return held


def _nodes(problem, plan, pod, asked, replay):
    places = {place.name: place for place in replay.places}
    for node in problem.nodes:
        pods = (*plan.existing.get(node.name, ()), asked)
        if node.closed or any(existing_node(problem, node, pods)):
            continue
        if node.requirements is not None and _asks_unknown(problem, pod, asked, node):
            continue
        place = places[f"node {node.name}"]
        if _has_labels(problem, pod, place) and not any(replay.refusals(pod, place)):
            yield place.name


def _asks_unknown(problem, pod, asked, node):
    """Whether a pod asks for what nobody knows yet of a launching node.

    That is how it will be called, and which values well-known labels will have that its claim leaves
    open: a pod that avoids an instance type cannot tell whether it becomes that one.
    """
    volumes = problem.volumes.get(pod.uid)
    mounted = [key for one in (volumes.alternatives if volumes else ()) for key in one]
    if HOSTNAME in asked_labels(pod.shape).union(mounted):
        return True
    said = {*node.labels, *(r.key for r in node.requirements.values())}
    speaks_of = {DEPRECATED.get(key, key) for key in asked_labels(asked.shape)}
    return not speaks_of.isdisjoint((WELL_KNOWN | problem.well_known) - said)


def _variants(problem, plan, pools, pod, asked, replay, *, reserved=False):
    """Yield a name and the variant for everything that pools could still launch for a pod."""
    for pool in pools:
        if any(r.min_values for r in pool.spec.template.spec.requirements):
            continue
        limited = quantities(pool.spec.limits)
        used = _most_used(problem, plan, pool)
        for variant in pool_variants(_with_daemons_everywhere(problem), pool, asked):
            capacity = {**variant.capacity, "nodes": 1}
            if (variant.labels[CAPACITY_TYPE] == "reserved") != reserved or any(
                used.get(name, 0) + capacity.get(name, 0) > limit for name, limit in limited.items()
            ):
                continue
            place = Place(
                name="a new node",
                options=[{**variant.labels, HOSTNAME: "a new node"}],
                taints=pool.spec.template.spec.taints,
                planned=True,
            )
            if _has_labels(problem, pod, place) and not any(replay.refusals(pod, place)):
                where = [variant.labels[key] for key in (ZONE, CAPACITY_TYPE)]
                yield f"{variant.instance_type.name} of {pool.name} in {' '.join(where)}", variant


def _most_used(problem, plan, pool):
    """Add up what a pool's claims could count at most: the largest type, since nothing is refunded.

    When a claim is opened it counts as its largest type; later pods may have made it smaller.
    """
    used = dict(problem.pool_usage.get(pool.name, {}))
    types = problem.catalogues[pool.name].instance_types
    names = {name for instance_type in types for name in instance_type.capacity}
    largest = {name: max(t.capacity.get(name, 0) for t in types) for name in names}
    for claim in plan.claims:
        if claim.pool == pool.name:
            add(used, {**largest, "nodes": 1})
    return used


def _with_daemons_everywhere(problem):
    """Let daemons run on every node: they are charged by type, whatever zone they select."""
    free = {"node_selector": {}, "required_node_terms": ()}
    daemons = [replace(d, shape=replaced(d.shape, **free)) for d in problem.daemons]
    return replace(problem, daemons=tuple(daemons))


def _waits_for_launching_nodes(problem, pod):
    """Whether a pod may wait until launching nodes say in which domains they are."""
    concerned = hard_spreads(pod.shape) or pod.shape.pod_affinity or _repelling_keys(problem, pod)
    return concerned and any(node.requirements is not None for node in problem.nodes)


def _waits_for_claims(plan, pod):
    """Whether a pod may wait until it is known which claims count for its spread constraints.

    A custom label that a claim leaves open gets a value at the end only.
    """
    asked = asked_labels(pod.shape)
    return hard_spreads(pod.shape) and any(
        r.key in claim.labels and (r.complement or len(r.values) > 1)
        for claim in plan.claims
        for r in claim.requirements
        if r.key in asked
    )


def _has_labels(problem, pod, place):
    """Whether a place has the labels of all anti-affinity that concerns a pod.

    To Kubernetes a node without the label is in no domain, and free; upstream wants one.
    """
    return all(None not in place.domains(key) for key in _repelling_keys(problem, pod))


def _repelling_keys(problem, pod):
    """Collect the topology keys of a pod's anti-affinity, and of all anti-affinity against it."""
    keys = {term.topology_key for term in pod.shape.pod_anti_affinity}
    for other in (*problem.pods, *(bound for node in problem.nodes for bound in node.pods)):
        for term in other.shape.pod_anti_affinity:
            if term_selects(term, other.shape, pod.shape, problem.namespaces):
                keys.add(term.topology_key)
    return keys
