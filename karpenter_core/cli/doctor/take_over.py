"""Compares the cluster with its instances for `karpenter doctor --take-over`.

Only GET requests are sent, and the providers' fence refuses every change.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import ALIASES, WELL_KNOWN
from karpenter_core.cli.catalogues import open_providers
from karpenter_core.cli.cluster_listing import connected, read_manifests
from karpenter_core.cli.doctor.cluster_reading import read_cluster
from karpenter_core.cli.take_over import (
    LeaseHolder,
    drift_findings,
    finalizer_findings,
    ignored_kind_findings,
    instance_findings,
    launch_findings,
    lease_findings,
    missing_object,
    other_leader_findings,
    predict_local_drift,
    uncompared_findings,
    unseen_leader_finding,
)
from karpenter_core.errors import ApiError, CloudProviderError, KarpenterError, NotFoundError
from karpenter_core.kube.resources import LEASES, RESOURCE_CLAIMS
from karpenter_core.kube.wire.codecs import CAPACITY_QUOTAS, NODE_OVERLAYS
from karpenter_core.kube.wire.kind_groups import KindGroup
from karpenter_core.lifecycle.nodeclaim.drift import DriftRules
from karpenter_core.operator.clock import SystemClock
from karpenter_core.operator.kind_groups import kind_groups
from karpenter_core.operator.launcher import own_namespace
from karpenter_core.provider.contract import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from karpenter_core.api.json_objects import JsonObject
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.cli.cluster_input import ClusterInput
    from karpenter_core.cli.take_over import PredictedDrift
    from karpenter_core.kube.api import ClusterApis
    from karpenter_core.operator.settings import Settings
    from karpenter_core.provider.contract import DriftOutcome, NodeClassHash
    from karpenter_core.provider.host.facade import Providers
    from karpenter_core.provider.host.manager import Plugins
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["check_take_over"]

_AGAIN: Final = "correct the cause in the message, and check again"
_LEASE_SECONDS: Final = 15
_OPTIONAL_KINDS: Final = (
    (
        KindGroup.OVERLAYS,
        NODE_OVERLAYS,
        "prices and capacity of instance types would be those of the provider",
        "--feature-gates=NodeOverlay=true",
    ),
    (
        KindGroup.QUOTAS,
        CAPACITY_QUOTAS,
        "no launch would be limited by it",
        "--capacity-quotas",
    ),
    (
        KindGroup.DEVICES,
        RESOURCE_CLAIMS,
        "no node would be launched for the devices that pods ask for",
        "--ignore-dra-requests=false",
    ),
)
"""Kinds that a setting lets the controller read: what happens without it, and the setting."""


async def check_take_over(
    plugins: Plugins, settings: Settings, environment: Mapping[str, str]
) -> list[Finding]:
    """Return what this controller would change in the cluster of these settings."""
    opening = open_providers(plugins, settings=settings, instance_types_file=None)
    try:
        async with opening as providers:
            groups = frozenset(group for group, _ in providers.node_class_models())
            async with connected(settings, SystemClock(), node_class_groups=groups) as apis:
                cluster = await read_cluster(providers, settings, apis)
                findings = _reading_findings(cluster)
                findings += uncompared_findings(cluster.snapshot)
                findings += await _drift(providers, cluster)
                findings += await _instances(providers, cluster)
                findings += launch_findings(cluster.snapshot)
                findings += finalizer_findings(cluster.snapshot)
                findings += await _ignored_kinds(settings, apis)
            findings += await _leader(settings, own_namespace(environment))
    except KarpenterError as error:
        return [Finding(severity=Severity.ERROR, message=str(error), remedy=_AGAIN)]
    snapshot = cluster.snapshot
    compared = sum(
        snapshot.manages(claim.spec.node_class_ref) and not missing_object(claim, snapshot)
        for claim in snapshot.node_claims.values()
    )
    if any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    claims = "1 NodeClaim is" if compared == 1 else f"{compared} NodeClaims are"
    kept = f"{claims} taken over: none would be replaced or collected"
    return [*findings, Finding(severity=Severity.OK, message=kept)]


def _reading_findings(cluster: ClusterInput) -> list[Finding]:
    """Return what could not be read, and so not be compared; without a kind there is nothing to compare."""
    severities = {"left out: ": Severity.WARNING, "the cluster does not know": Severity.ERROR}
    return [
        Finding(severity=severity, message=note, remedy=_AGAIN)
        for note in cluster.notes
        for beginning, severity in severities.items()
        if note.startswith(beginning)
    ]


async def _drift(providers: Providers, cluster: ClusterInput) -> list[Finding]:
    snapshot = cluster.snapshot
    hashes: dict[tuple[str, str, str], NodeClassHash | None] = {}
    findings: list[Finding] = []
    for key, node_class in snapshot.node_classes.items():
        try:
            hashes[key] = await providers.hash_node_class(node_class)
        except CloudProviderError as error:
            message = f'{key[1]} "{key[2]}" cannot be hashed: {error}'
            findings.append(Finding(severity=Severity.WARNING, message=message, remedy=_AGAIN))
    labels = providers.label_classes()
    rules = DriftRules(
        well_known=WELL_KNOWN | labels.well_known, aliases={**ALIASES, **labels.aliases}
    )
    predicted = predict_local_drift(snapshot, hashes, now=cluster.now, rules=rules)
    outcomes = await _provider_drift(providers, snapshot, predicted)
    return findings + drift_findings(predicted, outcomes)


async def _provider_drift(
    providers: Providers, snapshot: Snapshot, predicted: tuple[PredictedDrift, ...]
) -> dict[str, DriftOutcome]:
    """Ask the providers about the claims that nothing in the cluster decides."""
    undecided: dict[tuple[str, str, str], list[NodeClaim]] = {}
    for each in predicted:
        if not each.local.is_decided:
            ref = each.claim.spec.node_class_ref
            undecided.setdefault((ref.group, ref.kind, ref.name), []).append(each.claim)
    outcomes: dict[str, DriftOutcome] = {}
    for key, claims in undecided.items():
        node_class = snapshot.node_classes.get(key)
        if node_class is not None:
            detected = await providers.detect_drift(claims, node_class)
            outcomes |= {claim.name: it for claim, it in zip(claims, detected, strict=True)}
    return outcomes


async def _instances(providers: Providers, cluster: ClusterInput) -> list[Finding]:
    findings: list[Finding] = []
    for name, info in providers.infos().items():
        kinds = frozenset(
            (model.resource.group, model.resource.kind) for model in info.node_classes
        )
        try:
            listing = await providers.list_instances(name)
        except CloudProviderError as error:
            message = f"instances of {name} cannot be listed: {error}"
            findings.append(Finding(severity=Severity.ERROR, message=message, remedy=_AGAIN))
            continue
        findings += instance_findings(cluster.snapshot, name, listing, kinds=kinds, now=cluster.now)
    return findings


async def _ignored_kinds(settings: Settings, apis: ClusterApis) -> list[Finding]:
    """Return a finding for each kind whose objects these settings leave without an effect."""
    read = kind_groups(settings)
    findings: list[Finding] = []
    for group, kind, effect, remedy in _OPTIONAL_KINDS:
        if group in read:
            continue
        try:
            items = await read_manifests(apis, kind)
        except NotFoundError:
            continue
        except ApiError as error:
            message = f"{kind.plural} cannot be listed, to see whether there are any: {error}"
            findings.append(Finding(severity=Severity.WARNING, message=message, remedy=_AGAIN))
            continue
        names = [str(item["metadata"]["name"]) for item in items]
        findings += ignored_kind_findings(kind.kind, names, effect=effect, remedy=remedy)
    return findings


async def _leader(settings: Settings, namespace: str) -> list[Finding]:
    """Return who holds the Lease that this controller would wait for."""
    if settings.disable_leader_election:
        return []
    within, name = settings.leader_election_namespace or namespace, settings.leader_election_name
    if settings.leader_election_kubeconfig:
        settings = replace(
            settings,
            kubeconfig=settings.leader_election_kubeconfig,
            context="",
            workload_kubeconfig="",
        )
    clock = SystemClock()
    async with connected(settings, clock, node_class_groups=frozenset()) as apis:
        try:
            answer = json.loads(await apis.objects.get(LEASES, name, namespace=within))
        except NotFoundError:
            holder = LeaseHolder(namespace=within, name=name)
        except ApiError as error:
            message = f"the Lease {within}/{name} cannot be read: {error}"
            return [Finding(severity=Severity.WARNING, message=message, remedy=_AGAIN)]
        else:
            holder = _holder(answer, within, name)
        if holder.is_held(clock.now()):
            return lease_findings(holder, now=clock.now())
        try:
            leases = await read_manifests(apis, LEASES)
        except ApiError as error:
            return [unseen_leader_finding(holder, str(error))]
    others = (
        _holder(lease, lease["metadata"]["namespace"], name)
        for lease in leases
        if lease["metadata"]["name"] == name
    )
    return other_leader_findings(holder, others, now=clock.now())


def _holder(lease: JsonObject, namespace: str, name: str) -> LeaseHolder:
    spec: JsonObject = lease.get("spec") or {}
    return LeaseHolder(
        namespace=namespace,
        name=name,
        identity=spec.get("holderIdentity") or "",
        acquired=_instant(spec.get("acquireTime")),
        renewed=_instant(spec.get("renewTime")),
        duration=timedelta(seconds=spec.get("leaseDurationSeconds") or _LEASE_SECONDS),
    )


def _instant(text: str | None) -> datetime | None:
    return None if not text else datetime.fromisoformat(text).astimezone(UTC)
