"""Reads volumes of pods: errors, places where they are, attachments.

All three come from the PersistentVolumeClaims of a pod's volumes. A pod whose claim can be mounted
nowhere is left out of a pass. The place where a volume is (or may be created) narrows the node, not
the pod's own affinity, so topology spread counts as if the volume were not there. And each CSI
driver attaches a limited number of volumes to a node, shared or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, final

from karpenter_core.api.labels import HOSTNAME
from karpenter_core.errors import BadInputError
from karpenter_core.scheduling.problem import PodVolumes
from karpenter_core.scheduling.requirements import Requirement, Requirements
from karpenter_core.state.static_volumes import NO_PROVISIONER, StaticVolumeFinder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from karpenter_core.api.records import NodeSelectorTerm, PodView, VolumeView
    from karpenter_core.api.storage_records import (
        PersistentVolumeClaimView,
        PersistentVolumeView,
        StorageClassView,
    )
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["PodVolumeReader", "UnsupportedVolumes"]

_LOST: Final = "Lost"
_IMMEDIATE: Final = "Immediate"
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_NOTHING: Final[Mapping[str, frozenset[str]]] = MappingProxyType({})

VolumeAlternatives: TypeAlias = tuple[Requirements, ...]
"""Requirements of which one must hold; empty for no restriction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedVolumes:
    """Volumes that no node of the loaded providers can mount, as the providers declare."""

    topology_keys: frozenset[str] = frozenset()
    """Labels that make a StorageClass unusable when its allowed topologies name them."""
    provisioners: frozenset[str] = frozenset()
    """CSI drivers that nodes do not run."""


