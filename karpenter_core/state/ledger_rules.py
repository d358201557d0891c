"""Rules of ledger tables: expiry of entries, and recovery by a new leader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TABLES", "TableRule"]


@dataclass(frozen=True, slots=True)
class TableRule:
    """Expiry of the entries of a table, and their recovery by a new leader."""

    holds: str
    expires: str
    rebuilt: str


TABLES: Final[Mapping[str, TableRule]] = {
    "nominations": TableRule(
        "node or claim -> until when pods are expected on it",
        "at that time, or with the claim",
        "the first pass places the pending pods again and nominates again",
    ),
    "deletion_marks": TableRule(
        "claim -> cause of a disruption that has started",
        "with the claim, or when the disruption is rolled back",
        "deleted claims have a deletion timestamp; taints of unfinished commands are removed",
    ),
    "placements": TableRule(
        "pod UID -> claim or node that it is planned for",
        "when the pod is bound, ends, or is planned again; with its target, and one "
        "nomination window after the target is initialised",
        "claims without a node count as capacity, so the first pass plans the pods there again",
    ),
    "expected": TableRule(
        "claim or node -> UIDs of the pods that are planned for it",
        "with the placements (it is the reverse index)",
        "like the placements",
    ),
    "unseen_claims": TableRule(
        "claim UID -> name and creation of a claim that no watch has reported",
        "when a watch reports it or it is removed",
        "the first list contains every claim",
    ),
    "launches": TableRule(
        "claim UID -> result of a successful launch",
        "one hour after the launch, or with the claim",
        "the launch is requested again; the provider knows the claim's UID",
    ),
    "open_launches": TableRule(
        "claim UID -> start of a launch call that is open",
        "when the call ends, however late",
        "a new process has no open calls; the provider knows the claim's UID",
    ),
    "first_seen": TableRule(
        "pod UID -> when the pod was first seen pending",
        "when the pod is bound, ends or is removed",
        "the moment at which the new leader sees the pod",
    ),
    "decisions": TableRule(
        "pod UID -> first decision about it",
        "when the pod is removed",
        "by the next pass",
    ),
    "pod_deletions": TableRule(
        "pod UID -> when the grace period of its deletion ends, from when that was first seen",
        "when the pod is removed",
        "the grace period counts from the moment at which the new leader sees the pod",
    ),
    "replaced_pods": TableRule(
        "pod UID -> since when a rollout replaces the pod, whose place another pod then needs",
        "when the pod is removed, or is evicted after all",
        "the eviction queue finds the rollout of the pod's Deployment",
    ),
    "pod_nominations": TableRule(
        "pod UID -> node that the status of a pending pod nominates, and when that was first seen, or a pod last left the node",
        "with the nomination, or when the pod is removed",
        "the moment at which the new leader sees the pod",
    ),
    "registration_health": TableRule(
        "pool UID -> the last four registrations, True for a success",
        "when the pool is removed or its template or NodeClass changes",
        "the pool's condition NodeRegistrationHealthy",
    ),
    "registration_failures": TableRule(
        "pool UID -> reason and message of its last claim that did not launch or register",
        "with the next success, and with the results",
        "the pool's condition NodeRegistrationHealthy",
    ),
    "launch_pauses": TableRule(
        "pool UID -> number of registrations that failed in a row, and the end of the launch pause",
        "with the next success, when the pool is removed, or its template or NodeClass changes",
        "the pool's condition NodeRegistrationHealthy: False means a pause of a minute",
    ),
    "demand_pauses": TableRule(
        "pool UID and what pods ask of a node -> number of nodes in a row that did not register or fit them, and the end of the pause",
        "with the next node that fits such pods, an hour after the pause, and when the NodePool or its NodeClass changes",
        "the next two nodes do not fit either",
    ),
    "recent_claims": TableRule(
        "claim UID -> pool and creation of a claim that is less than a minute old",
        "one minute after the claim was created, even if it was deleted before",
        "the first list contains those that still exist",
    ),
    "unavailable_offerings": TableRule(
        "provider and offering or quota group -> end of its mask",
        "after 3 min, doubling to 12 min if it is sold out again; spot always after 3 min",
        "the next launch finds the shortage again",
    ),
}
"""One rule per table of the ledger."""
