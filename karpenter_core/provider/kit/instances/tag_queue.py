"""Aligns tags of instances with their NodeClaim, Node and NodeClass.

The names of node and claim are not known, or not yet certain, when an instance is launched. Changes are
made by a `ChangeQueue`: nothing waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

import structlog

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.instances.change_queue import ChangeQueue
from karpenter_core.provider.kit.instances.described import TaggedManagedInstance
from karpenter_core.provider.kit.instances.tag_changes import TagChange, tag_change
from karpenter_core.provider.kit.ttl_cache import TtlCache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.kit.claim_tags import ClaimTags
    from karpenter_core.provider.kit.instances.described import InstanceReader
    from karpenter_core.provider.kit.instances.tag_changes import DesiredTags
    from karpenter_core.provider.kit.recent_launches import ClaimRef

__all__ = ["TagCalls", "TagLimits", "TagQueue"]

_SIBLINGS_AWAITED: Final = timedelta(seconds=30)
"""Period of checks whether claims of the same launch name their instances."""
_REPORTED_LIFE: Final = timedelta(hours=1)
"""Period of log lines about an instance that cannot take all tags."""


Described = TypeVar("Described", bound=TaggedManagedInstance)


class TagCalls(Protocol):
    """A cloud's calls that change tags."""

    def make(self, change: TagChange, instance_ids: Sequence[str]) -> None:
        """Make a change of these instances; raise CloudProviderError for a failure.

        First come the tags of `TagChange.claim`, so that an instance always has a claim; then the
        removed ones, which make room for the others.
        """
        ...

    def is_gone(self, error: CloudProviderError) -> bool:
        """Whether a change failed because one of its instances does not exist."""
        ...

    def is_refusal(self, error: CloudProviderError) -> bool:
        """Whether a change was refused, and one of fewer instances may not be."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TagLimits:
    """The limits of a cloud's tags."""

    service: str
    """The cloud's name, for messages."""
    action: str
    """The name of the call that sets tags, for messages."""
    max_tags: int
    """Maximum number of tags of an instance."""
    changes_per_second: float
    changed_at_once: int
    """Maximum number of instances that one call changes."""
    read_at_once: int
    """Maximum number of instances that one call reads."""


