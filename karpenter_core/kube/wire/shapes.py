"""Interns pod shapes: the fields that the pods of one template share.

A shape is looked up by the bytes of everything that makes it up, and lives as long as some pod
(or anything else) holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import msgspec

from karpenter_core.api.labels import (
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    EXPENDABLE,
    POD_DELETION_COST,
    SAFE_TO_EVICT,
    SURGE_MOVE,
    VPA_OBSERVED,
)
from karpenter_core.api.provisioning_request import CONSUMING_ANNOTATIONS
from karpenter_core.api.records import (
    AffinityTerm,
    HostPort,
    PodShape,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    VolumeView,
    WeightedAffinityTerm,
)
from karpenter_core.kube.wire.raw import (
    RawAffinity,
    RawAffinityTerm,
    RawContainerStatus,
    RawHeldResources,
    RawNodeAffinity,
    RawNodeSelector,
    RawOwner,
    RawPodSpec,
    RawVolume,
)
from karpenter_core.kube.wire.requests import pod_limits, pod_requests, request_parts
from karpenter_core.kube.wire.selectors import label_selector, node_terms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from karpenter_core.api.records import NodeSelectorTerm

__all__ = [
    "READ_ANNOTATIONS",
    "PodShapeParts",
    "PodShapes",
    "controlling_owner",
    "read_annotations",
]

READ_ANNOTATIONS: Final = frozenset(
    {
        DO_NOT_DISRUPT,
        DO_NOT_EVICT,
        EXPENDABLE,
        POD_DELETION_COST,
        SAFE_TO_EVICT,
        SURGE_MOVE,
        VPA_OBSERVED,
        *CONSUMING_ANNOTATIONS,
    }
)
"""The pod annotations that some rule reads; all others are left out of the shape."""

_OF_THEIR_NODE: Final = frozenset({("apps/v1", "DaemonSet"), ("v1", "Node")})
"""Owners of pods that belong to one node and never move."""

_NO_ANNOTATIONS: Final[dict[str, str]] = {}


class PodShapeParts(msgspec.Struct, array_like=True, omit_defaults=True):
    """Everything that makes up a shape; its encoding is the shape's identity."""

    namespace: str
    labels: dict[str, str] | None
    annotations: dict[str, str]
    owner_api_version: str
    owner_kind: str
    spec: RawPodSpec
    resized: dict[str, RawContainerStatus] | None = None
    resize_infeasible: bool = False
    owner_controls: bool = True
    resized_pod: RawHeldResources | None = None
    is_pinned: bool = False


class PodShapes:
    """The interned shapes of one process."""

    __slots__ = ("_encoder", "_keeps_parts", "_shapes")

    def __init__(self, *, keeps_parts: bool) -> None:
        """With `keeps_parts`, shapes keep the requests of their containers."""
        self._keeps_parts: Final = keeps_parts
        self._shapes: Final[WeakValueDictionary[bytes, PodShape]] = WeakValueDictionary()
        self._encoder: Final = msgspec.msgpack.Encoder(order="deterministic")

    def __len__(self) -> int:
        """Count the shapes that are in use."""
        return len(self._shapes)

    def intern(self, parts: PodShapeParts, *, is_template: bool = False) -> PodShape:
        """Return the one shape made of these parts. The spec's node name must be cleared.

        The template of a DaemonSet keeps the field selectors that a user has written into it.
        """
        spec = parts.spec
        spec.volumes = [volume for volume in spec.volumes or () if _is_claim(volume)] or None
        if parts.owner_kind == "DaemonSet" and not is_template:
            is_of_kubernetes = parts.owner_api_version == "apps/v1"
            parts.is_pinned = not is_of_kubernetes and _names_node(spec.affinity)
            if is_of_kubernetes or parts.is_pinned:
                _forget_target_node(spec.affinity)
        key = self._encoder.encode(parts)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _shape(parts, keeps_parts=self._keeps_parts)
        return shape


