"""Checks of the invariants of every plan, which return the violations.

Used by the property tests and by `verify_many.py`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from karpenter_core.scheduling.problem import MinValuesPolicy, PackingPolicy, SolveOptions
from karpenter_core.scheduling.solve import solve
from karpenter_core.testing.builders import node_pool, standard_catalogue
from tests.verifier import leftovers, violations

FIRST_FIT = SolveOptions(packing=PackingPolicy.FIRST_FIT)
BEST_EFFORT = SolveOptions(min_values=MinValuesPolicy.BEST_EFFORT)


def faults(problem):
    """Return `(check, text)` for everything that is wrong with the plans of a problem."""
    value, first_fit = solve(problem), solve(problem, FIRST_FIT)
    results = [("value", text) for text in violations(problem, value)]
    results += [("first-fit", text) for text in violations(problem, first_fit)]
    results += [("value", text) for text in left_behind(problem, value, first_fit)]
    results += [("comparison", text) for text in compared(value, first_fit)]
    shuffled = shuffle(problem, Random(len(problem.pods)))
    results += [("shuffled", text) for text in differences(value, solve(shuffled))]
    results += [
        ("shuffled first-fit", text) for text in differences(first_fit, solve(shuffled, FIRST_FIT))
    ]
    return results


def left_behind(problem, value, first_fit):
    """Say which pods the default plan leaves although a node would take them.

    Where it comes to the same as first-fit nothing is said: that one leaves zones open as long as
    upstream does, and then pods wait that need not have waited.
    """
    if _places(value) != _places(first_fit):
        yield from leftovers(problem, value)


def _places(plan):
    """Return which pods share a new node, in any order."""
    return sorted(sorted(pod.uid for pod in claim.pods) for claim in plan.claims)


def compared(value, first_fit):
    """Say where the default plan is worse than the first-fit plan."""
    left, left_first_fit = len(value.unschedulable), len(first_fit.unschedulable)
    if left > left_first_fit:
        yield f"leaves {left} pods, first-fit {left_first_fit}"
    if left == left_first_fit and value.cost.hourly > first_fit.cost.hourly + 1e-9:
        yield f"costs {value.cost.hourly}, first-fit {first_fit.cost.hourly}"
    if value.cost.first_fit_hourly != first_fit.cost.hourly:
        yield f"says first-fit costs {value.cost.first_fit_hourly}, it costs {first_fit.cost.hourly}"


def shuffle(problem, random):
    """Write the same problem in another order: pods, pools, types, nodes, what is on them."""

    def shuffled(items):
        items = list(items)
        random.shuffle(items)
        return tuple(items)

    return replace(
        problem,
        pods=shuffled(problem.pods),
        pools=shuffled(problem.pools),
        nodes=tuple(replace(node, pods=shuffled(node.pods)) for node in shuffled(problem.nodes)),
        daemons=shuffled(problem.daemons),
        catalogues={
            name: replace(catalogue, instance_types=shuffled(catalogue.instance_types))
            for name, catalogue in shuffled(problem.catalogues.items())
        },
        volumes=dict(shuffled(problem.volumes.items())),
        namespaces=dict(shuffled(problem.namespaces.items())),
    )


def written(plan):
    """Write a plan down to the last detail, in the order in which it comes."""
    lines = []
    for number, claim in enumerate(plan.claims):
        lines += [
            f"claim {number} of {claim.pool}: {[pod.uid for pod in claim.pods]}",
            *(f"claim {number} requires {requirement}" for requirement in claim.requirements),
            f"claim {number} lists {claim.instance_types}, {claim.cheapest}",
            f"claim {number} asks {sorted(claim.requests.items())}",
            f"claim {number} carries {sorted(claim.labels.items())}",
            f"claim {number} is at most {sorted(claim.capacity_max.items())}",
        ]
    lines += [f"{name}: {[pod.uid for pod in pods]}" for name, pods in plan.existing.items()]
    lines += [f"{uid} is left: {reason}" for uid, reason in plan.unschedulable.items()]
    lines += [f"sequence {plan.sequence}", f"cost {plan.cost}", f"partial {plan.partial}"]
    return lines


def differences(plan, other):
    """Say where two plans that should be the same differ first."""
    mine, theirs = written(plan), written(other)
    if mine != theirs:
        first = next(
            (n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
            min(len(mine), len(theirs)),
        )
        yield f"{(*mine, 'the end')[first]} became {(*theirs, 'the end')[first]}"


def with_unrelated_pool(problem):
    """Return a problem that no pod tolerating everything is in, without and with one pool more.

    The pool is tainted so that no pod goes there, has labels of the others' only, and the highest
    weight.
    """
    everything = {pod.uid for pod in problem.pods if any(not t.key for t in pod.shape.tolerations)}
    less = replace(problem, pods=tuple(p for p in problem.pods if p.uid not in everything))
    unrelated = node_pool("unrelated", weight=100, taints=["nobody=wants:NoSchedule"])
    more = replace(
        less,
        pools=(*less.pools, unrelated),
        catalogues={**less.catalogues, "unrelated": standard_catalogue()},
    )
    return less, more
