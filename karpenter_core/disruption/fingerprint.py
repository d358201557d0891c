"""Computes a fingerprint of everything that consolidation depends on.

Upstream's rule: a method that found nothing is not run again until pods, nodes or NodePools have
changed, or five minutes have passed (protections of pods end without a change of any object).
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.labels import DO_NOT_DISRUPT
from karpenter_core.api.nodeclaim import CONSOLIDATABLE
from karpenter_core.scheduling.identity_memo import IdentityMemo
from karpenter_core.state.request_predictions import predicted_requests

if TYPE_CHECKING:
    from collections.abc import Hashable
    from datetime import datetime

    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "MAX_AGE",
    "ConsolidationFingerprint",
    "FingerprintBuilder",
    "consolidation_fingerprint",
    "digest_fingerprint",
    "is_stale",
]

MAX_AGE: Final = timedelta(minutes=5)  # upstream default

ConsolidationFingerprint: TypeAlias = "tuple[Hashable, ...]"
"""Equal for snapshots that are the same to consolidation."""


@final
class FingerprintBuilder:
    """Makes the fingerprints of successive snapshots; reads only the changed nodes again.

    Reading thousands of nodes with tens of thousands of pods takes a tenth of a second.
    """

    __slots__ = ("_state_node_parts",)

    def __init__(self) -> None:
        self._state_node_parts: Final = IdentityMemo["StateNode", "Hashable"]()

    def fingerprint(self, snapshot: Snapshot) -> ConsolidationFingerprint:
        """Return the fingerprint of a snapshot, as `consolidation_fingerprint` does."""
        parts = self._state_node_parts.values(snapshot.state_nodes, _state_node_part)
        return (parts, *_cluster_parts(snapshot))


def consolidation_fingerprint(snapshot: Snapshot) -> ConsolidationFingerprint:
    """Return what consolidation depends on: nodes with pods, pools, prices, protections."""
    return FingerprintBuilder().fingerprint(snapshot)


def _cluster_parts(snapshot: Snapshot) -> ConsolidationFingerprint:
    return (
        tuple(
            (name, pool.metadata.generation, tuple(sorted(pool.metadata.annotations.items())))
            for name, pool in sorted(snapshot.node_pools.items())
        ),
        tuple(
            (name, schedule.error, tuple(one.window.name for one in schedule.open))
            for name, schedule in sorted(snapshot.pool_schedules.items())
        ),
        tuple((name, item.version) for name, item in sorted(snapshot.catalogues.items())),
        tuple(
            (key, budget.disruptions_allowed > 0)
            for key, budget in sorted(snapshot.disruption_budgets.items())
        ),
        frozenset(snapshot.pending_pods),
        *_virtual_parts(snapshot),
        *_predicted_parts(snapshot),
    )


def _predicted_parts(snapshot: Snapshot) -> ConsolidationFingerprint:
    """Return what VerticalPodAutoscalers recommend, in an order of its own; nothing without any."""
    return tuple(
        (key, item.target_group, item.target_kind, item.target_name, repr(predicted_requests(item)))
        for key, item in sorted(snapshot.vertical_pod_autoscalers.items())
    )


def _virtual_parts(snapshot: Snapshot) -> ConsolidationFingerprint:
    """Return the virtual pods and their places, which outlive them until the next provisioning pass."""
    counts = snapshot.virtual_pod_counts
    if not snapshot.has_virtual_pods and not counts:
        return ()
    asked = sorted((str(source), pods) for source, pods in snapshot.virtual_pods.items() if pods)
    return (
        tuple((source, len(pods), repr(pods[0].shape)) for source, pods in asked),
        None if counts is None else tuple(sorted(counts.items())),
    )


def digest_fingerprint(fingerprint: ConsolidationFingerprint) -> str:
    """Return a digest of a fingerprint: the same for equal ones in every process.

    Takes hundredths of a second for tens of thousands of pods: not for the event loop.
    """
    digest = blake2b(digest_size=8)
    for part in fingerprint:
        is_unordered = isinstance(part, frozenset)
        digest.update(repr(sorted(cast("frozenset[str]", part)) if is_unordered else part).encode())
    return digest.hexdigest()


def _state_node_part(state_node: StateNode) -> Hashable:
    settled = state_node.claim is not None and is_true(
        state_node.claim.status.conditions, CONSOLIDATABLE
    )
    return (
        state_node.name,
        state_node.initialized,
        state_node.marked_for_deletion,
        settled,
        state_node.annotations.get(DO_NOT_DISRUPT, ""),
        state_node.taints,
        # A pod may be resized in place, and a node may get a device plugin late.
        tuple(sorted(state_node.allocatable.items())),
        tuple(sorted(state_node.requests.items())),
        tuple(sorted(pod.uid for pod in state_node.pods)),
        tuple(
            sorted(
                (pod.uid, tuple(sorted(pod.shape.annotations.items())))
                for pod in state_node.pods
                if pod.shape.annotations
            )
        ),
    )


def is_stale(found_at: datetime, now: datetime) -> bool:
    """Tell whether an idle result has expired."""
    return now - found_at >= MAX_AGE
