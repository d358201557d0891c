"""Adds missing tags to running instances, and updates NodeClass tags.

Node and claim are known once the node has registered; their tags are added where they are missing,
and no existing tag is overwritten. The tags of the NodeClass are updated: they are no reason to
replace a node. ECS tags fifty instances at once where all get the same tags.

An instance of a large launch has most of its twenty tags from the claims of the launch. Where other
tags need the space, those give way to the instance's own claim, once all claims of the launch name
their instance.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.instances.change_queue import ChangeQueue
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_alibabacloud.codes import ErrorClass
from karpenter_provider_alibabacloud.described_instances import AT_ONCE, parse_provider_id
from karpenter_provider_alibabacloud.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_alibabacloud.instance_tags import (
    CLAIM_TAGS,
    restricted_tags,
    to_tag_list,
)
from karpenter_provider_alibabacloud.labels import (
    CLUSTER_ID_TAG,
    NAME_TAG,
    NODE_CLAIM_TAG,
)
from karpenter_provider_alibabacloud.tag_changes import DesiredTags, tag_change

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.sdk import CloudClients
    from karpenter_provider_alibabacloud.tag_changes import TagChange

__all__ = ["InstanceTagger"]

TAGGED_AT_ONCE: Final = 50
"""Resources of one TagResources call (API reference)."""
_CHANGES_PER_SECOND: Final = 1
_SIBLINGS_AWAITED: Final = timedelta(seconds=30)
"""Period of checks whether claims of the same launch name their instances."""
_REPORTED_LIFE: Final = timedelta(hours=1)
"""Period of log lines about an instance that cannot take all tags."""
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
        self._read_claims: Final = read_claims

        def listed_tags(name: str) -> Mapping[str, str] | None:
            listed = last_listed().get(name)
            return None if listed is None else listed.tags

        self._queue: Final = ChangeQueue(
            clock,
            _TagChanges(clients, reader, self._settled_check),
            action="ecs:TagResources",
            changes_per_second=_CHANGES_PER_SECOND,
            changed_at_once=TAGGED_AT_ONCE,
            read_at_once=AT_ONCE,
            listed_state=listed_tags,
        )
        self._lock: Final = Lock()
        self._reported: Final[TtlCache[str, tuple[str, ...]]] = TtlCache(clock, _REPORTED_LIFE)
        """Keys that did not fit, by instance id, as last reported."""
        self._wishes: Final[dict[str, tuple[Mapping[str, str], frozenset[tuple[str, str]]]]] = {}
        """By NodeClass: its tags, and those that it had and has no more."""
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.tagging")

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Bring the tags of an instance in line.

        Raises:
            ThrottledError: it is not its turn yet, or its tags wait for the claims of its launch.
            CloudProviderError: ECS refused or did not answer.
        """
        if node_claim.is_deleting or not node.name or not node_claim.status.provider_id:
            return
        try:
            _, name = parse_provider_id(node_claim.status.provider_id)
        except CloudProviderError as error:
            self._log.error("instance cannot be tagged", error=str(error))
            return
        desired = self._wish(node_claim, node)
        tags = self._queue.sync(name, desired)
        if tags is not None:
            self._check_room(name, tags, desired)

    def _settled_check(self) -> Callable[[ClaimRef], bool]:
        """Return `is_settled` of `tag_change`.

        The first question reads the claims, once: that waits for the event loop, and most instances have
        room for their tags and raise no question.
        """
        claims = cache(self._read_claims)

        def is_settled(claim: ClaimRef) -> bool:
            node_claim = claims().get(claim.name)
            return (
                node_claim is None
                or node_claim.uid != claim.uid
                or bool(node_claim.status.provider_id)
            )

        return is_settled

    def _check_room(self, name: str, tags: Mapping[str, str], desired: DesiredTags) -> None:
        """Report the tags that an instance cannot take.

        Raises:
            ThrottledError: the tags fit when all claims of its launch name their instances.
        """
        left_out = tag_change(tags, desired, is_settled=self._settled_check()).left_out
        if not left_out:
            return
        if self._reported.get(name) != left_out:
            self._reported.put(name, left_out)
            self._log.warning(
                "instance cannot take all tags: ECS allows 20",
                instance=name,
                NodeClaim={"name": "" if desired.claim is None else desired.claim.name},
                keys=list(left_out),
            )
        if any(CLAIM_TAGS.is_key(key) and key != CLAIM_TAGS.key for key in tags):
            raise ThrottledError(
                f"tags {', '.join(left_out)} of {name} wait until all NodeClaims of its launch name "
                "their instances",
                retry_after=_SIBLINGS_AWAITED,
            )

    def _wish(self, node_claim: NodeClaim, node: NodeView) -> DesiredTags:
        own = {
            NODE_CLAIM_TAG: node_claim.name,
            NAME_TAG: node.name,
            CLUSTER_ID_TAG: self._cluster_id,
        }
        node_class = self._node_class(node_claim.spec.node_class_ref.name)
        claim = ClaimRef(name=node_claim.name, uid=node_claim.uid)
        if node_class is None:
            return DesiredTags(added=own, set={}, claim=claim)
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
class _TagChanges:
    """Calls that read and change tags."""

    def __init__(
        self,
        clients: CloudClients,
        reader: InstanceReader,
        settled_check: Callable[[], Callable[[ClaimRef], bool]],
    ) -> None:
        self._clients: Final = clients
        self._reader: Final = reader
        self._settled_check: Final = settled_check

    def read(self, instance_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        instances = self._reader.of_ids(instance_ids)
        return {name: each.tags for name, each in instances.items() if not each.is_leaving}

    def planner(self) -> Callable[[Mapping[str, str], DesiredTags], TagChange]:
        return partial(tag_change, is_settled=self._settled_check())

    def make(self, change: TagChange, instance_ids: Sequence[str]) -> None:
        where = {
            "RegionId": self._clients.region,
            "ResourceType": "instance",
            "ResourceId": list(instance_ids),
        }
        call = self._clients.ecs.call
        with core_errors_of():
            # The own claim comes before the others of its launch go: an instance is never nobody's.
            if change.claim:
                call("TagResources", {**where, "Tag": to_tag_list(dict(change.claim))})
            # Then what goes, to have room for what comes.
            if change.removed:
                call("UntagResources", {**where, "TagKey": list(change.removed)})
            if change.put:
                call("TagResources", {**where, "Tag": to_tag_list(dict(change.put))})

    def changed(self, state: Mapping[str, str], change: TagChange) -> Mapping[str, str]:
        return change.applied(state)

    def is_gone(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and failure.error_class is ErrorClass.NOT_FOUND

    def is_refusal(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and failure.error_class not in _PASSING
