"""Builders of objects for tests, in one line each, with sensible defaults.

Public: providers' tests use them too. Amounts are written as in manifests (`cpu="500m"`,
`memory="1Gi"`), taints as in `kubectl taint` (`dedicated=gpu:NoSchedule`), requirements as
`("zone", "In", "a", "b")`. Everything is deterministic: UIDs follow from names, instants from
`EPOCH`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from karpenter_core.api.base import ObjectMeta
from karpenter_core.api.labels import (
    ARCH,
    CAPACITY_TYPE,
    HOSTNAME,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    PODS,
    REGION,
    SPOT,
    WINDOWS_BUILD,
    ZONE,
)
from karpenter_core.api.nodeclaim import NodeClassRef, RequirementSpec, TaintSpec
from karpenter_core.api.nodeoverlay import NodeOverlay, NodeOverlaySpec, OverlayRequirement
from karpenter_core.api.nodepool import (
    Disruption,
    NodeClaimTemplate,
    NodePool,
    NodePoolSpec,
    TemplateMetadata,
    TemplateSpec,
)
from karpenter_core.api.prices import DEFAULT_CURRENCY, Price
from karpenter_core.api.quantities import Quantity, parse_resources
from karpenter_core.api.records import (
    HostPort,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodShape,
    PodView,
    PreferredNodeTerm,
    Taint,
    Toleration,
)
from karpenter_core.scheduling.instance_types import InstanceType, Offering, Overhead
from karpenter_core.scheduling.problem import Catalogue, DaemonPod, ExistingNode, SchedulingProblem
from karpenter_core.scheduling.requirements import Requirement, Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = [
    "EPOCH",
    "catalogue",
    "daemon",
    "existing_node",
    "instance_type",
    "node_overlay",
    "node_pool",
    "node_term",
    "offering",
    "pod",
    "pod_shape",
    "pods",
    "preferred_node_term",
    "problem",
    "requirement_spec",
    "standard_catalogue",
    "taint",
    "toleration",
]

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""Time at which everything in tests was created, unless said otherwise."""

ZONES: Final = ("zone-a", "zone-b", "zone-c")
"""Zones of the standard catalogue."""

Expression = tuple[str, ...]
"""A match expression as `(key, operator, *values)`."""


def taint(text: str) -> Taint:
    """Read a taint as `kubectl taint` writes it: `key[=value]:Effect`."""
    head, _, effect = text.rpartition(":")
    key, _, value = head.partition("=")
    return Taint(key=key, value=value, effect=effect)


def toleration(text: str = "") -> Toleration:
    """Read a toleration: `key=value:Effect`, `key:Effect` and `key` (exists), or all."""
    head, colon, effect = text.rpartition(":")
    key = head if colon else text
    key, equals, value = key.partition("=")
    return Toleration(
        key=key,
        operator="Equal" if equals else "Exists",
        value=value,
        effect=effect if colon else "",
    )


def node_term(*expressions: Expression) -> NodeSelectorTerm:
    """Make a node selector term from `(key, operator, *values)`."""
    return NodeSelectorTerm(
        match_expressions=tuple(
            NodeSelectorRequirement(key=key, operator=operator, values=tuple(values))
            for key, operator, *values in expressions
        )
    )


def preferred_node_term(weight: int, *expressions: Expression) -> PreferredNodeTerm:
    """Make a preferred node affinity term."""
    return PreferredNodeTerm(weight=weight, term=node_term(*expressions))


def requirement_spec(
    key: str, operator: str, *values: str, min_values: int | None = None
) -> RequirementSpec:
    """Make a requirement as NodePools have it."""
    return RequirementSpec(key=key, operator=operator, values=values, min_values=min_values)


def pod_shape(
    *,
    cpu: str = "100m",
    memory: str = "100Mi",
    requests: Mapping[str, str] | None = None,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    required: Sequence[NodeSelectorTerm] = (),
    preferred: Sequence[PreferredNodeTerm] = (),
    tolerations: Sequence[Toleration | str] = (),
    host_ports: Sequence[HostPort | int] = (),
    priority: int = 0,
    owner_kind: str = "ReplicaSet",
) -> PodShape:
    """Make what the pods of one template share; `requests` adds to cpu and memory."""
    amounts = {"cpu": cpu, "memory": memory, **(requests or {})}
    return PodShape(
        namespace=namespace,
        labels=dict(labels or {}),
        requests={**parse_resources({k: v for k, v in amounts.items() if v}), PODS: 1},
        node_selector=dict(node_selector or {}),
        required_node_terms=tuple(required),
        preferred_node_terms=tuple(preferred),
        tolerations=tuple(toleration(t) if isinstance(t, str) else t for t in tolerations),
        host_ports=tuple(HostPort(port=p) if isinstance(p, int) else p for p in host_ports),
        priority=priority,
        owner_kind=owner_kind,
        owner_api_version="v1" if owner_kind == "Node" else "apps/v1",
    )