@final
class PodVolumeReader:
    """Reads the volumes of pods, each claim once, for one pass over one snapshot.

    Pods that ask for the same share one `PodVolumes`, and lists of alternatives that are equal by
    origin are one object, so that comparing them costs nothing.
    """

    __slots__ = (
        "_aliases", "_alternatives", "_crossed", "_exclusive_users", "_of_terms", "_read", "_snapshot",
        "_static", "_unsupported", "_value_aliases",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        aliases: Mapping[str, str],
        value_aliases: Mapping[str, Mapping[str, str]] | None = None,
        unsupported: UnsupportedVolumes | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._aliases = aliases
        self._value_aliases = value_aliases or {}
        self._unsupported = unsupported or UnsupportedVolumes()
        self._alternatives: dict[tuple[str, str], VolumeAlternatives | str] = {}
        self._crossed: dict[tuple[int, ...], VolumeAlternatives] = {}
        self._read: dict[tuple[str, ...], PodVolumes | None] = {}
        self._exclusive_users: dict[str, PodView] | None = None
        self._static = StaticVolumeFinder(snapshot)
        self._of_terms: dict[tuple[NodeSelectorTerm, ...], VolumeAlternatives | str] = {}

    def error(self, pod: PodView) -> str:
        """Return why a volume of a pod cannot be used on any node; empty when all can."""
        for volume in pod.shape.volumes:
            key = _claim_key(pod, volume)
            error = self._error(key) or self._usage_error(key)
            if error:
                return error
        return ""

    def rivals(self, pods: Iterable[PodView]) -> Mapping[str, str]:
        """Return, by UID, why some of the pending pods wait: another gets their claim first.

        Of pods that ask for the same ReadWriteOncePod claim the scheduler binds one, and takes them in
        the order of priority and age.
        """
        first: dict[str, PodView] = {}
        waiting: dict[str, str] = {}
        for pod in sorted((pod for pod in pods if pod.shape.volumes), key=_queue_order):
            keys = [
                key
                for key in (_claim_key(pod, volume) for volume in pod.shape.volumes)
                if key in self._snapshot.volume_claims
                and self._snapshot.volume_claims[key].is_exclusive
            ]
            taken = next((key for key in keys if key in first), None)
            if taken is None:
                first.update(dict.fromkeys(keys, pod))
            else:
                waiting[pod.uid] = (
                    f'persistentvolumeclaim "{taken}" (ReadWriteOncePod) is for pod '
                    f'"{first[taken].key}", which comes first'
                )
        return waiting

    def pod_volumes(self, pod: PodView) -> PodVolumes | None:
        """Return what the pod's volumes require of a node; None for nothing.

        A claim that cannot be read requires nothing: callers check `error` first.
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

    def volumes_to_move(self, pod: PodView) -> PodVolumes | None:
        """Return what a bound pod's volumes require of another node; None for nothing.

        A pod whose claim could not be used again goes on where it is, and would not start elsewhere:
        no other node is right for it.
        """
        asked = self.pod_volumes(pod)
        if not self.error_of_move(pod):
            return asked
        stay = Requirements((Requirement.of(HOSTNAME, "In", (pod.node_name,)),))
        return PodVolumes(alternatives=(stay,), attached=asked.attached if asked else _NOTHING)

    def error_of_move(self, pod: PodView) -> str:
        """Return why a bound pod could not use its volumes on another node; empty when it could.

        Ephemeral volumes do not matter: the pod that takes its place gets claims of its own.
        """
        lasting = (volume for volume in pod.shape.volumes if not volume.ephemeral)
        return next(filter(None, (self._error(_claim_key(pod, volume)) for volume in lasting)), "")

    def attached_claims(self, pods: Iterable[PodView]) -> Mapping[str, frozenset[str]]:
        """Return the claims (`namespace/name`) that pods have attached together, by CSI driver."""
        return self._attached(
            _claim_key(pod, volume) for pod in pods for volume in pod.shape.volumes
        )

    # -- errors ------------------------------------------------------------------------------------

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

    def _usage_error(self, key: str) -> str:
        """Return which pod uses a claim that only one may use; the others wait for its end."""
        if not self._snapshot.volume_claims[key].is_exclusive:
            return ""
        user = self._users_of_exclusive_claims().get(key)
        if user is None:
            return ""
        return f'persistentvolumeclaim "{key}" (ReadWriteOncePod) is in use by pod "{user.key}"'

    def _users_of_exclusive_claims(self) -> Mapping[str, PodView]:
        if self._exclusive_users is None:
            claims = self._snapshot.volume_claims
            self._exclusive_users = {
                key: pod
                for pods in self._snapshot.pods_by_node.values()
                for pod in pods
                for key in (_claim_key(pod, volume) for volume in pod.shape.volumes)
                if key in claims and claims[key].is_exclusive
            }
        return self._exclusive_users

    def _unbound_error(self, claim: PersistentVolumeClaimView) -> str:
        key = f"{claim.namespace}/{claim.name}"
        if not claim.storage_class:
            return f'unbound persistentvolumeclaim "{key}" must define a storage class'
        storage_class = self._snapshot.storage_classes.get(claim.storage_class)
        if storage_class is None:
            return f'storageclass "{claim.storage_class}" of "{key}" not found'
        if storage_class.volume_binding_mode == _IMMEDIATE:
            return f'persistentvolumeclaim "{key}" is to be bound before a node is chosen'
        if selected := claim.selected_node:
            # Until the provisioner has made the volume, or given up, the scheduler takes no other node.
            gone = "" if selected in self._snapshot.nodes else ", which is gone"
            return (
                f'persistentvolumeclaim "{key}": its volume is being provisioned for node '
                f'"{selected}"{gone} (annotation volume.kubernetes.io/selected-node)'
            )
        for term in storage_class.allowed_topologies:
            for expression in term.match_expressions:
                if expression.key in self._unsupported.topology_keys:
                    return (
                        f'storageclass "{storage_class.name}" of "{key}": '
                        f'topology key "{expression.key}" is not supported'
                    )
        return ""

    # -- where the volumes are ---------------------------------------------------------------------

    def _alternatives_of(self, keys: tuple[str, ...]) -> VolumeAlternatives:
        """Combine the alternatives of each volume; one of the combinations must hold."""
        parts: list[VolumeAlternatives] = []
        for key in keys:
            claim = self._snapshot.volume_claims.get(key)
            part = () if claim is None else self._alternatives_of_claim(claim)
            if part and not isinstance(part, str):
                parts.append(part)
        if not parts:
            return ()
        origin = tuple(id(part) for part in parts)
        if origin not in self._crossed:
            self._crossed[origin] = _combine(parts)
        return self._crossed[origin]

    def _alternatives_of_claim(self, claim: PersistentVolumeClaimView) -> VolumeAlternatives | str:
        """Return where a claim's volume is or may be created, or an error message."""
        if claim.volume_name:
            volume = self._snapshot.volumes.get(claim.volume_name)
            return () if volume is None else self._in_volume(volume)
        storage_class = self._snapshot.storage_classes.get(claim.storage_class or "")
        if storage_class is None:
            return ()
        if storage_class.provisioner == NO_PROVISIONER:
            return self._in_static_volumes(claim)
        return self._in_class(storage_class)

    def _in_static_volumes(self, claim: PersistentVolumeClaimView) -> VolumeAlternatives | str:
        """Return where the volumes are that a claim may take; its class has no provisioner."""
        terms = self._static.places(claim)
        if terms is None:
            return (
                f'persistentvolumeclaim "{claim.namespace}/{claim.name}": no persistentvolume of storageclass '
                f'"{claim.storage_class}", which has no provisioner, is free for it: create one'
            )
        if terms not in self._of_terms:
            origin = "storageclass", claim.storage_class or ""
            self._of_terms[terms] = self._read_terms(origin, terms, moves=False)
        return self._of_terms[terms]

    def _in_volume(self, volume: PersistentVolumeView) -> VolumeAlternatives | str:
        origin = ("persistentvolume", volume.name)
        if origin not in self._alternatives:
            terms = volume.node_terms
            self._alternatives[origin] = self._read_terms(origin, terms, moves=volume.is_local)
        return self._alternatives[origin]

    def _in_class(self, storage_class: StorageClassView) -> VolumeAlternatives | str:
        origin = ("storageclass", storage_class.name)
        if origin not in self._alternatives:
            terms = storage_class.allowed_topologies
            self._alternatives[origin] = self._read_terms(origin, terms, moves=False)
        return self._alternatives[origin]

    def _read_terms(
        self, origin: tuple[str, str], terms: tuple[NodeSelectorTerm, ...], *, moves: bool
    ) -> VolumeAlternatives | str:
        """Read each term; with `moves` the volume's present host does not matter.

        A local volume is lost with its node in any case: a new node cannot have that host name. A
        term that names only the host stays, without any requirement.
        """
        alternatives: list[Requirements] = []
        for term in terms:
            if not term.match_expressions:
                continue
            expressions = [
                item for item in term.match_expressions if not (moves and item.key == HOSTNAME)
            ]
            try:
                alternatives.append(
                    Requirements.from_expressions(
                        expressions, aliases=self._aliases, value_aliases=self._value_aliases
                    )
                )
            except BadInputError as error:
                return f'{origin[0]} "{origin[1]}": {error}'
        return tuple(dict.fromkeys(alternatives))

    # -- attachments -------------------------------------------------------------------------------

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
        """Return the CSI driver that attaches a claim's volume; empty when unknown."""
        if claim.volume_name:
            volume = self._snapshot.volumes.get(claim.volume_name)
            return "" if volume is None else volume.driver
        storage_class = self._snapshot.storage_classes.get(claim.storage_class or "")
        return "" if storage_class is None else storage_class.provisioner


def _queue_order(pod: PodView) -> tuple[int, bool, datetime, str]:
    """Return the place of a pod in the scheduler's queue."""
    created = pod.created
    return -pod.shape.priority, created is None, created or _EPOCH, pod.uid


def _claim_key(pod: PodView, volume: VolumeView) -> str:
    """Return the claim of a volume; an ephemeral one is named after pod and volume."""
    if volume.ephemeral:
        return f"{pod.shape.namespace}/{pod.name}-{volume.name}"
    return f"{pod.shape.namespace}/{volume.claim_name}"


def _combine(parts: list[VolumeAlternatives]) -> VolumeAlternatives:
    """Combine the alternatives of several volumes, in the order of the volumes.

    Combinations that no node can meet are left out; if that leaves none they all stay, so that the
    explanation names the conflicting places.
    """
    combined: VolumeAlternatives = (Requirements(),)
    for part in parts:
        pairs = list(product(combined, part))
        possible = [pair for pair in pairs if pair[0].intersects(pair[1])] or pairs
        combined = tuple(dict.fromkeys(first.merge(second) for first, second in possible))
    return () if all(len(item) == 0 for item in combined) else combined
