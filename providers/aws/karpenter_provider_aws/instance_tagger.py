"""Adds missing tags to instances whose node has registered.

Only missing tags are added, so that a user's `Name` stays. EC2 takes few calls that change tags: there is
one a second at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.instances.tag_changes import DesiredTags
from karpenter_core.provider.kit.instances.tag_queue import TagLimits, TagQueue
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.described_instances import FILTER_VALUES, parse_provider_id
from karpenter_provider_aws.discovery.call_errors import core_errors_of, is_refusal, refusal_behind
from karpenter_provider_aws.instance_tags import CLAIM_TAGS, to_tag_list
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NAME_TAG, NODE_CLAIM_TAG
from karpenter_provider_aws.zonal_shift import no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.kit.instances.tag_changes import TagChange
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["InstanceTagger"]

_FINAL_KEYS: Final = frozenset({NAME_TAG, NODE_CLAIM_TAG, EKS_CLUSTER_NAME_TAG})
_LIMITS: Final = TagLimits(
    service="EC2",
    action="ec2:CreateTags",
    max_tags=CLAIM_TAGS.max_tags,
    changes_per_second=1,
    changed_at_once=1000,
    read_at_once=FILTER_VALUES,
)


@final
class InstanceTagger:
    """Tags instances; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        cluster: str,
        reader: InstanceReader,
        last_listed: Callable[[], Mapping[str, DescribedInstance]],
        candidates: Callable[[], Iterable[str]] = tuple,
        shifts: Callable[[], ShiftedZones] = no_shifts,
    ) -> None:
        """`last_listed` is `ClusterInstances.last_listed`.

        `candidates` returns ids of instances that will have to be tagged soon: their tags are read
        together with those of the first one.
        """
        self._cluster: Final = cluster
        self._shifts: Final = shifts
        self._queue: Final = TagQueue(
            clock,
            _TagCalls(clients),
            _LIMITS,
            log_name="aws.tagging",
            reader=reader,
            last_listed=last_listed,
            candidates=lambda: (name for name in candidates() if not self._is_tagged(name)),
            is_held=lambda provider_id: shifts().has(parse_provider_id(provider_id)[0]),
        )

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Add the tags that an instance lacks.

        Raises:
            ThrottledError: it is not its turn yet.
            CloudProviderError: EC2 refused or did not answer, or its zone is shifted away from.
        """
        instance_id = self._queue.instance_to_tag(node_claim, node)
        if not instance_id or self._is_tagged(instance_id):
            return
        provider_id = node_claim.status.provider_id
        zone, _ = parse_provider_id(provider_id)
        refused = self._shifts().refuse("tagging", what=instance_id, zone=zone)
        if refused is not None:
            raise refused
        own = {
            NAME_TAG: node.name,
            NODE_CLAIM_TAG: node_claim.name,
            EKS_CLUSTER_NAME_TAG: self._cluster,
        }
        self._queue.sync(instance_id, provider_id, DesiredTags(added=own))

    def _is_tagged(self, instance_id: str) -> bool:
        """Whether an instance had all its tags when instances were last listed."""
        return (self._queue.listed_tags(instance_id) or {}).keys() >= _FINAL_KEYS


@final
class _TagCalls:
    """Calls that add tags."""

    def __init__(self, clients: CloudClients) -> None:
        self._clients: Final = clients

    def make(self, change: TagChange, instance_ids: Sequence[str]) -> None:
        with core_errors_of("ec2:CreateTags"):
            self._clients.ec2.create_tags(
                Resources=list(instance_ids), Tags=to_tag_list(dict(change.put))
            )

    def is_gone(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and is_not_found(failure.code)

    def is_refusal(self, error: CloudProviderError) -> bool:
        return is_refusal(error)
