"""Adds missing tags to running instances, and updates NodeClass tags.

Node and claim are known once the node has registered; their tags are added where they are missing,
and no existing tag is overwritten. The tags of the NodeClass are updated: they are no reason to
replace a node. ECS tags fifty instances at once where all get the same tags.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

from karpenter_core.provider.kit.instances.tag_changes import DesiredTags
from karpenter_core.provider.kit.instances.tag_queue import TagLimits, TagQueue
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.described_instances import AT_ONCE
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_alibabacloud.instance_tags import (
    CLAIM_TAGS,
    restricted_tags,
    to_tag_list,
)
from karpenter_provider_alibabacloud.labels import (
    CLUSTER_ID_TAG,
    MAX_TAGS,
    NAME_TAG,
    NODE_CLAIM_TAG,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.errors import CloudProviderError
    from karpenter_core.provider.kit.instances.tag_changes import TagChange
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients

__all__ = ["InstanceTagger"]

TAGGED_AT_ONCE: Final = 50
"""Resources of one TagResources call (API reference)."""
_LIMITS: Final = TagLimits(
    service="ECS",
    action="ecs:TagResources",
    max_tags=MAX_TAGS,
    changes_per_second=1,
    changed_at_once=TAGGED_AT_ONCE,
    read_at_once=AT_ONCE,
)
_PASSING: Final = frozenset({ErrorClass.THROTTLED, ErrorClass.TRANSIENT})
"""Failures that say nothing about an instance."""


@final
class InstanceTagger:
    """Tags instances; callable from any thread."""

    def __init__(
        self,
        clients: CloudClients,
        clock: Clock,
        *,
        cluster_id: str,
        reader: InstanceReader,
        last_listed: Callable[[], Mapping[str, DescribedInstance]],
        node_class: Callable[[str], ECSNodeClass | None],
        read_claims: Callable[[], Mapping[str, NodeClaim]],
    ) -> None:
        """`last_listed` is `Instances.last_listed`, `node_class` is `Known.node_class`.

        `read_claims` is `ProviderContext.read_claims`.

        A new process is asked for every instance, and what was listed is not asked for again.
        """
        self._cluster_id: Final = cluster_id
        self._node_class: Final = node_class
        self._queue: Final = TagQueue(
            clock,
            _TagCalls(clients),
            _LIMITS,
            log_name="alibabacloud.tagging",
            reader=reader,
            last_listed=last_listed,
            claim_tags=CLAIM_TAGS,
            read_claims=read_claims,
        )
        self._lock: Final = Lock()
        self._wishes: Final[dict[str, tuple[Mapping[str, str], frozenset[tuple[str, str]]]]] = {}
        """By NodeClass: its tags, and those that it had and has no more."""

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Bring the tags of an instance in line.

        Raises:
            ThrottledError: it is not its turn yet, or its tags wait for the claims of its launch.
            CloudProviderError: ECS refused or did not answer.
        """
        name = self._queue.instance_to_tag(node_claim, node)
        if name:
            desired = self._wish(node_claim, node)
            self._queue.sync(name, node_claim.status.provider_id, desired)

    def _wish(self, node_claim: NodeClaim, node: NodeView) -> DesiredTags:
        own = {
            NODE_CLAIM_TAG: node_claim.name,
            NAME_TAG: node.name,
            CLUSTER_ID_TAG: self._cluster_id,
        }
        node_class = self._node_class(node_claim.spec.node_class_ref.name)
        claim = ClaimRef(name=node_claim.name, uid=node_claim.uid)
        if node_class is None:
            return DesiredTags(added=own, claim=claim)
        theirs, obsolete = self._of_class(node_class)
        return DesiredTags(added=own, set=theirs, obsolete=obsolete, claim=claim)

    def _of_class(
        self, node_class: ECSNodeClass
    ) -> tuple[Mapping[str, str], frozenset[tuple[str, str]]]:
        """Return the tags of a NodeClass, and those it had and has no more.

        Only what was seen in this process's life is known to be the NodeClass's, and taken away.
        """
        given = node_class.spec.tags
        barred = set(restricted_tags(given))
        tags = {key: given[key] for key in sorted(given) if key not in barred}
        with self._lock:
            before, obsolete = self._wishes.get(node_class.name, ({}, frozenset()))
            obsolete = (obsolete | frozenset(before.items())) - frozenset(tags.items())
            self._wishes[node_class.name] = (tags, obsolete)
            return tags, obsolete


@final
class _TagCalls:
    """Calls that change tags."""

    def __init__(self, clients: CloudClients) -> None:
        self._clients: Final = clients

    def make(self, change: TagChange, instance_ids: Sequence[str]) -> None:
        where = {
            "RegionId": self._clients.region,
            "ResourceType": "instance",
            "ResourceId": list(instance_ids),
        }
        call = self._clients.ecs.call
        with core_errors_of():
            # The own claim comes before the others of its launch go: an instance is never without a claim.
            if change.claim:
                call("TagResources", {**where, "Tag": to_tag_list(dict(change.claim))})
            # Then what goes, to have room for what comes.
            if change.removed:
                call("UntagResources", {**where, "TagKey": list(change.removed)})
            if change.put:
                call("TagResources", {**where, "Tag": to_tag_list(dict(change.put))})

    def is_gone(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and failure.error_class is ErrorClass.NOT_FOUND

    def is_refusal(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and failure.error_class not in _PASSING
