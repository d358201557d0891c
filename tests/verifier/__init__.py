"""An independent judge of scheduling plans.

Shares no code with `karpenter_core.scheduling`: plain dictionaries and loops, written from
Kubernetes' rules. It checks every node that a planned claim may become (every listed type with
every offering that the claim allows) as a node with labels, and asks whether each pod may run
there; it adds up requests, daemons, ports, volumes, limits and reservations; and it replays the
pods in the plan's order against everything that looks at other pods.
"""

from __future__ import annotations

from tests.verifier.alone import hosts_alone
from tests.verifier.contents import (
    claim_variants,
    existing_node,
    limits,
    may_run,
    planned_claim,
    pool_of,
    reservations,
)
from tests.verifier.leftovers import untaken
from tests.verifier.places import claim_place, existing_place
from tests.verifier.replay import Replay
from tests.verifier.rules import hard_spreads

__all__ = ["hosts_alone", "leftovers", "may_run", "violations"]


def violations(problem, plan, *, strict_min_values=True):
    """Return everything that is wrong with a plan, as texts; empty when it is valid."""
    result = list(_bookkeeping(problem, plan))
    nodes = {node.name: node for node in problem.nodes}
    for name, pods in plan.existing.items():
        texts = existing_node(problem, nodes[name], pods)
        result += (f"node {name}: {text}" for text in texts)
    launched = {}
    for number, claim in enumerate(plan.claims):
        by_type = claim_variants(problem, claim)
        launched[number] = [variant for listed in by_type.values() for variant in listed]
        texts = planned_claim(problem, claim, by_type, strict_min_values=strict_min_values)
        result += (f"claim {number} ({claim.pool}): {text}" for text in texts)
    result += limits(problem, plan, launched)
    result += reservations(problem, launched)
    if _order_matters(problem) or plan.sequence:
        result += _order(plan)
        result += _replay(problem, plan, launched)
    return result


def _bookkeeping(problem, plan):
    placed = [pod.uid for pod in _placed(plan)] + list(plan.unschedulable)
    if sorted(placed) != sorted(pod.uid for pod in problem.pods):
        yield f"pods are not each in one place: {sorted(placed)}"
    if not all(claim.pods for claim in plan.claims):
        yield "a claim without pods"
    total = sum(claim.cheapest.price_per_hour for claim in plan.claims)
    if abs(total - plan.cost.hourly) > 1e-6:
        yield f"cost {plan.cost.hourly} is not the sum {total}"


def _placed(plan):
    on_claims = [pod for claim in plan.claims for pod in claim.pods]
    return on_claims + [pod for pods in plan.existing.values() for pod in pods]


def _order(plan):
    placed = sorted(pod.uid for pod in _placed(plan))
    if sorted(plan.sequence) != placed:
        yield f"the sequence {sorted(plan.sequence)} is not what was placed: {placed}"


def _order_matters(problem):
    """Return whether any constraint depends on other pods; without one, any order is as good."""
    pods = [*problem.pods, *(pod for node in problem.nodes for pod in node.pods)]
    return any(
        pod.shape.pod_affinity or pod.shape.pod_anti_affinity or hard_spreads(pod.shape)
        for pod in pods
    )


def _replay(problem, plan, launched):
    replay, hosts = _start(problem, plan, launched)
    placed = {}
    for place, pod in hosts.values():
        placed.setdefault(place, []).append(pod)
    yield from replay.unfixed(placed)
    for uid in plan.sequence:
        if uid in hosts:
            place, pod = hosts[uid]
            yield from replay.place(pod, place)


def _start(problem, plan, launched, *, cautious=False):
    """Return the replay before the first pod, and where which pod will go."""
    gone = {pod.uid for pod in problem.pods}
    places = {node.name: existing_place(node, gone) for node in problem.nodes}
    filled = [(places[name], pods) for name, pods in plan.existing.items()]
    for number, claim in enumerate(plan.claims):
        if launched[number]:
            taints = pool_of(problem, claim).spec.template.spec.taints
            filled.append((claim_place(number, claim, launched[number], taints), claim.pods))
    hosts = {pod.uid: (place, pod) for place, pods in filled for pod in pods}
    claims = [place for place, _ in filled if place.planned]
    return Replay(problem, [*places.values(), *claims], cautious=cautious), hosts


def leftovers(problem, plan):
    """Return the pods that stay pending although, after everything else, a node would take them.

    A place on an existing node, or a further claim within the limits. Pods that wait for reserved
    capacity: whether there is some that would do, and none is left. Says nothing of pools with
    minValues, where one variant is not enough to tell.
    """
    launched = {
        number: [m for listed in claim_variants(problem, claim).values() for m in listed]
        for number, claim in enumerate(plan.claims)
    }
    replay, hosts = _start(problem, plan, launched, cautious=True)
    for uid in plan.sequence:
        for _ in replay.place(hosts[uid][1], hosts[uid][0]):
            pass
    yield from untaken(problem, plan, replay)
