"""Adds missing tags to running instances, and updates NodeClass tags.

Node and claim are known once the node has registered; their tags are added where they are missing,
and no existing tag is overwritten. The tags of the NodeClass are updated: they are no reason to
replace a node. ECS tags fifty instances at once where all get the same tags, so waiting instances
that lack the same tags share a call. There is one change a second at most, and an earlier request
gets the time at which to come again. A refused change of many instances is split until each refused
instance stands alone; it is tried again later.

An instance of a large launch has most of its twenty tags from the claims of the launch. Where other
tags need the space, those give way to the instance's own claim, once all claims of the launch name
their instance.
"""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.recent_launches import ClaimRef
from karpenter_core.provider.kit.token_bucket import TokenBucket
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
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
_REFUSED_LIFE: Final = timedelta(minutes=1)
"""How long an instance whose tags were refused is left alone."""
_SIBLINGS_AWAITED: Final = timedelta(seconds=30)
"""Period of checks whether claims of the same launch name their instances."""
_REPORTED_LIFE: Final = timedelta(hours=1)
"""Period of log lines about an instance that cannot take all tags."""
_READ_LIFE: Final = timedelta(minutes=5)
"""How long what we read or wrote counts more than the last listing, which may be older."""


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
        self._clients: Final = clients
        self._cluster_id: Final = cluster_id
        self._reader: Final = reader
        self._last_listed: Final = last_listed
        self._node_class: Final = node_class
        self._read_claims: Final = read_claims
        self._bucket: Final = TokenBucket(
            rate_per_second=_CHANGES_PER_SECOND, burst=1, monotonic=clock.monotonic
        )
        self._lock: Final = Lock()
        self._waiting: Final[dict[str, DesiredTags]] = {}
        """By instance id, in the order in which they came."""
        self._busy: Final[set[str]] = set()
        self._read: Final[TtlCache[str, Mapping[str, str]]] = TtlCache(clock, _READ_LIFE)
        self._refused: Final[TtlCache[str, CloudProviderError]] = TtlCache(clock, _REFUSED_LIFE)
        """Errors of instances whose tags could not be changed."""
        self._parts: Final[TtlCache[str, int]] = TtlCache(clock, _REFUSED_LIFE)
        """Parts of refused changes by instance: only instances of one part share a call."""
        self._next_part = 0
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
        refused = self._refused.get(name)
        if refused is not None:
            raise refused
        desired = self._wish(node_claim, node)
        tags = self._tags_of(name)
        if tags is not None and not tag_change(tags, desired, is_settled=self._settled_check()):
            with self._lock:
                self._waiting.pop(name, None)
            self._check_room(name, tags, desired)
            return
        with self._lock:
            self._waiting[name] = desired
        if self._bucket.try_take():
            self._change_some()
        with self._lock:
            position = next((n for n, each in enumerate(self._waiting) if each == name), None)
        if position is not None:
            raise ThrottledError(
                f"ecs:TagResources: {name} waits for the rate limit",
                retry_after=timedelta(seconds=(position + 1) / _CHANGES_PER_SECOND),
            )
        refused = self._refused.get(name)
        if refused is not None:
            raise refused
        tags = self._tags_of(name)
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

    def _tags_of(self, name: str) -> Mapping[str, str] | None:
        """Return the tags of an instance; None when they are to be read."""
        tags = self._read.get(name)
        if tags is not None:
            return tags
        listed = self._last_listed().get(name)
        return None if listed is None else listed.tags

    def _change_some(self) -> None:
        """Change the tags of who has waited longest, and of all that need the same change."""
        self._read_some()
        with self._lock:
            desired_by_id = {k: v for k, v in self._waiting.items() if k not in self._busy}
        is_settled = self._settled_check()
        changes = {
            name: tag_change(tags, desired, is_settled=is_settled)
            for name, desired in desired_by_id.items()
            if (tags := self._read.get(name)) is not None
        }
        self._done(name for name, change in changes.items() if not change)
        first = next((name for name, change in changes.items() if change), None)
        if first is None:
            return
        change, part = changes[first], self._parts.get(first)
        alike = [
            name
            for name, other in changes.items()
            if other == change and self._parts.get(name) == part
        ][:TAGGED_AT_ONCE]
        with self._lock:
            self._busy.update(alike)
        try:
            self._make(change, alike)
        finally:
            with self._lock:
                self._busy.difference_update(alike)

    def _read_some(self) -> None:
        """Read the tags of those that wait, once: a listing may be older than somebody's tag.

        What is gone needs none.
        """
        with self._lock:
            waiting = list(self._waiting)
        unread = [name for name in waiting if self._read.get(name) is None][:AT_ONCE]
        instances = self._reader.of_ids(unread) if unread else {}
        self._done(name for name in unread if name not in instances or instances[name].is_leaving)
        for name, instance in instances.items():
            self._read.put(name, instance.tags)

    def _make(self, change: TagChange, names: Sequence[str]) -> None:
        where = {
            "RegionId": self._clients.region,
            "ResourceType": "instance",
            "ResourceId": list(names),
        }
        before = {name: self._read.get(name) or {} for name in names}
        try:
            with core_errors_of():
                # The own claim comes before the others of its launch go: an instance is never nobody's.
                if change.claim:
                    self._clients.ecs.call(
                        "TagResources", {**where, "Tag": to_tag_list(dict(change.claim))}
                    )
                # Then what goes, to have room for what comes.
                if change.removed:
                    self._clients.ecs.call(
                        "UntagResources", {**where, "TagKey": list(change.removed)}
                    )
                if change.put:
                    self._clients.ecs.call(
                        "TagResources", {**where, "Tag": to_tag_list(dict(change.put))}
                    )
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or failure.error_class in _PASSING:
                raise
            if failure.error_class is ErrorClass.NOT_FOUND:
                # One of them is gone: they are looked at anew, and the others come again.
                self._read_again(names)
            else:
                self._set_apart(names, error)
            return
        for name in names:
            self._read.put(name, change.applied(before[name]))
        self._done(names)

    def _set_apart(self, names: Sequence[str], error: CloudProviderError) -> None:
        """Halve a change that was refused; a single instance waits no more, and holds up no other."""
        if len(names) == 1:
            self._refused.put(names[0], error)
            self._done(names)
            return
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):
            with self._lock:
                self._next_part += 1
                part = self._next_part
            for name in half:
                self._parts.put(name, part)
                self._read.drop(name)  # some of the change may have been made

    def _read_again(self, names: Sequence[str]) -> None:
        instances = self._reader.of_ids(names)
        self._done(name for name in names if name not in instances)
        for name, instance in instances.items():
            self._read.put(name, instance.tags)

    def _done(self, names: Iterable[str]) -> None:
        names = list(names)
        with self._lock:
            for name in names:
                self._waiting.pop(name, None)
