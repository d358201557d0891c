"""Pods that a plan leaves although a node would take them when everything else is placed."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from msgspec.structs import replace as replaced

from tests.verifier.alone import machines_for
from tests.verifier.contents import existing_node
from tests.verifier.places import Place
from tests.verifier.rules import (
    CAPACITY_TYPE,
    HOSTNAME,
    ZONE,
    add,
    hard_spreads,
    quantities,
    term_selects,
)


def untaken(problem, plan, replay):
    """Yield a text for each pod left that some node takes; `replay` has placed all the others."""
    seen = {}
    kept = []
    for pod in problem.pods:
        if pod.uid not in plan.unschedulable or _waits_for_machines(problem, pod):
            continue
        question = (id(pod.shape), pod.uid if pod.uid in problem.volumes else "")
        if question not in seen:
            asked = _as_asked_last(pod)
            kept.append(asked)  # the replay knows shapes by identity
            taken = chain(
                _nodes(problem, plan, asked, replay),
                _machines(problem, plan, asked, replay),
            )
            seen[question] = next(taken, None)
        if seen[question] is not None:
            yield f"{pod.name} is left, {seen[question]} would take it"


def _as_asked_last(pod):
    """Return what is asked for a pod when nothing is left to give up: its last required term.

    Terms are given up before wishes are (upstream's order), so the first ones are not asked
    without the wishes.
    """
    return replaced(
        pod, shape=replaced(pod.shape, required_node_terms=pod.shape.required_node_terms[-1:])
    )


def _nodes(problem, plan, pod, replay):
    places = {place.name: place for place in replay.places}
    for node in problem.nodes:
        pods = (*plan.existing.get(node.name, ()), pod)
        if node.closed or any(existing_node(problem, node, pods)):
            continue
        place = places[f"node {node.name}"]
        if _has_labels(problem, pod, place) and not any(replay.refusals(pod, place)):
            yield place.name


def _machines(problem, plan, pod, replay):
    for pool in problem.pools:
        if any(r.min_values for r in pool.spec.template.spec.requirements):
            continue
        limited = quantities(pool.spec.limits)
        used = _most_used(problem, plan, pool)
        for machine in machines_for(_with_daemons_everywhere(problem), pool, pod):
            capacity = {**machine.capacity, "nodes": 1}
            if machine.labels[CAPACITY_TYPE] == "reserved" or any(
                used.get(name, 0) + capacity.get(name, 0) > limit for name, limit in limited.items()
            ):
                continue
            place = Place(
                name="a new node",
                options=[{**machine.labels, HOSTNAME: "a new node"}],
                taints=pool.spec.template.spec.taints,
                planned=True,
            )
            if _has_labels(problem, pod, place) and not any(replay.refusals(pod, place)):
                where = [machine.labels[key] for key in (ZONE, CAPACITY_TYPE)]
                yield f"{machine.instance_type.name} of {pool.name} in {' '.join(where)}"


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


def _waits_for_machines(problem, pod):
    """Whether a pod may wait until machines under way say in which domains they are."""
    concerned = hard_spreads(pod.shape) or pod.shape.pod_affinity or _repelling_keys(problem, pod)
    return concerned and any(node.requirements is not None for node in problem.nodes)


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
