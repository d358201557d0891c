"""Reads answers to launch calls: instances, failures and shortages.

Pure functions of values. A provisioning group may bring some instances and report why the others
failed, pair by pair, in any order; a group that brings all instances may report offerings that were
sold out on the way. RunInstances brings instances of one pair, or is refused. All are read alike.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from karpenter_core.api.labels import INSTANCE_TYPE, RESERVED
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
from karpenter_provider_alibabacloud.api_answers import object_of, objects_at, text_of, texts_of
from karpenter_provider_alibabacloud.catalogue.instance_type_info import list_at
from karpenter_provider_alibabacloud.catalogue.system_disks import DiskShortage
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ErrorClass,
    classify,
    exhausted_scope,
    launch_reason,
)
from karpenter_provider_alibabacloud.labels import CAPACITY_RESERVATION_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from karpenter_core.errors import QuotaGroup
    from karpenter_provider_alibabacloud.api_answers import ApiAnswer
    from karpenter_provider_alibabacloud.codes import ApiError
    from karpenter_provider_alibabacloud.launch.targets import LaunchTarget

__all__ = [
    "LaunchAnswer",
    "LaunchShortages",
    "TargetFailure",
    "read_group_answer",
    "read_run_answer",
    "refusal_answer",
    "shortages_of",
    "unserved_outcome",
]

_VSWITCH: Final = re.compile(r"\bvsw-[0-9a-z]+")
_CATEGORY: Final = re.compile(r"\bcloud(?:_[a-z]+)*\b")
"""A kind of disk, as messages name it."""
_VCPUS: Final = re.compile(r"\bv?cpus?\b", re.IGNORECASE)
"""Names what a zone's quota counts; that of an instance type counts instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that a launch could not have, and the reason."""

    code: str
    message: str
    targets: tuple[LaunchTarget, ...]
    """The target of the failure; None for all targets of the call."""
    status: int = 0
    """Of HTTP, where the call was refused."""

    @property
    def error_class(self) -> ErrorClass:
        """The class of the error."""
        return classify(self.code, status=self.status, message=self.message)

    @property
    def is_shortage(self) -> bool:
        """Whether it is a lack of capacity rather than a mistake."""
        return self.error_class in SHORTAGES

    @property
    def is_throttled(self) -> bool:
        """Whether there were too many calls."""
        return self.error_class is ErrorClass.THROTTLED

    @property
    def scope(self) -> ExhaustedScope:
        """Scope of a lack of capacity."""
        return exhausted_scope(self.error_class)

    @property
    def reason(self) -> str:
        """The reason for metrics and conditions."""
        return launch_reason(self.code, self.message, status=self.status)

    @property
    def text(self) -> str:
        """Message of ECS."""
        return ": ".join(part for part in (self.code, self.message) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer(CallAnswer["LaunchTarget", TargetFailure]):
    """The new instances and the failures of a call; both in the order of the answer."""

    tried: tuple[LaunchTarget, ...] | None = None
    """The targets of the call that were tried; None for all."""

    def tried_of(self, targets: Sequence[LaunchTarget]) -> tuple[LaunchTarget, ...]:
        """Return the targets that were tried, of those that the call could take."""
        return tuple(targets) if self.tried is None else self.tried


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShortages:
    """Everything that a launch found exhausted."""

    offerings: tuple[UnavailableOffering, ...] = ()
    disks: tuple[DiskShortage, ...] = ()
    vswitches: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    """Ids of private pools that have nothing left."""
    quotas: tuple[Shortage, ...] = ()
    """Quotas of the account that are used up; the group of an instance type is its name."""


def read_group_answer(body: ApiAnswer, targets: Sequence[LaunchTarget]) -> LaunchAnswer:
    """Read an answer of CreateAutoProvisioningGroup; `targets` are what the call asked for.

    Raises:
        CloudProviderError: it does not say what was launched, or tells of an instance that is none of the
            targets: the call may have launched instances.
    """
    if not text_of(body, "AutoProvisioningGroupId"):
        objects_at(body, "LaunchResults.LaunchResult", action="ecs:CreateAutoProvisioningGroup")
    known = {(target.instance_type.name, target.zone): target for target in reversed(targets)}
    launched: list[NewInstance[LaunchTarget]] = []
    failures: list[TargetFailure] = []
    for row in list_at(body, "LaunchResults.LaunchResult"):
        name, zone = row.get("InstanceType") or "", row.get("ZoneId") or ""
        target = known.get((name, zone))
        for instance_id in _instance_ids(row, "InstanceIds", "InstanceId"):
            if target is None:
                raise CloudProviderError(
                    f"ecs:CreateAutoProvisioningGroup: {instance_id} is of the type {name} in "
                    f"{zone or 'no zone'}, which was not requested"
                )
            launched.append(NewInstance(id=instance_id, target=target))
        code = row.get("ErrorCode") or ""
        if code:
            about = (target,) if target is not None else tuple(targets)
            failures.append(
                TargetFailure(code=code, message=row.get("ErrorMsg") or "", targets=about)
            )
    return LaunchAnswer(
        instances=tuple(launched),
        failures=tuple(failures),
        reference=str(body.get("RequestId") or ""),
    )


def read_run_answer(body: ApiAnswer, target: LaunchTarget) -> LaunchAnswer:
    """Read an answer of RunInstances, which launches at least one instance or is refused.

    Raises:
        CloudProviderError: it names no instance: the call may have launched some.
    """
    ids = _instance_ids(body, "InstanceIdSets", "InstanceIdSet")
    if not ids:
        raise CloudProviderError("ecs:RunInstances: the answer names no instance")
    return LaunchAnswer(
        instances=tuple(NewInstance(id=instance_id, target=target) for instance_id in ids),
        reference=str(body.get("RequestId") or ""),
    )


def _instance_ids(body: ApiAnswer, outer: str, inner: str) -> Sequence[str]:
    ids = texts_of(object_of(body, outer), inner)
    if "" in ids:
        raise CloudProviderError(f"an instance in {outer} of the answer has no id")
    return ids


def refusal_answer(error: ApiError, targets: Sequence[LaunchTarget]) -> LaunchAnswer:
    """Return the refusal of a call as the answer of one that brought nothing.

    Where the message names a vSwitch, it is about the pairs there alone: the others were not tried.
    """
    named = set(_VSWITCH.findall(error.message))
    about = tuple(target for target in targets if target.vswitch.id in named) or tuple(targets)
    failure = TargetFailure(
        code=error.code, message=error.message, targets=about, status=error.status
    )
    return LaunchAnswer(failures=(failure,), reference=error.request_id, tried=about)


def shortages_of(
    failures: Iterable[TargetFailure],
    *,
    capacity_type: str,
    categories: Sequence[str],
) -> LaunchShortages:
    """Return what is not to be asked for again at once.

    `categories` are those of the system disk that the call could have had.
    """
    offerings: set[UnavailableOffering] = set()
    disks: set[DiskShortage] = set()
    vswitches: set[str] = set()
    reservations: set[str] = set()
    quotas: set[Shortage] = set()
    for failure in failures:
        kind = failure.error_class
        if kind is ErrorClass.QUOTA:
            quotas.update(_used_up_quotas(failure, capacity_type))
        for target in failure.targets:
            name, zone = target.instance_type.name, target.zone
            match kind:
                case ErrorClass.CAPACITY if capacity_type == RESERVED:
                    reservations.add(target.reservation_id)
                case ErrorClass.CAPACITY | ErrorClass.SPOT_PRICE:
                    offerings.add(UnavailableOffering(name, zone, capacity_type))
                case ErrorClass.DISK_CATEGORY:
                    disks.update(DiskShortage(name, zone, category) for category in categories)
                case ErrorClass.DISK_QUOTA:
                    named = set(_CATEGORY.findall(failure.message)).intersection(categories)
                    disks.update(DiskShortage("", zone, each) for each in named or categories)
                case ErrorClass.ADDRESSES:
                    vswitches.add(target.vswitch.id)
                case _:
                    pass
    return LaunchShortages(
        offerings=tuple(sorted(offerings)),
        disks=tuple(sorted(disks)),
        vswitches=tuple(sorted(vswitches)),
        reservations=tuple(sorted(reservations)),
        quotas=tuple(sorted(quotas)),
    )


def _used_up_quotas(failure: TargetFailure, capacity_type: str) -> Iterator[Shortage]:
    """Yield what a quota closes: a type in all zones, or in one zone what is at least as large.

    Where the message names some of the types that were asked for, it is about those alone.
    """
    named = [t for t in failure.targets if _names(failure.message, t.instance_type.name)]
    zone = next((t.zone for t in failure.targets if _names(failure.message, t.zone)), "")
    if zone and _VCPUS.search(failure.message):
        # A type that is named may have been asked for in other zones alone.
        there = [t for t in named if t.zone == zone] or [
            t for t in failure.targets if t.zone == zone
        ]
        least = min(t.instance_type.capacity["cpu"] for t in there)
        yield Shortage(capacity_type=capacity_type, zone=zone, least_cpu_milli=least)
        return
    for target in named or failure.targets:
        yield Shortage(capacity_type=capacity_type, group=target.instance_type.name)


def _names(message: str, name: str) -> bool:
    """Whether a message names something whose name may begin another one's."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", message) is not None


def unserved_outcome(
    answers: Sequence[LaunchAnswer], tried: Sequence[LaunchTarget]
) -> CloudProviderError:
    """Return the outcome of a claim that all these calls brought no instance."""

    def exhausted(failures: Sequence[TargetFailure]) -> Iterator[OfferingKey]:
        about = {id(target) for failure in failures for target in failure.targets}
        return _keys(target for target in tried if id(target) in about)

    def groups(failures: Sequence[TargetFailure]) -> Iterator[QuotaGroup]:
        quotas = (
            shortage
            for failure in failures
            if failure.error_class is ErrorClass.QUOTA
            for shortage in _used_up_quotas(failure, failure.targets[0].offering.capacity_type)
        )
        types = (target.instance_type for failure in failures for target in failure.targets)
        return quota_groups(quotas, types, label=INSTANCE_TYPE, group_of=str)

    failures = [failure for answer in answers for failure in answer.failures]
    failed = [answer for answer in answers if answer.failures]
    error = unserved_error(
        failures,
        service="ECS",
        launched=sum(len(answer.instances) for answer in answers),
        targets=lambda: _keys(tried),
        exhausted=exhausted,
        quota_groups=groups,
        references=_requests(failed or answers),
    )
    return narrow_to_reservations(
        error,
        ((target.instance_type.name, target.offering) for target in tried),
        label=CAPACITY_RESERVATION_ID,
    )


def _keys(targets: Iterable[LaunchTarget]) -> Iterator[OfferingKey]:
    for target in targets:
        yield offering_key(target.instance_type.name, target.offering)


def _requests(answers: Iterable[LaunchAnswer]) -> str:
    """Return the ids by which Alibaba Cloud finds the requests again."""
    ids = dict.fromkeys(answer.reference for answer in answers if answer.reference)
    return f" (request {', '.join(ids)})" if ids else ""
