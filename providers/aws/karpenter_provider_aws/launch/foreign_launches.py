"""Finds the instances of launches that another Karpenter had under way when this process took over.

Karpenter's own controller writes on an instance the cluster, the NodePool and the NodeClass, but not the
NodeClaim before its node has registered, and CreateFleet gets no client token from it. If it ends between the
answer of a fleet and the write of the NodeClaim, nothing names the pair. Such an instance goes to a NodeClaim
that it could have been launched for: of the same NodePool and NodeClass, created no later than it was launched,
with requirements that it meets. NodeClaims of this kind are interchangeable.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.catalogue import Requirements
from karpenter_provider_aws.instance_tags import CLAIM_TAGS, INDEX_TAG
from karpenter_provider_aws.labels import NODE_CLAIM_TAG, NODE_CLASS_TAG, NODE_POOL_TAG, ZONE_ID
from karpenter_provider_aws.launch.fleet_cloud import EC2_TRAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchedInstance, LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_provider_aws.described_instances import DescribedInstance, InstanceReader

__all__ = ["ForeignLaunches", "could_be_launched_for"]


def could_be_launched_for(request: LaunchRequest, instance: DescribedInstance) -> bool:
    """Tell whether an instance, which names no NodeClaim, may have been launched for this one."""
    claim, tags = request.node_claim, instance.tags
    created = claim.metadata.creation_timestamp
    if created is None or instance.launched_at is None or instance.launched_at < created:
        return False
    pool = claim.metadata.labels.get(NODE_POOL, "")
    if tags.get(NODE_POOL_TAG) != pool or tags.get(NODE_CLASS_TAG) != request.node_class.name:
        return False
    if instance.instance_type not in {it.name for it in request.instance_types}:
        return False
    required = Requirements.from_specs(claim.spec.requirements)
    actual = {
        INSTANCE_TYPE: instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
    }
    if instance.zone_id:
        actual[ZONE_ID] = instance.zone_id
    return all(required.get(key).has(value) for key, value in actual.items())


@final
class ForeignLaunches:
    """Launches NodeClaims for which no instance of another Karpenter is found; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        launch: Callable[[Sequence[LaunchRequest]], Sequence[LaunchOutcome]],
        outcome_of: Callable[[LaunchRequest, DescribedInstance], LaunchedInstance],
        reader: InstanceReader,
        owners: InstanceOwners,
    ) -> None:
        """`launch` is `ClaimLauncher.launch`, `outcome_of` is `FleetCloud.outcome_of_existing`."""
        self._clock: Final = clock
        self._launch: Final = launch
        self._outcome_of: Final = outcome_of
        self._reader: Final = reader
        self._owners: Final = owners
        self._log: FilteringBoundLogger = structlog.get_logger(EC2_TRAITS.log_name)
        self._lock: Final = Lock()
        self._began: datetime | None = None
        """Time of this process's first launch; younger NodeClaims were launched by no other."""
        self._given: Final[dict[str, str]] = {}
        """UIDs of the NodeClaims that got an instance, by instance id."""

    def launch(self, requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
        """Return the outcomes of the requests, in their order.

        Raises:
            CloudProviderError: EC2 could not say what exists; nothing was sent.
        """
        found = self._found(requests)
        rest = [request for request in requests if request.token not in found]
        launched = dict(
            zip(
                (request.token for request in rest), self._launch(rest) if rest else (), strict=True
            )
        )
        return [
            found[request.token] if request.token in found else launched[request.token]
            for request in requests
        ]

    def _found(self, requests: Sequence[LaunchRequest]) -> Mapping[str, LaunchedInstance]:
        """Return the instances of another Karpenter, by the token of their request."""
        with self._lock:
            if self._began is None:
                self._began = self._clock.now()
            older = [request for request in requests if self._is_older(request, self._began)]
            if not older:
                return {}
            unnamed = self._unnamed()
            found: dict[str, LaunchedInstance] = {}
            for request in older:
                instance = self._instance_for(request, unnamed)
                if instance is None:
                    continue
                self._given[instance.id] = request.token
                found[request.token] = self._outcome_of(request, instance)
                self._log.info(
                    "found the instance of a launch that was under way at the take-over",
                    instance=instance.id,
                    NodeClaim={"name": request.node_claim.name},
                )
            return found

    @staticmethod
    def _is_older(request: LaunchRequest, began: datetime) -> bool:
        created = request.node_claim.metadata.creation_timestamp
        return created is not None and created <= began

    def _unnamed(self) -> list[DescribedInstance]:
        """Return the living instances that name no NodeClaim and that no NodeClaim names."""
        described = self._reader.of_cluster()
        if described.problem:
            raise CloudProviderError(described.problem)
        owners = self._owners()
        return [
            instance
            for instance in described.instances
            if not instance.is_leaving
            and instance.id not in owners
            and not any(
                key in {INDEX_TAG, NODE_CLAIM_TAG} or CLAIM_TAGS.is_key(key)
                for key in instance.tags
            )
        ]

    def _instance_for(
        self, request: LaunchRequest, unnamed: Sequence[DescribedInstance]
    ) -> DescribedInstance | None:
        for instance in unnamed:
            if self._given.get(instance.id, request.token) != request.token:
                continue
            if could_be_launched_for(request, instance):
                return instance
        return None
