"""Finds volumes for claims whose StorageClass has no provisioner.

kube-scheduler binds the pod of such a claim only to a node that a free PersistentVolume of the class
allows. Volumes that an administrator made are what there is. But a program on nodes often makes volumes
of their own disks, and a node that is launched will have some: no node that a NodePool owns is refused
before it had a volume that matches the claim. A node that turns out to have none takes the pod in
every plan, so that no second one is launched for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.api.labels import HOSTNAME, NODE_POOL
from karpenter_core.api.records import NodeSelectorRequirement, NodeSelectorTerm
from karpenter_core.scheduling.selectors import PodSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from karpenter_core.api.storage_records import (
        PersistentVolumeClaimView,
        PersistentVolumeView,
    )
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["NO_PROVISIONER", "StaticVolumeFinder"]

NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""Kubernetes' provisioner of classes whose volumes somebody else makes."""


@final
class StaticVolumeFinder:
    """Finds volumes for claims of classes without provisioner, in one snapshot."""

    __slots__ = ("_by_class", "_found", "_reserved", "_snapshot")

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_class: dict[str, list[PersistentVolumeView]] | None = None
        self._reserved: frozenset[str] = frozenset()
        """Claims (`namespace/name`) that a volume names."""
        self._found: dict[object, tuple[NodeSelectorTerm, ...] | None] = {}

    def places(self, claim: PersistentVolumeClaimView) -> tuple[NodeSelectorTerm, ...] | None:
        """Return terms of which the pod's node must meet one; None if no node can have a volume.

        No terms: any node will do, as far as anything is known of it.
        """
        of_class = self._of_class(claim.storage_class or "")
        key = f"{claim.namespace}/{claim.name}"
        asked = (
            claim.storage_class, claim.requested_bytes, claim.access_modes, claim.volume_mode,
            claim.selector and PodSelector.read(claim.selector),
            claim.uid if key in self._reserved else "",
        )  # fmt: skip
        if asked not in self._found:
            self._found[asked] = self._search(claim, of_class)
        return self._found[asked]

    def _search(
        self, claim: PersistentVolumeClaimView, of_class: Sequence[PersistentVolumeView]
    ) -> tuple[NodeSelectorTerm, ...] | None:
        matching = [volume for volume in of_class if _matches(volume, claim)]
        free = [volume for volume in matching if _is_free(volume, claim)]
        if not of_class or self._come_with_nodes(of_class):
            return self._not_full(matching, free)
        return _places_of(free) if free else None

    def _of_class(self, name: str) -> Sequence[PersistentVolumeView]:
        if self._by_class is None:
            self._by_class = {}
            self._reserved = frozenset(volume.claim for volume in self._snapshot.volumes.values())
            for volume in self._snapshot.volumes.values():
                self._by_class.setdefault(volume.storage_class, []).append(volume)
        return self._by_class.get(name, ())

    def _come_with_nodes(self, volumes: Iterable[PersistentVolumeView]) -> bool:
        """Tell whether some are on hosts that NodePools own, or that are gone."""
        foreign = {
            node.labels.get(HOSTNAME, node.name)
            for node in self._snapshot.nodes.values()
            if NODE_POOL not in node.labels
        }
        return any(_hosts(volume) - foreign for volume in volumes)

    def _not_full(
        self, matching: Iterable[PersistentVolumeView], free: Sequence[PersistentVolumeView]
    ) -> tuple[NodeSelectorTerm, ...]:
        """Return where a volume is free, or may still appear."""
        open_hosts = {host for volume in free for host in _hosts(volume)}
        hosts = {host for volume in matching for host in _hosts(volume)}
        there = {node.labels.get(HOSTNAME, node.name) for node in self._snapshot.nodes.values()}
        full = {host for host in hosts - open_hosts if host in there}
        if not full:
            return ()
        elsewhere = [volume for volume in free if not _hosts(volume)]
        if not elsewhere:
            return (_host_term("NotIn", full),)
        places = _places_of(elsewhere)
        return (_host_term("NotIn", full), *places) if places else ()


def _matches(volume: PersistentVolumeView, claim: PersistentVolumeClaimView) -> bool:
    """Tell whether a volume would do for a claim if nothing else took it (kube-scheduler's rule)."""
    if volume.deletion_timestamp is not None or volume.volume_mode != claim.volume_mode:
        return False
    if volume.capacity_bytes < claim.requested_bytes:
        return False
    if not set(claim.access_modes) <= set(volume.access_modes):
        return False
    if claim.selector is None:
        return True
    selector = PodSelector.read(claim.selector)
    return selector is not None and selector.matches(volume.labels)


def _is_free(volume: PersistentVolumeView, claim: PersistentVolumeClaimView) -> bool:
    """Tell whether a volume is bound to no claim, or reserved for this one."""
    if not volume.claim:
        return True
    return volume.claim == f"{claim.namespace}/{claim.name}" and volume.claim_uid in {"", claim.uid}


def _hosts(volume: PersistentVolumeView) -> AbstractSet[str]:
    """Return the hosts that a volume is on; none if a term leaves them open."""
    hosts: set[str] = set()
    for term in volume.node_terms:
        named = [
            item.values
            for item in term.match_expressions
            if item.key == HOSTNAME and item.operator == "In"
        ]
        if not named:
            return frozenset()
        hosts.update(*named)
    return hosts


def _places_of(volumes: Sequence[PersistentVolumeView]) -> tuple[NodeSelectorTerm, ...]:
    """Return the terms of volumes; those that name nothing but hosts become one."""
    if not all(volume.node_terms for volume in volumes):
        return ()
    terms = dict.fromkeys(term for volume in volumes for term in volume.node_terms)
    only_hosts = [
        term
        for term in terms
        if [(item.key, item.operator) for item in term.match_expressions] == [(HOSTNAME, "In")]
    ]
    hosts = {host for term in only_hosts for host in term.match_expressions[0].values}
    others = tuple(term for term in terms if term not in only_hosts)
    return (*((_host_term("In", hosts),) if hosts else ()), *others)


def _host_term(operator: str, hosts: Iterable[str]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=(
            NodeSelectorRequirement(key=HOSTNAME, operator=operator, values=tuple(sorted(hosts))),
        )
    )
