"""Refuses Nodes named after other instances; delays Nodes until labelled.

They wait for the label of their partition. A launch that names no partition leaves the choice to
EC2, which reports it with the instance. The scheduler spreads pods by the label of the Node, so
registration waits until it is set. A provider writes Nodes alone: the labels of the NodeClaim stay
as they were at launch.
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, final

from karpenter_core.errors import ApiError, CloudProviderError
from karpenter_core.provider.contract import RegistrationGate, RegistrationRefusal
from karpenter_provider_aws.api.terms import PlacementGroupSelector
from karpenter_provider_aws.described_instances import instance_id_in, parse_provider_id
from karpenter_provider_aws.labels import PLACEMENT_GROUP_ID, PLACEMENT_GROUP_PARTITION

if TYPE_CHECKING:
    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.provider.contract import NodeWriter
    from karpenter_provider_aws.described_instances import InstanceReader
    from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader

__all__ = ["GATE", "PartitionGate", "may_lack_partition", "refusal_of_other_id"]

_ID_NAME: Final = re.compile(r"(?P<id>i-[0-9a-f]{17})(?:\.|$)")
GATE: Final = "placement-group-partition"
_UNTIL_DESCRIBED: Final = timedelta(seconds=5)
_UNTIL_SEEN: Final = timedelta(seconds=1)


def may_lack_partition(node_claim: NodeClaim, node: NodeView) -> bool:
    """Whether a Node is in a placement group, and nothing says in which partition of it."""
    return (
        PLACEMENT_GROUP_ID in node_claim.metadata.labels
        and PLACEMENT_GROUP_PARTITION not in node_claim.metadata.labels
        and PLACEMENT_GROUP_PARTITION not in node.labels
    )


def refusal_of_other_id(node_claim: NodeClaim, node: NodeView) -> RegistrationRefusal | None:
    """Refuse a Node whose name has the id of another instance.

    EC2 gives hosts the instance's id or its private address as name, as the subnet says. No call is
    made for the address.
    """
    match = _ID_NAME.match(node.name)
    own = instance_id_in(node_claim.status.provider_id)
    if match is None or not own or match["id"] == own:
        return None
    return RegistrationRefusal(reason=f'is named after another instance than "{own}"')


@final
class PartitionGate:
    """Holds a Node until its partition is known, and labels it."""

    def __init__(
        self, *, reader: InstanceReader, groups: PlacementGroupReader, nodes: NodeWriter
    ) -> None:
        self._reader: Final = reader
        self._groups: Final = groups
        self._nodes: Final = nodes

    async def hold(self, node_claim: NodeClaim, node: NodeView) -> RegistrationGate | None:
        """Return what holds a Node back; None lets it in.

        Raises:
            CloudProviderError: EC2 refused or did not answer, or the Node could not be written.
        """
        if not may_lack_partition(node_claim, node):
            return None
        group_id = node_claim.metadata.labels[PLACEMENT_GROUP_ID]
        if not await asyncio.to_thread(self._has_partitions, group_id):
            return None
        partition = await asyncio.to_thread(self._partition, node_claim.status.provider_id)
        if partition == 0:
            return RegistrationGate(name=GATE, retry_after=_UNTIL_DESCRIBED)
        labels = {PLACEMENT_GROUP_PARTITION: str(partition)}
        try:
            await self._nodes.patch(node.name, {"metadata": {"labels": labels}})
        except ApiError as error:
            # As this the core takes it for a delay, of which a claim does not wait for ever.
            raise CloudProviderError(f'Node "{node.name}": {error}') from error
        # The core goes on with the Node as it sees it, so it has to see the label first.
        return RegistrationGate(name=GATE, retry_after=_UNTIL_SEEN)

    def _has_partitions(self, group_id: str) -> bool:
        """Whether it is such a group; one that has been deleted holds nothing back."""
        group = self._groups.found_or_last(PlacementGroupSelector(id=group_id))
        return group is not None and group.partitions > 0

    def _partition(self, provider_id: str) -> int:
        """Return the partition of an instance; 0 while EC2 does not say it."""
        _, instance_id = parse_provider_id(provider_id)
        instance = self._reader.of_ids([instance_id]).get(instance_id)
        return 0 if instance is None else instance.partition
