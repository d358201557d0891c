"""Find the first constraint that keeps a pod from a pool, without any code of the scheduler.

By trial: with nothing but the constraints up to some one in force, is there a variant of the pool
that takes the pod, everything else being where a plan has it? Knows nothing of minValues,
reservations and what pools leave to chance (custom labels without listed values).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from msgspec.structs import replace as replaced

from karpenter_core.api.records import Toleration
from tests.verifier import _start
from tests.verifier.alone import pool_variants
from tests.verifier.contents import claim_variants
from tests.verifier.leftovers import _has_labels, _most_used
from tests.verifier.places import Place
from tests.verifier.rules import CAPACITY_TYPE, HOSTNAME, ZONE, hard_spreads, quantities

__all__ = ["ORDER", "Trial"]

ORDER = (
    "taint", "requirement", "resource", "port", "volume", "topology", "affinity", "limit",
    "offering", "daemon",
)  # fmt: skip
"""The constraints that can be tried, in the order in which the first one counts."""


class Trial:
    """A plan that is made, and the pods that found no place in it.

    `cautious`: also what only upstream's way to count forbids keeps pods away.
    """

    def __init__(self, problem, plan, *, cautious=True):
        self._problem, self._plan = problem, plan
        launched = {
            number: [m for listed in claim_variants(problem, claim).values() for m in listed]
            for number, claim in enumerate(plan.claims)
        }
        self._replay, hosts = _start(problem, plan, launched, cautious=cautious)
        for uid in plan.sequence:
            for _ in self._replay.place(hosts[uid][1], hosts[uid][0]):
                pass
        self._kept = []

    def names(self, pod, pool):
        """Return the first constraint that leaves no variant of the pool; None when all do.

        One for each alternative of the pod's required terms: of those the last one counts that can
        be asked for at all.
        """
        terms = [(term,) for term in pod.shape.required_node_terms] or [()]
        return [
            next((c for c in ORDER if self._refuses(pod, pool, term, c)), None) for term in terms
        ]

    def is_open(self, pod, pool):
        """Whether a pod that asks for nothing could have a node of the pool."""
        return not self._refuses(pod, pool, (), None)

    def _refuses(self, pod, pool, terms, last):
        def holds(constraint):
            return last is not None and ORDER.index(constraint) <= ORDER.index(last)

        asked = replaced(pod, shape=replaced(pod.shape, required_node_terms=terms))
        self._kept.append(asked)  # the replay knows shapes by identity
        problem = self._relaxed(pool, holds)
        alone = replaced(asked, shape=_relaxed_shape(asked.shape, holds))
        limits = quantities(pool.spec.limits) if holds("limit") else {}
        used = _most_used(self._problem, self._plan, pool)
        for variant in pool_variants(problem, pool, alone):
            capacity = {**variant.capacity, "nodes": 1}
            if any(used.get(n, 0) + capacity.get(n, 0) > most for n, most in limits.items()):
                continue
            if not self._kept_away(asked, pool, variant, holds):
                return False
        return True

    def _kept_away(self, pod, pool, variant, holds):
        """Whether pods that are placed keep one away from a new node."""
        taints = pool.spec.template.spec.taints
        options = [{**variant.labels, HOSTNAME: "a new node"}]
        place = Place(name="a new node", options=options, taints=taints, planned=True)
        if holds("affinity"):
            return not _has_labels(self._problem, pod, place) or any(
                self._replay.refusals(pod, place)
            )
        return holds("topology") and any(
            fault
            for spread in hard_spreads(pod.shape)
            for fault in self._replay._spread(spread, pod, place)
        )

    def _relaxed(self, pool, holds):
        problem = self._problem
        if not holds("offering"):
            catalogue = problem.catalogues[pool.name]
            types = tuple(_sold_everywhere(one) for one in catalogue.instance_types)
            everywhere = replace(catalogue, instance_types=types)
            problem = replace(problem, catalogues={**problem.catalogues, pool.name: everywhere})
        if not holds("volume"):
            problem = replace(problem, volumes={})
        if not holds("port"):
            return replace(problem, daemons=())
        if not holds("daemon"):
            daemons = [replace(d, shape=replaced(d.shape, requests={})) for d in problem.daemons]
            problem = replace(problem, daemons=tuple(daemons))
        return problem


def _relaxed_shape(shape, holds):
    if not holds("taint"):
        shape = replaced(shape, tolerations=(Toleration(operator="Exists"),))
    if not holds("requirement"):
        shape = replaced(shape, node_selector={}, required_node_terms=())
    if not holds("resource"):
        shape = replaced(shape, requests={})
    if not holds("port"):
        shape = replaced(shape, host_ports=())
    return shape


def _sold_everywhere(instance_type):
    """Sell a type in every zone and as everything that it says it may be."""
    first = instance_type.offerings[0]
    labels = {r.key: r for r in instance_type.requirements.values()}
    places = product(sorted(labels[ZONE].values), sorted(labels[CAPACITY_TYPE].values))
    requirements = type(first.requirements)
    return replace(
        instance_type,
        offerings=tuple(
            replace(
                first,
                available=True,
                requirements=requirements.from_labels({ZONE: zone, CAPACITY_TYPE: kind}),
            )
            for zone, kind in places
        ),
    )
