"""Places pods on existing nodes as the solver's first-fit plan would.

That is most of the work of a what-if, and it needs no arrays: a class's nodes are known
(`FittingNodes`), nodes without new pods need no check, the others and the counts are in the
overlay. The rules for domains are those of `topology_counts` and `spread_placement`, for a few pods
instead of many; the engine does everything that takes a new node or is not plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.compiled.topology import TopologyKind
from karpenter_core.scheduling.placement.spread_placement import fill_levels
from karpenter_core.scheduling.placement.topology_counts import NO_CAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.compiled.topology import TopologyGroup
    from karpenter_core.scheduling.whatif.base_state import BaseState
    from karpenter_core.scheduling.whatif.fitting_nodes import (
        ClassPlacementPlan,
        FittingNodesKey,
        SpreadLevel,
        ZonalTopologyRules,
    )
    from karpenter_core.scheduling.whatif.overlay import ClusterOverlay

__all__ = ["ClassPods", "FirstFitPlacement"]

ClassPods = tuple[int, "tuple[PodView, ...]"]
"""Pods of one class, oldest first."""


_MANY: Final = 32
"""Classes for which it pays to note which nodes are full."""

_Caps = tuple[list[int], "list[int]", bool, bool]
"""Pods that each domain takes now; the counts to level, if some group's grow and spread; whether
any group's grow; whether affinity has no target yet (as `counts.DomainCaps`)."""


