"""Finds capacity booked by ProvisioningRequests, as virtual pods on nodes.

A virtual pod represents a pod that will use the booking, and reserves its resources in every plan.
Each pod that is bound to a node takes the place of one virtual pod, also after it has finished. A
condition of the request ends the booking, so that all decisions and all leaders agree.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.conditions import is_true
from karpenter_core.api.nodeclaim import INITIALIZED
from karpenter_core.api.provisioning_request import (
    ATOMIC_SCALE_UP,
    GANG_ATTEMPT,
    GANG_UID,
    consumed_request,
)
from karpenter_core.api.records import PodView, VirtualSource
from karpenter_core.state.gang_places import (
    claim_places,
    claims_by_request,
    parse_places,
    virtual_uid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodShape
    from karpenter_core.state.gang_places import Places
    from karpenter_core.state.snapshot import Snapshot, StateNode

__all__ = [
    "ATTEMPT_CLAIMS_DETAIL",
    "Booking",
    "booked_nodes",
    "booked_pods",
    "bookings",
    "consuming_pods",
    "is_launching",
    "launching_nodes",
    "request_pods",
    "starting_claims",
]

ATTEMPT_CLAIMS_DETAIL: Final = "karpenter.sh/attempt-claims"
"""Key in `status.provisioningClassDetails`: NodeClaims of the attempt that runs; else absent."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Booking:
    """The capacity that is kept free for one request.

    `pods` are the virtual pods that still wait, by name of the NodeClaim, or of a Node without one.
    `lost` counts the places whose nodes are gone or leave, and whose pods have not arrived.
    """

    request: ProvisioningRequest
    pods: Mapping[str, tuple[PodView, ...]]
    lost: int


def is_launching(request: ProvisioningRequest) -> bool:
    """Tell whether an attempt to launch NodeClaims for a request runs."""
    return (
        request.spec.provisioning_class_name == ATOMIC_SCALE_UP
        and not request.is_finished
        and not request.is_booked
        and ATTEMPT_CLAIMS_DETAIL in request.status.provisioning_class_details
    )


def request_pods(snapshot: Snapshot, request: ProvisioningRequest) -> tuple[PodView, ...] | None:
    """Return virtual pods for all pods of a request; None while a PodTemplate is missing."""
    pods: list[PodView] = []
    for index, pod_set in enumerate(request.spec.pod_sets):
        shape = _shape(snapshot, request, index)
        if shape is None:
            return None
        pods.extend(_pod(request, shape, index, number) for number in range(pod_set.count))
    return tuple(pods)


def consuming_pods(snapshot: Snapshot) -> dict[str, list[PodView]]:
    """Return the pods that use the capacity of requests, by `namespace/name` of the request."""
    pods: dict[str, list[PodView]] = {}
    for pod in snapshot.pods.values():
        if pod.shape.annotations and (name := consumed_request(pod.shape.annotations)):
            pods.setdefault(f"{pod.namespace}/{name}", []).append(pod)
    return pods


def bookings(snapshot: Snapshot) -> tuple[Booking, ...]:
    """Return the bookings of all requests that have one, also while their NodeClaims launch."""
    holding = [
        request
        for _, request in sorted(snapshot.provisioning_requests.items())
        if request.is_booked or is_launching(request)
    ]
    if not holding:
        return ()
    claims = claims_by_request(snapshot)
    consuming = consuming_pods(snapshot)
    return tuple(
        _booking(snapshot, request, claims.get(request.uid, ()), consuming.get(request.key, ()))
        for request in holding
    )


def booked_pods(found: Iterable[Booking], snapshot: Snapshot) -> dict[StateNode, list[PodView]]:
    """Return the virtual pods by the state node on which they reserve their resources."""
    pods: dict[StateNode, list[PodView]] = {}
    for booking in found:
        for name, waiting in booking.pods.items():
            state_node = snapshot.state_node(name)
            if state_node is not None:
                pods.setdefault(state_node, []).extend(waiting)
    return pods


def booked_nodes(snapshot: Snapshot) -> dict[StateNode, str]:
    """Return the nodes that are kept for requests, with `namespace/name` of the request."""
    kept: dict[StateNode, str] = {}
    for booking in bookings(snapshot):
        for name in booking.pods:
            state_node = snapshot.state_node(name)
            if state_node is not None:
                kept[state_node] = booking.request.key
    return {**kept, **launching_nodes(snapshot)}


def launching_nodes(snapshot: Snapshot) -> dict[StateNode, str]:
    """Return the nodes of attempts that still run, with the request; they take no ordinary pods."""
    launching = {
        request.uid: request.key
        for request in snapshot.provisioning_requests.values()
        if is_launching(request)
    }
    if not launching:
        return {}
    nodes: dict[StateNode, str] = {}
    for name, claim in snapshot.node_claims.items():
        annotations = claim.metadata.annotations
        key = launching.get(annotations.get(GANG_UID, ""))
        state_node = snapshot.state_nodes_by_claim.get(name)
        if key is not None and GANG_ATTEMPT in annotations and state_node is not None:
            nodes[state_node] = key
    return nodes


