"""Finds instances of launches that another Karpenter left unfinished.

Karpenter's own controllers for AWS and Alibaba Cloud write on an instance the cluster, the NodePool and
the NodeClass, but not the NodeClaim before its node has registered, and their launches have no client
token. If one ends between the answer of the cloud and the write of the NodeClaim, nothing names the
pair. Such an instance goes to a NodeClaim that it could have been launched for: of the same NodePool
and NodeClass, created no later than it was launched, with requirements that it meets. NodeClaims of
this kind are interchangeable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog

from karpenter_core.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODE_POOL, ZONE
from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.catalogue import Requirements
from karpenter_core.provider.kit.instances.described import TaggedManagedInstance

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.clock import Clock
    from karpenter_core.provider.contract import LaunchedInstance, LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.instances.described import InstanceReader

__all__ = ["ForeignLaunches", "ForeignMarks", "could_be_launched_for"]


Tagged = TypeVar("Tagged", bound=TaggedManagedInstance)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMarks(Generic[Tagged]):
    """Tags by which instances of the other Karpenter are recognised."""

    node_pool_tag: str
    node_class_tag: str
    names_claim: Callable[[str], bool]
    """Whether a tag of this key names the NodeClaim of its instance."""
    labels: Callable[[Tagged], Mapping[str, str]] = lambda _instance: {}
    """Labels of the cloud's own that a NodeClaim may require; empty values are not known."""


def could_be_launched_for(
    request: LaunchRequest, instance: Tagged, marks: ForeignMarks[Tagged]
) -> bool:
    """Tell whether an instance, which names no NodeClaim, may have been launched for this one."""
    claim, tags = request.node_claim, instance.tags
    created = claim.metadata.creation_timestamp
    if created is None or instance.launched_at is None or instance.launched_at < created:
        return False
    pool = claim.metadata.labels.get(NODE_POOL, "")
    if (
        tags.get(marks.node_pool_tag) != pool
        or tags.get(marks.node_class_tag) != request.node_class.name
    ):
        return False
    if instance.instance_type not in {it.name for it in request.instance_types}:
        return False
    required = Requirements.from_specs(claim.spec.requirements)
    actual = {
        INSTANCE_TYPE: instance.instance_type,
        ZONE: instance.zone,
        CAPACITY_TYPE: instance.capacity_type,
        **{key: value for key, value in marks.labels(instance).items() if value},
    }
    return all(required.get(key).has(value) for key, value in actual.items())


@final
class ForeignLaunches(Generic[Tagged]):
    """Launches NodeClaims for which no instance of another Karpenter is found; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        launch: Callable[[Sequence[LaunchRequest]], Sequence[LaunchOutcome]],
        outcome_of: Callable[[LaunchRequest, Tagged], LaunchedInstance],
        reader: InstanceReader[Tagged],
        owners: InstanceOwners,
        marks: ForeignMarks[Tagged],
        log_name: str,
    ) -> None:
        """`launch` is `ClaimLauncher.launch`, `outcome_of` is the cloud's `outcome_of_existing`."""
        self._marks: Final = marks
        self._clock: Final = clock
        self._launch: Final = launch
        self._outcome_of: Final = outcome_of
        self._reader: Final = reader
        self._owners: Final = owners
        self._log: FilteringBoundLogger = structlog.get_logger(log_name)
        self._lock: Final = Lock()
        self._began: datetime | None = None
        """Time of this process's first launch; younger NodeClaims were launched by no other."""
        self._given: Final[dict[str, str]] = {}
        """UIDs of the NodeClaims that got an instance, by instance id."""

    def launch(self, requests: Sequence[LaunchRequest]) -> Sequence[LaunchOutcome]:
        """Return the outcomes of the requests, in their order.

        Raises:
            CloudProviderError: the cloud could not say what exists; nothing was sent.
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
                found[request.token] = replace(self._outcome_of(request, instance), existed=True)
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

    def _unnamed(self) -> list[Tagged]:
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
            and not any(self._marks.names_claim(key) for key in instance.tags)
        ]

    def _instance_for(self, request: LaunchRequest, unnamed: Sequence[Tagged]) -> Tagged | None:
        for instance in unnamed:
            if self._given.get(instance.id, request.token) != request.token:
                continue
            if could_be_launched_for(request, instance, self._marks):
                return instance
        return None