@final
class FirstFitPlacement:
    """One first-fit placement of pods that have to move.

    `moves` are the pods that found a place: class, slot, pods. `left` found none on any node; no
    later class depends on where they go. `unprocessed` was not tried: the engine continues there.
    """

    def __init__(self, base: BaseState, overlay: ClusterOverlay) -> None:
        self._base: Final = base
        self._overlay: Final = overlay
        self.moves: Final[list[tuple[int, int, tuple[PodView, ...]]]] = []
        self.left: Final[list[ClassPods]] = []
        self.unprocessed: Final[list[ClassPods]] = []
        self.is_short = False
        """Whether the first of the rest found too little room where it has to go."""
        self._short: Final[list[tuple[int, int]]] = []
        self._in_play: frozenset[int] | None = None
        self._closed: set[int] | dict[int, bool] = overlay.removed
        """Nodes to skip: they are gone or, of many classes, have too little capacity for any."""
        self._least: tuple[tuple[int, int], ...] = ()
        """For many classes: lines of resources, and the least request among them."""

    def place(self, class_pods: Sequence[ClassPods]) -> None:
        """Put pods on nodes, class by class, as far as that goes."""
        overlay, plans = self._overlay, self._base.plans
        if len(class_pods) > _MANY:
            least = self._base.compiled.requests[:, [number for number, _ in class_pods]].min(
                axis=1
            )
            self._least = tuple((line, least.item(line)) for line in least.nonzero()[0].tolist())
            self._closed = set(overlay.removed)
        for position, (number, pods) in enumerate(class_pods):
            plan = plans[number]
            if not plan.is_plain or (plan.zonal and self._is_counted(plan, self.left)):
                self.unprocessed.extend(class_pods[position:])
                return
            mark, before = overlay.mark(), len(self.moves)
            placed = (
                self._fill_existing(plan, pods)
                if plan.zonal
                else self._put(plan, pods, plan.anywhere)
            )
            if placed < len(pods):
                if plan.zonal or plan.has_wishes:
                    self.is_short = not plan.has_wishes and (
                        not self._is_counted(plan, class_pods[position + 1 :]) or self._buys(plan)
                    )
                    overlay.undo(mark)
                    del self.moves[before:]
                    self.unprocessed.extend(class_pods[position:])
                    return
                self.left.append((number, pods[placed:]))

    def _is_counted(self, plan: ClassPlacementPlan, class_pods: Sequence[ClassPods]) -> bool:
        """Whether pods, wherever they go, count for a group that restricts a class's domains."""
        plans = self._base.plans
        return any(
            not plan.domains_by.isdisjoint(plans[number].counts_for) for number, _ in class_pods
        )

    def _put(
        self,
        plan: ClassPlacementPlan,
        pods: tuple[PodView, ...],
        key: FittingNodesKey,
        within: Sequence[tuple[int, int]] = (),
        tops: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Put pods on the first nodes that take them; return how many found a place.

        On those of a list only, and `within` domains (as bits) of other axes. With `tops`, what
        each domain takes by each of the zonal rules: on the first node alone, as many as these let.
        """
        overlay, places, number, requested = (
            self._overlay,
            self._base.base_nodes,
            plan.number,
            plan.asked,
        )
        closed, changed_free = self._closed, overlay.free
        slots = overlay.open.fitting_slots(key)
        placed, remaining = 0, len(pods)
        # Most nodes that were filled lack CPU or memory: checked before anything is called.
        (line_a, amount_a), (line_b, amount_b) = plan.closest
        for slot in slots:
            if slot in closed or (within and not self._is_within(slot, within)):
                continue
            free = changed_free.get(slot)
            if free is None:
                free = places[slot].free
                room = 1 if remaining == 1 else self._fit_count(plan, slot, free, remaining)
            elif free[line_a] < amount_a or free[line_b] < amount_b:
                continue
            else:
                room = self._fit_count(plan, slot, free, remaining)
                if not room:
                    continue
            if tops is not None:
                room = min(room, self._most_in(plan, slot, tops))
                self._take(plan, slot, free, pods[:room])
                return room
            after = free.copy()
            for line, amount in requested:
                after[line] -= amount * room
            overlay.put(slot, number, room, after)
            if self._least:
                self._close(slot, after)
            if room == remaining:
                self.moves.append((number, slot, pods[placed:] if placed else pods))
                return placed + room
            self.moves.append((number, slot, pods[placed : placed + room]))
            placed += room
            remaining -= room
        return placed

    def _close(self, slot: int, free: list[int]) -> None:
        """Skip a node from now on if it has too little capacity for every class."""
        for line, least in self._least:
            if free[line] < least and isinstance(self._closed, set):
                self._closed.add(slot)
                return

    def _is_within(self, slot: int, within: Sequence[tuple[int, int]]) -> bool:
        signatures, signature = (
            self._base.compiled.signatures,
            self._base.base_nodes[slot].signature,
        )
        for axis, domains in within:
            domain = signatures.domain(axis, signature)
            if domain < 0 or not domains >> domain & 1:
                return False
        return True

    def _most_in(self, plan: ClassPlacementPlan, slot: int, tops: Sequence[Sequence[int]]) -> int:
        """Return how many pods the domains of a node take, by what each domain takes."""
        signatures, signature = (
            self._base.compiled.signatures,
            self._base.base_nodes[slot].signature,
        )
        return min(
            caps[signatures.domain(rules.axis, signature)]
            for rules, caps in zip(plan.zonal, tops, strict=True)
        )

    def predict_new_claims(self, placement: FirstFitPlacement) -> list[tuple[int, int]]:
        """Return how many pods of which classes need new claims, as far as that is clear.

        Continues where another placement ended, as the engine would. It counts pods in domains
        without a node for them yet: the caller undoes that after the refusal.
        """
        short, overlay = self._short, self._overlay
        self.left.extend(placement.left)
        short.extend((number, len(pods)) for number, pods in placement.left)
        plans = self._base.plans
        self._in_play = frozenset[int]().union(
            *(plans[number].owned for number, _ in (*placement.left, *placement.unprocessed))
        )
        for position, (number, pods) in enumerate(placement.unprocessed):
            plan, mark, before = plans[number], overlay.mark(), len(short)
            is_clear = plan.is_plain and not plan.has_wishes
            if is_clear and plan.zonal:
                is_clear = not self._is_counted(plan, self.left) and self._spread_on(plan, pods)
            elif is_clear:
                placed = self._put(plan, pods, plan.anywhere)
                if placed < len(pods):
                    self.left.append((number, pods[placed:]))
                    short.append((number, len(pods) - placed))
            if not is_clear:
                overlay.undo(mark)
                del short[before:]
                short.extend(
                    (work[0], self.count_unplaceable(work))
                    for work in placement.unprocessed[position:]
                )
                break
        return short

    def _buys(self, plan: ClassPlacementPlan) -> bool:
        """Whether the engine opens claims at once for pods that no node takes now."""
        rules, *further = plan.zonal
        if further:
            return False
        tops, _, _, first = self._caps(rules)
        domains = [domain for domain, cap in enumerate(tops) if cap > 0]
        if first or not domains:
            return False
        return all(self._can_open(plan, rules.axis, domain) for domain in domains)

    def _opens(self, plan: ClassPlacementPlan, axis: int, domain: int, count: int) -> bool:
        """Whether the engine opens claims in a domain for pods without room there; count them."""
        if not self._can_open(plan, axis, domain):
            return False
        for group in plan.counted:
            if not group.is_host and self._is_in_play(group):
                self._overlay.count(self._base.cell(axis, group, domain), count)
        self._short.append((plan.number, count))
        return True

    def _can_open(self, plan: ClassPlacementPlan, axis: int, domain: int) -> bool:
        """Whether the engine can open claims for a class in a domain where they are counted."""
        if not self._base.can_open(plan.number, axis, domain):
            return False
        return all(
            group.node_filter is None and self._base.axis_of(group) == axis
            for group in plan.counted
            if not group.is_host and self._is_in_play(group)
        )

    def _is_in_play(self, group: TopologyGroup) -> bool:
        return self._in_play is None or group.index in self._in_play

    def count_unplaceable(self, work: ClassPods) -> int:
        """Return how many pods surely find no place on any node, even if no others take any."""
        number, pods = work
        plan = self._base.plans[number]
        remaining = len(pods)
        if not plan.is_plain or plan.has_wishes:
            return 0
        for _, _, room in self._fitting_nodes(plan, plan.anywhere, remaining):
            remaining -= room
            if remaining <= 0:
                return 0
        return remaining

    def has_no_room(self, plan: ClassPlacementPlan) -> bool:
        """Whether no node takes a single pod of a class, whatever domain it is in."""
        if not plan.is_plain or plan.has_wishes:
            return False
        return next(self._fitting_nodes(plan, plan.anywhere, 1), None) is None

    def _fit_count(self, plan: ClassPlacementPlan, slot: int, free: list[int], most: int) -> int:
        """Return how many more pods a node takes, none to `max_count`."""
        for line, amount in plan.asked:
            if free[line] < amount * most:
                most = free[line] // amount
                if most <= 0:
                    return 0
        for rule in plan.host:
            counts = self._base.host.rows.get(rule.group)
            count = counts.get(slot, 0) if counts else 0
            more = self._overlay.host.get(rule.group)
            if more:
                count += more.get(slot, 0)
            if count > rule.max_count:
                return 0
            if rule.grows:
                most = min(most, rule.max_count + 1 - count)
        return most

    # -- domains -------------------------------------------------------------------------------

    def _fill_existing(self, plan: ClassPlacementPlan, pods: tuple[PodView, ...]) -> int:
        """Put pods on the first nodes that take them, whose domains do; return how many."""
        level, overlay = plan.level, self._overlay
        if level is not None and False not in overlay.usable(level.start, level.size):
            return self._fill_existing_evenly(plan, level, pods)
        placed = 0
        while placed < len(pods):
            caps = [self._caps(rules) for rules in plan.zonal]
            within = [
                (rules.axis, sum([1 << domain for domain, cap in enumerate(tops) if cap > 0]))
                for rules, (tops, _, _, _) in zip(plan.zonal, caps, strict=True)
            ]
            if not all(domains for _, domains in within):
                break
            here = pods[placed:] if placed else pods
            grows = any(of_axis[2] for of_axis in caps)
            tops = [of_axis[0] for of_axis in caps] if grows and len(here) > 1 else None
            count = self._put(plan, here, (plan.number, *within[0]), within[1:], tops)
            placed += count
            if tops is None or not count:
                break
        return placed

    def _fill_existing_evenly(
        self, plan: ClassPlacementPlan, level: SpreadLevel, pods: tuple[PodView, ...]
    ) -> int:
        """Spread pods evenly over domains that all count; return how many found a place."""
        overlay, ranks = self._overlay, self._base.fitting_nodes.ranks
        counts = overlay.counts(level.start, level.size)
        remaining = len(pods)
        fronts: dict[int, tuple[int, list[int], int] | None] = {}
        fitting_nodes: dict[int, Iterator[tuple[int, list[int], int]]] = {}
        while remaining:
            lowest = min(counts) if level.size >= level.min_domains else 0
            highest = lowest + level.max_skew
            domains = [domain for domain, count in enumerate(counts) if count < highest]
            if remaining == len(pods) == 1:
                bits = sum([1 << domain for domain in domains])
                return self._put(plan, pods, (plan.number, level.axis, bits)) if bits else 0
            first, chosen = len(ranks), -1
            for domain in domains:
                if domain not in fronts:
                    if domain not in fitting_nodes:
                        fitting_nodes[domain] = self._fitting_nodes(
                            plan, level.keys[domain], remaining
                        )
                    fronts[domain] = next(fitting_nodes[domain], None)
                front = fronts[domain]
                if front is not None and ranks[front[0]] < first:
                    first, chosen = ranks[front[0]], domain
            front = fronts.get(chosen)
            if front is None:
                break
            slot, free, room = front
            count = min(room, remaining, highest - counts[chosen])
            placed = len(pods) - remaining
            after = self._take(plan, slot, free, pods[placed : placed + count])
            counts[chosen] += count
            remaining -= count
            if room > count:
                fronts[chosen] = (slot, after, room - count)
            else:
                del fronts[chosen]
        return len(pods) - remaining

    def _fitting_nodes(
        self, plan: ClassPlacementPlan, key: FittingNodesKey, most: int
    ) -> Iterator[tuple[int, list[int], int]]:
        """Yield the nodes of a list that take pods: slot, free resources, number of pods."""
        overlay, places, closed = self._overlay, self._base.base_nodes, self._closed
        changed_free = overlay.free
        (line_a, amount_a), (line_b, amount_b) = plan.closest
        for slot in overlay.open.fitting_slots(key):
            free = changed_free.get(slot) or places[slot].free
            if free[line_a] < amount_a or free[line_b] < amount_b or slot in closed:
                continue
            room = self._fit_count(plan, slot, free, most)
            if room:
                yield slot, free, room

    def _take(
        self, plan: ClassPlacementPlan, slot: int, free: list[int], pods: tuple[PodView, ...]
    ) -> list[int]:
        """Put pods on a node with so much free; return what is free then."""
        after = free.copy()
        for line, amount in plan.asked:
            after[line] -= amount * len(pods)
        self._overlay.put(slot, plan.number, len(pods), after)
        if self._least:
            self._close(slot, after)
        self.moves.append((plan.number, slot, pods))
        return after

    def _spread_on(self, plan: ClassPlacementPlan, pods: tuple[PodView, ...]) -> bool:
        """Place a class with zonal constraints on nodes and claims; whether it is clear how.

        Nodes that are there come first; each round then opens claims in the domains that take some.
        """
        placed = self._fill_existing(plan, pods)
        while placed < len(pods):
            remaining = len(pods) - placed
            quotas = self._quotas(plan, remaining)
            if not quotas:
                return False
            axis = plan.zonal[0].axis
            for domain, quota in quotas:
                here = pods[placed : placed + quota]
                missing = quota - self._put(plan, here, (plan.number, axis, 1 << domain))
                if missing and not self._opens(plan, axis, domain, missing):
                    return False
                placed += quota
            placed += self._fill_existing(plan, pods[placed:])
        return True

    def _quotas(self, plan: ClassPlacementPlan, remaining: int) -> list[tuple[int, int]]:
        """Return how many pods the engine puts in each domain next; nothing where that is unclear.

        The rules are those of `spread`, for one axis on which spread constraints alone grow.
        """
        rules, *further = plan.zonal
        if further:
            return []
        tops, levels, _, first = self._caps(rules)
        domains = [domain for domain, cap in enumerate(tops) if cap > 0]
        if first or not levels or not domains:
            return []
        caps = [tops[domain] for domain in domains]
        if sum(caps) < remaining:
            ((start, group, _), *others) = rules.groups
            usable = _both(self._overlay.usable(start, rules.size), rules.allowed)
            if others or group.kind is not TopologyKind.SPREAD:
                return []
            if usable.count(True) == len(domains) >= group.min_domains:
                if not all(self._base.can_open(plan.number, rules.axis, d) for d in domains):
                    return []
                caps = [NO_CAP] * len(domains)  # no domain ever holds the others down
        quotas = fill_levels([levels[domain] for domain in domains], caps, remaining)
        shares = zip(domains, quotas, strict=True)
        ordered = sorted((levels[domain], domain, quota) for domain, quota in shares if quota)
        return [(domain, quota) for _, domain, quota in ordered]

    def _caps(self, rules: ZonalTopologyRules) -> _Caps:
        """Say how many pods each domain takes (the rules of `Counts.domain_caps`)."""
        overlay, allowed, size = self._overlay, rules.allowed, rules.size
        caps: list[int] = []
        levels: list[int] = []
        any_grows = first = False
        for start, group, is_counted in rules.groups:
            counts, usable = overlay.counts(start, size), overlay.usable(start, size)
            usable = _both(usable, allowed)
            grows = is_counted
            if group.kind is TopologyKind.SPREAD:
                here = _spread_caps(group, counts, usable, grows=grows)
                if grows and not levels:
                    levels = counts
            elif group.kind is TopologyKind.AFFINITY:
                there = _both([count > 0 for count in counts], allowed)
                if any(there):
                    here, grows = [NO_CAP if it else 0 for it in there], False
                elif grows and not any(counts) and not any(overlay.may_be_in(start, size)):
                    first = True
                    here = [NO_CAP if it else 0 for it in usable]
                else:
                    here = [0] * size
            else:
                most = 1 if grows else NO_CAP
                here = [most if usable[d] and not counts[d] else 0 for d in range(size)]
            any_grows |= grows
            caps = list(map(min, caps, here)) if caps else here
        return caps, levels, any_grows, first


def _both(flags: Sequence[bool], allowed: tuple[bool, ...] | None) -> Sequence[bool]:
    if allowed is None:
        return flags
    return [a and b for a, b in zip(flags, allowed, strict=True)]


def _spread_caps(
    group: TopologyGroup, counts: list[int], usable: Sequence[bool], *, grows: bool
) -> list[int]:
    all_usable = False not in usable
    eligible = counts if all_usable else [n for n, it in zip(counts, usable, strict=True) if it]
    least = min(eligible) if eligible and len(eligible) >= group.min_domains else 0
    highest = least + group.max_skew
    if grows and all_usable:
        return [highest - count for count in counts]
    if grows:
        return [highest - n if it else 0 for n, it in zip(counts, usable, strict=True)]
    return [NO_CAP if it and highest >= n else 0 for n, it in zip(counts, usable, strict=True)]
