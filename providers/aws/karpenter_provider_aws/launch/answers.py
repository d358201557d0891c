"""Reads answers to launch calls: instances, failures and shortages.

Pure functions of values. A fleet may bring some instances and report why the others failed, type by
type; a fleet that brings all instances may report offerings that were sold out on the way. Both are
read alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from karpenter_core.api.labels import RESERVED, SPOT
from karpenter_core.errors import (
    CloudProviderError,
    ExhaustedScope,
    OfferingKey,
)
from karpenter_core.provider.kit.launch.answers import CallAnswer, NewInstance, unserved_error
from karpenter_core.provider.kit.launch_candidates import offering_key
from karpenter_core.provider.kit.shortages import (
    Shortage,
    narrow_to_reservations,
    quota_groups,
)
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_aws.codes import (
    SERVICE_LINKED_ROLE_DENIED,
    error_text,
    exhausted_scope,
    is_out_of_addresses,
    is_spread_limit,
    is_throttled,
    is_unfulfillable,
    launch_failure,
)
from karpenter_provider_aws.labels import CAPACITY_RESERVATION_ID, INSTANCE_FAMILY
from karpenter_provider_aws.quotas import quota_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from types_boto3_ec2.type_defs import (
        CreateFleetResultTypeDef,
        LaunchTemplateAndOverridesResponseTypeDef,
    )

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_aws.launch.fleet import LaunchTarget

__all__ = [
    "LaunchAnswer",
    "LaunchShortages",
    "TargetFailure",
    "read_answer",
    "refusal_answer",
    "shortages_of",
    "unserved_outcome",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that a launch could not have, and the reason."""

    code: str
    message: str
    target: LaunchTarget | None = None
    """None when it is about the call, or about what was not asked for."""

    @property
    def is_shortage(self) -> bool:
        """Whether it is a lack of capacity rather than a mistake."""
        return is_unfulfillable(self.code, self.message) or self.code == SERVICE_LINKED_ROLE_DENIED

    @property
    def is_throttled(self) -> bool:
        """Whether there were too many calls."""
        return is_throttled(self.code)

    @property
    def scope(self) -> ExhaustedScope:
        """Scope of a lack of capacity."""
        return exhausted_scope(self.code, self.message)

    @property
    def is_out_of_addresses(self) -> bool:
        """Whether the subnet of its target is full."""
        return is_out_of_addresses(self.code, self.message)

    @property
    def reason(self) -> str:
        """The reason for metrics and conditions."""
        return launch_failure(self.code, self.message).reason

    @property
    def text(self) -> str:
        """Message of EC2."""
        return error_text(self.code, self.message)


LaunchAnswer: TypeAlias = "CallAnswer[LaunchTarget, TargetFailure]"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShortages:
    """Everything that a launch found exhausted."""

    offerings: tuple[UnavailableOffering, ...] = ()
    wide: tuple[Shortage, ...] = ()
    """Quotas that are used up, and capacity types that cannot be launched."""
    subnets: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    """Ids of reservations that have nothing left."""


def read_answer(answer: CreateFleetResultTypeDef, targets: Sequence[LaunchTarget]) -> LaunchAnswer:
    """Read an answer; `targets` are what the call asked for.

    Raises:
        CloudProviderError: it tells of an instance that is none of the targets, or has no id.
    """
    known = _TargetIndex(targets)
    launched: list[NewInstance[LaunchTarget]] = []
    for item in answer.get("Instances", ()):
        target = known.find(item.get("LaunchTemplateAndOverrides", {}), item.get("InstanceType"))
        for instance_id in item.get("InstanceIds", ()):
            if not instance_id:
                raise CloudProviderError("ec2:CreateFleet: the answer has an instance without id")
            if target is None:
                raise CloudProviderError(
                    f"ec2:CreateFleet: {instance_id} is a {item.get('InstanceType', 'type')} "
                    "that was not asked for"
                )
            launched.append(NewInstance(id=instance_id, target=target))
    failures = tuple(
        TargetFailure(
            code=item.get("ErrorCode", ""),
            message=item.get("ErrorMessage", ""),
            target=known.find(item.get("LaunchTemplateAndOverrides", {})),
        )
        for item in answer.get("Errors", ())
    )
    return CallAnswer(
        instances=tuple(launched), failures=failures, reference=answer.get("FleetId", "")
    )


def refusal_answer(code: str, message: str) -> LaunchAnswer:
    """Return the refusal of a call as the answer of a fleet that brought nothing."""
    return CallAnswer(failures=(TargetFailure(code=code, message=message),))