def controlling_owner(owners: Iterable[RawOwner] | None) -> RawOwner | None:
    """Return the owner that rules about pods go by.

    One that makes a pod a daemon's or a static one wins, whether it controls the pod or not; then
    the one in control, then the first.
    """
    owner_list = list(owners or ())
    for owner in owner_list:
        if (owner.api_version, owner.kind) in _OF_THEIR_NODE:
            return owner
    for owner in owner_list:
        if owner.controller:
            return owner
    return owner_list[0] if owner_list else None


def read_annotations(annotations: dict[str, str] | None) -> dict[str, str]:
    """Keep the annotations that some rule reads."""
    if not annotations or READ_ANNOTATIONS.isdisjoint(annotations):
        return _NO_ANNOTATIONS
    return {key: annotations[key] for key in sorted(READ_ANNOTATIONS & annotations.keys())}


def _is_claim(volume: RawVolume) -> bool:
    return volume.persistent_volume_claim is not None or volume.ephemeral is not None


def _required_nodes(affinity: RawAffinity | None) -> RawNodeSelector | None:
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def _names_node(affinity: RawAffinity | None) -> bool:
    """Tell whether every required term names the node, as controllers of DaemonSets write them."""
    required = _required_nodes(affinity)
    terms = (required.node_selector_terms if required else None) or ()
    return bool(terms) and all(
        any(
            each.key == "metadata.name" and each.operator == "In"
            for each in term.match_fields or ()
        )
        for term in terms
    )


def _forget_target_node(affinity: RawAffinity | None) -> None:
    """Drop the field selector by which a DaemonSet pins each pod to its node.

    It would make every daemon pod a shape of its own, and adds nothing: these pods are counted
    where they are and never placed.
    """
    required = _required_nodes(affinity)
    if required is None:
        return
    for term in required.node_selector_terms or ():
        term.match_fields = None
    remaining_terms = [
        term for term in required.node_selector_terms or () if term.match_expressions
    ]
    required.node_selector_terms = remaining_terms


def _shape(parts: PodShapeParts, *, keeps_parts: bool) -> PodShape:
    spec = parts.spec
    affinity = spec.affinity or RawAffinity()
    node_affinity = affinity.node_affinity or RawNodeAffinity()
    pod_affinity, anti_affinity = affinity.pod_affinity, affinity.pod_anti_affinity
    return PodShape(
        namespace=parts.namespace,
        labels=parts.labels or {},
        annotations=parts.annotations,
        requests=pod_requests(
            spec,
            parts.resized,
            pod_level=parts.resized_pod,
            resize_infeasible=parts.resize_infeasible,
        ),
        request_parts=request_parts(spec) if keeps_parts else None,
        limits=pod_limits(spec),
        node_selector=spec.node_selector or {},
        required_node_terms=_required_terms(node_affinity),
        preferred_node_terms=_preferred_terms(node_affinity),
        tolerations=_tolerations(spec),
        pod_affinity=_affinity_terms(pod_affinity.required if pod_affinity else None),
        preferred_pod_affinity=tuple(
            WeightedAffinityTerm(weight=term.weight, term=_affinity_term(term.pod_affinity_term))
            for term in (pod_affinity.preferred if pod_affinity else None) or ()
        ),
        pod_anti_affinity=_affinity_terms(anti_affinity.required if anti_affinity else None),
        preferred_pod_anti_affinity=tuple(
            WeightedAffinityTerm(weight=term.weight, term=_affinity_term(term.pod_affinity_term))
            for term in (anti_affinity.preferred if anti_affinity else None) or ()
        ),
        topology_spread=_topology_spread(spec),
        host_ports=_host_ports(spec),
        volumes=tuple(_volume(volume) for volume in spec.volumes or ()),
        priority=spec.priority or 0,
        priority_class_name=spec.priority_class_name,
        scheduler_name=spec.scheduler_name,
        scheduling_gates=tuple(gate.name for gate in spec.scheduling_gates or ()),
        resource_claims=tuple(claim.name for claim in spec.resource_claims or ()),
        resource_claim_names={
            claim.name: claim.resource_claim_name
            for claim in spec.resource_claims or ()
            if claim.resource_claim_name
        },
        resource_claim_templates={
            claim.name: claim.resource_claim_template_name
            for claim in spec.resource_claims or ()
            if claim.resource_claim_template_name
        },
        termination_grace_period_seconds=spec.termination_grace_period_seconds,
        owner_api_version=parts.owner_api_version,
        owner_kind=parts.owner_kind,
        owner_controls=parts.owner_controls,
        is_pinned=parts.is_pinned,
    )


