"""Builders of nodes, claims and whole states, in one line each.

The counterpart of `testing.builders` for existing objects. A state node is a Node and its
NodeClaim, joined by the provider ID `kwok://<name>`; by default it is initialised, has 4 cores and
16 GiB, and has been so since `EPOCH`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.base import ObjectMeta, OwnerReference
from karpenter_core.api.conditions import Condition
from karpenter_core.api.durations import Duration, NillableDuration
from karpenter_core.api.labels import (
    API_VERSION,
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    NODE_POOL,
    ON_DEMAND,
    OS,
    TERMINATION_FINALIZER,
    ZONE,
    node_class_label,
)
from karpenter_core.api.labels import (
    INITIALIZED as INITIALIZED_LABEL,
)
from karpenter_core.api.labels import (
    REGISTERED as REGISTERED_LABEL,
)
from karpenter_core.api.nodeclaim import (
    CONSOLIDATABLE,
    INITIALIZED,
    LAUNCHED,
    NODE_CLAIM_CONDITIONS,
    REGISTERED,
    NodeClaim,
    NodeClaimSpec,
    NodeClaimStatus,
    NodeClassRef,
    RequirementSpec,
    ResourceRequirements,
    TaintSpec,
)
from karpenter_core.api.nodepool import NODE_POOL_CONDITIONS
from karpenter_core.api.quantities import Quantity, parse_resources
from karpenter_core.api.records import LabelSelector, NodeConditionView, NodeView
from karpenter_core.api.workload_records import PodDisruptionBudgetView
from karpenter_core.state.builder import StateBuilder
from karpenter_core.state.events import (
    CataloguePublished,
    InformersSynced,
    ObjectObserved,
    TimePassed,
)
from karpenter_core.testing.builders import EPOCH, standard_catalogue, taint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from karpenter_core.api.nodepool import NodePool
    from karpenter_core.scheduling.problem import Catalogue
    from karpenter_core.state.events import StateObject

__all__ = [
    "KWOK",
    "MANAGED_KINDS",
    "disruption_budget",
    "node",
    "node_and_claim",
    "node_claim",
    "ready_node_pool",
    "synced_state",
    "with_claim_conditions",
]

KWOK: Final = NodeClassRef(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")
"""The NodeClass of every pool and claim, unless said otherwise."""

MANAGED_KINDS: Final = {(KWOK.group, KWOK.kind): "kwok"}
"""The kinds that a state manages, unless said otherwise."""

_STAGES: Final = (LAUNCHED, REGISTERED, INITIALIZED)


def ready_node_pool(pool: NodePool, *, now: datetime = EPOCH) -> NodePool:
    """Return the pool with every condition True that Ready depends on."""
    conditions = pool.status.conditions
    for condition_type in NODE_POOL_CONDITIONS.dependents:
        conditions = NODE_POOL_CONDITIONS.set_true(
            conditions, type=condition_type, now=now, generation=pool.metadata.generation
        )
    status = pool.status.model_copy(update={"conditions": conditions})
    return pool.model_copy(update={"status": status})


def node_claim(
    name: str = "claim",
    *,
    pool: str = "default",
    stage: str = "",
    consolidatable: bool = False,
    provider_id: str | None = None,
    instance_type: str = "m-4x",
    zone: str = "zone-a",
    capacity_type: str = ON_DEMAND,
    requirements: Sequence[RequirementSpec] = (),
    requests: Mapping[str, str] | None = None,
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    startup_taints: Sequence[str] = (),
    termination_grace_period: str | None = None,
    expire_after: str = "720h",
    finalizers: tuple[str, ...] = (TERMINATION_FINALIZER,),
    created: datetime = EPOCH,
    deleted: datetime | None = None,
    uid: str = "",
    resource_version: int = 0,
    node_class_ref: NodeClassRef = KWOK,
    last_pod_event: datetime | None = None,
) -> NodeClaim:
    """Make a claim that has come as far as `stage`: Launched, Registered or Initialized.

    From Launched on it has a provider ID, amounts and the labels that a launch resolves.
    """
    launched = stage in _STAGES
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", **(capacity or {})}
    resolved = {INSTANCE_TYPE: instance_type, ZONE: zone, CAPACITY_TYPE: capacity_type}
    if provider_id is None:
        provider_id = f"kwok://{name}" if launched else ""
    claim = NodeClaim(
        api_version=API_VERSION,
        kind="NodeClaim",
        metadata=ObjectMeta(
            name=name,
            uid=uid or f"uid-claim-{name}",
            resource_version=str(resource_version) if resource_version else "",
            generation=1,
            creation_timestamp=created,
            deletion_timestamp=deleted,
            labels={
                NODE_POOL: pool,
                node_class_label(node_class_ref.group, node_class_ref.kind): node_class_ref.name,
                **({ARCH: "amd64", OS: "linux", **resolved} if launched else {}),
                **(labels or {}),
            },
            annotations=dict(annotations or {}),
            finalizers=finalizers,
            owner_references=(
                OwnerReference(
                    api_version=API_VERSION,
                    kind="NodePool",
                    name=pool,
                    uid=f"uid-{pool}",
                    block_owner_deletion=True,
                ),
            ),
        ),
        spec=NodeClaimSpec(
            taints=tuple(_taint_spec(text) for text in taints),
            startup_taints=tuple(_taint_spec(text) for text in startup_taints),
            requirements=tuple(requirements),
            resources=ResourceRequirements(requests=_quantities(requests or {})),
            node_class_ref=node_class_ref,
            termination_grace_period=Duration(termination_grace_period)
            if termination_grace_period
            else None,
            expire_after=NillableDuration(expire_after),
        ),
        status=NodeClaimStatus(
            provider_id=provider_id,
            capacity=_quantities(amounts) if launched else {},
            allocatable=_quantities({**amounts, **(allocatable or {})}) if launched else {},
            last_pod_event_time=last_pod_event,
        ),
    )
    claim = _staged(claim, stage, created)
    return with_claim_conditions(claim, CONSOLIDATABLE, now=created) if consolidatable else claim


def with_claim_conditions(claim: NodeClaim, *condition_types: str, now: datetime) -> NodeClaim:
    """Return the claim with these conditions True."""
    conditions = claim.status.conditions
    for condition_type in condition_types:
        conditions = NODE_CLAIM_CONDITIONS.set_true(
            conditions, type=condition_type, now=now, generation=claim.metadata.generation
        )
    return _with_conditions(claim, conditions)


def node(
    name: str = "node",
    *,
    claim: NodeClaim | None = None,
    provider_id: str | None = None,
    stage: str = INITIALIZED,
    ready: str = "True",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    capacity: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    finalizers: tuple[str, ...] | None = None,
    created: datetime = EPOCH,
    deleted: datetime | None = None,
    uid: str = "",
    resource_version: int = 0,
) -> NodeView:
    """Make a Node; with a claim it has that claim's id and labels, and has come to `stage`."""
    amounts = {"cpu": "4", "memory": "16Gi", "pods": "110", **(capacity or {})}
    marks = {
        REGISTERED_LABEL: "true" if stage in {REGISTERED, INITIALIZED} else "",
        INITIALIZED_LABEL: "true" if stage == INITIALIZED else "",
    }
    ours = (
        {} if claim is None else {**claim.metadata.labels, **{k: v for k, v in marks.items() if v}}
    )
    if provider_id is None:
        provider_id = "" if claim is None else claim.status.provider_id
    if finalizers is None:
        finalizers = () if claim is None else (TERMINATION_FINALIZER,)
    return NodeView(
        uid=uid or f"uid-node-{name}",
        name=name,
        resource_version=resource_version,
        labels={HOSTNAME: name, ARCH: "amd64", OS: "linux", **ours, **(labels or {})},
        annotations=dict(annotations or {}),
        finalizers=finalizers,
        created=created,
        deletion_timestamp=deleted,
        provider_id=provider_id,
        taints=tuple(taint(text) for text in taints),
        capacity=parse_resources(amounts),
        allocatable=parse_resources({**amounts, **(allocatable or {})}),
        conditions=(NodeConditionView(type="Ready", status=ready, last_transition_time=created),),
    )