def shortages_of(
    failures: Iterable[TargetFailure],
    targets: Sequence[LaunchTarget],
    capacity_type: str,
    *,
    placement_group: str = "",
    partition: str = "",
    offered: Iterable[InstanceType] = (),
) -> LaunchShortages:
    """Return what is not to be asked for again at once; `offered` are types with their sizes.

    With a placement group marks hold inside of it alone, in one partition if the launch named one.
    """
    failures = tuple(failures)
    wide = {*_used_up_quotas(failures, offered)}
    subnets: set[str] = set()
    reservations: set[str] = set()
    offerings: set[UnavailableOffering] = set()
    for failure in failures:
        target = failure.target
        if failure.code == SERVICE_LINKED_ROLE_DENIED:
            wide.add(Shortage(capacity_type=SPOT))
        elif (
            failure.scope is ExhaustedScope.FAMILY_QUOTA
            or target is None
            or not is_unfulfillable(failure.code, failure.message)
        ):
            continue
        elif failure.is_out_of_addresses:
            # Other subnets of the zone may do; the mark of the subnet says how far it reaches.
            subnets.add(target.subnet.id)
        elif placement_group and is_spread_limit(failure.message):
            # The group is full, whatever the type; there is stock, and a reservation has room.
            if capacity_type != RESERVED:
                offerings.update(
                    _shortages_in_zone(
                        targets, target.offering.zone, capacity_type, placement_group
                    )
                )
        elif capacity_type != RESERVED:
            of = target.instance_type, target.offering.zone, capacity_type
            offerings.add(UnavailableOffering(*of, placement_group, partition))
        elif target.reservation_id:
            reservations.add(target.reservation_id)
    return LaunchShortages(
        offerings=tuple(sorted(offerings)),
        wide=tuple(sorted(wide)),
        subnets=tuple(sorted(subnets)),
        reservations=tuple(sorted(reservations)),
    )


def unserved_outcome(
    answer: LaunchAnswer, targets: Sequence[LaunchTarget], offered: Iterable[InstanceType] = ()
) -> CloudProviderError:
    """Return the outcome of a claim that a fleet brought no instance.

    A quota covers all types of its class that are as large, also those that the fleet did not ask for: the
    families of `offered`.
    """
    offered = tuple(offered)
    error = unserved_error(
        answer.failures,
        service="EC2",
        launched=len(answer.instances),
        targets=lambda: _keys(targets),
        exhausted=lambda failures: _keys(_exhausted(failures, targets)),
        quota_groups=lambda failures: quota_groups(
            _used_up_quotas(failures, offered),
            offered,
            label=INSTANCE_FAMILY,
            group_of=quota_class,
        ),
    )
    return narrow_to_reservations(
        error,
        ((target.instance_type, target.offering) for target in targets),
        label=CAPACITY_RESERVATION_ID,
    )


class _TargetIndex:
    """Targets by what an answer repeats of them."""

    def __init__(self, targets: Iterable[LaunchTarget]) -> None:
        self._by_subnet: Final[dict[tuple[str, str], LaunchTarget]] = {}
        self._by_zone: Final[dict[tuple[str, str], LaunchTarget]] = {}
        for target in targets:
            self._by_subnet.setdefault((target.instance_type, target.subnet.id), target)
            self._by_zone.setdefault((target.instance_type, target.offering.zone), target)

    def find(
        self,
        answer_item: LaunchTemplateAndOverridesResponseTypeDef,
        instance_type: str | None = None,
    ) -> LaunchTarget | None:
        overrides = answer_item.get("Overrides", {})
        name = overrides.get("InstanceType") or instance_type or ""
        return self._by_subnet.get((name, overrides.get("SubnetId", ""))) or self._by_zone.get(
            (name, overrides.get("AvailabilityZone", ""))
        )


def _shortages_in_zone(
    targets: Iterable[LaunchTarget], zone: str, capacity_type: str, placement_group: str
) -> list[UnavailableOffering]:
    return [
        UnavailableOffering(target.instance_type, zone, capacity_type, placement_group)
        for target in targets
        if target.offering.zone == zone
    ]


def _exhausted(
    failures: Iterable[TargetFailure], targets: Sequence[LaunchTarget]
) -> list[LaunchTarget]:
    """Return the targets that the failures are about, in their order."""
    hit: set[int] = set()
    for failure in failures:
        for number, target in enumerate(targets):
            if _reaches(failure, target):
                hit.add(number)
    return [targets[number] for number in sorted(hit)]


def _reaches(failure: TargetFailure, target: LaunchTarget) -> bool:
    failed_target = failure.target
    if failed_target is None:
        return True
    if failure.is_out_of_addresses:
        return failed_target.subnet.id == target.subnet.id
    if is_spread_limit(failure.message):
        return failed_target.offering.zone == target.offering.zone
    return failed_target is target


def _used_up_quotas(
    failures: Iterable[TargetFailure], offered: Iterable[InstanceType]
) -> Iterator[Shortage]:
    """Yield the quotas that are used up: of a class of types, from the size that was refused on."""
    sizes = {it.name: it.capacity["cpu"] for it in offered}
    for failure in failures:
        if failure.target is not None and failure.scope is ExhaustedScope.FAMILY_QUOTA:
            name = failure.target.instance_type
            yield Shortage(
                capacity_type=failure.target.offering.capacity_type,
                group=quota_class(name),
                least_cpu_milli=sizes.get(name, 0),
            )


def _keys(targets: Iterable[LaunchTarget]) -> tuple[OfferingKey, ...]:
    return tuple(offering_key(target.instance_type, target.offering) for target in targets)
