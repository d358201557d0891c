"""One look's what-ifs: where the pods of candidates would go, and what that would take.

The cluster is compiled once for a look, by the first method that asks. What a question costs does
not depend on the size of the cluster then (`docs/design/whatif.md`).
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.scheduling.problem import ReservationPolicy
from karpenter_core.scheduling.whatif import WhatIf
from karpenter_core.state.leaving import leaving_problem

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from datetime import datetime, timedelta

    from karpenter_core.disruption.candidates import Candidate
    from karpenter_core.scheduling.catalogue import CatalogueCache
    from karpenter_core.scheduling.problem import SolveOptions
    from karpenter_core.scheduling.whatif import Verdict
    from karpenter_core.state.problem import Framing
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["Simulation", "leftover_message"]

_NAMED_PODS: Final = 5  # upstream's number


@final
class Simulation:
    """Answers what-ifs about one snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        now: datetime,
        framing: Framing,
        options: SolveOptions,
        cache: CatalogueCache | None = None,
    ) -> None:
        self._snapshot: Final = snapshot
        self._now: Final = now
        self._framing: Final = framing
        self._options: Final = replace(options, reservations=ReservationPolicy.FALLBACK)
        self._cache: Final = cache
        self._whatif: WhatIf | None = None
        self._peaceful = False

    def prepare_steps(self, *, peaceful: bool) -> Generator[int, None, None]:
        """Compile in small steps, if that has not happened; yields units of work.

        A `peaceful` simulation puts no pods on machines that are still inside their pool's
        `consolidateAfter`; what came to rest there would be disturbed in vain.
        """
        if self._whatif is None:
            problem, movable = leaving_problem(self._snapshot, now=self._now, framing=self._framing)
            yield 5
            self._whatif = WhatIf(problem, movable, self._options, cache=self._cache)
        if peaceful != self._peaceful:
            self._whatif.bar(_unsettled(self._snapshot) if peaceful else ())
            self._peaceful = peaceful
        yield from self._whatif.refresh_steps()

    def evaluate(
        self,
        candidates: Iterable[Candidate],
        *,
        below_price: float = inf,
        most_claims: int | None = None,
    ) -> Verdict:
        """Say what happens when candidates go all at once; see `WhatIf.evaluate`."""
        return self._ready.evaluate(
            _names(candidates), below_price=below_price, most_claims=most_claims
        )

    def push(self, candidate: Candidate) -> bool:
        """Take a candidate away for the questions that follow, if that needs nothing new."""
        return self._ready.push(_names((candidate,))).fits

    def pop(self) -> None:
        """Take back the last push that succeeded."""
        self._ready.pop()

    def unready_destination(self, verdict: Verdict) -> str:
        """Say on which machine that is not initialised a verdict puts pods; empty when on none.

        Such a machine may never come up, and what was disrupted for its sake would have no place.
        """
        for name in verdict.moves:
            machine = self._snapshot.state_node(name)
            if machine is not None and machine.managed and not machine.initialized:
                return f"would schedule against uninitialized {_both_names(machine)}"
        return ""

    @property
    def _ready(self) -> WhatIf:
        if self._whatif is None:
            raise RuntimeError("the simulation was not prepared")
        return self._whatif


def leftover_message(verdict: Verdict) -> str:
    """Say which pods would find no place; the first five are named."""
    keys = sorted(pod.key for pod in verdict.left)
    text = ", ".join(
        f"{key} => no place on any node, nor on one that could be made"
        for key in keys[:_NAMED_PODS]
    )
    more = len(keys) - _NAMED_PODS
    if more > 0:
        text += f" and {more} other(s)"
    return f"not all pods would schedule, {text}" if keys else "not all pods would schedule"


def _names(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(candidate.machine.name for candidate in candidates)


def _both_names(machine: StateNode) -> str:
    names = [f"nodeclaim/{machine.claim.name}"] if machine.claim is not None else []
    names += [f"node/{machine.node.name}"] if machine.node is not None else []
    return ", ".join(names)


def _unsettled(snapshot: Snapshot) -> list[str]:
    """Return the machines that are to be left in peace for a while yet."""
    return [
        machine.name
        for machine in snapshot.state_nodes
        if machine.claim is not None
        and machine.initialized
        and _has_window(snapshot, machine)
        and not is_true(machine.claim.status.conditions, CONSOLIDATABLE)
    ]


def _has_window(snapshot: Snapshot, machine: StateNode) -> bool:
    pool = snapshot.node_pools.get(machine.pool)
    window: timedelta | None = None
    if pool is not None:
        window = pool.spec.disruption.consolidate_after.timedelta
    return bool(window)
