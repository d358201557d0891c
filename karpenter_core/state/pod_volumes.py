"""Volumes that keep a pod from being served, and why.

Such a pod is left out of scheduling altogether: what it stands on cannot be mounted anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from karpenter_core.api.records import PersistentVolumeClaimView, PodView, VolumeView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["volume_error"]

_LOST: Final = "Lost"
_IMMEDIATE: Final = "Immediate"


def volume_error(pod: PodView, snapshot: Snapshot) -> str:
    """Say why a volume of a pod cannot be used on any node; empty when all can."""
    for volume in pod.shape.volumes:
        error = _volume_error(pod, volume, snapshot)
        if error:
            return error
    return ""


def _volume_error(pod: PodView, volume: VolumeView, snapshot: Snapshot) -> str:
    name = f"{pod.name}-{volume.name}" if volume.ephemeral else volume.claim_name
    key = f"{pod.namespace}/{name}"
    claim = snapshot.volume_claims.get(key)
    if claim is None:
        return f'persistentvolumeclaim "{key}" not found'
    if claim.deletion_timestamp is not None:
        return f'persistentvolumeclaim "{key}" is being deleted'
    if claim.phase == _LOST:
        return f'persistentvolumeclaim "{key}" is bound to a non-existent persistentvolume'
    if claim.volume_name:
        return _bound_error(claim, key, snapshot)
    return _unbound_error(claim, key, snapshot)


def _bound_error(claim: PersistentVolumeClaimView, key: str, snapshot: Snapshot) -> str:
    if not claim.bind_completed:
        return f'persistentvolumeclaim "{key}" is not bound yet'
    volume = snapshot.volumes.get(claim.volume_name)
    if volume is None:
        return f'persistentvolume "{claim.volume_name}" of "{key}" not found'
    if volume.deletion_timestamp is not None:
        return f'persistentvolume "{claim.volume_name}" of "{key}" is being deleted'
    return ""


def _unbound_error(claim: PersistentVolumeClaimView, key: str, snapshot: Snapshot) -> str:
    if not claim.storage_class:
        return f'unbound persistentvolumeclaim "{key}" must define a storage class'
    storage_class = snapshot.storage_classes.get(claim.storage_class)
    if storage_class is None:
        return f'storageclass "{claim.storage_class}" of "{key}" not found'
    if storage_class.volume_binding_mode == _IMMEDIATE:
        return f'persistentvolumeclaim "{key}" is to be bound before a node is chosen'
    return ""
