"""Finds volumes to detach from a node before its instance ends.

The cluster's attach/detach controller detaches them; this project never deletes a VolumeAttachment.
Ending an instance with an attached volume can delay the volume by minutes, or corrupt it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.notices import Notice, node_ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["names_text", "pending_attachments", "pending_attachments_notice"]

MAX_NAMES: Final = 5  # upstream default


def pending_attachments(
    snapshot: Snapshot, node: NodeView, *, staying_pods: Iterable[PodView]
) -> tuple[str, ...]:
    """Return the names of the node's VolumeAttachments, except those of pods that stay on it."""
    kept_volumes = {
        claim.volume_name
        for pod in staying_pods
        for volume in pod.shape.volumes
        if (
            claim := snapshot.volume_claims.get(
                f"{pod.namespace}/"
                + (f"{pod.name}-{volume.name}" if volume.ephemeral else volume.claim_name)
            )
        )
        is not None
    }
    return tuple(
        sorted(
            attachment.name
            for attachment in snapshot.volume_attachments.values()
            if attachment.node_name == node.name
            and attachment.volume_name
            and attachment.volume_name not in kept_volumes
        )
    )


def pending_attachments_notice(node: NodeView, attachments: Sequence[str]) -> Notice:
    """Return the Event that names the volumes a node waits for."""
    return Notice(
        regarding=node_ref(node),
        type="Normal",
        reason="AwaitingVolumeDetachment",
        message=f"Awaiting deletion of bound volumeattachments ({names_text(attachments)})",
        dedupe=(node.name,),
    )


def names_text(names: Sequence[str]) -> str:
    """Return the first few names as text, with the number of the others."""
    text = ", ".join(names[:MAX_NAMES])
    return text if len(names) <= MAX_NAMES else f"{text} and {len(names) - MAX_NAMES} other(s)"
