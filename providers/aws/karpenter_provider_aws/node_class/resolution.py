"""Resolves the status and conditions of a NodeClass.

Answers `karpenter_resolve_node_class`. Each part has its own calls, and all parts are resolved,
whatever became of the others. The condition of a part shows its refusal by AWS. A part that AWS
does not answer keeps its earlier result; when subnets, security groups and images are all
unanswered, there is no answer at all.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

from karpenter_core.errors import CloudProviderError
from karpenter_core.provider.contract import NodeClassResolution
from karpenter_provider_aws.api.node_class_status import EC2NodeClassStatus
from karpenter_provider_aws.discovery import (
    images,
    placement_groups,
    reservations,
    security_groups,
    subnets,
)
from karpenter_provider_aws.discovery.call_errors import is_refusal
from karpenter_provider_aws.node_class import parts
from karpenter_provider_aws.node_class.conditions import (
    AMIS_READY,
    CAPACITY_RESERVATIONS_READY,
    INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY,
    SECURITY_GROUPS_READY,
    SUBNETS_READY,
    ResolutionPart,
    condition_met,
    current_condition,
    refused_condition,
    resolution_of,
    unanswered_condition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from karpenter_core.api.conditions import Condition
    from karpenter_core.clock import Clock
    from karpenter_provider_aws.api.nodeclass import EC2NodeClass
    from karpenter_provider_aws.discovery.images import ImageReader
    from karpenter_provider_aws.discovery.placement_groups import PlacementGroupReader
    from karpenter_provider_aws.discovery.profiles import InstanceProfiles
    from karpenter_provider_aws.discovery.reservations import ReservationReader
    from karpenter_provider_aws.discovery.security_groups import SecurityGroupReader
    from karpenter_provider_aws.discovery.subnets import SubnetReader

__all__ = ["NodeClassDiscovery", "NodeClassResolver"]

LAUNCH_NEEDS: Final = (AMIS_READY, INSTANCE_PROFILE_READY, SECURITY_GROUPS_READY, SUBNETS_READY)
"""Conditions without which no launch can be tried out."""
EC2_PARTS: Final = (AMIS_READY, SECURITY_GROUPS_READY, SUBNETS_READY)
"""What is always asked of AWS: nothing of it answered means that nobody answers."""


class NodeClassValidation(Protocol):
    """The methods of `NodeClassValidator` that a resolution uses."""

    def validate(
        self, node_class: EC2NodeClass, dependencies: Iterable[Condition]
    ) -> ResolutionPart:
        """Return the condition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassDiscovery:
    """All that discovery can find."""

    subnets: SubnetReader
    security_groups: SecurityGroupReader
    images: ImageReader
    placement_groups: PlacementGroupReader
    profiles: InstanceProfiles
    reservations: ReservationReader | None
    """None when the feature gate ReservedCapacity is off."""


class _DiscoverySearch(NamedTuple):
    """One part, and how it is found."""

    condition_type: str
    field: str
    find: Callable[[], ResolutionPart]


