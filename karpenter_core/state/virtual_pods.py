"""Holds declared virtual pods, and their places in the last pass.

A virtual pod exists only in scheduling problems and what-ifs. The controller of an object declares its
pods with `VirtualPodsDeclared`; every provisioning pass places all of them again and reports their
number on each existing node with `VirtualPodsPlaced`. Both are lost with the process: the controllers
then declare the pods again, and the first pass counts again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, final

from karpenter_core.state.tables import SnapshotTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import PodView, VirtualSource
    from karpenter_core.scheduling.virtual_pods import VirtualPlacement
    from karpenter_core.state.events import VirtualPodsPlaced
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = ["VirtualPodTable", "count_virtual_pods", "hosts_virtual_pods", "virtual_count_key"]


@final
class VirtualPodTable:
    """The declared virtual pods and the places of the last pass; only `apply_event` changes them."""

    __slots__ = ("_counts", "_placements", "_pods")

    def __init__(self) -> None:
        self._pods: SnapshotTable[VirtualSource, tuple[PodView, ...]] = SnapshotTable()
        self._placements: SnapshotTable[VirtualSource, VirtualPlacement] = SnapshotTable()
        self._counts: Mapping[str, int] | None = None

    @property
    def pods(self) -> Mapping[VirtualSource, tuple[PodView, ...]]:
        """The declared pods by source; later events do not change the result."""
        return self._pods.freeze()

    @property
    def placements(self) -> Mapping[VirtualSource, VirtualPlacement]:
        """The places of the sources' present pods, once a pass has decided about them."""
        return self._placements.freeze()

    @property
    def counts(self) -> Mapping[str, int] | None:
        """The counts of the last pass; None before the first."""
        return self._counts

    def declare(self, source: VirtualSource, pods: tuple[PodView, ...] | None) -> bool:
        """Replace or withdraw (None) the pods of a source; tell whether that changed anything."""
        self._placements.drop(source)
        if pods is None:
            return self._pods.drop(source) is not None
        self._pods.put(source, pods)
        return True

    def place(self, event: VirtualPodsPlaced) -> tuple[bool, tuple[VirtualSource, ...]]:
        """Apply the result of a pass; return whether it is new, and whose places are."""
        old, self._counts = self._counts, dict(event.counts)
        moved: list[VirtualSource] = []
        for source, placement in event.placements.items():
            # Pods that were declared while the pass ran are decided about by the next one.
            if len(self._pods.get(source) or ()) != placement.wanted:
                continue
            if self._placements.get(source) != placement:
                self._placements.put(source, placement)
                moved.append(source)
        return bool(moved) or self._counts != old, tuple(moved)


def virtual_count_key(state_node: StateNode) -> str:
    """Return the name under which a node's virtual pods are counted."""
    return state_node.name if state_node.claim is None else state_node.claim.name


def count_virtual_pods(
    snapshot: Snapshot, existing: Mapping[str, Iterable[PodView]]
) -> dict[str, int]:
    """Count the virtual pods of a plan by `virtual_count_key`; nodes without any are left out.

    `existing` are the pods that a plan puts on existing capacity, by name of the state node.
    """
    counts: Counter[str] = Counter()
    for name, pods in existing.items():
        state_node = snapshot.state_node(name)
        count = sum(pod.is_virtual for pod in pods)
        if count and state_node is not None:
            counts[virtual_count_key(state_node)] += count
    return dict(counts)


def hosts_virtual_pods(snapshot: Snapshot, state_node: StateNode) -> bool:
    """Tell whether the last pass put virtual pods on a node.

    Before the first pass any node may have some, if there are virtual pods at all.
    """
    if snapshot.virtual_pod_counts is None:
        return snapshot.has_virtual_pods
    return snapshot.virtual_pod_counts.get(virtual_count_key(state_node), 0) > 0
