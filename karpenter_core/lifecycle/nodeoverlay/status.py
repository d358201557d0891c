"""Sets the conditions of NodeOverlays; computes their status patch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from karpenter_core.api.conditions import FALSE, TRUE
from karpenter_core.api.nodeoverlay import (
    CONFLICT,
    CONFLICT_MESSAGE,
    NODE_OVERLAY_CONDITIONS,
    RUNTIME_VALIDATION,
)
from karpenter_core.api.nodepool import VALIDATION_SUCCEEDED
from karpenter_core.api.notices import Notice
from karpenter_core.lifecycle.changes import MergePatch, changed_fields
from karpenter_core.lifecycle.nodepool.validation import joined_errors

if TYPE_CHECKING:
    from datetime import datetime

    from karpenter_core.api.nodeoverlay import NodeOverlay
    from karpenter_core.lifecycle.nodeoverlay.evaluation import OverlayEvaluation

__all__ = ["overlay_notices", "overlay_status_patch", "with_verdict"]


def with_verdict(
    overlay: NodeOverlay, evaluation: OverlayEvaluation, *, now: datetime
) -> NodeOverlay:
    """Return the overlay with the conditions of an evaluation; itself when nothing changes."""
    status, reason, message = TRUE, VALIDATION_SUCCEEDED, ""
    if errors := evaluation.errors.get(overlay.name):
        status, reason, message = FALSE, RUNTIME_VALIDATION, joined_errors(errors)
    elif overlay.name in evaluation.conflicts:
        status, reason, message = FALSE, CONFLICT, CONFLICT_MESSAGE
    metadata = overlay.metadata
    conditions = NODE_OVERLAY_CONDITIONS.initialise(
        overlay.status.conditions,
        since=metadata.creation_timestamp,
        generation=metadata.generation,
        deleting=overlay.is_deleting,
    )
    conditions = NODE_OVERLAY_CONDITIONS.set(
        conditions,
        type=VALIDATION_SUCCEEDED,
        status=status,
        reason=reason,
        message=message,
        now=now,
        generation=metadata.generation,
        deleting=overlay.is_deleting,
    )
    if conditions is overlay.status.conditions:
        return overlay
    return overlay.model_copy(
        update={"status": overlay.status.model_copy(update={"conditions": conditions})}
    )


def overlay_notices(overlay: NodeOverlay, evaluation: OverlayEvaluation) -> tuple[Notice, ...]:
    """Return the Event of an overlay that is not applied: what is wrong, or with which it conflicts."""
    if errors := evaluation.errors.get(overlay.name):
        problem = joined_errors(errors)
    elif conflict := evaluation.conflicts.get(overlay.name):
        problem = f"conflict: {conflict}"
    else:
        return ()
    return (
        Notice(
            regarding=overlay.ref,
            type="Warning",
            reason="NodeOverlayNotApplied",
            message=f"NodeOverlay is not applied: {problem}"[:1024],
            dedupe=(overlay.uid, problem),
        ),
    )


def overlay_status_patch(old: NodeOverlay, new: NodeOverlay) -> MergePatch | None:
    """Return the patch of an overlay's status; None when nothing changed.

    Conditions replace a list that has other writers, so the patch carries the resource version.
    """
    status = changed_fields(old.status, new.status)
    if not status:
        return None
    return MergePatch(body={"status": status}, resource_version=old.metadata.resource_version)
