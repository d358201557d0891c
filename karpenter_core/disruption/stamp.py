"""When a look need not be repeated: nothing that consolidation goes by has changed.

Upstream's rule: what found nothing is not tried again until pods, machines or pools have changed,
or five minutes have passed (protections of pods end without a change of any object).
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import CONSOLIDATABLE

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import datetime

    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["LONGEST", "Stamp", "Stamps", "digest_of", "is_stale", "stamp_of"]

LONGEST: Final = timedelta(minutes=5)  # upstream default

Stamp: TypeAlias = "tuple[Hashable, ...]"
"""Equal for snapshots between which nothing has changed that matters."""


@final
class Stamps:
    """Makes stamps of one snapshot after the other; reads only machines anew that have changed.

    Thousands of them with tens of thousands of pods would take a tenth of a second each time.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, tuple[StateNode, Hashable]] = {}

    def of(self, snapshot: Snapshot) -> Stamp:
        """Return the stamp of a snapshot: what `stamp_of` returns for it."""
        known: dict[str, tuple[StateNode, Hashable]] = {}
        for machine in snapshot.state_nodes:
            found = self._known.get(machine.name)
            if found is None or found[0] is not machine:
                found = (machine, _machine(machine))
            known[machine.name] = found
        self._known = known
        return (tuple(part for _, part in known.values()), *_others(snapshot))


def stamp_of(snapshot: Snapshot) -> Stamp:
    """Return what consolidation goes by: who runs where, which pools, prices and protections."""
    return Stamps().of(snapshot)


def _others(snapshot: Snapshot) -> Stamp:
    return (
        tuple(
            (name, pool.metadata.generation, tuple(sorted(pool.metadata.annotations.items())))
            for name, pool in sorted(snapshot.node_pools.items())
        ),
        tuple((name, item.version) for name, item in sorted(snapshot.catalogues.items())),
        tuple(
            (key, budget.disruptions_allowed > 0)
            for key, budget in sorted(snapshot.disruption_budgets.items())
        ),
        frozenset(snapshot.pending_pods),
    )


def digest_of(stamp: Stamp) -> str:
    """Return a stamp in short: the same in any process in which the stamp is the same.

    Takes hundredths of a second where tens of thousands of pods run: not for the event loop.
    """
    digest = blake2b(digest_size=8)
    for part in stamp:
        is_unordered = isinstance(part, frozenset)
        digest.update(repr(sorted(cast("frozenset[str]", part)) if is_unordered else part).encode())
    return digest.hexdigest()


def _machine(machine: StateNode) -> Hashable:
    settled = machine.claim is not None and is_true(machine.claim.status.conditions, CONSOLIDATABLE)
    return (
        machine.name,
        machine.initialized,
        machine.marked_for_deletion,
        settled,
        machine.annotations.get(DO_NOT_DISRUPT, ""),
        tuple(sorted(pod.uid for pod in machine.pods)),
        tuple(
            sorted(
                (pod.uid, tuple(sorted(pod.shape.annotations.items())))
                for pod in machine.pods
                if pod.shape.annotations
            )
        ),
    )


def is_stale(found_at: datetime, now: datetime) -> bool:
    """Tell whether a look that found nothing is too long ago."""
    return now - found_at >= LONGEST
