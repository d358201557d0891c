"""Reads and writes places of a ProvisioningRequest's pods: status, claims.

A place is a number of pods of one pod set on one NodeClaim, or on one Node without a claim. Places on
capacity that existed before are in the status of the request; those on claims that were created for it
are in an annotation of each claim. So a new leader knows all of them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from karpenter_core.api.provisioning_request import GANG_PODS, GANG_UID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.provisioning_request import ProvisioningRequest
    from karpenter_core.api.records import PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "Places",
    "claims_by_request",
    "format_pods",
    "parse_places",
    "parse_pods",
    "places_details",
    "pod_counts",
    "pod_set_of",
    "virtual_uid",
]

Places: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Numbers of pods by index of their pod set, by name of the NodeClaim, or of a Node without one."""

PLACES_DETAIL: Final = "karpenter.sh/places"
"""Key in `status.provisioningClassDetails`; `-1`, `-2` … follow where one value is too short."""
_VALUE_CHARACTERS: Final = 30_000  # of 32,768 that the API allows
_UID_PREFIX: Final = "provisioning-request"


def virtual_uid(request: ProvisioningRequest, pod_set: int, number: int) -> str:
    """Return the UID of a pod that stands for one that the request will have."""
    return f"{_UID_PREFIX}/{request.uid}/{pod_set}/{number}"


def pod_set_of(pod: PodView) -> int:
    """Return the index of the pod set of such a pod."""
    return int(pod.uid.rsplit("/", 2)[1])


def pod_counts(pods: Iterable[PodView]) -> dict[int, int]:
    """Count such pods by their pod set."""
    return dict(sorted(Counter(map(pod_set_of, pods)).items()))


def format_pods(counts: Mapping[int, int]) -> str:
    """Write counts as the annotation of a claim: `0=3,2=1`."""
    return ",".join(f"{pod_set}={count}" for pod_set, count in sorted(counts.items()))


def parse_pods(text: str) -> dict[int, int]:
    """Read the annotation of a claim; what cannot be read promises no place."""
    counts: dict[int, int] = {}
    for part in filter(None, text.split(",")):
        pod_set, _, count = part.partition("=")
        if not (pod_set.isdecimal() and count.isdecimal()):
            return {}
        counts[int(pod_set)] = int(count)
    return counts


def places_details(places: Places) -> dict[str, str]:
    """Return the entries of `provisioningClassDetails` that hold these places."""
    parts: list[list[str]] = [[]]
    length = 0
    for name, counts in sorted(places.items()):
        text = f"{json.dumps(name)}:{json.dumps(format_pods(counts))}"
        if length + len(text) > _VALUE_CHARACTERS:
            parts.append([])
            length = 0
        parts[-1].append(text)
        length += len(text) + 1
    return {
        PLACES_DETAIL + (f"-{number}" if number else ""): f"{{{','.join(texts)}}}"
        for number, texts in enumerate(parts)
        if texts
    }


def parse_places(details: Mapping[str, str]) -> dict[str, dict[int, int]]:
    """Read the places in a status; what cannot be read promises no place."""
    places: dict[str, dict[int, int]] = {}
    for key, text in details.items():
        if not is_places_detail(key):
            continue
        try:
            part: object = json.loads(text)
        except (ValueError, RecursionError):
            return {}
        if not isinstance(part, dict):
            return {}
        for name, counts in cast("dict[str, object]", part).items():
            places[name] = parse_pods(counts) if isinstance(counts, str) else {}
    return places


def is_places_detail(key: str) -> bool:
    """Tell whether an entry of `provisioningClassDetails` holds places."""
    return key == PLACES_DETAIL or key.startswith(f"{PLACES_DETAIL}-")


def claims_by_request(snapshot: Snapshot) -> dict[str, tuple[NodeClaim, ...]]:
    """Return the NodeClaims that were created for each request, by its UID, in order of names."""
    claims: dict[str, list[NodeClaim]] = {}
    for _, claim in sorted(snapshot.node_claims.items()):
        uid = claim.metadata.annotations.get(GANG_UID)
        if uid:
            claims.setdefault(uid, []).append(claim)
    return {uid: tuple(found) for uid, found in claims.items()}


def claim_places(claims: Iterable[NodeClaim]) -> dict[str, dict[int, int]]:
    """Return the places on claims that were created for a request."""
    return {
        claim.name: parse_pods(claim.metadata.annotations.get(GANG_PODS, "")) for claim in claims
    }
