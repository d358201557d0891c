"""Pauses launches for pods whose nodes do not register or do not fit.

Their NodePool goes on to launch nodes for other pods. The pause of a NodePool ends with any node
that registers and fits. Where some workloads' nodes do all the time, nodes would be launched for
the others without limit: so what pods ask of a NodePool has a pause of its own, which grows in the
same way. Meanwhile such pods may get a node of another NodePool. Their failures do not prolong the
pause of the NodePool, nor do their nodes take its trial, so that other pods do not wait for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import msgspec

from karpenter_core.api.labels import NODE_POOL
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.api.records import PodShape, PodView
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "PauseSplit",
    "demand_of",
    "demands_of",
    "is_pause_of",
    "is_trial_of_paused",
    "pause_key",
    "split_paused",
]

_SEPARATOR: Final = " "


def demand_of(shape: PodShape) -> str:
    """Return what pods of a shape ask of a node; pods that are recreated ask for the same."""
    asked = (
        shape.namespace,
        sorted(shape.requests.items()),
        sorted(shape.node_selector.items()),
        shape.required_node_terms,
        shape.tolerations,
    )
    return repr(asked)


def demands_of(pods: Iterable[PodView]) -> tuple[str, ...]:
    """Return what some pods ask of a node, each demand once."""
    return tuple(sorted({demand_of(pod.shape) for pod in pods}))


def pause_key(pool_uid: str, demand: str) -> str:
    """Return the key of the pause of a demand in a NodePool."""
    return f"{pool_uid}{_SEPARATOR}{demand}"


def is_pause_of(pool_uid: str, key: str) -> bool:
    """Tell whether a pause is of a NodePool."""
    return key.startswith(f"{pool_uid}{_SEPARATOR}")


def is_trial_of_paused(snapshot: Snapshot, claim: NodeClaim) -> bool:
    """Tell whether a claim was launched for such pods only whose nodes failed before."""
    pauses = snapshot.ledger.demand_pauses
    pool = snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, "")) if pauses else None
    if pool is None:
        return False
    expected = snapshot.ledger.expected.get(claim.name, ())
    demands = {_demand(snapshot.pods[uid], snapshot) for uid in expected if uid in snapshot.pods}
    found = [pauses.get(pause_key(pool.uid, demand)) for demand in demands]
    return bool(found) and all(pause is not None and pause.is_on_trial for pause in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseSplit:
    """Pods for which nodes may be launched now, and pods that no NodePool may launch a node for.

    Some NodePools are closed to the former that `elsewhere` names by UID, with the reasons by NodePool.
    """

    pods: tuple[PodView, ...]
    paused: tuple[tuple[PodView, str], ...] = ()
    elsewhere: Mapping[str, Mapping[str, str]] = field(
        default_factory=dict[str, "Mapping[str, str]"]
    )


def split_paused(
    pods: Sequence[PodView],
    places: Mapping[StateNode, Sequence[PodView]],
    snapshot: Snapshot,
    now: datetime,
    pools: Sequence[NodePool],
) -> PauseSplit:
    """Split off the pods for which none of some NodePools may launch anything now.

    After a pause one pod of its kind is tried: none while one of them has a node that boots (`places`).
    While a NodePool is on trial, only one of these kinds is tried there at a time: it may well be that
    none of its nodes registers.
    """
    trials = _DemandTrials(snapshot, places, now)
    if not trials:
        return PauseSplit(pods=tuple(pods))
    kept: list[PodView] = []
    paused: list[tuple[PodView, str]] = []
    elsewhere: dict[str, Mapping[str, str]] = {}
    shapes: dict[tuple[int, tuple[str, ...]], PodShape] = {}
    for pod in pods:
        demand = _demand(pod, snapshot)
        closed = {pool.name: why for pool in pools if (why := trials.refusal(pool, demand))}
        if closed and len(closed) == len(pools):
            paused.append((pod, next(iter(closed.values()))))
            continue
        trials.start(pools, demand)
        if not closed:
            kept.append(pod)
            continue
        key = id(pod.shape), tuple(closed)
        shape = shapes.get(key)
        if shape is None:
            shape = shapes[key] = _outside(pod.shape, tuple(closed))
        kept.append(msgspec.structs.replace(pod, shape=shape))
        elsewhere[pod.uid] = closed
    return PauseSplit(pods=tuple(kept), paused=tuple(paused), elsewhere=elsewhere)


@final
class _DemandTrials:
    """The pauses of demands in NodePools, and the trials that run after them."""

    def __init__(
        self, snapshot: Snapshot, places: Mapping[StateNode, Sequence[PodView]], now: datetime
    ) -> None:
        ledger = snapshot.ledger
        self._now = now
        self._pauses = {
            key: pause for key, pause in ledger.demand_pauses.items() if pause.is_on_trial
        }
        self._running: set[str] = set()
        """Keys of the pauses for which a node boots, or may be launched now."""
        self._busy: frozenset[str] = frozenset()
        """UIDs of the NodePools on trial in which such a node boots."""
        if not self._pauses:
            return
        for state_node, pods in places.items():
            pool = snapshot.node_pools.get(state_node.pool)
            if pool is not None:
                keys = {pause_key(pool.uid, _demand(pod, snapshot)) for pod in pods}
                self._running |= keys & self._pauses.keys()
        self._busy = frozenset(
            uid
            for uid, pause in ledger.launch_pauses.items()
            if pause.is_on_trial and any(is_pause_of(uid, key) for key in self._running)
        )

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def refusal(self, pool: NodePool, demand: str) -> str:
        """Return why a NodePool launches nothing for a demand now; empty if it may."""
        key = pause_key(pool.uid, demand)
        pause = self._pauses.get(key)
        if pause is None:
            return ""
        if self._now >= pause.until and key not in self._running and pool.uid not in self._busy:
            return ""
        failed = (
            f'{pause.failures} nodes of nodepool "{pool.name}" in a row that were launched for such pods '
            "did not register in time, or did not fit them"
        )
        if self._now < pause.until:
            return f"{failed}: one node is launched as a test at {pause.until:%Y-%m-%dT%H:%M:%SZ}"
        return f"{failed}: one node is being launched as a test"

    def start(self, pools: Iterable[NodePool], demand: str) -> None:
        """Start the trials that are due: no second pod is tried."""
        keys = {pause_key(pool.uid, demand) for pool in pools}
        self._running |= keys & self._pauses.keys()


def _outside(shape: PodShape, pools: tuple[str, ...]) -> PodShape:
    """Return a shape whose pods go to other NodePools than these; an empty term matches no node."""
    other = NodeSelectorRequirement(key=NODE_POOL, operator="NotIn", values=pools)
    terms = tuple(
        msgspec.structs.replace(term, match_expressions=(*term.match_expressions, other))
        for term in shape.required_node_terms
        if term.match_expressions
    )
    if not shape.required_node_terms:
        terms = (NodeSelectorTerm(match_expressions=(other,)),)
    return msgspec.structs.replace(shape, required_node_terms=terms or shape.required_node_terms)


def _demand(pod: PodView, snapshot: Snapshot) -> str:
    """Return what a pod asks for itself, whatever was predicted or added for its plan."""
    return demand_of(snapshot.pods.get(pod.uid, pod).shape)
