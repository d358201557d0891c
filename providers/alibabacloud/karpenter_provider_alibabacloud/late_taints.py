"""Removes the unregistered taint that ACK's script puts back too late.

The script runs on while the node registers: the core removes the taint, and the script may put it
back. The core checks a node's taint once, so no other part would remove it again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import REGISTERED, UNREGISTERED_TAINT
from karpenter_core.errors import ApiError, ConflictError, NotFoundError
from karpenter_provider_alibabacloud.labels import NODE_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView, Taint
    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import NodeReader, NodeWriter

__all__ = ["LATE_TAINTS_PERIOD", "LateTaintRemover", "is_late_tainted", "without_taint"]

LATE_TAINTS_PERIOD: Final = timedelta(minutes=1)
SETTLED_AFTER: Final = timedelta(seconds=15)
"""A node that was ready for so long is not about to lose the taint by itself."""


def is_late_tainted(node: NodeView, now: datetime) -> bool:
    """Whether a node of ours is registered, ready for a while, and tainted as if it were neither."""
    if NODE_CLASS not in node.labels or node.labels.get(REGISTERED) != "true" or node.is_deleting:
        return False
    if all(taint.key != UNREGISTERED_TAINT for taint in node.taints):
        return False
    ready = next((each for each in node.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "True" or ready.last_transition_time is None:
        return False
    return now - ready.last_transition_time > SETTLED_AFTER


def without_taint(node: NodeView) -> Mapping[str, object]:
    """Return the patch that takes the taint off; it fails where taints have changed meanwhile."""
    kept = [_written(taint) for taint in node.taints if taint.key != UNREGISTERED_TAINT]
    return {
        "metadata": {"resourceVersion": str(node.resource_version)},
        "spec": {"taints": kept},
    }


@final
class LateTaintRemover:
    """Checks the Nodes periodically."""

    def __init__(self, clock: Clock, *, nodes: NodeWriter, read_nodes: NodeReader) -> None:
        self._clock: Final = clock
        self._nodes: Final = nodes
        self._read_nodes: Final = read_nodes
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.late_taints")

    async def run(self) -> None:
        """Poll once.

        Raises:
            ApiError: the API server did not let a Node be written; the others were.
        """
        failure: ApiError | None = None
        for node in self._late():
            try:
                await self._nodes.patch(node.name, without_taint(node))
            except (ConflictError, NotFoundError):
                continue  # changed or gone meanwhile: the next look sees how
            except ApiError as error:
                failure = error
            else:
                self._log.info("removed a late taint", Node={"name": node.name})
        if failure is not None:
            raise failure

    def _late(self) -> Iterable[NodeView]:
        now, nodes = self._clock.now(), self._read_nodes()
        return [nodes[name] for name in sorted(nodes) if is_late_tainted(nodes[name], now)]


def _written(taint: Taint) -> dict[str, str]:
    fields = {
        "key": taint.key,
        "value": taint.value,
        "effect": taint.effect,
        "timeAdded": taint.time_added,
    }
    return {name: value for name, value in fields.items() if value}