def _required_terms(node_affinity: RawNodeAffinity) -> tuple[NodeSelectorTerm, ...]:
    required = node_affinity.required
    return node_terms(required.node_selector_terms if required else None)


def _preferred_terms(node_affinity: RawNodeAffinity) -> tuple[PreferredNodeTerm, ...]:
    return tuple(
        PreferredNodeTerm(weight=preferred.weight, term=node_terms((preferred.preference,))[0])
        for preferred in node_affinity.preferred or ()
    )


def _tolerations(spec: RawPodSpec) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=toleration.key,
            operator=toleration.operator or "Equal",
            value=toleration.value,
            effect=toleration.effect,
            toleration_seconds=toleration.toleration_seconds,
        )
        for toleration in spec.tolerations or ()
    )


def _affinity_terms(raw: Iterable[RawAffinityTerm] | None) -> tuple[AffinityTerm, ...]:
    return tuple(_affinity_term(term) for term in raw or ())


def _affinity_term(raw: RawAffinityTerm) -> AffinityTerm:
    return AffinityTerm(
        topology_key=raw.topology_key,
        selector=label_selector(raw.label_selector),
        namespaces=tuple(raw.namespaces or ()),
        namespace_selector=label_selector(raw.namespace_selector),
        match_label_keys=tuple(raw.match_label_keys or ()),
        mismatch_label_keys=tuple(raw.mismatch_label_keys or ()),
    )


def _topology_spread(spec: RawPodSpec) -> tuple[TopologySpread, ...]:
    return tuple(
        TopologySpread(
            topology_key=spread.topology_key,
            max_skew=spread.max_skew,
            when_unsatisfiable=spread.when_unsatisfiable,
            selector=label_selector(spread.label_selector),
            min_domains=spread.min_domains,
            node_affinity_policy=spread.node_affinity_policy or "Honor",
            node_taints_policy=spread.node_taints_policy or "Ignore",
            match_label_keys=tuple(spread.match_label_keys or ()),
        )
        for spread in spec.topology_spread_constraints or ()
    )


def _host_ports(spec: RawPodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of the containers that run all the time, as the scheduler does.

    The API server makes host ports of the container ports of pods in the host network, but not of
    those of templates (DaemonSets, ProvisioningRequests, CapacityBuffers).
    """
    sidecars = [one for one in spec.init_containers or () if one.restart_policy == "Always"]
    return tuple(
        HostPort(port=number, protocol=port.protocol, ip=port.host_ip or "0.0.0.0")  # noqa: S104 - "any address"
        for container in (*sidecars, *(spec.containers or ()))
        for port in container.ports or ()
        if (number := port.host_port or (port.container_port if spec.host_network else 0))
    )


def _volume(raw: RawVolume) -> VolumeView:
    if raw.persistent_volume_claim is not None:
        return VolumeView(name=raw.name, claim_name=raw.persistent_volume_claim.claim_name)
    template = raw.ephemeral.volume_claim_template if raw.ephemeral else None
    claim_spec = template.spec if template else None
    return VolumeView(
        name=raw.name,
        ephemeral=True,
        storage_class=claim_spec.storage_class_name if claim_spec else None,
    )