def node_and_claim(
    name: str = "node",
    *,
    pool: str = "default",
    stage: str = INITIALIZED,
    consolidatable: bool = True,
    ready: str = "True",
    capacity: Mapping[str, str] | None = None,
    instance_type: str = "m-4x",
    capacity_type: str = ON_DEMAND,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    termination_grace_period: str | None = None,
    created: datetime = EPOCH,
) -> tuple[NodeView, NodeClaim]:
    """Make a Node and its claim, both of this name."""
    claim = node_claim(
        name,
        pool=pool,
        stage=stage,
        consolidatable=consolidatable and stage == INITIALIZED,
        capacity=capacity,
        instance_type=instance_type,
        capacity_type=capacity_type,
        annotations=annotations,
        termination_grace_period=termination_grace_period,
        created=created,
    )
    its_node = node(
        name,
        claim=claim,
        stage=stage,
        ready=ready,
        capacity=capacity,
        annotations=annotations,
        taints=taints,
        created=created,
    )
    return its_node, claim


def disruption_budget(
    name: str = "budget",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    min_available: str | None = None,
    max_unavailable: str | None = None,
    allowed: int = 0,
    healthy: int = 0,
    desired: int = 0,
    unhealthy_policy: str = "",
) -> PodDisruptionBudgetView:
    """Make a PodDisruptionBudget over pods with these labels; without any, over all."""
    return PodDisruptionBudgetView(
        uid=f"uid-pdb-{namespace}-{name}",
        namespace=namespace,
        name=name,
        selector=LabelSelector(match_labels=dict(labels or {})),
        min_available=min_available,
        max_unavailable=max_unavailable,
        unhealthy_pod_eviction_policy=unhealthy_policy,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
    )


