"""Compares another Karpenter's cluster with this controller's actions.

Pure functions, over the rules that the controllers follow themselves: migration of hashes, drift, garbage
collection. Each difference is one finding with its subject and a remedy; those that would replace or end a
node are errors.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import find_condition
from karpenter_core.api.labels import NODE_POOL, NODE_POOL_HASH_VERSION, TERMINATION_FINALIZER
from karpenter_core.api.nodeclaim import (
    DRIFTED,
    INSTANCE_TYPE_NOT_FOUND,
    NODE_POOL_DRIFTED,
    REQUIREMENTS_DRIFTED,
)
from karpenter_core.cli.name_lists import some_names
from karpenter_core.lifecycle.nodeclaim.drift import DriftRules, LocalDrift, local_drift
from karpenter_core.lifecycle.nodeclaim.garbage_collection import (
    ORPHAN_GRACE,
    claims_without_instance,
    orphaned_instances,
)
from karpenter_core.lifecycle.nodeclass.hashing import (
    NODE_CLASS_DRIFT,
    hash_annotations,
    is_hash_current,
    with_migrated_hash,
)
from karpenter_core.lifecycle.nodepool.hashing import HASH_VERSION, with_current_hash, with_hash
from karpenter_core.provider.contract import DriftFinding, Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.base import KubernetesObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.nodeclass import NodeClass
    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.provider.contract import DriftOutcome, InstanceListing, NodeClassHash
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "LeaseHolder",
    "PredictedDrift",
    "drift_findings",
    "finalizer_findings",
    "ignored_kind_findings",
    "instance_findings",
    "launch_findings",
    "lease_findings",
    "missing_object",
    "other_leader_findings",
    "predict_local_drift",
    "uncompared_findings",
    "unseen_leader_finding",
]

_KUBERNETES_FINALIZERS: Final = frozenset({"foregroundDeletion", "orphan"})
_DRIFT_REMEDIES: Final = {
    NODE_POOL_DRIFTED: "the template of its NodePool was changed after its launch: change it back, or "
    "let budgets of the NodePool replace the node",
    REQUIREMENTS_DRIFTED: "add the value of the node's label to the requirements of its NodePool",
    INSTANCE_TYPE_NOT_FOUND: "correct the labels of the NodeClaim, or set of the NodePool a budget of 0 "
    "nodes for the reason Drifted",
    NODE_CLASS_DRIFT: "its NodeClass was changed after its launch: change it back, or let budgets of the "
    "NodePool replace the node",
}
_DRIFT_REMEDY: Final = (
    "compare its instance with status of its NodeClass; a budget of 0 nodes for the reason Drifted in "
    "its NodePool keeps it"
)
_MOST_NAMES: Final = 5
_WAIT: Final = "wait until it has one, or has gone, before the other controller is ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """A Lease of leader election, as the API server has it."""

    namespace: str
    name: str
    identity: str = ""
    acquired: datetime | None = None
    renewed: datetime | None = None
    duration: timedelta = timedelta(seconds=15)

    def is_held(self, now: datetime) -> bool:
        """Whether a controller holds it; one without a time of renewal counts as held."""
        if not self.identity:
            return False
        return self.renewed is None or now - self.renewed <= self.duration


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedDrift:
    """A NodeClaim with its hashes as this controller would migrate them, and the comparison of it."""

    claim: NodeClaim
    local: LocalDrift = field(default_factory=LocalDrift)


def predict_local_drift(
    snapshot: Snapshot,
    hashes: Mapping[tuple[str, str, str], NodeClassHash | None],
    *,
    now: datetime,
    rules: DriftRules | None = None,
) -> tuple[PredictedDrift, ...]:
    """Return the comparison of each served NodeClaim with its NodePool, NodeClass and catalogue.

    `hashes` are those that providers compute, by group, kind and name of the NodeClass. NodeClaims that
    are being deleted, or have no NodePool, are not compared, as the controller compares none of these.
    """
    predicted: list[PredictedDrift] = []
    for _, claim in sorted(snapshot.node_claims.items()):
        pool = snapshot.node_pools.get(claim.metadata.labels.get(NODE_POOL, ""))
        ref = claim.spec.node_class_ref
        if claim.is_deleting or pool is None or not snapshot.manages(ref):
            continue
        key = (ref.group, ref.kind, ref.name)
        migrated, node_class = _migrated(
            claim, pool, snapshot.node_classes.get(key), hashes.get(key)
        )
        catalogue = snapshot.catalogues.get(pool.name)
        types = None if catalogue is None else {it.name: it for it in catalogue.instance_types}
        local = local_drift(
            migrated,
            with_hash(pool),
            types,
            now=now,
            state_node=snapshot.state_nodes_by_claim.get(claim.name),
            node_class=node_class,
            rules=rules,
        )
        predicted.append(PredictedDrift(claim=migrated, local=local))
    return tuple(predicted)


def missing_object(claim: NodeClaim, snapshot: Snapshot) -> str:
    """Return the NodePool or NodeClass without which a NodeClaim is not compared; empty if both are known."""
    pool, ref = claim.metadata.labels.get(NODE_POOL, ""), claim.spec.node_class_ref
    if pool not in snapshot.node_pools:
        return f'NodePool "{pool}"'
    if (ref.group, ref.kind, ref.name) not in snapshot.node_classes:
        return f'{ref.kind} "{ref.name}"'
    return ""


def uncompared_findings(snapshot: Snapshot) -> list[Finding]:
    """Return a finding for each missing NodePool or NodeClass, without which NodeClaims are not compared."""
    missing: dict[str, list[str]] = {}
    for name, claim in sorted(snapshot.node_claims.items()):
        if not claim.is_deleting and snapshot.manages(claim.spec.node_class_ref):
            missing.setdefault(missing_object(claim, snapshot), []).append(name)
    missing.pop("", None)
    return [
        _warning(
            f"{what} does not exist, or could not be read: whether NodeClaim {_quoted(names)} would be replaced is "
            "not known",
            "create the object again, or correct what the other findings say about its kind",
        )
        for what, names in sorted(missing.items())
    ]


def _quoted(names: Sequence[str]) -> str:
    return some_names([f'"{name}"' for name in names], _MOST_NAMES)


def _migrated(
    claim: NodeClaim, pool: NodePool, node_class: NodeClass | None, digest: NodeClassHash | None
) -> tuple[NodeClaim, NodeClass | None]:
    """Return the claim and its NodeClass with the hash annotations that the controllers would write."""
    if pool.metadata.annotations.get(NODE_POOL_HASH_VERSION) != HASH_VERSION:
        claim = with_current_hash(claim, pool)
    if node_class is None or digest is None:
        return claim, node_class
    annotations = hash_annotations(node_class, value=digest.value, version=digest.version)
    if not is_hash_current(node_class, annotations):
        claim = with_migrated_hash(claim, node_class, annotations)
    merged = {**node_class.metadata.annotations, **annotations}
    metadata = node_class.metadata.model_copy(update={"annotations": merged})
    return claim, node_class.model_copy(update={"metadata": metadata})


def drift_findings(
    predicted: Iterable[PredictedDrift], outcomes: Mapping[str, DriftOutcome]
) -> list[Finding]:
    """Return a finding for each NodeClaim that would count as drifted, or may.

    `outcomes` are the providers' answers, by the name of the claim.
    """
    findings: list[Finding] = []
    for each in predicted:
        what = f'NodeClaim "{each.claim.name}"'
        outcome = None if each.local.is_decided else outcomes.get(each.claim.name)
        if isinstance(outcome, Exception):
            findings.append(
                _warning(
                    f"{what}: whether its instance has drifted is not known: {outcome}",
                    "correct the cause in the message, and check again",
                )
            )
            continue
        reason = outcome.reason if isinstance(outcome, DriftFinding) else each.local.reason
        if not reason:
            continue
        remedy = _DRIFT_REMEDIES.get(reason, _DRIFT_REMEDY)
        before = find_condition(each.claim.status.conditions, DRIFTED)
        if before is not None and before.status == "True":
            findings.append(
                _warning(f"{what} is drifted already ({before.reason}), and stays so", remedy)
            )
        else:
            findings.append(_error(f"{what} would count as drifted: {reason}", remedy))
    return findings


def instance_findings(
    snapshot: Snapshot,
    provider: str,
    listing: InstanceListing,
    *,
    kinds: frozenset[tuple[str, str]],
    now: datetime,
) -> list[Finding]:
    """Return a finding for each instance and each NodeClaim that would be collected.

    `kinds` are the NodeClass kinds of the provider, by group and name.
    """
    if not listing.complete:
        return [
            _warning(
                f"not all instances of {provider} can be listed, so that none would be collected: "
                f"{listing.problem}",
                "correct the cause in the message, and check again",
            )
        ]
    long_missing = {it.provider_id: now - 2 * ORPHAN_GRACE for it in listing.instances}
    report = orphaned_instances(
        snapshot, listing.instances, complete=True, now=now, missing_since=long_missing
    )
    is_launching = any(
        _is_launching(claim)
        and (ref := claim.spec.node_class_ref)
        and (ref.group, ref.kind) in kinds
        for claim in snapshot.node_claims.values()
    )
    findings = [_orphan(provider_id, is_launching=is_launching) for provider_id in report.terminate]
    if report.held_back:
        findings.append(
            _error(
                f"{report.held_back} of {len(listing.instances)} instances of {provider} have no "
                "NodeClaim; so many are kept",
                "check --cluster-name and --kubeconfig: another cluster may have the same name",
            )
        )
    findings += [
        _error(
            f'NodeClaim "{item.claim.name}" would be deleted: instance '
            f"{item.claim.status.provider_id} is not listed, and its Node is not Ready",
            "check the tags of the instance, and that it exists",
        )
        for item in claims_without_instance(
            snapshot, listing.instances, complete=True, served_kinds=kinds, as_of=listing.as_of
        )
    ]
    return findings


def launch_findings(snapshot: Snapshot) -> list[Finding]:
    """Return a finding for each NodeClaim without an instance: its launch may be under way."""
    return [
        _warning(f'NodeClaim "{claim.name}" has no instance: its launch may be under way', _WAIT)
        for _, claim in sorted(snapshot.node_claims.items())
        if _is_launching(claim) and snapshot.manages(claim.spec.node_class_ref)
    ]


def _is_launching(claim: NodeClaim) -> bool:
    return not claim.status.provider_id and not claim.is_deleting


def _orphan(provider_id: str, *, is_launching: bool) -> Finding:
    """Return the finding about an instance that no NodeClaim names."""
    if is_launching:
        message = (
            f"instance {provider_id} has no NodeClaim: it may be of a launch that is under way, else it "
            "would be terminated"
        )
        return _warning(message, _WAIT)
    return _error(
        f"instance {provider_id} has no NodeClaim, and would be terminated",
        "remove its tags of this cluster to keep it, or terminate it yourself",
    )


def finalizer_findings(snapshot: Snapshot) -> list[Finding]:
    """Return a finding for each object with a finalizer that neither this controller nor Kubernetes ends."""
    findings: list[Finding] = []

    def compare(what: str, finalizers: Iterable[str], known: frozenset[str]) -> None:
        findings.extend(
            _warning(
                f'{what} has the finalizer "{finalizer}", which this controller does not remove',
                "find out who sets it: while it is there, the object is not deleted",
            )
            for finalizer in finalizers
            if finalizer not in known
        )

    ours = _KUBERNETES_FINALIZERS | {TERMINATION_FINALIZER}
    for name, claim in sorted(snapshot.node_claims.items()):
        if snapshot.manages(claim.spec.node_class_ref):
            compare(f'NodeClaim "{name}"', claim.metadata.finalizers, ours)
            for node in snapshot.nodes_of(claim):
                compare(f'Node "{node.name}"', node.finalizers, ours)
    for name, pool in sorted(snapshot.node_pools.items()):
        compare(f'NodePool "{name}"', pool.metadata.finalizers, ours)
    for _, node_class in sorted(snapshot.node_classes.items()):
        group = node_class.resource.group
        compare(_named(node_class), node_class.metadata.finalizers, ours | {f"{group}/termination"})
    return findings


def ignored_kind_findings(
    kind: str, names: Sequence[str], *, effect: str, remedy: str
) -> list[Finding]:
    """Return a finding if there are objects of a kind that the settings leave without an effect."""
    if not names:
        return []
    return [
        _warning(
            f"{kind} {_quoted(sorted(names))} would have no effect: {effect}",
            f"run with {remedy} if the other controller heeds them",
        )
    ]


def lease_findings(lease: LeaseHolder | None, *, now: datetime) -> list[Finding]:
    """Return a finding if another controller leads: this controller would wait until the Lease is free."""
    if lease is None or not lease.is_held(now):
        return []
    since = "" if lease.acquired is None else f" since {lease.acquired:%Y-%m-%dT%H:%M:%SZ}"
    return [
        _warning(
            f'"{lease.identity}" holds the Lease {lease.namespace}/{lease.name}{since}: '
            "this controller waits until it is free",
            "scale the other controller to zero when the findings above are resolved",
        )
    ]


def other_leader_findings(
    own: LeaseHolder, others: Iterable[LeaseHolder], *, now: datetime
) -> list[Finding]:
    """Return a finding for each Lease of another namespace that is held: both controllers would lead."""
    return [
        _error(
            f'"{other.identity}" holds the Lease {other.namespace}/{other.name}, and this controller would '
            f"hold {own.namespace}/{own.name}: both would launch and terminate nodes at the same time",
            f"install this controller into the namespace {other.namespace}, or set "
            f"--leader-election-namespace={other.namespace}",
        )
        for other in others
        if other.namespace != own.namespace and other.is_held(now)
    ]


def unseen_leader_finding(own: LeaseHolder, problem: str) -> Finding:
    """Return the finding that a leader in another namespace would not be seen."""
    return _warning(
        f"no controller holds the Lease {own.namespace}/{own.name}; whether one leads in another namespace "
        f"is not known: {problem}",
        "permit `list leases`, or make sure that no other controller runs when this one is started",
    )


def _named(item: KubernetesObject) -> str:
    return f'{item.resource.kind} "{item.metadata.name}"'


def _error(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.ERROR, message=message, remedy=remedy)


def _warning(message: str, remedy: str) -> Finding:
    return Finding(severity=Severity.WARNING, message=message, remedy=remedy)
