"""Adds missing tags to instances whose node has registered.

The names of node and claim are not known, or not yet certain, when an instance is launched. Only
missing tags are added, so that a user's `Name` stays. EC2 takes few calls that change tags, and
nothing waits for these: there is one a second at most, and an earlier request gets the time at
which to come again. One call reads the tags of many instances.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.errors import CloudProviderError, ThrottledError
from karpenter_core.provider.kit.token_bucket import TokenBucket
from karpenter_core.provider.kit.ttl_cache import TtlCache
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.described_instances import FILTER_VALUES, parse_provider_id
from karpenter_provider_aws.discovery.call_errors import core_errors_of, refusal_behind
from karpenter_provider_aws.instance_tags import to_tag_list
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NAME_TAG, NODE_CLAIM_TAG
from karpenter_provider_aws.zonal_shift import no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_provider_aws.described_instances import InstanceReader
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["InstanceTagger", "missing_tags"]

_CALLS_PER_SECOND: Final = 1
_TURN_LIFE: Final = timedelta(hours=1)
"""How long a turn is kept for who does not come back."""
_READ_LIFE: Final = timedelta(minutes=5)
"""How long what was read of an instance's tags is believed."""
_ALL_KEYS: Final = frozenset({NAME_TAG, NODE_CLAIM_TAG, EKS_CLUSTER_NAME_TAG})
"""Of an instance that goes nothing is missing."""


def missing_tags(
    tags: Iterable[str], *, node: str, node_claim: str, cluster: str
) -> dict[str, str]:
    """Return what is to be added to an instance that has these keys."""
    required_tags = {NAME_TAG: node, NODE_CLAIM_TAG: node_claim, EKS_CLUSTER_NAME_TAG: cluster}
    there = set(tags)
    return {key: value for key, value in required_tags.items() if key not in there and value}


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
        is_tagged: Callable[[str], bool] = lambda _: False,
        candidates: Callable[[], Iterable[str]] = tuple,
        shifts: Callable[[], ShiftedZones] = no_shifts,
    ) -> None:
        """`is_tagged` is `Instances.is_tagged`: a new process is asked for every instance at once.

        `candidates` returns ids of instances that will have to be tagged soon: their tags are read
        together with those of the first one.
        """
        self._clients: Final = clients
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._reader: Final = reader
        self._is_tagged: Final = is_tagged
        self._candidates: Final = candidates
        self._shifts: Final = shifts
        self._bucket: Final = TokenBucket(
            rate_per_second=_CALLS_PER_SECOND, burst=1, monotonic=clock.monotonic
        )
        self._lock: Final = Lock()
        self._turns: Final[TtlCache[str, float]] = TtlCache(clock, _TURN_LIFE)
        """When each instance that waits may be tagged: monotonic seconds."""
        self._reading: Final = Lock()
        self._keys: Final[TtlCache[str, frozenset[str]]] = TtlCache(clock, _READ_LIFE)
        """Keys of the tags of instances, as read."""
        self._log: FilteringBoundLogger = structlog.get_logger("aws.tagging")

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Add the tags that an instance lacks.

        Raises:
            ThrottledError: it is not its turn yet; nothing was done.
            CloudProviderError: EC2 refused or did not answer, or its zone is shifted away from.
        """
        provider_id = node_claim.status.provider_id
        if node_claim.is_deleting or not node.name or not provider_id:
            return
        try:
            zone, instance_id = parse_provider_id(provider_id)
        except CloudProviderError as error:
            self._log.error("instance cannot be tagged", error=str(error))
            return
        if self._is_tagged(instance_id):
            return
        refused = self._shifts().refuse("tagging", what=instance_id, zone=zone)
        if refused is not None:
            raise refused
        missing = self._missing_of(instance_id, node_claim, node)
        if not missing:
            return
        self._wait_for_turn(instance_id)
        self._tag(instance_id, missing)

    def _missing_of(
        self, instance_id: str, node_claim: NodeClaim, node: NodeView
    ) -> Mapping[str, str]:
        """Return what is missing; of an instance that is gone nothing is."""
        keys = self._keys.get(instance_id)
        if keys is None:
            with self._reading:  # the call of another thread may have read it meanwhile
                keys = self._keys.get(instance_id)
                if keys is None:
                    self._read(instance_id)
                    keys = self._keys.get(instance_id)
        if keys is None:  # EC2 does not show it
            return {}
        return missing_tags(keys, node=node.name, node_claim=node_claim.name, cluster=self._cluster)

    def _read(self, instance_id: str) -> None:
        """Read the tags of an instance, and of others that will be asked for, by one call."""
        others = {*self._candidates(), *self._turns.items()} - {instance_id, ""}
        unread = (
            name
            for name in sorted(others)
            if self._keys.get(name) is None and not self._is_tagged(name)
        )
        instance_ids = [instance_id, *islice(unread, FILTER_VALUES - 1)]
        for name, instance in self._reader.of_ids(instance_ids).items():
            keys = _ALL_KEYS if instance.is_leaving else frozenset(instance.tags)
            self._keys.put(name, keys)

    def _wait_for_turn(self, instance_id: str) -> None:
        now = self._clock.monotonic()
        with self._lock:
            turn = self._turns.get(instance_id)
            if turn is None:
                turn = now + self._bucket.reserve()
                self._turns.put(instance_id, turn)
        if turn > now:
            raise ThrottledError(
                f"ec2:CreateTags: {instance_id} waits for the rate limit",
                retry_after=timedelta(seconds=turn - now),
            )

    def _tag(self, instance_id: str, missing: Mapping[str, str]) -> None:
        self._turns.drop(instance_id)
        tag_keys = self._keys.get(instance_id) or frozenset()
        self._keys.drop(instance_id)
        try:
            with core_errors_of("ec2:CreateTags"):
                self._clients.ec2.create_tags(Resources=[instance_id], Tags=to_tag_list(missing))
        except CloudProviderError as error:
            failure = refusal_behind(error)
            if failure is None or not is_not_found(failure.code):
                raise
        self._keys.put(instance_id, tag_keys | missing.keys())
