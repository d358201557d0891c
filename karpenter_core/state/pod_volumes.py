"""Volumes of pods: what keeps a pod from being served, where its volumes are, what they attach.

Three questions with one source, the claims that a pod's volumes stand on. A pod whose claim can be
mounted nowhere is left out of a pass. Where a volume is (or may be made) narrows the node, never
the pod, so topology spread counts as if the volume were not there. And each CSI driver attaches so
many volumes to a node, whoever shares them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import ALIASES, HOSTNAME
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.problem import PodVolumes
from karpenter_core.scheduling.requirements import Requirements

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import (
        NodeSelectorTerm,
        PersistentVolumeClaimView,
        PersistentVolumeView,
        PodView,
        StorageClassView,
        VolumeView,
    )
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["Volumes", "VolumesUnsupported"]

_LOST: Final = "Lost"
_IMMEDIATE: Final = "Immediate"
_NOTHING: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})

Alternatives: TypeAlias = tuple[Requirements, ...]
"""One of these must hold; empty when nothing is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesUnsupported:
    """What no machine of the loaded providers can mount, as they say themselves."""

    topology_keys: frozenset[str] = frozenset()
    """A StorageClass whose allowed topologies name one of these is of no use."""
    provisioners: frozenset[str] = frozenset()
    """CSI drivers that are not there."""


