"""Which volumes a node still holds that are to move elsewhere.

The cluster's own controllers detach; nobody here ever deletes a VolumeAttachment. A machine that
ends with a volume attached may take minutes, or the volume's consistency, with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from karpenter_core.api.notices import Notice, ObjectRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = ["awaited_attachments", "awaiting_notice", "enumerated"]

NAMED: Final = 5  # upstream default


def awaited_attachments(
    snapshot: Snapshot, node: NodeView, *, staying: Iterable[PodView]
) -> tuple[str, ...]:
    """Return the names of the node's VolumeAttachments, less those of pods that stay on it."""
    kept = {
        claim.volume_name
        for pod in staying
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
            and attachment.volume_name not in kept
        )
    )


def awaiting_notice(node: NodeView, attachments: Sequence[str]) -> Notice:
    """Say on a node which volumes it waits for."""
    return Notice(
        regarding=ObjectRef(api_version="v1", kind="Node", name=node.name, uid=node.uid),
        type="Normal",
        reason="AwaitingVolumeDetachment",
        message=f"Awaiting deletion of bound volumeattachments ({enumerated(attachments)})",
        dedupe=(node.name,),
    )


def enumerated(names: Sequence[str]) -> str:
    """Write the first few names of what a node waits for, and how many others there are."""
    text = ", ".join(names[:NAMED])
    return text if len(names) <= NAMED else f"{text} and {len(names) - NAMED} other(s)"