def pod(
    name: str = "pod",
    *,
    shape: PodShape | None = None,
    cpu: str = "100m",
    memory: str = "100Mi",
    requests: Mapping[str, str] | None = None,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    required: Sequence[NodeSelectorTerm] = (),
    preferred: Sequence[PreferredNodeTerm] = (),
    tolerations: Sequence[Toleration | str] = (),
    host_ports: Sequence[HostPort | int] = (),
    priority: int = 0,
    owner_kind: str = "ReplicaSet",
    uid: str = "",
    created: datetime | None = EPOCH,
    node_name: str = "",
    phase: str = "",
    unschedulable: bool | None = None,
) -> PodView:
    """Make one pod; without `node_name` it waits and the scheduler has given up on it.

    One with a node is running, unless it has another `phase`.
    """
    if shape is None:
        shape = pod_shape(
            cpu=cpu,
            memory=memory,
            requests=requests,
            namespace=namespace,
            labels=labels,
            node_selector=node_selector,
            required=required,
            preferred=preferred,
            tolerations=tolerations,
            host_ports=host_ports,
            priority=priority,
            owner_kind=owner_kind,
        )
    return PodView(
        uid=uid or f"uid-{shape.namespace}-{name}",
        name=name,
        shape=shape,
        created=created,
        node_name=node_name,
        phase=phase or ("Running" if node_name else "Pending"),
        unschedulable=not node_name if unschedulable is None else unschedulable,
        owner_name=name.rpartition("-")[0] or name,
        owner_uid=f"uid-owner-{name.rpartition('-')[0] or name}",
    )


def pods(
    count: int,
    name: str = "pod",
    *,
    shape: PodShape | None = None,
    cpu: str = "100m",
    memory: str = "100Mi",
    requests: Mapping[str, str] | None = None,
    node_selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration | str] = (),
    labels: Mapping[str, str] | None = None,
) -> tuple[PodView, ...]:
    """Make the pods of one Deployment: `name-0`, `name-1` …, one shared shape."""
    shape = shape or pod_shape(
        cpu=cpu,
        memory=memory,
        requests=requests,
        node_selector=node_selector,
        tolerations=tolerations,
        labels=labels,
    )
    return tuple(pod(f"{name}-{number}", shape=shape) for number in range(count))


def daemon(
    name: str = "daemon",
    *,
    cpu: str = "100m",
    memory: str = "100Mi",
    shape: PodShape | None = None,
) -> DaemonPod:
    """Make what one DaemonSet puts on a node."""
    return DaemonPod(
        name=name, shape=shape or pod_shape(cpu=cpu, memory=memory, owner_kind="DaemonSet")
    )


def node_pool(
    name: str = "default",
    *,
    weight: int | None = None,
    requirements: Sequence[RequirementSpec | Expression] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    startup_taints: Sequence[str] = (),
    limits: Mapping[str, str] | None = None,
    disruption: Disruption | None = None,
    node_class_ref: NodeClassRef | None = None,
    replicas: int | None = None,
) -> NodePool:
    """Make a NodePool of the kwok provider's kind."""
    return NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", generation=1, creation_timestamp=EPOCH),
        spec=NodePoolSpec(
            template=NodeClaimTemplate(
                metadata=TemplateMetadata(
                    labels=dict(labels or {}), annotations=dict(annotations or {})
                ),
                spec=TemplateSpec(
                    taints=tuple(_taint_spec(text) for text in taints),
                    startup_taints=tuple(_taint_spec(text) for text in startup_taints),
                    requirements=tuple(
                        requirement_spec(*r) if isinstance(r, tuple) else r for r in requirements
                    ),
                    node_class_ref=node_class_ref
                    or NodeClassRef(
                        group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default"
                    ),
                ),
            ),
            disruption=disruption or Disruption(),
            limits={key: Quantity(value) for key, value in (limits or {}).items()},
            weight=weight,
            replicas=replicas,
        ),
    )