@final
class TagQueue(Generic[Described]):
    """Changes the tags of instances; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        calls: TagCalls,
        limits: TagLimits,
        *,
        log_name: str,
        reader: InstanceReader[Described],
        last_listed: Callable[[], Mapping[str, Described]],
        claim_tags: ClaimTags | None = None,
        read_claims: Callable[[], Mapping[str, NodeClaim]] = dict,
        candidates: Callable[[], Iterable[str]] = tuple,
        is_held: Callable[[str], bool] = lambda _provider_id: False,
    ) -> None:
        """`last_listed` is `ClusterInstances.last_listed`, `read_claims` is that of the context.

        `candidates` is that of `ChangeQueue`. While `is_held` is true for the provider ID of an
        instance, its tags are not changed.
        """
        self._limits: Final = limits
        self._reader: Final = reader
        self._last_listed: Final = last_listed
        self._claim_tags: Final = claim_tags
        self._read_claims: Final = read_claims
        self._log: FilteringBoundLogger = structlog.get_logger(log_name)
        self._reported: Final[TtlCache[str, tuple[str, ...]]] = TtlCache(clock, _REPORTED_LIFE)
        """Keys that did not fit, by instance id, as last reported."""
        self._queue: Final = ChangeQueue(
            clock,
            _TagChanges(calls, reader, self._planner, is_held),
            action=limits.action,
            changes_per_second=limits.changes_per_second,
            changed_at_once=limits.changed_at_once,
            read_at_once=limits.read_at_once,
            listed_state=self.listed_tags,
            candidates=candidates,
        )

    def instance_to_tag(self, node_claim: NodeClaim, node: NodeView) -> str:
        """Return the id of the instance whose tags are to be changed; empty for none.

        A claim that is being deleted, or has no instance or node yet, needs no tags.
        """
        if node_claim.is_deleting or not node.name or not node_claim.status.provider_id:
            return ""
        try:
            return self._reader.instance_id(node_claim.status.provider_id)
        except CloudProviderError as error:
            self._log.error("instance cannot be tagged", error=str(error))
            return ""

    def listed_tags(self, instance_id: str) -> Mapping[str, str] | None:
        """Return the tags that an instance had when it was last listed; never a call."""
        listed = self._last_listed().get(instance_id)
        return None if listed is None else listed.tags

    def sync(self, instance_id: str, provider_id: str, desired: DesiredTags) -> None:
        """Bring the tags of an instance in line.

        Raises:
            ThrottledError: it is not its turn yet, or its tags wait for the claims of its launch.
            CloudProviderError: the cloud refused or did not answer.
        """
        tags = self._queue.sync(instance_id, (provider_id, desired))
        if tags is not None:
            self._check_room(instance_id, tags, desired)

    def _planner(self) -> Callable[[Mapping[str, str], DesiredTags], TagChange]:
        """Return what plans changes.

        The first change that lacks room reads the claims, once for all: that waits for the event loop,
        and most instances have room for their tags.
        """
        claims = cache(self._read_claims)

        def is_settled(claim: ClaimRef) -> bool:
            node_claim = claims().get(claim.name)
            return (
                node_claim is None
                or node_claim.uid != claim.uid
                or bool(node_claim.status.provider_id)
            )

        def plan(tags: Mapping[str, str], desired: DesiredTags) -> TagChange:
            return tag_change(
                tags,
                desired,
                max_tags=self._limits.max_tags,
                claim_tags=self._claim_tags,
                is_settled=is_settled,
            )

        return plan

    def _check_room(self, name: str, tags: Mapping[str, str], desired: DesiredTags) -> None:
        """Report the tags that an instance cannot take.

        Raises:
            ThrottledError: the tags fit when all claims of its launch name their instances.
        """
        left_out = self._planner()(tags, desired).left_out
        if not left_out:
            return
        if self._reported.get(name) != left_out:
            self._reported.put(name, left_out)
            self._log.warning(
                f"instance cannot take all tags: {self._limits.service} allows "
                f"{self._limits.max_tags}",
                instance=name,
                NodeClaim={"name": "" if desired.claim is None else desired.claim.name},
                keys=list(left_out),
            )
        formats = self._claim_tags
        if formats and any(formats.is_key(key) and key != formats.key for key in tags):
            raise ThrottledError(
                f"tags {', '.join(left_out)} of {name} wait until all NodeClaims of its launch name "
                "their instances",
                retry_after=_SIBLINGS_AWAITED,
            )


@final
class _TagChanges(Generic[Described]):
    """Changes of tags for the queue; what is desired is a provider ID and its tags."""

    def __init__(
        self,
        calls: TagCalls,
        reader: InstanceReader[Described],
        planner: Callable[[], Callable[[Mapping[str, str], DesiredTags], TagChange]],
        is_held: Callable[[str], bool],
    ) -> None:
        self._reader: Final = reader
        self._planner: Final = planner
        self._is_held: Final = is_held
        self.make: Final = calls.make
        self.is_gone: Final = calls.is_gone
        self.is_refusal: Final = calls.is_refusal

    def read(self, instance_ids: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        instances = self._reader.of_ids(instance_ids)
        return {name: each.tags for name, each in instances.items() if not each.is_leaving}

    def planner(self) -> Callable[[Mapping[str, str], tuple[str, DesiredTags]], TagChange]:
        """Return no change for an instance that is held; it comes again."""
        plan_tags = self._planner()

        def plan(tags: Mapping[str, str], desired: tuple[str, DesiredTags]) -> TagChange:
            provider_id, desired_tags = desired
            return TagChange() if self._is_held(provider_id) else plan_tags(tags, desired_tags)

        return plan

    def changed(self, state: Mapping[str, str], change: TagChange) -> Mapping[str, str]:
        return change.applied(state)
