"""What the answers of launches mean. Pure functions of values.

A provisioning group may bring some instances and say of the rest why not, pair by pair, in any order;
also one that brings all may tell of what was sold out on the way. RunInstances brings instances of one
pair, or is refused. All are read alike.
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
from karpenter_core.provider.kit.unavailable import OfferingMark
from karpenter_provider_alibabacloud.catalogue.facts import list_at
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
    from karpenter_provider_alibabacloud.launch.pairs import Pair

__all__ = [
    "Answer",
    "Bought",
    "Failure",
    "Marks",
    "as_outcome",
    "marks_of",
    "read_group",
    "read_run",
    "refused",
    "why_unserved",
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
class Bought:
    """An instance that was launched, and as what."""

    id: str
    pair: Pair


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why something could not be had."""

    code: str
    message: str
    pairs: tuple[Pair, ...]
    """What it is about; all of the call, where it does not say."""
    status: int = 0
    """Of HTTP, where the call was refused."""

    @property
    def error_class(self) -> ErrorClass:
        """What it means."""
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
class Answer:
    """What a call brought, and what went wrong; both in the order of the answer."""

    bought: tuple[Bought, ...] = ()
    failures: tuple[Failure, ...] = ()
    request_id: str = ""
    tried: tuple[Pair, ...] | None = None
    """What of the call was tried; None for all of it."""

    def by_vswitch(self) -> dict[str, int]:
        """Count the instances by vSwitch id."""
        return dict(Counter(item.pair.vswitch.id for item in self.bought))


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What a launch found exhausted."""

    offerings: tuple[OfferingMark, ...] = ()
    disks: tuple[DiskShortage, ...] = ()
    vswitches: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    """Ids of private pools that have nothing left."""
    quotas: tuple[OfferingMark, ...] = ()
    """What the account may have no more of."""


def read_group(body: Mapping[str, Any], pairs: Sequence[Pair]) -> Answer:
    """Read an answer of CreateAutoProvisioningGroup; `pairs` are what the call asked for.

    Raises:
        CloudProviderError: it tells of an instance that is none of the pairs.
    """
    known = {(pair.instance_type.name, pair.zone): pair for pair in reversed(pairs)}
    bought: list[Bought] = []
    failures: list[Failure] = []
    for row in list_at(body, "LaunchResults.LaunchResult"):
        name, zone = row.get("InstanceType") or "", row.get("ZoneId") or ""
        pair = known.get((name, zone))
        for instance_id in _texts(row, "InstanceIds", "InstanceId"):
            if pair is None:
                raise CloudProviderError(
                    f"ecs:CreateAutoProvisioningGroup: {instance_id} is of the type {name} in "
                    f"{zone or 'no zone'}, which was not asked for"
                )
            bought.append(Bought(id=instance_id, pair=pair))
        code = row.get("ErrorCode") or ""
        if code:
            about = (pair,) if pair is not None else tuple(pairs)
            failures.append(Failure(code=code, message=row.get("ErrorMsg") or "", pairs=about))
    return Answer(
        bought=tuple(bought),
        failures=tuple(failures),
        request_id=str(body.get("RequestId") or ""),
    )


def read_run(body: Mapping[str, Any], pair: Pair) -> Answer:
    """Read an answer of RunInstances."""
    ids = _texts(body, "InstanceIdSets", "InstanceIdSet")
    return Answer(
        bought=tuple(Bought(id=instance_id, pair=pair) for instance_id in ids),
        request_id=str(body.get("RequestId") or ""),
    )


def _texts(body: Mapping[str, Any], outer: str, inner: str) -> Sequence[str]:
    wrapped: Mapping[str, Any] = body.get(outer) or {}
    return wrapped.get(inner) or ()


def refused(error: ApiError, pairs: Sequence[Pair]) -> Answer:
    """Return the refusal of a call as the answer of one that brought nothing.

    Where the message names a vSwitch, it is about the pairs there alone: the others were not tried.
    """
    named = set(_VSWITCH.findall(error.message))
    about = tuple(pair for pair in pairs if pair.vswitch.id in named) or tuple(pairs)
    failure = Failure(code=error.code, message=error.message, pairs=about, status=error.status)
    return Answer(failures=(failure,), request_id=error.request_id, tried=about)


def marks_of(
    failures: Iterable[Failure],
    *,
    capacity_type: str,
    categories: Sequence[str],
    types: Iterable[InstanceType] = (),
) -> Marks:
    """Return what is not to be asked for again at once.

    `categories` are those of the system disk that the call could have had, `types` are what else the
    claims may become.
    """
    types = tuple(types)
    offerings: set[OfferingMark] = set()
    disks: set[DiskShortage] = set()
    vswitches: set[str] = set()
    reservations: set[str] = set()
    quotas: set[OfferingMark] = set()
    for failure in failures:
        kind = failure.error_class
        if kind is ErrorClass.QUOTA:
            quotas.update(_beyond_quota(failure, capacity_type, types))
        for pair in failure.pairs:
            name, zone = pair.instance_type.name, pair.zone
            match kind:
                case ErrorClass.CAPACITY if capacity_type == RESERVED:
                    reservations.add(pair.reservation_id)
                case ErrorClass.CAPACITY | ErrorClass.SPOT_PRICE:
                    offerings.add(OfferingMark(name, zone, capacity_type))
                case ErrorClass.DISK_CATEGORY:
                    disks.update(DiskShortage(name, zone, category) for category in categories)
                case ErrorClass.DISK_QUOTA:
                    named = set(_CATEGORY.findall(failure.message)).intersection(categories)
                    disks.update(DiskShortage("", zone, each) for each in named or categories)
                case ErrorClass.ADDRESSES:
                    vswitches.add(pair.vswitch.id)
                case _:
                    pass
    return Marks(
        offerings=tuple(sorted(offerings)),
        disks=tuple(sorted(disks)),
        vswitches=tuple(sorted(vswitches)),
        reservations=tuple(sorted(reservations)),
        quotas=tuple(sorted(quotas)),
    )


def _beyond_quota(
    failure: Failure, capacity_type: str, types: Iterable[InstanceType] = ()
) -> Iterator[OfferingMark]:
    """Yield what a quota closes: a type in all zones, or in one zone what is at least as large.

    Where the message names some of the types that were asked for, it is about those alone.
    """
    named = [p for p in failure.pairs if _names(failure.message, p.instance_type.name)]
    about = named or failure.pairs
    zone = next((p.zone for p in failure.pairs if _names(failure.message, p.zone)), "")
    if zone and _VCPUS.search(failure.message):
        # A type that is named may have been asked for in other zones alone.
        there = [p.instance_type for p in named if p.zone == zone] or [
            p.instance_type for p in failure.pairs if p.zone == zone
        ]
        least = min(it.capacity["cpu"] for it in there)
        for it in (*there, *types):
            if it.capacity["cpu"] >= least:
                yield OfferingMark(it.name, zone, capacity_type)
        return
    for pair in about:
        for offering in pair.instance_type.offerings:
            if offering.capacity_type == capacity_type:
                yield OfferingMark(pair.instance_type.name, offering.zone, capacity_type)


def _names(message: str, name: str) -> bool:
    """Whether a message names something whose name may begin another one's."""
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", message) is not None


