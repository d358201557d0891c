"""Labels nodes on-demand when their capacity reservation has ended.

EC2 does not stop instances that run in an on-demand reservation when it ends. With the old label,
consolidation would go on to take such an instance for one that costs nothing. A provider writes
Nodes alone: the labels of the NodeClaim stay as they were at launch, and the core reads those of
the Node, for drift too.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, ON_DEMAND, REGISTERED, RESERVED
from karpenter_core.errors import NotFoundError
from karpenter_provider_aws.interruption.directory import instance_id_of
from karpenter_provider_aws.labels import RESERVATION_LABELS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import NodeReader, NodeWriter
    from karpenter_provider_aws.interruption.directory import InstanceDirectory

__all__ = ["CAPACITY_TYPES_PERIOD", "CapacityTypeSync", "on_demand_labels"]

CAPACITY_TYPES_PERIOD: Final = timedelta(minutes=1)


def on_demand_labels() -> Mapping[str, str | None]:
    """Return what makes a reserved Node an on-demand one; None takes a label away."""
    return {CAPACITY_TYPE: ON_DEMAND, **dict.fromkeys(sorted(RESERVATION_LABELS))}


@final
class CapacityTypeSync:
    """Brings the capacity type of Nodes in line with that of their instances."""

    def __init__(
        self, *, directory: InstanceDirectory, read_nodes: NodeReader, nodes: NodeWriter
    ) -> None:
        self._directory: Final = directory
        self._read_nodes: Final = read_nodes
        self._nodes: Final = nodes
        self._log: FilteringBoundLogger = structlog.get_logger("aws.capacity-types")

    async def run(self) -> None:
        """Look once; without any reserved Node that costs no call.

        Raises:
            CloudProviderError: EC2 refused or did not answer.
            ApiError: a Node could not be written.
        """
        reserved = {
            instance_id_of(node): node.name
            for node in self._read_nodes().values()
            if _is_reserved(node)
        }
        if not reserved:
            return
        unreserved = await asyncio.to_thread(self._directory.on_demand_among, reserved)
        for instance_id in unreserved:
            name = reserved[instance_id]
            try:
                await self._nodes.patch(name, {"metadata": {"labels": on_demand_labels()}})
            except NotFoundError:
                continue
            self._log.info(
                "changed the capacity-type label of a node from reserved to on-demand",
                Node={"name": name},
            )


def _is_reserved(node: NodeView) -> bool:
    """Whether it has registered, is not going, and says that it runs in a reservation."""
    return (
        node.labels.get(CAPACITY_TYPE) == RESERVED
        and node.labels.get(REGISTERED) == "true"
        and not node.is_deleting
        and bool(instance_id_of(node))
    )
