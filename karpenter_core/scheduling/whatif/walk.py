"""Put pods on nodes that are there, exactly where the solver's first-fit plan would put them.

That is most of what a what-if does, and it needs no arrays: a class's nodes are known (`Takers`),
nodes that nothing was put on need no look, the others and the counts are in the overlay. The rules
for domains are those of `counts` and `spread`, for a few pods instead of many; whatever would take
a new node, or is not plain, is left to the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.compiled.topology import Kind
from karpenter_core.scheduling.placement.counts import NO_CAP
from karpenter_core.scheduling.placement.spread import water

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.compiled.topology import Group
    from karpenter_core.scheduling.whatif.base import Base
    from karpenter_core.scheduling.whatif.overlay import Overlay
    from karpenter_core.scheduling.whatif.takers import ClassPlan, Level, TakersKey, ZonalRules

__all__ = ["Walk", "Work"]

Work = tuple[int, "tuple[PodView, ...]"]
"""Pods of one class, oldest first."""


_MANY: Final = 32
"""Classes for which it pays to note which nodes are full."""

_Caps = tuple[list[int], "list[int]", bool, bool]
"""Pods that each domain takes now; the counts to level, if some group's grow and spread; whether
any group's grow; whether affinity has no target yet (as `counts.DomainCaps`)."""