def why_unserved(answers: Sequence[Answer], tried: Sequence[Pair]) -> CloudProviderError:
    """Return the outcome of a claim that all these calls brought no instance.

    It is a lack of capacity when every failure is one, or when nothing is said at all.
    """
    failures = [failure for answer in answers for failure in answer.failures]
    if not failures:
        if any(answer.bought for answer in answers):
            return CloudProviderError(
                "ECS launched fewer instances than were asked for, and does not say why"
                f"{_requests(answers)}"
            )
        return InsufficientCapacityError(
            f"ECS launched nothing, and does not say why{_requests(answers)}",
            offerings=_keys(tried),
        )
    said = _said(answers)
    mistakes = [failure for failure in failures if not failure.is_shortage]
    if not mistakes:
        if any(failure.error_class is not ErrorClass.ADDRESSES for failure in failures):
            # Full vSwitches are of this NodeClass alone, and the next launch from it finds them marked.
            failures = [f for f in failures if f.error_class is not ErrorClass.ADDRESSES]
        scopes = {exhausted_scope(failure.error_class) for failure in failures}
        scope = next(scope for scope in _WIDEST_FIRST if scope in scopes)
        about = {id(pair) for failure in failures for pair in failure.pairs}
        keys = dict.fromkeys(_keys(pair for pair in tried if id(pair) in about))
        for failure in failures:
            if failure.error_class is ErrorClass.QUOTA:
                capacity_type = failure.pairs[0].offering.capacity_type
                keys.update(
                    (OfferingKey(instance_type=mark[0], zone=mark[1], capacity_type=mark[2]), None)
                    for mark in _beyond_quota(failure, capacity_type)
                )
        return InsufficientCapacityError(said, offerings=tuple(keys), scope=scope)
    first = next((f for f in mistakes if f.error_class is not ErrorClass.THROTTLED), None)
    if first is None:
        return ThrottledError(said)
    return LaunchFailedError(said, reason=first.reason)


def as_outcome(error: CloudProviderError | BadInputError) -> CloudProviderError:
    """Return an outcome; what is wrong with a NodeClass's own text waits for its user."""
    if isinstance(error, CloudProviderError):
        return error
    return LaunchFailedError(str(error), reason="InvalidNodeClass")


def _keys(pairs: Iterable[Pair]) -> tuple[OfferingKey, ...]:
    keys = {
        OfferingKey(
            instance_type=pair.instance_type.name,
            zone=pair.zone,
            capacity_type=pair.offering.capacity_type,
        ): None
        for pair in pairs
    }
    return tuple(keys)


def _said(answers: Iterable[Answer]) -> str:
    """Return what ECS said, each thing once, with the ids of the requests."""
    failed = [answer for answer in answers if answer.failures]
    texts = {
        ": ".join(part for part in (failure.code, failure.message) if part): None
        for answer in failed
        for failure in answer.failures
    }
    return f"{'; '.join(texts)}{_requests(failed)}"


def _requests(answers: Iterable[Answer]) -> str:
    """Return the ids by which Alibaba Cloud finds the requests again."""
    ids = dict.fromkeys(answer.request_id for answer in answers if answer.request_id)
    return f" (request {', '.join(ids)})" if ids else ""