def node_overlay(
    name: str,
    *requirements: Expression,
    price: str | None = None,
    adjustment: str | None = None,
    capacity: Mapping[str, str] | None = None,
    weight: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> NodeOverlay:
    """Make a NodeOverlay; `adjustment` is its `priceAdjustment`."""
    return NodeOverlay(
        metadata=ObjectMeta(
            name=name, uid=f"overlay/{name}", generation=1, annotations=dict(annotations or {})
        ),
        spec=NodeOverlaySpec(
            requirements=tuple(
                OverlayRequirement(key=key, operator=operator, values=tuple(values))
                for key, operator, *values in requirements
            ),
            price=price,
            price_adjustment=adjustment,
            capacity={key: Quantity(amount) for key, amount in (capacity or {}).items()},
            weight=weight,
        ),
    )


def _taint_spec(text: str) -> TaintSpec:
    read = taint(text)
    return TaintSpec(key=read.key, value=read.value, effect=read.effect)


def offering(
    zone: str = "zone-a",
    capacity_type: str = ON_DEMAND,
    price: float = 1.0,
    *,
    currency: str = DEFAULT_CURRENCY,
    available: bool = True,
) -> Offering:
    """Make one way to buy an instance type."""
    return Offering(
        requirements=Requirements.from_labels({ZONE: zone, CAPACITY_TYPE: capacity_type}),
        price=Price(price, currency),
        available=available,
    )


def instance_type(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    resources: Mapping[str, str] | None = None,
    arch: str = "amd64",
    operating_systems: Sequence[str] = ("linux",),
    offerings: Sequence[Offering] | None = None,
    price: float | None = None,
    zones: Sequence[str] = ZONES,
    capacity_types: Sequence[str] = (SPOT, ON_DEMAND),
    spot_discount: float = 0.6,
    currency: str = DEFAULT_CURRENCY,
    labels: Mapping[str, str] | None = None,
    overhead: Mapping[str, str] | None = None,
) -> InstanceType:
    """Make an instance type, sold in every zone; on demand for `price`, spot for less.

    Without a price it costs 0.03 per core and 0.004 per GiB; without `overhead` it keeps 100m of
    CPU and 10Mi of memory.
    """
    capacity = parse_resources({"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})})
    if price is None:
        price = round(0.03 * capacity["cpu"] / 1000 + 0.004 * capacity["memory"] / 2**30, 6)
    if offerings is None:
        offerings = tuple(
            offering(
                zone,
                capacity_type,
                round(price * (1 - spot_discount), 6) if capacity_type == SPOT else price,
                currency=currency,
            )
            for zone in zones
            for capacity_type in capacity_types
        )
    requirements = Requirements(
        (
            Requirement.of(INSTANCE_TYPE, "In", (name,)),
            Requirement.of(ARCH, "In", (arch,)),
            Requirement.of(OS, "In", operating_systems),
            Requirement.of(ZONE, "In", sorted({o.zone for o in offerings})),
            Requirement.of(CAPACITY_TYPE, "In", sorted({o.capacity_type for o in offerings})),
            Requirement.of(REGION, "DoesNotExist"),
            Requirement.of(WINDOWS_BUILD, "DoesNotExist"),
            *Requirements.from_labels(labels or {}).values(),
        )
    )
    return InstanceType(
        name=name,
        requirements=requirements,
        offerings=tuple(offerings),
        capacity=capacity,
        overhead=Overhead(
            kube_reserved=parse_resources(
                {"cpu": "100m", "memory": "10Mi"} if overhead is None else overhead
            )
        ),
    )


def catalogue(*instance_types: InstanceType, version: str = "1") -> Catalogue:
    """Make a catalogue of these types."""
    return Catalogue(version=version, instance_types=instance_types)


def standard_catalogue(version: str = "1") -> Catalogue:
    """Make a catalogue of 36 types: three families, six sizes, two architectures, uneven prices."""
    families = (("c", 2, 0.034), ("m", 4, 0.040), ("r", 8, 0.053))
    unevenness = {1: 1.10, 2: 1.0, 4: 0.97, 8: 1.0, 16: 1.02, 32: 1.05}
    return catalogue(
        *(
            instance_type(
                f"{family}{'g' if arch == 'arm64' else ''}-{cores}x",
                cpu=str(cores),
                memory=f"{cores * ratio}Gi",
                arch=arch,
                price=round(cores * per_core * factor * (0.8 if arch == "arm64" else 1.0), 6),
                labels={"example.com/family": family},
            )
            for family, ratio, per_core in families
            for arch in ("amd64", "arm64")
            for cores, factor in unevenness.items()
        ),
        version=version,
    )


def existing_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    available: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    initialized: bool = True,
    pool: str = "",
    bound: Iterable[PodView] = (),
    host_ports: Sequence[HostPort] = (),
    requirements: Requirements | None = None,
) -> ExistingNode:
    """Make capacity that is there; everything not in `available` is free."""
    capacity = parse_resources({"cpu": cpu, "memory": memory, "pods": pods})
    return ExistingNode(
        name=name,
        labels={HOSTNAME: name, ZONE: "zone-a", ARCH: "amd64", OS: "linux", **(labels or {})},
        taints=tuple(taint(text) for text in taints),
        available={**capacity, **parse_resources(available or {})},
        capacity=capacity,
        initialized=initialized,
        pool=pool,
        requirements=requirements,
        pods=tuple(bound),
        host_ports=tuple(host_ports),
        node_name=name,
    )


def problem(
    pods: Iterable[PodView],
    *,
    pools: Sequence[NodePool] | None = None,
    catalogue: Catalogue | None = None,
    catalogues: Mapping[str, Catalogue] | None = None,
    nodes: Sequence[ExistingNode] = (),
    daemons: Sequence[DaemonPod] = (),
    pool_usage: Mapping[str, Mapping[str, int]] | None = None,
    well_known: Iterable[str] = (),
) -> SchedulingProblem:
    """Make a scheduling problem: by default one pool, `default`, with the standard catalogue."""
    pools = (node_pool(),) if pools is None else tuple(pools)
    shared = catalogue or standard_catalogue()
    return SchedulingProblem(
        pods=tuple(pods),
        pools=pools,
        catalogues={p.name: shared for p in pools} if catalogues is None else catalogues,
        nodes=tuple(nodes),
        daemons=tuple(daemons),
        pool_usage=dict(pool_usage or {}),
        well_known=frozenset(well_known),
    )
