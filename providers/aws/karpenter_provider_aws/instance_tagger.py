"""Adds missing tags to instances whose node has registered.

The names of node and claim are not known, or not yet certain, when an instance is launched. Only
missing tags are added, so that a user's `Name` stays. EC2 takes few calls that change tags: there is
one a second at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, final

import structlog

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.kit.instances.change_queue import ChangeQueue
from karpenter_provider_aws.codes import is_not_found
from karpenter_provider_aws.described_instances import FILTER_VALUES, parse_provider_id
from karpenter_provider_aws.discovery.call_errors import core_errors_of, is_refusal, refusal_behind
from karpenter_provider_aws.instance_tags import to_tag_list
from karpenter_provider_aws.labels import EKS_CLUSTER_NAME_TAG, NAME_TAG, NODE_CLAIM_TAG
from karpenter_provider_aws.zonal_shift import no_shifts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.nodeclaim import NodeClaim
    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader
    from karpenter_provider_aws.sdk import CloudClients
    from karpenter_provider_aws.zonal_shift import ShiftedZones

__all__ = ["InstanceTagger", "missing_tags"]

_CALLS_PER_SECOND: Final = 1
_TAGGED_AT_ONCE: Final = 1000
"""Resources of one call (API reference of CreateTags)."""

_FINAL_KEYS: Final = frozenset({NAME_TAG, NODE_CLAIM_TAG, EKS_CLUSTER_NAME_TAG})
_Tags: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class _DesiredTags:
    """The names that an instance's tags tell."""

    zone: str
    node: str
    node_claim: str


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
        last_listed: Callable[[], Mapping[str, DescribedInstance]],
        candidates: Callable[[], Iterable[str]] = tuple,
        shifts: Callable[[], ShiftedZones] = no_shifts,
    ) -> None:
        """`last_listed` is `ClusterInstances.last_listed`.

        `candidates` returns ids of instances that will have to be tagged soon: their tags are read
        together with those of the first one.
        """
        self._shifts: Final = shifts

        self._last_listed: Final = last_listed
        self._queue: Final = ChangeQueue(
            clock,
            _TagChanges(clients, reader, cluster=cluster, shifts=shifts),
            action="ec2:CreateTags",
            changes_per_second=_CALLS_PER_SECOND,
            changed_at_once=_TAGGED_AT_ONCE,
            read_at_once=FILTER_VALUES,
            listed_state=self._listed_keys,
            candidates=lambda: (name for name in candidates() if not self._is_tagged(name)),
        )
        self._log: FilteringBoundLogger = structlog.get_logger("aws.tagging")

    def sync(self, node_claim: NodeClaim, node: NodeView) -> None:
        """Add the tags that an instance lacks.

        Raises:
            ThrottledError: it is not its turn yet.
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
        self._queue.sync(
            instance_id, _DesiredTags(zone=zone, node=node.name, node_claim=node_claim.name)
        )

    def _listed_keys(self, instance_id: str) -> frozenset[str] | None:
        listed = self._last_listed().get(instance_id)
        return None if listed is None else frozenset(listed.tags)

    def _is_tagged(self, instance_id: str) -> bool:
        """Whether an instance had all its tags when instances were last listed."""
        return (self._listed_keys(instance_id) or frozenset()) >= _FINAL_KEYS


@final
class _TagChanges:
    """Calls that read and add tags; a state is the keys of the tags."""

    def __init__(
        self,
        clients: CloudClients,
        reader: InstanceReader,
        *,
        cluster: str,
        shifts: Callable[[], ShiftedZones],
    ) -> None:
        self._clients: Final = clients
        self._reader: Final = reader
        self._cluster: Final = cluster
        self._shifts: Final = shifts

    def read(self, instance_ids: Sequence[str]) -> Mapping[str, frozenset[str]]:
        instances = self._reader.of_ids(instance_ids)
        return {n: frozenset(it.tags) for n, it in instances.items() if not it.is_leaving}

    def planner(self) -> Callable[[frozenset[str], _DesiredTags], _Tags]:
        """Return no change for instances of zones that traffic is shifted away from."""
        shifted = self._shifts()

        def plan(keys: frozenset[str], desired: _DesiredTags) -> _Tags:
            if shifted.has(desired.zone):
                return ()
            missing = missing_tags(
                keys, node=desired.node, node_claim=desired.node_claim, cluster=self._cluster
            )
            return tuple(sorted(missing.items()))

        return plan

    def make(self, change: _Tags, instance_ids: Sequence[str]) -> None:
        with core_errors_of("ec2:CreateTags"):
            self._clients.ec2.create_tags(
                Resources=list(instance_ids), Tags=to_tag_list(dict(change))
            )

    def changed(self, state: frozenset[str], change: _Tags) -> frozenset[str]:
        return state | dict(change).keys()

    def is_gone(self, error: CloudProviderError) -> bool:
        failure = refusal_behind(error)
        return failure is not None and is_not_found(failure.code)

    def is_refusal(self, error: CloudProviderError) -> bool:
        return is_refusal(error)
