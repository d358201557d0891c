"""Launches one instance for each NodeClaim, for the launch hook.

Answers `karpenter_launch_instances`. The core passes a claim again after a crash, and there must
never be two instances for it. Tags can be searched by whole values only, so the cluster's instances
are listed where another process may have launched for a claim: when this process launches for the
first time, and for claims that have existed for a while. Then unanswered calls are repeated; the
remaining claims are launched, equal ones by one call.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, final

import structlog

from karpenter_core.api.labels import NODE_POOL, ZONE
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    InsufficientCapacityError,
    LaunchFailedError,
)
from karpenter_provider_alibabacloud.described_instances import VISIBLE_WITHIN
from karpenter_provider_alibabacloud.instance_tags import CLAIM_TAGS
from karpenter_provider_alibabacloud.launch.answers import as_outcome
from karpenter_provider_alibabacloud.launch.boot_configuration import BootConfiguration
from karpenter_provider_alibabacloud.launch.launched_instances import (
    LaunchDetails,
    launched_instance,
)
from karpenter_provider_alibabacloud.launch.plans import claim_ref, plan_launches
from karpenter_provider_alibabacloud.launch.preconditions import unmet_precondition
from karpenter_provider_alibabacloud.launch.targets import BALANCED, ranked, spread, zones_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from structlog.typing import FilteringBoundLogger

    from karpenter_core.api.records import NodeView
    from karpenter_core.clock import Clock
    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_core.provider.contract import LaunchOutcome, LaunchRequest
    from karpenter_core.provider.kit.instance_owners import InstanceOwners
    from karpenter_core.provider.kit.recent_launches import RecentLaunches
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass
    from karpenter_provider_alibabacloud.bootstrap.user_data_builder import UserDataBuilder
    from karpenter_provider_alibabacloud.catalogue.current_types import CurrentInstanceTypes
    from karpenter_provider_alibabacloud.described_instances import (
        DescribedInstance,
        InstanceReader,
    )
    from karpenter_provider_alibabacloud.launch.calls import LaunchApiCall, LaunchCallBuilder
    from karpenter_provider_alibabacloud.launch.executor import LaunchExecutor
    from karpenter_provider_alibabacloud.launch.plans import LaunchPlan

__all__ = ["CloudInstanceLauncher"]

_CALLS_AT_ONCE: Final = 8
_MAX_INSTANCES: Final = 100
"""Of one call: RunInstances takes no more."""
_MADE_WITHIN: Final = timedelta(minutes=5)
"""By then ECS has made all instances of a call, which it shows one after the other."""
_QUIET_WITHIN: Final = timedelta(minutes=2)
"""A call that shows no further instance for so long was answered with fewer than it asked for. Claims
must not wait until their launch times out (5 minutes by default): they would never be told of the
shortage."""
_FRESH: Final = timedelta(seconds=30)
"""Nobody but this process can have launched for a claim that is so young."""


@final
class CloudInstanceLauncher:
    """Launches instances; callable from any thread."""

    def __init__(
        self,
        clock: Clock,
        *,
        reader: InstanceReader,
        executor: LaunchExecutor,
        calls: LaunchCallBuilder,
        recent: RecentLaunches,
        owners: InstanceOwners,
        types: CurrentInstanceTypes,
        bootstrapper: UserDataBuilder,
        nodes: Callable[[], Mapping[str, NodeView]],
    ) -> None:
        """`nodes` is `ProviderContext.read_nodes`."""
        self._clock: Final = clock
        self._reader: Final = reader
        self._executor: Final = executor
        self._calls: Final = calls
        self._recent: Final = recent
        self._owners: Final = owners
        self._types: Final = types
        self._bootstrapper: Final = bootstrapper
        self._nodes: Final = nodes
        self._has_read = False
        self._lock: Final = Lock()
        self._short_calls: dict[frozenset[str], tuple[int, datetime]] = {}
        """By claims: how many instances a call showed that has more claims, and since when."""
        self._log: FilteringBoundLogger = structlog.get_logger("alibabacloud.launch")

    def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchOutcome]:
        """Launch one instance for each request and say, in the same order, what came of it.

        Raises:
            CloudProviderError: ECS could not be asked what there is already; nothing was sent.
        """
        wanted = {request.token: request for request in requests}
        outcomes = self._existing_outcomes(wanted)
        for token in wanted.keys() - outcomes.keys():
            waiting = self._executor.wait_reason(token)
            if waiting is not None:
                outcomes[token] = waiting
        for call in self._unanswered(r for t, r in wanted.items() if t not in outcomes):
            brought = self._executor.repeat(call, self._owners())
            outcomes |= {
                token: it
                for token, it in brought.items()
                if token in wanted
                # The repetition may be refused for what the instances that are listed use up.
                and not (token in outcomes and isinstance(it, InsufficientCapacityError))
            }
        new = [request for token, request in wanted.items() if token not in outcomes]
        by_class: dict[tuple[str, str], list[LaunchRequest]] = {}
        for request in new:
            metadata = request.node_class.metadata
            by_class.setdefault((metadata.name, metadata.resource_version), []).append(request)
        for members in by_class.values():
            outcomes |= self._launch_new(members)
        return [outcomes[request.token] for request in requests]

    # -- what there is ---------------------------------------------------------------------------

    def _existing_outcomes(self, wanted: Mapping[str, LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Return the outcomes of claims for which something was launched before, by token."""
        outcomes: dict[str, LaunchOutcome] = {}
        doubtful: dict[str, LaunchRequest] = {}
        for token, request in wanted.items():
            known = self._remembered(token)
            if known is not None:
                outcomes[token] = known
            elif self._may_have_instance(request):
                doubtful[token] = request
        return outcomes | self._looked_up(doubtful) if doubtful else outcomes

    def _remembered(self, token: str) -> LaunchOutcome | None:
        """Return what this process itself brought a claim, as far as that is still sure."""
        ended = self._recent.ended_instance(token)
        if ended:
            return _gone(ended)
        recent = self._recent.of_claim(token)
        if recent is None:
            return None
        launched_at = recent.instance.created
        is_sure = launched_at is None or self._clock.now() - launched_at < VISIBLE_WITHIN
        return recent.outcome if is_sure else None  # for so long ECS may not show it

    def _may_have_instance(self, request: LaunchRequest) -> bool:
        """Whether something may have been launched for a claim, by another process or long ago."""
        if not self._has_read or self._recent.of_claim(request.token) is not None:
            return True
        created = request.node_claim.metadata.creation_timestamp
        return created is None or self._clock.now() - created > _FRESH

    def _looked_up(self, doubtful: Mapping[str, LaunchRequest]) -> dict[str, LaunchOutcome]:
        described = self._described()
        owners = CLAIM_TAGS.owners_of({it.id: it.tags for it in described}, self._owners())
        mine: dict[str, list[DescribedInstance]] = {}
        for instance in described:
            owner = owners.get(instance.id)
            if owner is not None and owner.uid in doubtful:
                mine.setdefault(owner.uid, []).append(instance)
        outcomes: dict[str, LaunchOutcome] = {}
        launcher = self._launching_for(described)
        for token, request in doubtful.items():
            recent = self._recent.of_claim(token)
            if token in mine:
                outcomes[token] = self._found_outcome(request, mine[token])
            elif recent is not None:
                outcomes[token] = _gone(recent.instance_id)
            elif token in launcher and not self._executor.has_attempted(token):
                outcomes[token] = CloudProviderError(
                    "another process recently launched this NodeClaim and others, and ECS does not "
                    "show all of their instances yet"
                )
        return outcomes

    def _launching_for(self, described: Iterable[DescribedInstance]) -> frozenset[str]:
        """Return the UIDs of claims for which another process's call may still make instances.

        A call may, while it shows fewer instances than it has claims, and for `_QUIET_WITHIN` after it
        was seen to show another one.
        """
        now = self._clock.now()
        calls: dict[frozenset[str], list[DescribedInstance]] = {}
        for instance in described:
            uids = frozenset(claim.uid for claim in CLAIM_TAGS.claims_of(instance.tags))
            calls.setdefault(uids, []).append(instance)
        with self._lock:
            before = self._short_calls
            self._short_calls = {
                uids: before[uids]
                if uids in before and before[uids][0] >= len(shown)
                else (len(shown), now)
                for uids, shown in calls.items()
                if len(shown) < len(uids) and any(self._is_recent(each) for each in shown)
            }
            return frozenset(
                uid
                for uids, (_, since) in self._short_calls.items()
                if now - since < _QUIET_WITHIN
                for uid in uids
            )

    def _is_recent(self, instance: DescribedInstance) -> bool:
        """Whether an instance was launched of late; one that ECS tells no time of was not."""
        at = instance.launched_at
        return at is not None and self._clock.now() - at < _MADE_WITHIN

    def _described(self) -> tuple[DescribedInstance, ...]:
        listing = self._reader.of_cluster()
        if listing.problem:
            raise CloudProviderError(f"the cluster's instances cannot be read: {listing.problem}")
        self._has_read = True
        return listing.instances

    def _found_outcome(
        self, request: LaunchRequest, instances: Sequence[DescribedInstance]
    ) -> LaunchOutcome:
        there = [instance for instance in instances if not instance.is_leaving]
        if not there:
            return _gone(", ".join(instance.id for instance in instances))
        instance = there[0]
        try:
            instance_type = self._type_of(instance, request)
        except (CloudProviderError, BadInputError) as error:
            return as_outcome(error)
        details = LaunchDetails(
            region=self._reader.region,
            instance_id=instance.id,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            image_id=instance.image_id,
            reservation_id=instance.reservation_id,
        )
        return launched_instance(details, instance_type, request.node_claim)

    def _type_of(self, instance: DescribedInstance, request: LaunchRequest) -> InstanceType:
        """Return the type of an instance, which the claim may no longer be offered."""
        for it in (*request.instance_types, *self._types.instance_types(_node_class_of(request))):
            if it.name == instance.instance_type:
                return it
        raise CloudProviderError(
            f'instance {instance.id} is of the type "{instance.instance_type}", which the region '
            "does not sell any more"
        )

    # -- what nobody knows -----------------------------------------------------------------------

    def _unanswered(self, requests: Iterable[LaunchRequest]) -> list[LaunchApiCall]:
        calls: dict[int, LaunchApiCall] = {}
        for request in requests:
            call = self._executor.unanswered_call(request.token)
            if call is not None:
                calls[id(call)] = call
        return list(calls.values())

    # -- what is launched ------------------------------------------------------------------------

    def _launch_new(self, requests: Sequence[LaunchRequest]) -> dict[str, LaunchOutcome]:
        """Launch for claims of one NodeClass; return the outcomes by token."""
        tokens = [request.token for request in requests]
        try:
            node_class = _node_class_of(requests[0])
            refused = unmet_precondition(node_class)
            if refused is not None:
                return dict.fromkeys(tokens, refused)
            plans, unplanned = plan_launches(requests, self._calls.launch_context(node_class))
        except (CloudProviderError, BadInputError) as error:
            return dict.fromkeys(tokens, as_outcome(error))
        outcomes: dict[str, LaunchOutcome] = dict(unplanned)
        jobs: list[Callable[[], dict[str, LaunchOutcome]]] = []
        for plan in plans:
            try:
                boot_configuration = self._boots(plan)
            except (CloudProviderError, BadInputError) as error:
                outcomes |= {request.token: as_outcome(error) for request in plan.requests}
                continue
            jobs += [
                partial(self._executor.execute, plan, boot_configuration, part, zones=zones)
                for part, zones in self._plan_chunks(plan)
            ]
        for brought in _run(jobs):
            outcomes |= brought
        return outcomes

    def _boots(self, plan: LaunchPlan) -> BootConfiguration:
        if plan.is_inflexible:
            self._log.info(
                "launching on-demand although spot is allowed: allow more instance types",
                instance_types=len(plan.candidates),
            )
        return BootConfiguration(
            plan.node_class,
            plan.requests[0].node_claim,
            capacity_type=plan.capacity_type,
            types=self._types,
            bootstrapper=self._bootstrapper,
        )

    def _plan_chunks(self, plan: LaunchPlan) -> list[tuple[list[LaunchRequest], tuple[str, ...]]]:
        """Cut a plan into calls: as many claims as the tags of one can name.

        With the policy `balanced` each is for a zone, and the others come after that.
        """
        if plan.node_class.spec.v_switch_selection_policy != BALANCED:
            return [(part, ()) for part in self._batches(plan, plan.requests)]
        zones = zones_of(plan.candidates)
        nodes, free = self._nodes_by_zone(plan), self._calls.free_addresses(plan.node_class)
        order = ranked(zones, nodes=nodes, free=free)
        return [
            (part, (zone, *(other for other in order if other != zone)))
            for zone, members in spread(plan.requests, zones, nodes=nodes, free=free).items()
            for part in self._batches(plan, members)
        ]

    def _batches(
        self, plan: LaunchPlan, requests: Sequence[LaunchRequest]
    ) -> list[list[LaunchRequest]]:
        by_uid = {request.token: request for request in requests}
        batches = CLAIM_TAGS.batches(
            (claim_ref(request) for request in requests),
            node_pool=plan.node_pool,
            other_tags=len(self._calls.tags(plan)),
            max_claims=_MAX_INSTANCES,
        )
        return [[by_uid[claim.uid] for claim in batch] for batch in batches]

    def _nodes_by_zone(self, plan: LaunchPlan) -> Counter[str]:
        """Count the nodes and recent launches of the plan's NodePool, by zone."""
        pool = plan.node_pool
        nodes = [it for it in self._nodes().values() if it.labels.get(NODE_POOL) == pool]
        there = {node.provider_id for node in nodes}
        counts = Counter(node.labels.get(ZONE, "") for node in nodes)
        counts.update(
            launch.outcome.zone
            for launch in self._recent.all().values()
            if launch.outcome.labels.get(NODE_POOL) == pool
            and launch.outcome.provider_id not in there
        )
        return counts


def _run(
    jobs: Sequence[Callable[[], dict[str, LaunchOutcome]]],
) -> list[dict[str, LaunchOutcome]]:
    if len(jobs) <= 1:
        return [job() for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), _CALLS_AT_ONCE), "alibabacloud-launches") as pool:
        return [future.result() for future in [pool.submit(job) for job in jobs]]


def _node_class_of(request: LaunchRequest) -> ECSNodeClass:
    from karpenter_provider_alibabacloud.api.nodeclass import ECSNodeClass

    if not isinstance(request.node_class, ECSNodeClass):
        raise BadInputError(f'"{request.node_class.name}" is not an ECSNodeClass')
    return request.node_class


def _gone(instances: str) -> LaunchFailedError:
    return LaunchFailedError(
        f"the instance of this NodeClaim was terminated: {instances}", reason="InstanceTerminated"
    )
