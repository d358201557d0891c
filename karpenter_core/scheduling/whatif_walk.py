"""Put pods on nodes that are there, exactly where the solver's first-fit plan would put them.

That is most of what a what-if does, and it needs no arrays: a class's nodes are known (`Takers`),
nodes that nothing was put on need no look, the others and the counts are in the overlay. The rules
for domains are those of `counts` and `spread`, for a few pods instead of many; whatever would take
a new node, or is not plain, is left to the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.scheduling.counts import NO_CAP
from karpenter_core.scheduling.spread import water
from karpenter_core.scheduling.topology import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from karpenter_core.api.records import PodView
    from karpenter_core.scheduling.topology import Group
    from karpenter_core.scheduling.whatif_base import Base
    from karpenter_core.scheduling.whatif_overlay import Overlay
    from karpenter_core.scheduling.whatif_takers import ClassPlan, Level, TakersKey, ZonalRules

__all__ = ["Walk", "Work"]

Work = tuple[int, "tuple[PodView, ...]"]
"""Pods of one class, oldest first."""


_FEW: Final = 32
"""Nodes that are looked at to tell that pods find no place."""

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
            if not plan.is_plain or (self.left and plan.zonal and self._disturbed(plan)):
                self.rest.extend(works[position:])
                return
            mark, before = overlay.mark(), len(self.moves)
            placed = (
                self._spread(plan, pods) if plan.zonal else self._put(plan, pods, plan.anywhere)
            )
            if placed < len(pods):
                if plan.zonal or plan.has_wishes:
                    overlay.undo(mark)
                    del self.moves[before:]
                    self.rest.extend(works[position:])
                    self.is_short = not plan.has_wishes
                    return
                self.left.append((number, pods[placed:]))

    def _disturbed(self, plan: ClassPlan) -> bool:
        """Whether the pods left, wherever they go, count for a group of a class."""
        groups = {group.index for rules in plan.zonal for _, group, _ in rules.groups}
        return any(
            group.index in groups
            for number, _ in self.left
            for group in self._base.plans[number].counted
        )

    def _put(
        self,
        plan: ClassPlan,
        pods: tuple[PodView, ...],
        key: TakersKey,
        within: Sequence[tuple[int, int]] = (),
    ) -> int:
        """Put pods on the first nodes that take them; return how many found a place.

        On those of a list only, and `within` domains (as bits) of other axes.
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
                is_clear = not self._disturbed(plan) and self._spread(plan, pods) == len(pods)
            elif is_clear:
                placed = self._put(plan, pods, plan.anywhere)
                if placed < len(pods):
                    self.left.append((number, pods[placed:]))
                    short.append((number, len(pods) - placed))
            if not is_clear:
                overlay.undo(mark)
                del short[before:]
                short.extend((work[0], self._shortage(work)) for work in walk.rest[position:])
                break
        return short

    def _opens(self, plan: ClassPlan, axis: int, domain: int, count: int) -> bool:
        """Whether the engine opens claims in a domain for pods without room there; count them."""
        if self._in_play is None or not self._base.can_open(plan.number, axis, domain):
            return False
        for group in plan.counted:
            if group.is_host or group.index not in self._in_play:
                continue
            if group.node_filter is not None or self._base.axis_of(group) != axis:
                return False
        for group in plan.counted:
            if not group.is_host and group.index in self._in_play:
                self._overlay.count(self._base.cell(axis, group, domain), count)
        self._short.append((plan.number, count))
        return True

    def _shortage(self, work: Work) -> int:
        """Return how many pods that were not tried surely find no place on any node."""
        number, pods = work
        plan, overlay = self._base.plans[number], self._overlay
        if not plan.is_plain or plan.has_wishes:
            return 0
        left = len(pods)
        for looked_at, slot in enumerate(self._base.takers.of(plan.anywhere)):
            if looked_at > _FEW:
                return 0
            if slot not in overlay.removed:
                left -= self._room(plan, slot, overlay.room(slot), left)
                if not left:
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

    def _spread(self, plan: ClassPlan, pods: tuple[PodView, ...]) -> int:
        """Place a class with zonal constraints; less than all where that takes more than nodes."""
        level, overlay = plan.level, self._overlay
        if level is not None and False not in overlay.usable(level.start, level.size):
            return self._even_out(plan, level, pods)
        placed = 0
        while placed < len(pods):
            caps = [self._caps(rules) for rules in plan.zonal]
            growing = -1
            for number, (tops, _, grows, _) in enumerate(caps):
                if max(tops, default=0) <= 0 or (grows and growing >= 0):
                    return 0
                if grows:
                    growing = number
            here = pods[placed:] if placed else pods
            if growing >= 0:
                wanted = self._along(plan, here, growing, caps)
            else:
                wanted = len(here) if self._put_within(plan, here, caps) else 0
            if not wanted:
                return 0
            placed += wanted
        return placed

    def _even_out(self, plan: ClassPlan, level: Level, pods: tuple[PodView, ...]) -> int:
        """Place a class whose own pods are to be level, in domains that all count.

        A round fills the lowest domains, up to what the skew allows over the lowest of its beginning.
        """
        counts = self._overlay.counts(level.start, level.size)
        placed, left = 0, len(pods)
        while left:
            lowest = min(counts)
            most = level.max_skew + (lowest if level.size >= level.min_domains else 0)
            if lowest >= most:
                return 0
            if left == 1:
                last = pods[placed:] if placed else pods
                done = self._put_in(plan, level, counts.index(lowest), last)
                return len(pods) if done else 0
            before = counts.copy()
            while left and lowest < most:
                counts[counts.index(lowest)] += 1
                lowest = min(counts)
                left -= 1
            for was, domain in sorted(zip(before, range(level.size), strict=True)):
                quota = counts[domain] - was
                if quota:
                    here = pods[placed : placed + quota]
                    if not self._put_in(plan, level, domain, here):
                        return 0
                    placed += quota
        return placed

    def _put_in(
        self, plan: ClassPlan, level: Level, domain: int, pods: tuple[PodView, ...]
    ) -> bool:
        """Put pods in one domain; whether all found a place there, or get one by new claims."""
        missing = len(pods) - self._put(plan, pods, level.keys[domain])
        return not missing or self._opens(plan, level.axis, domain, missing)

    def _along(
        self, plan: ClassPlan, pods: tuple[PodView, ...], growing: int, caps: Sequence[_Caps]
    ) -> int:
        """Fill the domains of the axis whose caps change; 0 where one did not take its pods."""
        tops, levels, _, first = caps[growing]
        if first or not levels:
            return int(self._put_within(plan, pods[:1], caps))
        domains = [domain for domain, cap in enumerate(tops) if cap > 0]
        if len(pods) == 1:
            domain = min(domains, key=levels.__getitem__)
            return int(self._put_within(plan, pods, caps, (growing, domain)))
        quotas = water([levels[d] for d in domains], [tops[d] for d in domains], len(pods))
        start = 0
        for _, domain, quota in sorted(
            (levels[d], d, quota) for d, quota in zip(domains, quotas, strict=True) if quota
        ):
            here = pods[start : start + quota]
            if not self._put_within(plan, here, caps, (growing, domain)):
                return 0
            start += quota
        return start

    def _put_within(
        self,
        plan: ClassPlan,
        pods: tuple[PodView, ...],
        caps: Sequence[_Caps],
        fixed: tuple[int, int] | None = None,
    ) -> bool:
        """Put pods in domains that take some, by one rule in one only; whether all found a place."""
        if fixed is not None and len(caps) == 1:
            axis, domain = plan.zonal[0].axis, fixed[1]
            missing = len(pods) - self._put(plan, pods, (plan.number, axis, 1 << domain))
            return not missing or self._opens(plan, axis, domain, missing)
        within: list[tuple[int, int]] = []
        if fixed is None and len(caps) == 1:
            rules, tops = plan.zonal[0], caps[0][0]
            domains = sum([1 << domain for domain, cap in enumerate(tops) if cap > 0])
            return self._put(plan, pods, (plan.number, rules.axis, domains)) == len(pods)
        for number, (rules, (tops, _, _, _)) in enumerate(zip(plan.zonal, caps, strict=True)):
            if fixed is not None and number == fixed[0]:
                within.insert(0, (rules.axis, 1 << fixed[1]))
            else:
                within.append((rules.axis, sum([1 << d for d, cap in enumerate(tops) if cap > 0])))
        return self._put(plan, pods, (plan.number, *within[0]), within[1:]) == len(pods)

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
