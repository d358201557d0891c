"""Replay a plan in its order: each pod must pass the filters that depend on other pods.

Topology spread and pod (anti-)affinity as the Kubernetes scheduler counts them, on the true labels
of nodes, but for what upstream decides otherwise. Domains that pools could make count as empty
ones, so no plan fills a zone while another, that is not there yet, would be due (hostnames: the
minimum is 0); a launching node makes none. The minimum is taken over the domains that the pod's own selector allows, whatever
nodeAffinityPolicy says; with nodeTaintsPolicy Honor, of pools that it tolerates. Each required term
of pod affinity is met for itself, not all by the same pods.
"""

from __future__ import annotations

from tests.verifier.places import universe
from tests.verifier.rules import (
    HARD_EFFECTS,
    HOSTNAME,
    hard_spreads,
    holds,
    label_of,
    selects_node,
    spread_selects,
    term_matches,
    term_selects,
    tolerates_all,
)

ALL_EFFECTS = {"NoSchedule", "NoExecute", "PreferNoSchedule"}


class Replay:
    """The cluster as it fills up.

    A `cautious` one refuses also what only upstream's way to count forbids: it counts empty nodes
    that are going, on nodes that are not decided yet whatever may count, and as known what is
    behind taints that are preferences.
    """

    def __init__(self, problem, places, *, cautious=False):
        self.problem = problem
        self.places = places
        self.cautious = cautious
        self._universe = universe(problem)
        self._known = {}
        self._objectors = [
            (place, pod) for place in places for pod in place.pods if pod.shape.pod_anti_affinity
        ]

    # -- fixed domains -----------------------------------------------------------------------------

    def unfixed(self, placed):
        """Say which claims leave open what constraints count; `placed` are pods by place."""
        owned = {}
        for pods in placed.values():
            for pod in pods:
                for key, selects in self._constraints(pod.shape):
                    owned.setdefault((key, id(pod.shape)), (pod, selects))
        keys = {key for key, _ in owned if key != HOSTNAME}
        for place, pods in placed.items():
            for key in sorted(keys):
                values = place.domains(key)
                if place.planned and len(values) > 1:
                    yield from self._why_fixed(place, pods, key, owned)

    def _why_fixed(self, place, pods, key, owned):
        values = sorted(str(value) for value in place.domains(key))
        for (of_key, _), (owner, selects) in owned.items():
            if of_key != key:
                continue
            for pod in pods:
                if pod.shape is owner.shape:
                    yield f"{place.name}: {key} not fixed: {pod.name} cares, it may be {values}"
                    return
                if selects(pod.shape, place):
                    yield (
                        f"{place.name}: {key} not fixed: {owner.name} counts {pod.name}, "
                        f"it may be {values}"
                    )
                    return

    def _constraints(self, shape):
        """Yield the key of each hard constraint, and whether it counts a shape at a place."""
        for spread in hard_spreads(shape):
            yield spread.topology_key, self._counting(spread, shape)
        for term in shape.pod_affinity:
            yield term.topology_key, lambda other, _: self._affinity_selects(shape, other)
        for term in shape.pod_anti_affinity:
            yield term.topology_key, self._meant(term, shape)

    def _counting(self, spread, owner):
        return lambda shape, place: (
            self._spread_selects(spread, owner, shape) and self._included(spread, owner, place)
        )

    def _meant(self, term, owner):
        return lambda shape, _: self._term_selects(term, owner, shape)

    # -- the turn of one pod -----------------------------------------------------------------------

    def place(self, pod, place):
        """Yield what is wrong with putting a pod here now, and put it."""
        yield from self.refusals(pod, place)
        place.pods.append(pod)
        if pod.shape.pod_anti_affinity:
            self._objectors.append((place, pod))

    def refusals(self, pod, place):
        """Yield what is wrong with putting a pod here now."""
        for spread in hard_spreads(pod.shape):
            yield from (f"{pod.name}: {text}" for text in self._spread(spread, pod, place))
        for texts in (self._affinity, self._anti_affinity, self._inverse):
            yield from (f"{pod.name}: {text}" for text in texts(pod, place))

    # -- topology spread ---------------------------------------------------------------------------

    def _spread(self, spread, pod, place):
        key, shape = spread.topology_key, pod.shape
        here = place.domains(key)
        if None in here:
            yield f"spread over {key}: {place.name} has no such label"
            return
        counts, known = self._spread_counts(spread, shape, place, self._included)
        full = counts
        if self.cautious:
            full, _ = self._spread_counts(spread, shape, place, self._perhaps_included)
        own = 1 if self._spread_selects(spread, shape, shape) else 0
        worst = max(sorted(here), key=lambda domain: full.get(domain, 0))
        skews = [
            full.get(worst, 0) + own - self._minimum(spread, counts, eligible)
            for eligible in self._eligible(spread, pod, place, known)
        ]
        if min(skews) > spread.max_skew:
            yield (
                f"spread over {key}: skew {min(skews)} in {worst} exceeds {spread.max_skew}, "
                f"counts {dict(sorted(counts.items()))}, own {own}"
            )

    def _spread_counts(self, spread, shape, host, included):
        """Count per domain of the nodes that are there, and say which domains are known by them.

        A node takes part when the constraint's policies let it, and when it has the key and those of
        the pod's other constraints. A claim takes part when all of its variants
        would, and a node that was launched before when it is known which domain it will be in;
        but by that one no domain is known, and by a claim none before it counts a pod.
        """
        counts, known = {}, set()
        for place in {*self.places, host}:
            if place.planned and not place.pods and place is not host:
                continue
            if None in place.domains(spread.topology_key) or not included(spread, shape, place):
                continue
            if any(None in place.domains(each.topology_key) for each in hard_spreads(shape)):
                continue
            count = sum(1 for pod in place.pods if self._spread_selects(spread, shape, pod.shape))
            if place.closed and not count and not self.cautious:
                continue  # it is going, and nothing on it counts
            domains = place.domains(spread.topology_key)
            if place.planned or len(domains) == 1:
                counts |= {domain: counts.get(domain, 0) + count for domain in domains}
                is_known = not place.ordered and (count or not place.planned)
                known |= domains if is_known else set()
        return counts, known

    def _spread_selects(self, spread, owner, shape):
        return self._remembered(
            (id(spread), id(owner), id(shape)), lambda: spread_selects(spread, owner, shape)
        )

    def _included(self, spread, shape, place):
        return self._remembered(
            (id(spread), id(shape), id(place)), lambda: self._is_included(spread, shape, place)
        )

    def _perhaps_included(self, spread, shape, place):
        return self._remembered(
            (id(spread), id(shape), id(place), "perhaps"),
            lambda: any(self._is_included(spread, shape, one) for one in place.each()),
        )

    @staticmethod
    def _is_included(spread, shape, place):
        if spread.node_affinity_policy == "Honor" and not all(
            selects_node(shape, labels) for labels in place.options
        ):
            return False
        return spread.node_taints_policy != "Honor" or tolerates_all(shape, place.taints)

    def _eligible(self, spread, pod, place, known):
        """Yield the domains that set the minimum, as each term that lets the pod here sees them.

        Those that pools can make and those of nodes that count, as far as the pod itself may go
        there: its own selector and term decide, whatever nodeAffinityPolicy says.
        """
        key, shape = spread.topology_key, pod.shape
        effects = HARD_EFFECTS if self.cautious else ALL_EFFECTS
        reachable = {
            value
            for value, behind in self._universe.get(key, {}).items()
            if spread.node_taints_policy != "Honor"
            or any(tolerates_all(shape, taints, effects) for taints in behind)
        }
        for term in _terms_met(shape, place):
            yield [value for value in known | reachable if _may_select(shape, term, key, value)]

    @staticmethod
    def _minimum(spread, counts, eligible):
        if spread.topology_key == HOSTNAME:
            return 0
        if spread.min_domains is not None and len(eligible) < spread.min_domains:
            return 0
        return min((counts.get(domain, 0) for domain in eligible), default=0)

    # -- pod affinity ------------------------------------------------------------------------------

    def _affinity(self, pod, place):
        """Every term is met by pods that all terms select, or the pod may be the first of them."""
        for term in pod.shape.pod_affinity:
            yield from self._affinity_to(term, pod, place)

    def _affinity_to(self, term, pod, place):
        key = term.topology_key
        here = place.domains(key)
        if None in here:
            yield f"affinity over {key}: {place.name} has no such label"
            return
        matching = [
            other
            for other in self.places
            if any(self._affinity_selects(pod.shape, p.shape) for p in other.pods)
        ]
        fixed = [other for other in matching if len(other.domains(key)) == 1]
        if here <= {next(iter(other.domains(key))) for other in fixed}:
            return
        keys = {each.topology_key for each in pod.shape.pod_affinity}
        counted = any(other.domains(each) != {None} for other in matching for each in keys)
        is_first = self._affinity_selects(pod.shape, pod.shape) and not counted
        if not is_first:
            yield (
                f"affinity over {key}: no matching pod in its domain, "
                f"they are on {[other.name for other in matching]}"
            )

    def _affinity_selects(self, owner, shape):
        return all(self._term_selects(term, owner, shape) for term in owner.pod_affinity)

    # -- pod anti-affinity -------------------------------------------------------------------------

    def _anti_affinity(self, pod, place):
        for term in pod.shape.pod_anti_affinity:
            for other, neighbour in self._neighbours(place, term.topology_key):
                if self._term_selects(term, pod.shape, neighbour.shape):
                    yield (
                        f"anti-affinity over {term.topology_key}: "
                        f"{neighbour.name} on {other.name} is in the same domain"
                    )
                    break

    def _inverse(self, pod, place):
        """No pod already there may have anti-affinity."""
        for other, neighbour in self._objectors:
            for term in neighbour.shape.pod_anti_affinity:
                key = term.topology_key
                if self._term_selects(term, neighbour.shape, pod.shape) and (
                    (place.domains(key) & other.domains(key)) - {None}
                ):
                    yield (
                        f"anti-affinity over {key}: {neighbour.name} on {other.name} "
                        f"does not want it in its domain"
                    )

    def _neighbours(self, place, key):
        """Yield the pods that may be in the same domain, with their places."""
        here = place.domains(key) - {None}
        for other in self.places:
            if other.pods and here & other.domains(key):
                yield from ((other, pod) for pod in other.pods)

    def _term_selects(self, term, owner, shape):
        return self._remembered(
            (id(term), id(owner), id(shape)),
            lambda: term_selects(term, owner, shape, self.problem.namespaces),
        )

    def _remembered(self, question, answer):
        if question not in self._known:
            self._known[question] = answer()
        return self._known[question]


def _terms_met(shape, place):
    """Return the required terms that let a pod be here (None: there are none)."""
    return [
        term
        for term in shape.required_node_terms
        if all(term_matches(term, labels) for labels in place.options)
    ] or [None]


def _may_select(shape, term, key, value):
    """Whether node selector and a term (None: there are none) let one label have a value."""
    labels = {key: value}
    selected_labels = {
        k: v for k, v in shape.node_selector.items() if label_of(labels, k) is not None
    }
    if not all(label_of(labels, k) == v for k, v in selected_labels.items()):
        return False
    expressions = [] if term is None else term.match_expressions
    of_key = [e for e in expressions if label_of(labels, e.key) is not None]
    return all(holds(expression.operator, expression.values, value) for expression in of_key)
