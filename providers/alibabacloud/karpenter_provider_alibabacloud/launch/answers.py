"""Reads answers to launch calls: instances, failures and shortages.

Pure functions of values. A provisioning group may bring some instances and report why the others
failed, pair by pair, in any order; a group that brings all instances may report offerings that were
sold out on the way. RunInstances brings instances of one pair, or is refused. All are read alike.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from karpenter_core.api.labels import RESERVED
from karpenter_core.errors import (
    BadInputError,
    CloudProviderError,
    ExhaustedScope,
    InsufficientCapacityError,
    LaunchFailedError,
    OfferingKey,
    ThrottledError,
)
from karpenter_core.provider.kit.unavailable_offerings import UnavailableOffering
from karpenter_provider_alibabacloud.catalogue.instance_type_info import list_at
from karpenter_provider_alibabacloud.catalogue.system_disks import DiskShortage
from karpenter_provider_alibabacloud.codes import (
    SHORTAGES,
    ErrorClass,
    classify,
    exhausted_scope,
    launch_reason,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from karpenter_core.provider.catalogue import InstanceType
    from karpenter_provider_alibabacloud.codes import ApiError
    from karpenter_provider_alibabacloud.launch.targets import LaunchTarget

__all__ = [
    "LaunchAnswer",
    "LaunchShortages",
    "NewInstance",
    "TargetFailure",
    "as_outcome",
    "read_group_answer",
    "read_run_answer",
    "refusal_answer",
    "shortages_of",
    "unserved_outcome",
]

_VSWITCH: Final = re.compile(r"\bvsw-[0-9a-z]+")
_WIDEST_FIRST: Final = (
    ExhaustedScope.FAMILY_QUOTA,
    ExhaustedScope.OFFERING,
    ExhaustedScope.NODE_CLASS,
)
_CATEGORY: Final = re.compile(r"\bcloud(?:_[a-z]+)*\b")
"""A kind of disk, as messages name it."""
_VCPUS: Final = re.compile(r"\bv?cpus?\b", re.IGNORECASE)
"""Names what a zone's quota counts; that of an instance type counts instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance:
    """An instance that was launched, and as what."""

    id: str
    target: LaunchTarget


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
    def reason(self) -> str:
        """The reason for metrics and conditions."""
        return launch_reason(self.code, self.message, status=self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """The new instances and the failures of a call; both in the order of the answer."""

    instances: tuple[NewInstance, ...] = ()
    failures: tuple[TargetFailure, ...] = ()
    request_id: str = ""
    tried: tuple[LaunchTarget, ...] | None = None
    """The targets of the call that were tried; None for all."""

    def by_vswitch(self) -> dict[str, int]:
        """Count the instances by vSwitch id."""
        return dict(Counter(item.target.vswitch.id for item in self.instances))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchShortages:
    """Everything that a launch found exhausted."""

    offerings: tuple[UnavailableOffering, ...] = ()
    disks: tuple[DiskShortage, ...] = ()
    vswitches: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    """Ids of private pools that have nothing left."""
    quotas: tuple[UnavailableOffering, ...] = ()
    """Offerings whose quota of the account is used up."""


def read_group_answer(body: Mapping[str, Any], targets: Sequence[LaunchTarget]) -> LaunchAnswer:
    """Read an answer of CreateAutoProvisioningGroup; `pairs` are what the call asked for.

    Raises:
        CloudProviderError: it tells of an instance that is none of the pairs.
    """
    known = {(target.instance_type.name, target.zone): target for target in reversed(targets)}
    bought: list[NewInstance] = []
    failures: list[TargetFailure] = []
    for row in list_at(body, "LaunchResults.LaunchResult"):
        name, zone = row.get("InstanceType") or "", row.get("ZoneId") or ""
        target = known.get((name, zone))
        for instance_id in _texts(row, "InstanceIds", "InstanceId"):
            if target is None:
                raise CloudProviderError(
                    f"ecs:CreateAutoProvisioningGroup: {instance_id} is of the type {name} in "
                    f"{zone or 'no zone'}, which was not requested"
                )
            bought.append(NewInstance(id=instance_id, target=target))
        code = row.get("ErrorCode") or ""
        if code:
            about = (target,) if target is not None else tuple(targets)
            failures.append(
                TargetFailure(code=code, message=row.get("ErrorMsg") or "", targets=about)
            )
    return LaunchAnswer(
        instances=tuple(bought),
        failures=tuple(failures),
        request_id=str(body.get("RequestId") or ""),
    )


def read_run_answer(body: Mapping[str, Any], target: LaunchTarget) -> LaunchAnswer:
    """Read an answer of RunInstances."""
    ids = _texts(body, "InstanceIdSets", "InstanceIdSet")
    return LaunchAnswer(
        instances=tuple(NewInstance(id=instance_id, target=target) for instance_id in ids),
        request_id=str(body.get("RequestId") or ""),
    )


def _texts(body: Mapping[str, Any], outer: str, inner: str) -> Sequence[str]:
    wrapped: Mapping[str, Any] = body.get(outer) or {}
    return wrapped.get(inner) or ()


def refusal_answer(error: ApiError, targets: Sequence[LaunchTarget]) -> LaunchAnswer:
    """Return the refusal of a call as the answer of one that brought nothing.

    Where the message names a vSwitch, it is about the pairs there alone: the others were not tried.
    """
    named = set(_VSWITCH.findall(error.message))
    about = tuple(target for target in targets if target.vswitch.id in named) or tuple(targets)
    failure = TargetFailure(
        code=error.code, message=error.message, targets=about, status=error.status
    )
    return LaunchAnswer(failures=(failure,), request_id=error.request_id, tried=about)


def shortages_of(
    failures: Iterable[TargetFailure],
    *,
    capacity_type: str,
    categories: Sequence[str],
    types: Iterable[InstanceType] = (),
) -> LaunchShortages:
    """Return what is not to be asked for again at once.

    `categories` are those of the system disk that the call could have had, `types` are what else the
    claims may become.
    """
    types = tuple(types)
    offerings: set[UnavailableOffering] = set()
    disks: set[DiskShortage] = set()
    vswitches: set[str] = set()
    reservations: set[str] = set()
    quotas: set[UnavailableOffering] = set()
    for failure in failures:
        kind = failure.error_class
        if kind is ErrorClass.QUOTA:
            quotas.update(_beyond_quota(failure, capacity_type, types))
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


def _beyond_quota(
    failure: TargetFailure, capacity_type: str, types: Iterable[InstanceType] = ()
) -> Iterator[UnavailableOffering]:
    """Yield what a quota closes: a type in all zones, or in one zone what is at least as large.

    Where the message names some of the types that were asked for, it is about those alone.
    """
    named = [p for p in failure.targets if _names(failure.message, p.instance_type.name)]
    about = named or failure.targets
    zone = next((p.zone for p in failure.targets if _names(failure.message, p.zone)), "")
    if zone and _VCPUS.search(failure.message):
        # A type that is named may have been asked for in other zones alone.
        there = [p.instance_type for p in named if p.zone == zone] or [
            p.instance_type for p in failure.targets if p.zone == zone
        ]
        least = min(it.capacity["cpu"] for it in there)
        for it in (*there, *types):
            if it.capacity["cpu"] >= least:
                yield UnavailableOffering(it.name, zone, capacity_type)
        return
    for target in about:
        for offering in target.instance_type.offerings:
            if offering.capacity_type == capacity_type:
                yield UnavailableOffering(target.instance_type.name, offering.zone, capacity_type)


def _names(message: str, name: str) -> bool:
    """Whether a message names something whose name may begin another one's."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", message) is not None


def unserved_outcome(
    answers: Sequence[LaunchAnswer], tried: Sequence[LaunchTarget]
) -> CloudProviderError:
    """Return the outcome of a claim that all these calls brought no instance.

    It is a lack of capacity when every failure is one, or when nothing is said at all.
    """
    failures = [failure for answer in answers for failure in answer.failures]
    if not failures:
        if any(answer.instances for answer in answers):
            return CloudProviderError(
                f"ECS launched fewer instances than requested, without a reason{_requests(answers)}"
            )
        return InsufficientCapacityError(
            f"ECS launched nothing, without a reason{_requests(answers)}",
            offerings=_keys(tried),
        )
    failure_text = _failure_text(answers)
    mistakes = [failure for failure in failures if not failure.is_shortage]
    if not mistakes:
        if any(failure.error_class is not ErrorClass.ADDRESSES for failure in failures):
            # Full vSwitches are of this NodeClass alone, and the next launch from it finds them marked.
            failures = [f for f in failures if f.error_class is not ErrorClass.ADDRESSES]
        scopes = {exhausted_scope(failure.error_class) for failure in failures}
        scope = next(scope for scope in _WIDEST_FIRST if scope in scopes)
        about = {id(target) for failure in failures for target in failure.targets}
        keys = dict.fromkeys(_keys(target for target in tried if id(target) in about))
        for failure in failures:
            if failure.error_class is ErrorClass.QUOTA:
                capacity_type = failure.targets[0].offering.capacity_type
                keys.update(
                    (OfferingKey(instance_type=mark[0], zone=mark[1], capacity_type=mark[2]), None)
                    for mark in _beyond_quota(failure, capacity_type)
                )
        return InsufficientCapacityError(failure_text, offerings=tuple(keys), scope=scope)
    first = next((f for f in mistakes if f.error_class is not ErrorClass.THROTTLED), None)
    if first is None:
        return ThrottledError(failure_text)
    return LaunchFailedError(failure_text, reason=first.reason)


def as_outcome(error: CloudProviderError | BadInputError) -> CloudProviderError:
    """Return an outcome; what is wrong with a NodeClass's own text waits for its user."""
    if isinstance(error, CloudProviderError):
        return error
    return LaunchFailedError(str(error), reason="InvalidNodeClass")


def _keys(targets: Iterable[LaunchTarget]) -> tuple[OfferingKey, ...]:
    keys = {
        OfferingKey(
            instance_type=target.instance_type.name,
            zone=target.zone,
            capacity_type=target.offering.capacity_type,
        ): None
        for target in targets
    }
    return tuple(keys)


def _failure_text(answers: Iterable[LaunchAnswer]) -> str:
    """Return what ECS said, each thing once, with the ids of the requests."""
    failed = [answer for answer in answers if answer.failures]
    texts = {
        ": ".join(part for part in (failure.code, failure.message) if part): None
        for answer in failed
        for failure in answer.failures
    }
    return f"{'; '.join(texts)}{_requests(failed)}"


def _requests(answers: Iterable[LaunchAnswer]) -> str:
    """Return the ids by which Alibaba Cloud finds the requests again."""
    ids = dict.fromkeys(answer.request_id for answer in answers if answer.request_id)
    return f" (request {', '.join(ids)})" if ids else ""
