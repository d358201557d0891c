"""Taints dead nodes out-of-service so that their volumes move.

When a kubelet is gone, its pods stay Terminating and their volumes attached, and a StatefulSet waits
for both. The taint `node.kubernetes.io/out-of-service` tells the cluster's controllers that the node
is down for good; they then delete such pods and detach their volumes at once. The taint promises that
nothing writes to those volumes any more. It is therefore set only if a setting enables it, on a node
that is not Ready and whose instance the provider reports as gone or terminating.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from karpenter_core.api.records import Taint
from karpenter_core.lifecycle.changes import NodePatch
from karpenter_core.lifecycle.node.detachment import pending_attachments
from karpenter_core.scheduling.taints import first_untolerated
from karpenter_core.state.taints import has_taint

if TYPE_CHECKING:
    from karpenter_core.api.records import NodeView, PodView
    from karpenter_core.state.snapshot import Snapshot

__all__ = [
    "DETACH_LIMIT",
    "OUT_OF_SERVICE",
    "held_volumes",
    "out_of_service_patch",
]

OUT_OF_SERVICE: Final = Taint(
    key="node.kubernetes.io/out-of-service", value="nodeshutdown", effect="NoExecute"
)
"""Key, value and effect as in Kubernetes' documentation of non-graceful shutdown."""

DETACH_LIMIT: Final = timedelta(minutes=6)
"""After this time the attach/detach controller detaches volumes of any node by force."""


def out_of_service_patch(node: NodeView, now: datetime) -> NodePatch | None:
    """Return the patch that taints a dead node; None when it has the taint."""
    if has_taint(node.taints, OUT_OF_SERVICE):
        return None
    added = f"{now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    taint = Taint(
        key=OUT_OF_SERVICE.key,
        value=OUT_OF_SERVICE.value,
        effect=OUT_OF_SERVICE.effect,
        time_added=added,
    )
    return NodePatch(add_taints=(taint,))


def held_volumes(
    snapshot: Snapshot, node: NodeView, pods: tuple[PodView, ...], now: datetime
) -> tuple[str, ...]:
    """Return the attachments for which a dead node is kept; none after DETACH_LIMIT.

    Pods that tolerate the taint are not deleted, so their volumes are not waited for.
    """
    marked = _marked_since(node)
    if marked is not None and now - marked >= DETACH_LIMIT:
        return ()
    staying = (
        pod
        for pod in pods
        if pod.is_mirror or first_untolerated((OUT_OF_SERVICE,), pod.shape.tolerations) is None
    )
    return pending_attachments(snapshot, node, staying_pods=staying)


def _marked_since(node: NodeView) -> datetime | None:
    """Return when the node was tainted; if the taint has no time, when the node was deleted."""
    for taint in node.taints:
        if taint.key == OUT_OF_SERVICE.key and taint.effect == OUT_OF_SERVICE.effect:
            try:
                at = datetime.fromisoformat(taint.time_added)
            except ValueError:
                return node.deletion_timestamp
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return None