@final
class Walk:
    """One walk over the nodes for pods that have to move.

    `moves` are the pods that found a place: class, slot, pods. `left` found none on any node;
    nothing that comes after depends on where they go. `rest` was not tried: the engine goes on from
    there.
    """

    def __init__(self, base: Base, overlay: Overlay) -> None:
        self._base: Final = base
        self._overlay: Final = overlay
        self.moves: Final[list[tuple[int, int, tuple[PodView, ...]]]] = []
        self.left: Final[list[Work]] = []
        self.rest: Final[list[Work]] = []
        self.is_short = False
        """Whether the first of the rest found too little room where it has to go."""
        self._short: Final[list[tuple[int, int]]] = []
        self._in_play: frozenset[int] | None = None
        self._closed: set[int] | dict[int, bool] = overlay.removed
        """Nodes not to look at: they are gone or, of many classes, have too little for any."""
        self._least: tuple[tuple[int, int], ...] = ()
        """Where there are many classes: lines of resources, and what any of them asks at least."""

    def place(self, works: Sequence[Work]) -> None:
        """Put pods on nodes, class by class, as far as that goes."""
        overlay, plans = self._overlay, self._base.plans
        if len(works) > _MANY:
            least = self._base.compiled.requests[:, [number for number, _ in works]].min(axis=1)
            self._least = tuple((line, least.item(line)) for line in least.nonzero()[0].tolist())
            self._closed = set(overlay.removed)
        for position, (number, pods) in enumerate(works):
            plan = plans[number]
            if not plan.is_plain or (plan.zonal and self._is_counted(plan, self.left)):
                self.rest.extend(works[position:])
                return
            mark, before = overlay.mark(), len(self.moves)
            placed = self._there(plan, pods) if plan.zonal else self._put(plan, pods, plan.anywhere)
            if placed < len(pods):
                if plan.zonal or plan.has_wishes:
                    self.is_short = not plan.has_wishes and (
                        not self._is_counted(plan, works[position + 1 :]) or self._buys(plan)
                    )
                    overlay.undo(mark)
                    del self.moves[before:]
                    self.rest.extend(works[position:])
                    return
                self.left.append((number, pods[placed:]))

    def _is_counted(self, plan: ClassPlan, works: Sequence[Work]) -> bool:
        """Whether pods, wherever they go, count for a group that restricts the domains of a class."""
        plans = self._base.plans
        return any(not plan.domains_by.isdisjoint(plans[number].counts_for) for number, _ in works)

    def _put(
        self,
        plan: ClassPlan,
        pods: tuple[PodView, ...],
        key: TakersKey,
        within: Sequence[tuple[int, int]] = (),
        tops: Sequence[Sequence[int]] | None = None,
    ) -> int:
        """Put pods on the first nodes that take them; return how many found a place.

        On those of a list only, and `within` domains (as bits) of other axes. With `tops`, what
        each domain takes by each of the zonal rules: on the first node alone, as many as these let.
        """
        overlay, places, number, asked = self._overlay, self._base.places, plan.number, plan.asked
        closed, taken = self._closed, overlay.free
        slots = overlay.open.of(key)
        placed, left = 0, len(pods)
        # Most nodes that were filled lack CPU or memory: looked at before anything is called.
        (line_a, amount_a), (line_b, amount_b) = plan.closest
        for slot in slots:
            if slot in closed or (within and not self._is_within(slot, within)):
                continue
            free = taken.get(slot)
            if free is None:
                free = places[slot].free
                room = 1 if left == 1 else self._room(plan, slot, free, left)
            elif free[line_a] < amount_a or free[line_b] < amount_b:
                continue
            else:
                room = self._room(plan, slot, free, left)
                if not room:
                    continue
            if tops is not None:
                room = min(room, self._most_in(plan, slot, tops))
                self._take(plan, slot, free, pods[:room])
                return room
            after = free.copy()
            for line, amount in asked:
                after[line] -= amount * room
            overlay.put(slot, number, room, after)
            if self._least:
                self._close(slot, after)
            if room == left:
                self.moves.append((number, slot, pods[placed:] if placed else pods))
                return placed + room
            self.moves.append((number, slot, pods[placed : placed + room]))
            placed += room
            left -= room
        return placed

    def _close(self, slot: int, free: list[int]) -> None:
        """Look at a node no more that has too little for any class, if it has."""
        for line, least in self._least:
            if free[line] < least and isinstance(self._closed, set):
                self._closed.add(slot)
                return

    def _is_within(self, slot: int, within: Sequence[tuple[int, int]]) -> bool:
        signatures, signature = self._base.compiled.signatures, self._base.places[slot].signature
        for axis, domains in within:
            domain = signatures.domain(axis, signature)
            if domain < 0 or not domains >> domain & 1:
                return False
        return True

    def _most_in(self, plan: ClassPlan, slot: int, tops: Sequence[Sequence[int]]) -> int:
        """Return how many pods the domains of a node take, by what each domain takes."""
        signatures, signature = self._base.compiled.signatures, self._base.places[slot].signature
        return min(
            caps[signatures.domain(rules.axis, signature)]
            for rules, caps in zip(plan.zonal, tops, strict=True)
        )

    def foresee(self, walk: Walk) -> list[tuple[int, int]]:
        """Return how many pods of which classes need new claims, as far as that is clear.

        Goes on where another walk ended, by what the engine would do. It counts pods in domains
        where there is no node for them yet: for a refusal, then to be undone.
        """
        short, overlay = self._short, self._overlay
        self.left.extend(walk.left)
        short.extend((number, len(pods)) for number, pods in walk.left)
        plans = self._base.plans
        self._in_play = frozenset[int]().union(
            *(plans[number].owned for number, _ in (*walk.left, *walk.rest))
        )
        for position, (number, pods) in enumerate(walk.rest):
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
                short.extend((work[0], self.shortage(work)) for work in walk.rest[position:])
                break
        return short

    def _buys(self, plan: ClassPlan) -> bool:
        """Whether the engine opens claims at once for pods that no node takes now."""
        rules, *further = plan.zonal
        if further:
            return False
        tops, _, _, first = self._caps(rules)
        domains = [domain for domain, cap in enumerate(tops) if cap > 0]
        if first or not domains:
            return False
        return all(self._can_open(plan, rules.axis, domain) for domain in domains)

    def _opens(self, plan: ClassPlan, axis: int, domain: int, count: int) -> bool:
        """Whether the engine opens claims in a domain for pods without room there; count them."""
        if not self._can_open(plan, axis, domain):
            return False
        for group in plan.counted:
            if not group.is_host and self._is_in_play(group):
                self._overlay.count(self._base.cell(axis, group, domain), count)
        self._short.append((plan.number, count))
        return True

    def _can_open(self, plan: ClassPlan, axis: int, domain: int) -> bool:
        """Whether the engine can open claims for a class in a domain, and what counts them there."""
        if not self._base.can_open(plan.number, axis, domain):
            return False
        return all(
            group.node_filter is None and self._base.axis_of(group) == axis
            for group in plan.counted
            if not group.is_host and self._is_in_play(group)
        )

    def _is_in_play(self, group: Group) -> bool:
        return self._in_play is None or group.index in self._in_play

    def shortage(self, work: Work) -> int:
        """Return how many pods surely find no place on any node, even if no others take any."""
        number, pods = work
        plan = self._base.plans[number]
        left = len(pods)
        if not plan.is_plain or plan.has_wishes:
            return 0
        for _, _, room in self._takers(plan, plan.anywhere, left):
            left -= room
            if left <= 0:
                return 0
        return left

    def _room(self, plan: ClassPlan, slot: int, free: list[int], most: int) -> int:
        """Return how many more pods a node takes, none to `most`."""
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
            if count > rule.most:
                return 0
            if rule.grows:
                most = min(most, rule.most + 1 - count)
        return most

    # -- domains -------------------------------------------------------------------------------

    def _there(self, plan: ClassPlan, pods: tuple[PodView, ...]) -> int:
        """Put pods on the first nodes that take them, whose domains do; return how many."""
        level, overlay = plan.level, self._overlay
        if level is not None and False not in overlay.usable(level.start, level.size):
            return self._there_level(plan, level, pods)
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

    def _there_level(self, plan: ClassPlan, level: Level, pods: tuple[PodView, ...]) -> int:
        """Put pods that are to be level in domains that all count; return how many found a place."""
        overlay, ranks = self._overlay, self._base.takers.ranks
        counts = overlay.counts(level.start, level.size)
        left = len(pods)
        fronts: dict[int, tuple[int, list[int], int] | None] = {}
        takers: dict[int, Iterator[tuple[int, list[int], int]]] = {}
        while left:
            lowest = min(counts) if level.size >= level.min_domains else 0
            highest = lowest + level.max_skew
            domains = [domain for domain, count in enumerate(counts) if count < highest]
            if left == len(pods) == 1:
                bits = sum([1 << domain for domain in domains])
                return self._put(plan, pods, (plan.number, level.axis, bits)) if bits else 0
            first, chosen = len(ranks), -1
            for domain in domains:
                if domain not in fronts:
                    if domain not in takers:
                        takers[domain] = self._takers(plan, level.keys[domain], left)
                    fronts[domain] = next(takers[domain], None)
                front = fronts[domain]
                if front is not None and ranks[front[0]] < first:
                    first, chosen = ranks[front[0]], domain
            front = fronts.get(chosen)
            if front is None:
                break
            slot, free, room = front
            count = min(room, left, highest - counts[chosen])
            placed = len(pods) - left
            after = self._take(plan, slot, free, pods[placed : placed + count])
            counts[chosen] += count
            left -= count
            if room > count:
                fronts[chosen] = (slot, after, room - count)
            else:
                del fronts[chosen]
        return len(pods) - left

    def _takers(
        self, plan: ClassPlan, key: TakersKey, most: int
    ) -> Iterator[tuple[int, list[int], int]]:
        """Yield the nodes of a list that take pods: slot, what is free, and how many, to `most`."""
        overlay, places, closed = self._overlay, self._base.places, self._closed
        taken = overlay.free
        (line_a, amount_a), (line_b, amount_b) = plan.closest
        for slot in overlay.open.of(key):
            free = taken.get(slot) or places[slot].free
            if free[line_a] < amount_a or free[line_b] < amount_b or slot in closed:
                continue
            room = self._room(plan, slot, free, most)
            if room:
                yield slot, free, room

    def _take(
        self, plan: ClassPlan, slot: int, free: list[int], pods: tuple[PodView, ...]
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

    def _spread_on(self, plan: ClassPlan, pods: tuple[PodView, ...]) -> bool:
        """Place a class with zonal constraints on nodes and claims; whether it is clear how.

        Nodes that are there come first; each round then opens claims in the domains that take some.
        """
        placed = self._there(plan, pods)
        while placed < len(pods):
            left = len(pods) - placed
            quotas = self._quotas(plan, left)
            if not quotas:
                return False
            axis = plan.zonal[0].axis
            for domain, quota in quotas:
                here = pods[placed : placed + quota]
                missing = quota - self._put(plan, here, (plan.number, axis, 1 << domain))
                if missing and not self._opens(plan, axis, domain, missing):
                    return False
                placed += quota
            placed += self._there(plan, pods[placed:])
        return True

    def _quotas(self, plan: ClassPlan, left: int) -> list[tuple[int, int]]:
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
        if sum(caps) < left:
            ((start, group, _), *others) = rules.groups
            usable = _both(self._overlay.usable(start, rules.size), rules.allowed)
            if others or group.kind is not Kind.SPREAD:
                return []
            if usable.count(True) == len(domains) >= group.min_domains:
                if not all(self._base.can_open(plan.number, rules.axis, d) for d in domains):
                    return []
                caps = [NO_CAP] * len(domains)  # no domain ever holds the others down
        quotas = water([levels[domain] for domain in domains], caps, left)
        shares = zip(domains, quotas, strict=True)
        ordered = sorted((levels[domain], domain, quota) for domain, quota in shares if quota)
        return [(domain, quota) for _, domain, quota in ordered]

    def _caps(self, rules: ZonalRules) -> _Caps:
        """Say how many pods each domain takes (the rules of `Counts.domain_caps`)."""
        overlay, allowed, size = self._overlay, rules.allowed, rules.size
        caps: list[int] = []
        levels: list[int] = []
        any_grows = first = False
        for start, group, is_counted in rules.groups:
            counts, usable = overlay.counts(start, size), overlay.usable(start, size)
            usable = _both(usable, allowed)
            grows = is_counted
            if group.kind is Kind.SPREAD:
                here = _spread_caps(group, counts, usable, grows=grows)
                if grows and not levels:
                    levels = counts
            elif group.kind is Kind.AFFINITY:
                there = _both([count > 0 for count in counts], allowed)
                if any(there):
                    here, grows = [NO_CAP if it else 0 for it in there], False
                elif grows and not any(_both(overlay.may_be_in(start, size), allowed)):
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
    group: Group, counts: list[int], usable: Sequence[bool], *, grows: bool
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