@final
class NodeClassResolver:
    """Resolves NodeClasses; callable from any thread."""

    def __init__(
        self, discovery: NodeClassDiscovery, validation: NodeClassValidation, clock: Clock
    ) -> None:
        self._discovery: Final = discovery
        self._validation: Final = validation
        self._clock: Final = clock
        self._lock: Final = Lock()
        self._profiles: Final[dict[str, frozenset[str]]] = {}

    def resolve(self, node_class: EC2NodeClass) -> NodeClassResolution:
        """Return status and conditions of a NodeClass.

        Raises:
            CloudProviderError: AWS could be asked for nothing.
        """
        self._note_profiles(node_class, node_class.status.instance_profile)
        resolved_parts = self._resolved_parts(node_class)
        silent = [
            part
            for part in resolved_parts
            if part.condition.type in EC2_PARTS and not part.is_answered
        ]
        if len(silent) == len(EC2_PARTS):
            raise CloudProviderError(silent[0].condition.message)
        status = {name: value for part in resolved_parts for name, value in part.status.items()}
        resolved = _with_status(node_class, status)
        self._note_profiles(node_class, resolved.status.instance_profile)
        conditions = [_kept_condition(part, node_class)[0] for part in resolved_parts]
        needs = [condition for condition in conditions if condition.type in LAUNCH_NEEDS]
        validated = self._validation.validate(resolved, needs)
        return resolution_of(node_class, [*resolved_parts, validated])

    def profiles_in_use(self) -> frozenset[str]:
        """Return the instance profiles of all NodeClasses that were resolved by this process."""
        with self._lock:
            return frozenset(name for names in self._profiles.values() for name in names)

    def forget(self, node_class: EC2NodeClass) -> None:
        """Forget a NodeClass that is gone."""
        with self._lock:
            self._profiles.pop(node_class.uid, None)

    def _note_profiles(self, node_class: EC2NodeClass, name: str) -> None:
        names = {node_class.status.instance_profile, name} - {""}
        with self._lock:
            self._profiles[node_class.uid] = frozenset(names)

    def _resolved_parts(self, node_class: EC2NodeClass) -> list[ResolutionPart]:
        """Look at all parts at once: a service that is silent holds up no other."""
        searches = self._searches(node_class)
        with ThreadPoolExecutor(len(searches), thread_name_prefix="aws-discovery") as pool:
            return list(pool.map(_part, searches))

    def _searches(self, node_class: EC2NodeClass) -> list[_DiscoverySearch]:
        discovery, spec = self._discovery, node_class.spec
        searches = [
            _DiscoverySearch(AMIS_READY, images.FIELD, lambda: self._ami_part(node_class)),
            _DiscoverySearch(
                PLACEMENT_GROUP_READY,
                placement_groups.FIELD,
                lambda: parts.placement_group_part(
                    spec.placement_group_selector,
                    discovery.placement_groups.find(spec.placement_group_selector),
                ),
            ),
            _DiscoverySearch(
                SUBNETS_READY,
                subnets.FIELD,
                lambda: parts.subnet_part(discovery.subnets.find(spec.subnet_selector_terms)),
            ),
            _DiscoverySearch(
                SECURITY_GROUPS_READY,
                security_groups.FIELD,
                lambda: parts.security_group_part(
                    discovery.security_groups.find(spec.security_group_selector_terms)
                ),
            ),
            _DiscoverySearch(
                INSTANCE_PROFILE_READY,
                f'spec.role "{spec.role}"' if spec.role else "spec.instanceProfile",
                lambda: condition_met(
                    INSTANCE_PROFILE_READY,
                    status={"instanceProfile": discovery.profiles.ensure(node_class)},
                ),
            ),
        ]
        if discovery.reservations is not None:
            finder, terms = discovery.reservations, spec.capacity_reservation_selector_terms
            searches.append(
                _DiscoverySearch(
                    CAPACITY_RESERVATIONS_READY,
                    reservations.FIELD,
                    lambda: parts.reservation_part(finder.find(terms), now=self._clock.now()),
                )
            )
        return searches

    def _ami_part(self, node_class: EC2NodeClass) -> ResolutionPart:
        unsupported = self._discovery.images.unsupported(node_class)
        if unsupported:
            return parts.unsupported_alias_part(unsupported)
        return parts.ami_part(self._discovery.images.find(node_class))


def _kept_condition(part: ResolutionPart, node_class: EC2NodeClass) -> tuple[Condition, bool]:
    generation = node_class.metadata.generation
    return current_condition(part, node_class.status.conditions, generation=generation)


def _part(search: _DiscoverySearch) -> ResolutionPart:
    try:
        return search.find()
    except CloudProviderError as error:
        if is_refusal(error):
            return refused_condition(search.condition_type, search.field, error)
        return unanswered_condition(search.condition_type, search.field, error)


def _with_status(node_class: EC2NodeClass, status: dict[str, object]) -> EC2NodeClass:
    before = node_class.status.model_dump(mode="json", exclude_none=True)
    after = EC2NodeClassStatus.model_validate({**before, **status})
    return node_class.model_copy(update={"status": after})