def starting_claims(
    snapshot: Snapshot, request: ProvisioningRequest, places: Places
) -> tuple[str, ...]:
    """Return the NodeClaims with places of a request that may yet come to nothing.

    Their nodes are not initialised, or belong to an attempt of another request, which ends all of them
    if it fails.
    """
    starting: list[str] = []
    for name in sorted(places):
        claim = snapshot.node_claims.get(name)
        if claim is None:
            continue
        annotations = claim.metadata.annotations
        is_others = GANG_ATTEMPT in annotations and annotations.get(GANG_UID) != request.uid
        if is_others or not is_true(claim.status.conditions, INITIALIZED):
            starting.append(name)
    return tuple(starting)


def _booking(
    snapshot: Snapshot,
    request: ProvisioningRequest,
    claims: Iterable[NodeClaim],
    consuming: Iterable[PodView],
) -> Booking:
    places = {
        name: Counter(counts)
        for name, counts in (
            *parse_places(request.status.provisioning_class_details).items(),
            *claim_places(claims).items(),
        )
        if _is_there(snapshot, name)
    }
    promised = _promised(request)
    for counts in places.values():
        promised.subtract(counts)
    missing = +promised
    shapes = [_shape(snapshot, request, index) for index in range(len(request.spec.pod_sets))]
    for pod in sorted(consuming, key=lambda item: item.uid):
        if pod.node_name:
            _take_place(snapshot, pod, places, missing, shapes, keeps_to_pod_set=request.is_partial)
    pods: dict[str, tuple[PodView, ...]] = {}
    numbers: Counter[int] = Counter()
    for name, counts in sorted(places.items()):
        waiting: list[PodView] = []
        for index, count in sorted((+counts).items()):
            shape = shapes[index] if index < len(shapes) else None
            if shape is None:
                continue
            waiting.extend(_pod(request, shape, index, numbers[index] + n) for n in range(count))
            numbers[index] += count
        if +counts:
            pods[name] = tuple(waiting)
    return Booking(request=request, pods=pods, lost=missing.total())


def _promised(request: ProvisioningRequest) -> Counter[int]:
    """Return the number of booked pods by pod set: all, or those that a partial check found."""
    if not request.is_partial:
        return Counter({index: each.count for index, each in enumerate(request.spec.pod_sets)})
    promised: Counter[int] = Counter()
    for counts in parse_places(request.status.provisioning_class_details).values():
        promised.update(counts)
    return promised


def _take_place(
    snapshot: Snapshot,
    pod: PodView,
    places: Mapping[str, Counter[int]],
    missing: Counter[int],
    shapes: list[PodShape | None],
    *,
    keeps_to_pod_set: bool,
) -> None:
    """Remove the place that an arrived pod uses: on its node, else a lost one, else any.

    Pod sets with the pod's own requests come before others. With `keeps_to_pod_set` no others are
    used: the pod may be of a pod set without booked capacity.
    """
    like = [
        index
        for index, shape in enumerate(shapes)
        if shape is not None and shape.requests == pod.shape.requests
    ]
    others = [index for index in range(len(shapes)) if index not in like]
    order = like if like and keeps_to_pod_set else [*like, *others]
    here = snapshot.state_nodes_by_node.get(pod.node_name)
    own = [
        counts for name, counts in places.items() if snapshot.state_node(name) is here is not None
    ]
    for index in order:
        for counts in (*own, missing):
            if counts[index] > 0:
                counts[index] -= 1
                return
        for _, counts in sorted(places.items()):
            if counts[index] > 0:
                counts[index] -= 1
                return


def _is_there(snapshot: Snapshot, name: str) -> bool:
    state_node = snapshot.state_node(name)
    return state_node is not None and not state_node.marked_for_deletion


def _shape(snapshot: Snapshot, request: ProvisioningRequest, index: int) -> PodShape | None:
    import msgspec

    namespace = request.metadata.namespace or ""
    name = request.spec.pod_sets[index].pod_template_ref.name
    template = snapshot.pod_templates.get(f"{namespace}/{name}")
    if template is None:
        return None
    source = VirtualSource(
        api_version=request.resource.api_version,
        kind=request.resource.kind,
        namespace=namespace,
        name=request.name,
        uid=request.uid,
    )
    shape = template.template
    # The claims of ephemeral volumes are created with the pods, so none of them exists yet.
    lasting = tuple(volume for volume in shape.volumes if not volume.ephemeral)
    return msgspec.structs.replace(shape, volumes=lasting, virtual_source=source)


def _pod(request: ProvisioningRequest, shape: PodShape, index: int, number: int) -> PodView:
    return PodView(
        uid=virtual_uid(request, index, number),
        name=f"{request.name}-{index}-{number}",
        shape=shape,
        created=request.metadata.creation_timestamp,
    )