def synced_state(
    *objects: StateObject,
    catalogues: Mapping[str, Catalogue] | None = None,
    now: datetime = EPOCH,
    managed_kinds: Mapping[tuple[str, str], str] | None = None,
) -> StateBuilder:
    """Make a synced state of these objects; pool `default` has the standard catalogue."""
    builder = StateBuilder(MANAGED_KINDS if managed_kinds is None else managed_kinds)
    builder.apply_event(TimePassed(now))
    for obj in objects:
        builder.apply_event(ObjectObserved(obj))
    for pool, catalogue in (
        {"default": standard_catalogue()} if catalogues is None else catalogues
    ).items():
        builder.apply_event(CataloguePublished(pool, catalogue))
    builder.apply_event(InformersSynced())
    return builder


def _staged(claim: NodeClaim, stage: str, now: datetime) -> NodeClaim:
    claim = _with_conditions(
        claim,
        NODE_CLAIM_CONDITIONS.initialise(
            claim.status.conditions, since=now, generation=claim.metadata.generation
        ),
    )
    if stage not in _STAGES:
        return claim
    return with_claim_conditions(claim, *_STAGES[: _STAGES.index(stage) + 1], now=now)


def _with_conditions(claim: NodeClaim, conditions: tuple[Condition, ...]) -> NodeClaim:
    status = claim.status.model_copy(update={"conditions": conditions})
    return claim.model_copy(update={"status": status})


def _taint_spec(text: str) -> TaintSpec:
    read = taint(text)
    return TaintSpec(key=read.key, value=read.value, effect=read.effect)


def _quantities(amounts: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity(text) for name, text in amounts.items()}