@final
class Volumes:
    """Reads the volumes of pods, each claim once, for one pass over one snapshot.

    Pods that ask for the same share one `PodVolumes`, and lists of alternatives that are equal by
    origin are one object, so that comparing them costs nothing.
    """

    __slots__ = ("_aliases", "_alternatives", "_crossed", "_read", "_snapshot", "_unsupported")

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        aliases: Mapping[str, str] = ALIASES,
        unsupported: VolumesUnsupported | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._aliases = aliases
        self._unsupported = unsupported or VolumesUnsupported()
        self._alternatives: dict[tuple[str, str], Alternatives | str] = {}
        self._crossed: dict[tuple[int, ...], Alternatives] = {}
        self._read: dict[tuple[str, ...], PodVolumes | None] = {}

    def error(self, pod: PodView) -> str:
        """Say why a volume of a pod cannot be used on any node; empty when all can."""
        for volume in pod.shape.volumes:
            error = self._error(_claim_key(pod, volume))
            if error:
                return error
        return ""

    def of(self, pod: PodView) -> PodVolumes | None:
        """Return what the pod's volumes ask of a node; None when that is nothing.

        A claim that cannot be read asks nothing: whoever cares has asked for `error` before.
        """
        if not pod.shape.volumes:
            return None
        keys = tuple(_claim_key(pod, volume) for volume in pod.shape.volumes)
        if keys not in self._read:
            alternatives = self._alternatives_of(keys)
            attached = self._attached(keys)
            self._read[keys] = (
                PodVolumes(alternatives=alternatives, attached=attached)
                if alternatives or attached
                else None
            )
        return self._read[keys]

    def attached(self, pods: Iterable[PodView]) -> Mapping[str, frozenset[str]]:
        """Return the claims (`namespace/name`) that pods have attached together, by CSI driver."""
        return self._attached(
            _claim_key(pod, volume) for pod in pods for volume in pod.shape.volumes
        )

    # -- what is wrong -----------------------------------------------------------------------------

    def _error(self, key: str) -> str:
        claim = self._snapshot.volume_claims.get(key)
        if claim is None:
            return f'persistentvolumeclaim "{key}" not found'
        if claim.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{key}" is being deleted'
        if claim.phase == _LOST:
            return f'persistentvolumeclaim "{key}" is bound to a non-existent persistentvolume'
        error = self._bound_error(claim) if claim.volume_name else self._unbound_error(claim)
        if error:
            return error
        driver = self._driver(claim)
        if driver in self._unsupported.provisioners:
            return f'persistentvolumeclaim "{key}": provisioner "{driver}" is not supported'
        alternatives = self._alternatives_of_claim(claim)
        return alternatives if isinstance(alternatives, str) else ""

    def _bound_error(self, claim: PersistentVolumeClaimView) -> str:
        key = f"{claim.namespace}/{claim.name}"
        volume = self._snapshot.volumes.get(claim.volume_name)
        if volume is None:
            return f'persistentvolume "{claim.volume_name}" of "{key}" not found'
        if volume.deletion_timestamp is not None:
            return f'persistentvolume "{claim.volume_name}" of "{key}" is being deleted'
        if not claim.bind_completed:
            return f'persistentvolumeclaim "{key}" is not bound yet'
        return ""

    def _unbound_error(self, claim: PersistentVolumeClaimView) -> str:
        key = f"{claim.namespace}/{claim.name}"
        if not claim.storage_class:
            return f'unbound persistentvolumeclaim "{key}" must define a storage class'
        storage_class = self._snapshot.storage_classes.get(claim.storage_class)
        if storage_class is None:
            return f'storageclass "{claim.storage_class}" of "{key}" not found'
        if storage_class.volume_binding_mode == _IMMEDIATE:
            return f'persistentvolumeclaim "{key}" is to be bound before a node is chosen'
        for term in storage_class.allowed_topologies:
            for expression in term.match_expressions:
                if expression.key in self._unsupported.topology_keys:
                    return (
                        f'storageclass "{storage_class.name}" of "{key}": '
                        f'topology key "{expression.key}" is not supported'
                    )
        return ""

    # -- where the volumes are ---------------------------------------------------------------------

    def _alternatives_of(self, keys: tuple[str, ...]) -> Alternatives:
        """Combine what each volume asks; one of the combinations must hold."""
        parts: list[Alternatives] = []
        for key in keys:
            claim = self._snapshot.volume_claims.get(key)
            part = () if claim is None else self._alternatives_of_claim(claim)
            if part and not isinstance(part, str):
                parts.append(part)
        if not parts:
            return ()
        origin = tuple(id(part) for part in parts)
        if origin not in self._crossed:
            self._crossed[origin] = _crossed(parts)
        return self._crossed[origin]

    def _alternatives_of_claim(self, claim: PersistentVolumeClaimView) -> Alternatives | str:
        """Return where a claim's volume is or may be made, or what is wrong with that."""
        if claim.volume_name:
            volume = self._snapshot.volumes.get(claim.volume_name)
            return () if volume is None else self._in_volume(volume)
        storage_class = self._snapshot.storage_classes.get(claim.storage_class or "")
        return () if storage_class is None else self._in_class(storage_class)

    def _in_volume(self, volume: PersistentVolumeView) -> Alternatives | str:
        origin = ("persistentvolume", volume.name)
        if origin not in self._alternatives:
            terms = volume.node_terms
            self._alternatives[origin] = self._read_terms(origin, terms, moves=volume.is_local)
        return self._alternatives[origin]

    def _in_class(self, storage_class: StorageClassView) -> Alternatives | str:
        origin = ("storageclass", storage_class.name)
        if origin not in self._alternatives:
            terms = storage_class.allowed_topologies
            self._alternatives[origin] = self._read_terms(origin, terms, moves=False)
        return self._alternatives[origin]

    def _read_terms(
        self, origin: tuple[str, str], terms: tuple[NodeSelectorTerm, ...], *, moves: bool
    ) -> Alternatives | str:
        """Read each term; `moves` says that the host the volume is on now does not matter.

        A local volume is lost with its node in any case: a new node cannot have that host name. A
        term that names nothing but the host stays, as one that asks nothing.
        """
        found: list[Requirements] = []
        for term in terms:
            if not term.match_expressions:
                continue
            expressions = [
                item for item in term.match_expressions if not (moves and item.key == HOSTNAME)
            ]
            try:
                found.append(Requirements.from_expressions(expressions, aliases=self._aliases))
            except BadInputError as error:
                return f'{origin[0]} "{origin[1]}": {error}'
        return tuple(dict.fromkeys(found))

    # -- what they attach --------------------------------------------------------------------------

    def _attached(self, keys: Iterable[str]) -> Mapping[str, frozenset[str]]:
        by_driver: dict[str, set[str]] = {}
        claims_there = self._snapshot.volume_claims
        for key in keys:
            claim = claims_there.get(key)
            driver = "" if claim is None else self._driver(claim)
            if driver:
                by_driver.setdefault(driver, set()).add(key)
        return {driver: frozenset(claims) for driver, claims in by_driver.items()} or _NOTHING

    def _driver(self, claim: PersistentVolumeClaimView) -> str:
        """Return the CSI driver that attaches a claim's volume; empty when none is known to."""
        if claim.volume_name:
            volume = self._snapshot.volumes.get(claim.volume_name)
            return "" if volume is None else volume.driver
        storage_class = self._snapshot.storage_classes.get(claim.storage_class or "")
        return "" if storage_class is None else storage_class.provisioner


def _claim_key(pod: PodView, volume: VolumeView) -> str:
    """Return the claim that a volume stands on; one made for the pod is named after both."""
    if volume.ephemeral:
        return f"{pod.shape.namespace}/{pod.name}-{volume.name}"
    return f"{pod.shape.namespace}/{volume.claim_name}"


def _crossed(parts: list[Alternatives]) -> Alternatives:
    """Combine the alternatives of several volumes, in the order of the volumes.

    Combinations that no node can meet are left out; if that leaves none they all stay, and the pod
    is told that its volumes are apart.
    """
    combined: Alternatives = (Requirements(),)
    for part in parts:
        pairs = list(product(combined, part))
        possible = [pair for pair in pairs if pair[0].intersects(pair[1])] or pairs
        combined = tuple(dict.fromkeys(first.merge(second) for first, second in possible))
    return () if all(len(item) == 0 for item in combined) else combined
